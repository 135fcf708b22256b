"""A run of learning that somebody started from the page: what has happened in it so far, for all who watch.

One run at a time. Watchers read its events from any place on, so whoever comes late, or comes back, misses nothing. A
run lives in memory: it is a demonstration on drawn faces, and nothing is lost with it.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from blindsight.errors import BlindsightError, InputError
from blindsight.learn.comparison import installed_schemes
from blindsight.service.exhibits.exhibit import plain
from blindsight.service.exhibits.learning import SeenRound, run_data, seen_rounds
from blindsight.service.exhibits.stock import Stock

logger = logging.getLogger(__name__)

MOST_ROUNDS = 12


class _Stopped(BaseException):
    """Somebody stopped the run; nothing in between catches it."""


@dataclass(frozen=True)
class Event:
    """Something that happened: progress of work, a finished round, or the end."""

    kind: Literal["progress", "round", "end"]
    data: dict[str, Any]


@dataclass(eq=False)
class LiveRun:
    """One run; only its own thread changes it, by appending."""

    number: int
    scheme: str
    rounds: int
    events: list[Event] = field(default_factory=list)
    seen: list[SeenRound] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    stop: bool = False

    @property
    def ended(self) -> bool:
        """Tell whether nothing more will happen."""
        return bool(self.events) and self.events[-1].kind == "end"

    def since(self, place: int) -> Sequence[Event]:
        """Return what happened from the event at `place` on."""
        return tuple(self.events[max(place, 0) :])

    def to_dict(self) -> dict[str, Any]:
        """Return the run so far as plain data."""
        events = len(self.events)  # before the rounds are read: what comes in between is told again, not lost
        last = self.events[-1].data if events else {"what": "beginning", "done": 0, "total": None}
        run = run_data(self.scheme, self.rounds, list(self.seen))
        so_far: dict[str, Any] = plain(run | {"number": self.number, "ended": self.ended, "last": last})
        return so_far | {"events": events}


class LiveRuns:
    """The latest run, and the way to start another."""

    def __init__(self, stock: Stock) -> None:
        self._stock = stock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.latest: LiveRun | None = None

    def start(self, scheme: str, rounds: int) -> LiveRun:
        """Start a run, or refuse while another one is going on."""
        if scheme not in installed_schemes():
            raise InputError(f"the scheme must be one of {', '.join(installed_schemes())}.")
        if not 1 <= rounds <= MOST_ROUNDS:
            raise InputError(f"rounds must be in [1, {MOST_ROUNDS}]; got {rounds}.")
        with self._lock:
            if self.latest is not None and not self.latest.ended:
                raise InputError("a run is going on. Watch it, or stop it first.")
            number = 1 if self.latest is None else self.latest.number + 1
            run = self.latest = LiveRun(number, scheme, rounds)
            self._thread = threading.Thread(target=self._play, args=(run,), name="live run", daemon=True)
            self._thread.start()
        return run

    def stop(self) -> None:
        """Let the latest run end at its next report of progress."""
        if self.latest is not None:
            self.latest.stop = True

    def close(self) -> None:
        """Stop, and wait until that is done."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _play(self, run: LiveRun) -> None:
        def progress(what: str, done: int, total: int | None) -> None:
            if run.stop:
                raise _Stopped
            run.events.append(Event("progress", {"what": what, "done": done, "total": total}))

        try:
            for seen in seen_rounds(self._stock, run.scheme, run.rounds, progress):
                run.pictures |= seen.pictures()
                run.seen.append(seen)
                run.events.append(Event("round", plain(seen.to_dict() | {"first_score": seen.first_score})))
            ending = "finished"
        except _Stopped:
            ending = "stopped"
        except BlindsightError as error:
            ending = str(error)
        except Exception:
            logger.exception("a live run failed")
            ending = "something went wrong here; it was noted."
        run.events.append(Event("end", {"what": ending, "done": len(run.seen), "total": run.rounds}))
