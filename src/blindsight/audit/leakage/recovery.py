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

*Settings are no secrets* (`recover_with_guesses`). The supplement supposes that both "can be guessed (e.g., when using
a default parameter of open source libraries)", section 2.1. Here they are: every setting is tried, and the samples that
come out are ranked by how much they look like public ones. A wrong learning rate gives a sample of the wrong length, a
wrong penalty one that leans towards the old weights and is nowhere exactly black, a wrong sign one on the other side of
the public mean; the right one stands out.

*Is a guess better than chance?* Exact tests, whatever the guesses look like.

- *Values.* The audit hides the truth in a `Disguise`: its entries in a uniformly random order, with random signs, which
  nobody else knows. The score of a set of guesses is the largest |cosine| of any of them with the disguised truth, as
  if the attacker knew which to choose; chance is the same score with other disguises.

    Claim. If the guesses are independent of the truth, p = (1 + scores of chance at least as large) / (1 + trials) has
    P(p <= alpha) <= alpha.
    Proof. Given the guesses, the true disguise and the `trials` others are independent draws from one distribution, so
    the rank of the true score among them all is uniform (ties count against a finding). []

  The claim does not ask that guesses look random; the headers of messages do not, and would otherwise agree by accident
  with the order of a picture's rows.
- *Signs.* Where the truth was not disguised but every entry of a guess is as likely to have either sign, whatever the
  others are, chance is the score with the signs of its entries drawn at random, for the same reason.
- *Places.* Of a sparse update an attacker may learn where it is, and nothing of what it is. The score of a set of
  places is the share of the update's squares that lies there (as if all signs were known); chance is the same for
  uniformly random places, which is what places under a secret permutation are.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, lambertw
from scipy.stats import t as student

from blindsight.audit.finding import Finding, Interval, rate
from blindsight.errors import InputError, UnknownNameError
from blindsight.progress import Progress, silent
from blindsight.rng import science

Loss = Literal["hinge", "logistic"]
Vector = NDArray[np.float64]

RECOVERED = 0.99
"""A |cosine| with the truth from which on a vector counts as recovered."""

_LARGEST_FACTOR = 1e12  # a sample that is wrong with probability 1e-12 makes no step worth the name
_ITERATIONS = 100
_NO_STEP = "the step shows no gradient of a loss: every sample was classified well, or the settings are wrong."
_SINGLE = 1e-6  # what single precision leaves of nothing
_READ_OFF = "read off the bias"
_SPREAD_FLOOR = 0.02  # traits that all public samples share to the last digit, such as a norm of one, are not infinite
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
    old, new = _weights_of(before, after)
    if not learning_rate > 0:
        raise InputError(f"a learning rate is above 0; got {learning_rate}.")
    ridge, lasso = Penalty.of(penalty).strengths(old.size, bias)
    moved = new + learning_rate * lasso * np.sign(new)
    theta: Vector = (old - moved) / learning_rate - ridge * old
    return theta


def _weights_of(before: ArrayLike, after: ArrayLike) -> tuple[Vector, Vector]:
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
    old, new = _weights_of(before, after)
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


# Without the learning rate and the penalty


@dataclass(frozen=True)
class Setting:
    """A learning rate and a penalty, and who uses them."""

    source: str
    learning_rate: float
    penalty: Penalty


_SCHEDULES: dict[str, Callable[[float, int], float]] = {
    # Bottou's heuristic, as scikit-learn has it: 1 / (alpha (t0 + t - 1)), which begins at alpha^-1/4
    "optimal": lambda alpha, step: 1 / (alpha * (math.pow(alpha, -0.75) + step - 1)),
    "constant": lambda alpha, step: 0.01,
    "invscaling": lambda alpha, step: 0.01 / math.sqrt(step),
}
_CONSTANT_RATES = {
    "PyTorch": 1e-3,
    "Keras": 1e-2,
    "the usual 0.1": 0.1,
    "Vowpal Wabbit": 0.5,
    "the textbook's 1": 1.0,
}


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
        Setting(
            f"scikit-learn, {schedule}"
            + ("" if alpha == 1e-4 else f", alpha {alpha:g}")
            + (", elastic net" if l1_ratio else ""),
            rate_of(alpha, step),
            Penalty(alpha, l1_ratio),
        )
        for l1_ratio in (0.0, 0.15)  # penalty="l2" and "elasticnet"
        for alpha in alphas
        for schedule, rate_of in _SCHEDULES.items()
    ]
    settings += [Setting(f"Pegasos, lambda {alpha:g}", 1 / (alpha * step), Penalty(alpha)) for alpha in alphas]
    settings += [
        Setting(f"{name}, weight decay {decay:g}" if decay else name, rate, Penalty(decay))
        for name, rate in _CONSTANT_RATES.items()
        for decay in (0.0, 1e-4, 5e-4)
    ]
    distinct = {(setting.learning_rate, setting.penalty): setting for setting in reversed(settings)}
    return tuple(reversed(distinct.values()))


