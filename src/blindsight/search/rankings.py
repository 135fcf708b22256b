"""Ways to rank a collection for a query: by features, by codes, by released symbols; all are evaluated alike.

A ranking holds what its searcher would hold and nothing else: features where nothing is hidden, codes, or what a local
mechanism released. Equal distances are ties: `nearest` breaks them by position, `evaluate` averages over all orders.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.search.codes import Codes, hamming
from blindsight.search.evaluation import Ranking, evaluate_codes, evaluate_distances
from blindsight.search.function import Floats, HashFunction
from blindsight.search.localmode import LocalHasher
from blindsight.validation import check_features

Distances = NDArray[Any]


class Searcher(ABC):
    """What ranks items for queries that come as features."""

    @property
    @abstractmethod
    def items(self) -> int:
        """How many items are ranked."""

    @abstractmethod
    def distances(self, queries: ArrayLike) -> Distances:
        """Return how far every item is from every query, (queries, items); smaller is nearer."""

    def nearest(self, queries: ArrayLike, k: int) -> NDArray[np.int64]:
        """Return the positions of the k nearest items of every query, nearest first, (queries, k)."""
        if not 1 <= k <= self.items:
            raise InputError(f"k must be in [1, {self.items}], the number of items; got {k}.")
        return np.argsort(self.distances(queries), axis=1, kind="stable")[:, :k].astype(np.int64)

    def evaluate(
        self, queries: ArrayLike, query_labels: ArrayLike, labels: ArrayLike, *, progress: Progress = silent
    ) -> Ranking:
        """Say how well the ranking finds items with the query's label."""
        rows = check_features(queries, least=0)
        return evaluate_distances(lambda span: self.distances(rows[span]), query_labels, labels, progress=progress)


@dataclass(frozen=True, eq=False)
class FeatureSearcher(Searcher):
    """Ranks by the cosine of features: what search is without codes and without privacy."""

    features: Floats

    @property
    def items(self) -> int:
        return len(self.features)

    def distances(self, queries: ArrayLike) -> Distances:
        """Return negative cosines, but for a factor of the query's own that ranks nothing; rows of zeros come last."""
        rows = check_features(queries, self.features.shape[1], what="features", least=0)
        norms = np.linalg.norm(self.features, axis=1)
        return np.asarray(-(rows @ self.features.T) / np.maximum(norms, np.finfo(np.float32).tiny))


@dataclass(frozen=True, eq=False)
class CodeSearcher(Searcher):
    """Ranks by the Hamming distance between codes; the query is hashed by the same function and never flipped."""

    function: HashFunction
    codes: Codes

    @property
    def items(self) -> int:
        return len(self.codes)

    def distances(self, queries: ArrayLike) -> Distances:
        """Return Hamming distances."""
        return hamming(self.function(queries), self.codes)

    def evaluate(
        self, queries: ArrayLike, query_labels: ArrayLike, labels: ArrayLike, *, progress: Progress = silent
    ) -> Ranking:
        """Say how well the codes find items with the query's label, with precision and recall by radius."""
        return evaluate_codes(
            self.function(queries), self.codes, query_labels, labels, bits=self.function.bits, progress=progress
        )


@dataclass(frozen=True, eq=False)
class SymbolSearcher(Searcher):
    """Ranks released symbols by what they tell of the true ones; the query is real-valued and stays with the asker."""

    hasher: LocalHasher
    released: NDArray[Any]

    @property
    def items(self) -> int:
        return len(self.released)

    def distances(self, queries: ArrayLike) -> Distances:
        """Return the negative scores of every released symbol."""
        return np.asarray(-self.hasher.scores(queries, self.released))
