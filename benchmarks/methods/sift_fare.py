"""FARE's kind of encoder: a decision tree whose leaves are released, with a finite-sample bound for any classifier.

Jovanovic, Balunovic, Dimitrov & Vechev, "FARE: Provably Fair Representation Learning with Practical Certificates", ICML
2023, were the first to certify representations against every downstream classifier. Written anew from the paper: trees
are grown best first by (1 - gamma) Gini(y) + gamma (1 - Gini(s) / most), which is low where a leaf tells of the public
attribute y and mixes the classes of the private s; a leaf is a symbol. `bound` is of the paper's kind: Clopper-Pearson
intervals of the share of either class in every cell, at once for all cells (Bonferroni), and of the base rates, then
Hoeffding's inequality for the sum over cells, on rows that the tree never saw.
"""

import heapq
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta
from sklearn.decomposition import PCA

from benchmarks.methods.sifting import Released, SiftingData, classes_of, held_out_leak, key, target_leak
from blindsight.rng import science
from blindsight.sift.symbols import fit_posteriors

BINS, FEWEST_IN_LEAF, COMPONENTS = 32, 25, 64
GAMMAS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tree:
    """Splits in the order in which they were made: (leaf, feature, edge, new leaf); fewer splits are a smaller tree."""

    splits: tuple[tuple[int, int, float, int], ...]

    def leaves(self, features: Array, most: int) -> NDArray[np.int64]:
        """Return the leaf of every row in the tree of at most so many leaves."""
        found = np.zeros(len(features), dtype=np.int64)
        for leaf, feature, edge, other in self.splits[: most - 1]:
            found[(found == leaf) & (features[:, feature] > edge)] = other
        return found


def grow(features: Array, public: NDArray[np.int64], private: NDArray[np.int64], gamma: float, most: int) -> Tree:
    """Grow a tree of at most so many leaves."""
    edges = np.quantile(features, np.arange(1, BINS) / BINS, axis=0)
    binned = np.stack([np.searchsorted(edges[:, j], features[:, j]) for j in range(features.shape[1])], axis=1)
    kinds = private.max() + 1
    joint = public * kinds + private

    def impurity(counts: Array) -> Array:
        """Return rows times impurity of cells (..., 2, kinds)."""
        total = np.maximum(counts.sum(axis=(-1, -2)), 1e-9)
        told = 1 - np.square(counts.sum(axis=-1)).sum(axis=-1) / total**2
        mixed = 1 - np.square(counts.sum(axis=-2)).sum(axis=-1) / total**2
        return np.asarray(total * ((1 - gamma) * told + gamma * (1 - mixed / (1 - 1 / kinds))))

    def best(leaf: int, rows: NDArray[np.int64]) -> tuple[float, int, int, int]:
        """Return (-gain, leaf, feature, bin) of the best split."""
        d, cells = features.shape[1], 2 * kinds
        flat = (np.arange(d) * BINS + binned[rows]) * cells + joint[rows, None]
        counts = np.bincount(flat.ravel(), minlength=d * BINS * cells).reshape(d, BINS, 2, kinds)
        left = np.cumsum(counts, axis=1)[:, :-1].astype(np.float64)
        whole = counts[0].sum(axis=0).astype(np.float64)
        right = whole - left
        gain = impurity(whole) - impurity(left) - impurity(right)
        few = np.minimum(left.sum(axis=(2, 3)), right.sum(axis=(2, 3))) < FEWEST_IN_LEAF
        gain[few] = -np.inf
        feature, place = np.unravel_index(int(np.argmax(gain)), gain.shape)
        return -float(gain[feature, place]), leaf, int(feature), int(place)

    members = {0: np.arange(len(features))}
    heap = [best(0, members[0])]
    splits: list[tuple[int, int, float, int]] = []
    while heap and len(members) < most:
        cost, leaf, feature, place = heapq.heappop(heap)
        if not math.isfinite(cost):
            break
        rows, other = members[leaf], len(members)
        beyond = binned[rows, feature] > place
        splits.append((leaf, feature, float(edges[place, feature]), other))
        members[leaf], members[other] = rows[~beyond], rows[beyond]
        for one in (leaf, other):
            heapq.heappush(heap, best(one, members[one]))
    return Tree(tuple(splits))


