"""The endpoints about people and apps: releases, principals, frames, proposals, grants, attackers, jobs, log, ledger.

Each parses, asks one method of the gateway and returns what that says. Sifts come in as numbers, never as code; frames
come in, and only the person on them gets them out again.
"""

import json
import math
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Response

from blindsight.dp.ledger import Ledger, Row
from blindsight.service.access import BODY, PICTURE, Caller, Picture, TheGateway, guarded_router, only_if, own, refusals
from blindsight.service.jobs import UNFINISHED
from blindsight.service.models import (
    Answer,
    AppView,
    AttackerList,
    Attributes,
    ConsistencyView,
    EntryList,
    EntryView,
    FrameList,
    FrameView,
    GrantList,
    GrantView,
    HeadView,
    Identifier,
    JobList,
    JobView,
    LedgerView,
    LogCheckView,
    Name,
    NewAttacker,
    NewHead,
    NewPrincipal,
    NewProposal,
    NewRelease,
    PersonView,
    PrincipalList,
    PrincipalView,
    Private,
    ProposalList,
    ProposalView,
    Public,
    Released,
    Revocation,
    ScopeView,
    WithToken,
)
from blindsight.service.principals import skeleton

router = guarded_router()

_LINES = "application/jsonl"
_PNG: dict[str, Any] = {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}


@router.post("/releases", response_model=Released, responses=refusals(404, *BODY))
def release(gateway: TheGateway, app: Caller, wanted: NewRelease) -> Response:
    """Return what the app's grant lets out of some frames of a person, or refuse all of them together."""
    released = gateway.release(app, wanted.person, frames=wanted.frames, latest=wanted.latest)
    return Response(json.dumps(vars(released), allow_nan=False), media_type="application/json")


@router.get("/me")
def who_am_i(principal: Caller) -> PrincipalView:
    """Return whose token was sent."""
    return PrincipalView.model_validate(principal)


@router.get("/principals")
def list_principals(gateway: TheGateway) -> PrincipalList:
    """Return everybody, also the revoked."""
    return PrincipalList(principals=[PrincipalView.model_validate(one) for one in gateway.principals.list()])


@router.post("/principals", status_code=201, responses=refusals(409, *BODY))
def create_principal(gateway: TheGateway, operator: Caller, wanted: NewPrincipal) -> WithToken:
    """Add somebody and return their token, this once."""
    taken = map(skeleton, (one.name for one in gateway.principals.list()))
    only_if(skeleton(wanted.name) not in taken, "this name is taken, or looks like one that is.")
    expires = None if wanted.days is None else datetime.now(UTC) + timedelta(days=wanted.days)
    principal, token = gateway.create_principal(operator, wanted.name, wanted.role, expires=expires)
    return WithToken(principal=PrincipalView.model_validate(principal), token=str(token))


@router.post("/principals/{id}/token", status_code=201, responses=refusals(404))
def rotate_token(gateway: TheGateway, operator: Caller, id: Identifier) -> WithToken:
    """Replace somebody's token; the old one opens nothing any more."""
    token = gateway.rotate_token(operator, id)
    return WithToken(principal=PrincipalView.model_validate(gateway.principals.get(id)), token=str(token))


@router.delete("/principals/{id}", responses=refusals(404))
def revoke_principal(gateway: TheGateway, operator: Caller, id: Identifier) -> PrincipalView:
    """Make somebody's token worthless for ever."""
    gateway.revoke_principal(operator, id)
    return PrincipalView.model_validate(gateway.principals.get(id))


@router.get("/attributes")
def list_attributes(gateway: TheGateway) -> Attributes:
    """Return the attributes the platform has labels for; no other can be protected."""
    return Attributes(attributes=list(gateway.attributes()))


@router.get("/people/{person}", responses=refusals(404))
def show_person(gateway: TheGateway, principal: Caller, person: Name) -> PersonView:
    """Return what a person hides and how many pictures of them are here."""
    own(principal, person)
    return gateway.person(principal, person)


@router.put("/people/{person}/private", status_code=202, responses=refusals(404, *BODY))
def set_private(gateway: TheGateway, owner: Caller, person: Name, wanted: Private) -> JobView:
    """Hide these attributes, from now on. The job verifies every grant anew; until then none of them lets anything out
    that was not verified against all of these.
    """
    own(owner, person)
    return gateway.set_private(owner, wanted.attributes)


