"""What several releases cost together: pure functions from a list of privacy losses to epsilon and delta.

*The guarantee.* Every figure is an upper bound: the releases together are (epsilon, delta)-differentially private.
Three accountants stand side by side: ``pld`` composes privacy loss distributions (`blindsight.dp.pld`) and is the
default, ``rdp`` composes Rényi divergences (Mironov 2017; converted to delta after Canonne, Kamath and Steinke 2020),
``basic`` adds epsilons and deltas. The mathematics of the first two is that of the library dp-accounting.

*Where this is more careful than the library.* Rounding in Fourier transforms is allowed for (`blindsight.dp.pld`), and
1e-9 is added to every epsilon but a sum of pure ones. A Rényi divergence that came out negative is dropped, where
the library answers epsilon = 0. Version 0.6 of its `PLDAccountant` counts repeated randomised response once; that class
is not used.

*What is assumed.* What is asked may depend on earlier answers; how much noise it gets must not (a noise level chosen by
looking at earlier answers needs a privacy filter, which only basic composition of pure losses is: Rogers et al. 2016).
All losses of one list are stated for one neighbouring relation; `blindsight.dp.ledger` sees to that. Sub-sampling
amplifies privacy for adding or removing one unit only.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.dp.gaussian import EPSILON_SLACK, gaussian_epsilon
from blindsight.dp.losses import BoundedLoss, GaussianLoss, LaplaceLoss, Loss, SampledGaussianLoss, given_delta
from blindsight.dp.pld import pld_delta, pld_epsilon
from blindsight.errors import InputError, UnknownNameError

Accountant = Literal["pld", "rdp", "basic"]


@dataclass(frozen=True)
class Composition:
    """What a list of losses amounts to at one `delta`, by three accountants. Each is a proof, so the least holds."""

    delta: float
    pld: float
    rdp: float
    basic: float

    @property
    def epsilon(self) -> float:
        """The smallest proven epsilon."""
        return min(self.pld, self.rdp, self.basic)

    @property
    def accountant(self) -> Accountant:
        """Which accountant proves `epsilon`; the simplest when several agree."""
        names: tuple[Accountant, ...] = ("basic", "rdp", "pld")
        return min(names, key=lambda name: float(getattr(self, name)))


def compose(losses: Iterable[Loss], *, delta: float) -> Composition:
    """Return what `losses` amount to at `delta`, by every accountant.

    >>> training = compose([SampledGaussianLoss(noise_multiplier=1.5, sampling_rate=0.04, count=2250)], delta=1e-5)
    >>> f"{training.rdp:.3f} by RDP, {training.pld:.3f} by PLD"
    '7.329 by RDP, 6.769 by PLD'
    """
    gathered = _gather(losses)
    pld, rdp, basic = (epsilon_of(gathered, delta=delta, accountant=name) for name in get_args(Accountant))
    return Composition(delta, pld, rdp, basic)


def epsilon_of(losses: Iterable[Loss], *, delta: float, accountant: Accountant = "pld") -> float:
    """Return an epsilon such that all `losses` together are (epsilon, delta)-differentially private.

    >>> thousand = [LaplaceLoss(epsilon=0.1, count=1000)]
    >>> round(epsilon_of(thousand, delta=1e-5), 1), epsilon_of(thousand, delta=0, accountant="basic")
    (17.4, 100.0)
    """
    if not 0 <= delta < 1:
        raise InputError(f"delta must be in [0, 1); got {delta}.")
    if accountant not in get_args(Accountant):
        raise UnknownNameError("accountant", accountant, get_args(Accountant))
    gathered = _gather(losses)
    if not gathered:
        return 0.0
    if any(isinstance(loss, BoundedLoss) and math.isinf(loss.epsilon) for loss in gathered):
        return math.inf
    if accountant == "basic" or (delta == 0 and all(loss.is_pure for loss in gathered)):
        return _basic_epsilon(gathered, delta)
    return pld_epsilon(gathered, delta) if accountant == "pld" else _rdp_epsilon(gathered, delta)


def delta_of(losses: Iterable[Loss], *, epsilon: float) -> float:
    """Return a delta such that all `losses` together are (epsilon, delta)-differentially private, by the PLD.

    >>> f"{delta_of([GaussianLoss(noise_multiplier=4.2247)], epsilon=1.0):.1e}"
    '1.0e-06'
    """
    if not 0 <= epsilon < math.inf:
        raise InputError(f"epsilon must be finite and at least 0; got {epsilon}.")
    gathered = _gather(losses)
    if not gathered or (all(loss.is_pure for loss in gathered) and _basic_epsilon(gathered, 0) <= epsilon):
        return 0.0
    if any(isinstance(loss, BoundedLoss) and math.isinf(loss.epsilon) for loss in gathered):
        return 1.0
    return pld_delta(gathered, epsilon)


def _gather(losses: Iterable[Loss]) -> list[Loss]:
    """Add up the counts of equal losses, so that each kind is composed once."""
    counts: Counter[Loss] = Counter()
    for loss in losses:
        counts[replace(loss, count=1)] += loss.count
    return [replace(loss, count=count) for loss, count in counts.items()]


# --- basic composition: epsilons and deltas add up (Dwork et al. 2006) ---


def _basic_epsilon(losses: list[Loss], delta: float) -> float:
    """Add the epsilons; Gaussian releases share in equal parts the delta that the others leave."""
    left = delta - given_delta(losses)
    sharers = sum(loss.count for loss in losses if isinstance(loss, GaussianLoss | SampledGaussianLoss))
    if left < 0 or (sharers and left == 0):
        return math.inf
    share = left / sharers if sharers else 0.0
    return math.fsum(loss.count * _single_epsilon(loss, share) for loss in losses)


def _single_epsilon(loss: Loss, delta: float) -> float:
    if isinstance(loss, GaussianLoss):
        return gaussian_epsilon(loss.noise_multiplier, delta)
    if isinstance(loss, SampledGaussianLoss):  # amplification: (eps, d) becomes (ln(1 + q (e^eps - 1)), q d)
        epsilon = gaussian_epsilon(loss.noise_multiplier, min(delta / loss.sampling_rate, 1.0))
        return epsilon + math.log(loss.sampling_rate + (1 - loss.sampling_rate) * math.exp(-epsilon))
    return loss.epsilon


# --- Rényi differential privacy ---


def _rdp_epsilon(losses: list[Loss], delta: float) -> float:
    from dp_accounting import rdp

    left = delta - given_delta(losses)
    if left <= 0:
        return math.inf
    orders = np.array(rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS)
    with _quiet():
        divergence = sum((_renyi(loss, orders) for loss in losses), start=np.zeros(orders.size))
        usable = divergence >= 0
        if not usable.any():
            return math.inf
        epsilon, _ = rdp.compute_epsilon(orders[usable], divergence[usable], left)
    return float(epsilon) + EPSILON_SLACK


def _renyi(loss: Loss, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Rényi divergence of every order."""
    if isinstance(loss, BoundedLoss):  # of randomised response, the worst of all: P = (p, q), Q = (q, p), p = e^eps q
        log_p = -math.log1p(math.exp(-loss.epsilon))
        log_q = log_p - loss.epsilon
        mixed = np.logaddexp(orders * log_p + (1 - orders) * log_q, orders * log_q + (1 - orders) * log_p)
        divergence: NDArray[np.float64] = loss.count * mixed / (orders - 1)
        return divergence
    import dp_accounting

    if isinstance(loss, LaplaceLoss):
        event = dp_accounting.LaplaceDpEvent(1 / loss.epsilon)
    else:
        event = dp_accounting.GaussianDpEvent(loss.noise_multiplier)
        if isinstance(loss, SampledGaussianLoss):
            event = dp_accounting.PoissonSampledDpEvent(loss.sampling_rate, event)
    accountant = dp_accounting.rdp.RdpAccountant(orders)
    accountant.compose(event, loss.count)
    composed: NDArray[np.float64] = accountant.rdp
    return composed


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from reporting Rényi orders it leaves out: leaving one out is safe."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
