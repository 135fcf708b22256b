"""The private side of Paillier: reads sums, and refuses to be an oracle for numbers beyond their bound.

Decryption is by Chinese remainders: c^(p-1) mod p^2 gives m mod p, likewise for q (Paillier 1999, section 7), in chunks
on threads. Where a bound on |m| is known, numbers beyond it are never released, and a small bound halves the work.

Arithmetic is not constant-time: an enemy who can time this machine closely is outside the model.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import gmpy2
from gmpy2 import mpz

from blindsight.crypto.paillier import Ciphertexts, PublicKey, check_key_bits
from blindsight.crypto.primes import draw_prime_pair
from blindsight.crypto.secret import Secret
from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, StorageError
from blindsight.files import atomic_writer, storage_errors
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, system_bytes

_CHUNK = 32
_HALF_MARGIN_BITS = 130


class _PrivateKeyMessage(Message, name="paillier/private-key.1"):
    p: Annotated[int, Limit(257)]
    q: Annotated[int, Limit(257)]


class _Half(Secret):
    """Decryption modulo one of the two primes."""

    __slots__ = ("_prime", "_scale", "_square")

    def __init__(self, prime: mpz, other: mpz) -> None:
        self._prime, self._square = prime, prime * prime
        # L((1 + n)^(p-1) mod p^2) = (p - 1) q = -q mod p with L(x) = (x - 1) / p: divide by it.
        self._scale = gmpy2.invert(-other, prime)

    def read(self, ciphertexts: Sequence[mpz]) -> list[mpz]:
        """Return each m modulo the prime: L(c^(p-1) mod p^2) / L((1 + n)^(p-1) mod p^2)."""
        prime, scale = self._prime, self._scale
        powers = gmpy2.powmod_base_list(list(ciphertexts), prime - 1, self._square)
        return [(power - 1) // prime * scale % prime for power in powers]


class PrivateKey(Secret):
    """The factors p, q of n."""

    __slots__ = ("_halves", "_p", "_q", "_q_inverse", "public")

    def __init__(self, p: int, q: int, *, insecure: bool = False) -> None:
        """Check the factors and prepare decryption."""
        p, q = mpz(p), mpz(q)
        if p == q or p.bit_length() != q.bit_length() or not (gmpy2.is_prime(p) and gmpy2.is_prime(q)):
            raise InputError("a private key consists of two different primes of equal length.")
        if p % 4 != 3 or q % 4 != 3 or gmpy2.gcd(p - 1, q - 1) != 2:
            raise InputError("the primes of a private key must be 3 modulo 4 and have gcd(p - 1, q - 1) = 2.")
        self.public = PublicKey(int(p * q), insecure=insecure)
        self._p, self._q = p, q
        self._q_inverse = gmpy2.invert(q, p)
        self._halves = (_Half(p, q), _Half(q, p))

    def __repr__(self) -> str:
        return f"<Paillier private key {self.public.short_fingerprint}, {self.public.bits} bits, hidden>"

    def decrypt(
        self,
        ciphertexts: Ciphertexts,
        *,
        bound: int | None = None,
        threads: int | None = None,
        progress: Progress = silent,
    ) -> list[int]:
        """Return the hidden integers; one beyond `bound` in absolute value raises `MessageError` and releases none.

        A `bound` that leaves 130 bits of p free halves the work: m mod p is then m itself, while a forged m (chosen to
        learn p from m mod p, as with Okamoto-Uchiyama) lands within the bound with probability below 2^-128.
        """
        if ciphertexts.key != self.public:
            raise InputError(f"these ciphertexts are under {ciphertexts.key!r}; this is {self!r}.")
        half = bound is not None and bound.bit_length() + _HALF_MARGIN_BITS <= self._p.bit_length()
        residues = self._residues(ciphertexts.values, self._halves[: 1 if half else 2], threads, progress)
        modulus = self._p if half else mpz(self.public.n)
        numbers = residues[0] if half else [self._combine(*pair) for pair in zip(*residues, strict=True)]
        centred = [int(m if 2 * m < modulus else m - modulus) for m in numbers]
        if bound is not None and any(abs(m) > bound for m in centred):
            raise MessageError("a decrypted number is beyond its bound: a contribution overflowed or was forged.")
        return centred

    def secret_bytes(self) -> bytes:
        """Return the key as a message, for the owner's own storage; `save` writes it with mode 0600."""
        return encode(_PrivateKeyMessage(int(self._p), int(self._q)))

    @classmethod
    def from_secret_bytes(cls, data: bytes, *, insecure: bool = False) -> "PrivateKey":
        """Read what `secret_bytes` wrote."""
        message = decode(data, _PrivateKeyMessage, max_bytes=4096)
        return cls(message.p, message.q, insecure=insecure)

    def save(self, path: Path) -> None:
        """Write the key to a file only its owner can read."""
        with atomic_writer(path, private=True) as stream:
            stream.write(self.secret_bytes())

    @classmethod
    def load(cls, path: Path, *, insecure: bool = False) -> "PrivateKey":
        """Read a key file, which must be readable by its owner alone."""
        with storage_errors("read", path), path.open("rb") as stream:
            mode, data = os.fstat(stream.fileno()).st_mode, stream.read(4097)
        if mode & 0o077:
            raise StorageError(f"others can read the private key {path}. Run: chmod 600 {path}")
        try:
            return cls.from_secret_bytes(data, insecure=insecure)
        except MessageError as error:
            raise CorruptFileError(f"{path} is not a private key: {error}") from error

    def _residues(
        self, values: Sequence[mpz], halves: Sequence[_Half], threads: int | None, progress: Progress
    ) -> list[list[mpz]]:
        """Return all m modulo each prime; gmpy2 releases the interpreter's lock for a list of powers."""
        chunks = [values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK)]
        work = [(index, chunk) for index in range(len(halves)) for chunk in chunks]
        residues: list[list[mpz]] = [[] for _ in halves]
        with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
            for (index, _), found in zip(work, pool.map(lambda item: halves[item[0]].read(item[1]), work), strict=True):
                residues[index] += found
                progress("decrypting", sum(map(len, residues)), len(halves) * len(values))
        return residues

    def _combine(self, mod_p: mpz, mod_q: mpz) -> mpz:
        return mod_q + self._q * ((mod_p - mod_q) * self._q_inverse % self._p)


def generate_keys(bits: int = 3072, *, insecure: bool = False, source: ByteSource = system_bytes) -> PrivateKey:
    """Make a new key pair; the public half is ``.public``."""
    check_key_bits(bits, insecure=insecure)
    return PrivateKey(*draw_prime_pair(bits, source), insecure=insecure)
