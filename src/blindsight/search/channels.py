"""Choice of symbols and mechanism that find most at a given epsilon, from public numbers, before any release.

A record lies in one of a few *cells* of a public codebook. A *design* joins cells to k symbols and releases the symbol
with noise, so that each cell leads to each *output* with a known probability. All records with the same output tie, and
an output is ranked by what Bayes' rule expects of it,

    score(query, output) = sum over cells of P(cell | output) relevance(query, cell).

So the average precision that a design will reach in a large collection like the public one is known without simulation
(`expected_precision`): few symbols are best where epsilon is small, because a truthful answer is then rare. Cells are
joined two at a time, whichever pair costs least (Ward's procedure with average precision in place of variance), and the
best of all stages is taken. Subset selection competes with k-ary response: its sets are numbered, each one output.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.rng import ByteSource, system_bytes
from blindsight.search.symbols import KaryResponse, SubsetSelection

Doubles = NDArray[np.float64]
Mechanism = KaryResponse | SubsetSelection

MOST_COMPARED = 48  # of more cells not every pair is tried: that takes their number to the fifth power
MOST_OUTPUTS = 256  # subset selection with more sets is not considered: every set is a posting list


@dataclass(frozen=True, eq=False)
class Design:
    """A symbol for every cell, and the mechanism that releases symbols."""

    symbol_of_cell: NDArray[np.int64]
    mechanism: Mechanism

    def __post_init__(self) -> None:
        symbols = self.symbol_of_cell
        if symbols.ndim != 1 or not np.array_equal(np.unique(symbols), np.arange(self.mechanism.k)):
            raise InputError(f"every one of the {self.mechanism.k} symbols must stand for a cell.")
        if comb(self.mechanism.k, self._size) > max(MOST_OUTPUTS, self.mechanism.k):
            raise InputError(f"subset selection is limited to {MOST_OUTPUTS} sets; got {self.mechanism}.")

    @property
    def _size(self) -> int:
        return self.mechanism.size if isinstance(self.mechanism, SubsetSelection) else 1

    @cached_property
    def sets(self) -> NDArray[np.bool_]:
        """Which symbols each output names, (outputs, k); just one where the mechanism is k-ary response."""
        named = np.array(list(combinations(range(self.mechanism.k), self._size)))
        table = np.zeros((len(named), self.mechanism.k), dtype=np.bool_)
        np.put_along_axis(table, named, True, axis=1)
        return table

    @property
    def outputs(self) -> int:
        return len(self.sets)

    def probabilities(self) -> Doubles:
        """Return how likely each cell leads to each output, (cells, outputs)."""
        k, size, truth = self.mechanism.k, self._size, self.mechanism.truth
        holding, lacking = float(truth / comb(k - 1, size - 1)), float((1 - truth) / comb(k - 1, size))
        return np.where(self.sets.T, holding, lacking)[self.symbol_of_cell]

    def posterior(self, prior: Doubles) -> Doubles:
        """Return how likely a record with each output lies in each cell, (outputs, cells)."""
        joint = self.probabilities().T * prior
        return np.asarray(joint / joint.sum(axis=1, keepdims=True))

    def release(self, symbols: NDArray[np.int64], *, source: ByteSource = system_bytes) -> NDArray[np.int64]:
        released = self.mechanism.release(symbols, source=source)
        if isinstance(self.mechanism, KaryResponse):
            return released.astype(np.int64)
        weights = 2.0 ** np.arange(self.mechanism.k)  # sets as exact numbers: at most 256 pairs or more have k <= 23
        codes = self.sets @ weights
        order = np.argsort(codes)
        return np.asarray(order[np.searchsorted(codes[order], released @ weights)], dtype=np.int64)


def expected_precision(probabilities: Doubles, prior: Doubles, relevance: Doubles) -> float:
    """Return the mean average precision that outputs of these probabilities (cells, outputs) reach in the limit.

    Queries and records are drawn from `prior`; a record of cell j counts `relevance[i, j]` for a query of cell i. The
    collection is infinite, so an output is a piece of the ranking of mass m with r relevant in it, behind M of which R
    are relevant; along it precision is (R + r u) / (M + m u), u from 0 to 1, whose integral is closed.

    >>> truth, cells = np.eye(2), np.array([0.5, 0.5])
    >>> expected_precision(truth, cells, np.eye(2)), round(expected_precision(np.ones((2, 1)), cells, np.eye(2)), 3)
    (1.0, 0.5)
    """
    masses, hits = prior @ probabilities, (relevance * prior) @ probabilities
    order = np.argsort(-hits / masses, axis=1)
    m, r = masses[order], np.take_along_axis(hits, order, axis=1)
    before, hits_before = np.cumsum(m, axis=1) - m, np.cumsum(r, axis=1) - r  # M, R
    before[:, 0] = hits_before[:, 0] = 0  # not a rounded difference
    growth = np.log((before[:, 1:] + m[:, 1:]) / before[:, 1:])
    areas = r / m
    areas[:, 1:] += (hits_before - r * before / m)[:, 1:] / m[:, 1:] * growth
    return float(prior @ ((r * areas).sum(axis=1) / r.sum(axis=1)))


def merging_path(prior: Doubles, relevance: Doubles, epsilon: float, fewest: int = 2) -> Iterator[NDArray[np.int64]]:
    """Yield symbols of the cells: one for each, then with the best pair joined (above `MOST_COMPARED`: most alike)."""
    symbols = np.arange(len(prior))
    yield symbols
    if len(prior) > MOST_COMPARED:
        for pair in _most_alike(prior, relevance, fewest):
            symbols = _joined(symbols, pair)
            yield symbols
        return
    for k in range(len(prior) - 1, fewest - 1, -1):
        table = KaryResponse(k, epsilon).probabilities()
        joined = [_joined(symbols, pair) for pair in combinations(range(k + 1), 2)]
        worths = [expected_precision(table[candidate], prior, relevance) for candidate in joined]
        symbols = joined[int(np.argmax(worths))]
        yield symbols


def best_design(
    prior: Doubles,
    relevance: Doubles,
    epsilon: float,
    *,
    symbols: int | None = None,
    mechanism: str = "auto",
    nearly: float = 1.0,
) -> Design:
    """Return the design that is expected to find most, among those with this number of symbols and this mechanism.

    Of designs that reach the share `nearly` of the best, that with most symbols wins: better among the first answers.
    """
    path = merging_path(prior, relevance, epsilon, fewest=symbols or 2)
    stages = (stage for stage in path if symbols in (None, int(stage.max()) + 1))
    designs = [design for stage in stages for design in _designs(stage, epsilon, mechanism)]
    if not designs:
        raise InputError(
            f"{symbols or 'so few'} symbols cannot be had with mechanism={mechanism!r}: public data gave {len(prior)} "
            f"cells, and subset selection needs 4 symbols or more but at most {MOST_OUTPUTS} sets. Ask for less."
        )
    worths = np.array([expected_precision(design.probabilities(), prior, relevance) for design in designs])
    good = np.flatnonzero(worths >= nearly * worths.max())
    return designs[max(good.tolist(), key=lambda place: (designs[place].mechanism.k, worths[place]))]


def _most_alike(prior: Doubles, relevance: Doubles, fewest: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs that Ward's procedure joins, by numbers without gaps, until the fewest are left."""
    masses, profiles = prior.copy(), relevance.T.copy()  # how relevant a cell is for queries of each cell
    while len(masses) > fewest:
        squares = (profiles**2 * prior).sum(axis=1)
        distances = squares[:, None] + squares - 2 * (profiles * prior) @ profiles.T
        costs = distances * np.outer(masses, masses) / np.add.outer(masses, masses)
        np.fill_diagonal(costs, np.inf)
        first, second = sorted(divmod(int(costs.argmin()), len(masses)))
        shares = masses[[first, second]] / masses[[first, second]].sum()
        profiles[first] = shares @ profiles[[first, second]]
        masses[first] += masses[second]
        masses, profiles = np.delete(masses, second), np.delete(profiles, second, axis=0)
        yield first, second


def _joined(symbols: NDArray[np.int64], pair: tuple[int, int]) -> NDArray[np.int64]:
    first, second = pair
    renamed = np.where(symbols == second, first, symbols)
    return renamed - (renamed > second)


def _designs(symbol_of_cell: NDArray[np.int64], epsilon: float, mechanism: str) -> Iterator[Design]:
    """Yield k-ary response, and subset selection with sizes to just above the best for estimating frequencies."""
    k = int(symbol_of_cell.max()) + 1
    if mechanism != "subset":
        yield Design(symbol_of_cell, KaryResponse(k, epsilon))
    if mechanism == "kary":
        return
    for size in range(2, min(SubsetSelection(k, epsilon).size + 2, k - 1)):
        if comb(k, size) <= MOST_OUTPUTS:
            yield Design(symbol_of_cell, SubsetSelection(k, epsilon, size))
