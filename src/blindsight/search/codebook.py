"""Public codebooks: maps from a picture's features to its meaning and to one of several cells of meaning.

A codebook is learned from public features alone and is itself public, so a record's cell is a function of that record
and of public numbers. The cell is *not* private: it stays with the record's owner, who releases it through `localmode`.

*Without labels* (`NeighbourCodebook`) a new picture gets the mean meaning of its public neighbours, the *landmarks*,
weighed as in the graph below: mutual neighbours most. Meanings are coordinates of that graph and cells are their
k-means clusters, about three for each kind of picture that the graph shows.

*With labels* cells are the classes, told by multinomial logistic regression (`ClassCodebook`) or by the neighbours'
votes, whichever is right more often about public pictures that it has not seen.

*Without pictures* (`HeadCodebook`, `shipped_codebook`) cells are ImageNet's 1,000 classes, joined to 200 by Ward's
procedure on their weights in EfficientNet-lite0; a cell is told by the mean of its classes' weights, and two cells are
as alike as the weights of their classes. The file is made by ``tools/codebook.py``.

*Features* are compared by direction after a signed square root, which keeps a few large values from deciding, in at
most 64 principal directions (256 by regression), so length and unit do not matter; the shipped head takes them raw.

*The neighbourhood graph.* Pictures are joined where each is among the other's nearest, and each gets the coordinates
that a random walk on that graph changes slowest (Belkin and Niyogi, "Laplacian eigenmaps", Neural Computation 2003;
rows of unit length after Ng, Jordan and Weiss, NIPS 2001; distances measured by the reach of both ends after
Zelnik-Manor and Perona, NIPS 2004). Joining *mutual* neighbours matters: else a few hubs tie all regions together
(Fashion-MNIST, ten clusters: normalised mutual information with the classes .71, else .65; k-means on pixels .60).
One-sided neighbours keep a thousandth of the weight, so that no picture is left alone. Several numbers of neighbours
and of coordinates are joined: the inner product of two pictures is the mean of their cosines over all of them.

*How many kinds there are* (`count_kinds`): as many as there are communities where such a graph's modularity is largest,
found by joining small groups two at a time (Newman, "Fast algorithm for detecting community structure in networks",
Physical Review E 2004). More neighbours make fewer and larger communities; taken are the fewest neighbours of which the
average community has at most four times as many members. It counts kinds that pictures show, not names for them.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.special import softmax
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from blindsight.errors import InputError
from blindsight.files import read_arrays
from blindsight.search.codes import blocks
from blindsight.search.function import Classes, Floats
from blindsight.validation import check_features

Doubles = NDArray[np.float64]

NEIGHBOURS = (15, 30, 60)

RESOLUTIONS = (0.7, 1.1, 1.5)  # how many coordinates are joined, as multiples of the number of kinds
COUNTING_NEIGHBOURS = (12, 16, 24, 32, 48, 64, 96)

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
    n, k = numbers.shape
    weights = closeness(squares, squares[:, -1:], squares[:, -1][numbers]).astype(np.float64)
    sources = np.repeat(np.arange(n), k)
    weights[numbers == np.arange(n)[:, None]] = 0  # where a point has twins, it may stand among its own neighbours
    directed = csr_array((weights.ravel(), (sources, numbers.ravel())), shape=(n, n))
    both, either = directed.minimum(directed.T), directed.maximum(directed.T)
    return csr_array(both + BRIDGE * either)


def slow_coordinates(graph: csr_array, count: int, generator: np.random.Generator) -> Doubles:
    """Return the slowest coordinates of a random walk on the graph, slowest first, without the constant one.

    They are the leading eigenvectors of D^-1 W, found as those of D^-1/2 W D^-1/2. Iterative solvers miss some
    of those that tell components apart and never change: these are written down (largest first) and taken off before.
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
    """Return one unit vector per point: close for one of about `kinds` kinds, nearly orthogonal between kinds."""
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


DIRECTIONS, CLASS_DIRECTIONS = 64, 256
VOTERS = 30  # how many landmarks tell what a new picture means
CELLS_PER_KIND = 3.2
FEWEST_KINDS = 10  # fewer are told apart only where that was asked for: designs join cells, but cannot part them

