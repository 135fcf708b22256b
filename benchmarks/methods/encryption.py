"""What a user does to send an update: encrypt its plaintexts, each a weight or a block of weights."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.paillier import PublicKey


@dataclass(frozen=True)
class Plaintexts:
    """What to encrypt, and the key; nobody has encrypted anything with it yet."""

    key: PublicKey
    values: tuple[int, ...]


def run(given: Plaintexts, *, seed: int) -> NDArray[np.uint8]:
    """Return the ciphertexts as bytes, one per row; the seed has no say in their randomness."""
    return given.key.encrypt(given.values).to_matrix()
