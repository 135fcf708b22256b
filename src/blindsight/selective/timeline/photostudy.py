"""From a collection of photos to a study day by day: what is learned, by which network, from which public photos.

Everything that is fitted before day 1 (features, standardisation, the initial model) is fitted to the public photos of
day 0 alone. The two models of PPDL (Bu 2019, Table 2) are a convolutional network from scratch (`cnn`) and a new head
on a frozen backbone (`head`: on features of any pipeline of `blindsight.data`, such as the pretrained embedding, or of
VGG16 with weights of your own; see `backbone`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import Dataset
from blindsight.data.features import FeaturePipeline, Standardiser, extract, pipeline
from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.files import AnyPath
from blindsight.progress import Progress, silent
from blindsight.selective.accounting import SharingCost
from blindsight.selective.softmaxtrainer import SoftmaxTrainer
from blindsight.selective.sparseupdate import Vector
from blindsight.selective.timeline.dayplan import DayPlan, plan_days
from blindsight.selective.timeline.line import Line, MakeTrainer, Photos
from blindsight.selective.timeline.play import OnDay, play_days, train_initial
from blindsight.selective.timeline.timeline import PlayedLine, Timeline
from blindsight.selective.timeline.wishes import SharingWish
from blindsight.selective.vgg import VGG16Features

WEEK = 7
"""Days at the end over which methods of sharing are compared."""

_HEAD_RATE = 0.05

Model = Literal["head", "cnn"]
Optimiser = Literal["sgd", "rmsprop", "adam"]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a participant trains. `learning_rate` None stands for one that suits the optimiser.

    A head by plain gradients ("sgd") needs no torch.
    """

    model: Model = "head"
    optimiser: Optimiser = "sgd"
    learning_rate: float | None = None
    initial_epochs: int = 10

    def __post_init__(self) -> None:
        """Refuse names that mean nothing."""
        for kind, name, known in (("model", self.model, Model), ("optimiser", self.optimiser, Optimiser)):
            if name not in get_args(known):
                raise UnknownNameError(kind, name, get_args(known))
        if self.learning_rate is not None and not 0 < self.learning_rate < np.inf:
            raise InputError(f"the learning rate must be positive; got {self.learning_rate}.")
        if self.initial_epochs < 1:
            raise InputError(f"the initial model needs at least one epoch; got {self.initial_epochs}.")


@dataclass(frozen=True, eq=False)
class PhotoStudy:
    """Photos as the model takes them, their classes, the calendar, and the model of day 0."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    answers: tuple[str, ...]
    plan: DayPlan
    make_trainer: MakeTrainer
    initial: Vector
    seed: int

    @classmethod
    def prepare(
        cls,
        dataset: Dataset,
        pipeline: FeaturePipeline,
        training: Training,
        *,
        participants: int = 10,
        days: int = 28,
        initial: float = 0.1,
        skew: float | None = None,
        classes: Sequence[str] = (),
        attribute: str | None = None,
        random_state: int = 0,
        cache: AnyPath | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Plan the days over a collection's classes (or only some, or one attribute's yes and no), and train day 0.

        The fraction `initial` of the photos is public. `skew` gives participants different shares of the classes.
        """
        dataset, labels, answers = answered(dataset, classes, attribute)
        if len(np.unique(labels)) < 2:
            raise DataError(f"all photos of {dataset.name} have the same answer: there is nothing to tell apart.")
        plan = plan_days(
            labels, participants=participants, days=days, initial=initial, skew=skew, random_state=random_state
        )
        if training.model == "cnn":
            if dataset.images is None:
                raise DataError(f"{dataset.name} comes without pictures, which a network from scratch needs.")
            inputs: NDArray[Any] = np.asarray(dataset.images)
        else:
            inputs = extract(dataset, pipeline, fit_to=plan.initial, cache=cache, progress=progress)
        public = Photos(inputs[plan.initial], labels[plan.initial])
        make_trainer = trainer_maker(training, public.inputs, len(answers), random_state)
        progress("training the initial model", 0, None)
        first = train_initial(
            make_trainer(record_noise=None), public, epochs=training.initial_epochs, random_state=random_state
        )
        return cls(inputs, labels, answers, plan, make_trainer, first, random_state)

    @property
    def dimension(self) -> int:
        """How many parameters are learned."""
        return self.initial.size

    def play(
        self, lines: Sequence[Line], *, delta: float, on_day: OnDay | None = None, progress: Progress = silent
    ) -> Timeline:
        """Play all lines over the days."""
        return play_days(
            self.plan,
            self.inputs,
            self.labels,
            lines,
            self.make_trainer,
            initial=self.initial,
            delta=delta,
            random_state=self.seed,
            on_day=on_day,
            progress=progress,
        )


