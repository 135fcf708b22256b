"""Every mechanism that claims an epsilon, put to the test; and the auditor itself.

A mechanism on trial in a single run: many records, each of which is one of two by a secret coin.

Where neighbouring inputs would need thousands of runs, one run on thousands of records is as good (`onerun`), and it
puts to the test what is really done: learning from all records and releasing all of them together.

Random Flipping, PHashing and PITQ as published, on trial: epsilon-privacy is claimed, of a record, and is not there.

Wang, Lu and Zhang, "Searching privately by imperceptible lying", MM 2020: Theorem 4 (flipping), 6 (PHashing), 8 (PITQ).
The neighbours are a record and its mirror image in the mean, which has the complementary code: all bits tell.

The local mechanisms of private search, on trial: what they are proven to lose must not be exceeded.

Neighbours are two records whose releases are told apart most easily: complementary codes, or different symbols.

Laplace and Gaussian noise on trial, also in shares inside a sum: the proven epsilon must stand.

Neighbours are as far apart as the stated sensitivity allows.

Selective sharing of parameters, on trial: noise per parameter as published, and the modes that are proven.

Neighbours are changes of the model as far apart as a mode allows: where nothing bounds a change, as far as we like.
Bu 2019 (PPDL), after Shokri and Shmatikov 2015, adds Laplace noise to each shared value and calls epsilon = 1 "the
privacy budget". Whose, it does not say. That of a parameter it is not, as changes are cut after the noise and not
before; that of a participant it is not even where they are (`Laplace`), as an upload has thousands of values.

The mechanisms of an index on trial, with its parameters, on neighbours as far apart as can be.

Of a central function it is the noisy sums behind it that are on trial. The function itself is made from them, tells far
less and takes long to learn: even with a tenth of the noise it owes, no bound on it would refute anything.

Claims of the papers are tested at the papers' settings, our own at epsilons for which they are used. `self_test` shows
that the auditor can be trusted: it finds a mechanism with half the noise it needs and acquits one with enough.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.epsilon import CONFIDENCE, Draws, by_coordinate, by_frequency, known
from blindsight.audit.onerun import canaries_needed, one_run_bound, surest_guesses
from blindsight.audit.subject import Claim, Draw, EpsilonAudit, OnTrial, Subject
from blindsight.data.features import Standardiser
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from blindsight.errors import InputError
from blindsight.rng import ByteSource, random_words, science, system_bytes
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

Run = Callable[[NDArray[np.bool_], ByteSource], NDArray[np.float64]]
"""Runs a mechanism once on records chosen by these coins; scores each coin, positive where it seems to be true and
further from 0 the surer that is."""


@dataclass(frozen=True, kw_only=True)
class CanarySubject:
    """A claim that can be put to the test in one run.

    Only the `share` of the coins that are surest is guessed. It is fixed beforehand.
    """

    claim: Claim
    run: Run
    share: float = 1.0
    expense: int = 1

    def affordable(self, runs: int, confidence: float = CONFIDENCE) -> int:
        """Return how many canaries to take where a cheap mechanism is run `runs` times: enough to refute the claim."""
        return runs if self.expense == 1 else max(runs // self.expense, self._needed(confidence))

    def audit(
        self, canaries: int, *, confidence: float = CONFIDENCE, source: ByteSource = system_bytes
    ) -> EpsilonAudit:
        """Run the mechanism once with so many canaries, and bound its epsilon from below.

        The claim is refuted though it is true with probability at most 1 - confidence.
        """
        needed = self._needed(confidence)
        if canaries < needed:
            raise InputError(
                f"to refute epsilon = {self.claim.epsilon:g} with {100 * confidence:.10g}% confidence in one run at "
                f"least {needed:,} canaries are needed; got {canaries:,}. Ask for more canaries or less confidence."
            )
        coins = random_words(canaries, source) % 2 == 1
        guesses = surest_guesses(self.run(coins, source), max(1, int(canaries * self.share)))
        bound = one_run_bound(coins, guesses, delta=self.claim.delta, confidence=confidence)
        return EpsilonAudit(self.claim, bound)

    def _needed(self, confidence: float) -> int:
        guessed = canaries_needed(self.claim.epsilon, confidence=confidence, delta=self.claim.delta)
        return math.ceil(guessed / self.share)


SOURCE = "Wang, Lu and Zhang 2020"
_PITQ_EXPENSE = 400  # a fit takes thousands of times as long as a flip; some hundred fits are enough
_SEED = 0  # of synthetic records, public features and places


def flipped_bit(epsilon: float) -> Subject:
    """Return Theorem 4 for a single bit: true, unless epsilon is below 0.4812."""
    loss = bit_loss(grid_beta(paper_beta(epsilon)))
    proven = f"exactly epsilon = {loss:.4g} per bit"
    return _flipping(_hashing_claim("Random Flipping, Theorem 4", epsilon, "bit", proven), bits=1)


def flipped_record(epsilon: float, bits: int = 48) -> Subject:
    """Return Theorem 4 for a record of so many bits."""
    loss = record_loss(grid_beta(paper_beta(epsilon)), bits)
    proven = f"exactly epsilon = {loss:.4g} per record of {bits} bits"
    return _flipping(_hashing_claim(f"Random Flipping of {bits} bits, Theorem 4", epsilon, "record", proven), bits)


def phashing(epsilon: float, bits: int = 48) -> Subject:
    """Return Theorem 6 in the case that is best for it: the hash function was learned from public data."""
    public = _records(4 * bits + 200, bits)
    hasher = PHashing(ITQ(bits).fit(public), epsilon, public_function=True, force=True).fit(public)
    record = public[:1]
    mirrored = 2 * hasher.function_.arrays()["mean"] - record
    proven = f"exactly epsilon = {hasher.loss.epsilon:.4g} per record, with a public function"
    claim = _hashing_claim(f"PHashing of {bits} bits, Theorem 6", epsilon, "record", proven)
    true_code = hasher.transform(record)

    def released(row: NDArray[np.float32]) -> Draw:
        return lambda runs, source: hasher.release(np.repeat(row, runs, axis=0), source=source)

    return Subject(
        claim=claim,
        first=released(record),
        second=released(mirrored),
        scorer=known(lambda codes: _agreement(codes, true_code, bits, paper_beta(epsilon))),
    )


def phashing_run(epsilon: float, bits: int = 48) -> CanarySubject:
    """Return Theorem 6 in one run: the function is learned from the same records that are released."""
    proven = "nothing: the function is learned from the records and released without noise"
    claim = _hashing_claim(f"PHashing of {bits} bits, learned from the records", epsilon, "record", proven)

    def run(coins: NDArray[np.bool_], source: ByteSource) -> NDArray[np.float64]:
        records = _records(coins.size, bits)
        hasher = PHashing(ITQ(bits, iterations=10), epsilon, force=True, source=source)
        hasher.fit(np.where(coins[:, None], records, -records))
        return _agreement(hasher.codes_, hasher.transform(records), bits, paper_beta(epsilon))

    return CanarySubject(claim=claim, run=run, share=0.5, expense=2)


def pitq(epsilon: float, bits: int = 8, iterations: int = 50) -> Subject:
    """Return Theorem 8: of each run the adversary gets the codes and the hash function, and looks at one record."""
    records = _records(40, 2 * bits)
    mirrored = np.concatenate([2 * records.mean(axis=0, keepdims=True) - records[:1], records[1:]])

    def released(rows: NDArray[np.float32]) -> Draw:
        def draw(runs: int, source: ByteSource) -> Draws:
            return np.array([_disagreeing(rows, source) for _ in range(runs)])

        return draw

    def _disagreeing(rows: NDArray[np.float32], source: ByteSource) -> int:
        fitted = PITQ(bits, epsilon, iterations, source=source).fit(rows)
        return int(np.bitwise_count(fitted.codes_[0] ^ fitted.transform(records[:1])[0]).sum())

    return Subject(
        claim=_pitq_claim(epsilon, bits),
        first=released(records),
        second=released(mirrored),
        scorer=known(lambda disagreeing: -disagreeing.astype(np.float64)),
        expense=_PITQ_EXPENSE,
    )


def pitq_run(epsilon: float, bits: int = 16, iterations: int = 50) -> CanarySubject:
    """Return Theorem 8 in one run: each record or its mirror image, and all their codes."""

    def run(coins: NDArray[np.bool_], source: ByteSource) -> NDArray[np.float64]:
        records = _records(coins.size, 2 * bits)
        fitted = PITQ(bits, epsilon, iterations, source=source).fit(np.where(coins[:, None], records, -records))
        return _agreement(fitted.codes_, fitted.transform(records), bits, beta=0.0)

    return CanarySubject(claim=_pitq_claim(epsilon, bits), run=run, expense=4)


def _hashing_claim(name: str, epsilon: float, unit: str, proven: str) -> Claim:
    return Claim(name=name, epsilon=epsilon, delta=0.0, unit=unit, source=SOURCE, proven=proven)


def _pitq_claim(epsilon: float, bits: int) -> Claim:
    proven = "no finite epsilon: the true codes are released"
    return _hashing_claim(f"PITQ of {bits} bits, Theorem 8", epsilon, "record", proven)


def _flipping(claim: Claim, bits: int) -> Subject:
    """Return the flips of a code and of its complement."""
    beta = paper_beta(claim.epsilon)

    def released(code: Codes) -> Draw:
        return lambda runs, source: flip(np.repeat(code, runs, axis=0), bits, beta, source=source)

    zeros, ones = pack(np.zeros((1, bits))), pack(np.ones((1, bits)))
    return Subject(
        claim=claim,
        first=released(zeros),
        second=released(ones),
        scorer=known(lambda codes: _agreement(codes, zeros, bits, beta)),
    )


def _agreement(released: Codes, codes: Codes, bits: int, beta: float) -> NDArray[np.float64]:
    """Score releases by how many bits they share with codes: more than half, unless most bits are flipped."""
    differing = np.bitwise_count(released ^ codes).sum(axis=1, dtype=np.float64)
    return np.asarray((bits / 2 - differing) * math.copysign(1.0, 0.5 - beta))


def _records(rows: int, width: int) -> NDArray[np.float32]:
    return science(_SEED).standard_normal((rows, width)).astype(np.float32)


def response_record(epsilon: float, bits: int = 4) -> Subject:
    """Return randomised response with epsilon / bits for each bit."""
    beta = record_beta(epsilon, bits)
    zeros, ones = _complements(bits)

    def released(code: Codes) -> Draw:
        return lambda runs, source: flip(np.repeat(code, runs, axis=0), bits, beta, source=source)

    return Subject(
        claim=_release_claim(f"randomised response of {bits} bits", epsilon),
        first=released(zeros),
        second=released(ones),
        scorer=known(lambda codes: -_weights(codes)),
    )


def hamming_ball(epsilon: float, bits: int = 48) -> Subject:
    """Return the Hamming-ball mechanism with the radius that keeps most bits."""
    mechanism = HammingBall(bits, epsilon)
    zeros, ones = _complements(bits)

    def released(code: Codes) -> Draw:
        return lambda runs, source: mechanism.release(np.repeat(code, runs, axis=0), source=source)

    def score(codes: Codes) -> NDArray[np.float64]:
        weights = _weights(codes)  # inside the ball around zeros, less inside that around ones
        return np.where(weights <= mechanism.radius, 1.0, 0.0) - np.where(weights >= bits - mechanism.radius, 1.0, 0.0)

    return Subject(
        claim=_release_claim(f"Hamming ball in {bits} bits", epsilon),
        first=released(zeros),
        second=released(ones),
        scorer=known(score),
    )


def kary_response(epsilon: float, k: int = 10) -> Subject:
    """Return k-ary randomised response."""
    mechanism = KaryResponse(k, epsilon)
    return Subject(
        claim=_release_claim(f"{k}-ary response", epsilon),
        first=lambda runs, source: mechanism.release(np.zeros(runs, dtype=np.int64), source=source),
        second=lambda runs, source: mechanism.release(np.ones(runs, dtype=np.int64), source=source),
        scorer=by_frequency,
    )


def subset_selection(epsilon: float, k: int = 32) -> Subject:
    """Return subset selection with the size that estimates frequencies best."""
    mechanism = SubsetSelection(k, epsilon)
    return Subject(
        claim=_release_claim(f"{mechanism.size} of {k} symbols", epsilon),
        first=lambda runs, source: mechanism.release(np.zeros(runs, dtype=np.int64), source=source),
        second=lambda runs, source: mechanism.release(np.ones(runs, dtype=np.int64), source=source),
        scorer=known(lambda sets: sets[:, 0].astype(np.float64) - sets[:, 1]),
    )


def local_release(epsilon: float) -> Subject:
    """Return local mode from features to release, with a codebook learned from public ones."""
    hasher, rows = _local_hasher(epsilon)

    def released(row: NDArray[np.float32]) -> Draw:
        return lambda runs, source: hasher.release(np.repeat(row, runs, axis=0), source=source)

    return Subject(
        claim=_release_claim("local mode of PrivateHasher", epsilon),
        first=released(rows[:1]),
        second=released(rows[1:]),
        scorer=by_frequency,
    )


def local_release_run(epsilon: float) -> CanarySubject:
    """Return local mode in one run: a collection of records, each of them one of two."""
    hasher, rows = _local_hasher(epsilon)
    ratios = np.log(hasher.design_.probabilities()[hasher.codebook_.cells_of(rows)])

    def run(coins: NDArray[np.bool_], source: ByteSource) -> NDArray[np.float64]:
        released = hasher.release(rows[np.where(coins, 0, 1)], source=source)
        return np.asarray((ratios[0] - ratios[1])[released])

    return CanarySubject(claim=_release_claim("local mode of PrivateHasher, one collection", epsilon), run=run)


def _local_hasher(epsilon: float) -> tuple[LocalHasher, NDArray[np.float32]]:
    """Return a hasher of four kinds of public features, and two rows with different symbols."""
    rng = science(_SEED)
    centres = 4 * rng.standard_normal((4, 8))
    public = (np.repeat(centres, 50, axis=0) + rng.standard_normal((200, 8))).astype(np.float32)
    hasher = LocalHasher(epsilon, kinds=4, mechanism="kary").fit(public)
    symbols = hasher.true_symbols(public)
    return hasher, public[[0, int(np.argmax(symbols != symbols[0]))]]


def _release_claim(name: str, epsilon: float) -> Claim:
    return Claim(
        name=name,
        epsilon=epsilon,
        delta=0.0,
        unit="record",
        source="Blindsight",
        proven=f"epsilon = {epsilon:g} per record",
    )


def _complements(bits: int) -> tuple[Codes, Codes]:
    return pack(np.zeros((1, bits))), pack(np.ones((1, bits)))


def _weights(codes: Codes) -> NDArray[np.float64]:
    """Return how many bits of each code are 1."""
    return np.asarray(np.bitwise_count(codes).sum(axis=1, dtype=np.float64))


def laplace(epsilon: float, *, noise_share: float = 1.0) -> Subject:
    """Return Laplace noise; with a `noise_share` below 1 it is less than epsilon needs: a planted violation.

    All runs are drawn in one release, the grid of which is finer and the noise of which larger (by less than one part
    in 30,000) than for a single value.
    """
    mechanism = LaplaceMechanism(sensitivity=1.0, epsilon=epsilon / noise_share)
    planted = "" if noise_share == 1 else f" with {noise_share:g} of the noise that it takes"

    def released(value: float) -> Draw:
        return lambda runs, source: mechanism.release(np.full(runs, value), source)

    return Subject(
        claim=_value_claim(f"Laplace noise{planted}", epsilon, 0.0, "unit", loss=mechanism.epsilon),
        first=released(1.0),
        second=released(0.0),
        scorer=known(lambda values: values),
    )


def gaussian(epsilon: float, delta: float) -> Subject:
    """Return Gaussian noise with the least deviation that epsilon and delta allow."""
    mechanism = GaussianMechanism.calibrated(sensitivity=1.0, epsilon=epsilon, delta=delta)

    def released(value: float) -> Draw:
        return lambda runs, source: mechanism.release(np.full(runs, value), source)

    return Subject(
        claim=_value_claim("Gaussian noise", epsilon, delta, "unit"),
        first=released(1.0),
        second=released(0.0),
        scorer=known(lambda values: values),
        gaussian=True,
    )


def gaussian_run(epsilon: float, delta: float) -> CanarySubject:
    """Return Gaussian noise in one run: a vector to which each canary adds 1 at a place of its own."""
    mechanism = GaussianMechanism.calibrated(sensitivity=1.0, epsilon=epsilon, delta=delta)

    def run(coins: NDArray[np.bool_], source: ByteSource) -> NDArray[np.float64]:
        return mechanism.release(coins.astype(np.float64), source) - 0.5

    return CanarySubject(claim=_value_claim("Gaussian noise, one vector", epsilon, delta, "unit"), run=run, share=0.2)


def summed_noise(epsilon: float, delta: float, *, noise_share: float = 1.0) -> Subject:
    """Return four sums by five owners, one of whom drops out and one of whom tells its shares."""
    plan = NoisePlan.calibrated(
        epsilon=epsilon,
        delta=delta,
        unit="record",
        clip=1.0,
        members=5,
        drop_outs=1,
        colluders=1,
        dimension=10_000,
        rounds=4,
        largest=2**28,
        reach=100.0,
    )
    return planned_noise(plan, delta, noise_share=noise_share)


def planned_noise(plan: NoisePlan, delta: float, *, noise_share: float = 1.0) -> Subject:
    """Return the sums of a run with noise, of a unit as long as may be or of none; every place is a run of its own.

    Only the shares that the plan counts on are in the sums: the server has taken off what colluders told it. It looks
    at the mean of all rounds. With a `noise_share` below 1 shares are smaller than they should be.
    """
    planted = "" if noise_share == 1 else f" with {noise_share:g} of the noise that it takes"
    less = replace(plan, sigma=max(1, round(plan.sigma * noise_share)))

    def summed(length: float) -> Draw:
        def draw(runs: int, source: ByteSource) -> Draws:
            sums, unit = replace(less, dimension=runs), np.full(runs, length)
            total = sum(
                (
                    sums.contribution([unit] if member == 0 else [], source)
                    for _ in range(plan.rounds)
                    for member in range(plan.honest)
                ),
                np.zeros(runs, dtype=np.int64),
            )
            return sums.values(total)

        return draw

    return Subject(
        claim=_value_claim(f"noise inside {plan.rounds} sums{planted}", plan.epsilon(delta), delta, plan.unit),
        first=summed(plan.clip),
        second=summed(0.0),
        scorer=known(_identity),
        expense=max(1, plan.rounds * plan.honest // 4),
        gaussian=True,
    )


def _value_claim(name: str, epsilon: float, delta: float, unit: str, loss: float | None = None) -> Claim:
    wording = f"epsilon = {epsilon if loss is None else loss:g}"
    return Claim(
        name=name,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        source="Blindsight",
        proven=wording + (f", delta = {delta:g}" if delta else ""),
    )


PUBLISHED = "Bu 2019"
BOUND = 0.1
"""The paper's gamma."""

