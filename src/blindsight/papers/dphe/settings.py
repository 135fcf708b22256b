"""Learning rate and penalty guessed from library defaults (Yonetani et al. 2017, supplement, section 2.1).

The supplement supposes that both "can be guessed (e.g., when using a default parameter of open source libraries)",
section 2.1. Here they are: every setting is tried, and the samples that come out are ranked by how much they look like
public ones. A wrong learning rate gives a sample of the wrong length, a wrong penalty one that leans towards the old
weights and is nowhere exactly black, a wrong sign one on the other side of the public mean; the right one stands out.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blindsight.audit.finding import Finding, rate
from blindsight.audit.recovery import (
    RECOVERED,
    Candidate,
    Loss,
    Penalty,
    Recovery,
    Vector,
    check_step,
    cosine,
    gradient_step,
    recover_sample,
)
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import science

_READ_OFF = "read off the bias"
_SPREAD_FLOOR = 0.02  # traits that all public samples share to the last digit, such as a norm of one, are not infinite


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
    look, (old, new) = PublicLook.of(public), check_step(before, after)
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
