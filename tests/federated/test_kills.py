"""Every party is killed at every point of a run, one after the other, and goes on from its disk."""

import os
from pathlib import Path

import numpy as np
import pytest

import blindsight.files
from blindsight.federated.server import RemoteSums, load_run
from blindsight.rounds import Member
from blindsight.sums.messages import MessageJournal
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.federated.parties import ALL_SCHEMES, DIMENSION, KEYED, MEMBERS, PATIENCE, Gone, Parties, model, numbers

SLOW = [pytest.param(scheme, 1, marks=pytest.mark.slow) for scheme in ("block-dphe", "dphe", "bfv", "masks")]
STRIDES = [("plain", 2), ("block-dphe", 5), ("bfv", 6), *SLOW]
"""Schemes, and the distance of the points at which a server is killed: 1 in the slow tests."""


class Fuse:
    """Kills whose key store is `own` at an event: before or after it writes a file, sends or hears something."""

    def __init__(self, own):
        self.own, self.left = own, None

    @property
    def burnt(self):
        return self.left is None

    def tick(self, folder=None):
        if self.left is None or (folder is not None and not Path(folder).is_relative_to(self.own)):
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            raise Gone


@pytest.fixture
def fuse(tmp_path, monkeypatch):
    fuse = Fuse(tmp_path / AGGREGATOR)
    create, sync, append = os.open, blindsight.files.sync_folder, MessageJournal.append

    def before_writing(path, flags, *others, **named):
        if flags & os.O_EXCL:
            fuse.tick(path)
        return create(path, flags, *others, **named)

    def after_writing(folder):
        sync(folder)
        fuse.tick(folder)

    def appending(journal, blob):
        fuse.tick(journal.path)
        append(journal, blob)
        fuse.tick(journal.path)

    monkeypatch.setattr(os, "open", before_writing)
    monkeypatch.setattr(blindsight.files, "sync_folder", after_writing)
    monkeypatch.setattr(MessageJournal, "append", appending)
    return fuse


class FusedTransport:
    """A transport whose server may be killed before each sending and after each reply."""

    def __init__(self, transport, fuse):
        self.transport, self.fuse = transport, fuse

    def present(self):
        self.fuse.tick()
        return self.transport.present()

    def send(self, name, kind, parts):
        self.fuse.tick()
        return self.transport.send(name, kind, parts)

    def collect(self, tickets, *, seconds):
        for item in self.transport.collect(tickets, seconds=seconds):
            self.fuse.tick()
            yield item


@pytest.mark.parametrize(("scheme", "stride"), [*STRIDES, ("masks", 7)])
def test_a_server_killed_anywhere_in_a_round_goes_on_and_no_sum_is_wrong(tmp_path, fuse, scheme, stride):
    parties = Parties(tmp_path, held=True)
    transport = FusedTransport(parties.network, fuse)
    server = parties.open(scheme, transport)
    moved = np.zeros(server.terms.dimension, dtype=np.int64)
    for round, point in enumerate(range(0, 1000, stride), 1):
        parties.draw(round, whole=True)
        fuse.left = point
        try:
            result = server.round(round, model(round))
        except Gone:
            server = parties.restarted(server, transport)
            result = server.round(round, model(round))
        moved += result.total
        assert len(result.contributors) >= 3
        assert all(parties.proposals[name, round] <= 1 for name in parties.names)
        if not fuse.burnt:
            break
        # Whoever did not get in (it came too late for the sum that was asked for) has kept it for the next round.
        if result.contributors == parties.names:
            assert np.array_equal(moved, parties.everything_learned(server))
    assert 15 < round * stride < 1000
    assert result.contributors == parties.names
    assert np.array_equal(moved, parties.everything_learned(server))


@pytest.mark.parametrize(("scheme", "stride"), [*STRIDES, ("masks", 5)])
def test_a_server_killed_anywhere_in_the_set_up_can_be_started_again(tmp_path, fuse, scheme, stride):
    parties = Parties(tmp_path)
    transport, store = FusedTransport(parties.network, fuse), parties.stores[AGGREGATOR]
    for point in range(0, 200, stride):
        label, fuse.left = f"run {point}", point
        try:
            parties.open(scheme, transport).run.label(label, seed=0)
        except Gone:
            if load_run(store, label, seed=0) is None:
                parties.open(scheme, transport).run.label(label, seed=0)
        if not fuse.burnt:
            break
    fuse.left = None
    found = load_run(store, label, seed=0)
    assert found is not None
    assert point > 8
    server = RemoteSums(found, parties.network, PATIENCE, numbers())
    parties.draw(1)
    assert np.array_equal(server.round(1, model(1)).total, parties.plain_sum(server, parties.names))


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_member_killed_at_any_point_of_a_round_rejoins_and_loses_nothing(tmp_path, fuse, scheme):
    parties = Parties(tmp_path, held=True)
    server = parties.open(scheme)
    fuse.own = parties.stores["bob"].path
    moved = np.zeros(DIMENSION, dtype=np.int64)
    for round in range(1, 100):
        parties.draw(round, whole=True)
        fuse.left = round - 1
        result = server.round(round, model(round))
        assert set(result.contributors) >= {"ann", "cem", "dan"}
        moved += result.total
        if not fuse.burnt:
            break
        pending = Member(
            "bob", server.terms, path=parties.stores["bob"].folder(server.terms.run) / "memory.npz"
        ).pending
        if pending is None or pending[0] != round:  # killed before it was written down: it has yet to learn it
            parties.learned.pop(("bob", round), None)
    assert round > 2
    assert result.contributors == MEMBERS
    assert np.array_equal(moved, parties.everything_learned(server))


@pytest.mark.parametrize("scheme", KEYED)
def test_a_key_generator_killed_at_any_point_of_an_answer_answers_when_it_is_back(tmp_path, fuse, scheme):
    parties = Parties(tmp_path)
    server = parties.open(scheme)
    fuse.own = parties.stores[KEY_GENERATOR].path
    for round in range(1, 100):
        parties.draw(round)
        fuse.left = round - 1
        result = server.round(round, model(round))
        assert np.array_equal(result.total, parties.plain_sum(server, MEMBERS))
        assert server.run.number == round  # no round was wasted, so no sum was opened twice
        if not fuse.burnt:
            break
    assert round >= 3


@pytest.mark.parametrize("scheme", [*KEYED, "masks"])
def test_a_key_generator_killed_at_any_point_of_the_set_up_opens_the_run_when_it_is_back(tmp_path, fuse, scheme):
    parties = Parties(tmp_path)
    fuse.own = parties.stores[KEY_GENERATOR].path
    for point in range(100):
        fuse.left = point
        server = parties.open(scheme)
        if not fuse.burnt:
            break
    assert point >= 2
    parties.draw(1)
    assert np.array_equal(server.round(1, model(1)).total, parties.plain_sum(server, MEMBERS))
