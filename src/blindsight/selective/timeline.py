"""Who takes which photos on which day: the calendar of a study in which a model learns on after it was published.

The photos of day 0 are public and give the initial model (Bu 2019, section 4: 27,497 of 51,142 photos). All others are
somebody's, and each appears on one day with one participant.


One line of the figure: a way to keep a model up to date, played day by day over the same photos as all others.

A `Line` only says how; `begin` gives a `Course`, which is the line under way. Whoever plays it hands it the photos of
each day *after* they were scored, so that no course can be scored on what it has learned from.


What came of a study day by day: the curves of the figure, and what each of them cost and proves.

The study itself: each day's new photos are scored with yesterday's models, and only then learned from.

M. Bu, "Privacy Preserving Deep Learning for Image Classification" (2019), section 4 and Figure 4: a model is trained on
public photos and published on day 0; from then on it is kept up to date from the photos of its users for 28 days.
"The accuracy of classifying new photos on each day is calculated using updated model parameters on the previous day."
The paper does not say whose photos; here all participants' photos of a day are scored, each with the model that the
line gives to their participant.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from time import process_time
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data import partition
from blindsight.errors import InputError, UnknownNameError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.selective.codec import Vector
from blindsight.selective.noise import RecordGaussian
from blindsight.selective.trainers import Trainer
from blindsight.statement import PrivacyStatement

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


class Photos(NamedTuple):
    """Photos as a trainer takes them, and their classes, counted from 0."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]


class MakeTrainer(Protocol):
    """Makes a trainer of its own for each participant, as optimisers remember; all train the same network.

    ``functools.partial(SoftmaxTrainer, standardiser=..., classes=4, learning_rate=0.01)`` is one.
    """

    def __call__(self, *, record_noise: RecordGaussian | None) -> Trainer:
        """Return a trainer that adds this noise inside training."""


Against = Literal["everybody", "everybody but the server", "nobody"]
"""From whom the proven epsilon of a line protects; everybody is also the server."""


@dataclass
class Traffic:
    """What was sent so far: `uploads` from participants, their bytes, and the bytes sent back.

    `most_each` is how many uploads the participant made that made most. `bytes_allowed` is what the uploads would take,
    not encrypted, if each had as many values as may be sent, at places that take most: it tells nothing of the photos.
    """

    uploads: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    most_each: int = 0
    bytes_allowed: int = 0


class Course(Protocol):
    """A line under way."""

    @property
    def traffic(self) -> Traffic:
        """What was sent so far; always the same object."""

    def day(self, photos: Mapping[str, Photos]) -> None:
        """Learn from one day's new photos, by participant."""

    def parameters_for(self, participant: str) -> Vector:
        """Return the parameters with which this participant's next photos are told apart."""

    def statement(self) -> PrivacyStatement:
        """Return what is proven of all that was sent so far."""

    def against(self) -> Against:
        """Return from whom that protects."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What all lines of a study have in common.

    A participant trains on every `batch` photos that have gathered. Every epsilon is stated at `delta`. `courses` are
    those of the lines that were begun before, by name. Noise comes from `source`.
    """

    participants: tuple[str, ...]
    initial: Vector
    make_trainer: MakeTrainer
    batch: int
    delta: float
    seed: int
    courses: Mapping[str, Course] = field(default_factory=dict)
    source: ByteSource = system_bytes

    def generator(self, place: int) -> np.random.Generator:
        """Return the science randomness of the participant at this place, the same in every line."""
        return np.random.default_rng([self.seed, place])


class Line(Protocol):
    """A way to keep a model up to date."""

    @property
    def name(self) -> str:
        """What it is called in tables and figures."""

    def begin(self, setting: Setting) -> Course:
        """Return the line at the end of day 0, with the initial model and nothing sent."""


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


OnDay = Callable[[int, Mapping[str, float]], object]
"""Called after each day with its number and the accuracy of every line, by name."""


def train_initial(trainer: Trainer, photos: Photos, *, epochs: int, random_state: int | None = None) -> Vector:
    """Return the model that is published on day 0: so many trainings on the public photos."""
    if epochs < 0:
        raise InputError(f"epochs must be at least 0; got {epochs}.")
    parameters, rng = trainer.initial(), science(random_state)
    for _ in range(epochs):
        parameters = trainer.train(parameters, photos.inputs, photos.labels, int(rng.integers(2**63)))
    if parameters.shape != (trainer.layout.dimension,) or not np.isfinite(parameters).all():
        raise InputError("the training of the initial model diverged. Lower the learning rate.")
    return parameters


