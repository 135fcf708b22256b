"""Minimise many regularised binary problems at once: one classifier per row of a matrix, one pass of matrix products.

For class c with weights w (the last one is the bias), samples z_i = (x_i, 1), signs s_i in {-1, 0, +1} (0: unknown) and
sample weights v_i that sum to one, the minimiser of

    J_c(w) = sum_i v_i loss(s_i w.z_i)  +  sum_j ridge_j/2 w_j^2  +  sum_j lasso_j |w_j - a_j| + pull_j/2 (w_j - a_j)^2

is approached by stochastic proximal gradient steps on mini-batches whose noise is removed: each pass starts with the
gradient of all samples, and every mini-batch only corrects it (Johnson & Zhang 2013; with the proximal step Xiao &
Zhang 2014, with momentum Nitanda 2014). So the iterates converge to the minimiser with a constant step, and with one
batch per pass the method is FISTA (Beck & Teboulle 2009). Momentum restarts per class when it points uphill
(O'Donoghue & Candes 2015); a class whose objective rises from one pass to the next gets half its step.

The step is 1/L, where L bounds the curvature that a mini-batch of size b sees (expected smoothness, Gower et al. 2019):
L = curvature * (largest eigenvalue + (n - b)/(b (n - 1)) * n max_i v_i |z_i|^2) + ridge + pull.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, UnknownNameError

Floats = NDArray[np.floating[Any]]
Loss = Literal["hinge", "squared hinge", "logistic"]
"""Which loss of the margin m: max(0, 1 - m) smoothed at its corner, its square halved, or ln(1 + e^-m)."""


@dataclass(frozen=True)
class MarginLoss:
    """A convex loss of the margin with its derivative and the largest second derivative."""

    value: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    curvature: float


def margin_loss(name: Loss, smoothing: float) -> MarginLoss:
    """Return a loss by name. The hinge is rounded off over `smoothing` below margin 1: off by at most smoothing / 2.

    >>> float(margin_loss("hinge", 0.5).value(np.array([-1.0]))[0])  # the hinge would give 2
    1.75
    """
    if name not in get_args(Loss):
        raise UnknownNameError("loss", name, get_args(Loss))
    if name == "logistic":
        return MarginLoss(lambda m: np.logaddexp(0, -m), lambda m: -0.5 * (1 - np.tanh(m / 2)), 0.25)
    if name == "squared hinge":
        return MarginLoss(lambda m: 0.5 * np.maximum(1 - m, 0) ** 2, lambda m: -np.maximum(1 - m, 0), 1.0)
    if not 0 < smoothing <= 1:
        raise InputError(f"smoothing must be in (0, 1]; got {smoothing}.")

    def value(margin: Floats) -> Floats:
        short = np.maximum(1 - margin, 0)
        rounded: Floats = np.where(short < smoothing, short**2 / (2 * smoothing), short - smoothing / 2)
        return rounded

    return MarginLoss(value, lambda m: -np.clip((1 - m) / smoothing, 0, 1), 1 / smoothing)


@dataclass(frozen=True, eq=False)
class Problem:
    """The samples, what is known of them and the penalties; `signs` and `sample_weights` are (n, classes).

    Penalties are one number per column of the weights; `anchor` is what `lasso` and `pull` draw the weights to.
    """

    samples: Floats  # z, (n, columns)
    signs: Floats
    sample_weights: Floats
    loss: MarginLoss
    ridge: Floats
    lasso: Floats
    pull: Floats
    anchor: Floats

    def objective(self, weights: Floats, scores: Floats | None = None) -> Floats:
        """Return J_c(w) for every class; `scores` saves computing them again."""
        scores = self.samples @ weights.T if scores is None else scores
        losses: Floats = np.sum(self.sample_weights * self.loss.value(self.signs * scores), axis=0)
        away = weights - self.anchor
        penalty = weights**2 @ (self.ridge / 2) + np.abs(away) @ self.lasso + away**2 @ (self.pull / 2)
        return losses + penalty

    def gradient(self, weights: Floats) -> Floats:
        """Return the gradient of all of J but the lasso."""
        gradient: Floats = self.slopes(self.samples @ weights.T).T @ self.samples
        return gradient + self.penalty_gradient(weights)

    def slopes(self, scores: Floats, rows: Any = slice(None)) -> Floats:
        """Return the derivative of the weighted loss with respect to the scores of some rows."""
        signs = self.signs[rows]
        slopes: Floats = self.sample_weights[rows] * signs * self.loss.slope(signs * scores)
        return slopes

    def penalty_gradient(self, weights: Floats) -> Floats:
        """Return the gradient of the square penalties."""
        return self.ridge * weights + self.pull * (weights - self.anchor)

    def shrink(self, weights: Floats, step: Floats) -> Floats:
        """Return the proximal point of the lasso: the distance to the anchor soft-thresholded by step * lasso."""
        away = weights - self.anchor
        kept: Floats = np.sign(away) * np.maximum(np.abs(away) - step * self.lasso, 0)
        return self.anchor + kept

    def smoothness(self, batch: int, iterations: int = 20) -> Floats:
        """Return, per class, a bound of the curvature that mini-batches of this size see (see the module)."""
        n = len(self.samples)
        largest = self._largest_eigenvalues(iterations)
        spikes = (self.sample_weights * np.sum(self.samples**2, axis=1)[:, None]).max(axis=0)
        share = n * (n - batch) / (batch * (n - 1)) if batch < n else 0.0
        bound: Floats = self.loss.curvature * (largest + share * spikes) + (self.ridge + self.pull).max()
        return bound

    def _largest_eigenvalues(self, iterations: int) -> Floats:
        """Estimate the largest eigenvalue of sum_i v_i z_i z_i^T for every class, by power iteration."""
        weights = self.sample_weights
        if (weights == weights[:, :1]).all():
            weights = weights[:, :1]  # all classes weigh the samples alike: one eigenvalue serves them all
        vectors: Floats = (weights.T @ np.abs(self.samples)) + np.finfo(self.samples.dtype).tiny
        norms = np.zeros(len(vectors), dtype=self.samples.dtype)
        for _ in range(iterations):
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1), np.finfo(vectors.dtype).tiny)[:, None]
            vectors = (weights * (self.samples @ vectors.T)).T @ self.samples
            norms = np.linalg.norm(vectors, axis=1)
        return np.broadcast_to(1.05 * norms, (self.signs.shape[1],))  # 1.05: power iteration stops below the limit


@dataclass(frozen=True, eq=False)
class Descent:
    """Where the descent ended: the weights, J_c at the start of the last pass, and the passes made."""

    weights: Floats
    objective: Floats
    passes: int


def descend(
    problem: Problem,
    start: Floats,
    generator: np.random.Generator,
    *,
    passes: int,
    batch_size: int,
    tolerance: float = 0.0,
) -> Descent:
    """Minimise from `start` in at most `passes` passes over the samples, or until no step moves far.

    It stops early when a full step at the start of a pass, divided by its length, is at most `tolerance` in every class
    (the norm of the gradient, corrected for the lasso).
    """
    if passes < 1 or batch_size < 1:
        raise InputError(f"passes and batch_size must be at least 1; got {passes} and {batch_size}.")
    n = len(problem.samples)
    batches = math.ceil(n / batch_size)
    step = (1 / problem.smoothness(math.ceil(n / batches)))[:, None].astype(start.dtype)
    weights = ahead = start
    age = np.ones_like(step)
    objective = np.full(len(start), np.inf)
    for done in range(1, passes + 1):
        before, scores = objective, problem.samples @ ahead.T
        objective = problem.objective(ahead, scores)
        if batches > 1:
            step = np.where((objective > before)[:, None], step / 2, step)
        slopes = problem.slopes(scores)
        gradient: Floats = slopes.T @ problem.samples
        for number, rows in enumerate(_batches(n, batches, generator)):
            direction = gradient + problem.penalty_gradient(ahead)
            if number:  # in the first batch `ahead` is still where the gradient was taken
                moved = problem.slopes(problem.samples[rows] @ ahead.T, rows) - slopes[rows]
                direction += (n / len(rows)) * (moved.T @ problem.samples[rows])
            stepped = problem.shrink(ahead - step * direction, step)
            if number == 0 and (np.linalg.norm(stepped - ahead, axis=1) <= tolerance * step[:, 0]).all():
                return Descent(stepped, objective, done)
            ahead, age = _overshoot(ahead, stepped, weights, age)
            weights = stepped
    return Descent(weights, objective, passes)


def _overshoot(ahead: Floats, stepped: Floats, before: Floats, age: Floats) -> tuple[Floats, Floats]:
    """Return where momentum leads from the step just made, and its age; it starts anew where it points uphill."""
    uphill = np.sum((ahead - stepped) * (stepped - before), axis=1, keepdims=True) > 0
    age = np.where(uphill, np.ones_like(age), age)
    older = (1 + np.sqrt(1 + 4 * age**2)) / 2
    return stepped + (age - 1) / older * (stepped - before), older


def _batches(n: int, batches: int, generator: np.random.Generator) -> list[Any]:
    """Split the rows into batches of nearly equal size in random order; a single batch is all rows as they are."""
    if batches == 1:
        return [slice(None)]
    return np.array_split(generator.permutation(n), batches)
