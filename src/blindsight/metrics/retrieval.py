"""Metrics of rankings and retrieval: average precision with exact ties, lookup by radius, recall of neighbours.

`average_precision` and its mean over labels are those of Yonetani et al., ICCV 2017 (Table 4; supplement, Table 1). All
other functions take a *block of queries*: distances of shape (queries, items), whatever fits in memory. One value (or
row) per query is for the caller to average once all blocks are done; the mean of `query_average_precision` over the
queries is the mAP of Wang, Lu & Zhang, "Searching Privately by Imperceptible Lying", ACM Multimedia 2020, section 3,

    mAP = 1/m sum_i 1/N_i+ sum_j precision(v_i, U, S, j) I(S_ij = 1),

where N_i+ = `relevant[i].sum()`, S_ij = 1 means `relevant[i, j]`, and the paper's outer sum to n should run to m.

Hamming distances of c bits take c + 1 values, so a ranking is mostly ties and the paper does not say who goes first.
`ties="expected"` averages over all orders of tied items, exactly and without drawing any (McSherry & Najork, "Computing
information retrieval performance measures efficiently in the presence of tied scores", ECIR 2008): at the k-th place of
a run of n tied items, r of them relevant, that follows t items, R of them relevant, stands a relevant item with
probability r/n, and then R + 1 + (k - 1)(r - 1)/(n - 1) relevant ones are expected up to it. The sum over k is closed
through harmonic numbers. The other rules show how much the order of ties can be worth: "optimistic" puts the relevant
first, "pessimistic" last, "stable" keeps the order of the database (which may be sorted by class!).
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError, UnknownNameError
from blindsight.metrics.classification import binary, finite, same_shape

Ties = Literal["expected", "optimistic", "pessimistic", "stable"]
_RULES = ("expected", "optimistic", "pessimistic", "stable")
_Floats = NDArray[np.float64]
_Counts = NDArray[np.int64]


def average_precision(y_true: ArrayLike, scores: ArrayLike) -> float:
    """Return the area under the precision-recall steps, sum_k (recall_k - recall_{k-1}) precision_k.

    Thresholds k run over the *distinct* scores, highest first: equal scores are taken in together, so no order among
    them is invented (computed by scikit-learn). Chance is the prevalence, not .5, which comparisons across labels
    hide. Without a positive there is no recall: refused. With positives only it is 1.

    >>> average_precision([1, 0, 1], [0.9, 0.8, 0.7])
    0.8333333333333333
    """
    truth, values = binary(y_true, "y_true", 1), finite(scores, "scores", 1)
    same_shape(truth, "y_true", values, "scores")
    if not truth.any():
        raise InputError("average precision needs a positive in y_true; got none. Leave such labels out and say so.")
    return _step_area(truth, values)


def mean_average_precision(
    y_true: ArrayLike, scores: ArrayLike, *, top: int | None = None, frequency: ArrayLike | None = None
) -> float:
    """Return the mean of `average_precision` over the `top` most frequent labels (all by default).

    `y_true` and `scores` have shape (pictures, labels). `frequency` counts each label in the *training* set, as the
    supplement ranks them; without it the positives in `y_true` are counted. Of equally frequent labels the earlier
    column wins. A chosen label without a positive is refused. Hides the rare labels left out.

    >>> mean_average_precision([[1, 0], [1, 1], [0, 0]], [[3, 1], [2, 2], [1, 3]])
    0.75
    >>> mean_average_precision([[1, 0], [1, 1], [0, 0]], [[3, 1], [2, 2], [1, 3]], top=1)
    1.0
    """
    truth, values = binary(y_true, "y_true", 2), finite(scores, "scores", 2)
    same_shape(truth, "y_true", values, "scores")
    counts = truth.sum(axis=0) if frequency is None else finite(frequency, "frequency", 1)
    labels = truth.shape[1]
    if counts.shape != (labels,):
        raise InputError(f"frequency must count each of the {labels} labels; got shape {counts.shape}.")
    if top is not None and not 1 <= top <= labels:
        raise InputError(f"top must be in [1, {labels}], the number of labels; got {top}.")
    chosen = np.argsort(-counts.astype(float), kind="stable")[:top]
    missing = [int(label) for label in chosen if not truth[:, label].any()]
    if missing:
        raise InputError(f"label(s) {missing} have no positive in y_true, so no average precision; lower top.")
    return float(np.mean([_step_area(truth[:, label], values[:, label]) for label in chosen]))


def query_average_precision(
    distances: ArrayLike, relevant: ArrayLike, *, top: int | None = None, ties: Ties = "expected"
) -> _Floats:
    """Return each query's average precision over its ranking by increasing distance, or over the first `top` places.

    With `top` the sum stops there and is divided by min(N_i+, top), so that only a perfect answer scores 1. A query
    with nothing relevant is refused. Hides, over the full ranking, whether the first page is good. Accurate to 1e-8 for
    millions of items.

    >>> query_average_precision([[0, 1, 2]], [[1, 0, 1]]).round(4)
    array([0.8333])
    >>> query_average_precision([[5, 5]], [[1, 0]])  # either order is as likely: (1 + 1/2) / 2
    array([0.75])
    """
    spans, wanted = _block(distances, relevant)
    if ties == "stable":
        spans, ties = _places(spans), "expected"  # no ties are left: every rule says the same
    return average_precision_of_counts(*_tie_runs(spans, wanted), top=top, ties=ties)


def average_precision_of_counts(
    sizes: _Counts, hits: _Counts, *, top: int | None = None, ties: Ties = "expected"
) -> _Floats:
    """Return each query's average precision from what decides it: how many items stand at each distance.

    At the d-th distance from query i are `sizes[i, d]` items, `hits[i, d]` of them relevant. ties="stable" is refused.

    >>> average_precision_of_counts(np.array([[1, 0, 2]]), np.array([[1, 0, 1]])).round(4)  # (1 + (2/2 + 2/3) / 2) / 2
    array([0.9167])
    """
    if ties not in _RULES:
        raise UnknownNameError("rule for ties", ties, _RULES)
    if ties == "stable":
        raise InputError("counts do not know the order of the database: ties cannot be 'stable'. Give the distances.")
    if top is not None and top < 1:
        raise InputError(f"top must be >= 1; got {top}.")
    items = int(sizes.sum(axis=1).max())
    cut = items if top is None else min(top, items)
    harmonic = np.concatenate(([0.0], np.cumsum(1 / np.arange(1, items + 1))))
    if ties == "expected":
        gains = _expected_gain(sizes, hits, cut, harmonic)
    else:
        gains = _ordered_gain(sizes, hits, cut, harmonic, first=ties == "optimistic")
    return np.asarray(gains.sum(axis=1) / np.minimum(hits.sum(axis=1), cut))


def radius_precision_recall(distances: ArrayLike, relevant: ArrayLike, bits: int) -> tuple[_Floats, _Floats]:
    """Return precision and recall of looking up all codes within Hamming radius 0, 1, ..., `bits`, query by query.

    Two arrays of shape (queries, bits + 1); their means over the queries are the paper's precision-recall curve. A
    lookup that finds nothing has precision 0, not 0/0: it failed. Hides how many items must be read to get there.

    >>> precision, recall = radius_precision_recall([[0, 1, 2]], [[1, 0, 1]], bits=2)
    >>> precision.round(2), recall.round(2)
    (array([[1.  , 0.5 , 0.67]]), array([[0.5, 0.5, 1. ]]))
    """
    spans, wanted = _block(distances, relevant)
    if spans.dtype.kind == "f" or spans.min() < 0 or spans.max() > bits:
        raise InputError(f"Hamming distances must be whole numbers in [0, bits = {bits}].")
    return precision_recall_of_counts(*_tie_runs(spans, wanted, width=bits + 1))


def precision_recall_of_counts(sizes: _Counts, hits: _Counts) -> tuple[_Floats, _Floats]:
    """Return precision and recall within each distance from `sizes[i, d]` items, `hits[i, d]` of them relevant."""
    within, found = np.cumsum(sizes, axis=1), np.cumsum(hits, axis=1)
    return found / np.maximum(within, 1), found / found[:, -1:]


def recall_at_k(found: ArrayLike, distances: ArrayLike) -> _Floats:
    """Return for each query the share of its k true nearest neighbours among the k items `found`.

    `found` holds item numbers, shape (queries, k), -1 where nothing was returned; `distances` are the exact ones to all
    items. Where the k-th neighbour is tied, any of the tied items fills the places left after the strictly nearer
    ones. An item named twice counts once. Hides how far off the wrong ones are.

    >>> recall_at_k([[0, 2]], [[0, 1, 1, 9]])  # items 1 and 2 are equally near: either is right
    array([1.])
    >>> recall_at_k([[1, 2]], [[0, 1, 1, 9]])  # but not both instead of item 0
    array([0.5])
    """
    exact, numbers = finite(distances, "distances", 2), finite(found, "found", 2)
    items, k = exact.shape[1], numbers.shape[1]
    if numbers.dtype.kind not in "iu" or numbers.min() < -1 or numbers.max() >= items:
        raise InputError(f"found must hold item numbers in [0, {items}), or -1 for none.")
    if len(numbers) != len(exact) or k > items:
        raise InputError(f"found must be (queries, k <= items); got {numbers.shape} for distances {exact.shape}.")
    answer = np.sort(numbers.astype(np.int64), axis=1)
    counted = (answer >= 0) & (np.diff(answer, axis=1, prepend=-1) != 0)
    reached = np.take_along_axis(exact, np.maximum(answer, 0), axis=1)
    kth = np.partition(exact, k - 1, axis=1)[:, [k - 1]]
    nearer = (counted & (reached < kth)).sum(axis=1)
    tied = (counted & (reached == kth)).sum(axis=1)
    return np.asarray((nearer + np.minimum(tied, k - (exact < kth).sum(axis=1))) / k)


def _step_area(truth: NDArray[np.bool_], values: NDArray[Any]) -> float:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(truth, values))


def _block(distances: ArrayLike, relevant: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    spans, wanted = finite(distances, "distances", 2), binary(relevant, "relevant", 2)
    same_shape(spans, "distances", wanted, "relevant")
    empty = np.flatnonzero(~wanted.any(axis=1))
    if empty.size:
        raise InputError(f"query {empty[0]} has no relevant item, so no recall. Leave such queries out and say so.")
    return spans, wanted


def _places(spans: NDArray[Any]) -> _Counts:
    """Return each item's place in the ranking, equal distances in the order of the database."""
    places = np.empty(spans.shape, dtype=np.int64)
    np.put_along_axis(places, np.argsort(spans, axis=1, kind="stable"), np.arange(spans.shape[1])[None, :], axis=1)
    return places


