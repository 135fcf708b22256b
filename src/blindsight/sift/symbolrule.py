"""Which symbol to release: the best rule under a cap on what it tells, found by a linear program.

Guarantee: if the probabilities are right, no other way to choose one of m symbols from them, random or not, serves the
app better without leaking more than the cap, up to rows that lie exactly on a boundary.

For an attribute with probability eta(x) and prevalence pi let g(x) = eta / pi - (1 - eta) / (1 - pi), which is also
(eta - pi) / (pi (1 - pi)). A release of symbol s with probability q_s(x) has P(s | yes) - P(s | no) = E[q_s g], so

- a guess u of the public attribute has balanced accuracy 1/2 + E[u g+] / 2, linear in q;
- the best attacker on a private attribute gains sum_s |E[q_s g-]| / 4 (half the total variation distance), convex in q.

The best q solves a linear program over the rows; by complementary slackness it is

    s(x) = argmax over s of  reward_s(x) - sum_j mu_sj g-_j(x),

with the multipliers mu of the caps, which are all that is kept. For one public bit and one private attribute this
reads u = 1[g+ - mu g- > 0]: a threshold other than 0 would not help, since accuracies are balanced.

Rewards. Several public bits are released together and each counts the same. One public attribute with 4 or 8 symbols
is released with how sure it is: steps along g+, of which the middle one at 0 decides between yes and no.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from blindsight.errors import InputError
from blindsight.sift.floor import check_leak_cap
from blindsight.sift.labels import Labels

Array = NDArray[np.float64]

MOST_SYMBOLS = 8
_CELLS = 20_000  # rows times symbols of a linear program; more rows are thinned out evenly


@dataclass(frozen=True, eq=False)
class SymbolRule:
    """symbol = argmax of probabilities @ matrix + offset; `matrix` is (attributes, symbols), the public ones first."""

    matrix: Array
    offset: Array
    levels: tuple[int, ...]
    """How a symbol reads: bits, one per public attribute, or one number of several levels."""

    def symbols(self, probabilities: Array) -> NDArray[np.int64]:
        """Return the symbol of every row of P(attribute | x), (n, attributes)."""
        return np.asarray(np.argmax(probabilities @ self.matrix + self.offset, axis=1), dtype=np.int64)


def symbol_rule(public: Array, private: Array, leak: float, symbols: int | None = None) -> SymbolRule:
    """Return the best rule whose best attacker gains at most `leak` on each private attribute.

    `public` (n, p) and `private` (n, k) are probabilities of the same rows. Without `symbols` there is one bit per
    public attribute; one attribute alone may have 2, 4 or 8 symbols.
    """
    check_leak_cap(leak)
    slopes, offset, levels = _rewards(public, symbols)
    told = slopes.T @ _gains(public).T - offset[:, None]  # (m, n)
    multipliers = _multipliers(told.T, _gains(private), leak)
    matrix = np.vstack([slopes, -multipliers])
    steepness, centre = _affine(np.hstack([public, private]))
    return SymbolRule(steepness[:, None] * matrix, -(centre * steepness) @ matrix - offset, levels)


def leak_of(symbols: NDArray[np.int64], labels: Labels) -> float:
    """Return what the best attacker gains on these rows over a blind guess, half the total variation distance.

    >>> leak_of(np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 0, 1, 1], dtype=np.int8))  # of four noes one says 1
    0.375
    """
    most = int(symbols.max()) + 1
    yes, no = (np.bincount(symbols[labels == value], minlength=most) / np.sum(labels == value) for value in (1, 0))
    return float(np.abs(yes - no).sum()) / 4


def _affine(probabilities: Array) -> tuple[Array, Array]:
    """Return slope and centre of g(eta) = slope (eta - centre) per attribute."""
    centre = np.clip(probabilities.mean(axis=0), 1e-6, 1 - 1e-6)
    return 1 / (centre * (1 - centre)), centre


def _gains(probabilities: Array) -> Array:
    slope, centre = _affine(probabilities)
    return (probabilities - centre) * slope


def _rewards(public: Array, symbols: int | None) -> tuple[Array, Array, tuple[int, ...]]:
    """Return slopes (p, m) and offsets (m,) of the rewards, slopes' g+ - offset, and how symbols read."""
    bits = public.shape[1]
    count = 1 << bits if symbols is None else symbols
    allowed = (2, 4, 8) if bits == 1 else (1 << bits,)
    if count not in allowed or count > MOST_SYMBOLS:
        raise InputError(
            f"one public attribute is released as 2, 4 or 8 symbols, two as 4 and three as 8; got {count} symbols for "
            f"{bits} public attributes."
        )
    if bits > 1 or count == 2:
        slopes = (np.arange(count) >> np.arange(bits)[::-1, None]) & 1
        return slopes.astype(np.float64), np.zeros(count), (2,) * bits
    gains, inner = _gains(public)[:, 0], np.arange(1, count // 2) / (count // 2)
    steps = [np.quantile(gains[gains < 0], inner), [0.0], np.quantile(gains[gains >= 0], inner)]
    step = 1 / (count - 1)
    offset = np.concatenate([[0.0], np.cumsum(np.concatenate(steps)) * step])
    return np.arange(count)[None] * step, offset, (count,)


def _multipliers(rewards: Array, gains: Array, leak: float) -> Array:
    """Return mu (private, symbols): the prices of the caps at the optimum of the linear program."""
    (n, m), k = rewards.shape, gains.shape[1]
    every = -(-n * m // _CELLS)
    rewards, gains = rewards[::every], gains[::every] - gains[::every].mean(axis=0)
    n = len(rewards)
    # variables: q row by row, then the sizes |E[q_s g_j]| attribute by attribute
    gaps, one = sparse.kron(gains.T / n, sparse.eye_array(m)), sparse.eye_array(m * k)
    sums = sparse.kron(sparse.eye_array(k), np.ones((1, m)))
    limits = sparse.block_array([[gaps, -one], [-gaps, -one], [None, sums]], format="csr")
    whole = sparse.hstack([sparse.kron(sparse.eye_array(n), np.ones((1, m))), sparse.csr_array((n, m * k))])
    best = linprog(
        np.concatenate([-rewards.ravel() / n, np.zeros(m * k)]),
        A_ub=limits,
        b_ub=np.repeat([0.0, 4 * leak], [2 * m * k, k]),
        A_eq=whole.tocsr(),
        b_eq=np.ones(n),
        method="highs",
    )
    assert best.success, best.message  # a constant symbol is always feasible
    above, below = np.split(best.ineqlin.marginals[: 2 * m * k], 2)
    return np.asarray((below - above).reshape(k, m))
