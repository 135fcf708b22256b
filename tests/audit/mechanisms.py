"""Our own mechanisms that claim an epsilon, each as it is put to the test, on neighbours as far apart as can be.

- *Private search*: two records whose releases are told apart most easily, by complementary codes or different symbols.
  Of a central function it is the noisy sums behind it that are on trial (`audit.index_audit.central_sums`). The
  function itself is made from them, tells far less and takes long to learn: even with a tenth of the noise it owes, no
  bound on it would refute anything.
- *Gaussian noise*, also in shares inside a sum, at the stated sensitivity.
- *Uploads* with Gaussian noise per participant or record: changes as far apart as a mode allows.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.epsilon import Draws, by_coordinate, by_frequency, known
from blindsight.audit.index_audit import central_sums
from blindsight.audit.subject import (
    CanarySubject,
    Claim,
    OnTrial,
    Subject,
    as_released,
    laplace,
    planned_noise,
    repeated,
)
from blindsight.data.features import Standardiser
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from blindsight.learn.protection import RecordGaussian, calibrate_record
from blindsight.papers.hashing.flipping import HammingBall, record_beta
from blindsight.papers.hashing.mechanisms import complements, flipping
from blindsight.papers.selective.mechanisms import one_upload
from blindsight.papers.selective.noise import Selection, Sharing, calibrate_participant
from blindsight.papers.selective.protocol import Trainer
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.rng import ByteSource, science
from blindsight.search.central import CentralHasher
from blindsight.search.codes import Codes
from blindsight.search.localmode import LocalHasher
from blindsight.search.symbols import KaryResponse, SubsetSelection
from blindsight.sums.noise import NoisePlan

_SEED = 0  # of synthetic records, public features and places
_UPLOAD_EXPENSE = 20  # an upload takes some hundred times as long as a number; some thousand uploads are enough
Rows = NDArray[np.float32]
Coins = NDArray[np.bool_]
Scores = NDArray[np.float64]
NewTrainer = Callable[[RecordGaussian, ByteSource], Trainer]
"""Makes a trainer of one feature and two classes, with a learning rate of about 1, noise per record and randomness."""
_SYMBOLS = np.array([0]), np.array([1])
_ONE_OR_NONE = np.ones(1), np.zeros(1)


def response_record(epsilon: float, bits: int = 4) -> Subject:
    """Return randomised response with epsilon / bits for each bit."""
    return flipping(Claim(f"randomised response of {bits} bits", epsilon), bits, record_beta(epsilon, bits))


def hamming_ball(epsilon: float, bits: int = 48) -> Subject:
    """Return the Hamming-ball mechanism with the radius that keeps most bits."""
    mechanism = HammingBall(bits, epsilon)

    def score(codes: Codes) -> Scores:
        ones = np.bitwise_count(codes).sum(axis=1)  # inside the ball around zeros, less inside that around ones
        return np.where(ones <= mechanism.radius, 1.0, 0.0) - np.where(ones >= bits - mechanism.radius, 1.0, 0.0)

    return Subject(
        claim=Claim(f"Hamming ball in {bits} bits", epsilon),
        release=repeated(mechanism),
        inputs=complements(bits),
        scorer=known(score),
    )


def kary_response(epsilon: float, k: int = 10) -> Subject:
    """Return k-ary randomised response."""
    release = repeated(KaryResponse(k, epsilon))
    return Subject(claim=Claim(f"{k}-ary response", epsilon), release=release, inputs=_SYMBOLS, scorer=by_frequency)


def subset_selection(epsilon: float, k: int = 32) -> Subject:
    """Return subset selection with the size that estimates frequencies best."""
    mechanism = SubsetSelection(k, epsilon)
    return Subject(
        claim=Claim(f"{mechanism.size} of {k} symbols", epsilon),
        release=repeated(mechanism),
        inputs=_SYMBOLS,
        scorer=known(lambda sets: sets[:, 0].astype(np.float64) - sets[:, 1]),
    )


def _local_hasher(epsilon: float) -> tuple[LocalHasher, Rows]:
    """Return a hasher of four kinds of public features, and two rows with different symbols."""
    rng = science(_SEED)
    centres = 4 * rng.standard_normal((4, 8))
    public = (np.repeat(centres, 50, axis=0) + rng.standard_normal((200, 8))).astype(np.float32)
    hasher = LocalHasher(epsilon, kinds=4, mechanism="kary").fit(public)
    symbols = hasher.true_symbols(public)
    return hasher, public[[0, int(np.argmax(symbols != symbols[0]))]]


def local_release(epsilon: float) -> Subject:
    """Return local mode from features to release, with a codebook learned from public ones."""
    hasher, rows = _local_hasher(epsilon)
    inputs, claim = (rows[:1], rows[1:]), Claim("local mode of PrivateHasher", epsilon)
    return Subject(claim=claim, release=repeated(hasher), inputs=inputs, scorer=by_frequency)


def local_release_run(epsilon: float) -> CanarySubject:
    """Return local mode in one run: a collection of records, each of them one of two."""
    hasher, rows = _local_hasher(epsilon)
    ratios = np.log(hasher.design_.probabilities()[hasher.codebook_.cells_of(rows)])

    def run(coins: Coins, source: ByteSource) -> Scores:
        released = hasher.release(rows[np.where(coins, 0, 1)], source=source)
        return np.asarray((ratios[0] - ratios[1])[released])

    return CanarySubject(claim=Claim("local mode of PrivateHasher, one collection", epsilon), run=run)


def _number(claim: Claim, mechanism: LaplaceMechanism | GaussianMechanism, **more: Any) -> Subject:
    """Return the release of one number, which is the unit that is protected or nothing."""
    release = repeated(mechanism)
    return Subject(claim=claim, release=release, inputs=_ONE_OR_NONE, scorer=known(as_released), **more)


def gaussian(epsilon: float, delta: float) -> Subject:
    """Return Gaussian noise with the least deviation that epsilon and delta allow."""
    mechanism = GaussianMechanism.calibrated(sensitivity=1.0, epsilon=epsilon, delta=delta)
    return _number(Claim("Gaussian noise", epsilon, delta, "unit"), mechanism, gaussian=True)


def gaussian_run(epsilon: float, delta: float) -> CanarySubject:
    """Return Gaussian noise in one run: a vector to which each canary adds 1 at a place of its own."""
    mechanism = GaussianMechanism.calibrated(sensitivity=1.0, epsilon=epsilon, delta=delta)

    def run(coins: Coins, source: ByteSource) -> Scores:
        return mechanism.release(coins.astype(np.float64), source) - 0.5

    return CanarySubject(claim=Claim("Gaussian noise, one vector", epsilon, delta, "unit"), run=run, share=0.2)


def sum_plan(epsilon: float, delta: float, **options: Any) -> NoisePlan:
    """Return noise for sums by five owners, one of whom drops out and one of whom tells its shares."""
    fixed: dict[str, Any] = {"clip": 1.0, "members": 5, "drop_outs": 1, "colluders": 1, "largest": 2**28}
    return NoisePlan.calibrated(epsilon=epsilon, delta=delta, **fixed | {"unit": "record"} | options)


def summed_noise(epsilon: float, delta: float, *, noise_share: float = 1.0) -> Subject:
    """Return four such sums."""
    plan = sum_plan(epsilon, delta, dimension=10_000, rounds=4, reach=100.0)
    return planned_noise(plan, delta, noise_share=noise_share)


def participant_gaussian(epsilon: float, delta: float, select: Selection = "random") -> Subject:
    """Return one upload with Gaussian noise for its participant, whose change counts or does not."""
    noise = calibrate_participant(epsilon=epsilon, delta=delta, uploads=1, clip=1.0)
    proven = f"epsilon = {epsilon:g}, delta = {delta:g} per upload"
    claim = Claim(f"Gaussian noise per participant, {select}", epsilon, delta, "participant", proven=proven)
    large = np.full(16, 10.0, dtype=np.float32)  # whatever is selected of it is shortened to the clip
    return replace(one_upload(claim, Sharing(0.25, select=select, noise=noise), large, 0 * large), gaussian=True)


def _softmax(noise: RecordGaussian, source: ByteSource) -> Trainer:
    unscaled = Standardiser(np.zeros(1, dtype=np.float32), np.ones(1, dtype=np.float32))
    return SoftmaxTrainer(standardiser=unscaled, classes=2, learning_rate=1.0, record_noise=noise, source=source)


def record_gaussian(epsilon: float, delta: float, trainer: NewTrainer = _softmax) -> Subject:
    """Return one training step on one photo: the model knows its class for sure, or for sure a wrong one.

    The gradient of the former is zero; that of the latter is shortened to the clip.
    """
    noise = calibrate_record(epsilon=epsilon, delta=delta, steps=1, clip=1.0)
    sure_of_class_0 = np.array([50, -50, 0, 0], dtype=np.float32)  # weights of the only feature, biases

    def trained(label: int, runs: int, source: ByteSource) -> Draws:
        learner, photo, labels = trainer(noise, source), np.ones((1, 1), dtype=np.float32), np.array([label])
        return np.array([learner.train(sure_of_class_0, photo, labels, seed=_SEED) for _ in range(runs)])

    proven = f"epsilon = {epsilon:g}, delta = {delta:g} per step"
    return Subject(
        claim=Claim("Gaussian noise per record", epsilon, delta, proven=proven),
        release=trained,
        inputs=(1, 0),
        scorer=by_coordinate,
        expense=_UPLOAD_EXPENSE,
        gaussian=True,
    )


def private_search() -> tuple[OnTrial, ...]:
    """Return what private search releases instead."""
    local = (response_record, hamming_ball, kary_response, subset_selection, local_release, local_release_run)
    central = central_sums(CentralHasher(1.0, 1e-6, clip=1.0), "Blindsight")
    return (*(subject(epsilon) for epsilon in (1.0, 4.0) for subject in local), central)


def noise() -> tuple[OnTrial, ...]:
    """Return the noise that everything else is made of."""
    return (laplace(1.0), gaussian(1.0, 1e-6), gaussian_run(1.0, 1e-10))


def sums() -> tuple[OnTrial, ...]:
    """Return noise that owners add in shares to sums which nobody may open one by one."""
    return (summed_noise(4.0, 1e-6),)


def uploads() -> tuple[OnTrial, ...]:
    """Return uploads with Gaussian noise."""
    return (
        participant_gaussian(4.0, 1e-6, "random"),
        participant_gaussian(4.0, 1e-6, "largest"),
        record_gaussian(4.0, 1e-6),
    )
