"""An audit is a list of checks that share a time budget: more time, more runs; too little, and what was left out is said.

The budget is in minutes of wall time on the machine the estimates come from (two cores); it steers how many runs each
check makes and which are left out, and is no deadline. The same seed and effort repeat everything but the noise that
is under attack, which comes from the operating system.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from blindsight.audit.finding import Finding
from blindsight.audit.inversion.picturerow import PictureRow
from blindsight.errors import BlindsightError, InputError
from blindsight.progress import Progress, silent

_LEAST, _MOST = 0.25, 16.0  # effort


@dataclass(frozen=True)
class Evidence:
    """What one check found: rows of the table, and pictures where it made some."""

    findings: tuple[Finding, ...]
    pictures: tuple[PictureRow, ...] = ()


@dataclass(frozen=True)
class Check:
    """One attack or group of attacks. `seconds` is what it takes at effort 1; its runs grow with the effort."""

    name: str
    seconds: float
    run: Callable[[float], Evidence]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Everything an audit of `subject` found; `notes` tell what was left out or could not be tried, and why."""

    subject: str
    findings: tuple[Finding, ...]
    pictures: tuple[PictureRow, ...] = field(repr=False)
    notes: tuple[str, ...]
    effort: float
    seed: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the pictures, of which the figures are there, as plain data for JSON."""
        return {
            "schema": "blindsight/audit",
            "version": 1,
            "subject": self.subject,
            "findings": [finding.to_dict() for finding in self.findings],
            "pictures": [row.to_dict() for row in self.pictures],
            "notes": list(self.notes),
            "effort": self.effort,
            "seed": self.seed,
            "seconds": self.seconds,
        }


def run_checks(
    subject: str,
    checks: Sequence[Check],
    *,
    minutes: float,
    seed: int,
    notes: Iterable[str] = (),
    progress: Progress = silent,
) -> Audit:
    """Run the checks in their order, with as much effort as the time allows; the last are left out if it is too short.

    A check that cannot be done (an extra is missing, too few samples) leaves a note and does not stop the others.
    """
    if not 0 < minutes < math.inf:
        raise InputError(f"the time budget must be positive; got {minutes} minutes.")
    begun, said = perf_counter(), list(notes)
    effort, chosen = _plan(checks, 60 * minutes)
    said += [f"{check.name} was left out: {minutes:g} minutes are too short." for check in checks[len(chosen) :]]
    findings: list[Finding] = []
    pictures: list[PictureRow] = []
    for number, check in enumerate(chosen):
        progress(check.name, number, len(chosen))
        try:
            evidence = check.run(effort)
        except BlindsightError as error:
            said.append(f"{check.name} could not be tried: {error}")
            continue
        findings += evidence.findings
        pictures += evidence.pictures
    return Audit(
        subject=subject,
        findings=tuple(findings),
        pictures=tuple(pictures),
        notes=tuple(said),
        effort=effort,
        seed=seed,
        seconds=perf_counter() - begun,
    )


def _plan(checks: Sequence[Check], seconds: float) -> tuple[float, Sequence[Check]]:
    """Return the effort, and those of the first checks that fit with it; one check always does."""
    chosen = list(checks)
    while len(chosen) > 1 and _LEAST * sum(check.seconds for check in chosen) > seconds:
        chosen.pop()
    total = sum(check.seconds for check in chosen)
    return min(_MOST, max(_LEAST, seconds / total)) if total else 1.0, chosen
