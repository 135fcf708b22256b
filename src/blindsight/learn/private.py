"""Learning a linear classifier with a proven epsilon and no trusted party: descent by sums that hold noise.

*The guarantee* is that of `blindsight.sums.noise`: what everybody sees of all rounds, and the classifier, is (epsilon,
delta)-differentially private for a record, or for all that one owner has. Everything else that goes in is public: the
public data, how many records there are, and what follows from these and from epsilon (space, start, step).

*unit="record".* In every round each owner adds up the gradients of its records at the shared weights, each cut to the
length `clip`, and sends the sum with its share of noise. The next weights are

    W - step (G + G0) / (N + N0),    G the noisy sum over N private records, G0 that over N0 public ones, without noise.

*unit="member".* Each member descends on its own records for some steps, cuts the difference to the shared weights to
`clip` and sends it with its share of noise; the mean is added to the shared weights.

Nothing is kept back from round to round: a residual would carry a record into later rounds without being counted.

*Space.* Noise costs by the number of weights and by directions in which little happens. So one learns in the space of
the public data's principal components, whitened (ridge of their mean eigenvalue), rows scaled to length 1, with a
constant for the bias. The start is the public data's own ridge solution. The loss is the softmax's cross-entropy for
three classes and more, the logistic loss for yes/no questions.

*Step.* All rounds together should not move scores by noise more than the public model errs: with a noise of g records
on the whole of the rounds (the multiplier divided by their root), `_TRUST` (N / g)^1.5 is the time that is descended,
at most what the public data's curvature allows. Rounds share it equally. It depends on no private number of the run;
the constant was chosen on Caltech-101 and CIFAR-10 embeddings (benchmark `learn-epsilon`).

*What does not fail.* A record counts as zero if its features are not so many finite numbers, if its label is none of
the classes, whatever it is instead, or if the shared weights give it no finite gradient. Each is read on its own, so
what is odd about one changes nothing in another; the type and the shape of an array are taken for public. See
A. Rajkumar & S. Agarwal 2012 in `baselines` for what this replaces; DP gradient descent is Song, Chaudhuri & Sarwate,
GlobalSIP 2013, and Abadi et al., CCS 2016.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data.features import Standardiser
from blindsight.data.sites import Loader
from blindsight.errors import InputError
from blindsight.learn.model import (
    Array,
    Classes,
    Floats,
    Labels,
    decision_function,
    describe_labels,
    read_labels,
    read_standardiser,
)
from blindsight.rng import ByteSource, system_bytes
from blindsight.rounds import Memory, Privacy, RoundSum, Task, Update, register_learner
from blindsight.rounds.task import Pair
from blindsight.sums.noise import MOST_UNITS, NoisePlan, clip_factors, clipped
from blindsight.validation import check_features

MOST_COMPONENTS = 512

_BIAS = 0.1  # the constant of every row
_RIDGE = 1e-3  # of the public start
_TRUTH = {"True": 1.0, "False": 0.0, b"True": 1.0, b"False": 0.0}
_TRUST, _LONGEST = 0.0067, 1.8  # a step of 2 over the curvature would no longer descend
_PUBLIC_STEPS, _LOCAL_STEPS = 300, 5

Targets = NDArray[np.float64]
"""What the scores of a row should be, (n, rows): 0 or 1 for classes, -1, 0 (unknown) or 1 for yes/no questions."""


class Records(NamedTuple):
    """Rows in the public space, and what their scores should be."""

    rows: Array
    wanted: Targets


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
            inner = np.where(finite, features, 0.0).astype(np.float32) @ self.matrix.astype(np.float32)
            inner = inner.astype(np.float64)
            lengths = np.linalg.norm(inner, axis=1, keepdims=True)
        finite = finite & np.isfinite(lengths)
        rows = np.column_stack([inner / np.where(lengths > 0, lengths, 1.0), np.full(len(inner), _BIAS)])
        return np.where(finite, rows, 0.0)

    def weights(self, inner: Array) -> Array:
        """Return weights for standardised features (rows, D + 1) from those for rows of this space."""
        return np.column_stack([inner[:, :-1] @ self.matrix.T / self.length, _BIAS * inner[:, -1]])


@dataclass(frozen=True, eq=False, repr=False)
class PrivateLearner:
    """The `Learner` of a run whose sums hold noise.

    `records` is how many all members have together; `public` and `validation` features are standardised already.
    """

    labels: Labels
    standardiser: Standardiser
    space: PublicSpace
    plan: NoisePlan
    records: int
    public: Records
    validation: tuple[Floats, NDArray[Any]] | None = None
    source: ByteSource = system_bytes

    always: ClassVar[int] = 0
    largest: ClassVar[float] = 1.0
    additive: ClassVar[bool] = True

    @classmethod
    def of(cls, task: Task, validation: Pair | None) -> Self:
        """Return the learner of a task (`private_task`)."""
        if task.noise is None:
            raise InputError("a private classifier needs a plan of noise; got none.")
        standardiser, labels, records = read_standardiser(task.arrays), read_labels(task), task.settings["records"]
        matrix = check_features(task.arrays["matrix"], precision="given")
        space = PublicSpace(matrix, float(task.settings["length"]))
        rows, wanted = (check_features(task.arrays[name], precision="given") for name in ("rows", "wanted"))
        if type(records) is not int or records < 0:
            raise InputError(f"records must be a whole number of at least 0; got {records!r}.")
        if matrix.shape[0] != standardiser.mean.size or rows.shape[1] != space.size:
            raise InputError(f"the space of features is {matrix.shape}; its rows have {rows.shape[1]} numbers.")
        if wanted.shape != (len(rows), labels.rows) or not 0 < space.length < math.inf:
            raise InputError("there must be an answer for each public row, and a length above 0.")
        held_out = None if validation is None else (standardiser.apply(validation[0]), validation[1])
        return cls(labels, standardiser, space, task.noise, records, Records(rows, wanted), held_out)

    @property
    def size(self) -> int:
        return self.labels.rows * self.space.size

    @cached_property
    def step(self) -> float:
        """The length of a round's step, from public numbers alone."""
        noise = self.plan.deviation / self.plan.clip / math.sqrt(self.plan.rounds)
        time = _TRUST * math.pow((self.records + len(self.public.rows)) / noise, 1.5)
        return min(time / self.plan.rounds, _LONGEST / _curvature(self.labels, self.public.rows))

    def first(self, seed: int) -> Array:
        """Return the public data's own classifier, in the space of the rows."""
        return public_start(self.labels, *self.public)

    def update(self, data: Any, shared: Array, memory: Memory, seed: int) -> Update:
        """Return what a member sends: whole numbers that hold its share of the noise."""
        records = data if isinstance(data, Records) else self.read(data)
        parts: Iterable[Array] = self._clipped_sums(shared, *records)
        if self.plan.unit == "member":
            parts = clipped(self._local(shared, *records) - shared.ravel(), self.plan.clip)
        return Update(self.plan.contribution(parts, self.source).astype(np.float64))

    def combine(self, shared: Array, total: RoundSum) -> Array:
        """Return the next shared weights from the sum of a round."""
        values = self.plan.values(total.total)
        if self.plan.unit == "member":
            return shared + values.reshape(shared.shape) / len(total.contributors)
        return self.stepped(shared, values)

    def stepped(self, shared: Array, total: Array) -> Array:
        """Return the weights after a step against a noisy sum of private gradients and the public one."""
        gradient = (total + self.gradient(shared, *self.public)).reshape(shared.shape)
        moved: Array = shared - self.step * gradient / (self.plan.clip * (self.records + len(self.public.rows)))
        return moved

    def score(self, shared: Array) -> float | None:
        """Return the accuracy averaged over classes or attributes, if there are validation data."""
        if self.validation is None:
            return None
        features, y = self.validation
        return self.labels.quality(decision_function(self.space.weights(shared), features), y)

    def weights(self, shared: Array) -> Array:
        """Return the weights of standardised features."""
        return self.space.weights(shared)

    def gradient(self, shared: Array, rows: Array, wanted: Targets) -> Array:
        """Return the sum of clipped gradients, as one vector."""
        total = np.zeros(shared.size)
        for part in self._clipped_sums(shared, rows, wanted):
            total += part
        return total

    def reader(self, load: Loader) -> Loader:
        """Return a loader of what `read` makes of a member's data, which are loaded once."""
        return cache(lambda: self.read(load()))

    def read(self, data: Any) -> Records:
        """Return a member's features and labels in the space of the rows."""
        X, wanted = read_records(data, self.standardiser.mean.size, self.labels)
        with np.errstate(all="ignore"):
            features = (X - self.standardiser.mean) / self.standardiser.scale
        return Records(self.space.rows(features), wanted)

    def _clipped_sums(self, shared: Array, rows: Array, wanted: Targets) -> Iterator[Array]:
        """Yield sums of clipped gradients of at most `MOST_UNITS` records each."""
        lengths = np.linalg.norm(rows, axis=1)
        for start in range(0, len(rows), MOST_UNITS):
            some = slice(start, start + MOST_UNITS)
            slopes = self._slopes(shared, rows[some], wanted[some])
            factors = clip_factors(np.linalg.norm(slopes, axis=1) * lengths[some], self.plan.clip)
            yield ((slopes * factors[:, None]).T @ rows[some]).ravel()

    def _slopes(self, shared: Array, rows: Array, wanted: Targets) -> Array:
        with np.errstate(all="ignore"):  # weights that somebody else chose may be anything
            slopes = residuals(self.labels, rows @ shared.T, wanted)
        usable = np.isfinite(slopes).all(axis=1, keepdims=True) & rows.any(axis=1, keepdims=True)
        return np.where(usable, slopes, 0.0)

    def _local(self, shared: Array, rows: Array, wanted: Targets) -> Array:
        """Return the weights after some steps on one owner's records and the public ones."""
        rows, wanted = np.vstack([rows, self.public.rows]), np.vstack([wanted, self.public.wanted])
        weights, step = shared, 1 / (len(rows) * _curvature(self.labels, self.public.rows))
        for _ in range(_LOCAL_STEPS):
            weights = weights - step * (self._slopes(weights, rows, wanted).T @ rows)
        return weights.ravel()


