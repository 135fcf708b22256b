"""What every scheme must do: exact sums of those who took part, whoever drops out, lies, repeats, comes late or is
killed, and never a second answer to the same question.
"""

import hashlib
import pickle
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.signing import Signed, SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import BlindsightError, CorruptFileError, InputError, MessageError, PrivacyError, StorageError
from blindsight.rng import seeded_bytes
from blindsight.sums import SCHEMES, Aggregator, Engine, KeyGenerator, Member, Patience, RefusedError
from blindsight.sums import roles as roles_module
from blindsight.sums.engine import LocalTransport
from blindsight.sums.messages import (
    Answer,
    Enrolment,
    GeneratorState,
    MemberState,
    MessageJournal,
    Refusal,
    Reply,
    Setup,
)
from blindsight.sums.scheme import CONTRIBUTE, ForgedError
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.learn.crashes import Child, full_disk
from tests.sums.runs import ALL, KEYED, NAMES, SIZE, Run, flipped


@pytest.fixture(scope="session", params=ALL)
def scheme(request):
    return request.param


@pytest.fixture
def run(scheme):
    """A run in memory, in round 0."""
    run = Run(scheme)
    run.begin(0)
    return run


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Return a function that puts a new run of a scheme into a folder, in round 0."""
    folders = {}

    def copied(scheme, folder, **changes):
        key = scheme, *changes.items()
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("template") / "roles"
            Run(scheme, folders[key], **changes)
        shutil.copytree(folders[key], folder)
        run = Run(scheme, folder, **changes)
        run.begin(0)
        return run

    return copied


@pytest.fixture
def disk(scheme, kept, tmp_path):
    """A run whose roles live no longer than one call."""
    return kept(scheme, tmp_path / "roles")


@pytest.fixture(params=KEYED)
def keyed(request, kept, tmp_path):
    """The same, of the schemes with a key generator."""
    return kept(request.param, tmp_path / "roles")


# The sum


def test_everyone_reads_the_exact_sum(run):
    limit = run.terms.max_integer
    run.updates |= {"ann": np.full(SIZE, limit), "bob": np.full(SIZE, -limit), "cem": np.full(SIZE, limit)}
    np.testing.assert_array_equal(run.finish(), run.sum())
    for name in NAMES:
        outcome = run.role(name).read(run.answer, 0)
        assert outcome.members == NAMES
        assert outcome.entered.all()
        np.testing.assert_array_equal(outcome.integers, run.sum())
        np.testing.assert_array_equal(outcome.values, run.sum() / 256)


@given(st.data())
@settings(max_examples=6)
def test_drop_outs_at_any_step_leave_the_sum_of_those_who_contributed(scheme, data):
    run = Run(scheme)
    run.begin(0)
    least = run.terms.needed
    present = tuple(data.draw(st.permutations(NAMES))[: data.draw(st.integers(least, 5))])
    counted = present
    while step := run.aggregator.step:
        present = present[: data.draw(st.integers(least, len(present)))]
        counted = present if step == CONTRIBUTE else counted
        run.play_step(*present)
    np.testing.assert_array_equal(run.finish(), run.sum(*counted))
    assert run.total.members == tuple(sorted(counted))
    for name in NAMES:
        assert run.role(name).read(run.answer, 0).entered.all() == (name in counted)


def test_with_too_few_a_step_stays_open_and_more_may_come(run):
    while run.aggregator.step:
        run.send(*NAMES[:2])
        assert not run.aggregator.complete
        with pytest.raises(PrivacyError, match="2 members"):
            run.aggregator.advance()
        run.send(*NAMES[2:])
        assert run.aggregator.complete
        run.aggregator.advance()
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_an_unfinished_round_is_given_up_and_those_who_are_left_make_a_new_one(run):
    for step in run.steps:
        run.play_until(step)
        run.send(*NAMES[:2])
        run.begin(run.round + 1)
    left = NAMES[: run.terms.needed]
    np.testing.assert_array_equal(run.play(run.round + 1, *left), run.sum(*left))


def test_rounds_count_up(run):
    run.play(1)
    run.aggregator.open(3)
    for round in (-1, 0, 1, 2, 3):
        with pytest.raises(InputError, match=f"no round {round}"):
            run.begin(round)


def test_nothing_is_received_before_a_round(scheme):
    run = Run(scheme)
    with pytest.raises(MessageError):
        run.deliver(b"")
    with pytest.raises(MessageError, match="no round"):
        run.aggregator.calls()
    with pytest.raises((InputError, MessageError)):
        run.aggregator.conclude()
    assert run.aggregator.refused == 1


def test_sampled_members_alone_are_asked_and_added(scheme):
    if SCHEMES[scheme].cohorts:
        with pytest.raises(InputError, match="sample=4"):
            Run(scheme, sample=4)
        return
    run = Run(scheme, sample=4)
    for round in range(3):
        run.begin(round)
        asked = run.terms.sampled(round)
        assert run.aggregator._expected == asked
        left_out = next(name for name in NAMES if name not in asked)
        with pytest.raises(PrivacyError, match="do not ask"):
            run.ask(left_out)
        np.testing.assert_array_equal(run.finish(), run.sum(*asked))
    assert len({run.terms.sampled(round) for round in range(30)}) == 5


# Messages that are wrong, late or sent again


def test_what_is_wrong_is_refused_counted_and_changes_nothing(scheme, run):
    twin, stranger, rng = Run(scheme, run="elsewhere"), SigningKey.generate(seeded_bytes(7)), np.random.default_rng(0)
    twin.begin(0)
    earlier = b""
    while run.aggregator.step:
        sent, foreign = {name: run.ask(name) for name in NAMES}, {name: twin.ask(name) for name in NAMES}
        reply, bobs = sent["ann"], decode(sent["bob"], Reply)
        receipt, body = run.opened(reply, "ann")
        resigned = encode(replace(decode(reply, Reply), receipt=stranger.sign(encode(receipt), author="ann")))
        wrong = [
            b"",
            b"garbage" * 100,
            bytes(len(reply)),
            reply[:-1],
            reply + b"\0",
            resigned,
            encode(replace(decode(reply, Reply), receipt=run.signed("bob", receipt, author="ann"))),
            encode(replace(decode(reply, Reply), receipt=run.signed("ann", receipt, author="zoe"))),
            encode(replace(decode(reply, Reply), body=bobs.body + b"?")),
            run.reply("ann", replace(receipt, round=1), body),
            run.reply("ann", replace(receipt, attempt=1), body),
            run.reply("ann", replace(receipt, step="guess"), body),
            run.reply("ann", replace(receipt, model=bytes(32)), body),
            run.reply("ann", replace(receipt, body=bytes(32)), body, vouched=False),
            run.reply("ann", replace(receipt, run=bytes(32)), body),
            foreign["ann"],  # another run of the same people
            *[flipped(reply, rng) for _ in range(30)],
            *[earlier] * bool(earlier),
        ]
        refused = run.aggregator.refused
        for bad in wrong:
            with pytest.raises(MessageError):
                run.deliver(bad)
        assert run.aggregator.refused == refused + len(wrong)
        run.deliver(*sent.values())
        twin.deliver(*foreign.values())
        with pytest.raises(MessageError, match="something else"):
            run.deliver(run.reply("ann", receipt, body + b"!"))
        run.aggregator.advance()
        twin.aggregator.advance()
        earlier = reply
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_a_reply_counts_once_however_often_it_comes_and_not_in_another_round(run):
    sent = []
    while run.aggregator.step:
        replies = [run.ask(name) for name in NAMES]
        run.deliver(*replies, *replies[::-1])
        run.aggregator.advance()
        sent += replies
    assert run.aggregator.refused == 0
    np.testing.assert_array_equal(run.finish(), run.sum())
    run.begin(1)
    for reply in sent:
        with pytest.raises(MessageError):
            run.deliver(reply)
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_calls_and_replies_in_any_order_give_the_same_sum(run):
    rng = np.random.default_rng(0)
    while run.aggregator.step:
        replies = [run.ask(name) for name in rng.permutation(NAMES).tolist()]
        run.deliver(*[replies[i] for i in rng.permutation(5)])
        run.aggregator.advance()
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_whoever_comes_late_is_left_out_and_the_others_go_on(disk):
    for round, step in enumerate(disk.steps):
        if round:
            disk.begin(round)
        disk.play_until(step)
        if "eve" not in disk.aggregator.awaited:  # its keys came ahead
            disk.begin(round, attempt=1)
        late = disk.ask("eve")
        disk.play_step(*NAMES[:4])
        with pytest.raises(MessageError, match="eve"):
            disk.deliver(late)
        disk.finish(*NAMES[:4])
        there = NAMES if disk.steps.index(step) > disk.steps.index(CONTRIBUTE) else NAMES[:4]
        assert disk.total.members == there
        np.testing.assert_array_equal(disk.total.integers, disk.sum(*there))


def test_forged_and_foreign_answers_are_refused(scheme, run):
    twin, rng = Run(scheme, run="elsewhere"), np.random.default_rng(0)
    twin.play(0)
    run.finish()
    ann, good = run.role("ann"), run.answer
    for wrong in (b"", good[:-1], good + b"\0", twin.answer, *[flipped(good, rng) for _ in range(30)]):
        with pytest.raises(MessageError):
            ann.read(wrong, 0)
        with pytest.raises(MessageError):
            ann.settle(wrong, 0)
    with pytest.raises(MessageError, match="round 1"):
        ann.read(good, 1)
    ann.settle(good, 0)


@pytest.mark.parametrize("members", [NAMES[::-1], ("ann", *NAMES), ("ann",) * 40, (*NAMES[:4], "zoe")])
def test_answers_name_each_member_that_was_asked_once_and_in_order(scheme, run, members):
    """Forty names would be -35 absences."""
    run.finish()
    author = KEY_GENERATOR if run.terms.keyed else AGGREGATOR
    answer = decode(decode(run.answer, Signed).body, Answer)
    wrong = run.signed(author, replace(answer, members=members))
    for read in (run.role("ann").read, run.role("ann").settle):
        with pytest.raises(MessageError, match="names"):
            read(wrong, 0)


# Each question is answered once


def test_a_step_is_done_once_and_repeated_in_the_same_bytes(disk):
    while disk.aggregator.step:
        calls = disk.aggregator.calls()
        sent = {name: disk.ask(name) for name in NAMES}
        assert sent == {name: disk.ask(name) for name in NAMES}
        assert sent == {name: disk.ask(name, call=calls[name]) for name in NAMES}
        if disk.aggregator.step == CONTRIBUTE:
            with pytest.raises(PrivacyError, match=r"ann.*once"):
                disk.ask("ann", update=disk.updates["bob"])
            call = disk.call(calls["ann"])
            for changes in ({"model": b"m" * 32}, {"body": call.body + b"!"}):
                with pytest.raises(PrivacyError, match=r"ann.*once"):
                    disk.ask("ann", call=disk.signed(AGGREGATOR, replace(call, **changes)))
        disk.deliver(*sent.values())
        disk.aggregator.advance()
    np.testing.assert_array_equal(disk.finish(), disk.sum())


def test_calls_that_are_forged_for_others_or_out_of_turn_are_refused_and_use_up_nothing(scheme, run):
    rng, stranger = np.random.default_rng(0), SigningKey.generate(seeded_bytes(7))
    elsewhere = Run(scheme, run="elsewhere")
    elsewhere.begin(0)
    earlier = []
    while run.aggregator.step:
        good = run.aggregator.calls()["ann"]
        call = run.call(good)
        wrong = [
            b"",
            good[:-1],
            run.signed("bob", call),
            run.signed("bob", call, author=AGGREGATOR),
            stranger.sign(encode(call), author=AGGREGATOR),
            run.signed(AGGREGATOR, replace(call, member="bob")),
            run.signed(AGGREGATOR, replace(call, run=bytes(32))),
            run.signed(AGGREGATOR, replace(call, round=-1)),
            run.signed(AGGREGATOR, replace(call, attempt=-1)),
            run.signed(AGGREGATOR, replace(call, step="guess")),
            run.signed(AGGREGATOR, replace(call, model=b"short")),
            elsewhere.aggregator.calls(only=["ann"])["ann"] if elsewhere.aggregator.step else b"",
            *[flipped(good, rng) for _ in range(20)],
        ]
        for bad in wrong:
            with pytest.raises((MessageError, PrivacyError)):
                run.ask("ann", call=bad)
        for before in earlier[:-1]:
            with pytest.raises((MessageError, PrivacyError)):
                run.ask("ann", call=before, update=run.updates["ann"])
        run.play_step()
        elsewhere.play_step()
        earlier.append(good)
    np.testing.assert_array_equal(run.finish(), run.sum())
    with pytest.raises(PrivacyError):
        run.role("ann").answer(earlier[-1], run.updates["bob"])


def test_an_update_that_cannot_be_added_uses_up_nothing(run):
    run.play_until(CONTRIBUTE)
    call = run.aggregator.calls()["ann"]
    for wrong in (np.zeros(SIZE), np.zeros(SIZE + 1, dtype=np.int64), np.full(SIZE, 2**31), np.full(SIZE, -(2**63))):
        with pytest.raises(InputError):
            run.ask("ann", update=wrong)
    with pytest.raises(InputError, match="no update"):
        run.role("ann").answer(call)
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_a_model_is_answered_once_unless_nothing_came_of_it(scheme, run):
    if SCHEMES[scheme].cohorts:
        for round in (1, 2):
            run.begin(round, model=b"1" * 32)
            np.testing.assert_array_equal(run.finish(), run.sum())
        return
    one, two = b"1" * 32, b"2" * 32
    run.begin(1, model=one)
    run.finish()
    for name in NAMES:
        run.role(name).settle(run.answer, 1)
    run.begin(2, model=one)
    with pytest.raises(PrivacyError, match="before"):
        run.finish()
    moved = run.updates
    run.updates = dict.fromkeys(NAMES, np.zeros(SIZE, dtype=np.int64))
    run.begin(3)  # a round without a model, whose sum is zero, forgets no other
    run.finish()
    for name in NAMES:
        run.role(name).settle(run.answer, 3)
    run.begin(4, model=one)
    with pytest.raises(PrivacyError, match="before"):
        run.finish()
    for round in (5, 6):
        run.begin(round, model=two)
        run.finish()
        for name in NAMES:
            run.role(name).settle(run.answer, round)
    run.updates = moved
    run.begin(7, model=two)
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_members_stop_when_too_many_can_have_been_missing(scheme):
    """Whether the aggregator shows them its sums or not."""
    for shown in (True, False):
        run, least = Run(scheme, absences=1), 4
        run.play(0, *NAMES[:least])
        if shown:
            for name in NAMES[:least]:
                run.role(name).settle(run.answer, 0)
                run.role(name).settle(run.answer, 0)
            run.play(1, *NAMES)
            for name in NAMES[:least]:
                run.role(name).settle(run.answer, 1)
            run.play(2, *NAMES[:least])
            for name in NAMES[:least]:
                run.role(name).settle(run.answer, 2)
        elif SCHEMES[scheme].threshold:  # which needs four of five
            run.play(1, *NAMES[:least])
        run.begin(3)
        with pytest.raises(PrivacyError, match="up to 2 members have been missing"):
            run.finish()


# Secrets and statements


def test_secrets_do_not_show(run):
    for role in map(run.role, run.parties):
        assert repr(role) == str(role) == f"<{type(role).__name__}, hidden>"
        with pytest.raises(PrivacyError):
            pickle.dumps(role)
    for setup in run.generator.setup().values():
        assert repr(decode(setup, Setup)) == "<message sums/setup.1>"


# State on disk


def test_every_role_can_be_loaded_between_any_two_messages(disk):
    for round, names in enumerate((NAMES, NAMES[1:])):
        if round:
            disk.begin(round)
        while disk.aggregator.step:
            for name in names:
                if name in disk.aggregator.awaited:
                    disk.deliver(disk.ask(name))
            disk.aggregator.advance()
        np.testing.assert_array_equal(disk.finish(), disk.sum(*names))
        for name in names:
            np.testing.assert_array_equal(disk.role(name).settle(disk.answer, round).integers, disk.sum(*names))
        assert disk.total.members == names


@contextmanager
def unwritable(monkeypatch, path):
    """A full disk: it must be said, and the file stay as it is."""
    before = path.read_bytes()
    with full_disk(monkeypatch), pytest.raises(StorageError, match="full"):
        yield
    assert path.read_bytes() == before


def test_a_step_that_could_not_be_saved_has_not_been_done(disk, monkeypatch):
    ann, path = disk.role("ann"), disk.path("ann")
    while step := disk.aggregator.step:
        other = disk.updates["bob"] if step == CONTRIBUTE else None
        with unwritable(monkeypatch, path):
            disk.ask("ann", role=ann, update=other)
        assert disk.ask("ann", role=ann) == disk.ask("ann")
        disk.play_step()
    np.testing.assert_array_equal(disk.finish(), disk.sum())
    if not disk.terms.traits.cohorts:  # whose members learn nothing from the answer that they would have to keep
        with unwritable(monkeypatch, path):
            ann.settle(disk.answer, 0)
    ann.settle(disk.answer, 0)


def test_the_services_do_nothing_that_is_not_on_disk(disk, monkeypatch):
    aggregator, journal = disk.aggregator, disk.path(AGGREGATOR)
    with unwritable(monkeypatch, journal):
        aggregator.open(1)
    assert aggregator.round == disk.aggregator.round == 0
    assert aggregator.step == disk.aggregator.step
    setup = disk.generator.setup()[AGGREGATOR]
    fresh = Aggregator(disk.terms, path=disk.folder / "new")
    with pytest.raises(MessageError):
        fresh.accept(setup)  # which is for another
    disk.play_until(CONTRIBUTE)
    disk.send(*NAMES[:4])
    aggregator, late = disk.aggregator, disk.ask("eve")
    with unwritable(monkeypatch, journal):
        aggregator.receive(late)
    assert aggregator.awaited == ("eve",)
    aggregator.receive(late)
    assert aggregator.contributors == disk.aggregator.contributors == NAMES
    with unwritable(monkeypatch, journal):
        aggregator.advance()
    assert aggregator.step == CONTRIBUTE
    aggregator.advance()
    if not disk.terms.keyed:
        np.testing.assert_array_equal(disk.finish(), disk.sum())
        return
    generator, request = disk.generator, aggregator.request()
    with unwritable(monkeypatch, disk.path(KEY_GENERATOR)):
        generator.answer(request)
    assert generator.log == disk.generator.log == ()
    answer = generator.answer(request)
    assert disk.generator.answer(disk.aggregator.request()) == answer
    np.testing.assert_array_equal(aggregator.conclude(answer)[1].integers, disk.sum())


def test_a_key_that_could_not_be_renewed_on_disk_is_not(keyed, monkeypatch):
    keyed.send()
    keyed.aggregator.advance()
    honest, generator = keyed.aggregator.request(), keyed.generator
    forged = keyed.sealed(replace(keyed.request(), receipts=keyed.request().receipts[:4]))
    with unwritable(monkeypatch, keyed.path(KEY_GENERATOR)):
        generator.answer(forged)
    np.testing.assert_array_equal(keyed.aggregator.conclude(generator.answer(honest))[1].integers, keyed.sum())


def test_a_key_generator_killed_while_it_makes_a_new_key_has_not_forgotten_the_forgery(keyed, monkeypatch):
    """The round is over and the old key void before a new one is made."""
    keyed.finish()
    keyed.begin(1)
    keyed.send()
    keyed.aggregator.advance()
    before, request = keyed.generator.roster, keyed.aggregator.request()

    def forged(*given):
        raise ForgedError("not the sum of these")

    with monkeypatch.context() as patch:
        generator = keyed.generator
        patch.setattr(type(generator._opener), "open", forged)
        patch.setattr(generator, "_make_opener", lambda key: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            generator.answer(request)
    after = keyed.generator
    assert "used up" in after.log[-1]
    assert after.roster.generation == before.generation + 1
    assert after.roster.encryption_key  # tests have few Paillier keys: it may be the same again
    assert keyed.generator.roster.digest == after.roster.digest  # the new key is kept, too
    with pytest.raises(RefusedError) as caught:
        keyed.aggregator.conclude(after.answer(request))
    assert caught.value.renewed
    keyed.set_up()
    np.testing.assert_array_equal(keyed.play(2), keyed.sum())


def test_state_is_for_its_owner_alone_and_never_overwritten(disk):
    assert {path.stat().st_mode & 0o777 for path in disk.folder.iterdir()} == {0o600}
    for party, kind in (("ann", Member), (AGGREGATOR, Aggregator), (KEY_GENERATOR, KeyGenerator)):
        path, load = disk.path(party), kind.load
        before = path.read_bytes()
        with pytest.raises(StorageError, match=f"{party} exists"):
            disk.make(party)
        assert path.read_bytes() == before
        path.chmod(0o640)
        with pytest.raises(StorageError, match="chmod 600"):
            load(path)
        with pytest.raises(StorageError, match="does not exist"):
            load(disk.folder / "nobody")


def test_damaged_state_is_refused_and_left_as_it_is(disk):
    disk.finish()
    rng = np.random.default_rng(0)
    for party, kind in (("ann", Member), (AGGREGATOR, Aggregator), (KEY_GENERATOR, KeyGenerator)):
        path, load = disk.path(party), kind.load
        whole = path.read_bytes()
        for damaged in (
            b"",
            whole[:60],
            b"?" + whole,
            b"garbage" * 1000,
            bytes(len(whole)),
            *[disk.path("bob").read_bytes()] * (party != "ann"),
            *[whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in rng.integers(100, size=8)],
        ):
            path.write_bytes(damaged)
            with pytest.raises(CorruptFileError, match=party):
                load(path)
            assert path.read_bytes() == damaged
        path.write_bytes(whole)
        load(path)


def test_a_state_whose_parts_do_not_fit_is_refused(disk):
    member = decode(disk.path("ann").read_bytes(), MemberState)
    for wrong in ({"member": "zoe"}, {"terms": b""}, {"seed": b"short"}):
        disk.path("ann").write_bytes(encode(replace(member, **wrong)))
        with pytest.raises(CorruptFileError, match="ann"):
            disk.role("ann")
    generator = decode(disk.path(KEY_GENERATOR).read_bytes(), GeneratorState)
    for wrong in ({"terms": b""}, {"seed": bytes(31)}, *[{"private_key": b"none"}] * disk.terms.keyed):
        disk.path(KEY_GENERATOR).write_bytes(encode(replace(generator, **wrong)))
        with pytest.raises(CorruptFileError, match=KEY_GENERATOR):
            disk.role(KEY_GENERATOR)


def test_a_journal_that_ends_anywhere_holds_what_was_whole(keyed):
    """A kill during a write leaves any part of it; what was acknowledged before is there, and the rest can come."""
    sent = [keyed.ask(name) for name in NAMES]
    keyed.deliver(*sent)
    path = keyed.path(AGGREGATOR)
    whole = path.read_bytes()
    begun = whole.index(sent[0])
    assert whole[begun:] == b"".join(sent)
    ends = np.cumsum([begun, *map(len, sent)])
    for cut in sorted({int(end) + shift for end in ends for shift in (-1, 0, 40)}):
        torn = sent[0][:100] + bytes(len(sent[0]) - 100)  # as long as it should be
        for tail in (b"", bytes(500), b"BLSM", torn) if cut == ends[2] else (b"",):
            if not begun <= cut <= len(whole):
                continue
            path.write_bytes(whole[:cut] + tail)
            acknowledged = int((ends <= cut).sum()) - 1
            assert keyed.aggregator.contributors == NAMES[:acknowledged]
            assert path.stat().st_size == ends[acknowledged]
    path.write_bytes(whole[: ends[2]])
    keyed.deliver(*sent)
    np.testing.assert_array_equal(keyed.finish(), keyed.sum())


def test_a_journal_altered_before_its_end_is_refused(keyed):
    path = keyed.path(AGGREGATOR)
    begun = path.stat().st_size
    keyed.send(*NAMES[:2])
    whole, third = path.read_bytes(), keyed.ask("cem")
    path.write_bytes(whole[: begun + 500] + bytes([whole[begun + 500] ^ 1]) + whole[begun + 501 :])
    with pytest.raises(CorruptFileError, match="altered"):
        keyed.role(AGGREGATOR)
    receipt, body = keyed.opened(third, "cem")
    path.write_bytes(whole + keyed.reply("cem", replace(receipt, round=1), body))
    with pytest.raises(CorruptFileError, match="round 1"):
        keyed.role(AGGREGATOR)


# Kills


class Killed(Exception):
    """The end of a process."""


class World:
    """A run over a transport in which one party is killed at one of the moments that count, and comes back.

    A member or the key generator is loaded from its file when it is asked again; the round is played again if it was
    the aggregator. Moments are before and after every message that anyone sends or receives and every write; `fatal`
    counts those that concern bob, the aggregator or the key generator: the other members are like him.
    """

    def __init__(self, run, monkeypatch, fatal):
        self.run, self.fatal, self.moments, self.killed = run, fatal, 0, ""
        self.parties = {party: self.load(party) for party in run.parties}
        self.now, self.about = AGGREGATOR, ""
        monkeypatch.setattr(roles_module, "write_state", partial(self.written, roles_module.write_state))
        for name in ("restart", "append"):
            original = getattr(MessageJournal, name)
            monkeypatch.setattr(MessageJournal, name, lambda *given, original=original: self.written(original, *given))

    def load(self, party):
        kinds = {AGGREGATOR: Aggregator, KEY_GENERATOR: KeyGenerator}
        return kinds.get(party, Member).load(self.run.path(party))

    def moment(self):
        if {self.now, self.about} & ({*self.run.names} - {"bob"}):
            return
        self.moments += 1
        if self.moments == self.fatal:
            self.killed = self.now
            raise Killed

    def written(self, original, *given):
        self.moment()
        original(*given)
        self.moment()

    def handler(self, party, kind, parts):
        self.now = party
        try:
            self.moment()
            if party == KEY_GENERATOR:
                answered = self.parties[party].answer(parts[0])
            else:
                answered = self.parties[party].answer(parts[0], self.run.integers(party, kind))
            self.moment()
        except Killed:
            self.parties[party] = self.load(party)
            raise MessageError(f"{party!r} was killed.") from None
        finally:
            self.now = AGGREGATOR
        return [answered]

    def transit(self, sender, receiver, kind, parts):
        self.about = receiver if sender == AGGREGATOR else sender
        self.moment()
        yield parts
        self.moment()
        self.about = ""

    def round(self, number):
        """Play a round to its end, however often the aggregator has to be started."""
        while True:
            handlers = {name: partial(self.handler, name) for name in (*self.run.names, KEY_GENERATOR)}
            patience = Patience(pause=1e-5, attempts=4)
            engine = Engine(self.parties[AGGREGATOR], LocalTransport(handlers, transit=self.transit), patience)
            try:
                answer, total = engine.play(number, (b"model %d" % number,))
            except Killed:
                self.parties[AGGREGATOR] = self.load(AGGREGATOR)
                continue
            for name in self.run.names:
                self.now = name
                try:
                    self.parties[name].settle(answer, number)
                except Killed:
                    self.parties[name] = self.load(name)
                    self.parties[name].settle(answer, number)
                self.now = AGGREGATOR
            return total


@pytest.fixture
def memory(tmp_path):
    """A folder that no disk slows down: processes die here, and no machine."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_kills_before_and_after_every_message_and_write(scheme, stride, memory, monkeypatch):
    """The sum is that of those who are said to be in it; the next round, played after each fifth kill, has everyone."""
    names, fatal, moments, killed = NAMES[: 4 if SCHEMES[scheme].threshold else 3], 0, 1, set()
    Run(scheme, memory / "template", members=names)
    while fatal <= moments:
        shutil.copytree(memory / "template", memory / "roles")
        run = Run(scheme, memory / "roles", members=names)
        with monkeypatch.context() as patch:
            world = World(run, patch, fatal)
            total = world.round(1)
        moments = world.moments if fatal == 0 else moments
        killed.add(world.killed)
        assert len(total.members) >= 3
        np.testing.assert_array_equal(total.integers, run.sum(*total.members))
        if fatal % 5 == 0:
            world.fatal = -1
            total = world.round(2)
            assert total.members == names
            np.testing.assert_array_equal(total.integers, run.sum())
        shutil.rmtree(memory / "roles")
        fatal += stride
    assert killed == {"", "bob", AGGREGATOR, *[KEY_GENERATOR] * (scheme in KEYED)}
    assert moments > 15


