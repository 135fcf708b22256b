"""Numbers become few levels: what a released number can say is bounded by how many levels it has, not by its digits.

Output j is sorted into `levels` cells by its row of `edges`: level i means edges[i - 1] <= z < edges[i]. Cells are
intervals in rising order, so a quantiser can coarsen a number but never reshuffle it.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError

_MOST_LEVELS = 1 << 16


@dataclass(frozen=True, eq=False)
class Quantiser:
    """Sorts each of `width` outputs into the same number of levels; `edges` (width, levels - 1) rise along rows."""

    edges: NDArray[np.float32]

    def __post_init__(self) -> None:
        edges = np.array(self.edges, dtype=np.float32)
        if edges.ndim != 2 or not 1 <= edges.shape[1] < _MOST_LEVELS or not len(edges):
            raise InputError(f"edges must be (outputs, levels - 1) with 2 to {_MOST_LEVELS} levels; got {edges.shape}.")
        if not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
            raise InputError("the edges of a quantiser must be finite float32 numbers that rise within each row.")
        edges.setflags(write=False)
        object.__setattr__(self, "edges", edges)

    @classmethod
    def uniform(cls, low: ArrayLike, high: ArrayLike, bits: int = 8) -> Self:
        """Return 2^bits levels of equal width over [low, high], one pair per output; beyond lies the outermost level.

        >>> Quantiser.uniform([0.0], [4.0], bits=2).apply(np.float32([[-9], [0.5], [1], [3.9], [9]])).ravel().tolist()
        [0, 0, 1, 3, 3]
        """
        first, last = (
            np.atleast_1d(np.asarray(low, dtype=np.float64)),
            np.atleast_1d(np.asarray(high, dtype=np.float64)),
        )
        if not 1 <= bits <= 16:
            raise InputError(f"a uniform quantiser has 1 to 16 bits; got {bits}.")
        return cls(np.linspace(first, last, (1 << bits) + 1, axis=1)[:, 1:-1].astype(np.float32))

    @property
    def width(self) -> int:
        """How many outputs it takes."""
        return len(self.edges)

    @property
    def levels(self) -> int:
        """How many levels each output has."""
        return int(self.edges.shape[1]) + 1

    def apply(self, outputs: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the level of every output, 0 to levels - 1, shape (n, width)."""
        ranks = [np.searchsorted(row, outputs[:, j], side="right") for j, row in enumerate(self.edges)]
        return np.stack(ranks, axis=1).astype(np.int64, copy=False)
