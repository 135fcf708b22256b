"""Background jobs: a queue in the database, and the worker thread that does them.

*The guarantee.* A submitted job is done, fails, or is stopped by somebody; it is never forgotten. Several processes,
and services on one database, share the work: a process renews its lease on a job every few seconds, and nobody else
does the job meanwhile. If the process ends, the next one runs the job from its beginning; what the first would still
report is ignored. A job that ends its process three times is not tried a fourth time.

A `Handler` is given the payload (with the job's own id under "job"), a `progress` to report to, and `cancelled` to ask;
what it returns is the job's result. `progress` raises `JobStoppedError` when the job shall stop, so every function of
the library that reports progress can be cancelled and timed out between two steps; an attack that has begun is not
interrupted. A handler may be called again with the same payload after a kill, and must then come to the same end.
"""

import logging
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Literal

from sqlalchemy import ColumnElement, delete, func, insert, select, update

from blindsight.errors import BlindsightError, InputError, UnknownNameError
from blindsight.progress import Progress
from blindsight.service.errors import told
from blindsight.service.settings import ServiceSettings
from blindsight.service.store import Database, jobs

State = Literal["queued", "running", "done", "failed", "cancelled", "timed out"]
UNFINISHED: tuple[State, ...] = ("queued", "running")

_ATTEMPTS = 3
_FOR_APPS = ("verdict", "answer", "grant", "next")  # what an app knows of its proposals
LEASE = 30.0
"""Seconds after which a process that was not heard of has ended; clocks must agree better than that."""
_GIVEN_UP = "the service ended three times while this was running. Ask its operator why."
_ID = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Job:
    """One piece of work. `owner` is the principal that asked for it, `done` a fraction, `doing` the step in words."""

    id: str
    kind: str
    owner: str
    payload: Mapping[str, Any]
    state: State
    done: float
    doing: str
    cancel: bool
    attempts: int
    result: Mapping[str, Any] | None
    error: str | None
    submitted: datetime
    started: datetime | None
    finished: datetime | None

    @property
    def finished_or_stopped(self) -> bool:
        return self.state not in UNFINISHED

    @property
    def erased(self) -> bool:
        return bool((self.result or {}).get("erased"))


_COLUMNS = tuple(jobs.c[part.name] for part in fields(Job))


