"""Roles of sums under BFV that are killed between any two messages go on where they were; no sum is read twice."""

import errno
import os
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.bfv import add_all, generate_keys
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, StorageError
from blindsight.learn.lattice.aggregator import LatticeAggregator
from blindsight.learn.lattice.keygenerator import LatticeKeyGenerator
from blindsight.learn.lattice.messages import Request, Vouched, checksum
from blindsight.learn.lattice.states import GeneratorState, UserState
from blindsight.learn.lattice.user import LatticeUser
from blindsight.learn.roster import Roster
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import seeded_bytes

USERS = ("ann", "bob", "cem", "dia")
LOADS = {"generator": LatticeKeyGenerator.load, "aggregator": LatticeAggregator.load, "ann": LatticeUser.load}


@pytest.fixture(scope="module")
def secret():
    return generate_keys(max_sum=2**31 - 1)


class Disk:
    """Parties that keep their state in files; each access restores the party from its file."""

    def __init__(self, folder, secret, *, users=USERS, size=5):
        source, self.folder = seeded_bytes(0), folder
        terms = SumTerms(run="test", users=users, dimension=size, fraction_bits=8)
        self.identities = {name: SigningKey.generate(source) for name in (*users, "aggregator", "key generator")}
        self.roster = Roster(terms, {name: key.public for name, key in self.identities.items()})
        self.updates = {name: np.arange(size) * (-1) ** i + 1000 * i for i, name in enumerate(users)}
        LatticeKeyGenerator(self.roster, self.identities["key generator"], secret=secret, path=folder / "generator")
        LatticeAggregator(self.roster, self.identities["aggregator"], path=folder / "aggregator")
        self.aggregator.accept(self.generator.setup())
        for name in users:
            LatticeUser(name, self.roster, self.identities[name], path=folder / name)
            self.user(name).accept(self.generator.setup())

    @property
    def generator(self):
        return LatticeKeyGenerator.load(self.folder / "generator")

    @property
    def aggregator(self):
        return LatticeAggregator.load(self.folder / "aggregator")

    def user(self, name):
        return LatticeUser.load(self.folder / name)

    def contribution(self, name, round=0):
        (sent,) = self.user(name).contribute_integers(self.updates[name], round)
        return sent

    def collect(self, *names, round=0):
        self.aggregator.open(round)
        for name in names:
            self.aggregator.receive(self.contribution(name, round))
        return self.aggregator.close()

    def request(self, names, vector):
        """What an aggregator that breaks the protocol may ask for."""
        receipts = tuple(decode(self.contribution(name), Vouched).envelope for name in names)
        message = Request(self.roster.digest, 0, checksum(vector), receipts)
        return encode(Vouched(self.identities["aggregator"].sign(encode(message), author="aggregator"), vector))

    def sum(self, *names):
        return np.sum([self.updates[name] for name in names], axis=0)


@pytest.fixture
def disk(tmp_path, secret):
    return Disk(tmp_path / "roles", secret)


# Restarts


def test_every_role_can_be_restored_between_any_two_messages(disk):
    for round, names in enumerate((USERS, USERS[1:])):
        disk.aggregator.open(round)
        for i, name in enumerate(names):
            sent = disk.user(name).contribute_integers(disk.updates[name], round)
            assert disk.user(name).contribute_integers(disk.updates[name], round) == disk.user(name).sent(round) == sent
            disk.aggregator.receive(*sent)
            disk.aggregator.receive(*sent)
            assert (disk.aggregator.round, disk.aggregator.users) == (round, names[: i + 1])
        request = disk.aggregator.close()
        assert disk.aggregator.close() == request
        answer = disk.generator.answer(request)
        assert disk.generator.answer(request) == answer
        for total in (disk.aggregator.read(answer), disk.user("bob").read(answer, round)):
            assert np.array_equal(total.integers, disk.sum(*names))
            assert total.users == names
    assert disk.generator.log == (
        "round 0: the sum of ann, bob, cem, dia was released",
        "round 1: the sum of bob, cem, dia was released",
    )


def test_restored_roles_remember_what_they_must_not_do(disk):
    request = disk.collect(*USERS[:3])
    disk.generator.answer(request)
    with pytest.raises(PrivacyError, match="has contributed to round 0 already"):
        disk.user("ann").contribute_integers(disk.updates["bob"], 0)
    late = disk.contribution("dia")
    with pytest.raises(MessageError, match="'dia' comes too late"):
        disk.aggregator.receive(late)
    with pytest.raises(InputError, match="after round 0 there is no round 0"):
        disk.aggregator.open(0)
    with pytest.raises(PrivacyError, match="round 0 is over"):
        disk.generator.answer(disk.request(USERS, decode(request, Vouched).vector))
    other = LatticeKeyGenerator(disk.roster, disk.identities["key generator"]).setup()
    for role in (disk.user("ann"), disk.aggregator):
        with pytest.raises(MessageError, match="another encryption key already"):
            role.accept(other)


