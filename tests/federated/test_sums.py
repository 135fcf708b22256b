"""Sums across parties that each live in a folder: whoever is away, killed, late or hostile, no sum is wrong."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError
from blindsight.federated.sums.aggregatorend import UnansweredError
from blindsight.federated.sums.messages import Call, Contribution
from blindsight.federated.sums.opening import find_run, label_run
from blindsight.federated.sums.orders import next_attempt, ordinal, read_order
from blindsight.federated.sums.ownerpart import OwnerPart
from blindsight.federated.sums.server import SumServer
from blindsight.files import write_arrays
from blindsight.learn.dphe.messages import Contribution as DpheContribution
from blindsight.learn.dphe.messages import Receipt, Shard
from blindsight.learn.dphe.receipts import vouch
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.masks.messages import Survivors, UnmaskRequest
from blindsight.learn.rounds import Memory, Proposal
from tests.federated.village import ALL_SCHEMES, DECRYPTED, DIMENSION, IMPATIENT, PATIENCE, USERS, Village, damaged
from tests.learn.mutants import mutant

REST = ("ann", "cem", "dan")  # without bob


def nth(attempt):
    """Return the number of an attempt beside whose calls nothing travels."""
    return attempt << 256


@pytest.fixture
def village(tmp_path):
    return Village(tmp_path)


@pytest.fixture
def frugal(tmp_path):
    """A village whose users keep what did not get into a sum."""
    return Village(tmp_path, held=True)


def played(village, server, round):
    """Play a round and return its result, whose sum is that of its contributors."""
    village.draw(round)
    result = server.play(round, ())
    assert np.array_equal(result.total, village.plain_sum(server, result.contributors))
    return result


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_the_sum_is_the_plain_sum_whoever_is_gone_and_comes_back(village, scheme):
    server, lengths = village.open(scheme), []
    village.courier.back = lambda name, kind, parts: (kind == "contribute" and lengths.append(len(parts[0]))) or parts
    assert played(village, server, 1).contributors == USERS
    assert max(lengths) < server.terms.most_bytes < 5 << 20
    bob = village.handlers.pop("bob")
    assert played(village, server, 2).contributors == REST
    village.handlers["bob"] = bob
    label_run(village.homes[AGGREGATOR], "digits", server.run, seed=7)
    server = SumServer(find_run(village.homes[AGGREGATOR], "digits", seed=7), village.courier, PATIENCE)  # killed since
    third = played(village, server, 3)
    assert third.contributors == USERS
    del village.handlers[KEY_GENERATOR], village.handlers["ann"]
    again = village.restarted(server).play(3, ())  # killed before it could use the sum
    assert again.contributors == third.contributors
    assert np.array_equal(again.total, third.total)
    assert all(count == 1 for count in village.proposals.values())


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_too_few_users_are_a_sentence_and_the_round_goes_on_when_they_are_back(village, scheme):
    server = village.restarted(village.open(scheme), patience=IMPATIENT)
    village.draw(1)
    away = {name: village.handlers.pop(name) for name in ("bob", "cem")}
    with pytest.raises(PrivacyError, match="2 users"):
        server.play(1, ())
    village.handlers |= away
    assert server.play(1, ()).contributors == USERS
    assert set(village.proposals.values()) == {1}


@pytest.mark.parametrize("scheme", DECRYPTED)
def test_a_key_generator_that_is_away_or_misheard_is_asked_again_for_the_same_attempt(village, scheme):
    server = village.restarted(village.open(scheme), patience=IMPATIENT)
    village.draw(1)
    away = village.handlers.pop(KEY_GENERATOR)
    with pytest.raises(UnansweredError):
        server.play(1, ())
    village.handlers[KEY_GENERATOR] = away
    first, village.updates = dict(village.updates), {name: np.ones(DIMENSION) for name in USERS}
    answers = []

    def back(name, kind, parts):
        answers.extend([kind] * (kind == "answer"))
        return (damaged(parts[0]),) if kind == "answer" and len(answers) == 1 else parts

    village.courier.back = back
    result = village.restarted(server).play(1, ())
    assert np.array_equal(result.total, village.plain_sum(server, USERS, first))
    assert len(answers) == 2
    assert village.restarted(server).run.progress.attempt == 0


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_whatever_is_lost_doubled_or_late_nothing_is_counted_twice_or_forgotten(frugal, scheme, seed):
    village, rng = frugal, np.random.default_rng(seed)
    server = village.open(scheme)
    old = {name: [] for name in USERS}

    def transit(name, kind, parts):
        if name in old:
            old[name].append((kind, parts))
            for again in rng.permutation(len(old[name]))[: rng.integers(3)]:  # late, doubled, out of order
                with contextlib.suppress(MessageError, PrivacyError, ValueError):
                    village.handlers[name](*old[name][again])
        return None if rng.random() < 0.1 else parts

    village.courier._transit = transit
    village.courier.back = lambda name, kind, parts: None if rng.random() < 0.1 else parts
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


def test_what_was_withheld_from_the_sum_is_held_by_those_who_sent_it(frugal):
    village = frugal
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
    call = Call(server.terms.run, name, 10**6, nth(10**6), 0, settles, server.run.answer(settles), b"")
    return part._settled(part._load().pending, call)


def foreign_contribution(folder, scheme):
    """Return what bob sent in another run."""
    other, sent = Village(folder), {}
    elsewhere = other.open(scheme)
    other.draw(0)
    other.courier.back = lambda name, kind, parts: sent.setdefault((name, kind), parts)
    elsewhere.play(1, ())
    return sent["bob", "contribute"][0]


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_garbage_in_place_of_a_contribution_is_refused_and_harms_nobody(village, scheme):
    server, honest = village.open(scheme), village.handlers["bob"]
    foreign = decode(foreign_contribution(village.folder / "elsewhere", scheme), Contribution).messages
    evil = {
        "nothing": lambda attempt: [],
        "two parts": lambda attempt: [b"", b""],
        "garbage": lambda attempt: [b"garbage"],
        "no messages": lambda attempt: [encode(Contribution(attempt, ()))],
        "garbage inside": lambda attempt: [encode(Contribution(attempt, (b"garbage", b"")))],
        "another attempt": lambda attempt: [encode(Contribution(attempt + 7, ()))],
        "another run": lambda attempt: [encode(Contribution(attempt, foreign))],
    }
    if scheme == "plain":
        del evil["another run"]  # nothing there says which run it is for
    for round, (what, reply) in enumerate(evil.items(), start=1):

        def bob(kind, parts, reply=reply):
            return reply(read_order(parts[0], Call)[0].attempt) if kind == "contribute" else honest(kind, parts)

        village.handlers["bob"] = bob
        result = played(village, server, round)
        assert result.contributors == REST, what
        assert result.refused["bob"], what
    village.handlers["bob"] = honest
    sent = {}

    def back(name, kind, parts):  # ann's contribution, in bob's name as well
        return parts if kind != "contribute" else sent.setdefault("ann" if name in ("ann", "bob") else name, parts)

    village.courier.back = back
    result = played(village, server, round + 1)
    assert result.contributors == REST
    assert "bob" in result.refused
    village.courier.back = None
    assert played(village, server, round + 2).contributors == USERS


def test_one_member_ends_the_run(village):
    server, honest, lies = village.open("block-dphe"), village.handlers["bob"], []

    def bob(kind, parts):
        replies = honest(kind, parts)
        if kind != "contribute":
            return replies
        key = village.user_desk("bob").end(server.terms.run)._user._key
        contribution = decode(replies[0], Contribution)
        receipt, shard = read_contribution(contribution.messages[0])
        body = encode(replace(shard, **lies[-1]))
        forged = vouch(key, "bob", [body], run=receipt.run, round=receipt.round)
        return [encode(replace(contribution, messages=tuple(forged)))]

    village.handlers["bob"] = bob
    for round, lie in enumerate(({"ciphertexts": np.array(7, dtype=np.uint8)}, {"places": np.array([0, 2**63 - 1])})):
        lies.append(lie)
        result = played(village, server, round + 1)
        assert result.contributors == REST
        assert result.refused["bob"]


@pytest.mark.parametrize("scheme", ["masks", "block-dphe", "bfv"])
def test_mutants_of_a_contribution_are_noted_and_harm_nobody(village, scheme):
    server, rng = village.open(scheme), np.random.default_rng(0)
    village.draw(1)
    replies = {name: village.handlers[name]("contribute", (call,))[0] for name, call in server.begin(1).items()}
    bobs = decode(replies["bob"], Contribution)
    for _ in range(100):
        server.receive("bob", mutant(bobs, rng))
    for name in REST:
        server.receive(name, replies[name])
    result = server.finish()
    assert set(result.contributors) >= set(REST)
    assert np.array_equal(result.total, village.plain_sum(server, result.contributors))


def read_contribution(message):
    contribution = decode(message, DpheContribution)
    return decode(decode(contribution.receipt, Signed).body, Receipt), decode(contribution.shard, Shard)


@pytest.mark.parametrize("kind", ["advertise", "share", "consistency", "unmask"])
def test_a_user_that_sends_rubbish_in_a_step_of_the_masks_drops_out_of_the_round(village, kind):
    server = village.open("masks")
    village.courier.back = lambda name, asked, parts: (b"rubbish",) if (name, asked) == ("bob", kind) else parts
    assert played(village, server, 1).contributors == (USERS if kind in ("consistency", "unmask") else REST)
    assert "bob" in server.refused


def test_masks_that_are_down_to_fewer_than_the_threshold_try_again(village):
    server, lost = village.open("masks"), []

    def back(name, kind, parts):
        if kind == "contribute" and name in ("ann", "bob") and len(lost) < 2:
            lost.append(name)
            return None
        return parts

    village.courier.back = back
    assert played(village, server, 1).contributors == USERS
    assert lost == ["ann", "bob"]
    assert ordinal(server.run.progress.attempt) == 1
    assert set(village.proposals.values()) == {1}


def test_inconsistent_drop_out_sets_across_machines_reveal_nothing(village, monkeypatch):
    server, revealed, attempts = village.open("masks"), [], []
    honest, masks = server._end.finish, server._end._masks

    def lying(ask):
        """Tell half of the users that dan has dropped out, and show everybody all signatures."""
        said = masks.roster.digest, server.run.progress.attempt
        attempts.append(said[1])
        masks.survivors()
        told = {name: masks._signed(Survivors(*said, USERS[:3] if name in ("bob", "cem") else USERS)) for name in USERS}
        signed = ask("consistency", told)
        assert set(signed) == set(USERS)
        request = masks._signed(UnmaskRequest(*said, tuple(signed.values())))
        revealed.append(ask("unmask", dict.fromkeys(USERS, request)))
        monkeypatch.setattr(server._end, "finish", honest)
        raise MessageError("the round failed.")

    monkeypatch.setattr(server._end, "finish", lying)
    assert played(village, server, 1).contributors == USERS
    assert revealed == [{}]
    assert server.run.progress.attempt > attempts[0]  # the round was repeated with new masks


@pytest.mark.parametrize("scheme", [*DECRYPTED, "masks"])
def test_a_user_that_got_anothers_letter_is_not_set_up_and_the_others_go_on(village, scheme):
    server = village.open(scheme)
    server.run.letters["bob"] = server.run.letters["ann"]
    result = played(village, server, 1)
    assert result.contributors == REST
    assert "bob" in result.refused


def test_a_run_cannot_go_back_nor_play_a_round_twice(village):
    server = village.open("plain")
    played(village, server, 1)
    with pytest.raises(ValueError, match="round 1"):
        server.begin(1)
    played(village, server, 2)
    with pytest.raises(ValueError, match="round 1"):
        server.play(1, ())


# ---- an owner is called twice, late, for another round, by somebody confused


def called(village, scheme, rounds=2):
    """Play rounds; return the server, and bob's calls and replies in each."""
    server, calls, replies = village.open(scheme), [], []

    def noted(into):
        return lambda name, kind, parts: ((name, kind) == ("bob", "contribute") and into.append(parts)) or parts

    village.courier._transit, village.courier.back = noted(calls), noted(replies)
    for round in range(1, rounds + 1):
        village.draw(round, whole=True)
        server.play(round, ())
    return server, [read_order(parts[0], Call)[0] for parts in calls], [parts[0] for parts in replies]