@router.post("/people/{person}/odometer", status_code=202, responses=refusals(404))
def read_odometer(gateway: TheGateway, principal: Caller, person: Name) -> JobView:
    """Measure how well each hidden attribute is guessed from all that is out; the job's result has the readings."""
    own(principal, person)
    return gateway.odometer(principal, person)


@router.get("/people/{person}/frames", responses=refusals(404))
def list_frames(gateway: TheGateway, owner: Caller, person: Name) -> FrameList:
    """Return the ids of a person's pictures, oldest first."""
    own(owner, person)
    return FrameList(frames=list(gateway.frame_ids(owner)))


@router.post("/people/{person}/frames", status_code=201, responses=refusals(404, *BODY), openapi_extra=PICTURE)
def add_frame(gateway: TheGateway, owner: Caller, person: Name, picture: Picture) -> FrameView:
    """Take in a picture: the body is the file itself. Of what the file says beside its pixels nothing is kept."""
    own(owner, person)
    return FrameView(frame=gateway.add_frame(owner, picture))


@router.get(
    "/people/{person}/frames/{frame}",
    response_class=Response,
    responses=refusals(404) | {200: {"description": "the picture", **_PNG}},
)
def show_frame(gateway: TheGateway, owner: Caller, person: Name, frame: Identifier) -> Response:
    """Return a picture to the person on it."""
    own(owner, person)
    return Response(gateway.picture(owner, frame), media_type="image/png")


@router.delete("/people/{person}/frames/{frame}", responses=refusals(404))
def delete_frame(gateway: TheGateway, owner: Caller, person: Name, frame: Identifier) -> FrameView:
    """Forget a picture and its features; what was released of it cannot be taken back."""
    own(owner, person)
    gateway.delete_frame(owner, frame)
    return FrameView(frame=frame)


@router.put("/apps/{app}/public", responses=refusals(*BODY))
def register_app(gateway: TheGateway, principal: Caller, app: Name, wanted: Public) -> AppView:
    """Note what an app wants to know; where that changes, its grants are revoked."""
    own(principal, app)
    return AppView(app=app, public=list(gateway.register_app(principal, wanted.attributes)))


@router.post("/proposals", status_code=202, responses=refusals(404, *BODY))
def propose(gateway: TheGateway, app: Caller, wanted: NewProposal) -> JobView:
    """Ask for something about a person; the job verifies whether it may be granted."""
    return gateway.propose(app, wanted.person, wanted.sift, frames=wanted.frames, then=wanted.then)


@router.get("/proposals")
def list_proposals(gateway: TheGateway, principal: Caller) -> ProposalList:
    """Return the proposals that concern the caller, newest first, without evidence."""
    return ProposalList(proposals=list(gateway.proposals(principal)))


@router.get("/proposals/{job}", responses=refusals(404))
def show_proposal(gateway: TheGateway, principal: Caller, job: Identifier) -> ProposalView:
    """Return a proposal: to its app the verdict, to the person and the operator all evidence."""
    return gateway.proposal(principal, job)


@router.post("/proposals/{job}/answer", responses=refusals(404, 409, *BODY))
def answer_proposal(gateway: TheGateway, owner: Caller, job: Identifier, said: Answer) -> ProposalView:
    """Allow what was verified (it becomes a grant), ask for fewer details (another job verifies them), or refuse."""
    proposal = gateway.proposal(owner, job)
    only_if(proposal.state == "done", f"this proposal cannot be answered: its verification is {proposal.state}.")
    only_if(proposal.answer in (None, said.answer), f"this proposal is answered already: {proposal.answer}.")
    return gateway.answer(owner, job, said.answer)


@router.get("/grants")
def list_grants(gateway: TheGateway, principal: Caller) -> GrantList:
    """Return the grants that concern the caller, oldest first, revoked ones included."""
    return GrantList(grants=list(gateway.grants(principal)))


@router.post("/grants/{number}/revocation", responses=refusals(404, *BODY))
def revoke_grant(
    gateway: TheGateway, principal: Caller, number: Annotated[int, Path(ge=1, lt=2**31)], said: Revocation
) -> GrantView:
    """End a grant. What it told cannot be taken back, and still counts beside later grants."""
    return gateway.revoke(principal, number, said.reason)


@router.get("/attackers")
def list_attackers(gateway: TheGateway) -> AttackerList:
    """Return who judges now and who could be added."""
    judging, available = gateway.attackers()
    return AttackerList(judging=list(judging), available=list(available))


