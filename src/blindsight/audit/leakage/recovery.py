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

Private samples from plain updates of linear classifiers, and one round of every kind of update that leaks.

The private sample behind a plain step of a linear classifier, recovered exactly.

Supplement of Yonetani et al. (ICCV 2017), section 2. Whoever sees the weights before and after a step and knows
learning rate and penalty has Theta, the gradient of the loss (`loss_gradient`), and solves it for the sample z:

- *hinge loss*: z = (Theta, -1) or (-Theta, 1), unless Theta = 0: then the sample was classified well and stays unknown;
- *logistic loss*: Theta = -X / (1 + exp(w.X)) with X = y x. X is -c Theta for some c > 1, which leaves one equation in
  one unknown, c = 1 + exp(-c a) with a = w.Theta. Newton's method solves it; z = (X, 1) or (-X, -1);
- *an average over samples of one class*: -y Theta is proportional to the mean of the samples that were not classified
  well (hinge), or to the mean weighted by how wrongly each was classified (logistic), Eqs. 5 and 6.

What the supplement does not say:

- *X need not be unique.* f(c) = c - 1 - exp(-a c) is concave. For a >= 0 (the sample was misclassified) it has one
  root; for a < 0 it has two, or none when a < -W(1/e) = -0.278...: a small gradient comes from a sample that is short
  or from one that is far on the right side. Both are returned.
- *A bias gives everything away.* Its feature is one, so the sample is the ratio Theta_w / Theta_b whatever the loss,
  and the sign of its change is the label. Of a hinge step it also is the learning rate; of a logistic step that follows
  from gamma = |change of b| / P(wrong | x). Only the penalty is left to be guessed, and `guesses` does.

Attacks without the learning rate and the penalty: guessed, and how often the guess is right.

Learning rate and penalty are no secrets: the defaults of the usual libraries are few, and the result tells.

The supplement of Yonetani et al. (2017, section 2.1) supposes that both "can be guessed (e.g., when using a default
parameter of open source libraries)". Here they are: every setting is tried, and the samples that come out are ranked by
how much they look like public ones. A wrong learning rate gives a sample of the wrong length, a wrong penalty one that
leans towards the old weights and is nowhere exactly black, a wrong sign one on the other side of the public mean; the
right one stands out.

How often a sample is recovered by somebody who was told neither learning rate nor penalty.

Every victim makes one step of SGD on its own sample with settings drawn from those that libraries have by default; the
attacker tries them all and names one candidate. It succeeds if that one is the sample, sign and all.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from blindsight.audit.finding import Finding, Interval, rate
from blindsight.errors import InputError, UnknownNameError
from blindsight.progress import Progress, silent
from blindsight.rng import science

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


_NEWTON_STEPS = 100
_LARGEST_FACTOR = 1e12  # a sample that is wrong with probability 1e-12 makes no step worth the name
_NO_STEP = "the step shows no gradient of a loss: every sample was classified well, or the settings are wrong."


def recover_from_hinge_step(
    before: ArrayLike,
    after: ArrayLike,
    learning_rate: float | None = None,
    penalty: float | Penalty = 0.0,
    *,
    bias: bool = False,
) -> Recovery:
    """Return the sample of a step of SGD with hinge loss: two candidates, or the one that a `bias` leaves.

    `learning_rate` may be left out if there is a bias, the last weight.

    >>> found = recover_from_hinge_step([0.0, 0.0], [1.5, 2.0], learning_rate=0.5)
    >>> [(candidate.sample.tolist(), candidate.label) for candidate in found.candidates]
    [([-3.0, -4.0], -1), ([3.0, 4.0], 1)]
    """
    old, new = weights_of(before, after)
    rate = _bias_change(old, new, bias) if learning_rate is None else learning_rate
    if rate == 0:
        return Recovery((), _NO_STEP)
    theta = loss_gradient(old, new, learning_rate=rate, penalty=penalty, bias=bias)
    if bias:
        return _from_bias(theta, rate, penalty)
    if _is_nothing(theta, old):
        return Recovery((), _NO_STEP)
    return _both_signs(theta, -1, rate, penalty)


