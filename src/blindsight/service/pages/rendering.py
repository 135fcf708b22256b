"""From plain data to a page: sessions, charts, templates, static files, and refusals that a person can read.

*The guarantee.* The cookie holds the token itself and is looked up on every request, so a token that expired or was
revoked opens nothing, from that moment on. What changes anything is a POST that this page itself sent (`check_origin`),
with a cookie that browsers send to this page alone (`SameSite=Strict`). No token is ever in an address. Browsers send
the cookie to every port of this machine: log out on a machine whose other services you do not trust. Everything a
template puts into a page is escaped; there is no script, style or event handler inside a page, so that the content
policy of the service (`limits`) can forbid them all.
"""

import hashlib
import json
import logging
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from blindsight.errors import BlindsightError
from blindsight.service.demo import Showcase
from blindsight.service.errors import Refusal, status_of
from blindsight.service.gateway import Gateway
from blindsight.service.principals import Principal, Principals, Role
from blindsight.service.settings import ServiceSettings
from blindsight.sift.study import words
from blindsight.statement import PrivacyStatement

COOKIE = "blindsight_token"
_DAYS = 1


def is_encrypted(request: Request, settings: ServiceSettings) -> bool:
    """Tell whether the browser talks TLS, to this service or to a proxy on this machine before it."""
    return settings.encrypted or request.url.scheme == "https"


def visitor(request: Request, principals: Principals) -> Principal | None:
    """Return who looks, or None for somebody without a valid cookie."""
    token = request.cookies.get(COOKIE)
    return None if token is None else principals.authenticate(token)


def remember(response: Response, token: str, *, encrypted: bool) -> None:
    """Give the browser its cookie."""
    response.set_cookie(
        COOKIE, token, max_age=_DAYS * 86_400, httponly=True, samesite="strict", secure=encrypted, path="/"
    )


def forget(response: Response, *, encrypted: bool) -> None:
    """Take the cookie back."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=encrypted, path="/")


def check_origin(request: Request) -> None:
    """Refuse what another site sent, or what does not say where it comes from.

    A browser that was told to send no referrers makes the origin of a form "null"; it says so in `Sec-Fetch-Site`.
    """
    origin, host = request.headers.get("origin", "null"), request.headers.get("host", "")
    same = urlsplit(origin).netloc == host
    if origin == "null":
        same = request.headers.get("sec-fetch-site") == "same-origin"
    if not host or not same:
        raise Refusal(403, "this did not come from this page. Open the page itself and try again.")


def require(who: Principal | None, *roles: Role) -> Principal:
    """Return who looks, or refuse whoever did not log in or has another role."""
    if who is None:
        raise Refusal(401, "log in with a token first.")
    if roles and who.role not in roles:
        raise Refusal(403, f"this is for the role {' or '.join(roles)}; you are logged in as {who.role}.")
    return who


WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 44


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """Several lines over the same `x`, whose places are named by `ticks`; `levels` are horizontal lines.

    `alt` says in words what is to be seen. A line has None where it has no point.
    """

    x: Sequence[float]
    ticks: Sequence[str]
    lines: Mapping[str, Sequence[float | None]]
    levels: Mapping[str, float]
    x_label: str
    y_label: str
    low: float
    high: float
    alt: str

    def across(self, x: float) -> float:
        """Return how far from the left a value stands."""
        first, last = self.x[0], self.x[-1]
        share = 0.5 if first == last else (x - first) / (last - first)
        return round(LEFT + 14 + share * (WIDTH - LEFT - RIGHT - 28), 1)

    def down(self, y: float) -> float:
        """Return how far from the top a value stands."""
        share = (y - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    def points(self, line: str) -> list[tuple[float, float]]:
        """Return the places of one line's points."""
        values = zip(self.x, self.lines[line], strict=False)
        return [(self.across(x), self.down(y)) for x, y in values if y is not None]

    @property
    def grid(self) -> list[tuple[float, str]]:
        """Return where horizontal rules stand, and their numbers."""
        reach = self.high - self.low
        step, digits = (0.2, 1) if reach > 0.6 else (0.1, 1) if reach > 0.25 else (0.05, 2)
        values = [self.low + number * step for number in range(round(reach / step) + 1)]
        return [(self.down(value), f"{value:.{digits}f}") for value in values]

    def to_json(self) -> str:
        """Return what a script needs to draw the same."""
        return json.dumps(
            {
                "x": list(self.x),
                "ticks": list(self.ticks),
                "lines": [{"name": name, "y": list(values)} for name, values in self.lines.items()],
                "levels": [{"name": name, "y": value} for name, value in self.levels.items()],
                "xLabel": self.x_label,
                "yLabel": self.y_label,
                "low": self.low,
                "high": self.high,
            }
        )


def tint(value: float | None, strongest: float) -> int:
    """Return how strongly a cell of a matrix is coloured, 0 to 5.

    >>> tint(0.0, 1.0), tint(-0.5, 1.0), tint(3.0, 1.0), tint(None, 1.0)
    (0, 3, 5, 0)
    """
    return 0 if value is None else min(5, round(5 * abs(value) / strongest + 1e-9))


def bar(value: float, low: float = 0.45, high: float = 1.0) -> float:
    """Return where a balanced accuracy stands on a scale of 0 to 100.

    >>> bar(0.45), bar(1.0)
    (0.0, 100.0)
    """
    return round(100 * (min(max(value, low), high) - low) / (high - low), 2)


logger = logging.getLogger(__name__)

TABS = {"sift": "Sift", "search": "Search", "learn": "Learn", "audit": "Audit", "ledger": "Ledger"}

_TYPES = {"css": "text/css", "js": "text/javascript", "txt": "text/plain"}


class Pages:
    """What every tab needs: the service behind it, and the way to show something."""

    def __init__(self, gateway: Gateway, showcase: Showcase, principals: Principals, settings: ServiceSettings) -> None:
        self.gateway, self.showcase, self.principals, self.settings = gateway, showcase, principals, settings
        self._environment = _environment()
        self._environment.globals.update(static=self._static_address, tabs=TABS, bar=bar, tint=tint)
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
