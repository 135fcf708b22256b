"""One value at a time in Python with the operating system's randomness, floating-point gaps included."""

from random import SystemRandom

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.noise import NoiseRequest


def run(given: NoiseRequest, *, seed: int, values: int) -> NDArray[np.float64]:
    """Draw so many values; the seed has no say in the operating system's randomness."""
    system = SystemRandom()
    if given.law == "laplace":
        rate = 1 / given.scale
        return np.array([system.expovariate(rate) - system.expovariate(rate) for _ in range(values)])
    return np.array([system.normalvariate(0.0, given.scale) for _ in range(values)])
