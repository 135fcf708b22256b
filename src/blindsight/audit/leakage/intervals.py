"""How sure the mean of a figure over victims is, as the interval that findings carry."""

import numpy as np
from scipy.stats import t as student

from blindsight.audit.finding import Interval
from blindsight.audit.leakage.recovery import Vector


def mean_interval(values: Vector, confidence: float = 0.95) -> Interval:
    """Return Student's interval of a mean."""
    mean = float(np.mean(values))
    reach = float(student.isf((1 - confidence) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Interval(mean, mean - reach, mean + reach, confidence)
