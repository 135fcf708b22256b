"""The endpoints: releases, principals, frames, proposals, grants, attackers, jobs, log, ledger, runs and indexes.

Each parses, calls one method of the gateway and returns its answer. Sifts come in as numbers, never as code; frames
come in, and only the person on them gets them out again.

*Runs and indexes* are what the operator put into the service's folder: ``runs/NAME`` is what `blindsight learn
encrypted` wrote, ``indexes/NAME`` what `blindsight search build` wrote; either may be a link. A name from outside only
ever picks one of the names that are there. Of a run nothing is shown but how it was set up, how far it is and its
statement: no model, no recorded round, no path of this machine. An index in local mode may be given away, so who has
something to hide in a query takes the whole of it and ranks at home; what it answers is computed from noisy releases
alone, so anybody may ask it. The codes of a central or open index carry no noise: only the operator may ask those with
a picture. Others ask under encryption (`search.encrypted_query`), as often in all as the owner of the index allows.
"""

import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Header, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from blindsight.dp.ledger import Ledger, Row
from blindsight.errors import CorruptFileError, InputError, PrivacyError, StorageError, UnknownNameError
from blindsight.files import storage_errors
from blindsight.search.encrypted_query import QueryServer
from blindsight.search.gallery import Gallery, gallery_file
from blindsight.service.access import (
    BODY,
    FORM,
    PICTURE,
    Answers,
    Caller,
    LeanRoute,
    Picture,
    Pictures,
    TheDoor,
    TheGateway,
    guarded_router,
    only_if,
    own,
    refusals,
)
from blindsight.service.cameras import Retention
from blindsight.service.errors import Refusal, problem
from blindsight.service.frames import decode_within
from blindsight.service.jobs import UNFINISHED
from blindsight.service.limits import network, retry_after
from blindsight.service.models import (
    Answer,
    AppView,
    AttackerList,
    Attributes,
    ConsistencyView,
    DeviceList,
    DeviceView,
    DeviceWithToken,
    Enrolment,
    EntryList,
    EntryView,
    EpochList,
    EpochView,
    Erased,
    FrameList,
    FrameResults,
    FrameView,
    GrantList,
    GrantView,
    HandedOver,
    HeadView,
    Hit,
    Hits,
    Identifier,
    IndexList,
    IndexView,
    JobList,
    JobView,
    LedgerView,
    LogCheckView,
    Name,
    NewAttacker,
    NewCode,
    NewDevice,
    NewHead,
    NewKey,
    NewPrincipal,
    NewProposal,
    NewRelease,
    NewReleases,
    NewRetention,
    PersonView,
    PlatformView,
    PrincipalList,
    PrincipalView,
    Private,
    ProposalList,
    ProposalView,
    Public,
    Released,
    ReleasedList,
    Revocation,
    RunList,
    RunView,
    ScopeView,
    StatementList,
    StatementView,
    WithCode,
    WithToken,
)
from blindsight.service.principals import DeadTokenError, skeleton
from blindsight.service.releases import SLOWEST, Release, events
from blindsight.statement import PrivacyStatement

router = guarded_router()

_LINES, _EVENTS = "application/jsonl", "text/event-stream"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_SEALED: dict[str, Any] = {"content": {"application/octet-stream": _BINARY, "image/png": _BINARY}}


async def release(gateway: TheGateway, app: Caller, door: TheDoor, wanted: NewRelease) -> Response:
    """Return what the app's grant lets out of some frames of a person, or refuse all of them together."""
    (released,) = await gateway.release_each(app, [wanted], door.token)
    if isinstance(released, Exception):
        raise released
    return Response(json.dumps(vars(released), allow_nan=False), media_type="application/json")


async def release_several(gateway: TheGateway, app: Caller, door: TheDoor, wanted: NewReleases) -> Response:
    """Do as /v1/releases for several; each has its own result or refusal, and counts as a request."""
    door.count(app, len(wanted.releases) - 1)
    results = await gateway.release_each(app, wanted.releases, door.token)
    if isinstance(results[0], DeadTokenError):
        raise results[0]
    return Response(json.dumps({"results": [_outcome(one) for one in results]}), media_type="application/json")


