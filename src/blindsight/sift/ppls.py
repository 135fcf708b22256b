"""PPLS, privacy partial least squares: a few numbers that tell of public attributes and, linearly, not of private ones.

Guarantee: each released number has exactly the covariance with each private attribute that `private_covariance_`
states for the training data, and with privacy = infinity that covariance is zero: no *linear* guess of a private
attribute from the released numbers beats a constant on the training data. Non-linear attackers may well read more;
only verification tells.

Enev et al., "SensorSift", ACSAC 2012, section 4 (Algorithm 1, Eq. 3) and section 7 (complex policies). Features are
scaled to unit variance, attributes always.

| paper | here |
| --- | --- |
| K, lambda (Eq. 3) | `n_components`, `privacy`, 0 to infinity |
| cov(Xw, Y+), cov(Xw, Y-) | `public_covariance_`, `private_covariance_` |
| S_j = X^T Y+, deflated; X^T Y-, never deflated | `public`, `private` of `privacy_components`, (d, attributes) |
| w_j | columns of the result, w'w = 1 |
| p_j = X^T X w_j / (w_j' X^T X w_j) | `loading(w)`; its length does not matter |

Step 3 as printed, S^T S - X^T Y- (Y-)^T X, adds matrices of different sizes and has lost lambda; it is
M = S S^T - lambda C C^T with C = X^T Y-. M has rank d+ + d- at most, so with [S C] = Q R its leading eigenvector is Q
times that of the small R diag(I, -lambda I) R^T: exact, at the cost of a thin QR. As lambda grows without bound the
eigenvector turns orthogonal to C; at infinity it is the leading left singular vector of S - P_C S, and the release has
no covariance with any private attribute at all (linear guardedness).

For complex policies the paper squares the *average* covariance, avg(cov(Xw, Y1), cov(Xw, Y2), ...)^2. Covariances of
opposite sign cancel there: a number that tells much of two private attributes counts as harmless, and the answer
changes when a label is recoded from yes to no. `combine="mean-of-squares"` takes avg(cov^2), which cannot cancel;
`combine="paper"` is the formula as printed. With one attribute a side they are the same.

Everything happens in cross-products that add up over batches: one pass gives mean and deviation of every feature and
its covariance with every attribute, about a first guess of the mean, so that features far from zero lose no digits.
X^T X is formed only for one-pass fits of few features; its product with a direction takes one further pass.
`LinearSiftLearner`, the base of linear learners, is fed by

- `fit(X, public, private)`: features in memory or memory-mapped, dense or sparse;
- `fit_stream(batches)`: one pass over the batches per component, O(d) memory;
- `partial_fit(X, public, private)`: batches that are seen only once; more than one component then needs the d x d
  covariance matrix of the features, so this is for d up to 4,096.
"""

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from blindsight.data.dataset import UNKNOWN
from blindsight.errors import InputError, UnknownNameError
from blindsight.sift.labels import Labels, check_labels
from blindsight.sift.sift import Features, LinearSift, Sift, blocks, without_negligible
from blindsight.validation import check_shape

Array = NDArray[np.float64]

_CELLS = 1 << 18  # a block is centred and used while it is still in the processor's cache
_GRAM_CELLS = 1 << 22  # larger ones for d x d sums, which do not fit there anyway
_CONSTANT = 1e-6  # a deviation this small beside the mean is rounding