def test_killed_processes_resume_the_round(kept, tmp_path):
    run = kept("dphe", tmp_path / "roles")
    sent = {name: run.ask(name) for name in NAMES[:3]}
    child = Child(AGGREGATOR, run.path(AGGREGATOR))
    child.send(sent["ann"], sent["bob"])
    assert child.killed_after(2) == ["ann", "ann bob"]
    assert run.aggregator.contributors == ("ann", "bob")
    run.deliver(*sent.values())
    run.aggregator.advance()
    child = Child(KEY_GENERATOR, run.path(KEY_GENERATOR))
    child.send(run.aggregator.request())
    (digest,) = child.killed_after(1)
    answer = run.generator.answer(run.aggregator.request())
    assert hashlib.sha256(answer).hexdigest() == digest
    np.testing.assert_array_equal(run.aggregator.conclude(answer)[1].integers, run.sum(*NAMES[:3]))


# The key generator


def test_the_key_generator_opens_for_enough_named_members_of_this_round_and_run_alone(keyed):
    keyed.send()
    keyed.aggregator.advance()
    request, generator = keyed.request(), keyed.generator
    for wrong in (
        {"run": bytes(32)},  # nobody has signed for another run or round: that uses up nothing
        {"round": 7},
        {"receipts": ()},
        {"receipts": keyed.receipts(*NAMES, round=3)},
        {"receipts": (SigningKey.generate().sign(b"", author="dia"),)},
    ):
        assert isinstance(keyed.answered(replace(request, **wrong)), Refusal)
    for wrong in ({"round": -1}, {"attempt": 1}):
        with pytest.raises(MessageError):
            generator.answer(keyed.sealed(replace(request, **wrong)))
    assert keyed.generator.log == ()
    fine = keyed.answered(request)
    assert fine.members == NAMES
    assert keyed.answered(replace(request, receipts=request.receipts[:3], body=b"")) == fine
    assert isinstance(keyed.answered(replace(request, round=0, run=bytes(32))), type(fine))
    assert len(keyed.generator.log) == 1


