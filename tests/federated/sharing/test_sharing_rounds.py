"""Over a network, selective sharing does what it does in one process, bit for bit, whatever is lost on the way."""

import numpy as np
import pytest

from blindsight.dp import Ledger
from blindsight.errors import InputError, ServiceError
from blindsight.federated.sharing import play_asynchronous, play_synchronous
from blindsight.rng import seeded_bytes
from blindsight.selective import Sharing, asynchronous
from blindsight.selective.protection import ParticipantGaussian
from tests.federated.parties import Network

NAMES = ("ann", "bob", "cem")
WAYS = pytest.mark.parametrize(
    ("sharing", "download"),
    [(Sharing(0.3, residual=True), 0.4), (Sharing(0.5, select="random"), 1.0), (Sharing(1.0, half=True), 0.4)],
    ids=["largest", "random", "half"],
)


class Time:
    """A clock that moves only when somebody pauses."""

    def __init__(self):
        self.now = 0.0

    def clock(self):
        return self.now

    def pause(self, seconds):
        self.now += seconds


def played_freely(group, network, uploads, **options):
    time = Time()
    options = {"deadline": 5.0, "clock": time.clock, "pause": time.pause} | options
    play_asynchronous(group.server, network, uploads=uploads, **options)
    return time


def played(group, network, turns, **options):
    done = []
    time = Time()
    options = {"deadline": 5.0, "clock": time.clock, "pause": time.pause} | options
    play_synchronous(group.server, network, turns=turns, on_turn=done.append, **options)
    return done


# --- as in one process ---


@WAYS
def test_in_turns_it_is_the_run_of_one_process(found, in_step, sharing, download):
    group = found(sharing, download=download)
    turns = played(group, group.network(), 5)
    assert group.parameters.parameters.tobytes() == group.in_process(in_step, 15)
    assert [turn.uploaded for turn in turns] == [list(NAMES)] * 5


@WAYS
def test_without_turns_too(found, sharing, download):
    group, uploads = found(sharing, download=download), []
    played_freely(group, group.network(), 15, on_turn=lambda turn: uploads.extend(turn.uploaded))
    in_process = group.in_process(asynchronous(dict.fromkeys(NAMES, 1.0), spread=0), 15)
    assert group.parameters.parameters.tobytes() == in_process
    assert uploads == [*NAMES] * 5


@pytest.mark.parametrize("restart", [1, 2])
def test_a_server_that_is_killed_goes_on_after_its_last_upload(found, in_step, restart):
    """It has forgotten which uploads it has acknowledged; the participants learn it by their next downloads."""
    group = found()
    for _ in range(0, 4, restart):
        played(group, group.network(), restart)
        group.restart_server()
    assert group.parameters.parameters.tobytes() == group.in_process(in_step, 12)


# --- messages that are lost, doubled or late ---


def repeating(group):
    """Deliver every message, and then all earlier ones again."""
    earlier = {name: [] for name in NAMES}

    def transit(name, kind, parts):
        group.handlers[name](kind, parts)
        for old in earlier[name]:
            group.handlers[name](kind, old)
        earlier[name].append(parts)
        return parts

    return transit


@WAYS
def test_repeated_messages_change_nothing(found, in_step, sharing, download):
    group = found(sharing, download=download)
    played(group, group.network(repeating(group)), 5)
    assert group.parameters.parameters.tobytes() == group.in_process(in_step, 15)


@pytest.mark.parametrize("play", [play_synchronous, play_asynchronous])
@pytest.mark.parametrize(("way", "seed"), [("there", 0), ("back", 1), ("both", 2), ("both", 3)])
def test_whatever_is_lost_each_batch_counts_once(found, play, way, seed):
    """Four of ten messages are lost, but never three in a row to one participant."""
    group = found(batches=5)
    rng, losses = np.random.default_rng(seed), dict.fromkeys(NAMES, 0)

    def transit(name, kind, parts):
        losses[name] = losses[name] + 1 if losses[name] < 2 and rng.random() < 0.5 else 0
        if not losses[name]:
            return parts
        if way == "back" or (way == "both" and rng.random() < 0.5):
            group.handlers[name](kind, parts)  # it was heard; what it replied is lost
        return None

    if play is play_synchronous:
        played(group, group.network(transit), 40)
    else:
        played_freely(group, group.network(transit), 15)
    assert group.parameters.version == 15  # every batch of everyone, and not one twice
    assert [group.parameters._state.uploads[name].sequence for name in NAMES] == [5, 5, 5]


