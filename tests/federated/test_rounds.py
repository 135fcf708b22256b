"""Rounds across parties that each live in a folder: whoever is away, killed, late or hostile, no sum is wrong."""

import contextlib
import importlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.signing import Signed, SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import BlindsightError, CorruptFileError, MessageError, PrivacyError
from blindsight.federated.node import Note, lesson
from blindsight.federated.server import RemoteSums, load_run
from blindsight.files import write_arrays
from blindsight.rounds import Member, Update
from blindsight.sums import UnansweredError
from blindsight.sums.engine import Response
from blindsight.sums.masks import Survivors, UnmaskRequest
from blindsight.sums.messages import Answer, Call, Reply
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.federated.parties import (
    ALL_SCHEMES,
    DIMENSION,
    IMPATIENT,
    KEYED,
    MEMBERS,
    PATIENCE,
    Parties,
    damaged,
    model,
    numbers,
)
from tests.learn.mutants import mutant

REST = ("ann", "cem", "dan")  # without bob


@pytest.fixture
def parties(tmp_path):
    return Parties(tmp_path)


@pytest.fixture
def frugal(tmp_path):
    """Parties whose members keep what did not get into a sum."""
    return Parties(tmp_path, held=True)


def played(parties, server, round):
    """Play a round and return its result, whose sum is that of its contributors."""
    parties.draw(round)
    result = server.round(round, model(round))
    assert np.array_equal(result.total, parties.plain_sum(server, result.contributors))
    return result


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_the_sum_is_the_plain_sum_whoever_is_gone_and_comes_back(parties, scheme):
    server, lengths = parties.open(scheme), []
    parties.network.back = lambda name, kind, parts: (kind == "contribute" and lengths.append(len(parts[0]))) or parts
    assert played(parties, server, 1).contributors == MEMBERS
    assert max(lengths) < server.terms.most_bytes < 5 << 20
    bob = parties.handlers.pop("bob")
    assert played(parties, server, 2).contributors == REST
    parties.handlers["bob"] = bob
    server.run.label("digits", seed=7)
    server = RemoteSums(load_run(parties.stores[AGGREGATOR], "digits", seed=7), parties.network, PATIENCE, numbers())
    third = played(parties, server, 3)
    assert third.contributors == MEMBERS
    del parties.handlers[KEY_GENERATOR], parties.handlers["ann"]
    again = parties.restarted(server).round(3, model(3))  # killed before it could use the sum
    assert again.contributors == third.contributors
    assert np.array_equal(again.total, third.total)
    assert all(count == 1 for count in parties.proposals.values())


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_too_few_members_are_a_sentence_and_the_round_goes_on_when_they_are_back(parties, scheme):
    server = parties.restarted(parties.open(scheme), patience=IMPATIENT)
    parties.draw(1)
    away = {name: parties.handlers.pop(name) for name in ("bob", "cem")}
    with pytest.raises(PrivacyError, match="2 members"):
        server.round(1, model(1))
    number = server.run.number
    parties.handlers |= away
    assert server.round(1, model(1)).contributors == MEMBERS
    assert server.run.number == number
    assert set(parties.proposals.values()) == {1}


@pytest.mark.parametrize("scheme", KEYED)
def test_a_key_generator_that_is_away_or_misheard_is_asked_again_for_the_same_sum(parties, scheme):
    server = parties.restarted(parties.open(scheme), patience=IMPATIENT)
    parties.draw(1)
    away = parties.handlers.pop(KEY_GENERATOR)
    with pytest.raises(UnansweredError):
        server.round(1, model(1))
    parties.handlers[KEY_GENERATOR] = away
    first, parties.updates = dict(parties.updates), {name: np.ones(DIMENSION) for name in MEMBERS}
    answers = []

    def back(name, kind, parts):
        answers.extend([kind] * (kind == "open"))
        return (damaged(parts[0]),) if kind == "open" and len(answers) == 1 else parts

    parties.network.back = back
    result = parties.restarted(server).round(1, model(1))
    assert np.array_equal(result.total, parties.plain_sum(server, MEMBERS, first))
    assert len(answers) == 2
    assert parties.reloaded(server).number == 1


