"""How the server of a federation reaches the others: send parts to a name, collect what comes back, in any order.

A `Courier` promises little, as any network does: what is sent may be lost, be late or arrive twice, and so may the
answer. Protocols that use one are safe against all of that. In return, a reply is never lost *here*: one that has come
is kept until a `collect` with its ticket has yielded it, also when an earlier `collect` was left before its end.

`LocalCourier` is the whole network in one process, for tests and simulations.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from blindsight.errors import BlindsightError

Handler = Callable[[str, tuple[bytes, ...]], list[bytes]]
"""What a party does with the parts of a message of some kind, and returns."""

Transit = Callable[[str, str, tuple[bytes, ...]], tuple[bytes, ...] | None]
"""What becomes of a message on its way to a name: its parts, perhaps others; None if it is lost."""


@dataclass(frozen=True)
class Reply:
    """What came back: parts, or a sentence that says why there are none."""

    parts: tuple[bytes, ...] = ()
    error: str = ""


class Courier(Protocol):
    """Carries messages between the server, which holds it, and the others, which have names."""

    def present(self) -> Mapping[str, int]:
        """Return the names that can be reached now, and the number each has in the network."""
        ...

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        """Send parts to a name and return the ticket for its reply; an empty one if it is known that none will come."""
        ...

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Reply]]:
        """Yield the replies to these tickets as they come, each once, until no more can come or the time is over."""
        ...


class LocalCourier:
    """Everybody in one process: `handlers` by name answer, one after the other in the order of sending.

    `transit` sees every message before its handler does. One that it loses is never answered, and nobody waits for it.
    """

    def __init__(self, handlers: Mapping[str, Handler], transit: Transit | None = None) -> None:
        """Know who there is; `handlers` is looked up at each sending, so that parties can come and go."""
        self._handlers, self._transit = handlers, transit
        self._numbers = itertools.count(1)
        self._sent: dict[str, tuple[str, str, tuple[bytes, ...]]] = {}

    def present(self) -> Mapping[str, int]:
        """Return all names that have a handler, numbered from 0."""
        return {name: number for number, name in enumerate(self._handlers)}

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        """Note the message; it is handled when its reply is collected."""
        ticket = str(next(self._numbers))
        self._sent[ticket] = (name, kind, tuple(parts))
        return ticket

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Reply]]:
        """Let the messages of these tickets be handled and yield the replies; it never waits."""
        for ticket in [ticket for ticket in self._sent if ticket in tickets]:
            reply = self._reply(*self._sent.pop(ticket))
            if reply is not None:
                yield ticket, reply

    def _reply(self, name: str, kind: str, parts: tuple[bytes, ...]) -> Reply | None:
        """Return what the handler makes of a message; None if it was lost on its way."""
        if name not in self._handlers:
            return Reply(error=f"{name!r} cannot be reached.")
        arrived = parts if self._transit is None else self._transit(name, kind, parts)
        if arrived is None:
            return None
        try:
            return Reply(tuple(self._handlers[name](kind, arrived)))
        except BlindsightError as error:
            return Reply(error=str(error))
