"""Every mechanism that claims an epsilon, put to the test; and the auditor itself.

Claims of the papers are tested at the papers' settings, our own at epsilons for which they are used, on neighbours as
far apart as can be:

- *Private hashing as published* (Wang, Lu and Zhang, "Searching privately by imperceptible lying", MM 2020: Theorem 4
  for flipping, 6 for PHashing, 8 for PITQ). Epsilon-privacy is claimed, of a record, and is not there. The neighbours
  are a record and its mirror image in the mean, which has the complementary code: all bits tell.
- *Private search, ours*: two records whose releases are told apart most easily, by complementary codes or different
  symbols. Of a central function it is the noisy sums behind it that are on trial. The function itself is made from
  them, tells far less and takes long to learn: even with a tenth of the noise it owes, no bound on it would refute
  anything.
- *Laplace and Gaussian noise*, also in shares inside a sum, at the stated sensitivity.
- *Selective sharing*: changes of the model as far apart as a mode allows, and where nothing bounds a change, as far as
  we like. Bu 2019 (PPDL), after Shokri and Shmatikov 2015, adds Laplace noise to each shared value and calls epsilon =
  1 "the privacy budget". Whose, it does not say. That of a parameter it is not, as changes are cut after the noise and
  not before; that of a participant it is not even where they are (`Laplace`), as an upload has thousands of values.

`self_test` shows that the auditor can be trusted: it finds a mechanism with half the noise it needs and acquits one
with enough.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.epsilon import CONFIDENCE, Draws, by_coordinate, by_frequency, known
from blindsight.audit.subject import CanarySubject, Claim, EpsilonAudit, OnTrial, Release, Subject
from blindsight.data.features import Standardiser
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.search.central import CentralHasher
from blindsight.search.codes import Codes, pack
from blindsight.search.flipping import HammingBall, bit_loss, flip, grid_beta, paper_beta, record_beta, record_loss
from blindsight.search.hashers import ITQ
from blindsight.search.localmode import LocalHasher
from blindsight.search.published import PITQ, PHashing
from blindsight.search.symbols import KaryResponse, SubsetSelection
from blindsight.selective.protection import (
    Laplace,
    PublishedLaplace,
    RecordGaussian,
    Selection,
    Sharing,
    calibrate_participant,
    calibrate_record,
    protect,
)
from blindsight.selective.trainers import SoftmaxTrainer, Trainer
from blindsight.sums.noise import NoisePlan

SOURCE, PUBLISHED = "Wang, Lu and Zhang 2020", "Bu 2019"
RUNS = 100_000
"""By default: all mechanisms take some 20 seconds."""

BOUND = 0.1
"""The paper's gamma."""

_SEED = 0  # of synthetic records, public features and places
_PITQ_EXPENSE = 400  # a fit takes thousands of times as long as a flip; some hundred fits are enough
_UPLOAD_EXPENSE = 20  # an upload takes some hundred times as long as a number; some thousand uploads are enough
_THRESHOLD_EXPENSE = 5  # what tells most is rare

Rows = NDArray[np.float32]
Coins = NDArray[np.bool_]
Scores = NDArray[np.float64]
NewTrainer = Callable[[RecordGaussian, ByteSource], Trainer]
"""Makes a trainer of one feature and two classes, with a learning rate of about 1, noise per record and randomness."""


def _as_released(values: Draws) -> Scores:
    return values.astype(np.float64)


def _records(rows: int, width: int) -> Rows:
    return science(_SEED).standard_normal((rows, width)).astype(np.float32)


def _agreement(released: Codes, codes: Codes, bits: int, beta: float) -> Scores:
    """Score releases by how many bits they share with codes: more than half, unless most bits are flipped."""
    differing = np.bitwise_count(released ^ codes).sum(axis=1, dtype=np.float64)
    return np.asarray((bits / 2 - differing) * math.copysign(1.0, 0.5 - beta))


def _complements(bits: int) -> tuple[Codes, Codes]:
    return pack(np.zeros((1, bits))), pack(np.ones((1, bits)))


def _repeated(mechanism: Any) -> Release:
    """Return the releases of one row, again and again."""
    return lambda row, runs, source: mechanism.release(np.repeat(row, runs, axis=0), source=source)


