"""What a participant of PPDL does to its change of the model before any of it leaves: choose, bound, add noise, round.

M. Bu 2019, section 6: "Largest Gradient", "Differential privacy" and "Value clipping"; R. Shokri and V. Shmatikov 2015,
Figure 12. Symbols (Bu, Table 3): theta_u is `Sharing.share`, gamma is `Sharing.bound`; tau of Shokri and Shmatikov is
`Sharing.threshold`. `Sharing` refuses combinations that make no sense, `protect` carries them out, `remainder` is what
is left to send. What each combination proves is in `cost`. Which places are the largest tells about the photos, and no
noise on the *values* hides it; random places tell nothing.

*`PublishedLaplace`* is what PPDL writes: bound(change + noise, gamma), with no bound on the change itself, so nothing
is proven. *`Laplace`* is its repair for single parameters: each value is cut to [-bound, bound], Laplace noise of scale
2 bound / epsilon is added and the sum is cut again. `epsilon` is spent *on every value of every upload*.

*`ParticipantGaussian`* protects a participant: an upload is scaled to a Euclidean length of at most `clip` and gets
Gaussian noise of `noise_multiplier * clip`. Neighbouring runs differ in whether the change of one participant counts or
is zero (add/remove; it uploads in both), so the sensitivity is `clip`. Random places are drawn without looking and only
what stands there is shortened and gets noise; with `largest` the *whole* change does, and the largest of the noisy
values are chosen, which is post-processing. `learn.protection.RecordGaussian` protects a photo, inside training: all
that follows is post-processing.

*`sparse_vector`* finds random parameters above a threshold. With `Laplace` noise, epsilon per uploaded value and at
most c values, one upload is (c epsilon)-differentially private for replacing all photos of a participant, places and
values together. Parameters are visited in random order. A fresh threshold tau + Lap(2 D / e1) is compared with
|bound(w)| + Lap(4 D / e1) of one after the other; the first that reaches it costs e1 in all, however many did not
(AboveThreshold; Dwork and Roth 2014, Theorem 3.23; Lyu, Su and Li 2017 for what goes wrong in variants). Its value is
then released as bound(bound(w) + Lap(9 D / epsilon)), which costs epsilon / 9. With e1 = 8/9 epsilon the two make
epsilon; after c values it halts. D = 2 gamma bounds how far a value in [-gamma, gamma] can move. Shokri and Shmatikov,
Figure 12, call this budget eps for all c values: their eps1 = 8/9 eps, eps2 = 2/9 eps, sigma(x) = 2 c D / x are these
scales with eps = c epsilon; as published w is not bounded, so the values (not the places) can cost any amount.

*As computed.* Noise and comparisons are whole numbers of grid steps from the exact sampler, so the proof holds to
the last bit: rounding moves a value by at most D/g + 1 steps, which the noise is made for.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.dp.accounting import BoundedLoss, GaussianLoss, LaplaceLoss, Loss
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from blindsight.dp.sampling import discrete_laplace
from blindsight.errors import InputError, UnknownNameError
from blindsight.learn.modules import Vector
from blindsight.learn.protection import (
    MOST_STEPS,
    Floats,
    Noise,
    RecordGaussian,
    check_length,
    check_multiplier,
    check_number,
    least_multiplier,
)
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import Neighbours, Unit

Places = NDArray[np.int64]
F = TypeVar("F", np.float32, np.float64)

LARGEST_HALF = 65504.0
"""The largest float16."""

_CHUNK = 64  # values that are compared with a threshold at once, at first


@lru_cache(maxsize=4)
def every_place(dimension: int) -> Places:
    """Return all places of a vector, read-only: as long as the vector itself, they are made once and kept."""
    places = np.arange(dimension)
    places.setflags(write=False)
    return places


@dataclass(frozen=True, eq=False)
class SparseUpdate:
    """Values at ascending places of a vector of `dimension` zeros. It is private until it was protected."""

    dimension: int
    indices: Places
    values: Vector

    def __post_init__(self) -> None:
        if self.indices.ndim != 1 or self.indices.shape != self.values.shape:
            raise InputError(
                f"an update has one value for each place; got {self.indices.shape} and {self.values.shape}."
            )
        if self.indices is every_place(self.dimension):
            return
        if self.indices.size and (
            self.indices[0] < 0 or self.indices[-1] >= self.dimension or (self.indices[1:] <= self.indices[:-1]).any()
        ):
            raise InputError(f"places must ascend within 0 to {self.dimension - 1}, each once.")

    def __repr__(self) -> str:
        return f"<SparseUpdate: {self.indices.size} of {self.dimension} values, hidden>"

    @property
    def where(self) -> slice | Places:
        """The places, in the way numpy is quickest with."""
        return slice(None) if self.indices.size == self.dimension else self.indices

    def dense(self) -> Vector:
        vector = np.zeros(self.dimension, dtype=np.float32)
        vector[self.where] = self.values
        return vector


def as_half(values: Vector) -> Vector:
    """Return the values rounded to float16, those beyond its range to the largest; still as float32.

    >>> as_half(np.array([0.1, 1e6], dtype=np.float32)).tolist()
    [0.0999755859375, 65504.0]
    """
    limited = np.clip(values, -LARGEST_HALF, LARGEST_HALF)
    return limited.astype(np.float16).astype(np.float32)


@dataclass(frozen=True)
class PublishedLaplace(Noise):
    """Laplace noise of scale 2 bound / epsilon on a change of any size, cut afterwards: nothing is proven."""

    epsilon: float
    neighbours: ClassVar[Neighbours] = "replace"
    cut_first: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_length("epsilon", self.epsilon)

    def release(self, values: Floats, bound: float, source: ByteSource = system_bytes) -> Floats:
        """Return bound(values + noise, gamma), in the paper's order; values are bounded before where `cut_first`."""
        changes = np.clip(values, -bound, bound) if self.cut_first else values
        grid = LaplaceMechanism(sensitivity=2 * bound, epsilon=self.epsilon).grid(1)
        steps = np.rint(np.clip(changes / grid.step, -MOST_STEPS, MOST_STEPS)).astype(np.int64)
        steps += discrete_laplace(grid.noise, values.size, source)  # each value is a release of its own
        return np.clip(steps.astype(np.float64) * grid.step, -bound, bound)

    def loss(self, values: int, *, steps: int, chosen: bool) -> Loss:
        return BoundedLoss(self.epsilon, count=values) if chosen else LaplaceLoss(self.epsilon, count=values)


