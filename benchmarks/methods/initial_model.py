"""Training the model that is published on day 0: by which optimiser, from which photos."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.selective.study import Model, Optimiser, Training, trainer_maker
from blindsight.selective.timeline import Photos, train_initial


@dataclass(frozen=True)
class PublicPhotos:
    """Photos with their classes to learn from, and photos to be told apart."""

    training: Photos
    validation: NDArray[Any]
    classes: int


def run(
    given: PublicPhotos, *, seed: int, model: Model, optimiser: Optimiser, learning_rate: float, epochs: int
) -> dict[str, NDArray[np.int64]]:
    """Return the classes that the trained model sees in the photos it has learned from, and in the others."""
    training = Training(model=model, optimiser=optimiser, learning_rate=learning_rate, initial_epochs=epochs)
    photos = given.training
    trainer = trainer_maker(training, photos.inputs, given.classes, seed)(record_noise=None)
    parameters = train_initial(trainer, photos, epochs=epochs, random_state=seed)
    told = {"training": photos.inputs, "validation": given.validation}
    return {name: trainer.scores(parameters, inputs).argmax(axis=1) for name, inputs in told.items()}
