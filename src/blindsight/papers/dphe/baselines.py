"""The baselines of section 3.1, Tables 1, 3 and 4: two methods that add noise, each owner alone, all data in one place.

*PRR10.* Pathak, Rane & Raj, "Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers", NIPS
2010. Every owner trains an L2-regularised logistic regression; the mean of the classifiers is released with Laplace
noise of scale 2 / (n_(1) epsilon lambda) on every weight, n_(1) being the samples of the smallest owner. Proven is:

- One record moves the minimiser of its owner by at most 2 / (n lambda) in *Euclidean* length if |x| <= 1 (Chaudhuri &
  Monteleoni 2008), and the mean of K owners by a K-th of that: the published noise is K times what one owner needs.
- Independent Laplace noise pays for L1 length, which is up to sqrt(D + 1) times the Euclidean one. So one binary
  classifier costs epsilon sqrt(D + 1) / K, not epsilon.
- One picture takes part in every one-vs-rest problem, and the costs of all classes add up.
- The bound is one of exact minimisers; a gradient of length g left over adds 2 g / lambda, which is counted.

*RA12.* Rajkumar & Agarwal, "A Differentially Private Stochastic Gradient Descent Algorithm for Multiparty
Classification", AISTATS 2012: all owners descend on the common objective; each perturbs its own part of it once by a
random linear term (Laplace) and every gradient it sends by fresh Gaussian noise. This follows that description; the
Gaussian is the textbook's for one (epsilon, delta) release, sqrt(2 ln(1.25 / delta)) 2 / (n epsilon). What is proven:

- The Laplace term is drawn once and is the same in all rounds, so differences of gradients cancel it: no proof here
  rests on it. The Gaussian noise alone pays for all rounds and all classes, counted by privacy loss distributions.

Both need |x| <= 1. `clip` scales every row of features down to that length, and divides by it. With None features are
taken as they come, and nothing is proven: on Caltech-101 (standardised features of length 36 on average, epsilon 0.2,
delta 0.05, five owners) this gives about 40% and 90% class-average accuracy, not far from the 41.6% and 83.8% that the
DPHE paper reports for them without naming lambda; with features clipped to 36 both are near chance (1 to 3%).
Also classes that an owner has never seen are trained, or which ones they are would leak.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from blindsight.dp.accounting import Composition, GaussianLoss, LaplaceLoss, check_positive, compose
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from blindsight.errors import InputError
from blindsight.learn.linear import LinearTraining, Loss, Problem, descend, margin_loss, train
from blindsight.learn.model import Array, Floats, Signs, check_signs
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.statement import Claim, PrivacyStatement, randomness_of
from blindsight.validation import check_features

Owner = tuple[ArrayLike, ArrayLike]
"""One owner's features (n, D) and signs (n, classes)."""

_LEFT_OVER = 1e-6  # the gradient at which a minimum counts as reached
_ROOT_2 = 1.4142135624  # a little more than the square root, so that rounding leaves no row longer than 1


@dataclass(frozen=True, eq=False)
class PrivateModel:
    """Weights (classes, D + 1) made with noise, the noise on each of them, and what is proven."""

    weights: Array
    noise: float  # Laplace scale (PRR10) or standard deviation of the smallest owner's gradients (RA12)
    statement: PrivacyStatement


def pooled(owners: Sequence[Owner], training: LinearTraining, *, random_state: int | None = None) -> Array:
    """Return the classifier of all data in one place: no privacy, the upper bound."""
    data = _checked(owners)
    X, signs = (np.concatenate(parts) for parts in zip(*data, strict=True))
    return train(X, signs, training, random_state=random_state)


def local_only(owners: Sequence[Owner], training: LinearTraining, *, random_state: int | None = None) -> list[Array]:
    """Return each owner's own classifier: nothing is shared, the lower bound (report the mean of their scores)."""
    return [train(X, signs, training, random_state=random_state) for X, signs in _checked(owners)]


