"""Hash functions, frozen maps from features to binary codes, and the base of the learners that make them.

A function is plain arrays: `save_function` writes them with a checksum and `load_function` gives the same function
back, bit for bit, or refuses the file; `digest` names it. Subclasses of `HashFunction` with a `name` are read once
their module is imported.

Learners (`HashLearner`) follow scikit-learn; `function_` is all that is needed later. A learner is not private:
whatever it learned, it learned from the features it saw; `private` says what can be done about that.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
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
    kinds: ClassVar[dict[str, type["HashFunction"]]] = {}

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            HashFunction.kinds[cls.name] = cls

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


FILE_KIND = "blindsight/hash-function.1"


def save_function(function: HashFunction, path: AnyPath, *, private: bool = False) -> None:
    """Write the function to one file, whole or not at all; a `private` one can be read by its owner alone."""
    write_arrays(path, FILE_KIND, {"function": function.name}, function.arrays(), private=private)


def load_function(path: AnyPath) -> HashFunction:
    """Read a function that `save_function` wrote; a damaged file raises `CorruptFileError`."""
    document, arrays = read_arrays(path, FILE_KIND)
    try:
        return function_from(str(document["function"]), arrays)
    except (KeyError, TypeError, IndexError, ValueError, InputError) as error:
        raise CorruptFileError(f"{path} holds no usable hash function: {error}") from None


def function_from(name: str, arrays: Mapping[str, NDArray[Any]]) -> HashFunction:
    """Return the function of this kind and these arrays; kinds are known once their modules are imported."""
    if name not in HashFunction.kinds:
        raise UnknownNameError("kind of hash function", name, HashFunction.kinds)
    return HashFunction.kinds[name].from_arrays(arrays)


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
