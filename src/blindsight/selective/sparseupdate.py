"""A few of many values: what is left of a participant's change of the model after selection."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError

Vector = NDArray[np.float32]
"""All trainable parameters of a network, or a change of them, in one row."""

LARGEST_PARAMETER = 2.0**20
"""The largest magnitude of a parameter that a server hands out and a participant accepts.

No network that learns comes near it; near the end of float32 a server could choose weights that fail on some photos.
"""


@lru_cache(maxsize=4)
def every_place(dimension: int) -> NDArray[np.int64]:
    """Return all places of a vector, read-only: as long as the vector itself, they are made once and kept."""
    places = np.arange(dimension)
    places.setflags(write=False)
    return places


@dataclass(frozen=True, eq=False)
class SparseUpdate:
    """Values at ascending places of a vector of `dimension` zeros. It is private until it was protected."""

    dimension: int
    indices: NDArray[np.int64]
    values: Vector

    def __post_init__(self) -> None:
        """Refuse what is no part of a vector."""
        if self.indices.ndim != 1 or self.indices.shape != self.values.shape:
            raise InputError(
                f"an update has one value for each place; got {self.indices.shape} and {self.values.shape}."
            )
        if self.indices.size == self.dimension and self.indices is every_place(self.dimension):
            return
        if self.indices.size and (
            self.indices[0] < 0 or self.indices[-1] >= self.dimension or (self.indices[1:] <= self.indices[:-1]).any()
        ):
            raise InputError(f"places must ascend within 0 to {self.dimension - 1}, each once.")

    def __repr__(self) -> str:
        return f"<SparseUpdate: {self.indices.size} of {self.dimension} values, hidden>"

    def dense(self) -> Vector:
        """Return the whole vector."""
        vector = np.zeros(self.dimension, dtype=np.float32)
        vector[self.indices] = self.values
        return vector
