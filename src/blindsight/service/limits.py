"""Limits on what callers may ask of the service (connections, rates, bodies), and security headers.

*The guarantee.* Nobody shuts others out by connections: a head must be whole after `head_seconds` and has at most
`HEAD_BYTES`, whatever HTTP parser is installed, and of too many connections the longest silent one is closed
(`Connections`). Who asks faster than their rate gets 429 with the seconds to wait; large bodies count as several
requests. A body above the limit gets 413 and is not read further, whether its length was announced or not; one that
comes too slowly gets 408. Large bodies of one principal are worked on one after the other, and few in all at a time, so
that they never take the threads of other requests (`Turns`). Every answer forbids scripts other than the service's own
files, framing, type guessing and referrers, and only those files may be cached.
"""

import asyncio
import json
import math
import os
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from fcntl import LOCK_EX, LOCK_UN, lockf
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from mmap import mmap
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any
from weakref import finalize

from blindsight.errors import InputError
from blindsight.service.settings import ServiceSettings

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

STATIC = "/static/"
ADDRESSES = 16_384  # how many callers a limit remembers; of those not seen for long one is forgotten first
HEAD_BYTES = 32_768  # of a request's line and headers
SMALL_BODY = 100_000  # bytes of a body that is neither a picture nor a sift
PICTURES = ("/frames", "/frames/batch")  # ends of addresses at which people's pictures are sent
LARGE = (*PICTURES, "/proposals", "/query", "/encrypted")  # where bodies may be as large as the service allows

_SLICE = 16_384  # bytes given to the parser at a time
_UNREAD = 262_144  # bytes of a body that may still come after its answer
_SLOWEST = 25_000  # bytes a second of a body
_PER_REQUEST = 250_000  # bytes of a body that count as one more request

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
_HEADERS = {
    (static, encrypted): dict([*SECURITY_HEADERS, *[_NO_STORE] * (not static), *[_ONLY_TLS] * encrypted])
    for static in (False, True)
    for encrypted in (False, True)
}
_CLOSE = [(b"connection", b"close")]  # the rest of a body is not waited for


