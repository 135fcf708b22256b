"""An aggregator that was killed goes on in the middle of a round; members say beforehand what they would refuse."""

import numpy as np
import pytest

from blindsight.errors import MessageError, PrivacyError
from blindsight.sums import Aggregator, Engine, KeyGenerator, Member, Patience, Terms, UnansweredError
from blindsight.sums.engine import LocalTransport

MEMBERS = ("ann", "bob", "cem", "dan")
ONCE = Patience(attempts=1, pause=0.0)
UPDATES = {name: np.arange(7) * (place + 1) for place, name in enumerate(MEMBERS)}


class Parties:
    def __init__(self, folder, scheme="masks"):
        self.terms = Terms(scheme=scheme, run="a", members=MEMBERS, dimension=7, fraction_bits=4)
        self.members = {name: Member(name, self.terms) for name in MEMBERS}
        self.path, self.lost, self.kinds = folder / "aggregator", set(), []
        aggregator, registrar = Aggregator(self.terms, path=self.path), KeyGenerator(self.terms)
        for party in (*self.members.values(), aggregator):
            registrar.enrol(party.enrolment())
        for name, setup in registrar.setup().items():
            self.members.get(name, aggregator).accept(setup)

    def engine(self):
        """Return the engine as a new process finds it on the disk."""
        handlers = {name: self._handler(name) for name in MEMBERS}
        return Engine(Aggregator.load(self.path), LocalTransport(handlers, transit=self._transit), ONCE)

    def _handler(self, name):
        def handle(kind, parts):
            return [self.members[name].answer(parts[0], UPDATES[name] if kind == "contribute" else None)]

        return handle

    def _transit(self, sender, receiver, kind, parts):
        self.kinds.append(kind)
        return () if (sender, kind) in self.lost else (parts,)


def sum_of(names):
    return sum(UPDATES[name] for name in names)


def test_a_sum_that_members_began_to_unmask_is_finished_by_the_next_process(tmp_path):
    parties = Parties(tmp_path)
    parties.lost = {(name, "unmask") for name in ("ann", "bob")}
    with pytest.raises(UnansweredError):
        parties.engine().play(0, (b"model",))
    parties.lost, parties.kinds = set(), []
    _, total = parties.engine().play(0, (b"model",))
    assert np.array_equal(total.integers, sum_of(MEMBERS))
    assert set(parties.kinds) == {"unmask"}  # nothing but this sum can come of the round
    again = parties.engine().play(0, (b"model",))[1]
    assert np.array_equal(again.integers, total.integers)
    parties.kinds = []
    _, second = parties.engine().play(1, (b"another",))
    assert np.array_equal(second.integers, sum_of(MEMBERS))
    assert "advertise" not in parties.kinds  # the keys of this round came with the end of the last


def test_keys_that_came_ahead_outlive_the_process_that_opened_the_round(tmp_path):
    parties = Parties(tmp_path)
    engine = parties.engine()
    engine.play(0, (b"model",))
    parties.kinds, parties.lost = [], {(name, "unmask") for name in MEMBERS}
    with pytest.raises(UnansweredError):
        engine.play(1, (b"another",))
    assert "advertise" not in parties.kinds
    parties.lost = set()
    _, total = parties.engine().play(1, (b"another",))
    assert np.array_equal(total.integers, sum_of(MEMBERS))


def test_a_call_is_read_before_anything_is_learned_for_it(tmp_path):
    parties = Parties(tmp_path, "plain")
    engine, ann = parties.engine(), parties.members["ann"]
    first = engine.begin(0, (b"model",))["ann"][0]
    assert ann.read_call(first).round == 0
    ann.answer(first, UPDATES["ann"])
    assert ann.read_call(first).round == 0  # asked again, it answers the same
    with pytest.raises(PrivacyError, match="answered this model"):
        ann.read_call(engine.begin(1, (b"model",))["ann"][0])
    second = engine.begin(2, (b"another",))["ann"][0]
    ann.answer(second, UPDATES["ann"])
    with pytest.raises(MessageError, match="too late"):
        ann.read_call(first)


def test_notes_come_with_every_call(tmp_path, monkeypatch):
    parties, told = Parties(tmp_path), []
    engine = parties.engine()
    monkeypatch.setattr(engine, "note", lambda name: told.append((name, engine.aggregator.step)) or b"")
    engine.play(0, (b"model",))
    steps = ["advertise", "share", "contribute", "consistency", "unmask"]
    assert [step for name, step in told if name == "ann"] == steps
