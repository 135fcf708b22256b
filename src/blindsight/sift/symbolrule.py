"""Which symbol to release: the best rule under a cap on what it tells, found by a linear program.

Guarantee: if the probabilities are right, no other way to choose one of m symbols from them, random or not, serves the
app better without leaking more than the cap, up to rows that lie exactly on a boundary.

For an attribute with probability eta(x) and prevalence pi let g(x) = eta / pi - (1 - eta) / (1 - pi), which is also
(eta - pi) / (pi (1 - pi)). A release of symbol s with probability q_s(x) has P(s | yes) - P(s | no) = E[q_s g], so

- a guess u of the public attribute has balanced accuracy 1/2 + E[u g+] / 2, linear in q;
- the best attacker on a private attribute gains sum_s |E[q_s g-]| / 4 (half the total variation distance), convex in q.

Two private attributes a and b are capped together where the probability that they differ is known as well: then each of
the four cells has a probability, P(a and b) = (eta_a + eta_b - eta_differ) / 2 and so on, and for every two cells c, d
there is a g(x) = eta_c / pi_c - eta_d / pi_d, linear in the probabilities, whose cap bounds the total variation between
them. Every yes-or-no question about the two is a mixture of that, a and b themselves included.

The best q solves a linear program over the rows; by complementary slackness it is

    s(x) = argmax over s of  reward_s(x) - sum_j mu_sj g-_j(x),

with the multipliers mu of the caps, which are all that is kept. For one public bit and one private attribute this
reads u = 1[g+ - mu g- > 0]: a threshold other than 0 would not help, since accuracies are balanced.

Rewards. Several public bits are released together and each counts the same. One public attribute with 4 or 8 symbols
is released with how sure it is: steps along g+, of which the middle one at 0 decides between yes and no.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from blindsight.errors import InputError
from blindsight.sift.floor import check_leak_cap
from blindsight.sift.labels import Labels

Array = NDArray[np.float64]

MOST_SYMBOLS = 8
_FEWEST = 0.01  # share of rows below which a cell of two attributes is left out
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


def symbol_rule(
    public: Array, private: Array, leak: float, symbols: int | None = None, differ: Array | None = None
) -> SymbolRule:
    """Return the best rule whose best attacker gains at most `leak` on each private attribute.

    With `differ` (n, pairs), the probabilities that two private attributes differ (`pairs_of`), it gains no more on any
    question about two of them; the rule's matrix then has a row for each of these, too.

    `public` (n, p) and `private` (n, k) are probabilities of the same rows. Without `symbols` there is one bit per
    public attribute; one attribute alone may have 2, 4 or 8 symbols.
    """
    check_leak_cap(leak)
    slopes, offset, levels = _rewards(public, symbols)
    told = slopes.T @ _gains(public).T - offset[:, None]  # (m, n)
    steepness, centre = _affine(public)
    hidden = private if differ is None else np.hstack([private, differ])
    turn, shift = _cells(private, hidden)
    prices = -_multipliers(told.T, hidden @ turn + shift, leak)
    matrix = np.vstack([steepness[:, None] * slopes, turn @ prices])
    return SymbolRule(matrix, shift @ prices - (centre * steepness) @ slopes - offset, levels)


def pairs_of(attributes: int) -> list[tuple[int, int]]:
    """Return every two of so many attributes, in the order of the columns of `differ`."""
    return list(combinations(range(attributes), 2))


def cells_of(private: Labels, fewest: int) -> Labels:
    """Return labels (n, columns) that tell two cells of two attributes apart, each with so many rows: 1, 0, or -1."""
    columns = [np.zeros((len(private), 0), dtype=np.int8)]
    for i, j in pairs_of(private.shape[1]):
        known = (private[:, [i, j]] >= 0).all(axis=1)
        cell = np.where(known, 2 * private[:, i] + private[:, j], -1)
        for c, d in combinations(range(4), 2):
            if min((cell == c).sum(), (cell == d).sum()) >= fewest:
                columns.append(np.where(cell == c, 1, np.where(cell == d, 0, -1)).astype(np.int8)[:, None])
    return np.hstack(columns)


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


def _cells(private: Array, hidden: Array) -> tuple[Array, Array]:
    """Return the map from probabilities to what is capped, hidden @ turn + shift: attributes, or cells of two."""
    k = private.shape[1]
    steepness, centre = _affine(private)
    turn, shift = [np.vstack([np.diag(steepness), np.zeros((hidden.shape[1] - k, k))])], [-centre * steepness]
    for number, (i, j) in enumerate(pairs_of(k) if hidden.shape[1] > k else []):
        weights = np.zeros((hidden.shape[1], 4))
        weights[[i, j, k + number]] = np.array([[-1, -1, 1, 1], [-1, 1, -1, 1], [-1, 1, 1, -1]]) / 2  # 00, 01, 10, 11
        constant = np.array([1.0, 0, 0, 0])
        shares = (hidden @ weights + constant).mean(axis=0)
        for c, d in combinations(np.flatnonzero(shares > _FEWEST), 2):
            turn.append((weights[:, c] / shares[c] - weights[:, d] / shares[d])[:, None])
            shift.append(np.array([constant[c] / shares[c] - constant[d] / shares[d]]))
    return np.hstack(turn), np.concatenate(shift)


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
