"""Streams of releases: server-sent events for one app about one person, as if it asked every few seconds.

*The guarantee.* A stream tells what asking for the newest frame at the same moments would tell, and no more: its pace
is the app's, so it does not show when frames arrive. Each event is a release, counted against the budget and logged
before it leaves. Where a release would only repeat what the app has (a permanent symbol, or the last one of a budget
that says so) the same event is sent again: it costs nothing, and the log says at the end how often. A stream ends with
the grant, the budget or the app's token, or when the app opens another one about the same person.

*Coming back.* Events have ids, their places in the log. Who comes back with `Last-Event-ID` first gets what was sent
since, of the newest hundred, without being charged again; they are in memory alone, until the grant ends.
"""

import asyncio
import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from blindsight.errors import BlindsightError, BudgetExceededError, InputError, PrivacyError, StorageError
from blindsight.service.errors import told
from blindsight.service.principals import Principal
from blindsight.sift.register import Grant

if TYPE_CHECKING:
    from blindsight.service.gateway import Gateway

MOST_STREAMS = 64  # of one app at a time, each about another person
SLOWEST = 3600.0  # seconds between two events
_KEPT, _MEMORIES = 100, 1000  # events of a stream, and streams whose events are remembered
_QUIET = 15.0  # seconds after which an app is told that the line still stands


class Streams:
    """The streams of all apps."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._open: dict[tuple[str, str], Stream] = {}
        self._sent: OrderedDict[tuple[str, str], deque[tuple[int, str]]] = OrderedDict()
        self._mutex = threading.Lock()

    def open(self, app: Principal, person: str, after: int | None) -> "Stream":
        """Begin a stream with what was sent after an event, or with a release; it takes the place of an older one."""
        key = app.name, person
        with self._mutex:
            if sum(name == app.name for name, about in self._open if about != person) >= MOST_STREAMS:
                raise InputError(f"an app has at most {MOST_STREAMS} streams at a time. Close one of them.")
            if key not in self._sent:
                self._sent[key] = deque(maxlen=_KEPT)
                while len(self._sent) > _MEMORIES:
                    self._sent.popitem(last=False)
            stream = self._open[key] = Stream(self._gateway, app, person, self._sent[key])
        try:
            stream.begin(after)
        except BaseException:
            self.close(stream)
            raise
        return stream

    def current(self, stream: "Stream") -> bool:
        return self._open.get((stream.app.name, stream.person)) is stream

    def close(self, stream: "Stream") -> None:
        """Forget a stream that ended; what it repeated is logged."""
        key = stream.app.name, stream.person
        with self._mutex:
            if self._open.get(key) is stream:
                del self._open[key]
                if stream.over:
                    self._sent.pop(key, None)
        stream.log_repeated()


class Stream:
    """One stream; its methods wait for disks, so they are called by threads."""

    def __init__(self, gateway: "Gateway", app: Principal, person: str, sent: deque[tuple[int, str]]) -> None:
        self._gateway, self.app, self.person, self._sent = gateway, app, person, sent
        self._repeating: tuple[Grant, str] | None = None
        self._repeated = 0
        self.first: Sequence[str] = ()  # what is to be sent at once
        self.over = False  # whether the grant has ended, or whatever else lets nothing be sent again

    def begin(self, after: int | None) -> None:
        """Collect what was sent after an event; where there is nothing, release the first."""
        if after is not None:
            self._gateway.live_grant(self.app, self.person)
            self.first = [text for id, text in self._sent if id > after]
        if not self.first:
            self.first = [self.next()]

    def next(self) -> str:
        """Return the next event, released or repeated, or raise why there is none."""
        grant = self._gateway.live_grant(self.app, self.person)
        if self._repeating is not None and self._repeating[0].number == grant.number:
            self._repeated += 1
            return self._repeating[1]
        self.log_repeated()
        released = self._gateway.release(
            self.app, self.person, latest=grant.budget.frames if grant.budget.permanent else 1
        )
        id = int(released.receipt["position"])
        text = _event("release", vars(released), id)
        self._sent.append((id, text))
        refuses = grant.budget.then == "refuse" or self._gateway.platform.released(grant) < grant.budget.frames
        self._repeating = None if refuses else (grant, text)
        return text

    def log_repeated(self) -> None:
        repeated, self._repeated = self._repeated, 0
        if repeated and self._repeating is not None:
            about = {"grant": self._repeating[0].number, "person": self.person, "app": self.app.name}
            self._gateway.audit.append(self.app.id, "repeat release", {**about, "repeated": repeated})


async def events(streams: Streams, stream: Stream, every: float, admitted: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield a stream's events, one every `every` seconds while the app is `admitted`, until it ends."""
    due = time.monotonic()
    try:
        for text in stream.first:
            yield text
        while True:
            due = max(due + every, time.monotonic())
            while (left := due - time.monotonic()) > 0:
                await asyncio.sleep(min(left, _QUIET))
                if left > _QUIET:
                    yield ": still here\n\n"
            if not streams.current(stream):
                yield _event("end", {"reason": "another stream of this app about this person was opened."})
                return
            try:
                if await run_in_threadpool(admitted):
                    yield await run_in_threadpool(stream.next)
            except StorageError:  # tried again at the next moment
                yield ": not at the moment\n\n"
            except (InputError, PrivacyError) as error:
                stream.over = not isinstance(error, BudgetExceededError)
                yield _event("end", {"reason": told(error)})
                return
    finally:
        await asyncio.shield(run_in_threadpool(_close, streams, stream))


def _close(streams: Streams, stream: Stream) -> None:
    try:
        streams.close(stream)
    except BlindsightError as error:  # the disk is full: what was repeated told nothing new
        told(error)


def _event(kind: str, data: object, id: int | None = None) -> str:
    name = "" if id is None else f"id: {id}\n"
    return f"{name}event: {kind}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
