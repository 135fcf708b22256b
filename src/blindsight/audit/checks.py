"""An audit is a list of checks with one time budget: more time, more runs; too little, and it says what it left out.

The budget is in minutes of wall time. Estimates from one machine (two cores) steer how many runs each check makes and
which are left out beforehand; where the machine is slower, later checks make less effort, and none is begun once the
time is spent. One that has begun is finished. The same seed and effort repeat everything but the noise that is under
attack, which comes from the operating system.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, get_args

from blindsight.audit.finding import Finding, Verdict, not_run
from blindsight.errors import BlindsightError, CorruptFileError, DataError, InputError, StorageError
from blindsight.files import storage_errors
from blindsight.progress import Progress, silent
from blindsight.statement import PrivacyStatement

if TYPE_CHECKING:
    from blindsight.audit.inversion import PictureRow

_LEAST, _MOST = 0.25, 16.0  # effort


@dataclass(frozen=True)
class Evidence:
    """What one check found: rows of the table, and pictures where it made some; rows of a self-test are no `claims`.

    `notes` tell what of it could not be tried.
    """

    findings: tuple[Finding, ...]
    pictures: tuple["PictureRow", ...] = ()
    claims: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One attack or group of attacks: it takes `fixed` seconds at any effort and as many times `seconds` as that is.

    Without a `vital` one the others are worth nothing: its error ends the audit.
    """

    name: str
    seconds: float
    run: Callable[[float], Evidence]
    vital: bool = False
    fixed: float = 0.0

    def takes(self, effort: float) -> float:
        """Return how many seconds it takes, about."""
        return self.fixed + effort * self.seconds


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Everything an audit of `subject` found, check by check; `notes` tell what was left out or not tried, and why.

    `efforts` are those of single checks: less than `effort` was at first where the machine is slower than expected.
    """

    subject: str
    sections: Mapping[str, Evidence] = field(repr=False)
    notes: tuple[str, ...]
    effort: float
    seed: int
    seconds: float
    statement: PrivacyStatement | None = None
    efforts: Mapping[str, float] = field(default_factory=dict, repr=False)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The rows of all checks."""
        return tuple(finding for evidence in self.sections.values() for finding in evidence.findings)

    @property
    def pictures(self) -> tuple["PictureRow", ...]:
        """The pictures of all checks."""
        return tuple(row for evidence in self.sections.values() for row in evidence.pictures)

    @property
    def claims(self) -> tuple[Finding, ...]:
        """The rows about claims that somebody made, without those of self-tests."""
        made = (evidence for evidence in self.sections.values() if evidence.claims)
        return tuple(finding for evidence in made for finding in evidence.findings)

    @property
    def tested(self) -> bool:
        """Whether anything could be decided about any claim."""
        return any(finding.verdict not in ("undecided", "not run") for finding in self.claims)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes that no row tells."""
        told = {f"{finding.claim} {finding.measure}".lower() for finding in self.findings}
        return tuple(note for note in self.notes if note.lower() not in told)

    def count(self, verdict: Verdict) -> int:
        """Return how many claims have this verdict."""
        return sum(finding.verdict == verdict for finding in self.claims)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the pictures, of which the figures are there, as plain data for JSON."""
        return {
            "schema": "blindsight/audit",
            "version": 1,
            "subject": self.subject,
            "tested": self.tested,
            "verdicts": {verdict: self.count(verdict) for verdict in get_args(Verdict)},
            "self_tests": [name for name, evidence in self.sections.items() if not evidence.claims],
            "findings": [
                {"check": name} | finding.to_dict()
                for name, evidence in self.sections.items()
                for finding in evidence.findings
            ],
            "pictures": [row.to_dict() for row in self.pictures],
            "notes": list(self.notes),
            "statement": None if self.statement is None else self.statement.to_dict(),
            "effort": self.effort,
            "efforts": dict(self.efforts),
            "seed": self.seed,
            "seconds": self.seconds,
        }


