"""A public codebook: what a picture means, and which of a number of cells of meaning it falls into.

It is learned from public features alone and is itself public. Nothing in it depends on a private record, so which
cell a record falls into is a function of that record and of public numbers. That function is *not* private: the cell
stays with the record's owner, who releases it through a mechanism (`localmode`).

*Without labels* (`NeighbourCodebook`) a new picture gets the mean meaning of its public neighbours, the *landmarks*,
counting (as in `meaning`) those of which it would be a mutual neighbour. Meanings are coordinates of a neighbourhood
graph and cells are their k-means clusters, about three for each kind of picture that the graph shows.

*With labels* (`ClassCodebook`) a meaning is the probability of each class by multinomial logistic regression, cells are
the classes, and how often one class is taken for another was measured by cross-validation.

*Features* are compared by direction after a signed square root, which keeps a few large values from deciding, in at
most 64 principal directions (256 with labels). Their length and unit do not matter.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from blindsight.errors import InputError
from blindsight.search.codes import blocks
from blindsight.search.function import Floats
from blindsight.search.learner import Classes
from blindsight.search.meaning import (
    BRIDGE,
    closeness,
    count_kinds,
    meaning_of_neighbourhoods,
    nearest,
    unit_rows,
)
from blindsight.validation import check_features

Doubles = NDArray[np.float64]

DIRECTIONS, CLASS_DIRECTIONS = 64, 256
VOTERS = 30
"""How many landmarks tell what a new picture means."""

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

    @abstractmethod
    def cells_of(self, X: Any) -> NDArray[np.int64]:
        """Return the cell of every picture."""

    def relevance_of(self, X: Any) -> Doubles:
        """Return how relevant each cell is for a query, (n, cells)."""
        return _relevance(self.meanings_of(X), self.centres)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything it is made of."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> "Codebook":
        """Return the codebook made of these arrays, checked anew."""
        kind = ClassCodebook if "weights" in arrays else NeighbourCodebook
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
        """Return the cell of every picture: that with the nearest centre."""
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

    def cells_of(self, X: Any) -> NDArray[np.int64]:
        """Return the likeliest class of every picture."""
        return np.asarray(self.meanings_of(X).argmax(axis=1), dtype=np.int64)


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


def learn_labelled_codebook(X: Floats, classes: Classes, generator: np.random.Generator) -> ClassCodebook:
    """Learn a codebook whose cells are the classes 0, 1, ... of public features."""
    mean, directions, points = _points(X, CLASS_DIRECTIONS)
    count, folds = int(classes.max()) + 1, generator.integers(_FOLDS, size=len(points))
    held = {strength: _cross_validated(points, classes, count, folds, strength) for strength in _STRENGTHS}
    truth = np.arange(len(classes)), classes
    strength = max(held, key=lambda one: float(np.log(held[one][truth]).mean()))
    weights, bias = _regression(points, classes, count, strength)
    taken = held[strength].argmax(axis=1)
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
    """Return mean, principal directions and the projected features."""
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


def _votes(landmarks: Floats, reaches: Floats, meanings: Floats, points: Floats) -> Floats:
    """Return the mean meaning of each point's voters."""
    k, voted = min(VOTERS, len(landmarks)), np.empty((len(points), meanings.shape[1]), dtype=np.float32)
    for span in blocks(len(points), _ROWS):
        squares, numbers = nearest(landmarks, points[span], k)
        reach = reaches[numbers]
        mutual = np.where(squares <= reach, np.float32(1 + BRIDGE), np.float32(BRIDGE))
        weights = closeness(squares, squares[:, -1:], reach) * mutual
        voted[span] = np.einsum("nk,nkq->nq", weights, meanings[numbers])
    return unit_rows(voted)


def _relevance(meanings: Floats, centres: Floats) -> Doubles:
    """Return the mean cosine with the pictures of a cell, where it is positive."""
    return np.asarray(np.maximum(meanings @ centres.T, _LEAST), dtype=np.float64)


def _cells(meanings: Floats, found: NDArray[np.integer[Any]]) -> tuple[Floats, Doubles, Doubles]:
    """Return the centres of cells, their shares and how relevant they are for each other."""
    names, numbers = np.unique(found, return_inverse=True)
    if len(names) < 2:
        raise InputError("all public pictures have the same neighbourhood: there is only one cell. Give more of them.")
    members = np.eye(len(names), dtype=np.float32)[numbers]
    sizes = members.sum(axis=0)
    centres = (members.T @ meanings) / sizes[:, None]
    relevance = (members.T @ _relevance(meanings, centres)) / sizes[:, None]
    return centres, sizes / sizes.sum(dtype=np.float64), relevance
