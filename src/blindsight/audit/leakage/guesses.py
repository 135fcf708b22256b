"""Attacks without the learning rate and the penalty: guessed, and how often the guess is right.

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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.finding import Finding, rate
from blindsight.audit.leakage.linear import recover_from_hinge_step, recover_from_logistic_step
from blindsight.audit.leakage.recovery import (
    RECOVERED,
    Candidate,
    Loss,
    Penalty,
    Recovery,
    Vector,
    cosine,
    gradient_step,
    weights_of,
)
from blindsight.errors import InputError, UnknownNameError
from blindsight.progress import Progress, silent
from blindsight.rng import science

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
