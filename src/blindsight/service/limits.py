"""How much a caller may ask of the service, and what every answer tells a browser.

*The guarantee.* Whoever asks faster than their rate gets 429 with the seconds to wait; a body above the limit gets 413
and is not read further, whether its length was announced or not; every answer forbids scripts other than the service's
own files, framing, type guessing and referrers, and is kept by no cache unless it is one of those files. All three are
plain ASGI and hold no request in memory.
"""

import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from blindsight.errors import InputError
from blindsight.service.settings import ServiceSettings

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

STATIC = "/static/"
ADDRESSES = 10_000  # how many callers a limit remembers; the one not seen for longest is forgotten first

_CONTENT = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", _CONTENT.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NO_STORE = (b"cache-control", b"no-store")
_ONLY_TLS = (b"strict-transport-security", b"max-age=31536000")


class RateLimit:
    """Token buckets by key: `per_minute` requests a minute on average, at most `burst` at once.

    >>> limit = RateLimit(60, burst=1, clock=lambda: 0.0)
    >>> limit.take("Alice"), limit.take("Alice"), limit.take("Bob")
    (0.0, 1.0, 0.0)
    """

    def __init__(
        self, per_minute: float, *, burst: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with full buckets; without a `burst` they hold what ten seconds bring, and at least one request."""
        self._rate = per_minute / 60
        self._burst = max(1.0, per_minute / 6) if burst is None else burst
        if not 0 < self._rate < math.inf or not 1 <= self._burst < math.inf:
            raise InputError(f"per_minute must be > 0 and burst >= 1, both finite; got {per_minute} and {burst}.")
        self._clock = clock
        self._mutex = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key: level, when

    def take(self, key: str) -> float:
        """Take one request out of a bucket: 0.0 if it may go on, else the seconds after which it may be tried again."""
        with self._mutex:
            now = self._clock()
            level, then = self._buckets.pop(key, (self._burst, now))
            level = min(self._burst, level + (now - then) * self._rate)
            allowed = level >= 1
            self._buckets[key] = (level - allowed, now)
            if len(self._buckets) > ADDRESSES:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - level) / self._rate


def retry_after(wait: float) -> str:
    """Return seconds to wait as the Retry-After header has them: whole, at least one."""
    return str(max(1, math.ceil(wait)))


class AddressLimit:
    """ASGI middleware: answers 429 to an address that asks too fast. IPv6 addresses count by their /64 network."""

    def __init__(self, app: "ASGIApp", limit: RateLimit) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on, or refuse it."""
        wait = self._limit.take(_address(scope)) if scope["type"] == "http" else 0.0
        if not wait:
            await self._app(scope, receive, send)
            return
        seconds = retry_after(wait)
        sentence = f"too many requests from this address. Try again in {seconds} s."
        await _refuse(send, 429, sentence, [(b"retry-after", seconds.encode())])


class BodyLimit:
    """ASGI middleware: answers 413 to a body of more than `body_bytes`, at once if its length was announced."""

    def __init__(self, app: "ASGIApp", body_bytes: int) -> None:
        self._app = app
        self._most = body_bytes

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on and watch its body grow."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif _announced(scope["headers"]) > self._most:
            await self._too_large(send)
        else:
            await self._watched(scope, receive, send)

    async def _watched(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        seen, started = 0, False

        async def counted() -> "Message":
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise _TooLargeError
            return message

        async def unless_refused(message: "Message") -> None:
            nonlocal started
            if started or seen <= self._most:  # what the app answers to a body cut short is not passed on
                started = True
                await send(message)

        try:
            await self._app(scope, counted, unless_refused)
        except Exception:
            if started or seen <= self._most:
                raise
        if seen > self._most and not started:
            await self._too_large(send)

    async def _too_large(self, send: "Send") -> None:
        sentence = f"a body may have at most {self._most} bytes."
        await _refuse(send, 413, sentence, [(b"connection", b"close")])  # the rest of the body is not waited for


class SecurityHeaders:
    """ASGI middleware: every answer carries `SECURITY_HEADERS`; only files under /static/ may be kept in a cache."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on and add to the head of its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        added = [*SECURITY_HEADERS]
        if not scope["path"].startswith(STATIC):
            added.append(_NO_STORE)
        if scope["scheme"] == "https":
            added.append(_ONLY_TLS)
        names = {name for name, _ in added}

        async def with_headers(message: "Message") -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in names]
                message = {**message, "headers": kept + added}
            await send(message)

        await self._app(scope, receive, with_headers)


def add_limits(app: "FastAPI", settings: ServiceSettings) -> None:
    """Put all three around an app, in the order in which refusals carry the headers too."""
    app.add_middleware(BodyLimit, body_bytes=settings.body_bytes)
    app.add_middleware(AddressLimit, limit=RateLimit(settings.requests_per_minute))
    app.add_middleware(SecurityHeaders)


class _TooLargeError(Exception):
    """The body grew beyond its limit; never leaves this module."""


async def _refuse(send: "Send", status: int, sentence: str, headers: list[tuple[bytes, bytes]]) -> None:
    body = json.dumps({"error": sentence}).encode()
    told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": told + headers})
    await send({"type": "http.response.body", "body": body})


def _announced(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the largest length announced; one that is no number is left to the counting."""
    lengths = [0]
    for name, value in headers:
        if name == b"content-length":
            with suppress(ValueError):
                lengths.append(int(value))
    return max(lengths)


def _address(scope: "Scope") -> str:
    host = str((scope.get("client") or ("unknown",))[0])
    with suppress(ValueError):
        address = ip_address(host)
        if isinstance(address, IPv6Address):
            return (address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64)).compressed
    return host
