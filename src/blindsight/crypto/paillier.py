"""Paillier encryption of vectors: anyone with the public key can encrypt and add, only the private key decrypts.

A ciphertext hides its integer under the decisional composite residuosity assumption; the product of two ciphertexts is
a ciphertext of the sum; nobody can tell two ciphertexts of the same number from ciphertexts of different ones. It is
malleable by design: anyone may add to a sum, so contributions must be signed (`signing`).

P. Paillier, Eurocrypt 1999, in the form of I. Damgard, M. Jurik and J. B. Nielsen (DJN), "A generalization of
Paillier's public-key system with applications to electronic voting", Int. J. of Information Security 9 (2010), s = 1:

    c = (1 + m n) h_s^r mod n^2,   x = SHAKE-256(n) mod n,   h = -x^2 mod n,   h_s = h^n mod n^2

As g = n + 1, any textbook Paillier decrypts it. Plaintexts are centred: |m| <= (n - 1) / 2. Keys are of two kinds:

*Conservative.* The formulas above; the base follows from the modulus alone, it is not part of a key and cannot carry a
trapdoor. The exponent r has ceil(|n| / 2) uniform bits and hides the message if n, whose primes are 3 modulo 4, admits
the assumption above and h^r mod n with such an r cannot be told from a random element of its group (DJN).

*Subgroup* (the default: about 4 times faster to decrypt at 2048 bits, 6 times at 3072). p = 2 a p' + 1, q = 2 b q' + 1
with primes a, b of 256 bits and primes p', q'; h = x^(2 p' q') mod n has the order a b and is part of the public key; r
has 512 uniform bits (Paillier 1999, section 6, the third scheme; H. Ma, S. Han and H. Lei, "Optimized Paillier's
cryptosystem with fast encryption and decryption", ACSAC 2021). The assumption is stronger: that h^r mod n with such an
r cannot be told from a random square, although everybody knows h (Paillier's D-PDL problem; the subgroup assumption of
J. Groth, TCC 2005). What is known against it:

    generic          the order of h modulo p is found in about sqrt(a) = 2^128 steps and as much memory (Coron, Joux,
                     Mandal, Naccache and Tibouchi, PKC 2011), which factors n: hence 256 bits. A modulus beyond
                     3072 bits adds nothing to that; conservative keys do
    lattices         a common factor of p - 1 and q - 1 would divide n - 1 (McKee and Pinch 1998): gcd(p-1, q-1) = 2.
                     a b divides n + 1 - (p + q), and an approximate divisor n^beta is found if |p + q| < n^(beta^2)
                     (Howgrave-Graham 2001): beta > 0.7, against 0.25 at 2048 bits and 0.17 at 3072. Whoever knows a
                     has p = gcd(h^a - 1, n) at once; there is no need for Coppersmith's bound (1997), a > n^(1/4)
    p - 1 method     needs every prime factor of p - 1 to be small; they are 2, a and p'

Nobody can check the order of h from outside. A key generator that publishes a base of small order lets everyone read
what is encrypted with it; as it can read that itself, and could hand out p, it gains nothing that it could not do
anyway, and must be trusted with both. Bases of very small order modulo p or q are refused.

Decryption is by Chinese remainders: c^e mod p^2 gives m mod p, likewise for q (Paillier 1999, section 7), in chunks on
threads, with e = p - 1, or e = a in subgroup keys:

    Claim. With a subgroup key, a number is either decrypted as textbook Paillier does or refused.
    Proof. Every unit modulo n^2 is c = (1 + m n) x^n with one m and one x modulo n. c^a = x^(n a) modulo p, which is 1
    exactly if x^a = 1, as n is prime to p - 1. If so, x^(n a) = 1 modulo p^2, too, and c^a = 1 + a m n: L gives a m q
    modulo p. If not, c^a - 1 is no multiple of p, and nothing is released. []

So a contributor whose mask lies outside the subgroup has the decryption refused, as one who exceeds a bound has, and
never a wrong sum. What is accepted tells whether x is in the subgroup that h generates: whoever made x out of h and
public numbers knows that beforehand. Where a bound on |m| is known, numbers beyond it are never released, and a small
bound halves the work.

DPHE (Yonetani et al., ICCV 2017, section 2.2) writes zeta(w) for a ciphertext and (g, T) for the key: T is `n` here.
The paper's experiments use 1024 bits, which is too short: here that needs ``insecure=True``.

Arithmetic is not constant-time: an enemy who can time this machine closely is outside the model.
"""