def _tie_runs(spans: NDArray[Any], wanted: NDArray[np.bool_], width: int = 0) -> tuple[_Counts, _Counts]:
    """Return, query by query and in ranked order, the size of each run of equal distances and its relevant items."""
    if spans.dtype.kind == "f" or spans.min() < 0 or spans.max() > spans.shape[1]:
        order = np.argsort(spans, axis=1)
        ordered = np.take_along_axis(spans, order, axis=1)
        level = np.zeros(spans.shape, dtype=np.int64)  # 0 for the nearest, 1 for the next distinct distance, ...
        level[:, 1:] = np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1)
        spans, wanted = level, np.take_along_axis(wanted, order, axis=1)
    width = max(width, int(spans.max()) + 1)
    cell = spans.astype(np.int64) + width * np.arange(len(spans))[:, None]
    sizes, hits = (np.bincount(cells, minlength=width * len(spans)) for cells in (cell.ravel(), cell[wanted]))
    return sizes.reshape(-1, width), hits.reshape(-1, width)


def _expected_gain(sizes: _Counts, hits: _Counts, cut: int, harmonic: _Floats) -> _Floats:
    """Return the expected sum of precisions at relevant places of each run, over all orders of its items."""
    before, hits_before = np.cumsum(sizes, axis=1) - sizes, np.cumsum(hits, axis=1) - hits  # t, R
    places = np.clip(cut - before, 0, sizes)
    inverse = harmonic[before + places] - harmonic[before]  # sum over the places of 1 / (t + k)
    slope = (hits - 1) / np.maximum(sizes - 1, 1)
    share = hits / np.maximum(sizes, 1)
    return np.asarray(share * ((hits_before + 1) * inverse + slope * (places - (before + 1) * inverse)))


def _ordered_gain(sizes: _Counts, hits: _Counts, cut: int, harmonic: _Floats, *, first: bool) -> _Floats:
    """Return the sum of precisions at relevant places of each run, its relevant items standing first or last."""
    hits_before = np.cumsum(hits, axis=1) - hits
    start = np.cumsum(sizes, axis=1) - (sizes if first else hits)  # the place before the run's first relevant item
    places = np.clip(cut - start, 0, hits)
    inverse = harmonic[np.minimum(start + places, len(harmonic) - 1)] - harmonic[start]
    return np.asarray(places - (start - hits_before) * inverse)  # sum of (R + k) / (start + k)