class CrossProducts:
    """Running sums of features, their squares, and their products with 0/1 attributes."""

    def __init__(self, dimension: int, public: int, private: int, *, gram: bool = False) -> None:
        self.samples, self.public, self.private = 0, public, private
        attributes = public + private
        self.shift: Array | None = None
        self.positives, self.missing = np.zeros(attributes), np.zeros(attributes)  # label sums
        self._sums = np.zeros((1 + 2 * attributes, dimension))  # of all rows, of positives, of those of unknown label
        self._squares = np.zeros(dimension)
        self._gram = np.zeros((dimension, dimension)) if gram else None

    @classmethod
    def like(cls, X: Features, public: ArrayLike, private: ArrayLike, *, gram: bool = False) -> Self:
        sides = check_labels(public, name="public labels"), check_labels(private, name="private labels")
        return cls(check_shape(X).shape[1], *(side.shape[1] for side in sides), gram=gram)

    def update(self, X: Features, public: ArrayLike, private: ArrayLike) -> None:
        """Add a batch of features and labels, 1, 0 or -1 for unknown; a batch that is refused adds nothing."""
        rows = check_shape(X, self._squares.size)
        labels = self._labels(public, private, rows.shape[0])
        shift = _column_means(rows) if self.shift is None else self.shift
        masks = np.column_stack([np.ones(len(labels)), labels == 1, labels == UNKNOWN])
        used = masks.any(axis=0)
        sums, squares = np.zeros_like(self._sums), np.zeros_like(self._squares)
        gram = None if self._gram is None else np.zeros_like(self._gram)
        cells = _CELLS if gram is None else _GRAM_CELLS
        with np.errstate(over="ignore", invalid="ignore"):
            for span, block in blocks(rows, cells):
                near = shift.astype(block.dtype)
                block_sums, block_squares = _block_sums(block, near, masks[span][:, used].astype(block.dtype))
                sums[used] += block_sums
                squares += block_squares
                if gram is not None:
                    centred = (block.toarray() if sparse.issparse(block) else block) - near
                    gram += centred.T @ centred
        if not np.isfinite(squares).all():
            raise InputError("features hold NaN, infinite or very large values. Remove or repair those rows.")
        self.shift, self.samples = shift, self.samples + len(labels)
        self._sums += sums
        self._squares += squares
        self.positives += masks[:, 1 : 1 + labels.shape[1]].sum(axis=0)
        self.missing += masks[:, 1 + labels.shape[1] :].sum(axis=0)
        if self._gram is not None and gram is not None:
            self._gram += gram

    def _labels(self, public: ArrayLike, private: ArrayLike, rows: int) -> Labels:
        sides = check_labels(public, rows, "public labels"), check_labels(private, rows, "private labels")
        got, wanted = tuple(side.shape[1] for side in sides), (self.public, self.private)
        if got != wanted:
            raise InputError(f"every batch must have the same attributes, {wanted} public and private; got {got}.")
        return np.hstack(sides)

    def one_sided(self) -> NDArray[np.bool_]:
        return np.asarray((self.positives == 0) | (self.positives + self.missing == self.samples))

    def refuse_one_sided(self) -> None:
        for index in np.flatnonzero(self.one_sided()):
            hidden = index - self.public
            role, number = ("private", hidden) if hidden >= 0 else ("public", index)
            raise InputError(f"{role} attribute {number} is the same, or unknown, for every sample: nothing shows it.")

    @property
    def mean(self) -> Array:
        assert self.shift is not None
        return np.asarray(self.shift + self._sums[0] / self.samples)

    @property
    def deviation(self) -> Array:
        """Standard deviation of every feature; 0 for one that varies no more than rounding does."""
        variance = self._squares / self.samples - (self._sums[0] / self.samples) ** 2
        deviation = np.sqrt(np.maximum(variance, 0.0))
        return np.where(deviation <= _CONSTANT * np.abs(self.mean), 0.0, deviation)

    @property
    def covariances(self) -> Array:
        """Covariance of every feature with every attribute scaled to unit variance, (d, attributes)."""
        known = self.samples - self.missing
        share = self.positives / known
        count = len(self.positives)
        positive, unknown = self._sums[1 : 1 + count], self._sums[1 + count :]
        centred = positive - share[:, None] * (self._sums[0] - unknown)  # sum over known rows of x (y - mean y)
        return np.asarray((centred / (known * np.sqrt(share * (1 - share)))[:, None]).T)

    @property
    def covariance(self) -> Array:
        assert self._gram is not None
        offset = self._sums[0] / self.samples
        return np.asarray(self._gram / self.samples - np.outer(offset, offset))


def covariance_times(direction: Array, mean: Array, batches: Iterable[Features]) -> tuple[Array, int]:
    """The sum over all rows of (x - mean) ((x - mean) . direction), and the number of rows."""
    total, samples = np.zeros_like(direction), 0
    for X in batches:
        rows = check_shape(X, direction.size)
        samples += rows.shape[0]
        for _, block in blocks(rows, _CELLS):
            centre, towards = mean.astype(block.dtype), direction.astype(block.dtype)
            if sparse.issparse(block):
                scores = block @ towards - centre @ towards
                total += block.T @ scores - centre * scores.sum()
            else:
                centred = block - centre
                total += (centred @ towards) @ centred
    return total, samples


