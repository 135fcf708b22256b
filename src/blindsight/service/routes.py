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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Header, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from blindsight import client
from blindsight.crypto.merkle import TreeHead
from blindsight.dp.ledger import Ledger
from blindsight.errors import CorruptFileError, InputError, PrivacyError, StorageError, UnknownNameError
from blindsight.files import storage_errors
from blindsight.search.encrypted_query import QueryServer
from blindsight.search.gallery import Gallery, gallery_file
from blindsight.service import models
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
from blindsight.service.keys import SealedFor
from blindsight.service.limits import network, retry_after
from blindsight.service.log import LogCheck
from blindsight.service.models import Identifier, Name, in_days, record
from blindsight.service.principals import DeadTokenError, Principal
from blindsight.service.releases import SLOWEST, events
from blindsight.statement import PrivacyStatement

router = guarded_router()


async def _their_own(principal: Caller, person: Name) -> Principal:
    own(principal, person)
    return principal


Own = Annotated[Principal, Depends(_their_own)]  # of /people/{person}: that person, their device, or an operator

_LINES, _EVENTS = "application/jsonl", "text/event-stream"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_SEALED: dict[str, Any] = {"content": {"application/octet-stream": _BINARY}}


async def release(gateway: TheGateway, app: Caller, door: TheDoor, wanted: models.NewRelease) -> Response:
    """Return what the app's grant lets out of some frames of a person, or refuse all of them together."""
    (released,) = await gateway.release_each(app, [wanted], door.token)
    if isinstance(released, Exception):
        raise released
    return Response(json.dumps(vars(released), allow_nan=False), media_type="application/json")


async def release_several(gateway: TheGateway, app: Caller, door: TheDoor, wanted: models.NewReleases) -> Response:
    """Do as /v1/releases for several; each has its own result or refusal, and counts as a request."""
    door.count(app, len(wanted.releases) - 1)
    results = await gateway.release_each(app, wanted.releases, door.token)
    if isinstance(results[0], DeadTokenError):
        raise results[0]
    return Response(json.dumps({"results": [_outcome(one) for one in results]}), media_type="application/json")


def _outcome(result: client.Release | Exception) -> dict[str, Any]:
    if not isinstance(result, Exception):
        return {"status": 200, "release": vars(result)}
    status, sentence = problem(result)
    return {"status": status, "error": sentence}


for _path, _endpoint, _model in (("", release, models.Released), ("/batch", release_several, models.ReleasedList)):
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
def who_am_i(principal: Caller) -> client.Principal:
    """Return whose token was sent."""
    return record(client.Principal, principal)


T = TypeVar("T")
Limit = Annotated[int, Query(ge=1, le=1000)]
Position = Annotated[int, Query(ge=0, lt=2**63)]


def _expected(
    owner_key: Annotated[models.Hex | None, Query()] = None, epoch_key: Annotated[models.Hex | None, Query()] = None
) -> SealedFor:
    """Read the public keys that a picture must be sealed for."""
    return SealedFor(owner_key, epoch_key)


Expected = Annotated[SealedFor, Depends(_expected)]
After = Annotated[Identifier | None, Query()]  # the last one of the page before


@router.get("/principals", response_model=models.PrincipalList, responses=refusals(404))
def list_principals(gateway: TheGateway, after: After = None, limit: Limit = 100) -> Any:
    """Return everybody, also the revoked, in the order they came; `limit` after an id."""
    last = None if after is None else gateway.principals.get(after)
    some = gateway.principals.list(after=last, limit=limit)
    return {"principals": [record(client.Principal, one) for one in some]}


@router.post("/principals", response_model=models.WithCode, status_code=201, responses=refusals(409, *BODY))
def create_principal(gateway: TheGateway, operator: Caller, wanted: models.NewPrincipal) -> Any:
    """Add somebody and return the code with which they make their token, this once."""
    expires = in_days(wanted.days)
    principal, code = gateway.create_principal(operator, wanted.name, wanted.role, expires=expires, hours=wanted.hours)
    return {"principal": record(client.Principal, principal), "code": str(code)}