def private_task(
    public: Pair, labels: Labels, privacy: Privacy, *, sizes: Sequence[int], rounds: int, scheme: str
) -> Task:
    """Return the task of a private classifier; `sizes` are the numbers of records of all members."""
    standardiser = Standardiser.fit(public[0])
    features = standardiser.apply(public[0])
    space = PublicSpace.fit(features)
    plan = privacy.plan(
        members=len(sizes), dimension=labels.rows * space.size, rounds=rounds, records=max(sizes), scheme=scheme
    )
    settings, arrays = describe_labels(labels)
    arrays |= {"mean": standardiser.mean, "scale": standardiser.scale, "matrix": space.matrix}
    arrays |= {"rows": space.rows(features), "wanted": targets(labels, public[1])}
    settings |= {"records": sum(sizes), "length": space.length}
    return Task(kind=PRIVATE_CLASSIFIER, settings=settings, arrays=arrays, noise=plan, delta=privacy.delta)


PRIVATE_CLASSIFIER = "private classifier"
register_learner(PRIVATE_CLASSIFIER, PrivateLearner.of)


def public_start(labels: Labels, rows: Array, wanted: Targets) -> Array:
    """Return the ridge solution of public rows, by accelerated descent (Nesterov 1983)."""
    curvature = _curvature(labels, rows) + _RIDGE
    weights = before = np.zeros((labels.rows, rows.shape[1]))
    for step in range(_PUBLIC_STEPS):
        ahead = weights + step / (step + 3) * (weights - before)
        gradient = residuals(labels, rows @ ahead.T, wanted).T @ rows / len(rows) + _RIDGE * ahead
        before, weights = weights, ahead - gradient / curvature
    return weights


