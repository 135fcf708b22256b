"""Releases: what an app gets of a person's frames is exactly what was granted, counted and logged before it is given.

A frame counts each time it is asked for, against the number that was verified. Without a grant an app does not learn
whether a frame, or a picture at all, exists.

Simultaneous releases are committed together (`GroupCommit`): a round is one transaction, one wait for the disk and one
signature. In that transaction each caller's token is looked up, the grant, its budget and terms are checked, and
refusals are logged, so that what another process changed before counts here too. A round takes all that wait when the
one before has ended; nobody waits for company.

*Streams* are server-sent events for one app about one person, as if it asked every few seconds. A stream tells what
asking for the newest frame at the same moments would tell, and no more: its pace is the app's, so it does not show when
frames arrive. Each event is a release, counted against the budget and logged before it leaves. Where a release would
only repeat what the app has (a permanent symbol, or the last one of a budget that says so) the same event is sent
again: it costs nothing, and the log says at the end how often. A stream ends with the grant, the budget or the app's
token, or when the app opens another one about the same person.

*Coming back.* Events have ids, their places in the log. Who comes back with `Last-Event-ID` first gets what was sent
since, of the newest hundred, without being charged again; they are in memory alone, until the grant ends.
"""

import asyncio
import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from starlette.concurrency import run_in_threadpool

from blindsight.client import Release
from blindsight.crypto.merkle import TreeHead
from blindsight.errors import (
    BlindsightError,
    BudgetExceededError,
    InputError,
    PrivacyError,
    StorageError,
    UnknownNameError,
)
from blindsight.service import errors
from blindsight.service.frames import FrameStore, Owners
from blindsight.service.log import AuditLog, Draft, acting_together
from blindsight.service.models import NewRelease
from blindsight.service.principals import DeadTokenError, Principal, Principals
from blindsight.sift.platform import Platform, Released, Wanted, no_grant
from blindsight.sift.register import Grant
from blindsight.sift.sift import Features

if TYPE_CHECKING:
    from blindsight.service.gateway import Gateway

Task = TypeVar("Task")
Result = TypeVar("Result")

MOST = 256  # tasks in one round
_IDLE = 5.0  # seconds without a task after which the thread ends


class GroupCommit(Generic[Task, Result]):
    """Carries out tasks of many threads and coroutines in rounds, in a thread of its own.

    `carry_out` is told the tasks of a round and returns for each its result or exception; what it raises, all of them
    raise. Tasks that came together stay together.

    >>> GroupCommit(lambda numbers: [2 * number for number in numbers])(21)
    42
    """

    def __init__(self, carry_out: Callable[[Sequence[Task]], Sequence[Result | Exception]], most: int = MOST) -> None:
        self._carry_out, self._most = carry_out, most
        self._waiting: deque[tuple[Sequence[Task], Future[Any] | asyncio.Future[Any]]] = deque()
        self._arrived = threading.Condition()
        self._thread: threading.Thread | None = None

    def __call__(self, task: Task) -> Result:
        told: Future[list[Result | BaseException]] = Future()
        self._enter([([task], told)])
        (outcome,) = told.result()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def each(self, tasks: Sequence[Task]) -> list[Result | Exception]:
        told: asyncio.Future[list[Result | Exception]] = asyncio.get_running_loop().create_future()
        self._enter([(tasks, told)])
        return await told

    def _enter(self, several: Sequence[tuple[Sequence[Task], Future[Any] | asyncio.Future[Any]]]) -> None:
        with self._arrived:
            self._waiting.extend(several)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="blindsight releases", daemon=True)
                self._thread.start()
            self._arrived.notify()

    def _work(self) -> None:
        while True:
            with self._arrived:
                if not self._arrived.wait_for(lambda: self._waiting, _IDLE):
                    self._thread = None  # the next that comes starts another
                    return
                several = [self._waiting.popleft()]
                room = self._most - len(several[0][0])
                while self._waiting and (room := room - len(self._waiting[0][0])) >= 0:
                    several.append(self._waiting.popleft())
            self._round(several)

    def _round(self, several: list[tuple[Sequence[Task], Any]]) -> None:
        tasks = [task for some, _ in several for task in some]
        found: Sequence[Result | BaseException]
        try:
            found = self._carry_out(tasks)
        except Exception as error:
            found = [error] * len(tasks)
        except BaseException as error:  # an interrupt, which is told to the first
            found = [error] + [StorageError("the service was interrupted.")] * (len(tasks) - 1)
        outcomes, loops = iter(found), dict[asyncio.AbstractEventLoop, list[tuple[Any, Any]]]()
        for some, told in several:
            mine = list(islice(outcomes, len(some)))
            if isinstance(told, Future):
                told.set_result(mine)
            else:
                loops.setdefault(told.get_loop(), []).append((told, mine))
        for loop, waiting in loops.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_tell, waiting)