@router.post(
    "/principals/{id}/enrolment", response_model=models.WithCode, status_code=201, responses=refusals(404, *BODY)
)
def issue_code(gateway: TheGateway, operator: Caller, id: Identifier, wanted: models.NewCode) -> Any:
    """Issue another code for who lost a token or a key. The token, and grants about an owner, end at once; pictures of
    before stay sealed for the key of before.
    """
    code = gateway.issue_code(operator, id, hours=wanted.hours, expires=in_days(wanted.days))
    return {"principal": record(client.Principal, gateway.principals.get(id)), "code": str(code)}


def enrol(request: Request, gateway: TheGateway, sent: models.Enrolment) -> Any:
    """Redeem a code: make the token that nobody else sees, this once."""
    address = network(request.client.host if request.client else "unknown")
    wait = request.app.state.enrolling.take(address)
    if wait:
        gateway.note("stranger", "refuse enrolment", address=address, reason="too many attempts")
        raise Refusal(
            429, f"too many attempts. Try again in {retry_after(wait)} s.", {"Retry-After": retry_after(wait)}
        )
    principal, token = gateway.enrol(sent.code, sent.public_key, address=address)
    return {"principal": record(client.Principal, principal), "token": str(token)}


@router.post("/me/token", response_model=models.WithToken, status_code=201)
def rotate_token(gateway: TheGateway, principal: Caller) -> Any:
    """Replace one's own token; the old one opens nothing any more."""
    return {"principal": record(client.Principal, principal), "token": str(gateway.rotate_token(principal))}


@router.delete("/principals/{id}", responses=refusals(404))
def revoke_principal(gateway: TheGateway, operator: Caller, id: Identifier) -> client.Principal:
    """Make somebody's token worthless for ever."""
    gateway.revoke_principal(operator, id)
    return record(client.Principal, gateway.principals.get(id))


@router.get("/attributes", response_model=models.Attributes)
def list_attributes(gateway: TheGateway) -> Any:
    """Return the attributes the platform has labels for; no other can be protected."""
    return {"attributes": gateway.attributes()}


@router.get("/platform")
def show_platform(gateway: TheGateway) -> client.Platform:
    """Return the features that sifts are fitted to, the attributes, and how much can be verified."""
    return gateway.about()


@router.get("/people/{person}", responses=refusals(404))
def show_person(gateway: TheGateway, principal: Own, person: Name) -> client.Person:
    """Return what a person hides and how many pictures of them are here."""
    return gateway.person(principal, person)


@router.put("/people/{person}/private", status_code=202, responses=refusals(404, *BODY))
def set_private(gateway: TheGateway, owner: Own, wanted: models.Private) -> client.Job:
    """Hide these attributes from now on; a grant not verified against all of them waits until the job has done so."""
    return gateway.set_private(owner, wanted.attributes)


@router.post("/people/{person}/odometer", status_code=202, responses=refusals(404))
def read_odometer(gateway: TheGateway, principal: Own, person: Name) -> client.Job:
    """Measure how well each hidden attribute is guessed from all that is out; the job's result has the readings."""
    return gateway.odometer(principal, person)


@router.get("/people/{person}/frames", response_model=models.FrameList, responses=refusals(404))
def list_frames(gateway: TheGateway, owner: Own, after: After = None, limit: Limit = 100) -> Any:
    """Return the ids of a person's pictures, oldest first; `limit` after one of them."""
    return {
        "frames": gateway.frame_ids(owner, after=after, limit=limit),
        "stale": gateway.stale_frames(owner),
    }


