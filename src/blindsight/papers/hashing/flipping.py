"""Noise on binary codes, with the exact loss of each: Random Flipping of every bit, and the Hamming ball.

*Random Flipping.* `flip` flips each bit independently, with a probability of exactly `grid_beta(beta)`. A bit then
loses `bit_loss`, |ln((1 - beta) / beta)|, and no less. A record has many bits, and the code that is easiest to tell
from its own is the complement: a record that is replaced by another loses `record_loss`, bits times as much
(delta = 0). The hash function must not depend on the record.

*The paper.* Wang, Lu and Zhang, "Searching privately by imperceptible lying", MM 2020: Algorithm 1 with U, U', beta, n
and c as `codes`, the result, `beta`, the number of codes and `bits`. Theorem 4 claims epsilon-privacy of
beta = e^-epsilon (`paper_beta`) whatever the size of U. That is wrong twice. The epsilon is that of a single bit: at
epsilon = 1 a record of 48 bits loses 26. And even a bit loses more than epsilon below `SMALLEST_PAPER_EPSILON`: under
ln 2 most bits are flipped, so that a smaller epsilon hides less. Lemma 5 states as an equality what is an upper bound
(Jensen's inequality). Lemma 7 holds, and n c beta, the expected number of flips, is far tighter.

*Instead* `response_beta` is randomised response (Warner 1965), which loses epsilon per bit, and `record_beta` spends an
epsilon on a whole record.

*Rounding.* A budget becomes a probability by way of `odds`, e^epsilon rounded down, and is then rounded towards 1/2,
which never gives away more. The same goes for `grid_beta`: multiples of 2^-64, so only a beta below 2^-11 changes.

*The Hamming ball.* A code within Hamming distance `radius` of the true one is released e^epsilon times as likely as a
code outside; codes within are equally likely, and so are those outside. All balls have the same size, so no release is
more than e^epsilon times as likely from one code as from any other: a record that is replaced by another loses
`loss` = epsilon (delta = 0), *whatever the length of the code*. The bound is tight at every radius below the length:
releasing the true code itself, against its complement. The hash function must not depend on the record.

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

from blindsight.dp.accounting import check_positive
from blindsight.errors import InputError
from blindsight.rng import ByteSource, random_words, system_bytes
from blindsight.search.codes import Codes, blocks, check_bits, check_codes, pack
from blindsight.search.symbols import odds, random_subsets

SMALLEST_PAPER_EPSILON = math.log((1 + math.sqrt(5)) / 2)  # below, Theorem 4 is false even per bit
_BLOCK = 2**15  # words of 64 coins tossed at a time: they stay in the cache


def binomials(bits: int) -> list[int]:
    """Return how many codes of `bits` bits there are at each distance from one of them.

    >>> binomials(4)
    [1, 4, 6, 4, 1]
    """
    return list(accumulate(range(1, bits + 1), lambda number, k: number * (bits + 1 - k) // k, initial=1))


def paper_beta(epsilon: float) -> float:
    """Return Theorem 4's flip probability e^-epsilon, for any epsilon: what it really costs is `record_loss`.

    >>> round(record_loss(paper_beta(1.0), bits=48), 1)
    26.0
    """
    check_positive("epsilon", epsilon)
    return math.exp(-epsilon)


def response_beta(epsilon: float | Fraction) -> float:
    """Return the flip probability 1 / (1 + e^epsilon) of randomised response: epsilon for each *bit*."""
    exact = 1 / (1 + odds(epsilon))
    beta = float(exact)
    return beta if beta >= exact else math.nextafter(beta, 1.0)


def record_beta(epsilon: float, bits: int) -> float:
    """Return the least flip probability with which a whole record of `bits` bits loses epsilon (delta = 0).

    >>> round(record_beta(4.0, bits=48), 3)
    0.479
    """
    check_bits(bits)
    check_positive("epsilon", epsilon)
    return response_beta(Fraction(float(epsilon)) / int(bits))


def bit_loss(beta: float) -> float:
    """Return the exact privacy loss |ln((1 - beta) / beta)| of one bit: infinite where beta is 0 or 1."""
    _check_beta(beta)
    lie = min(beta, 1 - beta)  # turning nearly all bits around hides as little as turning few
    if lie > 0.25:  # no digits are lost near 1/2, as the difference is exact
        return 2 * math.atanh(1 - 2 * lie)
    return math.log1p(-lie) - math.log(lie) if lie else math.inf


def record_loss(beta: float, bits: int) -> float:
    """Return the exact privacy loss of a record, all bits of which are released: the ratio for complementary codes."""
    check_bits(bits)
    return int(bits) * bit_loss(beta)


def grid_beta(beta: float) -> float:
    """Return the probability with which `flip` turns a bit around: beta up to a multiple of 2^-64, towards 1/2.

    >>> grid_beta(0.3) == 0.3, grid_beta(1e-30) == 2.0**-64, grid_beta(0.0)
    (True, True, 0.0)
    """
    _check_beta(beta)
    return math.ldexp(math.ceil(math.ldexp(beta, 64)), -64)  # floats above 1/2 lie on the grid


def flip(codes: ArrayLike, bits: int, beta: float, *, source: ByteSource = system_bytes) -> Codes:
    """Return packed codes, each bit flipped independently with probability `grid_beta(beta)` (Algorithm 1).

    Two releases of the same code lose twice: keep the first.
    """
    truth = check_codes(codes, bits)
    words = -(-truth.size // 8)
    threshold = int(math.ldexp(grid_beta(beta), 64))
    coins = np.empty(words, dtype=np.uint64)
    for span in blocks(words, _BLOCK):
        coins[span] = _coins(threshold, span.stop - span.start, source)
    flips = coins.view(np.uint8)[: truth.size].reshape(truth.shape)
    if bits % 8:
        flips[:, -1] &= (1 << int(bits) % 8) - 1  # padding stays zero
    return truth ^ flips


def _check_beta(beta: float) -> None:
    if not 0 <= beta <= 1:
        raise InputError(f"a flip probability must be in [0, 1]; got {beta}.")


def _coins(threshold: int, count: int, source: ByteSource) -> NDArray[np.uint64]:
    """Toss 64 coins per word, each 1 with probability threshold / 2^64, exactly.

    A coin asks whether a uniform number is below the threshold: binary digits are compared from the highest on, 64
    coins at a time, until they differ. Words without undecided coins draw no more.
    """
    if threshold == 2**64:
        return np.full(count, 2**64 - 1, dtype=np.uint64)
    coins = np.zeros(count, dtype=np.uint64)
    pending, equal = np.arange(count), np.full(count, 2**64 - 1, dtype=np.uint64)
    while threshold and pending.size:  # no digits left: the number is not below
        still = equal & random_words(pending.size, source)  # a fair coin tells whether the digits agree
        if threshold >> 63:  # where they do not, the number's is 0: below
            coins[pending] |= equal ^ still
        threshold = (threshold << 1) % 2**64
        open_words = still != 0
        pending, equal = pending[open_words], still[open_words]
    return coins


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

    def release(self, codes: ArrayLike, *, source: ByteSource = system_bytes) -> Codes:
        """Return packed codes, each exchanged for one drawn by its distance from it.

        Two releases of the same code lose twice: keep the first.
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
