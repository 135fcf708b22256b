"""The study itself: each day's new photos are scored with yesterday's models, and only then learned from.

M. Bu, "Privacy Preserving Deep Learning for Image Classification" (2019), section 4 and Figure 4: a model is trained on
public photos and published on day 0; from then on it is kept up to date from the photos of its users for 28 days.
"The accuracy of classifying new photos on each day is calculated using updated model parameters on the previous day."
The paper does not say whose photos; here all participants' photos of a day are scored, each with the model that the
line gives to their participant.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.selective.sparseupdate import Vector
from blindsight.selective.timeline.dayplan import DayPlan
from blindsight.selective.timeline.line import Course, Line, MakeTrainer, Photos, Setting, Traffic
from blindsight.selective.timeline.timeline import PlayedLine, Timeline
from blindsight.selective.trainer import Trainer

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
