"""Learning with a proven epsilon: noise inside the sum, a trusted curator of all records, the papers' noise, none.

All but the papers' take the same steps in the same public space (`blindsight.learn.private`); they differ in who adds
which noise. Noise comes from the operating system, whatever the seed.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods import noisy
from benchmarks.methods.owners import OwnersData
from blindsight.data.features import Standardiser
from blindsight.dp.accounting import LaplaceLoss, epsilon_of, gaussian_sigma
from blindsight.dp.mechanisms import GaussianMechanism
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.model import decision_function
from blindsight.learn.private import Privacy, PrivateLearner, PublicSpace, public_start, targets
from blindsight.sums.terms import threshold

Scores = NDArray[np.floating[Any]]


def summed(given: OwnersData, *, seed: int, rounds: int, epsilon: float, delta: float, against: str) -> Scores:
    """Learn by sums with noise, calibrated `against` nobody, "one" colluder and drop-outs, or "all" other owners."""
    owners = len(given.owners)
    colluders, drop_outs = {
        "nobody": (0, 0),
        "one": (1, owners - threshold(owners)),
        "all": (owners - 1, 0),
    }[against]
    learner = FederatedClassifier(
        "plain",
        rounds=rounds,
        epsilon=epsilon,
        delta=delta,
        unit="record",
        colluders=colluders,
        drop_outs=drop_outs,
        random_state=seed,
    )
    return learner.fit(list(given.owners), public=given.public).decision_function(given.test)


def curator(given: OwnersData, *, seed: int, rounds: int, epsilon: float, delta: float) -> Scores:
    """Descend on all records in one place, with Gaussian noise on the sum of their clipped gradients."""
    X, y = (np.concatenate(parts) for parts in zip(*given.owners, strict=True))
    standardiser, labels = Standardiser.fit(given.public[0]), given.labels
    public = standardiser.apply(given.public[0])
    space = PublicSpace.fit(public)
    privacy = Privacy(epsilon=epsilon, delta=delta, unit="record", colluders=0, drop_outs=0)
    plan = privacy.plan(owners=1, dimension=labels.rows * space.size, rounds=rounds, records=len(X))
    learner = PrivateLearner(
        {"curator": lambda: (X, y)}, labels, standardiser, space, plan, len(X), (public, given.public[1]), None
    )
    multiplier = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0) * float(np.sqrt(rounds))
    mechanism = GaussianMechanism(sensitivity=plan.clip, sigma=multiplier * plan.clip)
    weights = learner.first(seed)
    for _ in range(rounds):
        noisy_sum = mechanism.release(learner.gradient(weights, *learner.records_of("curator")))
        weights = learner.stepped(weights, noisy_sum)
    return decision_function(space.weights(weights), standardiser.apply(given.test))


def public(given: OwnersData, *, seed: int) -> Scores:
    """Learn from the public data alone, as all of these begin."""
    standardiser = Standardiser.fit(given.public[0])
    rows = standardiser.apply(given.public[0])
    space = PublicSpace.fit(rows)
    start = public_start(given.labels, space.rows(rows), targets(given.labels, given.public[1]))
    return decision_function(space.weights(start), standardiser.apply(given.test))


def prr10(given: OwnersData, *, seed: int, epsilon: float, delta: float) -> Scores:
    """PRR10, features clipped, with the noise that proves epsilon for a record; the paper's own counts one weight."""
    classes, columns = given.labels.rows, given.test.shape[1] + 1
    smallest = min(len(X) for X, _ in given.with_public)
    left, right = 0.0, epsilon
    for _ in range(40):  # the epsilon of one classifier
        middle = (left + right) / 2
        fits = middle > 0 and epsilon_of([LaplaceLoss(middle, count=classes)], delta=delta) <= epsilon
        left, right = (middle, right) if fits else (left, middle)
    claimed = left * len(given.owners) / (math.sqrt(columns) * (1 + 1e-6 * smallest))
    return noisy.prr10(given, seed=seed, clipped=True, epsilon=claimed, delta=delta)


def ra12(given: OwnersData, *, seed: int, epsilon: float, delta: float) -> Scores:
    """RA12, features clipped, with the noise that proves epsilon for a record; the paper's own counts one gradient."""
    rounds = 20
    multiplier = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0) * math.sqrt(rounds)
    claimed = math.sqrt(2 * math.log(1.25 / delta)) / (math.sqrt(given.labels.rows) * multiplier)
    return noisy.ra12(given, seed=seed, clipped=True, epsilon=claimed, delta=delta, rounds=rounds)


def none(given: OwnersData, *, seed: int, rounds: int) -> Scores:
    """Learn by sums without noise."""
    learner = FederatedClassifier("plain", rounds=rounds, selection="none", sparsity=0.0, random_state=seed)
    return learner.fit(list(given.owners), public=given.public).decision_function(given.test)
