"""Selective sharing with participants that are elsewhere: in turns, or each at its own speed.

*The guarantee.* Nobody holds the others up for longer than `deadline`. Whoever is late is left out for now; what it
sends later is added if the terms' `max_staleness` allows. What is lost is sent again, and nothing counts twice.

In turns (`play_synchronous`), all download the same parameters and then upload one after the other, so the last of n
uploads of a turn builds on parameters that are n - 1 uploads old: agree on a `max_staleness` of at least as many, or
on none. Without turns (`play_asynchronous`), everyone gets its next instruction as soon as its report has come.

Time is measured by a clock of the server's alone, as a difference: clocks of others, or a clock that is set, play no
role.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from blindsight.errors import InputError, MessageError, ServiceError
from blindsight.federated.sharing.messages import EXCHANGE
from blindsight.federated.sharing.serverside import SharingServer, Taken
from blindsight.sums.transport import Response, Transport

Clock = Callable[[], float]

_OPEN_TICKETS = 2  # of one participant: the last, and one whose reply may still come
_POLL_SECONDS = 1.0
_PATIENCE = 3  # deadlines without any reply, after which nobody is expected to reply any more


@dataclass
class Turn:
    """What happened in one turn: whose uploads were added, refused (why) or lacking (why), and who was late."""

    number: int
    version: int = 0
    uploaded: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    spent: set[str] = field(default_factory=set)

    def note(self, name: str, outcome: Taken | str) -> None:
        """Write down what came from a participant: a report, or a sentence that says why there is none."""
        if isinstance(outcome, str):
            self.failed[name] = outcome
            return
        if outcome.uploaded:
            self.uploaded.append(name)
        if outcome.refused is not None:
            self.refused[name] = outcome.refused
        if outcome.spent:
            self.spent.add(name)


def play_synchronous(
    server: SharingServer,
    transport: Transport,
    *,
    turns: int,
    deadline: float,
    minimum: int = 1,
    on_turn: Callable[[Turn], None] = lambda turn: None,
    clock: Clock = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Play so many turns, in each of which all who are present get one exchange; fewer if all budgets are spent.

    A turn lasts `deadline` seconds at most. It begins when at least `minimum` participants are present; if there are
    not so many within another `deadline`, `ServiceError` is raised, and the run can be gone on with later.
    """
    _check_bounds(turns=turns, minimum=minimum, deadline=deadline)
    exchanges = _Exchanges(server, transport, clock)
    for number in range(1, turns + 1):
        present = _enough(server, transport, minimum, deadline, pause)
        turn, ends = Turn(number), clock() + deadline
        absent = exchanges.exchange([name for name in present if not server.knows(name)], turn, ends)
        absent += exchanges.exchange([name for name in present if server.knows(name)], turn, ends)
        turn.late += sorted(set(absent) - set(turn.failed))
        turn.version = server.version
        on_turn(turn)
        if turn.spent == set(server.names):
            return


