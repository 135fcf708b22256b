"""One round as everybody held it, kept for an audit: what each party received, and the truth to compare it with.

A recording holds every owner's plain update, which no party of a real run may have. It can only be made where all
parties run in one process, it is asked for on purpose, and its file can be read by its owner alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import CorruptFileError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.learn.linearmodel import Array

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
