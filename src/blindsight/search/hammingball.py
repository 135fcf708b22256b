"""The Hamming-ball mechanism: release a code that is likely near the true one, with a record-level proof.

*The guarantee.* A code within Hamming distance `radius` of the true one is released e^epsilon times as likely as a code
outside, and all codes within are as likely as each other, as are all outside. All balls have the same size, so no
release is more than e^epsilon times as likely from one code as from any other: a record that is replaced by another
loses `loss` = epsilon (delta = 0), *whatever the length of the code*, where flipping each bit pays for every one. The
bound is tight at every radius below the length: releasing the true code itself, against its complement. The hash
function must not depend on the record.

It is the exponential mechanism (McSherry and Talwar 2007) with the utility "is within the radius", and a staircase
mechanism in the sense of Kairouz, Oh and Viswanath ("Extremal mechanisms for local differential privacy", JMLR 2016).

*How it is drawn.* The distance d first, with probability proportional to C(bits, d), times e^epsilon within the radius;
then d places without repetition, all choices being equally likely. e^epsilon is rounded down (`odds`), after which all
probabilities are fractions and both draws keep them exactly; the true loss is below epsilon by less than 2^-120.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.rng import ByteSource, random_words, system_bytes
from blindsight.search.codes import Codes, blocks, check_bits, check_codes, pack
from blindsight.search.flipping import binomials, odds
from blindsight.search.symbols import random_subsets

_ROWS = 2**15  # codes released at a time


@dataclass(frozen=True, init=False)
class HammingBall:
    """Releases codes near the true one: `epsilon` per record of any length.

    The default radius is the one that keeps most bits: the least expected distance, the smallest first.

    >>> mechanism = HammingBall(48, 4.0)
    >>> mechanism.radius, round(float(mechanism.expected_distance), 2)
    (18, 18.76)
    """

    bits: int
    epsilon: float
    radius: int

    def __init__(self, bits: int, epsilon: float, radius: int | None = None) -> None:
        check_bits(bits)
        factor = odds(epsilon)
        best = _nearest_radius(int(bits), factor) if radius is None else radius
        if isinstance(best, bool) or not isinstance(best, int | np.integer) or not 0 <= best < bits:
            raise InputError(f"radius must be a whole number in [0, {bits - 1}]; got {best!r}. A larger says nothing.")
        for name, value in (("bits", int(bits)), ("epsilon", float(epsilon)), ("radius", int(best))):
            object.__setattr__(self, name, value)

    @property
    def loss(self) -> float:
        """What one release costs a record, proven."""
        return self.epsilon

    @property
    def expected_distance(self) -> Fraction:
        """How many bits a release has wrong on average, exactly."""
        return sum((d * chance for d, chance in enumerate(self._chances)), Fraction(0))

    def __str__(self) -> str:
        wrong = float(self.expected_distance)
        return f"Hamming ball of radius {self.radius} in {self.bits} bits, {wrong:.6g} of them wrong on average"

    def distance_distribution(self) -> NDArray[np.float64]:
        """Return how likely a release is at each distance from the true code, (bits + 1,)."""
        return np.array([float(chance) for chance in self._chances])

    def release(self, codes: ArrayLike, *, source: ByteSource = system_bytes) -> Codes:
        """Return packed codes, each exchanged for one drawn by its distance from it.

        Whoever gets two releases of the same code has lost twice: keep the first.
        """
        truth = check_codes(codes, self.bits)
        released = np.empty_like(truth)
        up_to = list(accumulate(self._chances))
        for span in blocks(len(truth), _ROWS):
            distances = categorical(up_to, span.stop - span.start, source)
            released[span] = truth[span] ^ pack(random_subsets(distances, self.bits, source))
        return released

    @cached_property
    def _chances(self) -> tuple[Fraction, ...]:
        factor = odds(self.epsilon)
        weights = [number * (factor if d <= self.radius else 1) for d, number in enumerate(binomials(self.bits))]
        total = sum(weights)
        return tuple(Fraction(weight) / total for weight in weights)


def categorical(up_to: Sequence[Fraction], size: int, source: ByteSource = system_bytes) -> NDArray[np.int64]:
    """Draw whole numbers that are at most i with probability `up_to[i]`, exactly.

    A draw counts the bounds that a uniform number has reached. Its first 64 binary digits tell, unless they are also
    the first 64 of a bound that has more: then the rest of the number is drawn against the rest of the bounds.
    """
    bounds = [bound * 2**64 for bound in up_to if bound < 1]
    floors = [math.floor(bound) for bound in bounds]
    words = random_words(size, source)
    drawn = np.searchsorted(np.array(floors, dtype=np.uint64), words, side="right").astype(np.int64)
    unclear = np.array([floor for floor, bound in zip(floors, bounds, strict=True) if floor != bound], dtype=np.uint64)
    for word in np.unique(words[np.isin(words, unclear)]):
        pending = np.flatnonzero(words == word)
        rest = [min(max(bound - int(word), Fraction(0)), Fraction(1)) for bound in bounds]
        drawn[pending] = categorical(rest, pending.size, source)
    return drawn


def _nearest_radius(bits: int, factor: Fraction) -> int:
    """Return the radius of the least expected distance: (sum of d w_d) / (sum of w_d) in whole numbers."""
    numbers = binomials(bits)[:-1]
    moments = accumulate(d * number for d, number in enumerate(numbers))
    # All codes together have 2^bits of weight and bits 2^(bits - 1) of distance; those inside count `factor` times.
    distances = [
        (bits * 2 ** (bits - 1) + (factor - 1) * moment) / (2**bits + (factor - 1) * count)
        for moment, count in zip(moments, accumulate(numbers), strict=True)
    ]
    return distances.index(min(distances))
