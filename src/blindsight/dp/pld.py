"""Composition of privacy loss distributions on a grid that suits the losses, with every error on the safe side.

The library dp-accounting does the mathematics: distributions rounded towards more loss (Doroshenko et al., "Connect the
dots", 2022), composed by Fourier transforms (Koskela, Jälkö and Honkela 2020). Rounding inside those transforms could
still make a probability too small by about 1e-15 per composed release; ten times that, and at least 1e-10, is taken
off the delta that is asked for, or added to the delta that is answered. Where a list of losses cannot be resolved the
answer is infinity, which is no figure at all, never a guess.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from blindsight.dp.gaussian import EPSILON_SLACK, gaussian_epsilon
from blindsight.dp.losses import BoundedLoss, GaussianLoss, LaplaceLoss, Loss, SampledGaussianLoss, given_delta

_DELTA_SLACK = 1e-10
_GRID_POINTS = 100_000  # resolution of the loss distribution: about 0.2 s a composition
_TAIL = 20  # standard deviations of loss that the grid should span


@dataclass(frozen=True)
class _Parts:
    """A list of losses as the grid can take it: `gridded` on the grid, the others added to the result as they are."""

    gridded: list[Loss]
    multiplier: float  # of the one Gaussian release that stands for all of them; infinite without any
    interval: float
    added_epsilon: float
    added_delta: float
    slack: float  # how much delta the rounding of the Fourier transforms may hide

    @property
    def resolved(self) -> bool:
        """Whether the grid resolves what it is given; the other accountants answer where it does not."""
        sampled = [loss for loss in self.gridded if isinstance(loss, SampledGaussianLoss)]
        fine = self.multiplier >= 0.02 and all(_span(loss) > 20 * self.interval for loss in sampled)
        return fine and self.slack <= 1e-7 and given_delta(self.gridded) < 1


def _parts(losses: list[Loss]) -> _Parts:
    """Sort losses by what suits them: Gaussian ones merge exactly, very small and very large ones are simply added."""
    precisions, others = [], []
    for loss in losses:
        if isinstance(loss, GaussianLoss) or (isinstance(loss, SampledGaussianLoss) and _is_hardly_sampled(loss)):
            precisions.append(loss.count / loss.noise_multiplier**2)  # 1 / sigma^2 of independent releases add up
        else:
            others.append(loss)
    multiplier = 1 / math.sqrt(math.fsum(precisions)) if precisions else math.inf
    width = _TAIL / multiplier + math.fsum(map(_width, others))
    interval = max(width / _GRID_POINTS, 1e-6)  # a finer grid would drown in rounding
    added = [
        loss
        for loss in others
        if isinstance(loss, LaplaceLoss | BoundedLoss) and not 2 * interval <= loss.epsilon <= 500
    ]
    return _Parts(
        gridded=[loss for loss in others if loss not in added],
        multiplier=multiplier,
        interval=interval,
        added_epsilon=math.fsum(loss.count * loss.epsilon for loss in added),
        added_delta=given_delta(added),
        slack=max(_DELTA_SLACK, 1e-14 * sum(loss.count for loss in others)),
    )


def pld_epsilon(losses: list[Loss], delta: float) -> float:
    """Return an epsilon proven at `delta`, or infinity where there is no figure."""
    parts = _parts(losses)
    left = delta - parts.added_delta
    if not parts.gridded and left > 0:  # the same composition in closed form
        return parts.added_epsilon + gaussian_epsilon(parts.multiplier, left)
    if left <= parts.slack or not parts.resolved:
        return math.inf
    found = _distribution(parts).get_epsilon_for_delta(left - parts.slack)
    return parts.added_epsilon + float(found) + EPSILON_SLACK


def pld_delta(losses: list[Loss], epsilon: float) -> float:
    """Return a delta proven at `epsilon`, or 1 where there is no figure."""
    parts = _parts(losses)
    left = epsilon - parts.added_epsilon
    if left < 0 or not parts.resolved:
        return 1.0
    found = float(_distribution(parts).get_delta_for_epsilon(left - EPSILON_SLACK))
    return min(1.0, found + parts.added_delta + parts.slack)


def _distribution(parts: _Parts) -> Any:
    """Compose losses on one grid, always towards more loss."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    composed = pld.identity(parts.interval)
    if parts.multiplier < math.inf:
        composed = pld.from_gaussian_mechanism(parts.multiplier, value_discretization_interval=parts.interval)
    for loss in parts.gridded:
        composed = composed.compose(_repeat(_single_distribution(loss, parts.interval), loss.count))
    return composed


def _single_distribution(loss: Loss, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if isinstance(loss, BoundedLoss):
        return _bounded_distribution(loss, interval)
    if isinstance(loss, LaplaceLoss):
        return pld.from_laplace_mechanism(1 / loss.epsilon, value_discretization_interval=interval)
    assert isinstance(loss, SampledGaussianLoss)
    return pld.from_gaussian_mechanism(
        loss.noise_multiplier, value_discretization_interval=interval, sampling_prob=loss.sampling_rate
    )


def _bounded_distribution(loss: BoundedLoss, interval: float) -> Any:
    """Return the distribution of randomised response that fails openly with probability delta, on the grid.

    Its curve delta(x) has corners at -epsilon and epsilon and is a straight line in e^x elsewhere, so the line through
    its values at the grid points around the corners lies on or above it (Doroshenko et al. 2022).
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    corners = np.array([-loss.epsilon, loss.epsilon]) / interval
    grid = np.unique(np.concatenate([np.floor(corners), np.ceil(corners)]).astype(np.int64))
    log_ratio = grid * interval
    truth = 1 / (1 + math.exp(-loss.epsilon))
    curve = truth * -np.expm1(np.minimum(log_ratio - loss.epsilon, 0.0))
    curve += (1 - truth) * -np.expm1(np.minimum(log_ratio + loss.epsilon, 0.0))
    deltas = loss.delta + (1 - loss.delta) * curve
    with np.errstate(over="ignore"):  # a step of more than e^709 between grid points: its inverse is 0, as it should be
        points = pld_pmf.create_pmf_pessimistic_connect_dots(interval, grid, deltas)
    return pld.PrivacyLossDistribution(points.to_dense_pmf())


def _repeat(single: Any, count: int) -> Any:
    """Compose `count` copies; in two steps when there are many, as the library raises a number to the power `count`."""
    if count <= 1000:
        return single.self_compose(count)
    thousands = single.self_compose(1000, 1e-18).self_compose(count // 1000)
    return thousands.compose(single.self_compose(count % 1000)) if count % 1000 else thousands


def _is_hardly_sampled(loss: SampledGaussianLoss) -> bool:
    """Whether sampling does next to nothing: it takes everybody, or there is hardly noise. Leaving it out is safe."""
    return loss.sampling_rate == 1 or loss.noise_multiplier < 0.05


def _span(loss: SampledGaussianLoss) -> float:
    """Estimate the span of the losses of one release."""
    return 0.5 / loss.noise_multiplier**2 + _TAIL / loss.noise_multiplier


def _width(loss: Loss) -> float:
    """Estimate the span of losses to resolve. It sets accuracy and time, never whether the bound holds."""
    if isinstance(loss, LaplaceLoss | BoundedLoss):
        return loss.epsilon * max(2.0, min(2.0 * loss.count, _TAIL * math.sqrt(loss.count)))
    assert isinstance(loss, SampledGaussianLoss)
    spread = min(loss.sampling_rate * math.sqrt(math.expm1(loss.noise_multiplier**-2)), 1 / loss.noise_multiplier)
    return max(_span(loss), _TAIL * spread * math.sqrt(loss.count))
