"""Sifts: what an app may see of a picture's features, and nothing else. A sift is data, never code.

A sift holds plain numbers alone, checked when it is made and again when it is read from a file, so a platform can take
one from an app it does not trust. What a sift *says* about a private attribute is another matter: only verification
decides that. Enev et al., "SensorSift", ACSAC 2012, section 4, gives a new sample x the numbers z =
((x - mean) / scale) W:

| paper | here |
| --- | --- |
| F, the sifting function | `Sift` |
| K, the numbers it lets out | `Sift.width` |
| d, the features it takes | `Sift.dimension` |
| w_1 ... w_K | columns of `LinearSift.matrix` |

| kind | release | what bounds it |
| --- | --- | --- |
| `LinearSift` | numbers, or their levels | attackers, once `harden` has taken away where a matrix can hide things |
| `LayeredSift` | numbers of a network, or their levels | a certificate; attackers only if it was trained honestly |
| `SymbolSift` | one of few symbols | a certificate |
| `personal.PersonalSift` | symbols drawn by randomised response | epsilon, for every single person |

A network can compute almost anything, an XOR of the private attribute with a hash of the rest included (`cheats`), and
unlike a matrix it cannot be re-expressed in a basis of the platform's choice. So the platform releases one only as a
small alphabet under a certificate, of all its frames and together with all else that is out.
"""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import block_diag
from scipy.special import expit

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.validation import check_finite, check_shape

Features: TypeAlias = ArrayLike | Any
"""Numbers of shape (n, d): an array, possibly memory-mapped, or a scipy.sparse matrix."""

Floats = NDArray[np.float32]
Levels = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]

LARGEST = 1e12
"""No number of a sift is larger, no scale, and no weight of a matrix other than zero, smaller than its inverse."""

HUGE = 1e6
"""No weight is this many times the median weight of its column: such columns let one feature drown or hide others."""

MOST_SYMBOLS = 32

_FILE = "blindsight/sift.1"
_CELLS = 1 << 20  # numbers in one dense block while a sift is applied
_ROWS = 4096  # rows whose hidden values are in memory at once
_MOST_LEVELS = 1 << 16


def blocks(rows: Any, cells: int = _CELLS) -> Iterator[tuple[slice, Any]]:
    """Yield spans and their rows: float32, or float64 where they are double or sparse; sparse stays sparse."""
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


@dataclass(frozen=True, eq=False)
class Quantiser:
    """Sorts each of `width` outputs into the same number of levels; `edges` (width, levels - 1) rise along rows. Level
    i of output j means edges[j, i - 1] <= z < edges[j, i]: a quantiser can coarsen a number, never reshuffle it.
    """

    edges: Floats

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
        if not 1 <= bits <= 16:
            raise InputError(f"a uniform quantiser has 1 to 16 bits; got {bits}.")
        first, last = (np.atleast_1d(np.asarray(end, dtype=np.float64)) for end in (low, high))
        return cls(np.linspace(first, last, (1 << bits) + 1, axis=1)[:, 1:-1].astype(np.float32))

    @property
    def width(self) -> int:
        return len(self.edges)

    @property
    def levels(self) -> int:
        return int(self.edges.shape[1]) + 1

    def apply(self, outputs: Floats) -> Levels:
        """Return the level of every output, 0 to levels - 1, shape (n, width)."""
        ranks = [np.searchsorted(row, outputs[:, j], side="right") for j, row in enumerate(self.edges)]
        return np.stack(ranks, axis=1).astype(np.int64, copy=False)


