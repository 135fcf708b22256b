"""What an app gets of a person's frames: exactly what was granted, counted and logged before it is given.

A frame counts each time it is asked for, against the number that was verified. Without a grant an app does not learn
whether a frame, or a picture at all, exists.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from blindsight.errors import InputError, PrivacyError
from blindsight.service.frames import FrameStore
from blindsight.service.log import AuditLog
from blindsight.service.principals import Principal
from blindsight.service.witness import acting
from blindsight.sift.platform import Platform

MOST_FRAMES = 1000
"""In one release."""


@dataclass(frozen=True)
class Release:
    """What an app gets: a row of numbers per frame, and in included mode which attribute each number stands for."""

    grant: int
    rows: list[list[float]]
    labels: tuple[str, ...] | None


class Releases:
    """Gives apps what they were granted."""

    def __init__(self, platform: Platform, frames: FrameStore, log: AuditLog) -> None:
        self._platform, self._frames, self._log = platform, frames, log
        self._labels: dict[int, tuple[str, ...] | None] = {}

    def give(self, app: Principal, person: str, frames: Sequence[str] | None, latest: int | None) -> Release:
        """Release some frames, by their ids or the latest few; a refusal is logged, and gives nothing."""
        if (frames is None) == (latest is None):
            raise InputError("name frames, or how many of the latest: one of the two.")
        asked = (latest or 0) if frames is None else len(frames)
        if not 1 <= asked <= MOST_FRAMES:
            raise InputError(f"a release has 1 to {MOST_FRAMES} frames; got {asked}.")
        try:
            self._refuse_strangers(app, person)
            X = self._frames.latest(person, asked) if frames is None else self._frames.features(person, frames)
            with acting(app, person=person) as told:
                released = self._platform.release(person, app.name, X, pipeline=self._frames.pipeline)
        except PrivacyError as error:
            self._log.append(app.id, "refuse release", {"person": person, "frames": asked, "reason": str(error)})
            raise
        number = int(told.records[-1]["grant"])
        return Release(number, released.tolist(), self._meaning(person, number))

    def _refuse_strangers(self, app: Principal, person: str) -> None:
        if not any(grant.live and grant.app == app.name for grant in self._platform.grants(person)):
            raise PrivacyError(
                f"app {app.name} has no grant about this person. Propose a release and let the person allow it."
            )

    def _meaning(self, person: str, number: int) -> tuple[str, ...] | None:
        """Return which attributes the numbers of a grant stand for; it never changes."""
        if number not in self._labels:
            grant = next(one for one in self._platform.grants(person) if one.number == number)
            self._labels[number] = grant.public if grant.mode == "included" else None
        return self._labels[number]
