"""What a participant can do with its photos: improve a vector of parameters. How, is the trainer's business."""

from typing import Any, Protocol

from numpy.typing import NDArray

from blindsight.learn.selective.layout import ParameterLayout
from blindsight.learn.selective.sparseupdate import Vector


class Trainer(Protocol):
    """One participant's local training; a network's is `blindsight.learn.networktrainer.NetworkTrainer`."""

    @property
    def layout(self) -> ParameterLayout:
        """Which parameters the vectors hold."""

    def initial(self) -> Vector:
        """Return the parameters to begin with."""

    def train(self, parameters: Vector, inputs: NDArray[Any], labels: NDArray[Any], seed: int) -> Vector:
        """Return the parameters after training on these photos, a function of the arguments and its own state."""

    def scores(self, parameters: Vector, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return a score for each photo and class, (n, classes)."""