class Sift(ABC):
    """A frozen function from features (n, d) to what is released, (n, width)."""

    kind: ClassVar[str]

    name: str

    pipeline: str
    """Fingerprint of the feature pipeline it belongs to; "" where unknown."""

    kinds: ClassVar[dict[str, type["Sift"]]] = {}

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            Sift.kinds[cls.kind] = cls

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

    def document(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline}

    @classmethod
    @abstractmethod
    def from_parts(cls, document: Mapping[str, Any], arrays: Arrays, name: str = "") -> Self:
        """Return the sift that `document` and `arrays` described, checked again."""

    @abstractmethod
    def _release(self, block: Floats) -> Floats | Levels:
        """Return what is released of checked features, (n, width): float32, or int64 levels where they are few."""

    @property
    def alphabet(self) -> int | None:
        """How many different releases there can be, or None where they are real numbers."""
        return None if self.levels is None else math.prod(self.levels)

    def apply(self, X: Features) -> Floats | Levels:
        """Return what is released of every row: float32 (n, width), or int64 levels 0, 1, ... of the same shape."""
        first, *others = (self._release(block) for block in finite_blocks(X, self.dimension))
        return np.concatenate([first, *others]) if others else first

    def symbols(self, X: Features) -> Levels:
        """Return the release of every row as one number in [0, alphabet): all that anyone can ever learn from it."""
        if self.levels is None or (self.alphabet or 0) > 1 << 62:
            raise InputError("this sift has no small alphabet: its numbers are real or of too many levels.")
        return np.asarray(np.ravel_multi_index(tuple(self.apply(X).T), self.levels), dtype=np.int64)

    def check_pipeline(self, fingerprint: str) -> None:
        """Refuse features of another pipeline."""
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


def save_sift(sift: Sift, path: AnyPath) -> None:
    """Write the sift to one file with a checksum, whole or not at all."""
    write_arrays(path, _FILE, {"kind": sift.kind, "name": sift.name, "settings": sift.document()}, sift.arrays())


def load_sift(path: AnyPath) -> Sift:
    """Read a sift that `save_sift` wrote; nothing in the file is ever executed, a damaged one is refused."""
    document, arrays = read_arrays(path, _FILE)
    try:
        kind = str(document["kind"])
        if kind not in Sift.kinds:
            raise UnknownNameError("kind of sift", kind, Sift.kinds)
        return Sift.kinds[kind].from_parts(document["settings"], arrays, str(document["name"]))
    except (KeyError, TypeError, IndexError, ValueError, InputError) as error:
        raise CorruptFileError(f"{path} holds no usable sift: {error}") from None


class _NumberSift(Sift):
    quantiser: Quantiser | None

    @abstractmethod
    def _project(self, block: Floats) -> Floats:
        """Return the numbers before any rounding."""

    @property
    def levels(self) -> tuple[int, ...] | None:
        return None if self.quantiser is None else (self.quantiser.levels,) * self.width

    def _check_quantiser(self) -> None:
        if self.quantiser is not None and self.quantiser.width != self.width:
            raise InputError(f"the quantiser takes {self.quantiser.width} outputs; the sift gives {self.width}.")

    def _edges(self) -> dict[str, NDArray[Any]]:
        return {} if self.quantiser is None else {"edges": self.quantiser.edges}

    def _release(self, block: Floats) -> Floats | Levels:
        outputs = self._project(block)
        return outputs if self.quantiser is None else self.quantiser.apply(outputs)


def _quantiser(arrays: Arrays) -> Quantiser | None:
    return Quantiser(arrays["edges"]) if "edges" in arrays else None


