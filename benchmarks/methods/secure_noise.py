"""Blindsight's own noise: the operating system's randomness and an exact distribution on a fine grid."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.noise import NoiseRequest
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism


def run(given: NoiseRequest, *, seed: int, values: int) -> NDArray[np.float64]:
    """Release so many zeros; the seed has no say in the operating system's randomness."""
    if given.law == "laplace":
        return LaplaceMechanism(sensitivity=1.0, epsilon=1 / given.scale).release(np.zeros(values))
    return GaussianMechanism(sensitivity=1.0, sigma=given.scale).release(np.zeros(values))