def _outcome(result: Release | Exception) -> dict[str, Any]:
    if not isinstance(result, Exception):
        return {"status": 200, "release": vars(result)}
    status, sentence = problem(result)
    return {"status": status, "error": sentence}


for _path, _endpoint, _model in (("", release, Released), ("/batch", release_several, ReleasedList)):
    router.add_api_route(
        f"/releases{_path}",
        _endpoint,
        methods=["POST"],
        response_model=_model,
        responses=refusals(404, *BODY),
        route_class_override=LeanRoute,
    )


@router.get(
    "/streams/{person}",
    response_class=StreamingResponse,
    responses=refusals(404) | {200: {"description": "server-sent events", "content": {_EVENTS: {}}}},
)
async def open_stream(
    request: Request,
    gateway: TheGateway,
    app: Caller,
    person: Name,
    every: Annotated[float, Query(gt=0, le=SLOWEST, description="Seconds between two releases.")] = 1.0,
    last_event_id: Annotated[str | None, Header(max_length=20, pattern="^[0-9]*$")] = None,
) -> StreamingResponse:
    """Release the newest frame of a person every `every` seconds, as server-sent events, until the grant ends. Events
    are "release" (as from POST /v1/releases) and "end" with the reason. With `Last-Event-ID` what was sent since comes
    again first, and is not charged again.
    """
    if every < gateway.settings.stream_seconds:
        raise InputError(f"every must be at least {gateway.settings.stream_seconds:g} seconds; got {every:g}.")
    after = int(last_event_id) if last_event_id else None
    stream = await run_in_threadpool(gateway.streams.open, app, person, after)
    token = request.headers["authorization"].partition(" ")[2].strip()

    def admitted() -> bool:
        if gateway.authenticate(token) is None:
            raise PrivacyError("this token opens nothing any more.")
        return not request.app.state.limit.take(app.id)

    return StreamingResponse(events(gateway.streams, stream, every, admitted), media_type=_EVENTS)


@router.get("/me")
def who_am_i(principal: Caller) -> PrincipalView:
    """Return whose token was sent."""
    return PrincipalView.model_validate(principal)


T = TypeVar("T")
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[Identifier | None, Query()]  # the last one of the page before


def _behind(all_: Sequence[T], named: Callable[[T], str], after: str | None, limit: int) -> Sequence[T]:
    start = 0 if after is None else next((at for at, one in enumerate(all_, 1) if named(one) == after), None)
    if start is None:
        raise UnknownNameError("frame", str(after), ())
    return all_[start : start + limit]


@router.get("/principals", responses=refusals(404))
def list_principals(gateway: TheGateway, after: After = None, limit: Limit = 100) -> PrincipalList:
    """Return everybody, also the revoked, in the order they came; `limit` after an id."""
    some = _behind(gateway.principals.list(), lambda one: one.id, after, limit)
    return PrincipalList(principals=[PrincipalView.model_validate(one) for one in some])


@router.post("/principals", status_code=201, responses=refusals(409, *BODY))
def create_principal(gateway: TheGateway, operator: Caller, wanted: NewPrincipal) -> WithCode:
    """Add somebody and return the code with which they make their token, this once."""
    taken = map(skeleton, (one.name for one in gateway.principals.list()))
    only_if(skeleton(wanted.name) not in taken, "this name is taken, or looks like one that is.")
    expires = _in_days(wanted.days)
    principal, code = gateway.create_principal(operator, wanted.name, wanted.role, expires=expires, hours=wanted.hours)
    return WithCode(principal=PrincipalView.model_validate(principal), code=str(code))


@router.post("/principals/{id}/enrolment", status_code=201, responses=refusals(404, *BODY))
def issue_code(gateway: TheGateway, operator: Caller, id: Identifier, wanted: NewCode) -> WithCode:
    """Issue another code for who lost a token or a key. The token, and grants about an owner, end at once; pictures of
    before stay sealed for the key of before.
    """
    code = gateway.issue_code(operator, id, hours=wanted.hours, expires=_in_days(wanted.days))
    return WithCode(principal=PrincipalView.model_validate(gateway.principals.get(id)), code=str(code))