class Jobs:
    """All jobs of a service."""

    def __init__(self, database: Database, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database = database
        self._clock = clock
        self._worker = secrets.token_hex(8)
        self.arrived = threading.Event()  # set whenever there may be something to do

    def now(self) -> datetime:
        return self._clock()

    # --- for those who want something done ---

    def submit(self, kind: str, owner: str, payload: Mapping[str, Any], *, id: str | None = None) -> Job:
        """Queue a job, under an `id` from `new_id` if files of that name were made for it already."""
        name = id or new_id()
        with self._database.session() as session:
            values = {"id": name, "kind": kind, "owner": owner, "payload": dict(payload), "state": "queued"}
            session.execute(insert(jobs).values(**values, submitted=self._clock()))
        self.arrived.set()
        return self.get(name)

    def get(self, id: str) -> Job:
        """Return a job; the error for an unknown one names no others."""
        row = None
        if _ID.fullmatch(id):
            with self._database.reading() as session:
                row = session.execute(select(*_COLUMNS).where(jobs.c.id == id)).one_or_none()
        if row is None:
            raise UnknownNameError("job", id, ())
        return Job(**row._mapping)

    def find(
        self,
        kinds: Collection[str],
        *,
        owner: str | None = None,
        about: Mapping[str, str] | None = None,
        states: Collection[State] | None = None,
        after: Job | None = None,
        limit: int = 100,
    ) -> tuple[Job, ...]:
        """Return jobs of some kinds, newest first, after one of them; `about` compares entries of the payload."""
        conditions = self._conditions(kinds, owner, about or {}, states)
        if after is not None:
            then = jobs.c.submitted == after.submitted
            conditions.append((jobs.c.submitted < after.submitted) | (then & (jobs.c.id > after.id)))
        newest = select(*_COLUMNS).where(*conditions).order_by(jobs.c.submitted.desc(), jobs.c.id).limit(limit)
        with self._database.reading() as session:
            return tuple(Job(**row._mapping) for row in session.execute(newest))

    def waiting(self, owner: str) -> int:
        unfinished = select(func.count()).where(jobs.c.owner == owner, jobs.c.state.in_(UNFINISHED))
        with self._database.reading() as session:
            return session.scalar(unfinished) or 0

    def cancel(self, id: str) -> Job:
        """Stop a job: at once if it has not begun, else at its next step. What it did until then may stay."""
        with self._database.session() as session:
            job = self.get(id)
            if job.finished_or_stopped:
                raise InputError(f"this job has ended already: it is {job.state}.")
            change: dict[str, Any] = {"cancel": True}
            if job.state == "queued":
                change |= {"state": "cancelled", "finished": self._clock()}
            session.execute(update(jobs).where(jobs.c.id == id).values(**change))
        return self.get(id)

    def amend(self, id: str, **more: Any) -> Job:
        with self._database.session() as session:
            result = dict(self.get(id).result or {}) | more
            session.execute(update(jobs).where(jobs.c.id == id, jobs.c.state == "done").values(result=result))
        return self.get(id)

    def forget(self, person: str, kept: Collection[str]) -> tuple[str, ...]:
        """Delete the jobs about a person; of some kinds, whose verdict others know, that one is kept. Return the ids of
        these.
        """
        about = jobs.c.payload["person"].as_string() == person
        with self._database.session() as session:
            session.execute(update(jobs).where(about, jobs.c.state == "queued").values(state="cancelled"))
            session.execute(update(jobs).where(about, jobs.c.state == "running").values(cancel=True))
            session.execute(delete(jobs).where(about, jobs.c.kind.not_in(kept)))
            left = session.execute(select(jobs.c.id, jobs.c.result).where(about)).all()
            for id, result in left:
                told = {name: result[name] for name in _FOR_APPS if name in (result or {})} | {"erased": True}
                session.execute(update(jobs).where(jobs.c.id == id).values(result=told, doing="", error=None))
        return tuple(id for id, _ in left)

    # --- for who does them ---

    def claim(self) -> Job | None:
        """Take the oldest job that is queued, or whose process was not heard of; nobody else gets it."""
        oldest = select(jobs.c.id).where(jobs.c.state == "queued").order_by(jobs.c.submitted, jobs.c.id).limit(1)
        with self._database.reading() as session:  # most often there is nothing, for which no writer need wait
            idle = session.scalar(oldest) is None and session.scalar(select(jobs.c.id).where(self._lost)) is None
        if idle:
            return None
        with self._database.session() as session:
            self.recover(self._lost)
            id = session.scalar(oldest)
            if id is None:
                return None
            now = self._clock()
            change = {"state": "running", "started": now, "heartbeat": now, "worker": self._worker, "done": 0.0}
            session.execute(
                update(jobs).where(jobs.c.id == id).values(**change, attempts=jobs.c.attempts + 1, doing="")
            )
        return self.get(id)

    @property
    def _lost(self) -> ColumnElement[bool]:
        return (jobs.c.state == "running") & (jobs.c.heartbeat < self._clock() - timedelta(seconds=LEASE))

    def _mine(self, id: str) -> tuple[ColumnElement[bool], ...]:
        return jobs.c.id == id, jobs.c.state == "running", jobs.c.worker == self._worker

    def beat(self, id: str) -> None:
        with self._database.session() as session:
            session.execute(update(jobs).where(*self._mine(id)).values(heartbeat=self._clock()))

    def progress(self, id: str, doing: str, done: float) -> bool:
        """Note how far a running job is; return whether it shall stop."""
        with self._database.session() as session:
            session.execute(update(jobs).where(*self._mine(id)).values(doing=doing, done=done, heartbeat=self._clock()))
            cancel = session.scalar(select(jobs.c.cancel).where(*self._mine(id)))
        return cancel is not False  # also where it is not running any more, or another does it

    def finish(
        self, id: str, state: State, *, result: Mapping[str, Any] | None = None, error: str | None = None
    ) -> None:
        """Note what came of a running job, unless another process has taken it meanwhile."""
        ending = {"state": state, "result": None if result is None else dict(result), "error": error}
        whole = {"done": 1.0} if state == "done" else {}
        with self._database.session() as session:
            session.execute(
                update(jobs).where(*self._mine(id)).values(**ending, **whole, doing="", finished=self._clock())
            )

    def put_back(self, id: str) -> None:
        """Queue a running job again that is not to blame for its interruption."""
        with self._database.session() as session:
            session.execute(update(jobs).where(*self._mine(id)).values(state="queued", attempts=jobs.c.attempts - 1))

    def recover(self, lost: ColumnElement[bool] | None = None) -> int:
        """Queue again what an ended process left; return how many jobs. Without `lost`, all that run: for a process
        that is alone with the database, before anybody claims.
        """
        now, running = self._clock(), (jobs.c.state == "running") if lost is None else lost
        with self._database.session() as session:
            session.execute(
                update(jobs).where(running, jobs.c.cancel.is_(True)).values(state="cancelled", finished=now)
            )
            session.execute(
                update(jobs)
                .where(running, jobs.c.attempts >= _ATTEMPTS)
                .values(state="failed", error=_GIVEN_UP, finished=now)
            )
            again = session.scalar(select(func.count()).select_from(jobs).where(running)) or 0
            session.execute(update(jobs).where(running).values(state="queued"))
        if again:
            self.arrived.set()
        return again

    @staticmethod
    def _conditions(
        kinds: Collection[str], owner: str | None, about: Mapping[str, str], states: Collection[State] | None
    ) -> list[ColumnElement[bool]]:
        conditions: list[ColumnElement[bool]] = [jobs.c.kind.in_(kinds)]
        if owner is not None:
            conditions.append(jobs.c.owner == owner)
        if states is not None:
            conditions.append(jobs.c.state.in_(states))
        return conditions + [jobs.c.payload[key].as_string() == value for key, value in about.items()]


def new_id() -> str:
    return secrets.token_hex(16)


logger = logging.getLogger(__name__)

Handler = Callable[[Mapping[str, Any], Progress, Callable[[], bool]], Mapping[str, Any] | None]
Stop = Literal["cancelled", "timed out", "shutdown"]

_HEARTBEAT = 0.5  # seconds between two notes of progress
_MINUTE = 60.0  # after which an idle worker tidies up
_PATIENCE = 1.0  # seconds after which an idle worker looks for jobs without having been called


class JobStoppedError(Exception):
    """A job ends here because somebody cancelled it, its time is over, or the service shuts down."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop)
        self.stop = stop


class Worker:
    """Does the jobs of one service; `handlers` know how, by kind; `between` jobs, and every minute, it tidies up."""

    def __init__(
        self,
        jobs: Jobs,
        handlers: Mapping[str, Handler],
        settings: ServiceSettings,
        *,
        between: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
        heartbeat: float = _HEARTBEAT,
    ) -> None:
        self._jobs, self._between, self._tidied = jobs, between, -_MINUTE
        self._handlers = dict(handlers)
        self._seconds = settings.job_seconds
        self._clock = clock
        self._heartbeat = heartbeat
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to work in a thread; the jobs must have been recovered."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="blindsight worker", daemon=True)
            self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread is None or self._thread.is_alive()

    def stop(self, seconds: float = 10.0) -> bool:
        """Stop after the present step, waiting at most `seconds`; an unfinished job is done after the next start."""
        self._stopping.set()
        self._jobs.arrived.set()
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def run_one(self) -> Job | None:
        job = self._jobs.claim()
        if job is None:
            return None
        self._do(job)
        self._tidy()
        return self._jobs.get(job.id)

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._jobs.arrived.clear()
            try:
                if self.run_one() is None:
                    if self._clock() - self._tidied > _MINUTE:
                        self._tidy()
                    self._jobs.arrived.wait(_PATIENCE)
            except BlindsightError as error:  # the database is away: the job stays, and is done after a restart
                logger.error("a job could not be taken or finished: %s", error)
                self._stopping.wait(_PATIENCE)

    def _tidy(self) -> None:
        self._tidied = self._clock()
        self._between()

    def _do(self, job: Job) -> None:
        watch = _Watch(job, self._jobs, self._clock, self._seconds, self._heartbeat, self._stopping)
        try:
            handler = self._handlers[job.kind]
            with self._beating(job.id):
                result = handler({**job.payload, "job": job.id}, watch.report, watch.stopped)
        except JobStoppedError as stopped:
            self._stopped(job, stopped.stop)
        except BlindsightError as error:
            self._jobs.finish(job.id, "failed", error=told(error))
        except Exception:
            logger.exception("job %s (%s) failed", job.id, job.kind)
            self._jobs.finish(job.id, "failed", error="something went wrong here; it was noted.")
        else:
            self._jobs.finish(job.id, "done", result=result or {})

    @contextmanager
    def _beating(self, id: str) -> Iterator[None]:
        """Renew the lease of a job from a thread of its own: between two steps minutes may pass."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(LEASE / 5):
                with suppress(BlindsightError):  # the database is away: so it is for those who would take the job
                    self._jobs.beat(id)

        thread = threading.Thread(target=beat, name="blindsight lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _stopped(self, job: Job, stop: Stop) -> None:
        if stop == "shutdown":
            self._jobs.put_back(job.id)
        elif stop == "cancelled":
            self._jobs.finish(job.id, "cancelled")
        else:
            self._jobs.finish(job.id, "timed out", error=f"this took longer than {self._seconds:g} seconds.")


class _Watch:
    """Knows when a running job has to stop, and notes how far it is."""

    def __init__(
        self,
        job: Job,
        jobs: Jobs,
        clock: Callable[[], float],
        seconds: float,
        heartbeat: float,
        stopping: threading.Event,
    ) -> None:
        self._job, self._jobs, self._clock, self._stopping = job, jobs, clock, stopping
        self._heartbeat, self._deadline = heartbeat, clock() + seconds
        self._noted: float | None = None
        self._cancelled = False

    def report(self, what: str, done: int, total: int | None) -> None:
        stop = self._stop(what, done / total if total else 0.0)
        if stop is not None:
            raise JobStoppedError(stop)

    def stopped(self) -> bool:
        """Tell whether the job shall stop; who asks and goes on is stopped at the next report."""
        return self._stop(None, 0.0) is not None

    def _stop(self, what: str | None, done: float) -> Stop | None:
        now = self._clock()
        if what is not None and (self._noted is None or now - self._noted >= self._heartbeat):
            self._noted = now
            self._cancelled |= self._jobs.progress(self._job.id, what, min(1.0, done))
        elif what is None and not self._cancelled:
            self._cancelled = self._jobs.get(self._job.id).cancel
        if self._cancelled:
            return "cancelled"
        if now >= self._deadline:
            return "timed out"
        return "shutdown" if self._stopping.is_set() else None
