"""Metrics of classifiers and clusterings: accuracies with confidence intervals, PubLoss, PrivLoss, mutual information.

Enev et al., "SensorSift", ACSAC 2012, sections 6.2 and 6.3; Yonetani et al., "Privacy-Preserving Visual Learning Using
Doubly Permuted Homomorphic Encryption", ICCV 2017, section 3.

| paper | here |
| --- | --- |
| SensorSift Eq. 4, AggregateAccuracy | `accuracy` |
| SensorSift Eq. 5, ClassAvgAccuracy | `mean_precision` |
| DPHE, "accuracies averaged over all the categories" (Caltech-101/256) | `balanced_accuracy` |
| DPHE, "mean accuracies over 40 face attribute labels" | `mean_label_accuracy` |
| SensorSift section 6.2, PubLoss and PrivLoss | `pub_loss`, `priv_loss` of either accuracy |

SensorSift describes Eq. 5 as weighing presence and absence equally, which the mean of the *recalls* does; its formula
divides by tP + fP and tN + fN and so averages the *precisions*. The two disagree on rare attributes. Figures under the
paper's name use the formula; decisions here rest on `balanced_accuracy`.

`comparisons` = m makes m intervals hold *together*, as a verdict over several attackers must (Bonferroni: each takes
1/m of the error). Each end alone fails with at most half of it: for a one-sided limit at 95% ask for `confidence=0.9`.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, gammaln, ndtri

from blindsight.errors import InputError

Labels = NDArray[Any]  # one-dimensional: whole numbers, booleans or strings
_CELLS = 128  # of the grid over the nuisance parameter: more cells, a slightly shorter interval
_HALVINGS = 18


class Interval(NamedTuple):
    """The two ends of a confidence interval."""

    low: float
    high: float


def accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the share of right answers, (tP + tN) / tS (SensorSift Eq. 4).

    Hides the prevalence: always saying "no" about an attribute 5% of people have scores .95.

    >>> accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.75
    """
    truth, guess = label_pair(y_true, y_pred)
    return float(np.mean(truth == guess))


def balanced_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the mean over the classes in `y_true` of the share of that class which was recognised (its recall).

    For two classes (tP / (tP + fN) + tN / (tN + fP)) / 2, for many DPHE's accuracy averaged over the categories. A
    blind guess scores 1 / classes, whatever the prevalences. Hides how rare the classes are, so also how many reported
    positives are false. A single class in `y_true` is refused: a blind guess would score 1.

    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.5
    """
    hits, totals = _recognised(y_true, y_pred)
    return float(np.mean(hits / totals))


def mean_precision(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return (tP / (tP + fP) + tN / (tN + fN)) / 2, SensorSift's ClassAvgAccuracy (Eq. 5), for 0/1 labels.

    For a class that is never predicted the formula reads 0 / 0; here its precision is 0, so that a constant guess
    scores half the prevalence of its class and never looks informed. A `y_true` of one class is scored as it stands.

    Hides rare attributes, in both directions. One lucky positive at prevalence .2 scores .90 though balanced accuracy
    stays near .50; an attacker who recognises 75% of either class at prevalence .05 scores .56, as if harmless:

    >>> lucky = [1] + [0] * 99
    >>> round(mean_precision([1] * 20 + [0] * 80, lucky), 2)
    0.9
    >>> truth, attack = [1] * 40 + [0] * 760, [1] * 30 + [0] * 10 + [0] * 570 + [1] * 190
    >>> round(mean_precision(truth, attack), 2), balanced_accuracy(truth, attack)
    (0.56, 0.75)
    """
    truth, guess = binary_pair(y_true, y_pred)
    positive, negative = int(guess.sum()), int((~guess).sum())
    right_positive, right_negative = int((truth & guess).sum()), int((~truth & ~guess).sum())
    return (right_positive / max(positive, 1) + right_negative / max(negative, 1)) / 2  # Eq. 5


