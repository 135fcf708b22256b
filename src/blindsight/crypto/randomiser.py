"""Fresh Paillier masks h_s^r mod n^2, from a base that nobody chose.

The base follows from the modulus alone: x = SHAKE-256(n) mod n, h = -x^2 mod n, h_s = h^n mod n^2. Everyone computes it
from n, so it is not part of a key and cannot carry a trapdoor. An exponent r of ceil(|n| / 2) uniform bits hides
the message if n, whose primes are 3 modulo 4, admits the decisional composite residuosity assumption and h^r mod n with
such an r cannot be told from a random element of its group (Damgard, Jurik and Nielsen, "A generalization of Paillier's
public-key system with applications to electronic voting", 2010).

The window table (see `fixedbase`) is made when it begins to pay and widened as use goes on, at most three times in the
life of a key. A mask never depends on the table, only on n, r and the message.
"""

import hashlib
import threading
from collections.abc import Sequence
from functools import lru_cache

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from blindsight.crypto.fixedbase import FixedBase, table_bytes
from blindsight.rng import ByteSource, system_bytes

_LABEL = b"blindsight paillier base 1\0"
# After so many masks a table with so many bits per window has paid for itself (measured at 2048 and 3072 bits).
_WINDOWS = ((6000, 10), (800, 8), (16, 6))
_MAX_TABLE_BYTES = 160 * 10**6


class Randomiser:
    """Makes masks for one modulus; safe to use from several threads."""

    def __init__(self, n: mpz) -> None:
        """Derive the base h_s from the modulus."""
        bits = n.bit_length()
        label = _LABEL + int(n).to_bytes((bits + 7) // 8, "big")
        x = mpz.from_bytes(hashlib.shake_256(label).digest(bits // 8 + 16), "big") % n
        self.base = gmpy2.powmod(-x * x % n, n, n * n)
        self.exponent_bytes = -(-bits // 16)
        self._n = n
        self._table: FixedBase | None = None
        self._made = 0
        self._lock = threading.Lock()

    def draw(self, count: int, source: ByteSource = system_bytes) -> NDArray[np.uint8]:
        """Draw `count` exponents, one per row, little-endian."""
        return np.frombuffer(source(count * self.exponent_bytes), dtype=np.uint8).reshape(count, self.exponent_bytes)

    def plan(self, count: int) -> int:
        """Return the window worth having if `count` more masks are made; 0 means none."""
        self._made += count
        window = next((width for made, width in _WINDOWS if self._made >= made), 0)
        while window and table_bytes(self._n.bit_length(), 8 * self.exponent_bytes, window) > _MAX_TABLE_BYTES:
            window -= 1
        return window

    def mask(self, messages: Sequence[mpz], exponents: NDArray[np.uint8], *, window: int) -> list[mpz]:
        """Return (1 + n m) h_s^r mod n^2, the Paillier ciphertext, for each message m and its exponent r."""
        table = self._table_of(window)
        if table is not None:
            return table.powers(exponents, messages)
        n, modulus = self._n, self._n * self._n
        powers = gmpy2.powmod_exp_list(
            self.base, [mpz.from_bytes(row.tobytes(), "little") for row in exponents], modulus
        )
        return [(1 + n * (m % n)) * power % modulus for m, power in zip(messages, powers, strict=True)]

    def _table_of(self, window: int) -> FixedBase | None:
        """Return a table at least as wide as `window`, made anew if need be."""
        with self._lock:
            if window and (self._table is None or self._table.window < window):
                self._table = None  # free the narrower one first
                self._table = FixedBase(self.base, self._n, exponent_bits=8 * self.exponent_bytes, window=window)
            return self._table


@lru_cache(maxsize=2)
def randomiser(n: int) -> Randomiser:
    """Return this process's one randomiser for a modulus: equal keys share a table."""
    return Randomiser(mpz(n))