@dataclass(frozen=True, eq=False)
class LinearSift(_NumberSift):
    """z = ((x - mean) / scale) matrix, rounded by the quantiser if there is one. `mean` and `scale` have one number per
    feature, `matrix` is (features, width). Numbers are kept as float32: what is stored is what is applied. Matrices
    with huge, denormal or non-finite weights are refused.
    """

    mean: Floats
    scale: Floats
    matrix: Floats
    quantiser: Quantiser | None = None
    pipeline: str = ""
    name: str = ""
    kind: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        _freeze(self, "mean", "scale", "matrix")
        d, width = self.matrix.shape if self.matrix.ndim == 2 else (0, 0)
        if not d or not width or self.mean.shape != (d,) or self.scale.shape != (d,):
            shapes = f"mean {self.mean.shape}, scale {self.scale.shape}, matrix {self.matrix.shape}"
            raise InputError(f"a linear sift needs a mean and a scale per row of its matrix; got {shapes}.")
        _check_scale(self.scale)
        _check_weights(self.matrix)
        self._check_quantiser()

    @property
    def dimension(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def width(self) -> int:
        return int(self.matrix.shape[1])

    @cached_property
    def weights(self) -> Floats:
        """The matrix in units of the features themselves, (x - mean) weights = z."""
        return np.asarray(self.matrix / self.scale[:, None])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"mean": self.mean, "scale": self.scale, "matrix": self.matrix, **self._edges()}

    @classmethod
    def from_parts(cls, document: Mapping[str, Any], arrays: Arrays, name: str = "") -> Self:
        parts = (arrays["mean"], arrays["scale"], arrays["matrix"], _quantiser(arrays))
        return cls(*parts, str(document["pipeline"]), name)

    def project(self, X: Features) -> Floats:
        """Return z before any rounding, float32 (n, width): for the platform's eyes, not for the app's."""
        return np.concatenate([self._project(block) for block in finite_blocks(X, self.dimension)])

    def _project(self, block: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            outputs: Floats = np.matmul(block - self.mean, self.weights)
        return without_overflow(outputs)


@dataclass(frozen=True, eq=False)
class Layers:
    """A network as plain arrays, applied with numpy alone: (x - mean) / scale, then x @ weight + bias layer by layer
    with max(0, x) between. `weights[k]` is (inputs, outputs), `biases[k]` (outputs,).
    """

    mean: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    def __post_init__(self) -> None:
        _freeze(self, "mean", "scale")
        for part in ("weights", "biases"):
            object.__setattr__(self, part, tuple(_frozen(array, part) for array in getattr(self, part)))
        if not self.weights or len(self.weights) != len(self.biases) or self.scale.shape != self.mean.shape:
            raise InputError("a network has a mean and a scale per feature, and weights with biases for every layer.")
        _check_scale(self.scale)
        width = self.mean.shape
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight.ndim != 2 or weight.shape[:1] != width or weight.shape[1:] != bias.shape or not weight.size:
                raise InputError(f"weights {weight.shape} and biases {bias.shape} do not fit {width} inputs.")
            width = bias.shape

    @property
    def dimension(self) -> int:
        return len(self.mean)

    @property
    def width(self) -> int:
        return len(self.biases[-1])

    def apply(self, X: Floats) -> Floats:
        """Return the outputs (n, width) of float32 features (n, d); rows that overflow give zeros."""
        outputs = np.empty((len(X), self.width), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(X), _ROWS):
                values = (X[start : start + _ROWS] - self.mean) / self.scale
                for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                    values = np.maximum(values @ weight + bias, 0)
                outputs[start : start + _ROWS] = values @ self.weights[-1] + self.biases[-1]
        return without_overflow(outputs)

    def arrays(self) -> dict[str, NDArray[Any]]:
        layers = {f"weight{k}": weight for k, weight in enumerate(self.weights)}
        layers |= {f"bias{k}": bias for k, bias in enumerate(self.biases)}
        return {"mean": self.mean, "scale": self.scale, **layers}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        depth = range(sum(name.startswith("weight") for name in arrays))
        weights, biases = (tuple(arrays[f"{part}{k}"] for k in depth) for part in ("weight", "bias"))
        return cls(arrays["mean"], arrays["scale"], weights, biases)

    @classmethod
    def side_by_side(cls, networks: Sequence[Self]) -> Self:
        """Return one network that gives the outputs of all, in order; they share mean and scale. Networks with fewer
        layers than the deepest (a linear model has one) are carried along as x = max(0, x) - max(0, -x).
        """
        depth = max(len(network.weights) for network in networks)
        levelled = [network._deepened(depth) for network in networks]
        weights = [np.hstack([network.weights[0] for network in levelled])]
        weights += [block_diag(*(network.weights[k] for network in levelled)) for k in range(1, depth)]
        biases = tuple(np.concatenate([network.biases[k] for network in levelled]) for k in range(depth))
        return cls(networks[0].mean, networks[0].scale, tuple(weights), biases)

    def _deepened(self, depth: int) -> Self:
        weights, biases = list(self.weights), list(self.biases)
        while len(weights) < depth:
            last, bias, one = weights.pop(), biases.pop(), np.eye(self.width, dtype=np.float32)
            weights += [np.hstack([last, -last]), np.vstack([one, -one])]
            biases += [np.concatenate([bias, -bias]), np.zeros(self.width, dtype=np.float32)]
        return type(self)(self.mean, self.scale, tuple(weights), tuple(biases))


@dataclass(frozen=True, eq=False)
class LayeredSift(_NumberSift):
    """z = layers(x), rounded by the quantiser if there is one."""

    layers: Layers
    quantiser: Quantiser | None = None
    pipeline: str = ""
    name: str = ""
    kind: ClassVar[str] = "layered"

    def __post_init__(self) -> None:
        self._check_quantiser()

    @property
    def dimension(self) -> int:
        return self.layers.dimension

    @property
    def width(self) -> int:
        return self.layers.width

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**self.layers.arrays(), **self._edges()}

    @classmethod
    def from_parts(cls, document: Mapping[str, Any], arrays: Arrays, name: str = "") -> Self:
        return cls(Layers.from_arrays(arrays), _quantiser(arrays), str(document["pipeline"]), name)

    def _project(self, block: Floats) -> Floats:
        return self.layers.apply(block)


