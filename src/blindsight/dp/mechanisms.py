"""Three ways to release numbers about people with a proof: Laplace and Gaussian noise, and randomised response.

*The guarantee* is one of the computation that really runs, on finite numbers, not of an idealised one on real numbers.
Values are rounded to a grid of step g (a power of two that depends on the parameters and on how many values there are,
never on the values), whole-number noise from an exact sampler is added, and the sum is scaled back. Whatever happens to
the sum afterwards, also its conversion to float64, is post-processing.

*Rounding.* For neighbouring inputs a, b each coordinate obeys |round(a/g) - round(b/g)| <= |a - b|/g + 1. So d values
of L1 sensitivity D become whole numbers of L1 sensitivity at most D/g + d, and those of L2 sensitivity D of L2
sensitivity at most D/g + sqrt(d). The noise is enlarged to match, by less than one part in 10^4 in ordinary cases.

*Laplace.* The scale is t >= (D/g + 2d)/epsilon, so the probabilities of any outcome under two neighbours differ by a
factor of at most exp((D/g + d)/t) <= exp(epsilon). More than that: at every delta the release loses no more than one
continuous Laplace release with this epsilon, so its privacy loss distribution may be composed (`LaplaceLoss`).
(a) Let L be the distribution function of continuous Laplace noise of scale t, q = exp(-1/t) and a = t ln(2/(1 + q)),
which lies in [1/2 - 1/(8t), 1/2]. That of discrete noise is F(j) = L(j + a) for j < 0 and L(j + 1 - a) for j >= 0. The
best tests between noise and noise shifted by s are thresholds, hence telling a continuous shift of s + 1 - 2a, which
is at most s + 1/(4t), is at least as easy. (b) Telling independent continuous shifts s_1, ..., s_d is no easier than
telling one shift of s_1 + ... + s_d: the trade-off functions of shifts obey f_{s+r} = f_s o (1 - f_r), as Laplace noise
is log-concave, and shifting one coordinate after the other composes in just this way (Dong, Roth and Su 2022). Here
the shifts sum to at most D/g + d + d/(4t) <= D/g + 2d.

*Gaussian.* Let s >= 2^32 be the parameter in steps. In Rényi divergence of any order discrete Gaussian noise p loses no
more than continuous noise does (Canonne, Kamath and Steinke 2020, for vectors too). At a given delta, compare it with
r, continuous noise rounded to whole numbers, which is post-processing of the textbook mechanism. Integrating over the
cell of n gives |ln(r(n)/p(n))| <= (1 + n^2/s^2)/(24 s^2). Summed over d coordinates and both neighbours this is at
most h = (d/3 + 35 + 1/m^2)/s^2 outside an event of probability exp(-70), where m is the noise multiplier. So the
release is (epsilon + h, exp(h) delta + exp(-70))-private if the textbook mechanism is (epsilon, delta)-private. For a
million values h is 2e-14; accounting adds 1e-9 to every epsilon, which suffices for 10^10 released numbers. The bound
holds for mixtures too, hence for sub-sampling.

*What is assumed.* `sensitivity` bounds the values as computed, floating-point errors of sums and clipping included
(Casacuberta et al. 2022), and belongs to the neighbouring relation that is stated. The number of values is public.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.dp.accounting import BoundedLoss, GaussianLoss, LaplaceLoss, check_positive, gaussian_sigma
from blindsight.dp.sampling import MAX_SCALE, bernoulli, bernoulli_exp, discrete_gaussian, discrete_laplace
from blindsight.errors import InputError
from blindsight.rng import ByteSource, system_bytes

_LARGEST = 2**61  # grid steps of a value; with noise below 2^61 the sum stays below 2^62


class Grid(NamedTuple):
    """Where released numbers lie, multiples of `step`, and the parameter of the whole-number noise, in steps."""

    step: float
    noise: int


@dataclass(frozen=True, kw_only=True)
class LaplaceMechanism:
    """Adds Laplace noise: epsilon-differentially private for values of L1 sensitivity `sensitivity`.

    >>> LaplaceMechanism(sensitivity=1.0, epsilon=0.5).scale
    2.0
    """

    sensitivity: float
    epsilon: float

    def __post_init__(self) -> None:
        check_positive("sensitivity", self.sensitivity)
        check_positive("epsilon", self.epsilon)

    @property
    def scale(self) -> float:
        """The mean absolute noise."""
        return self.sensitivity / self.epsilon

    @property
    def loss(self) -> LaplaceLoss:
        return LaplaceLoss(self.epsilon)

    def __str__(self) -> str:
        return f"discrete Laplace noise of scale {self.scale:.6g} (L1 sensitivity {self.sensitivity:.6g})"

    def grid(self, size: int) -> Grid:
        """Return the grid and the noise for `size` values released together."""
        step = _step(self.scale, self.sensitivity / max(size, 1))
        return Grid(step, _noise((Fraction(self.sensitivity) / Fraction(step) + 2 * size) / Fraction(self.epsilon)))

    def release(self, values: ArrayLike, source: ByteSource = system_bytes) -> NDArray[np.float64]:
        """Return the values with fresh noise. Record the loss before calling (`Ledger.release` does both)."""
        numbers = _checked(values)
        return _add_noise(numbers, self.grid(numbers.size), discrete_laplace, source)


@dataclass(frozen=True, kw_only=True)
class GaussianMechanism:
    """Adds Gaussian noise of standard deviation `sigma` to values of L2 sensitivity `sensitivity`.

    >>> mechanism = GaussianMechanism.calibrated(sensitivity=2.0, epsilon=1.0, delta=1e-6)
    >>> round(mechanism.sigma, 2), round(mechanism.loss.noise_multiplier, 3)
    (8.45, 4.225)
    """

    sensitivity: float
    sigma: float

    def __post_init__(self) -> None:
        check_positive("sensitivity", self.sensitivity)
        check_positive("sigma", self.sigma)

    @classmethod
    def calibrated(cls, *, sensitivity: float, epsilon: float, delta: float) -> Self:
        """Return the mechanism with the least noise that makes one release (epsilon, delta)-private."""
        sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
        return cls(sensitivity=sensitivity, sigma=sigma)

    @property
    def loss(self) -> GaussianLoss:
        return GaussianLoss(self.sigma / self.sensitivity)

    def __str__(self) -> str:
        return f"discrete Gaussian noise of deviation {self.sigma:.6g} (L2 sensitivity {self.sensitivity:.6g})"

    def grid(self, size: int) -> Grid:
        """Return the grid and the noise for `size` values released together."""
        root = math.isqrt(max(size, 1) - 1) + 1  # at least sqrt(size)
        step = _step(self.sigma, self.sensitivity / root)
        multiplier = Fraction(self.sigma) / Fraction(self.sensitivity)
        return Grid(step, _noise(multiplier * (Fraction(self.sensitivity) / Fraction(step) + root)))

    def release(self, values: ArrayLike, source: ByteSource = system_bytes) -> NDArray[np.float64]:
        """Return the values with fresh noise. Record the loss before calling (`Ledger.release` does both)."""
        numbers = _checked(values)
        return _add_noise(numbers, self.grid(numbers.size), discrete_gaussian, source)


@dataclass(frozen=True, kw_only=True)
class RandomisedResponse:
    """Turns every bit around with probability 1 / (1 + e^epsilon): epsilon-differentially private *per bit*.

    Warner 1965. A unit (a record, a person) loses epsilon for each of its `bits_per_unit` bits in the release.

    >>> mechanism = RandomisedResponse(epsilon=1.0, bits_per_unit=48)
    >>> round(mechanism.flip_probability, 3), mechanism.loss
    (0.269, BoundedLoss(epsilon=1.0, delta=0.0, count=48))
    """

    epsilon: float
    bits_per_unit: int

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        if self.bits_per_unit < 1:
            raise InputError(f"bits_per_unit must be at least 1; got {self.bits_per_unit}.")

    @property
    def flip_probability(self) -> float:
        return flip_probability(self.epsilon)

    @property
    def loss(self) -> BoundedLoss:
        return BoundedLoss(self.epsilon, count=self.bits_per_unit)

    def __str__(self) -> str:
        chance = f"{self.flip_probability:.6g}"
        return f"randomised response, each bit flipped with probability {chance} ({self.bits_per_unit} per unit)"

    def release(self, bits: ArrayLike, source: ByteSource = system_bytes) -> NDArray[np.generic]:
        """Return the bits (booleans, or numbers 0 and 1), each flipped independently, in the type they came in."""
        truth = np.asarray(bits)
        if truth.dtype.kind not in "biuf" or not np.isin(truth, (0, 1)).all():
            raise InputError("randomised response takes bits: booleans, or numbers that are 0 or 1.")
        flips = _flips(self.epsilon, truth.size, source).reshape(truth.shape)
        released: NDArray[np.generic] = np.where(flips, truth == 0, truth != 0).astype(truth.dtype)
        return released


def flip_probability(epsilon: float) -> float:
    """Return the probability 1 / (1 + e^epsilon) with which randomised response turns a bit around."""
    if not epsilon >= 0:
        raise InputError(f"epsilon must be at least 0; got {epsilon}.")
    return math.exp(-epsilon) / (1 + math.exp(-epsilon))


def flip_loss(probability: float) -> float:
    """Return the exact privacy loss per bit, |ln((1 - p) / p)|, of turning bits around with probability p.

    It is infinite for p = 0 and, as turning every bit around hides nothing, for p = 1.

    >>> round(flip_loss(math.exp(-1)), 2), round(flip_loss(math.exp(-1 / 50)), 2)
    (0.54, 3.9)
    """
    if not 0 <= probability <= 1:
        raise InputError(f"a probability must be in [0, 1]; got {probability}.")
    if probability in (0, 1):
        return math.inf
    return abs(math.log1p(-probability) - math.log(probability))


def _flips(epsilon: float, size: int, source: ByteSource) -> NDArray[np.bool_]:
    """Draw coins of probability exactly 1 / (1 + e^epsilon).

    A fair coin proposes to keep or to flip; a flip is accepted with probability e^-epsilon, else both are tossed again.
    """
    flips = np.zeros(size, dtype=np.bool_)
    pending = np.arange(size)
    while pending.size:
        pending = pending[bernoulli(0.5, pending.size, source)]
        accepted = bernoulli_exp(epsilon, pending.size, source)
        flips[pending[accepted]] = True
        pending = pending[~accepted]
    return flips


def _checked(values: ArrayLike) -> NDArray[np.float64]:
    """Return the values as float64 without changing any, or refuse them. Messages must not tell the values."""
    given = np.asarray(values)
    if given.dtype.kind not in "biuf" or given.dtype.itemsize > 8:
        raise InputError(f"values must be real numbers of at most 64 bits; got the type {given.dtype}.")
    if not np.isfinite(given).all():
        raise InputError("values must be finite; got NaN or infinity. Clip or drop such values first.")
    if given.dtype.kind in "iu" and given.size and max(-int(given.min()), int(given.max())) > 2**53:
        raise InputError("whole numbers beyond 2^53 would be rounded. Scale the values down first.")
    return given.astype(np.float64)


def _add_noise(
    values: NDArray[np.float64],
    grid: Grid,
    sampler: Callable[[int, int, ByteSource], NDArray[np.int64]],
    source: ByteSource,
) -> NDArray[np.float64]:
    if values.size and np.abs(values).max() > _LARGEST * grid.step:
        raise InputError(
            f"values must not exceed {_LARGEST * grid.step:.3g} with this little noise; clip them to what can occur."
        )
    steps = np.rint(values / grid.step).astype(np.int64)  # dividing by a power of two is exact
    steps += sampler(grid.noise, steps.size, source).reshape(steps.shape)
    return steps.astype(np.float64) * grid.step


def _step(scale: float, share: float) -> float:
    """Return the grid step: 2^-32 of the noise, or finer so that rounding costs at most 2^-16 of the sensitivity.

    `share` is the sensitivity divided by what rounding adds to it, in steps. No finer than 2^-42 of the noise.
    """
    wanted = max(scale * 2.0**-42, min(scale * 2.0**-32, share * 2.0**-16))
    if not 2.0**-900 < wanted < 2.0**900:
        raise InputError(f"the noise is out of range: its scale is {scale:.3g}. Rescale the values to ordinary units.")
    return math.ldexp(1.0, math.frexp(wanted)[1] - 1)


def _noise(parameter: Fraction) -> int:
    if parameter > MAX_SCALE:
        raise InputError("epsilon is too small for so many values at once. Release fewer values or raise epsilon.")
    return math.ceil(parameter)