@dataclass(frozen=True)
class Laplace(PublishedLaplace):
    """The same noise on a change that was cut first: `epsilon` for each value, if the places tell nothing."""

    cut_first: ClassVar[bool] = True


@dataclass(frozen=True)
class ParticipantGaussian(Noise):
    """Gaussian noise on an upload of bounded length.

    >>> ParticipantGaussian(clip=0.5, noise_multiplier=2.0).sigma
    1.0
    """

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_length("clip", self.clip)
        check_multiplier(self.noise_multiplier)

    @property
    def sigma(self) -> float:
        """The deviation of the noise."""
        return self.noise_multiplier * self.clip

    def shorten(self, values: Floats) -> Floats:
        """Return the values scaled down to a Euclidean length of at most `clip`, rounding errors included."""
        length = float(np.linalg.norm(values))
        limit = self.clip * (1 - 2.0**-40 - values.size * 2.0**-51)  # sums of squares are off by less
        return values if length <= limit else values * (limit / length)

    def release(self, values: Floats, source: ByteSource = system_bytes) -> Floats:
        mechanism = GaussianMechanism(sensitivity=self.clip, sigma=self.sigma)
        return mechanism.release(self.shorten(values), source)

    def loss(self, values: int, *, steps: int, chosen: bool) -> Loss:
        return GaussianLoss(self.noise_multiplier)


def calibrate_participant(*, epsilon: float, delta: float, uploads: int, clip: float) -> ParticipantGaussian:
    """Return the least noise with which `uploads` uploads of a participant cost it at most (epsilon, delta) in all.

    >>> round(calibrate_participant(epsilon=8.0, delta=1e-5, uploads=74, clip=1.0).noise_multiplier, 3)
    5.163
    """
    return ParticipantGaussian(clip, least_multiplier(epsilon, delta, uploads))


@dataclass(frozen=True)
class Split:
    """How epsilon for one uploaded value is spent, on its place and on telling it, and the scales of the noise."""

    epsilon: float
    bound: float

    @property
    def choosing(self) -> float:
        return 8 * self.epsilon / 9

    @property
    def telling(self) -> float:
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
    noise: PublishedLaplace,
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
    return places, type(noise)(split.telling).release(change[places], bound, source)


