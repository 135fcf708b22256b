"""Rendering of the page: sessions, charts, templates, static files, and refusals that a person can read.

*The guarantee.* A token pasted once becomes a session, whose id is in a cookie: logging out ends it, and a token that
expired or was revoked opens nothing, from that moment on. Changes need a POST that this page itself sent
(`check_origin`), with a cookie that browsers send to this page alone (`SameSite=Strict`). No token is ever in an
address or a cookie. Browsers send the cookie to every port of this machine: log out on a machine whose other services
you do not trust. Everything a template puts into a page is escaped; there is no script, style or event handler inside a
page, so that the content policy of the service (`limits`) can forbid them all.
"""

import hashlib
import json
import secrets
import threading
import time
from collections import OrderedDict
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
from blindsight.service.errors import Refusal, status_of, told
from blindsight.service.gateway import Gateway
from blindsight.service.principals import Principal, Principals
from blindsight.service.routes import Library
from blindsight.service.settings import ServiceSettings
from blindsight.statement import PrivacyStatement

COOKIE = "blindsight_session"
_SECONDS = 86_400
_SESSIONS = 10_000  # at once; the oldest goes first


class Sessions:
    """Who is logged in: an id that only the browser knows stands for a token, until somebody logs out or a day is over.

    Kept in memory, by the SHA-256 of the id. The token is looked up at every request, so one that expired, was revoked
    or replaced opens nothing. Logging in gives a new id each time.
    """

    def __init__(self, principals: Principals, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._principals, self._clock = principals, clock
        self._tokens: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._mutex = threading.Lock()

    def begin(self, token: str) -> str | None:
        """Return the id of a new session, or None for a token that opens nothing."""
        if self._principals.authenticate(token) is None:
            return None
        id = secrets.token_urlsafe(32)
        with self._mutex:
            self._tokens[_digest(id)] = token, self._clock() + _SECONDS
            if len(self._tokens) > _SESSIONS:
                self._tokens.popitem(last=False)
        return id

    def who(self, id: str | None) -> Principal | None:
        token, until = self._tokens.get(_digest(id or ""), ("", 0.0))
        return self._principals.authenticate(token) if self._clock() < until else None

    def end(self, id: str | None) -> None:
        with self._mutex:
            self._tokens.pop(_digest(id or ""), None)


def _digest(id: str) -> str:
    return hashlib.sha256(id.encode(errors="replace")).hexdigest()


def is_encrypted(request: Request, settings: ServiceSettings) -> bool:
    """Tell whether the browser talks TLS, to this service or to the proxy before it."""
    return settings.encrypted or request.url.scheme == "https"


def check_origin(request: Request) -> None:
    """Refuse what another site sent, or what does not say where it comes from. A browser that was told to send no
    referrers makes the origin of a form "null"; it says so in `Sec-Fetch-Site`.
    """
    origin, host = request.headers.get("origin", "null"), request.headers.get("host", "")
    same = urlsplit(origin).netloc == host
    if origin == "null":
        same = request.headers.get("sec-fetch-site") == "same-origin"
    if not host or not same:
        raise Refusal(403, "this did not come from this page. Open the page itself and try again.")


WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 44


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """Several lines over the same `x`, whose places are named by `ticks`; `levels` are horizontal lines. `alt` says in
    words what is to be seen. A line has None where it has no point.
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
        first, last = self.x[0], self.x[-1]
        share = 0.5 if first == last else (x - first) / (last - first)
        return round(LEFT + 14 + share * (WIDTH - LEFT - RIGHT - 28), 1)

    def down(self, y: float) -> float:
        share = (y - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    def points(self, line: str) -> list[tuple[float, float]]:
        values = zip(self.x, self.lines[line], strict=False)
        return [(self.across(x), self.down(y)) for x, y in values if y is not None]

    @property
    def grid(self) -> list[tuple[float, str]]:
        reach = self.high - self.low
        step, digits = (0.2, 1) if reach > 0.6 else (0.1, 1) if reach > 0.25 else (0.05, 2)
        values = [self.low + number * step for number in range(round(reach / step) + 1)]
        return [(self.down(value), f"{value:.{digits}f}") for value in values]

    def to_json(self) -> str:
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


def bar(value: float, low: float = 0.45, high: float = 1.0) -> float:
    """Return where a balanced accuracy stands on a scale of 0 to 100.

    >>> bar(0.45), bar(1.0)
    (0.0, 100.0)
    """
    return round(100 * (min(max(value, low), high) - low) / (high - low), 2)


TABS = {"sift": "Sift", "search": "Search", "learn": "Learn", "audit": "Audit", "ledger": "Ledger"}
OWN_TABS = {"operator": {"operator": "Operator"}, "app": {"app": "App"}}  # by role

_TYPES = {"css": "text/css", "js": "text/javascript", "txt": "text/plain"}


class Pages:
    """What every tab needs: the service behind it, and the way to show something."""

    def __init__(self, gateway: Gateway, library: Library, principals: Principals, settings: ServiceSettings) -> None:
        self.gateway, self.library, self.principals, self.settings = gateway, library, principals, settings
        self.sessions = Sessions(principals)
        self._environment = _environment()
        self._environment.globals.update(static=self._static_address, tabs_for=_tabs_for, bar=bar)

    def visitor(self, request: Request) -> Principal | None:
        return self.sessions.who(request.cookies.get(COOKIE))

    def set_cookie(self, request: Request, response: Response, session: str | None) -> Response:
        """Give a browser its session's id, which no script can read and no other site can send, or take it back."""
        rules: dict[str, Any] = {"httponly": True, "samesite": "strict", "path": "/"}
        rules["secure"] = is_encrypted(request, self.settings)
        if session is None:
            response.delete_cookie(COOKIE, **rules)
        else:
            response.set_cookie(COOKIE, session, max_age=_SECONDS, **rules)
        return response

    def render(self, request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        values.setdefault("who", self.visitor(request))
        values.setdefault("tab", template.removesuffix(".html"))
        page = self._environment.get_template(template).render(**values)
        return HTMLResponse(page, status)

    def refusal(self, request: Request, status: int, sentence: str) -> HTMLResponse:
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
        return hashlib.sha256(self.static[name][1]).hexdigest()[:12]

    def _static_address(self, name: str) -> str:
        return f"/static/{name}?v={self.static_version(name)}"


async def pages_of(request: Request) -> Pages:
    pages = request.app.state.pages
    assert isinstance(pages, Pages)
    return pages


class PageRoute(APIRoute):
    """A route for people: its refusals are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                return await handle(request)
            except Refusal as refusal:
                status, sentence = refusal.status, str(refusal)
            except RequestValidationError:
                status, sentence = 422, "something in this form is missing or not as it should be."
            except BlindsightError as error:
                status, sentence = status_of(error), told(error)
            return (await pages_of(request)).refusal(request, status, sentence)

        return shown


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("blindsight.service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(words=_words, percent=_percent, statement=_statement)
    return environment


def _tabs_for(who: Principal | None) -> dict[str, str]:
    return TABS | OWN_TABS.get(who.role if who is not None else "", {})


def _words(attribute: str) -> str:
    return attribute.replace("_", " ")


def _percent(share: float | None, digits: int = 0) -> str:
    return "–" if share is None else f"{share:.{digits}%}"


def _statement(data: dict[str, Any]) -> Markup:
    return Markup(PrivacyStatement.from_dict(data).to_html())  # noqa: S704 - it escapes every text
