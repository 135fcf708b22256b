"""What a linear classifier is: standardised features, signs that say what is known, weights with a bias, scores.

Weights are (classes, D + 1) and the last column is the bias. One row decides one yes/no question: "is it of class c?"
(one-vs-rest), "has it attribute a?", or a single row that detects. The classifiers of the paper (Yonetani et al. 2017)
and of its baselines all have this shape, so one set of functions scores them all.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.validation import check_features

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Signs = NDArray[np.int8]
"""(n, classes): +1 the sample is of the class, -1 it is not, 0 nobody knows."""


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Shifts and scales features to zero mean and unit variance on the *public* data it was fitted on.

    Fitted on public data it says nothing about any owner, and all owners share it.
    """

    mean: Floats
    scale: Floats

    @classmethod
    def fit(cls, X: ArrayLike) -> Self:
        """Learn means and deviations; a feature that never varies keeps its scale."""
        features = check_features(X, precision="wide")
        mean: Array = features.mean(axis=0, dtype=np.float64)
        deviation: Array = features.std(axis=0, dtype=np.float64)
        constant = deviation <= 1e-6 * deviation.max()
        return cls(mean.astype(features.dtype), np.where(constant, 1.0, deviation).astype(features.dtype))

    def apply(self, X: ArrayLike) -> Floats:
        """Return standardised features."""
        features = check_features(X, precision="wide")
        if features.shape[1] != len(self.mean):
            raise InputError(f"features must have {len(self.mean)} columns; got {features.shape[1]}.")
        return (features - self.mean) / self.scale


def class_signs(labels: ArrayLike, classes: int) -> Signs:
    """Return one-vs-rest signs of labels 0..classes-1; a label of -1 is unknown.

    >>> class_signs([1, -1], 3)
    array([[-1,  1, -1],
           [ 0,  0,  0]], dtype=int8)
    """
    known = np.asarray(labels)
    if known.ndim != 1 or known.dtype.kind not in "iu":
        raise InputError(f"labels must be one whole number per sample; got {known.dtype} of shape {known.shape}.")
    if classes < 1 or (known.size and not -1 <= known.min() <= known.max() < classes):
        raise InputError(f"labels must lie in 0..{classes - 1}, or be -1 where unknown.")
    signs = np.where(known[:, None] == np.arange(classes), 1, -1).astype(np.int8)
    signs[known == -1] = 0
    return signs


def attribute_signs(attributes: ArrayLike) -> Signs:
    """Return signs of independent yes/no attributes (n, a), given as 1, 0 and -1 for unknown; one column detects.

    >>> attribute_signs([[1, 0, -1]])
    array([[ 1, -1,  0]], dtype=int8)
    """
    known = np.asarray(attributes)
    known = known[:, None] if known.ndim == 1 else known
    if known.ndim != 2 or not np.isin(known, (-1, 0, 1)).all():
        raise InputError("attributes must be 1 (yes), 0 (no) or -1 (unknown), one column per attribute.")
    return np.where(known == -1, 0, np.where(known == 1, 1, -1)).astype(np.int8)


def decision_function(weights: ArrayLike, X: ArrayLike) -> Floats:
    """Return the scores (n, classes) of features under weights whose last column is the bias."""
    matrix, features = np.asarray(weights), check_features(X, precision="wide")
    check_weights(matrix, features.shape[1])
    scores: Floats = features @ matrix[:, :-1].T + matrix[:, -1]
    return scores


def predict(weights: ArrayLike, X: ArrayLike) -> NDArray[np.int64]:
    """Return the class of highest score for every sample; under a single row, 1 where the score is positive."""
    scores = decision_function(weights, X)
    return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1).astype(np.int64)


def predict_attributes(weights: ArrayLike, X: ArrayLike) -> NDArray[np.int8]:
    return (decision_function(weights, X) > 0).astype(np.int8)


def check_signs(signs: ArrayLike, samples: int) -> Signs:
    """Return signs that fit so many samples."""
    known = np.asarray(signs)
    if known.ndim != 2 or known.shape[1] < 1 or not np.isin(known, (-1, 0, 1)).all():
        raise InputError("signs must be -1, 0 or 1, one column per class. Make them by class_signs or attribute_signs.")
    if len(known) != samples:
        raise InputError(f"there must be one row of signs per sample; got {len(known)} rows for {samples} samples.")
    return known.astype(np.int8, copy=False)


def check_weights(weights: ArrayLike, dimensions: int, classes: int | None = None) -> Array:
    """Return finite weights for features of so many dimensions."""
    matrix = np.asarray(weights, dtype=np.float64)
    wanted = (classes if classes is not None else (len(matrix) if matrix.ndim else 0), dimensions + 1)
    if matrix.shape != wanted:
        rows = "classes" if classes is None else classes
        raise InputError(f"weights for {dimensions} features must be ({rows}, {dimensions + 1}); got {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise InputError("weights must be finite; got NaN or infinity.")
    return matrix
