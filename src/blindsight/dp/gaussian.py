"""One Gaussian release in closed form: its exact epsilon, and the least noise for an epsilon (Balle and Wang 2018)."""

import math

import numpy as np

from blindsight.dp.losses import check_positive
from blindsight.errors import InputError

EPSILON_SLACK = 1e-9
"""Added to every computed epsilon, for rounding and for noise that is discrete (see `blindsight.dp.mechanisms`)."""


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return the exact epsilon of one Gaussian release (Balle and Wang 2018, Theorem 8)."""
    from dp_accounting import get_epsilon_gaussian

    with np.errstate(all="ignore"):  # far from the solution its search meets log(0)
        return float(get_epsilon_gaussian(noise_multiplier, delta)) + EPSILON_SLACK


def gaussian_sigma(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least Gaussian noise that makes one release (epsilon, delta)-differentially private.

    The condition is exact (Balle and Wang 2018): a fifth less noise than sqrt(2 ln(1.25 / delta)) / epsilon of the
    textbooks at epsilon 1 and delta 1e-6, and right also above epsilon 1, where that formula is not.

    >>> round(gaussian_sigma(epsilon=1.0, delta=1e-6, sensitivity=1.0), 3)
    4.225
    """
    check_positive("sensitivity", sensitivity)
    if not 1e-6 <= epsilon < math.inf:
        raise InputError(f"epsilon must be finite and at least 1e-6; got {epsilon}.")
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1); got {delta}. Use LaplaceMechanism for pure differential privacy.")
    from dp_accounting import get_sigma_gaussian

    multiplier = float(get_sigma_gaussian(epsilon - 2 * EPSILON_SLACK, delta))
    while gaussian_epsilon(multiplier, delta) > epsilon:  # the root was found to twelve decimals, which may be too few
        multiplier *= 1 + 1e-9
    return multiplier * sensitivity
