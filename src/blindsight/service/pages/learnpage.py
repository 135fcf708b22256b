"""The tab Learn: a run of five owners, watched while it goes on, and what every scheme reaches and costs."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from blindsight.learn.comparison import installed_schemes
from blindsight.service.errors import Refusal
from blindsight.service.liverun import MOST_ROUNDS, LiveRun
from blindsight.service.pages.charts import LineChart
from blindsight.service.pages.rendering import Pages
from blindsight.service.pages.session import require

_LOOK = 0.2  # seconds between two looks at a run
_DIGITS = 9  # of the number of an event
_QUIET = 15.0  # seconds after which a watcher is told that the line still stands


def add_routes(router: APIRouter, pages: Pages) -> None:
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