class RateLimit:
    """Token buckets by key: `per_minute` requests a minute on average, at most `burst` at once.

    >>> limit = RateLimit(60, burst=1, clock=lambda: 0.0)
    >>> limit.take("Alice"), limit.take("Alice"), limit.take("Bob")
    (0.0, 1.0, 0.0)
    """

    _WAYS, _ENTRY = 16, struct.Struct("=8sdd")  # key, level, when; a key stands in one of 16 places

    def __init__(
        self,
        per_minute: float,
        *,
        burst: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        shared: bool = False,
    ) -> None:
        """Start with full buckets, `shared` or not with processes forked later; by default they hold ten seconds'
        worth, at least one.
        """
        self._rate = per_minute / 60
        self._burst = max(1.0, per_minute / 6) if burst is None else burst
        if not 0 < self._rate < math.inf or not 1 <= self._burst < math.inf:
            raise InputError(f"per_minute must be > 0 and burst >= 1, both finite; got {per_minute} and {burst}.")
        self._clock = clock
        self._mutex, self._salt, size = threading.Lock(), os.urandom(16), ADDRESSES * self._ENTRY.size
        self._memory, self._file = mmap(-1, size), None  # anonymous, which forked processes have in common
        if shared:
            with TemporaryFile() as file:
                self._file = os.dup(file.fileno())
            finalize(self, os.close, self._file)

    def take(self, key: str, cost: int = 1) -> float:
        """Take requests out of a bucket (at most all of it): 0.0 if allowed, else the seconds until the next try."""
        cost = min(cost, math.floor(self._burst))
        name = blake2b(key.encode(), digest_size=8, key=self._salt).digest()
        first = int.from_bytes(name, "big") % (ADDRESSES // self._WAYS) * self._WAYS * self._ENTRY.size
        places = range(first, first + self._WAYS * self._ENTRY.size, self._ENTRY.size)
        with self._mutex:
            if self._file is not None:
                lockf(self._file, LOCK_EX)  # a process that is killed frees it
            try:
                now, oldest, place = self._clock(), math.inf, first
                level, then = self._burst, now
                for at in places:
                    known, its_level, its_then = self._ENTRY.unpack_from(self._memory, at)
                    if known == name:
                        place, level, then = at, its_level, its_then
                        break
                    if its_then < oldest:
                        place, oldest = at, its_then
                level = min(self._burst, level + (now - then) * self._rate)
                allowed = level >= cost
                self._ENTRY.pack_into(self._memory, place, name, level - cost * allowed, now)
            finally:
                if self._file is not None:
                    lockf(self._file, LOCK_UN)
        return 0.0 if allowed else (cost - level) / self._rate


def retry_after(wait: float) -> str:
    """Return seconds to wait as the Retry-After header has them: whole, at least one."""
    return str(max(1, math.ceil(wait)))


class Limits:
    """ASGI middleware: answers 429 to an address that asks too fast (IPv6 addresses count by their /64 network), 413 to
    a body of more bytes than its address takes, and 408 to one that is too slow. Every answer carries
    `SECURITY_HEADERS`; only files under /static/ may be kept in a cache.
    """

    def __init__(self, app: "ASGIApp", settings: ServiceSettings, limit: RateLimit) -> None:
        self._app, self._limit, self._seconds = app, limit, settings.head_seconds
        self._most, self._pictures = settings.body_bytes, settings.pictures_bytes

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, began, seen, whole, started = scope["path"], time.monotonic(), 0, False, False
        most = self._most if path.endswith(LARGE) else min(self._most, SMALL_BODY)
        most = self._pictures if path.endswith(PICTURES) else most
        added = _HEADERS[path.startswith(STATIC), scope["scheme"] == "https"]
        refusal: tuple[int, str, list[tuple[bytes, bytes]]] | None = None

        async def counted() -> "Message":
            nonlocal seen, whole, refusal
            if whole:
                return await receive()
            left = began + self._seconds + seen / _SLOWEST - time.monotonic()
            try:
                async with asyncio.timeout(max(left, 0)):
                    message = await receive()
            except TimeoutError:
                spent = time.monotonic() - began
                refusal = 408, f"the body came too slowly: {seen} bytes after {spent:.0f} s.", _CLOSE
                raise _BodyError from None
            seen += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if seen > most:
                refusal = *_too_large(most), _CLOSE
                raise _BodyError
            return message

        async def passed(message: "Message") -> None:
            nonlocal started
            if not started and refusal is not None:  # what the app answers to a body cut short is not passed on
                return
            started = True
            if message["type"] == "http.response.start":
                kept = [one for one in message.get("headers", ()) if one[0].lower() not in added]
                message = {**message, "headers": [*kept, *added.items()]}
            await send(message)

        wait = self._limit.take(network(str((scope.get("client") or ("unknown",))[0])))
        if wait:
            seconds = retry_after(wait)
            sentence = f"too many requests from this address. Try again in {seconds} s."
            refusal = 429, sentence, [(b"retry-after", seconds.encode())]
        elif announced(scope["headers"]) > most:
            refusal = *_too_large(most), _CLOSE
        else:
            try:
                await self._app(scope, counted, passed)
            except Exception:
                if started or refusal is None:
                    raise
        if refusal is not None and not started:
            status, sentence, headers = refusal
            body = json.dumps({"error": sentence}).encode()
            told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": [*told, *headers, *added.items()]})
            await send({"type": "http.response.body", "body": body})


def add_limits(app: "FastAPI", settings: ServiceSettings, limit: RateLimit | None = None) -> None:
    """Put the limits around an app; `limit` is of addresses."""
    app.add_middleware(Limits, settings=settings, limit=limit or RateLimit(settings.requests_per_minute))


class Turns:
    """Who may work on a large body: `most` at a time, and of one principal one after the other. A body is read in its
    principal's turn, but before it is worked on, so that slow senders only delay themselves.
    """

    def __init__(self, most: int = 2) -> None:
        self._work = asyncio.Semaphore(most)
        self._lines: dict[str, tuple[asyncio.Lock, int]] = {}  # the lock of a principal, and how many want it

    @asynccontextmanager
    async def of(self, principal: str) -> AsyncIterator[asyncio.Semaphore]:
        """Wait for a principal's turn; gives what must be held for the work."""
        lock, wanted = self._lines.get(principal, (asyncio.Lock(), 0))
        self._lines[principal] = lock, wanted + 1
        try:
            async with lock:
                yield self._work
        finally:
            lock, wanted = self._lines.pop(principal)
            if wanted > 1:
                self._lines[principal] = lock, wanted - 1


class Connections:
    """All connections of a server, bounded before anything is asked: how many, how slow a head, and how long.

    A new connection is let in. Where there are too many of its address, or in all, the oldest without a request under
    way is closed (of the address that has most); if all have one, the new connection itself.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self._by_address: dict[str, OrderedDict[_Connection, None]] = {}
        self._total = 0

    def protocol(self, **given: Any) -> asyncio.Protocol:
        """Return what serves one more connection: the installed parser's own protocol, behind a guard."""
        from uvicorn.protocols.http.auto import AutoHTTPProtocol

        parser: Any = AutoHTTPProtocol
        return _Connection(parser(**given), self)

    def enter(self, connection: "_Connection") -> None:
        """Count a connection, and close another one, or it, where there are too many."""
        mine = self._by_address.setdefault(connection.address, OrderedDict())
        mine[connection] = None
        self._total += 1
        trusted = connection.address == self.settings.proxy
        if len(mine) > self.settings.connections_per_address and not trusted:
            self._close_one(mine)
        elif self._total > self.settings.connections:
            self._close_one(max(self._by_address.values(), key=len))

    def asked(self, connection: "_Connection") -> None:
        self._by_address[connection.address].move_to_end(connection)

    def leave(self, connection: "_Connection") -> None:
        mine = self._by_address.get(connection.address, OrderedDict())
        if mine.pop(connection, connection) is None:
            self._total -= 1
        if not mine:
            self._by_address.pop(connection.address, None)

    def _close_one(self, several: "OrderedDict[_Connection, None]") -> None:
        newest = next(reversed(several))
        goes = next((one for one in several if not one.busy), newest)
        self.leave(goes)
        goes.transport.abort()


class _Connection(asyncio.Protocol):
    """Passes on to a parser's protocol what comes in time and in bounds."""

    def __init__(self, inner: Any, connections: Connections) -> None:
        self._inner, self._connections = inner, connections
        self._waiting: asyncio.TimerHandle | None = None
        self._cycle: object = None  # the request last seen
        self._bytes = 0  # since then, or of a head that is not whole

    @property
    def busy(self) -> bool:
        return self._inner.cycle is not None and not self._inner.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.address = network(str((transport.get_extra_info("peername") or ("unknown",))[0]))
        self._inner.connection_made(transport)
        self._wait()
        self._connections.enter(self)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on in slices, and look after each whether the bounds still hold."""
        settings = self._connections.settings
        for start in range(0, len(data), _SLICE):
            if self.transport.is_closing():
                return
            part, before = data[start : start + _SLICE], self.busy
            if not before and self._waiting is None:
                self._bytes = 0
                self._wait()
            self._bytes += len(part)
            self._inner.data_received(part)
            if self._inner.cycle is not self._cycle:
                self._cycle, self._bytes = self._inner.cycle, len(part)
                self._connections.asked(self)
            if self.busy or before:
                self._stop_waiting()
                most = (
                    2 * max(settings.body_bytes, settings.pictures_bytes) + HEAD_BYTES
                )  # in chunks a body is longer than it is
            else:
                unread = self._cycle is not None and self._inner.cycle.more_body
                most = _UNREAD if unread else HEAD_BYTES
            if self._bytes > most:
                self._refuse(b"431 Request Header Fields Too Large")

    def connection_lost(self, reason: Exception | None) -> None:
        self._stop_waiting()
        self._connections.leave(self)
        self._inner.connection_lost(reason)

    def eof_received(self) -> None:
        self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def _wait(self) -> None:
        seconds = self._connections.settings.head_seconds
        self._waiting = asyncio.get_running_loop().call_later(seconds, self._refuse, b"408 Request Timeout")

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _refuse(self, status: bytes) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()


class _BodyError(Exception):
    """The body is too large or too slow; never leaves this module."""


def _too_large(most: int) -> tuple[int, str]:
    return 413, f"a body may have at most {most} bytes."


def announced(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the largest length announced; one that is no number is left to the counting."""
    lengths = [0]
    for name, value in headers:
        if name == b"content-length":
            with suppress(ValueError):
                lengths.append(int(value))
    return max(lengths)


def cost_of(headers: Iterable[tuple[bytes, bytes]]) -> int:
    return 1 + announced(headers) // _PER_REQUEST


@lru_cache(1000)
def network(host: str) -> str:
    """Return what one caller can have of an address: all of an IPv4 address, the /64 network of an IPv6 one."""
    with suppress(ValueError):
        address = ip_address(host)
        if isinstance(address, IPv6Address):
            return (address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64)).compressed
    return host
