"""A public codebook: what a picture means, and which of a few cells of meaning it falls into.

It is learned from public features alone and is itself public. Nothing in it depends on a private record, so which
cell a record falls into is a function of that record and of public numbers. That function is *not* private: the cell
stays with the record's owner, who releases it through a mechanism (`localmode`).

A new picture gets the mean meaning of its public neighbours, the *landmarks*, counting (as in `meaning`) those of which
it would be a mutual neighbour. Without labels meanings are coordinates of a neighbourhood graph and cells are their
k-means clusters; with labels a meaning is the neighbours' vote and cells are the classes.

*Features* are compared by direction after a signed square root, which keeps a few large values from deciding, in at
most 64 principal directions. Their length and unit do not matter.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from blindsight.errors import InputError
from blindsight.search.codes import blocks
from blindsight.search.function import Floats
from blindsight.search.learner import Classes
from blindsight.search.meaning import BRIDGE, closeness, meaning_of_neighbourhoods, nearest, unit_rows
from blindsight.validation import check_features

Doubles = NDArray[np.float64]

DIRECTIONS = 64
VOTERS = 30
"""How many landmarks tell what a new picture means."""

_ROWS = 2048  # new pictures whose voters are in memory at once
_LEAST = 1e-6  # no cell is wholly irrelevant: rankings need no ties that nobody meant


@dataclass(frozen=True, eq=False)
class Codebook:
    """Frozen public arrays: the projection of features, landmarks with their meanings, and cells of meaning."""

    mean: Floats  # (d,) of public features, after the square root
    directions: Floats  # (d, p)
    landmarks: Floats  # (n, p) public points
    reaches: Floats  # (n,) squared distance of each landmark to its last neighbour
    meanings: Floats  # (n, q) unit vectors
    centres: Floats  # (cells, q) mean meaning in each cell
    prior: Doubles  # (cells,) share of the public points
    relevance: Doubles  # (cells, cells) how relevant the second cell is for pictures of the first, on average

    def __post_init__(self) -> None:
        (d, p), (n, q), cells = self.directions.shape, self.meanings.shape, len(self.centres)
        shapes = {"mean": (d,), "landmarks": (n, p), "reaches": (n,), "centres": (cells, q), "prior": (cells,)}
        shapes |= {"relevance": (cells, cells)}
        if any(getattr(self, name).shape != shape for name, shape in shapes.items()) or cells < 2:
            raise InputError("the parts of this codebook do not fit each other.")
        if not all(np.isfinite(array).all() for array in self.arrays().values()) or not (self.prior > 0).all():
            raise InputError("a codebook is made of finite numbers, and every cell has its share.")

    @property
    def dimension(self) -> int:
        return len(self.mean)

    @property
    def cells(self) -> int:
        return len(self.prior)

    def meanings_of(self, X: Any) -> Floats:
        """Return the meanings of new pictures, (n, q) unit vectors."""
        points = _project(check_features(X, self.dimension, least=0), self.mean, self.directions)
        return _votes(self.landmarks, self.reaches, self.meanings, points)

    def cells_of(self, X: Any) -> NDArray[np.int64]:
        """Return the cell of every picture: that with the nearest centre."""
        similar = self.meanings_of(X) @ self.centres.T - 0.5 * (self.centres**2).sum(axis=1)
        return np.asarray(similar.argmax(axis=1), dtype=np.int64)

    def relevance_of(self, X: Any) -> Doubles:
        """Return how relevant each cell is for a query, (n, cells)."""
        return _relevance(self.meanings_of(X), self.centres)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything it is made of."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the codebook made of these arrays, checked anew."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})


def learn_codebook(X: Floats, cells: int, kinds: int, generator: np.random.Generator) -> Codebook:
    """Learn a codebook of at most so many cells from public features without labels."""
    mean, directions, points, reaches = _landmarks(X)
    meanings = meaning_of_neighbourhoods(points, kinds, generator)
    seed = int(generator.integers(2**31))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct meanings than cells: some stay empty
        found = KMeans(min(cells, len(X)), n_init=4, random_state=seed).fit_predict(meanings)
    return Codebook(mean, directions, points, reaches, meanings, *_cells(meanings, found))


def learn_labelled_codebook(X: Floats, classes: Classes) -> Codebook:
    """Learn a codebook whose cells are the classes 0, 1, ... of public features."""
    mean, directions, points, reaches = _landmarks(X)
    meanings = np.eye(int(classes.max()) + 1, dtype=np.float32)[classes]
    votes = _votes(points, reaches, meanings, points, own=True)  # by others: how sure one can be of a new picture
    return Codebook(mean, directions, points, reaches, meanings, *_cells(votes, classes))


def _landmarks(X: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return mean, principal directions, the projected features and the reach of each."""
    rows = _compared(X)
    mean = rows.mean(axis=0)
    centred = rows - mean
    if not (np.ptp(rows, axis=0) > 1e-6).any():
        raise InputError("all public features are alike up to their length, so nothing can be learned from them.")
    _, vectors = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    directions = np.ascontiguousarray(vectors[:, ::-1][:, :DIRECTIONS], dtype=np.float32)
    points = np.ascontiguousarray(centred @ directions)
    squares, _ = nearest(points, points, min(VOTERS + 1, len(points)))
    return mean, directions, points, np.ascontiguousarray(squares[:, -1])


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
    """Return the centres of cells, their shares and how relevant they are for each other."""
    names, numbers = np.unique(found, return_inverse=True)
    if len(names) < 2:
        raise InputError("all public pictures have the same neighbourhood: there is only one cell. Give more of them.")
    members = np.eye(len(names), dtype=np.float32)[numbers]
    sizes = members.sum(axis=0)
    centres = (members.T @ meanings) / sizes[:, None]
    relevance = (members.T @ _relevance(meanings, centres)) / sizes[:, None]
    return centres, sizes / sizes.sum(dtype=np.float64), relevance