def read_records(data: Any, dimensions: int, labels: Labels) -> tuple[Array, Targets]:
    """Return an owner's features and what their scores should be; what cannot be read is NaN and trains nothing.

    Records are read one by one, so that none changes how another is read. Refused is by what is public alone: how many
    rows there are, and the shape of an array.
    """
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError("data must be a pair (features, labels).")
    features, wanted = _numbers("features", data[0], dimensions), targets(labels, data[1])
    if len(wanted) != len(features):
        raise InputError(
            f"there must be a label per sample; got {len(wanted)} labels for {len(features)} rows of features."
        )
    return features, wanted


def targets(labels: Labels, y: Any) -> Targets:
    """Return what the scores should be; a label that is not known has zeros and trains nothing."""
    if isinstance(labels, Classes):
        answers = _rows("labels", y)
        if isinstance(answers, np.ndarray) and answers.dtype.kind != "O" and answers.ndim != 1:
            raise InputError(f"labels must be one per sample; got shape {answers.shape}.")
        places = {name: place for place, name in enumerate(labels.names.tolist())}
        numbers = np.array([_place(places, label) for label in answers], dtype=np.int64)
        wanted = np.zeros((len(answers), len(labels.names)))
        known = numbers >= 0
        wanted[np.flatnonzero(known), numbers[known]] = 1.0
        return wanted if labels.rows > 1 else wanted[:, 1:] - wanted[:, :1]
    rows = _numbers("attributes", y, labels.rows)
    signs: Targets = (rows == 1).astype(np.float64) - (rows == 0)
    return signs


