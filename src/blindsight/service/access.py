"""Access control: one table of who may call which route, and what all endpoints have in common.

*The guarantee.* A route under /v1 without an entry in `ACCESS` cannot be made: the service does not start. A caller
without a valid token, or of a role that the entry does not name, is refused before the request's body is read. What the
table cannot say (owners and apps see only what is theirs) is checked with `own` by the routes and again by the gateway.

| role | is |
| --- | --- |
| owner | a person whose pictures are here; decides what is private and answers proposals |
| app | wants to know something about people; gets verdicts and what was verified, never a picture or a feature |
| operator | runs the service: principals, attackers, the log; gets all evidence, never a picture or a token of others |
| device | a camera of one owner: brings frames of them, and can do nothing else |
"""

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import ValidationError
from python_multipart.exceptions import FormParserError
from starlette.concurrency import run_in_threadpool
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.routing import BaseRoute

from blindsight.errors import BlindsightError
from blindsight.service.errors import CHALLENGE, Refusal
from blindsight.service.gateway import Gateway
from blindsight.service.limits import LARGE, cost_of, network, retry_after
from blindsight.service.models import Problem
from blindsight.service.principals import Principal, Role, token_hash

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

PREFIX = "/v1"
MOST_TOKENS = 10_000  # hashes remembered, of apps that asked lately
MOST_LISTS, MOST_QUOTES = 100_000, 20_000  # in a large body

_OWNER, _APP, _OPERATOR, _DEVICE = (frozenset[Role]({role}) for role in get_args(Role))
_ALL = _OWNER | _APP | _OPERATOR

_QUIET = ("/v1/me", "/v1/attributes", "/v1/platform", "/v1/jobs/", "/v1/log/head", "/v1/log/consistency", "/v1/witness")
"""What an operator reads without a trace: nothing in it is about a person."""

OPEN = frozenset({("GET", "/v1/health"), ("GET", "/v1/ready"), ("GET", "/v1/openapi.json"), ("POST", "/v1/enrolment")})
"""What anybody may ask without a token; it tells nothing about anyone."""

ACCESS: Mapping[tuple[str, str], frozenset[Role]] = {
    ("GET", "/v1/me"): _ALL | _DEVICE,
    ("GET", "/v1/principals"): _OPERATOR,
    ("POST", "/v1/principals"): _OPERATOR,
    ("DELETE", "/v1/principals/{id}"): _OPERATOR,
    ("POST", "/v1/principals/{id}/enrolment"): _OPERATOR,
    ("POST", "/v1/me/token"): _ALL,
    ("GET", "/v1/attributes"): _ALL,
    ("GET", "/v1/platform"): _ALL,
    ("GET", "/v1/people/{person}"): _OWNER | _OPERATOR,
    ("DELETE", "/v1/people/{person}"): _OWNER | _OPERATOR,
    ("PUT", "/v1/people/{person}/private"): _OWNER,
    ("GET", "/v1/people/{person}/keys"): _OWNER,
    ("PUT", "/v1/people/{person}/keys"): _OWNER,
    ("POST", "/v1/people/{person}/odometer"): _OWNER | _OPERATOR,
    ("GET", "/v1/people/{person}/frames"): _OWNER,
    ("POST", "/v1/people/{person}/frames"): _OWNER | _DEVICE,
    ("POST", "/v1/people/{person}/frames/batch"): _OWNER | _DEVICE,
    ("PUT", "/v1/people/{person}/retention"): _OWNER,
    ("GET", "/v1/people/{person}/devices"): _OWNER,
    ("POST", "/v1/people/{person}/devices"): _OWNER,
    ("DELETE", "/v1/people/{person}/devices/{device}"): _OWNER,
    ("GET", "/v1/people/{person}/log"): _OWNER,
    ("GET", "/v1/people/{person}/frames/{frame}"): _OWNER,
    ("DELETE", "/v1/people/{person}/frames/{frame}"): _OWNER,
    ("PUT", "/v1/apps/{app}/public"): _APP,
    ("POST", "/v1/proposals"): _APP,
    ("GET", "/v1/proposals"): _ALL,
    ("GET", "/v1/proposals/{job}"): _ALL,
    ("POST", "/v1/proposals/{job}/answer"): _OWNER,
    ("GET", "/v1/grants"): _ALL,
    ("POST", "/v1/grants/{number}/revocation"): _OWNER | _OPERATOR,
    ("POST", "/v1/releases"): _APP,
    ("POST", "/v1/releases/batch"): _APP,
    ("GET", "/v1/streams/{person}"): _APP,
    ("GET", "/v1/attackers"): _OWNER | _OPERATOR,
    ("POST", "/v1/attackers"): _OPERATOR,
    ("POST", "/v1/reviews"): _OPERATOR,
    ("GET", "/v1/log"): _OPERATOR,
    ("GET", "/v1/log/head"): _ALL,
    ("GET", "/v1/log/consistency"): _ALL,
    ("GET", "/v1/log/check"): _OPERATOR,
    ("GET", "/v1/log/export"): _OPERATOR,
    ("POST", "/v1/witness"): _ALL,
    ("GET", "/v1/witness/{key}"): _ALL,
    ("GET", "/v1/ledger"): _OPERATOR,
    ("GET", "/v1/indexes"): _ALL,
    ("POST", "/v1/indexes/{name}/query"): _ALL,
    ("GET", "/v1/indexes/{name}/file"): _ALL,
    ("GET", "/v1/indexes/{name}/encrypted"): _ALL,
    ("POST", "/v1/indexes/{name}/encrypted"): _ALL,
    ("GET", "/v1/runs"): _OWNER | _OPERATOR,
    ("GET", "/v1/runs/{name}"): _OWNER | _OPERATOR,
    ("GET", "/v1/statements"): _ALL,
    ("GET", "/v1/jobs/{job}"): _ALL,
    ("DELETE", "/v1/jobs/{job}"): _ALL,
}