@router.post("/attackers", status_code=202, responses=refusals(*BODY))
def add_attacker(gateway: TheGateway, operator: Caller, wanted: NewAttacker) -> JobList:
    """Let one more attacker judge from now on; the jobs verify what was granted before."""
    return JobList(jobs=list(gateway.add_attacker(operator, wanted.name)))


@router.post("/reviews", status_code=202)
def review(gateway: TheGateway, operator: Caller) -> JobList:
    """Verify every grant anew that does not hold under today's terms."""
    return JobList(jobs=list(gateway.review(operator)))


@router.get("/jobs/{job}", responses=refusals(404))
def show_job(gateway: TheGateway, principal: Caller, job: Identifier) -> JobView:
    """Return how far a job is and what came of it, as far as the caller may know."""
    return gateway.job(principal, job)


@router.delete("/jobs/{job}", responses=refusals(404, 409))
def cancel_job(gateway: TheGateway, principal: Caller, job: Identifier) -> JobView:
    """Stop a job: at once if it has not begun, else at its next step."""
    found = gateway.job(principal, job)
    only_if(found.state in UNFINISHED, f"this job has ended already: it is {found.state}.")
    return gateway.cancel(principal, job)


@router.get("/log")
def read_log(
    gateway: TheGateway,
    operator: Caller,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> EntryList:
    """Return entries behind a position, oldest first."""
    entries = gateway.entries(operator, after=after, limit=limit)
    return EntryList(entries=[EntryView(**asdict(entry)) for entry in entries])


@router.get("/log/head")
def log_head(gateway: TheGateway) -> HeadView:
    """Return the newest head of the log, signed: note it, and ask later whether the log still continues it."""
    return HeadView(**asdict(gateway.audit.head()))


@router.get("/log/consistency")
def log_consistency(
    gateway: TheGateway, first: Annotated[int, Query(ge=0)] = 0, second: Annotated[int | None, Query(ge=0)] = None
) -> ConsistencyView:
    """Prove (RFC 6962) that the log of one size is the beginning of that of another; without it, of the newest head."""
    head = gateway.audit.head()
    size = head.size if second is None else second
    proof = gateway.audit.consistency(first, size)
    return ConsistencyView(first=first, second=size, proof=proof, head=HeadView(**asdict(head)))


@router.post("/witness", responses=refusals(*BODY))
def witness_head(gateway: TheGateway, principal: Caller, told: NewHead) -> HeadView:
    """Remember the newest head of another service's log, if it continues what is known of that; return the newest."""
    return HeadView(**asdict(gateway.witness_head(principal, told.head.model_dump(), told.proof)))


@router.get("/witness/{key}", responses=refusals(404))
def witnessed_head(gateway: TheGateway, key: Identifier) -> HeadView:
    """Return the newest head that was remembered of the log with this key."""
    return HeadView(**asdict(gateway.witnessed_head(key)))


@router.get("/log/check")
def check_log(gateway: TheGateway, operator: Caller) -> LogCheckView:
    """Follow the whole log and tell where it breaks, if it does."""
    return LogCheckView(**asdict(gateway.check_log(operator)))


@router.get(
    "/log/export",
    response_class=Response,
    responses={200: {"content": {_LINES: {"schema": {"type": "string"}}}, "description": "a JSON document per line"}},
)
def export_log(gateway: TheGateway) -> Response:
    """Return the whole log as JSON lines, which `blindsight verify-log` checks."""
    lines = StringIO()
    gateway.audit.export(lines)
    return Response(lines.getvalue(), media_type=_LINES)


@router.get("/ledger")
def show_ledger(gateway: TheGateway, delta: Annotated[float, Query(gt=0, lt=1)] = 1e-6) -> LedgerView:
    """Return what was spent on every scope, at its budget's delta, or at this one where it has no budget."""
    path = gateway.settings.folder / "ledger.jsonl"
    rows = Ledger(path, readonly=True).table(delta=delta) if path.is_file() else ()
    return LedgerView(scopes=[_view(row) for row in rows])


def _view(row: Row) -> ScopeView:
    return ScopeView(
        scope=row.scope,
        unit=row.unit,
        neighbours=row.neighbours,
        releases=row.releases,
        epsilon=_plain(row.spent.epsilon),
        epsilon_basic=_plain(row.spent.basic),
        budget=None if row.budget is None else row.budget.epsilon,
    )


def _plain(epsilon: float) -> float | Literal["infinity"]:
    return "infinity" if epsilon == math.inf else epsilon