def play_days(
    plan: DayPlan,
    inputs: NDArray[Any],
    labels: ArrayLike,
    lines: Sequence[Line],
    make_trainer: MakeTrainer,
    *,
    initial: Vector,
    delta: float,
    batch: int = 32,
    random_state: int = 0,
    source: ByteSource = system_bytes,
    on_day: OnDay | None = None,
    progress: Progress = silent,
) -> Timeline:
    """Play all `lines` over the days of the plan, side by side.

    `inputs` and `labels` are those of the whole collection, which the plan's rows speak of; `initial` is the model of
    day 0 (`train_initial`). A participant trains on every `batch` photos that have gathered. All epsilons are stated at
    `delta`. Everything but noise, which comes from `source`, is repeated by the same `random_state`.
    """
    marks = np.asarray(labels)
    _check(plan, inputs, marks, lines, delta)
    setting = Setting(plan.participants, initial, make_trainer, batch, delta, random_state, source=source)
    played = _begin(lines, setting)
    scorer = make_trainer(record_noise=None)
    sizes = []
    for number, rows in enumerate(plan.days, start=1):
        progress("playing days", number - 1, len(plan.days))
        taken = zip(plan.participants, rows, strict=True)
        photos = {name: Photos(inputs[own], marks[own]) for name, own in taken if len(own)}
        sizes.append(sum(len(own) for own in rows))
        for line in played:
            line.score(scorer, photos)
        for line in played:
            line.learn(photos)
        if on_day is not None:
            on_day(number, {line.name: line.accuracy[-1] for line in played})
    progress("playing days", len(plan.days), len(plan.days))
    return Timeline(tuple(sizes), tuple(line.result() for line in played))


def _accuracy(course: Course, scorer: Trainer, photos: Mapping[str, Photos]) -> float:
    """Return the fraction of photos told rightly, each with the parameters for its participant.

    Where participants have the same parameters, their photos are scored together.
    """
    groups: dict[int, tuple[Vector, list[Photos]]] = {}
    for name, taken in photos.items():
        parameters = course.parameters_for(name)
        groups.setdefault(id(parameters), (parameters, []))[1].append(taken)
    right = 0
    for parameters, parts in groups.values():
        together = parts[0].inputs if len(parts) == 1 else np.concatenate([part.inputs for part in parts])
        told = scorer.scores(parameters, together).argmax(axis=1)
        right += int(np.count_nonzero(told == np.concatenate([part.labels for part in parts])))
    return right / sum(len(taken.labels) for taken in photos.values())


@dataclass(eq=False)
class _Playing:
    """A course, and what is noted of it day by day."""

    name: str
    course: Course
    accuracy: list[float] = field(default_factory=list)
    sent: list[Traffic] = field(default_factory=list)
    seconds: float = 0.0

    def score(self, scorer: Trainer, photos: Mapping[str, Photos]) -> None:
        self.accuracy.append(_accuracy(self.course, scorer, photos))

    def learn(self, photos: Mapping[str, Photos]) -> None:
        begun = process_time()
        self.course.day(photos)
        self.seconds += process_time() - begun
        self.sent.append(replace(self.course.traffic))

    def result(self) -> PlayedLine:
        return PlayedLine(
            name=self.name,
            accuracy=tuple(self.accuracy),
            uploads=tuple(sent.uploads for sent in self.sent),
            bytes_up=tuple(sent.bytes_up for sent in self.sent),
            bytes_down=tuple(sent.bytes_down for sent in self.sent),
            most_each=self.course.traffic.most_each,
            seconds=self.seconds,
            statement=self.course.statement(),
            against=self.course.against(),
        )


def _begin(lines: Sequence[Line], setting: Setting) -> list[_Playing]:
    courses: dict[str, Course] = {}
    for line in lines:
        courses[line.name] = line.begin(replace(setting, courses=dict(courses)))
    return [_Playing(name, course) for name, course in courses.items()]


def _check(plan: DayPlan, inputs: NDArray[Any], labels: NDArray[Any], lines: Sequence[Line], delta: float) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(inputs) or (labels < 0).any():
        raise InputError(
            f"there must be a class, counted from 0, for each of {len(inputs)} photos; got {labels.dtype} of shape "
            f"{labels.shape}."
        )
    plan.check(labels)
    if not lines or len({line.name for line in lines}) != len(lines):
        raise InputError("a study has at least one line, and each has a name of its own.")
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1); got {delta}.")
