"""Selective sharing of parameters, on trial: noise per parameter as published, and the modes that are proven.

Neighbours are changes of the model as far apart as a mode allows: where nothing bounds a change, as far as we like.
Bu 2019 (PPDL), after Shokri and Shmatikov 2015, adds Laplace noise to each shared value and calls epsilon = 1 "the
privacy budget". Whose, it does not say. That of a parameter it is not, as changes are cut after the noise and not
before; that of a participant it is not even where they are (`Laplace`), as an upload has thousands of values.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.epsilon import Draws
from blindsight.audit.scores import by_coordinate, known
from blindsight.audit.subject import Claim, Draw, Subject
from blindsight.data.features import Standardiser
from blindsight.rng import ByteSource, science
from blindsight.selective.noise import (
    Laplace,
    PublishedLaplace,
    RecordGaussian,
    calibrate_participant,
    calibrate_record,
)
from blindsight.selective.protection import Selection, Sharing, protect
from blindsight.selective.trainers import SoftmaxTrainer, Trainer

PUBLISHED = "Bu 2019"
BOUND = 0.1
"""The paper's gamma."""

_UPLOAD_EXPENSE = 20  # an upload takes some hundred times as long as a number; some thousand uploads are enough
_THRESHOLD_EXPENSE = 5  # what tells most is rare
_SEED = 0  # of the places, which are public

NewTrainer = Callable[[RecordGaussian, ByteSource], Trainer]
"""Makes a trainer of one feature and two classes, with a learning rate of about 1, noise per record and randomness."""


def _softmax(noise: RecordGaussian, source: ByteSource) -> Trainer:
    unscaled = Standardiser(np.zeros(1, dtype=np.float32), np.ones(1, dtype=np.float32))
    return SoftmaxTrainer(standardiser=unscaled, classes=2, learning_rate=1.0, record_noise=noise, source=source)


def published_parameter(epsilon: float, change: float = 10.0) -> Subject:
    """Return one parameter as published; its change is plus or minus `change`."""
    proven = f"nothing: a change is cut to {BOUND:g} after the noise, and not before"
    claim = _claim("Laplace noise, then the cut", epsilon, 0.0, "parameter", f"{PUBLISHED}, read per parameter", proven)
    return _parameter(claim, PublishedLaplace(epsilon), change)


def laplace_parameter(epsilon: float) -> Subject:
    """Return one parameter, cut before the noise."""
    claim = _claim("the cut, then Laplace noise", epsilon, 0.0, "parameter", "Blindsight", f"epsilon = {epsilon:g}")
    return _parameter(claim, Laplace(epsilon), BOUND)


def laplace_participant(epsilon: float, parameters: int = 2560) -> Subject:
    """Return one upload of a tenth of the parameters, cut before the noise, as a release about its participant."""
    sharing = Sharing(0.1, select="random", bound=BOUND, noise=Laplace(epsilon))
    values = sharing.count(parameters)
    proven = f"epsilon = {epsilon * values:g} per upload of {values} values"
    source = f"{PUBLISHED}, read per participant"
    claim = _claim("Laplace noise per parameter", epsilon, 0.0, "participant", source, proven)
    rising = np.full(parameters, BOUND, dtype=np.float32)
    return _upload(claim, sharing, rising, -rising)


def participant_gaussian(epsilon: float, delta: float, select: Selection = "random") -> Subject:
    """Return one upload with Gaussian noise for its participant, whose change counts or does not."""
    noise = calibrate_participant(epsilon=epsilon, delta=delta, uploads=1, clip=1.0)
    proven = f"epsilon = {epsilon:g}, delta = {delta:g} per upload"
    claim = _claim(f"Gaussian noise per participant, {select}", epsilon, delta, "participant", "Blindsight", proven)
    large = np.full(16, 10.0, dtype=np.float32)  # whatever is selected of it is shortened to the clip
    return _upload(claim, Sharing(0.25, select=select, noise=noise), large, 0 * large)


