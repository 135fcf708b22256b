"""Error answers: every refusal becomes one sentence and a status; what was not foreseen becomes one that tells nothing.

Errors of `blindsight.errors` are written for people and never carry secrets, so their text is the answer. Anything else
is a defect: the caller reads that something went wrong, the server's own log gets the traceback. What a caller sent is
never sent back: not by validation, not by an unknown path.
"""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from blindsight.errors import (
    BlindsightError,
    DataError,
    InputError,
    MessageError,
    MissingExtraError,
    PrivacyError,
    StorageError,
    UnknownNameError,
)
from blindsight.service.principals import DeadTokenError, TakenError

logger = logging.getLogger(__name__)

CHALLENGE = {"WWW-Authenticate": "Bearer"}  # in every 401

RESOURCES = frozenset(
    {"app", "device", "frame", "grant", "head", "index", "job", "person", "principal", "proposal", "run"}
)
"""Kinds of names that stand for something under /v1: not there is 404. Other unknown names are a wrong argument."""

_STATUS: tuple[tuple[type[BlindsightError], int], ...] = (
    (DeadTokenError, 401),
    (TakenError, 409),
    (InputError, 422),
    (DataError, 422),
    (PrivacyError, 403),  # budgets too
    (MessageError, 400),
    (StorageError, 503),
    (MissingExtraError, 503),
)
_SENTENCES = {
    400: "the body cannot be read.",
    404: "there is nothing at this address.",
    405: "this address does not take this method.",
    413: "the body is too large, or holds too many lists or texts.",
    429: "too many requests. Wait a little.",
}


_UNFORESEEN = "something went wrong here; it was noted."


class Refusal(Exception):  # noqa: N818 - an answer, not a failure
    """An answer that is no success: raised where HTTP itself is the subject (who asks, and in which state)."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers


def status_of(error: BlindsightError) -> int:
    """Return the status that goes with an error.

    >>> status_of(UnknownNameError("person", "Bob", ())), status_of(UnknownNameError("attribute", "mood", ()))
    (404, 422)
    """
    if isinstance(error, UnknownNameError) and error.kind in RESOURCES:
        return 404
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 503)


def told(error: BlindsightError) -> str:
    """Return an error's sentence for somebody outside; one that may name files of this machine goes to its log."""
    if status_of(error) != 503:
        return " ".join(str(error).split())
    logger.error("%s", error)
    return "this cannot be done at the moment: a file or a part of the service is not available."


def problem(error: Exception) -> tuple[int, str]:
    """Return status and sentence of an error that is one answer among several."""
    if isinstance(error, BlindsightError):
        return status_of(error), told(error)
    logger.error("one of several failed", exc_info=error)
    return 500, _UNFORESEEN


def install(app: FastAPI) -> None:
    """Let the app answer every error with ``{"error": sentence}``."""
    app.add_exception_handler(BlindsightError, _foreseen)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(MemoryError, _too_much)
    app.add_exception_handler(Exception, _unforeseen)


def answer(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers)


def _foreseen(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, BlindsightError)
    status = status_of(error)
    return answer(status, told(error), CHALLENGE if status == 401 else None)


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refusal)
    return answer(error.status, str(error), error.headers)


def _plain(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    headers = None if error.headers is None else dict(error.headers)
    return answer(error.status_code, _SENTENCES.get(error.status_code, "this cannot be done."), headers)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return answer(422, "; ".join(map(_complaint, error.errors()[:3])) + ".")


def _too_much(request: Request, error: Exception) -> JSONResponse:
    logger.error("%s %s took too much memory", request.method, request.url.path)
    return answer(413, "this takes more memory than a request may use. Send less.")


def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer(500, _UNFORESEEN)


def _complaint(problem: Any) -> str:
    """Tell where and what, without what was given: field names are ours unless they are superfluous."""
    if problem["type"] == "extra_forbidden":
        return "the body has a field that is not known"
    place = [str(part) for part in problem["loc"] if isinstance(part, str)]
    where = " ".join(place[1:]) or (place[0] if place else "the request")
    said = str(problem["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{where}: {said[:1].lower()}{said[1:]}"
