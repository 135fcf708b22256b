"""What all endpoints have in common: what they may answer besides success, what they stand on, how pictures come in."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from blindsight.service.access import PREFIX, GuardedRoute
from blindsight.service.errors import Refusal
from blindsight.service.gateway import Gateway
from blindsight.service.models import Problem
from blindsight.service.shelf import Shelf

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
            for kind in ("image/png", "image/jpeg", "application/octet-stream")
        },
    }
}


def refusals(*statuses: int) -> Answers:
    """Describe refusals beside those that can always happen."""
    return described(*sorted({*ALWAYS, *statuses}))


def described(*statuses: int) -> Answers:
    """Describe these refusals and no others."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in statuses}


def only_if(possible: bool, sentence: str) -> None:
    """Answer 409 where something cannot be done in this state."""
    if not possible:
        raise Refusal(409, sentence)


def guarded_router(tag: str) -> APIRouter:
    """Return a router whose routes all ask the table of access."""
    return APIRouter(prefix=PREFIX, tags=[tag], route_class=GuardedRoute, responses=refusals())


async def _gateway(request: Request) -> Gateway:
    gateway = request.app.state.gateway
    assert isinstance(gateway, Gateway)
    return gateway


async def _shelf(request: Request) -> Shelf:
    shelf = request.app.state.shelf
    assert isinstance(shelf, Shelf)
    return shelf


async def _bytes_of(request: Request) -> bytes:
    return await request.body()


TheGateway = Annotated[Gateway, Depends(_gateway)]
TheShelf = Annotated[Shelf, Depends(_shelf)]
Picture = Annotated[bytes, Depends(_bytes_of)]
"""The bytes of a picture: the whole body of a request."""