def test_a_sum_that_was_not_released_is_not_released_after_a_restart(disk, secret):
    huge = np.full(5, disk.roster.terms.max_integer + 1)
    vector = add_all([secret.public.encrypt(huge, terms=3) for _ in range(3)]).to_bytes()
    with pytest.raises(MessageError, match="not one that these contributors can have"):
        disk.generator.answer(disk.request(USERS[:3], vector))
    with pytest.raises(PrivacyError, match="round 0 is over"):
        disk.generator.answer(disk.collect(*USERS[:3]))
    assert disk.generator.log == ("round 0: nothing was released",)


def test_a_round_may_begin_before_the_set_up_comes(tmp_path, disk):
    path = tmp_path / "early"
    LatticeAggregator(disk.roster, disk.identities["aggregator"], path=path).open(3)
    LatticeAggregator.load(path).accept(disk.generator.setup())
    for name in USERS:
        LatticeAggregator.load(path).receive(disk.contribution(name, 3))
    answer = disk.generator.answer(LatticeAggregator.load(path).close())
    assert np.array_equal(LatticeAggregator.load(path).read(answer).integers, disk.sum(*USERS))


def test_without_a_path_a_user_keeps_the_round_and_not_the_message(disk):
    ann = LatticeUser("ann", disk.roster, disk.identities["ann"])
    ann.accept(disk.generator.setup())
    ann.contribute_integers(disk.updates["ann"], 0)
    with pytest.raises(PrivacyError, match="contributed to round 0 already"):
        ann.contribute_integers(disk.updates["ann"], 0)
    with pytest.raises(InputError, match="does not keep what it contributed to round 0"):
        ann.sent(0)
    with pytest.raises(InputError, match="numbered from 0; got -1"):
        ann.contribute_integers(disk.updates["ann"], -1)


# The journal


@pytest.fixture(scope="module")
def journalled(tmp_path_factory, secret):
    """A round that all users contributed to and that was closed, and what they sent."""
    disk = Disk(tmp_path_factory.mktemp("roles"), secret)
    disk.collect(*USERS)
    return disk, [disk.contribution(name) for name in USERS]


@given(st.data())
@settings(max_examples=25)
def test_a_journal_that_ends_anywhere_holds_what_was_whole(tmp_path_factory, journalled, data):
    """A kill during a write leaves any part of it; whatever was acknowledged before is there, and the rest can come."""
    disk, sent = journalled
    whole = (disk.folder / "aggregator").read_bytes()
    begun = whole.index(sent[0])
    assert whole[begun:].startswith(b"".join(sent))
    end = begun + data.draw(st.integers(0, sum(map(len, sent))))
    path = tmp_path_factory.mktemp("cut") / "aggregator"
    path.touch(0o600)
    path.write_bytes(whole[:end])
    acknowledged = sum(begun + sum(map(len, sent[: i + 1])) <= end for i in range(len(sent)))
    aggregator = LatticeAggregator.load(path)
    assert aggregator.users == USERS[:acknowledged]
    for message in sent:
        aggregator.receive(message)
    answer = disk.generator.answer(aggregator.close())
    assert np.array_equal(LatticeAggregator.load(path).read(answer).integers, disk.sum(*USERS))


def test_a_journal_altered_before_its_end_is_refused(disk):
    disk.aggregator.open(0)
    path = disk.folder / "aggregator"
    begun = path.stat().st_size
    for name in USERS[:2]:
        disk.aggregator.receive(disk.contribution(name))
    whole = path.read_bytes()
    path.write_bytes(whole[: begun + 500] + bytes([whole[begun + 500] ^ 1]) + whole[begun + 501 :])
    with pytest.raises(CorruptFileError, match="was altered"):
        LatticeAggregator.load(path)
    path.write_bytes(whole + disk.contribution("cem", 1))
    with pytest.raises(CorruptFileError, match="speaks of round 1; this is round 0"):
        LatticeAggregator.load(path)


