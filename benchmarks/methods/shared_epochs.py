"""Learning together from photos that stay where they are, epoch after epoch, and sharing a part of every change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.selective.methods import Centralised, LocalOnly, SelectiveMethod
from blindsight.selective.protection import Selection, Sharing
from blindsight.selective.timeline import MakeTrainer, Method, MethodRun, Photos, Setting

SHARES = (1.0, 0.5, 0.2, 0.1, 0.01)
_UNSHARED: Mapping[str, Method] = {"centralised": Centralised(), "alone": LocalOnly()}


@dataclass(frozen=True, eq=False)
class OwnPhotos:
    """What each participant has, the model they begin with, how often each photo is used, and photos to tell apart.

    `threshold` is what a change must reach, on these data, for the selection of that name.
    """

    participants: Mapping[str, Photos]
    make_trainer: MakeTrainer
    epochs: int
    threshold: float
    test: NDArray[Any]


def selective(given: OwnPhotos, *, seed: int, share: float, select: Selection, residual: bool) -> NDArray[np.int64]:
    """Share a part; answer with the classes of the test photos, one row for the model that all have."""
    least = given.threshold if select == "threshold" else None
    return _played(given, SelectiveMethod(select, Sharing(share, select, threshold=least, residual=residual)), seed)


def unshared(given: OwnPhotos, *, seed: int, line: str) -> NDArray[np.int64]:
    """Learn from all photos in one place, or everyone alone; one row for each model there is."""
    return _played(given, _UNSHARED[line], seed)


def _played(given: OwnPhotos, method: Method, seed: int) -> NDArray[np.int64]:
    trainer = given.make_trainer(record_noise=None)
    names = tuple(given.participants)
    run = method.begin(Setting(names, trainer.initial(), given.make_trainer, batch=32, delta=1e-5, seed=seed))
    rng = np.random.default_rng(seed)
    for _ in range(given.epochs):
        run.day({name: _shuffled(photos, rng) for name, photos in given.participants.items()})
    models = _models(run, names)
    return np.stack([trainer.scores(model, given.test).argmax(axis=1) for model in models])


def _models(run: MethodRun, names: tuple[str, ...]) -> list[NDArray[np.float32]]:
    """Return the parameters of all participants, those that are the same only once."""
    every = [run.parameters_for(name) for name in names]
    return list({id(parameters): parameters for parameters in every}.values())


def _shuffled(photos: Photos, rng: np.random.Generator) -> Photos:
    order = rng.permutation(len(photos.labels))
    return Photos(photos.inputs[order], photos.labels[order])