_ROWS = 2048  # new pictures whose voters are in memory at once
_LEAST = 1e-6  # no cell is wholly irrelevant: rankings need no ties that nobody meant
_FOLDS = 3
_STRENGTHS = (10.0, 100.0)  # of the logistic regression (scikit-learn's C); the likelier one is taken


@dataclass(frozen=True, eq=False)
class Codebook(ABC):
    """Frozen public arrays: the projection of features, the cells' shares, and how relevant they are for each other."""

    mean: Floats  # (d,) of public features, after the square root
    directions: Floats  # (d, p)
    centres: Floats  # (cells, q) mean meaning in each cell
    prior: Doubles  # (cells,) share of the public points
    relevance: Doubles  # (cells, cells) how relevant the second cell is for pictures of the first, on average

    def __post_init__(self) -> None:
        (d, p), (cells, q) = self.directions.shape, self.centres.shape
        shapes = {"mean": (d,), "prior": (cells,), "relevance": (cells, cells), **self._shapes(p, q)}
        if any(getattr(self, name).shape != shape for name, shape in shapes.items()) or cells < 2:
            raise InputError("the parts of this codebook do not fit each other.")
        if not all(np.isfinite(array).all() for array in self.arrays().values()) or not (self.prior > 0).all():
            raise InputError("a codebook is made of finite numbers, and every cell has its share.")

    @abstractmethod
    def _shapes(self, p: int, q: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of further arrays, for points of p and meanings of q numbers."""

    @abstractmethod
    def _meanings(self, points: Floats) -> Floats:
        """Return the meanings (n, q) of projected pictures."""

    @property
    def dimension(self) -> int:
        return len(self.mean)

    @property
    def cells(self) -> int:
        return len(self.prior)

    def meanings_of(self, X: Any) -> Floats:
        """Return the meanings of new pictures, (n, q): unit vectors, or probabilities of classes."""
        return self._meanings(_project(check_features(X, self.dimension, least=0), self.mean, self.directions))

    def cells_of(self, X: Any) -> NDArray[np.int64]:
        return np.asarray(self.meanings_of(X).argmax(axis=1), dtype=np.int64)

    def relevance_of(self, X: Any) -> Doubles:
        """Return how relevant each cell is for a query, (n, cells)."""
        return _relevance(self.meanings_of(X), self.centres)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> "Codebook":
        kind: type[Codebook] = NeighbourCodebook
        if "bias" in arrays:
            kind = ClassCodebook if "weights" in arrays else HeadCodebook
        return kind(**{field.name: arrays[field.name] for field in fields(kind)})


@dataclass(frozen=True, eq=False)
class NeighbourCodebook(Codebook):
    """Landmarks with their meanings, which vote on what a new picture means."""

    landmarks: Floats  # (n, p) public points
    reaches: Floats  # (n,) squared distance of each landmark to its last neighbour
    meanings: Floats  # (n, q) unit vectors

    def _shapes(self, p: int, q: int) -> dict[str, tuple[int, ...]]:
        n = len(self.landmarks)
        return {"landmarks": (n, p), "reaches": (n,), "meanings": (n, q)}

    def _meanings(self, points: Floats) -> Floats:
        return _votes(self.landmarks, self.reaches, self.meanings, points)

    def cells_of(self, X: Any) -> NDArray[np.int64]:
        similar = self.meanings_of(X) @ self.centres.T - 0.5 * (self.centres**2).sum(axis=1)
        return np.asarray(similar.argmax(axis=1), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ClassCodebook(Codebook):
    """A multinomial logistic regression; `centres` are the shares of true classes among those taken for each."""

    weights: Floats  # (p, classes)
    bias: Floats  # (classes,)

    def _shapes(self, p: int, q: int) -> dict[str, tuple[int, ...]]:
        return {"weights": (p, q), "bias": (q,), "centres": (q, q)}

    def _meanings(self, points: Floats) -> Floats:
        return np.asarray(softmax(points @ self.weights + self.bias, axis=1), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class HeadCodebook(Codebook):
    """A linear classifier of raw features, `directions` and `bias`; `centres` are how alike cells are."""

    bias: Floats  # (cells,)

    def _shapes(self, p: int, q: int) -> dict[str, tuple[int, ...]]:
        return {"bias": (p,), "centres": (p, p)}

    def meanings_of(self, X: Any) -> Floats:
        rows = check_features(X, self.dimension, least=0)
        return self._meanings((rows - self.mean) @ self.directions)

    def _meanings(self, points: Floats) -> Floats:
        return np.asarray(softmax(points + self.bias, axis=1), dtype=np.float32)


SHIPPED = Path(__file__).parent / "imagenet-cells.npz"
SHIPPED_KIND = "blindsight/head-codebook.1"


def shipped_codebook() -> HeadCodebook:
    """Return the codebook that comes with the package, for features by `Embedding` alone; it needs no pictures."""
    arrays = read_arrays(SHIPPED, SHIPPED_KIND)[1]
    matrix, sizes = arrays["matrix"].astype(np.float32), arrays["sizes"]
    relevance = np.maximum(arrays["alike"].astype(np.float64), _LEAST)
    return HeadCodebook(
        mean=np.zeros(len(matrix), dtype=np.float32),
        directions=matrix,
        centres=relevance.astype(np.float32),
        prior=sizes / sizes.sum(dtype=np.float64),
        relevance=relevance,
        bias=arrays["bias"].astype(np.float32),
    )


def learn_codebook(
    X: Floats, kinds: int | None, generator: np.random.Generator, *, cells: int | None = None, fewest: int = 2
) -> NeighbourCodebook:
    """Learn a codebook from public features without labels.

    `kinds` of pictures are told apart (None: as many as the features show), by `cells` cells, at least the `fewest`.
    """
    mean, directions, points = _points(X, DIRECTIONS)
    squares, _ = nearest(points, points, min(VOTERS + 1, len(points)))
    told = max(FEWEST_KINDS, count_kinds(points, generator)) if kinds is None else kinds
    meanings = meaning_of_neighbourhoods(points, told, generator)
    wanted = max(round(CELLS_PER_KIND * told) if cells is None else cells, fewest)
    seed = int(generator.integers(2**31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct meanings than cells: some stay empty
        found = KMeans(min(wanted, len(X)), n_init=4, random_state=seed).fit_predict(meanings)
    parts = _cells(meanings, found)
    return NeighbourCodebook(
        mean, directions, *parts, points, np.ascontiguousarray(squares[:, -1]), np.ascontiguousarray(meanings)
    )


def learn_labelled_codebook(X: Floats, classes: Classes, generator: np.random.Generator) -> Codebook:
    """Learn a codebook whose cells are the classes 0, 1, ... of public features."""
    mean, directions, points = _points(X, CLASS_DIRECTIONS)
    count, folds = int(classes.max()) + 1, generator.integers(_FOLDS, size=len(points))
    held = {strength: _cross_validated(points, classes, count, folds, strength) for strength in _STRENGTHS}
    truth = np.arange(len(classes)), classes
    strength = max(held, key=lambda one: float(np.log(held[one][truth]).mean()))
    taken = held[strength].argmax(axis=1)
    landmarks, meanings = np.ascontiguousarray(points[:, :DIRECTIONS]), np.eye(count, dtype=np.float32)[classes]
    reaches = np.ascontiguousarray(nearest(landmarks, landmarks, min(VOTERS + 1, len(landmarks)))[0][:, -1])
    votes = _votes(landmarks, reaches, meanings, landmarks, own=True)
    if (votes.argmax(axis=1) == classes).sum() > (taken == classes).sum():
        parts = mean, np.ascontiguousarray(directions[:, :DIRECTIONS]), *_cells(votes, classes)
        return NeighbourCodebook(*parts, landmarks, reaches, meanings)
    weights, bias = _regression(points, classes, count, strength)
    table = np.full((count, count), 1 / count)  # one picture spread over all classes, so that no share is zero
    np.add.at(table, (taken, classes), 1.0)
    centres = table / table.sum(axis=1, keepdims=True)
    prior = table.sum(axis=1) / table.sum()
    relevance = np.maximum(centres @ centres.T, _LEAST)
    return ClassCodebook(mean, directions, centres.astype(np.float32), prior, relevance, weights, bias)


def _cross_validated(
    points: Floats, classes: Classes, count: int, folds: NDArray[np.int64], strength: float
) -> Doubles:
    """Return the probabilities of all classes for every point, by a regression that has not seen it."""
    held = np.full((len(points), count), 1 / count)
    for fold in range(_FOLDS):
        inside = folds != fold
        if inside.any() and not inside.all():
            weights, bias = _regression(points[inside], classes[inside], count, strength)
            held[~inside] = softmax(points[~inside] @ weights + bias, axis=1)
    return np.asarray(np.maximum(held, 1e-12))


def _regression(points: Floats, classes: Classes, count: int, strength: float) -> tuple[Floats, Floats]:
    """Return weights (p, classes) and bias of a logistic regression; a class that is not there is never likely."""
    weights, bias = np.zeros((points.shape[1], count), np.float32), np.full(count, -30.0, np.float32)
    there = np.unique(classes)
    if len(there) < 2:
        bias[there] = 0.0
        return weights, bias
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # far enough for a ranking
        fitted = LogisticRegression(C=strength, max_iter=200, tol=1e-3).fit(points, classes)
    if len(there) == 2:
        weights[:, there[1]], bias[there] = fitted.coef_[0], (0.0, fitted.intercept_[0])
    else:
        weights[:, there], bias[there] = fitted.coef_.T, fitted.intercept_
    return weights, bias


def _points(X: Floats, most: int) -> tuple[Floats, Floats, Floats]:
    rows = _compared(X)
    mean = rows.mean(axis=0)
    centred = rows - mean
    if not (np.ptp(rows, axis=0) > 1e-6).any():
        raise InputError("all public features are alike up to their length, so nothing can be learned from them.")
    _, vectors = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    directions = np.ascontiguousarray(vectors[:, ::-1][:, :most], dtype=np.float32)
    return mean, directions, np.ascontiguousarray(centred @ directions)


def _compared(X: Floats) -> Floats:
    return unit_rows(np.sign(X) * np.sqrt(np.abs(X)))


def _project(X: Floats, mean: Floats, directions: Floats) -> Floats:
    points = np.empty((len(X), directions.shape[1]), dtype=np.float32)
    for span in blocks(len(X), _ROWS):
        points[span] = (_compared(X[span]) - mean) @ directions
    return points


def _votes(landmarks: Floats, reaches: Floats, meanings: Floats, points: Floats, *, own: bool = False) -> Floats:
    """Return the mean meaning of each point's voters; the points' `own` votes are left out."""
    k, voted = min(VOTERS, len(landmarks) - own), np.empty((len(points), meanings.shape[1]), dtype=np.float32)
    for span in blocks(len(points), _ROWS):
        squares, numbers = nearest(landmarks, points[span], k + own)
        squares, numbers = squares[:, int(own) :], numbers[:, int(own) :]
        reach = reaches[numbers]
        mutual = np.where(squares <= reach, np.float32(1 + BRIDGE), np.float32(BRIDGE))
        weights = closeness(squares, squares[:, -1:], reach) * mutual
        voted[span] = np.einsum("nk,nkq->nq", weights, meanings[numbers])
    return unit_rows(voted)


def _relevance(meanings: Floats, centres: Floats) -> Doubles:
    """Return the mean cosine with the pictures of a cell, where it is positive."""
    return np.asarray(np.maximum(meanings @ centres.T, _LEAST), dtype=np.float64)


def _cells(meanings: Floats, found: NDArray[np.integer[Any]]) -> tuple[Floats, Doubles, Doubles]:
    names, numbers = np.unique(found, return_inverse=True)
    if len(names) < 2:
        raise InputError("all public pictures have the same neighbourhood: there is only one cell. Give more of them.")
    members = np.eye(len(names), dtype=np.float32)[numbers]
    sizes = members.sum(axis=0)
    centres = (members.T @ meanings) / sizes[:, None]
    relevance = (members.T @ _relevance(meanings, centres)) / sizes[:, None]
    return centres, sizes / sizes.sum(dtype=np.float64), relevance