def test_loading_takes_memory_for_few_contributions_however_many_there_are(tmp_path, secret):
    users = tuple(f"user {i:02}" for i in range(16))
    disk, path = Disk(tmp_path / "roles", secret, users=users, size=3 * 4096), tmp_path / "roles" / "aggregator"
    aggregator = disk.aggregator
    aggregator.open(0)
    for name in users:
        message = disk.contribution(name)
        aggregator.receive(message)
    one = len(message)
    assert path.stat().st_size > 15 * one
    tracemalloc.start()
    try:
        assert LatticeAggregator.load(path).users == users
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * one


# The disk


@contextmanager
def full_disk(monkeypatch):
    """Let nothing be written through to the disk, and see that this is said."""

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError, match="disk is full"):
            yield


def test_nothing_counts_before_it_is_on_disk(disk, monkeypatch):
    generator, aggregator, ann = disk.generator, disk.aggregator, disk.user("ann")
    with full_disk(monkeypatch):
        aggregator.open(0)
    assert aggregator.round == disk.aggregator.round == -1
    aggregator.open(0)
    for name in USERS[1:]:
        aggregator.receive(disk.contribution(name))
    with full_disk(monkeypatch):
        ann.contribute_integers(disk.updates["bob"], 0)
    (sent,) = ann.contribute_integers(disk.updates["ann"], 0)  # nothing had left: this is not a second contribution
    with full_disk(monkeypatch):
        aggregator.receive(sent)
    assert aggregator.users == disk.aggregator.users == USERS[1:]
    aggregator.receive(sent)
    assert aggregator.users == disk.aggregator.users == USERS
    with full_disk(monkeypatch):
        aggregator.close()
    request = aggregator.close()
    with full_disk(monkeypatch):
        generator.answer(request)
    assert generator.log == disk.generator.log == ()
    answer = generator.answer(request)
    assert disk.generator.answer(request) == answer
    assert np.array_equal(aggregator.read(answer).integers, disk.sum(*USERS))


def test_a_state_too_long_to_be_read_again_is_not_written(disk, monkeypatch):
    ann, before = disk.user("ann"), (disk.folder / "ann").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("blindsight.learn.dphe.storage.MAX_BYTES", len(before) + 1000)
        with pytest.raises(StorageError, match="too long for"):
            ann.contribute_integers(disk.updates["ann"], 0)
    assert (disk.folder / "ann").read_bytes() == before
    assert ann.contribute_integers(disk.updates["ann"], 0) == disk.user("ann").sent(0)


def test_state_is_private_and_not_overwritten(disk):
    makes = {
        "generator": lambda path: LatticeKeyGenerator(disk.roster, disk.identities["key generator"], path=path),
        "aggregator": lambda path: LatticeAggregator(disk.roster, disk.identities["aggregator"], path=path),
        "ann": lambda path: LatticeUser("ann", disk.roster, disk.identities["ann"], path=path),
    }
    assert {path.stat().st_mode & 0o777 for path in disk.folder.iterdir()} == {0o600}
    for name, make in makes.items():
        path = disk.folder / name
        before = path.read_bytes()
        with pytest.raises(StorageError, match=f"{name} exists already"):
            make(path)
        assert path.read_bytes() == before
        path.chmod(0o640)
        with pytest.raises(StorageError, match="chmod 600"):
            LOADS[name](path)
        with pytest.raises(StorageError, match="does not exist"):
            LOADS[name](disk.folder / "nobody")


def test_damaged_state_is_refused_and_left_as_it_is(disk):
    disk.generator.answer(disk.collect(*USERS))
    for name, load in LOADS.items():
        path = disk.folder / name
        whole = path.read_bytes()
        for damaged in (b"", whole[:60], whole[:100] + b"?" + whole[101:], b"?" + whole, b"garbage" * 1000):
            path.write_bytes(damaged)
            with pytest.raises(CorruptFileError, match=name):
                load(path)
            assert path.read_bytes() == damaged
        path.write_bytes(whole)
        load(path)
    with pytest.raises(CorruptFileError, match="expected a message lattice/round-begun"):
        LatticeAggregator.load(disk.folder / "ann")


def test_a_state_whose_parts_do_not_fit_is_refused(disk):
    user = decode((disk.folder / "ann").read_bytes(), UserState)
    generator = decode((disk.folder / "generator").read_bytes(), GeneratorState)
    wrong = [
        ("ann", replace(user, user="bob")),
        ("ann", replace(user, roster=b"")),
        ("ann", replace(user, public_key=user.roster)),
        ("generator", replace(generator, seed=bytes(31))),
        ("generator", replace(generator, secret_key=user.public_key)),
    ]
    for name, message in wrong:
        (disk.folder / name).write_bytes(encode(message))
        with pytest.raises(CorruptFileError, match=f"{name} does not hold what was saved there"):
            LOADS[name](disk.folder / name)