@pytest.mark.parametrize(
    ("names", "changes"),
    [
        (NAMES[:2], {}),
        ((*NAMES[:3], "bob"), {}),
        (NAMES[::-1], {}),
        (NAMES, {"step": "other"}),
        (NAMES, {"model": bytes(32)}),
    ],
)
def test_receipts_that_are_no_sums_use_up_the_round(names, changes):
    run = Run("bfv")
    run.play(0)
    run.begin(1)
    run.send()
    run.aggregator.advance()
    odd = run.receipts(*names, round=1, **changes)
    if changes:
        odd = (*run.request().receipts[:3], *odd[3:])
    refused = run.answered(replace(run.request(), receipts=odd))
    assert not refused.renewed
    assert "Begin a new round" in refused.sentence
    with pytest.raises(RefusedError, match="nothing of round 1"):
        run.finish()
    np.testing.assert_array_equal(run.play(2), run.sum())


def test_requests_and_answers_cannot_be_tampered_with(keyed):
    keyed.send()
    keyed.aggregator.advance()
    request, rng, generator = keyed.aggregator.request(), np.random.default_rng(0), keyed.generator
    for bad in (b"", request[:-1], b"x" + request, *[flipped(request, rng) for _ in range(30)]):
        with pytest.raises(MessageError):
            generator.answer(bad)
    assert generator.log == ()
    answer, aggregator = generator.answer(request), keyed.aggregator
    for bad in (b"", answer[:-1], request, *[flipped(answer, rng) for _ in range(30)]):
        with pytest.raises(MessageError):
            aggregator.conclude(bad)
    np.testing.assert_array_equal(aggregator.conclude(answer)[1].integers, keyed.sum())


