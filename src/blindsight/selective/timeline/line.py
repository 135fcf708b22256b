"""One line of the figure: a way to keep a model up to date, played day by day over the same photos as all others.

A `Line` only says how; `begin` gives a `Course`, which is the line under way. Whoever plays it hands it the photos of
each day *after* they were scored, so that no course can be scored on what it has learned from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from blindsight.rng import ByteSource, system_bytes
from blindsight.selective.noise import RecordGaussian
from blindsight.selective.sparseupdate import Vector
from blindsight.selective.trainer import Trainer
from blindsight.statement import PrivacyStatement


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