def mean_label_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the accuracy averaged over the labels (columns) of 0/1 matrices of shape (pictures, labels).

    Hides rare labels even more than `accuracy` does: on forty mostly rare attributes, saying "no" to all looks fine.

    >>> mean_label_accuracy([[1, 0], [0, 0]], [[1, 0], [1, 0]])
    0.75
    """
    truth, guess = binary_pair(y_true, y_pred, dimensions=2)
    return float(np.mean(truth == guess))


def pub_loss(raw: float, sifted: float) -> float:
    """Return PubLoss: the accuracy of a public attribute from raw data less that from sifted data (section 6.2).

    Both accuracies are of one kind: `mean_precision` gives the paper's PubLoss, `balanced_accuracy` the standard one.
    Negative where the sift helps. Hides a classifier that was weak on the raw data.

    >>> round(pub_loss(0.9286, 0.8756), 3)
    0.053
    """
    return _share(raw, "raw") - _share(sifted, "sifted")


def priv_loss(sifted: float, classes: int = 2) -> float:
    """Return PrivLoss: the accuracy of a private attribute from sifted data less blind guessing, 1 / classes.

    The paper's attributes are binary, and it takes `mean_precision`, for which .5 is *not* what a blind guess scores;
    with `balanced_accuracy` it is. Hides untried attackers, and the estimate's error (`balanced_accuracy_interval`).

    >>> round(priv_loss(0.575), 3)
    0.075
    """
    if classes < 2:
        raise InputError(f"classes must be >= 2; got {classes}.")
    return _share(sifted, "sifted") - 1 / classes


def adjusted_mutual_information(
    y_true: ArrayLike, clusters: ArrayLike, average: Literal["arithmetic", "max", "min", "geometric"] = "arithmetic"
) -> float:
    """Return (MI - E[MI]) / (average(H(y), H(clusters)) - E[MI]), as DPHE's supplement reports for k-means (Table 2).

    The expectation is over random clusterings of the same sizes (Vinh, Epps & Bailey, JMLR 2010): 0 is chance, 1 is
    agreement up to the names of the clusters. The supplement does not say which average of the two entropies it
    divides by; scikit-learn took "max" when it was written and takes "arithmetic" since 0.22. One group that is all
    one cluster scores 1. Hides which groups were merged. Computed by scikit-learn.

    >>> adjusted_mutual_information([0, 0, 1, 1], [7, 7, 3, 3])
    1.0
    """
    from sklearn.metrics import adjusted_mutual_info_score

    truth, found = label_pair(y_true, clusters)
    return float(adjusted_mutual_info_score(truth, found, average_method=average))


def accuracy_interval(
    y_true: ArrayLike, y_pred: ArrayLike, *, confidence: float = 0.95, comparisons: int = 1
) -> Interval:
    """Return Wilson's score interval of the accuracy (Wilson, JASA 1927).

    Not guaranteed: for small samples and accuracies near 0 or 1 the coverage dips a few points below the confidence.
    Use it to show spread, not to prove privacy.

    >>> low, high = accuracy_interval([1] * 10, [1] * 8 + [0] * 2)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    truth, guess = label_pair(y_true, y_pred)
    z = -ndtri(_tail(confidence, comparisons))
    n, rate = truth.size, float(np.mean(truth == guess))
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z * np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return Interval(max(0.0, float(centre - reach)), min(1.0, float(centre + reach)))


