"""What learning together leaves behind: a linear classifier that can only be applied, saved and read again.

A saved model is an array file (`blindsight.files`): weights, standardiser and class names, with a checksum, no pickle.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import CorruptFileError, InputError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.learn import linearmodel
from blindsight.learn.labels import Attributes, Classes, Labels
from blindsight.learn.linearmodel import Array, Floats, Standardiser, check_weights

_KIND = "blindsight/linear-model.1"


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A standardiser, (rows, D + 1) weights whose last column is the bias, and what the rows answer."""

    weights: Array
    standardiser: Standardiser
    labels: Labels

    def __post_init__(self) -> None:
        check_weights(self.weights, len(self.standardiser.mean), self.labels.rows)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the scores of raw features: (n,) for two classes, else (n, rows)."""
        return self.labels.scores(self._raw_scores(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of every sample, or its attributes as 1 and 0."""
        return self.labels.answers(self._raw_scores(X))

    def quality(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the accuracy averaged over classes or attributes."""
        return self.labels.quality(self._raw_scores(X), y)

    def _raw_scores(self, X: ArrayLike) -> Floats:
        return linearmodel.decision_function(self.weights, self.standardiser.apply(X))

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides what the model answers."""
        digest = hashlib.sha256()
        for name, array in sorted(self._arrays().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
        return digest.hexdigest()

    def save(self, path: AnyPath) -> None:
        """Write the model to one file, whole or not at all."""
        write_arrays(path, _KIND, {"attributes": isinstance(self.labels, Attributes)}, self._arrays())

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read a model that `save` wrote; a damaged file raises `CorruptFileError`."""
        document, arrays = read_arrays(path, _KIND)
        try:
            weights = arrays["weights"]
            labels = Attributes(len(weights)) if document["attributes"] else Classes(arrays["classes"])
            return cls(weights, Standardiser(arrays["mean"], arrays["scale"]), labels)
        except (KeyError, TypeError, InputError) as error:
            raise CorruptFileError(f"{path} holds no usable model: {error}.") from None

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {"weights": self.weights, "mean": self.standardiser.mean, "scale": self.standardiser.scale}
        if isinstance(self.labels, Classes):
            arrays["classes"] = _plain(self.labels.names)
        return arrays


def _plain(names: NDArray[Any]) -> NDArray[Any]:
    """Return class names without Python objects."""
    if names.dtype.kind != "O":
        return names
    if not all(isinstance(name, str) for name in names):
        raise InputError("a model whose classes are neither numbers nor text cannot be saved.")
    return np.asarray(names, dtype=np.str_)
