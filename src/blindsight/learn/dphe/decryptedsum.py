"""What the key generator makes of a request: a sum in plain order, without the blocks that too few users changed.

If contributors are counted, every changed block carries a one in its last slot, and padding a zero: the decrypted slot
is the number of users who really changed the block. (The aggregator only knows how many *touched* it, and a dummy there
makes one contributor look like two.)
"""

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.paillier import Ciphertexts
from blindsight.crypto.permutation import SecretPermutation
from blindsight.crypto.privatekey import PrivateKey
from blindsight.errors import MessageError
from blindsight.learn.dphe.messages import SumPart
from blindsight.learn.dphe.terms import Terms
from blindsight.progress import Progress


class DecryptedSum:
    """A sum that is decrypted part by part."""

    def __init__(self, terms: Terms, key: PrivateKey, shared: SecretPermutation) -> None:
        """Begin with nothing; `shared` is phi of the round."""
        self._terms, self._key, self._shared = terms, key, shared
        self._rows = np.zeros((terms.blocks, terms.slots), dtype=np.int64)
        self._counts = np.zeros(terms.blocks, dtype=np.int64)
        self._next_place = 0

    def add(self, part: SumPart, *, threads: int | None, progress: Progress) -> None:
        """Decrypt a part and put it in plain order (Algorithm 1, step 6)."""
        terms, places = self._terms, part.places
        if places.ndim != 1 or not places.size or len(part.ciphertexts) != places.size:
            raise MessageError("a part of a sum has as many places as ciphertexts, and at least one.")
        if places[0] < self._next_place or places[-1] >= terms.blocks or (np.diff(places) <= 0).any():
            raise MessageError("a part of a sum names places out of range, out of order or twice.")
        ciphertexts = Ciphertexts.from_matrix(self._key.public, part.ciphertexts)
        packing = terms.packing
        numbers = self._key.decrypt(ciphertexts, bound=packing.max_packed(), threads=threads, progress=progress)
        rows = packing.unpack(numbers, len(numbers) * packing.slots).reshape(len(numbers), packing.slots)
        blocks = self._shared.backward(places)
        self._rows[blocks] = rows[:, : terms.slots]
        if terms.counting:
            self._counts[blocks] = rows[:, -1]
        self._next_place = int(places[-1]) + 1

    def finish(self, contributors: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the sum of that many users' weights, zero where it is withheld, and which blocks are released."""
        terms, rows, counts = self._terms, self._rows, self._counts
        most = contributors * terms.max_integer
        impossible = (rows > most) | (rows < -most) | (counts < 0)[:, None] | (counts > contributors)[:, None]
        if impossible.any() or rows.ravel()[terms.dimension :].any():
            raise MessageError("the sum is not one that these contributors can have: one overflowed or was forged.")
        released = counts >= terms.min_per_block if terms.counting else np.ones(terms.blocks, dtype=np.bool_)
        return np.where(released[:, None], rows, 0).ravel()[: terms.dimension], released