def recover_from_logistic_step(
    before: ArrayLike,
    after: ArrayLike,
    learning_rate: float | None = None,
    penalty: float | Penalty = 0.0,
    *,
    bias: bool = False,
) -> Recovery:
    """Return the sample of a step of SGD with logistic loss: two or four candidates, or the one that a `bias` leaves.

    `learning_rate` may be left out if there is a bias, the last weight.
    """
    old, new = weights_of(before, after)
    rate = _logistic_rate(old, new, penalty, bias) if learning_rate is None else learning_rate
    if rate == 0:
        return Recovery((), _NO_STEP)
    theta = loss_gradient(old, new, learning_rate=rate, penalty=penalty, bias=bias)
    if bias:
        return _from_bias(theta, rate, penalty)
    if _is_nothing(theta, old):
        return Recovery((), _NO_STEP)
    found: list[Candidate] = []
    for factor in logistic_factors(float(old @ theta)):
        found += _both_signs(-factor * theta, 1, rate, penalty).candidates
    return Recovery(tuple(found), "" if found else "no sample gives this gradient: the settings are wrong.")


def recover_mean_of_errors(
    before: ArrayLike,
    after: ArrayLike,
    learning_rate: float | None = None,
    penalty: float | Penalty = 0.0,
    *,
    label: int | None = None,
    bias: bool = False,
) -> Recovery:
    """Return the mean of the samples not classified well, from a step on the mean loss of samples of one class.

    Without a bias it is known up to its length, and up to its sign unless `label` tells the class; with one, exactly
    (hinge loss); left out, the learning rate is then taken for the one at which all samples were errors.
    """
    old, new = weights_of(before, after)
    rate = _bias_change(old, new, bias) if learning_rate is None else learning_rate
    if rate == 0:
        return Recovery((), _NO_STEP)
    theta = loss_gradient(old, new, learning_rate=rate, penalty=penalty, bias=bias)
    if bias:
        return _from_bias(theta, rate, penalty)
    if _is_nothing(theta, old):
        return Recovery((), _NO_STEP)
    both = _both_signs(theta, -1, rate, penalty).candidates
    return Recovery(tuple(candidate for candidate in both if label in (None, candidate.label)))


def logistic_factors(alignment: float) -> tuple[float, ...]:
    """Return every c with c = 1 + exp(-c a), ascending, where a = w.Theta is the `alignment`: one, two or none.

    >>> logistic_factors(0.0)
    (2.0,)
    >>> len(logistic_factors(-0.2)), len(logistic_factors(-0.3))
    (2, 0)
    """
    a = float(alignment)
    smaller = _newton(a, 1.0)
    if a >= 0 or _excess(a, _LARGEST_FACTOR) > 0:
        return (smaller,)
    top = math.log(-a) / a  # where f is largest
    if _excess(a, top) < 0:
        return ()
    start = 2 * top
    while _excess(a, start) > 0:
        start *= 2
    return (smaller, _newton(a, start))


def _excess(a: float, c: float) -> float:
    """Return f(c) = c - 1 - exp(-a c)."""
    return c - 1 - math.exp(min(-a * c, 700))


def _newton(a: float, c: float) -> float:
    """Solve f(c) = 0 from outside the roots, where f < 0: f is concave, so no step passes one."""
    for _ in range(_NEWTON_STEPS):
        slope = 1 + a * math.exp(min(-a * c, 700))
        step = _excess(a, c) / slope if slope else 0.0
        c -= step
        if abs(step) <= 1e-15 * abs(c):
            break
    return c


def _logistic_rate(old: NDArray[np.float64], new: NDArray[np.float64], penalty: float | Penalty, bias: bool) -> float:
    """Return the smallest gamma with gamma = |change of b| / P(wrong | x), where x depends on gamma by the penalty.

    0 if there is none.
    """
    change = _bias_change(old, new, bias)
    if change == 0:
        return 0.0
    rate = change
    for _ in range(_NEWTON_STEPS):  # from below: the right side grows with gamma
        theta = loss_gradient(old, new, learning_rate=rate, penalty=penalty, bias=True)
        label = -math.copysign(1, theta[-1])
        margin = label * (float(old[:-1] @ theta[:-1]) / float(theta[-1]) + float(old[-1]))
        last, rate = rate, change * (1 + math.exp(min(margin, 700)))
        if abs(rate - last) <= 1e-14 * rate:
            return rate
    return 0.0