_SYMBOLS = np.array([0]), np.array([1])
_ONE_OR_NONE = np.ones(1), np.zeros(1)


# Private hashing as published


def _flipping(claim: Claim, bits: int, beta: float) -> Subject:
    """Return the flips of a code and of its complement."""
    codes = _complements(bits)
    return Subject(
        claim=claim,
        release=lambda code, runs, source: flip(np.repeat(code, runs, axis=0), bits, beta, source=source),
        inputs=codes,
        scorer=known(lambda released: _agreement(released, codes[0], bits, beta)),
    )


def flipped_bit(epsilon: float) -> Subject:
    """Return Theorem 4 for a single bit: true, unless epsilon is below 0.4812."""
    beta = paper_beta(epsilon)
    proven = f"exactly epsilon = {bit_loss(grid_beta(beta)):.4g} per bit"
    return _flipping(Claim("Random Flipping, Theorem 4", epsilon, 0.0, "bit", SOURCE, proven), 1, beta)


def flipped_record(epsilon: float, bits: int = 48) -> Subject:
    """Return Theorem 4 for a record of so many bits."""
    beta = paper_beta(epsilon)
    proven = f"exactly epsilon = {record_loss(grid_beta(beta), bits):.4g} per record of {bits} bits"
    claim = Claim(f"Random Flipping of {bits} bits, Theorem 4", epsilon, source=SOURCE, proven=proven)
    return _flipping(claim, bits, beta)


def phashing(epsilon: float, bits: int = 48) -> Subject:
    """Return Theorem 6 in the case that is best for it: the hash function was learned from public data."""
    public = _records(4 * bits + 200, bits)
    hasher = PHashing(ITQ(bits).fit(public), epsilon, public_function=True, force=True).fit(public)
    record = public[:1]
    true_code = hasher.transform(record)
    proven = f"exactly epsilon = {hasher.loss.epsilon:.4g} per record, with a public function"
    return Subject(
        claim=Claim(f"PHashing of {bits} bits, Theorem 6", epsilon, source=SOURCE, proven=proven),
        release=_repeated(hasher),
        inputs=(record, 2 * hasher.function_.arrays()["mean"] - record),
        scorer=known(lambda codes: _agreement(codes, true_code, bits, paper_beta(epsilon))),
    )


def phashing_run(epsilon: float, bits: int = 48) -> CanarySubject:
    """Return Theorem 6 in one run: the function is learned from the same records that are released."""

    def run(coins: Coins, source: ByteSource) -> Scores:
        records = _records(coins.size, bits)
        hasher = PHashing(ITQ(bits, iterations=10), epsilon, force=True, source=source)
        hasher.fit(np.where(coins[:, None], records, -records))
        return _agreement(hasher.codes_, hasher.transform(records), bits, paper_beta(epsilon))

    proven = "nothing: the function is learned from the records and released without noise"
    claim = Claim(f"PHashing of {bits} bits, learned from the records", epsilon, source=SOURCE, proven=proven)
    return CanarySubject(claim=claim, run=run, share=0.5, expense=2)


def _pitq_claim(epsilon: float, bits: int) -> Claim:
    proven = "no finite epsilon: the true codes are released"
    return Claim(f"PITQ of {bits} bits, Theorem 8", epsilon, source=SOURCE, proven=proven)


def pitq(epsilon: float, bits: int = 8, iterations: int = 50) -> Subject:
    """Return Theorem 8: of each run the adversary gets the codes and the hash function, and looks at one record."""
    records = _records(40, 2 * bits)
    mirrored = np.concatenate([2 * records.mean(axis=0, keepdims=True) - records[:1], records[1:]])

    def disagreeing(rows: Rows, source: ByteSource) -> int:
        fitted = PITQ(bits, epsilon, iterations, source=source).fit(rows)
        return int(np.bitwise_count(fitted.codes_[0] ^ fitted.transform(records[:1])[0]).sum())

    return Subject(
        claim=_pitq_claim(epsilon, bits),
        release=lambda rows, runs, source: np.array([disagreeing(rows, source) for _ in range(runs)]),
        inputs=(records, mirrored),
        scorer=known(lambda counts: -counts.astype(np.float64)),
        expense=_PITQ_EXPENSE,
    )


