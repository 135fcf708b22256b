"""PPDL's case study on any collection (Bu 2019, sections 4 to 7): what is learned, by which network, shared how,
compared with what.

Everything that is fitted before day 1 (features, standardisation, the initial model) is fitted to the public photos of
day 0 alone. The two models of PPDL (Bu 2019, Table 2) are a convolutional network from scratch (`cnn`) and a new head
on a frozen backbone (`head`: on features of any pipeline of `blindsight.data`, such as the pretrained embedding, or of
VGG16 with weights of your own; see `backbone`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import Dataset
from blindsight.data.features import FeaturePipeline, Standardiser, extract, pipeline
from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.files import AnyPath
from blindsight.learn.modules import Vector, head, module_from, module_maker, small_cnn
from blindsight.learn.protection import Noise, calibrate_record
from blindsight.learn.training import NetworkTrainer, check_outputs, check_passes
from blindsight.papers.selective.cost import SharingCost, compose_sharing
from blindsight.papers.selective.days import (
    MakeTrainer,
    Method,
    MethodResult,
    OnDay,
    Photos,
    Schedule,
    Timeline,
    schedule_days,
    simulate_days,
    train_initial,
)
from blindsight.papers.selective.methods import (
    Centralised,
    FederatedAveraging,
    LocalOnly,
    NeverUpdated,
    OrderName,
    SelectiveMethod,
)
from blindsight.papers.selective.noise import Laplace, PublishedLaplace, Selection, Sharing, calibrate_participant
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.papers.selective.vgg16 import VGG16Features
from blindsight.progress import Progress, silent

OURS = "selective sharing"

BATCH = 32
"""How many photos start a training, as in the paper."""

STATED_DELTA = 1e-5
"""At which delta the noise of the papers is composed where nobody names another; it changes no noise."""

WEEK = 7
"""Days at the end over which methods of sharing are compared."""

LOCAL_STEPS = 5
"""Passes over the photos of an upload: they bring more than any choice of what is uploaded."""

DECAY = 0.01
"""How the rate decays: in the t-th upload it is divided by 1 + t / 100."""

_HEAD_RATE = 0.05

Model = Literal["head", "cnn"]
Optimiser = Literal["sgd", "rmsprop", "adam"]
NoiseName = Literal["none", "published", "laplace", "participant", "record"]


# --- methods to compare ---


def plain_methods(ours: SelectiveMethod, *, server_rate: float = 1.0) -> Sequence[Method]:
    """Return this method and those without noise to compare it with; the dense ones upload as often, or as much."""
    largest = _largest(ours.sharing)
    return (
        Centralised(),
        NeverUpdated(),
        LocalOnly(),
        ours,
        SelectiveMethod("top-k with residuals", replace(largest, residual=True), download=ours.download),
        FederatedAveraging("FedAvg, equal uploads", server_rate=server_rate),
        FederatedAveraging("FedAvg, equal bytes", as_bytes_of=ours.name, server_rate=server_rate),
    )


def proven_methods(
    schedule: Schedule,
    sharing: Sharing,
    *,
    epsilon: float,
    delta: float,
    clip: float,
    upload_clip: float | None = None,
    batch: int = BATCH,
    steps: int = 1,
    server_rate: float = 1.0,
    as_bytes_of: str = OURS,
) -> Sequence[Method]:
    """Return methods with noise that is proven, each of which may spend `epsilon` at `delta` over all days.

    They protect a photo, whose gradient in each of `steps` steps has a length of at most `clip`; or a participant, each
    of whose uploads has one of at most `upload_clip` (None: the same). Shares, residuals and rounding are those of
    `sharing`.
    """
    uploads = max(1, schedule.uploads(batch))
    seldom = min(len(schedule.days), 1 + math.ceil(uploads * min(1.0, 1.3 * sharing.share)))  # places take bytes too
    photo = calibrate_record(epsilon=epsilon, delta=delta, steps=steps, clip=clip)
    each, rare = (
        calibrate_participant(epsilon=epsilon, delta=delta, uploads=count, clip=upload_clip or clip)
        for count in (uploads, seldom)
    )
    largest, spent = _largest(sharing), f"eps {epsilon:g}"
    averaging = partial(FederatedAveraging, server_rate=server_rate, budget=epsilon)
    return (
        SelectiveMethod(f"noise per photo, {spent}", replace(largest, noise=photo), budget=epsilon),
        SelectiveMethod(
            f"noise per participant, {spent}", replace(largest, select="random", noise=each), budget=epsilon
        ),
        averaging(f"DP-FedAvg, equal uploads, {spent}", noise=each),
        averaging(f"DP-FedAvg, equal bytes, {spent}", as_bytes_of=as_bytes_of, noise=rare),
    )


def _largest(sharing: Sharing) -> Sharing:
    """Return a sharing of as much, the largest of it, with neither bound nor noise."""
    return replace(sharing, select="largest", threshold=None, bound=None, noise=None)


@dataclass(frozen=True, kw_only=True)
class SharingOptions:
    """How to share. `epsilon` belongs to the noise: per parameter and upload, or of all days where noise has a proof.

    `clip` is the longest gradient of a photo (noise "record"), `upload_clip` the longest upload ("participant").
    Methods with proven noise of both kinds are simulated beside at each of `epsilons`.
    """

    share: float
    download: float = 1.0
    select: Selection = "largest"
    threshold: float | None = None
    bound: float | None = None
    residual: bool = False
    half: bool = False
    half_download: bool = False
    order: OrderName = "round-robin"
    noise: NoiseName = "none"
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    upload_clip: float | None = None
    epsilons: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse options that leave something out or contradict themselves, before a photo is read."""
        if self.noise not in get_args(NoiseName):
            raise UnknownNameError("noise", self.noise, get_args(NoiseName))
        if (self.noise == "none") != (self.epsilon is None):
            raise InputError("noise goes with an epsilon, and an epsilon with noise. Give both or neither.")
        if not 0 < self.download <= 1:
            raise InputError(f"download must be in (0, 1]; got {self.download}.")
        self._check_needs()
        if self.delta is not None and not 0 < self.delta < 1:
            raise InputError(f"delta must be in (0, 1); got {self.delta}.")
        if len({f"{epsilon:g}" for epsilon in self.epsilons}) < len(self.epsilons):
            raise InputError("each of the epsilons makes methods of its own; got one of them twice.")
        for epsilon in self.epsilons:  # its noise must exist
            calibrate_record(epsilon=epsilon, delta=self.stated_delta, steps=1, clip=self.clip or 0.0)
            calibrate_participant(epsilon=epsilon, delta=self.stated_delta, uploads=1, clip=self.upload_clip or 0.0)
        SelectiveMethod(OURS, self._sharing(1, 1), order=self.order)

    def _check_needs(self) -> None:
        """Noise with a proof needs numbers that nobody else can choose; without it they would mean nothing."""
        users = {"delta": ("participant", "record"), "clip": ("record",), "upload_clip": ("participant",)}
        needed = [name for name, kinds in users.items() if self.epsilons or self.noise in kinds]
        if missing := sorted(name for name in needed if getattr(self, name) is None):
            raise InputError(f"noise with a proof needs {' and '.join(missing)}, which nobody else can choose.")
        for name in {"clip", "upload_clip"} - {*needed}:
            if getattr(self, name) is not None:
                raise InputError(f"{name} is for noise with a proof, of which there is none here. Leave it out.")

    @property
    def stated_delta(self) -> float:
        return STATED_DELTA if self.delta is None else self.delta

    def sharing(self, schedule: Schedule, *, steps: int) -> Sharing:
        """Return the sharing with as much noise as the uploads of the schedule, or the steps on each photo, need."""
        uploads = schedule.uploads(BATCH)
        if not uploads:
            raise InputError(
                f"nobody gathers the {BATCH} photos that start a training, so nothing would ever be shared. Take more "
                "photos, or plan fewer participants."
            )
        return self._sharing(uploads, steps)

    def methods(self, schedule: Schedule, *, steps: int) -> tuple[Method, ...]:
        """Return the method of these options, and those beside it."""
        sharing = self.sharing(schedule, steps=steps)
        budget = self.epsilon if self.noise in ("participant", "record") else None
        ours = SelectiveMethod(
            OURS,
            sharing,
            download=self.download,
            half_download=self.half_download,
            order=self.order,
            budget=budget,
        )
        methods = [*plain_methods(ours)]
        for epsilon in self.epsilons:
            assert self.clip is not None
            methods += proven_methods(
                schedule,
                replace(sharing, noise=None),
                epsilon=epsilon,
                delta=self.stated_delta,
                clip=self.clip,
                upload_clip=self.upload_clip,
                steps=steps,
            )
        return tuple(methods)

    def cost(self, schedule: Schedule, timeline: Timeline, dimension: int, *, steps: int) -> SharingCost:
        """Return what all uploads cost the participant that really made most in the study that was simulated."""
        return compose_sharing(
            self.sharing(schedule, steps=steps),
            dimension=dimension,
            uploads=max(1, timeline.method(OURS).most_each),
            delta=self.stated_delta,
            steps=steps,
        )

    def _sharing(self, uploads: int, steps: int) -> Sharing:
        known = {item.name for item in fields(Sharing)} - {"noise"}
        return Sharing(noise=self._noise(uploads, steps), **{name: getattr(self, name) for name in known})

    def _noise(self, uploads: int, steps: int) -> Noise | None:
        if self.epsilon is None:
            return None
        if self.noise in ("published", "laplace"):
            return (PublishedLaplace if self.noise == "published" else Laplace)(self.epsilon)
        spent = {"epsilon": self.epsilon, "delta": self.stated_delta}
        if self.noise == "record":
            assert self.clip is not None
            return calibrate_record(**spent, steps=steps, clip=self.clip)
        assert self.upload_clip is not None
        return calibrate_participant(**spent, uploads=uploads, clip=self.upload_clip)


