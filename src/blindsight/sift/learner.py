"""How every linear sift is fitted: features with public and private labels go in, a frozen `LinearSift` comes out.

Learners follow scikit-learn's conventions: the constructor stores, `fit` validates, what was learned ends in an
underscore. `sift_` is all that an app needs; the rest of the learner can be thrown away. Three ways to the same sift:

- `fit(X, public, private)`: features in memory or memory-mapped, dense or sparse;
- `fit_stream(batches)`: features that never fit in memory; one pass over the batches per component, O(d) memory;
- `partial_fit(X, public, private)`: batches that are seen only once. More than one component then needs the d x d
  covariance matrix of the features, so this is for d up to 4,096.

A learner is not a promise: that a sift hides what it should is for verification to find out.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from blindsight.errors import InputError
from blindsight.sift.crossproducts import CrossProducts, covariance_times
from blindsight.sift.features import Features
from blindsight.sift.sift import LinearSift, without_negligible
from blindsight.validation import check_shape

Array = NDArray[np.float64]
Batch = tuple[Features, ArrayLike, ArrayLike]
"""Features, public labels and private labels of the same rows."""

MOST_FEATURES = 4096
"""Above this, no d x d matrix is kept."""


class FewerComponentsWarning(UserWarning):
    """A sift has fewer numbers than asked for, because the features hold no more."""


@dataclass(frozen=True, eq=False)
class Covariances:
    """What a linear learner sees of the data, all of it in units of scaled features."""

    public: Array
    """(d, public attributes), with attributes of unit variance."""
    private: Array
    loading: Callable[[Array], Array]
    """The covariance matrix of the features times a direction."""
    matrix: Callable[[], Array]
    """The covariance matrix itself, where it was kept."""


class LinearSiftLearner(BaseEstimator):  # type: ignore[misc]
    """The base of linear learners; a subclass finds directions in `Covariances`."""

    n_components: int
    scale: bool
    pipeline: str

    sift_: LinearSift
    weights_: Array
    """(d, k), unit columns, in units of scaled features."""
    public_covariance_: Array
    """(k, public): of each released number with each public attribute of unit variance, on the training data."""
    private_covariance_: Array

    @abstractmethod
    def _directions(self, covariances: Covariances) -> Array:
        """Return up to n_components unit directions (d, k)."""

    def _check_parameters(self) -> None:
        if self.n_components < 1:
            raise InputError(f"n_components must be at least 1; got {self.n_components}.")

    def _needs_matrix(self, passes: bool) -> bool:
        """Tell whether the d x d matrix must be kept, when there will be further `passes` over the data or not."""
        return not passes and self.n_components > 1

    def fit(self, X: Features, public: ArrayLike, private: ArrayLike) -> Self:
        """Learn from features (n, d) and labels 1, 0 and -1 (unknown), each (n,) or (n, attributes).

        Rows on which nobody knows an attribute are left out of that attribute's covariance, and of nothing else.
        """
        return self.fit_stream(lambda: [(X, public, private)])

    def fit_stream(self, batches: Callable[[], Iterable[Batch]]) -> Self:
        """Learn from batches of which one is in memory at a time; `batches()` is called again for every component."""
        self._check_parameters()
        products = None
        for batch in batches():
            products = products or self._accumulator(batch, passes=True)
            products.update(*batch)
        if products is None:
            raise InputError("there are no batches to learn from.")
        mean, count = products.mean, products.samples

        def loading(direction: Array) -> Array:
            total, samples = covariance_times(direction, mean, (X for X, _, _ in batches()))
            if samples != count:
                raise InputError(f"every pass must see the same rows; the first had {count}, a later one {samples}.")
            return total / samples

        return self._finish(products, loading)

    def partial_fit(self, X: Features, public: ArrayLike, private: ArrayLike) -> Self:
        """Learn from one more batch, seen once; `sift_` appears as soon as every attribute was seen both ways."""
        self._check_parameters()
        if not hasattr(self, "_products"):
            self._products = self._accumulator((X, public, private), passes=False)
        products: CrossProducts = self._products
        products.update(X, public, private)
        enough = products.samples > self.n_components
        if enough and not products.one_sided().any():
            matrix = products.covariance if self.n_components > 1 else np.zeros((0, 0))
            self._finish(products, lambda direction: matrix @ direction)
        return self

    def transform(self, X: Features) -> NDArray[Any]:
        """Return what the sift lets out, (n, k)."""
        check_is_fitted(self, "sift_")
        return self.sift_.apply(X)

    def _accumulator(self, batch: Batch, *, passes: bool) -> CrossProducts:
        matrix, dimension = self._needs_matrix(passes), check_shape(batch[0]).shape[1]
        if matrix and dimension > MOST_FEATURES:
            raise InputError(
                f"{type(self).__name__} would need a {dimension} x {dimension} matrix here; the most is "
                f"{MOST_FEATURES}. Use PPLS with fit or fit_stream, or fewer features."
            )
        return CrossProducts.like(*batch, gram=matrix)

    def _finish(self, products: CrossProducts, loading: Callable[[Array], Array]) -> Self:
        """Scale the cross-products, find directions, and freeze them."""
        if products.samples <= self.n_components:
            raise InputError(f"{self.n_components} components need more samples than that; got {products.samples}.")
        _refuse_one_sided(products)
        scale, inverse = _scales(products.deviation, each=self.scale)
        covariances = products.covariances * inverse[:, None]
        view = Covariances(
            covariances[:, : products.public],
            covariances[:, products.public :],
            lambda direction: inverse * loading(inverse * direction),
            lambda: inverse[:, None] * products.covariance * inverse,
        )
        weights = self._directions(view)
        self._report_missing_components(weights.shape[1])
        parts = (products.mean, scale, without_negligible(weights))
        mean, divisor, matrix = (part.astype(np.float32) for part in parts)
        self.sift_ = LinearSift(mean, divisor, matrix, pipeline=self.pipeline)
        self.weights_, self.n_features_in_ = weights, len(scale)
        self.public_covariance_, self.private_covariance_ = weights.T @ view.public, weights.T @ view.private
        return self

    def _report_missing_components(self, found: int) -> None:
        if not found:
            raise InputError(
                "no direction of the features tells of the public attributes and not of the private ones: the features "
                "hold nothing of the public attributes, or nothing that is not private as well."
            )
        if found < self.n_components:
            warnings.warn(
                f"only {found} of {self.n_components} components exist: the public covariance is used up. Whitened "
                "features have no more than there are attributes; scale them before PCA, or by one common factor.",
                FewerComponentsWarning,
                stacklevel=5,
            )


def _refuse_one_sided(products: CrossProducts) -> None:
    for index in np.flatnonzero(products.one_sided()):
        hidden = index - products.public
        role, number = ("private", hidden) if hidden >= 0 else ("public", index)
        raise InputError(
            f"{role} attribute {number} is the same, or unknown, for every sample: there is nothing to learn about it."
        )


def _scales(deviation: Array, *, each: bool) -> tuple[Array, Array]:
    """Return the scale of every feature and its inverse, 0 for features that never vary."""
    varies = deviation > 0
    if not varies.any():
        raise InputError("no feature varies. Are these really features of different pictures?")
    common = float(np.sqrt(np.mean(deviation[varies] ** 2)))
    scale = np.where(varies, deviation if each else common, common)
    return scale, np.where(varies, 1 / scale, 0.0)
