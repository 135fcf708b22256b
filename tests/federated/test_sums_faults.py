"""Users and the key generator die and come back, messages are lost, doubled, late: no sum is wrong, nothing is lost."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

import blindsight.files
from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.federated.sums.aggregatorend import UnansweredError
from blindsight.federated.sums.messages import Call, Contribution
from blindsight.federated.sums.orders import read_order
from blindsight.federated.sums.ownerpart import OwnerPart
from blindsight.learn.dphe.terms import KEY_GENERATOR
from tests.federated.village import ALL_SCHEMES, DIMENSION, IMPATIENT, USERS, Gone, Village, damaged

KEYED = ("dphe", "block-dphe", "bfv")


def kill_while_writing(village, party, monkeypatch):
    """Return a list whose only number says after how many writes from now on the party is killed."""
    left, home = [-1], village.homes[party].path
    mkstemp, sync = blindsight.files.tempfile.mkstemp, blindsight.files.sync_folder

    def tick(folder):
        if Path(folder).is_relative_to(home) and left[0] >= 0:
            left[0] -= 1
            if left[0] < 0:
                raise Gone

    def before_writing(*args, **kwargs):
        tick(kwargs["dir"])
        return mkstemp(*args, **kwargs)

    def after_writing(folder):
        sync(folder)
        tick(folder)

    monkeypatch.setattr(blindsight.files.tempfile, "mkstemp", before_writing)
    monkeypatch.setattr(blindsight.files, "sync_folder", after_writing)
    return left


def forget_what_was_not_kept(village, server, name, round):
    """Strike out what a user learned and was killed before writing down: it has yet to learn it."""
    pending = OwnerPart(village.user_desk(name).end(server.terms.run))._load().pending
    if pending is None or pending.round != round:
        village.learned.pop((name, round), None)


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_user_killed_at_any_point_of_a_round_rejoins_and_loses_nothing(tmp_path, monkeypatch, scheme):
    village = Village(tmp_path, held=True)
    server = village.open(scheme)
    left = kill_while_writing(village, "bob", monkeypatch)
    moved, killed = np.zeros(DIMENSION, dtype=np.int64), 0
    for round in range(1, 100):
        village.draw(round, whole=True)
        left[0] = round - 1
        result = server.play(round, ())
        assert set(result.contributors) >= {"ann", "cem", "dan"}
        moved += result.total
        if left[0] >= 0:
            break
        killed += 1
        forget_what_was_not_kept(village, server, "bob", round)
    assert killed >= 2
    assert result.contributors == USERS
    assert np.array_equal(moved, village.everything_learned(server))


@pytest.mark.parametrize("scheme", KEYED)
def test_a_key_generator_killed_at_any_point_of_an_answer_answers_when_it_is_back(tmp_path, monkeypatch, scheme):
    village = Village(tmp_path)
    server = village.open(scheme)
    left = kill_while_writing(village, KEY_GENERATOR, monkeypatch)
    for round in range(1, 100):
        village.draw(round)
        left[0] = round - 1
        result = server.play(round, ())
        assert np.array_equal(result.total, village.plain_sum(server, USERS))
        assert server.run.progress.attempt == round - 1  # no attempt was wasted, so no sum was opened twice
        if left[0] >= 0:
            break
    assert round >= 3


@pytest.mark.parametrize("scheme", [*KEYED, "masks"])
def test_a_key_generator_killed_at_any_point_of_the_set_up_opens_the_run_when_it_is_back(tmp_path, monkeypatch, scheme):
    village = Village(tmp_path)
    left = kill_while_writing(village, KEY_GENERATOR, monkeypatch)
    for point in range(100):
        left[0] = point
        server = village.open(scheme)
        if left[0] >= 0:
            break
    assert point >= 2
    village.draw(1)
    assert np.array_equal(server.play(1, ()).total, village.plain_sum(server, USERS))


@pytest.mark.parametrize("scheme", KEYED)
def test_a_key_generator_that_is_away_is_waited_for_and_the_attempt_goes_on_later(tmp_path, scheme):
    village = Village(tmp_path)
    server = village.restarted(village.open(scheme), patience=IMPATIENT)
    village.draw(1)
    away = village.handlers.pop(KEY_GENERATOR)
    with pytest.raises(UnansweredError, match="did not answer"):
        server.play(1, ())
    village.handlers[KEY_GENERATOR] = away
    first, village.updates = dict(village.updates), {name: np.ones(DIMENSION) for name in USERS}
    result = village.restarted(server).play(1, ())
    assert np.array_equal(result.total, village.plain_sum(server, USERS, first))
    assert village.restarted(server).run.progress.attempt == 0


@pytest.mark.parametrize("scheme", KEYED)
def test_an_answer_that_was_altered_on_its_way_is_asked_for_again(tmp_path, scheme):
    village = Village(tmp_path)
    server = village.open(scheme)
    village.draw(1)
    seen = []

    def back(name, kind, parts):
        seen.append(kind)
        return (damaged(parts[0]),) if seen.count("answer") == 1 and kind == "answer" else parts

    village.courier.back = back
    assert np.array_equal(server.play(1, ()).total, village.plain_sum(server, USERS))
    assert seen.count("answer") == 2
    assert server.run.progress.attempt == 0


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_whatever_is_lost_doubled_or_late_nothing_is_counted_twice_or_forgotten(tmp_path, scheme, seed):
    rng = np.random.default_rng(seed)
    village = Village(tmp_path, held=True)
    server = village.open(scheme)
    old = {name: [] for name in USERS}

    def transit(name, kind, parts):
        if name in old:
            old[name].append((kind, parts))
            for again in rng.permutation(len(old[name]))[: rng.integers(3)]:  # late, doubled, out of order
                with contextlib.suppress(MessageError, PrivacyError, ValueError):
                    village.handlers[name](*old[name][again])
        return None if rng.random() < 0.1 else parts

    def back(name, kind, parts):
        return None if rng.random() < 0.1 else parts

    village.courier._transit, village.courier.back = transit, back
    moved = np.zeros(DIMENSION, dtype=np.int64)
    for round in range(1, 6):
        village.draw(round, whole=True)
        moved += server.play(round, ()).total
        if rng.random() < 0.5:
            server = village.restarted(server)
    village.courier._transit = village.courier.back = None
    village.draw(6, whole=True)
    result = server.play(6, ())
    assert result.contributors == USERS
    assert np.array_equal(moved + result.total, village.everything_learned(server))
    assert max(village.proposals.values()) == 1


def test_what_was_withheld_from_the_sum_is_held_by_those_who_sent_it(tmp_path):
    village = Village(tmp_path, held=True)
    server = village.open("block-dphe", minimum_per_position=2, capacity=DIMENSION)
    moved, rng, blocks = np.zeros(DIMENSION, dtype=np.int64), np.random.default_rng(5), DIMENSION // 30
    for round in range(1, 7):
        for name, update in village.draw(round, whole=True).items():
            village.updates[name] = update * np.repeat(rng.random(blocks) < 0.4, 30)
        away = village.handlers.pop("cem") if round in (2, 3) else None
        moved += server.play(round, ()).total
        if away is not None:
            village.handlers["cem"] = away
    held = sum(server.terms.sums.integers(memory_of(village, server, name).held) for name in USERS)
    assert held.any()
    assert np.array_equal(moved + held, village.everything_learned(server))


def memory_of(village, server, name):
    """Return what a user remembers once it knows what became of its last contribution."""
    part = OwnerPart(village.user_desk(name).end(server.terms.run))
    settles = server.run.progress.counted[name]
    call = Call(server.terms.run, name, 10**6, 10**6, 0, settles, server.run.answer(settles), b"")
    return part._settled(part._load().pending, call)


def evil_replies(village, scheme):
    """Return what bob may send instead of a contribution, by what it is."""
    other = Village(village.folder / "elsewhere")
    elsewhere = other.open(scheme)
    other.draw(0)
    foreign = {}
    other.courier.back = lambda name, kind, parts: foreign.setdefault((name, kind), parts)
    elsewhere.play(1, ())
    return {
        "nothing": [],
        "two parts": [b"", b""],
        "garbage": [b"garbage"],
        "no messages": [encode(Contribution(0, ()))],
        "garbage inside": [encode(Contribution(0, (b"garbage", b"")))],
        "another attempt": [encode(Contribution(7, ()))],
        "another run": list(foreign["bob", "contribute"]),
    }


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_garbage_in_place_of_a_contribution_is_refused_and_harms_nobody(tmp_path, scheme):
    village = Village(tmp_path)
    evil, honest = evil_replies(village, scheme), village.handlers["bob"]
    server = village.open(scheme)
    if scheme == "plain":
        del evil["another run"]  # nothing there says which run it is for
    for round, (what, reply) in enumerate(evil.items(), start=1):
        village.draw(round)

        def bob(kind, parts, reply=reply, what=what):
            if kind != "contribute":
                return honest(kind, parts)
            attempt = read_order(parts[0], Call)[0].attempt
            return [_with_attempt(part, attempt) for part in reply] if what != "another attempt" else reply

        village.handlers["bob"] = bob
        result = server.play(round, ())
        assert result.contributors == ("ann", "cem", "dan"), what
        assert result.refused["bob"], what
        assert np.array_equal(result.total, village.plain_sum(server, result.contributors)), what
    village.handlers["bob"] = honest
    village.draw(0)
    assert server.play(round + 1, ()).contributors == USERS


def _with_attempt(part, attempt):
    """Let a contribution name the present attempt, so that what is inside it has to be looked at."""
    try:
        return encode(Contribution(attempt, decode(part, Contribution).messages))
    except MessageError:
        return part


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_contribution_in_anothers_name_counts_once_and_for_its_author_alone(tmp_path, scheme):
    village = Village(tmp_path)
    server = village.open(scheme)
    village.draw(1)
    sent = {}

    def back(name, kind, parts):
        if kind != "contribute":
            return parts
        return sent.setdefault("ann" if name in ("ann", "bob") else name, parts)

    village.courier.back = back
    result = server.play(1, ())
    assert result.contributors == ("ann", "cem", "dan")
    assert np.array_equal(result.total, village.plain_sum(server, result.contributors))
    assert "bob" in result.refused


@pytest.mark.parametrize("kind", ["advertise", "share", "unmask"])
def test_a_user_that_sends_rubbish_in_a_step_of_the_masks_drops_out_of_the_round(tmp_path, kind):
    village = Village(tmp_path)
    server = village.open("masks")
    village.draw(1)
    village.courier.back = lambda name, asked, parts: (b"rubbish",) if (name, asked) == ("bob", kind) else parts
    result = server.play(1, ())
    assert result.contributors == (USERS if kind == "unmask" else ("ann", "cem", "dan"))
    assert np.array_equal(result.total, village.plain_sum(server, result.contributors))
    assert "less than a header" in server.refused["bob"]


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_too_few_users_are_a_sentence_and_the_round_goes_on_when_they_are_back(tmp_path, scheme):
    village = Village(tmp_path)
    server = village.restarted(village.open(scheme), patience=IMPATIENT)
    village.draw(1)
    away = {name: village.handlers.pop(name) for name in ("bob", "cem")}
    with pytest.raises(PrivacyError, match="2 users"):
        server.play(1, ())
    village.handlers |= away
    assert server.play(1, ()).contributors == USERS
    assert set(village.proposals.values()) == {1}


def test_masks_that_are_down_to_fewer_than_the_threshold_try_again(tmp_path):
    village = Village(tmp_path)
    server = village.open("masks")
    village.draw(1)
    lost = []

    def back(name, kind, parts):
        if kind == "contribute" and name in ("ann", "bob") and len(lost) < 2:
            lost.append(name)
            return None
        return parts

    village.courier.back = back
    result = server.play(1, ())
    assert lost == ["ann", "bob"]
    assert result.contributors == USERS
    assert server.run.progress.attempt == 1
    assert np.array_equal(result.total, village.plain_sum(server, USERS))
    assert set(village.proposals.values()) == {1}


@pytest.mark.parametrize("scheme", [*KEYED, "masks"])
def test_a_user_that_got_anothers_letter_is_not_set_up_and_the_others_go_on(tmp_path, scheme):
    village = Village(tmp_path)
    server = village.open(scheme)
    server.run.letters["bob"] = server.run.letters["ann"]
    village.draw(1)
    result = server.play(1, ())
    assert result.contributors == ("ann", "cem", "dan")
    assert "bob" in result.refused


def test_a_run_cannot_go_back_nor_play_a_round_twice(tmp_path):
    village = Village(tmp_path)
    server = village.open("plain")
    village.draw(1)
    server.play(1, ())
    with pytest.raises(ValueError, match="round 1 has its sum already"):
        server.begin(1)
    server.play(2, ())
    with pytest.raises(ValueError, match="no way back to round 1"):
        server.play(1, ())
