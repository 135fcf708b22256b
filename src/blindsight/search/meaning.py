"""What public pictures mean, found without labels: pictures that are mutual neighbours point in the same direction.

Distances between features say little about pictures that are far apart, but the nearest neighbours of a picture mostly
show the same kind of thing. So pictures are joined where each is among the other's nearest, and every picture gets
coordinates that a random walk on that graph changes slowest, because it hardly ever leaves a region. Belkin and Niyogi,
"Laplacian eigenmaps", Neural Computation 2003; rows of unit length after Ng, Jordan and Weiss, "On spectral
clustering", NIPS 2001; distances measured by the reach of both ends after Zelnik-Manor and Perona, "Self-tuning
spectral clustering", NIPS 2004.

Joining *mutual* neighbours is what matters: without it a few hubs, near to everything, tie all regions together
(Fashion-MNIST, ten clusters: normalised mutual information with the classes .71, else .65; k-means on pixels .60).
One-sided neighbours keep a thousandth of the weight, so that no picture is left alone.

How many neighbours and how many coordinates are best is not known without labels. Several of both are computed and
joined, so that the inner product of two pictures is the mean of their cosines over all of them.

*How many kinds there are* (`count_kinds`) is read off such a graph too: as many as there are communities where its
modularity is largest, found by joining small groups two at a time (Newman, "Fast algorithm for detecting community
structure in networks", Physical Review E 2004). More neighbours make fewer and larger communities; taken are the fewest
neighbours of which the average community has at most four times as many members. That counts 11 kinds in handwritten
digits and 13 in Fashion-MNIST (10 classes each), 20 in twenty classes of Caltech-101 and 55 in all of its 101: kinds
that pictures show, not names that people give them.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from blindsight.search.function import Floats

Doubles = NDArray[np.float64]

NEIGHBOURS = (15, 30, 60)
"""How many neighbours the graphs have."""

RESOLUTIONS = (0.7, 1.1, 1.5)
"""How many coordinates are joined, as multiples of the number of kinds of pictures."""

COUNTING_NEIGHBOURS = (12, 16, 24, 32, 48, 64, 96)
"""How many neighbours the graphs may have in which kinds are counted."""

BRIDGE = 1e-3  # the weight of one-sided neighbours
_FAINTEST = 1e-8  # no neighbour weighs less, so that every picture has some weight
_TINY = np.float32(1e-12)
_ENERGY = 0.995  # share of the joint coordinates that is kept when they are turned to few axes
_COUNTED = 4000  # points among which kinds are counted
_GROUPS = 400  # at most, from which communities are joined
_DENSE = 400  # graphs up to this size are solved densely


def unit_rows(rows: NDArray[np.float32]) -> Floats:
    """Return rows of length 1; rows of zeros stay."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY), dtype=np.float32)