def enrol(request: Request, gateway: TheGateway, sent: Enrolment) -> WithToken:
    """Redeem a code: make the token that nobody else sees, this once."""
    address = network(request.client.host if request.client else "unknown")
    wait = request.app.state.enrolling.take(address)
    if wait:
        gateway.note("stranger", "refuse enrolment", address=address, reason="too many attempts")
        raise Refusal(
            429, f"too many attempts. Try again in {retry_after(wait)} s.", {"Retry-After": retry_after(wait)}
        )
    principal, token = gateway.enrol(sent.code, sent.public_key, address=address)
    return WithToken(principal=PrincipalView.model_validate(principal), token=str(token))


@router.post("/me/token", status_code=201)
def rotate_token(gateway: TheGateway, principal: Caller) -> WithToken:
    """Replace one's own token; the old one opens nothing any more."""
    return WithToken(principal=PrincipalView.model_validate(principal), token=str(gateway.rotate_token(principal)))


@router.put("/me/key", responses=refusals(*BODY))
def register_key(gateway: TheGateway, owner: Caller, sent: NewKey) -> PrincipalView:
    """Register a key where none is: pictures that an earlier version left unencrypted are sealed for it."""
    return PrincipalView.model_validate(gateway.register_key(owner, sent.public_key))


@router.delete("/principals/{id}", responses=refusals(404))
def revoke_principal(gateway: TheGateway, operator: Caller, id: Identifier) -> PrincipalView:
    """Make somebody's token worthless for ever."""
    gateway.revoke_principal(operator, id)
    return PrincipalView.model_validate(gateway.principals.get(id))


@router.get("/attributes")
def list_attributes(gateway: TheGateway) -> Attributes:
    """Return the attributes the platform has labels for; no other can be protected."""
    return Attributes(attributes=list(gateway.attributes()))


@router.get("/platform")
def show_platform(gateway: TheGateway) -> PlatformView:
    """Return the features that sifts are fitted to, the attributes, and how much can be verified."""
    return gateway.about()


@router.get("/people/{person}", responses=refusals(404))
def show_person(gateway: TheGateway, principal: Caller, person: Name) -> PersonView:
    """Return what a person hides and how many pictures of them are here."""
    own(principal, person)
    return gateway.person(principal, person)


@router.put("/people/{person}/private", status_code=202, responses=refusals(404, *BODY))
def set_private(gateway: TheGateway, owner: Caller, person: Name, wanted: Private) -> JobView:
    """Hide these attributes from now on; a grant not verified against all of them waits until the job has done so."""
    own(owner, person)
    return gateway.set_private(owner, wanted.attributes)


@router.post("/people/{person}/odometer", status_code=202, responses=refusals(404))
def read_odometer(gateway: TheGateway, principal: Caller, person: Name) -> JobView:
    """Measure how well each hidden attribute is guessed from all that is out; the job's result has the readings."""
    own(principal, person)
    return gateway.odometer(principal, person)


@router.get("/people/{person}/frames", responses=refusals(404))
def list_frames(gateway: TheGateway, owner: Caller, person: Name, after: After = None, limit: Limit = 100) -> FrameList:
    """Return the ids of a person's pictures, oldest first; `limit` after one of them."""
    own(owner, person)
    some = _behind(gateway.frame_ids(owner), lambda id: id, after, limit)
    return FrameList(frames=list(some), stale=list(gateway.stale_frames(owner)))


@router.post("/people/{person}/frames", status_code=201, responses=refusals(404, *BODY), openapi_extra=PICTURE)
def add_frame(gateway: TheGateway, principal: Caller, person: Name, picture: Picture) -> FrameView:
    """Take in a picture: the body is the file itself. Nothing in the file but its pixels is kept."""
    own(principal, person)
    return FrameView(frame=gateway.add_frame(principal, picture))


@router.post("/people/{person}/frames/batch", responses=refusals(404, *BODY), openapi_extra=FORM)
def add_frames(gateway: TheGateway, principal: Caller, person: Name, pictures: Pictures) -> FrameResults:
    """Take in several pictures, the files of a form; each has its own result."""
    own(principal, person)
    return FrameResults(results=list(gateway.add_frames(principal, pictures)))


