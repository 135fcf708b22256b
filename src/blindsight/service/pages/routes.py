"""All routes of the page: log in, files, and the tabs. Changes and slow work are POSTs of somebody logged in."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import compress
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from blindsight import client
from blindsight.dp.ledger import Ledger
from blindsight.errors import InputError, UnknownNameError
from blindsight.service.access import note_failure, pictures_of
from blindsight.service.cameras import MOST_DAYS, Retention
from blindsight.service.errors import Refusal
from blindsight.service.frames import MOST_FRAMES
from blindsight.service.jobs import UNFINISHED
from blindsight.service.log import Entry
from blindsight.service.models import Count, HandedOver, Name, addressable, in_days, record
from blindsight.service.pages import artefacts
from blindsight.service.pages.rendering import COOKIE, PageRoute, Pages, check_origin, pages_of
from blindsight.service.principals import Principal, Role
from blindsight.service.rows import SEAL
from blindsight.sift.stream import Then

_FOR_EVER = "public, max-age=31536000, immutable"
_FOR_A_MOMENT = "public, max-age=300"
_NOTHING = "there is nothing at this address."

ThePages = Annotated[Pages, Depends(pages_of)]


async def _posts_from_here(request: Request) -> None:
    if request.method == "POST":
        check_origin(request)


def _visitor(request: Request, pages: ThePages) -> Principal | None:
    return pages.visitor(request)


Visitor = Annotated[Principal | None, Depends(_visitor)]


def _only(*roles: Role) -> Any:
    def require(who: Visitor) -> Principal:
        if who is None:
            raise Refusal(401, "log in with a token first.")
        if who.role not in roles:
            raise Refusal(403, f"this is for the role {' or '.join(roles)}; you are logged in as {who.role}.")
        return who

    return Depends(require)


AnOwner = Annotated[Principal, _only("owner")]
AnApp = Annotated[Principal, _only("app")]
AnOperator = Annotated[Principal, _only("operator")]
OwnerOrOperator = Annotated[Principal, _only("owner", "operator")]

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[Depends(_posts_from_here)])


@router.get("/")
def home() -> Response:
    return RedirectResponse("/sift")


@router.get("/login")
def ask_for_token(request: Request, pages: ThePages, then: str = "/sift") -> Response:
    return pages.render(request, "login.html", then=_inside(then), problem="")


@router.post("/login")
def log_in(
    request: Request,
    pages: ThePages,
    token: Annotated[str, Form(max_length=200)],
    then: Annotated[str, Form()] = "/sift",
) -> Response:
    session = pages.sessions.begin(token.strip())
    if session is None:
        note_failure(request)
        problem = "This token opens nothing: it is mistyped, expired or revoked."
        return pages.render(request, "login.html", status=401, then=_inside(then), problem=problem)
    pages.sessions.end(request.cookies.get(COOKIE))
    return pages.set_cookie(request, RedirectResponse(_inside(then), 303), session)


@router.post("/logout")
def log_out(request: Request, pages: ThePages) -> Response:
    pages.sessions.end(request.cookies.get(COOKIE))
    return pages.set_cookie(request, RedirectResponse("/sift", 303), None)


def _inside(address: str) -> str:
    """Return an address on this page, whatever was asked for: never one of another site."""
    parts = urlsplit(address)
    inside = address.startswith("/") and not address.startswith(("//", "/\\")) and not parts.netloc
    return address if inside and address.isprintable() else "/sift"


@router.get("/static/{name}")
def static(pages: ThePages, name: str, v: str = "") -> Response:
    if name not in pages.static:
        raise Refusal(404, _NOTHING)
    kind, content = pages.static[name]
    kept = _FOR_EVER if v == pages.static_version(name) else _FOR_A_MOMENT
    return Response(content, media_type=kind, headers={"Cache-Control": kept})


# --- sift, and what is an owner's ---

_SHOWN = 24  # pictures of an owner


@router.get("/sift")
def show_sift(request: Request, pages: ThePages) -> Response:
    return _shown_sift(pages, request)


def _shown_sift(pages: Pages, request: Request, **news: Any) -> Response:
    """Return the tab; `news` is what an owner is told once."""
    who = pages.visitor(request)
    own = {} if who is None or who.role != "owner" else _desk(pages, request, who) | news
    return pages.render(request, "sift.html", who=who, about=pages.gateway.about(), desk=own)


def _desk(pages: Pages, request: Request, who: Principal) -> dict[str, Any]:
    """Return what lies before an owner: what they hide, what waits for an answer, what was answered, denied or has
    ended; their pictures, how long these are kept, and their cameras.
    """
    gateway = pages.gateway
    person, proposals = gateway.person(who, who.name), gateway.proposals(who)
    denied = [
        {"app": one.app, "state": "denied", "why": one.sentence or one.state}
        for one in proposals
        if one.verdict == "denied" or one.state in ("failed", "cancelled", "timed out")
    ]
    ended = [
        {"app": one.app, "state": "ended", "why": f"grant {one.number}: {one.reason or 'revoked'}"}
        for one in reversed(gateway.grants(who))
        if one.standing == "revoked"
    ]
    waiting = [one for one in proposals if one.answer is None and one.verdict not in (None, "denied")]
    waiting.sort(key=lambda one: one.verdict != "accept")  # what needs an answer comes first
    return {
        "public_key": who.public_key,
        "frames": gateway.frames.newest(who.name, _SHOWN),
        "count": person.frames,
        "attributes": gateway.attributes(),
        "private": person.private,
        "asked": [gateway.proposal(who, one.job) for one in waiting],
        "underway": [one for one in proposals if one.state in ("queued", "running")],
        "answered": [one for one in proposals if one.answer is not None][:10],
        "past": [*denied, *ended][:50],
        "retention": person.retention,
        "devices": gateway.devices(who),
        "most": MOST_FRAMES,
        "most_days": MOST_DAYS,
        "address": str(request.base_url).rstrip("/"),
        "results": (),
        "token": "",
    }


@router.post("/sift/private")
def hide(owner: AnOwner, pages: ThePages, attributes: Annotated[list[str], Form()]) -> Response:
    pages.gateway.set_private(owner, attributes)
    return RedirectResponse("/sift#desk", 303)


@router.post("/sift/answer")
def answer_proposal(
    owner: AnOwner,
    pages: ThePages,
    job: Annotated[str, Form(max_length=64)],
    said: Annotated[Literal["allow", "fewer", "refuse"] | None, Form()] = None,
    allowed: Annotated[Literal["allow", ""], Form()] = "",  # by the script, which sends the form without its button
    keys: Annotated[str, Form(max_length=100_000)] = "",
) -> Response:
    answer = allowed or said
    if answer is None:
        raise InputError("this answer is not known.")
    pages.gateway.answer(owner, job, answer, _keys(keys) if keys else None)
    return RedirectResponse("/sift#desk", 303)


def _keys(sent: str) -> dict[str, str]:
    try:
        return HandedOver.model_validate_json(f'{{"keys": {sent}}}').keys
    except ValueError:
        raise InputError("these are no keys of epochs.") from None


@router.get("/sift/keys")
def epochs(owner: AnOwner, pages: ThePages) -> Response:
    return JSONResponse({"epochs": [vars(record(client.Epoch, one)) for one in pages.gateway.epochs(owner)]})


@router.get("/sift/frames/{frame}")
def own_picture(owner: AnOwner, pages: ThePages, frame: str) -> Response:
    return Response(pages.gateway.picture(owner, frame), media_type="application/octet-stream")


@router.post("/sift/frames")
async def upload(request: Request, owner: AnOwner, pages: ThePages) -> Response:
    async with request.app.state.turns.of(owner.id) as work:
        sent = await pictures_of(request)
        async with work:
            results = await run_in_threadpool(pages.gateway.add_frames, owner, sent)
    return await run_in_threadpool(_shown_sift, pages, request, results=results)


@router.post("/sift/retention")
def set_retention(
    owner: AnOwner, pages: ThePages, frames: Annotated[str, Form()] = "", days: Annotated[str, Form()] = ""
) -> Response:
    pages.gateway.set_retention(owner, Retention(_whole(frames), _whole(days)))
    return RedirectResponse("/sift#cameras", 303)


def _whole(text: str) -> int | None:
    try:
        return int(text) if text.strip() else None
    except ValueError:
        raise InputError("a whole number is needed here, or nothing.") from None


@router.post("/sift/devices")
def add_device(
    request: Request,
    owner: AnOwner,
    pages: ThePages,
    name: Annotated[str, Form()],
    days: Annotated[str, Form()] = "",
) -> Response:
    made, token = pages.gateway.add_device(owner, name, _whole(days))
    return _shown_sift(pages, request, device=made, token=str(token))


@router.post("/sift/devices/revoke")
def revoke_device(owner: AnOwner, pages: ThePages, id: Annotated[str, Form(max_length=64)]) -> Response:
    pages.gateway.revoke_device(owner, id)
    return RedirectResponse("/sift#cameras", 303)


@router.get("/sift/log.jsonl")
def own_log(owner: AnOwner, pages: ThePages) -> Response:
    def lines() -> Iterator[str]:
        after = 0
        while entries := pages.gateway.own_entries(owner, after=after, limit=1000):
            yield from (json.dumps(vars(entry)) + "\n" for entry in entries)
            after = entries[-1].position

    return StreamingResponse(lines(), media_type="application/jsonl")


# --- what the operator put into the folder ---


@router.get("/learn")
def show_learn(request: Request, pages: ThePages, who: Visitor) -> Response:
    allowed = who is not None and who.role != "app"
    return pages.render(
        request,
        "artefacts.html",
        tab="learn",
        title="Learn together, unseen",
        lead="Owners train one model, and nobody sees another's pictures. Of each run: its rounds, and what is proven.",
        hint="what blindsight learn wrote goes into the folder runs of the service.",
        allowed=allowed,
        artefacts=artefacts.runs(pages.library) if allowed else [],
    )


@router.get("/search")
def show_search(request: Request, pages: ThePages, who: Visitor) -> Response:
    return pages.render(
        request,
        "artefacts.html",
        tab="search",
        title="Search without showing",
        lead="Pictures become short codes. Noise in the code protects every picture, with a proof.",
        hint="what blindsight search build wrote goes into the folder indexes of the service.",
        allowed=who is not None,
        artefacts=artefacts.indexes(pages.library) if who is not None else [],
    )


@router.get("/audit")
def show_audit(request: Request, pages: ThePages, who: Visitor) -> Response:
    allowed = who is not None and who.role != "app"
    return pages.render(
        request,
        "artefacts.html",
        tab="audit",
        title="Attacked by ourselves",
        lead="What attackers got out of runs, indexes and sifts, and how much of it was admitted.",
        hint="what blindsight audit wrote goes into the folder audits of the service.",
        allowed=allowed,
        artefacts=artefacts.audits(pages.settings.folder) if allowed else [],
    )


# --- ledger ---


_ENTRIES = 50  # of the log, on one page
_DELTA = 1e-6  # for scopes without a budget
_SMALL = frozenset(
    {"app", "attacker", "dimensions", "frame", "frames", "grant", "kind", "mode", "name", "number", "person", "private"}
    | {"public", "reason", "repeated", "role", "verdict"}
)  # details that a line shows at once


@router.get("/ledger")
def show_ledger(request: Request, pages: ThePages, who: Visitor, before: int | None = None) -> Response:
    values: dict[str, Any] = {"grants": (), "hides": (), "odometer": None, "books": None}
    if who is not None:
        values["grants"] = pages.gateway.grants(who)
        if who.role == "owner":
            values["hides"] = pages.gateway.person(who, who.name).private
            values["odometer"] = pages.gateway.measurement(who, who.name) if values["hides"] else None
        values["books"] = _books(pages, who, before) if who.role == "operator" else None
    return pages.render(request, "ledger.html", **values)


@router.post("/ledger/measure")
def measure(owner: AnOwner, pages: ThePages) -> Response:
    pages.gateway.odometer(owner, owner.name)
    return RedirectResponse("/ledger#odometer", 303)


@router.post("/ledger/revoke")
def revoke_grant(
    who: OwnerOrOperator,
    pages: ThePages,
    number: Annotated[int, Form()],
    reason: Annotated[str, Form(min_length=1, max_length=300)],
) -> Response:
    pages.gateway.revoke(who, number, reason)
    return RedirectResponse("/ledger", 303)


def _books(pages: Pages, operator: Principal, before: int | None) -> dict[str, Any]:
    """Return the latest lines of the log (or those before one of them), whether its chain holds, and the ledger."""
    pages.gateway.note(operator.id, "read", path="/ledger")
    check = pages.gateway.check_log(operator)
    last = min(check.entries, before - 1) if before is not None and before > 0 else check.entries
    first = max(0, last - _ENTRIES)
    entries = pages.gateway.entries(operator, after=first, limit=_ENTRIES) if last > 0 else ()
    path = pages.settings.folder / "ledger.jsonl"
    spent = Ledger(path, readonly=True).table(delta=_DELTA) if path.is_file() else ()
    names = {one.id: one.name for one in pages.principals.list()}
    lines = [_line(entry, names) for entry in reversed(entries) if entry.position <= last]
    return {"check": check, "lines": lines, "earlier": first, "spent": spent}


def _line(entry: Entry, names: Mapping[str, str]) -> dict[str, Any]:
    """Return an entry for people: who by name, the small facts, and the rest for those who want more."""
    shown = {key: value for key, value in entry.details.items() if key != SEAL and value not in (None, "", [])}
    facts = [(key, _text(value)) for key, value in shown.items()]
    small = [key in _SMALL for key, _ in facts]
    return {
        "position": entry.position,
        "time": entry.time[:19].replace("T", " "),
        "who": names.get(entry.actor, entry.actor),
        "action": entry.action,
        "told": list(compress(facts, small)),
        "more": [fact for fact, one in zip(facts, small, strict=True) if not one],
    }


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value)


# --- an operator's, an app's ---


@router.get("/operator")
def show_operator(request: Request, operator: AnOperator, pages: ThePages) -> Response:
    return _shown_operator(request, operator, pages)


def _shown_operator(
    request: Request, operator: Principal, pages: Pages, new: tuple[Principal, str] | None = None
) -> Response:
    """Return who may ask, who judges and on what; `new` is somebody with a code, shown once."""
    gateway = pages.gateway
    gateway.note(operator.id, "read", path="/operator")
    judging, available = gateway.attackers()
    return pages.render(
        request,
        "operator.html",
        principals=pages.principals.list(),
        code=None if new is None else {"name": new[0].name, "role": new[0].role, "text": new[1]},
        address=str(request.base_url).rstrip("/"),
        judging=judging,
        available=available,
        suspended=sum(one.standing == "suspended" for one in gateway.grants(operator)),
        about=gateway.about(),
        counts={
            name: (int((one == 1).sum()), int((one == 0).sum())) for name, one in gateway.platform.data.labels.items()
        },
        witnesses=pages.settings.witnesses,
        problems=gateway.audit.problems,
        head=gateway.audit.head(),
    )


@router.post("/operator/principals")
def add_principal(
    request: Request,
    operator: AnOperator,
    pages: ThePages,
    name: Annotated[str, Form(max_length=100)],
    role: Annotated[Literal["owner", "app", "operator"], Form()],
    days: Annotated[str, Form(max_length=5)] = "",
) -> Response:
    made, code = pages.gateway.create_principal(operator, addressable(name), role, expires=in_days(_whole(days)))
    return _shown_operator(request, operator, pages, (made, str(code)))


@router.post("/operator/code")
def issue_code(
    request: Request, operator: AnOperator, pages: ThePages, id: Annotated[str, Form(max_length=64)]
) -> Response:
    code = pages.gateway.issue_code(operator, id)
    return _shown_operator(request, operator, pages, (pages.principals.get(id), str(code)))


@router.post("/operator/revoke")
def revoke_principal(operator: AnOperator, pages: ThePages, id: Annotated[str, Form(max_length=64)]) -> Response:
    pages.gateway.revoke_principal(operator, id)
    return RedirectResponse("/operator#principals", 303)


@router.post("/operator/attackers")
def add_attacker(operator: AnOperator, pages: ThePages, name: Annotated[str, Form(max_length=100)]) -> Response:
    pages.gateway.add_attacker(operator, name)
    return RedirectResponse("/operator#attackers", 303)


@router.post("/operator/review")
def review(operator: AnOperator, pages: ThePages) -> Response:
    pages.gateway.review(operator)
    return RedirectResponse("/operator#attackers", 303)


@router.get("/app")
def show_app(request: Request, app: AnApp, pages: ThePages) -> Response:
    gateway, public = pages.gateway, tuple[str, ...]()
    with suppress(UnknownNameError):  # of an app that has not said yet what it asks for
        public = gateway.platform.asked(app.name)
    proposals = gateway.proposals(app)
    return pages.render(
        request,
        "app.html",
        about=gateway.about(),
        public=public,
        proposals=proposals,
        underway=any(one.state in UNFINISHED for one in proposals),
        grants=gateway.grants(app),
    )


@router.post("/app/public")
def register_app(app: AnApp, pages: ThePages, attributes: Annotated[list[Name], Form(max_length=32)]) -> Response:
    pages.gateway.register_app(app, attributes)
    return RedirectResponse("/app#asks", 303)


@router.post("/app/propose")
def propose(
    app: AnApp,
    pages: ThePages,
    person: Annotated[Name, Form()],
    frames: Annotated[Count, Form()],
    then: Annotated[Then, Form()] = "refuse",
) -> Response:
    pages.gateway.propose(app, person, frames=frames, then=then)
    return RedirectResponse("/app#proposals", 303)