_UPLOAD_EXPENSE = 20  # an upload takes some hundred times as long as a number; some thousand uploads are enough
_THRESHOLD_EXPENSE = 5  # what tells most is rare

NewTrainer = Callable[[RecordGaussian, ByteSource], Trainer]
"""Makes a trainer of one feature and two classes, with a learning rate of about 1, noise per record and randomness."""


def _softmax(noise: RecordGaussian, source: ByteSource) -> Trainer:
    unscaled = Standardiser(np.zeros(1, dtype=np.float32), np.ones(1, dtype=np.float32))
    return SoftmaxTrainer(standardiser=unscaled, classes=2, learning_rate=1.0, record_noise=noise, source=source)


def published_parameter(epsilon: float, change: float = 10.0) -> Subject:
    """Return one parameter as published; its change is plus or minus `change`."""
    proven = f"nothing: a change is cut to {BOUND:g} after the noise, and not before"
    claim = _upload_claim(
        "Laplace noise, then the cut", epsilon, 0.0, "parameter", f"{PUBLISHED}, read per parameter", proven
    )
    return _parameter(claim, PublishedLaplace(epsilon), change)


def laplace_parameter(epsilon: float) -> Subject:
    """Return one parameter, cut before the noise."""
    claim = _upload_claim(
        "the cut, then Laplace noise", epsilon, 0.0, "parameter", "Blindsight", f"epsilon = {epsilon:g}"
    )
    return _parameter(claim, Laplace(epsilon), BOUND)