@router.put("/people/{person}/retention", responses=refusals(404, *BODY))
def set_retention(gateway: TheGateway, owner: Caller, person: Name, wanted: NewRetention) -> PersonView:
    """Keep the newest `frames`, those of the last `days`, or both; others are deleted at once and from now on."""
    own(owner, person)
    gateway.set_retention(owner, Retention(wanted.frames, wanted.days))
    return gateway.person(owner, person)


@router.get("/people/{person}/devices", responses=refusals(404))
def list_devices(gateway: TheGateway, owner: Caller, person: Name) -> DeviceList:
    """Return a person's cameras, also the revoked."""
    own(owner, person)
    return DeviceList(devices=[DeviceView.model_validate(one) for one in gateway.devices(owner)])


@router.post("/people/{person}/devices", status_code=201, responses=refusals(404, *BODY))
def add_device(gateway: TheGateway, owner: Caller, person: Name, wanted: NewDevice) -> DeviceWithToken:
    """Add a camera, whose token can bring frames of this person and nothing else; it is shown this once."""
    own(owner, person)
    made, token = gateway.add_device(owner, wanted.name, wanted.days)
    return DeviceWithToken(device=DeviceView.model_validate(made), token=str(token))


@router.delete("/people/{person}/devices/{device}", responses=refusals(404))
def revoke_device(gateway: TheGateway, owner: Caller, person: Name, device: Identifier) -> DeviceView:
    """Make a camera's token worthless for ever."""
    own(owner, person)
    return DeviceView.model_validate(gateway.revoke_device(owner, device))