class _LargeRequest(Request):
    """A request whose JSON is read by a thread, after a look at what it would become."""

    async def json(self) -> Any:
        return await run_in_threadpool(_parsed, await self.body())


def _parsed(body: bytes) -> Any:
    """Return JSON as plain data; lists, objects and texts, which take more room than numbers, are bounded."""
    if body.count(b"[") + body.count(b"{") > MOST_LISTS or body.count(b'"') > MOST_QUOTES:
        raise HTTPException(413)
    return json.loads(body)


class GuardedRoute(APIRoute):
    """A route that asks the table first, before it reads what was sent; its tag is the first word of its path."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
        super().__init__(path, endpoint, **settings | {"tags": [path.split("/")[2]]})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler behind the guard, or refuse to make a route that the table does not know."""
        roles, handle = roles_of(self), super().get_route_handler()
        self.roles = roles
        large = self.methods == {"POST"} and self.path.endswith(LARGE)

        async def guarded(request: Request) -> Response:
            principal = getattr(request.state, "principal", None)
            if principal is None:
                principal = request.state.principal = await run_in_threadpool(authenticated, request)
            if principal.role not in roles:
                raise Refusal(403, f"this is not for the role {principal.role}.")
            if not large:
                return await handle(request)
            async with request.app.state.turns.of(principal.id) as work:
                sent = _LargeRequest(request.scope, request.receive)
                await sent.body()
                async with work:
                    return await handle(sent)

        return guarded