def _column_means(rows: Any) -> Array:
    """A first guess of the mean from the first block; 0 for sparse features, most of which are 0."""
    if sparse.issparse(rows):
        return np.zeros(rows.shape[1])
    _, block = next(blocks(rows, _CELLS))
    with np.errstate(over="ignore", invalid="ignore"):
        means: Array = block.mean(axis=0, dtype=np.float64)
    return means


def _block_sums(block: Any, shift: NDArray[Any], weights: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    if not sparse.issparse(block):
        centred = block - shift
        return weights.T @ centred, np.einsum("ij,ij->j", centred, centred)
    total = np.asarray(block.sum(axis=0)).ravel()
    squares = np.asarray(block.multiply(block).sum(axis=0)).ravel()
    sums = (block.T @ weights).T - np.outer(weights.sum(axis=0), shift)
    return sums, squares - 2 * shift * total + block.shape[0] * shift**2


EXHAUSTED = 1e-4  # components end where this share of the public covariance is left


def privacy_components(
    public: Array, private: Array, loading: Callable[[Array], Array], count: int, privacy: float, *, size: float
) -> Array:
    """Return up to `count` unit directions (d, k); fewer where nothing worth `size`, the public covariance, is left."""
    least = EXHAUSTED * size
    found: list[Array] = []
    seen = np.zeros((len(public), 0))  # orthonormal basis of the loadings P
    for _ in range(count):
        if found:
            fresh = _new_part(loading(found[-1]), seen)  # step 4
            if fresh is None:
                break
            seen = np.column_stack([seen, fresh])  # step 5
            public = public - np.outer(fresh, fresh @ public)  # step 2: only S is deflated
        direction = leading_direction(public, private, privacy, least)  # step 3
        if direction is None:
            break
        found.append(direction)
    return np.column_stack(found) if found else np.zeros((len(public), 0))


def leading_direction(public: Array, private: Array, privacy: float, least: float = 0.0) -> Array | None:
    """Return the unit vector w that maximises |public' w|^2 - privacy |private' w|^2 (Eq. 3); None where the best w
    gains less than `least` squared. Its largest entry is positive: eigenvectors have no sign.
    """
    if math.isinf(privacy):
        barred = _orthonormal(private)
        basis, gains, _ = np.linalg.svd(_outside(public, barred), full_matrices=False)
        gain, direction = gains[0], _outside(basis[:, 0], barred)
    else:
        basis, small = np.linalg.qr(np.column_stack([public, private]))
        signs = np.repeat([1.0, -privacy], [public.shape[1], private.shape[1]])
        values, vectors = np.linalg.eigh((small * signs) @ small.T)
        gain, direction = math.sqrt(max(0.0, values[-1])), basis @ vectors[:, -1]
    if gain <= least:
        return None
    direction = direction / np.linalg.norm(direction)
    return np.asarray(direction * np.sign(direction[np.abs(direction).argmax()]))


def _outside(vectors: Array, basis: Array) -> Array:
    """The part of vectors orthogonal to a basis; twice, for the digits the first time loses."""
    for _ in range(2):
        vectors = vectors - basis @ (basis.T @ vectors)
    return vectors


def _new_part(loading: Array, seen: Array) -> Array | None:
    """The unit vector along what the loading adds to those seen, or None where it adds nothing."""
    fresh = _outside(loading, seen)
    length = float(np.linalg.norm(fresh))
    return None if length <= 1e-8 * float(np.linalg.norm(loading)) else fresh / length


def _orthonormal(vectors: Array) -> Array:
    basis, sizes, _ = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(basis[:, sizes > 1e-10 * max(sizes[0], np.finfo(float).tiny)])


Batch = tuple[Features, ArrayLike, ArrayLike]

MOST_FEATURES = 4096  # above this, no d x d matrix is kept


class FewerComponentsWarning(UserWarning):
    """A sift has fewer numbers than asked for, because the features hold no more."""


@dataclass(frozen=True, eq=False)
class Covariances:
    """What a linear learner sees of the data, in units of scaled features."""

    public: Array  # (d, public attributes), with attributes of unit variance
    private: Array
    loading: Callable[[Array], Array]  # the covariance matrix of the features times a direction
    matrix: Callable[[], Array]  # the covariance matrix itself, where it was kept


class SiftLearner(Protocol):
    """Makes a sift from features and labels: `PPLS`, `LeacePLS` and others."""

    sift_: Any

    def fit(self, X: Any, public: ArrayLike, private: ArrayLike) -> Any:
        """Learn from features (n, d) and labels (n, attributes)."""
        ...


class SiftEstimator(BaseEstimator):  # type: ignore[misc]
    """The base of learners, after scikit-learn's conventions. Only verification tells whether `sift_` hides what it
    should.
    """

    sift_: Sift

    def transform(self, X: Features) -> NDArray[Any]:
        """Return what the sift lets out, (n, width)."""
        check_is_fitted(self, "sift_")
        return self.sift_.apply(X)


class LinearSiftLearner(SiftEstimator):
    """The base of linear learners; a subclass finds directions in `Covariances`."""

    n_components: int
    scale: bool
    pipeline: str

    sift_: LinearSift
    weights_: Array  # (d, k), unit columns, in units of scaled features
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
        return not passes and self.n_components > 1

    def fit(self, X: Features, public: ArrayLike, private: ArrayLike) -> Self:
        """Learn from features (n, d) and labels 1, 0 and -1 (unknown), each (n,) or (n, attributes). Rows on which an
        attribute is unknown are left out of that attribute's covariance, and of nothing else.
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

    def _accumulator(self, batch: Batch, *, passes: bool) -> CrossProducts:
        matrix, dimension = self._needs_matrix(passes), check_shape(batch[0]).shape[1]
        if matrix and dimension > MOST_FEATURES:
            raise InputError(
                f"{type(self).__name__} would need a {dimension} x {dimension} matrix here; the most is "
                f"{MOST_FEATURES}. Use PPLS with fit or fit_stream, or fewer features."
            )
        return CrossProducts.like(*batch, gram=matrix)

    def _finish(self, products: CrossProducts, loading: Callable[[Array], Array]) -> Self:
        if products.samples <= self.n_components:
            raise InputError(f"{self.n_components} components need more samples than that; got {products.samples}.")
        products.refuse_one_sided()
        scale, inverse = _scales(products.deviation, each=self.scale)
        covariances = products.covariances * inverse[:, None]
        view = Covariances(
            covariances[:, : products.public],
            covariances[:, products.public :],
            lambda direction: inverse * loading(inverse * direction),
            lambda: inverse[:, None] * products.covariance * inverse,
        )
        weights = self._directions(view)
        found = weights.shape[1]
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
                stacklevel=4,
            )
        parts = (products.mean, scale, without_negligible(weights))
        mean, divisor, matrix = (part.astype(np.float32) for part in parts)
        self.sift_ = LinearSift(mean, divisor, matrix, pipeline=self.pipeline)
        self.weights_, self.n_features_in_ = weights, len(scale)
        self.public_covariance_, self.private_covariance_ = weights.T @ view.public, weights.T @ view.private
        return self


def _scales(deviation: Array, *, each: bool) -> tuple[Array, Array]:
    """Scales and their inverses, 0 for features that never vary."""
    varies = deviation > 0
    if not varies.any():
        raise InputError("no feature varies. Are these really features of different pictures?")
    common = float(np.sqrt(np.mean(deviation[varies] ** 2)))
    scale = np.where(varies, deviation if each else common, common)
    return scale, np.where(varies, 1 / scale, 0.0)


_COMBINE = ("mean-of-squares", "paper")


@dataclass(eq=False, repr=False)
class PPLS(LinearSiftLearner):
    """Fits a `LinearSift` of `n_components` numbers; `privacy` weighs hiding against telling, `math.inf` hides all.

    `scale=False` divides all features by one common factor, for features that are already of one kind (principal
    components: scaled each by itself they would be whitened, and only d+ + d- components would exist).
    """

    n_components: int = 5
    privacy: float = 1.0
    _: KW_ONLY
    scale: bool = True
    combine: str = "mean-of-squares"
    pipeline: str = ""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.privacy >= 0:
            raise InputError(f"privacy must be 0 or more, math.inf to hide all covariance; got {self.privacy}.")
        if self.combine not in _COMBINE:
            raise UnknownNameError("way to combine attributes", self.combine, _COMBINE)

    def _directions(self, covariances: Covariances) -> Array:
        public, private = self._combined(covariances.public), self._combined(covariances.private)
        size = float(np.linalg.norm(public))
        return privacy_components(public, private, covariances.loading, self.n_components, self.privacy, size=size)

    def _combined(self, covariances: Array) -> Array:
        """Columns whose squares add up to the objective of section 7."""
        if self.combine == "paper":
            return np.asarray(covariances.mean(axis=1, keepdims=True))
        return covariances / math.sqrt(covariances.shape[1])