class TestDifferencingAttempts:
    """The network forges an error of the key generator, or loses replies, and has the round tried without dan."""

    def opened(self, parties, scheme, server):
        """Return how many sums were opened, as whoever opens them knows."""
        if scheme == "masks":
            return len(list(server.run.folder.glob("answer-*")))
        return sum("the sum of" in entry for entry in parties.key_generator(server.terms.run).log)

    @pytest.mark.parametrize("scheme", [*KEYED, "masks"])
    def test_opens_one_sum(self, parties, scheme):
        server = parties.open(scheme, patience=IMPATIENT)
        parties.draw(1)
        kind = "unmask" if scheme == "masks" else "open"
        honest, forged = dict(parties.handlers), []

        def spoilt(name):
            def handle(asked, parts):
                reply = honest[name](asked, parts)
                if asked == kind:
                    forged.append(name)
                    raise MessageError("the key generator refused: begin again without dan.")
                return reply

            return handle

        parties.handlers |= {name: spoilt(name) for name in honest}
        with pytest.raises(UnansweredError):
            server.round(1, model(1))
        assert forged
        parties.handlers |= honest
        del parties.handlers["dan"]
        result = parties.restarted(server, patience=IMPATIENT).round(1, model(1))
        assert result.contributors == MEMBERS  # dan is in the one sum that there is
        assert np.array_equal(result.total, parties.plain_sum(server, MEMBERS))
        assert self.opened(parties, scheme, server) == 1
        with pytest.raises(PrivacyError):  # a round more with the same model, and nobody takes part
            parties.restarted(server, patience=IMPATIENT).round(2, model(1))
        assert self.opened(parties, scheme, server) == 1
        assert max(parties.proposals.values()) == 1

    def test_a_sum_of_zeros_that_the_server_signs_opens_no_other(self, parties, monkeypatch):
        server = parties.open("masks", patience=IMPATIENT)
        parties.draw(1)
        server.round(1, model(1))
        unseen = RemoteSums._unseen

        def zeros(server, member):
            for answer in unseen(server, member):
                lie, role = decode(decode(answer, Signed).body, Answer), server.aggregator
                lie = replace(lie, sums=bytes(DIMENSION * role.terms.residue_type.itemsize))
                yield role.roster.signed(role._key, AGGREGATOR, lie)

        monkeypatch.setattr(RemoteSums, "_unseen", lambda *given: tuple(zeros(*given)))
        del parties.handlers["dan"]
        with pytest.raises(PrivacyError):
            parties.restarted(server, patience=IMPATIENT).round(2, model(1))
        assert self.opened(parties, "masks", server) == 1
        assert parties.proposals == Counter((name, 1) for name in MEMBERS)

    def test_a_forged_error_is_like_a_lost_message(self, parties):
        server = parties.open("bfv")
        parties.draw(1)
        honest, times = parties.handlers[KEY_GENERATOR], []

        def spoilt(kind, parts):
            times.append(kind)
            if len(times) < 4:
                raise PrivacyError("nothing of round 1 is released, and it is over.")
            return honest(kind, parts)

        parties.handlers[KEY_GENERATOR] = spoilt
        assert server.round(1, model(1)).contributors == MEMBERS
        assert server.run.number == 1


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_whatever_is_lost_doubled_or_late_nothing_is_counted_twice_or_forgotten(frugal, scheme, seed):
    parties, rng = frugal, np.random.default_rng(seed)
    server = parties.open(scheme)
    old = {name: [] for name in MEMBERS}

    def there(name, kind, parts):
        if name in old:
            old[name].append((kind, parts))
            for again in rng.permutation(len(old[name]))[: rng.integers(3)]:  # late, doubled, out of order
                with contextlib.suppress(BlindsightError):
                    parties.handlers[name](*old[name][again])
        return None if rng.random() < 0.1 else parts

    parties.network.there = there
    parties.network.back = lambda name, kind, parts: None if rng.random() < 0.1 else parts
    moved = np.zeros(DIMENSION, dtype=np.int64)
    for round in range(1, 6):
        parties.draw(round, whole=True)
        moved += server.round(round, model(round)).total
        if rng.random() < 0.5:
            server = parties.restarted(server)
    parties.network.there = parties.network.back = None
    parties.draw(6, whole=True)
    result = server.round(6, model(6))
    assert result.contributors == MEMBERS
    assert np.array_equal(moved + result.total, parties.everything_learned(server))
    assert max(parties.proposals.values()) == 1