@router.post(
    "/people/{person}/frames",
    response_model=models.FrameView,
    status_code=201,
    responses=refusals(404, *BODY),
    openapi_extra=PICTURE,
)
def add_frame(gateway: TheGateway, principal: Own, picture: Picture, expected: Expected) -> Any:
    """Take in a picture: the body is the file itself. Nothing but its pixels is kept, sealed for the keys that are
    named or, where none is, for those in the service's database.
    """
    return {"frame": gateway.add_frame(principal, picture, expected)}


@router.post(
    "/people/{person}/frames/batch",
    response_model=models.FrameResults,
    responses=refusals(404, *BODY),
    openapi_extra=FORM,
)
def add_frames(gateway: TheGateway, principal: Own, pictures: Pictures, expected: Expected) -> Any:
    """Take in several pictures, the files of a form; each has its own result."""
    return {"results": gateway.add_frames(principal, pictures, expected)}


@router.put("/people/{person}/retention", responses=refusals(404, *BODY))
def set_retention(gateway: TheGateway, owner: Own, person: Name, wanted: models.NewRetention) -> client.Person:
    """Keep the newest `frames`, those of the last `days`, or both; others are deleted at once and from now on."""
    gateway.set_retention(owner, Retention(wanted.frames, wanted.days))
    return gateway.person(owner, person)


@router.get("/people/{person}/devices", response_model=models.DeviceList, responses=refusals(404))
def list_devices(gateway: TheGateway, owner: Own) -> Any:
    """Return a person's cameras, also the revoked."""
    return {"devices": [record(client.Device, one) for one in gateway.devices(owner)]}


@router.post(
    "/people/{person}/devices", response_model=models.DeviceWithToken, status_code=201, responses=refusals(404, *BODY)
)
def add_device(gateway: TheGateway, owner: Own, wanted: models.NewDevice) -> Any:
    """Add a camera, whose token can bring frames of this person and nothing else; it is shown this once."""
    made, token = gateway.add_device(owner, wanted.name, wanted.days)
    return {"device": record(client.Device, made), "token": str(token)}


@router.delete("/people/{person}/devices/{device}", responses=refusals(404))
def revoke_device(gateway: TheGateway, owner: Own, device: Identifier) -> client.Device:
    """Make a camera's token worthless for ever."""
    return record(client.Device, gateway.revoke_device(owner, device))


@router.get("/people/{person}/log", response_model=models.EntryList, responses=refusals(404))
def read_own_log(gateway: TheGateway, owner: Own, after: Position = 0, limit: Limit = 100) -> Any:
    """Return the entries of the log that are about a person, after a position, oldest first."""
    return {"entries": gateway.own_entries(owner, after=after, limit=limit)}


@router.get(
    "/people/{person}/frames/{frame}",
    response_class=Response,
    responses=refusals(404) | {200: {"description": "the picture, sealed for its owner's key", **_SEALED}},
)
def show_frame(gateway: TheGateway, owner: Own, frame: Identifier) -> Response:
    """Return a picture to the person on it: a PNG file sealed for their key."""
    return Response(gateway.picture(owner, frame), media_type="application/octet-stream")


@router.get("/people/{person}/keys", response_model=models.EpochList, responses=refusals(404))
def list_epochs(gateway: TheGateway, owner: Own) -> Any:
    """Return the epochs of a person, whose secrets only their own key opens; to allow a proposal needs these."""
    epochs = [record(client.Epoch, one) for one in gateway.epochs(owner)]
    return {"epochs": epochs}


@router.put("/people/{person}/keys", responses=refusals(404, *BODY))
def hand_over_keys(gateway: TheGateway, owner: Own, person: Name, sent: models.HandedOver) -> client.Person:
    """Hand over the keys of epochs again, after the machine lost them; a grant must be live."""
    gateway.hand_over_keys(owner, sent.keys)
    return gateway.person(owner, person)