@dataclass(frozen=True, eq=False)
class PublicLook:
    """What samples of this kind look like: length, lean to the mean, distance from it, and share of exact zeros.

    The last one tells penalties apart: of pictures with black pixels, or of features behind a ReLU, only the right one
    leaves exact zeros. `typical` and `spread` are mean and deviation of the four traits.
    """

    mean: Vector
    scale: Vector
    typical: Vector
    spread: Vector

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


def _traits(rows: Vector, mean: Vector, scale: Vector) -> Vector:
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
    _check_loss(loss)
    look, (old, new) = PublicLook.of(public), _weights_of(before, after)
    if look.mean.size != old.size - bias:
        raise InputError(f"public samples have {look.mean.size} features; the weights are for {old.size - bias}.")
    known = library_settings() if settings is None else tuple(settings)
    found: list[Candidate] = []
    if bias:
        for penalty in dict.fromkeys(setting.penalty for setting in known):
            alike = [setting for setting in known if setting.penalty == penalty]
            for one in recover_sample(old, new, None, penalty, loss=loss, bias=True).candidates:
                names = [s.source for s in alike if math.isclose(s.learning_rate, one.learning_rate, rel_tol=1e-6)]
                found.append(replace(one, source=names[0] if names else _READ_OFF))
    else:
        for setting in known:
            led_to = recover_sample(old, new, setting.learning_rate, setting.penalty, loss=loss).candidates
            found += [replace(one, source=setting.source) for one in led_to if _reproduces(one, old, new, loss)]
    explained = [replace(one, plausibility=look.plausibility(one.sample)) for one in found]
    explained.sort(key=lambda one: (one.source == _READ_OFF, -(one.plausibility or 0.0)))
    return Recovery(tuple(explained), "" if explained else "no setting explains the step.")


def _reproduces(candidate: Candidate, old: Vector, new: Vector, loss: Loss) -> bool:
    """Whether a step on the candidate leads where the victim's did: not if its hinge loss has no gradient."""
    settings: dict[str, Any] = {"learning_rate": candidate.learning_rate, "penalty": candidate.penalty}
    again = gradient_step(old, candidate.sample, [candidate.label or 1], loss=loss, **settings)
    return bool(np.linalg.norm(again - new) <= 1e-6 * np.linalg.norm(new - old))


