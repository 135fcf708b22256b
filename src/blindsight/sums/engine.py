"""The round loop: one engine plays every scheme over every transport, and a meter tells what it cost.

A round is a sequence of steps (`scheme`): the aggregator's signed calls go out, replies come in until all are there or
time is over, and the next step begins with those who answered. The payload (what is learned from) goes with the calls
to contribute. At the end the key generator opens the sum, or the last steps of the masks do.

*The guarantee.* What is added up are the exact integers of those whose contributions counted, whatever is lost,
doubled, late, forged or garbage on the way, and whichever party is killed. A round ends with those who came before its
deadline, if they are enough; with too few, those who are missing are asked again (masks: everybody, with new masks).
Once a sum has been asked for, nothing but that sum can come of the round: a key generator that is away is waited for,
and asked for the same again.

*Transports* send parts to a name and collect what comes back, in any order. What is sent may be lost, be late or arrive
twice, and so may the answer. But a response that has come is kept until a `collect` with its ticket has yielded it,
also when an earlier `collect` was left before its end. `LocalTransport` is a network in one process; `federated.flower`
has the other.

*Costs* are CPU seconds by party and step, of this process with all its threads and of its child processes, so that a
process pool hides nothing; and bytes and ciphertexts by sender, receiver and step.
"""

import itertools
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeVar

from blindsight.errors import BlindsightError, InputError, MessageError, PrivacyError
from blindsight.sums.messages import model_digest
from blindsight.sums.roles import Aggregator, RefusedError, Total
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

OPEN, UNMASK = "open", "unmask"
T = TypeVar("T")


# What a round costs

Step = Literal["set up", "share", "encrypt", "aggregate", "decrypt", "read"]
"""What a party does in a round; a message belongs to the step in which it was made. Masks `share` keys first."""

_STEPS: dict[str, Step] = {
    "advertise": "share",
    "share": "share",
    "contribute": "encrypt",
    "consistency": "aggregate",
    "unmask": "decrypt",
    "open": "decrypt",
}


def step_of(kind: str) -> Step:
    return _STEPS.get(kind, "set up")


@dataclass(frozen=True)
class Work:
    """CPU seconds that one party spent in one step."""

    party: str
    step: Step
    seconds: float


@dataclass(frozen=True)
class Transfer:
    """What one party sent to another in one step."""

    sender: str
    receiver: str
    step: Step
    bytes: int
    ciphertexts: int


@dataclass(frozen=True)
class Cost:
    """What a round, or the set-up of a run, took; parties not in `members` are services."""

    members: tuple[str, ...]
    work: tuple[Work, ...]
    transfers: tuple[Transfer, ...]

    def seconds(self, *steps: Step, party: str | None = None) -> float:
        """Return the CPU seconds of these steps (none named: of all), of one party or all."""
        return sum(
            item.seconds
            for item in self.work
            if (not steps or item.step in steps) and (party is None or item.party == party)
        )

    def sent(self, party: str) -> int:
        return sum(item.bytes for item in self.transfers if item.sender == party)

    def received(self, party: str) -> int:
        return sum(item.bytes for item in self.transfers if item.receiver == party)

    def ciphertexts(self, sender: str) -> int:
        return sum(item.ciphertexts for item in self.transfers if item.sender == sender)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Meter:
    """Measures a round."""

    def __init__(self, members: tuple[str, ...]) -> None:
        self._members = members
        self._seconds: defaultdict[tuple[str, Step], float] = defaultdict(float)
        self._bytes: defaultdict[tuple[str, str, Step], int] = defaultdict(int)
        self._ciphertexts: defaultdict[tuple[str, str, Step], int] = defaultdict(int)

    @contextmanager
    def working(self, party: str, step: Step) -> Iterator[None]:
        """Count the CPU time of the block as this party's; steps do not nest."""
        begun = cpu_seconds()
        try:
            yield
        finally:
            self._seconds[party, step] += cpu_seconds() - begun

    def carried(self, sender: str, receiver: str, step: Step, size: int, ciphertexts: int = 0) -> None:
        self._bytes[sender, receiver, step] += size
        self._ciphertexts[sender, receiver, step] += ciphertexts

    def cost(self) -> Cost:
        work = [Work(party, step, seconds) for (party, step), seconds in self._seconds.items()]
        sizes = [Transfer(*link, size, self._ciphertexts[link]) for link, size in self._bytes.items()]
        return Cost(self._members, tuple(work), tuple(sizes))


def cpu_seconds() -> float:
    """Return the CPU time of this process, its threads and its children, living or finished."""
    finished = os.times()
    living = sum(_child_seconds(child.pid) for child in multiprocessing.active_children() if child.pid)
    return time.process_time() + finished.children_user + finished.children_system + living