import hashlib
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from blindsight.crypto.wire import Limit, Message, Secret, decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, StorageError, UnknownNameError
from blindsight.files import AnyPath, as_path, atomic_writer, storage_errors
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, system_bytes

KEY_BITS = (2048, 3072, 4096)
INSECURE_KEY_BITS = 1024
SUBGROUP_BITS = 256
Keys = Literal["subgroup", "conservative"]

_SMALL_PRIMES = gmpy2.primorial(2000)  # the product of the 303 primes below 2000
_FEW_PRIMES = gmpy2.primorial(53)
_PRIMALITY_ROUNDS = 64
_ORDERS_AT_ONCE = 256
_ENCRYPT_CHUNK = 512
_DECRYPT_CHUNK = 32
_HALF_MARGIN_BITS = 130

_BASE_LABEL, _SUBGROUP_LABEL = b"blindsight paillier base 1\0", b"blindsight paillier subgroup 1\0"
# After so many masks a table with so many bits per window has paid for itself (measured at 2048 and 3072 bits).
_WINDOWS = ((6000, 10), (800, 8), (16, 6))
_MAX_TABLE_BYTES = 160 * 10**6
# Entry count times 2 halves, each an integer object (32 bytes) with its limbs (rounded up by the allocator).
_OBJECT_BYTES = 48


class _PublicKeyMessage(Message, name="paillier/public-key.2"):
    n: Annotated[int, Limit(513)]
    h: Annotated[int, Limit(513)]  # 0 in a conservative key


