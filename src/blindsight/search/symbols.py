"""Release one symbol out of k with a proof: k-ary randomised response and subset selection.

*The guarantee.* Whatever is released is at most e^epsilon times as likely from one symbol as from any other: a record
that is replaced by another loses `loss` = epsilon, with delta = 0. Both mechanisms are tight. The k symbols (entries of
a codebook, classes) are public and do not depend on the record.

*KaryResponse* tells the truth with probability e^epsilon / (e^epsilon + k - 1), else any other symbol (Kairouz, Oh and
Viswanath, "Extremal mechanisms for local differential privacy", JMLR 2016: best where epsilon is large).

*SubsetSelection* releases a set of `size` symbols. With probability size e^epsilon / (size e^epsilon + k - size) it is
any set that holds the truth, else any that does not; with size 1 it is k-ary response. (Wang et al., "Mutual
information optimally local private discrete distribution estimation", 2016; Ye and Barg, "Optimal schemes for discrete
distribution estimation under locally differential privacy", IEEE Trans. Information Theory 2018, with size as d: best
where epsilon is small.)

*Rounding.* e^epsilon is irrational. `odds` rounds it down to 128 digits, and with that every probability is a fraction
that the draws keep exactly; the true loss is ln(odds), below epsilon by less than 2^-120.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import gmpy2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.dp.accounting import check_positive
from blindsight.dp.sampling import bernoulli
from blindsight.errors import InputError
from blindsight.rng import ByteSource, random_below, system_bytes

Floats = NDArray[np.float64]
_LARGEST_EPSILON = 700.0  # e^-700 is nearly the smallest number that a float holds in full


def odds(epsilon: float | Fraction) -> Fraction:
    """Return e^epsilon rounded down to 128 binary digits: probabilities this far apart lose no more than epsilon."""
    check_positive("epsilon", float(epsilon))
    if epsilon > _LARGEST_EPSILON:
        raise InputError(f"epsilon must be at most {_LARGEST_EPSILON:g}; got {epsilon}. So much is no privacy at all.")
    exact = epsilon if isinstance(epsilon, Fraction) else Fraction(float(epsilon))
    with gmpy2.context(precision=128, round=gmpy2.RoundDown):
        numerator, denominator = gmpy2.exp(gmpy2.mpfr(gmpy2.mpq(exact))).as_integer_ratio()
    return Fraction(int(numerator), int(denominator))


def random_subsets(sizes: NDArray[np.int64], width: int, source: ByteSource = system_bytes) -> NDArray[np.bool_]:
    """Draw for each size one of the sets of that size out of `width` places, all equally likely, (n, width).

    Selection sampling: a place is taken with probability (still wanted) / (places left), which is exact.
    """
    taken = np.empty((width, sizes.size), dtype=np.bool_)
    wanted = sizes.copy()
    for place in range(width):
        np.less(random_below(width - place, sizes.size, source), wanted, out=taken[place])
        wanted -= taken[place]
    return np.ascontiguousarray(taken.T)


@dataclass(frozen=True)
class KaryResponse:
    """Tells the true one of k symbols, or with a fixed probability any other: `epsilon` per record.

    >>> round(float(KaryResponse(10, 4.0).truth), 3)
    0.858
    """

    k: int
    epsilon: float

    def __post_init__(self) -> None:
        _check_alphabet(self.k)
        odds(self.epsilon)
        object.__setattr__(self, "k", int(self.k))
        object.__setattr__(self, "epsilon", float(self.epsilon))

    @property
    def loss(self) -> float:
        return self.epsilon

    @property
    def truth(self) -> Fraction:
        """How likely the released symbol is the true one, exactly."""
        factor = odds(self.epsilon)
        return factor / (factor + self.k - 1)

    def __str__(self) -> str:
        return f"{self.k}-ary randomised response, truthful with probability {float(self.truth):.6g}"

    def probabilities(self) -> Floats:
        """Return how likely each symbol is released, (k true, k released)."""
        table = np.full((self.k, self.k), float((1 - self.truth) / (self.k - 1)))
        np.fill_diagonal(table, float(self.truth))
        return table

    def release(self, symbols: ArrayLike, *, source: ByteSource = system_bytes) -> NDArray[np.int64]:
        """Return the symbols, each kept or exchanged for another, in the shape they came in."""
        true = _checked_symbols(symbols, self.k)
        other = random_below(self.k - 1, true.size, source).reshape(true.shape)
        other += other >= true  # the k - 1 symbols that are not the true one
        return np.where(bernoulli(self.truth, true.size, source).reshape(true.shape), true, other)


@dataclass(frozen=True, init=False)
class SubsetSelection:
    """Releases `size` of k symbols, among which the true one is more likely than others: `epsilon` per record.

    The default size estimates with the least variance how frequent a symbol is, where all are equally frequent.

    >>> SubsetSelection(32, 1.0).size, SubsetSelection(32, 4.0).size
    (9, 1)
    """

    k: int
    epsilon: float
    size: int

    def __init__(self, k: int, epsilon: float, size: int | None = None) -> None:
        _check_alphabet(k)
        odds(epsilon)
        best = _best_size(int(k), epsilon) if size is None else size
        if isinstance(best, bool) or not isinstance(best, int | np.integer) or not 1 <= best < k:
            raise InputError(f"size must be a whole number in [1, {k - 1}]; got {best!r}. All {k} symbols say nothing.")
        for name, value in (("k", int(k)), ("epsilon", float(epsilon)), ("size", int(best))):
            object.__setattr__(self, name, value)

    @property
    def loss(self) -> float:
        return self.epsilon

    @property
    def truth(self) -> Fraction:
        """How likely the released set holds the true symbol, exactly."""
        weight = self.size * odds(self.epsilon)
        return weight / (weight + self.k - self.size)

    def __str__(self) -> str:
        return f"{self.size} of {self.k} symbols, the true one among them with probability {float(self.truth):.6g}"

    def release(self, symbols: ArrayLike, *, source: ByteSource = system_bytes) -> NDArray[np.bool_]:
        """Return one set for each symbol, (n, k): true where a symbol is in the set."""
        true = _checked_symbols(symbols, self.k)
        if true.ndim != 1:
            raise InputError(f"symbols must be one per record, shape (n,); got {true.shape}.")
        held = bernoulli(self.truth, true.size, source)
        released = np.empty((true.size, self.k), dtype=np.bool_)
        is_true = np.arange(self.k) == true[:, None]
        released[is_true] = held
        released[~is_true] = random_subsets(self.size - held.astype(np.int64), self.k - 1, source).ravel()
        return released


def _best_size(k: int, epsilon: float) -> int:
    """Return the size of the least risk, (size e^epsilon + k - size)^2 / (size (k - size)), the smallest first.

    The risk has its only minimum over real numbers at k / (e^epsilon + 1), so it is one of the whole numbers around.
    """
    factor = odds(epsilon)
    low = max(1, math.floor(k / (factor + 1)))
    return min((low, min(low + 1, k - 1)), key=lambda size: (size * factor + k - size) ** 2 / (size * (k - size)))


def _check_alphabet(k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 2 <= k < 2**31:
        raise InputError(f"k must be a whole number >= 2; got {k!r}. One symbol says nothing.")


def _checked_symbols(symbols: ArrayLike, k: int) -> NDArray[np.int64]:
    """Return the symbols as int64, or refuse them. Messages must not tell the symbols."""
    given = np.asarray(symbols)
    if given.size and given.dtype.kind not in "iu":
        raise InputError(f"symbols must be whole numbers; got the type {given.dtype}.")
    if given.size and (int(given.min()) < 0 or int(given.max()) >= k):
        raise InputError(f"symbols must be in [0, {k - 1}]; some are not. Were they made with another codebook?")
    return given.astype(np.int64)
