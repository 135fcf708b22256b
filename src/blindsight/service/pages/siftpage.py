"""The tab Sift: a policy tried on drawn faces, and below it what apps ask of the person who is logged in."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from blindsight.data.faces import ATTRIBUTES
from blindsight.service.pages.charts import LineChart
from blindsight.service.pages.rendering import Pages
from blindsight.service.pages.session import require
from blindsight.service.principals import Principal
from blindsight.service.showcase import Showcase, sift_name

_PUBLIC, _PRIVATE = Showcase.FIRST


def add_routes(router: APIRouter, pages: Pages) -> None:
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
