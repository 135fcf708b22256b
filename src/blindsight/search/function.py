"""Hash functions, frozen maps from features to binary codes, and the base of the learners that make them.

A function is plain arrays: `save_function` writes them with a checksum and `load_function` gives the same function
back, bit for bit, or refuses the file; `digest` names it. `LinearHash` and `LayeredHash` (a perceptron) need numpy
alone. `NetworkHash` is any torch module: its file holds weights, never code, to go into the reader's own module.

Learners (`HashLearner`) follow scikit-learn; `function_` is all that is needed later. A learner is not private:
whatever it learned, it learned from the features it saw; `private` says what can be done about that.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from math import prod
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.extras import Module, Tensor, check_inputs, load_torch, to_batch
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.search.codes import Codes, blocks, check_bits, pack
from blindsight.validation import check_features

Floats = NDArray[np.float32]
_ROWS = 16384  # rows whose scores are in memory at once


def digest_of(about: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of a text and of arrays by name, with their types and shapes."""
    digest = hashlib.sha256(about.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class HashFunction(ABC):
    """A frozen function from features (n, d) to packed codes (n, ceil(bits / 8))."""

    name: ClassVar[str]  # of this kind of function, in files

    @property
    @abstractmethod
    def bits(self) -> int:
        """Length of a code."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many features it takes."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything that decides the codes, as plain arrays: the fields of the function."""
        return {name: getattr(self, name) for name in _names(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        return cls(**{name: arrays[name] for name in _names(cls)})

    def _check_numbers(self) -> None:
        for array in self.arrays().values():
            if array.ndim and (array.dtype != np.float32 or not array.size or not np.isfinite(array).all()):
                raise InputError(f"a {self.name} hash function is made of finite float32 numbers.")

    @abstractmethod
    def _scores(self, X: Floats) -> Floats:
        """Return the scores of checked features; bit j of a code is 1 where score j is >= 0."""

    def scores(self, X: ArrayLike) -> Floats:
        """Return the real values whose signs are the code, (n, bits): what an unquantised query is ranked by."""
        return self._scores(check_features(X, self.dimension, least=0))

    def __call__(self, X: ArrayLike) -> Codes:
        """Return the packed codes of features; memory beyond them stays bounded whatever n is."""
        rows = check_features(X, self.dimension, least=0)
        if not len(rows):
            raise InputError("there are no features to hash.")
        return np.concatenate([pack(self._scores(rows[span]) >= 0) for span in blocks(len(rows), _ROWS)])

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides the codes."""
        return digest_of(self.name, self.arrays())


def _names(function: Any) -> list[str]:
    return [field.name for field in fields(function)]


@dataclass(frozen=True, eq=False)
class LinearHash(HashFunction):
    """sign((x - mean) matrix): what LSH, ITQ and every other linear learner ends as."""

    mean: Floats
    matrix: Floats
    name: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.matrix.ndim != 2 or self.mean.shape != self.matrix.shape[:1]:
            raise InputError(f"mean {self.mean.shape} and matrix {self.matrix.shape} do not fit each other.")

    @property
    def bits(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.matrix.shape[0])

    def _scores(self, X: Floats) -> Floats:
        return np.asarray((X - self.mean) @ self.matrix)


Activation = Literal["relu", "tanh"]  # between the layers: max(0, x) or tanh(x)
_ROWS_LAYERS = 4096  # rows whose hidden values are in memory at once


@dataclass(frozen=True, eq=False)
class LayeredHash(HashFunction):
    """sign of a multilayer perceptron: (x - mean) / scale, then x @ weight + bias layer by layer.

    `weights[k]` is (inputs, outputs) of layer k; the last layer gives one score per bit and has no activation.
    """

    mean: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activation: Activation = "relu"
    name: ClassVar[str] = "layered"

    def __post_init__(self) -> None:
        if self.activation not in get_args(Activation):
            raise UnknownNameError("activation", self.activation, get_args(Activation))
        self._check_numbers()
        if not self.weights or len(self.weights) != len(self.biases) or not (self.scale > 0).all():
            raise InputError("a layered hash function needs layers of weights and biases and a positive scale.")
        width = self.mean.shape
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight.ndim != 2 or weight.shape[:1] != width or weight.shape[1:] != bias.shape:
                raise InputError(f"weights {weight.shape} and bias {bias.shape} do not fit {width} values.")
            width = bias.shape
        if self.scale.shape != self.mean.shape:
            raise InputError(f"mean {self.mean.shape} and scale {self.scale.shape} do not fit each other.")

    @property
    def bits(self) -> int:
        return len(self.biases[-1])

    @property
    def dimension(self) -> int:
        return len(self.mean)

    def arrays(self) -> dict[str, NDArray[Any]]:
        layers = {f"weight{k}": weight for k, weight in enumerate(self.weights)}
        layers |= {f"bias{k}": bias for k, bias in enumerate(self.biases)}
        return {"mean": self.mean, "scale": self.scale, "activation": np.array(self.activation), **layers}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        depth = sum(name.startswith("weight") for name in arrays)
        weights = tuple(arrays[f"weight{k}"] for k in range(depth))
        biases = tuple(arrays[f"bias{k}"] for k in range(depth))
        activation: Any = str(arrays["activation"])
        return cls(arrays["mean"], arrays["scale"], weights, biases, activation)

    def _scores(self, X: Floats) -> Floats:
        scores = np.empty((len(X), self.bits), dtype=np.float32)
        for span in blocks(len(X), _ROWS_LAYERS):
            values = (X[span] - self.mean) / self.scale
            for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                values = values @ weight + bias
                np.tanh(values, out=values) if self.activation == "tanh" else np.maximum(values, 0, out=values)
            scores[span] = values @ self.weights[-1] + self.biases[-1]
        return scores


_ROWS_NETWORK = 256  # inputs that go through the module at once


def with_head(module: Module, example: Tensor, bits: int) -> Module:
    """Return a copy of the module whose output is (batch, bits): by a linear head, unless it has that width already."""
    torch = load_torch()
    module = deepcopy(module).to(example.device).eval()
    try:
        with torch.no_grad():
            output = module(example)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the network cannot take a batch of shape {tuple(example.shape)}: {reason}") from error
    if output.ndim != 2 or len(output) != len(example):
        raise InputError(
            f"the network must turn a batch into rows of features, ({len(example)}, d); got {tuple(output.shape)}. "
            "End it with a pooling or Flatten."
        )
    width = output.shape[1]
    head = torch.nn.Identity() if width == bits else torch.nn.Linear(width, bits)
    return torch.nn.Sequential(module, head).to(example.device)


@dataclass(frozen=True, eq=False)
class NetworkHash(HashFunction):
    """sign(module(x)) for inputs of one `shape`, images or anything else; `width` is that of its output."""

    module: Module
    shape: tuple[int, ...]
    width: int
    device: str = "cpu"
    name: ClassVar[str] = "network"

    @property
    def bits(self) -> int:
        return self.width

    @property
    def dimension(self) -> int:
        return prod(self.shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        sizes = {"shape": np.array(self.shape, dtype=np.int64), "bits": np.array(self.width, dtype=np.int64)}
        weights = {f"module.{key}": value.cpu().numpy() for key, value in self.module.state_dict().items()}
        return {**sizes, **weights}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Refuse: the arrays are the weights of a module that only the caller can build."""
        raise InputError("these are the weights of a network: give load_network_hash the module they belong to.")

    @classmethod
    def with_module(cls, arrays: Mapping[str, NDArray[Any]], module: Module, device: str = "cpu") -> Self:
        torch = load_torch()
        shape, bits = tuple(int(side) for side in arrays["shape"]), int(arrays["bits"])
        with torch.random.fork_rng(devices=[]):  # the head's first weights are drawn, then replaced
            whole = with_head(module, to_batch(np.zeros((2, *shape), dtype=np.float32), "cpu"), bits)
        weights = {key.removeprefix("module."): value for key, value in arrays.items() if key.startswith("module.")}
        try:
            whole.load_state_dict({key: torch.tensor(value) for key, value in weights.items()}, strict=True)
        except RuntimeError as error:
            raise InputError(f"the weights do not fit this module: {' '.join(str(error).split())}") from None
        return cls(whole.eval().to(device), shape, bits, device)

    def scores(self, X: ArrayLike) -> Floats:
        rows = check_inputs(X, self.shape)
        with load_torch().inference_mode():
            parts = [
                self.module(to_batch(rows[span], self.device)).cpu().numpy()
                for span in blocks(len(rows), _ROWS_NETWORK)
            ]
        return np.concatenate(parts).astype(np.float32, copy=False)

    def __call__(self, X: ArrayLike) -> Codes:
        return pack(self.scores(X) >= 0)

    def _scores(self, X: Floats) -> Floats:
        return self.scores(X)


_KIND = "blindsight/hash-function.1"


def save_function(function: HashFunction, path: AnyPath, *, private: bool = False) -> None:
    """Write the function to one file, whole or not at all; a `private` one can be read by its owner alone."""
    write_arrays(path, _KIND, {"function": function.name}, function.arrays(), private=private)


def load_function(path: AnyPath) -> HashFunction:
    """Read a function that `save_function` wrote; a damaged file raises `CorruptFileError`."""
    document, arrays = read_arrays(path, _KIND)
    if document == {"function": NetworkHash.name}:
        raise InputError(f"{path} holds the weights of a network. Give load_network_hash the module they belong to.")
    try:
        return function_from(str(document["function"]), arrays)
    except (KeyError, TypeError, IndexError, ValueError, InputError) as error:
        raise CorruptFileError(f"{path} holds no usable hash function: {error}") from None


def load_network_hash(path: AnyPath, module: Module, device: str = "cpu") -> NetworkHash:
    """Read the function of a trained network: its weights go into a copy of `module`, a torch module built like it."""
    document, arrays = read_arrays(path, _KIND)
    if document != {"function": NetworkHash.name}:
        raise InputError(f"{path} holds a function that needs no module. Read it with load_function.")
    try:
        return NetworkHash.with_module(arrays, module, device)
    except (KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} holds no usable hash function: {error}") from None


def function_from(name: str, arrays: Mapping[str, NDArray[Any]]) -> HashFunction:
    from blindsight.search.hashers import KernelHash, SpectralHash  # which are made of what is defined here

    known: tuple[type[HashFunction], ...] = (KernelHash, LayeredHash, LinearHash, SpectralHash)
    kinds = {kind.name: kind for kind in known}
    if name not in kinds:
        raise UnknownNameError("kind of hash function", name, kinds)
    return kinds[name].from_arrays(arrays)


Classes = NDArray[np.int64]  # class numbers 0 ... of the rows


class HashLearner(TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """The base of all learners; a subclass says what it needs and implements `_learn`."""

    supervised: ClassVar[bool] = False  # whether `fit` needs labels
    bits: int
    function_: HashFunction

    @abstractmethod
    def _learn(self, X: Floats, y: Classes | None) -> HashFunction:
        """Learn from checked features (and class numbers, for a supervised learner)."""

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the hash function from features (n, d) and, for a supervised learner, one label per row."""
        check_bits(self.bits)
        rows = check_features(X, least=0)
        if len(rows) < 2:
            raise InputError(f"a hash function is learned from at least 2 rows; got {len(rows)}.")
        classes = self._check_labels(y, len(rows)) if self.supervised else None
        self.function_ = self._learn(rows, classes)
        self.n_features_in_ = rows.shape[1]
        return self

    def transform(self, X: ArrayLike) -> Codes:
        """Return packed codes, uint8 (n, ceil(bits / 8))."""
        check_is_fitted(self, "function_")
        return self.function_(X)

    def _check_labels(self, y: ArrayLike | None, rows: int) -> Classes:
        name = type(self).__name__
        if y is None:
            raise InputError(f"{name} learns from labels: give one per row, or take ITQ, which needs none.")
        names, classes = class_numbers(y, rows, "labels")
        if len(names) < 2:
            raise InputError(f"{name} learns what tells classes apart; all {rows} labels are {names.tolist()[0]!r}.")
        return classes


def class_numbers(y: ArrayLike, rows: int, what: str) -> tuple[NDArray[Any], Classes]:
    """Return the names of the classes, and every row's class as a number 0, 1, ..."""
    labels = np.asarray(y)
    if labels.shape != (rows,):
        raise InputError(f"{what} must be one per row, shape ({rows},); got {labels.shape}.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError(f"{what} hold NaN or infinite values.")
    names, classes = np.unique(labels, return_inverse=True)
    return names, classes.astype(np.int64)
