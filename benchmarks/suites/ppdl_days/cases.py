"""Which photos are taken on which day, and which models are trained before day 1."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.daylines import BATCH, Curve
from benchmarks.methods.initial_model import PublicPhotos
from benchmarks.suites.hash_tables.pictures import usable
from benchmarks.suites.ppdl_days.photos import CLASSES, Labelled, features, pixels
from blindsight.errors import InputError
from blindsight.rng import science
from blindsight.selective.study import Model, PhotoStudy, Training, trainer_maker
from blindsight.selective.timeline import Photos, Schedule, schedule_days, train_initial

PARTICIPANTS, DAYS, WEEK = 10, 28, 7
TUNING_SEEDS = 100  # added to the seed, so that nothing is judged on what it was tuned on
DIMENSION, UPLOADS = 5124, 74  # of the head, and of a participant with it
RATES: Mapping[Model, float] = {"head": 0.01, "cnn": 0.05}


@dataclass(frozen=True)
class Size:
    """How many photos there are in all, how many of them are public, and how often the initial model sees these."""

    photos: int
    public: int
    epochs: int


SIZES: Mapping[Model, Size] = {"head": Size(24_000, 200, 10), "cnn": Size(8_000, 1_500, 10)}
QUICK = Size(1_200, 100, 2)
TABLE_2 = (10_800, 1_200)  # photos to train and to validate with
QUICK_TABLE_2 = (360, 40)


def tasks(settings: Settings) -> list[Task]:
    """Pose the days to both models, with other seeds for tuning; then the initial models of Table 2."""
    usable(settings, ("cifar10",))
    posed = []
    for model in _models():
        size = QUICK if settings.quick else SIZES[model]
        said = (
            f"{size.photos:,} photos ({', '.join(CLASSES)}), {size.public:,} of them public; the others are those of "
            f"{PARTICIPANTS} participants over {DAYS} days; drawn by the seed"
        )
        posed.append(
            Task(model, f"{_source(settings, model)}, {said}.", _days(settings, model, 0), (model, f"{model}-masks"))
        )
        text = f"the same, drawn by the seed + {TUNING_SEEDS}."
        posed.append(Task(f"{model}-tuning", text, _days(settings, model, TUNING_SEEDS), (f"{model}-tune",)))
    for model in _models():
        training, validation = QUICK_TABLE_2 if settings.quick else TABLE_2
        text = f"{_source(settings, model)}, {training:,} photos of four classes to train, {validation:,} to validate."
        posed.append(Task(f"{model}-initial", text, partial(_pose_initial, settings, model), (f"{model}-initial",)))
    return posed


def _models() -> tuple[Model, ...]:
    return ("head", "cnn") if find_spec("torch") else ("head",)


def _source(settings: Settings, model: Model) -> str:
    if settings.quick:
        return "drawn numbers"
    return "CIFAR-10, EfficientNet-lite0 features (1280)" if model == "head" else "CIFAR-10, pixels"


def _labelled(settings: Settings, model: Model) -> Labelled:
    return features(settings) if model == "head" else pixels(settings)


def _days(settings: Settings, model: Model, shift: int) -> Callable[[int], Problem]:
    def pose(seed: int) -> Problem:
        study = _study(settings, model, seed + shift)
        return Problem(study, partial(score, study.schedule))

    return pose


def _study(settings: Settings, model: Model, seed: int) -> PhotoStudy:
    (inputs, labels), size = _labelled(settings, model), QUICK if settings.quick else SIZES[model]
    kept = science(seed).permutation(len(labels))[: size.photos]
    inputs, labels = inputs[kept], labels[kept]
    people = 3 if settings.quick else PARTICIPANTS
    plan = schedule_days(labels, participants=people, days=DAYS, initial=size.public / len(labels), random_state=seed)
    public = Photos(inputs[plan.initial], labels[plan.initial])
    make = trainer_maker(Training(model=model, learning_rate=RATES[model]), public.inputs, len(CLASSES), seed)
    first = train_initial(make(record_noise=None), public, epochs=size.epochs, random_state=seed)
    return PhotoStudy(inputs, labels, CLASSES, plan, make, first, seed)


def score(plan: Schedule, curve: Curve) -> dict[str, float]:
    """Check a curve and return its days, its last week by photos, and what was sent in all."""
    accuracy = np.asarray(curve["accuracy"])
    if accuracy.shape != (len(plan.days),) or not ((accuracy >= 0) & (accuracy <= 1)).all():
        raise InputError(f"a curve is one fraction for each of {len(plan.days)} days; got shape {accuracy.shape}.")
    photos = [sum(len(rows) for rows in day) for day in plan.days]
    figures = {f"day {number}": float(value) for number, value in enumerate(accuracy, start=1)}
    figures["last week"] = float(np.average(accuracy[-WEEK:], weights=photos[-WEEK:]))
    figures["uploads"] = float(curve["uploads"][-1])
    figures["megabytes up"] = float(curve["bytes up"][-1]) / 1e6
    figures["most uploads of one"] = float(plan.uploads(BATCH))
    if np.isfinite(curve["epsilon"]).all():
        figures["epsilon"] = float(curve["epsilon"][0])
    return figures


def _pose_initial(settings: Settings, model: Model, seed: int) -> Problem:
    (inputs, labels), sizes = _labelled(settings, model), QUICK_TABLE_2 if settings.quick else TABLE_2
    order = science(seed).permutation(len(labels))
    learned, kept = order[: sizes[0]], order[sizes[0] : sum(sizes)]
    given = PublicPhotos(Photos(inputs[learned], labels[learned]), inputs[kept], len(CLASSES))
    return Problem(given, partial(score_initial, {"training": labels[learned], "validation": labels[kept]}))


def score_initial(truth: Mapping[str, NDArray[np.int64]], told: Mapping[str, NDArray[np.int64]]) -> dict[str, float]:
    """Return the fraction of photos told rightly, of those learned from and of the others."""
    figures = {}
    for name, labels in truth.items():
        if told[name].shape != labels.shape:
            raise InputError(f"there must be an answer for each of {len(labels)} photos; got {told[name].shape}.")
        figures[name] = float(np.mean(told[name] == labels))
    return figures
