"""How the server of a run reaches the others: send parts to a name, collect what comes back, in any order.

What is sent over a `Transport` may be lost, be late or arrive twice, and so may the answer: sums are safe against all
of that. But a response that has come is kept until a `collect` with its ticket has yielded it, also when an earlier
`collect` was left before its end. `LocalTransport` is a network in one process; `federated.flower` has the other.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from blindsight.errors import BlindsightError
from blindsight.sums.costs import Meter, step_of
from blindsight.sums.terms import AGGREGATOR

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
