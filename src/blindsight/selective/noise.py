"""The noise that a participant may add to what it shares: two that are proven, one that is not, one inside training.

*`ParticipantGaussian`* protects a participant: everything it uploads is scaled to a Euclidean length of at most `clip`
and Gaussian noise of `noise_multiplier * clip` is added. Neighbouring runs differ in whether one participant's change
counts or is zero (add/remove; it uploads in both), so the sensitivity is `clip`. With `among` = n > 1 the noise is
shared: each of n participants adds a variance of sigma^2 / (n - 1), and only the *sum* of at least n uploads, at the
same places, carries the noise that is stated. Nothing but that sum may be opened. A curious participant takes its own
noise off the sum; what n - 1 others have added is then still all that is stated. To keep the sum exact, shared noise
lies on a grid coarse enough for float32 (`grid`): sums of whole numbers of steps are sums of discrete Gaussians, which
are as good as one of n - 1 times the variance to within e^-1000 (Kairouz, Liu and Steinke 2021).

*`RecordGaussian`* protects a photo: each photo's gradient is scaled to `clip` inside training and Gaussian noise is
added to their sum there (Abadi et al. 2016). A gradient that is not finite counts as zero: whoever chooses the weights
could else make training fail for photos it picks. Whatever is selected and shared afterwards is post-processing.

*`Laplace`* protects single parameters: each value is cut to [-bound, bound] (the papers' gamma), Laplace noise of scale
2 bound / epsilon is added and the sum is cut again. `epsilon` is spent *on every value of every upload*.

*`PublishedLaplace`* is what PPDL writes (Bu 2019, section 6, after Shokri and Shmatikov 2015, Figure 12):
bound(change + noise, gamma), with no bound on the change itself. A change can then move the sum by any amount and
nothing is proven; only a change that happens to lie within gamma is as well off as under `Laplace`.

*`sparse_vector`* finds random parameters above a threshold. With `Laplace` noise, epsilon per uploaded value and at
most c values, one upload is (c epsilon)-differentially private for replacing all of a participant's photos, places and
values together. Parameters are visited in random order. A fresh threshold tau + Lap(2 D / e1) is compared with
|bound(w)| + Lap(4 D / e1) of one after the other; the first that reaches it costs e1 in all, however many did not
(AboveThreshold; Dwork and Roth 2014, Theorem 3.23; Lyu, Su and Li 2017 for what goes wrong in variants). Its value is
then released as bound(bound(w) + Lap(9 D / epsilon)), which costs epsilon / 9. With e1 = 8/9 epsilon the two make
epsilon; after c values it halts. D = 2 gamma bounds how far a value in [-gamma, gamma] can move. (Its magnitude moves
by gamma only, so the choice in truth costs half of e1; the papers' count is kept.)

*The papers on it.* Shokri and Shmatikov 2015, Figure 12, call this budget epsilon for all c values: their
eps1 = 8/9 eps, eps2 = 2/9 eps, sigma(x) = 2 c D / x are the scales above with eps = c epsilon (eps1 + eps2 exceed eps,
yet the value costs eps2 / 2 only). As published they release bound(w + noise, gamma) of a w that is not bounded, so the
values (not the places) can cost any amount: `PublishedLaplace` does that here, and nothing is proven of it.

*What is computed.* Noise and comparisons are whole numbers of grid steps from the exact sampler, so the proof holds to
the last bit: rounding moves a value by at most D/g + 1 steps, which the noise is made for.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.dp.accounting import GaussianLoss, check_positive, epsilon_of, gaussian_sigma
from blindsight.dp.mechanisms import GaussianMechanism, Grid, LaplaceMechanism
from blindsight.dp.sampling import discrete_gaussian, discrete_laplace
from blindsight.errors import InputError
from blindsight.rng import ByteSource, system_bytes
from blindsight.selective.codec import Places


def check_number(name: str, value: Any) -> None:
    """Refuse text, truth values and all else that is no number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name} must be a number; got {value!r}.")


def check_whole(name: str, value: Any) -> None:
    """Refuse what is no whole number of Python's own."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number; got {value!r}.")


Floats = NDArray[np.float64]

_FLOAT32_STEPS = 2**24  # whole numbers up to this are float32 numbers
_LEAST_STEPS = 2**10  # of shared noise: below, its sums would no longer be as good as Gaussian
_GRID_SHARE = 1e-5  # of epsilon: far more than the grid costs, see `blindsight.selective.accounting`
_TAIL = 13  # deviations beyond which noise is cut: of probability 1e-38 for each value
_MOST_STEPS = 2.0**60  # a change is cut there before it becomes whole steps, far beyond any bound


@dataclass(frozen=True)
class PublishedLaplace:
    """Laplace noise of scale 2 bound / epsilon on a change of any size, cut afterwards: nothing is proven."""

    epsilon: float

    def __post_init__(self) -> None:
        _check_positive("epsilon", self.epsilon)

    def release(self, values: Floats, bound: float, source: ByteSource = system_bytes) -> Floats:
        """Return bound(values + noise, gamma), in the paper's order."""
        return np.clip(_add_laplace(values, bound, self.epsilon, source), -bound, bound)


