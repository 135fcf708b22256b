"""What the gateway tells, as plain data, and to whom.

An app is told accept or denied, answers and what it may get; whether something was rejected, undecided or could not be
verified is more than the one bit that `sift.adaptive` counts. Sentences, reasons and evidence are for the person and
the operator: figures would teach an app how to write its next sift, and reasons tell what a person hides and who else
has a grant. How far a verification is would tell it as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from blindsight.service.duties import ASKING
from blindsight.service.jobs import Job, State
from blindsight.service.principals import Principal
from blindsight.sift.register import Grant, Mode
from blindsight.sift.stream import Then

Standing = Literal["live", "suspended", "revoked"]
"""A suspended grant lets nothing out until it was verified anew."""


@dataclass(frozen=True)
class PersonView:
    """A person, what they hide, and how many pictures of them are here."""

    person: str
    private: tuple[str, ...]
    frames: int


@dataclass(frozen=True)
class ProposalView:
    """What an app would like to get about a person, and what became of it.

    An app is told the verdict and the answer; the sentence, the reason and the evidence are for person and operator.
    """

    job: str
    state: State
    person: str
    app: str
    mode: Mode
    frames: int
    then: Then
    doing: str
    done: float
    verdict: Literal["accept", "reject", "inconclusive", "denied"] | None = None
    """None until it is verified; denied: it could not be verified at all."""
    answer: Literal["allow", "fewer", "refuse"] | None = None
    grant: int | None = None
    """What it became, if it was allowed."""
    next: str | None = None
    """The job that verifies fewer details, if those were asked for."""
    sentence: str | None = None
    evidence: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class GrantView:
    """Who may get what about whom, and how much of it went out; the evidence is for person and operator."""

    number: int
    person: str
    app: str
    public: tuple[str, ...]
    mode: Mode
    standing: Standing
    frames: int
    released: int
    then: Then
    time: str
    reason: str | None = None
    """Why it was revoked; an app is not told."""
    evidence: Mapping[str, Any] | None = None


def proposal_view(principal: Principal, job: Job, evidence: Mapping[str, Any] | None = None) -> ProposalView:
    """Return what somebody may know of a proposal."""
    payload, result = job.payload, job.result or {}
    view = ProposalView(
        job.id,
        job.state,
        payload["person"],
        payload["app"],
        payload["mode"],
        payload["frames"],
        payload["then"],
        job.doing,
        job.done,
        verdict=result.get("verdict"),
        answer=result.get("answer"),
        grant=result.get("grant"),
        next=result.get("next"),
        sentence=result.get("sentence", job.error),
        evidence=evidence,
    )
    if principal.role != "app":
        return view
    return replace(view, doing="", done=_ended(job), verdict=_told(view.verdict), sentence=None, evidence=None)


def grant_view(principal: Principal, grant: Grant, *, holds: bool, released: int) -> GrantView:
    """Return what somebody may know of a grant."""
    standing: Standing = "revoked" if not grant.live else "live" if holds else "suspended"
    view = GrantView(
        grant.number,
        grant.person,
        grant.app,
        grant.public,
        grant.mode,
        standing,
        grant.budget.frames,
        released,
        grant.budget.then,
        grant.time,
        None if grant.revoked is None else grant.revoked.reason,
        {"report": grant.report, "together": grant.together},
    )
    return replace(view, reason=None, evidence=None) if principal.role == "app" else view


def job_view(principal: Principal, job: Job) -> Job:
    """Return a job with what somebody may know of it."""
    if principal.role != "app" or job.kind not in ASKING:
        return replace(job, payload={})
    result = {key: value for key, value in (job.result or {}).items() if key != "sentence"}
    if "verdict" in result:
        result["verdict"] = _told(result["verdict"])
    error = None if job.error is None else "this could not be verified."
    return replace(job, payload={}, result=result or None, error=error, doing="", done=_ended(job))


def _told(verdict: Any) -> Any:
    """Return what an app is told of a verdict: one bit."""
    return verdict if verdict in (None, "accept") else "denied"


def _ended(job: Job) -> float:
    return 1.0 if job.state == "done" else 0.0
