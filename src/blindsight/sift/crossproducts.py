"""Sums from which a linear sift is fitted: they add up over batches, so features never have to fit in memory.

One pass gives the mean and deviation of every feature and its covariance with every attribute, in O(d) memory; sums
are taken about a first guess of the mean, so features far from zero lose no digits. Rows on which nobody knows an
attribute are left out of that attribute's covariance, and of nothing else. X^T X is never formed: what is needed of it
is its product with a direction, one further pass (`covariance_times`); the matrix itself is kept on request, for
one-pass fits of few features.
"""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blindsight.data.dataset import UNKNOWN
from blindsight.errors import InputError
from blindsight.sift.features import Features, blocks
from blindsight.sift.labels import Labels, check_labels
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
        """Return an empty accumulator for batches of this shape."""
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
        """Return checked labels of this batch side by side, public ones first."""
        sides = check_labels(public, rows, "public labels"), check_labels(private, rows, "private labels")
        got, wanted = tuple(side.shape[1] for side in sides), (self.public, self.private)
        if got != wanted:
            raise InputError(f"every batch must have the same attributes, {wanted} public and private; got {got}.")
        return np.hstack(sides)

    def one_sided(self) -> NDArray[np.bool_]:
        """Tell which attributes were never yes or never no so far."""
        return np.asarray((self.positives == 0) | (self.positives + self.missing == self.samples))

    @property
    def mean(self) -> Array:
        """Mean of every feature."""
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
        """Covariance matrix of the features, (d, d), for accumulators that keep it."""
        assert self._gram is not None
        offset = self._sums[0] / self.samples
        return np.asarray(self._gram / self.samples - np.outer(offset, offset))


def covariance_times(direction: Array, mean: Array, batches: Iterable[Features]) -> tuple[Array, int]:
    """Return the sum over all rows of (x - mean) ((x - mean) . direction), and how many rows there were."""
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
    """Return a first guess of the mean from the first block; 0 for sparse features, most of which are 0."""
    if sparse.issparse(rows):
        return np.zeros(rows.shape[1])
    _, block = next(blocks(rows, _CELLS))
    with np.errstate(over="ignore", invalid="ignore"):
        means: Array = block.mean(axis=0, dtype=np.float64)
    return means


def _block_sums(block: Any, shift: NDArray[Any], weights: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the weighted sums and the sum of squares of x - shift."""
    if not sparse.issparse(block):
        centred = block - shift
        return weights.T @ centred, np.einsum("ij,ij->j", centred, centred)
    total = np.asarray(block.sum(axis=0)).ravel()
    squares = np.asarray(block.multiply(block).sum(axis=0)).ravel()
    sums = (block.T @ weights).T - np.outer(weights.sum(axis=0), shift)
    return sums, squares - 2 * shift * total + block.shape[0] * shift**2
