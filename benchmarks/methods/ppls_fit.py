"""Fitting PPLS: by the library, from features; and by a dense eigensolver, from covariances that it is given."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from blindsight.sift.ppls import PPLS


@dataclass(frozen=True)
class LabelledRows:
    """Features with a public and a private label; too large to be copied for each method, so they are read-only."""

    features: NDArray[np.float32]
    public: NDArray[np.int8]
    private: NDArray[np.int8]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        self.features.setflags(write=False)
        return self


@dataclass(frozen=True)
class ScaledCovariances:
    """Covariances of every feature, at unit variance, with the public and the private attribute, (d,) each."""

    public: NDArray[np.float64]
    private: NDArray[np.float64]


def library(given: LabelledRows, *, seed: int, components: int) -> NDArray[np.float64]:
    """Return the directions of a whole fit at lambda = 1, (d, components)."""
    return PPLS(components).fit(given.features, given.public, given.private).weights_


def dense(given: ScaledCovariances, *, seed: int) -> NDArray[np.float64]:
    """Return the first direction alone, (d, 1): the leading eigenvector of the d x d matrix of Algorithm 1, step 3."""
    matrix = np.outer(given.public, given.public) - np.outer(given.private, given.private)
    last = len(matrix) - 1
    _, vectors = eigh(matrix, subset_by_index=(last, last), overwrite_a=True, check_finite=False)
    return np.asarray(vectors)
