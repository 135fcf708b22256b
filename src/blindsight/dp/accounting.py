"""Privacy accounting: what releases cost, one by one (losses) and together (composition), as pure functions.

*The guarantee.* Every figure is an upper bound: the releases together are (epsilon, delta)-differentially private.
Three accountants stand side by side: ``pld`` composes privacy loss distributions and is the default, ``rdp`` composes
Rényi divergences (Mironov 2017; converted to delta after Canonne, Kamath and Steinke 2020), ``basic`` adds epsilons and
deltas. The mathematics of the first two is that of the library dp-accounting: distributions are rounded towards more
loss (Doroshenko et al., "Connect the dots", 2022) and composed by Fourier transforms (Koskela, Jälkö and Honkela 2020).

*Where this is more careful than the library.* Rounding inside those transforms could make a probability too small
by about 1e-15 per composed release; ten times that, and at least 1e-10, is taken off the delta that is asked for, or
added to the delta that is answered. 1e-9 is added to every epsilon but a sum of pure ones. Where a list of losses
cannot be resolved the answer is infinity, never a guess. A Rényi divergence that came out negative is dropped, where
the library answers epsilon = 0. Version 0.6 of its `PLDAccountant` counts repeated randomised response once; that class
is not used.

*What is assumed.* What is asked may depend on earlier answers; how much noise it gets must not (a noise level chosen by
looking at earlier answers needs a privacy filter, which only basic composition of pure losses is: Rogers et al. 2016).
A loss belongs to a neighbouring relation (adding or removing one unit, or replacing one): the one for which the
sensitivity behind it was bounded. All losses of one list are of one relation; `blindsight.dp.ledger` sees to that.
Sub-sampling amplifies privacy for adding or removing one unit only.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, UnknownNameError

Accountant = Literal["pld", "rdp", "basic"]

LARGEST_EPSILON = 1e6
"""A larger epsilon is no statement about privacy."""

EPSILON_SLACK = 1e-9
"""Added to every computed epsilon, for rounding and for noise that is discrete (see `blindsight.dp.mechanisms`)."""

_DELTA_SLACK = 1e-10
_GRID_POINTS = 100_000  # resolution of the loss distribution: about 0.2 s a composition
_TAIL = 20  # standard deviations of loss that the grid should span


# --- what one release costs ---


@dataclass(frozen=True)
class LaplaceLoss:
    """`count` releases with Laplace noise of scale (L1 sensitivity) / epsilon each."""

    epsilon: float
    count: int = 1
    kind: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        _check_range("epsilon", self.epsilon, 1e-9, LARGEST_EPSILON)
        _check_count(self.count)

    @property
    def is_pure(self) -> bool:
        return True


@dataclass(frozen=True)
class GaussianLoss:
    """`count` releases with Gaussian noise of `noise_multiplier` times the L2 sensitivity each."""

    noise_multiplier: float
    count: int = 1
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        _check_range("noise_multiplier", self.noise_multiplier, 1e-4, 1e9)
        _check_count(self.count)

    @property
    def is_pure(self) -> bool:
        return False


@dataclass(frozen=True)
class SampledGaussianLoss:
    """`count` Gaussian releases, each about a fresh Poisson sample that takes every unit with `sampling_rate`.

    Holds for adding or removing one unit, not for replacing one, and only if who was sampled stays hidden.
    """

    noise_multiplier: float
    sampling_rate: float
    count: int = 1
    kind: ClassVar[str] = "sampled gaussian"

    def __post_init__(self) -> None:
        _check_range("noise_multiplier", self.noise_multiplier, 1e-4, 1e9)
        _check_range("sampling_rate", self.sampling_rate, 1e-12, 1.0)
        _check_count(self.count)

    @property
    def is_pure(self) -> bool:
        return False


@dataclass(frozen=True)
class BoundedLoss:
    """`count` releases of which no more is known than that each is (epsilon, delta)-differentially private.

    Randomised response is the worst of its kind, so this is also its exact loss. An infinite epsilon says that nothing
    is proven of the release.
    """

    epsilon: float
    delta: float = 0.0
    count: int = 1
    kind: ClassVar[str] = "bounded"

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            _check_range("epsilon", self.epsilon, 0.0, LARGEST_EPSILON)
        if not 0 <= self.delta < 1:
            raise InputError(f"delta must be in [0, 1); got {self.delta}.")
        _check_count(self.count)

    @property
    def is_pure(self) -> bool:
        return self.delta == 0 and self.epsilon < math.inf


Loss = LaplaceLoss | GaussianLoss | SampledGaussianLoss | BoundedLoss


def loss_to_dict(loss: Loss) -> dict[str, Any]:
    """Return a loss as plain data that strict JSON can hold, with its kind; an infinite epsilon is "infinity"."""
    return {"kind": loss.kind} | {name: "infinity" if v == math.inf else v for name, v in asdict(loss).items()}


def loss_from_dict(data: Mapping[str, Any]) -> Loss:
    kinds: dict[str, type[Loss]] = {loss.kind: loss for loss in get_args(Loss)}
    kind = str(data.get("kind"))
    if kind not in kinds:
        raise UnknownNameError("kind of loss", kind, kinds)
    try:
        fields: dict[str, Any] = {
            name: math.inf if v == "infinity" else v for name, v in data.items() if name != "kind"
        }
        return kinds[kind](**fields)
    except TypeError:
        raise InputError(f"a {kind} loss cannot have the fields {', '.join(sorted(data))}.") from None


def given_delta(losses: Iterable[Loss]) -> float:
    """Return the delta that the losses bring with them, whatever epsilon is asked for."""
    return math.fsum(loss.count * loss.delta for loss in losses if isinstance(loss, BoundedLoss))


def check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be positive and finite; got {value}.")


def _check_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        remedy = " Where nothing is proven say BoundedLoss(infinity)." if value > most == LARGEST_EPSILON else ""
        raise InputError(f"{name} must be in [{least:g}, {most:g}]; got {value}.{remedy}")


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 10**18:
        raise InputError(f"count must be a whole number in [1, 10^18]; got {count!r}.")


# --- one Gaussian release in closed form ---


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return the exact epsilon of one Gaussian release (Balle and Wang 2018, Theorem 8)."""
    from dp_accounting import get_epsilon_gaussian

    with np.errstate(all="ignore"):  # far from the solution its search meets log(0)
        return float(get_epsilon_gaussian(noise_multiplier, delta)) + EPSILON_SLACK