def _tell(waiting: "list[tuple[asyncio.Future[Any], Any]]") -> None:
    for told, outcomes in waiting:
        if not told.done():
            told.set_result(outcomes)


Asked = tuple[Principal, NewRelease, str | None]
"""A release that an app waits for; with the hash of a token, only if that is the app's when it is carried out."""


class Releases:
    """Gives apps what they were granted; those who ask at the same time share what the disks cost."""

    def __init__(self, platform: Platform, frames: FrameStore, log: AuditLog, principals: Principals) -> None:
        self._platform, self._frames, self._log, self._principals = platform, frames, log, principals
        frames.prepare = platform.seen
        self._commit: GroupCommit[Asked, Release] = GroupCommit(self._carry_out)
        self.heads: dict[str, TreeHead] = {}
        """The head that came with each app's last release."""

    def give(self, asked: Asked) -> Release:
        return self._commit(asked)

    async def give_each(self, several: Sequence[Asked]) -> list[Release | Exception]:
        return await self._commit.each(several)

    def _carry_out(self, several: Sequence[Asked]) -> list[Release | Exception]:
        """Log and count releases of several apps, then return what they get, each with its receipt."""
        with self._principals.database.session() as session:
            alive = self._principals.active({token for _, _, token in several if token is not None})
            known = self._frames.owners({id for _, wanted, _ in several for id in wanted.frames or ()})
            judged: dict[int, Released | Exception] = {
                number: DeadTokenError("the token has ended.")
                for number, (app, _, token) in enumerate(several)
                if token is not None and getattr(alive.get(token), "id", None) != app.id
            }
            rest = [number for number in range(len(several)) if number not in judged]
            with acting_together(several[number][0] for number in rest):
                outcomes = self._platform.release_all([self._wanted(several[number], known) for number in rest])
            judged |= zip(rest, outcomes, strict=True)
            refused = [_refusal(several[at], one) for at, one in judged.items() if isinstance(one, BlindsightError)]
            self._log.append_all(refused, session=session)
        receipts = self._log.receipts(session)
        head = self._log.head_of(session)
        self.heads |= {several[at][0].id: head for at, one in judged.items() if head and isinstance(one, Released)}
        return [_told(one, judged[number], receipts) for number, one in enumerate(several)]

    def _wanted(self, asked: Asked, known: Owners) -> Wanted:
        app, wanted, _ = asked

        def features() -> Features:
            if wanted.frames is not None:
                return self._frames.features(wanted.person, wanted.frames, known)
            try:
                return self._frames.latest(wanted.person, wanted.count)
            except InputError:  # whose sentence would tell how many there are
                raise InputError("there are not so many frames of this person. Ask for fewer.") from None

        named = wanted.frames or ()
        return Wanted(
            wanted.person,
            app.name,
            features,
            self._frames.pipeline,
            wanted.count,
            seen=True,
            repeated=len(set(named)) < len(named),
        )


def _refusal(asked: Asked, error: BlindsightError) -> Draft:
    # A name that is not known is whatever was sent, which the log might have to refuse.
    reason = f"unknown {error.kind}." if isinstance(error, UnknownNameError) else str(error)
    app, wanted, _ = asked
    return Draft(app.id, "refuse release", {"person": wanted.person, "frames": wanted.count, "reason": reason})


def _told(
    asked: Asked, outcome: Released | Exception, receipts: Mapping[int, Mapping[str, Any]]
) -> Release | Exception:
    if isinstance(outcome, UnknownNameError) and outcome.kind == "person":  # that nobody has this name is not the app's
        return PrivacyError(no_grant(asked[0].name))
    if isinstance(outcome, Exception):
        return outcome
    grant = outcome.grant
    labels = grant.public if grant.mode == "included" else None
    rows = tuple(map(tuple, outcome.rows.tolist()))
    return Release(grant.number, rows, labels, receipts[outcome.record["position"]])


# --- streams ---

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
                yield _event("end", {"reason": errors.told(error)})
                return
    finally:
        await asyncio.shield(run_in_threadpool(_close, streams, stream))


def _close(streams: Streams, stream: Stream) -> None:
    try:
        streams.close(stream)
    except BlindsightError as error:  # the disk is full: what was repeated told nothing new
        errors.told(error)


def _event(kind: str, data: object, id: int | None = None) -> str:
    name = "" if id is None else f"id: {id}\n"
    return f"{name}event: {kind}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