def test_without_turns_who_is_silent_is_told_again_while_the_others_go_on(found):
    group, order, lost = found(), [], iter([None])
    seconds = iter(range(10**6))

    def transit(name, kind, parts):
        return next(lost, parts) if name == "bob" else parts

    options = {"deadline": 10.0, "clock": lambda: float(next(seconds))}
    played_freely(group, group.network(transit), 20, on_turn=lambda turn: order.extend(turn.uploaded), **options)
    missing = order.index("bob")
    assert 2 <= missing <= 10  # the others did not wait, and it was not forgotten
    assert order[missing:].count("bob") >= 3


class Slow:
    """A network under which one participant replies, so many times, only when its ticket is collected once more."""

    def __init__(self, network, name, times=1000):
        self._network, self._name, self._times = network, name, times
        self._held: set[str] = set()

    def present(self):
        return self._network.present()

    def send(self, name, kind, parts):
        ticket = self._network.send(name, kind, parts)
        if name == self._name and self._times > 0:
            self._times -= 1
            self._held.add(ticket)
        return ticket

    def collect(self, tickets, *, seconds):
        held = self._held & set(tickets)
        self._held -= held
        yield from self._network.collect(set(tickets) - held, seconds=seconds)


def test_who_is_late_is_left_out_of_the_turn_and_heard_in_the_next(found):
    group = found()
    turns = played(group, Slow(group.network(), "bob"), 8)
    assert all(turn.late == ["bob"] for turn in turns)
    assert all({"ann", "cem"} <= set(turn.uploaded) for turn in turns)
    assert sum("bob" in turn.uploaded for turn in turns) >= 3
    assert all(not turn.refused for turn in turns)


class Backwards(Network):
    """A network under which of the replies that are there the last comes first."""

    def collect(self, tickets, *, seconds):
        come = self.__dict__.setdefault("come", {})
        come |= dict(super().collect(tickets, seconds=seconds))
        for ticket in [ticket for ticket in reversed(come) if ticket in tickets]:
            yield ticket, come.pop(ticket)


def test_a_reply_that_is_overtaken_by_the_next_does_no_harm(found):
    group = found()
    played(group, group.network(), 2)
    for_ann = iter(["arrives", "is lost"])

    def transit(name, kind, parts):
        return None if name == "ann" and next(for_ann, "arrives") == "is lost" else parts

    backwards = Backwards(group.handlers)
    backwards.there = transit
    turns = played(group, Slow(backwards, "bob", times=1), 3)
    assert [turn.late for turn in turns] == [["bob"], ["ann"], []]
    assert [turn.uploaded for turn in turns] == [["cem", "ann"], ["cem", "bob"], ["cem", "bob", "ann"]]
    assert group.parameters.version == 6 + 7


def test_what_comes_too_late_for_the_terms_is_refused_and_sent_with_the_next(found):
    """Of three who upload in one turn the last builds on parameters that are two uploads old."""
    group = found(Sharing(1.0, residual=True), max_staleness=1)
    turns = played(group, group.network(), 4)
    assert all(turn.uploaded == ["ann", "bob"] for turn in turns)
    assert all("2 uploads old" in turn.refused["cem"] for turn in turns)
    cem = group.participant("cem", path=group.home / "cem")
    unsent = cem.under_way and cem._state.under_way.wanted
    assert np.abs(unsent).sum() > 0
    cem.close()
    lonely = {"cem": group.handlers["cem"]}
    group.handlers.clear()
    group.handlers.update(lonely)
    (last,) = played(group, group.network(), 1)
    assert last.uploaded == ["cem"]


# --- participants that fail ---


