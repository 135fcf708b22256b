"""Learning a linear classifier with a proven epsilon and no trusted party: descent by sums that hold noise.

*The guarantee* is that of `blindsight.sums.noise`: what everybody sees of all rounds, and the classifier, is (epsilon,
delta)-differentially private for a record, or for all that one owner has. Everything else that goes in is public: the
public data, how many records there are, and what follows from these and from epsilon (space, start, step).

*unit="record".* In every round each owner adds up the gradients of its records at the shared weights, each cut to the
length `clip`, and sends the sum with its share of noise. The next weights are

    W - step (G + G0) / (N + N0),    G the noisy sum over N private records, G0 that over N0 public ones, without noise.

*unit="owner".* Each owner descends on its own records for some steps, cuts the difference to the shared weights to
`clip` and sends it with its share of noise; the mean is added to the shared weights.

Nothing is kept back from round to round: a residual would carry a record into later rounds without being counted.

*Space.* Noise costs by the number of weights and by directions in which little happens. So one learns in the space of
the public data's principal components, whitened (ridge of their mean eigenvalue), rows scaled to length 1, with a
constant for the bias. The start is the public data's own ridge solution. The loss is the softmax's cross-entropy for
three classes and more, the logistic loss for yes/no questions.

*Step.* All rounds together should not move scores by noise more than the public model errs: with a noise of g records
on the whole of the rounds (the multiplier divided by their root), `_TRUST` (N / g)^1.5 is the time that is descended,
at most what the public data's curvature allows. Rounds share it equally. It depends on no private number.

*What does not fail.* A record that is not finite, or has an unknown label, counts as zero. So does one for which the
shared weights give no finite gradient. See A. Rajkumar & S. Agarwal 2012 in `baselines` for what this replaces; DP
gradient descent is Song, Chaudhuri & Sarwate, GlobalSIP 2013, and Abadi et al., CCS 2016.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.learn.federation import Memory, Proposal
from blindsight.learn.model import Array, Classes, Floats, Labels, Standardiser, decision_function
from blindsight.learn.owners import Load
from blindsight.rng import ByteSource, system_bytes
from blindsight.sums.noise import MOST_UNITS, NoisePlan, clip_factors, clipped

MOST_COMPONENTS = 256

_BIAS = 0.1  # the constant of every row
_RIDGE = 1e-3  # of the public start
_TRUST = 0.0067
_PUBLIC_STEPS, _LOCAL_STEPS = 300, 5

Targets = NDArray[np.float64]
"""What the scores of a row should be, (n, rows): 0 or 1 for classes, -1, 0 (unknown) or 1 for yes/no questions."""


@dataclass(frozen=True, eq=False)
class PublicSpace:
    """The whitened principal components of public data, in which noise is cheap; `matrix` is (D, k)."""

    matrix: Array
    length: float

    @classmethod
    def fit(cls, features: Floats, most: int = MOST_COMPONENTS) -> Self:
        """Return the space of standardised public features."""
        rows = features.astype(np.float64)
        values, vectors = _principal(rows)
        kept = max(1, min(most, len(rows) - 1, int(np.sum(values > 1e-9 * values[0]))))
        matrix = vectors[:, :kept] / np.sqrt(values[:kept] + values[:kept].mean())
        return cls(matrix, float(np.linalg.norm(rows @ matrix, axis=1).mean()) or 1.0)

    @property
    def size(self) -> int:
        """How many numbers a row has, the constant included."""
        return int(self.matrix.shape[1]) + 1

    def rows(self, features: Floats) -> Array:
        """Return rows of length 1 and their constant; zero where a feature is not finite."""
        finite = np.isfinite(features).all(axis=1, keepdims=True)
        with np.errstate(over="ignore", invalid="ignore"):
            inner = np.where(finite, features, 0.0).astype(np.float64) @ self.matrix
            lengths = np.linalg.norm(inner, axis=1, keepdims=True)
        finite = finite & np.isfinite(lengths)
        rows = np.column_stack([inner / np.where(lengths > 0, lengths, 1.0), np.full(len(inner), _BIAS)])
        return np.where(finite, rows, 0.0)

    def weights(self, inner: Array) -> Array:
        """Return weights for standardised features (rows, D + 1) from those for rows of this space."""
        return np.column_stack([inner[:, :-1] @ self.matrix.T / self.length, _BIAS * inner[:, -1]])


@dataclass(frozen=True, eq=False, repr=False)
class PrivateLearner:
    """The `Learner` of a federation whose sums hold noise; public and validation features are standardised already."""

    owners: Mapping[str, Load]
    labels: Labels
    standardiser: Standardiser
    space: PublicSpace
    plan: NoisePlan
    records: int
    public: tuple[Floats, NDArray[Any]]
    validation: tuple[Floats, NDArray[Any]] | None
    source: ByteSource = system_bytes
    _loaded: dict[str, tuple[Array, Targets]] = field(default_factory=dict)

    @property
    def adds(self) -> bool:
        return True

    @property
    def validated(self) -> bool:
        return self.validation is not None

    @cached_property
    def _public(self) -> tuple[Array, Targets]:
        return self.space.rows(self.public[0]), targets(self.labels, self.public[1])

    @cached_property
    def step(self) -> float:
        """The length of a round's step, from public numbers alone."""
        noise = self.plan.deviation / self.plan.clip / math.sqrt(self.plan.rounds)
        time = _TRUST * math.pow((self.records + len(self._public[0])) / noise, 1.5)
        return min(time / self.plan.rounds, 1 / self._curvature)

    @cached_property
    def _curvature(self) -> float:
        """The largest second derivative of the public loss."""
        softmax = self.labels.rows > 1 and isinstance(self.labels, Classes)
        largest = float(np.linalg.norm(self._public[0], 2)) ** 2 / len(self._public[0])
        return (0.5 if softmax else 0.25) * largest

    def first(self, seed: int) -> Array:
        """Return the public data's own classifier, in the space of the rows."""
        rows, wanted = self._public
        weights = before = np.zeros((self.labels.rows, self.space.size))
        for step in range(_PUBLIC_STEPS):  # accelerated descent (Nesterov)
            ahead = weights + step / (step + 3) * (weights - before)
            gradient = residuals(self.labels, rows @ ahead.T, wanted).T @ rows / len(rows) + _RIDGE * ahead
            before, weights = weights, ahead - gradient / (self._curvature + _RIDGE)
        return weights

    def propose(self, owner: str, shared: Array, memory: Memory, seed: int) -> Proposal:
        """Return what an owner sends: whole numbers that hold its share of the noise."""
        rows, wanted = self._rows(owner)
        parts: Iterable[Array] = self._clipped_sums(rows, wanted, shared)
        if self.plan.unit == "owner":
            parts = clipped(self._local(rows, wanted, shared) - shared.ravel(), self.plan.clip)
        return Proposal(self.plan.contribution(parts, self.source).astype(np.float64), Memory(None, None))

    def combine(self, shared: Array, result: Any) -> Array:
        """Return the next shared weights from the sum of a round."""
        total: Array = self.plan.values(result.values).reshape(shared.shape)
        if self.plan.unit == "owner":
            return shared + total / len(result.contributors)
        rows, wanted = self._public
        gradient = total + np.sum(list(self._clipped_sums(rows, wanted, shared)), axis=0).reshape(shared.shape)
        moved: Array = shared - self.step * gradient / (self.plan.clip * (self.records + len(rows)))
        return moved

    def score(self, shared: Array) -> float | None:
        """Return the accuracy averaged over classes or attributes, if there are validation data."""
        if self.validation is None:
            return None
        features, y = self.validation
        return self.labels.quality(decision_function(self.space.weights(shared), features), y)

    def _clipped_sums(self, rows: Array, wanted: Targets, shared: Array) -> Iterator[Array]:
        """Yield sums of clipped gradients of at most `MOST_UNITS` records each."""
        lengths = np.linalg.norm(rows, axis=1)
        for start in range(0, len(rows), MOST_UNITS):
            some = slice(start, start + MOST_UNITS)
            slopes = self._slopes(rows[some], wanted[some], shared)
            factors = clip_factors(np.linalg.norm(slopes, axis=1) * lengths[some], self.plan.clip)
            yield ((slopes * factors[:, None]).T @ rows[some]).ravel()

    def _slopes(self, rows: Array, wanted: Targets, shared: Array) -> Array:
        with np.errstate(all="ignore"):  # weights that somebody else chose may be anything
            slopes = residuals(self.labels, rows @ shared.T, wanted)
        usable = np.isfinite(slopes).all(axis=1, keepdims=True) & rows.any(axis=1, keepdims=True)
        return np.where(usable, slopes, 0.0)

    def _local(self, rows: Array, wanted: Targets, shared: Array) -> Array:
        """Return the weights after some steps on one owner's records and the public ones."""
        rows, wanted = np.vstack([rows, self._public[0]]), np.vstack([wanted, self._public[1]])
        weights = shared
        for _ in range(_LOCAL_STEPS):
            weights = weights - (self._slopes(rows, wanted, weights).T @ rows) / (len(rows) * self._curvature)
        return weights.ravel()

    def _rows(self, owner: str) -> tuple[Array, Targets]:
        """Return an owner's records in the space of the rows; they are made once."""
        if owner not in self._loaded:
            X, y = check_sizes(self.owners[owner](), self.standardiser.mean.size)
            with np.errstate(all="ignore"):
                features = (X - self.standardiser.mean) / self.standardiser.scale
            self._loaded[owner] = self.space.rows(features), targets(self.labels, y)
        return self._loaded[owner]