@dataclass(frozen=True, repr=False)
class PublicKey:
    """The modulus n, and the base h of a subgroup key: encrypts and adds. Equal keys share their window table."""

    n: int
    h: int | None = None
    insecure: bool = field(default=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        check_key_bits(self.bits, insecure=self.insecure)
        n = mpz(self.n)
        if n < 0 or n % 4 != 1 or gmpy2.gcd(n, _SMALL_PRIMES) != 1 or gmpy2.is_power(n) or gmpy2.is_prime(n):
            raise InputError("the modulus is not a product of two large primes that are 3 modulo 4.")
        if self.h is not None and not _is_base(mpz(self.h), n):
            raise InputError("the base of a subgroup key must be a unit below n, of Jacobi symbol 1 and large order.")

    def __repr__(self) -> str:
        return f"<Paillier public key {self.short_fingerprint}, {self.bits} bits>"

    @property
    def keys(self) -> Keys:
        return "conservative" if self.h is None else "subgroup"

    @property
    def bits(self) -> int:
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
        return encode(_PublicKeyMessage(self.n, self.h or 0))

    @classmethod
    def from_bytes(cls, data: bytes, *, insecure: bool = False) -> "PublicKey":
        """Read a key that someone else sent; one that cannot be trusted raises `MessageError`."""
        message = decode(data, _PublicKeyMessage, max_bytes=4096)
        try:
            return cls(message.n, message.h or None, insecure=insecure)
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

        A process `pool` pays from some thousand values on: each process makes its own window table (gmpy2 holds the
        interpreter's lock in single multiplications, so threads do not help). The result is the same without the pool,
        or when it breaks.
        """
        messages = _integers(values)
        limit = self.max_plaintext
        for index, message in enumerate(messages):
            if not -limit <= message <= limit:
                raise InputError(f"value {index} does not fit a plaintext of {self.bits - 1} bits with sign.")
        exponents = randomiser(self.n, self.h).draw(len(messages), source)
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
        window = randomiser(self.n, self.h).plan(len(messages))
        slices = [slice(start, start + _ENCRYPT_CHUNK) for start in range(0, len(messages), _ENCRYPT_CHUNK)]
        work = [(self.n, self.h, messages[part], exponents[part], window) for part in slices]
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


class EncryptedSum:
    """Running sum of sparse encrypted vectors of `size` numbers: memory for one vector, however many contribute.

    DPHE, Eqs. 4-6: each contribution names its places, its ciphertexts are multiplied in there, and all other places
    count as zero; `counts` says how many contributions touched each place. The paper puts one and the same Enc(0)
    everywhere else, so that the result shows the union of the supports. Here `total` gives every untouched place an
    Enc(0) of its own.
    """

    def __init__(self, key: PublicKey, size: int) -> None:
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


class _PrivateKeyMessage(Message, name="paillier/private-key.2"):
    p: Annotated[int, Limit(257)]
    q: Annotated[int, Limit(257)]
    a: Annotated[int, Limit(33)]  # 0 in a conservative key, and so is b
    b: Annotated[int, Limit(33)]


class _Half(Secret):
    """Decryption modulo one of the two primes, with an exponent e that removes every mask."""

    __slots__ = ("_exponent", "_prime", "_scale", "_square")

    def __init__(self, prime: mpz, other: mpz, exponent: mpz) -> None:
        self._prime, self._square, self._exponent = prime, prime * prime, exponent
        # L((1 + n)^e mod p^2) = e q mod p with L(x) = (x - 1) / p: divide by it.
        self._scale = gmpy2.invert(exponent * other, prime)

    def read(self, ciphertexts: Sequence[mpz]) -> list[mpz]:
        """Return each m modulo the prime: L(c^e mod p^2) / L((1 + n)^e mod p^2)."""
        prime, scale = self._prime, self._scale
        found = []
        for power in gmpy2.powmod_base_list(list(ciphertexts), self._exponent, self._square):
            quotient, rest = gmpy2.f_divmod(power - 1, prime)
            if rest:
                raise MessageError("a ciphertext was not made with this key's base: it was forged, or is not ours.")
            found.append(quotient * scale % prime)
        return found


class PrivateKey(Secret):
    """The factors p, q of n, and in a subgroup key the primes a, b that divide p - 1 and q - 1."""

    __slots__ = ("_halves", "_orders", "_p", "_q", "_q_inverse", "public")

    def __init__(self, p: int, q: int, orders: tuple[int, int] | None = None, *, insecure: bool = False) -> None:
        """Check the factors and prepare decryption; `orders` are (a, b)."""
        p, q = mpz(p), mpz(q)
        if p == q or p.bit_length() != q.bit_length() or not (gmpy2.is_prime(p) and gmpy2.is_prime(q)):
            raise InputError("a private key consists of two different primes of equal length.")
        if p % 4 != 3 or q % 4 != 3 or gmpy2.gcd(p - 1, q - 1) != 2:
            raise InputError("the primes of a private key must be 3 modulo 4 and have gcd(p - 1, q - 1) = 2.")
        self._orders = None if orders is None else (mpz(orders[0]), mpz(orders[1]))
        self.public = PublicKey(int(p * q), _subgroup_base(p, q, self._orders), insecure=insecure)
        self._p, self._q = p, q
        self._q_inverse = gmpy2.invert(q, p)
        e, f = self._orders or (p - 1, q - 1)
        self._halves = (_Half(p, q, e), _Half(q, p, f))

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

        So does, under a subgroup key, a ciphertext that was not made with the key's base.

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
        a, b = self._orders or (0, 0)
        return encode(_PrivateKeyMessage(int(self._p), int(self._q), int(a), int(b)))

    @classmethod
    def from_secret_bytes(cls, data: bytes, *, insecure: bool = False) -> "PrivateKey":
        message = decode(data, _PrivateKeyMessage, max_bytes=4096)
        orders = (message.a, message.b) if message.a or message.b else None
        return cls(message.p, message.q, orders, insecure=insecure)

    def save(self, path: AnyPath) -> None:
        """Write the key to a file only its owner can read."""
        with atomic_writer(as_path(path), private=True) as stream:
            stream.write(self.secret_bytes())

    @classmethod
    def load(cls, path: AnyPath, *, insecure: bool = False) -> "PrivateKey":
        """Read a key file, which must be readable by its owner alone."""
        path = as_path(path)
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
        chunks = [values[start : start + _DECRYPT_CHUNK] for start in range(0, len(values), _DECRYPT_CHUNK)]
        work = [(index, chunk) for index in range(len(halves)) for chunk in chunks]
        residues: list[list[mpz]] = [[] for _ in halves]
        with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
            for (index, _), found in zip(work, pool.map(lambda item: halves[item[0]].read(item[1]), work), strict=True):
                residues[index] += found
                progress("decrypting", sum(map(len, residues)), len(halves) * len(values))
        return residues

    def _combine(self, mod_p: mpz, mod_q: mpz) -> mpz:
        return mod_q + self._q * ((mod_p - mod_q) * self._q_inverse % self._p)


def check_key_bits(bits: int, *, insecure: bool = False) -> None:
    """Refuse key lengths that are too short to protect anything, or that nobody tested."""
    if bits in KEY_BITS or (insecure and bits == INSECURE_KEY_BITS):
        return
    remedy = " 1024 bits are for benchmarks only, with insecure=True." if bits == INSECURE_KEY_BITS else ""
    raise InputError(f"a Paillier key has 2048, 3072 or 4096 bits; got {bits}.{remedy}")


def generate_keys(
    bits: int = 3072, *, keys: Keys = "subgroup", insecure: bool = False, source: ByteSource = system_bytes
) -> PrivateKey:
    """Make a new key pair; the public half is ``.public``. For the two kinds of `keys` see above."""
    check_key_bits(bits, insecure=insecure)
    check_keys(keys)
    if keys == "conservative":
        return PrivateKey(*draw_prime_pair(bits, source), insecure=insecure)
    (p, a), (q, b) = draw_subgroup_pair(bits, source)
    return PrivateKey(p, q, (a, b), insecure=insecure)


def check_keys(keys: str) -> None:
    if keys not in get_args(Keys):
        raise UnknownNameError("kind of Paillier keys", keys, get_args(Keys))


def draw_prime(bits: int, source: ByteSource = system_bytes, *, highest: int = 0b11, lowest: int = 0b11) -> mpz:
    """Draw a prime of exactly `bits` bits with these bits set; by default the two highest, and 3 modulo 4.

    Each candidate is a fresh draw from the operating system (no search upwards from one draw, which would favour primes
    after long gaps). A product of small primes sieves; the survivors pass a Fermat-type screen and then Baillie-PSW
    with further Miller-Rabin rounds (Menezes, van Oorschot and Vanstone, Handbook of Applied Cryptography, 4.2-4.4).

    >>> prime = draw_prime(64)
    >>> prime.bit_length(), int(prime % 4)
    (64, 3)
    """
    edges = (mpz(highest) << (bits - highest.bit_length())) | lowest
    while True:
        candidate = mpz.from_bytes(source(-(-bits // 8)), "big") >> (-bits % 8) | edges
        if _is_plausible(candidate) and gmpy2.is_prime(candidate, _PRIMALITY_ROUNDS):
            return candidate


def draw_prime_pair(bits: int, source: ByteSource = system_bytes) -> tuple[mpz, mpz]:
    """Draw distinct primes p, q of bits / 2 each with gcd(p - 1, q - 1) = 2; their product has exactly `bits` bits."""
    p = draw_prime(bits // 2, source)
    while True:
        q = draw_prime(bits // 2, source)
        if _fit(p, q):
            return p, q


def draw_subgroup_prime(bits: int, source: ByteSource = system_bytes) -> tuple[mpz, mpz]:
    """Draw (p, a): a prime p = 2 a p' + 1 of exactly `bits` bits, the two highest 1, with primes a and p'.

    p' is drawn once, from the upper eighth of its range, then a until p is prime and long enough.

    >>> p, a = draw_subgroup_prime(512)
    >>> p.bit_length(), a.bit_length(), int((p - 1) % (2 * a))
    (512, 256, 0)
    """
    double = 2 * draw_prime(bits - SUBGROUP_BITS - 1, source, highest=0b111, lowest=1)
    size, edges = SUBGROUP_BITS // 8, (mpz(3) << (SUBGROUP_BITS - 2)) | 1
    while True:
        drawn = source(size * _ORDERS_AT_ONCE)
        for start in range(0, len(drawn), size):
            order = mpz.from_bytes(drawn[start : start + size], "big") | edges
            if gmpy2.gcd(order * (double % _FEW_PRIMES * order + 1), _FEW_PRIMES) != 1:
                continue
            p = double * order + 1
            plausible = p >> (bits - 2) == 3 and _is_plausible(order) and _is_plausible(p)
            if plausible and gmpy2.is_prime(order, _PRIMALITY_ROUNDS) and gmpy2.is_prime(p, _PRIMALITY_ROUNDS):
                return p, order


def draw_subgroup_pair(bits: int, source: ByteSource = system_bytes) -> tuple[tuple[mpz, mpz], tuple[mpz, mpz]]:
    """Draw (p, a) and (q, b) for a subgroup key of exactly `bits` bits."""
    first = draw_subgroup_prime(bits // 2, source)
    while True:
        second = draw_subgroup_prime(bits // 2, source)
        if _fit(first[0], second[0]):
            return first, second


def _is_plausible(candidate: mpz) -> bool:
    return bool(gmpy2.gcd(candidate, _SMALL_PRIMES) == 1 and gmpy2.is_strong_prp(candidate, 2))


def _fit(p: mpz, q: mpz) -> bool:
    # Primes closer than 2^(bits/2 - 100) could be found by Fermat's method; chance alone does not bring that about.
    return bool(abs(p - q).bit_length() > p.bit_length() - 100 and gmpy2.gcd(p - 1, q - 1) == 2)


def _subgroup_base(p: mpz, q: mpz, orders: tuple[mpz, mpz] | None) -> int | None:
    """Return h = x^(2 p' q') mod n, of order a b, with x from n by hashing; None for a conservative key."""
    if orders is None:
        return None
    for prime, order in zip((p, q), orders, strict=True):
        cofactor, rest = gmpy2.f_divmod(prime - 1, 2 * order) if order > 0 else (mpz(0), mpz(1))
        if rest or order.bit_length() != SUBGROUP_BITS or not (gmpy2.is_prime(order) and gmpy2.is_prime(cofactor)):
            raise InputError(
                f"the primes of a subgroup key are 2 a p' + 1 with primes a of {SUBGROUP_BITS} bits and p'."
            )
    n = p * q
    exponent = (p - 1) * (q - 1) // (2 * orders[0] * orders[1])  # 2 p' q'
    return int(gmpy2.powmod(_hashed(_SUBGROUP_LABEL, n), exponent, n))


def _is_base(h: mpz, n: mpz) -> bool:
    """Tell whether h is a unit of Jacobi symbol 1 whose order modulo p or q is no product of primes up to 53."""
    if not 1 < h < n or gmpy2.gcd(h, n) != 1 or gmpy2.jacobi(h, n) != 1:
        return False
    return bool(gmpy2.gcd(gmpy2.powmod(h, _FEW_PRIMES, n) - 1, n) == 1)


def _hashed(label: bytes, n: mpz) -> mpz:
    bits = n.bit_length()
    data = label + int(n).to_bytes((bits + 7) // 8, "big")
    return mpz.from_bytes(hashlib.shake_256(data).digest(bits // 8 + 16), "big") % n


class FixedBase:
    """Fixed-base window table: g^r (1 + n m) modulo n^2 for exponents r of `exponent_bits` bits.

    The table holds g^(d * 2^(w j)) for every window j and digit d, so g^r is one product with a factor per window and
    no squaring (Brickell, Gordon, McCurley and Wilson, Eurocrypt 1992). Modulo n^2 the factors can be halved:

        every unit is e = a (1 + n t)  with  a = e mod n  and  t = ((e - a) / n) a^-1 mod n,
        and (1 + n s)(1 + n t) = 1 + n (s + t)  modulo n^2,

    so prod e_i = (prod a_i)(1 + n sum t_i): the product runs over numbers of half the length and the rest is a sum. A
    Paillier message m enters that sum for nothing, because it is the factor 1 + n m. Halving makes a power about 1.7
    times faster than the plain table, which takes the same memory.
    """

    __slots__ = ("_factors", "_logs", "_modulus", "_n", "window")

    def __init__(self, base: mpz, n: mpz, *, exponent_bits: int, window: int) -> None:
        """Build the table with three short multiplications per entry; the number of windows is made even."""
        self.window = window
        self._n, self._modulus = n, n * n
        self._factors: list[list[mpz]] = []
        self._logs: list[list[mpz]] = []
        for _ in range(_windows(exponent_bits, window)):
            factors, logs, base = _row(base, n, 1 << window)
            self._factors.append(factors)
            self._logs.append(logs)

    def powers(self, exponents: NDArray[np.uint8], messages: Sequence[mpz]) -> list[mpz]:
        """Return g^r (1 + n m) mod n^2 for each row r of `exponents` (little-endian bytes) and its m."""
        n, modulus, one = self._n, self._modulus, mpz(1)
        results = []
        for digits, message in zip(_digits(exponents, self.window, len(self._factors)), messages, strict=True):
            factors = map(operator.getitem, self._factors, digits)
            log = sum(map(operator.getitem, self._logs, digits), message)
            product = one
            for left, right in zip(factors, factors, strict=True):
                product = product * (left * right) % modulus
            # (low + n high)(1 + n log) = low + n (high + low log) modulo n^2.
            high, low = gmpy2.f_divmod(product, n)
            results.append(low + n * ((high + low * log) % n))
        return results


def table_bytes(n_bits: int, exponent_bits: int, window: int) -> int:
    """Return the approximate memory of a table.

    >>> table_bytes(2048, 1024, 8) // 10**6
    19
    """
    return 2 * (_windows(exponent_bits, window) << window) * (n_bits // 8 + _OBJECT_BYTES)


def _windows(exponent_bits: int, window: int) -> int:
    windows = -(-exponent_bits // window)
    return windows + windows % 2


def _row(base: mpz, n: mpz, size: int) -> tuple[list[mpz], list[mpz], mpz]:
    """Return the (a, t) of base^0 ... base^(size - 1) modulo n^2, and base^size for the next row."""
    carry, first = gmpy2.f_divmod(base, n)
    inverse_first = gmpy2.invert(first, n)
    log_first = carry * inverse_first % n
    factor, inverse, log = mpz(1), mpz(1), mpz(0)
    factors, logs = [], []
    for _ in range(size):
        factors.append(factor)
        logs.append(log)
        # a a' = q n + a'' = a'' (1 + n q / a''): the product's own part below n, and its part in the sum.
        carry, factor = gmpy2.f_divmod(factor * first, n)
        inverse = inverse * inverse_first % n
        log = (log + log_first + carry * inverse) % n
    return factors, logs, factor * (1 + n * log) % (n * n)


def _digits(exponents: NDArray[np.uint8], window: int, count: int) -> list[list[int]]:
    """Split each little-endian exponent into `count` digits of `window` bits, lowest first."""
    bits = np.unpackbits(exponents, axis=1, bitorder="little")
    padded = np.zeros((len(bits), count * window), dtype=np.uint16)
    padded[:, : bits.shape[1]] = bits
    weights = (1 << np.arange(window)).astype(np.uint16)
    digits: list[list[int]] = (padded.reshape(len(bits), count, window) @ weights).tolist()
    return digits


class Randomiser:
    """Masks h_s^r mod n^2 for one public key; safe to use from several threads.

    The window table is made when it begins to pay and widened as use goes on, at most three times in the life of a key.
    A mask never depends on the table, only on n, h, r and the message.
    """

    def __init__(self, n: mpz, h: mpz | None = None) -> None:
        self.exponent_bytes = -(-n.bit_length() // 16) if h is None else SUBGROUP_BITS // 4
        if h is None:
            h = -(_hashed(_BASE_LABEL, n) ** 2) % n
        self.base = gmpy2.powmod(h, n, n * n)
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
        with self._lock:
            if window and (self._table is None or self._table.window < window):
                self._table = None  # free the narrower one first
                self._table = FixedBase(self.base, self._n, exponent_bits=8 * self.exponent_bytes, window=window)
            return self._table


@lru_cache(maxsize=2)
def randomiser(n: int, h: int | None = None) -> Randomiser:
    """Return this process's one randomiser for a public key: equal keys share a table."""
    return Randomiser(mpz(n), None if h is None else mpz(h))


def _integers(values: Sequence[int] | NDArray[Any]) -> list[mpz]:
    numbers = values.tolist() if isinstance(values, np.ndarray) else values
    try:
        return [mpz(operator.index(number)) for number in numbers]
    except TypeError:
        raise InputError("Paillier encrypts a vector of whole numbers; encode fractions with FixedPoint.") from None


def _mask_chunk(n: int, h: int | None, messages: list[mpz], exponents: NDArray[np.uint8], window: int) -> list[mpz]:
    return randomiser(n, h).mask(messages, exponents, window=window)


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
