"""Laplace and Gaussian noise on trial: the proven epsilon must stand.

Neighbours are as far apart as the stated sensitivity allows.
"""

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.canaries import CanarySubject
from blindsight.audit.scores import known
from blindsight.audit.subject import Claim, Draw, Subject
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from blindsight.rng import ByteSource


def laplace(epsilon: float, *, noise_share: float = 1.0) -> Subject:
    """Return Laplace noise; with a `noise_share` below 1 it is less than epsilon needs: a planted violation.

    All runs are drawn in one release, the grid of which is finer and the noise of which larger (by less than one part
    in 30,000) than for a single value.
    """
    mechanism = LaplaceMechanism(sensitivity=1.0, epsilon=epsilon / noise_share)
    planted = "" if noise_share == 1 else f" with {noise_share:g} of the noise that it takes"

    def released(value: float) -> Draw:
        return lambda runs, source: mechanism.release(np.full(runs, value), source)

    return Subject(
        claim=_claim(f"Laplace noise{planted}", epsilon, 0.0, "unit", loss=mechanism.epsilon),
        first=released(1.0),
        second=released(0.0),
        scorer=known(lambda values: values),
    )


def gaussian(epsilon: float, delta: float) -> Subject:
    """Return Gaussian noise with the least deviation that epsilon and delta allow."""
    mechanism = GaussianMechanism.calibrated(sensitivity=1.0, epsilon=epsilon, delta=delta)

    def released(value: float) -> Draw:
        return lambda runs, source: mechanism.release(np.full(runs, value), source)

    return Subject(
        claim=_claim("Gaussian noise", epsilon, delta, "unit"),
        first=released(1.0),
        second=released(0.0),
        scorer=known(lambda values: values),
    )


def gaussian_run(epsilon: float, delta: float) -> CanarySubject:
    """Return Gaussian noise in one run: a vector to which each canary adds 1 at a place of its own."""
    mechanism = GaussianMechanism.calibrated(sensitivity=1.0, epsilon=epsilon, delta=delta)

    def run(coins: NDArray[np.bool_], source: ByteSource) -> NDArray[np.float64]:
        return mechanism.release(coins.astype(np.float64), source) - 0.5

    return CanarySubject(claim=_claim("Gaussian noise, one vector", epsilon, delta, "unit"), run=run, share=0.2)


def _claim(name: str, epsilon: float, delta: float, unit: str, loss: float | None = None) -> Claim:
    wording = f"epsilon = {epsilon if loss is None else loss:g}"
    return Claim(
        name=name,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        source="Blindsight",
        proven=wording + (f", delta = {delta:g}" if delta else ""),
    )