def test_what_was_withheld_from_the_sum_is_held_by_those_who_sent_it(frugal):
    parties = frugal
    server = parties.open("block-dphe", minimum_per_position=2, capacity=DIMENSION)
    moved, rng, blocks = np.zeros(DIMENSION, dtype=np.int64), np.random.default_rng(5), DIMENSION // 30
    for round in range(1, 7):
        for name, update in parties.draw(round, whole=True).items():
            parties.updates[name] = update * np.repeat(rng.random(blocks) < 0.4, 30)
        away = parties.handlers.pop("cem") if round in (2, 3) else None
        moved += server.round(round, model(round)).total
        if away is not None:
            parties.handlers["cem"] = away
    held = sum(server.terms.integers(memory_of(parties, server, name).held) for name in MEMBERS)
    assert held.any()
    assert np.array_equal(moved + held, parties.everything_learned(server))


def memory_of(parties, server, name):
    """Return what a member remembers once it knows what became of its last contribution."""
    member = parties.member(name)
    role = member.sum_role(server.terms.run)
    member._settle(role, [server.run.answer(number) for number in {*server.run.counted.values()}])
    memory = remembered(parties, server, name)
    assert memory.pending is None
    return memory.memory


def remembered(parties, server, name):
    return Member(name, server.terms, path=parties.stores[name].folder(server.terms.run) / "memory.npz")


def foreign_contribution(folder, scheme):
    """Return what bob sent in another run."""
    other, sent = Parties(folder), {}
    elsewhere = other.open(scheme)
    other.draw(0)
    other.network.back = lambda name, kind, parts: sent.setdefault((name, kind), parts)
    elsewhere.round(1, model(1))
    return sent["bob", "contribute"]


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_garbage_in_place_of_a_contribution_is_refused_and_harms_nobody(parties, scheme):
    server, honest = parties.open(scheme), parties.handlers["bob"]
    evil = {
        "nothing": [],
        "two parts": [b"", b""],
        "garbage": [b"garbage"],
        "no receipt": [encode(Reply(b"", b"body"))],
        "another run": list(foreign_contribution(parties.folder / "elsewhere", scheme)),
    }
    for round, (what, reply) in enumerate(evil.items(), start=1):
        parties.handlers["bob"] = lambda kind, parts, reply=reply: (
            reply if kind == "contribute" else honest(kind, parts)
        )
        result = played(parties, server, round)
        assert result.contributors == REST, what
        assert result.missing["bob"], what
    parties.handlers["bob"] = honest
    sent = {}

    def back(name, kind, parts):  # ann's contribution, in bob's name as well
        return parts if kind != "contribute" else sent.setdefault("ann" if name in ("ann", "bob") else name, parts)

    parties.network.back = back
    result = played(parties, server, round + 1)
    assert result.contributors == REST
    assert "bob" in result.missing
    parties.network.back = None
    assert played(parties, server, round + 2).contributors == MEMBERS


@pytest.mark.parametrize("scheme", ["masks", "block-dphe", "bfv"])
def test_mutants_of_a_contribution_are_noted_and_harm_nobody(parties, scheme):
    server, rng = parties.open(scheme), np.random.default_rng(0)
    parties.draw(1)
    replies = {name: parties.handlers[name]("contribute", parts)[0] for name, parts in server.begin(1).items()}
    bobs = decode(replies["bob"], Reply)
    for _ in range(100):
        server.receive("bob", Response((mutant(bobs, rng),)))
    for name in REST:
        server.receive(name, Response((replies[name],)))
    result = server.sum_of(server.finish()[1])
    assert set(result.contributors) >= set(REST)
    assert np.array_equal(result.total, parties.plain_sum(server, result.contributors))


@pytest.mark.parametrize("kind", ["advertise", "share", "consistency", "unmask"])
def test_a_member_that_sends_rubbish_in_a_step_of_the_masks_drops_out_of_the_round(parties, kind):
    server = parties.open("masks")
    parties.network.back = lambda name, asked, parts: (b"rubbish",) if (name, asked) == ("bob", kind) else parts
    assert played(parties, server, 1).contributors == (MEMBERS if kind in ("consistency", "unmask") else REST)
    assert "bob" in server.refused


def test_masks_that_are_down_to_fewer_than_the_threshold_try_again(parties):
    server, lost = parties.open("masks"), []

    def back(name, kind, parts):
        if kind == "contribute" and name in ("ann", "bob") and len(lost) < 2:
            lost.append(name)
            return None
        return parts

    parties.network.back = back
    assert played(parties, server, 1).contributors == MEMBERS
    assert lost == ["ann", "bob"]
    assert server.aggregator.attempt == 1
    assert set(parties.proposals.values()) == {1}