@dataclass(frozen=True)
class Laplace:
    """The same noise on a change that was cut first: `epsilon` for each value, if the places tell nothing."""

    epsilon: float

    def __post_init__(self) -> None:
        _check_positive("epsilon", self.epsilon)

    def release(self, values: Floats, bound: float, source: ByteSource = system_bytes) -> Floats:
        """Return bound(bound(values, gamma) + noise, gamma)."""
        return np.clip(_add_laplace(np.clip(values, -bound, bound), bound, self.epsilon, source), -bound, bound)


@dataclass(frozen=True)
class ParticipantGaussian:
    """Gaussian noise on an upload of bounded length; `among` participants may share it if only sums are opened.

    >>> shared = ParticipantGaussian(clip=0.5, noise_multiplier=2.0, among=5)
    >>> shared.sigma, shared.own_sigma
    (1.0, 0.5)
    """

    clip: float
    noise_multiplier: float
    among: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no noise, or noise among nobody."""
        _check_positive("clip", self.clip)
        _check_multiplier(self.noise_multiplier)
        if isinstance(self.among, bool) or not isinstance(self.among, int) or not 1 <= self.among <= 10**6:
            raise InputError(f"noise is shared among a whole number of 1 to 10^6 participants; got {self.among!r}.")

    @property
    def sigma(self) -> float:
        """The deviation of the noise that is accounted for: of one upload, or of what all but one of `among` add."""
        return self.noise_multiplier * self.clip

    @property
    def enough(self) -> int:
        """The noise of how many makes up `sigma`: its own, or that of all but one who share it."""
        return max(1, self.among - 1)

    @property
    def own_sigma(self) -> float:
        """The deviation of what one participant adds."""
        return self.sigma / math.sqrt(self.enough)

    def grid(self, size: int) -> Grid:
        """Return the step that all of `size` noisy values are multiples of, and one participant's noise in steps.

        Whoever adds shared noise up must keep multiples of the step exactly: with fixed point, 2^-fraction_bits may be
        at most the step.
        """
        if self.among == 1:
            return GaussianMechanism(sensitivity=self.clip, sigma=self.sigma).grid(size)
        least = (self.clip + _TAIL * self.own_sigma) / (_FLOAT32_STEPS - 1)
        step = math.ldexp(1.0, math.frexp(least)[1])
        length = Fraction(self.clip) / Fraction(step) + math.isqrt(max(size, 1) - 1) + 1  # rounding may lengthen it
        steps = math.ceil(Fraction(self.noise_multiplier) * length / Fraction(math.sqrt(self.enough)) + 1)
        if steps < _LEAST_STEPS:
            raise InputError(
                f"noise of {self.noise_multiplier:g} times clip is too little to share among {self.among}."
            )
        return Grid(step, steps)

    def shorten(self, values: Floats) -> Floats:
        """Return the values scaled down to a Euclidean length of at most `clip`, rounding errors included."""
        length = float(np.linalg.norm(values))
        limit = self.clip * (1 - 2.0**-40 - values.size * 2.0**-51)  # sums of squares are off by less
        return values if length <= limit else values * (limit / length)

    def release(self, values: Floats, source: ByteSource = system_bytes) -> Floats:
        """Return the values shortened and with fresh noise."""
        grid = self.grid(values.size)
        steps = np.rint(self.shorten(values) / grid.step).astype(np.int64)
        steps += discrete_gaussian(grid.noise, steps.size, source)
        if self.among > 1:
            steps = np.clip(steps, -_FLOAT32_STEPS, _FLOAT32_STEPS)
        return steps.astype(np.float64) * grid.step


@dataclass(frozen=True)
class RecordGaussian:
    """Gaussian noise inside training: each photo's gradient has a length of at most `clip`, and the sum gets noise."""

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        _check_positive("clip", self.clip)
        _check_multiplier(self.noise_multiplier)

    @property
    def sigma(self) -> float:
        """The deviation of the noise on the sum of a batch's gradients."""
        return self.noise_multiplier * self.clip

    def release(self, total: Floats, source: ByteSource = system_bytes) -> Floats:
        """Return the sum of a batch's clipped gradients with fresh noise.

        No sum is too large for it: one beyond what the noise can be added to is cut, which lengthens no difference.
        """
        mechanism = GaussianMechanism(sensitivity=self.clip, sigma=self.sigma)
        most = _MOST_STEPS * mechanism.grid(total.size).step
        return mechanism.release(np.clip(total, -most, most), source)


Noise = PublishedLaplace | Laplace | ParticipantGaussian | RecordGaussian


def calibrate_participant(
    *, epsilon: float, delta: float, uploads: int, clip: float, among: int = 1
) -> ParticipantGaussian:
    """Return the least noise with which `uploads` uploads of a participant cost it at most (epsilon, delta) in all.

    Shared noise keeps 1e-5 of epsilon back for its coarse grid.

    >>> round(calibrate_participant(epsilon=8.0, delta=1e-5, uploads=74, clip=1.0).noise_multiplier, 3)
    5.163
    """
    spare = _GRID_SHARE if among > 1 else 0.0
    return ParticipantGaussian(clip, _least_multiplier(epsilon * (1 - spare), delta, uploads), among)


