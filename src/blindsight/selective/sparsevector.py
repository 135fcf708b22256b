"""Random parameters above a threshold: the sparse-vector technique, with a proof for what is really computed.

*The guarantee* (`Laplace` noise). With epsilon per uploaded value and at most c values, one upload is
(c epsilon)-differentially private for replacing all of a participant's photos, places and values together. Parameters
are visited in random order. A fresh threshold tau + Lap(2 D / e1) is compared with |bound(w)| + Lap(4 D / e1) of one
after the other; the first that reaches it costs e1 in all, however many did not (AboveThreshold; Dwork and Roth 2014,
Theorem 3.23; Lyu, Su and Li 2017 for what goes wrong in variants). Its value is then released as
bound(bound(w) + Lap(9 D / epsilon)), which costs epsilon / 9. With e1 = 8/9 epsilon the two make epsilon; after c
values it halts. D = 2 gamma bounds how far a value in [-gamma, gamma] can move. (Its magnitude moves by gamma only, so
the choice in truth costs half of e1; the papers' count is kept.)

*The papers.* Shokri and Shmatikov 2015, Figure 12, call this budget epsilon for all c values: their
eps1 = 8/9 eps, eps2 = 2/9 eps, sigma(x) = 2 c D / x are the scales above with eps = c epsilon (eps1 + eps2 exceed eps,
yet the value costs eps2 / 2 only). As published they release bound(w + noise, gamma) of a w that is not bounded, so the
values (not the places) can cost any amount: `PublishedLaplace` does that here, and nothing is proven of it.

*What is computed.* Noise and comparisons are whole numbers of grid steps from the exact sampler, so the proof holds to
the last bit: rounding moves a value by at most D/g + 1 steps, which the noise is made for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.dp.mechanisms import LaplaceMechanism
from blindsight.dp.sampling import discrete_laplace
from blindsight.rng import ByteSource, system_bytes
from blindsight.selective.noise import Floats, Laplace, PublishedLaplace
from blindsight.selective.selection import Places

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
