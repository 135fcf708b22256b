"""An audit is a list of checks with one time budget: more time, more runs; too little, and it says what it left out.

The budget is in minutes of wall time on the machine the estimates come from (two cores); it steers how many runs each
check makes and which are left out, and is no deadline. The same seed and effort repeat everything but the noise that
is under attack, which comes from the operating system.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from blindsight.audit.finding import Finding, Verdict
from blindsight.audit.inversion.pictures import PictureRow
from blindsight.errors import BlindsightError, InputError
from blindsight.progress import Progress, silent

_LEAST, _MOST = 0.25, 16.0  # effort


@dataclass(frozen=True)
class Evidence:
    """What one check found: rows of the table, and pictures where it made some; rows of a self-test are no `claims`."""

    findings: tuple[Finding, ...]
    pictures: tuple[PictureRow, ...] = ()
    claims: bool = True


@dataclass(frozen=True)
class Check:
    """One attack or group of attacks. `seconds` is what it takes at effort 1; its runs grow with the effort.

    Without a `vital` one the others are worth nothing: its error ends the audit.
    """

    name: str
    seconds: float
    run: Callable[[float], Evidence]
    vital: bool = False


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Everything an audit of `subject` found, check by check; `notes` tell what was left out or not tried, and why."""

    subject: str
    sections: Mapping[str, Evidence] = field(repr=False)
    notes: tuple[str, ...]
    effort: float
    seed: int
    seconds: float

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The rows of all checks."""
        return tuple(finding for evidence in self.sections.values() for finding in evidence.findings)

    @property
    def pictures(self) -> tuple[PictureRow, ...]:
        """The pictures of all checks."""
        return tuple(row for evidence in self.sections.values() for row in evidence.pictures)

    @property
    def claims(self) -> tuple[Finding, ...]:
        """The rows about claims that somebody made, without those of self-tests."""
        made = (evidence for evidence in self.sections.values() if evidence.claims)
        return tuple(finding for evidence in made for finding in evidence.findings)

    def count(self, verdict: Verdict) -> int:
        """Return how many claims have this verdict."""
        return sum(finding.verdict == verdict for finding in self.claims)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the pictures, of which the figures are there, as plain data for JSON."""
        return {
            "schema": "blindsight/audit",
            "version": 1,
            "subject": self.subject,
            "findings": [
                {"check": name} | finding.to_dict()
                for name, evidence in self.sections.items()
                for finding in evidence.findings
            ],
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
    check_minutes(minutes)
    begun, said = perf_counter(), list(notes)
    effort, chosen = _plan(checks, 60 * minutes)
    said += [f"{check.name} was left out: {minutes:g} minutes are too short." for check in checks[len(chosen) :]]
    sections: dict[str, Evidence] = {}
    for number, check in enumerate(chosen):
        progress(check.name, number, len(chosen))
        try:
            sections[check.name] = check.run(effort)
        except BlindsightError as error:
            if check.vital:
                raise
            said.append(f"{check.name} could not be tried: {error}")
    return Audit(
        subject=subject,
        sections=sections,
        notes=tuple(said),
        effort=effort,
        seed=seed,
        seconds=perf_counter() - begun,
    )


def check_minutes(minutes: float) -> None:
    """Refuse a time budget in which nothing can be done, before anything is."""
    if not 0 < minutes < math.inf:
        raise InputError(f"the time budget must be positive; got {minutes} minutes.")


def worst_of_each(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return, of findings about the same claim, the one that is worst for it, with the number it stands for."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.claim, []).append(finding)
    return tuple(_worst(group) for group in groups.values())


def _worst(group: Sequence[Finding]) -> Finding:
    gravity: tuple[Verdict, ...] = ("at chance", "not refuted", "as stated", "leaks", "refuted")
    worst = max(group, key=lambda finding: (gravity.index(finding.verdict), finding.measured.value))
    return replace(worst, details={**worst.details, "worst of": len(group)})


def _plan(checks: Sequence[Check], seconds: float) -> tuple[float, Sequence[Check]]:
    """Return the effort, and those of the first checks that fit with it; one check always does."""
    chosen = list(checks)
    while len(chosen) > 1 and _LEAST * sum(check.seconds for check in chosen) > seconds:
        chosen.pop()
    total = sum(check.seconds for check in chosen)
    return min(_MOST, max(_LEAST, seconds / total)) if total else 1.0, chosen
