"""Is a guess better than chance? Exact tests, whatever the guesses look like.

*Values.* The audit hides the truth in a `Disguise`: its entries in a uniformly random order, with random signs, which
nobody else knows. The score of a set of guesses is the largest |cosine| of any of them with the disguised truth, as if
the attacker knew which to choose; chance is the same score with other disguises.

    Claim. If the guesses are independent of the truth, p = (1 + scores of chance at least as large) / (1 + trials) has
    P(p <= alpha) <= alpha.
    Proof. Given the guesses, the true disguise and the `trials` others are independent draws from one distribution, so
    the rank of the true score among them all is uniform (ties count against a finding). []

The claim does not ask that guesses look random; the headers of messages do not, and would otherwise agree by accident
with the order of a picture's rows.

*Signs.* Where the truth was not disguised but every entry of a guess is as likely to have either sign, whatever the
others are, chance is the score with the signs of its entries drawn at random, for the same reason.

*Places.* Of a sparse update an attacker may learn where it is, and nothing of what it is. The score of a set of places
is the share of the update's squares that lies there (as if all signs were known); chance is the same for uniformly
random places, which is what places under a secret permutation are.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError

_CHUNK = 256


@dataclass(frozen=True)
class ChanceTest:
    """A score, the score that chance exceeds with probability `false_alarm`, and the p-value of `trials` draws."""

    score: float
    threshold: float
    p_value: float
    false_alarm: float
    trials: int

    @property
    def at_chance(self) -> bool:
        """Whether the score is no better than guessing; by bad luck alone it is with probability `false_alarm`."""
        return self.p_value > self.false_alarm


@dataclass(frozen=True, eq=False)
class Disguise:
    """A random order and random signs of the entries of a vector."""

    order: NDArray[np.int64]
    signs: NDArray[np.float64]

    @classmethod
    def draw(cls, size: int, generator: np.random.Generator) -> "Disguise":
        """Return one of all disguises, each as likely as any other."""
        return cls(generator.permutation(size), generator.choice([-1.0, 1.0], size=size))

    def hide(self, vector: NDArray[Any]) -> NDArray[Any]:
        hidden: NDArray[Any] = self.signs * vector[self.order]
        return hidden

    def reveal(self, disguised: NDArray[Any]) -> NDArray[Any]:
        """Undo `hide`."""
        vector = np.empty_like(disguised)
        vector[self.order] = self.signs * disguised
        return vector


def needed_trials(false_alarm: float) -> int:
    """Return how many draws of chance a false-alarm rate takes.

    >>> needed_trials(0.001)
    999
    """
    if not 1e-6 <= false_alarm < 1:
        raise InputError(f"a false-alarm rate must be in [1e-6, 1); got {false_alarm}. It takes 1 / rate draws.")
    return math.ceil(1 / false_alarm - 1e-9) - 1


def values_test(
    guesses: NDArray[np.float64],
    truth: NDArray[np.float64],
    *,
    generator: np.random.Generator,
    false_alarm: float,
) -> ChanceTest:
    """Test guesses, one per row, of a disguised vector."""
    if guesses.ndim != 2 or guesses.shape[1:] != truth.shape or not len(guesses):
        raise InputError(f"guesses are rows of {truth.size} numbers; got shape {guesses.shape}.")
    if not truth.any():
        raise InputError("the truth is zero: every guess has the same angle with it.")
    rows = (guesses / np.maximum(np.linalg.norm(guesses, axis=1, keepdims=True), 1e-300)).astype(np.float32)
    unit = (truth / np.linalg.norm(truth)).astype(np.float32)
    drawn = np.empty(needed_trials(false_alarm))
    for start in range(0, drawn.size, _CHUNK):
        others = np.tile(unit, (min(_CHUNK, drawn.size - start), 1))
        generator.permuted(others, axis=1, out=others)
        others *= generator.choice(np.array([-1, 1], dtype=np.float32), size=others.shape)
        drawn[start : start + len(others)] = np.abs(rows @ others.T).max(axis=0)
    return _test(float(np.abs(rows @ unit).max()), drawn, false_alarm)


def signs_test(
    guesses: NDArray[np.float64],
    truth: NDArray[np.float64],
    *,
    generator: np.random.Generator,
    false_alarm: float,
) -> ChanceTest:
    """Test guesses, one per row, whose entries are as likely to have either sign if nothing was learned."""
    lengths = np.maximum(np.linalg.norm(guesses, axis=1, keepdims=True), 1e-300)
    agreement = (guesses / lengths * (truth / np.linalg.norm(truth))).astype(np.float32)
    drawn = np.empty(needed_trials(false_alarm))
    for start in range(0, drawn.size, _CHUNK):
        shape = agreement.shape[1], min(_CHUNK, drawn.size - start)
        signs = generator.choice(np.array([-1, 1], dtype=np.float32), size=shape)
        drawn[start : start + shape[1]] = np.abs(agreement @ signs).max(axis=0)
    return _test(float(np.abs(agreement.sum(axis=1)).max()), drawn, false_alarm)


def places_test(
    places: NDArray[np.int64],
    truth: NDArray[np.float64],
    *,
    block: int,
    generator: np.random.Generator,
    false_alarm: float,
) -> ChanceTest:
    """Test places, numbers of blocks of consecutive entries, against where the truth is."""
    squares = np.add.reduceat(truth**2, np.arange(0, truth.size, block)) / np.sum(truth**2)
    chosen = np.unique(places)
    if chosen.size and not 0 <= chosen[0] <= chosen[-1] < squares.size:
        raise InputError(f"places are blocks 0 to {squares.size - 1}.")
    drawn = np.empty(needed_trials(false_alarm))
    for start in range(0, drawn.size, _CHUNK):
        others = generator.permuted(np.tile(squares, (min(_CHUNK, drawn.size - start), 1)), axis=1)
        drawn[start : start + len(others)] = others[:, : chosen.size].sum(axis=1)
    return _test(float(squares[chosen].sum()), drawn, false_alarm)


def _test(score: float, drawn: NDArray[np.float64], false_alarm: float) -> ChanceTest:
    larger = int(np.count_nonzero(drawn >= score - 1e-6))  # ties, up to single precision, count for chance
    threshold = float(np.quantile(drawn, 1 - false_alarm, method="higher"))
    return ChanceTest(score, threshold, (1 + larger) / (1 + drawn.size), false_alarm, drawn.size)