@router.delete("/people/{person}", response_model=models.Erased, responses=refusals(404))
def erase_person(gateway: TheGateway, principal: Own, person: Name) -> Any:
    """Remove a person's frames, features, keys and grants for ever, and make their token worthless; the log stays."""
    return {"person": person, "frames": gateway.erase_person(principal, person)}


@router.delete("/people/{person}/frames/{frame}", response_model=models.FrameView, responses=refusals(404))
def delete_frame(gateway: TheGateway, owner: Own, frame: Identifier) -> Any:
    """Forget a picture and its features; what was released of it cannot be taken back."""
    gateway.delete_frame(owner, frame)
    return {"frame": frame}


@router.put("/apps/{app}/public", response_model=models.AppView, responses=refusals(*BODY))
def register_app(gateway: TheGateway, principal: Caller, app: Name, wanted: models.Public) -> Any:
    """Note what an app wants to know; where that changes, its grants are revoked."""
    own(principal, app)
    return {"app": app, "public": gateway.register_app(principal, wanted.attributes)}


@router.post("/proposals", status_code=202, responses=refusals(404, *BODY))
def propose(gateway: TheGateway, app: Caller, wanted: models.NewProposal) -> client.Job:
    """Ask for something about a person; the job verifies whether it may be granted."""
    return gateway.propose(
        app, wanted.person, wanted.sift, frames=wanted.frames, then=wanted.then, personal=wanted.personal
    )


@router.get("/proposals", response_model=models.ProposalList, responses=refusals(404))
def list_proposals(gateway: TheGateway, principal: Caller, after: After = None, limit: Limit = 100) -> Any:
    """Return the proposals that concern the caller, newest first, without evidence; `limit` after a job."""
    return {"proposals": gateway.proposals(principal, after=after, limit=limit)}


@router.get("/proposals/{job}", responses=refusals(404))
def show_proposal(gateway: TheGateway, principal: Caller, job: Identifier) -> client.Proposal:
    """Return a proposal: to its app the verdict, to the person and the operator all evidence."""
    return gateway.proposal(principal, job)


@router.post("/proposals/{job}/answer", responses=refusals(404, 409, *BODY))
def answer_proposal(gateway: TheGateway, owner: Caller, job: Identifier, said: models.Answer) -> client.Proposal:
    """Allow what was verified (it becomes a grant), ask for fewer details (another job verifies them), or refuse."""
    proposal = gateway.proposal(owner, job)
    only_if(proposal.state == "done", f"this proposal cannot be answered: its verification is {proposal.state}.")
    only_if(proposal.answer in (None, said.answer), f"this proposal is answered already: {proposal.answer}.")
    return gateway.answer(owner, job, said.answer, said.keys)


@router.get("/grants", response_model=models.GrantList)
def list_grants(
    gateway: TheGateway, principal: Caller, after: Annotated[int, Query(ge=0, lt=2**31)] = 0, limit: Limit = 100
) -> Any:
    """Return the grants that concern the caller, oldest first, revoked ones included; `limit` after a number."""
    return {"grants": gateway.grants(principal, after=after, limit=limit)}


@router.post("/grants/{number}/revocation", responses=refusals(404, *BODY))
def revoke_grant(
    gateway: TheGateway, principal: Caller, number: Annotated[int, InPath(ge=1, lt=2**31)], said: models.Revocation
) -> client.Grant:
    """End a grant. What it told cannot be taken back, and still counts with later grants."""
    return gateway.revoke(principal, number, said.reason)


@router.get("/attackers", response_model=models.AttackerList)
def list_attackers(gateway: TheGateway) -> Any:
    """Return who judges now and who could be added."""
    judging, available = gateway.attackers()
    return {"judging": judging, "available": available}


@router.post("/attackers", response_model=models.JobList, status_code=202, responses=refusals(*BODY))
def add_attacker(gateway: TheGateway, operator: Caller, wanted: models.NewAttacker) -> Any:
    """Let one more attacker judge from now on; the jobs verify what was granted before."""
    return {"jobs": gateway.add_attacker(operator, wanted.name)}