def residuals(labels: Labels, scores: Array, wanted: Targets) -> Array:
    """Return the derivative of the loss by the scores, zero where nothing is known."""
    if labels.rows > 1 and isinstance(labels, Classes):
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        off = powers / powers.sum(axis=1, keepdims=True) - wanted
        return np.where(wanted.any(axis=1, keepdims=True), off, 0.0)
    slopes: Array = -wanted * 0.5 * (1 - np.tanh(wanted * scores / 2))
    return slopes


def _curvature(labels: Labels, rows: Array) -> float:
    """Return the largest second derivative of the mean loss of rows."""
    softmax = labels.rows > 1 and isinstance(labels, Classes)
    return (0.5 if softmax else 0.25) * float(np.linalg.norm(rows, 2)) ** 2 / len(rows)


def _rows(what: str, data: Any) -> Sequence[Any] | NDArray[Any]:
    """Return what has rows, without a look at any: as an array a list might turn one row into what another is."""
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return data
    try:
        rows = np.asarray(data)
    except Exception as error:
        raise InputError(f"{what} must be a list or an array; got {type(data).__name__}.") from error
    if not rows.ndim:
        raise InputError(f"{what} must be a list or an array; got {type(data).__name__}.")
    return rows


def _numbers(what: str, data: Any, width: int) -> Array:
    """Return rows of numbers; a row that is none, or has another length, is NaN."""
    rows = _rows(what, data)
    with np.errstate(all="ignore"):
        if isinstance(rows, np.ndarray) and rows.dtype.kind != "O":
            if rows.shape[1:] != (width,):
                raise InputError(f"{what} must be rows of {width} numbers; got shape {rows.shape}.")
            if rows.dtype.kind in "biuf":
                return rows.astype(np.float64, copy=False)
        found = np.full((len(rows), width), np.nan)
        for place, row in enumerate(rows):
            with suppress(Exception):  # whatever is wrong with a row is to be seen nowhere
                numbers = np.asarray(row)
                if numbers.shape == (width,) and numbers.dtype.kind in "biufOUS":
                    found[place] = numbers.astype(np.float64)
    return found


def _place(places: Mapping[Any, int], label: Any) -> int:
    """Return the place of a class; one that was turned into text, by a neighbour in its table, is known as a number or
    a truth value.
    """
    with suppress(Exception):  # of a label that is a list, or the like
        label = label.item() if getattr(label, "shape", None) == () else label
        return places[label] if label in places else places.get(float(_TRUTH.get(label, label)), -1)
    return -1


def _principal(rows: Array) -> tuple[Array, Array]:
    """Return the variances of the rows, the largest first, and their directions (D, .)."""
    if len(rows) < rows.shape[1]:
        _, lengths, directions = np.linalg.svd(rows, full_matrices=False)
        return lengths**2 / len(rows), directions.T
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]
