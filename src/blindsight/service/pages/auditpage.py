"""The tab Audit: what an attacker draws from a plain update, and from what the aggregator really holds."""

from fastapi import APIRouter, Request, Response

from blindsight.service.pages.rendering import Pages


def add_routes(router: APIRouter, pages: Pages) -> None:
    """Add the address of this tab."""

    @router.get("/audit")
    def show(request: Request) -> Response:
        exhibit, state = pages.showcase.exhibit("audit"), pages.showcase.state("audit")
        return pages.render(request, "audit.html", exhibit=exhibit, state=state)
