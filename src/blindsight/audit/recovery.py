"""Samples recovered from single gradient steps of linear classifiers, and exact tests of guesses against chance.

*A step* (Yonetani et al. 2017, supplement, Eqs. 1-3), for samples x_i with labels y_i = +-1 and weights w:

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

*The sample behind it* (section 2, `recover_sample`). Theta is solved for the sample z:

- *hinge loss*: z = (Theta, -1) or (-Theta, 1), unless Theta = 0: then the sample was classified well and stays unknown;
- *logistic loss*: Theta = -X / (1 + exp(w.X)) with X = y x. X is -c Theta for some c > 1, which leaves one equation in
  one unknown, c = 1 + exp(-c a) with a = w.Theta; z = (X, 1) or (-X, -1);
- *an average over samples of one class*: -y Theta is proportional to the mean of the samples that were not classified
  well (hinge), or to the mean weighted by how wrongly each was classified (logistic), Eqs. 5 and 6.

What the supplement does not say:

- *X need not be unique.* c = 1 + W(a e^-a) / a with Lambert's W, which has one real branch for a >= 0 (the sample was
  misclassified); for a < 0 it has two, or none when a < -W(1/e) = -0.278...: a small gradient comes from a sample that
  is short or from one that is far on the right side. Both are returned.
- *A bias gives everything away.* Its feature is one, so the sample is the ratio Theta_w / Theta_b whatever the loss,
  and the sign of its change is the label. Of a hinge step it also is the learning rate; of a logistic step that follows
  from gamma = |change of b| / P(wrong | x). Only the penalty is left to be guessed.

*Better than chance?* (`signs_test`) Where every entry of a guess is as likely to have either sign, whatever the others
are, chance is the score with the signs of the entries drawn at random. The score of a set of guesses is the largest
|cosine| of any of them with the truth, as if the attacker knew which to choose.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, lambertw
from scipy.stats import t as student

from blindsight.audit.finding import Finding, Interval, Verdict, rate
from blindsight.errors import InputError, UnknownNameError
from blindsight.sums.dphe import single_contributor_share

Loss = Literal["hinge", "logistic"]
Vector = NDArray[np.float64]
RECOVERED = 0.99
"""A |cosine| with the truth from which on a vector counts as recovered."""
_LARGEST_FACTOR = 1e12  # a sample that is wrong with probability 1e-12 makes no step worth the name
_ITERATIONS = 100
_NO_STEP = "the step shows no gradient of a loss: every sample was classified well, or the settings are wrong."
ROUNDING = 1e-6  # what single precision leaves of nothing
_CHUNK = 256


# A step, forwards and backwards


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

    @classmethod
    def of(cls, penalty: "float | Penalty") -> "Penalty":
        """Return a penalty; a number is the strength of the square penalty."""
        return penalty if isinstance(penalty, Penalty) else cls(float(penalty))

    def strengths(self, size: int, bias: bool) -> tuple[Vector, Vector]:
        """Return the square and the absolute penalty of each weight."""
        strength = self.strength * np.ones(size)
        if bias:
            strength[-1] = 0
        return (1 - self.l1_ratio) * strength, self.l1_ratio * strength


def gradient_step(
    before: ArrayLike,
    samples: ArrayLike,
    labels: ArrayLike,
    *,
    loss: Loss,
    learning_rate: float,
    penalty: float | Penalty = 0.0,
    bias: bool = False,
) -> Vector:
    """Return the weights after one step on the mean loss of these samples; one sample makes it a step of SGD.

    >>> gradient_step([0.0, 0.0], [[3.0, 4.0]], [1], loss="hinge", learning_rate=0.5).tolist()
    [1.5, 2.0]
    """
    _check_loss(loss)
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
    ridge, lasso = Penalty.of(penalty).strengths(weights.size, bias)
    moved = weights - learning_rate * (gradient + ridge * weights)
    shrunk: Vector = np.sign(moved) * np.maximum(np.abs(moved) - learning_rate * lasso, 0)
    return shrunk


def loss_gradient(
    before: ArrayLike, after: ArrayLike, *, learning_rate: float, penalty: float | Penalty = 0.0, bias: bool = False
) -> Vector:
    """Return Theta (Eq. 4), the gradient of the loss that led from `before` to `after`.

    >>> loss_gradient([0.0, 0.0], [1.5, 2.0], learning_rate=0.5).tolist()
    [-3.0, -4.0]
    """
    old, new = check_step(before, after)
    if not learning_rate > 0:
        raise InputError(f"a learning rate is above 0; got {learning_rate}.")
    ridge, lasso = Penalty.of(penalty).strengths(old.size, bias)
    moved = new + learning_rate * lasso * np.sign(new)
    theta: Vector = (old - moved) / learning_rate - ridge * old
    return theta


def check_step(before: ArrayLike, after: ArrayLike) -> tuple[Vector, Vector]:
    old, new = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if old.ndim != 1 or old.shape != new.shape or not old.size:
        raise InputError(f"a step leads from one vector of weights to another; got shapes {old.shape} and {new.shape}.")
    if not (np.isfinite(old).all() and np.isfinite(new).all()):
        raise InputError("weights must be finite numbers.")
    return old, new


def _check_loss(loss: str) -> None:
    if loss not in get_args(Loss):
        raise UnknownNameError("loss", loss, get_args(Loss))


# The sample behind a step


@dataclass(frozen=True, eq=False)
class Candidate:
    """One possible sample and its label (None: any), under the settings that make it one.

    `source` tells who would choose these settings, `plausibility` in (0, 1] how much the sample looks like public ones.
    """

    sample: Vector
    label: int | None
    learning_rate: float
    penalty: Penalty = field(default_factory=Penalty)
    source: str = "given"
    plausibility: float | None = None

    def __repr__(self) -> str:
        scored = "" if self.plausibility is None else f", plausibility {self.plausibility:.3g}"
        return f"<Candidate: {self.sample.size} features, label {self.label}, {self.source}{scored}>"


@dataclass(frozen=True, eq=False)
class Recovery:
    """All candidates that remain possible, best first; none if the step told nothing, and then `reason` says why."""

    candidates: tuple[Candidate, ...] = field(repr=False)
    reason: str = ""

    @property
    def best(self) -> Candidate:
        """The first candidate."""
        if not self.candidates:
            raise InputError(f"nothing was recovered: {self.reason}")
        return self.candidates[0]

    def closest(self, truth: ArrayLike) -> float:
        """Return the largest |cosine| of any candidate with the true sample, which only an audit has; 0 if none."""
        return max((abs(cosine(candidate.sample, truth)) for candidate in self.candidates), default=0.0)


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


def recover_sample(
    before: ArrayLike,
    after: ArrayLike,
    learning_rate: float | None = None,
    penalty: float | Penalty = 0.0,
    *,
    loss: Loss = "hinge",
    bias: bool = False,
    label: int | None = None,
) -> Recovery:
    """Return the sample of a step of SGD: two or (logistic) four candidates, or the one that a `bias` leaves.

    Of a step on the mean loss of samples of one class it is the mean of those not classified well, up to its length
    without a bias. With a bias the learning rate may be left out; of an average it is then taken for the one at which
    all samples were errors. A known `label` leaves its candidates alone.

    >>> found = recover_sample([0.0, 0.0], [1.5, 2.0], learning_rate=0.5)
    >>> [(candidate.sample.tolist(), candidate.label) for candidate in found.candidates]
    [([-3.0, -4.0], -1), ([3.0, 4.0], 1)]
    """
    _check_loss(loss)
    old, new = check_step(before, after)
    gamma, kind = learning_rate, Penalty.of(penalty)
    if gamma is None:
        if not bias:
            raise InputError("without a bias the learning rate must be given. Try `recover_with_guesses`.")
        gamma = abs(float(new[-1] - old[-1]))
        gamma = gamma if loss == "hinge" or not gamma else _logistic_rate(old, new, kind, gamma)
    if gamma == 0:
        return Recovery((), _NO_STEP)
    theta = loss_gradient(old, new, learning_rate=gamma, penalty=kind, bias=bias)
    if bias:
        found = [] if theta[-1] == 0 else [(theta[:-1] / theta[-1], -1 if theta[-1] > 0 else 1)]
    elif np.linalg.norm(theta) <= 1e-9 * max(float(np.linalg.norm(old)), 1e-300):  # no more than rounding
        found = []
    elif loss == "hinge":
        found = [(theta, -1), (-theta, 1)]
    else:
        factors = logistic_factors(float(old @ theta))
        if not factors:
            return Recovery((), "no sample gives this gradient: the settings are wrong.")
        found = [(sign * -factor * theta, sign) for factor in factors for sign in (1, -1)]
    kept = tuple(Candidate(sample, sign, gamma, kind) for sample, sign in found if label in (None, sign))
    return Recovery(kept, "" if kept else _NO_STEP)


def logistic_factors(alignment: float) -> tuple[float, ...]:
    """Return every c with c = 1 + exp(-c a), ascending, where a = w.Theta is the `alignment`: one, two or none.

    >>> logistic_factors(0.0)
    (2.0,)
    >>> len(logistic_factors(-0.2)), len(logistic_factors(-0.3))
    (2, 0)
    """
    a = float(alignment)
    if abs(a) < 1e-300:
        return (2.0,)
    if a < -0.279:  # no real branch, and far below e^-a overflows
        return ()
    branches = [lambertw(a * math.exp(-a), branch) for branch in ((0,) if a > 0 else (0, -1))]
    factors = sorted(1 + branch.real / a for branch in branches if branch.imag == 0)
    return tuple(float(factor) for factor in factors if factor < _LARGEST_FACTOR)


def _logistic_rate(old: Vector, new: Vector, penalty: Penalty, change: float) -> float:
    """Return the smallest gamma with gamma = |change of b| / P(wrong | x), where x depends on gamma by the penalty.

    0 if there is none.
    """
    gamma = change
    for _ in range(_ITERATIONS):  # from below: the right side grows with gamma
        theta = loss_gradient(old, new, learning_rate=gamma, penalty=penalty, bias=True)
        label = -math.copysign(1, theta[-1])
        margin = label * (float(old[:-1] @ theta[:-1]) / float(theta[-1]) + float(old[-1]))
        last, gamma = gamma, change * (1 + math.exp(min(margin, 700)))
        if abs(gamma - last) <= 1e-14 * gamma:
            return gamma
    return 0.0


# Guesses against chance


def mean_interval(values: Vector, confidence: float = 0.95) -> Interval:
    """Return Student's interval of a mean."""
    mean = float(np.mean(values))
    reach = float(student.isf((1 - confidence) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Interval(mean, mean - reach, mean + reach, confidence)


@dataclass(frozen=True)
class ChanceTest:
    """The score of the best of so many `guesses`, and the p-value of `trials` draws.

    Chance exceeds the `threshold` with probability `false_alarm`.
    """

    score: float
    threshold: float
    p_value: float
    false_alarm: float
    trials: int
    guesses: int
    size: int
    """How many entries a guess has."""

    @property
    def at_chance(self) -> bool:
        """Whether the score is no better than guessing; by bad luck alone it is with probability `false_alarm`."""
        return self.p_value > self.false_alarm

    @property
    def found_nothing(self) -> bool:
        """Whether nothing was learned of a vector: at chance, and no guess is so near to it that it cannot be luck.

        Signs alone cannot tell for a few entries. There, luck is how often as many random directions come as near.
        """
        missing = max(1 - self.score**2, ROUNDING)
        luck = self.guesses * betainc(max(self.size - 1, ROUNDING) / 2, 0.5, missing)
        return self.at_chance and bool(self.score < RECOVERED or luck > self.false_alarm)


def needed_trials(false_alarm: float) -> int:
    """Return how many draws of chance a false-alarm rate takes.

    >>> needed_trials(0.001)
    999
    """
    if not 1e-6 <= false_alarm < 1:
        raise InputError(f"a false-alarm rate must be in [1e-6, 1); got {false_alarm}. It takes 1 / rate draws.")
    return math.ceil(1 / false_alarm - 1e-9) - 1


def signs_test(guesses: Vector, truth: Vector, *, generator: np.random.Generator, false_alarm: float) -> ChanceTest:
    """Test guesses, one per row, whose entries are as likely to have either sign if nothing was learned."""
    agreement = unit_rows(guesses) * (truth / np.linalg.norm(truth)).astype(np.float32)

    def chance(trials: int) -> NDArray[Any]:
        return np.asarray(np.abs(agreement @ random_signs((agreement.shape[1], trials), generator)).max(axis=0))

    return compare_with_chance(float(np.abs(agreement.sum(axis=1)).max()), chance, false_alarm, guesses.shape)


def unit_rows(rows: Vector) -> NDArray[np.float32]:
    units: NDArray[np.float32] = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)).astype("f4")
    return units