def laplace_participant(epsilon: float, parameters: int = 2560) -> Subject:
    """Return one upload of a tenth of the parameters, cut before the noise, as a release about its participant."""
    sharing = Sharing(0.1, select="random", bound=BOUND, noise=Laplace(epsilon))
    values = sharing.count(parameters)
    proven = f"epsilon = {epsilon * values:g} per upload of {values} values"
    source = f"{PUBLISHED}, read per participant"
    claim = _upload_claim("Laplace noise per parameter", epsilon, 0.0, "participant", source, proven)
    rising = np.full(parameters, BOUND, dtype=np.float32)
    return _upload(claim, sharing, rising, -rising)


def participant_gaussian(epsilon: float, delta: float, select: Selection = "random") -> Subject:
    """Return one upload with Gaussian noise for its participant, whose change counts or does not."""
    noise = calibrate_participant(epsilon=epsilon, delta=delta, uploads=1, clip=1.0)
    proven = f"epsilon = {epsilon:g}, delta = {delta:g} per upload"
    claim = _upload_claim(
        f"Gaussian noise per participant, {select}", epsilon, delta, "participant", "Blindsight", proven
    )
    large = np.full(16, 10.0, dtype=np.float32)  # whatever is selected of it is shortened to the clip
    return replace(_upload(claim, Sharing(0.25, select=select, noise=noise), large, 0 * large), gaussian=True)


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
        claim=_upload_claim("random above a threshold, one value", epsilon, 0.0, "participant", "Blindsight", proven),
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
        claim=_upload_claim("Gaussian noise per record", epsilon, delta, "record", "Blindsight", proven),
        first=trained(1),
        second=trained(0),
        scorer=by_coordinate,
        expense=_UPLOAD_EXPENSE,
        gaussian=True,
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


