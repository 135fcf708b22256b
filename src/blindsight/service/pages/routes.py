"""All addresses of the page: the door, the files, and five tabs.

What changes something, or takes more than a moment, is a POST of somebody logged in.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from itertools import compress
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse

from blindsight.data.faces import ATTRIBUTES
from blindsight.dp.ledger import Ledger
from blindsight.errors import InputError, UnknownNameError
from blindsight.learn.comparison import installed_schemes
from blindsight.service.access import note_failure
from blindsight.service.demo import MOST_ROUNDS, LiveRun, Showcase, sift_name
from blindsight.service.errors import Refusal
from blindsight.service.exhibits import PRIVATE
from blindsight.service.gateway import Gateway
from blindsight.service.log import Entry
from blindsight.service.pages.rendering import COOKIE, LineChart, Pages, check_origin, require, route_class
from blindsight.service.principals import Principal, Principals
from blindsight.service.settings import ServiceSettings

_FOR_EVER = "public, max-age=31536000, immutable"
_FOR_A_MOMENT = "public, max-age=300"


def page_router(gateway: Gateway, showcase: Showcase, principals: Principals, settings: ServiceSettings) -> APIRouter:
    """Return everything that people look at; the caller starts and closes the showcase."""
    pages = Pages(gateway, showcase, principals, settings)
    router = APIRouter(
        route_class=route_class(pages), include_in_schema=False, dependencies=[Depends(_posts_from_here)]
    )
    for add in (_add_door, _add_files, _add_sift, _add_search, _add_learn, _add_audit, _add_ledger):
        add(router, pages)
    return router


async def _posts_from_here(request: Request) -> None:
    if request.method == "POST":
        check_origin(request)


def _add_door(router: APIRouter, pages: Pages) -> None:
    @router.get("/")
    def home() -> Response:
        return RedirectResponse("/sift")

    @router.get("/login")
    def ask(request: Request, then: str = "/sift") -> Response:
        return pages.render(request, "login.html", then=_inside(then), problem="")

    @router.post("/login")
    def log_in(
        request: Request, token: Annotated[str, Form(max_length=200)], then: Annotated[str, Form()] = "/sift"
    ) -> Response:
        session = pages.sessions.begin(token.strip())
        if session is None:
            note_failure(request)
            problem = "This token opens nothing: it is mistyped, expired or revoked."
            return pages.render(request, "login.html", status=401, then=_inside(then), problem=problem)
        pages.sessions.end(request.cookies.get(COOKIE))
        return pages.set_cookie(request, RedirectResponse(_inside(then), 303), session)

    @router.post("/logout")
    def log_out(request: Request) -> Response:
        pages.sessions.end(request.cookies.get(COOKIE))
        return pages.set_cookie(request, RedirectResponse("/sift", 303), None)


def _add_files(router: APIRouter, pages: Pages) -> None:
    @router.get("/static/{name}")
    def static(name: str, v: str = "") -> Response:
        if name not in pages.static:
            raise Refusal(404, "there is nothing at this address.")
        kind, content = pages.static[name]
        kept = _FOR_EVER if v == pages.static_version(name) else _FOR_A_MOMENT
        return Response(content, media_type=kind, headers={"Cache-Control": kept})

    @router.get("/exhibits/{name}")
    def state(name: str) -> Response:
        return JSONResponse(vars(pages.showcase.state(name)))

    @router.get("/exhibits/{name}/data.json")
    def data(name: str) -> Response:
        found = pages.showcase.exhibit(name)
        if found is None:
            raise Refusal(404, "this is not computed yet.")
        return JSONResponse(found)

    @router.get("/exhibits/{name}/{file}")
    def picture(name: str, file: str) -> Response:
        content = pages.showcase.picture(name, file)
        if content is None:
            raise Refusal(404, "there is nothing at this address.")
        return Response(content, media_type="image/png")


def _inside(address: str) -> str:
    """Return an address on this page, whatever was asked for: never one of another site."""
    parts = urlsplit(address)
    inside = address.startswith("/") and not address.startswith(("//", "/\\")) and not parts.netloc
    return address if inside and address.isprintable() else "/sift"


_PUBLIC, _PRIVATE = Showcase.FIRST


def _add_sift(router: APIRouter, pages: Pages) -> None:
    @router.get("/sift")
    def show(request: Request, public: str = _PUBLIC, private: str = _PRIVATE) -> Response:
        name = sift_name(public, private)
        exhibit, who = pages.showcase.exhibit(name), pages.visitor(request)
        return pages.render(
            request,
            "sift.html",
            who=who,
            attributes=ATTRIBUTES,
            public=public,
            private=private,
            name=name,
            exhibit=exhibit,
            state=pages.showcase.state(name),
            charts=() if exhibit is None else trade_off_charts(exhibit),
            desk=None if who is None or who.role != "owner" else _desk(pages, who),
        )

    @router.post("/sift/try")
    def try_policy(request: Request, public: Annotated[str, Form()], private: Annotated[str, Form()]) -> Response:
        require(pages.visitor(request), "owner", "operator")
        pages.showcase.ask(sift_name(public, private))
        return RedirectResponse(f"/sift?public={public}&private={private}", 303)

    @router.post("/sift/private")
    def hide(request: Request, attributes: Annotated[list[str], Form()]) -> Response:
        pages.gateway.set_private(require(pages.visitor(request), "owner"), attributes)
        return RedirectResponse("/sift#desk", 303)

    @router.post("/sift/answer")
    def answer(
        request: Request,
        job: Annotated[str, Form(max_length=64)],
        said: Annotated[Literal["allow", "fewer", "refuse"], Form()],
    ) -> Response:
        pages.gateway.answer(require(pages.visitor(request), "owner"), job, said)
        return RedirectResponse("/sift#desk", 303)


def _desk(pages: Pages, who: Principal) -> dict[str, Any]:
    """Return what lies before an owner: what they hide, what waits for an answer, and what was answered."""
    proposals = pages.gateway.proposals(who)
    waiting = [one.job for one in proposals if one.answer is None and one.verdict not in (None, "denied")]
    return {
        "attributes": pages.gateway.attributes(),
        "private": pages.gateway.person(who, who.name).private,
        "asked": [pages.gateway.proposal(who, job) for job in waiting],
        "underway": [one for one in proposals if one.state in ("queued", "running")],
        "answered": [one for one in proposals if one.answer is not None][:10],
    }


def trade_off_charts(exhibit: dict[str, Any]) -> tuple[LineChart, LineChart]:
    """Return what the app reads, and what an attacker reads, against K: a line per lambda."""
    found = exhibit["trade_off"]
    numbers = sorted({point["k"] for curve in found["curves"] for point in curve["points"]})

    def chart(figure: str, who: str, levels: dict[str, float]) -> LineChart:
        lines = {}
        for curve in found["curves"]:
            by_number = {point["k"]: point[figure] for point in curve["points"]}
            lines[f"λ = {curve['name']}"] = [by_number.get(number) for number in numbers]
        ends = "; ".join(f"{name}: {values[0]:.2f} to {values[-1]:.2f}" for name, values in lines.items())
        return LineChart(
            x=numbers,
            ticks=[str(number) for number in numbers],
            lines=lines,
            levels=levels,
            x_label="numbers let out, K",
            y_label="balanced accuracy",
            low=0.4,
            high=1.0,
            alt=f"What {who} reads against K. {ends}.",
        )

    return (
        chart("told", "the app", {"raw features": found["raw"]}),
        chart("hidden", "an attacker", {"allowed": 0.5 + exhibit["threshold"], "blind": 0.5}),
    )


def _add_search(router: APIRouter, pages: Pages) -> None:
    @router.get("/search")
    def show(request: Request, query: int = 6, epsilon: float = 4.0, method: str = PRIVATE[0]) -> Response:
        exhibit = pages.showcase.exhibit("search")
        values: dict[str, Any] = {"chosen": None, "charts": ()}
        if exhibit is not None:
            values = {"chosen": _chosen(exhibit, query, epsilon, method), "charts": (map_chart(exhibit),)}
        return pages.render(
            request,
            "search.html",
            exhibit=exhibit,
            state=pages.showcase.state("search"),
            query=query,
            epsilon=epsilon,
            method=method,
            methods=PRIVATE,
            **values,
        )


def _chosen(exhibit: dict[str, Any], query: int, epsilon: float, method: str) -> dict[str, Any]:
    """Return a query with its answers by the three ways."""
    if not 0 <= query < len(exhibit["queries"]):
        raise InputError(f"the query must be in [0, {len(exhibit['queries']) - 1}]; got {query}.")
    if epsilon not in exhibit["epsilons"]:
        raise InputError(f"epsilon must be one of {', '.join(f'{one:g}' for one in exhibit['epsilons'])} here.")
    if method not in PRIVATE:
        raise UnknownNameError("method", method, PRIVATE)
    asked = exhibit["queries"][query]
    ways = []
    for title, name, budget in (
        ("Exact features", "features", None),
        ("Open codes", "ITQ", None),
        (f"Private codes, ε = {epsilon:g}", method, epsilon),
    ):
        found = next(one for one in asked["answers"] if (one["method"], one["epsilon"]) == (name, budget))
        scores = next(one for one in exhibit["methods"] if one["name"] == name)["scores"]
        row = next(one for one in scores if one["epsilon"] == budget)
        ways.append({"title": title, "found": found["found"], **row})
    statement = next(one for one in exhibit["methods"] if one["name"] == method)["statement"]
    return {"picture": asked["picture"], "label": asked["label"], "ways": ways, "statement": statement}


def map_chart(exhibit: dict[str, Any]) -> LineChart:
    """Return mAP against epsilon: a line per private method; open codes and chance as levels."""
    scores = {one["name"]: {row["epsilon"]: row["score"] for row in one["scores"]} for one in exhibit["methods"]}
    lines = {name: [scores[name].get(epsilon) for epsilon in exhibit["epsilons"]] for name in PRIVATE}
    spoken = "; ".join(f"{name} {values[0]:.2f} to {values[-1]:.2f}" for name, values in lines.items())
    return LineChart(
        x=[math.log2(epsilon) for epsilon in exhibit["epsilons"]],
        ticks=[f"{epsilon:g}" for epsilon in exhibit["epsilons"]],
        lines=lines,
        levels={"open codes": scores["ITQ"][None], "chance": exhibit["chance"]},
        x_label="ε per record, proven",
        y_label="mAP",
        low=0.0,
        high=1.0,
        alt=f"mAP against epsilon from {exhibit['epsilons'][0]:g} to {exhibit['epsilons'][-1]:g}: {spoken}.",
    )


_LOOK = 0.2  # seconds between two looks at a run
_DIGITS = 9  # of the number of an event
_QUIET = 15.0  # seconds after which a watcher is told that the line still stands


def _add_learn(router: APIRouter, pages: Pages) -> None:
    """Add the addresses of this tab."""
    runs = pages.showcase.runs

    @router.get("/learn")
    def show(request: Request) -> Response:
        exhibit, live = pages.showcase.exhibit("learn"), runs.latest
        run = live.to_dict() if live is not None else None if exhibit is None else recorded_run(exhibit)
        return pages.render(
            request,
            "learn.html",
            exhibit=exhibit,
            state=pages.showcase.state("learn"),
            run=run,
            views="/exhibits/learn" if live is None else f"/learn/runs/{live.number}",
            charts=() if run is None else (score_chart(run),),
            schemes=installed_schemes(),
            most_rounds=MOST_ROUNDS,
        )

    @router.post("/learn/start")
    def start(request: Request, scheme: Annotated[str, Form()], rounds: Annotated[int, Form()]) -> Response:
        require(pages.visitor(request), "owner", "operator")
        runs.start(scheme, rounds)
        return RedirectResponse("/learn#run", 303)

    @router.post("/learn/stop")
    def stop(request: Request) -> Response:
        require(pages.visitor(request), "owner", "operator")
        runs.stop()
        return RedirectResponse("/learn#run", 303)

    @router.get("/learn/runs/{number}/events")
    async def events(request: Request, number: int, after: int = 0) -> Response:
        run = _run(pages, number)
        said = request.headers.get("last-event-id", "")[:_DIGITS]
        place = int(said) if said.isdecimal() else after
        return StreamingResponse(_stream(run, place), media_type="text/event-stream")

    @router.get("/learn/runs/{number}/{file}")
    def view(number: int, file: str) -> Response:
        content = _run(pages, number).pictures.get(file)
        if content is None:
            raise Refusal(404, "there is nothing at this address.")
        return Response(content, media_type="image/png")


def _run(pages: Pages, number: int) -> LiveRun:
    run = pages.showcase.runs.latest
    if run is None or run.number != number:
        raise Refusal(404, "this run is no longer kept.")
    return run


async def _stream(run: LiveRun, place: int) -> AsyncIterator[str]:
    """Tell what happens in a run from an event on, until its end; event ids let a watcher come back."""
    quiet = 0.0
    while True:
        for event in run.since(place):
            place += 1
            yield f"id: {place}\nevent: {event.kind}\ndata: {json.dumps(event.data)}\n\n"
            quiet = 0.0
            if event.kind == "end":
                return
        if run.ended and not run.since(place):
            return
        await asyncio.sleep(_LOOK)
        quiet += _LOOK
        if quiet >= _QUIET:
            quiet = 0.0
            yield ": still here\n\n"


def recorded_run(exhibit: dict[str, Any]) -> dict[str, Any]:
    """Return the run that was played when the showcase was made, as a live one that has ended."""
    last = {"what": "finished", "done": exhibit["run"]["rounds"], "total": exhibit["run"]["rounds"]}
    run: dict[str, Any] = exhibit["run"] | {"number": None, "ended": True, "last": last, "events": 0}
    return run


def score_chart(run: dict[str, Any]) -> LineChart:
    """Return accuracy against rounds; round 0 is the public model."""
    numbers = list(range(run["rounds"] + 1))
    scores: list[float | None] = [run["first_score"], *(one["score"] for one in run["seen"])]
    known = [score for score in scores if score is not None]
    spoken = f"from {known[0]:.3f} to {known[-1]:.3f}" if known else "not known yet"
    lowest = min([0.8, *known])
    return LineChart(
        x=numbers,
        ticks=[str(number) for number in numbers],
        lines={"accuracy": [*scores, *[None] * (len(numbers) - len(scores))]},
        levels={"public model": run["first_score"]} if run["first_score"] is not None else {},
        x_label="round",
        y_label="accuracy",
        low=int(10 * lowest) / 10,
        high=1.0,
        alt=f"Accuracy over attributes, {spoken}.",
    )


def _add_audit(router: APIRouter, pages: Pages) -> None:
    """Add the address of this tab."""

    @router.get("/audit")
    def show(request: Request) -> Response:
        exhibit, state = pages.showcase.exhibit("audit"), pages.showcase.state("audit")
        return pages.render(request, "audit.html", exhibit=exhibit, state=state)


_ENTRIES = 50  # of the log, on one page
_DELTA = 1e-6  # for scopes without a budget
_SMALL = frozenset(
    {"app", "attacker", "dimensions", "frame", "frames", "grant", "kind", "mode", "name", "number", "person", "private"}
    | {"public", "reason", "repeated", "role", "verdict"}
)  # details that a line shows at once


def _add_ledger(router: APIRouter, pages: Pages) -> None:
    @router.get("/ledger")
    def show(request: Request, before: int | None = None) -> Response:
        who = pages.visitor(request)
        values: dict[str, Any] = {"grants": (), "hides": (), "odometer": None, "books": None}
        if who is not None:
            values["grants"] = pages.gateway.grants(who)
            if who.role == "owner":
                values["hides"] = pages.gateway.person(who, who.name).private
                values["odometer"] = pages.gateway.measurement(who, who.name) if values["hides"] else None
            values["books"] = _books(pages, who, before) if who.role == "operator" else None
        return pages.render(request, "ledger.html", **values)

    @router.post("/ledger/measure")
    def measure(request: Request) -> Response:
        owner = require(pages.visitor(request), "owner")
        pages.gateway.odometer(owner, owner.name)
        return RedirectResponse("/ledger#odometer", 303)

    @router.post("/ledger/revoke")
    def revoke(
        request: Request, number: Annotated[int, Form()], reason: Annotated[str, Form(min_length=1, max_length=300)]
    ) -> Response:
        pages.gateway.revoke(require(pages.visitor(request), "owner", "operator"), number, reason)
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
    """Return an entry as people read it: who by name, the small facts, and the rest for whoever wants more."""
    facts = [(key, _text(value)) for key, value in entry.details.items() if value not in (None, "", [])]
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