def run_checks(
    subject: str,
    checks: Sequence[Check],
    *,
    minutes: float,
    seed: int,
    effort: float | None = None,
    notes: Iterable[str] = (),
    progress: Progress = silent,
) -> Audit:
    """Run the checks in their order, with as much effort as the time allows; the last are left out if it is too short.

    Those are made with the least effort after all where the machine is faster than expected.

    A check that cannot be done (an extra is missing, too few samples) leaves a note and does not stop the others.

    With a given `effort` all checks are begun, as long as there is time.
    """
    check_minutes(minutes)
    begun, said = perf_counter(), list(notes)
    given, expected, efforts = effort, 0.0, dict[str, float]()
    effort, chosen = _plan(checks, 60 * minutes) if effort is None else (effort, checks)
    planned = effort
    sections: dict[str, Evidence] = {}

    def leave_out(check: Check, reason: str) -> None:
        said.append(f"{check.name} {reason}")
        sections[check.name] = Evidence((not_run(check.name, f"{reason[:1].upper()}{reason[1:]}"),))

    for number, check in enumerate(checks):
        spent = perf_counter() - begun
        if number and spent >= 60 * minutes:
            leave_out(check, f"was left out: the time was spent (--minutes {minutes:g}).")
            continue
        if number == len(chosen):  # only where the others took less than expected is there time for more
            given = effort = _LEAST
        if number >= len(chosen) and spent + check.takes(_LEAST) > 60 * minutes:
            leave_out(check, f"was left out: the time is too short (--minutes {minutes:g}).")
            continue
        if given is None and spent > expected > 0:  # a slower machine: less effort, so that all checks are made
            left = (60 * minutes - spent) * expected / spent
            effort = min(effort, _effort(chosen[number:], left))
        efforts[check.name], expected = effort, expected + check.takes(effort)
        progress(check.name, number, len(checks))
        try:
            sections[check.name] = check.run(effort)
            said += sections[check.name].notes
        except BlindsightError as error:
            if check.vital:
                raise
            leave_out(check, f"could not be tried: {error}")
    return Audit(
        subject=subject,
        sections=sections,
        notes=tuple(said),
        effort=planned,
        efforts=efforts,
        seed=seed,
        seconds=perf_counter() - begun,
    )


def check_minutes(minutes: float) -> None:
    """Refuse a time budget in which nothing can be done, before anything is."""
    if not 0 < minutes < math.inf:
        raise InputError(f"the time budget must be positive and finite; got {minutes} minutes.")


def worst_of_each(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return, of findings about the same claim, the one that is worst for it; its measure tells how many it stands for.

    A claim that an attack works is worst off where it worked least.
    """
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.claim, []).append(finding)
    return tuple(_worst(group) for group in groups.values())


def _worst(group: Sequence[Finding]) -> Finding:
    order = get_args(Verdict)
    gravest = min(group, key=lambda finding: (order.index(finding.verdict), -_value(finding)))
    works = gravest.verdict == "as stated"
    worst = min(group, key=_value) if works else gravest
    measure = worst.measure if len(group) == 1 else f"{worst.measure}; worst of {len(group)}"
    return replace(worst, measure=measure, details={**worst.details, "worst of": len(group)})


def _value(finding: Finding) -> float:
    return 0.0 if finding.measured is None else finding.measured.value


def _plan(checks: Sequence[Check], seconds: float) -> tuple[float, Sequence[Check]]:
    """Return the effort, and those of the first checks that fit with it; one check always does."""
    chosen = list(checks)
    while len(chosen) > 1 and sum(check.takes(_LEAST) for check in chosen) > seconds:
        chosen.pop()
    return _effort(chosen, seconds), chosen


def _effort(checks: Sequence[Check], seconds: float) -> float:
    """Return the effort with which these checks take about so long."""
    fixed, growing = sum(check.fixed for check in checks), sum(check.seconds for check in checks)
    return min(_MOST, max(_LEAST, (seconds - fixed) / growing)) if growing else 1.0


Kind = Literal["run", "network", "index", "sift"]


@dataclass(frozen=True)
class Target:
    """An artefact: what it is, and the folder that holds it; a sift may be one `file` in there."""

    kind: Kind
    folder: Path
    file: Path | None = None


@dataclass(frozen=True)
class Plan:
    """How an artefact is audited: what it is in words, by which checks, what cannot be tried, and what it promises."""

    subject: str
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    statement: PrivacyStatement | None = None


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Return what an artefact says of itself, or say that it is damaged."""
    with storage_errors("read", path):
        text = path.read_bytes()
    try:
        found: dict[str, Any] = json.loads(text)
        return {**found}
    except (ValueError, TypeError):
        raise CorruptFileError(f"{path} is damaged, or was never written by Blindsight. {remedy}") from None


@contextmanager
def moved_pictures() -> Iterator[None]:
    """Say how to name a collection that is gone; where it lay is nobody's business who reads an audit."""
    try:
        yield
    except StorageError:
        raise DataError("its pictures cannot be read where they lay. Name them by --data and --path.") from None


def check_fields(path: Path, found: Mapping[str, Any], /, **kinds: Any) -> None:
    """Refuse a document that does not say one of these, or something of another kind."""
    if wrong := [name for name, kind in kinds.items() if name not in found or not isinstance(found[name], kind)]:
        raise CorruptFileError(f"{path} is damaged: it does not say {', '.join(wrong)}. Make it again.")


def read_statement(path: Path) -> PrivacyStatement:
    """Return what an artefact states, or say that it is damaged."""
    try:
        return PrivacyStatement.from_dict(read_json(path, "Make it again."))
    except InputError as error:
        raise CorruptFileError(f"{path} is damaged, or of another version: {error}") from None