@router.get("/people/{person}/log", responses=refusals(404))
def read_own_log(
    gateway: TheGateway,
    owner: Caller,
    person: Name,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> EntryList:
    """Return the entries of the log that are about a person, after a position, oldest first."""
    own(owner, person)
    entries = gateway.own_entries(owner, after=after, limit=limit)
    return EntryList(entries=[EntryView(**asdict(entry)) for entry in entries])


@router.get(
    "/people/{person}/frames/{frame}",
    response_class=Response,
    responses=refusals(404) | {200: {"description": "the picture, sealed for its owner's key", **_SEALED}},
)
def show_frame(gateway: TheGateway, owner: Caller, person: Name, frame: Identifier) -> Response:
    """Return a picture to the person on it: a PNG file sealed for their key; a plain one is of an earlier version."""
    own(owner, person)
    content, sealed = gateway.picture(owner, frame)
    return Response(content, media_type="application/octet-stream" if sealed else "image/png")


@router.get("/people/{person}/keys", responses=refusals(404))
def list_epochs(gateway: TheGateway, owner: Caller, person: Name) -> EpochList:
    """Return the epochs of a person, whose secrets only their own key opens; to allow a proposal needs these."""
    own(owner, person)
    views = [EpochView.model_validate(one) for one in gateway.epochs(owner)]
    return EpochList(epochs=views, plain=gateway.frames.plain(owner.name))


@router.put("/people/{person}/keys", responses=refusals(404, *BODY))
def hand_over_keys(gateway: TheGateway, owner: Caller, person: Name, sent: HandedOver) -> PersonView:
    """Hand over the keys of epochs again, after the machine lost them; a grant must be live."""
    own(owner, person)
    gateway.hand_over_keys(owner, sent.keys)
    return gateway.person(owner, person)


@router.delete("/people/{person}", responses=refusals(404))
def erase_person(gateway: TheGateway, principal: Caller, person: Name) -> Erased:
    """Remove a person's frames, features, keys and grants for ever, and make their token worthless; the log stays."""
    own(principal, person)
    return Erased(person=person, frames=gateway.erase_person(principal, person))


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
    return gateway.propose(
        app, wanted.person, wanted.sift, frames=wanted.frames, then=wanted.then, personal=wanted.personal
    )


@router.get("/proposals", responses=refusals(404))
def list_proposals(gateway: TheGateway, principal: Caller, after: After = None, limit: Limit = 100) -> ProposalList:
    """Return the proposals that concern the caller, newest first, without evidence; `limit` after a job."""
    return ProposalList(proposals=list(gateway.proposals(principal, after=after, limit=limit)))


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
    return gateway.answer(owner, job, said.answer, said.keys)


@router.get("/grants")
def list_grants(
    gateway: TheGateway, principal: Caller, after: Annotated[int, Query(ge=0, lt=2**31)] = 0, limit: Limit = 100
) -> GrantList:
    """Return the grants that concern the caller, oldest first, revoked ones included; `limit` after a number."""
    return GrantList(grants=list(gateway.grants(principal, after=after, limit=limit)))


@router.post("/grants/{number}/revocation", responses=refusals(404, *BODY))
def revoke_grant(
    gateway: TheGateway, principal: Caller, number: Annotated[int, InPath(ge=1, lt=2**31)], said: Revocation
) -> GrantView:
    """End a grant. What it told cannot be taken back, and still counts with later grants."""
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
    """Verify again every grant that does not hold under today's terms."""
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
    """Return entries after a position, oldest first."""
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


def _in_days(days: int | None) -> datetime | None:
    return None if days is None else datetime.now(UTC) + timedelta(days=days)


def _plain(epsilon: float) -> float | Literal["infinity"]:
    return "infinity" if epsilon == math.inf else epsilon


_ABOUT, _STATEMENT, _HISTORY = "run.json", "statement.json", "history.json"


@dataclass(frozen=True)
class RunRecord:
    """A run as it lies in its folder; without a statement it is not finished."""

    name: str
    about: dict[str, Any]
    history: list[dict[str, Any]]
    statement: PrivacyStatement | None


class Library:
    """Runs and indexes under one folder."""

    def __init__(self, folder: Path) -> None:
        self._runs, self._indexes = folder / "runs", folder / "indexes"
        self._open: dict[str, tuple[int, Gallery]] = {}
        self._answering: dict[str, tuple[Gallery, QueryServer]] = {}
        self._mutex = threading.Lock()

    def runs(self) -> tuple[str, ...]:
        return _names(self._runs, lambda folder: (folder / _ABOUT).is_file())

    def run(self, name: str) -> RunRecord:
        if name not in self.runs():
            raise UnknownNameError("run", name, self.runs())
        folder = self._runs / name
        about = _document(folder / _ABOUT, dict)
        history = _document(folder / _HISTORY, list) if (folder / _HISTORY).is_file() else []
        said = folder / _STATEMENT
        statement = PrivacyStatement.from_dict(_document(said, dict)) if said.is_file() else None
        return RunRecord(name, about, history, statement)

    def indexes(self) -> tuple[str, ...]:
        return _names(self._indexes, lambda folder: gallery_file(folder) is not None)

    def index(self, name: str) -> Gallery:
        """Return an index, read once until it is built again."""
        file = gallery_file(self._indexes / name) if name in self.indexes() else None
        if file is None:
            raise UnknownNameError("index", name, self.indexes())
        with storage_errors("read", file):
            made = file.stat().st_mtime_ns
        with self._mutex:
            known = self._open.get(name)
            if known is None or known[0] != made:
                known = self._open[name] = (made, Gallery.load(self._indexes / name))
        return known[1]

    def query_server(self, name: str) -> QueryServer:
        """Return what answers encrypted queries to an index; its codes are encoded once."""
        gallery = self.index(name)
        with self._mutex:
            known = self._answering.get(name)
            if known is None or known[0] is not gallery:
                known = self._answering[name] = (gallery, QueryServer(gallery, self._indexes / name))
        return known[1]


def _names(folder: Path, holds: Callable[[Path], bool]) -> tuple[str, ...]:
    if not folder.is_dir():
        return ()
    with storage_errors("read", folder):
        return tuple(sorted(one.name for one in folder.iterdir() if not one.name.startswith(".") and holds(one)))


def _document(path: Path, kind: type) -> Any:
    with storage_errors("read", path):
        text = path.read_text()
    try:
        document = json.loads(text)
    except ValueError:
        raise CorruptFileError(f"{path} is not JSON: damaged, or of another version.") from None
    if not isinstance(document, kind):
        raise StorageError(f"{path} is of another kind or version.")
    return document


async def _library(request: Request) -> Library:
    library = request.app.state.library
    assert isinstance(library, Library)
    return library


TheLibrary = Annotated[Library, Depends(_library)]


def _octets(what: str) -> Answers:
    return {200: {"content": {"application/octet-stream": {}}, "description": what}}


@router.get("/indexes")
def list_indexes(library: TheLibrary) -> IndexList:
    """Return all indexes and what is proven about each."""
    return IndexList(indexes=[_index_view(name, library.index(name)) for name in library.indexes()])


@router.post("/indexes/{name}/query", responses=refusals(404, *BODY), openapi_extra=PICTURE)
def query_index(
    gateway: TheGateway,
    library: TheLibrary,
    principal: Caller,
    name: str,
    picture: Picture,
    k: Annotated[int, Query(ge=1, le=100)] = 10,
) -> Hits:
    """Return the nearest pictures to the one that was sent, by their numbers."""
    gallery = library.index(name)
    if gallery.mode != "local" and principal.role != "operator":
        raise PrivacyError(f"the codes of a {gallery.mode} index carry no noise: only the operator may ask it.")
    query = decode_within(picture, size=gallery.side, pixels=gateway.settings.picture_pixels)
    found = gallery.search(query[None], min(k, len(gallery)))[0]
    return Hits(hits=[Hit(number=hit.number, nearness=hit.nearness) for hit in found])


@router.get("/indexes/{name}/file", responses=refusals(404) | _octets("The index."), response_class=Response)
def take_index(
    library: TheLibrary,
    name: str,
    numbers: Annotated[bool, Query(description="With the numbers of pictures, eight bytes each.")] = True,
) -> Response:
    """Return the whole of an index in local mode, to be asked where the query is."""
    return Response(library.index(name).given_away(numbers=numbers), media_type="application/octet-stream")


@router.get("/indexes/{name}/encrypted", responses=refusals(404) | _octets("The set-up."), response_class=Response)
def query_setup(library: TheLibrary, name: str) -> Response:
    """Return what is needed before the first encrypted query: the hash function, numbers, and what is proven."""
    return Response(library.query_server(name).setup().to_bytes(), media_type="application/octet-stream")


@router.post(
    "/indexes/{name}/encrypted",
    responses=refusals(404, *BODY) | _octets("The encrypted distances."),
    response_class=Response,
    openapi_extra=PICTURE,
)
def answer_encrypted(library: TheLibrary, name: str, query: Picture) -> Response:
    """Return the encrypted distances of all pictures to an encrypted query, if the budget of the index allows it."""
    return Response(library.query_server(name).answer(query), media_type="application/octet-stream")


def _index_view(name: str, gallery: Gallery) -> IndexView:
    headline = gallery.statement.headline()
    return IndexView(name=name, mode=gallery.mode, pictures=len(gallery), headline=headline)


@router.get("/runs")
def list_runs(library: TheLibrary) -> RunList:
    """Return the names of all runs."""
    return RunList(runs=list(library.runs()))


@router.get("/runs/{name}", responses=refusals(404))
def show_run(library: TheLibrary, name: str) -> RunView:
    """Return how a run was set up, its rounds so far, and (once it is finished) its privacy statement."""
    run = library.run(name)
    return RunView(
        name=name,
        data=str(run.about.get("data", "")),
        owners=int(run.about.get("owners", 0)),
        features=str(run.about.get("features", "")),
        finished=run.statement is not None,
        rounds=len(run.history),
        score=run.history[-1].get("score") if run.history else None,
        history=run.history,
        statement=None if run.statement is None else run.statement.to_dict(),
    )


@router.get("/statements")
def list_statements(gateway: TheGateway, library: TheLibrary, principal: Caller) -> StatementList:
    """Return every statement the caller may read; those of learning runs are not for apps."""
    said = [(subject, dict(statement)) for subject, statement in gateway.statements(principal)]
    said += [(f"index {name}", library.index(name).statement.to_dict()) for name in library.indexes()]
    if principal.role == "app":
        return _listed(said)
    finished = ((name, library.run(name).statement) for name in library.runs())
    said += [(f"run {name}", statement.to_dict()) for name, statement in finished if statement is not None]
    return _listed(said)


def _listed(said: list[tuple[str, dict[str, Any]]]) -> StatementList:
    return StatementList(statements=[StatementView(subject=subject, statement=one) for subject, one in said])
