"""What came of a study day by day: the curves of the figure, and what each of them cost and proves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from blindsight.errors import InputError, UnknownNameError
from blindsight.selective.timeline.line import Against
from blindsight.statement import PrivacyStatement


@dataclass(frozen=True, eq=False)
class PlayedLine:
    """One line: how it was scored on each day, and what it had sent by the end of each day, in all.

    `accuracy` is the fraction of a day's new photos that yesterday's model told rightly. `uploads`, `bytes_up` and
    `bytes_down` are those of all participants; `most_each` is how many uploads the participant made, in all days, that
    made most. `seconds` of CPU were spent on learning and sharing, not on scoring. `against` tells from whom what the
    statement proves protects.
    """

    name: str
    accuracy: tuple[float, ...]
    uploads: tuple[int, ...]
    bytes_up: tuple[int, ...]
    bytes_down: tuple[int, ...]
    most_each: int
    seconds: float
    statement: PrivacyStatement
    against: Against

    @property
    def epsilon(self) -> float | None:
        """What is proven over all days, per unit of the statement; None if nothing is."""
        epsilon = self.statement.epsilon
        return None if epsilon is None or math.isinf(epsilon) else epsilon


class TimelineRow(NamedTuple):
    """One line of the table: the accuracy on some days, its mean over all photos, and what it cost in all."""

    name: str
    accuracy: tuple[float, ...]
    mean: float
    uploads: int
    megabytes_up: float
    megabytes_down: float
    epsilon: float | None
    against: Against


@dataclass(frozen=True, eq=False)
class Timeline:
    """All lines of a study, scored on the same photos: `photos` of them on each day."""

    photos: tuple[int, ...]
    lines: tuple[PlayedLine, ...]

    def line(self, name: str) -> PlayedLine:
        """Return the line of this name."""
        for line in self.lines:
            if line.name == name:
                return line
        raise UnknownNameError("line", name, [line.name for line in self.lines])

    def mean_accuracy(self, name: str, first: int = 1, last: int | None = None) -> float:
        """Return the fraction of photos told rightly from day `first` to day `last` (None: the end), both included."""
        end = len(self.photos) if last is None else last
        if not 1 <= first <= end <= len(self.photos):
            raise InputError(f"days must be in 1 ... {len(self.photos)} and in order; got {first} to {end}.")
        days = slice(first - 1, end)
        return float(np.average(self.line(name).accuracy[days], weights=self.photos[days]))

    def rows(self, days: Sequence[int]) -> list[TimelineRow]:
        """Return the table with the accuracy of these days, counted from 1."""
        if not all(1 <= day <= len(self.photos) for day in days):
            raise InputError(f"days must be in 1 ... {len(self.photos)}; got {', '.join(map(str, days))}.")
        return [
            TimelineRow(
                name=line.name,
                accuracy=tuple(line.accuracy[day - 1] for day in days),
                mean=self.mean_accuracy(line.name),
                uploads=line.uploads[-1],
                megabytes_up=line.bytes_up[-1] / 1e6,
                megabytes_down=line.bytes_down[-1] / 1e6,
                epsilon=line.epsilon,
                against=line.against,
            )
            for line in self.lines
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        lines = [
            {
                "name": line.name,
                "accuracy": list(line.accuracy),
                "uploads": list(line.uploads),
                "bytes_up": list(line.bytes_up),
                "bytes_down": list(line.bytes_down),
                "most_each": line.most_each,
                "seconds": line.seconds,
                "statement": line.statement.to_dict(),
                "against": line.against,
            }
            for line in self.lines
        ]
        return {"photos": list(self.photos), "lines": lines}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return what `to_dict` described."""
        try:
            lines = [
                PlayedLine(
                    name=line["name"],
                    accuracy=tuple(line["accuracy"]),
                    uploads=tuple(line["uploads"]),
                    bytes_up=tuple(line["bytes_up"]),
                    bytes_down=tuple(line["bytes_down"]),
                    most_each=line["most_each"],
                    seconds=line["seconds"],
                    statement=PrivacyStatement.from_dict(line["statement"]),
                    against=line["against"],
                )
                for line in data["lines"]
            ]
            return cls(tuple(data["photos"]), tuple(lines))
        except (KeyError, TypeError, AttributeError):
            raise InputError("this is not the description of a timeline.") from None