def _upload_claim(name: str, epsilon: float, delta: float, unit: str, source: str, proven: str) -> Claim:
    return Claim(name=name, epsilon=epsilon, delta=delta, unit=unit, source=source, proven=proven)


def local_mechanism(hasher: LocalHasher, source: str) -> Subject:
    """Return the mechanism of a fitted local hasher: any two symbols are told apart as easily as any others."""
    design = hasher.design_
    cells = [int(np.argmax(design.symbol_of_cell == symbol)) for symbol in (0, 1)]
    first, second = np.log(design.probabilities()[cells])

    def released(symbol: int) -> Draw:
        return lambda runs, noise: design.release(np.full(runs, symbol, dtype=np.int64), source=noise)

    return Subject(
        claim=Claim(
            name=f"local index, {hasher.mechanism_}",
            epsilon=hasher.mechanism_.loss,
            delta=0.0,
            unit="record",
            source=source,
            proven=f"epsilon = {hasher.mechanism_.loss:g} per record and release",
        ),
        first=released(0),
        second=released(1),
        scorer=known(lambda outputs: (first - second)[outputs]),
    )


def central_sums(hasher: CentralHasher, source: str) -> Subject:
    """Return the noisy sums that a central function is learned from, of a record that moves each as far as it can.

    No collection has such a record, so this bounds the accounting of all releases together and the noise they get.
    """
    releases = hasher.plan().releases
    weights = np.array([mechanism.sensitivity / mechanism.sigma**2 for mechanism in releases])

    def released(share: float) -> Draw:
        def draw(runs: int, noise: ByteSource) -> Draws:
            columns = [one.release(np.full(runs, share * one.sensitivity), noise) for one in releases]
            return np.stack(columns, axis=1)

        return draw

    return Subject(
        claim=Claim(
            name="central mode, all noisy sums together",
            epsilon=hasher.epsilon,
            delta=hasher.delta,
            unit="record",
            source=source,
            proven=f"epsilon = {hasher.epsilon:g}, delta = {hasher.delta:g}",
        ),
        first=released(1.0),
        second=released(0.0),
        scorer=known(lambda sums: sums @ weights),
        gaussian=True,
    )


RUNS = 100_000
"""By default: all mechanisms take some 20 seconds."""


def published_hashing() -> tuple[OnTrial, ...]:
    """Return the private-hashing paper's theorems, for a bit, for a record and as its algorithms are run."""
    return (
        flipped_bit(1.0),
        flipped_bit(0.3),
        flipped_record(1.0),
        phashing(1.0),
        phashing_run(1.0),
        pitq(1.0),
        pitq_run(1.0),
    )


def private_search() -> tuple[OnTrial, ...]:
    """Return what private search releases instead."""
    local = (
        response_record,
        hamming_ball,
        kary_response,
        subset_selection,
        local_release,
        local_release_run,
    )
    return (
        *(subject(epsilon) for epsilon in (1.0, 4.0) for subject in local),
        central_sums(CentralHasher(1.0, 1e-6, clip=1.0), "Blindsight"),
    )


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


@dataclass(frozen=True)
class SelfTest:
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
    planted, sound = (laplace(1.0, noise_share=share) for share in (0.5, 1.0))
    return SelfTest(
        planted.audit(runs, confidence=confidence, source=source),
        sound.audit(runs, confidence=confidence, source=source),
    )
