"""What every scheme must do: exact sums of those who took part, whoever drops out, lies, repeats, comes late or is
killed, and never a second answer to the same question.
"""

import pickle
import shutil
from contextlib import contextmanager
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, StorageError
from blindsight.rng import seeded_bytes
from tests.learn.crashes import full_disk
from tests.learn.sums.schemes import AGGREGATOR, GENERATOR, KEYED, SCHEMES, SIZE, USERS


@pytest.fixture(scope="session", params=SCHEMES)
def new(request):
    """The class of runs of each scheme."""
    return SCHEMES[request.param]


@pytest.fixture
def run(new):
    """A run in memory, in round 0."""
    run = new()
    run.begin(0)
    return run


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Return a function that puts a new run of a scheme into a folder, in round 0."""
    folders = {}

    def copied(scheme, folder):
        if scheme not in folders:
            folders[scheme] = tmp_path_factory.mktemp("template") / "roles"
            scheme(folders[scheme])
        shutil.copytree(folders[scheme], folder)
        run = scheme(folder)
        run.begin(0)
        return run

    return copied


@pytest.fixture
def disk(new, begun, tmp_path):
    """A run whose roles live no longer than one call."""
    return begun(new, tmp_path / "roles")


@pytest.fixture(params=KEYED)
def keyed(request, begun, tmp_path):
    """The same, of the schemes with a key generator and a journal."""
    return begun(KEYED[request.param], tmp_path / "roles")


def up_to(run, last):
    """Play all phases before one with everybody."""
    for phase in run.phases[: run.phases.index(last)]:
        run.send(phase, USERS)
        run.end(phase)


def finish(run, first):
    """Play the phases from one on with everybody, and see that the sum is theirs."""
    for phase in run.phases[run.phases.index(first) :]:
        run.send(phase, USERS)
        run.end(phase)
    assert run.read("ann").users == USERS
    np.testing.assert_array_equal(run.read("ann").integers, run.sum())


# The sum


def test_everyone_reads_the_exact_sum(run):
    limit = run.max_integer
    run.updates |= {"ann": np.full(SIZE, limit), "bob": np.full(SIZE, -limit), "cem": np.full(SIZE, limit)}
    finish(run, run.phases[0])
    for name in USERS:
        np.testing.assert_array_equal(run.read(name).integers, run.sum())
        np.testing.assert_array_equal(run.read(name).values, run.sum() / 256)


@given(st.data())
@settings(max_examples=10)
def test_drop_outs_at_any_step_leave_the_sum_of_those_who_contributed(new, data):
    run = new()
    run.begin(0)
    present = tuple(data.draw(st.permutations(USERS))[: data.draw(st.integers(run.least, 5))])
    counted = present
    for phase in run.phases:
        present = present[: data.draw(st.integers(run.least, len(present)))]
        counted = present if phase == run.counted else counted
        run.send(phase, present)
        run.end(phase)
    assert run.read(present[0]).users == tuple(sorted(counted))
    np.testing.assert_array_equal(run.read(present[0]).integers, run.sum(counted))


def test_with_too_few_a_phase_stays_open_and_more_may_come(run):
    for phase in run.phases:
        run.send(phase, USERS[:2])
        with pytest.raises(PrivacyError, match="2 users"):
            run.end(phase)
        run.send(phase, USERS[2:])
        run.end(phase)
    np.testing.assert_array_equal(run.read("ann").integers, run.sum())


def test_an_unfinished_round_is_given_up_and_those_who_are_left_make_a_new_one(run):
    for phase in run.phases:
        up_to(run, phase)
        run.send(phase, USERS[:2])
        run.begin(run.round + 1)
    left = USERS[: run.least]
    np.testing.assert_array_equal(run.play(run.round + 1, left), run.sum(left))


def test_rounds_count_up(run):
    run.play(1)
    for round in (0, 1):
        with pytest.raises(InputError, match=f"{round}"):
            run.role(AGGREGATOR).open(round)
    run.round = 0
    with pytest.raises((PrivacyError, InputError)):
        run.ask(run.phases[0], "ann")
    run.round = -1
    with pytest.raises(InputError, match="-1"):
        run.ask(run.phases[0], "ann")


def test_nothing_is_received_before_a_round(new):
    run = new()
    with pytest.raises(MessageError, match="no round"):
        run.deliver(b"")
    assert run.role(AGGREGATOR).refused == 1


# Messages that are wrong, late or sent again


def mutated(message, source):
    changed = bytearray(message)
    changed[source.integers(len(changed))] ^= int(source.integers(1, 256))
    return bytes(changed)


def test_what_is_wrong_is_refused_counted_and_changes_nothing(new, run):
    twin, stranger, source = new(name="elsewhere"), SigningKey.generate(seeded_bytes(7)), np.random.default_rng(0)
    twin.begin(0)
    aggregator, earlier = run.role(AGGREGATOR), b""
    for phase in run.phases:
        sent, foreign = ({name: side.ask(phase, name) for name in USERS} for side in (run, twin))
        message = sent["ann"][0]
        wrong = [
            b"",
            b"garbage" * 100,
            bytes(len(message)),
            message[:-1],
            message + b"\0",
            run.resigned(message, stranger, "ann"),
            run.resigned(message, stranger, "zoe"),
            run.resigned(message, run.key("bob"), "ann"),
            foreign["ann"][0],  # signed by the same key, for another run
            *[mutated(message, source) for _ in range(40)],
            *[earlier] * bool(earlier),
        ]
        refused = aggregator.refused
        for bad in wrong:
            with pytest.raises(MessageError):
                run.deliver(bad)
        assert aggregator.refused == refused + len(wrong)
        for side, messages in ((run, sent), (twin, foreign)):
            side.deliver(*chain.from_iterable(messages.values()))
        again = run.resigned(sent["bob"][0], run.key("ann"), "ann")
        if again not in sent["ann"]:  # of masks all sign the same set
            with pytest.raises(MessageError, match="something else"):
                run.deliver(again)
        for side in (run, twin):
            side.end(phase)
        earlier = message if len(run.phases) > 1 else b""
    np.testing.assert_array_equal(run.read("ann").integers, run.sum())


def test_a_message_counts_once_however_often_it_comes_and_not_in_another_round(run):
    sent = []
    for phase in run.phases:
        for name in USERS:
            messages = run.ask(phase, name)
            run.deliver(*messages, *messages[::-1])
            sent += messages
        run.end(phase)
    assert run.role(AGGREGATOR).refused == 0
    np.testing.assert_array_equal(run.read("ann").integers, run.sum())
    run.begin(1)
    for message in sent:
        with pytest.raises(MessageError):
            run.deliver(message)
    finish(run, run.phases[0])


def test_whoever_comes_late_is_left_out_and_the_others_go_on(disk):
    for round, phase in enumerate(disk.phases):
        if round:
            disk.begin(round)
        up_to(disk, phase)
        disk.send(phase, USERS[:4])
        disk.end(phase)
        for message in disk.ask(phase, "eve"):
            with pytest.raises(MessageError, match="eve"):
                disk.deliver(message)
        after = disk.phases.index(phase) + 1
        for later in disk.phases[after:]:
            disk.send(later, USERS[:4])
            disk.end(later)
        expected = USERS if disk.counted in disk.phases[: after - 1] else USERS[:4]
        assert disk.read("ann").users == expected
        np.testing.assert_array_equal(disk.read("ann").integers, disk.sum(expected))


def test_forged_and_foreign_results_are_refused(new, run):
    twin, source = new(name="elsewhere"), np.random.default_rng(0)
    twin.play(0)
    finish(run, run.phases[0])
    good = run.result
    for wrong in (b"", good[:-1], good + b"\0", twin.result, *[mutated(good, source) for _ in range(30)]):
        run.result = wrong
        with pytest.raises(MessageError):
            run.read("ann")
    run.begin(1)
    run.result = good
    if run.kept == USERS:
        run.ask("advertise", "ann")
    with pytest.raises(MessageError):
        run.read("ann")


# Each question is answered once


def test_a_step_is_done_once_and_repeated_in_the_same_bytes(disk):
    for phase in disk.phases:
        sent = {name: disk.ask(phase, name) for name in USERS}
        assert sent == {name: disk.ask(phase, name) for name in USERS}
        if phase == disk.counted:
            with pytest.raises(PrivacyError, match="ann"):
                disk.ask(phase, "ann", update=disk.updates["bob"])
        for messages in sent.values():
            disk.deliver(*messages)
        disk.end(phase)
    np.testing.assert_array_equal(disk.read("ann").integers, disk.sum())


def test_an_update_that_cannot_be_added_uses_up_nothing(run):
    up_to(run, run.counted)
    for wrong in (np.zeros(SIZE), np.zeros(SIZE + 1, dtype=np.int64), np.full(SIZE, 2**31)):
        with pytest.raises(InputError):
            run.ask(run.counted, "ann", update=wrong)
    finish(run, run.counted)


def test_secrets_do_not_show(run):
    for role in map(run.role, run.parties):
        assert repr(role) == str(role) == f"<{type(role).__name__}, hidden>"
        with pytest.raises(PrivacyError):
            pickle.dumps(role)


# State on disk


def test_every_role_can_be_loaded_between_any_two_messages(disk):
    for round, names in enumerate((USERS, USERS[1:])):
        if round:
            disk.begin(round)
        for phase in disk.phases:
            for name in names:
                messages = disk.ask(phase, name)
                disk.deliver(*messages, *messages)
            disk.end(phase)
        for name in names:
            np.testing.assert_array_equal(disk.read(name).integers, disk.sum(names))
        assert disk.read("bob").users == names


def test_with_the_same_randomness_loaded_users_send_the_same_bytes(tmp_path):
    sent = []
    for folder in (None, tmp_path / "roles"):
        run = SCHEMES["masks"](folder)  # the only one whose messages are repeatable
        for round in (0, 1):
            run.begin(round)
            for phase in run.phases:
                sent.append([run.ask(phase, name) for name in USERS])
                run.send(phase, USERS)
                run.end(phase)
    assert sent[:10] == sent[10:]


@contextmanager
def unwritable(monkeypatch, path):
    """A full disk: it must be said, and the file stay as it is."""
    before = path.read_bytes()
    with full_disk(monkeypatch), pytest.raises(StorageError, match="full"):
        yield
    assert path.read_bytes() == before


def test_a_step_that_could_not_be_saved_has_not_been_done(disk, monkeypatch):
    ann, path = disk.role("ann"), disk.path("ann")
    for phase in disk.phases:
        other = disk.updates["bob"] if phase == disk.counted else None
        with unwritable(monkeypatch, path):
            disk.ask(phase, "ann", user=ann, update=other)
        assert disk.ask(phase, "ann", user=ann) == disk.ask(phase, "ann")
        disk.send(phase, USERS)
        disk.end(phase)
    np.testing.assert_array_equal(disk.read("ann").integers, disk.sum())


def test_state_is_for_its_owner_alone_and_never_overwritten(disk):
    assert {path.stat().st_mode & 0o777 for path in disk.folder.iterdir()} == {0o600}
    for party in {"ann", *disk.kept} - set(USERS[1:]):
        path = disk.path(party)
        before = path.read_bytes()
        with pytest.raises(StorageError, match=f"{party} exists"):
            disk.make(party, path)
        assert path.read_bytes() == before
        path.chmod(0o640)
        with pytest.raises(StorageError, match="chmod 600"):
            disk.load(party, path)
        with pytest.raises(StorageError, match="does not exist"):
            disk.load(party, disk.folder / "nobody")


def test_damaged_state_is_refused_and_left_as_it_is(disk):
    finish(disk, disk.phases[0])
    source = np.random.default_rng(0)
    for party in {"ann", *disk.kept} - set(USERS[1:]):
        path = disk.path(party)
        whole = path.read_bytes()
        for damaged in (
            b"",
            whole[:60],
            b"?" + whole,
            b"garbage" * 1000,
            bytes(len(whole)),
            *[disk.path("bob").read_bytes()] * (party not in USERS),
            *[whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in source.integers(100, size=8)],
        ):
            path.write_bytes(damaged)
            with pytest.raises(CorruptFileError, match=party):
                disk.load(party, path)
            assert path.read_bytes() == damaged
        path.write_bytes(whole)
        disk.load(party, path)


def test_a_state_whose_parts_do_not_fit_is_refused(disk):
    up_to(disk, disk.phases[-1])
    for party, state in disk.misfits():
        disk.path(party).write_bytes(encode(state))
        with pytest.raises(CorruptFileError, match=party):
            disk.load(party, disk.path(party))


# The aggregator's journal


def test_a_journal_that_ends_anywhere_holds_what_was_whole(keyed):
    """A kill during a write leaves any part of it; what was acknowledged before is there, and the rest can come."""
    sent = [message for name in USERS for message in keyed.ask("contribute", name)]
    keyed.deliver(*sent)
    path = keyed.path(AGGREGATOR)
    whole = path.read_bytes()
    begun = whole.index(sent[0])
    assert whole[begun:] == b"".join(sent)
    ends = np.cumsum([begun, *map(len, sent)])
    cuts = {int(end) + shift for end in ends[::2] for shift in (-1, 0, 40)}
    for cut in sorted(cut for cut in cuts if begun <= cut <= len(whole)):
        torn = sent[0][:100] + bytes(len(sent[0]) - 100)  # as long as it should be
        for tail in (b"", bytes(500), b"BLSM", torn) if cut == ends[4] else (b"",):
            path.write_bytes(whole[:cut] + tail)
            acknowledged = int((ends <= cut).sum()) - 1
            shards = len(sent) // len(USERS)
            assert keyed.role(AGGREGATOR).users == USERS[: acknowledged // shards]
            assert path.stat().st_size == ends[acknowledged]
    keyed.deliver(*sent)
    keyed.end("contribute")
    np.testing.assert_array_equal(keyed.read("ann").integers, keyed.sum())


def test_a_journal_altered_before_its_end_is_refused(keyed):
    path = keyed.path(AGGREGATOR)
    begun = path.stat().st_size
    keyed.send("contribute", USERS[:2])
    whole = path.read_bytes()
    path.write_bytes(whole[: begun + 500] + bytes([whole[begun + 500] ^ 1]) + whole[begun + 501 :])
    with pytest.raises(CorruptFileError, match="altered"):
        keyed.role(AGGREGATOR)
    keyed.round = 1
    path.write_bytes(whole + keyed.ask("contribute", "cem")[0])
    with pytest.raises(CorruptFileError, match="round 1"):
        keyed.role(AGGREGATOR)


def test_the_aggregator_and_the_key_generator_do_nothing_that_is_not_on_disk(keyed, monkeypatch):
    generator, aggregator = keyed.role(GENERATOR), keyed.role(AGGREGATOR)
    with unwritable(monkeypatch, keyed.path(AGGREGATOR)):
        aggregator.open(1)
    assert aggregator.round == keyed.role(AGGREGATOR).round == 0
    keyed.send("contribute", USERS[:4])
    aggregator = keyed.role(AGGREGATOR)
    sent = keyed.ask("contribute", "eve")
    with unwritable(monkeypatch, keyed.path(AGGREGATOR)):
        aggregator.receive(sent[0])
    for message in sent:
        aggregator.receive(message)
    assert aggregator.users == keyed.role(AGGREGATOR).users == USERS
    with unwritable(monkeypatch, keyed.path(AGGREGATOR)):
        aggregator.close()
    request = aggregator.close()
    with unwritable(monkeypatch, keyed.path(GENERATOR)):
        generator.answer(request)
    assert generator.log == keyed.role(GENERATOR).log == ()
    answer = generator.answer(request)
    assert keyed.role(GENERATOR).answer(keyed.role(AGGREGATOR).close()) == answer
    np.testing.assert_array_equal(aggregator.read(answer).integers, keyed.sum())


# The key generator


def test_the_key_generator_decrypts_for_enough_named_users_of_this_round_and_run_only(keyed):
    generator = keyed.role(GENERATOR)
    with pytest.raises(MessageError):
        generator.answer(keyed.request(keyed.receipts(*USERS[:3]), 0, run=bytes(32)))
    assert generator.log == keyed.role(GENERATOR).log == ()
    forged, earlier = SigningKey.generate().sign(b"", author="dia"), keyed.receipts(*USERS[:3])
    for wrong in (
        lambda: (),
        lambda: keyed.receipts(*USERS[:2]),
        lambda: keyed.receipts(*USERS[:3], "bob"),
        lambda: (*keyed.receipts(*USERS[:3]), forged),
        lambda: earlier,
    ):
        keyed.round += 1
        with pytest.raises(MessageError):
            generator.answer(keyed.request(wrong(), 0, round=keyed.round))
    keyed.round += 1
    assert generator.answer(keyed.request(keyed.receipts(*USERS[:3]), 0, round=keyed.round))
    released = ["ann, bob, cem was released" in line for line in keyed.role(GENERATOR).log]
    assert released == [False] * 5 + [True]


def test_a_round_is_decrypted_once(keyed):
    earlier = keyed.receipts(*USERS)
    keyed.round = 1
    receipts = keyed.receipts(*USERS)
    keyed.result = keyed.role(GENERATOR).answer(keyed.request(receipts, 7, round=1))
    assert sorted(keyed.read("ann").integers) == [0] * (SIZE - 1) + [7]
    # The same users again get what is on record, whatever ciphertexts come with it: no second decryption.
    assert keyed.role(GENERATOR).answer(keyed.request(receipts[::-1], 1000, round=1)) == keyed.result
    for request in (keyed.request(keyed.receipts(*USERS[:3]), 7, round=1), keyed.request(earlier, 7)):
        with pytest.raises(PrivacyError, match="over"):
            keyed.role(GENERATOR).answer(request)
    assert len(keyed.role(GENERATOR).log) == 1


def test_an_impossible_sum_is_not_released_and_uses_up_the_round(keyed):
    receipts = keyed.receipts(*USERS[:3])
    with pytest.raises(MessageError, match="forged"):
        keyed.role(GENERATOR).answer(keyed.request(receipts, 3 * keyed.max_integer + 3))
    with pytest.raises(PrivacyError, match="over"):
        keyed.role(GENERATOR).answer(keyed.request(receipts, 0))
    assert ["nothing was released" in line for line in keyed.role(GENERATOR).log] == [True]


def test_requests_cannot_be_tampered_with(keyed):
    keyed.send("contribute", USERS)
    request, source = keyed.role(AGGREGATOR).close(), np.random.default_rng(0)
    generator = keyed.role(GENERATOR)
    for bad in (b"", request[:-1], b"x" + request, *[mutated(request, source) for _ in range(30)]):
        with pytest.raises(MessageError):
            generator.answer(bad)
    assert generator.log == ()


def test_the_aggregator_takes_the_answer_to_its_own_request_alone(keyed):
    other = keyed.make(AGGREGATOR, None)
    other.accept(keyed.setup(AGGREGATOR))
    other.open(0)
    for name in USERS[:3]:
        for message in keyed.ask("contribute", name):
            other.receive(message)
    keyed.send("contribute", USERS)
    with pytest.raises((InputError, MessageError)):
        keyed.role(AGGREGATOR).read(b"")
    keyed.role(AGGREGATOR).close()
    answer = keyed.role(GENERATOR).answer(other.close())
    assert other.read(answer).users == USERS[:3]
    with pytest.raises(MessageError, match="other users"):
        keyed.role(AGGREGATOR).read(answer)


def test_a_set_up_is_final(keyed):
    """Whoever has been set up takes no other key, also after a restart; before, nothing is encrypted."""
    early = keyed.make("ann", None)
    with pytest.raises(InputError, match="not set up"):
        early.contribute_integers(keyed.updates["ann"], 0)
    other = keyed.another_generator()
    for party in ("ann", AGGREGATOR):
        with pytest.raises(MessageError, match="already"):
            keyed.role(party).accept(keyed.setup(party, other))
        keyed.role(party).accept(keyed.setup(party))