@dataclass(frozen=True, eq=False)
class SymbolSift(Sift):
    """symbol = argmax of sigmoid(layers(x)) @ matrix + offset, read as `reading` says: bits, or one number. `matrix` is
    (attributes, symbols), from probabilities to scores.
    """

    layers: Layers
    matrix: Floats
    offset: Floats
    reading: tuple[int, ...]
    pipeline: str = ""
    name: str = ""
    kind: ClassVar[str] = "symbol"

    def __post_init__(self) -> None:
        _freeze(self, "matrix", "offset")
        object.__setattr__(self, "reading", tuple(int(levels) for levels in self.reading))
        symbols = math.prod(self.reading)
        if min(self.reading, default=0) < 2 or symbols > MOST_SYMBOLS:
            raise InputError(f"a symbol sift has 2 to {MOST_SYMBOLS} symbols; got {self.reading}.")
        if self.matrix.shape != (self.layers.width, symbols) or self.offset.shape != (symbols,):
            raise InputError(
                f"{self.layers.width} outputs and {symbols} symbols need a matrix of that shape and an offset per "
                f"symbol; got {self.matrix.shape} and {self.offset.shape}."
            )

    @property
    def dimension(self) -> int:
        return self.layers.dimension

    @property
    def width(self) -> int:
        return len(self.reading)

    @property
    def levels(self) -> tuple[int, ...]:
        return self.reading

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**self.layers.arrays(), "matrix": self.matrix, "offset": self.offset}

    def document(self) -> dict[str, Any]:
        return {**super().document(), "reading": list(self.reading)}

    @classmethod
    def from_parts(cls, document: Mapping[str, Any], arrays: Arrays, name: str = "") -> Self:
        parts = (Layers.from_arrays(arrays), arrays["matrix"], arrays["offset"], tuple(document["reading"]))
        return cls(*parts, str(document["pipeline"]), name)

    def _release(self, block: Floats) -> Levels:
        scores = expit(self.layers.apply(block)) @ self.matrix + self.offset
        return np.stack(np.unravel_index(scores.argmax(axis=1), self.reading), axis=1).astype(np.int64, copy=False)


def natural_units(sift: Sift) -> NDArray[np.float64]:
    """Return (width, k): from what a sift lets out to numbers in units of its features.

    Whitening drowns what kernels see in directions of much variance, and an app can undo it: it knows the matrix. With
    matrix = Q R, the released z gives z R^+, the coordinates of the features in the orthonormal basis Q.
    """
    if not isinstance(sift, LinearSift):
        return np.eye(sift.width)
    return np.asarray(np.linalg.pinv(np.linalg.qr(sift.matrix.astype(np.float64), mode="r"), rcond=1e-6))


def without_overflow(outputs: Floats) -> Floats:
    """Return outputs (n, width) with zeros for every row in which a number overflowed, on verification rows too. An
    error would be one more symbol that nobody counted: an app could make a sift overflow exactly where somebody smiles.
    """
    outputs[~np.isfinite(outputs).all(axis=1)] = 0
    return outputs


def without_negligible(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix with weights below a millionth of their column's largest set to zero."""
    size = np.abs(matrix)
    return np.where(size * HUGE < size.max(axis=0), 0.0, matrix)


def _freeze(owner: Any, *parts: str) -> None:
    for part in parts:
        object.__setattr__(owner, part, _frozen(getattr(owner, part), part))


def _frozen(numbers: ArrayLike, part: str) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(numbers, dtype=np.float32)
    if not (np.abs(array) <= LARGEST).all():
        raise InputError(f"the {part} of a sift must be finite and within +-{LARGEST:g}.")
    array.setflags(write=False)
    return array


def _check_scale(scale: Floats) -> None:
    if not (scale >= 1 / LARGEST).all():
        raise InputError(f"every scale must lie in [{1 / LARGEST:g}, {LARGEST:g}]; got {scale.min():g}.")


def _check_weights(matrix: Floats) -> None:
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