def _from_bias(theta: NDArray[np.float64], rate: float, penalty: float | Penalty) -> Recovery:
    """Return the ratio of the weights' gradient to the bias's."""
    if theta[-1] == 0:
        return Recovery((), _NO_STEP)
    label = -1 if theta[-1] > 0 else 1
    return Recovery((Candidate(theta[:-1] / theta[-1], label, rate, as_penalty(penalty)),))


def _both_signs(sample: NDArray[np.float64], label: int, rate: float, penalty: float | Penalty) -> Recovery:
    kind = as_penalty(penalty)
    return Recovery((Candidate(sample, label, rate, kind), Candidate(-sample, -label, rate, kind)))


def _bias_change(old: NDArray[np.float64], new: NDArray[np.float64], bias: bool) -> float:
    """Return by how much the bias moved, which tells the learning rate."""
    if not bias:
        raise InputError("without a bias the learning rate must be given. Try `recover_with_guesses`.")
    return abs(float(new[-1] - old[-1]))


def _is_nothing(theta: NDArray[np.float64], old: NDArray[np.float64]) -> bool:
    """Whether what is left of a step is no more than rounding."""
    return bool(np.linalg.norm(theta) <= 1e-9 * max(float(np.linalg.norm(old)), 1e-300))


_SPREAD_FLOOR = 0.02  # traits that all public samples share to the last digit, such as a norm of one, are not infinite


@dataclass(frozen=True)
class Setting:
    """A learning rate and a penalty, and who uses them."""

    source: str
    learning_rate: float
    penalty: Penalty


def library_settings(step: int = 1, alphas: Iterable[float] = (1e-4, 1e-3, 1e-5)) -> tuple[Setting, ...]:
    """Return the usual settings at the `step`-th update of a run, from 1; each pair of numbers once.

    scikit-learn's SGDClassifier is there with all schedules, for its default strength and the other `alphas`.

    >>> first = library_settings()[0]
    >>> first.source, round(first.learning_rate, 9), first.penalty.strength
    ('scikit-learn, optimal', 10.0, 0.0001)
    """
    if step < 1:
        raise InputError(f"steps count from 1; got {step}.")
    settings = [
        _scikit_learn(schedule, Penalty(alpha, l1_ratio), step)
        for l1_ratio in (0.0, 0.15)  # penalty="l2" and "elasticnet"
        for alpha in alphas
        for schedule in _SCHEDULES
    ]
    settings += [Setting(f"Pegasos, lambda {alpha:g}", 1 / (alpha * step), Penalty(alpha)) for alpha in alphas]
    settings += [
        Setting(f"{name}, weight decay {decay:g}" if decay else name, rate, Penalty(decay))
        for name, rate in _CONSTANT_RATES.items()
        for decay in (0.0, 1e-4, 5e-4)
    ]
    distinct: dict[tuple[float, Penalty], Setting] = {}
    for setting in settings:
        distinct.setdefault((setting.learning_rate, setting.penalty), setting)
    return tuple(distinct.values())


_CONSTANT_RATES = {
    "PyTorch": 1e-3,
    "Keras": 1e-2,
    "the usual 0.1": 0.1,
    "Vowpal Wabbit": 0.5,
    "the textbook's 1": 1.0,
}


def _optimal(alpha: float, step: int) -> float:
    """Bottou's heuristic, as scikit-learn has it: 1 / (alpha (t0 + t - 1)), which begins at alpha^-1/4."""
    return 1 / (alpha * (math.pow(alpha, -0.75) + step - 1))


_SCHEDULES: dict[str, Callable[[float, int], float]] = {
    "optimal": _optimal,
    "constant": lambda alpha, step: 0.01,
    "invscaling": lambda alpha, step: 0.01 / math.sqrt(step),
}


