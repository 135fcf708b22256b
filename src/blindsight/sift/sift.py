"""A sift lets out what an app may see of a picture's features, and nothing else: it is data, never code.

A sift can be applied, saved, named by its hash and verified. It holds plain numbers alone, checked when it is made and
again when it is read from a file, so a platform can take one from an app it does not trust. What a sift *says* about a
private attribute is another matter: only verification decides that, and `harden` first takes away the places where a
linear sift can hide things (near-collinear columns, low digits).

Enev et al., "SensorSift", ACSAC 2012, section 4, gives a new sample x the numbers z = ((x - mean) / scale) W:

| paper | here |
| --- | --- |
| F, the sifting function | `Sift` |
| K, the numbers it lets out | `Sift.width` |
| d, the features it takes | `Sift.dimension` |
| w_1 ... w_K | columns of `LinearSift.matrix` |

Features as they come: dense or sparse, of any kind of number, too many for a copy; they are read block by block.

Numbers become few levels: what a released number can say is bounded by how many levels it has, not by its digits.

Output j is sorted into `levels` cells by its row of `edges`: level i means edges[i - 1] <= z < edges[i]. Cells are
intervals in rising order, so a quantiser can coarsen a number but never reshuffle it.
"""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blindsight.errors import InputError
from blindsight.validation import check_finite, check_shape

Features: TypeAlias = ArrayLike | Any
"""Numbers of shape (n, d): an array, possibly memory-mapped, or a scipy.sparse matrix."""

Floats = NDArray[np.float32]

_CELLS = 1 << 20  # numbers in one dense block while a sift is applied


