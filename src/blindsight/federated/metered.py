"""How long the messages of each kind were on their way, and how many bytes: a `Courier` around another that counts."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from blindsight.federated.courier import Courier, Reply


@dataclass
class Errand:
    """What the messages of one kind took: how many there were, bytes there and back, wall seconds.

    The seconds are those of sending and of waiting for replies, with what was done with each reply before the next.
    """

    messages: int = 0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0


class MeteredCourier:
    """Carries messages as `courier` does, and counts."""

    def __init__(self, courier: Courier) -> None:
        """Begin at zero."""
        self._courier = courier
        self._kinds: dict[str, str] = {}
        self._errands: defaultdict[str, Errand] = defaultdict(Errand)

    def take(self) -> dict[str, Errand]:
        """Return what was counted by kind, and begin at zero."""
        errands = dict(self._errands)
        self._errands.clear()
        return errands

    def present(self) -> Mapping[str, int]:
        """Return the names that can be reached now."""
        return self._courier.present()

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        """Send parts to a name; what is known not to be answered counts as well."""
        begun = time.monotonic()
        ticket = self._courier.send(name, kind, parts)
        errand = self._errands[kind]
        errand.messages += 1
        errand.sent += sum(map(len, parts))
        errand.seconds += time.monotonic() - begun
        self._kinds[ticket] = kind
        return ticket

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Reply]]:
        """Yield replies; the time counts for the kind of the messages that are waited for."""
        kind, begun = next((self._kinds[ticket] for ticket in tickets if ticket in self._kinds), ""), time.monotonic()
        try:
            for ticket, reply in self._courier.collect(tickets, seconds=seconds):
                self._errands[self._kinds.pop(ticket, kind)].received += sum(map(len, reply.parts))
                yield ticket, reply
        finally:
            if kind:
                self._errands[kind].seconds += time.monotonic() - begun