def _scikit_learn(schedule: str, penalty: Penalty, step: int) -> Setting:
    alpha = penalty.strength
    unusual = ("" if alpha == 1e-4 else f", alpha {alpha:g}") + (", elastic net" if penalty.l1_ratio else "")
    return Setting(f"scikit-learn, {schedule}{unusual}", _SCHEDULES[schedule](alpha, step), penalty)


@dataclass(frozen=True, eq=False)
class PublicLook:
    """What samples of this kind look like: length, lean to the mean, distance from it, and share of exact zeros.

    The last one tells penalties apart: of pictures with black pixels, or of features behind a ReLU, only the right one
    leaves exact zeros.
    """

    mean: Vector
    scale: Vector
    typical: Vector  # the four traits of public samples: mean
    spread: Vector  # and standard deviation

    @classmethod
    def of(cls, public: ArrayLike) -> "PublicLook":
        """Learn the look from public samples, one per row."""
        rows = np.asarray(public, dtype=np.float64)
        if rows.ndim != 2 or len(rows) < 10:
            raise InputError(f"how samples look is learned from 10 public ones or more; got shape {rows.shape}.")
        mean, deviations = rows.mean(axis=0), rows.std(axis=0)
        scale = np.maximum(deviations, 0.1 * max(float(deviations.mean()), 1e-12))
        traits = _traits(rows, mean, scale)
        return cls(mean, scale, traits.mean(axis=0), np.maximum(traits.std(axis=0), _SPREAD_FLOOR))

    def plausibility(self, sample: Vector) -> float:
        """Return 1 / (1 + z^2), averaged over the traits: 1 for a typical sample, 1/2 one standard deviation off."""
        off = (_traits(sample[None], self.mean, self.scale)[0] - self.typical) / self.spread
        return float(1 / (1 + np.mean(off**2)))


def _traits(rows: NDArray[np.float64], mean: Vector, scale: Vector) -> NDArray[np.float64]:
    lengths = np.linalg.norm(rows, axis=1)
    leans = rows @ mean / np.maximum(lengths * np.linalg.norm(mean), 1e-300)
    distances = np.sqrt(np.mean(((rows - mean) / scale) ** 2, axis=1))
    zeros = np.mean(np.abs(rows) <= 1e-9 * np.abs(rows).max(axis=1, keepdims=True), axis=1)
    lengths, distances = np.maximum(lengths, 1e-300), np.maximum(distances, 1e-300)
    return np.stack([np.log(lengths), leans, np.log(distances), zeros], axis=1)


def recover_with_guesses(
    before: ArrayLike,
    after: ArrayLike,
    public: ArrayLike,
    *,
    loss: Loss,
    settings: Iterable[Setting] | None = None,
    bias: bool = False,
) -> Recovery:
    """Return the samples that the step may come from under all `settings` (library defaults), most plausible first.

    `public` are samples of the same kind. A candidate from which the step would not follow is left out. With a `bias`,
    which tells the learning rate, only penalties are guessed, and settings that some library has come first.
    """
    if loss not in _RECOVER:
        raise UnknownNameError("loss", loss, _RECOVER)
    look, (old, new) = PublicLook.of(public), weights_of(before, after)
    if look.mean.size != old.size - bias:
        raise InputError(f"public samples have {look.mean.size} features; the weights are for {old.size - bias}.")
    known = library_settings() if settings is None else tuple(settings)
    found = _read_off_bias(old, new, loss, known) if bias else _tried(old, new, loss, known)
    explained = [replace(each, plausibility=look.plausibility(each.sample)) for each in found]
    explained.sort(key=lambda each: (each.source == _READ_OFF, -(each.plausibility or 0.0)))
    return Recovery(tuple(explained), "" if explained else "no setting explains the step.")


_RECOVER = {"hinge": recover_from_hinge_step, "logistic": recover_from_logistic_step}
_READ_OFF = "read off the bias"


def _tried(old: Vector, new: Vector, loss: Loss, settings: tuple[Setting, ...]) -> list[Candidate]:
    """Return what each setting leads to, if the step would follow from it."""
    found: list[Candidate] = []
    for setting in settings:
        led_to = _RECOVER[loss](old, new, setting.learning_rate, setting.penalty).candidates
        found += [replace(each, source=setting.source) for each in led_to if _reproduces(each, old, new, loss)]
    return found