@dataclass(frozen=True)
class SharingResult:
    """What one study found: all methods day by day, and what selective sharing costs in privacy."""

    timeline: Timeline
    cost: SharingCost
    participants: int

    @classmethod
    def of(
        cls, study: PhotoStudy, options: SharingWish, *, on_day: OnDay | None = None, progress: Progress = silent
    ) -> Self:
        """Simulate the days of a study by the method that the options describe and by those to compare it with."""
        methods = options.lines(study.plan, steps=1)
        timeline = study.play(methods, delta=options.stated_delta, on_day=on_day, progress=progress)
        cost = options.cost(study.plan, timeline, study.dimension, steps=1)
        return cls(timeline, cost, len(study.plan.participants))

    def to_dict(self) -> dict[str, Any]:
        """Return the days and what sharing costs as plain data; an infinite epsilon is None, as JSON has none."""
        composition = [
            {
                "what": row.what,
                "basic": row.basic if math.isfinite(row.basic) else None,
                "composed": row.composed if math.isfinite(row.composed) else None,
                "delta": self.cost.delta,
                "accountant": row.accountant,
            }
            for row in self.cost.rows()
        ]
        return self.timeline.to_dict() | {"composition": composition, "sentence": self.cost.sentence()}

    @property
    def days(self) -> int:
        """How many days were simulated."""
        return len(self.timeline.photos)

    @property
    def families(self) -> dict[str, list[PlayedLine]]:
        """Methods with proven noise that differ in their epsilon alone, the smallest first."""
        found: dict[str, list[PlayedLine]] = {}
        for method in self.timeline.lines:
            if method.epsilon:
                found.setdefault(method.name.partition(", eps ")[0], []).append(method)
        return {name: sorted(methods, key=lambda method: method.epsilon or 0.0) for name, methods in found.items()}

    @property
    def principal(self) -> list[PlayedLine]:
        """The methods to draw: of each family that with the largest epsilon, which has the least noise."""
        weaker = {method.name for methods in self.families.values() for method in methods[:-1]}
        return [method for method in self.timeline.lines if method.name not in weaker]

    def settled(self, method: PlayedLine) -> float:
        """Return a method's accuracy over the photos of the last week."""
        return self.timeline.mean_accuracy(method.name, max(1, self.days - WEEK + 1))


def backbone(kind: str, *, components: int | None = None, random_state: int = 0) -> FeaturePipeline:
    """Return what gives the features of a head: "vgg16:" and the path of your weights file, or a pipeline's name."""
    name, colon, path = kind.partition(":")
    if name != "vgg16":
        return pipeline(kind, components=components, random_state=random_state)
    if not colon or not Path(path).is_file():
        raise InputError(f"vgg16 takes a file with its weights, as in vgg16:weights.pt; got {path!r}.")
    return VGG16Features(path)


def answered(
    dataset: Dataset, classes: Sequence[str], attribute: str | None
) -> tuple[Dataset, NDArray[np.int64], tuple[str, ...]]:
    """Return the photos that have an answer, their classes counted from 0, and what these are called."""
    if attribute is not None:
        if classes:
            raise InputError("an attribute is learned, or classes; got both. Name one of them.")
        known = dataset.attribute(attribute)
        kept = dataset.take(known >= 0)
        return kept, kept.attribute(attribute).astype(np.int64), (f"not {attribute}", attribute)
    if dataset.labels is None:
        raise DataError(f"{dataset.name} has no classes. Name an attribute to learn.")
    if not classes:
        return dataset, dataset.labels, dataset.label_names
    if len(set(classes)) < max(2, len(classes)):
        raise InputError(f"a model tells two classes apart at least, each named once; got {', '.join(classes)}.")
    for name in classes:
        if name not in dataset.label_names:
            raise UnknownNameError("class", name, dataset.label_names)
    chosen = [dataset.label_names.index(name) for name in classes]
    kept = dataset[np.isin(dataset.labels, chosen)].with_label_names(classes)
    assert kept.labels is not None
    return kept, kept.labels, kept.label_names


def trainer_maker(training: Training, public: NDArray[Any], classes: int, random_state: int) -> MakeTrainer:
    """Return what makes every participant's trainer of one and the same model; `public` photos give its scales."""
    rate = training.learning_rate
    if training.model == "head" and training.optimiser == "sgd":
        scales = Standardiser.fit(public)
        return partial(
            SoftmaxTrainer, standardiser=scales, classes=classes, learning_rate=_HEAD_RATE if rate is None else rate
        )
    from blindsight.selective.networks import head, small_cnn
    from blindsight.selective.networktrainer import NetworkTrainer

    if training.model == "head":
        scales = Standardiser.fit(public)
        module = head(public.shape[1], classes, standardiser=scales, random_state=random_state)
    else:
        height, width, channels = public.shape[1:]
        module = small_cnn(classes, (height, width), channels, random_state=random_state)
    return partial(NetworkTrainer, module, optimiser=training.optimiser, learning_rate=rate)
