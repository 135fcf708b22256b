"""Who takes which photos on which day: the calendar of a study in which a model learns on after it was published.

The photos of day 0 are public and give the initial model (Bu 2019, section 4: 27,497 of 51,142 photos). All others are
somebody's, and each appears on one day with one participant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data import partition
from blindsight.errors import InputError
from blindsight.rng import science

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DayPlan:
    """Rows of a collection: those of day 0, and those each participant takes on each day from day 1 on."""

    initial: Rows
    days: tuple[tuple[Rows, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a plan with a day on which nothing happens, or a photo that is taken twice."""
        if not self.days or not self.days[0] or len({len(day) for day in self.days}) != 1:
            raise InputError("a plan has at least one day and one participant, and on every day the same participants.")
        for number, day in enumerate(self.days, start=1):
            if not any(len(rows) for rows in day):
                raise InputError(f"nobody takes a photo on day {number}, so nothing can be scored. Plan fewer days.")
        every = np.concatenate([self.initial, *chain.from_iterable(self.days)])
        if every.min() < 0 or len(np.unique(every)) != len(every):
            raise InputError("each photo of a plan is taken once: rows are at least 0 and all different.")

    @cached_property
    def participants(self) -> tuple[str, ...]:
        """What the participants are called."""
        return tuple(f"participant {number}" for number in range(1, len(self.days[0]) + 1))

    def taken_by(self, participant: str) -> Rows:
        """Return all photos one participant takes, in the order of days."""
        place = self.participants.index(participant)
        return np.concatenate([day[place] for day in self.days])

    def uploads(self, batch: int) -> int:
        """Return how many batches the participant with most photos gathers in all."""
        return max(len(self.taken_by(name)) // batch for name in self.participants)

    def turns(self, batch: int) -> int:
        """Return how often all participants can have a batch at once: the batches of the one with fewest photos."""
        return min(len(self.taken_by(name)) // batch for name in self.participants)

    def check(self, labels: NDArray[np.integer]) -> None:
        """Refuse labels that are too few, and participants without photos or with photos of one class only."""
        most = max(rows.max() for rows in chain([self.initial], *self.days) if len(rows))
        if most >= len(labels):
            raise InputError(f"the plan speaks of photo {most}; there are only {len(labels)}.")
        for name in self.participants:
            classes = np.unique(labels[self.taken_by(name)])
            if not classes.size:
                raise InputError(f"{name} takes no photo in all {len(self.days)} days. Plan fewer participants.")
            if classes.size == 1:
                raise InputError(
                    f"all photos of {name} are of class {classes[0]}; it could learn nothing but to say so. Skew the "
                    "classes less, or plan fewer participants."
                )


def plan_days(
    labels: ArrayLike,
    *,
    participants: int,
    days: int,
    initial: float,
    random_state: int | np.random.Generator | None = None,
    skew: float | None = None,
) -> DayPlan:
    """Spread photos evenly over days and participants, after the fraction `initial` was taken for day 0.

    With `skew` each class spreads over the participants by a draw from a Dirichlet distribution of this concentration:
    small numbers give everyone few classes (`data.partition.by_class`).

    >>> plan = plan_days([0, 1] * 100, participants=2, days=5, initial=0.5, random_state=0)
    >>> len(plan.initial), [[len(rows) for rows in day] for day in plan.days]
    (100, [[10, 10], [10, 10], [10, 10], [10, 10], [10, 10]])
    """
    if participants < 1 or days < 1:
        raise InputError(f"a plan needs at least one participant and one day; got {participants} and {days}.")
    if not 0 < initial < 1:
        raise InputError(f"initial, the fraction of photos taken for day 0, must be in (0, 1); got {initial}.")
    marks, rng = np.asarray(labels), science(random_state)
    division = partition.divide(
        marks,
        public=initial,
        owners=participants,
        sharing="equal" if skew is None else "by-class",
        concentration=1.0 if skew is None else skew,
        random_state=rng,
    )
    by_participant = [_by_day(rows, days, rng) for rows in division.owners]
    plan = DayPlan(division.public, tuple(zip(*by_participant, strict=True)))
    plan.check(marks)
    return plan


def _by_day(rows: Rows, days: int, rng: np.random.Generator) -> Sequence[Rows]:
    """Deal photos out in random order; whose turn the surplus is differs, so that no day is left short."""
    parts = np.array_split(rng.permutation(rows), days)
    shift = int(rng.integers(days))
    return parts[shift:] + parts[:shift]
