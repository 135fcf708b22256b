"""DPHE: the exact sum of everyone's sparse update, while the one who adds sees neither weights nor where they are.

R. Yonetani, V. N. Boddeti, K. M. Kitani, Y. Sato, "Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic
Encryption", ICCV 2017, Algorithm 1:

    symbol          here
    G, A, U^(n)     `SparseOpener`, `SparseAdder`, `SparseMember`
    w, v, K (Eq. 3) an encoded update, its packed blocks, their indices: `decompose`
    phi, phi^(n)    `Permutations.shared`, `Permutations.own`
    Eqs. 4-6, 8     `SparseAdder`
    zeta, Enc0      `crypto.paillier`

The aggregator sees ciphertexts and places under a permutation it does not know, a listener sees nothing, and the key
generator sees sums. What leaves a member is Enc(v), under fresh randomness, and Phi(K) = phi^(n) phi K (Eq. 7), sorted,
so that the order tells nothing. One scheme serves two: with one slot every ciphertext holds one weight, the paper's
DPHE; with as many as a plaintext has room for (63 at 2048 bits, 95 at 3072) it holds a *block* of consecutive weights,
block DPHE, which is cheaper as soon as updates are sparse in whole blocks.

What the paper leaves open or gets wrong, and what is done here: permutations are fresh in every round (reused ones let
the aggregator recognise supports); padding, splits into shards and order are random (`decompose`); no encryption of
zero is used twice; what is decrypted is checked to be the sum of the named members (`mac`), once a round; all messages
travel sealed (where one member alone contributed, a listener would recognise its ciphertext in the sum); the answer is
in plain order only (the sum in the order of phi beside it would give phi away, value by value); blocks that too few
members changed can be withheld. ``Terms(as_published=True)`` undoes all but the second, for audits.

*Counting.* If contributors are counted, every changed block carries a one in its last slot, and padding a zero: the
decrypted slot is the number of members who changed the block. (The aggregator only knows how many *sent* it, and a
dummy there makes one contributor look like two.) A member who lies can put any number into that slot. So the aggregator
says how many members sent each block, and where a count is not in 0 ... senders, nothing of the round is released.

    Claim. (1) With an aggregator that counts honestly, no block is released that fewer than `minimum_per_position`
    members sent, whatever any number of them encrypted. (2) Whatever an aggregator says of senders, without a member's
    help it sees either nothing or the sum of all blocks that `minimum_per_position` members changed.
    Proof. Anything is released only if count <= senders in every block, and then the blocks with
    minimum_per_position <= count: of these, as many members sent each as the aggregator says (1); and which they are
    does not depend on what it says (2). The counts are those that members encrypted, else the tags do not fit. []

Blocks that were withheld one by one would break (2): the aggregator names no senders where a member sent nothing, and
the blocks that are left are that member's, in plain order. What it learns by a lie about senders is one bit, whether
some block has more contributors than it named; if so, the round and the key are gone.

What remains: padding counts as sending. A block that one member changed and others padded is released if a single lying
member lifts its count to no more than the number of its senders. Nobody but the member can check which of its blocks
are padding: that is what padding is for. And a member that lifts a count further, or sends numbers out of range, spoils
the round, which one that sends a wrong tag can do anyway.

*Who learns what was withheld.* With a single withheld block the aggregator would know whose it is. So members get,
under a key made from their shared secret, one bit per block that says whether it was *released*.
"""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.paillier import Ciphertexts, EncryptedSum, Keys, PrivateKey, PublicKey, generate_keys
from blindsight.crypto.permutation import SecretPermutation, derive_permutation
from blindsight.crypto.wire import Integers, Message, Octets, decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, random_words, system_bytes
from blindsight.sums.mac import PRIME, context_of, matches, tag
from blindsight.sums.messages import Call, Key, Reply, Roster, Setup
from blindsight.sums.scheme import Adder, ForgedError, MemberPart, Opened, Opener, Resources, Turn, Vouch
from blindsight.sums.terms import AGGREGATOR, Terms, beyond

_CHUNK = 64  # ciphertexts that one thread packs at a time


class Shards(Message, name="dphe/shards.1"):
    """A contribution: for each shard Phi(K) in ascending order and Enc(v) in the same order, and the encrypted tag.

    The 32 random bytes keep the key generator, who knows every permutation and sees some members' ciphertexts unchanged
    in the sum, from rebuilding a small shard and finding out by its digest whose it is.
    """

    salt: Key
    places: Integers
    ciphertexts: Octets
    tag: Octets