def test_one_that_fails_does_not_hold_the_others_up(found):
    group = found()
    other = found(run="other")
    group.handlers["bob"] = other.handlers["bob"]  # of another run
    group.handlers["cem"] = lambda kind, parts: [b"garbage"]
    turns = played(group, group.network(), 3)
    assert all(turn.uploaded == ["ann"] and not turn.late for turn in turns)
    assert all("'bob'" in turn.refused["bob"] and turn.refused["cem"] for turn in turns)
    told = []
    played_freely(group, group.network(), 7, on_turn=lambda turn: told.extend(turn.refused))
    assert group.parameters.version == 10
    assert 2 <= told.count("bob") == told.count("cem") <= 4  # asked again now and then, not all the time
    group.handlers["bob"] = lambda kind, parts: [b"", b""]
    (turn,) = played(group, group.network(), 1)
    assert "2 parts" in turn.refused["bob"]


def test_one_that_lost_its_file_begins_anew(found):
    group = found(download=0.4)
    played(group, group.network(), 3)
    (group.home / "bob").unlink()
    turns = played(group, group.network(), 3)
    assert [("bob" in turn.uploaded, turn.refused) for turn in turns] == [(False, {}), (True, {}), (True, {})]


def test_when_all_budgets_are_spent_it_ends(found, tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    for name in NAMES:
        ledger.set_budget(f"test: {name}", unit="person", neighbours="add/remove", epsilon=4.0, delta=1e-5)
    sharing = Sharing(1.0, noise=ParticipantGaussian(clip=1.0, noise_multiplier=2.0))
    group = found(sharing, options={"ledger": ledger, "source": seeded_bytes(1)})
    turns = played(group, group.network(), 20)
    assert 1 < len(turns) < 20
    assert turns[-1].spent == set(NAMES)
    assert group.parameters.version == 3 * (len(turns) - 1)
    assert [len(ledger.spends(f"test: {name}", "person")) for name in NAMES] == [len(turns) - 1] * 3
    assert played_freely(group, group.network(), 5).now == 0  # ends as well
    assert group.parameters.version == 3 * (len(turns) - 1)


def test_without_photos_turns_are_empty_and_without_turns_it_ends(found):
    group = found(batches=2)
    turns = played(group, group.network(), 4)
    assert [len(turn.uploaded) for turn in turns] == [3, 3, 0, 0]
    assert played_freely(group, group.network(), 5).now == 0
    assert group.parameters.version == 6


# --- too few ---


def test_a_turn_waits_until_enough_are_there(found):
    group = found()
    bob = group.handlers.pop("bob")
    waits = []

    def pause(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            group.handlers["bob"] = bob

    (turn,) = played(group, group.network(), 1, minimum=3, pause=pause)
    assert (len(waits), len(turn.uploaded)) == (3, 3)
    group.handlers.clear()
    with pytest.raises(ServiceError, match="2 participants; 0"):
        played(group, group.network(), 1, minimum=2)


def test_without_turns_those_who_are_away_are_waited_for(found):
    group = found()
    away = dict(group.handlers)
    group.handlers.clear()

    class Dawn(Time):
        def pause(self, seconds):
            super().pause(seconds)
            if self.now == 10:
                group.handlers.update(away)

    dawn = Dawn()
    played_freely(group, group.network(), 6, clock=dawn.clock, pause=dawn.pause)
    assert (dawn.now, group.parameters.version) == (10, 6)
    group.handlers.clear()
    with pytest.raises(ServiceError, match="15 seconds"):
        played_freely(group, group.network(), 1)


class Unsure(Network):
    """A network that can no longer reach one whom it called present."""

    def send(self, name, kind, parts):
        return "" if name in ("ann", "bob") else super().send(name, kind, parts)


def test_those_who_are_gone_when_they_are_sent_for_are_late(found):
    group = found()
    turns = played(group, Unsure(group.handlers), 2)
    assert [(turn.late, turn.uploaded) for turn in turns] == [(["ann", "bob"], ["cem"])] * 2
    assert played_freely(group, Unsure(group.handlers), 3).now == 0
    assert group.parameters.version == 5


def test_when_nobody_replies_it_ends_and_impossible_bounds_are_refused(found):
    group = found()
    for wrong in ({"turns": 0}, {"minimum": 0}, {"deadline": 0.0}, {"deadline": float("inf")}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            play_synchronous(group.server, group.network(), **({"turns": 1, "deadline": 1.0} | wrong))
    with pytest.raises(ServiceError, match="15 seconds"):
        played_freely(group, group.network(lambda *_: None), 1)
    turns = played(group, group.network(lambda *_: None), 2)
    assert [turn.late for turn in turns] == [list(NAMES)] * 2
