"""Single gradient steps, the samples that attacks recover from them, and exact tests of guesses against chance.

One step of gradient descent on a linear classifier, forwards as its owner makes it and backwards as an attacker.

Forwards (Yonetani et al. 2017, supplement, Eqs. 1-3), for samples x_i with labels y_i = +-1 and weights w:

    w' = prox(w - gamma (1/K sum_i grad loss(y_i w.x_i) + lambda (1 - rho) w)),

where prox takes gamma lambda rho from the size of every weight, but not past zero. With K = 1 that is a step of
scikit-learn's SGDClassifier to the last bit but rounding. Backwards (Eq. 4): whoever knows w, w', gamma and lambda
knows the gradient of the loss, Theta; exactly, except where the lasso set a weight to zero.

| supplement | here |
| --- | --- |
| w-bar_t, w_t^(n) | `before`, `after` |
| gamma_t | `learning_rate` |
| lambda R | `Penalty` |
| Theta | `loss_gradient` |

With `bias` the last weight belongs to a constant feature of one and is not penalised; the supplement has no bias.

What an attack gives back: candidates for a private sample, the most plausible first.

A candidate is a feature vector of the victim, never more certain than the attack: a step of a linear model without a
bias leaves the sign of sample and label open, an unknown learning rate leaves the length open, so an attack returns all
that remain possible. `Recovery.closest` scores them with the truth in hand, which only an audit has.

How sure the mean of a figure over victims is, as the interval that findings carry.

Is a guess better than chance? Exact tests, whatever the guesses look like.

*Values.* The audit hides the truth in a `Disguise`: its entries in a uniformly random order, with random signs, which
nobody else knows. The score of a set of guesses is the largest |cosine| of any of them with the disguised truth, as if
the attacker knew which to choose; chance is the same score with other disguises.

    Claim. If the guesses are independent of the truth, p = (1 + scores of chance at least as large) / (1 + trials) has
    P(p <= alpha) <= alpha.
    Proof. Given the guesses, the true disguise and the `trials` others are independent draws from one distribution, so
    the rank of the true score among them all is uniform (ties count against a finding). []

The claim does not ask that guesses look random; the headers of messages do not, and would otherwise agree by accident
with the order of a picture's rows.

*Signs.* Where the truth was not disguised but every entry of a guess is as likely to have either sign, whatever the
others are, chance is the score with the signs of its entries drawn at random, for the same reason.

*Places.* Of a sparse update an attacker may learn where it is, and nothing of what it is. The score of a set of places
is the share of the update's squares that lies there (as if all signs were known); chance is the same for uniformly
random places, which is what places under a secret permutation are.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from blindsight.audit.finding import Interval
from blindsight.errors import InputError, UnknownNameError

Loss = Literal["hinge", "logistic"]


@dataclass(frozen=True)
class Penalty:
    """lambda (rho |w|_1 + (1 - rho) |w|^2 / 2), with lambda = `strength` and rho = `l1_ratio`."""

    strength: float = 0.0
    l1_ratio: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no penalty."""
        if not self.strength >= 0 or not 0 <= self.l1_ratio <= 1:
            raise InputError(
                f"a penalty has a strength >= 0 and an l1_ratio in [0, 1]; got {self.strength} and {self.l1_ratio}."
            )


NO_PENALTY = Penalty()


def gradient_step(
    before: ArrayLike,
    samples: ArrayLike,
    labels: ArrayLike,
    *,
    loss: Loss,
    learning_rate: float,
    penalty: float | Penalty = 0.0,
    bias: bool = False,
) -> NDArray[np.float64]:
    """Return the weights after one step on the mean loss of these samples; one sample makes it a step of SGD.

    >>> gradient_step([0.0, 0.0], [[3.0, 4.0]], [1], loss="hinge", learning_rate=0.5).tolist()
    [1.5, 2.0]
    """
    if loss not in get_args(Loss):
        raise UnknownNameError("loss", loss, get_args(Loss))
    weights, rows = np.asarray(before, dtype=np.float64), np.atleast_2d(np.asarray(samples, dtype=np.float64))
    if bias:
        rows = np.hstack([rows, np.ones((len(rows), 1))])
    signs = np.asarray(labels, dtype=np.float64)
    if weights.shape != rows.shape[1:] or signs.shape != rows.shape[:1] or not np.isin(signs, (-1, 1)).all():
        raise InputError(
            f"a step needs one weight per feature and a label of -1 or 1 per sample; got {weights.shape} weights, "
            f"{signs.shape} labels and samples of shape {rows.shape}."
        )
    margins = signs * (rows @ weights)
    slopes = (margins <= 1).astype(np.float64) if loss == "hinge" else 1 / (1 + np.exp(np.clip(margins, -500, 500)))
    gradient = -(slopes * signs) @ rows / len(rows)
    ridge, lasso = _strengths(as_penalty(penalty), weights.size, bias)
    moved = weights - learning_rate * (gradient + ridge * weights)
    shrunk: NDArray[np.float64] = np.sign(moved) * np.maximum(np.abs(moved) - learning_rate * lasso, 0)
    return shrunk


