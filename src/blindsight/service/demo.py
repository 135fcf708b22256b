"""What the page shows from bundled pictures: exhibits computed once in the background, and one live run of learning.

*The guarantee.* Nothing here holds anything of the people or apps of this service: it is made from drawn faces and
handwritten digits alone, so anybody may look at it. An exhibit is there whole or not at all: its pictures are written
first and `exhibit.json` last. One thread computes, one exhibit at a time; closing ends it at its next report of
progress, and what was interrupted is computed again after the next start. Exhibits are "search", "learn", "audit" and,
for each policy that was asked for, "sift-PUBLIC-PRIVATE".

A live run is in memory, one at a time. Watchers read its events from any place on, so who comes late misses nothing.
"""

import json
import logging
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from blindsight.errors import BlindsightError, InputError, UnknownNameError
from blindsight.files import AnyPath, as_path, atomic_writer, storage_errors
from blindsight.learn.comparison import installed_schemes
from blindsight.progress import Progress
from blindsight.service.errors import told
from blindsight.service.exhibits import (
    Exhibit,
    SeenRound,
    Size,
    Stock,
    audit_exhibit,
    check_policy,
    learn_exhibit,
    plain,
    run_data,
    search_exhibit,
    seen_rounds,
    sift_exhibit,
)

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
            ending = told(error)
        except Exception:
            logger.exception("a live run failed")
            ending = "something went wrong here; it was noted."
        run.events.append(Event("end", {"what": ending, "done": len(run.seen), "total": run.rounds}))


logger = logging.getLogger(__name__)

FORMAT = 1
"""Rises whenever exhibits of before can no longer be shown."""

_FIXED: dict[str, Callable[[Stock, Progress], Exhibit]] = {
    "search": search_exhibit,
    "audit": audit_exhibit,
    "learn": learn_exhibit,
}

Stage = Literal["missing", "waiting", "running", "ready", "failed"]


@dataclass(frozen=True)
class State:
    """How far an exhibit is. While it runs, `what` is being done, `done` of `total` (None: not known) steps."""

    stage: Stage
    what: str = ""
    done: int = 0
    total: int | None = None


class Closing(BaseException):
    """The showcase is being closed; no exhibit catches it."""


def sift_name(public: str, private: str) -> str:
    """Return the name of the exhibit of one policy."""
    check_policy(public, private)
    return f"sift-{public}-{private}"


class Showcase:
    """All exhibits of one `folder`; `start` begins with those that every visitor looks at."""

    FIRST = ("smiling", "male")
    """The policy that is tried without being asked for: public, private."""

    def __init__(self, folder: AnyPath, size: Size | None = None) -> None:
        folder = as_path(folder)
        self.folder = folder
        self.size = Size() if size is None else size
        self._stock = Stock(self.size)
        self.runs = LiveRuns(self._stock)
        self._waiting: deque[str] = deque()
        self._states: dict[str, State] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to compute what is not there yet, in the background."""
        for name in (sift_name(*self.FIRST), *_FIXED):
            self.ask(name)

    def close(self) -> None:
        """Stop computing, and wait until that is done."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.runs.close()
        if self._thread is not None:
            self._thread.join()

    def ask(self, name: str) -> State:
        """Have an exhibit computed, unless it is there or on its way; one that failed is tried again."""
        _maker(name)
        with self._changed:
            state = self.state(name)
            if state.stage in ("missing", "failed") and not self._closing:
                self._states[name] = state = State("waiting", "waiting for its turn")
                self._waiting.append(name)
                self._changed.notify_all()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="showcase", daemon=True)
                    self._thread.start()
        return state

    def wait(self, name: str, timeout: float | None = None) -> State:
        """Return how an exhibit stands once nobody works at it any more, or when the seconds are over."""
        with self._changed:
            self._changed.wait_for(lambda: self.state(name).stage not in ("waiting", "running"), timeout)
            return self.state(name)

    def state(self, name: str) -> State:
        """Return how far an exhibit is."""
        with self._changed:
            known = self._states.get(name)
        if known is not None:
            return known
        return State("missing") if self.exhibit(name) is None else State("ready")

    def exhibit(self, name: str) -> dict[str, Any] | None:
        """Return the data of a finished exhibit of this size, or None."""
        _maker(name)
        try:
            document = json.loads((self.folder / name / "exhibit.json").read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(document, dict) or document.get("made") != self._made:
            return None
        data: dict[str, Any] = document["data"]
        return data

    def picture(self, name: str, file: str) -> bytes | None:
        """Return a picture that belongs to an exhibit, or None; no other file is ever read."""
        _maker(name)
        folder = self.folder / name
        try:
            return (folder / file).read_bytes() if file in {path.name for path in folder.glob("*.png")} else None
        except OSError:
            return None

    @property
    def _made(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self.size)}

    def _work(self) -> None:
        # the faster library of attackers warns in every thread but the main one that it takes all cores
        warnings.filterwarnings("ignore", message="'Threading' parallel backend", category=UserWarning)
        while (name := self._next()) is not None:
            try:
                self._keep(name, _maker(name)(self._stock, lambda *told, name=name: self._report(name, *told)))
                state = None
            except Closing:
                return
            except BlindsightError as error:
                state = State("failed", told(error))
            except Exception:
                logger.exception("the exhibit %s failed", name)
                state = State("failed", "something went wrong here; it was noted.")
            with self._changed:
                if state is None:
                    del self._states[name]
                else:
                    self._states[name] = state
                self._changed.notify_all()

    def _next(self) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting)
            if self._closing:
                return None
            name = self._waiting.popleft()
            self._states[name] = State("running", "beginning")
            return name

    def _report(self, name: str, what: str, done: int, total: int | None) -> None:
        with self._changed:
            if self._closing:
                raise Closing
            self._states[name] = State("running", what, done, total)
            self._changed.notify_all()

    def _keep(self, name: str, exhibit: Exhibit) -> None:
        folder = self.folder / name
        with storage_errors("write into", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "exhibit.json").unlink(missing_ok=True)
            for stale in folder.glob("*.png"):
                stale.unlink()
            for file, content in exhibit.pictures.items():
                (folder / file).write_bytes(content)
        with atomic_writer(folder / "exhibit.json", private=True) as stream:
            stream.write(json.dumps({"made": self._made, "data": exhibit.data}, allow_nan=False).encode())


def _maker(name: str) -> Callable[[Stock, Progress], Exhibit]:
    """Return what computes an exhibit, or refuse a name that is none: names become folders."""
    if name in _FIXED:
        return _FIXED[name]
    kind, *policy = name.split("-")
    if kind != "sift" or len(policy) != 2:
        raise UnknownNameError("exhibit", name, [*_FIXED, "sift-PUBLIC-PRIVATE"])
    public, private = policy
    check_policy(public, private)
    return lambda stock, progress: sift_exhibit(stock, public, private, progress)