def _first_above(sizes: NDArray[np.int64], thresholds: NDArray[np.int64]) -> list[int]:
    """Return for each threshold in turn the first place, after the last one, that reaches it."""
    reached: list[int] = []
    start = 0
    for threshold in thresholds.tolist():
        length = _CHUNK
        while start < sizes.size and not (above := sizes[start : start + length] >= threshold).any():
            start, length = start + length, 2 * length  # looking ever further ahead
        if start >= sizes.size:
            break
        reached.append(start + int(above.argmax()))
        start = reached[-1] + 1
    return reached


def select_largest(change: NDArray[np.floating], count: int) -> Places:
    """Return the ascending places of the `count` largest magnitudes; of equal ones the first.

    >>> select_largest(np.array([0.5, -3.0, 0.5, 2.0]), 3).tolist()
    [0, 1, 3]
    """
    _check_count(count, change.size)
    if count == change.size:
        return every_place(change.size)
    sizes = np.abs(change)
    sizes.partition(change.size - count)
    least = sizes[change.size - count]
    chosen = np.flatnonzero((change >= least) | (change <= -least))
    if chosen.size > count:  # of those as large as the least, the last are too many
        ties = np.flatnonzero(np.abs(change[chosen]) == least)
        chosen = np.delete(chosen, ties[count - chosen.size :])
    return chosen


def select_random(change: NDArray[np.floating], count: int, rng: np.random.Generator) -> Places:
    """Return `count` ascending places, each set of them equally likely; only the length of the change is looked at.

    >>> select_random(np.zeros(5), 5, np.random.default_rng(1)).tolist()
    [0, 1, 2, 3, 4]
    """
    _check_count(count, change.size)
    places: Places = np.sort(rng.choice(change.size, size=count, replace=False, shuffle=False))
    return places


def _check_count(count: int, size: int) -> None:
    if not 1 <= count <= size:
        raise InputError(f"of {size} parameters 1 to {size} can be selected; got {count}.")


Selection = Literal["largest", "random", "threshold"]


