"""A role that stops between any two messages, or is killed in the middle of one, goes on where it was."""

import errno
import hashlib
import os
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import blindsight
from blindsight.errors import CorruptFileError, MessageError, PrivacyError, StorageError
from blindsight.learn.dphe import Aggregator, KeyGenerator, User
from blindsight.learn.dphe.terms import AGGREGATOR


class Disk:
    """Parties that keep their state in files; each access restores the party from its file."""

    def __init__(self, folder, terms, key):
        self.folder, self.terms = folder, terms
        KeyGenerator(terms, key=key, path=folder / "generator")
        Aggregator(terms, path=folder / "aggregator")
        for name in terms.users:
            User(name, terms, path=folder / name)

    @property
    def generator(self):
        return KeyGenerator.load(self.folder / "generator")

    @property
    def aggregator(self):
        return Aggregator.load(self.folder / "aggregator")

    def user(self, name):
        return User.load(self.folder / name)

    def set_up(self):
        for name in self.terms.users:
            self.generator.enrol(self.user(name).enrolment())
        messages = self.generator.setup()
        self.aggregator.accept(messages[AGGREGATOR])
        for name in self.terms.users:
            self.user(name).accept(messages[name])


@pytest.fixture
def disk(tmp_path, make_terms, key):
    disk = Disk(tmp_path, make_terms(min_per_block=2), key)
    disk.set_up()
    return disk


@pytest.fixture
def updates(disk, sparse_update):
    """Updates of two shards each."""
    return {name: sparse_update(disk.terms, seed, blocks=10) for seed, name in enumerate(disk.terms.users)}


def expected(updates, *names):
    changed = sum((updates[name] != 0).astype(int) for name in names)
    return np.where(changed >= 2, sum(updates[name] for name in names), 0)


def test_every_role_can_be_restored_between_any_two_messages(disk, updates):
    for round in (0, 1):
        disk.aggregator.open(round)
        for name in updates:
            sent = disk.user(name).contribute_integers(updates[name], round)
            assert len(sent) == 2
            assert disk.user(name).contribute_integers(updates[name], round) == disk.user(name).sent(round) == sent
            for message in sent:
                disk.aggregator.receive(message)
                disk.aggregator.receive(message)
        answer = disk.generator.answer(disk.aggregator.close())
        assert disk.generator.answer(disk.aggregator.close()) == answer
        np.testing.assert_array_equal(disk.aggregator.read(answer).integers, expected(updates, *updates))
        outcome = disk.user("anna").read(answer, round)
        np.testing.assert_array_equal(outcome.integers, expected(updates, *updates))
        # Where nobody else changed a weight it is withheld: a user keeps it for the next round.
        assert 0 < outcome.entered.sum() < outcome.entered.size
    assert len(disk.generator.log) == 2


def test_restored_roles_remember_what_they_must_not_do(disk, updates):
    disk.aggregator.open(0)
    for name in ("anna", "bert", "cleo"):
        for message in disk.user(name).contribute_integers(updates[name], 0):
            disk.aggregator.receive(message)
    disk.generator.answer(disk.aggregator.close())
    with pytest.raises(PrivacyError, match="has contributed to round 0 already"):
        disk.user("anna").contribute_integers(updates["bert"], 0)
    late = disk.user("dora").contribute_integers(updates["dora"], 0)[0]
    with pytest.raises(MessageError, match="'dora' comes too late"):
        disk.aggregator.receive(late)
    with pytest.raises(MessageError, match="already set up, differently"):
        disk.user("anna").accept(_another_set_up(disk)["anna"])
    with pytest.raises(MessageError, match="has enrolled with another key"):
        disk.generator.enrol(User("anna", disk.terms).enrolment())


def _another_set_up(disk):
    generator = KeyGenerator(disk.terms, key=disk.generator._key)
    for name in disk.terms.users:
        generator.enrol(disk.user(name).enrolment())
    return generator.setup()


