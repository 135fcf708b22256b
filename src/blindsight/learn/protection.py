"""Gaussian noise for each record inside the training of one member (Abadi et al., CCS 2016).

The noise of several members goes into their sum, once (`blindsight.sums.noise`); `RecordGaussian` is for a member that
trains alone, and for what `papers.selective` reproduces.
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from blindsight.dp.accounting import GaussianLoss, Loss, check_positive, epsilon_of, gaussian_sigma
from blindsight.dp.mechanisms import GaussianMechanism
from blindsight.errors import InputError
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import Neighbours, Unit

Floats = NDArray[np.float64]

MOST_STEPS = 2.0**60
"""Grid steps at which a number is cut before noise is added, far beyond any bound."""


def check_number(name: str, value: Any) -> None:
    """Refuse what is not a number, truth values included."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} must be a number; got {value!r}.")


def check_whole(name: str, value: Any, least: int | None = None) -> None:
    """Refuse what is not an int, or is below `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number; got {value!r}.")
    if least is not None and value < least:
        raise InputError(f"{name} must be at least {least}; got {value}.")


class Noise:
    """Noise on what leaves a member: made for a `unit`, with a loss that is stated for `neighbours`.

    A record is a picture, a person a member with all its pictures. Gaussian noise hides the part of a unit, Laplace
    noise its exchange.
    """

    unit: ClassVar[Unit] = "person"
    neighbours: ClassVar[Neighbours] = "add/remove"

    def loss(self, values: int, *, steps: int, chosen: bool) -> Loss:
        """Return what an upload of a number of values costs if every change keeps the bound and places tell nothing.

        `steps` is for how many local steps a batch is used, `chosen` whether places were found by a threshold.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RecordGaussian(Noise):
    """Gaussian noise inside training: each gradient of a record has a length of at most `clip`, and the sum gets noise.

    >>> calibrate_record(epsilon=8.0, delta=1e-5, steps=1, clip=2.0).sigma > 1
    True
    """

    clip: float
    noise_multiplier: float
    unit: ClassVar[Unit] = "record"

    def __post_init__(self) -> None:
        check_length("clip", self.clip)
        check_multiplier(self.noise_multiplier)

    @property
    def sigma(self) -> float:
        """The deviation of the noise on the sum of the gradients of a batch."""
        return self.noise_multiplier * self.clip

    def release(self, total: Floats, source: ByteSource = system_bytes) -> Floats:
        """Return the sum of the clipped gradients of a batch with fresh noise.

        No sum is too large for it: one beyond what the noise can be added to is cut, which lengthens no difference.
        """
        mechanism = GaussianMechanism(sensitivity=self.clip, sigma=self.sigma)
        most = MOST_STEPS * mechanism.grid(total.size).step
        return mechanism.release(np.clip(total, -most, most), source)

    def loss(self, values: int, *, steps: int, chosen: bool) -> Loss:
        return GaussianLoss(self.noise_multiplier, count=steps)


def calibrate_record(*, epsilon: float, delta: float, steps: int, clip: float) -> RecordGaussian:
    """Return the least noise with which a record that is used in `steps` steps loses at most (epsilon, delta) in all.

    >>> round(calibrate_record(epsilon=8.0, delta=1e-5, steps=1, clip=1.0).noise_multiplier, 3)
    0.6
    """
    return RecordGaussian(clip, least_multiplier(epsilon, delta, steps))


def least_multiplier(epsilon: float, delta: float, count: int) -> float:
    """Return the least noise multiplier of `count` Gaussian releases: n of them are one of 1/sqrt(n) the noise."""
    check_whole("the number of releases", count, 1)
    multiplier = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0) * math.sqrt(count)
    while epsilon_of([GaussianLoss(multiplier, count=count)], delta=delta) > epsilon:
        multiplier *= 1 + 1e-9
    return multiplier


def check_length(name: str, value: float) -> None:
    check_number(name, value)
    check_positive(name, value)


def check_multiplier(noise_multiplier: float) -> None:
    check_number("noise_multiplier", noise_multiplier)
    if not 1e-4 <= noise_multiplier <= 1e9:
        raise InputError(f"noise_multiplier must be in [1e-4, 1e9]; got {noise_multiplier}.")
