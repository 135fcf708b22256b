"""The 28 days of PPDL's Figure 4: a published model learns on from its users' photos, by several methods side by side.

M. Bu, "Privacy Preserving Deep Learning for Image Classification" (2019), section 4, Table 1, Figures 3 and 4: a model
is trained on public photos and published on day 0 (27,497 of 51,142 photos); from then on it learns from the photos of
its users for 28 days. "The accuracy of classifying new photos on each day is calculated using updated model parameters
on the previous day." The paper does not say whose photos; here all participants' photos of a day are scored, each with
the model that the method gives to their participant::

    schedule = schedule_days(labels, participants=10, days=28, initial=0.5, random_state=0)
    public = Photos(inputs[schedule.initial], labels[schedule.initial])
    make_trainer = partial(SoftmaxTrainer, standardiser=Standardiser.fit(public.inputs), classes=4, learning_rate=0.01)
    initial = train_initial(make_trainer(record_noise=None), public, epochs=5)
    methods = [Centralised(), NeverUpdated(), SelectiveMethod("largest 10%", Sharing(0.1)),
               FederatedAveraging("FedAvg, equal bytes", as_bytes_of="largest 10%")]
    timeline = simulate_days(schedule, inputs, labels, methods, make_trainer, initial=initial, delta=1e-5)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from time import process_time
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data import partition
from blindsight.errors import InputError, UnknownNameError
from blindsight.learn.modules import Vector
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.protocol import Trainer
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.statement import PrivacyStatement, rounded_up

Rows = NDArray[np.int64]

Against = Literal["everybody", "everybody but the server", "nobody"]
"""From whom the proven epsilon of a method protects; everybody is also the server."""

OnDay = Callable[[int, Mapping[str, float]], object]
"""Called after each day with its number and the accuracy of every method, by name."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Rows of a collection: those of day 0, and those each participant takes on each day from day 1 on."""

    initial: Rows
    days: tuple[tuple[Rows, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a day on which nothing happens, and a photo that is taken twice."""
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


def schedule_days(
    labels: ArrayLike,
    *,
    participants: int,
    days: int,
    initial: float,
    random_state: int | np.random.Generator | None = None,
    skew: float | None = None,
) -> Schedule:
    """Spread photos evenly over days and participants, after the fraction `initial` was taken for day 0.

    With `skew` each class spreads over the participants by a draw from a Dirichlet distribution of this concentration:
    small numbers give everyone few classes (`data.partition.by_class`).

    >>> schedule = schedule_days([0, 1] * 100, participants=2, days=5, initial=0.5, random_state=0)
    >>> len(schedule.initial), [[len(rows) for rows in day] for day in schedule.days]
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
    schedule = Schedule(division.public, tuple(zip(*by_participant, strict=True)))
    schedule.check(marks)
    return schedule


def _by_day(rows: Rows, days: int, rng: np.random.Generator) -> Sequence[Rows]:
    """Deal photos out in random order; whose turn the surplus is differs, so that no day is left short."""
    parts = np.array_split(rng.permutation(rows), days)
    shift = int(rng.integers(days))
    return parts[shift:] + parts[:shift]


class Photos(NamedTuple):
    """Photos as a trainer takes them, and their classes, counted from 0."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]

    def take(self, rows: Rows | slice) -> "Photos":
        return Photos(self.inputs[rows], self.labels[rows])


class MakeTrainer(Protocol):
    """Makes a trainer of its own for each participant, as optimisers remember; all train the same network.

    ``functools.partial(SoftmaxTrainer, standardiser=..., classes=4, learning_rate=0.01)`` is one.
    """

    def __call__(self, *, record_noise: RecordGaussian | None) -> Trainer: ...


@dataclass
class Traffic:
    """What was sent so far: `uploads` from participants, their bytes, and the bytes sent back.

    `most_each` is the largest number of uploads of one participant. `bytes_allowed` is what the uploads would take at
    random places: it depends on nothing that photos show.
    """

    uploads: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    most_each: int = 0
    bytes_allowed: int = 0


@dataclass(frozen=True, eq=False)
class Setting:
    """What all methods of a study have in common.

    A participant trains on every `batch` photos that have gathered. Every epsilon is stated at `delta`. `runs` are
    those of the methods that were begun before, by name. Noise comes from `source`.
    """

    participants: tuple[str, ...]
    initial: Vector
    make_trainer: MakeTrainer
    batch: int
    delta: float
    seed: int
    runs: Mapping[str, "MethodRun"] = field(default_factory=dict)
    source: ByteSource = system_bytes

    def generator(self, place: int) -> np.random.Generator:
        """Return the science randomness of the participant at this place, the same in every method."""
        return np.random.default_rng([self.seed, place])


class MethodRun:
    """A method under way; it is given the photos of each day *after* they were scored."""

    protects: Against = "everybody"  # what `against` answers where something is proven

    def start(self, setting: Setting) -> None:
        """Stand at the end of day 0, with the initial model and nothing sent."""
        self.traffic = Traffic()
        self.parameters = setting.initial

    def day(self, photos: Mapping[str, Photos]) -> None:
        """Learn from one day's new photos, by participant."""

    def parameters_for(self, participant: str) -> Vector:
        """Return the parameters with which this participant's next photos are told apart."""
        return self.parameters

    def statement(self) -> PrivacyStatement:
        """Return what is proven of all that was sent so far."""
        raise NotImplementedError

    def against(self) -> Against:
        return "nobody" if self.statement().guarantee == "none" else self.protects


class Method(Protocol):
    """A way to keep a model up to date; it only says how."""

    @property
    def name(self) -> str: ...

    def begin(self, setting: Setting) -> MethodRun: ...


class Baseline(MethodRun):
    """A method that has nothing to choose: it is its own description."""

    name: str

    def begin(self, setting: Setting) -> MethodRun:
        run = type(self)()
        run.start(setting)
        return run


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One method: how it was scored on each day, and what it had sent by the end of each day, in all.

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


@dataclass(frozen=True, eq=False)
class Timeline:
    """All methods of a study, scored on the same photos: `photos` of them on each day."""

    photos: tuple[int, ...]
    methods: tuple[MethodResult, ...]

    def method(self, name: str) -> MethodResult:
        for method in self.methods:
            if method.name == name:
                return method
        raise UnknownNameError("method", name, [method.name for method in self.methods])

    def mean_accuracy(self, name: str, first: int = 1, last: int | None = None) -> float:
        """Return the fraction of photos told rightly from day `first` to day `last` (None: the end), both included."""
        end = len(self.photos) if last is None else last
        if not 1 <= first <= end <= len(self.photos):
            raise InputError(f"days must be in 1 ... {len(self.photos)} and in order; got {first} to {end}.")
        days = slice(first - 1, end)
        return float(np.average(self.method(name).accuracy[days], weights=self.photos[days]))

    def rows(self, days: Sequence[int]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return columns and rows of a table as text, with the accuracy of these days, counted from 1."""
        if not all(1 <= day <= len(self.photos) for day in days):
            raise InputError(f"days must be in 1 ... {len(self.photos)}; got {', '.join(map(str, days))}.")
        ends = ("all days", "uploads", "MB up", "proven epsilon", "against whom")
        return ("method", *(f"day {day}" for day in days), *ends), [
            (
                method.name,
                *(f"{method.accuracy[day - 1]:.3f}" for day in days),
                f"{self.mean_accuracy(method.name):.3f}",
                f"{method.uploads[-1]:,}",
                f"{method.bytes_up[-1] / 1e6:.3f}",
                "-" if method.epsilon is None else rounded_up(method.epsilon),
                method.against,
            )
            for method in self.methods
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the methods are its "lines", those of the figure."""
        lines = [{item.name: _plain(getattr(method, item.name)) for item in fields(method)} for method in self.methods]
        return {"photos": list(self.photos), "lines": lines}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        try:
            methods = []
            for line in data["lines"]:
                known: dict[str, Any] = {
                    name: tuple(value) if isinstance(value, list) else value for name, value in line.items()
                }
                methods.append(MethodResult(**known | {"statement": PrivacyStatement.from_dict(line["statement"])}))
            return cls(tuple(data["photos"]), tuple(methods))
        except (KeyError, TypeError, AttributeError):
            raise InputError("this is not the description of a timeline.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, PrivacyStatement):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


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


def simulate_days(
    schedule: Schedule,
    inputs: NDArray[Any],
    labels: ArrayLike,
    methods: Sequence[Method],
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
    """Simulate all `methods` over the days of the schedule, side by side.

    `inputs` and `labels` are those of the whole collection, which the schedule's rows speak of; `initial` is the model
    of day 0 (`train_initial`). A participant trains on every `batch` photos that have gathered. All epsilons are stated
    at `delta`. Everything but noise, which comes from `source`, is repeated by the same `random_state`.
    """
    marks = np.asarray(labels)
    _check(schedule, inputs, marks, methods, delta)
    setting = Setting(schedule.participants, initial, make_trainer, batch, delta, random_state, source=source)
    runs: dict[str, MethodRun] = {}
    for method in methods:
        runs[method.name] = method.begin(replace(setting, runs=dict(runs)))
    scorer = make_trainer(record_noise=None)
    accuracy: dict[str, list[float]] = {name: [] for name in runs}
    sent: dict[str, list[Traffic]] = {name: [] for name in runs}
    seconds = dict.fromkeys(runs, 0.0)
    for number, rows in enumerate(schedule.days, start=1):
        progress("simulating days", number - 1, len(schedule.days))
        taken = zip(schedule.participants, rows, strict=True)
        photos = {name: Photos(inputs[own], marks[own]) for name, own in taken if len(own)}
        for name, run in runs.items():
            accuracy[name].append(_accuracy(run, scorer, photos))
        for name, run in runs.items():
            begun = process_time()
            run.day(photos)
            seconds[name] += process_time() - begun
            sent[name].append(replace(run.traffic))
        if on_day is not None:
            on_day(number, {name: scored[-1] for name, scored in accuracy.items()})
    progress("simulating days", len(schedule.days), len(schedule.days))
    results = [
        MethodResult(
            name=name,
            accuracy=tuple(accuracy[name]),
            uploads=tuple(traffic.uploads for traffic in sent[name]),
            bytes_up=tuple(traffic.bytes_up for traffic in sent[name]),
            bytes_down=tuple(traffic.bytes_down for traffic in sent[name]),
            most_each=run.traffic.most_each,
            seconds=seconds[name],
            statement=run.statement(),
            against=run.against(),
        )
        for name, run in runs.items()
    ]
    return Timeline(tuple(sum(len(own) for own in rows) for rows in schedule.days), tuple(results))


def _accuracy(run: MethodRun, scorer: Trainer, photos: Mapping[str, Photos]) -> float:
    """Return the fraction of all photos told rightly; those of participants with the same model are scored together."""
    groups: dict[int, tuple[Vector, list[Photos]]] = {}
    for name, taken in photos.items():
        parameters = run.parameters_for(name)
        groups.setdefault(id(parameters), (parameters, []))[1].append(taken)
    right = 0
    for parameters, parts in groups.values():
        together = parts[0].inputs if len(parts) == 1 else np.concatenate([part.inputs for part in parts])
        told = scorer.scores(parameters, together).argmax(axis=1)
        right += int(np.count_nonzero(told == np.concatenate([part.labels for part in parts])))
    return right / sum(len(taken.labels) for taken in photos.values())


def _check(
    schedule: Schedule, inputs: NDArray[Any], labels: NDArray[Any], methods: Sequence[Method], delta: float
) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(inputs) or (labels < 0).any():
        raise InputError(
            f"there must be a class, counted from 0, for each of {len(inputs)} photos; got {labels.dtype} of shape "
            f"{labels.shape}."
        )
    schedule.check(labels)
    if not methods or len({method.name for method in methods}) != len(methods):
        raise InputError("a study has at least one method, and each has a name of its own.")
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1); got {delta}.")
