"""Private hashing as published, put to the test (Wang, Lu, Zhang: "Searching Privately by Imperceptible Lying", 2020).

Theorem 4 is about flipping (Algorithm 1), 6 about PHashing (Algorithm 2), 8 about PITQ (Algorithm 3). Epsilon-privacy
is claimed, of a record, and is not there. Claims are tested at the paper's settings, on neighbours as far apart as can
be: a record and its mirror image in the mean, which has the complementary code, so that all bits tell.
"""

import math

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.epsilon import known
from blindsight.audit.finding import Finding, rate
from blindsight.audit.subject import CanarySubject, Claim, OnTrial, Subject, repeated
from blindsight.papers.hashing.flipping import bit_loss, flip, grid_beta, paper_beta, record_loss
from blindsight.papers.hashing.learners import KernelHash, squared_distances
from blindsight.papers.hashing.published import PITQ, PHashing
from blindsight.rng import ByteSource, science
from blindsight.search.codes import Codes, pack
from blindsight.search.itq import ITQ

SOURCE = "Wang, Lu and Zhang 2020"

_SAME = 1e-6  # of a row's squared length: what rounding leaves of nothing

_SEED = 0  # of synthetic records, public features and places
_PITQ_EXPENSE = 400  # a fit takes thousands of times as long as a flip; some hundred fits are enough
Rows = NDArray[np.float32]
Coins = NDArray[np.bool_]
Scores = NDArray[np.float64]


def _records(rows: int, width: int) -> Rows:
    return science(_SEED).standard_normal((rows, width)).astype(np.float32)


def _agreement(released: Codes, codes: Codes, bits: int, beta: float) -> Scores:
    """Score releases by how many bits they share with codes: more than half, unless most bits are flipped."""
    differing = np.bitwise_count(released ^ codes).sum(axis=1, dtype=np.float64)
    return np.asarray((bits / 2 - differing) * math.copysign(1.0, 0.5 - beta))


def complements(bits: int) -> tuple[Codes, Codes]:
    return pack(np.zeros((1, bits))), pack(np.ones((1, bits)))


def flipping(claim: Claim, bits: int, beta: float) -> Subject:
    """Return the flips of a code and of its complement."""
    codes = complements(bits)
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
    return flipping(Claim("Random Flipping, Theorem 4", epsilon, 0.0, "bit", SOURCE, proven), 1, beta)


def flipped_record(epsilon: float, bits: int = 48) -> Subject:
    """Return Theorem 4 for a record of so many bits."""
    beta = paper_beta(epsilon)
    proven = f"exactly epsilon = {record_loss(grid_beta(beta), bits):.4g} per record of {bits} bits"
    claim = Claim(f"Random Flipping of {bits} bits, Theorem 4", epsilon, source=SOURCE, proven=proven)
    return flipping(claim, bits, beta)


def phashing(epsilon: float, bits: int = 48) -> Subject:
    """Return Theorem 6 in the case that is best for it: the hash function was learned from public data."""
    public = _records(4 * bits + 200, bits)
    hasher = PHashing(ITQ(bits).fit(public), epsilon, public_function=True, force=True).fit(public)
    record = public[:1]
    true_code = hasher.transform(record)
    proven = f"exactly epsilon = {hasher.loss.epsilon:.4g} per record, with a public function"
    return Subject(
        claim=Claim(f"PHashing of {bits} bits, Theorem 6", epsilon, source=SOURCE, proven=proven),
        release=repeated(hasher),
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


def published_hashing() -> tuple[OnTrial, ...]:
    """Return the private-hashing paper's theorems, for a bit, for a record and as its algorithms are run."""
    one = 1.0
    every = (flipped_record, phashing, phashing_run, pitq, pitq_run)
    return (flipped_bit(one), flipped_bit(0.3), *(subject(one) for subject in every))


def anchors_finding(function: KernelHash, rows: Rows) -> Finding:
    """Count the anchors of a kernel hash function (KSH, SDH) that are rows of the collection."""
    anchors = function.anchors
    nearest = squared_distances(anchors, rows).min(axis=1)
    found = int(np.sum(nearest <= _SAME * np.einsum("ij,ij->i", anchors, anchors)))
    return Finding(
        claim="a hash function does not hold the pictures it was learned from",
        source="nobody",
        proven="nothing: KSH and SDH carry training rows as anchors",
        measure="share of anchors that are features of indexed pictures, word for word",
        measured=rate(found, len(anchors)),
        verdict="leaks" if found else "at chance",
        attack="reading the hash function",
        details={"anchors": len(anchors), "rows": len(rows)},
    )
