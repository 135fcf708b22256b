"""Every party is killed at every point of a run, one after the other, and goes on from its disk."""

import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import blindsight.files
from blindsight.federated.node import joined_terms
from blindsight.federated.server import RemoteSums, load_run
from blindsight.rounds import Member
from blindsight.rounds.member import member_seed
from blindsight.sums.messages import MessageJournal
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.federated.parties import (
    ALL_SCHEMES,
    DIMENSION,
    KEYED,
    MEMBERS,
    PATIENCE,
    Gone,
    Parties,
    School,
    model,
    numbers,
    run_of,
)
from tests.rounds.learners import loaders, sums, task_of

SLOW = [pytest.param(scheme, 1, marks=pytest.mark.slow) for scheme in ("block-dphe", "dphe", "bfv", "masks")]
STRIDES = [("plain", 2), ("block-dphe", 5), ("bfv", 6), *SLOW]
"""Schemes, and the distance of the points at which a server is killed: 1 in the slow tests."""


class Fuse:
    """Kills whose key store is `own` at an event: before or after it writes a file, sends or hears something."""

    def __init__(self, own):
        self.own, self.left = own, None
        self.files = []  # that were written, by whomever

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
            fuse.files.append(path)
            fuse.tick(path)
        return create(path, flags, *others, **named)

    def after_writing(folder):
        sync(folder)
        fuse.tick(folder)

    def appending(journal, blob):
        fuse.files.append(journal.path)
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


# ---- every file that is replaced or appended to, in a whole run

WRITTEN = {
    AGGREGATOR: {"run", "progress", "label", "state.npz", "answer", "aggregator"},
    "bob": {"joined", "member", "task", "memory.npz"},
    KEY_GENERATOR: {"generator"},
}
"""What each party writes in a run: whoever adds a file adds it here, and has it tried below."""

POINTS = [("masks", AGGREGATOR, 13), ("masks", "bob", 4), ("bfv", KEY_GENERATOR, 2)]
EVERY = [
    pytest.param(scheme, party, 1, marks=pytest.mark.slow)
    for scheme in ("plain", "masks", "bfv", "block-dphe")
    for party in WRITTEN
    if not (party == KEY_GENERATOR and scheme == "plain")
]


class Class(School):
    """Parties that learn a classifier; `kept` are the updates, by name and round, that members have on disk."""

    def __init__(self, folder, scheme):
        self.sums = sums(scheme, 0.5 if scheme == "masks" else None)
        self.task, self.data = task_of("classifier", self.sums)
        super().__init__(folder, loaders(self.data))
        self.kept = set()

    def member_handler(self, name):
        handle = super().member_handler(name)

        def watched(kind, parts):
            try:
                return handle(kind, parts)
            finally:
                for path in self.stores[name].path.glob("runs/*/memory.npz"):
                    terms = joined_terms(path.parent)
                    if (pending := Member(name, terms, path=path).pending) is not None:
                        self.kept.add((name, pending[0]))

        return watched

    def play(self):
        """Play the run as a server does that is started again whenever it was killed; return it."""
        while True:
            try:
                run = load_run(self.stores[AGGREGATOR], "kills", seed=0)
                if run is None:
                    server = self.found(self.task, self.sums)
                    server.run.label("kills", seed=0)
                else:
                    server = RemoteSums(run, self.network, PATIENCE, self.task)
                played = run_of(server, rounds=2)
                played.play()
                return played
            except Gone:
                continue

    def replayed(self, run):
        """Return the model that follows from who is in which sum and which updates were kept."""
        terms, learner = run.backend.terms, self.task.learner()
        shared, members = learner.first(self.task.seed), {name: Member(name, terms) for name in terms.members}
        for report in run.state.history:
            total = np.zeros(terms.dimension, dtype=np.int64)
            for place, (name, member) in enumerate(members.items()):
                if (name, report.round) not in self.kept:
                    assert name not in report.contributors
                    continue
                seed = member_seed(self.task.seed, report.round, place)
                learn = partial(updated, learner, self.data[name], shared, seed)
                integers, counted = member.contribute(report.round, learn), name in report.contributors
                member.settle(report.round, np.full(terms.dimension, counted))
                total += integers * counted
            moved = terms.support(report.round).scatter(terms.values(total)) / len(report.contributors)
            shared = shared + moved.reshape(shared.shape)
        return shared


def updated(learner, data, shared, seed, memory):
    return learner.update(data, shared, memory, seed)


def test_what_each_party_writes_is_known(tmp_path, fuse):
    written = {party: set() for party in WRITTEN}
    for scheme in ("masks", "bfv"):
        school = Class(tmp_path / scheme, scheme)
        fuse.files.clear()
        school.play()
        for path in map(Path, fuse.files):
            name = path.name[1:].rsplit(".", 2)[0] if path.suffix == ".part" else path.name
            for party in WRITTEN:
                if path.is_relative_to(school.stores[party].path):
                    written[party].add(name.split("-")[0])
    assert written == WRITTEN


@pytest.mark.parametrize(("scheme", "party", "stride"), [*POINTS, *EVERY])
def test_a_run_in_which_a_party_is_killed_at_any_write_ends_with_the_model_that_follows_from_its_sums(
    tmp_path, fuse, scheme, party, stride
):
    """The server and the key generator lose nothing: theirs is the model of a run in which nobody was killed."""
    for point in range(0, 1000, stride):
        school = Class(tmp_path / str(point), scheme)
        fuse.own, fuse.left = school.stores[party].path, point
        run = school.play()
        assert np.array_equal(run.state.shared, school.replayed(run))
        if party != "bob":
            assert [report.contributors for report in run.state.history] == [MEMBERS, MEMBERS]
        for report in run.state.history:
            assert set(report.missing) == {*run.backend.terms.members} - {*report.contributors}
            assert all(report.missing.values())
        if not fuse.burnt:
            break
    fuse.left = None
    assert point > 4
