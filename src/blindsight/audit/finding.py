"""One line of an audit: what is claimed, by whom, what is proven, what an attack measured, and what follows.

A verdict says no more than its evidence: an attack that fails proves nothing, so the best it can give is *not refuted*.
Rates have Clopper-Pearson intervals, which hold at every sample size.

C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
Biometrika 1934. Each end fails with probability at most (1 - confidence) / 2, whatever the true rate is.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from blindsight.errors import InputError

Verdict = Literal["refuted", "leaks", "as stated", "undecided", "not run", "not refuted", "at chance"]
"""From the worst to the best; what each means stands in `MEANINGS`."""

MEANINGS: Mapping[Verdict, str] = MappingProxyType(
    {
        "refuted": "measured beyond the claim, at the stated confidence",
        "leaks": "the attack works, though nobody promised that it would not",
        "as stated": "the attack works as far as the statement of the result admits",
        "undecided": "the measured interval contains the limit, or the attack had no power: more data or time may tell",
        "not run": "left out or impossible, for the reason that is given: nothing is known",
        "not refuted": "measured below the claim, which proves nothing",
        "at chance": "not shown to do better than guessing",
    }
)
"""The verdicts in words, for legends."""


WORKS: tuple[Verdict, ...] = ("refuted", "leaks", "as stated")
"""Verdicts under which an attack has succeeded."""


@dataclass(frozen=True)
class Interval:
    """A measured figure with its confidence interval; `high` is None for a lower bound.

    Of a rate, `counts` are the hits and trials that it follows from.
    """

    value: float
    low: float
    high: float | None
    confidence: float
    counts: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.high is None:
            return f">= {self.low:.3g}"
        for digits in (3, 4, 5):
            low, high = (f"{end:.{digits}g}" for end in (self.low, self.high))
            if low != high:
                return f"{self.value:.{digits}g} ({low} to {high})"
        return f"{self.value:.3g}"

    @property
    def sure(self) -> str:
        """The figure and, unless it is exact, with which confidence it holds.

        >>> Interval(0.5, 0.25, 0.75, 0.95).sure
        '0.5 (0.25 to 0.75), 95% sure'
        >>> Interval(0.5, 0.25, 0.75, 1 - 0.05 / 6).sure  # rounded down
        '0.5 (0.25 to 0.75), 99.16% sure'
        """
        return f"{self}, {self.certainty}" if self.certainty else str(self)

    @property
    def certainty(self) -> str:
        """With which confidence it holds, rounded down; "" where it is exact."""
        return "" if self.confidence == 1 else f"{int(1e4 * self.confidence + 1e-6) / 100:g}% sure"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one attack found about one claim.

    `claim` is a sentence, `source` who says so, `proven` what is proven of it in words, `measure` names the measured
    figure (or says why there is none), `chance` is what a blind guess would score, `details` holds whatever else a
    program may want to read.
    """

    claim: str
    source: str
    proven: str
    measure: str
    measured: Interval | None
    verdict: Verdict
    attack: str
    chance: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a verdict that does not exist, or that the figure does not bear."""
        if self.verdict not in get_args(Verdict):
            raise InputError(f"a verdict is one of {', '.join(get_args(Verdict))}; got {self.verdict!r}.")
        if (self.measured is None) != (self.verdict == "not run"):
            raise InputError(f"what was run has a figure and what was not has none; got {self.verdict!r}.")
        if self.verdict == "leaks" and self.measured and self.chance is not None and self.measured.low <= self.chance:
            raise InputError(f"an interval that contains chance, {self.chance:g}, shows no leak; got {self.measured}.")

    @property
    def figure(self) -> str:
        """What was measured, in words."""
        return "-" if self.measured is None else self.measured.sure

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        return asdict(self) | {"details": dict(self.details)}


def exactly(figure: float) -> Interval:
    """Return a figure of something that was played once, of which nothing is unsure.

    >>> str(exactly(0.5))
    '0.5'
    """
    return Interval(figure, figure, figure, 1.0)


def rate(hits: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """Return hits / trials with its exact interval.

    >>> str(rate(6, 6))
    '1 (0.541 to 1)'
    """
    if not 0 <= hits <= trials or trials < 1:
        raise InputError(f"a rate needs 1 trial or more, and hits among them; got {hits} of {trials}.")
    low, high = (float(end) for end in clopper_pearson(hits, trials, tail(confidence)))
    return Interval(hits / trials, low, high, confidence, (int(hits), int(trials)))


def not_run(what: str, reason: str) -> Finding:
    """Return the row of a check that was left out or could not be made."""
    return Finding(
        claim=what, source="-", proven="-", measure=reason, measured=None, verdict="not run", attack="none: not run"
    )


def tail(confidence: float) -> float:
    """Return the error that either end may take."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be in (0, 1); got {confidence}. Write 95% as 0.95.")
    return (1 - confidence) / 2


def clopper_pearson(hits: ArrayLike, trials: ArrayLike, tail: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the exact lower and upper limit of a binomial rate, each of which fails with probability at most `tail`.

    >>> low, high = clopper_pearson(0, 100, tail=0.05)
    >>> float(low), round(float(high), 4)
    (0.0, 0.0295)
    """
    k, n = np.broadcast_arrays(np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, tail), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - tail), 1.0)
    return low, high
