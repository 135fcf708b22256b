"""How every hash learner looks: fit features (and labels), transform features to packed codes.

Learners follow scikit-learn's conventions: parameters are stored as given, `fit` learns and returns self, what was
learned ends in an underscore. `function_` is the frozen `HashFunction`; everything else of the learner can be thrown
away. A learner is not private: whatever it learned, it learned from the features it saw. `blindsight.search.private`
says what can be done about that.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from blindsight.errors import InputError
from blindsight.search.codes import Codes, check_bits
from blindsight.search.function import Floats, HashFunction
from blindsight.validation import check_features

Classes = NDArray[np.int64]
"""Class numbers 0 ... of the rows."""


class HashLearner(TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """The base of all learners; a subclass says what it needs and implements `_learn`."""

    supervised: ClassVar[bool] = False
    """Whether `fit` needs labels."""

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
        labels = np.asarray(y)
        if labels.shape != (rows,):
            raise InputError(f"{name} needs one label per row, shape ({rows},); got {labels.shape}.")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise InputError("labels hold NaN or infinite values.")
        names, classes = np.unique(labels, return_inverse=True)
        if len(names) < 2:
            raise InputError(f"{name} learns what tells classes apart; all {rows} labels are {names.tolist()[0]!r}.")
        return classes.astype(np.int64)
