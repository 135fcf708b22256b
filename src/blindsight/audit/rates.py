"""Rates and how sure they are: Clopper-Pearson intervals, which hold at every sample size.

C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
Biometrika 1934. Each end fails with probability at most (1 - confidence) / 2, whatever the true rate is.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
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
    return float(clopper_pearson(hits, trials, tail(confidence))[0])


def highest(hits: int, trials: int, confidence: float) -> float:
    """Return the upper end of the interval."""
    return float(clopper_pearson(hits, trials, tail(confidence))[1])


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
