"""Samplers of noise: the library's, numpy's, and a plain Python loop."""

from dataclasses import dataclass
from random import SystemRandom
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism


@dataclass(frozen=True)
class NoiseRequest:
    """Independent draws from one law around zero; `scale` is Laplace's b or Gauss's sigma."""

    law: Literal["laplace", "gaussian"]
    scale: float


def secure(given: NoiseRequest, *, seed: int, values: int) -> NDArray[np.float64]:
    """The operating system's randomness, whatever the seed, and an exact distribution on a fine grid."""
    if given.law == "laplace":
        return LaplaceMechanism(sensitivity=1.0, epsilon=1 / given.scale).release(np.zeros(values))
    return GaussianMechanism(sensitivity=1.0, sigma=given.scale).release(np.zeros(values))


def by_numpy(given: NoiseRequest, *, seed: int, values: int) -> NDArray[np.float64]:
    """Fast, from a seeded generator, and with the floating-point gaps that betray the secret."""
    generator = np.random.default_rng(seed)
    draw = generator.laplace if given.law == "laplace" else generator.normal
    return draw(0.0, given.scale, values)


def python_loop(given: NoiseRequest, *, seed: int, values: int) -> NDArray[np.float64]:
    """One value at a time with the operating system's randomness, floating-point gaps included."""
    system = SystemRandom()
    if given.law == "laplace":
        rate = 1 / given.scale
        return np.array([system.expovariate(rate) - system.expovariate(rate) for _ in range(values)])
    return np.array([system.normalvariate(0.0, given.scale) for _ in range(values)])
