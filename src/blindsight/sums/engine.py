"""The round loop: one engine plays every scheme over every transport.

A round is a sequence of steps (`scheme`): the aggregator's signed calls go out, replies come in until all are there or
time is over, and the next step begins with those who answered. The payload (what is learned from) goes with the calls
to contribute. At the end the key generator opens the sum, or the last steps of the masks do.

*The guarantee.* What is added up are the exact integers of those whose contributions counted, whatever is lost,
doubled, late, forged or garbage on the way, and whichever party is killed. A round ends with those who came before its
deadline, if they are enough; with too few, those who are missing are asked again (masks: everybody, with new masks).
Once a sum has been asked for, nothing but that sum can come of the round: a key generator that is away is waited for,
and asked for the same again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.sums.costs import Meter, Step, step_of
from blindsight.sums.messages import model_digest
from blindsight.sums.roles import Aggregator, RefusedError, Total
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.sums.transport import Parts, Response, Transport

OPEN, UNMASK = "open", "unmask"
T = TypeVar("T")


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
        elif role.terms.scheme == "masks" and role.step not in (UNMASK, ""):
            role.open(round, model=model, base=base, attempt=role.attempt + 1)
        while role.step not in (CONTRIBUTE, UNMASK, ""):
            self._play_step()
            role.advance()
        if role.step != CONTRIBUTE:
            return {}
        return {name: (*call, *payload) for name, call in self._calls(step_of(CONTRIBUTE)).items()}

    def take(self, member: str, response: Response) -> None:
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
            self._insist() if role.step == UNMASK else self._play_step()
            with self._working("aggregate"):
                role.advance()
        if not role.terms.keyed:
            with self._working("decrypt" if role.terms.scheme == "masks" else "aggregate"):
                return role.conclude()
        with self._working("aggregate"):
            request = role.request()
        parts, what = (*self.prefix, request), f"opened round {role.round}"
        return ask_generator(self.transport, self.patience, OPEN, parts, self.read, what)

    def read(self, answer: bytes) -> tuple[bytes, Total]:
        """Read what came as the key generator's answer; `MessageError` if it is none."""
        with self._working("read"):
            return self.aggregator.conclude(answer)

    def round(self, round: int, payload: Sequence[bytes] = ()) -> tuple[bytes, Total]:
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

    def _insist(self) -> None:
        """Let members unmask: once one was asked, the sum is the only way out, so those who are away are waited for."""
        until = time.monotonic() + self.patience.generator
        while True:
            self._play_step()
            if self.aggregator.complete:
                return
            if time.monotonic() > until or self.patience.pause == 0:
                raise UnansweredError(
                    f"too few members have helped to unmask round {self.aggregator.round}; it can still be finished "
                    "when they are back, and in no other way."
                )
            time.sleep(self.patience.pause)

    def _collect(self, kind: str, calls: Mapping[str, Parts], seconds: float) -> None:
        tickets = {self.transport.send(name, kind, parts): name for name, parts in calls.items()}
        for ticket, response in self.transport.collect(tickets, seconds=seconds):
            self.take(tickets[ticket], response)

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