def balanced_accuracy_interval(
    y_true: ArrayLike, y_pred: ArrayLike, *, confidence: float = 0.95, comparisons: int = 1
) -> Interval:
    """Return an interval that covers the true balanced accuracy with at least the stated confidence, at any size.

    The rows are independent draws given their classes. *Two classes*: exact binomial tails. Let T be the sum of the two
    recalls and F_p its distribution under recalls p = (p1, p0). F_p(T) <= a happens with probability at most a, so
    leaving out every p with F_p(t) <= a at the observed t leaves out the truth with probability at most a. The upper
    end is the largest (p1 + p0) / 2 left; the lower end is that of the errors, mirrored. p1 is searched only within its
    own Clopper-Pearson interval, at 1/1000 of the error, which is charged (Berger & Boos, JASA 1994). F_p falls in both
    recalls, so on a cell p1 in [g, h] no p0 above the limit at g survives, and (h + limit(g)) / 2 bounds the cell: the
    grid can only lengthen the interval, by less than one cell.

    *More classes*: Hoeffding's inequality for the weighted sum, half-width sqrt(ln(1/a) sum_c 1/n_c / 2) / classes;
    valid, simple, and long where the accuracy is near 1.

    For two classes of 1,450 pictures and an accuracy of .55 the half-width is .019 (normal approximation, not
    guaranteed: .018; Hoeffding .025; Clopper-Pearson for each class .029).

    >>> low, high = balanced_accuracy_interval([1] * 50 + [0] * 50, [1] * 30 + [0] * 40 + [1] * 30)
    >>> round(low, 2), round(high, 2)
    (0.4, 0.6)
    """
    hits, totals = _recognised(y_true, y_pred)
    tail = _tail(confidence, comparisons)
    if totals.size == 2:
        return Interval(1 - recalls_limit(totals - hits, totals, tail), recalls_limit(hits, totals, tail))
    centre = float(np.mean(hits / totals))
    reach = float(np.sqrt(-np.log(tail) * np.sum(1 / totals) / 2)) / totals.size
    return Interval(max(0.0, centre - reach), min(1.0, centre + reach))


