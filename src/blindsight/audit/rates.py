"""Rates and how sure they are: Clopper-Pearson intervals, which hold at every sample size.

C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
Biometrika 1934. Each end fails with probability at most (1 - confidence) / 2, whatever the true rate is.
"""

from scipy.special import betaincinv

from blindsight.audit.finding import Interval
from blindsight.errors import InputError


def rate(hits: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """Return hits / trials with its exact interval.

    >>> str(rate(6, 6))
    '1 (0.541 to 1)'
    """
    if not 0 <= hits <= trials or trials < 1:
        raise InputError(f"a rate needs 1 trial or more, and hits among them; got {hits} of {trials}.")
    return Interval(hits / trials, lowest(hits, trials, confidence), highest(hits, trials, confidence), confidence)


def lowest(hits: int, trials: int, confidence: float) -> float:
    """Return the lower end of the interval."""
    return float(betaincinv(hits, trials - hits + 1, tail(confidence))) if hits else 0.0


def highest(hits: int, trials: int, confidence: float) -> float:
    """Return the upper end of the interval."""
    return float(betaincinv(hits + 1, trials - hits, 1 - tail(confidence))) if hits < trials else 1.0


def tail(confidence: float) -> float:
    """Return the error that either end may take."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be in (0, 1); got {confidence}. Write 95% as 0.95.")
    return (1 - confidence) / 2
