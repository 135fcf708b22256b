"""Rounds of learning across machines, from the first model to the last; a server that was killed goes on.

The state is on the server's disk after every round: the model, and what is known of each round. What owners have not
sent yet is on theirs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.errors import CorruptFileError, InputError, MessageError
from blindsight.federated.courses import Course
from blindsight.federated.lessons import Lesson
from blindsight.federated.sums.ownerpart import OwnerPart
from blindsight.federated.sums.server import SumServer
from blindsight.federated.sums.userdesk import UserDesk
from blindsight.files import pack_arrays, read_arrays, unpack_arrays, write_arrays
from blindsight.learn.model import Array
from blindsight.learn.owners import Load
from blindsight.learn.rounds import Memory, Proposal
from blindsight.learn.session import RoundResult

_KIND = "blindsight/teaching.1"
_SILENT = "no contribution of it came in time."


@dataclass(frozen=True)
class Lap:
    """One finished round; `score` is None without validation data, `refused` says why users are not in the sum."""

    round: int
    score: float | None
    contributors: tuple[str, ...]
    refused: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


OnLap = Callable[[Lap], object]


@dataclass(frozen=True, eq=False)
class Taught:
    """Where a run stands: the shared model, its score before the first round, and the rounds."""

    shared: Array
    first_score: float | None
    laps: tuple[Lap, ...]


def teach(course: Course, server: SumServer, *, rounds: int, seed: int, on_lap: OnLap | None = None) -> Taught:
    """Play the rounds that are left of a run, and keep the state after each."""
    path = server.run.folder / "taught.npz"
    taught = _load(path, course) if path.exists() else _begin(course, seed)
    while len(taught.laps) < rounds:
        begun, number = time.monotonic(), len(taught.laps) + 1
        result = server.play(number, (pack_arrays({"shared": taught.shared}),))
        shared = course.learner.combine(taught.shared, result)
        score = course.learner.score(shared)
        lap = Lap(number, score, result.contributors, _missing(server, result), time.monotonic() - begun)
        taught = Taught(shared, taught.first_score, (*taught.laps, lap))
        _save(path, taught, course)
        if on_lap is not None:
            on_lap(lap)
    return taught


def learn(desk: UserDesk, parts: Sequence[bytes], load: Load) -> bytes:
    """Do an owner's part of a round: learn from what `load` returns, and return the contribution."""
    if len(parts) != 2:
        raise MessageError("a call to learn has two parts.")
    call = desk.call(parts)
    lesson = Lesson.from_bytes(desk.briefing(call.run))
    shared = unpack_arrays(parts[1]).get("shared")
    if shared is None or shared.dtype != np.float64 or shared.shape != lesson.shape or not np.isfinite(shared).all():
        raise MessageError("the shared model is not one of this lesson.")
    name = desk.home.identity.name
    learner = lesson.learner(name, _fitting(load, lesson))

    def propose(memory: Memory, seed: int) -> Proposal:
        return learner.propose(name, shared, memory, seed)

    return OwnerPart(desk.end(call.run)).contribute(call, propose)


def _fitting(load: Load, lesson: Lesson) -> Load:
    """Return a function that refuses what it loads if the lesson has other features.

    It does so with a `MessageError`, which the server may read: it tells how many columns the data have and no more.
    """
    columns = len(lesson.standardiser.mean)

    def loaded() -> Any:
        data = load()
        shape = np.shape(data if lesson.labels is None else data[0])
        if len(shape) == 2 and shape[1] != columns:
            raise MessageError(f"features must have {columns} columns; got {shape[1]}.")
        return data

    return loaded


def _missing(server: SumServer, result: RoundResult) -> dict[str, str]:
    """Return why users are not in the sum; one that was refused first and came in later is."""
    missing = [user for user in server.terms.users if user not in result.contributors]
    return {user: server.refused.get(user, _SILENT) for user in missing}


def _begin(course: Course, seed: int) -> Taught:
    shared = course.learner.first(seed)
    return Taught(shared, course.learner.score(shared), ())


def _save(path: Path, taught: Taught, course: Course) -> None:
    laps = [asdict(lap) for lap in taught.laps]
    document = {"lesson": course.lesson.digest, "first score": taught.first_score, "laps": laps}
    write_arrays(path, _KIND, document, {"shared": taught.shared}, private=True)


def _load(path: Path, course: Course) -> Taught:
    document, arrays = read_arrays(path, _KIND)
    try:
        laps = tuple(Lap(**{**lap, "contributors": tuple(lap["contributors"])}) for lap in document["laps"])
        taught, lesson = Taught(arrays["shared"], document["first score"], laps), document["lesson"]
    except (KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} does not hold where a run stands: {error}.") from None
    if lesson != course.lesson.digest:
        raise InputError("this run began with other settings or public data. Give the same, or another label.")
    return taught