def prr10(
    owners: Sequence[Owner],
    *,
    epsilon: float,
    delta: float,
    clip: float | None,
    regularisation: float = 1.0,
    source: ByteSource = system_bytes,
) -> PrivateModel:
    """Average the owners' logistic regressions and add Laplace noise (PRR10).

    `epsilon` is the paper's, per binary classifier; `delta` is where the statement adds up the classes (0: pure).
    """
    check_positive("epsilon", epsilon)
    check_positive("regularisation", regularisation)
    data = _checked(owners)
    smallest = min(len(X) for X, _ in data)
    models = [_minimum(_problem(X, signs, clip, "logistic", regularisation)) for X, signs in data]
    classes, columns = models[0].shape
    scale = 2 / (smallest * epsilon * regularisation)
    euclidean = (2 / smallest + 2 * _LEFT_OVER) / (regularisation * len(data))
    sensitivity = math.sqrt(columns) * euclidean
    mechanism = LaplaceMechanism(sensitivity=sensitivity, epsilon=sensitivity / scale)
    released = np.array([mechanism.release(row, source) for row in np.mean(models, axis=0)])
    statement = _statement(
        f"mean of {len(data)} logistic regressions with Laplace noise of scale {scale:.6g}",
        None if clip is None else compose([LaplaceLoss(mechanism.epsilon, count=classes)], delta=delta),
        Claim(
            "Pathak, Rane & Raj 2010",
            f"epsilon = {epsilon:g}",
            f"it counts one binary classifier and Euclidean sensitivity; a record is in {classes} classifiers, and "
            f"Laplace noise on {columns} weights pays for L1 sensitivity",
        ),
        {"aggregator": "encrypted classifiers and noise", "anyone else": "the noisy mean classifier"},
        source,
    )
    return PrivateModel(_unscaled(released, clip), scale, statement)


def ra12(
    owners: Sequence[Owner],
    *,
    epsilon: float,
    delta: float,
    clip: float | None,
    regularisation: float = 0.1,
    rounds: int = 20,
    source: ByteSource = system_bytes,
) -> PrivateModel:
    """Descend together on a linear SVM (hinge, smoothed) with noisy gradients (RA12).

    `epsilon` and `delta` are the paper's, per gradient and binary classifier; the statement adds up all of them at the
    same `delta`.
    """
    check_positive("epsilon", epsilon)
    check_positive("regularisation", regularisation)
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1); got {delta}. RA12 has no pure form.")
    if rounds < 1:
        raise InputError(f"rounds must be at least 1; got {rounds}.")
    data = _checked(owners)
    problems = [_problem(X, signs, clip, "hinge", 0.0) for X, signs in data]
    classes = data[0][1].shape[1]
    noises = [_gradient_noise(len(X), classes, epsilon, delta) for X, _ in data]
    tilt = LaplaceMechanism(sensitivity=2.0, epsilon=epsilon)
    steps = _steps(problems, regularisation, rounds, bounded=clip is not None)
    weights = _noisy_descent(problems, noises, tilt, regularisation, steps, source)
    sigma = max(noise.sigma for noise in noises)
    multiplier = min(noise.loss.noise_multiplier for noise in noises)
    statement = _statement(
        f"{rounds} gradients of each of {len(data)} owners with Gaussian noise of deviation up to {sigma:.6g}",
        None if clip is None else compose([GaussianLoss(multiplier, count=rounds)], delta=delta),
        Claim(
            "Rajkumar & Agarwal 2012",
            f"epsilon = {epsilon:g}, delta = {delta:g}",
            f"it counts one gradient of one binary classifier; a record is in {rounds} gradients of {classes}",
        ),
        {"aggregator": "every noisy gradient of every owner", "anyone else": "the classifier of every round"},
        source,
    )
    return PrivateModel(_unscaled(weights, clip), sigma, statement)


def _noisy_descent(
    problems: Sequence[Problem],
    noises: Sequence[GaussianMechanism],
    tilt: LaplaceMechanism,
    regularisation: float,
    steps: Sequence[float],
    source: ByteSource,
) -> Array:
    """Descend on the mean loss of all samples from gradients that owners send with noise."""
    weights = np.zeros(problems[0].anchor.shape)
    tilts = [tilt.release(weights, source) for _ in problems]  # one linear term per owner, kept for all rounds
    total = sum(len(problem.samples) for problem in problems)
    for step in steps:
        gradient = regularisation * weights
        for problem, linear, noise in zip(problems, tilts, noises, strict=True):
            n = len(problem.samples)
            gradient += n / total * noise.release(problem.gradient(weights) + linear / n, source)
        weights = weights - step * gradient
    return weights