def loss_gradient(
    before: ArrayLike,
    after: ArrayLike,
    *,
    learning_rate: float,
    penalty: float | Penalty = 0.0,
    bias: bool = False,
) -> NDArray[np.float64]:
    """Return Theta (Eq. 4), the gradient of the loss that led from `before` to `after`.

    >>> loss_gradient([0.0, 0.0], [1.5, 2.0], learning_rate=0.5).tolist()
    [-3.0, -4.0]
    """
    old, new = weights_of(before, after)
    if not learning_rate > 0:
        raise InputError(f"a learning rate is above 0; got {learning_rate}.")
    ridge, lasso = _strengths(as_penalty(penalty), old.size, bias)
    moved = new + learning_rate * lasso * np.sign(new)
    theta: NDArray[np.float64] = (old - moved) / learning_rate - ridge * old
    return theta


def weights_of(before: ArrayLike, after: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both weight vectors, checked."""
    old, new = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if old.ndim != 1 or old.shape != new.shape or not old.size:
        raise InputError(f"a step leads from one vector of weights to another; got shapes {old.shape} and {new.shape}.")
    if not (np.isfinite(old).all() and np.isfinite(new).all()):
        raise InputError("weights must be finite numbers.")
    return old, new


def as_penalty(penalty: float | Penalty) -> Penalty:
    """Return a penalty; a number is the strength of the square penalty."""
    return penalty if isinstance(penalty, Penalty) else Penalty(float(penalty))


def _strengths(penalty: Penalty, size: int, bias: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the square and the absolute penalty of each weight."""
    penalised = np.ones(size)
    if bias:
        penalised[-1] = 0
    strength = penalty.strength * penalised
    return (1 - penalty.l1_ratio) * strength, penalty.l1_ratio * strength


Vector = NDArray[np.float64]

RECOVERED = 0.99
"""A |cosine| with the truth from which on a vector counts as recovered."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One possible sample and its label (None: any), under the settings that make it one.

    `source` tells who would choose these settings, `plausibility` in (0, 1] how much the sample looks like public ones.
    """

    sample: Vector
    label: int | None
    learning_rate: float
    penalty: Penalty = NO_PENALTY
    source: str = "given"
    plausibility: float | None = None

    def __repr__(self) -> str:
        scored = "" if self.plausibility is None else f", plausibility {self.plausibility:.3g}"
        return f"<Candidate: {self.sample.size} features, label {self.label}, {self.source}{scored}>"


@dataclass(frozen=True, eq=False)
class Recovery:
    """All candidates, best first; none if the step told nothing, and then `reason` says why."""

    candidates: tuple[Candidate, ...] = field(repr=False)
    reason: str = ""

    @property
    def best(self) -> Candidate:
        """The first candidate."""
        if not self.candidates:
            raise InputError(f"nothing was recovered: {self.reason}")
        return self.candidates[0]

    def closest(self, truth: ArrayLike) -> float:
        """Return the largest |cosine| of any candidate with the true sample; 0 if there is none."""
        return max((abs(cosine(candidate.sample, truth)) for candidate in self.candidates), default=0.0)

    def nearest(self, truth: ArrayLike) -> Vector:
        """Return the candidate at the smallest angle to the true sample; zeros if there is none."""
        samples = [np.zeros(np.shape(truth)), *(candidate.sample for candidate in self.candidates)]
        return max(samples, key=lambda sample: cosine(sample, truth))


def cosine(left: ArrayLike, right: ArrayLike) -> float:
    """Return the cosine of the angle between two vectors; 0 if either is zero.

    >>> cosine([3.0, 0.0], [3.0, 4.0])
    0.6
    """
    one, other = np.ravel(np.asarray(left, dtype=np.float64)), np.ravel(np.asarray(right, dtype=np.float64))
    if one.shape != other.shape:
        raise InputError(f"only vectors of one length have an angle; got {one.size} and {other.size} numbers.")
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float(one @ other) / lengths if lengths > 0 else 0.0


def mean_interval(values: Vector, confidence: float = 0.95) -> Interval:
    """Return Student's interval of a mean."""
    mean = float(np.mean(values))
    reach = float(student.isf((1 - confidence) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Interval(mean, mean - reach, mean + reach, confidence)


_CHUNK = 256


@dataclass(frozen=True)
class ChanceTest:
    """A score, the score that chance exceeds with probability `false_alarm`, and the p-value of `trials` draws."""

    score: float
    threshold: float
    p_value: float
    false_alarm: float
    trials: int

    @property
    def at_chance(self) -> bool:
        """Whether the score is no better than guessing; by bad luck alone it is with probability `false_alarm`."""
        return self.p_value > self.false_alarm


@dataclass(frozen=True, eq=False)
class Disguise:
    """A random order and random signs of the entries of a vector."""

    order: NDArray[np.int64]
    signs: NDArray[np.float64]

    @classmethod
    def draw(cls, size: int, generator: np.random.Generator) -> "Disguise":
        """Return one of all disguises, each as likely as any other."""
        return cls(generator.permutation(size), generator.choice([-1.0, 1.0], size=size))

    def hide(self, vector: NDArray[Any]) -> NDArray[Any]:
        hidden: NDArray[Any] = self.signs * vector[self.order]
        return hidden

    def reveal(self, disguised: NDArray[Any]) -> NDArray[Any]:
        """Undo `hide`."""
        vector = np.empty_like(disguised)
        vector[self.order] = self.signs * disguised
        return vector


def needed_trials(false_alarm: float) -> int:
    """Return how many draws of chance a false-alarm rate takes.

    >>> needed_trials(0.001)
    999
    """
    if not 1e-6 <= false_alarm < 1:
        raise InputError(f"a false-alarm rate must be in [1e-6, 1); got {false_alarm}. It takes 1 / rate draws.")
    return math.ceil(1 / false_alarm - 1e-9) - 1


def values_test(
    guesses: NDArray[np.float64],
    truth: NDArray[np.float64],
    *,
    generator: np.random.Generator,
    false_alarm: float,
) -> ChanceTest:
    """Test guesses, one per row, of a disguised vector."""
    if guesses.ndim != 2 or guesses.shape[1:] != truth.shape or not len(guesses):
        raise InputError(f"guesses are rows of {truth.size} numbers; got shape {guesses.shape}.")
    if not truth.any():
        raise InputError("the truth is zero: every guess has the same angle with it.")
    rows = (guesses / np.maximum(np.linalg.norm(guesses, axis=1, keepdims=True), 1e-300)).astype(np.float32)
    unit = (truth / np.linalg.norm(truth)).astype(np.float32)
    drawn = np.empty(needed_trials(false_alarm))
    for start in range(0, drawn.size, _CHUNK):
        others = np.tile(unit, (min(_CHUNK, drawn.size - start), 1))
        generator.permuted(others, axis=1, out=others)
        others *= generator.choice(np.array([-1, 1], dtype=np.float32), size=others.shape)
        drawn[start : start + len(others)] = np.abs(rows @ others.T).max(axis=0)
    return _test(float(np.abs(rows @ unit).max()), drawn, false_alarm)


def signs_test(
    guesses: NDArray[np.float64],
    truth: NDArray[np.float64],
    *,
    generator: np.random.Generator,
    false_alarm: float,
) -> ChanceTest:
    """Test guesses, one per row, whose entries are as likely to have either sign if nothing was learned."""
    lengths = np.maximum(np.linalg.norm(guesses, axis=1, keepdims=True), 1e-300)
    agreement = (guesses / lengths * (truth / np.linalg.norm(truth))).astype(np.float32)
    drawn = np.empty(needed_trials(false_alarm))
    for start in range(0, drawn.size, _CHUNK):
        shape = agreement.shape[1], min(_CHUNK, drawn.size - start)
        signs = generator.choice(np.array([-1, 1], dtype=np.float32), size=shape)
        drawn[start : start + shape[1]] = np.abs(agreement @ signs).max(axis=0)
    return _test(float(np.abs(agreement.sum(axis=1)).max()), drawn, false_alarm)


def places_test(
    places: NDArray[np.int64],
    truth: NDArray[np.float64],
    *,
    block: int,
    generator: np.random.Generator,
    false_alarm: float,
) -> ChanceTest:
    """Test places, numbers of blocks of consecutive entries, against where the truth is."""
    squares = np.add.reduceat(truth**2, np.arange(0, truth.size, block)) / np.sum(truth**2)
    chosen = np.unique(places)
    if chosen.size and not 0 <= chosen[0] <= chosen[-1] < squares.size:
        raise InputError(f"places are blocks 0 to {squares.size - 1}.")
    drawn = np.empty(needed_trials(false_alarm))
    for start in range(0, drawn.size, _CHUNK):
        others = generator.permuted(np.tile(squares, (min(_CHUNK, drawn.size - start), 1)), axis=1)
        drawn[start : start + len(others)] = others[:, : chosen.size].sum(axis=1)
    return _test(float(squares[chosen].sum()), drawn, false_alarm)


def _test(score: float, drawn: NDArray[np.float64], false_alarm: float) -> ChanceTest:
    larger = int(np.count_nonzero(drawn >= score - 1e-6))  # ties, up to single precision, count for chance
    threshold = float(np.quantile(drawn, 1 - false_alarm, method="higher"))
    return ChanceTest(score, threshold, (1 + larger) / (1 + drawn.size), false_alarm, drawn.size)