def pitq_run(epsilon: float, bits: int = 16, iterations: int = 50) -> CanarySubject:
    """Return Theorem 8 in one run: each record or its mirror image, and all their codes."""

    def run(coins: Coins, source: ByteSource) -> Scores:
        records = _records(coins.size, 2 * bits)
        fitted = PITQ(bits, epsilon, iterations, source=source).fit(np.where(coins[:, None], records, -records))
        return _agreement(fitted.codes_, fitted.transform(records), bits, beta=0.0)

    return CanarySubject(claim=_pitq_claim(epsilon, bits), run=run, expense=4)


# Private search, ours


def response_record(epsilon: float, bits: int = 4) -> Subject:
    """Return randomised response with epsilon / bits for each bit."""
    return _flipping(Claim(f"randomised response of {bits} bits", epsilon), bits, record_beta(epsilon, bits))


def hamming_ball(epsilon: float, bits: int = 48) -> Subject:
    """Return the Hamming-ball mechanism with the radius that keeps most bits."""
    mechanism = HammingBall(bits, epsilon)

    def score(codes: Codes) -> Scores:
        ones = np.bitwise_count(codes).sum(axis=1)  # inside the ball around zeros, less inside that around ones
        return np.where(ones <= mechanism.radius, 1.0, 0.0) - np.where(ones >= bits - mechanism.radius, 1.0, 0.0)

    return Subject(
        claim=Claim(f"Hamming ball in {bits} bits", epsilon),
        release=_repeated(mechanism),
        inputs=_complements(bits),
        scorer=known(score),
    )


def kary_response(epsilon: float, k: int = 10) -> Subject:
    """Return k-ary randomised response."""
    release = _repeated(KaryResponse(k, epsilon))
    return Subject(claim=Claim(f"{k}-ary response", epsilon), release=release, inputs=_SYMBOLS, scorer=by_frequency)