def run(given: SiftingData, *, seed: int, symbols: str, inputs: str) -> Released:
    """Release leaves of trees on principal components or on probabilities of the attributes, of each number of leaves.

    Of every size the tree is taken that tells most of the public attribute, on a quarter of the rows that it was not
    grown from, among those whose leak there is within the target.
    """
    learn, check = np.arange(len(given.features)) % 4 > 0, np.arange(len(given.features)) % 4 == 0
    answer: Released = {}
    for policy in given.policies:
        names = (policy[0], *policy[1].split("+"))
        rows, judged = _inputs(_Given(given), names, inputs, seed)
        public, private = given.labels[policy[0]].astype(np.int64), classes_of(given.labels, policy[1])
        most = max(map(int, symbols.split()))
        trees = [grow(rows[learn], public[learn], private[learn], gamma, most) for gamma in GAMMAS]
        for count in map(int, symbols.split()):
            found = []
            for tree in trees:
                leaves = tree.leaves(rows, count)
                leak = held_out_leak(leaves[check], private[check])
                told = held_out_leak(leaves[check], public[check])
                found.append((leak > target_leak(given, private, count), -told if leak <= 0.5 else leak, tree))
            within = [one for one in found if not one[0]]
            tree = min(within, key=lambda one: one[1])[2] if within else trees[-1]
            answer[key(policy, str(count))] = tree.leaves(judged, count)
    return answer


@dataclass(frozen=True, eq=False)
class _Given:
    data: SiftingData

    def __hash__(self) -> int:
        return id(self.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Given) and other.data is self.data


@cache
def _probabilities(given: _Given, name: str, seed: int) -> tuple[Array, Array]:
    found = fit_posteriors(
        given.data.features, given.data.labels[name], names=[name], networks=False, random_state=seed
    )
    return found.held_out, found.predict(given.data.judged)


@cache
def _components(given: _Given) -> tuple[Array, Array]:
    pca = PCA(min(COMPONENTS, given.data.features.shape[1]), random_state=0).fit(given.data.features)
    return pca.transform(given.data.features), pca.transform(given.data.judged)


def _inputs(given: _Given, names: tuple[str, ...], inputs: str, seed: int) -> tuple[Array, Array]:
    if inputs == "components":
        return _components(given)
    both = [_probabilities(given, name, seed) for name in names]
    return np.hstack([own for own, _ in both]), np.hstack([judged for _, judged in both])


def bound(symbols: NDArray[np.int64], private: NDArray[np.int64], confidence: float = 0.95) -> float:
    """Return FARE's kind of upper limit of every attacker's gain on one private attribute (0 or 1), rows independent.

    The best attacker's balanced accuracy is E[max(P(s=1|z) / (2 P(s=1)), P(s=0|z) / (2 P(s=0)))]: per cell the upper
    ends of Clopper-Pearson intervals, over cells a mean of numbers below their maximum.
    """
    error = (1 - confidence) / 3  # base rates, cells, the mean over cells
    order = science(0).permutation(len(private))  # rows may come sorted by anything
    symbols, private = symbols[order], private[order]
    n, ones = len(private), int(private.sum())
    low, high = beta.ppf(error / 2, ones, n - ones + 1), beta.ppf(1 - error / 2, ones + 1, n - ones)
    cells, index = np.unique(symbols, return_inverse=True)
    half = n // 2  # cells are learned from one half, their frequencies from the other
    reach = np.zeros(len(cells))
    for cell in range(len(cells)):
        mine = private[:half][index[:half] == cell]
        k, total = int(mine.sum()), len(mine)
        each = error / (2 * len(cells))
        most = float(beta.ppf(1 - each, k + 1, total - k)) if k < total else 1.0
        least = float(beta.ppf(each, k, total - k + 1)) if k else 0.0
        reach[cell] = max(most / (2 * low), (1 - least) / (2 * (1 - high)))
    rates = np.bincount(index[half:], minlength=len(cells)) / (n - half)
    slack = math.sqrt(-math.log(error) / (2 * (n - half))) * float(np.ptp(reach))
    return min(0.5, float(rates @ reach) + slack - 0.5)