class SparseSum(Message, name="dphe/sum.1"):
    """A request: places in the order of phi, their packed sums, the tags' sum, and senders per place if counted."""

    places: Integers
    ciphertexts: Octets
    tag: Octets
    senders: Integers


@dataclass(frozen=True, eq=False)
class Permutations:
    """The permutations of a run, derived from the secrets of a set-up; the context holds the round."""

    roster: Roster

    def shared(self, secret: bytes, round: int) -> SecretPermutation:
        """Return phi of a round: known to the members and the key generator, not to the aggregator."""
        return derive_permutation(secret, size=self.roster.terms.blocks, role="members", **self._context(round))

    def own(self, secret: bytes, member: str, round: int) -> SecretPermutation:
        """Return phi^(n) of a round, known to a member and the aggregator; the identity if permutations are single."""
        blocks = self.roster.terms.blocks
        if self.roster.terms.permutations == "single":
            return SecretPermutation(np.arange(blocks))
        return derive_permutation(secret, size=blocks, role="own", member=member, **self._context(round))

    def _context(self, round: int) -> dict[str, str | int | bytes]:
        return {"run": self.roster.digest, "round": 0 if self.roster.terms.as_published else round}


def read_key(data: bytes, roster: Roster) -> PublicKey:
    if hashlib.sha256(data).digest() != roster.encryption_key:
        raise MessageError("the encryption key is not the one in the roster.")
    key = PublicKey.from_bytes(data, insecure=roster.terms.insecure)
    if (key.bits, key.keys) != (roster.terms.key_bits, roster.terms.keys):
        raise MessageError(f"the encryption key has {key.bits} bits ({key.keys}); the terms say otherwise.")
    return key


@dataclass(frozen=True, eq=False, repr=False)
class IndexedValues:
    """One shard: `blocks` are the M rows in which K has a one, `plaintexts` is v, one packed block each."""

    blocks: NDArray[np.int64]
    plaintexts: list[int]