def random_signs(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float32]:
    return generator.choice(np.array([-1, 1], dtype=np.float32), size=shape)


def compare_with_chance(
    score: float, chance: Callable[[int], NDArray[Any]], false_alarm: float, shape: tuple[int, ...]
) -> ChanceTest:
    """Compare a score of guesses with as many of chance as the false-alarm rate takes, drawn by the chunk."""
    trials = needed_trials(false_alarm)
    drawn = np.concatenate([chance(min(_CHUNK, trials - start)) for start in range(0, trials, _CHUNK)])
    larger = int(np.count_nonzero(drawn >= score - ROUNDING))  # ties, up to single precision, count for chance
    threshold = float(np.quantile(drawn, 1 - false_alarm, method="higher"))
    return ChanceTest(score, threshold, (1 + larger) / (1 + trials), false_alarm, trials, *shape)


def single_findings(
    integers: NDArray[np.int64], total: NDArray[np.int64], scheme: str, minimum: int, *, scattered: bool
) -> Iterator[Finding]:
    """Compare a sum with what everybody sent, (owners, weights): what it shows to everyone, and to the last owner.

    A round without weights that one owner alone changed, or the last and one other, has nothing to show. `scattered`
    tells that owners changed single weights where the scheme counts blocks, for which it makes no promise.
    """
    contributors, own = np.count_nonzero(integers, axis=0), integers[-1]
    singles, pairs = contributors == 1, (contributors == 2) & (own != 0)
    exposed, subtracted = singles & (total == integers.sum(axis=0)), pairs & (total - own == integers[:-1].sum(axis=0))
    touched, shown = int(np.count_nonzero(contributors)), int(np.count_nonzero(total))
    who = {
        "nobody reads from the sum a weight that one": (singles, exposed, 2, "reading the sum"),
        "a member cannot read a weight that one other": (pairs, subtracted, 3, "a member subtracts its own update"),
    }
    for claim, (there, read, needed, attack) in who.items():
        hits, of = int(read.sum()), int(there.sum())
        verdict: Verdict = "refuted" if minimum == 1 else "as stated"  # the theorem admits none
        if minimum >= needed:
            verdict = "leaks" if scattered else "refuted"
        if of:
            yield Finding(
                claim=f"{claim} owner changed ({scheme}, minimum_per_position = {minimum})",
                source="Yonetani et al. 2017, Theorem 8" if minimum == 1 else "the rule of minimum contributors",
                proven="withheld by the key generator"
                if minimum >= needed and not scattered
                else "false: there the sum is that owner's weight",
                measure=f"share of {of} such weights that the sum shows exactly",
                measured=rate(hits, of),
                verdict=verdict if hits else "not refuted",
                attack=attack,
                details={
                    "members": len(integers),
                    "minimum": minimum,
                    "scattered": scattered,
                    "touched": touched,
                    "shown": shown,
                    "single_share": int(singles.sum()) / max(touched, 1),
                    "expected_single_share": single_contributor_share(len(integers), float(np.mean(integers != 0))),
                    "precision": int(exposed.sum()) / max(shown, 1),
                },
            )