def subset_selection(epsilon: float, k: int = 32) -> Subject:
    """Return subset selection with the size that estimates frequencies best."""
    mechanism = SubsetSelection(k, epsilon)
    return Subject(
        claim=Claim(f"{mechanism.size} of {k} symbols", epsilon),
        release=_repeated(mechanism),
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
    return Subject(claim=claim, release=_repeated(hasher), inputs=inputs, scorer=by_frequency)


def local_release_run(epsilon: float) -> CanarySubject:
    """Return local mode in one run: a collection of records, each of them one of two."""
    hasher, rows = _local_hasher(epsilon)
    ratios = np.log(hasher.design_.probabilities()[hasher.codebook_.cells_of(rows)])

    def run(coins: Coins, source: ByteSource) -> Scores:
        released = hasher.release(rows[np.where(coins, 0, 1)], source=source)
        return np.asarray((ratios[0] - ratios[1])[released])

    return CanarySubject(claim=Claim("local mode of PrivateHasher, one collection", epsilon), run=run)


def local_mechanism(hasher: LocalHasher, source: str) -> Subject:
    """Return the mechanism of a fitted local hasher: any two symbols are told apart as easily as any others."""
    design, loss = hasher.design_, hasher.mechanism_.loss
    cells = [int(np.argmax(design.symbol_of_cell == symbol)) for symbol in (0, 1)]
    first, second = np.log(design.probabilities()[cells])
    proven = f"epsilon = {loss:g} per record and release"
    return Subject(
        claim=Claim(f"local index, {hasher.mechanism_}", loss, source=source, proven=proven),
        release=_repeated(design),
        inputs=_SYMBOLS,
        scorer=known(lambda outputs: (first - second)[outputs]),
    )


def central_sums(hasher: CentralHasher, source: str) -> Subject:
    """Return the noisy sums that a central function is learned from, of a record that moves each as far as it can.

    No collection has such a record, so this bounds the accounting of all releases together and the noise they get.
    """
    releases = hasher.plan().releases
    weights = np.array([mechanism.sensitivity / mechanism.sigma**2 for mechanism in releases])

    def released(share: float, runs: int, noise: ByteSource) -> Draws:
        return np.stack([one.release(np.full(runs, share * one.sensitivity), noise) for one in releases], axis=1)

    return Subject(
        claim=Claim("central mode, all noisy sums together", hasher.epsilon, hasher.delta, source=source),
        release=released,
        inputs=(1.0, 0.0),
        scorer=known(lambda sums: sums @ weights),
        gaussian=True,
    )


# Laplace and Gaussian noise


def _short(noise_share: float) -> str:
    return "" if noise_share == 1 else f" with {noise_share:g} of the noise that it takes"


def _number(claim: Claim, mechanism: LaplaceMechanism | GaussianMechanism, **more: Any) -> Subject:
    """Return the release of one number, which is the unit that is protected or nothing."""
    release = _repeated(mechanism)
    return Subject(claim=claim, release=release, inputs=_ONE_OR_NONE, scorer=known(_as_released), **more)


def laplace(epsilon: float, *, noise_share: float = 1.0) -> Subject:
    """Return Laplace noise; with a `noise_share` below 1 it is less than epsilon needs: a planted violation.

    All runs are drawn in one release, the grid of which is finer and the noise of which larger (by less than one part
    in 30,000) than for a single value.
    """
    mechanism = LaplaceMechanism(sensitivity=1.0, epsilon=epsilon / noise_share)
    proven = f"epsilon = {mechanism.epsilon:g}"
    return _number(Claim(f"Laplace noise{_short(noise_share)}", epsilon, 0.0, "unit", proven=proven), mechanism)


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


def planned_noise(plan: NoisePlan, delta: float, *, noise_share: float = 1.0) -> Subject:
    """Return the sums of a run with noise, of a unit as long as may be or of none; every place is a run of its own.

    Only the shares that the plan counts on are in the sums: the server has taken off what colluders told it. It looks
    at the mean of all rounds. With a `noise_share` below 1 shares are smaller than they should be.
    """
    less = replace(plan, sigma=max(1, round(plan.sigma * noise_share)))

    def summed(length: float, runs: int, source: ByteSource) -> Draws:
        sums, unit = replace(less, dimension=runs), np.full(runs, length)
        total = np.zeros(runs, dtype=np.int64)
        for _ in range(plan.rounds):
            for member in range(plan.honest):
                total += sums.contribution([unit] if member == 0 else [], source)
        return sums.values(total)

    name = f"noise inside {plan.rounds} sums{_short(noise_share)}"
    return Subject(
        claim=Claim(name, plan.epsilon(delta), delta, plan.unit),
        release=summed,
        inputs=(plan.clip, 0.0),
        scorer=known(_as_released),
        expense=max(1, plan.rounds * plan.honest // 4),
        gaussian=True,
    )


# Selective sharing


def _parameter(claim: Claim, noise: Laplace | PublishedLaplace, change: float) -> Subject:
    """Return all parameters of one large upload, each of which is a run of its own."""
    sharing = Sharing(1.0, select="random", bound=BOUND, noise=noise)

    def shared(value: float, runs: int, source: ByteSource) -> Draws:
        return protect(np.full(runs, value, dtype=np.float32), sharing, rng=science(_SEED), source=source).values

    return Subject(claim=claim, release=shared, inputs=(change, -change), scorer=known(_as_released))


def _upload(claim: Claim, sharing: Sharing, first: Rows, second: Rows) -> Subject:
    """Return one upload as a run, of which the sum of the values is looked at."""

    def shared(change: Rows, runs: int, source: ByteSource) -> Draws:
        rng = science(_SEED)
        return np.array([protect(change, sharing, rng=rng, source=source).values.sum() for _ in range(runs)])

    return Subject(
        claim=claim, release=shared, inputs=(first, second), scorer=known(_as_released), expense=_UPLOAD_EXPENSE
    )


def published_parameter(epsilon: float, change: float = 10.0) -> Subject:
    """Return one parameter as published; its change is plus or minus `change`."""
    proven = f"nothing: a change is cut to {BOUND:g} after the noise, and not before"
    source = f"{PUBLISHED}, read per parameter"
    claim = Claim("Laplace noise, then the cut", epsilon, 0.0, "parameter", source, proven)
    return _parameter(claim, PublishedLaplace(epsilon), change)


def laplace_parameter(epsilon: float) -> Subject:
    """Return one parameter, cut before the noise."""
    return _parameter(Claim("the cut, then Laplace noise", epsilon, 0.0, "parameter"), Laplace(epsilon), BOUND)


def laplace_participant(epsilon: float, parameters: int = 2560) -> Subject:
    """Return one upload of a tenth of the parameters, cut before the noise, as a release about its participant."""
    sharing = Sharing(0.1, select="random", bound=BOUND, noise=Laplace(epsilon))
    values = sharing.count(parameters)
    proven = f"epsilon = {epsilon * values:g} per upload of {values} values"
    source = f"{PUBLISHED}, read per participant"
    rising = np.full(parameters, BOUND, dtype=np.float32)
    claim = Claim("Laplace noise per parameter", epsilon, 0.0, "participant", source, proven)
    return _upload(claim, sharing, rising, -rising)


def participant_gaussian(epsilon: float, delta: float, select: Selection = "random") -> Subject:
    """Return one upload with Gaussian noise for its participant, whose change counts or does not."""
    noise = calibrate_participant(epsilon=epsilon, delta=delta, uploads=1, clip=1.0)
    proven = f"epsilon = {epsilon:g}, delta = {delta:g} per upload"
    claim = Claim(f"Gaussian noise per participant, {select}", epsilon, delta, "participant", proven=proven)
    large = np.full(16, 10.0, dtype=np.float32)  # whatever is selected of it is shortened to the clip
    return replace(_upload(claim, Sharing(0.25, select=select, noise=noise), large, 0 * large), gaussian=True)


def threshold_upload(epsilon: float, parameters: int = 6) -> Subject:
    """Return the sparse-vector technique with one value at most: the parameter that is visited last, or not.

    The order of the visits is public, and one order is used in all runs. One input is zero up to the last parameter,
    the other at the last alone: that all others stay below the noisy threshold and the last reaches it tells most. The
    proof counts twice what magnitudes can move (`sparsevector`), so a sound mechanism loses half of epsilon at most.
    """
    sharing = Sharing(1 / parameters, select="threshold", bound=BOUND, threshold=BOUND / 5, noise=Laplace(epsilon))
    last = int(science(_SEED).permutation(parameters)[-1])
    only_last = np.zeros(parameters, dtype=np.float32)
    only_last[last] = BOUND

    def shared(change: Rows, runs: int, source: ByteSource) -> Draws:
        uploads = (protect(change, sharing, rng=science(_SEED), source=source) for _ in range(runs))
        return np.array([upload.indices.tolist() == [last] for upload in uploads])

    proven = f"epsilon = {epsilon:g} per upload of one value"
    return Subject(
        claim=Claim("random above a threshold, one value", epsilon, 0.0, "participant", proven=proven),
        release=shared,
        inputs=(only_last, BOUND - only_last),
        scorer=known(_as_released),
        expense=_THRESHOLD_EXPENSE,
    )


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


# What is put on trial together


def published_hashing() -> tuple[OnTrial, ...]:
    """Return the private-hashing paper's theorems, for a bit, for a record and as its algorithms are run."""
    one = 1.0
    every = (flipped_record, phashing, phashing_run, pitq, pitq_run)
    return (flipped_bit(one), flipped_bit(0.3), *(subject(one) for subject in every))


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


def selective_sharing() -> tuple[OnTrial, ...]:
    """Return what a participant uploads of a network, as published and as proven."""
    return (
        published_parameter(1.0),
        laplace_parameter(1.0),
        laplace_participant(1.0),
        participant_gaussian(4.0, 1e-6, "random"),
        participant_gaussian(4.0, 1e-6, "largest"),
        record_gaussian(4.0, 1e-6),
        threshold_upload(2.0),
    )


class SelfTest(NamedTuple):
    """What the auditor found about a mechanism with half the noise that it needs, and about one with enough."""

    planted: EpsilonAudit
    sound: EpsilonAudit

    @property
    def passed(self) -> bool:
        """Whether it found the first and acquitted the second."""
        return self.planted.refuted and not self.sound.refuted


def self_test(*, runs: int = RUNS, confidence: float = CONFIDENCE, source: ByteSource = system_bytes) -> SelfTest:
    """Put the auditor to the test. It fails, though nothing is wrong, with probability at most 1 - confidence.

    Added to that is the probability of missing the violation, which is negligible from some thousand runs on.
    """
    half, whole = (laplace(1.0, noise_share=share) for share in (0.5, 1.0))
    return SelfTest(*(one.audit(runs, confidence=confidence, source=source) for one in (half, whole)))
