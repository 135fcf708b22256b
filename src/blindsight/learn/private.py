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
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.encoding import SlotPacking
from blindsight.data.features import Standardiser
from blindsight.dp.ledger import Ledger
from blindsight.errors import InputError
from blindsight.learn.model import Array, Classes, Floats, Labels, decision_function
from blindsight.learn.owners import Load
from blindsight.learn.rounds import SLOT_BITS, Memory, Proposal
from blindsight.rng import ByteSource, system_bytes
from blindsight.sums import RoundResult
from blindsight.sums.masks import colluders
from blindsight.sums.noise import MOST_UNITS, NoisePlan, NoiseUnit, clip_factors, clipped
from blindsight.sums.terms import GROUP_MEMBERS, threshold

MOST_COMPONENTS = 512

_BIAS = 0.1  # the constant of every row
_RIDGE = 1e-3  # of the public start
_TRUTH = {"True": 1.0, "False": 0.0, b"True": 1.0, b"False": 0.0}
_TRUST, _LONGEST = 0.0067, 1.8  # a step of 2 over the curvature would no longer descend
_PUBLIC_STEPS, _LOCAL_STEPS = 300, 5

Targets = NDArray[np.float64]
"""What the scores of a row should be, (n, rows): 0 or 1 for classes, -1, 0 (unknown) or 1 for yes/no questions."""