def test_inconsistent_drop_out_sets_across_machines_reveal_nothing(parties):
    """The aggregator tells half of the members that dan has dropped out, and shows everybody all signatures."""
    server = parties.open("masks")
    parties.draw(1)
    role, run = server.aggregator, server.terms.run.encode()
    for name, parts in server.begin(1, lesson(model(1))).items():
        role.receive(parties.handlers[name]("contribute", parts)[0])
    role.advance()

    def ask(name, step, body):
        call = Call(role.roster.digest, role.round, role.attempt, name, step, role.model, encode(body), b"")
        return parties.handlers[name](step, (run, role.roster.signed(role._key, AGGREGATOR, call)))[0]

    told = {name: Survivors(MEMBERS[:3] if name in ("bob", "cem") else MEMBERS) for name in MEMBERS}
    signed = [decode(ask(name, "consistency", told[name]), Reply).receipt for name in MEMBERS]
    for name in MEMBERS:
        for some in (signed, signed[:2], [signed[0], signed[3]]):
            with pytest.raises((PrivacyError, MessageError)):
                ask(name, "unmask", UnmaskRequest(tuple(some)))
    assert server.round(1, model(1)).contributors == MEMBERS  # the round is repeated with new masks
    assert role.attempt == 1


@pytest.mark.parametrize("scheme", [*KEYED, "masks"])
def test_a_member_that_got_anothers_set_up_is_not_set_up_and_the_others_go_on(parties, scheme):
    server = parties.open(scheme)
    server.run.setups["bob"] = server.run.setups["ann"]
    result = played(parties, server, 1)
    assert result.contributors == REST
    assert "bob" in result.missing


def test_a_run_cannot_go_back_nor_play_a_round_twice(parties):
    server = parties.open("plain")
    played(parties, server, 1)
    with pytest.raises(ValueError, match="round 1"):
        server.begin(1)
    played(parties, server, 2)
    with pytest.raises(ValueError, match="round 1"):
        server.round(1, model(1))


@pytest.mark.parametrize("scheme", ["bfv", "block-dphe"])
def test_a_forged_sum_uses_up_the_key_and_the_round_is_played_again_with_a_new_one(frugal, monkeypatch, scheme):
    parties, module = frugal, importlib.import_module(f"blindsight.sums.{scheme.removeprefix('block-')}")
    server, honest, tag = parties.open(scheme, minimum=3), parties.handlers["cem"], module.tag
    parties.draw(1, whole=True)
    moved = server.round(1, model(1)).total

    def lying(kind, parts):
        """Contribute under a tag that fits nothing, once."""
        if kind == "contribute":
            parties.handlers["cem"] = honest
            monkeypatch.setattr(module, "tag", lambda *given, **named: tag(*given, **named) + 1)
        try:
            return honest(kind, parts)
        finally:
            monkeypatch.setattr(module, "tag", tag)

    bob, parties.handlers["cem"] = parties.handlers.pop("bob"), lying  # bob is away while the key is replaced
    parties.draw(2, whole=True)
    moved = moved + server.round(2, model(2)).total
    assert server.run.number == 3
    parties.handlers["bob"] = bob
    parties.draw(3, whole=True)
    last = parties.restarted(server).round(3, model(3))
    assert last.contributors == MEMBERS
    assert np.array_equal(moved + last.total, parties.everything_learned(server))
    log = parties.key_generator(server.terms.run).log
    assert [("the sum of" in entry) for entry in log] == [True, False, True, True]


# ---- a member is called twice, late, for another round, by somebody confused


def called(parties, scheme, rounds=2):
    """Play rounds; return the server, and bob's calls and replies in each."""
    server, calls, replies = parties.open(scheme), [], []

    def noted(into):
        return lambda name, kind, parts: ((name, kind) == ("bob", "contribute") and into.append(parts)) or parts

    parties.network.there, parties.network.back = noted(calls), noted(replies)
    for round in range(1, rounds + 1):
        parties.draw(round, whole=True)
        server.round(round, model(round))
    return server, calls, [parts[0] for parts in replies]


def resigned(server, parts, **changes):
    """Return the parts of a call that the aggregator signs anew, with changes."""
    role = server.aggregator
    call = replace(decode(decode(parts[1], Signed).body, Call), **changes)
    return parts[0], role.roster.signed(role._key, AGGREGATOR, call), *parts[2:]


def memory_file(parties, server):
    return parties.stores["bob"].folder(server.terms.run) / "memory.npz"