def threshold_upload(epsilon: float, parameters: int = 6) -> Subject:
    """Return the sparse-vector technique with one value at most: the parameter that is visited last, or not.

    The order of the visits is public, and one order is used in all runs. One input is zero up to the last parameter,
    the other at the last alone: that all others stay below the noisy threshold and the last reaches it tells most. The
    proof counts twice what magnitudes can move (`sparsevector`), so a sound mechanism loses half of epsilon at most.
    """
    sharing = Sharing(1 / parameters, select="threshold", bound=BOUND, threshold=BOUND / 5, noise=Laplace(epsilon))
    proven = f"epsilon = {epsilon:g} per upload of one value"
    last = int(science(_SEED).permutation(parameters)[-1])
    only_last = np.zeros(parameters, dtype=np.float32)
    only_last[last] = BOUND

    def shared(change: NDArray[np.float32]) -> Draw:
        def draw(runs: int, source: ByteSource) -> Draws:
            uploads = (protect(change, sharing, rng=science(_SEED), source=source) for _ in range(runs))
            return np.array([upload.indices.tolist() == [last] for upload in uploads])

        return draw

    return Subject(
        claim=_claim("random above a threshold, one value", epsilon, 0.0, "participant", "Blindsight", proven),
        first=shared(only_last),
        second=shared(BOUND - only_last),
        scorer=known(_identity),
        expense=_THRESHOLD_EXPENSE,
    )


def record_gaussian(epsilon: float, delta: float, trainer: NewTrainer = _softmax) -> Subject:
    """Return one training step on one photo: the model knows its class for sure, or for sure a wrong one.

    The gradient of the former is zero; that of the latter is shortened to the clip.
    """
    noise = calibrate_record(epsilon=epsilon, delta=delta, steps=1, clip=1.0)
    proven = f"epsilon = {epsilon:g}, delta = {delta:g} per step"
    sure_of_class_0 = np.array([50, -50, 0, 0], dtype=np.float32)  # weights of the only feature, biases

    def trained(label: int) -> Draw:
        def draw(runs: int, source: ByteSource) -> Draws:
            learner, photo, labels = trainer(noise, source), np.ones((1, 1), dtype=np.float32), np.array([label])
            return np.array([learner.train(sure_of_class_0, photo, labels, seed=_SEED) for _ in range(runs)])

        return draw

    return Subject(
        claim=_claim("Gaussian noise per record", epsilon, delta, "record", "Blindsight", proven),
        first=trained(1),
        second=trained(0),
        scorer=by_coordinate,
        expense=_UPLOAD_EXPENSE,
    )


def _parameter(claim: Claim, noise: Laplace | PublishedLaplace, change: float) -> Subject:
    """Return all parameters of one large upload, each of which is a run of its own."""
    sharing = Sharing(1.0, select="random", bound=BOUND, noise=noise)

    def shared(value: float) -> Draw:
        def draw(runs: int, source: ByteSource) -> Draws:
            return protect(np.full(runs, value, dtype=np.float32), sharing, rng=science(_SEED), source=source).values

        return draw

    return Subject(claim=claim, first=shared(change), second=shared(-change), scorer=known(_identity))


def _upload(
    claim: Claim,
    sharing: Sharing,
    first: NDArray[np.float32],
    second: NDArray[np.float32],
) -> Subject:
    """Return one upload as a run, of which the sum of the values is looked at."""

    def shared(change: NDArray[np.float32]) -> Draw:
        def draw(runs: int, source: ByteSource) -> Draws:
            rng = science(_SEED)
            return np.array([protect(change, sharing, rng=rng, source=source).values.sum() for _ in range(runs)])

        return draw

    return Subject(
        claim=claim, first=shared(first), second=shared(second), scorer=known(_identity), expense=_UPLOAD_EXPENSE
    )


def _identity(values: Draws) -> NDArray[np.float64]:
    return values.astype(np.float64)


def _claim(name: str, epsilon: float, delta: float, unit: str, source: str, proven: str) -> Claim:
    return Claim(name=name, epsilon=epsilon, delta=delta, unit=unit, source=source, proven=proven)
