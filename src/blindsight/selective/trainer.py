"""What a participant can do with its photos: improve a vector of parameters. How, is the trainer's business."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.selective.layout import ParameterLayout
from blindsight.selective.noise import RecordGaussian
from blindsight.selective.numbers import check_whole
from blindsight.selective.sparseupdate import Vector
from blindsight.validation import check_features


class DivergedError(InputError):
    """A training has left the finite numbers."""


class Trainer(Protocol):
    """One participant's local training; a network's is `blindsight.selective.networktrainer.NetworkTrainer`."""

    @property
    def layout(self) -> ParameterLayout:
        """Which parameters the vectors hold."""

    @property
    def epochs(self) -> int:
        """In how many steps of one training each photo takes part."""

    @property
    def record_noise(self) -> RecordGaussian | None:
        """The noise that is added inside training; None if there is none."""

    def initial(self) -> Vector:
        """Return the parameters to begin with."""

    def train(self, parameters: Vector, inputs: NDArray[Any], labels: NDArray[Any], seed: int) -> Vector:
        """Return the parameters after training on these photos, a function of the arguments and its own state.

        With `record_noise` nothing about a photo may make it fail: one whose gradient is not finite counts as zero.
        """

    def scores(self, parameters: Vector, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return a score for each photo and class, (n, classes)."""


def check_passes(epochs: int, batch: int) -> None:
    """Refuse a training that would see no photo."""
    for name, number in (("epochs", epochs), ("batch", batch)):
        check_whole(name, number)
        if number < 1:
            raise InputError(f"{name} must be at least 1; got {number}.")


def check_photos(inputs: ArrayLike, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return photos as rows of finite numbers, each of this `shape` if one is given, or say what is wrong."""
    rows = check_features(inputs, what="photos", least=0, flat=False, precision="given")
    if shape is not None and len(rows) and rows.shape[1:] != shape:
        raise InputError(f"photos must have the shape {shape} as before; got {rows.shape[1:]}.")
    return rows


def check_labels(labels: ArrayLike, count: int, classes: int | None = None) -> NDArray[np.int64]:
    """Return the classes of `count` photos, whole numbers from 0 (and below `classes`), or say what is wrong."""
    try:
        truth = np.asarray(labels)
    except ValueError:
        raise InputError(f"labels must be one whole number for each of {count} photos; got rows of them.") from None
    if not truth.size and not count:
        return np.zeros(0, dtype=np.int64)
    if truth.shape != (count,) or truth.dtype.kind not in "iu":
        raise InputError(
            f"labels must be one whole number for each of {count} photos; got {truth.dtype} {truth.shape}."
        )
    if truth.min() < 0:
        raise InputError("labels are classes, counted from 0; got a negative one.")
    if classes is not None and truth.max() >= classes:
        raise InputError(f"labels must lie in 0..{classes - 1}: the network tells {classes} classes apart.")
    return truth.astype(np.int64)