def play_asynchronous(
    server: SharingServer,
    transport: Transport,
    *,
    uploads: int,
    deadline: float,
    on_upload: Callable[[str, Taken], None] = lambda name, taken: None,
    on_failure: Callable[[str, str], None] = lambda name, sentence: None,
    clock: Clock = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Play until so many uploads were added, or nobody has photos and budget left.

    `on_upload` is told of every upload, added or refused, and of everyone whose budget is spent; `on_failure` of every
    error that came instead of a report.
    Whoever had nothing to send, or failed, is asked again after as many uploads of others as there are participants.
    Whoever has not replied for `deadline` seconds is sent a new instruction. If nobody replies for three times as long,
    `ServiceError` is raised.
    """
    _check_bounds(uploads=uploads, deadline=deadline)
    exchanges, resting, added, last_heard = _Exchanges(server, transport, clock), dict[str, float](), 0, clock()
    while added < uploads:
        awake = [name for name in server.names if resting.get(name, 0) <= server.version]
        present, waited_for = transport.present(), exchanges.waited_for(deadline)
        if not awake and not waited_for:
            return
        exchanges.send([name for name in awake if name in present and name not in waited_for])
        heard = next(exchanges.hear(deadline), None)
        if heard is None:
            if clock() - last_heard >= _PATIENCE * deadline:
                raise ServiceError(f"nobody has replied for {_PATIENCE * deadline:g} seconds.")
            exchanges.wait_no_longer()
            pause(_POLL_SECONDS)
            continue
        last_heard, (name, outcome) = clock(), heard
        resting[name] = _rests_until(outcome, server)
        if isinstance(outcome, str):
            on_failure(name, outcome)
        elif outcome.uploaded or outcome.refused is not None or outcome.spent:
            added += outcome.uploaded
            on_upload(name, outcome)


def _rests_until(outcome: Taken | str, server: SharingServer) -> float:
    """Return the server's version at which a participant is to be asked again."""
    if isinstance(outcome, str):
        return server.version + len(server.names)
    if outcome.spent:
        return float("inf")
    return server.version + len(server.names) if outcome.idle else 0


def _enough(
    server: SharingServer, transport: Transport, minimum: int, deadline: float, pause: Callable[[float], None]
) -> list[str]:
    """Return who is present, once they are enough."""
    waited = 0.0
    while True:
        reachable = transport.present()
        present = [name for name in server.names if name in reachable]
        if len(present) >= minimum:
            return present
        if waited >= deadline:
            raise ServiceError(
                f"a turn needs {minimum} participants; {len(present)} could be reached within {deadline:g} seconds."
            )
        pause(_POLL_SECONDS)
        waited += _POLL_SECONDS


class _Exchanges:
    """What is under way between the server and the participants: tickets, whose they are, and since when."""

    def __init__(self, server: SharingServer, transport: Transport, clock: Clock) -> None:
        self._server, self._transport, self._clock = server, transport, clock
        self._open: dict[str, tuple[str, float]] = {}  # the oldest first

    def waited_for(self, deadline: float) -> set[str]:
        """Return whose instructions are not older than the deadline."""
        now = self._clock()
        return {name for name, since in self._open.values() if now - since < deadline}

    def wait_no_longer(self) -> None:
        """Let all that is under way be older than any deadline; a reply is still welcome."""
        self._open = {ticket: (name, float("-inf")) for ticket, (name, _) in self._open.items()}

    def send(self, names: Sequence[str]) -> dict[str, str]:
        """Send each its instruction, and return whose each ticket is; of earlier ones only the last is kept."""
        sent = {}
        for name in names:
            earlier = [ticket for ticket, (who, _) in self._open.items() if who == name]
            for ticket in earlier[: 1 - _OPEN_TICKETS]:
                del self._open[ticket]
            if ticket := self._transport.send(name, EXCHANGE, [self._server.instruction(name)]):
                self._open[ticket] = (name, self._clock())
                sent[ticket] = name
        return sent

    def hear(self, seconds: float) -> Iterator[tuple[str, Taken | str]]:
        """Yield who replied, and what came of it or why nothing did."""
        for _, name, outcome in self._replies(seconds):
            yield name, outcome

    def exchange(self, names: Sequence[str], turn: Turn, ends: float) -> list[str]:
        """Send each its instruction, note what comes until all have replied or time is over; return who has not."""
        missing = self.send(names)
        unreached = [name for name in names if name not in missing.values()]
        if missing:
            for ticket, name, outcome in self._replies(max(0.0, ends - self._clock())):
                turn.note(name, outcome)
                missing.pop(ticket, None)
                if not missing:
                    break
        return [*unreached, *missing.values()]

    def _replies(self, seconds: float) -> Iterator[tuple[str, str, Taken | str]]:
        for ticket, reply in self._transport.collect(tuple(self._open), seconds=seconds):
            if ticket in self._open:  # a network may deliver twice
                name, _ = self._open.pop(ticket)
                yield ticket, name, self._outcome(name, reply)

    def _outcome(self, name: str, reply: Response) -> Taken | str:
        if reply.error:
            return reply.error
        if len(reply.parts) != 1:
            return f"{name!r} replied {len(reply.parts)} parts, where one report was expected."
        try:
            return self._server.take(name, reply.parts[0])
        except MessageError as error:
            return str(error)


def _check_bounds(*, deadline: float, **counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"{name} must be at least 1; got {count}.")
    if not 0 < deadline < float("inf"):
        raise InputError(f"deadline must be positive and finite; got {deadline}.")