def _recognised(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    truth, guess = label_pair(y_true, y_pred)
    classes, index = np.unique(truth, return_inverse=True)
    if classes.size < 2:
        raise InputError(f"balanced accuracy needs two classes or more in y_true; got only {classes[0]}.")
    return np.bincount(index[truth == guess], minlength=classes.size), np.bincount(index)


def _share(value: float, name: str) -> float:
    if not 0 <= value <= 1:
        raise InputError(f"{name} must be an accuracy in [0, 1]; got {value}. Divide percentages by 100.")
    return float(value)


def _tail(confidence: float, comparisons: int) -> float:
    """Return the error allowed to each end of each of the intervals."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be in (0, 1); got {confidence}. Write 95% as 0.95.")
    if comparisons < 1:
        raise InputError(f"comparisons must be >= 1; got {comparisons}.")
    return (1 - confidence) / (2 * comparisons)


def recalls_limit(hits: ArrayLike, totals: ArrayLike, tail: float) -> float:
    """Return a value that the mean of two binomial rates exceeds with probability at most `tail`, given the counts."""
    hits, totals = np.asarray(hits), np.asarray(totals)
    small = int(np.argmin(totals))  # the sum runs over the counts of the smaller class
    (x, n), (z, m) = ((int(hits[c]), int(totals[c])) for c in (small, 1 - small))
    spare = tail / 1000  # for the range of the first rate, and for the counts outside either window
    low = float(betaincinv(x, n - x + 1, spare / 2)) if x else 0.0
    high = float(betaincinv(x + 1, n - x, 1 - spare / 2)) if x < n else 1.0
    edges = np.linspace(low, high, _CELLS + 1)
    counts, weights = _binomial(n, edges[:-1], spare)
    allowed = np.clip((x * m + z * n - counts * m) // n, -1, m)  # the second count that keeps T at or below t
    enough = tail - 3 * spare
    open_cells = np.sum(weights * (allowed >= 0), axis=1) > enough  # elsewhere not even a second rate of 0 survives
    under, over = np.where(open_cells, 0.0, -1.0), np.where(open_cells, 1.0, -1.0)
    for _ in range(_HALVINGS):
        live = np.flatnonzero(edges[1:] + over >= np.max(edges[1:] + under))  # no other cell can hold the maximum
        middle = (under[live] + over[live]) / 2
        seconds, shares = _binomial(m, middle, spare)
        reached = np.pad(np.cumsum(shares, axis=1), ((0, 0), (1, 0)))
        places = np.clip(allowed[live] - seconds[:, :1] + 1, 0, shares.shape[1])
        possible = np.sum(weights[live] * np.take_along_axis(reached, places, axis=1), axis=1) > enough
        under[live], over[live] = np.where(possible, middle, under[live]), np.where(possible, over[live], middle)
    return min(1.0, float(np.max(edges[1:] + over)) / 2)


def _binomial(n: int, rates: NDArray[np.float64], spare: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return, rate by rate, the counts in n trials that matter and their probabilities; `spare` bounds all others'."""
    reach = int(np.sqrt(n * np.log(2 / spare) / 2)) + 1  # Hoeffding
    counts = np.floor(n * rates).astype(np.int64)[:, None] + np.arange(-reach, reach + 2)
    inside = np.clip(counts, 0, n)
    factorials = gammaln(np.arange(1, n + 2))  # their logarithms
    yes, no = np.log(np.maximum([rates, 1 - rates], 1e-300))[:, :, None]
    chances = np.exp(factorials[n] - factorials[inside] - factorials[n - inside] + inside * yes + (n - inside) * no)
    return counts, chances * (counts == inside)


# --- what the metrics accept ---


def label_pair(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[Labels, Labels]:
    truth, guess = _labels(y_true, "y_true", 1), _labels(y_pred, "y_pred", 1)
    same_shape(truth, "y_true", guess, "y_pred")
    if (truth.dtype.kind == "U") != (guess.dtype.kind == "U"):
        raise InputError("y_true and y_pred must be both names or both numbers; got one of each.")
    return truth, guess


def binary_pair(
    y_true: ArrayLike, y_pred: ArrayLike, dimensions: int = 1
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    truth, guess = binary(y_true, "y_true", dimensions), binary(y_pred, "y_pred", dimensions)
    same_shape(truth, "y_true", guess, "y_pred")
    return truth, guess


def binary(values: ArrayLike, name: str, dimensions: int) -> NDArray[np.bool_]:
    array = _labels(values, name, dimensions)
    strange = array if array.dtype.kind == "U" else array[(array != 0) & (array != 1)]
    if strange.size:
        got = repr(strange.flat[0].item())
        raise InputError(
            f"{name} must hold only 0 and 1; got {got}. Code yes as 1, no as 0 and drop unknown (-1) rows."
        )
    return array.astype(bool)


def finite(values: ArrayLike, name: str, dimensions: int) -> NDArray[Any]:
    """Return an array of finite numbers, at least one of them; integers stay integers."""
    array = _shaped(np.asarray(values), name, dimensions)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers; got {array.dtype}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{name} must be finite; got {array[~np.isfinite(array)][0]}. Remove or replace such values.")
    return array


def same_shape(left: NDArray[Any], left_name: str, right: NDArray[Any], right_name: str) -> None:
    if left.shape != right.shape:
        raise InputError(f"{left_name} and {right_name} must have one shape; got {left.shape} and {right.shape}.")


def _labels(values: ArrayLike, name: str, dimensions: int) -> Labels:
    array = _shaped(np.asarray(values), name, dimensions)
    if array.dtype.kind not in "biufU":
        raise InputError(f"{name} must be whole numbers, booleans or strings; got {array.dtype}.")
    if array.dtype.kind == "f" and not (array == np.rint(array)).all():  # NaN differs from itself
        strange = array[array != np.rint(array)][0]
        raise InputError(f"{name} must be labels; got {strange}. Turn scores into labels with a threshold first.")
    return array


def _shaped(array: NDArray[Any], name: str, dimensions: int) -> NDArray[Any]:
    if array.ndim != dimensions:
        raise InputError(f"{name} must have {dimensions} dimension(s); got shape {array.shape}.")
    if array.size == 0:
        raise InputError(f"{name} must not be empty; got shape {array.shape}.")
    return array
