"""How often a sample is recovered by somebody who was told neither learning rate nor penalty.

Every victim makes one step of SGD on its own sample with settings drawn from those that libraries have by default; the
attacker tries them all (`guesses`) and names one candidate. It succeeds if that one is the sample, sign and all.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from blindsight.audit.finding import Finding
from blindsight.audit.leakage.guesses import library_settings, recover_with_guesses
from blindsight.audit.leakage.recovery import RECOVERED, Vector, cosine
from blindsight.audit.leakage.steps import Loss, gradient_step
from blindsight.audit.rates import rate
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import science


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
