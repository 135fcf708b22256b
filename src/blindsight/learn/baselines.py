"""What DPHE is compared with: two private methods that add noise, owners on their own, and all data in one place.

*PRR10.* Pathak, Rane & Raj, "Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers", NIPS 2010.
Every owner trains an L2-regularised logistic regression; the mean of the classifiers is released with Laplace noise of
scale 2 / (n_(1) epsilon lambda) on every weight, n_(1) being the samples of the smallest owner. What is proven of it:

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

Both need |x| <= 1. `clip` scales every row of features down to that length, and divides by it; with None features are
taken as they come, as the DPHE paper's experiments on standardised features suggest, and nothing is proven.
Class labels are used as they are: also classes an owner has never seen are trained, or which ones would leak.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from blindsight.dp.accounting import compose
from blindsight.dp.losses import GaussianLoss, LaplaceLoss, check_positive
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from blindsight.errors import InputError
from blindsight.learn.descent import Loss, Problem, descend, margin_loss
from blindsight.learn.linear import LinearTraining, train
from blindsight.learn.linearmodel import Array, Floats, Signs, check_features, check_signs
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.statement import Claim, PrivacyStatement, randomness_of

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
    regularisation: float = 0.01,
    source: ByteSource = system_bytes,
) -> PrivateModel:
    """Average the owners' logistic regressions and add Laplace noise (PRR10).

    `epsilon` is the paper's, per binary classifier; `delta` is where the statement adds up the classes (0: pure).
    """
    check_positive("epsilon", epsilon)
    check_positive("regularisation", regularisation)
    data = _checked(owners)
    lengths = [len(X) for X, _ in data]
    problems = [_problem(X, signs, clip, "logistic", regularisation) for X, signs in data]
    models = [_minimum(problem) for problem in problems]
    classes, columns = models[0].shape
    scale = 2 / (min(lengths) * epsilon * regularisation)  # PRR10, section 3.3
    euclidean = (2 / min(lengths) + 2 * _LEFT_OVER) / regularisation
    sensitivity = math.sqrt(columns) * euclidean / len(data)
    mechanism = LaplaceMechanism(sensitivity=sensitivity, epsilon=sensitivity / scale)
    released = np.array([mechanism.release(row, source) for row in np.mean(models, axis=0)])
    proven = compose([LaplaceLoss(mechanism.epsilon, count=classes)], delta=delta)
    statement = _statement(
        f"mean of {len(data)} logistic regressions with Laplace noise of scale {scale:.6g}",
        None if clip is None else (proven.epsilon, delta, proven.accountant),
        Claim(
            "Pathak, Rane & Raj 2010",
            f"epsilon = {epsilon:g}",
            f"it is per binary classifier and for L1 sensitivity: {classes} classifiers of {columns} weights share a record",
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
    regularisation: float = 0.01,
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
    shape = (data[0][1].shape[1], problems[0].samples.shape[1])
    total = sum(len(X) for X, _ in data)
    gaussians = [_gradient_noise(len(X), shape[0], epsilon, delta) for X, _ in data]
    laplace = LaplaceMechanism(sensitivity=2.0, epsilon=epsilon)
    tilts = [laplace.release(np.zeros(shape), source) for _ in data]  # one linear term per owner, kept for all rounds
    curvature = problems[0].loss.curvature * (1.0 if clip is not None else _largest_eigenvalue(problems))
    weights = np.zeros(shape)
    for number in range(rounds):
        gradient = regularisation * weights
        for problem, tilt, noise in zip(problems, tilts, gaussians, strict=True):
            n = len(problem.samples)
            gradient += noise.release(problem.gradient(weights) + tilt / n, source) * (n / total)
        weights = weights - gradient / (curvature + regularisation * (number + 1))  # 1/L first, 1/(lambda t) later
    worst = min(noise.loss.noise_multiplier for noise in gaussians)
    proven = compose([GaussianLoss(worst, count=rounds)], delta=delta)
    sigma = max(noise.sigma for noise in gaussians)
    statement = _statement(
        f"{rounds} gradients of {len(data)} owners with Gaussian noise of deviation {sigma:.6g} and a fixed Laplace term",
        None if clip is None else (proven.epsilon, delta, proven.accountant),
        Claim(
            "Rajkumar & Agarwal 2012",
            f"epsilon = {epsilon:g}, delta = {delta:g}",
            f"it is per gradient of one binary classifier: a record is in {rounds} gradients of {shape[0]} classifiers",
        ),
        {"aggregator": "every noisy gradient of every owner", "anyone else": "the classifier of every round"},
        source,
    )
    return PrivateModel(_unscaled(weights, clip), sigma, statement)


def _gradient_noise(samples: int, classes: int, epsilon: float, delta: float) -> GaussianMechanism:
    """Return the noise on one owner's gradients: one record moves each class by 2 / n, all together by sqrt(C) 2 / n."""
    sigma = 2 / samples * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    return GaussianMechanism(sensitivity=math.sqrt(classes) * 2 / samples, sigma=sigma)


def _checked(owners: Sequence[Owner]) -> list[tuple[Floats, Signs]]:
    if not owners:
        raise InputError("there must be at least one owner.")
    data = []
    for X, signs in owners:
        features = check_features(X)
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


def _largest_eigenvalue(problems: Sequence[Problem]) -> float:
    """Return the curvature of the common objective where no clipping bounds it (and nothing is proven anyway)."""
    return max(float(problem.smoothness(len(problem.samples)).max()) / problem.loss.curvature for problem in problems)


def _unscaled(weights: Array, clip: float | None) -> Array:
    """Return the weights for features as they came."""
    if clip is None:
        return weights
    return np.column_stack([weights[:, :-1] / clip, weights[:, -1]]) / _ROOT_2


def _statement(
    mechanism: str,
    proven: tuple[float, float, str] | None,
    claim: Claim,
    who_sees: dict[str, str],
    source: ByteSource,
) -> PrivacyStatement:
    """Say what is proven: (epsilon, delta, accountant), or None where the length of the features has no bound."""
    if proven is None:
        claim = Claim(
            claim.source, claim.claimed, "features were not clipped, so one record can move the model without bound"
        )
    epsilon, delta, accountant = proven or (math.inf, None, None)
    return PrivacyStatement(
        guarantee="none" if proven is None else "differential privacy",
        mechanism=mechanism,
        unit="record",
        epsilon=epsilon,
        delta=delta,
        neighbours="replace",
        accountant=accountant,
        randomness=randomness_of(source),
        who_sees={"owners": "their own pictures and labels", **who_sees},
        assumptions=("every picture belongs to one owner", "the numbers of samples are public"),
        not_protected=(
            "a person on several pictures: the unit is one picture",
            "what is true of pictures in general, one picture's part in it or not",
        ),
        claim=claim,
    )
