"""Digits with a small convolutional network, and photos with a head on a frozen backbone; ten participants each."""

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.shared_epochs import OwnPhotos
from benchmarks.suites.hash_tables.pictures import usable
from benchmarks.suites.ppdl_days.photos import CLASSES, Labelled, features
from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.extras import Module, load_torch, seeded
from blindsight.rng import science
from blindsight.selective.timeline import MakeTrainer, Photos
from blindsight.selective.trainers import NetworkTrainer, SoftmaxTrainer

PARTICIPANTS = 10
EPOCHS = {"digits": 30, "photos": 1}
TRAINING = {"digits": 1_437, "photos": 20_000}
THRESHOLDS = {"digits": 2e-4, "photos": 3e-4}  # set from the changes of one step each
RATES = {"digits": 0.2, "photos": 0.01}
_PUBLIC = 200  # photos that give the scales of features


def tasks(settings: Settings) -> list[Task]:
    """Pose both collections, as far as they and torch are here."""
    posed = []
    if find_spec("torch"):
        text = "1,437 of 1,797 handwritten digits (8 x 8) of ten participants, the others to be told; 13,706 parameters"
        posed.append(Task("digits", f"{text}.", partial(_pose_digits, settings)))
    usable(settings, ("cifar10",))
    what = "drawn numbers" if settings.quick else "CIFAR-10, EfficientNet-lite0 features (1280)"
    text = f"{what} of {', '.join(CLASSES)}, 20,000 photos of ten participants, the others to be told; 5,124 parameters"
    return [*posed, Task("photos", f"{text}.", partial(_pose_photos, settings))]


def _pose_digits(settings: Settings, seed: int) -> Problem:
    from sklearn.datasets import load_digits

    bundle = load_digits()
    pictures = (bundle.images[:, None] / 16).astype(np.float32)
    make = partial(NetworkTrainer, small_network(seed), learning_rate=RATES["digits"])
    epochs = 1 if settings.quick else EPOCHS["digits"]
    return _pose("digits", (pictures, bundle.target.astype(np.int64)), make, epochs, seed, TRAINING["digits"])


def _pose_photos(settings: Settings, seed: int) -> Problem:
    rows, labels = features(settings)
    order = science(seed).permutation(len(labels))
    public, rest = order[:_PUBLIC], order[_PUBLIC:]
    make = partial(
        SoftmaxTrainer,
        standardiser=Standardiser.fit(rows[public]),
        classes=len(CLASSES),
        learning_rate=RATES["photos"],
    )
    count = 800 if settings.quick else TRAINING["photos"]
    return _pose("photos", (rows[rest], labels[rest]), make, EPOCHS["photos"], seed, count)


def _pose(name: str, labelled: Labelled, make: MakeTrainer, epochs: int, seed: int, count: int) -> Problem:
    inputs, labels = labelled
    order = science(seed).permutation(len(labels))
    shares = np.array_split(order[:count], PARTICIPANTS)
    participants: Mapping[str, Photos] = {
        f"participant {number}": Photos(inputs[rows], labels[rows]) for number, rows in enumerate(shares, start=1)
    }
    test = order[count:]
    given = OwnPhotos(participants, make, epochs, THRESHOLDS[name], inputs[test])
    return Problem(given, partial(score, labels[test]))


def score(truth: NDArray[np.int64], told: NDArray[np.int64]) -> dict[str, float]:
    """Return the fraction of photos told rightly, on average over the models there are."""
    if told.ndim != 2 or told.shape[1] != len(truth):
        raise InputError(f"each model answers to all {len(truth)} photos; got shape {told.shape}.")
    return {"accuracy": float(np.mean(told == truth))}


def small_network(seed: int) -> Module:
    """Return two convolutions and two linear layers with fresh weights: 13,706 parameters."""
    nn: Any = load_torch().nn
    with seeded(science(seed), "cpu"):
        return nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)),
        )