def _read_off_bias(old: Vector, new: Vector, loss: Loss, settings: tuple[Setting, ...]) -> list[Candidate]:
    """Return what each penalty leads to, with the name of the setting that its learning rate belongs to."""
    found = []
    for penalty in dict.fromkeys(setting.penalty for setting in settings):
        for candidate in _RECOVER[loss](old, new, None, penalty, bias=True).candidates:
            names = [
                setting.source
                for setting in settings
                if setting.penalty == penalty
                and math.isclose(setting.learning_rate, candidate.learning_rate, rel_tol=1e-6)
            ]
            found.append(replace(candidate, source=names[0] if names else _READ_OFF))
    return found


def _reproduces(candidate: Candidate, old: Vector, new: Vector, loss: Loss) -> bool:
    """Whether a step on the candidate leads where the victim's did: not if its hinge loss has no gradient."""
    again = gradient_step(
        old,
        candidate.sample,
        [candidate.label or 1],
        loss=loss,
        learning_rate=candidate.learning_rate,
        penalty=candidate.penalty,
    )
    return bool(np.linalg.norm(again - new) <= 1e-6 * np.linalg.norm(new - old))


@dataclass(frozen=True, eq=False)
class UnknownSettingsLeak:
    """The cosine of the first candidate with the sample, per victim (0 if there was none), and the last candidate."""

    loss: Loss
    bias: bool
    cosines: Vector = field(repr=False)
    sample: Vector = field(repr=False)

    @property
    def recovered(self) -> int:
        """How many victims' samples were named."""
        return int(np.count_nonzero(self.cosines >= RECOVERED))


def attack_unknown_settings(
    samples: ArrayLike,
    public: ArrayLike,
    *,
    loss: Loss,
    bias: bool = False,
    victims: int = 50,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> UnknownSettingsLeak:
    """Attack so many victims, each with one of the private samples; `public` samples tell what samples look like."""
    rows, known = np.asarray(samples, dtype=np.float64), np.asarray(public, dtype=np.float64)
    if rows.ndim != 2 or not len(rows) or victims < 1:
        raise InputError(f"an attack takes samples, one per row, and a victim; got {rows.shape} and {victims}.")
    generator, settings, size = science(random_state), library_settings(), rows.shape[1]
    scale = 0.3 / np.sqrt(size) / np.mean(np.linalg.norm(rows, axis=1))
    cosines, sample = np.zeros(victims), np.zeros(size)
    for victim in range(victims):
        truth, label = rows[generator.integers(len(rows))], int(generator.choice([-1, 1]))
        setting = settings[generator.integers(len(settings))]
        before = scale * generator.normal(size=size + bias)
        after = gradient_step(
            before,
            truth,
            [label],
            loss=loss,
            learning_rate=setting.learning_rate,
            penalty=setting.penalty,
            bias=bias,
        )
        found = recover_with_guesses(before, after, known, loss=loss, bias=bias)
        if found.candidates:
            sample = found.best.sample
            cosines[victim] = cosine(sample, truth)
        progress("guessing settings", victim + 1, victims)
    return UnknownSettingsLeak(loss, bias, cosines, sample)


def unknown_settings_findings(leaks: Iterable[UnknownSettingsLeak]) -> tuple[Finding, ...]:
    """Return one row per loss."""
    return tuple(
        Finding(
            claim="whoever knows a library's defaults reads the sample from a plain step",
            source="Yonetani et al. 2017, supplement, section 2.1",
            proven="for given settings",
            measure=f"share of {len(leak.cosines)} samples recovered (cosine >= {RECOVERED})",
            measured=rate(leak.recovered, len(leak.cosines)),
            verdict="as stated" if leak.recovered else "not refuted",
            attack=f"{leak.loss} step {'with' if leak.bias else 'without'} a bias, settings guessed",
            details={"mean_cosine": float(np.mean(leak.cosines))},
        )
        for leak in leaks
    )
