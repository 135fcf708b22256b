"""A user of the masks that is killed between any two steps goes on where it was, and answers no step in two ways."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, StorageError
from blindsight.learn.masks.keys import threshold
from blindsight.learn.masks.messages import Directory, Result, UnmaskRequest
from blindsight.learn.masks.server import MaskServer
from blindsight.learn.masks.user import MaskUser
from blindsight.learn.masks.userstate import UserState
from blindsight.learn.roster import Roster
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import seeded_bytes

USERS = ("ann", "bob", "cem", "dia", "eve")
SIZE = 8

Ask = Callable[[MaskUser], bytes]


class Run:
    """A server, and users that live no longer than one step: each is loaded from its file (or, without one, kept)."""

    def __init__(self, folder):
        source, self.folder = seeded_bytes(0), folder
        terms = SumTerms(run="test", users=USERS, dimension=SIZE, fraction_bits=8)
        self.identities = {name: SigningKey.generate(source) for name in (*USERS, "aggregator")}
        self.roster = Roster(terms, {name: key.public for name, key in self.identities.items()})
        self.sources = {name: seeded_bytes(seed) for seed, name in enumerate(USERS)}
        self.server = MaskServer(self.roster, self.identities["aggregator"])
        self.kept = {name: self._new(name) for name in USERS}
        self.updates = {name: np.arange(SIZE) * (-1) ** i + 1000 * i for i, name in enumerate(USERS)}
        self.sent = []
        self.round = -1

    def _new(self, name):
        path = self.folder / name if self.folder else None
        return MaskUser(name, self.roster, self.identities[name], path=path, source=self.sources[name])

    def user(self, name):
        if self.folder is None:
            return self.kept[name]
        return MaskUser.load(self.folder / name, source=self.sources[name])

    def tell(self, names, ask):
        """Ask users twice, each time in a new process, and pass the answer on."""
        for name in names:
            self.sent.append(ask(self.user(name)))
            assert ask(self.user(name)) == self.sent[-1]
            self.server.receive(self.sent[-1])

    def advertise(self, names=USERS):
        self.round += 1
        self.server.open(self.round)
        self.tell(names, lambda user: user.advertise(self.round))
        self.directory = self.server.directory()
        return self.directory

    def share(self, names=USERS):
        self.tell(names, lambda user: user.share(self.directory))
        self.deliveries = self.server.deliveries()

    def upload(self, names=USERS):
        self.tell(names, lambda user: user.mask_integers(self.updates[user.name], self.deliveries[user.name]))
        self.request = self.server.request()
        return self.request

    def finish(self, names=USERS):
        self.tell(names, lambda user: user.unmask(self.request))
        self.result = self.server.result()
        return self.user(names[0]).read(self.result).integers

    def sum(self, names=USERS):
        return np.sum([self.updates[name] for name in names], axis=0)

    def by_server(self, message):
        return self.identities["aggregator"].sign(encode(message), author="aggregator")


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "users")


def test_users_loaded_anew_at_every_step_send_what_one_that_lives_on_sends(run):
    """With the same randomness every byte is the same, over two rounds."""
    living = Run(None)
    for some in (run, living):
        for survivors in (USERS, USERS[1:]):
            some.advertise(), some.share(), some.upload(survivors)
            assert np.array_equal(some.finish(survivors[1:]), some.sum(survivors))
    assert run.sent == living.sent
    assert len(run.sent) == (5 + 5 + 5 + 4) + (5 + 5 + 4 + 3)


@given(st.data())
@settings(max_examples=12)
def test_drop_outs_at_any_step_leave_the_sum_of_those_who_uploaded(tmp_path_factory, data):
    run = Run(tmp_path_factory.mktemp("users"))
    advertised = tuple(data.draw(st.permutations(USERS))[: data.draw(st.integers(3, 5))])
    run.advertise(advertised)
    needed = max(3, threshold(len(advertised)))
    shared = advertised[: data.draw(st.integers(needed, len(advertised)))]
    run.share(shared)
    uploaded = shared[: data.draw(st.integers(needed, len(shared)))]
    run.upload(uploaded)
    revealed = uploaded[: data.draw(st.integers(threshold(len(advertised)), len(uploaded)))]
    assert np.array_equal(run.finish(revealed), run.sum(uploaded))
    assert run.user(revealed[0]).read(run.result).users == tuple(sorted(uploaded))


def test_a_loaded_user_does_no_step_in_two_ways(run):
    digest = run.roster.digest
    listed = decode_directory(run, run.advertise())
    run.user("ann").share(run.directory)
    with pytest.raises(PrivacyError, match="already: share"):
        run.user("ann").share(run.by_server(Directory(digest, 0, listed[:4])))
    run.share()
    run.user("ann").mask_integers(run.updates["ann"], run.deliveries["ann"])
    with pytest.raises(PrivacyError, match="already: mask"):
        run.user("ann").mask_integers(run.updates["ann"] + 1, run.deliveries["ann"])
    run.upload()
    run.user("ann").unmask(run.request)
    with pytest.raises(PrivacyError, match="already: unmask"):
        run.user("ann").unmask(run.by_server(UnmaskRequest(digest, 0, USERS[:4])))
    with pytest.raises(MessageError, match="other users than were asked to unmask"):
        run.user("ann").read(run.by_server(Result(digest, 0, USERS[:4], bytes(4 * SIZE))))
    assert np.array_equal(run.finish(), run.sum())


def decode_directory(run, envelope):
    return run.roster.open(envelope, Directory, round=0, authors=["aggregator"])[1].advertisements


def test_a_loaded_user_keeps_to_the_order_of_steps_and_rounds(run):
    with pytest.raises(InputError, match="Advertise first"):
        run.user("ann").share(b"")
    run.advertise()
    with pytest.raises(InputError, match="before comes first: share"):
        run.user("ann").mask_integers(run.updates["ann"], b"")
    run.share()
    run.advertise()  # the unfinished round is given up
    with pytest.raises(InputError, match="after round 1 there is no round 0"):
        run.user("ann").advertise(0)
    run.share(), run.upload()
    assert np.array_equal(run.finish(), run.sum())


def test_a_step_counts_when_it_is_on_disk_and_not_before(run, monkeypatch):
    """A step that could not be saved has not been done: asked otherwise afterwards, the user may answer."""
    ann, path = run.user("ann"), run.folder / "ann"

    def fails(ask):
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", _full)
            with pytest.raises(StorageError, match="disk is full"):
                ask(ann)
        assert path.read_bytes() == before

    fails(lambda user: user.advertise(0))
    listed = decode_directory(run, run.advertise())
    ann = run.user("ann")
    fails(lambda user: user.share(run.by_server(Directory(run.roster.digest, 0, listed[:4]))))
    ann.share(run.directory)
    run.share()
    fails(lambda user: user.mask_integers(run.updates["ann"] + 1, run.deliveries["ann"]))
    ann.mask_integers(run.updates["ann"], run.deliveries["ann"])
    run.upload()
    fails(lambda user: user.unmask(run.by_server(UnmaskRequest(run.roster.digest, 0, USERS[:4]))))
    ann.unmask(run.request)
    assert np.array_equal(run.finish(), run.sum())


def _full(descriptor):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_state_is_private_and_not_overwritten(run):
    run.advertise(), run.share()
    path = run.folder / "ann"
    before = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StorageError, match="ann exists already"):
        MaskUser("ann", run.roster, run.identities["ann"], path=path)
    assert path.read_bytes() == before
    path.chmod(0o640)
    with pytest.raises(StorageError, match="chmod 600"):
        MaskUser.load(path)
    with pytest.raises(StorageError, match="does not exist"):
        MaskUser.load(run.folder / "zoe")


def test_a_damaged_state_is_refused_and_left_as_it_is(run):
    run.advertise(), run.share(), run.upload()
    path = run.folder / "ann"
    whole, source = path.read_bytes(), np.random.default_rng(0)
    flipped = [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in source.integers(len(whole), size=50)]
    cut = [whole[:i] for i in source.integers(len(whole), size=50)]
    for damaged in (b"", b"?" + whole, whole + b"?", bytes(len(whole)), *flipped, *cut):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match="ann does not hold what was saved there"):
            MaskUser.load(path)
        assert path.read_bytes() == damaged
    path.write_bytes(whole)
    run.user("ann").unmask(run.request)


def test_a_state_whose_parts_do_not_fit_is_refused(run):
    run.advertise(), run.share(), run.upload()
    path = run.folder / "ann"
    state = decode(path.read_bytes(), UserState)
    wrong = [
        replace(state, roster=b""),
        replace(state, user="bob"),
        replace(state, seed=bytes(31)),
        replace(state, secrets=state.secrets[1:]),
        replace(state, sent=state.sent[1:]),
        replace(state, directory=state.sent[0]),
        replace(state, owners=state.owners[1:]),
        replace(state, seed_shares=state.seed_shares[1:]),
    ]
    for message in wrong:
        path.write_bytes(encode(message))
        with pytest.raises(CorruptFileError, match="ann does not hold"):
            MaskUser.load(path)
