"""Encrypted queries (BFV): how near all records are to a query that the party running the search cannot read.

*Codes.* The query's bit j is the encrypted constant w_j = 1 - 2 q_j; the bits j of 4,095 records are the coefficients
of one plaintext polynomial p_j, encoded once. The answer sum_j w_j p_j + |q| holds a distance in every coefficient.
Every record is touched by every query, so nothing leaks by access pattern; every query has a key of its own.

*Short embeddings* find more: whole numbers x_j in [-a, a] in place of bits, and the answer holds inner products. The
scores u that a hash function takes the signs of, scaled to norm 1, become x_j = round(a sqrt(d) u_j / 3), cut off at a,
so |x| <= sqrt(d) (a / 3 + 1/2) and no two have a product beyond b = d (a / 3 + 1/2)^2: the plain modulus t is 2 b + 1.

*What the search learns of the query*: nothing but that it came, under ring-LWE (degree n = 4096, modulus q of 60 bits:
more than the 128 bits of security of the homomorphic encryption standard, which allows 109).

*What the asker learns of the records*: the distances; and d well-chosen queries give the codes, as distances do. Bare
ciphertexts would tell more: without a mask a "query" with c1 = 2^j reads 60 bits of every code at once, and the noise
of an honest one tells which codes made it. So an answer gets a mask and a flood of noise:

    answer = sum_j w_j p_j + sum_{k < 12} u_k z_k + (r, 0)

with z_k = (b_k, a_k) encryptions of zero that come with the query, fresh secret u_k with coefficients uniform in
[0, s), s = 2^16 + 1, and r uniform in an interval of length W, a little less than q / t, with the plain modulus
t = d + 1 for codes of d bits.

    Claim. Whatever is sent, with probability 1 - 2^-60 per 4,095 records an answer tells at most log2(q / W) bits of
    each of them on average (maximal leakage), which is log2(t) and a few hundredths: what a distance or product tells.
    Proof. Ciphertexts are taken in SEAL's seeded form only, the seeds distinct, so the a_k are expanded by a hash:
    uniform and independent. Then sum a_k u_k is eps-close to uniform, eps = 1/2 sqrt((1 + q / s^12)^n - 1) < 2^-60
    (after Micciancio, "Generalized compact knapsacks, cyclic lattices, and efficient one-way functions", 2007): two
    draws of the u_k collide if sum a_k (u_k - u'_k) = 0, a uniform member of the ideal of g = gcd(u_k - u'_k, X^n + 1),
    so with probability q^(deg g - n); that a divisor g divides one difference fixes deg g of its coefficients given the
    others, so it has probability at most s^-deg g; X^n + 1 has n different linear factors, and the sum over all g of
    q^(deg g - n) s^(-12 deg g) is q^-n (1 + q / s^12)^n; eps follows from the probability of a collision.
    Given the records, c1 is so too, and c0 has density at most W^-n given c1 and the u_k. Hence but for mass eps the
    pair has probability at most (W q)^-n, and the sum over all pairs of the largest probability that any
    records give them is at most q^2n (W q)^-n = (q / W)^n. []

*An honest query is answered right*: a ciphertext is (q / t) w + e with |e| < 22 (21 by SEAL's sampler, a half by
rounding), so noise is at most 22 n (sum_j max |p_j| + 12 s), twice of which is left between W and q / t. Replacing one
record changes the noise of a coefficient by at most 22 d (44 d a for embeddings), so the answer beyond the distances
changes by n / W times that in statistical distance: 1.3e-9 for 128 bits, 7.2e-8 for 64 numbers of 4 bits.

*The set-up* that an asker takes first holds the hash function, and is free. One that was learned from the pictures
without noise would give them away (the means of two versions differ by the picture that was added): such an index is
refused. What is given away is a function that was learned from public pictures alone, or the one that central mode
published, within its epsilon and delta.

Other plaintext weights cannot be told from honest ones: w_j = 2^j reads log2(t) bits of all codes at once. So the owner
says how many queries are answered in all (`QueryBudget`); `statement` tells what that gives away.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import gmpy2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.bfv import hostile
from blindsight.crypto.wire import Message, Secret, decode, encode
from blindsight.errors import BudgetExceededError, InputError, MessageError, PrivacyError
from blindsight.extras import require
from blindsight.files import (
    AnyPath,
    as_path,
    atomic_writer,
    file_bytes,
    folder_lock,
    only_link,
    read_arrays,
    storage_errors,
)
from blindsight.rng import ByteSource, random_below, system_bytes
from blindsight.search.codes import blocks, check_codes, check_whole, unpack
from blindsight.search.function import HashFunction, function_from
from blindsight.search.gallery import (
    LEARNED_FROM,
    OF_PUBLIC,
    PRIVATE,
    Found,
    Gallery,
    feature_pipeline,
    whole_json,
)
from blindsight.search.index import HammingIndex
from blindsight.search.rows import check_k
from blindsight.statement import PrivacyStatement
from blindsight.validation import check_features

MOST_BITS = 1024  # the longest code that is asked for under encryption
_DEGREE, _MODULUS, _MODULUS_BITS = 4096, 1152921504606830593, 60
_RECORDS = _DEGREE - 1  # of a plaintext; its last coefficient is 1, for SEAL refuses to multiply by nothing
_ZEROS, _MASK = 12, 2**16 + 1
_ERROR = 22  # SEAL's noise is at most 21, and rounding adds a half
_SEED = 64  # bytes at the end of a seeded ciphertext
_KIND = "blindsight/encrypted-search.1"
_BUDGET = "queries.json"
_MEMORY = "/dev/shm"  # noqa: S108 - folders in it are made by tempfile


class _QueryMessage(Message, name="search/encrypted-query.2"):
    bits: int
    most: int
    zeros: tuple[bytes, ...]
    weights: tuple[bytes, ...]


class _AnswerMessage(Message, name="search/encrypted-answer.2"):
    bits: int
    most: int
    count: int
    parts: tuple[bytes, ...]


def told_bits(bits: int, most: int = 0) -> float:
    """Return the most that one query can tell of a code (or embedding of `bits` numbers), in bits: log2(q / W).

    >>> round(told_bits(128), 2), round(told_bits(64, most=7), 2)
    (7.01, 10.0)
    """
    return math.log2(_MODULUS / _flood_width(bits, most))


def held_bits(bits: int, most: int = 0) -> float:
    """Return how many bits a code has, or an embedding of `bits` numbers in [-most, most]."""
    return bits * math.log2(2 * most + 1) if most else float(bits)


def most_of(number_bits: int) -> int:
    """Return the largest number of this many bits, `most`: numbers lie in [-most, most]."""
    return (1 << check_whole("the bits of a number", number_bits, 2, 6) - 1) - 1


def short_embeddings(scores: ArrayLike, most: int) -> NDArray[np.int8]:
    """Return scores (n, d) as whole numbers in [-most, most] whose inner products rank as cosines do, but for rounding.

    >>> short_embeddings([[3.0, -4.0], [0.0, 0.0]], 7)
    array([[ 2, -3],
           [ 0,  0]], dtype=int8)
    """
    rows = check_features(scores, what="scores", least=0).astype(np.float64)
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    whole = np.rint(units * (most * math.sqrt(rows.shape[1]) / 3))
    return np.asarray(np.clip(whole, -most, most), dtype=np.int8)


def _largest_product(bits: int, most: int) -> int:
    return max(most**2, math.floor(bits * (most / 3 + 0.5) ** 2))


def plain_modulus(bits: int, most: int = 0) -> int:
    """Return t, in which distances or products are told apart."""
    return 2 * _largest_product(bits, most) + 1 if most else bits + 1


class EncryptedQuery(Secret):
    """One query under a key of its own: `message` goes out, `distances` or `products` read what comes back."""

    __slots__ = ("_key", "_ones", "bits", "message", "most")

    def __init__(self, weights: ArrayLike, *, ones: int = 0, most: int = 0) -> None:
        """Encrypt whole numbers, one for each bit or number of a record; `of_code`, `of_embedding` make honest ones."""
        values = np.asarray(weights)
        if values.ndim != 1 or values.dtype.kind not in "iu" or not 1 <= len(values) <= MOST_BITS:
            raise InputError(
                f"an encrypted query has 1 to {MOST_BITS} whole weights; got {values.dtype} of shape {values.shape}."
            )
        self.bits, self.most, self._ones = len(values), most, ones
        scheme = _scheme(self.bits, most)
        self._key = scheme.seal.KeyGenerator(scheme.context).secret_key()
        encryptor = scheme.seal.Encryptor(scheme.context, self._key)

        def encrypted(value: int) -> Any:
            return encryptor.encrypt_symmetric(scheme.seal.Plaintext(f"{value % scheme.plain:X}"))

        zeros = scheme.saved(encrypted(0) for _ in range(_ZEROS))
        parts = scheme.saved(encrypted(value) for value in values.tolist())
        self.message = encode(_QueryMessage(self.bits, most, zeros, parts))

    @classmethod
    def of_code(cls, code: ArrayLike, bits: int) -> Self:
        """Encrypt one packed code."""
        ones = unpack(np.atleast_2d(np.asarray(code)), bits)
        if len(ones) != 1:
            raise InputError(f"an encrypted query is about one code; got {len(ones)}.")
        return cls(1 - 2 * ones[0].astype(np.int64), ones=int(ones.sum()))

    @classmethod
    def of_embedding(cls, embedding: ArrayLike, most: int) -> Self:
        """Encrypt one short embedding."""
        return cls(_checked_embeddings(np.atleast_2d(np.asarray(embedding)), most)[0], most=most)

    def distances(self, answer: bytes) -> NDArray[np.int32]:
        """Return what an answer holds for every record: Hamming distances, or sums of weights modulo bits + 1."""
        return self._values(answer)

    def products(self, answer: bytes) -> NDArray[np.int32]:
        """Return the inner products with every record's embedding."""
        half = _largest_product(self.bits, self.most)
        return (self._values(answer) + half) % (2 * half + 1) - half

    def _values(self, answer: bytes) -> NDArray[np.int32]:
        message, scheme = decode(answer, _AnswerMessage), _scheme(self.bits, self.most)
        same = (message.bits, message.most) == (self.bits, self.most)
        if not same or message.count < 0 or len(message.parts) != -(-message.count // _RECORDS):
            raise MessageError("the answer is to another query, or its length does not fit its parts.")
        decryptor = scheme.seal.Decryptor(scheme.context, self._key)
        found = np.zeros((len(message.parts), _DEGREE), dtype=np.int64)
        for row, part in zip(found, scheme.loaded(message.parts, seeded=False), strict=True):
            plain = scheme.seal.Plaintext()
            with hostile("the answer cannot be decrypted."):
                decryptor.decrypt(part, plain)
            count = plain.coeff_count()
            row[:count] = [plain[place] for place in range(count)]
        values = (found[:, :_RECORDS].ravel()[: message.count] + self._ones) % scheme.plain
        return values.astype(np.int32)


_Asked = tuple[list[Any], list[Any]]  # the zeros and the weights of a query


class EncryptedScan:
    """Codes, or embeddings in [-most, most], that answer encrypted queries: about 8 bytes of memory a bit or number."""

    def __init__(self, records: ArrayLike, bits: int, *, most: int = 0) -> None:
        if not 1 <= bits <= MOST_BITS:
            raise InputError(f"encrypted queries are for codes of 1 to {MOST_BITS} bits; got {bits}.")
        rows: NDArray[Any] = _checked_embeddings(records, most, bits) if most else check_codes(records, bits)
        self.bits, self.most, self._count, self._scheme = bits, most, len(rows), _scheme(bits, most)
        spans = blocks(len(rows), _RECORDS)
        self._blocks = [self._scheme.encoded(rows[span] if most else unpack(rows[span], bits)) for span in spans]

    def __len__(self) -> int:
        return self._count

    def read(self, message: bytes) -> _Asked:
        """Check a query; what is malformed, of other parameters or for other codes is a `MessageError`."""
        query = decode(message, _QueryMessage)
        asked = query.bits, query.most, len(query.weights), len(query.zeros)
        if asked != (self.bits, self.most, self.bits, _ZEROS):
            what = f"{self.bits} numbers up to {self.most}" if self.most else f"codes of {self.bits} bits"
            raise MessageError(f"the query is not for {what}. Take the set-up of this index again.")
        if len({part[-_SEED:] for part in query.zeros}) < _ZEROS:
            raise MessageError("two of the query's zeros have the same seed: they would not hide the answer.")
        scheme = self._scheme
        zeros, weights = (list(scheme.loaded(part, seeded=True)) for part in (query.zeros, query.weights))
        for part in (*zeros, *weights):
            scheme.evaluator.transform_to_ntt_inplace(part)
        for part in zeros:
            scheme.moved(part, scheme.wide)
        return zeros, weights

    def answer(self, query: _Asked, source: ByteSource = system_bytes) -> bytes:
        """Return the encrypted distances or products of all records, in their order."""
        scheme, (zeros, weights) = self._scheme, query
        parts = scheme.saved(scheme.masked(self._sum(weights, block), zeros, source) for block in self._blocks)
        return encode(_AnswerMessage(self.bits, self.most, len(self), parts))

    def _sum(self, weights: list[Any], block: list[Any]) -> Any:
        evaluator, (total, product) = self._scheme.evaluator, (self._scheme.seal.Ciphertext() for _ in range(2))
        evaluator.multiply_plain(weights[0], block[0], total)
        for weight, plain in zip(weights[1:], block[1:], strict=True):
            evaluator.multiply_plain(weight, plain, product)
            evaluator.add_inplace(total, product)
        return total


def _checked_embeddings(records: ArrayLike, most: int, width: int | None = None) -> NDArray[Any]:
    """Return whole numbers (n, d), or raise unless all products of such rows are within the plain modulus."""
    rows = np.asarray(records)
    if rows.ndim != 2 or rows.dtype.kind not in "iu" or rows.shape[1] != (width or rows.shape[1]):
        raise InputError(
            f"embeddings must be whole numbers of shape (n, {width or 'd'}); got {rows.dtype} {rows.shape}."
        )
    wide = rows.astype(np.int64)
    if rows.size and (abs(wide).max() > most or (wide**2).sum(axis=1).max() > _largest_product(rows.shape[1], most)):
        raise InputError(f"embeddings are larger than those of [-{most}, {most}]. Make them with short_embeddings.")
    return rows


@cache
def _scheme(bits: int, most: int = 0) -> "_Scheme":
    return _Scheme(bits, most)


def _flood_width(bits: int, most: int = 0) -> int:
    """Return W, the largest prime that batching can use and that leaves an honest answer readable."""
    noise = _ERROR * _DEGREE * (bits * max(1, most) + _ZEROS * _MASK)
    below = _MODULUS // plain_modulus(bits, most) - 2 * noise - 2
    prime = (below - 2) // (2 * _DEGREE) * (2 * _DEGREE) + 1
    while not gmpy2.is_prime(prime):
        prime -= 2 * _DEGREE
    return prime


class _Scheme:
    """BFV for records of one form. `context` has t = `plain`; `wide` the same ring, and t so large that every multiple
    of a ciphertext and every noise is a plaintext: ciphertexts are moved there to be masked."""

    def __init__(self, bits: int, most: int) -> None:
        self.bits, self.most, self.plain = bits, most, plain_modulus(bits, most)
        self.seal = require("tenseal.sealapi", extra="he", purpose="an encrypted query (BFV)")
        self.context, self.wide = self._context(self.plain), self._context(_MODULUS - 1)
        self.evaluator, self._wide_evaluator = self.seal.Evaluator(self.context), self.seal.Evaluator(self.wide)

    def _context(self, plain: int) -> Any:
        seal = self.seal
        chosen = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
        chosen.set_poly_modulus_degree(_DEGREE)
        chosen.set_coeff_modulus(seal.CoeffModulus.Create(_DEGREE, [_MODULUS_BITS]))
        chosen.set_plain_modulus(plain)
        assert [modulus.value() for modulus in chosen.coeff_modulus()] == [_MODULUS]
        return seal.SEALContext(chosen, True, seal.SEC_LEVEL_TYPE.TC128)

    def encoded(self, rows: NDArray[Any]) -> list[Any]:
        """Return one plaintext for each bit or number of up to 4,095 records, ready to be multiplied."""
        columns = np.zeros((self.bits, _DEGREE), dtype=np.int64)
        columns[:, _RECORDS] = 1
        columns[:, : len(rows)] = rows.T
        plains = []
        for column in columns:
            terms = self._terms[column + self.most, np.arange(_DEGREE)]
            plain = self.seal.Plaintext(" + ".join(terms[column != 0][::-1].tolist()))
            self.evaluator.transform_to_ntt_inplace(plain, self.context.first_parms_id())
            plains.append(plain)
        return plains

    @cached_property
    def _terms(self) -> NDArray[Any]:
        """SEAL's words for every value at every power."""
        values = range(-self.most, max(1, self.most) + 1)
        return np.array([[f"{v % self.plain:X}x^{power}" for power in range(_DEGREE)] for v in values], dtype=object)

    def masked(self, total: Any, zeros: list[Any], source: ByteSource) -> Any:
        """Add fresh multiples of the zeros and a flood of noise to an answer, in place."""
        seal, evaluator, product = self.seal, self._wide_evaluator, self.seal.Ciphertext()
        self.moved(total, self.wide)
        for zero in zeros:
            factor = self._uniform(self._masks, source)
            evaluator.transform_to_ntt_inplace(factor, self.wide.first_parms_id())
            evaluator.multiply_plain(zero, factor, product)
            evaluator.add_inplace(total, product)
        evaluator.transform_from_ntt_inplace(total)
        evaluator.add_plain_inplace(total, self._uniform(self._floods, source))
        evaluator.sub_plain_inplace(total, seal.Plaintext(self._middle))
        return self.moved(total, self.context)

    def moved(self, ciphertext: Any, context: Any) -> Any:
        """Let a ciphertext belong to another context over the same ring."""
        ciphertext.resize(context, context.first_parms_id(), 2)
        return ciphertext

    def _uniform(self, encoder: tuple[Any, int], source: ByteSource) -> Any:
        """Return a polynomial with uniform coefficients: batching is a bijection."""
        plain = self.seal.Plaintext()
        encoder[0].encode(random_below(encoder[1], _DEGREE, source).tolist(), plain)
        return plain

    def _encoder(self, prime: int) -> tuple[Any, int]:
        return self.seal.BatchEncoder(self._context(prime)), prime

    @cached_property
    def _masks(self) -> tuple[Any, int]:
        return self._encoder(_MASK)

    @cached_property
    def _floods(self) -> tuple[Any, int]:
        return self._encoder(_flood_width(self.bits, self.most))

    @cached_property
    def _middle(self) -> str:
        half = (self._floods[1] - 1) // 2
        return " + ".join(f"{half:X}x^{power}" for power in reversed(range(_DEGREE)))

    # SEAL reads and writes files only. What others sent is compared with a ciphertext of our own first: but for its
    # numbers (and the seed) it must be the same bytes, so it is of this ring, seeded or not as it should be, and not
    # compressed: a few bytes cannot become gigabytes.

    def saved(self, ciphertexts: Iterable[Any]) -> tuple[bytes, ...]:
        parts = []
        with _scratch() as path:
            for one in ciphertexts:
                one.save(str(path))
                parts.append(path.read_bytes())
        return tuple(parts)

    def loaded(self, parts: Iterable[bytes], *, seeded: bool) -> Iterator[Any]:
        sample, numbers = self._forms[seeded]
        tail = slice(numbers.stop, -_SEED if seeded else None)
        with _scratch() as path:
            for part in parts:
                alike = len(part) == len(sample) and part[: numbers.start] == sample[: numbers.start]
                if not alike or part[tail] != sample[tail]:
                    raise MessageError("a part is not a BFV ciphertext with the parameters agreed.")
                path.write_bytes(part)
                one = self.seal.Ciphertext()
                with hostile("a part is not a BFV ciphertext with the parameters agreed."):
                    one.load(self.context, str(path))
                yield one

    @cached_property
    def _forms(self) -> tuple[tuple[bytes, slice], tuple[bytes, slice]]:
        """A whole and a seeded ciphertext, and where their numbers stand."""
        key = self.seal.KeyGenerator(self.context).secret_key()
        encryptor, whole = self.seal.Encryptor(self.context, key), self.seal.Ciphertext()
        encryptor.encrypt_zero_symmetric(whole)
        first, second = self.saved([whole, encryptor.encrypt_symmetric(self.seal.Plaintext("0"))])
        begin = len(first) - 16 * _DEGREE
        for extra in (begin, len(second) - 8 * _DEGREE - begin):
            assert 0 < extra < 256  # neither is compressed
        return (first, slice(begin, len(first))), (second, slice(begin, begin + 8 * _DEGREE))


@contextmanager
def _scratch() -> Iterator[Path]:
    """Lend the path of a file in a folder of its own, in memory where the system has such a place."""
    with TemporaryDirectory(prefix="blindsight-bfv-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        yield Path(folder) / "ciphertext"


class QueryBudget:
    """How many encrypted queries an index answers in all, kept in the owner's folder; counted before each answer.

    A symbolic link to the folder or the file is the same budget; one of several hard links to the file is refused.
    """

    def __init__(self, folder: AnyPath) -> None:
        self._folder = as_path(folder) / PRIVATE

    def allow(self, queries: int) -> None:
        """Answer `queries` in all, including those answered already."""
        check_whole("queries, a budget,", queries, 0)
        with storage_errors("write into", self._folder):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked() as path:
            self._write(path, queries, self._read()[1])

    @property
    def most(self) -> int:
        """How many are answered in all; 0 until the owner allows some."""
        return self._read()[0]

    @property
    def left(self) -> int:
        most, asked = self._read()
        return max(0, most - asked)

    def spend(self) -> None:
        """Count one query, on disk before this returns, or refuse it."""
        if not self.most:
            raise PrivacyError("the owner of this index allows no encrypted queries (blindsight search allow).")
        with self._locked() as path:
            most, asked = self._read()
            if asked >= most:
                raise BudgetExceededError(
                    f"all {most} encrypted queries that the owner of this index allows are spent."
                )
            self._write(path, most, asked + 1)

    def _read(self) -> tuple[int, int]:
        path = self._folder / _BUDGET
        if not path.exists():
            return 0, 0
        with whole_json(path, "so that nobody knows how many queries were answered") as told:
            most, asked = told["most"], told["asked"]
            if type(most) is not int or type(asked) is not int or min(most, asked) < 0:
                raise ValueError
        return most, asked

    @contextmanager
    def _locked(self) -> Iterator[Path]:
        """Hold the lock on the folder of the file, whatever links lead there; yield its real path."""
        path = only_link(self._folder / _BUDGET)
        with folder_lock(path.parent):
            yield only_link(path)

    def _write(self, path: Path, most: int, asked: int) -> None:
        with atomic_writer(path, private=True) as stream:
            stream.write(json.dumps({"most": most, "asked": asked}).encode())


def statement(bits: int, queries: int, most: int = 0, *, learned: str) -> PrivacyStatement:
    """Say what is proven of encrypted queries to codes (or numbers up to `most`), of which `queries` are answered.

    `learned` says what the hash function was learned from, which all who ask are given.
    """
    told, held = told_bits(bits, most), held_bits(bits, most)
    enough, near = math.ceil(held / told), "inner product" if most else "distance"
    return PrivacyStatement(
        guarantee="cryptographic",
        summary="the operator of the search learns neither query nor answer (BFV)",
        mechanism=f"queries under BFV (degree {_DEGREE}, modulus of {_MODULUS_BITS} bits), answers masked and flooded",
        unit=None,
        epsilon=None,
        delta=None,
        randomness="operating system",
        who_sees={
            "operator of the search": "that a query came, from whom and when; not the picture, its code or the answer",
            "asker": f"the {near} of the query and every picture of the index",
            "all who ask": f"the hash function, {learned}; how many pictures there are, by random numbers; and at most "
            f"{min(held, told * queries):.1f} of each picture's {held:.0f} bits on average, by {queries} queries that "
            f"tell {told:.2f} bits each, whatever was sent in place of an honest query",
        },
        assumptions=(
            "ring-LWE is hard; the seeds in a query expand to uniform polynomials (Blake2xb)",
            "each answer keeps the bound but for a chance of 2^-60 per 4,095 pictures",
        ),
        not_protected=(
            f"what {enough} well-chosen queries can tell, all {held:.0f} bits; {queries} are allowed",
            "a picture about which the asker knows all but little: the bound is an average over the index",
            "the asker from wrong answers: a search may lie",
        ),
    )


@dataclass(frozen=True, eq=False)
class QuerySetup:
    """What the asker needs before the first query: how pictures become codes, and the numbers of the pictures."""

    features: str
    side: int  # of a picture in pixels, as it is read
    hasher: HashFunction
    numbers: NDArray[np.int64]
    statement: PrivacyStatement
    most: int = 0  # of the numbers of an embedding; 0: codes are asked for

    def encrypt(self, image: NDArray[np.uint8]) -> EncryptedQuery:
        """Return the query of one picture."""
        rows = feature_pipeline(self.features).transform(image[None])
        if self.most:
            return EncryptedQuery.of_embedding(short_embeddings(self.hasher.scores(rows), self.most), self.most)
        return EncryptedQuery.of_code(self.hasher(rows), self.hasher.bits)

    def nearest(self, query: EncryptedQuery, answer: bytes, k: int) -> list[Found]:
        """Return the k nearest pictures by number, nearest first, then oldest; by Hamming distance or inner product."""
        values = query.products(answer) if self.most else query.distances(answer)
        distances = -values if self.most else values
        if len(distances) != len(self.numbers):
            raise MessageError(
                f"the answer is about {len(distances)} pictures, the set-up about {len(self.numbers)}: the index has "
                "changed. Take its set-up again."
            )
        best = np.argsort(distances, kind="stable")[: check_k(k)]
        return [Found(int(self.numbers[place]), float(values[place])) for place in best]

    def to_bytes(self) -> bytes:
        document = {
            "features": self.features,
            "side": self.side,
            "function": self.hasher.name,
            "most": self.most,
            "statement": self.statement.to_dict(),
        }
        arrays = {f"hasher.{name}": array for name, array in self.hasher.arrays().items()}
        return file_bytes(_KIND, document, arrays | {"numbers": self.numbers})

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what somebody sent."""
        with TemporaryDirectory(prefix="blindsight-setup-") as scratch:
            path = Path(scratch) / "setup.npz"
            path.write_bytes(content)
            document, arrays = read_arrays(path, _KIND)
        try:
            named = {name.removeprefix("hasher."): array for name, array in arrays.items() if name != "numbers"}
            function, numbers = function_from(str(document["function"]), named), arrays["numbers"]
            features, side, most = document["features"], document["side"], document.get("most", 0)
            if not isinstance(features, str) or type(side) is not int or numbers.dtype.kind != "i":
                raise ValueError(f"features {features!r}, side {side!r}, numbers {numbers.dtype}")
            said = PrivacyStatement.from_dict(document["statement"])
            return cls(features, side, function, numbers, said, check_whole("most", most, 0, 31))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, InputError) as error:
            raise MessageError(f"this is no set-up of an encrypted search ({error}).") from None


class QueryServer:
    """A gallery in central or open mode that answers encrypted queries within its owner's budget.

    One whose hash function was learned from its pictures without noise is refused, for askers are given the function.
    """

    def __init__(self, gallery: Gallery, folder: AnyPath) -> None:
        if not isinstance(gallery.index, HammingIndex) or not isinstance(gallery.hasher, HashFunction):
            raise InputError("a local index may be taken home, where no query leaves: blindsight search pull.")
        self._learned = _learned_from(gallery)
        self.bits, self.most = gallery.index.bits, 0 if gallery.short is None else most_of(gallery.settings["numbers"])
        self._index, self._gallery, self.budget = gallery.index, gallery, QueryBudget(folder)

    @cached_property
    def _scan(self) -> EncryptedScan:
        records = self._index.codes if self._gallery.short is None else self._gallery.short
        return EncryptedScan(records, self.bits, most=self.most)

    def setup(self) -> QuerySetup:
        """Return what the asker needs first; refused unless the owner allowed queries."""
        if not self.budget.most:
            raise PrivacyError("the owner of this index allows no encrypted queries (blindsight search allow).")
        gallery, function = self._gallery, self._gallery.hasher
        assert isinstance(function, HashFunction)
        return QuerySetup(gallery.features, gallery.side, function, self._index.ids, self.statement, self.most)

    @property
    def statement(self) -> PrivacyStatement:
        """What is proven of as many queries as the owner allows."""
        return statement(self.bits, self.budget.most, self.most, learned=self._learned)

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a query; one that cannot be read costs nothing of the budget."""
        query = self._scan.read(message)
        self.budget.spend()
        return self._scan.answer(query)


def _learned_from(gallery: Gallery) -> str:
    """Return what the hash function was learned from, or refuse a gallery whose function must not be given away."""
    said = gallery.statement
    if gallery.mode == "central" and said.guarantee == "differential privacy":
        return f"learned from the pictures under noise ({said.headline()})"
    if gallery.mode == "open" and gallery.settings.get(LEARNED_FROM) == OF_PUBLIC:
        return "learned from public pictures alone"
    known = "was" if LEARNED_FROM in gallery.settings else "may have been"
    raise PrivacyError(
        f"all who ask this {gallery.mode} index would be given its hash function, which {known} learned from its "
        "pictures without noise: two versions of it give a picture away. Build the index again with public pictures, "
        "or in central mode."
    )
