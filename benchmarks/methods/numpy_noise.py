"""numpy's noise: fast, from a seeded generator, and with the floating-point gaps that betray the secret."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.noise import NoiseRequest


def run(given: NoiseRequest, *, seed: int, values: int) -> NDArray[np.float64]:
    """Draw so many values."""
    generator = np.random.default_rng(seed)
    draw = generator.laplace if given.law == "laplace" else generator.normal
    return draw(0.0, given.scale, values)
