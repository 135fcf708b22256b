"""A running sum of sparse encrypted vectors: memory for one vector, however many contribute.

DPHE (Yonetani et al., ICCV 2017), Eqs. 4-6: each contribution names its places, its ciphertexts are multiplied in
there, and all other places count as zero. The paper puts one and the same Enc(0) everywhere else; whoever sees the
result then reads the union of the supports from it. Here `total` gives every untouched place an Enc(0) of its own.
"""

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from blindsight.crypto.paillier import Ciphertexts, PublicKey
from blindsight.errors import InputError
from blindsight.rng import ByteSource, system_bytes


class EncryptedSum:
    """Adds up vectors of `size` hidden numbers under one key; `counts` says how many of them touched each place."""

    def __init__(self, key: PublicKey, size: int) -> None:
        """Begin with nothing."""
        self.key, self.size = key, size
        self.counts: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self._products: list[mpz] = [mpz(1)] * size
        self._modulus = mpz(key.n) ** 2

    def add(self, ciphertexts: Ciphertexts, places: NDArray[np.int64] | None = None) -> None:
        """Add one contribution at `places` (all places if None); what does not fit raises and changes nothing."""
        where = np.arange(self.size) if places is None else np.asarray(places)
        if ciphertexts.key != self.key or where.shape != (len(ciphertexts),):
            raise InputError(f"cannot add {ciphertexts!r} at {where.size} places under {self.key!r}.")
        if where.dtype.kind not in "iu" or ((where < 0) | (where >= self.size)).any():
            raise InputError(f"places must be whole numbers in 0 ... {self.size - 1}.")
        if np.unique(where).size != where.size:
            raise InputError("a contribution names each place at most once.")
        products, modulus = self._products, self._modulus
        for place, value in zip(where.tolist(), ciphertexts.values, strict=True):
            products[place] = products[place] * value % modulus
        self.counts[where] += 1

    def touched(self) -> tuple[NDArray[np.int64], Ciphertexts]:
        """Return the places that some contribution touched, in order, and their sums."""
        places = np.flatnonzero(self.counts)
        return places, Ciphertexts(self.key, tuple([self._products[place] for place in places.tolist()]))

    def total(self, *, source: ByteSource = system_bytes) -> Ciphertexts:
        """Return the sum at all places; the untouched ones are fresh encryptions of zero."""
        values = list(self._products)
        untouched = np.flatnonzero(self.counts == 0).tolist()
        zeros = self.key.encrypt_zeros(len(untouched), source=source)
        for place, zero in zip(untouched, zeros.values, strict=True):
            values[place] = zero
        return Ciphertexts(self.key, tuple(values))