class Child:
    """A role in another process."""

    def __init__(self, role, path):
        source = str(Path(blindsight.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("killed_role.py")), role, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": source},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def send(self, message):
        """Send a message and wait for its acknowledgement."""
        self.stdin.write(struct.pack(">Q", len(message)) + message)
        self.stdin.flush()
        return self.stdout.readline().decode().strip()

    def kill(self):
        self.process.kill()  # SIGKILL
        self.stdin.close()
        self.stdout.close()
        assert self.process.wait() == -9


def test_killed_roles_resume_the_round(disk, updates):
    disk.aggregator.open(0)
    sent = {name: disk.user(name).contribute_integers(updates[name], 0) for name in ("anna", "bert", "cleo")}
    child = Child("aggregator", disk.folder / "aggregator")
    acknowledged = [child.send(message) for message in (*sent["anna"], sent["bert"][0])]
    child.kill()
    assert acknowledged == ["", "anna", "anna"]

    # What a kill in the middle of a write leaves at the end of the journal was not acknowledged.
    with (disk.folder / "aggregator").open("ab") as journal:
        journal.write(sent["bert"][1][:1000])
    assert disk.aggregator.users == ("anna",)
    for message in (*sent["anna"], *sent["bert"], *sent["cleo"]):
        disk.aggregator.receive(message)
    request = disk.aggregator.close()

    child = Child("generator", disk.folder / "generator")
    digest = child.send(request)
    child.kill()
    answer = disk.generator.answer(disk.aggregator.close())
    assert hashlib.sha256(answer).hexdigest() == digest
    np.testing.assert_array_equal(disk.aggregator.read(answer).integers, expected(updates, *sent))


@contextmanager
def full_disk(monkeypatch):
    """Let nothing be written through to the disk."""

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        yield


def test_nothing_counts_before_it_is_on_disk(disk, updates, monkeypatch):
    generator, aggregator, anna = disk.generator, disk.aggregator, disk.user("anna")
    aggregator.open(0)
    for name in ("bert", "cleo", "dora"):
        for message in disk.user(name).contribute_integers(updates[name], 0):
            aggregator.receive(message)
    with full_disk(monkeypatch), pytest.raises(StorageError, match="disk is full"):
        anna.contribute_integers(updates["bert"], 0)
    sent = anna.contribute_integers(updates["anna"], 0)  # nothing had left, so this is not a second contribution
    size = (disk.folder / "aggregator").stat().st_size
    with full_disk(monkeypatch), pytest.raises(StorageError, match="disk is full"):
        aggregator.receive(sent[0])
    assert (disk.folder / "aggregator").stat().st_size == size
    for message in sent:
        aggregator.receive(message)
    assert aggregator.users == disk.aggregator.users == disk.terms.users
    request = aggregator.close()
    with full_disk(monkeypatch), pytest.raises(StorageError, match="disk is full"):
        generator.answer(request)
    assert generator.log == disk.generator.log == ()
    answer = generator.answer(request)
    assert disk.generator.answer(aggregator.close()) == answer


def test_state_is_private(disk):
    loads = {"generator": KeyGenerator.load, "aggregator": Aggregator.load, "anna": User.load}
    assert {path.stat().st_mode & 0o777 for path in disk.folder.iterdir() if path.is_file()} == {0o600}
    for name, load in loads.items():
        (disk.folder / name).chmod(0o640)
        with pytest.raises(StorageError, match="chmod 600"):
            load(disk.folder / name)
        (disk.folder / name).chmod(0o600)


def test_new_roles_do_not_overwrite_old_ones(disk, key):
    before = (disk.folder / "generator").read_bytes()
    roles = [
        lambda path: KeyGenerator(disk.terms, key=key, path=path),
        lambda path: Aggregator(disk.terms, path=path),
        lambda path: User("anna", disk.terms, path=path),
    ]
    for make in roles:
        with pytest.raises(StorageError, match="generator exists already"):
            make(disk.folder / "generator")
    assert (disk.folder / "generator").read_bytes() == before


def test_damaged_state_is_refused(disk, updates):
    disk.aggregator.open(0)
    for message in disk.user("anna").contribute_integers(updates["anna"], 0):
        disk.aggregator.receive(message)
    loads = {"generator": KeyGenerator.load, "aggregator": Aggregator.load, "anna": User.load}
    for name, load in loads.items():
        path = disk.folder / name
        whole = path.read_bytes()
        for damaged in (b"", whole[:60], whole[:100] + b"?" + whole[101:], b"?" + whole, b"garbage" * 1000):
            path.write_bytes(damaged)
            with pytest.raises(CorruptFileError, match=name):
                load(path)
            assert path.read_bytes() == damaged
        path.write_bytes(whole)
        load(path)
    with pytest.raises(CorruptFileError, match="expected a message dphe/round-begun"):
        Aggregator.load(disk.folder / "anna")
    with pytest.raises(StorageError, match="does not exist"):
        User.load(disk.folder / "nobody")


@pytest.mark.parametrize("torn", [b"", b"BLSM", bytes(500), "half", "zeros"])
def test_a_torn_end_of_the_journal_is_cut_off(disk, updates, torn):
    disk.aggregator.open(0)
    first, second = disk.user("anna").contribute_integers(updates["anna"], 0)
    disk.aggregator.receive(first)
    whole = (disk.folder / "aggregator").stat().st_size
    tails = {"half": second[: len(second) // 2], "zeros": second[:100] + bytes(len(second) - 100)}
    with (disk.folder / "aggregator").open("ab") as journal:
        journal.write(tails[torn] if isinstance(torn, str) else torn)
    aggregator = disk.aggregator
    assert (disk.folder / "aggregator").stat().st_size == whole
    assert aggregator.users == ()
    aggregator.receive(second)
    assert disk.aggregator.users == ("anna",)


def test_a_journal_altered_before_its_end_is_refused(disk, updates):
    disk.aggregator.open(0)
    path = disk.folder / "aggregator"
    begun = path.stat().st_size
    for message in disk.user("anna").contribute_integers(updates["anna"], 0):
        disk.aggregator.receive(message)
    whole = path.read_bytes()
    path.write_bytes(whole[: begun + 500] + b"?" + whole[begun + 501 :])
    with pytest.raises(CorruptFileError, match="was altered"):
        Aggregator.load(path)
