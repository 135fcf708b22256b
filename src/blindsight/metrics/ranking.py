"""How well scores put the positives first: average precision, and its mean over labels.

Yonetani et al., ICCV 2017: average precision for sensitive places (Table 4); mean average precision over the 10, 50 and
100 most frequent video attributes (supplement, Table 1). The paper names the measure without a formula; this is the
exact step form, the sum over thresholds of precision times the gain in recall, without interpolation.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.metrics.inputs import binary, finite, same_shape


def average_precision(y_true: ArrayLike, scores: ArrayLike) -> float:
    """Return the area under the precision-recall steps, sum_k (recall_k - recall_{k-1}) precision_k.

    Thresholds k run over the *distinct* scores, highest first: equal scores are taken in together, so no order among
    them is invented (the definition of scikit-learn). Chance is the prevalence, not .5, which comparisons across labels
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


def _step_area(truth: NDArray[np.bool_], values: NDArray[np.float64]) -> float:
    order = np.argsort(values)[::-1]
    hits, ordered = np.cumsum(truth[order]), values[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))  # the last position of each distinct score
    return float(np.sum(np.diff(hits[ends], prepend=0) * hits[ends] / (ends + 1)) / hits[-1])
