"""The round loop: one engine plays every scheme over every transport.

::

    engine = Engine(aggregator, transport)
    answer, total = engine.round(1, payload=(model,))

A round is a sequence of steps (`scheme`): the aggregator's signed calls go out, replies come in until all are there or
the time is over, the next step begins with those who answered. Contributions are asked for together with the payload,
what is learned from. Then the key generator opens the sum, or the last steps of the masks do.

*The guarantee.* What is added up are the exact integers of those whose contributions counted, whatever is lost,
doubled, late, forged or garbage on the way, and whoever is killed. A round ends with those who came before its
deadline, if they are enough; with too few, those who are missing are asked again (masks: everybody, with new masks).
Once a sum has been asked for, nothing but that sum can come of the round: a key generator that is away is waited for,
and asked for the same again.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.sums.costs import Meter, Step, step_of
from blindsight.sums.messages import model_digest
from blindsight.sums.roles import Aggregator, RefusedError, Total
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.sums.transport import Response, Transport

OPEN, UNMASK = "open", "unmask"


class UnansweredError(MessageError):
    """Somebody who must answer has not: nothing is lost, and the same may be asked again."""


@dataclass(frozen=True)
class Patience:
    """How many seconds to wait: for members in a round, for any step besides, for whoever is away to come back.

    `pause` is the least time between two tries (0: nobody who is away is waited for, as in one process), and `attempts`
    how often a round may have too few members.
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
    """Plays rounds; `refused` tells by member what was wrong with its part of the present one."""

    def __init__(
        self,
        aggregator: Aggregator,
        transport: Transport,
        patience: Patience | None = None,
        *,
        meter: Meter | None = None,
        ready: Callable[[Sequence[str]], Sequence[str]] | None = None,
    ) -> None:
        """Know the server's role; `ready` prepares members that are asked for the first time, and says who is."""
        self.aggregator, self.transport = aggregator, transport
        self.patience, self.meter = patience or Patience(), meter
        self._ready = ready
        self.refused: dict[str, str] = {}

    def begin(
        self, round: int, payload: Sequence[bytes] = (), notes: Callable[[str], bytes] | None = None
    ) -> dict[str, bytes]:
        """Begin a round, or go on with it; return the signed call to contribute for each member that is there.

        The payload goes with every call to contribute: members refuse the call with any other. `notes` are the
        application's: asked for by member with each call up to that one.
        """
        role, model, base = self.aggregator, model_digest(payload), model_digest(payload[:1])
        self.refused = {}
        if role.round != round:
            role.open(round, model=model, base=base)
        elif role.model != model:
            raise MessageError(f"round {round} has begun with another model.")
        elif role.terms.scheme == "masks" and role.step not in (UNMASK, ""):
            role.open(round, model=model, base=base, attempt=role.attempt + 1)
        while role.step not in (CONTRIBUTE, UNMASK, ""):
            self._play_step(notes)
            role.advance()
        if role.step != CONTRIBUTE:
            return {}
        there = self._there()
        with self._working(step_of(CONTRIBUTE)):
            return role.calls({name: notes(name) for name in there} if notes else None, there)

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
        return self._opened()

    def round(
        self, round: int, payload: Sequence[bytes] = (), notes: Callable[[str], bytes] | None = None
    ) -> tuple[bytes, Total]:
        """Play one round to its end."""
        until = time.monotonic() + self.patience.generator
        for tried in range(1, self.patience.attempts + 1):
            try:
                calls = self.begin(round, payload, notes)
                self._collect(CONTRIBUTE, calls, self.patience.round, payload)
                return self.finish()
            except RefusedError:
                raise
            except PrivacyError as error:
                if tried == self.patience.attempts or time.monotonic() > until:
                    for name, sentence in sorted(self.refused.items()):
                        error.add_note(f"Refused from {name}: {sentence}")
                    raise
            time.sleep(self.patience.pause)
        raise AssertionError

    def _there(self) -> list[str]:
        """Return those awaited who can be reached and are set up."""
        present = self.transport.present()
        there = [name for name in self.aggregator.awaited if name in present]
        return list(self._ready(there)) if self._ready else there

    def _play_step(self, notes: Callable[[str], bytes] | None = None) -> None:
        """Let members answer the present step."""
        there = self._there()
        with self._working("aggregate"):
            calls = self.aggregator.calls({name: notes(name) for name in there} if notes else None, there)
        self._collect(self.aggregator.step, calls, self.patience.step)

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

    def _collect(self, kind: str, calls: Mapping[str, bytes], seconds: float, payload: Sequence[bytes] = ()) -> None:
        """Send calls and take in what comes before the deadline."""
        tickets = {self.transport.send(name, kind, (call, *payload)): name for name, call in calls.items()}
        for ticket, response in self.transport.collect(tickets, seconds=seconds):
            self.take(tickets[ticket], response)

    def _opened(self) -> tuple[bytes, Total]:
        """Have the key generator open the sum; what cannot be read has not come from it, and it is asked again."""
        with self._working("aggregate"):
            request = self.aggregator.request()
        until, reason = time.monotonic() + self.patience.generator, "it did not answer"
        while True:
            for response in self._asked(request):
                if len(response.parts) != 1:
                    reason = response.error or reason
                    continue
                try:
                    with self._working("read"):
                        return self.aggregator.conclude(response.parts[0])
                except MessageError as error:
                    reason = str(error)
            if time.monotonic() > until or self.patience.pause == 0:
                raise UnansweredError(f"the key generator has not opened round {self.aggregator.round}: {reason}")
            time.sleep(self.patience.pause)

    def _asked(self, request: bytes) -> Iterator[Response]:
        if KEY_GENERATOR not in self.transport.present():
            return
        ticket = self.transport.send(KEY_GENERATOR, OPEN, (request,))
        for _, response in self.transport.collect([ticket], seconds=self.patience.step):
            yield response

    def _working(self, step: Step) -> AbstractContextManager[None]:
        return nullcontext() if self.meter is None else self.meter.working(AGGREGATOR, step)
