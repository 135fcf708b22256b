"""Random Flipping, PHashing and PITQ as published, on trial: epsilon-privacy is claimed, of a record, and is not there.

Wang, Lu and Zhang, "Searching privately by imperceptible lying", MM 2020: Theorem 4 (flipping), 6 (PHashing), 8 (PITQ).
The neighbours are a record and its mirror image in the mean, which has the complementary code: all bits tell.
"""

import math

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.canaries import CanarySubject
from blindsight.audit.epsilon import Draws
from blindsight.audit.scores import known
from blindsight.audit.subject import Claim, Draw, Subject
from blindsight.rng import ByteSource, science
from blindsight.search.codes import Codes, pack
from blindsight.search.flipping import bit_loss, flip, grid_beta, paper_beta, record_loss
from blindsight.search.hashers import ITQ
from blindsight.search.published import PITQ, PHashing

SOURCE = "Wang, Lu and Zhang 2020"
_PITQ_EXPENSE = 400  # a fit takes thousands of times as long as a flip; some hundred fits are enough
_SEED = 0  # of synthetic records


def flipped_bit(epsilon: float) -> Subject:
    """Return Theorem 4 for a single bit: true, unless epsilon is below 0.4812."""
    loss = bit_loss(grid_beta(paper_beta(epsilon)))
    proven = f"exactly epsilon = {loss:.4g} per bit"
    return _flipping(_claim("Random Flipping, Theorem 4", epsilon, "bit", proven), bits=1)


def flipped_record(epsilon: float, bits: int = 48) -> Subject:
    """Return Theorem 4 for a record of so many bits."""
    loss = record_loss(grid_beta(paper_beta(epsilon)), bits)
    proven = f"exactly epsilon = {loss:.4g} per record of {bits} bits"
    return _flipping(_claim(f"Random Flipping of {bits} bits, Theorem 4", epsilon, "record", proven), bits)


def phashing(epsilon: float, bits: int = 48) -> Subject:
    """Return Theorem 6 in the case that is best for it: the hash function was learned from public data."""
    public = _records(4 * bits + 200, bits)
    hasher = PHashing(ITQ(bits).fit(public), epsilon, public_function=True, force=True).fit(public)
    record = public[:1]
    mirrored = 2 * hasher.function_.arrays()["mean"] - record
    proven = f"exactly epsilon = {hasher.loss.epsilon:.4g} per record, with a public function"
    claim = _claim(f"PHashing of {bits} bits, Theorem 6", epsilon, "record", proven)
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
    claim = _claim(f"PHashing of {bits} bits, learned from the records", epsilon, "record", proven)

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


def _claim(name: str, epsilon: float, unit: str, proven: str) -> Claim:
    return Claim(name=name, epsilon=epsilon, delta=0.0, unit=unit, source=SOURCE, proven=proven)


def _pitq_claim(epsilon: float, bits: int) -> Claim:
    proven = "no finite epsilon: the true codes are released"
    return _claim(f"PITQ of {bits} bits, Theorem 8", epsilon, "record", proven)


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
