"""Attacks on updates in one go: what leaks in the clear, what the schemes stop, and what they cannot stop.

Gradients of small batches, which are attacked with torch, are a study of their own (`batches`).
"""

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from blindsight.audit.finding import Finding
from blindsight.audit.leakage.averages import AverageLeak, attack_averages, average_findings
from blindsight.audit.leakage.cases import leaky_cases
from blindsight.audit.leakage.schemes import SchemeLeak, attack_schemes, scheme_findings
from blindsight.audit.leakage.singles import SinglesLeak, attack_singles, single_findings
from blindsight.audit.leakage.steps import Loss
from blindsight.audit.leakage.unknown import UnknownSettingsLeak, attack_unknown_settings, unknown_settings_findings
from blindsight.progress import Progress, silent
from blindsight.rng import science


@dataclass(frozen=True, eq=False)
class LeakageStudy:
    """What every attack found."""

    unknown: tuple[UnknownSettingsLeak, ...]
    schemes: tuple[SchemeLeak, ...]
    averages: tuple[AverageLeak, ...]
    singles: tuple[SinglesLeak, ...]

    def findings(self) -> tuple[Finding, ...]:
        """Return all rows, attacks in the clear first."""
        return (
            *unknown_settings_findings(self.unknown),
            *scheme_findings(self.schemes),
            *average_findings(self.averages),
            *single_findings(self.singles),
        )


def study_leakage(
    private: ArrayLike,
    public: ArrayLike,
    *,
    victims: int = 50,
    false_alarm: float = 0.01,
    key_bits: int = 3072,
    insecure: bool = False,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> LeakageStudy:
    """Run every attack on private samples (one per row), with public ones of the same kind to compare with.

    Cost grows with `victims`, 1 / `false_alarm` and `key_bits`, and with the number of features; a minute is ample for
    64 of them.
    """
    generator = science(random_state)
    schemes = attack_schemes(
        leaky_cases(private, random_state=generator),
        false_alarm=false_alarm,
        key_bits=key_bits,
        insecure=insecure,
        random_state=generator,
        progress=progress,
    )
    singles = [
        attack_singles(
            minimum_per_position=minimum,
            key_bits=key_bits,
            insecure=insecure,
            random_state=generator,
            progress=progress,
        )
        for minimum in (1, 2, 3)
    ]
    return LeakageStudy(
        unknown=_unknown(private, public, victims, generator, progress),
        schemes=schemes,
        averages=attack_averages(private, victims=victims, random_state=generator, progress=progress),
        singles=tuple(singles),
    )


def _unknown(
    private: ArrayLike, public: ArrayLike, victims: int, generator: np.random.Generator, progress: Progress
) -> tuple[UnknownSettingsLeak, ...]:
    return tuple(
        attack_unknown_settings(
            private, public, loss=loss, bias=bias, victims=victims, random_state=generator, progress=progress
        )
        for loss in get_args(Loss)
        for bias in (False, True)
    )