def nearest(landmarks: Floats, points: Floats, k: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return squared distances to the k nearest landmarks, nearest first, and which they are, each (n, k)."""
    index = faiss.IndexFlatL2(landmarks.shape[1])
    index.add(landmarks)
    squares, numbers = index.search(points, k)
    return np.maximum(squares, _TINY), numbers


def closeness(squares: Floats, reach: Floats, reaches: Floats) -> Floats:
    """Return exp(-d^2 / (r r')), where `reach` (n, 1) and `reaches` (n, k) are the squared radii of both ends."""
    return np.asarray(np.maximum(np.exp(-squares / np.sqrt(reach * reaches)), _FAINTEST), dtype=np.float32)


def mutual_graph(squares: Floats, numbers: NDArray[np.int64]) -> csr_array:
    """Return the symmetric graph that joins points which are among each other's neighbours."""
    n, k = numbers.shape
    weights = closeness(squares, squares[:, -1:], squares[:, -1][numbers]).astype(np.float64)
    sources = np.repeat(np.arange(n), k)
    weights[numbers == np.arange(n)[:, None]] = 0  # where a point has twins, it may stand among its own neighbours
    directed = csr_array((weights.ravel(), (sources, numbers.ravel())), shape=(n, n))
    both, either = directed.minimum(directed.T), directed.maximum(directed.T)
    return csr_array(both + BRIDGE * either)


def slow_coordinates(graph: csr_array, count: int, generator: np.random.Generator) -> Doubles:
    """Return the slowest coordinates of a random walk on the graph, slowest first, without the constant one.

    They are the leading eigenvectors of D^-1 W, found as those of D^-1/2 W D^-1/2. A graph of several components has as
    many eigenvectors that never change. Iterative solvers miss some of them; they are known, so they are written down
    (the largest components first) and taken off before the others are sought.
    """
    n, root = graph.shape[0], np.sqrt(np.asarray(graph.sum(axis=1)).ravel())
    scaled = csr_array(diags_array(1 / root) @ graph @ diags_array(1 / root))
    found, part = connected_components(graph, directed=False)
    masses = np.bincount(part, weights=root**2)
    still = _still_coordinates(part, root, np.argsort(-masses)[: min(found - 1, count)])
    wanted = count - still.shape[1]

    def moving(v: Doubles) -> Doubles:
        flat = v.ravel()
        return np.asarray(scaled @ flat - root * (np.bincount(part, weights=root * flat) / masses)[part])

    if n <= _DENSE:
        vectors = eigh(np.stack([moving(column) for column in np.eye(n)], axis=1))[1][:, n - wanted :]
    elif wanted:
        operator = LinearOperator((n, n), matvec=moving, dtype=np.float64)
        vectors = eigsh(operator, wanted, which="LA", tol=1e-3, v0=generator.standard_normal(n))[1]
    else:
        vectors = np.empty((n, 0))
    return np.asarray(np.concatenate([still, vectors[:, ::-1]], axis=1) / root[:, None])


def _still_coordinates(part: NDArray[np.integer[Any]], root: Doubles, components: NDArray[np.integer[Any]]) -> Doubles:
    """Return orthonormal vectors that tell these components apart and are orthogonal to the constant coordinate."""
    indicators = root[:, None] * (part[:, None] == components)
    return np.asarray(np.linalg.qr(np.column_stack([root, indicators]))[0][:, 1:])


def count_kinds(points: Floats, generator: np.random.Generator) -> int:
    """Return how many kinds of pictures a graph of mutual neighbours shows, at least two; of a sample, if many."""
    if len(points) > _COUNTED:
        points = points[np.sort(generator.choice(len(points), _COUNTED, replace=False))]
    n, seed = len(points), int(generator.integers(2**31))
    groups = min(_GROUPS, max(2, int(4 * np.sqrt(n))), n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than groups
        found = KMeans(groups, n_init=1, max_iter=50, random_state=seed).fit_predict(points)
    members = csr_array((np.ones(n), (np.arange(n), found)), shape=(n, groups))
    squares, numbers = nearest(points, points, min(max(COUNTING_NEIGHBOURS), n - 1) + 1)
    kinds = 2
    for k in COUNTING_NEIGHBOURS:
        graph = mutual_graph(squares[:, 1 : k + 1], numbers[:, 1 : k + 1])
        kinds = max(2, _communities(np.asarray((members.T @ graph @ members).todense())))
        if n <= 4 * k * kinds:
            break
    return kinds


def _communities(weights: Doubles) -> int:
    """Return how many communities have the largest modularity when groups are joined greedily."""
    share = weights / weights.sum()
    ends = share.sum(axis=0)
    gains = 2 * (share - np.outer(ends, ends))  # of modularity by joining two groups
    np.fill_diagonal(gains, -np.inf)
    best, total = (0.0, len(share)), 0.0
    for left in range(len(share) - 1, 0, -1):
        first, second = np.unravel_index(int(gains.argmax()), gains.shape)
        total += gains[first, second]
        share[first] += share[second]
        share[:, first] += share[:, second]
        ends[first] += ends[second]
        gains[second], gains[:, second] = -np.inf, -np.inf
        row = np.where(gains[first] > -np.inf, 2 * (share[first] - ends[first] * ends), -np.inf)
        gains[first], gains[:, first] = row, row
        best = max(best, (total, left))
    return best[1]


def meaning_of_neighbourhoods(points: Floats, kinds: int, generator: np.random.Generator) -> Floats:
    """Return one unit vector per point; points of one kind lie close together, kinds nearly at right angles.

    `kinds` says about how many kinds of pictures are to be told apart.
    """
    n = len(points)
    most = min(max(NEIGHBOURS), n - 1)
    squares, numbers = nearest(points, points, most + 1)
    counts = [min(max(1, round(share * kinds)), n - 2) for share in RESOLUTIONS]
    views: list[Floats] = []
    for k in sorted({min(k, most) for k in NEIGHBOURS}):
        slow = slow_coordinates(mutual_graph(squares[:, 1 : k + 1], numbers[:, 1 : k + 1]), max(counts), generator)
        views += [unit_rows(slow[:, :count].astype(np.float32)) for count in sorted(set(counts))]
    return _few_axes(views)


def _few_axes(views: Iterable[Floats]) -> Floats:
    """Return all views joined and turned to the fewest axes that keep nearly all of them."""
    joint = np.concatenate(list(views), axis=1)
    energies, axes = np.linalg.eigh(joint.T.astype(np.float64) @ joint)
    kept = np.cumsum(energies[::-1]) < _ENERGY * energies.sum()
    return unit_rows(joint @ axes[:, ::-1][:, : int(kept.sum()) + 1].astype(np.float32))