@router.post("/reviews", response_model=models.JobList, status_code=202)
def review(gateway: TheGateway, operator: Caller) -> Any:
    """Verify again every grant that does not hold under today's terms."""
    return {"jobs": gateway.review(operator)}


@router.get("/jobs/{job}", responses=refusals(404))
def show_job(gateway: TheGateway, principal: Caller, job: Identifier) -> client.Job:
    """Return how far a job is and what came of it, as far as the caller may know."""
    return gateway.job(principal, job)


@router.delete("/jobs/{job}", responses=refusals(404, 409))
def cancel_job(gateway: TheGateway, principal: Caller, job: Identifier) -> client.Job:
    """Stop a job: at once if it has not begun, else at its next step."""
    found = gateway.job(principal, job)
    only_if(found.state in UNFINISHED, f"this job has ended already: it is {found.state}.")
    return gateway.cancel(principal, job)


@router.get("/log", response_model=models.EntryList)
def read_log(gateway: TheGateway, operator: Caller, after: Position = 0, limit: Limit = 100) -> Any:
    """Return entries after a position, oldest first."""
    return {"entries": gateway.entries(operator, after=after, limit=limit)}


@router.get("/log/head")
def log_head(gateway: TheGateway, principal: Caller) -> TreeHead:
    """Return the newest head of the log, signed: note it, and ask later whether the log still continues it. An app gets
    a new one on a fixed beat and with its releases.
    """
    return gateway.log_head(principal)


@router.get("/log/consistency", response_model=models.ConsistencyView)
def log_consistency(
    gateway: TheGateway,
    principal: Caller,
    first: Annotated[int, Query(ge=0)] = 0,
    second: Annotated[int | None, Query(ge=0)] = None,
) -> Any:
    """Prove (RFC 6962) that the log of one size is the beginning of that of another; without it, of the newest head."""
    head, size, proof = gateway.log_proof(principal, first, second)
    return {"first": first, "second": size, "proof": proof, "head": head}


@router.post("/witness", responses=refusals(*BODY))
def witness_head(gateway: TheGateway, principal: Caller, told: models.NewHead) -> TreeHead:
    """Remember the newest head of another service's log, if it continues what is known of that; return the newest."""
    return gateway.witness_head(principal, told.head.model_dump(), told.proof)


@router.get("/witness/{key}", responses=refusals(404))
def witnessed_head(gateway: TheGateway, key: Identifier) -> TreeHead:
    """Return the newest head that was remembered of the log with this key."""
    return gateway.witnessed_head(key)


@router.get("/log/check")
def check_log(gateway: TheGateway, operator: Caller) -> LogCheck:
    """Follow the whole log and tell where it breaks, if it does."""
    return gateway.check_log(operator)


@router.get(
    "/log/export",
    response_class=Response,
    responses={200: {"content": {_LINES: {"schema": {"type": "string"}}}, "description": "a JSON document per line"}},
)
def export_log(gateway: TheGateway) -> Response:
    """Return the whole log as JSON lines, which `blindsight verify-log` checks."""
    return StreamingResponse(gateway.audit.export(), media_type=_LINES)


@router.get("/ledger", response_model=models.LedgerView)
def show_ledger(gateway: TheGateway, delta: Annotated[float, Query(gt=0, lt=1)] = 1e-6) -> Any:
    """Return what was spent on every scope, at its budget's delta, or at this one where it has no budget."""
    path = gateway.settings.folder / "ledger.jsonl"
    rows = Ledger(path, readonly=True).table(delta=delta) if path.is_file() else ()
    return {
        "scopes": [
            {name: getattr(row, name) for name in ("scope", "unit", "neighbours", "releases")}
            | {"epsilon": _finite(row.spent.epsilon), "epsilon_basic": _finite(row.spent.basic)}
            | {"budget": None if row.budget is None else row.budget.epsilon}
            for row in rows
        ]
    }