# --- a collection ---


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a participant trains: `model` is "head", "cnn" or a module of one's own, "net.py:Net" (`module_from`).

    `learning_rate` None stands for one that suits the optimiser; in the t-th upload it is divided by 1 + `decay` t.
    A batch is gone through `local_steps` times; under noise per photo, all of them are counted. A head by plain
    gradients ("sgd") needs no torch.
    """

    model: str = "head"
    optimiser: Optimiser = "sgd"
    learning_rate: float | None = None
    initial_epochs: int = 10
    local_steps: int = LOCAL_STEPS
    decay: float = DECAY

    def __post_init__(self) -> None:
        if self.model not in get_args(Model):
            if ":" not in self.model:
                raise UnknownNameError("model", self.model, (*get_args(Model), "net.py:Net"))
            module_maker(self.model)  # or say what is wrong with the file
        if self.optimiser not in get_args(Optimiser):
            raise UnknownNameError("optimiser", self.optimiser, get_args(Optimiser))
        check_passes(self.local_steps, BATCH, self.decay)
        if self.learning_rate is not None and not 0 < self.learning_rate < np.inf:
            raise InputError(f"the learning rate must be positive; got {self.learning_rate}.")
        if self.initial_epochs < 1:
            raise InputError(f"the initial model needs at least one epoch; got {self.initial_epochs}.")


@dataclass(frozen=True, eq=False)
class PhotoStudy:
    """Photos as the model takes them, their classes, the schedule, and the model of day 0."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    answers: tuple[str, ...]
    schedule: Schedule
    make_trainer: MakeTrainer
    initial: Vector
    seed: int
    steps: int = 1  # on each photo

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
        schedule = schedule_days(
            labels, participants=participants, days=days, initial=initial, skew=skew, random_state=random_state
        )
        if training.model != "head":
            if dataset.images is None:
                raise DataError(f"{dataset.name} comes without pictures, which a network from scratch needs.")
            inputs: NDArray[Any] = np.asarray(dataset.images)
        else:
            inputs = extract(dataset, pipeline, fit_to=schedule.initial, cache=cache, progress=progress)
        public = Photos(inputs[schedule.initial], labels[schedule.initial])
        make_trainer = trainer_maker(training, public.inputs, len(answers), random_state)
        at_first = trainer_maker(
            replace(training, local_steps=1, decay=0.0), public.inputs, len(answers), random_state
        )(record_noise=None)
        check_outputs(at_first, inputs, answers)
        progress("training the initial model", 0, None)
        first = train_initial(at_first, public, epochs=training.initial_epochs, random_state=random_state)
        return cls(inputs, labels, answers, schedule, make_trainer, first, random_state, training.local_steps)

    @property
    def dimension(self) -> int:
        return self.initial.size

    def simulate(
        self, methods: Sequence[Method], *, delta: float, on_day: OnDay | None = None, progress: Progress = silent
    ) -> Timeline:
        return simulate_days(
            self.schedule,
            self.inputs,
            self.labels,
            methods,
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
        cls,
        study: PhotoStudy,
        options: SharingOptions,
        *,
        on_day: OnDay | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Simulate the days of a study by the method that the options describe and by those to compare it with."""
        methods = options.methods(study.schedule, steps=study.steps)
        timeline = study.simulate(methods, delta=options.stated_delta, on_day=on_day, progress=progress)
        cost = options.cost(study.schedule, timeline, study.dimension, steps=study.steps)
        return cls(timeline, cost, len(study.schedule.participants))

    def to_dict(self) -> dict[str, Any]:
        """Return the days and what sharing costs as plain data; an infinite epsilon is None, as JSON has none."""
        composition = [
            {name: None if value == math.inf else value for name, value in row._asdict().items()}
            | {"delta": self.cost.delta}
            for row in self.cost.rows()
        ]
        return self.timeline.to_dict() | {"composition": composition, "sentence": self.cost.sentence()}

    @property
    def days(self) -> int:
        return len(self.timeline.photos)

    @property
    def families(self) -> dict[str, list[MethodResult]]:
        """Methods with proven noise that differ in their epsilon alone, the smallest first."""
        found: dict[str, list[MethodResult]] = {}
        for method in self.timeline.methods:
            if method.epsilon:
                found.setdefault(method.name.partition(", eps ")[0], []).append(method)
        return {name: sorted(methods, key=lambda method: method.epsilon or 0.0) for name, methods in found.items()}

    @property
    def principal(self) -> list[MethodResult]:
        """The methods to draw: of each family that with the largest epsilon, which has the least noise."""
        weaker = {method.name for methods in self.families.values() for method in methods[:-1]}
        return [method for method in self.timeline.methods if method.name not in weaker]

    def settled(self, method: MethodResult) -> float:
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
        kept = dataset.take(dataset.attribute(attribute) >= 0)
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
    local: dict[str, Any] = {"epochs": training.local_steps, "decay": training.decay}
    if training.model == "cnn":
        height, width, channels = public.shape[1:]
        module = small_cnn(classes, (height, width), channels, random_state=random_state)
    elif training.model != "head":
        module = module_from(training.model, classes, random_state=random_state)
    else:
        scales = Standardiser.fit(public)
        if training.optimiser == "sgd":
            rate = _HEAD_RATE if rate is None else rate
            return partial(SoftmaxTrainer, standardiser=scales, classes=classes, learning_rate=rate, **local)
        module = head(public.shape[1], classes, standardiser=scales, random_state=random_state)
    return partial(NetworkTrainer, module, optimiser=training.optimiser, learning_rate=rate, **local)