def test_the_aggregator_takes_the_answer_to_its_own_request_alone(keyed):
    replies = {name: keyed.ask(name) for name in NAMES}
    keyed.deliver(*[replies[name] for name in NAMES[:3]])
    other = keyed.folder / "other"
    shutil.copy(keyed.path(AGGREGATOR), other)
    fewer = Aggregator.load(other)
    fewer.advance()
    answer = keyed.generator.answer(fewer.request())
    keyed.deliver(replies["dia"])
    keyed.aggregator.advance()
    with pytest.raises(MessageError, match="other members"):
        keyed.aggregator.conclude(answer)
    assert fewer.conclude(answer)[1].members == NAMES[:3]


def test_a_set_up_is_final_and_for_one_party(disk, scheme):
    other = Run(scheme, run="test")
    for party in ("ann", AGGREGATOR):
        role, setup = disk.role(party), disk.generator.setup()[party]
        role.accept(setup)
        for wrong in (other.generator.setup()[party], b"", setup[:-1]):
            with pytest.raises(MessageError):
                role.accept(wrong)
        if disk.terms.keyed:
            with pytest.raises(MessageError):
                role.accept(disk.generator.setup()["bob"])
    early = Member("ann", disk.terms)
    with pytest.raises(InputError, match="not set up"):
        early.answer(b"")
    with pytest.raises(MessageError, match="other terms"):
        Member("ann", replace(disk.terms, minimum=4)).accept(disk.generator.setup()["ann"])


def test_only_parties_enrol_and_each_with_one_key(disk):
    generator, ann = disk.generator, Member("ann", disk.terms)
    with pytest.raises(MessageError, match="another key already"):
        generator.enrol(ann.enrolment())
    generator.enrol(disk.role("ann").enrolment())
    with pytest.raises(MessageError, match="small order"):
        generator.enrol(encode(replace(decode(ann.enrolment(), Enrolment), key=(1).to_bytes(32, "little"))))
    stranger = replace(disk.terms, members=(*NAMES, "zoe"))
    with pytest.raises(MessageError, match="does not take part"):
        generator.enrol(Member("zoe", stranger).enrolment())
    with pytest.raises(BlindsightError):
        generator.enrol(Member("ann", stranger).enrolment())
    seed = bytes(32) if disk.terms.traits.cohorts else b""
    fresh = KeyGenerator(disk.terms, key=disk.generator._opener._secret if disk.terms.keyed else None, partition=seed)
    with pytest.raises(InputError, match="ann, bob"):
        fresh.setup()
