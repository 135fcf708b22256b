"""Exact integer sums under lattice encryption: BFV through TenSEAL, with 128 bits of security.

The public key encrypts and adds vectors of integers; the secret key reads their sum, exactly. Security
rests on ring-LWE (J. Fan and F. Vercauteren, ePrint 2012/144), not on factoring: quantum computers are no known threat.

Two parameter sets, chosen by the largest sum (`max_sum`) that must be told apart:

| sums up to | ring degree = slots | plain modulus t | ciphertext modulus q | bytes per value |
| --- | --- | --- | --- | --- |
| 2^31 | 4096 | 33 bits | 64 bits (97 with the key's prime; 109 allowed for 128-bit security) | 17 |
| 2^58 | 8192 | 60 bits | 100 bits (151 with the key's prime; 218 allowed) | 30 |

    Claim. A sum of N encryptions of vectors with |v| <= V decrypts exactly if 2 N V < t and N <= `MAX_TERMS`.
    Proof. Plaintexts are residues modulo the prime t; |sum| <= N V <= (t - 1) / 2 is recovered from its residue. A
    fresh ciphertext's error is below 2^6 d for degree d: e u + e' + e'' s with ternary u, s and SEAL's error terms of
    at most 21 gives 21 (2 d + 1), and rounding gives less than d. N of them add to less than N 2^6 d, and decryption
    is right while that is below q / (2 t) - 1. With q > 2^62, t < 2^33, d = 2^12 this allows N = 2^10 (and with
    q > 2^98, t < 2^60, d = 2^13 even 2^18). []

Randomness comes from SEAL's own generator, seeded by the operating system. Whatever TenSEAL reads from others is
bounded in size and its parameters are compared with these before use.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import Limit, Message, Secret, decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.extras import require

MAX_TERMS = 1024


@dataclass(frozen=True)
class Parameters:
    """One row of the table above."""

    degree: int
    plain_modulus: int
    modulus_bits: tuple[int, ...]

    @property
    def max_sum(self) -> int:
        return (self.plain_modulus - 1) // 2

    @property
    def max_bytes(self) -> int:
        return 2 * self.degree * 8 * (len(self.modulus_bits) - 1) + 4096


# The plain moduli are the smallest primes above 2^32 and 2^59 that are 1 modulo 2^14, as batching needs.
PARAMETERS = (
    Parameters(4096, 4295049217, (32, 32, 33)),
    Parameters(8192, 576460752303439873, (50, 50, 51)),
)


class _PublicKeyMessage(Message, name="bfv/public-key.1"):
    context: Annotated[bytes, Limit(1 << 20)]


class _SecretKeyMessage(Message, name="bfv/secret-key.1"):
    context: Annotated[bytes, Limit(1 << 21)]
    public: Annotated[bytes, Limit(1 << 20)]


class _VectorMessage(Message, name="bfv/vector.1"):
    count: int
    terms: int
    parts: tuple[bytes, ...]


@dataclass(frozen=True, eq=False, repr=False)
class PublicKey:
    """Encrypts and adds."""

    parameters: Parameters
    _context: Any
    _data: bytes

    def __repr__(self) -> str:
        return f"<BFV public key {self.fingerprint[:16]}, degree {self.parameters.degree}>"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the key's bytes, in hexadecimal."""
        return hashlib.sha256(self._data).hexdigest()

    def encrypt(self, values: NDArray[np.int64], *, terms: int) -> "EncryptedVector":
        """Encrypt integers that will be added with `terms` - 1 further such vectors."""
        values = np.asarray(values)
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InputError(f"BFV encrypts a vector of whole numbers; got {values.dtype} of shape {values.shape}.")
        limit = self.max_value(terms)
        outside = (values > limit) | (values < -limit)
        if outside.any():
            index = int(np.flatnonzero(outside)[0])
            raise InputError(
                f"value {index} is beyond +-{limit}, the most that {terms} terms may have. Clip or rescale."
            )
        tenseal, degree = _tenseal(), self.parameters.degree
        parts = [tenseal.bfv_vector(self._context, values[i : i + degree]) for i in range(0, len(values), degree)]
        return EncryptedVector(self, len(values), 1, tuple(parts))

    def max_value(self, terms: int) -> int:
        """Return the largest V such that `terms` vectors within it add exactly."""
        if not 1 <= terms <= MAX_TERMS:
            raise InputError(f"a BFV sum has 1 to {MAX_TERMS} terms; got {terms}.")
        return self.parameters.max_sum // terms

    def to_bytes(self) -> bytes:
        """Return the key as a message; the secret part is not in it."""
        return self._data

    @classmethod
    def from_bytes(cls, data: bytes) -> "PublicKey":
        """Read a key that someone else sent; all who hold the same one in a process share what was read."""
        return _read_public_key(data)

    def read_vector(self, data: bytes) -> "EncryptedVector":
        """Read an encrypted vector that someone else sent."""
        message = decode(data, _VectorMessage)
        degree, count = self.parameters.degree, message.count
        if count < 0 or not 1 <= message.terms <= MAX_TERMS or len(message.parts) != -(-count // degree):
            raise MessageError("the encrypted vector's length and terms do not fit its parts.")
        starts = range(0, count, degree)
        parts = [self._read_part(data, min(degree, count - i)) for data, i in zip(message.parts, starts, strict=True)]
        return EncryptedVector(self, count, message.terms, tuple(parts))

    def _read_part(self, data: bytes, size: int) -> Any:
        if len(data) > self.parameters.max_bytes:
            raise MessageError(f"a BFV ciphertext takes at most {self.parameters.max_bytes} bytes; got {len(data)}.")
        with hostile("a part of the encrypted vector is not a BFV ciphertext under this key."):
            part = _tenseal().bfv_vector_from(self._context, data)
            whole = part.size() == size and [(c.size(), c.is_transparent()) for c in part.ciphertext()] == [(2, False)]
        if not whole:
            raise MessageError("a part of the encrypted vector has the wrong length or hides nothing.")
        return part


@dataclass(frozen=True, eq=False, repr=False)
class EncryptedVector:
    """Integers under BFV; `terms` counts the encryptions that were added up in it."""

    key: PublicKey
    count: int
    terms: int
    parts: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"<{self.count} integers under BFV, {self.terms} terms>"

    def __len__(self) -> int:
        return self.count

    def __add__(self, other: "EncryptedVector") -> "EncryptedVector":
        return add_all([self, other])

    def to_bytes(self) -> bytes:
        return encode(_VectorMessage(self.count, self.terms, tuple([part.serialize() for part in self.parts])))


class SecretKey(Secret):
    """Reads sums; `public` is what the others need."""

    __slots__ = ("_context", "public")

    def __init__(self, context: Any, public: PublicKey) -> None:
        self._context, self.public = context, public

    def decrypt(self, vector: EncryptedVector) -> NDArray[np.int64]:
        """Return the hidden integers."""
        if vector.key.fingerprint != self.public.fingerprint:
            raise InputError(f"this vector is under {vector.key!r}; the secret key belongs to {self.public!r}.")
        key = self._context.secret_key()
        parts = [np.array(part.decrypt(key), dtype=np.int64) for part in vector.parts]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def secret_bytes(self) -> bytes:
        """Return the key as a message, for the owner's own storage (mode 0600)."""
        return encode(_SecretKeyMessage(_context_bytes(self._context, secret=True), self.public.to_bytes()))

    @classmethod
    def from_secret_bytes(cls, data: bytes) -> "SecretKey":
        message = decode(data, _SecretKeyMessage)
        return cls(_read_context(message.context, secret=True)[1], PublicKey.from_bytes(message.public))


@lru_cache(maxsize=8)  # reading takes 17 ms, and all members of a run in one process have the same key
def _read_public_key(data: bytes) -> PublicKey:
    return PublicKey(*_read_context(decode(data, _PublicKeyMessage).context), data)


def parameters_for(max_sum: int) -> Parameters:
    """Return the smallest parameters for sums of at most `max_sum` in absolute value."""
    parameters = next((known for known in PARAMETERS if max_sum <= known.max_sum), None)
    if parameters is None:
        raise InputError(f"BFV sums reach at most {PARAMETERS[-1].max_sum}; got {max_sum}. Use fewer fraction bits.")
    return parameters


def generate_keys(*, max_sum: int) -> SecretKey:
    """Make a key pair for sums of at most `max_sum` in absolute value."""
    tenseal, parameters = _tenseal(), parameters_for(max_sum)
    context = tenseal.context(
        tenseal.SCHEME_TYPE.BFV,
        poly_modulus_degree=parameters.degree,
        plain_modulus=parameters.plain_modulus,
        coeff_mod_bit_sizes=list(parameters.modulus_bits),
        n_threads=1,
    )
    public = encode(_PublicKeyMessage(_context_bytes(context, secret=False)))
    return SecretKey(context, PublicKey.from_bytes(public))


def add_all(vectors: Iterable[EncryptedVector]) -> EncryptedVector:
    """Add vectors, one at a time as they come."""
    stream = iter(vectors)
    first = next(stream, None)
    if first is None:
        raise InputError("a sum needs at least one encrypted vector.")
    total: list[Any] = []
    terms = first.terms
    for vector in stream:
        if vector.key.fingerprint != first.key.fingerprint or vector.count != first.count:
            raise InputError(f"cannot add {vector!r} to {first!r}.")
        terms += vector.terms
        if terms > MAX_TERMS:
            raise InputError(f"a BFV sum has at most {MAX_TERMS} terms; got {terms}.")
        with hostile("an encrypted vector was made to cancel the others: the sum hides nothing."):
            if total:
                for place, part in zip(total, vector.parts, strict=True):
                    place.add_(part)
            else:  # the first addition makes parts of our own, the further ones grow them in place
                total = [left + right for left, right in zip(first.parts, vector.parts, strict=True)]
    return EncryptedVector(first.key, first.count, terms, tuple(total or first.parts))


def _tenseal() -> Any:
    require("tenseal.sealapi", extra="he", purpose="lattice encryption (BFV)")  # registers the types of the parameters
    return require("tenseal", extra="he", purpose="lattice encryption (BFV)")


@contextmanager
def hostile(sentence: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, TypeError) as error:
        raise MessageError(sentence) from error


def _context_bytes(context: Any, *, secret: bool) -> bytes:
    data: bytes = context.serialize(save_secret_key=secret, save_galois_keys=False, save_relin_keys=False)
    return data


def _read_context(data: bytes, *, secret: bool = False) -> tuple[Parameters, Any]:
    """Return a context whose parameters are among ours; a hostile one could choose weaker ones."""
    with hostile("the key is not a BFV key."):
        context = _tenseal().context_from(data, n_threads=1)
        chosen = context.seal_context().data.key_context_data().parms()
        degree, plain = chosen.poly_modulus_degree(), chosen.plain_modulus().value()
        bits = tuple(modulus.value().bit_length() for modulus in chosen.coeff_modulus())
        usable = context.has_public_key() and context.has_secret_key() == secret
    if not usable or Parameters(degree, plain, bits) not in PARAMETERS:
        raise MessageError("the key has other BFV parameters than the ones agreed, or lacks a part.")
    return Parameters(degree, plain, bits), context