def attack_unknown_settings(
    samples: ArrayLike,
    public: ArrayLike,
    *,
    loss: Loss,
    bias: bool = False,
    victims: int = 50,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> Finding:
    """Attack so many victims, each with one of the private samples; `public` samples tell what samples look like.

    Every victim makes one step of SGD with settings drawn from those that libraries have by default; the attacker tries
    them all and names one candidate. It succeeds if that one is the sample, sign and all.
    """
    rows = np.asarray(samples, dtype=np.float64)
    if rows.ndim != 2 or not len(rows) or victims < 1:
        raise InputError(f"an attack takes samples, one per row, and a victim; got {rows.shape} and {victims}.")
    generator, settings, size = science(random_state), library_settings(), rows.shape[1]
    scale = 0.3 / np.sqrt(size) / np.mean(np.linalg.norm(rows, axis=1))
    cosines = np.zeros(victims)
    for victim in range(victims):
        truth, label = rows[generator.integers(len(rows))], int(generator.choice([-1, 1]))
        setting = settings[generator.integers(len(settings))]
        chosen: dict[str, Any] = {"learning_rate": setting.learning_rate, "penalty": setting.penalty}
        before = scale * generator.normal(size=size + bias)
        after = gradient_step(before, truth, [label], loss=loss, bias=bias, **chosen)
        found = recover_with_guesses(before, after, public, loss=loss, bias=bias)
        cosines[victim] = cosine(found.best.sample, truth) if found.candidates else 0.0
        progress("guessing settings", victim + 1, victims)
    recovered = int(np.count_nonzero(cosines >= RECOVERED))
    return Finding(
        claim="whoever knows a library's defaults reads the sample from a plain step",
        source="Yonetani et al. 2017, supplement, section 2.1",
        proven="for given settings",
        measure=f"share of {victims} samples recovered (cosine >= {RECOVERED})",
        measured=rate(recovered, victims),
        verdict="as stated" if recovered else "not refuted",
        attack=f"{loss} step {'with' if bias else 'without'} a bias, settings guessed",
        details={"mean_cosine": float(np.mean(cosines))},
    )


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
        missing = max(1 - self.score**2, _SINGLE)
        luck = self.guesses * betainc(max(self.size - 1, _SINGLE) / 2, 0.5, missing)
        return self.at_chance and bool(self.score < RECOVERED or luck > self.false_alarm)


@dataclass(frozen=True, eq=False)
class Disguise:
    """A random order and random signs of the entries of a vector."""

    order: NDArray[np.int64]
    signs: Vector

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


def values_test(guesses: Vector, truth: Vector, *, generator: np.random.Generator, false_alarm: float) -> ChanceTest:
    """Test guesses, one per row, of a disguised vector."""
    if guesses.ndim != 2 or guesses.shape[1:] != truth.shape or not len(guesses):
        raise InputError(f"guesses are rows of {truth.size} numbers; got shape {guesses.shape}.")
    if not truth.any():
        raise InputError("the truth is zero: every guess has the same angle with it.")
    rows, unit = _units(guesses), (truth / np.linalg.norm(truth)).astype(np.float32)

    def chance(trials: int) -> NDArray[Any]:
        others = generator.permuted(np.tile(unit, (trials, 1)), axis=1)
        return np.asarray(np.abs(rows @ (others * _signs(others.shape, generator)).T).max(axis=0))

    return _test(float(np.abs(rows @ unit).max()), chance, false_alarm, guesses.shape)


def signs_test(guesses: Vector, truth: Vector, *, generator: np.random.Generator, false_alarm: float) -> ChanceTest:
    """Test guesses, one per row, whose entries are as likely to have either sign if nothing was learned."""
    agreement = _units(guesses) * (truth / np.linalg.norm(truth)).astype(np.float32)

    def chance(trials: int) -> NDArray[Any]:
        return np.asarray(np.abs(agreement @ _signs((agreement.shape[1], trials), generator)).max(axis=0))

    return _test(float(np.abs(agreement.sum(axis=1)).max()), chance, false_alarm, guesses.shape)


def places_test(
    places: NDArray[np.int64], truth: Vector, *, block: int, generator: np.random.Generator, false_alarm: float
) -> ChanceTest:
    """Test places, numbers of blocks of consecutive entries, against where the truth is."""
    squares = np.add.reduceat(truth**2, np.arange(0, truth.size, block)) / np.sum(truth**2)
    chosen = np.unique(places)
    if chosen.size and not 0 <= chosen[0] <= chosen[-1] < squares.size:
        raise InputError(f"places are blocks 0 to {squares.size - 1}.")

    def chance(trials: int) -> NDArray[Any]:
        others = generator.permuted(np.tile(squares, (trials, 1)), axis=1)
        return np.asarray(others[:, : chosen.size].sum(axis=1))

    return _test(float(squares[chosen].sum()), chance, false_alarm, (1, truth.size))


def _units(rows: Vector) -> NDArray[np.float32]:
    units: NDArray[np.float32] = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)).astype("f4")
    return units


def _signs(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float32]:
    return generator.choice(np.array([-1, 1], dtype=np.float32), size=shape)


def _test(
    score: float, chance: Callable[[int], NDArray[Any]], false_alarm: float, shape: tuple[int, ...]
) -> ChanceTest:
    """Compare a score of guesses with as many of chance as the false-alarm rate takes, drawn by the chunk."""
    trials = needed_trials(false_alarm)
    drawn = np.concatenate([chance(min(_CHUNK, trials - start)) for start in range(0, trials, _CHUNK)])
    larger = int(np.count_nonzero(drawn >= score - _SINGLE))  # ties, up to single precision, count for chance
    threshold = float(np.quantile(drawn, 1 - false_alarm, method="higher"))
    return ChanceTest(score, threshold, (1 + larger) / (1 + trials), false_alarm, trials, *shape)
