"""What a search answers: hits in one form, whoever keeps the codes.

Hits are ordered by distance, and by age (which row was added first) where distances are equal. A search that finds
fewer than it was asked for fills up with the distance -1 and the id -1 (integers) or None (text); no real distance is
negative, so the distance tells, even if -1 is an id. An empty index answers with nothing but filling.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError

IdArray = NDArray[Any]
"""Ids: int64, or objects that are all str (or None where a hit is missing)."""


@dataclass(frozen=True, eq=False)
class Hits:
    """The nearest codes of each query: `ids` and `distances` (int32) have shape (queries, k)."""

    ids: IdArray
    distances: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ScoredHits:
    """The best rows of each query by score, best first: (queries, k). A missing hit has the score -inf."""

    ids: IdArray
    scores: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """All codes within a radius of each query: those of query q stand at `bounds[q]` up to `bounds[q + 1]`."""

    ids: IdArray
    distances: NDArray[np.int32]
    bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def of(self, query: int) -> tuple[IdArray, NDArray[np.int32]]:
        """Return the ids and distances of one query's neighbours, nearest first."""
        if not 0 <= query < len(self):
            raise InputError(f"there are {len(self)} queries, counted from 0; got {query}.")
        span = slice(int(self.bounds[query]), int(self.bounds[query + 1]))
        return self.ids[span], self.distances[span]


def check_k(k: int) -> int:
    """Return how many hits are wanted as a plain number, or raise unless it is whole and positive."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k, the number of hits, must be a whole number >= 1; got {k!r}.")
    return int(k)


def check_radius(radius: int) -> int:
    """Return the radius as a plain number, or raise unless it is whole and not negative."""
    if isinstance(radius, bool) or not isinstance(radius, int | np.integer) or radius < 0:
        raise InputError(f"a radius is a whole number of bits >= 0; got {radius!r}.")
    return int(radius)


def check_recall(recall: float) -> float:
    """Return the recall to reach, or raise unless it is a share of all true neighbours."""
    if not 0 < recall <= 1:
        raise InputError(f"the recall to reach must lie in (0, 1]; got {recall!r}.")
    return float(recall)
