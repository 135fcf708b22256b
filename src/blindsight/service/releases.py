"""What an app gets of a person's frames: exactly what was granted, counted and logged before it is given.

A frame counts each time it is asked for, against the number that was verified. Without a grant an app does not learn
whether a frame, or a picture at all, exists.

Releases that wait for the disk take it together (`GroupCommit`), so that many cost hardly more of it than one. The
first that comes leads: it carries out its own task, alone. Those that come meanwhile wait, and the first of them then
leads all that wait. So nobody waits for company, and nobody longer than two rounds as long as no more than `most` come
during one.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from blindsight.errors import BlindsightError, InputError, PrivacyError, StorageError, UnknownNameError
from blindsight.service.frames import FrameStore
from blindsight.service.log import AuditLog, acting_together
from blindsight.service.principals import Principal
from blindsight.sift.platform import Platform, Released, Wanted, no_grant
from blindsight.sift.sift import Features

Task = TypeVar("Task")
Result = TypeVar("Result")

MOST = 64
"""Tasks in one round."""


@dataclass(eq=False)
class _Place(Generic[Task, Result]):
    """Where a task waits: until it has an outcome, or until it is the first and must lead."""

    task: Task
    outcome: Result | Exception | None = None
    called: threading.Event = field(default_factory=threading.Event)


class GroupCommit(Generic[Task, Result]):
    """Carries out tasks of many threads in rounds.

    `carry_out` is told the tasks of a round and returns for each its result or the exception it ended with; what it
    raises, all of them raise.

    >>> GroupCommit(lambda numbers: [2 * number for number in numbers])(21)
    42
    """

    def __init__(self, carry_out: Callable[[Sequence[Task]], Sequence[Result | Exception]], most: int = MOST) -> None:
        self._carry_out, self._most = carry_out, most
        self._waiting: deque[_Place[Task, Result]] = deque()
        self._led = False
        self._mutex = threading.Lock()

    def __call__(self, task: Task) -> Result:
        """Have a task carried out; return its result, or raise what it ended with."""
        place: _Place[Task, Result] = _Place(task)
        with self._mutex:
            self._waiting.append(place)
            leads, self._led = not self._led, True
        if not leads:
            place.called.wait()
        if place.outcome is None:
            self._lead()
        if isinstance(place.outcome, Exception):
            raise place.outcome
        assert place.outcome is not None
        return place.outcome

    def _lead(self) -> None:
        """Carry out what waits, call the next one to lead, and let everybody in this round go."""
        with self._mutex:
            places = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
        outcomes: Sequence[Result | Exception] = [StorageError("the service was interrupted.")] * len(places)
        try:
            outcomes = self._carry_out([place.task for place in places])
        except Exception as error:
            outcomes = [error] * len(places)
        finally:
            for place, outcome in zip(places, outcomes, strict=True):
                place.outcome = outcome
            with self._mutex:
                self._led = bool(self._waiting)
                if self._led:
                    self._waiting[0].called.set()
            for place in places:
                place.called.set()


MOST_FRAMES = 1000
"""In one release."""


@dataclass(frozen=True)
class Release:
    """What an app gets: a row of numbers per frame, and in included mode which attribute each number stands for.

    The receipt proves that the release is in the log, under a signed head (`AuditLog.receipts`).
    """

    grant: int
    rows: list[list[float]]
    labels: tuple[str, ...] | None
    receipt: Mapping[str, Any]


@dataclass(frozen=True)
class _Asked:
    """A release that somebody waits for: frames by their ids, or the latest few; `latest` is how many, either way."""

    app: Principal
    person: str
    frames: Sequence[str] | None
    latest: int


class Releases:
    """Gives apps what they were granted; those who ask at the same time share what the disks cost."""

    def __init__(self, platform: Platform, frames: FrameStore, log: AuditLog) -> None:
        self._platform, self._frames, self._log = platform, frames, log
        self._released = GroupCommit(self._carry_out)

    def give(self, app: Principal, person: str, frames: Sequence[str] | None, latest: int | None) -> Release:
        """Release some frames, by their ids or the latest few; a refusal is logged, and gives nothing."""
        asked = (latest or 0) if frames is None else len(frames)
        try:
            if (frames is None) == (latest is None):
                raise InputError("name frames, or how many of the latest: one of the two.")
            if not 1 <= asked <= MOST_FRAMES:
                raise InputError(f"a release has 1 to {MOST_FRAMES} frames; got {asked}.")
            released, receipt = self._released(_Asked(app, person, frames, asked))
        except BlindsightError as error:
            # A name that is not known is whatever was sent, which the log might have to refuse.
            reason = f"unknown {error.kind}." if isinstance(error, UnknownNameError) else str(error)
            self._log.append(app.id, "refuse release", {"person": person, "frames": asked, "reason": reason})
            if reason == "unknown person.":  # that nobody has this name is not the app's to know
                raise PrivacyError(no_grant(app.name)) from None
            raise
        grant = released.grant
        labels = grant.public if grant.mode == "included" else None
        return Release(grant.number, released.rows.tolist(), labels, receipt)

    def _carry_out(self, several: Sequence[_Asked]) -> list[tuple[Released, Mapping[str, Any]] | Exception]:
        """Log and count releases of several apps, then return what they get, each with its receipt."""
        with acting_together(asked.app for asked in several):
            outcomes = self._platform.release_all([self._wanted(asked) for asked in several])
        given = [one.record["position"] for one in outcomes if not isinstance(one, Exception)]
        receipts = iter(self._log.receipts(given) if given else ())
        return [one if isinstance(one, Exception) else (one, next(receipts)) for one in outcomes]

    def _wanted(self, asked: _Asked) -> Wanted:
        def features() -> Features:
            if asked.frames is not None:
                return self._frames.features(asked.person, asked.frames)
            try:
                return self._frames.latest(asked.person, asked.latest)
            except InputError:  # whose sentence would tell how many there are
                raise InputError("there are not so many frames of this person. Ask for fewer.") from None

        return Wanted(asked.person, asked.app.name, features, self._frames.pipeline, asked.latest)