def _finite(epsilon: float) -> float | Literal["infinity"]:
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
        return names_in(self._runs, lambda folder: (folder / _ABOUT).is_file())

    def run(self, name: str) -> RunRecord:
        if name not in self.runs():
            raise UnknownNameError("run", name, self.runs())
        folder = self._runs / name
        about = document(folder / _ABOUT, dict)
        history = document(folder / _HISTORY, list) if (folder / _HISTORY).is_file() else []
        said = folder / _STATEMENT
        statement = PrivacyStatement.from_dict(document(said, dict)) if said.is_file() else None
        return RunRecord(name, about, history, statement)

    def indexes(self) -> tuple[str, ...]:
        return names_in(self._indexes, lambda folder: gallery_file(folder) is not None)

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


def names_in(folder: Path, holds: Callable[[Path], bool]) -> tuple[str, ...]:
    if not folder.is_dir():
        return ()
    with storage_errors("read", folder):
        return tuple(sorted(one.name for one in folder.iterdir() if not one.name.startswith(".") and holds(one)))


def document(path: Path, kind: type) -> Any:
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


@router.get("/indexes", response_model=models.IndexList)
def list_indexes(library: TheLibrary) -> Any:
    """Return all indexes and what is proven about each."""
    return {
        "indexes": [
            client.Index(name, one.mode, len(one), one.statement.headline())
            for name, one in ((name, library.index(name)) for name in library.indexes())
        ]
    }


@router.post("/indexes/{name}/query", response_model=models.Hits, responses=refusals(404, *BODY), openapi_extra=PICTURE)
def query_index(
    gateway: TheGateway,
    library: TheLibrary,
    principal: Caller,
    name: str,
    picture: Picture,
    k: Annotated[int, Query(ge=1, le=100)] = 10,
) -> Any:
    """Return the nearest pictures to the one that was sent, by their numbers."""
    gallery = library.index(name)
    if gallery.mode != "local" and principal.role != "operator":
        raise PrivacyError(f"the codes of a {gallery.mode} index carry no noise: only the operator may ask it.")
    query = decode_within(picture, size=gallery.side, pixels=gateway.settings.picture_pixels)
    found = gallery.search(query[None], min(k, len(gallery)))[0]
    return {"hits": [record(client.Hit, hit) for hit in found]}


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


@router.get("/runs", response_model=models.RunList)
def list_runs(library: TheLibrary) -> Any:
    """Return the names of all runs."""
    return {"runs": library.runs()}


@router.get("/runs/{name}", responses=refusals(404))
def show_run(library: TheLibrary, name: str) -> client.Run:
    """Return how a run was set up, its rounds so far, and (once it is finished) its privacy statement."""
    run = library.run(name)
    return client.Run(
        name=name,
        data=str(run.about.get("data", "")),
        owners=int(run.about.get("owners", 0)),
        features=str(run.about.get("features", "")),
        finished=run.statement is not None,
        rounds=len(run.history),
        score=run.history[-1].get("score") if run.history else None,
        history=tuple(run.history),
        statement=None if run.statement is None else run.statement.to_dict(),
    )


@router.get("/statements", response_model=models.StatementList)
def list_statements(gateway: TheGateway, library: TheLibrary, principal: Caller) -> Any:
    """Return every statement the caller may read; those of learning runs are not for apps."""
    said = [(subject, dict(statement)) for subject, statement in gateway.statements(principal)]
    said += [(f"index {name}", library.index(name).statement.to_dict()) for name in library.indexes()]
    if principal.role != "app":
        finished = ((name, library.run(name).statement) for name in library.runs())
        said += [(f"run {name}", statement.to_dict()) for name, statement in finished if statement is not None]
    return {"statements": [{"subject": subject, "statement": one} for subject, one in said]}
