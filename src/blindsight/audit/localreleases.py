"""The local mechanisms of private search, on trial: what they are proven to lose must not be exceeded.

Neighbours are two records whose releases are told apart most easily: complementary codes, or different symbols.
"""

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.canaries import CanarySubject
from blindsight.audit.scores import by_frequency, known
from blindsight.audit.subject import Claim, Draw, Subject
from blindsight.rng import ByteSource, science
from blindsight.search.codes import Codes, pack
from blindsight.search.flipping import HammingBall, flip, record_beta
from blindsight.search.localmode import LocalHasher
from blindsight.search.symbols import KaryResponse, SubsetSelection

_SEED = 0  # of public features


def response_record(epsilon: float, bits: int = 4) -> Subject:
    """Return randomised response with epsilon / bits for each bit."""
    beta = record_beta(epsilon, bits)
    zeros, ones = _complements(bits)

    def released(code: Codes) -> Draw:
        return lambda runs, source: flip(np.repeat(code, runs, axis=0), bits, beta, source=source)

    return Subject(
        claim=_claim(f"randomised response of {bits} bits", epsilon),
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
        claim=_claim(f"Hamming ball in {bits} bits", epsilon),
        first=released(zeros),
        second=released(ones),
        scorer=known(score),
    )


def kary_response(epsilon: float, k: int = 10) -> Subject:
    """Return k-ary randomised response."""
    mechanism = KaryResponse(k, epsilon)
    return Subject(
        claim=_claim(f"{k}-ary response", epsilon),
        first=lambda runs, source: mechanism.release(np.zeros(runs, dtype=np.int64), source=source),
        second=lambda runs, source: mechanism.release(np.ones(runs, dtype=np.int64), source=source),
        scorer=by_frequency,
    )


def subset_selection(epsilon: float, k: int = 32) -> Subject:
    """Return subset selection with the size that estimates frequencies best."""
    mechanism = SubsetSelection(k, epsilon)
    return Subject(
        claim=_claim(f"{mechanism.size} of {k} symbols", epsilon),
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
        claim=_claim("local mode of PrivateHasher", epsilon),
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

    return CanarySubject(claim=_claim("local mode of PrivateHasher, one collection", epsilon), run=run)


def _local_hasher(epsilon: float) -> tuple[LocalHasher, NDArray[np.float32]]:
    """Return a hasher of four kinds of public features, and two rows with different symbols."""
    rng = science(_SEED)
    centres = 4 * rng.standard_normal((4, 8))
    public = (np.repeat(centres, 50, axis=0) + rng.standard_normal((200, 8))).astype(np.float32)
    hasher = LocalHasher(epsilon, kinds=4, mechanism="kary").fit(public)
    symbols = hasher.true_symbols(public)
    return hasher, public[[0, int(np.argmax(symbols != symbols[0]))]]


def _claim(name: str, epsilon: float) -> Claim:
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