def gaussian_sigma(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least Gaussian noise that makes one release (epsilon, delta)-differentially private.

    The condition is exact (Balle and Wang 2018): a fifth less noise than sqrt(2 ln(1.25 / delta)) / epsilon of the
    textbooks at epsilon 1 and delta 1e-6, and right also above epsilon 1, where that formula is not.

    >>> round(gaussian_sigma(epsilon=1.0, delta=1e-6, sensitivity=1.0), 3)
    4.225
    """
    check_positive("sensitivity", sensitivity)
    if not 1e-6 <= epsilon < math.inf:
        raise InputError(f"epsilon must be finite and at least 1e-6; got {epsilon}.")
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1); got {delta}. Use LaplaceMechanism for pure differential privacy.")
    from dp_accounting import get_sigma_gaussian

    multiplier = float(get_sigma_gaussian(epsilon - 2 * EPSILON_SLACK, delta))
    while gaussian_epsilon(multiplier, delta) > epsilon:  # the root was found to twelve decimals, which may be too few
        multiplier *= 1 + 1e-9
    return multiplier * sensitivity


# --- what several releases cost together ---


@dataclass(frozen=True)
class Composition:
    """What a list of losses amounts to at one `delta`, by three accountants. Each is a proof, so the least holds."""

    delta: float
    pld: float
    rdp: float
    basic: float

    @property
    def epsilon(self) -> float:
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
    return _pld_epsilon(gathered, delta) if accountant == "pld" else _rdp_epsilon(gathered, delta)


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
    return _pld_delta(gathered, epsilon)


def _gather(losses: Iterable[Loss]) -> list[Loss]:
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


# --- privacy loss distributions, on a grid that suits the losses ---


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


def _pld_epsilon(losses: list[Loss], delta: float) -> float:
    """Return an epsilon proven at `delta`, or infinity where there is no figure."""
    parts = _parts(losses)
    left = delta - parts.added_delta
    if not parts.gridded and left > 0:  # the same composition in closed form
        return parts.added_epsilon + gaussian_epsilon(parts.multiplier, left)
    if left <= parts.slack or not parts.resolved:
        return math.inf
    found = _distribution(parts).get_epsilon_for_delta(left - parts.slack)
    return parts.added_epsilon + float(found) + EPSILON_SLACK


def _pld_delta(losses: list[Loss], epsilon: float) -> float:
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
    return 0.5 / loss.noise_multiplier**2 + _TAIL / loss.noise_multiplier


def _width(loss: Loss) -> float:
    """Estimate the span of losses to resolve. It sets accuracy and time, never whether the bound holds."""
    if isinstance(loss, LaplaceLoss | BoundedLoss):
        return loss.epsilon * max(2.0, min(2.0 * loss.count, _TAIL * math.sqrt(loss.count)))
    assert isinstance(loss, SampledGaussianLoss)
    spread = min(loss.sampling_rate * math.sqrt(math.expm1(loss.noise_multiplier**-2)), 1 / loss.noise_multiplier)
    return max(_span(loss), _TAIL * spread * math.sqrt(loss.count))
