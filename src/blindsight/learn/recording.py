"""One round as everybody held it: what each party received, the truth to compare it with, and pictures of both.

A recording holds every owner's plain update, which no party of a real run may have. It can only be made where all
parties run in one process, it is asked for on purpose (for an audit, a demonstration, a report), and its file can be
read by its owner alone.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import CorruptFileError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.learn.model import Array
from blindsight.rounds import RoundSum
from blindsight.sums import Terms
from blindsight.sums.dphe import layout_of
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

KIND = "blindsight/recorded-round.2"


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedRound:
    """The first round of a run.

    `messages` are what each party received, in order and unsealed; `sent` the owners' updates before they were encoded,
    `total` the sum that was opened, `withheld` the positions that were not; `positions` are those that the messages are
    about: all, or those of a public schedule, which everybody knows. `before` is the shared model, whose `shape` the
    first numbers of every vector have.
    """

    scheme: str
    minimum_per_position: int
    messages: Mapping[str, tuple[bytes, ...]] = field(repr=False)
    sent: Mapping[str, Array] = field(repr=False)
    total: Array = field(repr=False)
    withheld: NDArray[np.int64] = field(repr=False)
    positions: NDArray[np.int64] = field(repr=False)
    before: Array = field(repr=False)

    def save(self, path: AnyPath) -> None:
        """Write the recording, for its owner alone."""
        document = {
            "scheme": self.scheme,
            "minimum_per_position": self.minimum_per_position,
            "owners": list(self.sent),
            "parties": {party: [len(item) for item in items] for party, items in self.messages.items()},
        }
        arrays: dict[str, NDArray[Any]] = {
            "sent": np.stack(list(self.sent.values())),
            "total": self.total,
            "withheld": self.withheld,
            "positions": self.positions,
            "before": self.before,
        }
        for number, items in enumerate(self.messages.values()):
            arrays[f"messages-{number}"] = np.frombuffer(b"".join(items), dtype=np.uint8)
        write_arrays(path, KIND, document, arrays, private=True)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read a recording."""
        document, arrays = read_arrays(path, KIND)
        try:
            messages = {
                party: _split(arrays[f"messages-{number}"].tobytes(), lengths)
                for number, (party, lengths) in enumerate(document["parties"].items())
            }
            return cls(
                scheme=document["scheme"],
                minimum_per_position=document["minimum_per_position"],
                messages=messages,
                sent=dict(zip(document["owners"], arrays["sent"], strict=True)),
                total=arrays["total"],
                withheld=arrays["withheld"],
                positions=arrays["positions"],
                before=arrays["before"],
            )
        except (KeyError, TypeError, ValueError):
            raise CorruptFileError(f"{path} is not a whole recording of a round.") from None


def _split(whole: bytes, lengths: list[int]) -> tuple[bytes, ...]:
    ends = np.cumsum([0, *lengths]).tolist()
    return tuple(whole[start:end] for start, end in pairwise(ends))


@dataclass(frozen=True, eq=False)
class RoleView:
    """What one role held: real weights (float64, a row per class or cluster) or received bytes (uint8), both 2-D."""

    role: str
    holds: str
    picture: NDArray[Any]

    def __repr__(self) -> str:
        return f"RoleView({self.role!r}, {self.holds!r}, {self.picture.dtype} {self.picture.shape})"


class RoundRecorder:
    """Records the first round of a run: the messages that each party receives, the updates and their sum.

    Set-up, in which keys are handed out, is not recorded.
    """

    def __init__(self) -> None:
        self.views: tuple[RoleView, ...] = ()
        self.recorded: RecordedRound | None = None
        self._listens = False
        self._messages: defaultdict[str, list[bytes]] = defaultdict(list)

    def __call__(self, party: str, message: bytes) -> None:
        """Note a message."""
        if self._listens:
            self._messages[party].append(message)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note the messages meanwhile, unless a round was recorded before."""
        self._listens = not self.views
        try:
            yield
        finally:
            self._listens = False

    def look(self, terms: Terms, before: Array, sent: Mapping[str, Array], total: RoundSum) -> None:
        """Keep the first round: the updates and their sum, beside the messages, and pictures of one member's."""
        if self.views:
            return
        self.recorded = RecordedRound(
            scheme=terms.scheme,
            minimum_per_position=layout_of(terms).minimum_per_position if terms.sparse else 1,
            messages={party: tuple(items) for party, items in self._messages.items()},
            sent=dict(sent),
            total=total.values,
            withheld=np.empty(0, dtype=np.int64) if total.withheld is None else total.withheld,
            positions=terms.support(total.round).positions,
            before=before,
        )
        member, update = next(iter(sent.items()))
        pictures = (vector[: before.size].reshape(before.shape) for vector in (update, total.values))
        self.views = _role_views(self._messages, member, *pictures)
        self._messages.clear()


def _role_views(messages: Mapping[str, list[bytes]], member: str, update: Array, total: Array) -> tuple[RoleView, ...]:
    """Return what one member, the services (where there are any) and everybody held."""
    views = [RoleView(member, "its own update, before it was encoded", update)]
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
