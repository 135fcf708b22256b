"""What one attacker achieved on rows it never saw, and how sure that is.

Decisions rest on balanced accuracy, for which a blind guess scores 1/2 whatever the prevalence: PrivLoss is what lies
above. The paper's own figure (Eq. 5, a mean of precisions) stands beside it as `mean_precision`.

Two kinds of bound, each right with the stated confidence:

- `interval`: the intervals of *all* planned attackers on all private attributes hold together (Bonferroni). A lower end
  above the threshold proves a leak.
- `limit`: one-sided, for this attacker alone. The largest limit bounds the best attacker without any correction,
  because the best attacker, whichever it is, is one fixed attacker, and the bound fails only if its own limit does
  (Berger, Technometrics 1982). Acceptance asks every limit to be below the threshold.

Several pictures of one person are not independent. Where persons are known, the variance is estimated over persons and
the bounds are those of so many fewer rows (the design effect, Kish 1965); without it they would be too short.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.metrics import Interval, balanced_accuracy, balanced_accuracy_interval, mean_precision, priv_loss
from blindsight.sift.certificate import SMALLEST_EXACT
from blindsight.sift.views import View


@dataclass(frozen=True)
class AttackResult:
    """One attacker against one private attribute; `positives` and `negatives` count the rows it was judged by."""

    attribute: str
    attacker: str
    view: View
    tuned: bool
    balanced_accuracy: float
    interval: Interval
    limit: float
    mean_precision: float
    positives: int
    negatives: int
    seconds: float = field(compare=False, default=0.0)

    @property
    def priv_loss(self) -> float:
        """What the attacker gains over a blind guess."""
        return priv_loss(self.balanced_accuracy)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self) | {"interval": list(self.interval), "priv_loss": self.priv_loss}


@dataclass(frozen=True)
class Confidence:
    """How sure bounds must be: `level` for all of `planned` intervals together, and for the largest limit."""

    level: float
    planned: int
    share: float = 1.0
    """Of the error of a limit: what this one of several tries on the same rows may use (`adaptive`)."""

    def bounds(self, truth: NDArray[Any], guess: NDArray[Any], persons: NDArray[Any] | None) -> tuple[Interval, float]:
        """Return the simultaneous interval and the one-sided upper limit of the balanced accuracy."""
        rows = _independent_rows(truth, guess, persons)
        interval = balanced_accuracy_interval(*rows, confidence=self.level, comparisons=self.planned)
        return interval, self._limit(*rows)

    def _limit(self, truth: NDArray[Any], guess: NDArray[Any]) -> float:
        alpha = (1 - self.level) * self.share
        if alpha >= SMALLEST_EXACT:  # each end of a two-sided interval takes half of the error
            return balanced_accuracy_interval(truth, guess, confidence=1 - 2 * alpha).high
        reach = math.sqrt(-math.log(alpha) * sum(1 / int((truth == value).sum()) for value in (0, 1)) / 2) / 2
        return min(1.0, balanced_accuracy(truth, guess) + reach)


def measure(truth: NDArray[Any], guess: NDArray[Any], persons: NDArray[Any] | None, sure: Confidence) -> dict[str, Any]:
    """Return the figures of an `AttackResult`."""
    interval, limit = sure.bounds(truth, guess, persons)
    return {
        "balanced_accuracy": balanced_accuracy(truth, guess),
        "interval": interval,
        "limit": limit,
        "mean_precision": mean_precision(truth, guess),
        "positives": int((truth == 1).sum()),
        "negatives": int((truth == 0).sum()),
    }


def design_effect(truth: NDArray[Any], guess: NDArray[Any], persons: NDArray[Any]) -> float:
    """Return how many rows of this data are worth one independent row: 1 or more.

    The variance of the balanced accuracy summed over persons, divided by what independent rows would have. Where every
    guess in a class is alike the variance cannot be estimated, and a person counts as a single row.

    >>> truth, persons = np.repeat([0, 1], 8), np.arange(16) // 4
    >>> design_effect(truth, truth ^ (persons % 2), persons)  # right or wrong person by person, four pictures each
    5.333333333333333
    """
    right, who = truth == guess, np.unique(persons, return_inverse=True)[1]
    people = int(who.max()) + 1
    influence, independent, together, constant = np.zeros(people), 0.0, 1.0, False
    for value in (0, 1):
        rows = truth == value
        count, rate = int(rows.sum()), float(right[rows].mean())
        influence += np.bincount(who[rows], weights=right[rows] - rate, minlength=people) / count
        independent += rate * (1 - rate) / count
        together = max(together, float(np.sum(np.bincount(who[rows]) ** 2)) / count)
        constant |= rate in (0.0, 1.0)
    if constant:
        return together
    return max(1.0, float(np.sum(influence**2)) * people / max(people - 1, 1) / independent)


def _independent_rows(
    truth: NDArray[Any], guess: NDArray[Any], persons: NDArray[Any] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows of the same accuracy that are worth the given ones, none of them about the same person."""
    effect = 1.0 if persons is None else design_effect(truth, guess, persons)
    if effect == 1:
        return truth, guess
    labels, guesses = [], []
    for value in (0, 1):
        rows = truth == value
        total = max(1, int(rows.sum() / effect))
        hits = round(total * float((guess[rows] == value).mean()))
        labels.append(np.full(total, value))
        guesses.append(np.repeat([value, 1 - value], [hits, total - hits]))
    return np.concatenate(labels), np.concatenate(guesses)
