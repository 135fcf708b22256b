"""Laplace and Gaussian noise, and the hash function learned under it, on trial: the proven epsilon must stand.

Neighbours are as far apart as the stated sensitivity allows.
"""

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.canaries import CanarySubject
from blindsight.audit.epsilon import Draws
from blindsight.audit.scores import known
from blindsight.audit.subject import Claim, Draw, Subject
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from blindsight.rng import ByteSource
from blindsight.search.central import CentralHasher

_FIT_EXPENSE = 200  # even a small fit takes thousands of times as long as a number


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


def central_function(epsilon: float, delta: float) -> Subject:
    """Return central mode: the hash function learned from two rows, one of which points the other way.

    The function tells little: of the budget a tenth goes to the mean, where the two inputs differ by all they can, and
    with so few rows its other parts are noise. So this bound lies far below what is proven.
    """
    row = np.array([[1, 0, 0, 0], [0, 0, 0, 0]], dtype=np.float32)

    def learned(collection: NDArray[np.float32]) -> Draw:
        def draw(runs: int, source: ByteSource) -> Draws:
            hasher = CentralHasher(epsilon, delta, clip=1.0, bits=4, iterations=1, source=source)
            return np.array([hasher.fit(collection).function_.arrays()["mean"][0] for _ in range(runs)])

        return draw

    return Subject(
        claim=_claim("central mode of PrivateHasher", epsilon, delta, "record"),
        first=learned(row),
        second=learned(-row),
        scorer=known(lambda values: values.astype(np.float64)),
        expense=_FIT_EXPENSE,
    )


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