def memory_file(village, server):
    return village.homes["bob"].folder(server.terms.run) / "memory.npz"


@contextlib.contextmanager
def refused_without_a_trace(village, server):
    before = memory_file(village, server).read_bytes()
    with pytest.raises(MessageError):
        yield
    assert memory_file(village, server).read_bytes() == before


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_call_gets_the_same_bytes_again_and_one_that_is_late_or_out_of_order_nothing(frugal, scheme):
    village = frugal
    server, calls, replies = called(village, scheme)
    village.draw(99, whole=True)
    assert village.contribute("bob", calls[-1]) == replies[-1]  # whatever was learned since
    assert village.proposals["bob", 2] == 1
    late = [
        calls[0],
        replace(calls[-1], round=3),  # the same attempt for another round
        replace(calls[-1], round=1),
        replace(calls[-1], round=1, attempt=nth(5)),  # a round that is over, as a new attempt
        replace(calls[-1], settles=nth(1)),  # an attempt that tells what became of itself
        replace(calls[-1], settles=nth(9), attempt=nth(9)),
        replace(calls[-1], attempt=next_attempt(nth(1), [b"another model"])),
    ]
    for call in late:
        with refused_without_a_trace(village, server):
            village.contribute("bob", call)


@pytest.mark.parametrize("scheme", [*DECRYPTED, "masks"])
def test_an_answer_of_another_attempt_run_or_author_settles_nothing(frugal, scheme):
    server, calls, replies = called(frugal, scheme, rounds=3)
    settling = replace(calls[-1], round=4, attempt=nth(3), settles=nth(2))
    for answer in (b"", b"garbage", calls[-1].answer, damaged(server.run.answer(nth(2))), replies[0]):
        with refused_without_a_trace(frugal, server):
            frugal.contribute("bob", replace(settling, answer=answer))


