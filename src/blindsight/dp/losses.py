"""What one release costs: small descriptions that `blindsight.dp.accounting` composes and the ledger remembers.

A loss belongs to a neighbouring relation (adding or removing one unit, or replacing one): the one for which the
sensitivity behind it was bounded. Losses of different units or relations must not be added; the ledger refuses it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, get_args

from blindsight.errors import InputError, UnknownNameError

LARGEST_EPSILON = 1e6
"""A larger epsilon is no statement about privacy."""


@dataclass(frozen=True)
class LaplaceLoss:
    """`count` releases with Laplace noise of scale (L1 sensitivity) / epsilon each."""

    epsilon: float
    count: int = 1
    kind: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        """Refuse what is not a loss."""
        _check_range("epsilon", self.epsilon, 1e-9, LARGEST_EPSILON)
        _check_count(self.count)

    @property
    def is_pure(self) -> bool:
        """Whether the loss is bounded with delta = 0."""
        return True


@dataclass(frozen=True)
class GaussianLoss:
    """`count` releases with Gaussian noise of `noise_multiplier` times the L2 sensitivity each."""

    noise_multiplier: float
    count: int = 1
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        """Refuse what is not a loss."""
        _check_range("noise_multiplier", self.noise_multiplier, 1e-4, 1e9)
        _check_count(self.count)

    @property
    def is_pure(self) -> bool:
        """Whether the loss is bounded with delta = 0."""
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
        """Refuse what is not a loss."""
        _check_range("noise_multiplier", self.noise_multiplier, 1e-4, 1e9)
        _check_range("sampling_rate", self.sampling_rate, 1e-12, 1.0)
        _check_count(self.count)

    @property
    def is_pure(self) -> bool:
        """Whether the loss is bounded with delta = 0."""
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
        """Refuse what is not a loss."""
        if self.epsilon != math.inf:
            _check_range("epsilon", self.epsilon, 0.0, LARGEST_EPSILON)
        if not 0 <= self.delta < 1:
            raise InputError(f"delta must be in [0, 1); got {self.delta}.")
        _check_count(self.count)

    @property
    def is_pure(self) -> bool:
        """Whether the loss is bounded with delta = 0."""
        return self.delta == 0 and self.epsilon < math.inf


Loss = LaplaceLoss | GaussianLoss | SampledGaussianLoss | BoundedLoss


def loss_to_dict(loss: Loss) -> dict[str, Any]:
    """Return a loss as plain data that strict JSON can hold, with its kind; an infinite epsilon is "infinity"."""
    return {"kind": loss.kind} | {name: "infinity" if v == math.inf else v for name, v in asdict(loss).items()}


def loss_from_dict(data: Mapping[str, Any]) -> Loss:
    """Return the loss that `loss_to_dict` described."""
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
    """Raise unless a privacy parameter is positive and finite."""
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be positive and finite; got {value}.")


def _check_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        remedy = " Where nothing is proven say BoundedLoss(infinity)." if value > most == LARGEST_EPSILON else ""
        raise InputError(f"{name} must be in [{least:g}, {most:g}]; got {value}.{remedy}")


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 10**18:
        raise InputError(f"count must be a whole number in [1, 10^18]; got {count!r}.")
