"""What a participant does to its change of the model before any of it leaves: choose, bound, add noise, round.

Exactly as many parameters are chosen as asked for. The largest are those of PPDL's "largest gradient" (Bu 2019, section
6) and of Shokri and Shmatikov 2015; which places they are tells about the photos, and no noise on the *values* hides
it. Random places tell nothing.

`Sharing` says how, and refuses combinations that do not make sense; `protect` does it; `remainder` tells what is left
to send. What each combination proves is told by `blindsight.selective.accounting`.

The order of the steps is what makes Gaussian noise per participant honest. With `random` the places are drawn without
looking at the change, and only what stands there is shortened and gets noise. With `largest` the *whole* change is
shortened and gets noise, and the largest of the noisy values are chosen, which is post-processing. Symbols of the
papers: theta_u is `share`, gamma is `bound`, tau is `threshold`.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, UnknownNameError
from blindsight.rng import ByteSource, system_bytes
from blindsight.selective.codec import Places, SparseUpdate, Vector, as_half, every_place
from blindsight.selective.noise import (
    Floats,
    Laplace,
    Noise,
    ParticipantGaussian,
    PublishedLaplace,
    RecordGaussian,
    check_number,
    select_above,
    sparse_vector,
)


def select_largest(change: NDArray[np.floating], count: int) -> Places:
    """Return the ascending places of the `count` largest magnitudes; of equal ones the first.

    >>> select_largest(np.array([0.5, -3.0, 0.5, 2.0]), 3).tolist()
    [0, 1, 3]
    """
    _check_count(count, change.size)
    if count == change.size:
        return every_place(change.size)
    sizes = np.abs(change)
    least = np.partition(sizes, change.size - count)[change.size - count]
    above = sizes > least
    ties = np.flatnonzero(sizes == least)[: count - np.count_nonzero(above)]
    above[ties] = True
    return np.flatnonzero(above)


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
        """Refuse what cannot be meant."""
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
            raise InputError(f"noise must be one of the kinds of blindsight.selective.noise; got {self.noise!r}.")
        if isinstance(self.noise, Laplace | PublishedLaplace) and self.bound is None:
            raise InputError("Laplace noise is made for a bound on each value; got none. Name the bound.")
        if isinstance(self.noise, ParticipantGaussian):
            self._check_gaussian(self.noise)

    def _check_threshold(self) -> None:
        if (self.select == "threshold") != (self.threshold is not None):
            raise InputError("a threshold goes with the selection 'threshold', and that with a threshold. Give both.")
        if self.threshold is not None and not 0 <= self.threshold < math.inf:
            raise InputError(f"threshold must be finite and at least 0; got {self.threshold}.")
        if self.threshold is not None and self.bound is not None and self.threshold > self.bound:
            raise InputError(
                f"no value reaches the threshold {self.threshold} within the bound {self.bound}. Lower it."
            )

    def _check_gaussian(self, noise: ParticipantGaussian) -> None:
        if self.select == "threshold":
            raise InputError(
                "the threshold's proof is for Laplace noise; got Gaussian noise. Select 'largest' or 'random' with it."
            )
        if noise.among > 1 and (self.half or not (self.select == "random" or self.share == 1)):
            raise InputError(
                "noise that participants share adds up only where all of them upload, unrounded: select 'random' (with "
                "the same places for all) or share everything, without half."
            )

    def count(self, dimension: int) -> int:
        """Return how many of `dimension` parameters are uploaded: at most the share, but one at least."""
        return max(1, math.floor(self.share * dimension + 1e-9))


def protect(
    change: Vector, sharing: Sharing, *, rng: np.random.Generator, source: ByteSource = system_bytes
) -> SparseUpdate:
    """Return what may be uploaded of a change of the parameters (with what was not sent before already added).

    `rng` draws places, which are no secret: participants that share noise must give generators of equal state. The
    noise comes from `source`.
    """
    if change.ndim != 1 or not change.size or not np.isfinite(change).all():
        raise InputError("a change is one row of finite numbers; got another shape, NaN or infinity.")
    places, values = _released(change, sharing, rng, source)
    return SparseUpdate(change.size, places, _rounded(values, half=sharing.half))


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
    meant = _bounded(exact, sharing.bound)
    if isinstance(sharing.noise, ParticipantGaussian):
        if sharing.select == "random":
            meant[update.indices] = sharing.noise.shorten(meant[update.indices])
        else:
            meant = sharing.noise.shorten(meant)
    left[update.indices] = (exact - meant)[update.indices]
    return left


def _released(change: Vector, sharing: Sharing, rng: np.random.Generator, source: ByteSource) -> tuple[Places, Floats]:
    """Return the places and values that are uploaded, before they are rounded."""
    noise = sharing.noise
    if noise is None or isinstance(noise, RecordGaussian):
        places = _places(change, sharing, rng)
        return places, _bounded(change[places].astype(np.float64), sharing.bound)
    exact = change.astype(np.float64)
    if isinstance(noise, Laplace | PublishedLaplace):
        return _with_laplace(exact, sharing, noise, rng, source)
    bounded = _bounded(exact, sharing.bound)
    if sharing.select == "random":
        places = _places(exact, sharing, rng)
        return places, noise.release(bounded[places], source)
    noisy = noise.release(bounded, source)
    places = _places(noisy, sharing, rng)
    return places, noisy[places]


def _with_laplace(
    change: Floats, sharing: Sharing, noise: Laplace | PublishedLaplace, rng: np.random.Generator, source: ByteSource
) -> tuple[Places, Floats]:
    assert sharing.bound is not None
    if sharing.threshold is None:
        places = _places(change, sharing, rng)
        return places, noise.release(change[places], sharing.bound, source)
    return sparse_vector(
        change,
        noise=noise,
        bound=sharing.bound,
        threshold=sharing.threshold,
        count=sharing.count(change.size),
        rng=rng,
        source=source,
    )


def _places(change: Vector | Floats, sharing: Sharing, rng: np.random.Generator) -> Places:
    """Choose without noise: by size, at random, or at random among those that reach the threshold."""
    count = sharing.count(change.size)
    if sharing.threshold is not None:
        return select_above(change.astype(np.float64), sharing.threshold, count, rng)
    return select_random(change, count, rng) if sharing.select == "random" else select_largest(change, count)


def _bounded(change: Floats, bound: float | None) -> Floats:
    return change.copy() if bound is None else np.clip(change, -bound, bound)


def _rounded(values: Floats, *, half: bool) -> Vector:
    """Round to the type that is sent; what is beyond its range becomes its largest number."""
    most = float(np.finfo(np.float32).max)
    single = np.clip(values, -most, most).astype(np.float32)
    return as_half(single) if half else single
