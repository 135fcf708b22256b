"""Work in the background: what is to be done and what came of it, kept in the database, and the thread that does it.

*The guarantee.* A job that was submitted is done, fails, or is stopped by somebody; it is never forgotten. One that was
running when the process ended is queued again and runs from its beginning. A job that ends the process three times is
not tried a fourth time.

Who does a job (`Handler`) is given its payload (with the job's own id under "job"), a `progress` to report to, and
`cancelled` to ask. `progress` raises `JobStoppedError` when the job shall stop, so every function of the library that
reports progress can be cancelled and timed out between two of its steps; an attack that has begun is not torn apart.
What a handler returns is the job's result. It may be called again with the same payload after a kill, and must then
come to the same end.
"""

import logging
import re
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Literal

from sqlalchemy import ColumnElement, func, insert, select, update

from blindsight.errors import BlindsightError, InputError, UnknownNameError
from blindsight.progress import Progress
from blindsight.service.errors import told
from blindsight.service.settings import ServiceSettings
from blindsight.service.store import Database, jobs

State = Literal["queued", "running", "done", "failed", "cancelled", "timed out"]
UNFINISHED: tuple[State, ...] = ("queued", "running")

_ATTEMPTS = 3
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


_COLUMNS = tuple(jobs.c[part.name] for part in fields(Job))


class Jobs:
    """All jobs of a service."""

    def __init__(self, database: Database, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database = database
        self._clock = clock
        self.arrived = threading.Event()
        """Set whenever there may be something to do."""

    def now(self) -> datetime:
        """Return what time it is for jobs."""
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
        limit: int = 100,
    ) -> tuple[Job, ...]:
        """Return jobs of some kinds, newest first; `about` compares entries of the payload."""
        conditions = self._conditions(kinds, owner, about or {}, states)
        newest = select(*_COLUMNS).where(*conditions).order_by(jobs.c.submitted.desc(), jobs.c.id).limit(limit)
        with self._database.reading() as session:
            return tuple(Job(**row._mapping) for row in session.execute(newest))

    def waiting(self, owner: str) -> int:
        """Return how many jobs of an owner are not finished."""
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
        """Add entries to the result of a job that is done."""
        with self._database.session() as session:
            result = dict(self.get(id).result or {}) | more
            session.execute(update(jobs).where(jobs.c.id == id, jobs.c.state == "done").values(result=result))
        return self.get(id)

    # --- for who does them ---

    def claim(self) -> Job | None:
        """Take the oldest queued job; nobody else gets it."""
        oldest = select(jobs.c.id).where(jobs.c.state == "queued").order_by(jobs.c.submitted, jobs.c.id).limit(1)
        with self._database.session() as session:
            id = session.scalar(oldest)
            if id is None:
                return None
            now = self._clock()
            session.execute(
                update(jobs)
                .where(jobs.c.id == id)
                .values(state="running", started=now, heartbeat=now, attempts=jobs.c.attempts + 1, done=0.0, doing="")
            )
        return self.get(id)

    def progress(self, id: str, doing: str, done: float) -> bool:
        """Note how far a running job is; return whether it shall stop."""
        with self._database.session() as session:
            running = jobs.c.id == id, jobs.c.state == "running"
            session.execute(update(jobs).where(*running).values(doing=doing, done=done, heartbeat=self._clock()))
            cancel = session.scalar(select(jobs.c.cancel).where(*running))
        return cancel is not False  # also where it is not running any more

    def finish(
        self, id: str, state: State, *, result: Mapping[str, Any] | None = None, error: str | None = None
    ) -> None:
        """Note what came of a running job."""
        ending = {"state": state, "result": None if result is None else dict(result), "error": error}
        whole = {"done": 1.0} if state == "done" else {}
        with self._database.session() as session:
            session.execute(
                update(jobs)
                .where(jobs.c.id == id, jobs.c.state == "running")
                .values(**ending, **whole, doing="", finished=self._clock())
            )

    def put_back(self, id: str) -> None:
        """Queue a running job again that is not to blame for its interruption."""
        with self._database.session() as session:
            session.execute(
                update(jobs)
                .where(jobs.c.id == id, jobs.c.state == "running")
                .values(state="queued", attempts=jobs.c.attempts - 1)
            )

    def recover(self) -> int:
        """Queue again what was running when the process ended; return how many jobs. Call it before anybody claims."""
        now = self._clock()
        running = jobs.c.state == "running"
        given_up = "the service ended three times while this was running. Ask its operator why."
        with self._database.session() as session:
            session.execute(
                update(jobs).where(running, jobs.c.cancel.is_(True)).values(state="cancelled", finished=now)
            )
            session.execute(
                update(jobs)
                .where(running, jobs.c.attempts >= _ATTEMPTS)
                .values(state="failed", error=given_up, finished=now)
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
    """Return a name that no other job has and nobody guesses."""
    return secrets.token_hex(16)


logger = logging.getLogger(__name__)

Handler = Callable[[Mapping[str, Any], Progress, Callable[[], bool]], Mapping[str, Any] | None]
Stop = Literal["cancelled", "timed out", "shutdown"]

_HEARTBEAT = 0.5  # seconds between two notes of progress
_PATIENCE = 1.0  # seconds after which an idle worker looks for jobs without having been called


class JobStoppedError(Exception):
    """A job ends here because somebody cancelled it, its time is over, or the service shuts down."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop)
        self.stop = stop


class Worker:
    """Does the jobs of one service; `handlers` know how, by the kind of job."""

    def __init__(
        self,
        jobs: Jobs,
        handlers: Mapping[str, Handler],
        settings: ServiceSettings,
        *,
        clock: Callable[[], float] = monotonic,
        heartbeat: float = _HEARTBEAT,
    ) -> None:
        self._jobs = jobs
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
        """Tell whether jobs are done, or have not begun to be."""
        return self._thread is None or self._thread.is_alive()

    def stop(self, seconds: float = 10.0) -> bool:
        """Stop after the present step, waiting at most so long; an unfinished job is done after the next start."""
        self._stopping.set()
        self._jobs.arrived.set()
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def run_one(self) -> Job | None:
        """Do the oldest queued job, if there is one, and return what became of it."""
        job = self._jobs.claim()
        if job is None:
            return None
        self._do(job)
        return self._jobs.get(job.id)

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._jobs.arrived.clear()
            try:
                if self.run_one() is None:
                    self._jobs.arrived.wait(_PATIENCE)
            except BlindsightError as error:  # the database is away: the job stays, and is done after a restart
                logger.error("a job could not be taken or finished: %s", error)
                self._stopping.wait(_PATIENCE)

    def _do(self, job: Job) -> None:
        watch = _Watch(job, self._jobs, self._clock, self._seconds, self._heartbeat, self._stopping)
        try:
            handler = self._handlers[job.kind]
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
        """Note how far the job is, or end it."""
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
