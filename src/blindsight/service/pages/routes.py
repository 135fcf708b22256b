"""All addresses of the page. What changes something, or takes more than a moment, is a POST of somebody logged in."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from blindsight.service.errors import Refusal
from blindsight.service.gateway import Gateway
from blindsight.service.pages import auditpage, learnpage, ledgerpage, searchpage, siftpage
from blindsight.service.pages.rendering import Pages, route_class
from blindsight.service.pages.session import check_origin, forget, is_encrypted, remember
from blindsight.service.principals import Principals
from blindsight.service.settings import ServiceSettings
from blindsight.service.showcase import Showcase

_FOR_EVER = "public, max-age=31536000, immutable"
_FOR_A_MOMENT = "public, max-age=300"


def page_router(gateway: Gateway, showcase: Showcase, principals: Principals, settings: ServiceSettings) -> APIRouter:
    """Return everything that people look at; the caller starts and closes the showcase."""
    pages = Pages(gateway, showcase, principals, settings)
    router = APIRouter(
        route_class=route_class(pages), include_in_schema=False, dependencies=[Depends(_posts_from_here)]
    )
    _add_door(router, pages)
    _add_files(router, pages)
    for tab in (siftpage, searchpage, learnpage, auditpage, ledgerpage):
        tab.add_routes(router, pages)
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
        if pages.principals.authenticate(token.strip()) is None:
            problem = "This token opens nothing: it is mistyped, expired or revoked."
            return pages.render(request, "login.html", status=401, then=_inside(then), problem=problem)
        response = RedirectResponse(_inside(then), 303)
        remember(response, token.strip(), encrypted=is_encrypted(request, pages.settings))
        return response

    @router.post("/logout")
    def log_out(request: Request) -> Response:
        response = RedirectResponse("/sift", 303)
        forget(response, encrypted=is_encrypted(request, pages.settings))
        return response


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