def test_an_owner_whose_contribution_did_not_enter_sends_it_in_the_next_round(frugal):
    server = frugal.open("bfv")
    frugal.courier.back = lambda name, kind, parts: None if (name, kind) == ("bob", "contribute") else parts
    first = frugal.draw(1, whole=True)
    assert server.play(1, ()).contributors == REST
    frugal.courier.back = None
    second = frugal.draw(2, whole=True)
    integers = server.terms.sums.integers
    assert np.array_equal(server.play(2, ()).total, frugal.plain_sum(server, USERS, second) + integers(first["bob"]))


def test_updates_of_other_dimensions_or_not_finite_are_refused_and_not_kept(village):
    server = village.open("bfv")
    village.draw(1)
    village.updates["bob"][3] = np.nan
    assert "not finite" in server.play(1, ()).refused["bob"]
    propose = village.propose
    village.propose = lambda name, memory: (
        Proposal(np.zeros(DIMENSION + 7), Memory(None, None)) if name == "bob" else propose(name, memory)
    )
    result = played(village, server, 2)
    assert result.contributors == REST
    assert f"give {DIMENSION + 7}" in result.refused["bob"]
    village.propose = propose
    assert played(village, server, 3).contributors == USERS


def test_what_is_beyond_the_fixed_point_is_sent_later(frugal):
    server = frugal.open("block-dphe")
    limit = float(server.terms.sums.values(np.array(server.terms.sums.max_integer)))
    frugal.draw(1, whole=True)
    frugal.updates["bob"][0] = 1.5 * limit
    first = server.play(1, ()).total[0]
    frugal.updates = {name: np.zeros(DIMENSION) for name in USERS}
    second = server.play(2, ()).total[0]
    learned = sum(float(frugal.learned[name, 1][0]) for name in USERS)
    assert (first + second) / 2**16 == pytest.approx(learned, abs=1e-3)


def test_what_an_owner_remembers_is_not_shown_and_refused_if_it_was_altered(frugal):
    server, calls, _ = called(frugal, "plain")
    part = OwnerPart(frugal.user_desk("bob").end(server.terms.run))
    assert "array" not in repr(part._load()) + repr(part._load().pending) + repr(part)
    with pytest.raises(InputError, match="does not take part"):
        type(part._end)("eve", server.terms, part._end.folder)
    path = memory_file(frugal, server)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorruptFileError):
        frugal.contribute("bob", calls[-1])
    write_arrays(path, "blindsight/owner-memory.1", {"pending": [1]}, {}, private=True)
    with pytest.raises(CorruptFileError, match="remembers"):
        frugal.contribute("bob", calls[-1])
