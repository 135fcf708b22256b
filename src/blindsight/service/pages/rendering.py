"""From plain data to a page: templates, static files, and refusals that a person can read.

Everything a template puts into a page is escaped; there is no script, style or event handler inside a page, so that the
content policy of the service (`limits`) can forbid them all.
"""

import hashlib
import logging
from base64 import b64encode
from collections.abc import Callable, Coroutine
from functools import cached_property
from importlib.resources import files
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from blindsight.errors import BlindsightError
from blindsight.service.errors import Refusal, status_of
from blindsight.service.gateway import Gateway
from blindsight.service.pages import charts
from blindsight.service.pages.session import visitor
from blindsight.service.principals import Principal, Principals
from blindsight.service.settings import ServiceSettings
from blindsight.service.showcase import Showcase
from blindsight.sift.study import words
from blindsight.statement import PrivacyStatement

logger = logging.getLogger(__name__)

TABS = {"sift": "Sift", "search": "Search", "learn": "Learn", "audit": "Audit", "ledger": "Ledger"}

_TYPES = {"css": "text/css", "js": "text/javascript", "txt": "text/plain"}


class Pages:
    """What every tab needs: the service behind it, and the way to show something."""

    def __init__(self, gateway: Gateway, showcase: Showcase, principals: Principals, settings: ServiceSettings) -> None:
        self.gateway, self.showcase, self.principals, self.settings = gateway, showcase, principals, settings
        self._environment = _environment()
        self._environment.globals.update(static=self._static_address, tabs=TABS, bar=charts.bar, tint=charts.tint)
        self._environment.globals.update(inline=self._inline)

    def visitor(self, request: Request) -> Principal | None:
        """Return who looks."""
        return visitor(request, self.principals)

    def render(self, request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page."""
        values.setdefault("who", self.visitor(request))
        page = self._environment.get_template(template).render(tab=template.removesuffix(".html"), **values)
        return HTMLResponse(page, status)

    def refusal(self, request: Request, status: int, sentence: str) -> HTMLResponse:
        """Return a page that says why something was not done."""
        sentence = sentence[:1].upper() + sentence[1:]
        return self.render(request, "problem.html", status=status, sentence=sentence)

    @cached_property
    def static(self) -> dict[str, tuple[str, bytes]]:
        """The static files by name, each with its type; the report's style sheet is among them."""
        folder = files("blindsight.service.pages") / "static"
        found = {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
        found["report.css"] = (files("blindsight.report") / "templates" / "report.css").read_bytes()
        return {name: (_TYPES[name.rpartition(".")[2]], content) for name, content in found.items()}

    def static_version(self, name: str) -> str:
        """Return what changes with a file's content."""
        return hashlib.sha256(self.static[name][1]).hexdigest()[:12]

    def _static_address(self, name: str) -> str:
        return f"/static/{name}?v={self.static_version(name)}"

    def _inline(self, exhibit: str, file: str) -> str:
        """Return a small picture as an address that holds it, where a request for each would be too many."""
        return "data:image/png;base64," + b64encode(self.showcase.picture(exhibit, file) or b"").decode()


def route_class(pages: Pages) -> type[APIRoute]:
    """Return routes whose refusals are pages."""

    class PageRoute(APIRoute):
        """A route for people."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            """Return the handler, whose errors become pages."""
            handle = super().get_route_handler()

            async def shown(request: Request) -> Response:
                try:
                    return await handle(request)
                except Refusal as refusal:
                    return pages.refusal(request, refusal.status, str(refusal))
                except RequestValidationError:
                    return pages.refusal(request, 422, "something in this form is missing or not as it should be.")
                except BlindsightError as error:
                    status = status_of(error)
                    if status == 503:  # names files of this machine
                        logger.error("%s %s: %s", request.method, request.url.path, error)
                        return pages.refusal(request, 503, "a part of the service is not available at the moment.")
                    return pages.refusal(request, status, str(error))

            return shown

    return PageRoute


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("blindsight.service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(words=words, percent=_percent, statement=_statement)
    return environment


def _percent(share: float | None, digits: int = 0) -> str:
    return "–" if share is None else f"{share:.{digits}%}"


def _statement(data: dict[str, Any]) -> Markup:
    return Markup(PrivacyStatement.from_dict(data).to_html())  # noqa: S704 - it escapes every text