def check_sizes(data: Any, dimensions: int) -> tuple[Floats, NDArray[Any]]:
    """Return an owner's features and labels; only their sizes are checked, which are public."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError("data must be a pair (features, labels).")
    try:
        features = np.asarray(data[0], dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("features must be numbers.") from None
    labels = np.asarray(data[1])
    if features.ndim != 2 or features.shape[1] != dimensions:
        raise InputError(f"features must be rows of {dimensions} numbers; got shape {features.shape}.")
    if labels.shape[:1] != (len(features),):
        raise InputError(f"there must be a label per sample; got labels of shape {labels.shape} for {len(features)}.")
    return features, labels


def targets(labels: Labels, y: NDArray[Any]) -> Targets:
    """Return what the scores should be; a label that is not known has zeros and trains nothing."""
    if isinstance(labels, Classes):
        if y.ndim != 1:
            raise InputError(f"labels must be one per sample; got shape {y.shape}.")
        places = {name: place for place, name in enumerate(labels.names.tolist())}
        numbers = np.array([_place(places, label) for label in y.tolist()], dtype=np.int64)
        wanted = np.zeros((len(y), len(labels.names)))
        known = numbers >= 0
        wanted[np.flatnonzero(known), numbers[known]] = 1.0
        return wanted if labels.rows > 1 else wanted[:, 1:] - wanted[:, :1]
    if y.ndim != 2 or y.shape[1] != labels.rows:
        raise InputError(f"attributes must have {labels.rows} columns; got shape {y.shape}.")
    signs: Targets = (y == 1).astype(np.float64) - (y == 0)
    return signs


def residuals(labels: Labels, scores: Array, wanted: Targets) -> Array:
    """Return the derivative of the loss by the scores, zero where nothing is known."""
    if labels.rows > 1 and isinstance(labels, Classes):
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        off = powers / powers.sum(axis=1, keepdims=True) - wanted
        return np.where(wanted.any(axis=1, keepdims=True), off, 0.0)
    slopes: Array = -wanted * 0.5 * (1 - np.tanh(wanted * scores / 2))
    return slopes


def _place(places: Mapping[Any, int], label: Any) -> int:
    try:
        return places.get(label, -1)
    except TypeError:  # a label that is a list, or the like
        return -1


def _principal(rows: Array) -> tuple[Array, Array]:
    """Return the variances of the rows, the largest first, and their directions (D, .)."""
    if len(rows) < rows.shape[1]:
        _, lengths, directions = np.linalg.svd(rows, full_matrices=False)
        return lengths**2 / len(rows), directions.T
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]