def blocks(rows: Any, cells: int = _CELLS) -> Iterator[tuple[slice, Any]]:
    """Yield spans of rows and these rows: float32, or float64 where they are double or sparse; sparse stays sparse."""
    width = rows.nnz // rows.shape[0] + 1 if sparse.issparse(rows) else rows.shape[1]
    precision = np.float64 if rows.dtype == np.float64 or sparse.issparse(rows) else np.float32
    step = max(1, cells // width)
    for start in range(0, rows.shape[0], step):
        span = slice(start, min(start + step, rows.shape[0]))
        yield span, rows[span].astype(precision, copy=False)


def finite_blocks(X: Features, dimension: int) -> Iterator[Floats]:
    """Yield dense float32 blocks of all rows; NaN and infinite values are refused."""
    rows = check_shape(X, dimension)
    step = max(1, _CELLS // dimension)
    for start in range(0, rows.shape[0], step):
        block = rows[start : start + step]
        with np.errstate(over="ignore"):
            floats = (block.toarray() if sparse.issparse(block) else block).astype(np.float32, copy=False)
        check_finite(floats, "features")
        yield floats


_MOST_LEVELS = 1 << 16


@dataclass(frozen=True, eq=False)
class Quantiser:
    """Sorts each of `width` outputs into the same number of levels; `edges` (width, levels - 1) rise along rows."""

    edges: NDArray[np.float32]

    def __post_init__(self) -> None:
        edges = np.array(self.edges, dtype=np.float32)
        if edges.ndim != 2 or not 1 <= edges.shape[1] < _MOST_LEVELS or not len(edges):
            raise InputError(f"edges must be (outputs, levels - 1) with 2 to {_MOST_LEVELS} levels; got {edges.shape}.")
        if not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
            raise InputError("the edges of a quantiser must be finite float32 numbers that rise within each row.")
        edges.setflags(write=False)
        object.__setattr__(self, "edges", edges)

    @classmethod
    def uniform(cls, low: ArrayLike, high: ArrayLike, bits: int = 8) -> Self:
        """Return 2^bits levels of equal width over [low, high], one pair per output; beyond lies the outermost level.

        >>> Quantiser.uniform([0.0], [4.0], bits=2).apply(np.float32([[-9], [0.5], [1], [3.9], [9]])).ravel().tolist()
        [0, 0, 1, 3, 3]
        """
        first, last = (
            np.atleast_1d(np.asarray(low, dtype=np.float64)),
            np.atleast_1d(np.asarray(high, dtype=np.float64)),
        )
        if not 1 <= bits <= 16:
            raise InputError(f"a uniform quantiser has 1 to 16 bits; got {bits}.")
        return cls(np.linspace(first, last, (1 << bits) + 1, axis=1)[:, 1:-1].astype(np.float32))

    @property
    def width(self) -> int:
        """How many outputs it takes."""
        return len(self.edges)

    @property
    def levels(self) -> int:
        """How many levels each output has."""
        return int(self.edges.shape[1]) + 1

    def apply(self, outputs: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the level of every output, 0 to levels - 1, shape (n, width)."""
        ranks = [np.searchsorted(row, outputs[:, j], side="right") for j, row in enumerate(self.edges)]
        return np.stack(ranks, axis=1).astype(np.int64, copy=False)


Levels = NDArray[np.int64]

LARGEST = 1e12
"""No number of a linear sift is larger, no scale or weight other than zero smaller than its inverse."""

HUGE = 1e6
"""No weight is this many times the median weight of its column: such columns let one feature drown or hide others."""


class Sift(ABC):
    """A frozen function from features (n, d) to what is released, (n, width)."""

    kind: ClassVar[str]
    """How files call this kind of sift."""

    name: str
    """What people call it; decides nothing."""

    pipeline: str
    """Fingerprint of the feature pipeline it belongs to; "" where nobody said."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many features it takes."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many numbers it lets out for a picture."""

    @property
    @abstractmethod
    def levels(self) -> tuple[int, ...] | None:
        """How many levels each number has, or None where they are real numbers."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all numbers that decide the release."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Return all settings that decide the release, as JSON."""

    @classmethod
    @abstractmethod
    def from_parts(cls, document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], name: str = "") -> Self:
        """Return the sift that `document` and `arrays` described, checked anew."""

    @abstractmethod
    def _release(self, block: Floats) -> Floats | Levels:
        """Return what is released of checked features, (n, width): float32, or int64 levels where they are few."""

    @property
    def alphabet(self) -> int | None:
        """How many different releases there can be, or None where they are real numbers."""
        return None if self.levels is None else math.prod(self.levels)

    def apply(self, X: Features) -> Floats | Levels:
        """Return what is released of every row: float32 (n, width), or int64 levels 0, 1, ... of the same shape."""
        return np.concatenate([self._release(block) for block in finite_blocks(X, self.dimension)])

    def symbols(self, X: Features) -> Levels:
        """Return the release of every row as one number in [0, alphabet): all that anyone can ever learn from it."""
        if self.levels is None or (self.alphabet or 0) > 1 << 62:
            raise InputError("this sift has no small alphabet: its numbers are real or of too many levels.")
        return np.asarray(np.ravel_multi_index(tuple(self.apply(X).T), self.levels), dtype=np.int64)

    def check_pipeline(self, fingerprint: str) -> None:
        """Refuse features of another pipeline: they would mean something else, and so would every verdict."""
        if self.pipeline and self.pipeline != fingerprint:
            raise InputError(
                f"this sift belongs to feature pipeline {self.pipeline!r}, these features come from "
                f"{fingerprint!r}. Extract them with the sift's pipeline, or fit a new sift."
            )

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides what is released, and of the pipeline it belongs to."""
        digest = hashlib.sha256(json.dumps([self.kind, self.document()], sort_keys=True).encode())
        for name, array in sorted(self.arrays().items()):
            digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class LinearSift(Sift):
    """z = ((x - mean) / scale) matrix, rounded by the quantiser if there is one.

    `mean` and `scale` have one number per feature, `matrix` is (features, width). Numbers are kept as float32: what is
    stored is what is applied. Matrices with huge, denormal or non-finite weights are refused.
    """

    mean: Floats
    scale: Floats
    matrix: Floats
    quantiser: Quantiser | None = None
    pipeline: str = ""
    name: str = ""
    kind: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        for part in ("mean", "scale", "matrix"):
            object.__setattr__(self, part, _frozen(getattr(self, part), part))
        d, width = self.matrix.shape if self.matrix.ndim == 2 else (0, 0)
        if not d or not width or self.mean.shape != (d,) or self.scale.shape != (d,):
            shapes = f"mean {self.mean.shape}, scale {self.scale.shape}, matrix {self.matrix.shape}"
            raise InputError(f"a linear sift needs a mean and a scale per row of its matrix; got {shapes}.")
        if not (self.scale >= 1 / LARGEST).all():
            raise InputError(f"every scale must lie in [{1 / LARGEST:g}, {LARGEST:g}]; got {self.scale.min():g}.")
        _check_weights(self.matrix)
        if self.quantiser is not None and self.quantiser.width != width:
            raise InputError(f"the quantiser takes {self.quantiser.width} outputs; the matrix gives {width}.")

    @property
    def dimension(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def width(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def levels(self) -> tuple[int, ...] | None:
        """How many levels each number has, or None without a quantiser."""
        return None if self.quantiser is None else (self.quantiser.levels,) * self.width

    @cached_property
    def weights(self) -> Floats:
        """The matrix in units of the features themselves, (x - mean) weights = z."""
        return np.asarray(self.matrix / self.scale[:, None])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return mean, scale, matrix and the quantiser's edges."""
        edges = {} if self.quantiser is None else {"edges": self.quantiser.edges}
        return {"mean": self.mean, "scale": self.scale, "matrix": self.matrix, **edges}

    def document(self) -> dict[str, Any]:
        """Return the pipeline it belongs to."""
        return {"pipeline": self.pipeline}

    @classmethod
    def from_parts(cls, document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], name: str = "") -> Self:
        """Return the sift made of these parts."""
        quantiser = Quantiser(arrays["edges"]) if "edges" in arrays else None
        return cls(arrays["mean"], arrays["scale"], arrays["matrix"], quantiser, str(document["pipeline"]), name)

    def project(self, X: Features) -> Floats:
        """Return z before any rounding, float32 (n, width): for the platform's eyes, not for the app's."""
        return np.concatenate([self._project(block) for block in finite_blocks(X, self.dimension)])

    def _project(self, block: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            outputs: Floats = np.matmul(block - self.mean, self.weights)
        return without_overflow(outputs)

    def _release(self, block: Floats) -> Floats | Levels:
        outputs = self._project(block)
        return outputs if self.quantiser is None else self.quantiser.apply(outputs)


def natural_units(sift: Sift) -> NDArray[np.float64]:
    """Return (width, k): from what a sift lets out to numbers in units of its features.

    Whitening drowns what kernels see in directions of much variance, and an app can undo it: it knows the matrix. With
    matrix = Q R, the released z gives z R^+, the coordinates of the features in the orthonormal basis Q.
    """
    if not isinstance(sift, LinearSift):
        return np.eye(sift.width)
    return np.asarray(np.linalg.pinv(np.linalg.qr(sift.matrix.astype(np.float64), mode="r"), rcond=1e-6))


def without_overflow(outputs: Floats) -> Floats:
    """Return outputs (n, width) with zeros for every row in which a number overflowed.

    An error would be one more symbol, which depends on the picture and which nobody counted: an app could make a sift
    overflow exactly where somebody smiles. So such rows get the release that zeros get, on verification rows too.
    """
    outputs[~np.isfinite(outputs).all(axis=1)] = 0
    return outputs


def without_negligible(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix with weights below a millionth of their column's largest set to zero: rounding, not signal."""
    size = np.abs(matrix)
    return np.where(size * HUGE < size.max(axis=0), 0.0, matrix)


def _frozen(numbers: ArrayLike, part: str) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(numbers, dtype=np.float32)
    if not (np.abs(array) <= LARGEST).all():
        raise InputError(f"the {part} of a linear sift must be finite and within +-{LARGEST:g}.")
    array.setflags(write=False)
    return array


def _check_weights(matrix: Floats) -> None:
    """Refuse denormal or otherwise vanishing weights, and columns in which one weight dwarfs the others."""
    for j, column in enumerate(np.abs(matrix.T)):
        weights = column[column > 0]
        if not weights.size:
            raise InputError(f"column {j} of the matrix is zero: that number would say nothing. Leave it out.")
        if weights.min() < 1 / LARGEST:
            raise InputError(
                f"weights must be zero or at least {1 / LARGEST:g}; column {j} has {weights.min():g}. "
                "Set vanishing weights to zero."
            )
        if weights.max() > HUGE * np.median(weights):
            raise InputError(
                f"no weight may exceed {HUGE:g} times the median weight of its column; column {j} has "
                f"{weights.max():g} beside {np.median(weights):g}. Set negligible weights to zero, or rescale."
            )
