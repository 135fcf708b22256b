"""How sure the figures of an attack are, as the intervals that findings carry."""

import numpy as np
from scipy.stats import binomtest
from scipy.stats import t as student

from blindsight.audit.finding import Interval
from blindsight.audit.leakage.recovery import Vector


def share_interval(hits: int, of: int, confidence: float = 0.95) -> Interval:
    """Return Clopper and Pearson's interval of a share."""
    if of == 0:
        return Interval(0.0, 0.0, 1.0, confidence)
    interval = binomtest(hits, of).proportion_ci(confidence, method="exact")
    return Interval(hits / of, float(interval.low), float(interval.high), confidence)


def mean_interval(values: Vector, confidence: float = 0.95) -> Interval:
    """Return Student's interval of a mean."""
    mean = float(np.mean(values))
    reach = float(student.isf((1 - confidence) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Interval(mean, mean - reach, mean + reach, confidence)
