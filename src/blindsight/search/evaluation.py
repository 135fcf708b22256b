"""Evaluation of codes and rankings, for more queries and items than their distances fit in memory.

Results are exactly those of `metrics` on the whole matrix of distances; memory is that of a million distances, or of
one query's if it has more. Of codes, only the *counts* of items and of relevant items at each Hamming distance are
kept: they decide average precision with ties averaged over all orders, and precision and recall within every radius
(`metrics.retrieval` has the definitions, and why ties need a rule).

Two rows are relevant to each other if they are of one class, or, with labels (n, a) of 0 and 1, share a label.

A `Searcher` ranks a collection by only what it would hold: features where nothing is hidden, codes, or what a local
mechanism released. Equal distances are ties: `nearest` breaks them by position, `evaluate` averages over all orders.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.dataset import Dataset
from blindsight.errors import DataError, InputError
from blindsight.metrics.classification import binary
from blindsight.metrics.retrieval import (
    Ties,
    average_precision_of_counts,
    precision_recall_of_counts,
    query_average_precision,
)
from blindsight.progress import Progress, silent
from blindsight.search.codes import Codes, blocks, check_codes, hamming
from blindsight.search.function import Floats, HashFunction
from blindsight.search.localmode import LocalHasher
from blindsight.validation import check_features

_PAIRS = 2**20  # distances in memory at once
_QUERIES = 512  # whose counts are in memory at once

_Floats = NDArray[np.float64]
_Counts = NDArray[np.int64]
_Labels = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Ranking:
    """How well items are ranked: each query's average precision and the mean, precision among the first 10, over what.

    `chance` is what a random order reaches in both, on average: the share of items that are relevant.
    """

    per_query: _Floats
    mean_average_precision: float
    precision_at_10: float
    chance: float
    queries: int
    items: int


@dataclass(frozen=True, eq=False)
class Retrieval(Ranking):
    """The same of codes, with mean precision and recall within Hamming radius 0, 1, ..., bits."""

    precision: _Floats
    recall: _Floats


def evaluate_codes(
    query_codes: Codes,
    codes: Codes,
    query_labels: ArrayLike,
    labels: ArrayLike,
    *,
    bits: int,
    top: int | None = None,
    ties: Ties = "expected",
    progress: Progress = silent,
) -> Retrieval:
    """Rank all codes by Hamming distance from each query and say how well that finds what is relevant.

    `top` cuts the ranking for average precision (not for the radii). ``ties="stable"`` keeps the order of the database;
    it is the only rule that must sort, and takes about twenty times as long.

    >>> from blindsight.search.codes import pack
    >>> codes = pack([[0, 0], [0, 1], [1, 1]])
    >>> found = evaluate_codes(codes[:1], codes, [7], [7, 8, 7], bits=2)
    >>> round(found.mean_average_precision, 4), found.precision.round(2)
    (0.8333, array([1.  , 0.5 , 0.67]))
    """
    queries, packed = check_codes(query_codes, bits, "query codes"), check_codes(codes, bits)
    wanted, offered = _check_labels(query_labels, labels)
    if (len(wanted), len(offered)) != (len(queries), len(packed)):
        raise InputError(
            f"give one label per code: {len(queries)} query codes have {len(wanted)} labels, "
            f"{len(packed)} codes have {len(offered)}."
        )
    found = np.empty((3, len(queries)))  # average precision, precision among the first ten, and chance
    precision, recall = np.zeros(bits + 1), np.zeros(bits + 1)
    for span in blocks(len(queries), _QUERIES):
        sizes, hits = _counts(queries[span], packed, wanted[span], offered, bits)
        if ties != "stable":
            found[0, span] = average_precision_of_counts(sizes, hits, top=top, ties=ties)
        found[1:, span] = _first_ten(sizes, hits), hits.sum(axis=1) / len(packed)
        within, reached = precision_recall_of_counts(sizes, hits)
        precision += within.sum(axis=0) / len(queries)
        recall += reached.sum(axis=0) / len(queries)
        progress("evaluating codes", span.stop, len(queries))
    if ties == "stable":
        found[0] = evaluate_distances(
            lambda span: hamming(queries[span], packed), query_labels, labels, top=top, ties=ties, progress=progress
        ).per_query
    mean, first, chance = found.mean(axis=1).tolist()
    return Retrieval(found[0], mean, first, chance, len(queries), len(packed), precision, recall)


def evaluate_distances(
    distances: Callable[[slice], NDArray[Any]],
    query_labels: ArrayLike,
    labels: ArrayLike,
    *,
    top: int | None = None,
    ties: Ties = "expected",
    block: int | None = None,
    progress: Progress = silent,
) -> Ranking:
    """Say how well a ranking by any distance finds what is relevant; `distances` gives it for a slice of the queries.

    It is called with slices of `block` queries (as many as make a million distances, if not said) and returns an array
    (queries in the slice, items), smaller being nearer: negate scores or log-probabilities.

    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> ranking = evaluate_distances(lambda queries: abs(X[queries] - X.T), [0, 0, 1], [0, 0, 1])
    >>> ranking.per_query
    array([1., 1., 1.])
    """
    wanted, offered = _check_labels(query_labels, labels)
    queries, items = len(wanted), len(offered)
    rows = _block(items) if block is None else block
    if rows < 1:
        raise InputError(f"a block is at least 1 query; got {block}.")
    found = np.empty((3, queries))
    for span in blocks(queries, rows):
        spans = np.asarray(distances(span))
        expected = (span.stop - span.start, items)
        if spans.shape != expected:
            raise InputError(f"distances must return an array {expected} for {span}; got {spans.shape}.")
        relevant = _relevant(wanted[span], offered)
        found[0, span] = query_average_precision(spans, relevant, top=top, ties=ties)
        found[1:, span] = _first_ten_of(spans, relevant), relevant.mean(axis=1)
        progress("evaluating distances", span.stop, queries)
    mean, first, chance = found.mean(axis=1).tolist()
    return Ranking(found[0], mean, first, chance, queries, items)


def _first_ten(sizes: _Counts, hits: _Counts) -> _Floats:
    """Return the precision among the first ten of groups of tied items, nearest first, over all orders of ties."""
    before = np.cumsum(sizes, axis=1) - sizes
    most = np.minimum(10, sizes.sum(axis=1))[:, None]
    taken = np.clip(most - before, 0, sizes)
    return np.asarray((taken * hits / np.maximum(sizes, 1)).sum(axis=1) / most[:, 0])


def _first_ten_of(distances: NDArray[Any], relevant: NDArray[np.bool_]) -> _Floats:
    """Return the same from distances: those nearer than the tenth count in full, those as near in part."""
    most = min(10, distances.shape[1])
    tenth = np.partition(distances, most - 1, axis=1)[:, most - 1 : most]
    nearer, tied = distances < tenth, distances == tenth
    sizes = np.stack([nearer.sum(axis=1), tied.sum(axis=1)], axis=1)
    return _first_ten(sizes, np.stack([(nearer & relevant).sum(axis=1), (tied & relevant).sum(axis=1)], axis=1))


def _block(items: int) -> int:
    return max(1, _PAIRS // items)


def _counts(queries: Codes, codes: Codes, wanted: _Labels, offered: _Labels, bits: int) -> tuple[_Counts, _Counts]:
    """Return how many items, and how many relevant ones, stand at distance 0, ..., bits from each query."""
    width = bits + 1
    counts = np.empty((len(queries), 2, width), dtype=np.int64)
    for span in blocks(len(queries), _block(len(codes))):
        cells = hamming(queries[span], codes) + width * _relevant(wanted[span], offered)
        for row, cell in enumerate(cells, start=span.start):
            counts[row] = np.bincount(cell, minlength=2 * width).reshape(2, width)
    return counts.sum(axis=1), counts[:, 1]


def _relevant(wanted: _Labels, offered: _Labels) -> NDArray[np.bool_]:
    if wanted.ndim == 1:
        return np.asarray(wanted[:, None] == offered)
    return np.asarray(wanted @ offered.T > 0)


def _check_labels(query_labels: ArrayLike, labels: ArrayLike) -> tuple[_Labels, _Labels]:
    """Return both as class numbers, or both as 0/1 rows; a query that nothing is relevant to has no recall: refused."""
    wanted, offered = np.asarray(query_labels), np.asarray(labels)
    alike = wanted.ndim == offered.ndim and wanted.shape[1:] == offered.shape[1:]
    if wanted.ndim not in (1, 2) or not alike or not wanted.size or not offered.size:
        raise InputError(
            "labels of queries and of items must be both classes (n,) or both 0/1 rows (n, a) over the same labels; "
            f"got {wanted.shape} and {offered.shape}."
        )
    if wanted.ndim == 2:
        wanted, offered = binary(wanted, "query_labels", 2), binary(offered, "labels", 2)
        served = (wanted & offered.any(axis=0)).any(axis=1)
        wanted, offered = wanted.astype(np.float32), offered.astype(np.float32)
    else:
        wanted, offered = _class_numbers(wanted, offered)
        served = np.isin(wanted, offered)
    if not served.all():
        raise InputError(
            f"query {int(served.argmin())} has no relevant item, so no recall. Leave such queries out and say so."
        )
    return wanted, offered


def _class_numbers(wanted: _Labels, offered: _Labels) -> tuple[_Labels, _Labels]:
    names = {labels.dtype.kind == "U" for labels in (wanted, offered)}
    if len(names) > 1 or any(labels.dtype.kind not in "biuU" for labels in (wanted, offered)):
        raise InputError(
            f"class labels must be both whole numbers or both names; got {wanted.dtype} and {offered.dtype}."
        )
    numbers = np.unique(np.concatenate((wanted, offered)), return_inverse=True)[1].astype(np.int32)
    return numbers[: len(wanted)], numbers[len(wanted) :]


Distances = NDArray[Any]


class Searcher(ABC):
    """What ranks items for queries that come as features."""

    @abstractmethod
    def distances(self, queries: ArrayLike) -> Distances:
        """Return how far every item is from every query, (queries, items); smaller is nearer."""

    def nearest(self, queries: ArrayLike, k: int) -> NDArray[np.int64]:
        """Return the positions of the k nearest items of every query, nearest first, (queries, k)."""
        distances = self.distances(queries)
        if not 1 <= k <= distances.shape[1]:
            raise InputError(f"k must be in [1, {distances.shape[1]}], the number of items; got {k}.")
        return np.argsort(distances, axis=1, kind="stable")[:, :k].astype(np.int64)

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

    def distances(self, queries: ArrayLike) -> Distances:
        return hamming(self.function(queries), self.codes)

    def evaluate(
        self, queries: ArrayLike, query_labels: ArrayLike, labels: ArrayLike, *, progress: Progress = silent
    ) -> Ranking:
        return evaluate_codes(
            self.function(queries), self.codes, query_labels, labels, bits=self.function.bits, progress=progress
        )


@dataclass(frozen=True, eq=False)
class SymbolSearcher(Searcher):
    """Ranks released symbols by what they tell of the true ones; the query is real-valued and stays with the asker."""

    hasher: LocalHasher
    released: NDArray[Any]

    def distances(self, queries: ArrayLike) -> Distances:
        return np.asarray(-self.hasher.scores(queries, self.released))


def ground_truth(dataset: Dataset) -> NDArray[np.int64]:
    """Return what two pictures must have in common to be a right answer: their class or, without classes, person."""
    if dataset.labels is not None:
        return dataset.labels
    if dataset.persons is not None:
        return dataset.persons
    raise DataError(f"{dataset.name} has neither classes nor persons, so no answer is right or wrong.")
