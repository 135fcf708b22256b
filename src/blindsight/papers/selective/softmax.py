"""A linear softmax head on the features of a frozen backbone, trained with numpy (Bu 2019, section 5 and Table 2).

The same model as `learn.modules.head` by plain stochastic gradients, without torch. It is what a frozen backbone leaves
to learn, and small enough that a study of four weeks takes seconds. The gradient of one record is known in closed form:
the outer product of (its probabilities - its class) and (its features, 1), so its norm is the product of two norms.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.learn.modules import ParameterLayout, Vector
from blindsight.learn.protection import RecordGaussian
from blindsight.learn.training import DivergedError, check_labels, check_passes
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.validation import check_features, check_shape

_NAMES = ("weight", "bias")
_CLIP_MARGIN = 1 - 1e-9  # more than rounding in double precision can lengthen a clipped gradient, or its part of a sum


@dataclass(kw_only=True, eq=False)
class SoftmaxTrainer:
    """Trains a head of `classes` on features that `standardiser` (fitted on public data) scales.

    One call of `train` makes `epochs` passes over the photos in batches of `batch`; in the t-th call (from 0) the
    learning rate is divided by 1 + `decay` t. With `record_noise` each record's
    gradient is clipped and the sum of a batch gets Gaussian noise from `source`. A record whose gradient is not finite,
    or whose class the head does not have, then counts as zero: weights and classes come from a server that may want to
    see training fail. What else can diverge is made of noisy sums alone.
    """

    standardiser: Standardiser
    classes: int
    learning_rate: float
    epochs: int = 1
    batch: int = 32
    record_noise: RecordGaussian | None = None
    decay: float = 0.0
    source: ByteSource = field(default=system_bytes, repr=False)
    _calls: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise InputError(f"a classifier tells at least two classes apart; got {self.classes}.")
        if not 0 < self.learning_rate < np.inf:
            raise InputError(f"learning_rate must be positive; got {self.learning_rate}.")
        check_passes(self.epochs, self.batch, self.decay)

    @property
    def layout(self) -> ParameterLayout:
        return ParameterLayout(_NAMES, ((self.classes, len(self.standardiser.mean)), (self.classes,)))

    def initial(self) -> Vector:
        """Return zeros: the problem is convex."""
        return np.zeros(self.layout.dimension, dtype=np.float32)

    def check(self, inputs: NDArray[Any], labels: NDArray[np.int64]) -> None:
        check_features(inputs, len(self.standardiser.mean))
        check_labels(labels, len(inputs), self.classes)

    def train(self, parameters: Vector, inputs: NDArray[Any], labels: NDArray[Any], seed: int) -> Vector:
        """Return the parameters after descending on these photos and their classes, whole numbers from 0."""
        rows, rng = self._rows(inputs), science(seed)
        known = check_labels(labels, len(rows), self.classes if self.record_noise is None else None)
        truth = np.equal.outer(known, np.arange(self.classes)).astype(np.float32)
        weights = self._matrix(parameters).copy()
        slowed = self.learning_rate / (1 + self.decay * self._calls)
        self._calls += 1
        with np.errstate(over="ignore", invalid="ignore"):
            rate = np.float32(slowed)
            for _ in range(self.epochs):
                order = rng.permutation(len(rows))
                for start in range(0, len(rows), self.batch):
                    picked = order[start : start + self.batch]
                    weights -= rate * self._gradient(weights, rows[picked], truth[picked])
        return self._finite(np.concatenate([weights[:, :-1].ravel(), weights[:, -1]]))

    def scores(self, parameters: Vector, inputs: NDArray[Any]) -> NDArray[Any]:
        logits: NDArray[Any] = self._rows(inputs) @ self._matrix(parameters).T
        return logits

    def _gradient(self, weights: Vector, rows: Vector, truth: Vector) -> Vector:
        """Return the mean gradient of a batch, by records clipped and noised if that was asked for."""
        errors = _softmax(rows @ weights.T) - truth
        if self.record_noise is None:
            plain: Vector = np.divide(self._finite(errors).T @ rows, len(rows), dtype=np.float32)
            return plain
        limit = _CLIP_MARGIN * self.record_noise.clip
        counts = truth.any(axis=1) & np.isfinite(errors).all(axis=1) & np.isfinite(rows).all(axis=1)
        exact, wide = (np.where(counts[:, None], part, 0).astype(np.float64) for part in (errors, rows))
        norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(wide, axis=1)
        exact *= (limit / np.maximum(norms, limit))[:, None]
        noisy: Vector = (self.record_noise.release(exact.T @ wide, self.source) / len(rows)).astype(np.float32)
        return noisy

    def _finite(self, numbers: Vector) -> Vector:
        if not np.isfinite(numbers).all():
            raise DivergedError(f"the training diverged. Use a learning_rate below {self.learning_rate}.")
        return numbers

    def _rows(self, inputs: NDArray[Any]) -> Vector:
        """Return standardised features with a one behind each."""
        with np.errstate(all="ignore"):  # a photo of any size: what is not finite afterwards counts as zero
            scaled = (
                check_shape(inputs, len(self.standardiser.mean)) - self.standardiser.mean
            ) / self.standardiser.scale
            return np.column_stack([scaled, np.ones(len(scaled))]).astype(np.float32)

    def _matrix(self, parameters: Vector) -> Vector:
        if parameters.shape != (self.layout.dimension,):
            raise InputError(f"this head has {self.layout.dimension} parameters; got {parameters.shape}.")
        weights, bias = np.split(parameters, [self.classes * len(self.standardiser.mean)])
        return np.column_stack([weights.reshape(self.classes, -1), bias])


def _softmax(logits: Vector) -> Vector:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Vector = odds / odds.sum(axis=1, keepdims=True)
    return shares
