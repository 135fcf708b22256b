"""How well scores tell members from others, above all where few others may be suspected: TPR at a low FPR, and AUC.

An attack that names a few members and is always right is worse than one that is right about everyone a little more
often than a coin; averages hide it (Carlini et al., "Membership Inference Attacks From First Principles", S&P 2022).
So the figure is the share of members found (TPR) while at most 0.1% or 1% of the others are suspected (FPR).

*Why the intervals hold.* A row is suspected if its score is above the (k + 1)-th largest of n others' scores, k being
the others that may be suspected. That threshold knows nothing of the members, so their count above it is binomial. The
true FPR behind it has a Beta(k + 1, n - k) distribution (smaller where scores are equal), of which the upper end of
Clopper-Pearson's interval for k in n is the very quantile. The interval of the AUC is Hoeffding's for two-sample
U-statistics (JASA 1963, section 5b), half-width sqrt(ln(2 / a) / (2 min(members, others))): long, and valid at every
size. So long that it misses much: whether scores tell members at all is decided by the rank test of Mann and Whitney
(1947), which needs no more than that members and others could have been exchanged. All take rows for independent draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import mannwhitneyu, rankdata

from blindsight.audit.finding import Interval
from blindsight.audit.rates import highest, lowest, rate, tail
from blindsight.errors import InputError
from blindsight.metrics.classification import finite

Scores = NDArray[np.float64]

LOW_FPRS = (0.001, 0.01)


@dataclass(frozen=True)
class OperatingPoint:
    """What is found at one threshold: members with a score above it, while the FPR may be `allowed`."""

    allowed: float
    threshold: float
    tpr: Interval
    fpr: Interval


@dataclass(frozen=True, eq=False)
class Roc:
    """The scores of members and others (larger: rather a member) and what they are worth."""

    members: Scores
    others: Scores
    auc: Interval
    p_value: float
    """Of the rank test: how likely scores that tell nothing of membership have so large an AUC."""
    points: tuple[OperatingPoint, ...]

    def tells(self) -> bool:
        """Whether members score higher than others; by luck alone with probability (1 - confidence) / 2 at most."""
        return self.p_value <= tail(self.auc.confidence)

    def __repr__(self) -> str:
        return f"Roc({len(self.members)} members, {len(self.others)} others, AUC {self.auc})"

    def curve(self) -> tuple[Scores, Scores]:
        """Return FPR and TPR at every threshold that makes a difference, from (0, 0) to (1, 1)."""
        thresholds = np.unique(np.concatenate([self.members, self.others]))[::-1]
        fpr, tpr = (
            len(group) - np.searchsorted(np.sort(group), thresholds, side="left")
            for group in (self.others, self.members)
        )
        return np.append(0, fpr) / len(self.others), np.append(0, tpr) / len(self.members)


def measure(
    members: ArrayLike, others: ArrayLike, *, fprs: Sequence[float] = LOW_FPRS, confidence: float = 0.95
) -> Roc:
    """Return AUC and TPR at each of `fprs`; too few others for one of them are refused before anything is said."""
    inside, outside = (_scores(group, name) for group, name in ((members, "members"), (others, "non-members")))
    for allowed in fprs:
        if len(outside) < fewest_others(allowed):
            raise InputError(
                f"TPR at {allowed:.3g} FPR needs at least {fewest_others(allowed):,} non-members, of whom one is then "
                f"suspected; got {len(outside):,}. Hold more rows out, or ask for a larger FPR."
            )
    points = tuple(_operating_point(inside, outside, allowed, confidence) for allowed in fprs)
    return Roc(inside, outside, _area(inside, outside, confidence), _rank_test(inside, outside), points)


def fewest_others(fpr: float) -> int:
    """Return how many non-members a figure at this FPR needs: with fewer, the share is less than one of them.

    >>> fewest_others(0.001), fewest_others(0.01)
    (1000, 100)
    """
    if not 0 < fpr < 1:
        raise InputError(f"FPR must be in (0, 1); got {fpr}. Write 0.1% as 0.001.")
    return math.ceil(1 / fpr - 1e-9)


def _operating_point(members: Scores, others: Scores, allowed: float, confidence: float) -> OperatingPoint:
    n, most = len(others), math.floor(allowed * len(others) + 1e-9)
    threshold = float(np.sort(others)[::-1][most])
    suspected = int(np.sum(others > threshold))
    fpr = Interval(suspected / n, lowest(suspected, n, confidence), highest(most, n, confidence), confidence)
    found = rate(int(np.sum(members > threshold)), len(members), confidence=confidence)
    return OperatingPoint(allowed, threshold, found, fpr)


def _area(members: Scores, others: Scores, confidence: float) -> Interval:
    """Return the chance that a member's score is above another's, a draw counting half."""
    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    area = (float(ranks.sum()) / len(members) - (len(members) + 1) / 2) / len(others)
    reach = math.sqrt(-math.log(tail(confidence)) / (2 * min(len(members), len(others))))
    return Interval(area, max(0.0, area - reach), min(1.0, area + reach), confidence)


def _rank_test(members: Scores, others: Scores) -> float:
    """Return the p-value of Mann and Whitney: exact for few scores without draws, else with their normal limit."""
    if np.ptp(np.concatenate([members, others])) == 0:
        return 1.0
    return float(mannwhitneyu(members, others, alternative="greater").pvalue)


def _scores(group: ArrayLike, name: str) -> Scores:
    array: NDArray[Any] = finite(group, f"scores of {name}", 1)
    return array.astype(np.float64)
