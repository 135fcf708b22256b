"""What an owner sends of what it learned: few numbers, chosen well, and nothing lost.

*The guarantee.* Whatever is held back stays in the owner's `Residual` and is sent later: after any number of rounds the
sum of all that was sent plus the residual is the sum of all updates (error feedback, Seide et al. 2014; Karimireddy et
al. 2019; `LinearTraining.error_feedback` carries on less of it, where that is better). Entries are chosen by magnitude
(`top_entries`) or in whole blocks by Euclidean norm (`top_blocks`), the shape that packed encryption wants: at 90%
unstructured sparsity 99.9% of the blocks of 63 weights still hold a number.

`search_strength` is the paper's way instead: the penalty itself makes the weights sparse, and its strength is searched
until they are sparse enough (Yonetani et al. 2017, section 3.2, "adjusted adaptively so that local classifiers had more
than 90% sparsity").
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_TRIALS = 16
_FIRST_STRIDE = math.log(4)  # how far the search first leaves a guess that is too low or too high; it doubles


def sparsity(values: Array) -> float:
    """Return the share of exact zeros.

    >>> sparsity(np.array([0.0, 2.0, 0.0, 0.0]))
    0.75
    """
    return 1 - int(np.count_nonzero(values)) / max(values.size, 1)


def top_entries(values: Array, keep_fraction: float) -> Mask:
    """Mark the entries of largest magnitude, at most `keep_fraction` of all but at least one; ties go to the first.

    >>> top_entries(np.array([0.1, -3.0, 2.0, 0.0]), 0.5)
    array([False,  True,  True, False])
    """
    return _largest(np.abs(values).ravel(), keep_fraction).reshape(values.shape)


def top_blocks(values: Array, block_size: int, keep_fraction: float) -> Mask:
    """Mark whole blocks of `block_size` consecutive entries (row by row; the last may be shorter) by largest norm.

    At most `keep_fraction` of the blocks are marked but at least one; ties go to the first.

    >>> top_blocks(np.array([[1.0, 1.0, 0.0], [0.0, 3.0, 0.0]]), block_size=2, keep_fraction=0.4)
    array([[False, False, False],
           [False,  True,  True]])
    """
    if block_size < 1:
        raise InputError(f"block_size must be at least 1; got {block_size}.")
    starts = np.arange(0, values.size, block_size)
    energy = np.add.reduceat(values.ravel() ** 2, starts) if values.size else np.zeros(0)
    chosen = np.repeat(_largest(energy, keep_fraction), block_size)[: values.size]
    return chosen.reshape(values.shape)


def _largest(sizes: Array, keep_fraction: float) -> Mask:
    if not 0 < keep_fraction <= 1:
        raise InputError(f"keep_fraction must be in (0, 1]; got {keep_fraction}.")
    count = max(math.floor(keep_fraction * sizes.size + 1e-9), 1)
    mask = np.zeros(sizes.size, dtype=np.bool_)
    mask[np.argsort(-sizes, kind="stable")[:count]] = True
    return mask


@dataclass(frozen=True, eq=False)
class Residual:
    """What an owner has learned but not sent yet; it never leaves the owner."""

    held: Array

    @classmethod
    def nothing(cls, shape: tuple[int, ...]) -> Self:
        """Return the residual of an owner that has sent everything."""
        return cls(np.zeros(shape))

    @classmethod
    def after(cls, pending: Array, sent: Array) -> Self:
        """Return what remains of `pending` once `sent` has gone out, rounding on the way included."""
        return cls(pending - sent)

    def __repr__(self) -> str:
        return f"Residual(shape={self.held.shape})"


def search_strength(
    train: Callable[[float], Array], target: float, guess: float, slack: float = 0.02
) -> tuple[Array, float]:
    """Find a penalty strength at which what `train` returns has sparsity in [target, target + slack].

    The search brackets the target from `guess` in growing strides and interpolates in the logarithm of the strength; it
    ends inside the slack or after sixteen trainings. It returns the trained values and their strength: those of the
    least strength that passed the target, or the sparsest ones if none did (a bias column that is never zero can make
    the target impossible). `train` must give the same answer for the same strength.
    """
    low: tuple[float, float] | None = None  # log strength and sparsity short of the target
    high: tuple[float, float] | None = None  # and past it
    best, best_sparsity, best_strength = np.zeros(0), -1.0, guess
    log, stride = math.log(guess), _FIRST_STRIDE
    for _ in range(_TRIALS):
        values = train(math.exp(log))
        found = sparsity(values)
        if found >= target or (high is None and found > best_sparsity):
            best, best_sparsity, best_strength = values, found, math.exp(log)
        if target <= found <= target + slack:
            break
        if found >= target:
            high = (log, found)
        else:
            low = (log, found)
        log = _next_log(low, high, target + slack / 2, stride)
        stride *= 2
    return best, best_strength


def _next_log(low: tuple[float, float] | None, high: tuple[float, float] | None, wanted: float, stride: float) -> float:
    """Return the next log strength to try: a stride outwards while one side is open, else between the two sides."""
    if low is not None and high is not None:
        gap = high[0] - low[0]
        share = (wanted - low[1]) / (high[1] - low[1]) if gap < 4 else 0.5
        return low[0] + min(max(share, 0.1), 0.9) * gap  # never too near an end
    open_end = low[0] + stride if low is not None else high[0] - stride if high is not None else 0.0
    return min(max(open_end, -80.0), 80.0)