class LeanRoute(GuardedRoute):
    """A guarded route for requests so frequent that FastAPI's own handling would cost more than the answer.

    Its endpoint takes gateway, caller, `Door` and body, and looks the token up itself where its effect is decided. So a
    token seen lately goes straight to it, with the same limits and body model; all else goes FastAPI's way.
    """

    async def handle(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        request, state = Request(scope, receive), scope["app"].state
        door = Door(request, token_hash(_token(request)))
        principal = state.tokens.get(door.token)
        plain = scope["method"] == "POST" and request.headers.get("content-type") == "application/json"
        if not plain or principal is None or principal.role not in self.roles:
            await super().handle(scope, receive, send)
            return
        take(request, principal)
        body = await request.body()
        assert self.body_field is not None
        try:
            wanted = self.body_field.field_info.annotation.model_validate_json(body)  # type: ignore[union-attr]
        except ValidationError:
            request.state.principal = principal
            await super().handle(scope, _again(body, receive), send)
            return
        response = await self.endpoint(state.gateway, principal, door, wanted)
        await response(scope, receive, send)


def _again(body: bytes, receive: "Receive") -> "Receive":
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> "Message":
        return parts.pop() if parts else await receive()

    return again


def roles_of(route: APIRoute) -> frozenset[Role]:
    assert route.methods is not None
    (method,) = route.methods
    roles = ACCESS.get((method, route.path))
    if roles is None:
        raise RuntimeError(f"nobody said who may {method} {route.path}. Add it to ACCESS.")
    return roles


def check_routes(routes: Iterable[BaseRoute]) -> None:
    """Refuse to serve routes under /v1 that are open or unguarded by mistake."""
    for route in routes:
        path = getattr(route, "path", "")
        wanted = {(method, path) for method in getattr(route, "methods", None) or ()} - {("HEAD", path)}
        if path.startswith(PREFIX) and not isinstance(route, GuardedRoute) and not wanted <= OPEN:
            raise RuntimeError(f"{path} is not guarded. Make it a GuardedRoute.")


def authenticated(request: Request) -> Principal:
    """Return who asks, or refuse: no token, a wrong, expired or revoked one, too many requests."""
    token, tokens = _token(request), request.app.state.tokens
    principal: Principal | None = request.app.state.gateway.authenticate(token) if token else None
    if principal is None:
        if token:
            note_failure(request)
        raise Refusal(401, "a valid token is needed: Authorization: Bearer TOKEN.", headers=CHALLENGE)
    if principal.role == "app":
        if len(tokens) >= MOST_TOKENS:
            tokens.clear()
        tokens[token_hash(token)] = principal
    take(request, principal)
    if principal.role == "operator" and request.method == "GET" and not request.url.path.startswith(_QUIET):
        request.app.state.gateway.note(principal.id, "read", path=request.url.path[:200])
    return principal


def take(request: Request, principal: Principal, cost: int | None = None) -> None:
    """Count a request of a principal, or refuse it."""
    wait = request.app.state.limit.take(principal.id, cost_of(request.scope["headers"]) if cost is None else cost)
    if wait:
        raise Refusal(
            429, f"too many requests. Try again in {retry_after(wait)} s.", {"Retry-After": retry_after(wait)}
        )


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def note_failure(request: Request) -> None:
    """Log that somebody failed to log in; where the log cannot be written they fail all the same."""
    host = request.client.host if request.client else "unknown"
    with suppress(BlindsightError):
        request.app.state.gateway.note("stranger", "refuse login", address=network(host))


async def caller(request: Request) -> Principal:
    principal = request.state.principal
    assert isinstance(principal, Principal)
    return principal


Caller = Annotated[Principal, Depends(caller)]


def own(principal: Principal, name: str) -> None:
    """Refuse an owner or app that speaks for somebody else; an operator may look at everybody."""
    if principal.role != "operator" and principal.name != name:
        raise Refusal(403, "this is not yours.")


_MEANINGS = {
    400: "the request cannot be read",
    401: "no token, or one that is wrong, expired or revoked",
    403: "not for this role, not yours, or a privacy rule would be broken",
    404: "there is no such thing",
    409: "not in this state: not finished, answered already, or the name is taken",
    413: "the body is too large",
    422: "an argument is wrong; the sentence says how",
    429: "too many requests",
    503: "a file or a part of the service is not available at the moment",
}
Answers = dict[int | str, dict[str, Any]]

ALWAYS = (401, 403, 422, 429, 503)
BODY = (400, 413)
PICTURE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in ("image/png", "image/jpeg", "image/heic", "application/octet-stream")
        },
    }
}
_FILES = {
    "description": "1 to 64 files, each with headers of at most 4 KB; a form with more or longer ones is refused whole",
    "type": "array",
    "items": {"type": "string", "format": "binary"},
    "minItems": 1,
}
FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"pictures": _FILES}, "required": ["pictures"]}
            }
        },
    }
}


def refusals(*statuses: int) -> Answers:
    """Describe these refusals, and those that can always happen."""
    return described(*sorted({*ALWAYS, *statuses}))


def described(*statuses: int) -> Answers:
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in statuses}


def only_if(possible: bool, sentence: str) -> None:
    if not possible:
        raise Refusal(409, sentence)


def guarded_router() -> APIRouter:
    return APIRouter(prefix=PREFIX, route_class=GuardedRoute, responses=refusals())


@dataclass(frozen=True)
class Door:
    """What an endpoint that looks after its caller itself must know."""

    request: Request
    token: str  # its hash

    def count(self, principal: Principal, more: int) -> None:
        if more:
            take(self.request, principal, more)


async def _door(request: Request) -> Door:
    return Door(request, token_hash(_token(request)))


TheDoor = Annotated[Door, Depends(_door)]


async def _gateway(request: Request) -> Gateway:
    gateway = request.app.state.gateway
    assert isinstance(gateway, Gateway)
    return gateway


async def _bytes_of(request: Request) -> bytes:
    return await request.body()


class _InMemory(MultiPartParser):
    """A form's files stay in memory: pictures must not reach a disk as they are."""

    spool_max_size = 0  # none
    _parts = 0

    def on_part_begin(self) -> None:
        """Count the parts, which might have neither a file nor a field."""
        self._parts += 1
        if self._parts > self.max_files + self.max_fields:
            raise MultiPartException("too many parts.")
        super().on_part_begin()


async def pictures_of(request: Request) -> list[tuple[str, bytes]]:
    from blindsight.service.gateway import MOST_PICTURES

    try:
        form = await _InMemory(request.headers, request.stream(), max_files=MOST_PICTURES, max_fields=10).parse()
    except (MultiPartException, FormParserError, KeyError):
        async for _ in request.stream():  # who still sends would not read the answer
            pass
        sentence = f"send 1 to {MOST_PICTURES} pictures as files of a form (multipart/form-data), with short headers."
        raise Refusal(422, sentence) from None
    files = [one for _, one in form.multi_items() if not isinstance(one, str)]
    found = [((one.filename or "")[:100], await one.read()) for one in files if one.size or one.filename]
    await form.close()
    return found


TheGateway = Annotated[Gateway, Depends(_gateway)]
Picture = Annotated[bytes, Depends(_bytes_of)]  # the whole body of a request
Pictures = Annotated[list[tuple[str, bytes]], Depends(pictures_of)]
