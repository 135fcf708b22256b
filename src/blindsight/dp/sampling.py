"""Exact random draws for privacy noise: every probability is the stated one, not a floating-point neighbour of it.

Textbook samplers that push a 53-bit uniform through a logarithm leave gaps and pile-ups in the low bits of the noise
from which the secret can be read back (Mironov, "On significance of the least significant bits for differential
privacy", CCS 2012). The draws here are whole numbers from exact distributions, after Canonne, Kamath and Steinke,
"The discrete Gaussian for differential privacy", NeurIPS 2020 (Algorithms 1 to 3; their t and sigma are `scale` and
`sigma`, whole numbers here, which makes their rational arithmetic short).

*What is exact.* A coin of probability p is the question whether a uniform real U in [0, 1) lies below p. The first 64
bits of U are one random word. Where p is the same for the whole array its first 64 bits are known as an integer, and
comparing integers answers all but about 2^-64 of the questions. Where p = exp(-x) differs from draw to draw, a
float64 estimate answers all those in which U is further than 2^-40 from it; the estimate is wrong by less than 2^-48
(x carries a relative error of at most 2^-50, exp at most 4 units in the last place, and (1 + x) exp(-x) <= 1). Every
question left open is answered with more bits of U and exp in as many digits as it takes. No draw is decided by a
rounded number, so no total-variation error enters, with one exception: a geometric count is cut at 2^16, which keeps
all sums below 2^61 and has probability exp(-65536).

*What is not covered.* The time a call takes depends (weakly) on the values drawn; nothing here hides it.
"""

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cache, partial
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.rng import ByteSource, random_below, random_words, system_bytes

MAX_SCALE = 2**44
"""The largest `scale` or `sigma`; a draw is then below 2^61 in size, so adding a value below 2^61 cannot overflow."""

_MAX_COUNT = 2**16
_BLOCK = 2**17  # draws proposed at a time: large enough for numpy, small enough for the cache
_DOUBT = 2.0**-40  # a float64 estimate of a probability is not trusted closer than this

Bounds = Callable[[int], tuple[int, int]]
"""Called with a number of bits, returns whole numbers low <= p * 2^bits <= high."""


def bernoulli(probability: float | Fraction, size: int, source: ByteSource = system_bytes) -> NDArray[np.bool_]:
    """Draw `size` coins that are true with exactly this probability (a float is the fraction it stands for)."""
    if not 0 <= probability <= 1:
        raise InputError(f"a probability must be in [0, 1]; got {probability}.")
    exact = Fraction(probability)
    return _coins(partial(_rational_bounds, exact), size, source)


def bernoulli_exp(exponent: float | Fraction, size: int, source: ByteSource = system_bytes) -> NDArray[np.bool_]:
    """Draw `size` coins that are true with probability exactly exp(-exponent)."""
    if not 0 <= exponent < float("inf"):
        raise InputError(f"the exponent must be finite and at least 0; got {exponent}.")
    exact = Fraction(exponent)
    return _coins(partial(_exp_bounds, exact), size, source)


def discrete_laplace(scale: int, size: int, source: ByteSource = system_bytes) -> NDArray[np.int64]:
    """Draw whole numbers y with probability proportional to exp(-|y| / scale), exactly.

    >>> from blindsight.rng import seeded_bytes
    >>> draws = discrete_laplace(1000, 100_000, seeded_bytes(1))
    >>> round(float(abs(draws).mean()), -1)
    1000.0
    """
    _check_scale("scale", scale)
    return _fill(size, lambda count: _propose_laplace(scale, count, source))


def discrete_gaussian(sigma: int, size: int, source: ByteSource = system_bytes) -> NDArray[np.int64]:
    """Draw whole numbers y with probability proportional to exp(-y^2 / (2 sigma^2)), exactly.

    >>> from blindsight.rng import seeded_bytes
    >>> draws = discrete_gaussian(1000, 100_000, seeded_bytes(1))
    >>> round(float(draws.std()), -1)
    1000.0
    """
    _check_scale("sigma", sigma)

    def propose(count: int) -> NDArray[np.int64]:
        # CKS Algorithm 3 with t = sigma: the quotient of the two laws is exp(-(|y| - sigma)^2 / (2 sigma^2) + 1/2).
        drawn = _propose_laplace(sigma, count, source)
        off = np.abs(drawn) - sigma
        return drawn[
            _accept_exp(np.square(off / sigma) / 2, lambda i: Fraction(int(off[i]) ** 2, 2 * sigma**2), source)
        ]

    return _fill(size, propose)


def _check_scale(name: str, scale: int) -> None:
    if not 1 <= scale <= MAX_SCALE:
        raise InputError(f"{name} must be a whole number in [1, 2^44]; got {scale}.")