@contextlib.contextmanager
def refused_without_a_trace(parties, server):
    before = memory_file(parties, server).read_bytes()
    with pytest.raises((MessageError, PrivacyError)):
        yield
    assert memory_file(parties, server).read_bytes() == before


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_call_gets_the_same_bytes_again_and_one_that_is_late_or_out_of_order_nothing(frugal, scheme):
    parties = frugal
    server, calls, replies = called(parties, scheme)
    parties.draw(99, whole=True)
    if "masks" not in scheme:  # where a later step has been answered since
        assert parties.contribute("bob", calls[-1]) == replies[-1]  # whatever was learned since
    assert parties.proposals["bob", 2] == 1
    late = [
        calls[0],
        resigned(server, calls[-1], round=1, attempt=5),
        resigned(server, calls[-1], attempt=5),  # another attempt at a round whose sum may be known
        resigned(server, calls[-1], model=bytes(32)),  # another model than came with it
        resigned(server, calls[-1], member="ann"),
        resigned(server, calls[-1], step="unmask"),
    ]
    for parts in late:
        with refused_without_a_trace(parties, server):
            parties.contribute("bob", parts)
    assert parties.proposals["bob", 2] == 1


@pytest.mark.parametrize("scheme", [*KEYED, "masks"])
def test_an_answer_of_another_round_run_or_author_settles_nothing(frugal, scheme):
    server, calls, replies = called(frugal, scheme, rounds=3)
    answer = server.run.answer(3)
    forged = decode(decode(answer, Signed).body, Answer)
    stranger = SigningKey.generate().sign(encode(forged), author=KEY_GENERATOR if scheme != "masks" else AGGREGATOR)
    for wrong in (b"garbage", damaged(answer), replies[0], stranger):
        parts = resigned(server, calls[-1], round=4, attempt=0, note=encode(Note((wrong,))))
        with refused_without_a_trace(frugal, server):
            frugal.contribute("bob", parts)
    assert remembered(frugal, server, "bob").pending[0] == 3  # it still awaits the answer of its last round


def test_a_member_whose_contribution_did_not_enter_sends_it_in_the_next_round(frugal):
    server = frugal.open("bfv")
    frugal.network.back = lambda name, kind, parts: None if (name, kind) == ("bob", "contribute") else parts
    first = frugal.draw(1, whole=True)
    assert server.round(1, model(1)).contributors == REST
    frugal.network.back = None
    second = frugal.draw(2, whole=True)
    integers = server.terms.integers
    assert np.array_equal(
        server.round(2, model(2)).total, frugal.plain_sum(server, MEMBERS, second) + integers(first["bob"])
    )


def test_updates_of_other_dimensions_or_not_finite_are_refused_and_not_kept(parties):
    server = parties.open("bfv")
    parties.draw(1)
    parties.updates["bob"][3] = np.nan
    assert "not finite" in server.round(1, model(1)).missing["bob"]
    update = parties.update
    parties.update = lambda name, memory: Update(np.zeros(DIMENSION + 7)) if name == "bob" else update(name, memory)
    result = played(parties, server, 2)
    assert result.contributors == REST
    assert f"give {DIMENSION + 7}" in result.missing["bob"]
    parties.update = update
    assert played(parties, server, 3).contributors == MEMBERS


def test_what_is_beyond_the_fixed_point_is_sent_later(frugal):
    server = frugal.open("block-dphe")
    limit = float(server.terms.values(np.array(server.terms.max_integer)))
    frugal.draw(1, whole=True)
    frugal.updates["bob"][0] = 1.5 * limit
    first = server.round(1, model(1)).total[0]
    frugal.updates = {name: np.zeros(DIMENSION) for name in MEMBERS}
    second = server.round(2, model(2)).total[0]
    learned = sum(float(frugal.learned[name, 1][0]) for name in MEMBERS)
    assert (first + second) / 2**16 == pytest.approx(learned, abs=1e-3)


def test_what_a_member_remembers_is_not_shown_and_refused_if_it_was_altered(frugal):
    server, calls, _ = called(frugal, "plain")
    memory = remembered(frugal, server, "bob")
    assert "array" not in repr(memory) + repr(memory.memory) + repr(memory.pending)
    path = memory_file(frugal, server)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorruptFileError):
        frugal.contribute("bob", calls[-1])
    write_arrays(path, "blindsight/member-memory.2", {"extra": "", "pending": [1]}, {}, private=True)
    with pytest.raises(CorruptFileError, match="memory of a member"):
        frugal.contribute("bob", calls[-1])
