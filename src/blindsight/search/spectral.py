"""Spectral hashing: bits that split each principal direction into equal slices, the coarsest slices first.

Y. Weiss, A. Torralba, R. Fergus, "Spectral Hashing", NIPS 2008. If features were uniform on a box along their principal
directions, the best codes would be thresholded eigenfunctions of the box's Laplacian; on a side [a, b] those are

    phi_k(x) = sin(pi/2 + k pi / (b - a) (x - a)),   eigenvalue 1 - exp(-eps^2/2 (k pi / (b - a))^2),   k = 1, 2, ...

The `bits` with the smallest eigenvalues are kept: those with the smallest k / (b - a), whatever eps is. Any number of
bits is allowed: long directions are sliced ever finer. The eigenfunctions of several directions at once are products of
these and thus determined by them; like the paper, the code leaves them out. Features are hardly ever uniform: ITQ finds
more with the same bits.

| paper | here |
| --- | --- |
| k pi / (b - a), on the principal direction it slices | a column of `SpectralHash.matrix` |
| k pi a / (b - a) | `SpectralHash.phase`; sin(pi/2 + t) is written cos(t) |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.search.function import Floats, HashFunction
from blindsight.search.itq import principal_directions, project
from blindsight.search.learner import Classes, HashLearner


@dataclass(frozen=True, eq=False)
class SpectralHash(HashFunction):
    """sign(cos((x - mean) matrix - phase)): what spectral hashing ends as."""

    mean: Floats
    matrix: Floats
    phase: Floats
    name: ClassVar[str] = "spectral"

    def __post_init__(self) -> None:
        for part in (self.mean, self.matrix, self.phase):
            if part.dtype != np.float32 or not np.isfinite(part).all():
                raise InputError("a spectral hash function is made of finite float32 numbers.")
        mean, matrix, phase = self.mean.shape, self.matrix.shape, self.phase.shape
        if self.matrix.ndim != 2 or not self.matrix.size or mean != matrix[:1] or phase != matrix[1:]:
            raise InputError(f"mean {mean}, matrix {matrix} and phase {phase} do not fit each other.")

    @property
    def bits(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.matrix.shape[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return mean, matrix and phase."""
        return {"mean": self.mean, "matrix": self.matrix, "phase": self.phase}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the function with this mean, matrix and phase."""
        return cls(arrays["mean"], arrays["matrix"], arrays["phase"])

    def _scores(self, X: Floats) -> Floats:
        return np.asarray(np.cos((X - self.mean) @ self.matrix - self.phase))


class SH(HashLearner):
    """Spectral hashing; `bits` may exceed the number of features. There is nothing random about it.

    Parameters
    ----------
    bits : length of a code.

    Attributes
    ----------
    function_ : the `SpectralHash`.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def _learn(self, X: Floats, y: Classes | None) -> SpectralHash:
        mean, directions = principal_directions(X, self.bits)
        projected = project(X, mean, directions)
        low = projected.min(axis=0).astype(np.float64)
        sides = projected.max(axis=0) - low  # b - a
        long = np.flatnonzero(sides)  # a side without length cannot be sliced
        if not long.size:
            raise InputError(f"all {len(X)} rows are equal: there is nothing to slice. Give features that vary.")
        side, slices = smallest_modes(sides[long], self.bits)
        direction = long[side]
        frequency = np.pi * slices / sides[direction]
        matrix = directions[:, direction] * frequency
        return SpectralHash(mean, matrix.astype(np.float32), (low[direction] * frequency).astype(np.float32))


def smallest_modes(sides: NDArray[np.float64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which side of the box each of the `count` smallest eigenfunctions slices, and its k.

    >>> side, k = smallest_modes(np.array([4.0, 1.5]), 4)  # k / (b - a) = 0.25, 0.5, 1 / 1.5, 0.75
    >>> side, k
    (array([0, 0, 1, 0]), array([1, 2, 1, 3]))
    """
    k = np.arange(1, count + 1)
    order = np.argsort((k / sides[:, None]).ravel(), kind="stable")[:count]
    return order // count, k[order % count]
