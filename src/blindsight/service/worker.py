"""The thread that does jobs, one after the other, and can be asked to stop at any step.

Whoever does a job is given its payload (with the job's own id under "job"), a `progress` to report to, and `cancelled`
to ask. `progress` raises `JobStoppedError` when the job shall stop, so every function of the library that reports
progress can be cancelled and timed out between two of its steps; an attack that has begun is not torn apart. What a
handler returns is the job's result. It may be called anew with the same payload after a kill, and must then come to the
same end.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Literal

from blindsight.errors import BlindsightError
from blindsight.progress import Progress
from blindsight.service.jobs import Job, Jobs
from blindsight.service.settings import ServiceSettings

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
            self._jobs.finish(job.id, "failed", error=str(error))
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
