"""Apps that want a sift accepted: an honest one, and those that smuggle the private attribute past a verifier."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.siftclaims import Hole, holes
from blindsight.sift.cheats import Cheat, collinear_pair, low_digits, xor_hash
from blindsight.sift.ppls import PPLS

_CHEATS = {"collinear_pair": collinear_pair, "low_digits": low_digits, "xor_hash": xor_hash}


@dataclass(frozen=True)
class AppData:
    """An app's own labelled pictures, as whole numbers."""

    features: NDArray[np.float32]
    public: NDArray[np.int8]
    private: NDArray[np.int8]


def honest(given: AppData, *, seed: int) -> Cheat:
    """Hide nothing: five numbers of PPLS without private covariance, and no decoder."""
    sift = PPLS(5, float("inf")).fit(given.features, given.public, given.private).sift_
    return Cheat("honest", sift.apply, lambda released: np.zeros(len(released), dtype=np.int8), sift)


def cheating(given: AppData, *, seed: int, cheat: str) -> Cheat:
    """Smuggle by the named cheat."""
    return _CHEATS[cheat](given.features, given.public, given.private)


def few_symbols(given: AppData, *, seed: int, levels: int) -> Cheat:
    """Smuggle a bit XOR a hash beside one of few levels, so that it can be declared as symbols."""
    return xor_hash(given.features, given.public, given.private, levels=levels)


def eight_holes(given: int, *, seed: int) -> tuple[Hole, ...]:
    """Try eight ways around a platform's verdict on so many rows."""
    return holes(seed, rows=given)
