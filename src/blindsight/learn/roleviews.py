"""Who held what in one round, as pictures made from the real messages: for demonstrations and reports only.

An owner's plain update is among them, which in a run between real parties nobody else may ever hold.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.learn.linearmodel import Array
from blindsight.learn.recording import RecordedRound
from blindsight.sums.session import RoundResult
from blindsight.sums.support import Support
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR


@dataclass(frozen=True, eq=False)
class RoleView:
    """What one role held: real weights (float64, a row per class or cluster) or received bytes (uint8), both 2-D."""

    role: str
    holds: str
    picture: NDArray[Any]

    def __repr__(self) -> str:
        return f"RoleView({self.role!r}, {self.holds!r}, {self.picture.dtype} {self.picture.shape})"


class Witness:
    """Sees one round: the messages that each party receives while it listens, then what was sent and what came of it.

    It does not listen during set-up, when keys are handed out.
    """

    def __init__(self, scheme: str, minimum_per_position: int = 1) -> None:
        """Begin with nothing seen of a run by this scheme."""
        self._scheme, self._minimum_per_position = scheme, minimum_per_position
        self.views: tuple[RoleView, ...] = ()
        self.recorded: RecordedRound | None = None
        self.listens = False
        self._messages: defaultdict[str, list[bytes]] = defaultdict(list)

    def __call__(self, party: str, message: bytes) -> None:
        """Note a message."""
        if self.listens:
            self._messages[party].append(message)

    def look(self, before: Array, sent: Mapping[str, Array], result: RoundResult, support: Support) -> None:
        """Keep the first round: what was sent and what came of it, beside the messages, and pictures of one owner's."""
        if self.views:
            return
        self.recorded = RecordedRound(
            scheme=self._scheme,
            minimum_per_position=self._minimum_per_position,
            messages={party: tuple(items) for party, items in self._messages.items()},
            sent=dict(sent),
            total=result.values,
            withheld=result.withheld,
            positions=support.positions,
            before=before,
        )
        owner, update = next(iter(sent.items()))
        pictures = (vector[: before.size].reshape(before.shape) for vector in (update, result.values))
        self.views = _role_views(self._messages, owner, *pictures)
        self._messages.clear()


@contextmanager
def listening(witness: Witness | None) -> Iterator[None]:
    """Let a witness that has seen nothing yet listen."""
    if witness is None or witness.views:
        yield
        return
    witness.listens = True
    try:
        yield
    finally:
        witness.listens = False


def _role_views(messages: Mapping[str, list[bytes]], owner: str, update: Array, total: Array) -> tuple[RoleView, ...]:
    """Return what one owner, the services (where there are any) and everybody held."""
    views = [RoleView(owner, "its own update, before it was encoded", update)]
    held = {
        AGGREGATOR: "one contribution as it was received, byte by byte",
        KEY_GENERATOR: "the request for decryption, unsealed, byte by byte",
    }
    requested = messages.get(KEY_GENERATOR, [])
    received = messages.get(AGGREGATOR, [])
    contributions = received[:-1] if requested else received  # last comes the answer, the sum that everybody gets
    for (role, holds), seen in zip(held.items(), (contributions, requested), strict=True):
        if seen:
            views.append(RoleView(role, holds, as_square(max(seen, key=len))))
    views.append(RoleView("everybody", "the sum of all updates", total))
    return tuple(views)


def as_square(message: bytes) -> NDArray[np.uint8]:
    """Return bytes as the smallest square that holds them, filled up with zeros.

    >>> as_square(b"abcde").shape
    (3, 3)
    """
    side = math.isqrt(max(len(message) - 1, 0)) + 1
    return np.frombuffer(message.ljust(side * side, b"\0"), dtype=np.uint8).reshape(side, side)
