"""What the parameter server knows: the parameters, how often each was updated, and which upload came last from whom."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import MessageError
from blindsight.selective.selection import select_largest
from blindsight.selective.sparseupdate import LARGEST_PARAMETER, SparseUpdate, Vector, every_place


class LastUpload(NamedTuple):
    """Number and SHA-256 of the last upload of one participant that was added, and the version it made."""

    sequence: int
    digest: bytes
    version: int


NO_UPLOAD = LastUpload(0, b"", 0)


@dataclass(eq=False)
class ServerState:
    """One version of the parameters; every addition makes the next."""

    parameters: Vector
    counters: NDArray[np.int64]  # by parameter: in how many additions it was
    version: int = 0
    turn: int = 0  # the last turn whose sum was added
    uploads: dict[str, LastUpload] = field(default_factory=dict)

    @classmethod
    def of(cls, parameters: Vector) -> "ServerState":
        """Return the state at the beginning."""
        return cls(np.array(parameters, dtype=np.float32), np.zeros(len(parameters), dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """How large it is."""
        return self.parameters.nbytes + self.counters.nbytes

    def sums(self, update: SparseUpdate) -> Vector:
        """Return the parameters at the update's places after adding it; one too large is a `MessageError`."""
        if not np.isfinite(update.values).all():
            raise MessageError("the upload holds values that are not finite.")
        with np.errstate(over="ignore"):
            sums = self.parameters[_places(update)] + update.values
        if not (np.abs(sums) <= LARGEST_PARAMETER).all():
            raise MessageError(f"adding the upload would make parameters larger than {LARGEST_PARAMETER:,.0f}.")
        return sums

    def replace(self, update: SparseUpdate, sums: Vector) -> None:
        """Go on to the next version, with these `sums` at the places of the update."""
        places = _places(update)
        self.parameters[places] = sums
        self.counters[places] += 1
        self.version += 1

    def most_updated(self, count: int) -> SparseUpdate:
        """Return the `count` parameters that were updated most; among equals those that come first.

        >>> state = ServerState(np.arange(5, dtype=np.float32), np.array([1, 3, 1, 0, 1]))
        >>> state.most_updated(3).indices.tolist()
        [0, 1, 2]
        """
        if count == len(self.counters):
            return SparseUpdate(count, every_place(count), self.parameters.copy())
        indices = select_largest(self.counters.astype(np.float64), count)
        return SparseUpdate(len(self.counters), indices, self.parameters[indices])


def _places(update: SparseUpdate) -> slice | NDArray[np.int64]:
    """Return where an update goes, in the way numpy is quickest with."""
    return slice(None) if update.indices.size == update.dimension else update.indices
