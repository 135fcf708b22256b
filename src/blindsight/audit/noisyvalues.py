"""Laplace and Gaussian noise on trial, also in shares inside a sum: the proven epsilon must stand.

Neighbours are as far apart as the stated sensitivity allows.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.canaries import CanarySubject
from blindsight.audit.scores import known
from blindsight.audit.subject import Claim, Draw, Subject
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from blindsight.rng import ByteSource
from blindsight.sums.noise import NoisePlan


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


def summed_noise(epsilon: float, delta: float, *, noise_share: float = 1.0) -> CanarySubject:
    """Return four sums by five owners, one of whom drops out and one of whom tells its shares; each canary a record."""
    plan = NoisePlan.calibrated(
        epsilon=epsilon,
        delta=delta,
        unit="record",
        clip=1.0,
        members=5,
        drop_outs=1,
        colluders=1,
        dimension=10_000,
        rounds=4,
        largest=2**28,
        reach=100.0,
    )
    return planned_noise(plan, delta, noise_share=noise_share)


def planned_noise(plan: NoisePlan, delta: float, *, noise_share: float = 1.0) -> CanarySubject:
    """Return the sums of a run with noise: each canary is one unit, as long as may be, at a place of its own.

    Only the shares that the plan counts on are in the sums: the server has taken off what colluders told it. It looks
    at the mean of all rounds. With a `noise_share` below 1 shares are smaller than they should be.
    """
    planted = "" if noise_share == 1 else f" with {noise_share:g} of the noise that it takes"
    less = replace(plan, sigma=max(1, round(plan.sigma * noise_share)))

    def run(coins: NDArray[np.bool_], source: ByteSource) -> NDArray[np.float64]:
        sums, units = replace(less, dimension=coins.size), plan.clip * coins.astype(np.float64)
        total = sum(
            (
                sums.contribution([units] if member == 0 else [], source)
                for _ in range(plan.rounds)
                for member in range(plan.honest)
            ),
            np.zeros(coins.size, dtype=np.int64),
        )
        return sums.values(total) / (plan.clip * plan.rounds) - 0.5

    return CanarySubject(
        claim=_claim(f"noise inside {plan.rounds} sums{planted}", plan.epsilon(delta), delta, plan.unit),
        run=run,
        share=0.1,
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