def _fill(size: int, propose: Callable[[int], NDArray[np.int64]]) -> NDArray[np.int64]:
    """Collect the first `size` accepted draws; `propose(count)` returns those of `count` proposals that were accepted.

    Draws are independent, so taking them in the order of acceptance does not change their law.
    """
    drawn = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        batch = propose(min(2 * (size - filled) + 16, _BLOCK))[: size - filled]
        drawn[filled : filled + batch.size] = batch
        filled += batch.size
    return drawn


def _propose_laplace(scale: int, count: int, source: ByteSource) -> NDArray[np.int64]:
    """Make `count` proposals of CKS Algorithm 2 and return the accepted ones (about 63%)."""
    rest = random_below(scale, count, source)
    rest = rest[_accept_exp(rest / scale, lambda i: Fraction(int(rest[i]), scale), source)]
    magnitude = rest + scale * _unit_geometric(rest.size, source)
    signs = np.unpackbits(np.frombuffer(source((rest.size + 7) // 8), dtype=np.uint8), count=rest.size)
    negative = signs.astype(bool)
    signed = np.where(negative, -magnitude, magnitude)
    kept: NDArray[np.int64] = signed[~(negative & (magnitude == 0))]  # else zero would come twice as often
    return kept


def _unit_geometric(count: int, source: ByteSource) -> NDArray[np.int64]:
    """Draw how often U < exp(-k) holds for k = 1, 2, ...: the count k has probability (1 - 1/e) exp(-k)."""
    words = random_words(count, source)
    thresholds = _geometric_thresholds()
    drawn = thresholds.size - np.searchsorted(thresholds, words, side="right")
    for i in np.flatnonzero(thresholds[thresholds.size - 1 - drawn] == words):  # the smallest threshold is 0
        drawn[i] = _Uniform(int(words[i]), source).exponential_floor()
    return drawn.astype(np.int64)


@cache
def _geometric_thresholds() -> NDArray[np.uint64]:
    """Return floor(2^64 exp(-k)) for k = 45 down to 1, the smallest first."""
    return np.array([_exp_bounds(Fraction(k), 64)[0] for k in range(45, 0, -1)], dtype=np.uint64)


def _accept_exp(
    exponents: NDArray[np.float64], exact: Callable[[int], Fraction], source: ByteSource
) -> NDArray[np.bool_]:
    """Toss one coin of probability exp(-x) per draw; `exact(i)` is the exponent of draw i without rounding."""
    words = random_words(exponents.size, source)
    excess = np.exp(-exponents) - (words >> np.uint64(11)) * 2.0**-53
    accepted: NDArray[np.bool_] = excess > 0
    for i in np.flatnonzero(np.abs(excess) < _DOUBT):
        accepted[i] = _Uniform(int(words[i]), source).below(partial(_exp_bounds, exact(int(i))))
    return accepted


def _coins(bounds: Bounds, size: int, source: ByteSource) -> NDArray[np.bool_]:
    """Toss `size` coins of one probability, given by ever closer bounds on it."""
    words = random_words(size, source)
    low, high = bounds(64)
    if low >= 2**64:
        return np.ones(size, dtype=np.bool_)
    drawn = words < np.uint64(low)
    for i in np.flatnonzero(words - np.uint64(low) < np.uint64(high - low)):  # low <= word < high does not decide
        drawn[i] = _Uniform(int(words[i]), source).below(bounds)
    return drawn


class _Uniform:
    """A uniform real in [0, 1) of which only the bits that were needed have been drawn."""

    def __init__(self, word: int, source: ByteSource) -> None:
        self._value, self._bits, self._source = word, 64, source

    def below(self, bounds: Bounds) -> bool:
        """Tell whether the number is below p, drawing more bits until the bounds on p decide it."""
        while True:
            low, high = bounds(self._bits)
            if self._value < low:  # the number is below (value + 1) / 2^bits <= p
                return True
            if self._value >= high:
                return False
            self._value = self._value << 64 | int.from_bytes(self._source(8), "little")
            self._bits += 64

    def exponential_floor(self) -> int:
        """Count for how many k = 1, 2, ... the number is below exp(-k)."""
        count = 0
        while count < _MAX_COUNT and self.below(partial(_exp_bounds, Fraction(count + 1))):
            count += 1
        return count


def _rational_bounds(probability: Fraction, bits: int) -> tuple[int, int]:
    scaled = probability * 2**bits
    return floor(scaled), ceil(scaled)


def _exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return whole numbers low <= exp(-exponent) * 2^bits <= high that differ by 1, or by 2 in the rarest case."""
    if exponent == 0:
        return 2**bits, 2**bits
    if exponent >= bits:
        return 0, 1
    digits = bits * 3 // 10 + len(str(ceil(exponent))) + 20
    context = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
    quotient = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    scaled = Fraction(context.exp(quotient.copy_negate())) * 2**bits
    # Division and exp are each right to half a unit in the last digit; the first error is multiplied by the exponent.
    error = scaled * (exponent + 2) / 10 ** (digits - 1)
    return floor(scaled - error), ceil(scaled + error)