def calibrate_record(*, epsilon: float, delta: float, steps: int, clip: float) -> RecordGaussian:
    """Return the least noise with which a photo that is used in `steps` steps loses at most (epsilon, delta) in all.

    >>> round(calibrate_record(epsilon=8.0, delta=1e-5, steps=1, clip=1.0).noise_multiplier, 3)
    0.6
    """
    return RecordGaussian(clip, _least_multiplier(epsilon, delta, steps))


def _least_multiplier(epsilon: float, delta: float, count: int) -> float:
    """Return the least noise multiplier of `count` Gaussian releases: n of them are one of 1/sqrt(n) the noise."""
    _check_whole(count)
    multiplier = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0) * math.sqrt(count)
    while epsilon_of([GaussianLoss(multiplier, count=count)], delta=delta) > epsilon:
        multiplier *= 1 + 1e-9
    return multiplier


def _add_laplace(values: Floats, bound: float, epsilon: float, source: ByteSource) -> Floats:
    """Add exact Laplace noise of scale 2 bound / epsilon to each value as a release of its own."""
    grid = LaplaceMechanism(sensitivity=2 * bound, epsilon=epsilon).grid(1)
    steps = np.rint(np.clip(values / grid.step, -_MOST_STEPS, _MOST_STEPS)).astype(np.int64)
    steps += discrete_laplace(grid.noise, values.size, source)
    return steps.astype(np.float64) * grid.step


def _check_positive(name: str, value: float) -> None:
    check_number(name, value)
    check_positive(name, value)


def _check_multiplier(noise_multiplier: float) -> None:
    check_number("noise_multiplier", noise_multiplier)
    if not 1e-4 <= noise_multiplier <= 1e9:
        raise InputError(f"noise_multiplier must be in [1e-4, 1e9]; got {noise_multiplier}.")


def _check_whole(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"noise is made for a whole number of releases, at least 1; got {count!r}.")


_CHUNK = 64


@dataclass(frozen=True)
class Split:
    """How epsilon for one uploaded value is spent, and the scales of the noise that follow."""

    epsilon: float
    bound: float

    @property
    def choosing(self) -> float:
        """What finding a place costs."""
        return 8 * self.epsilon / 9

    @property
    def telling(self) -> float:
        """What the value at that place costs."""
        return self.epsilon / 9

    @property
    def threshold_scale(self) -> float:
        """The mean absolute noise of a threshold; that of a comparison is twice as much."""
        return 4 * self.bound / self.choosing

    @property
    def value_scale(self) -> float:
        """The mean absolute noise of a released value."""
        return 2 * self.bound / self.telling


def select_above(change: Floats, threshold: float, count: int, rng: np.random.Generator) -> Places:
    """Return ascending places of at most `count` values of at least the threshold, the first in random order."""
    order = rng.permutation(change.size)
    chosen: Places = np.sort(order[np.abs(change[order]) >= threshold][:count])
    return chosen


def sparse_vector(
    change: Floats,
    *,
    noise: Laplace | PublishedLaplace,
    bound: float,
    threshold: float,
    count: int,
    rng: np.random.Generator,
    source: ByteSource = system_bytes,
) -> tuple[Places, Floats]:
    """Return ascending places of at most `count` values that, with noise, reach a noisy threshold; and noisy values."""
    split = Split(noise.epsilon, bound)
    grid = LaplaceMechanism(sensitivity=2 * bound, epsilon=split.choosing / 2).grid(1)
    order = rng.permutation(change.size)
    sizes = np.rint(np.abs(np.clip(change[order], -bound, bound)) / grid.step).astype(np.int64)
    sizes += discrete_laplace(2 * grid.noise, sizes.size, source)
    thresholds = int(np.rint(threshold / grid.step)) + discrete_laplace(grid.noise, count, source)
    places = np.sort(order[_first_above(sizes, thresholds)])
    told = type(noise)(split.telling).release(change[places], bound, source)
    return places, told


def _first_above(sizes: NDArray[np.int64], thresholds: NDArray[np.int64]) -> list[int]:
    """Return for each threshold in turn the first place, after the last one, that reaches it."""
    reached: list[int] = []
    start = 0
    for threshold in thresholds.tolist():
        found = _first_reaching(sizes, threshold, start)
        if found is None:
            break
        reached.append(found)
        start = found + 1
    return reached


def _first_reaching(sizes: NDArray[np.int64], threshold: int, start: int) -> int | None:
    """Return the first place from `start` on that reaches the threshold, looking ever further ahead."""
    length = _CHUNK
    while start < sizes.size:
        above = sizes[start : start + length] >= threshold
        first = int(above.argmax())
        if above[first]:
            return start + first
        start += length
        length *= 2
    return None