Records = tuple[Array, Targets]
"""Rows in the public space, and what their scores should be."""


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


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What is to be proven, as an estimator was asked for it; see `FederatedClassifier`."""

    epsilon: float
    delta: float
    unit: NoiseUnit
    clip: float | None = None
    colluders: int | None = None
    drop_outs: int | None = None

    @classmethod
    def of(cls, estimator: Any) -> Self | None:
        """Return the privacy that an estimator's parameters name; None without epsilon."""
        given = {one.name: getattr(estimator, one.name) for one in fields(cls)}
        named = [name for name, value in given.items() if value is not None]
        if given["epsilon"] is None:
            if named:
                raise InputError(f"{named[0]} goes with epsilon, which was not given. Name both, or neither.")
            return None
        for name in ("delta", "unit"):
            if given[name] is None:
                raise InputError(f"epsilon = {given['epsilon']} needs {name}, which has no default. Name it.")
        if given["unit"] == "owner" and given["clip"] is None:
            raise InputError("unit='owner' needs clip, the longest update that an owner may send. Name it.")
        return cls(**given)

    def plan(self, *, owners: int, dimension: int, rounds: int, records: int, scheme: str = "plain") -> NoisePlan:
        """Return the noise for so many owners, the largest of whom has so many records.

        Where the caller does not say, it is made for as many drop-outs and colluders as masks withstand.
        """
        groups = max(1, owners // GROUP_MEMBERS) if scheme == "masks" and owners >= 2 * GROUP_MEMBERS else 1
        return NoisePlan.calibrated(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            clip=1.0 if self.clip is None else self.clip,
            members=owners,
            drop_outs=owners - threshold(owners) if self.drop_outs is None else self.drop_outs,
            colluders=colluders(owners // groups) if self.colluders is None else self.colluders,
            dimension=dimension,
            rounds=rounds,
            largest=SlotPacking(SLOT_BITS, 1).max_value(owners),
            reach=float(max(records, 1)) if self.unit == "record" else 1.0,
            groups=groups,
        )

    def check(self, plan: NoisePlan) -> None:
        """Refuse drop-outs that leave no sum."""
        if plan.members - plan.drop_outs < 3:
            raise InputError(
                f"a sum needs 3 owners; got drop_outs = {plan.drop_outs} of {plan.members}. Name fewer drop-outs."
            )

    def spend(self, ledger: Ledger, scope: str, plan: NoisePlan) -> None:
        """Charge a ledger for a whole run."""
        ledger.spend(
            plan.loss(self.delta),
            scope=scope,
            unit="record" if self.unit == "record" else "person",
            neighbours="add/remove",
            mechanism=str(plan),
            purpose="learning a classifier together",
        )


@dataclass(frozen=True, eq=False, repr=False)
class PrivateLearner:
    """The `Learner` of a federation whose sums hold noise; public and validation features are standardised already.

    `records` is how many all owners have together.
    """

    owners: Mapping[str, Load]
    labels: Labels
    standardiser: Standardiser
    space: PublicSpace
    plan: NoisePlan
    records: int
    public: tuple[Floats, NDArray[Any]]
    validation: tuple[Floats, NDArray[Any]] | None
    source: ByteSource = system_bytes
    _loaded: dict[str, Records] = field(default_factory=dict)

    @property
    def adds(self) -> bool:
        return True

    @property
    def validated(self) -> bool:
        return self.validation is not None

    @cached_property
    def step(self) -> float:
        """The length of a round's step, from public numbers alone."""
        noise = self.plan.deviation / self.plan.clip / math.sqrt(self.plan.rounds)
        time = _TRUST * math.pow((self.records + len(self._public[0])) / noise, 1.5)
        return min(time / self.plan.rounds, _LONGEST / _curvature(self.labels, self._public[0]))

    def first(self, seed: int) -> Array:
        """Return the public data's own classifier, in the space of the rows."""
        return public_start(self.labels, *self._public)

    def propose(self, owner: str, shared: Array, memory: Memory, seed: int) -> Proposal:
        """Return what an owner sends: whole numbers that hold its share of the noise."""
        records = self.records_of(owner)
        parts: Iterable[Array] = self._clipped_sums(shared, *records)
        if self.plan.unit == "owner":
            parts = clipped(self._local(shared, *records) - shared.ravel(), self.plan.clip)
        return Proposal(self.plan.contribution(parts, self.source).astype(np.float64), Memory(None, None))

    def combine(self, shared: Array, result: RoundResult) -> Array:
        """Return the next shared weights from the sum of a round."""
        total = self.plan.values(result.total)
        if self.plan.unit == "owner":
            return shared + total.reshape(shared.shape) / len(result.contributors)
        return self.stepped(shared, total)

    def stepped(self, shared: Array, total: Array) -> Array:
        """Return the weights after a step against a noisy sum of private gradients and the public one."""
        gradient = (total + self.gradient(shared, *self._public)).reshape(shared.shape)
        moved: Array = shared - self.step * gradient / (self.plan.clip * (self.records + len(self._public[0])))
        return moved

    def score(self, shared: Array) -> float | None:
        """Return the accuracy averaged over classes or attributes, if there are validation data."""
        if self.validation is None:
            return None
        features, y = self.validation
        return self.labels.quality(decision_function(self.space.weights(shared), features), y)

    def gradient(self, shared: Array, rows: Array, wanted: Targets) -> Array:
        """Return the sum of clipped gradients, as one vector."""
        total = np.zeros(shared.size)
        for part in self._clipped_sums(shared, rows, wanted):
            total += part
        return total

    def records_of(self, owner: str) -> Records:
        """Return an owner's records in the space of the rows; they are made once."""
        if owner not in self._loaded:
            X, wanted = read_records(self.owners[owner](), self.standardiser.mean.size, self.labels)
            with np.errstate(all="ignore"):
                features = (X - self.standardiser.mean) / self.standardiser.scale
            self._loaded[owner] = self.space.rows(features), wanted
        return self._loaded[owner]

    @cached_property
    def _public(self) -> Records:
        return self.space.rows(self.public[0]), targets(self.labels, self.public[1])

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
        rows, wanted = np.vstack([rows, self._public[0]]), np.vstack([wanted, self._public[1]])
        weights, step = shared, 1 / (len(rows) * _curvature(self.labels, self._public[0]))
        for _ in range(_LOCAL_STEPS):
            weights = weights - step * (self._slopes(weights, rows, wanted).T @ rows)
        return weights.ravel()


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
