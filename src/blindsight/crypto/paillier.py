"""Paillier encryption of whole vectors: whoever holds the public key can encrypt and add, only the private key reads.

A ciphertext hides its integer under the decisional composite residuosity assumption; the product of two ciphertexts is
a ciphertext of the sum; nobody can tell two ciphertexts of the same number from ciphertexts of different ones. It is
malleable by design: anyone may add to a sum, so contributions must be signed (`signing`).

P. Paillier, Eurocrypt 1999, in the form of I. Damgard, M. Jurik and J. B. Nielsen, "A generalization of Paillier's
public-key system with applications to electronic voting", Int. J. of Information Security 9 (2010), with s = 1:
c = (1 + m n) h_s^r mod n^2 (see `randomiser` for h_s and r). As g = n + 1, any textbook Paillier decrypts it.
Plaintexts are centred: |m| <= (n - 1) / 2. This is the public side; `privatekey` reads.

DPHE (Yonetani et al., ICCV 2017, section 2.2) writes zeta(w) for a ciphertext and (g, T) for the key: T is `n` here.
The paper's experiments use 1024 bits, which is too short: here that needs ``insecure=True``.
"""

import hashlib
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Annotated, Any

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from blindsight.crypto.randomiser import randomiser
from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, system_bytes

KEY_BITS = (2048, 3072, 4096)
INSECURE_KEY_BITS = 1024

_SMALL_PRIMES = gmpy2.primorial(2000)
_ENCRYPT_CHUNK = 512


class _PublicKeyMessage(Message, name="paillier/public-key.1"):
    n: Annotated[int, Limit(513)]


@dataclass(frozen=True, repr=False)
class PublicKey:
    """The modulus n: encrypts and adds. Two keys with the same n are equal and share their window table."""

    n: int
    insecure: bool = field(default=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        check_key_bits(self.bits, insecure=self.insecure)
        n = mpz(self.n)
        if n < 0 or n % 4 != 1 or gmpy2.gcd(n, _SMALL_PRIMES) != 1 or gmpy2.is_power(n) or gmpy2.is_prime(n):
            raise InputError("the modulus is not a product of two large primes that are 3 modulo 4.")

    def __repr__(self) -> str:
        return f"<Paillier public key {self.short_fingerprint}, {self.bits} bits>"

    @property
    def bits(self) -> int:
        """The length of n."""
        return self.n.bit_length()

    @property
    def width(self) -> int:
        """Bytes of one ciphertext."""
        return self.bits // 4

    @property
    def max_plaintext(self) -> int:
        """The largest absolute value that can be encrypted, and that a sum may reach."""
        return (self.n - 1) // 2

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key's bytes, in hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def short_fingerprint(self) -> str:
        """The first 64 bits of the fingerprint, for people."""
        return "-".join(self.fingerprint[i : i + 4] for i in range(0, 16, 4))

    def to_bytes(self) -> bytes:
        """Return the key as a message."""
        return encode(_PublicKeyMessage(self.n))

    @classmethod
    def from_bytes(cls, data: bytes, *, insecure: bool = False) -> "PublicKey":
        """Read a key that someone else sent; one that cannot be trusted raises `MessageError`."""
        n = decode(data, _PublicKeyMessage, max_bytes=4096).n
        try:
            return cls(n, insecure=insecure)
        except InputError as error:
            raise MessageError(f"the public key is not acceptable: {error}") from error

    def encrypt(
        self,
        values: Sequence[int] | NDArray[Any],
        *,
        source: ByteSource = system_bytes,
        pool: Executor | None = None,
        progress: Progress = silent,
    ) -> "Ciphertexts":
        """Encrypt integers, each under fresh randomness.

        A process `pool` pays from some thousand values on: each process makes its own window table, then the work
        divides (gmpy2 holds the interpreter's lock in single multiplications, so threads do not help). The
        result is the same without the pool, or when it breaks.
        """
        messages = _integers(values)
        limit = self.max_plaintext
        for index, message in enumerate(messages):
            if not -limit <= message <= limit:
                raise InputError(f"value {index} does not fit a plaintext of {self.bits - 1} bits with sign.")
        exponents = randomiser(self.n).draw(len(messages), source)
        return Ciphertexts(self, tuple(self._masked(messages, exponents, pool, progress)))

    def encrypt_zeros(
        self, count: int, *, source: ByteSource = system_bytes, pool: Executor | None = None
    ) -> "Ciphertexts":
        """Return `count` different encryptions of zero."""
        return self.encrypt([0] * count, source=source, pool=pool)

    def rerandomise(self, ciphertexts: "Ciphertexts", *, source: ByteSource = system_bytes) -> "Ciphertexts":
        """Return ciphertexts of the same numbers that cannot be linked with the given ones."""
        return ciphertexts + self.encrypt_zeros(len(ciphertexts), source=source)

    def _masked(
        self, messages: list[mpz], exponents: NDArray[np.uint8], pool: Executor | None, progress: Progress
    ) -> Iterator[mpz]:
        window = randomiser(self.n).plan(len(messages))
        slices = [slice(start, start + _ENCRYPT_CHUNK) for start in range(0, len(messages), _ENCRYPT_CHUNK)]
        work = [(self.n, messages[part], exponents[part], window) for part in slices]
        done = 0
        for chunk in _run(_mask_chunk, work, pool if len(work) > 1 else None):
            done += len(chunk)
            progress("encrypting", done, len(messages))
            yield from chunk


@dataclass(frozen=True, repr=False, eq=False)
class Ciphertexts:
    """A vector of ciphertexts under one key; `+` adds the hidden numbers element by element."""

    key: PublicKey
    values: tuple[mpz, ...]

    def __repr__(self) -> str:
        return f"<{len(self)} Paillier ciphertexts under {self.key.short_fingerprint}>"

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, places: slice | NDArray[np.int64]) -> "Ciphertexts":
        """Return those at `places`, in that order."""
        if isinstance(places, slice):
            return Ciphertexts(self.key, self.values[places])
        return Ciphertexts(self.key, tuple([self.values[place] for place in places.tolist()]))

    def __add__(self, other: "Ciphertexts") -> "Ciphertexts":
        return add_all([self, other])

    def __mul__(self, factor: int) -> "Ciphertexts":
        """Multiply every hidden number by a public whole number (zero and one leave recognisable ciphertexts)."""
        modulus = mpz(self.key.n) ** 2
        bases = list(self.values) if factor >= 0 else [gmpy2.invert(value, modulus) for value in self.values]
        return Ciphertexts(self.key, tuple(gmpy2.powmod_base_list(bases, abs(operator.index(factor)), modulus)))

    def to_matrix(self) -> NDArray[np.uint8]:
        """Return one row of `key.width` big-endian bytes per ciphertext."""
        rows = b"".join([value.to_bytes(self.key.width, "big") for value in self.values])
        return np.frombuffer(rows, dtype=np.uint8).reshape(len(self), self.key.width)

    @classmethod
    def from_matrix(cls, key: PublicKey, matrix: NDArray[np.uint8]) -> "Ciphertexts":
        """Read what `to_matrix` wrote; a row that is not a ciphertext under `key` raises `MessageError`."""
        if matrix.dtype != np.uint8 or matrix.ndim != 2 or matrix.shape[1] != key.width:
            raise MessageError(f"ciphertexts under a {key.bits}-bit key are rows of {key.width} bytes.")
        rows, width = matrix.tobytes(), key.width
        values = tuple([mpz.from_bytes(rows[i : i + width], "big") for i in range(0, len(rows), width)])
        n, product = mpz(key.n), mpz(1)
        modulus = n * n
        for index, value in enumerate(values):
            product = product * value % n
            if not 0 < value < modulus:
                raise MessageError(f"ciphertext {index} lies outside its range.")
        # One greatest common divisor for all: the product is coprime to n exactly if every factor is.
        if gmpy2.gcd(product, n) != 1:
            raise MessageError("a ciphertext shares a factor with the modulus.")
        return cls(key, values)