def _child_seconds(pid: int) -> float:
    """Return a living child's CPU time; Linux gives every process a clock, numbered as clock_getcpuclockid(3) does."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # it has just ended
        return 0.0


# How bytes travel

Parts = tuple[bytes, ...]

Handler = Callable[[str, Parts], list[bytes]]
"""What a party does with the parts of a message of some kind, and returns."""

Transit = Callable[[str, str, str, Parts], Iterable[Parts]]
"""Called with sender, receiver, kind and parts of a message; returns what arrives: nothing if it is lost, two if it is
doubled, ..."""


@dataclass(frozen=True)
class Response:
    """What came back: parts, or else a sentence why not, which is unsigned: for people, nothing may depend on it."""

    parts: Parts = ()
    error: str = ""


class Transport(Protocol):
    """Carries messages between the server, which holds it, and the others, which have names."""

    def present(self) -> Mapping[str, int]:
        """Return the names that can be reached now, and the number each has in the network."""
        ...

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        """Send parts to a name and return the ticket of the response; an empty one if it is known that none comes."""
        ...

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Response]]:
        """Yield the responses to these tickets as they come, until no more can come or the time is over."""
        ...


class LocalTransport:
    """Everybody in one process: `handlers` answer in the order of sending; what `transit` loses is never answered."""

    def __init__(
        self, handlers: Mapping[str, Handler], *, transit: Transit | None = None, meter: Meter | None = None
    ) -> None:
        """Know who there is; `handlers` is looked up at each sending, so that parties can come and go."""
        self.handlers, self.transit, self.meter = handlers, transit, meter
        self._numbers = itertools.count(1)
        self._sent: dict[str, tuple[str, str, Parts]] = {}

    def present(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.handlers)}

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        """Keep the message until its response is collected: only then is it handled."""
        ticket = str(next(self._numbers))
        self._sent[ticket] = (name, kind, tuple(parts))
        return ticket

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Response]]:
        """Let the messages of these tickets be handled and yield the responses; it never waits."""
        for ticket in [ticket for ticket in self._sent if ticket in tickets]:
            for response in self._responses(*self._sent.pop(ticket)):
                yield ticket, response

    def _responses(self, name: str, kind: str, parts: Parts) -> Iterator[Response]:
        if name not in self.handlers:
            yield Response(error=f"{name!r} cannot be reached.")
            return
        for arrived in self._carried(AGGREGATOR, name, kind, parts):
            try:
                if self.meter is None:
                    answered = self.handlers[name](kind, arrived)
                else:
                    with self.meter.working(name, step_of(kind)):
                        answered = self.handlers[name](kind, arrived)
            except BlindsightError as error:
                yield Response(error=str(error))
                continue
            for back in self._carried(name, AGGREGATOR, kind, tuple(answered)):
                yield Response(back)

    def _carried(self, sender: str, receiver: str, kind: str, parts: Parts) -> Iterable[Parts]:
        if self.meter is not None:
            self.meter.carried(sender, receiver, step_of(kind), sum(map(len, parts)))
        return (parts,) if self.transit is None else self.transit(sender, receiver, kind, parts)


# The rounds


class UnansweredError(MessageError):
    """Somebody who must answer has not: nothing is lost, and the same may be asked again."""


@dataclass(frozen=True)
class Patience:
    """How many seconds to wait: for members in a round, for any other step, for an absent party to come back.

    `pause` is the least time between two tries (0: do not wait for absent parties, as in one process), `attempts` how
    often a round may have too few members.
    """

    round: float = 120.0
    step: float = 60.0
    generator: float = 600.0
    attempts: int = 3
    pause: float = 1.0

    def __post_init__(self) -> None:
        if not min(self.round, self.step, self.generator) > 0 or not self.pause >= 0 or self.attempts < 1:
            raise InputError("every deadline must be above 0 seconds, the pause not below, and attempts at least 1.")


class Engine:
    """Plays rounds; `refused` tells what was wrong with a member's part; `prefix` (a run's name) begins messages."""

    renews = False
    """Whether `finish` gets everybody a new key, where one was used up, so that `round` can try again."""

    def __init__(
        self,
        aggregator: Aggregator,
        transport: Transport,
        patience: Patience | None = None,
        *,
        meter: Meter | None = None,
        prefix: Parts = (),
    ) -> None:
        self.aggregator, self.transport, self.prefix = aggregator, transport, prefix
        self.patience, self.meter = patience or Patience(), meter
        self.refused: dict[str, str] = {}

    def note(self, member: str) -> bytes:
        """Return what an application has to tell a member with its next call."""
        return b""

    def begin(self, round: int, payload: Sequence[bytes] = ()) -> dict[str, Parts]:
        """Begin a round, or go on with it; return each present member's call to contribute, bound to the payload."""
        role, model, base = self.aggregator, model_digest(payload), model_digest(payload[:1])
        self.refused = {}
        if role.round != round:
            role.open(round, model=model, base=base)
        elif role.model != model:
            raise MessageError(f"round {round} has begun with another model.")
        elif role.terms.traits.threshold and not role.terms.traits.cohorts and role.step not in (UNMASK, ""):
            role.open(round, model=model, base=base, attempt=role.attempt + 1)
        while role.step not in (CONTRIBUTE, UNMASK, ""):
            self._play_step()
            role.advance()
        if role.step != CONTRIBUTE:
            return {}
        return {name: (*call, *payload) for name, call in self._calls(step_of(CONTRIBUTE)).items()}

    def receive(self, member: str, response: Response) -> None:
        """Take in what a member responded; whatever is wrong with it is noted and changes nothing."""
        if response.error or len(response.parts) != 1:
            self.refused[member] = response.error or "it sent something that is no reply."
            return
        try:
            with self._working("aggregate"):
                author = self.aggregator.receive(response.parts[0])
            self.refused.pop(author, None)
            if author != member:
                self.refused[member] = f"it sent what {author!r} had signed."
        except (MessageError, PrivacyError) as error:
            self.refused[member] = str(error)

    def finish(self) -> tuple[bytes, Total]:
        """End the round: return the signed answer, for all members, and the sum in it.

        `PrivacyError` says that there are too few members, and `begin` asks the rest again; `UnansweredError` that the
        same may be asked again; `RefusedError` that nothing of this round will ever be opened.
        """
        role = self.aggregator
        if role.step == CONTRIBUTE:
            with self._working("aggregate"):
                role.advance()
        while role.step:
            self._retry_unmask() if role.step == UNMASK else self._play_step()
            with self._working("aggregate"):
                role.advance()
        if not role.terms.keyed:
            with self._working("decrypt" if role.terms.traits.threshold else "aggregate"):
                return role.conclude()
        with self._working("aggregate"):
            request = role.request()
        parts, what = (*self.prefix, request), f"opened round {role.round}"
        return ask_generator(self.transport, self.patience, OPEN, parts, self.read, what)

    def read(self, answer: bytes) -> tuple[bytes, Total]:
        """Read what came as the key generator's answer; `MessageError` if it is none."""
        with self._working("read"):
            return self.aggregator.conclude(answer)

    def play(self, round: int, payload: Sequence[bytes] = ()) -> tuple[bytes, Total]:
        """Play one round to its end."""
        until = time.monotonic() + self.patience.generator
        for tried in range(1, self.patience.attempts + 1):
            try:
                self._collect(CONTRIBUTE, self.begin(round, payload), self.patience.round)
                return self.finish()
            except RefusedError as error:
                if not self.renews or not error.renewed or tried == self.patience.attempts:
                    raise
            except PrivacyError as error:
                if tried == self.patience.attempts or time.monotonic() > until:
                    for name, sentence in sorted(self.refused.items()):
                        error.add_note(f"Refused from {name}: {sentence}")
                    raise
            time.sleep(self.patience.pause)
        raise AssertionError

    def _calls(self, step: Step) -> dict[str, Parts]:
        present = self.transport.present()
        there = [name for name in self.aggregator.awaited if name in present]
        with self._working(step):
            calls = self.aggregator.calls({name: self.note(name) for name in there}, there)
        return {name: (*self.prefix, call) for name, call in calls.items()}

    def _play_step(self) -> None:
        self._collect(self.aggregator.step, self._calls("aggregate"), self.patience.step)

    def _retry_unmask(self) -> None:
        """Let members unmask: once one was asked, the sum is the only way out, so those who are away are waited for."""
        until = time.monotonic() + self.patience.generator
        while True:
            self._play_step()
            if self.aggregator.complete:
                return
            if time.monotonic() > until or self.patience.pause == 0:
                if self.aggregator.may_end:
                    return
                raise UnansweredError(
                    f"too few members have helped to unmask round {self.aggregator.round}; it can still be finished "
                    "when they are back, and in no other way."
                )
            time.sleep(self.patience.pause)

    def _collect(self, kind: str, calls: Mapping[str, Parts], seconds: float) -> None:
        tickets = {self.transport.send(name, kind, parts): name for name, parts in calls.items()}
        for ticket, response in self.transport.collect(tickets, seconds=seconds):
            self.receive(tickets[ticket], response)

    def _working(self, step: Step) -> AbstractContextManager[None]:
        return nullcontext() if self.meter is None else self.meter.working(AGGREGATOR, step)


def ask_generator(
    transport: Transport, patience: Patience, kind: str, parts: Parts, read: Callable[[bytes], T], what: str
) -> T:
    """Ask the key generator, waiting if it is away, until `read` accepts an answer; `what` says in errors what for."""
    until, reason = time.monotonic() + patience.generator, "it did not answer"
    while True:
        if KEY_GENERATOR in transport.present():
            ticket = transport.send(KEY_GENERATOR, kind, parts)
            for _, response in transport.collect([ticket], seconds=patience.step):
                try:
                    if len(response.parts) == 1:
                        return read(response.parts[0])
                    reason = response.error or reason
                except MessageError as error:
                    reason = str(error)
        if time.monotonic() > until or patience.pause == 0:
            raise UnansweredError(f"the key generator has not {what}: {reason}")
        time.sleep(patience.pause)
