"""What a hash learner leaves behind: a frozen function from features to binary codes that can only be applied.

A function is plain arrays and nothing else: `functionfile` writes them with a checksum and gives the same function
back, bit for bit, or refuses the file. `digest` names it.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.search.codes import Codes, blocks, pack
from blindsight.validation import check_features

Floats = NDArray[np.float32]
_ROWS = 16384  # rows whose scores are in memory at once


class HashFunction(ABC):
    """A frozen function from features (n, d) to packed codes (n, ceil(bits / 8))."""

    name: ClassVar[str]
    """How files call this kind of function."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """Length of a code."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many features it takes."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything that decides the codes, as plain arrays."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the function that `arrays` described, checked anew."""

    @abstractmethod
    def _scores(self, X: Floats) -> Floats:
        """Return the scores of checked features; bit j of a code is 1 where score j is >= 0."""

    def scores(self, X: ArrayLike) -> Floats:
        """Return the real values whose signs are the code, (n, bits): what an unquantised query is ranked by."""
        return self._scores(check_features(X, self.dimension, least=0))

    def __call__(self, X: ArrayLike) -> Codes:
        """Return the packed codes of features; memory beyond them stays bounded whatever n is."""
        rows = check_features(X, self.dimension, least=0)
        if not len(rows):
            raise InputError("there are no features to hash.")
        return np.concatenate([pack(self._scores(rows[span]) >= 0) for span in blocks(len(rows), _ROWS)])

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides the codes."""
        digest = hashlib.sha256(self.name.encode())
        for name, array in sorted(self.arrays().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class LinearHash(HashFunction):
    """sign((x - mean) matrix): what LSH, ITQ and every other linear learner ends as."""

    mean: Floats
    matrix: Floats
    name: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        for part in (self.mean, self.matrix):
            if part.dtype != np.float32 or not np.isfinite(part).all():
                raise InputError("a linear hash function is made of finite float32 numbers.")
        if self.matrix.ndim != 2 or self.mean.shape != self.matrix.shape[:1] or not self.matrix.size:
            raise InputError(f"mean {self.mean.shape} and matrix {self.matrix.shape} do not fit each other.")

    @property
    def bits(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.matrix.shape[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return mean and matrix."""
        return {"mean": self.mean, "matrix": self.matrix}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the function with this mean and matrix."""
        return cls(arrays["mean"], arrays["matrix"])

    def _scores(self, X: Floats) -> Floats:
        return np.asarray((X - self.mean) @ self.matrix)