@dataclass(frozen=True)
class Sharing:
    """How a participant shares: which fraction, chosen how, within which bound, under which noise.

    `bound` cuts every value to [-bound, bound]. `threshold` (with the selection "threshold" only) is what a value must
    reach. With `residual` the participant remembers what was not sent and adds it to its next change. With `half`
    values are rounded to float16.

    >>> Sharing(0.1, select="random", bound=0.1, noise=Laplace(epsilon=1.0)).count(5124)
    512
    """

    share: float
    select: Selection = "largest"
    bound: float | None = None
    threshold: float | None = None
    residual: bool = False
    noise: Noise | None = None
    half: bool = False

    def __post_init__(self) -> None:
        for name in ("share", "bound", "threshold"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        if not 0 < self.share <= 1:
            raise InputError(f"share, the fraction of parameters to upload, must be in (0, 1]; got {self.share}.")
        if self.select not in get_args(Selection):
            raise UnknownNameError("selection", self.select, get_args(Selection))
        if self.bound is not None and not 0 < self.bound < math.inf:
            raise InputError(f"bound must be positive and finite; got {self.bound}. Leave it out to cut nothing.")
        self._check_threshold()
        if self.noise is not None and not isinstance(self.noise, Noise):
            raise InputError(f"noise must be a `learn.protection.Noise`; got {self.noise!r}.")
        if isinstance(self.noise, PublishedLaplace) and self.bound is None:
            raise InputError("Laplace noise is made for a bound on each value; got none. Name the bound.")
        if isinstance(self.noise, ParticipantGaussian) and self.select == "threshold":
            raise InputError(
                "the threshold's proof is for Laplace noise; got Gaussian noise. Select 'largest' or 'random' with it."
            )

    def _check_threshold(self) -> None:
        if (self.select == "threshold") != (self.threshold is not None):
            raise InputError("a threshold goes with the selection 'threshold', and that with a threshold. Give both.")
        if self.threshold is not None and not 0 <= self.threshold < math.inf:
            raise InputError(f"threshold must be finite and at least 0; got {self.threshold}.")
        if self.threshold is not None and self.bound is not None and self.threshold > self.bound:
            raise InputError(
                f"no value reaches the threshold {self.threshold} within the bound {self.bound}. Lower it."
            )

    def count(self, dimension: int) -> int:
        """Return how many of `dimension` parameters are uploaded: at most the share, but one at least."""
        return max(1, math.floor(self.share * dimension + 1e-9))

    @property
    def unit(self) -> Unit:
        return Noise.unit if self.noise is None else self.noise.unit

    @property
    def neighbours(self) -> Neighbours:
        return Noise.neighbours if self.noise is None else self.noise.neighbours

    def cut(self, change: NDArray[F]) -> NDArray[F]:
        """Return a copy of which every value lies within the bound."""
        return change.copy() if self.bound is None else np.clip(change, -self.bound, self.bound)


def protect(
    change: Vector, sharing: Sharing, *, rng: np.random.Generator, source: ByteSource = system_bytes
) -> SparseUpdate:
    """Return what may be uploaded of a change of the parameters (with what was not sent before already added).

    `rng` draws places, which are not secret. The noise comes from `source`.
    """
    if change.ndim != 1 or not change.size or not np.isfinite(change).all():
        raise InputError("a change is one row of finite numbers; got another shape, NaN or infinity.")
    places, values = _released(change, sharing, rng, source)
    if values.dtype == np.float32:
        sent: Vector = values.astype(np.float32, copy=False)
    else:
        most = float(np.finfo(np.float32).max)
        sent = np.clip(values, -most, most).astype(np.float32)
    return SparseUpdate(change.size, places, as_half(sent) if sharing.half else sent)


def remainder(change: Vector, update: SparseUpdate, sharing: Sharing) -> Vector:
    """Return what of a change the update did not carry: not selected, cut off, rounded off; never the noise.

    It is to be added to the next change. Noise is not taken back, as that would only send it again.

    >>> change = np.array([3.0, 0.25, -1.0], dtype=np.float32)
    >>> sharing = Sharing(0.34, bound=2.0, residual=True)
    >>> remainder(change, protect(change, sharing, rng=np.random.default_rng(1)), sharing).tolist()
    [1.0, 0.25, -1.0]
    """
    left = change.copy()
    if sharing.noise is None or isinstance(sharing.noise, RecordGaussian):
        with np.errstate(over="ignore"):
            left[update.indices] -= update.values
        return left
    exact = change.astype(np.float64)
    meant = sharing.cut(exact)
    if isinstance(sharing.noise, ParticipantGaussian):
        if sharing.select == "random":
            meant[update.indices] = sharing.noise.shorten(meant[update.indices])
        else:
            meant = sharing.noise.shorten(meant)
    left[update.indices] = (exact - meant)[update.indices]
    return left


def _released(
    change: Vector, sharing: Sharing, rng: np.random.Generator, source: ByteSource
) -> tuple[Places, Vector | Floats]:
    noise = sharing.noise
    if noise is None or isinstance(noise, RecordGaussian):
        places = _places(change, sharing, rng)
        return places, sharing.cut(change[places])
    exact = change.astype(np.float64)
    if isinstance(noise, PublishedLaplace):
        assert sharing.bound is not None
        if sharing.threshold is None:
            places = _places(change, sharing, rng)
            return places, noise.release(exact[places], sharing.bound, source)
        count, least = sharing.count(change.size), sharing.threshold
        return sparse_vector(
            exact, noise=noise, bound=sharing.bound, threshold=least, count=count, rng=rng, source=source
        )
    assert isinstance(noise, ParticipantGaussian)
    bounded = sharing.cut(exact)
    if sharing.select == "random":
        places = _places(exact, sharing, rng)
        return places, noise.release(bounded[places], source)
    noisy = noise.release(bounded, source)
    places = _places(noisy, sharing, rng)
    return places, noisy[places]


def _places(change: Vector | Floats, sharing: Sharing, rng: np.random.Generator) -> Places:
    """Choose without noise: by size, at random, or at random among those that reach the threshold."""
    count = sharing.count(change.size)
    if sharing.threshold is not None:
        return select_above(change.astype(np.float64), sharing.threshold, count, rng)
    return select_random(change, count, rng) if sharing.select == "random" else select_largest(change, count)