def check_key_bits(bits: int, *, insecure: bool = False) -> None:
    """Refuse key lengths that are too short to protect anything, or that nobody tested."""
    if bits in KEY_BITS or (insecure and bits == INSECURE_KEY_BITS):
        return
    remedy = " 1024 bits are for benchmarks only, with insecure=True." if bits == INSECURE_KEY_BITS else ""
    raise InputError(f"a Paillier key has 2048, 3072 or 4096 bits; got {bits}.{remedy}")


def add_all(vectors: Iterable[Ciphertexts]) -> Ciphertexts:
    """Add vectors element by element, one at a time as they come (Eq. 2 of DPHE)."""
    stream = iter(vectors)
    first = next(stream, None)
    if first is None:
        raise InputError("a sum needs at least one vector of ciphertexts.")
    total, modulus = list(first.values), mpz(first.key.n) ** 2
    for vector in stream:
        if vector.key != first.key or len(vector) != len(first):
            raise InputError(f"cannot add {vector!r} to {first!r}.")
        total = [a * b % modulus for a, b in zip(total, vector.values, strict=True)]
    return Ciphertexts(first.key, tuple(total))


def _integers(values: Sequence[int] | NDArray[Any]) -> list[mpz]:
    numbers = values.tolist() if isinstance(values, np.ndarray) else values
    try:
        return [mpz(operator.index(number)) for number in numbers]
    except TypeError:
        raise InputError("Paillier encrypts a vector of whole numbers; encode fractions with FixedPoint.") from None


def _mask_chunk(n: int, messages: list[mpz], exponents: NDArray[np.uint8], window: int) -> list[mpz]:
    return randomiser(n).mask(messages, exponents, window=window)


def _run(function: Callable[..., list[mpz]], work: list[tuple[Any, ...]], pool: Executor | None) -> Iterator[list[mpz]]:
    """Yield function(*item) in order: from the pool as long as it lives, else from this process."""
    done = 0
    if pool is not None:
        try:
            for result in pool.map(function, *zip(*work, strict=True)):
                done += 1
                yield result
        except BrokenProcessPool:
            pass
    for item in work[done:]:
        yield function(*item)