def decompose(integers: NDArray[np.int64], terms: Terms, *, source: ByteSource = system_bytes) -> list[IndexedValues]:
    """Return w = K v (Eq. 3) in shards of exactly `terms.room` blocks, at least one.

    Claim. For an update with n changed blocks this is, up to the secret permutation phi, a function of the number of
    shards F = max(1, ceil(n / M)) and fresh randomness alone: under a uniform phi, F shards of M places each are
    distributed alike for all updates with the same F.
    Proof. If F M <= B (the number of blocks), the shards are a uniformly random split of F M distinct blocks, and phi
    sends any F M distinct blocks to uniformly random ones. Else all B blocks occur in a uniformly random order, and the
    first F M - B of them a second time, in the last shard; again phi makes all cases alike. []

    F itself is seen by the aggregator. The paper leaves split and order open: shards filled in the order of the weights
    would tell the aggregator which permuted places come first in the model.
    """
    rows, room = _rows(integers, terms), terms.room
    changed = np.flatnonzero(rows.any(axis=1))
    packed = terms.packing.pack(_counted(rows[changed], terms).ravel(), terms=len(terms.members))
    count = max(1, -(-changed.size // room)) * room
    unchanged = np.setdiff1d(np.arange(terms.blocks), changed, assume_unique=True)
    padding = _shuffled(unchanged, source)[: count - changed.size]
    order = _shuffled(np.arange(changed.size + padding.size), source)
    blocks = np.concatenate([changed, padding])[order]
    plaintexts = [packed[i] if i < changed.size else 0 for i in order.tolist()]
    # More places than blocks: the last shard repeats some blocks of the first, with zeros.
    plaintexts += [0] * (count - blocks.size)
    blocks = np.concatenate([blocks, blocks[: count - blocks.size]])
    return [IndexedValues(blocks[i : i + room], plaintexts[i : i + room]) for i in range(0, count, room)]


def slots_of(integers: NDArray[np.int64], terms: Terms) -> NDArray[np.int64]:
    """Return all slots of all blocks of an update, row by row: the values that the tag is over."""
    rows = _rows(integers, terms)
    counted = _counted(rows, terms)
    if terms.counting:
        counted[:, -1] = rows.any(axis=1)
    return counted.ravel()


def _rows(values: NDArray[np.int64], terms: Terms) -> NDArray[np.int64]:
    rows = np.zeros(terms.blocks * terms.slots, dtype=np.int64)
    rows[: values.size] = values
    return rows.reshape(terms.blocks, terms.slots)


def _counted(rows: NDArray[np.int64], terms: Terms) -> NDArray[np.int64]:
    """Return rows with a further slot that counts as one, if contributors are counted."""
    return np.hstack([rows, np.ones((len(rows), terms.counting), dtype=np.int64)])


def _shuffled(items: NDArray[np.int64], source: ByteSource) -> NDArray[np.int64]:
    return items[np.argsort(random_words(items.size, source))]


class SparseMember(MemberPart):
    """The user U^(n) of the paper: encrypts the blocks that changed."""

    def __init__(self, name: str, roster: Roster, setup: Setup, resources: Resources, vouch: Vouch) -> None:
        super().__init__(name, roster, setup, resources, vouch)
        self._key = read_key(setup.encryption_key, roster)

    def answer(self, call: Call, integers: NDArray[np.int64] | None, secrets: bytes) -> tuple[bytes, bytes]:
        values, round, source = self.contribution(integers), call.round, self.resources.source
        permutations = Permutations(self.roster)
        shards = decompose(values, self.terms, source=source)  # Algorithm 1, step 3: w = K v
        shared = permutations.shared(self.setup.shared, round)
        own = permutations.own(self.setup.own[0], self.name, round)
        places, plaintexts = [], []
        for shard in shards:  # step 4: Phi(K) = phi^(n) phi K (Eq. 7)
            permuted = own.forward(shared.forward(shard.blocks))
            order = np.argsort(permuted)
            places.append(permuted[order])
            plaintexts += [shard.plaintexts[i] for i in order.tolist()]
        if not self.terms.as_published:
            context = context_of(self.roster.digest, round)
            slots = slots_of(values, self.terms)
            plaintexts.append(tag(slots, shared=self.setup.shared, offset=self.setup.offset, context=context))
        matrix = self._key.encrypt(
            plaintexts, source=source, pool=self.resources.pool, progress=self.resources.progress
        ).to_matrix()
        count = len(shards) * self.terms.room
        ciphertexts = matrix[:count].reshape(len(shards), self.terms.room, -1)
        return encode(Shards(source(32), np.stack(places), ciphertexts, matrix[count:])), b""


@dataclass(frozen=True, eq=False, repr=False)
class CheckedShards:
    """A contribution that passed every check: ciphertexts, their places phi K, and the encrypted tag."""

    places: list[NDArray[np.int64]]
    ciphertexts: list[Ciphertexts]
    tag: Ciphertexts


class SparseAdder(Adder):
    """The aggregator A of the paper: adds checked ciphertexts at places it cannot name; memory is for one vector."""

    def __init__(self, roster: Roster, setup: Setup, turn: Turn, resources: Resources) -> None:
        super().__init__(roster, setup, turn, resources)
        self._key = read_key(setup.encryption_key, roster)
        self._own = dict(zip(self.terms.members, setup.own, strict=True))
        self._sum = EncryptedSum(self._key, self.terms.blocks)
        self._tags = EncryptedSum(self._key, 1)
        self._senders = np.zeros(self.terms.blocks, dtype=np.int64)
        self._shards = 0

    def check(self, step: str, member: str, reply: Reply) -> CheckedShards:
        terms, shards = self.terms, decode(reply.body, Shards, max_bytes=self.terms.most_bytes)
        count = shards.places.shape[0] if shards.places.ndim == 2 else 0
        if not 1 <= count <= terms.max_shards or shards.places.shape != (count, terms.room):
            raise MessageError(
                f"a contribution has 1 to {terms.max_shards} shards of {terms.room} places; that of {member!r} has not."
            )
        if shards.ciphertexts.shape != (count, terms.room, self._key.width):
            raise MessageError(f"the contribution of {member!r} does not have one ciphertext for each of its places.")
        if shards.tag.shape != (0 if terms.as_published else 1, self._key.width):
            raise MessageError(f"the contribution of {member!r} does not have one tag.")
        for places in shards.places:
            check_places(places, terms.blocks)
        ciphertexts = [Ciphertexts.from_matrix(self._key, matrix) for matrix in shards.ciphertexts]
        own = Permutations(self.roster).own(self._own[member], member, self.turn[0])
        backward = [own.backward(places) for places in shards.places]  # Eq. 8
        return CheckedShards(backward, ciphertexts, Ciphertexts.from_matrix(self._key, shards.tag))

    def add(self, step: str, member: str, checked: CheckedShards) -> None:
        for places, ciphertexts in zip(checked.places, checked.ciphertexts, strict=True):
            self._sum.add(ciphertexts, places)  # the element-wise product of Eq. 4
        self._senders[np.unique(checked.places)] += 1  # once, however many shards name a place
        self._shards += len(checked.places)
        self.ciphertexts[member] = sum(map(len, checked.ciphertexts)) + len(checked.tag)
        if len(checked.tag):
            self._tags.add(checked.tag)

    def request(self) -> bytes:
        """Return the encrypted sum in the order of phi (Algorithm 1, steps 5 and 6)."""
        places, packed = self.total()
        senders = self._senders[places] if self.terms.counting else self._senders[:0]
        tags = self._tags.touched()[1].to_matrix()
        self.ciphertexts[AGGREGATOR] = len(packed) + len(tags)
        return encode(SparseSum(places, packed.to_matrix(), tags, senders))

    def total(self) -> tuple[NDArray[np.int64], Ciphertexts]:
        """Return places in the order of phi (touched or all, as the terms say) and their encrypted sums, packed."""
        terms, key = self.terms, self._key
        if terms.as_published:
            return self._published_total()
        places, sums = self._sum.touched()
        threads, progress = self.resources.threads, self.resources.progress
        if terms.decrypt == "touched":
            return places, pack_ciphertexts(sums, terms, threads=threads, progress=progress)
        # A zero of its own for every packed ciphertext hides which of its places were not touched.
        values = np.full(terms.blocks, mpz(1), dtype=object)
        values[places] = sums.values
        packed = pack_ciphertexts(Ciphertexts(key, tuple(values)), terms, threads=threads, progress=progress)
        return np.arange(terms.blocks), packed + key.encrypt_zeros(len(packed), source=self.resources.source)

    def _published_total(self) -> tuple[NDArray[np.int64], Ciphertexts]:
        """Eqs. 4-6 to the letter: every contribution puts one and the same Enc0 at each place it does not touch."""
        key, counts = self._key, self._sum.counts
        modulus = mpz(key.n) ** 2
        (enc0,) = key.encrypt_zeros(1, source=self.resources.source).values
        powers = [gmpy2.powmod(enc0, exponent, modulus) for exponent in range(self._shards + 1)]
        places, touched = self._sum.touched()
        one, products = mpz(1), dict(zip(places.tolist(), touched.values, strict=True))
        values = [
            products.get(place, one) * powers[-1 - count] % modulus for place, count in enumerate(counts.tolist())
        ]
        return np.arange(len(values)), Ciphertexts(key, tuple(values))


def pack_ciphertexts(
    ciphertexts: Ciphertexts, terms: Terms, *, threads: int | None = None, progress: Progress = silent
) -> Ciphertexts:
    """Return one ciphertext for every `Terms.blocks_per_request` in a row, so that little is left to decrypt.

    From ciphertexts of packed blocks m_0, m_1, ... of b bits anyone can make one of m_0 + m_1 2^b + m_2 2^2b + ..., at
    b squarings for each. With one weight of 32 bits per ciphertext, 63 of them share one decryption at 2048 bits. (The
    paper decrypts every weight by itself.)
    """
    width = terms.blocks_per_request
    if width == 1:
        return ciphertexts
    chunks = [ciphertexts[start : start + _CHUNK * width] for start in range(0, len(ciphertexts), _CHUNK * width)]
    shift = 1 << (terms.packing.slots * terms.slot_bits)
    values: list[mpz] = []
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        for packed in pool.map(lambda chunk: _pack(chunk, width, shift), chunks):
            values += packed.values
            progress("packing", min(len(values) * width, len(ciphertexts)), len(ciphertexts))
    return Ciphertexts(ciphertexts.key, tuple(values))


def _pack(ciphertexts: Ciphertexts, width: int, shift: int) -> Ciphertexts:
    """Horner's rule; gmpy2 releases the interpreter's lock for a list of powers."""
    zeros = (mpz(1),) * (-len(ciphertexts) % width)  # 1 is a ciphertext of zero
    full = Ciphertexts(ciphertexts.key, ciphertexts.values + zeros)
    packed = full[width - 1 :: width]
    for start in reversed(range(width - 1)):
        packed = packed * shift + full[start::width]
    return packed


class SparseOpener(Opener):
    """The key generator G of the paper: decrypts checked sums, and undoes phi before anyone else sees them."""

    def __init__(self, terms: Terms, secret: PrivateKey | bytes | None, resources: Resources) -> None:
        self._terms, self._resources = terms, resources
        if isinstance(secret, bytes):
            secret = PrivateKey.from_secret_bytes(secret, insecure=terms.insecure)
        kind: Keys = "conservative" if terms.keys == "conservative" else "subgroup"
        self._secret = secret or generate_keys(
            terms.key_bits, keys=kind, insecure=terms.insecure, source=self._resources.source
        )
        public = self._secret.public
        if (public.bits, public.keys) != (terms.key_bits, terms.keys):
            raise InputError(
                f"the terms ask for a {terms.keys} key of {terms.key_bits} bits; got {public.bits}, {public.keys}."
            )
        self.encryption_key = self._secret.public.to_bytes()

    def secret_bytes(self) -> bytes:
        return self._secret.secret_bytes()

    def open(self, body: bytes, members: tuple[str, ...], round: int, setup: Setup, offsets: list[bytes]) -> Opened:
        terms, request = self._terms, decode(body, SparseSum)
        roster = Roster.from_bytes(setup.roster, expected=terms)
        check_request(request, terms, len(members))
        packing = SlotPacking(terms.slot_bits, terms.packing.slots * terms.blocks_per_request)
        sums = Ciphertexts.from_matrix(self._secret.public, request.ciphertexts)
        tags = Ciphertexts.from_matrix(self._secret.public, request.tag)
        places = request.places
        try:
            numbers = self._decrypted(sums, packing.max_packed())
            total = self._decrypted(tags, PRIME * len(members))
            slots = packing.unpack(numbers, len(numbers) * packing.slots)
        except Exception as error:
            raise ForgedError(f"the sum cannot be decrypted ({type(error).__name__}).") from None
        used = places.size * terms.packing.slots
        rows = np.zeros((terms.blocks, terms.packing.slots), dtype=np.int64)
        blocks = Permutations(roster).shared(setup.shared, round).backward(places)
        rows[blocks] = slots[:used].reshape(places.size, -1)
        if slots[used:].any():
            raise ForgedError("a part of the sum belongs to no place.")
        if total and not matches(
            rows.ravel(),
            total[0],
            shared=setup.shared,
            offsets=offsets,
            context=context_of(roster.digest, round),
        ):
            raise ForgedError("the sum does not match the contributors' tags.")
        senders = np.zeros(terms.blocks, dtype=np.int64)
        if terms.counting:
            senders[blocks] = request.senders
        return _released(rows, senders, terms, members)

    def _decrypted(self, ciphertexts: Ciphertexts, bound: int) -> list[int]:
        return self._secret.decrypt(
            ciphertexts, bound=bound, threads=self._resources.threads, progress=self._resources.progress
        )


def check_places(places: NDArray[np.int64], blocks: int) -> None:
    """Refuse all but one or more ascending places below `blocks`; compared, as int64 differences wrap around."""
    if places.ndim != 1 or not places.size or places[0] < 0 or places[-1] >= blocks:
        raise MessageError(f"places must be in 0 ... {blocks - 1}.")
    if (places[1:] <= places[:-1]).any():
        raise MessageError("places must ascend.")


def check_request(request: SparseSum, terms: Terms, contributors: int) -> None:
    check_places(request.places, terms.blocks)
    width = terms.key_bits // 4
    packed = -(-request.places.size // terms.blocks_per_request)
    if request.ciphertexts.shape != (packed, width) or request.tag.shape != (int(not terms.as_published), width):
        raise MessageError("the numbers of places, of ciphertexts and of tags do not match.")
    senders = request.senders
    if senders.shape != (request.places.size * terms.counting,) or ((senders < 0) | (senders > contributors)).any():
        raise MessageError("the request does not say of every place how many contributors sent it.")


def _released(rows: NDArray[np.int64], senders: NDArray[np.int64], terms: Terms, members: tuple[str, ...]) -> Opened:
    """Withhold the blocks that fewer than `minimum_per_position` members changed; refuse all if a number was forged."""
    weights, counts = rows[:, : terms.slots], rows[:, terms.slots :]
    if ((counts < 0) | (counts > senders[:, None])).any():
        raise ForgedError("a block has more contributors than senders, or less than none: a count was forged.")
    if beyond(weights, len(members) * terms.max_integer) or weights.ravel()[terms.dimension :].any():
        raise ForgedError("the sum is not one that these contributors can have: one overflowed or was forged.")
    released: NDArray[np.bool_] = np.all(counts >= terms.minimum_per_position, axis=1)
    sums = np.where(released[:, None], weights, 0).ravel()[: terms.dimension]
    return Opened(members, sums, released)