def _steps(problems: Sequence[Problem], regularisation: float, rounds: int, *, bounded: bool) -> list[float]:
    """Return step lengths: one over the curvature at first, 1 / (lambda t) later.

    Rows of length 1 bound the curvature without looking at the data; without clipping it is measured.
    """
    curvature = problems[0].loss.curvature
    if not bounded:
        curvature = max(float(problem.smoothness(len(problem.samples)).max()) for problem in problems)
    return [1 / (curvature + regularisation * (t + 1)) for t in range(rounds)]


def _gradient_noise(samples: int, classes: int, epsilon: float, delta: float) -> GaussianMechanism:
    """Return the noise on one owner's gradients: a record moves that of each class by 2 / n, all by sqrt(C) 2 / n."""
    sigma = 2 / samples * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    return GaussianMechanism(sensitivity=math.sqrt(classes) * 2 / samples, sigma=sigma)


def _checked(owners: Sequence[Owner]) -> list[tuple[Floats, Signs]]:
    if not owners:
        raise InputError("there must be at least one owner.")
    data = []
    for X, signs in owners:
        features = check_features(X, precision="wide")
        data.append((features, check_signs(signs, len(features))))
    if len({(features.shape[1], known.shape[1]) for features, known in data}) > 1:
        raise InputError("all owners must have the same features and classes; got different numbers of columns.")
    return data


def _problem(X: Floats, signs: Signs, clip: float | None, loss: Loss, ridge: float) -> Problem:
    """Return the owner's problem over all classes, the bias an ordinary weight, rows (with it) of length at most 1."""
    rows = X.astype(np.float64)
    ones = np.ones(len(rows))
    if clip is not None:
        check_positive("clip", clip)
        rows = rows / (np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), clip) * _ROOT_2)
        ones = ones / _ROOT_2
    samples = np.column_stack([rows, ones])
    columns = np.ones(samples.shape[1])
    return Problem(
        samples=samples,
        signs=signs.astype(np.float64),
        sample_weights=np.full(signs.shape, 1 / len(rows)),
        loss=margin_loss(loss, smoothing=0.5),
        ridge=ridge * columns,
        lasso=0 * columns,
        pull=0 * columns,
        anchor=np.zeros((signs.shape[1], len(columns))),
    )


def _minimum(problem: Problem) -> Array:
    """Return the minimiser, up to a gradient of length `_LEFT_OVER` in every class."""
    batch = max(64, len(problem.samples) // 8)
    found = descend(
        problem, problem.anchor, science(0), passes=2000, batch_size=batch, tolerance=_LEFT_OVER
    ).weights.astype(np.float64)
    if np.linalg.norm(problem.gradient(found), axis=1).max() > _LEFT_OVER:
        raise InputError("a local classifier did not converge, so its sensitivity is unknown. Raise regularisation.")
    return found


def _unscaled(weights: Array, clip: float | None) -> Array:
    """Return the weights for features as they came."""
    if clip is None:
        return weights
    return np.column_stack([weights[:, :-1] / clip, weights[:, -1]]) / _ROOT_2


def _statement(
    mechanism: str, proven: Composition | None, claim: Claim, who_sees: dict[str, str], source: ByteSource
) -> PrivacyStatement:
    """Say what is proven; None where the length of the features has no bound."""
    if proven is None:
        claim = replace(claim, why_it_fails="features were not clipped: one record can move the model without bound")
    return PrivacyStatement(
        guarantee="none" if proven is None else "differential privacy",
        mechanism=mechanism,
        unit="record",
        epsilon=math.inf if proven is None else proven.epsilon,
        delta=None if proven is None else proven.delta,
        neighbours="replace",
        accountant=None if proven is None else proven.accountant,
        randomness=randomness_of(source),
        who_sees={"owners": "their own pictures and labels", **who_sees},
        assumptions=("every private picture belongs to one owner", "the numbers of samples are public"),
        not_protected=(
            "a person on several pictures: the unit is one picture",
            "what is true of pictures in general, one picture's part in it or not",
        ),
        claim=claim,
    )
