"""DPHE: the exact sum of everyone's sparse update, while the one who adds sees neither weights nor where they are.

R. Yonetani, V. N. Boddeti, K. M. Kitani, Y. Sato, "Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic
Encryption", ICCV 2017, Algorithm 1:

    symbol          here
    D, M, N         `Terms.dimension`, `Layout.room` (counted in blocks), the number of members
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
members changed can be withheld. `blindsight.papers.dphe` has the protocol as it was published.

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
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.paillier import (
    Ciphertexts,
    EncryptedSum,
    Keys,
    PrivateKey,
    PublicKey,
    check_key_bits,
    check_keys,
    generate_keys,
)
from blindsight.crypto.permutation import SecretPermutation, derive_permutation
from blindsight.crypto.sealedbox import unseal
from blindsight.crypto.wire import MAX_BYTES, Integers, Message, Octets, decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, random_words, system_bytes
from blindsight.statement import Line, PrivacyStatement, randomness_of
from blindsight.sums.mac import PRIME, context_of, matches, tag
from blindsight.sums.messages import Answer, Call, Key, Reply, Roster, Setup
from blindsight.sums.scheme import (
    Adder,
    ForgedError,
    MemberPart,
    Opened,
    Opener,
    Resources,
    Scheme,
    SchemeOptions,
    Sizes,
    Turn,
    Vouch,
    register,
    released_purpose,
)
from blindsight.sums.statements import KEYED, line, lines
from blindsight.sums.terms import AGGREGATOR, Name, Terms, beyond

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

    @cached_property
    def size(self) -> int:
        return layout_of(self.roster.terms).blocks

    def shared(self, secret: bytes, round: int) -> SecretPermutation:
        """Return phi of a round: known to the members and the key generator, not to the aggregator."""
        return derive_permutation(secret, size=self.size, role="members", **self.context(round))

    def own(self, secret: bytes, member: str, round: int) -> SecretPermutation:
        """Return phi^(n) of a round, known to a member and the aggregator."""
        return derive_permutation(secret, size=self.size, role="own", member=member, **self.context(round))

    def context(self, round: int) -> dict[str, str | int | bytes]:
        return {"run": self.roster.digest, "round": round}


class DpheOptions(SchemeOptions, name="sums/dphe-options.1"):
    """What members of a sparse run agree on besides the terms.

    sparsity : the share of an update's numbers that is zero, as a rule.
    capacity : how many weights a shard holds; an update that changes more takes several. 0: as many as `sparsity`
        leaves; by default a tenth of all, as in the paper.
    minimum_per_position : how many members must have changed a block, or it is withheld. 0: two, and three from five
        members on; the paper has one.
    block : how many consecutive weights share a plaintext. 0: one, or as many as fit for block-dphe.
    key_bits, keys : of the Paillier key; "subgroup" or "conservative" (`crypto.paillier`).
    insecure : allow keys of 1024 bits, for tests and benchmarks.
    """

    sparsity: float = 0.9
    capacity: int = 0
    minimum_per_position: int = 0
    block: int = 0
    key_bits: int = 3072
    keys: Name = "subgroup"
    insecure: bool = False

    def __post_init__(self) -> None:
        check_key_bits(self.key_bits, insecure=self.insecure)
        check_keys(self.keys)
        if not 0 <= self.sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {self.sparsity}.")
        for name in ("capacity", "minimum_per_position", "block"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0, which stands for the usual; got {getattr(self, name)}.")

    def layout(self, terms: Terms) -> "Layout":
        return Layout(terms, self)


@dataclass(frozen=True, eq=False)
class Layout:
    """How the vectors of a sparse run become blocks, plaintexts and messages."""

    terms: Terms
    options: DpheOptions
    tagged: ClassVar[bool] = True
    """Whether contributions carry a tag, by which a sum is known to be one (`mac`)."""
    order: ClassVar[str] = "double permutation of their indices (fresh in every round)"

    def permutations(self, roster: Roster) -> Permutations:
        return Permutations(roster)

    def check(self) -> None:
        terms, bits = self.terms, self.options.key_bits
        if not 1 <= self.minimum_per_position <= len(terms.members):
            raise InputError(
                f"minimum_per_position must be in 1 ... {len(terms.members)}; got {self.minimum_per_position}."
            )
        most = SlotPacking.for_key(bits, slot_bits=terms.slot_bits).slots - self.counting
        if not 1 <= self.slots <= most:
            counted = " with one slot for the number of contributors" if self.counting else ""
            raise InputError(f"a {bits}-bit key holds 1 to {most} slots{counted}; got {self.slots}.")
        if not 1 <= self.capacity <= terms.dimension:
            raise InputError(
                f"capacity must be in 1 ... {terms.dimension}, the number of weights; got {self.capacity}."
            )
        if self.request_bytes > MAX_BYTES // 2:
            raise InputError(f"a sum of {self.blocks} blocks is too long for one message. Use more slots per block.")

    @cached_property
    def minimum_per_position(self) -> int:
        return self.options.minimum_per_position or default_per_position(len(self.terms.members))

    @property
    def counting(self) -> int:
        """1 if each block has a further slot that counts who changed it, else 0."""
        return int(self.minimum_per_position > 1)

    @cached_property
    def slots(self) -> int:
        """How many weights a block has."""
        if self.options.block or not self.terms.traits.packed:
            return self.options.block or 1
        return SlotPacking.for_key(self.options.key_bits, slot_bits=self.terms.slot_bits).slots - self.counting

    @cached_property
    def packing(self) -> SlotPacking:
        """How a block becomes one plaintext; the slot that counts, if any, is the last."""
        return SlotPacking(self.terms.slot_bits, self.slots + self.counting)

    @property
    def blocks(self) -> int:
        return -(-self.terms.dimension // self.slots)

    @property
    def capacity(self) -> int:
        """How many weights a shard holds."""
        return self.options.capacity or max(1, math.ceil(self.terms.dimension * (1 - self.options.sparsity) - 1e-9))

    @property
    def room(self) -> int:
        """How many blocks a shard holds."""
        return -(-self.capacity // self.slots)

    @property
    def max_shards(self) -> int:
        return -(-self.blocks // self.room)

    @property
    def blocks_per_request(self) -> int:
        """How many blocks of the sum the aggregator packs into one plaintext before it asks for decryption."""
        room = SlotPacking.for_key(self.options.key_bits, slot_bits=self.terms.slot_bits).slots
        return room // self.packing.slots

    @property
    def ciphertext_bytes(self) -> int:
        return self.options.key_bits // 4

    @property
    def request_bytes(self) -> int:
        """A bound on the length of a request for decryption, receipts aside."""
        numbers = self.blocks * 8 * (1 + self.counting)
        return -(-self.blocks // self.blocks_per_request) * self.ciphertext_bytes + numbers

    @property
    def seen(self) -> str:
        """What the key generator sees of blocks besides their sum."""
        if self.counting:
            return "how many members changed each block and how many sent it (padding included)"
        return "which blocks were sent (padding included)"

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.room * (self.ciphertext_bytes + 8) + 4096, self.max_shards, self.slots)


def layout_of(terms: Terms) -> Layout:
    """Return how a sparse run lays out its vectors."""
    if not isinstance(terms.options, DpheOptions):
        raise InputError(f"{terms.scheme} sends whole vectors and has no blocks.")
    return terms.options.layout(terms)


def default_per_position(members: int) -> int:
    """Return how many members must have changed a position before its sum is opened, unless a run says otherwise."""
    return 3 if members >= 5 else 2


def read_key(data: bytes, roster: Roster) -> PublicKey:
    if hashlib.sha256(data).digest() != roster.encryption_key:
        raise MessageError("the encryption key is not the one in the roster.")
    options = layout_of(roster.terms).options
    key = PublicKey.from_bytes(data, insecure=options.insecure)
    if (key.bits, key.keys) != (options.key_bits, options.keys):
        raise MessageError(f"the encryption key has {key.bits} bits ({key.keys}); the terms say otherwise.")
    return key


@dataclass(frozen=True, eq=False, repr=False)
class IndexedValues:
    """One shard: `blocks` are the M rows in which K has a one, `plaintexts` is v, one packed block each."""

    blocks: NDArray[np.int64]
    plaintexts: list[int]


def decompose(integers: NDArray[np.int64], layout: Layout, *, source: ByteSource = system_bytes) -> list[IndexedValues]:
    """Return w = K v (Eq. 3) in shards of exactly `Layout.room` blocks, at least one.

    Claim. For an update with n changed blocks this is, up to the secret permutation phi, a function of the number of
    shards F = max(1, ceil(n / M)) and fresh randomness alone: under a uniform phi, F shards of M places each are
    distributed alike for all updates with the same F.
    Proof. If F M <= B (the number of blocks), the shards are a uniformly random split of F M distinct blocks, and phi
    sends any F M distinct blocks to uniformly random ones. Else all B blocks occur in a uniformly random order, and the
    first F M - B of them a second time, in the last shard; again phi makes all cases alike. []

    F itself is seen by the aggregator. The paper leaves split and order open: shards filled in the order of the weights
    would tell the aggregator which permuted places come first in the model.
    """
    rows, room = _rows(integers, layout), layout.room
    changed = np.flatnonzero(rows.any(axis=1))
    packed = layout.packing.pack(_counted(rows[changed], layout).ravel(), terms=len(layout.terms.members))
    count = max(1, -(-changed.size // room)) * room
    unchanged = np.setdiff1d(np.arange(layout.blocks), changed, assume_unique=True)
    padding = _shuffled(unchanged, source)[: count - changed.size]
    order = _shuffled(np.arange(changed.size + padding.size), source)
    blocks = np.concatenate([changed, padding])[order]
    plaintexts = [packed[i] if i < changed.size else 0 for i in order.tolist()]
    # More places than blocks: the last shard repeats some blocks of the first, with zeros.
    plaintexts += [0] * (count - blocks.size)
    blocks = np.concatenate([blocks, blocks[: count - blocks.size]])
    return [IndexedValues(blocks[i : i + room], plaintexts[i : i + room]) for i in range(0, count, room)]


def slots_of(integers: NDArray[np.int64], layout: Layout) -> NDArray[np.int64]:
    """Return all slots of all blocks of an update, row by row: the values that the tag is over."""
    rows = _rows(integers, layout)
    counted = _counted(rows, layout)
    if layout.counting:
        counted[:, -1] = rows.any(axis=1)
    return counted.ravel()


def _rows(values: NDArray[np.int64], layout: Layout) -> NDArray[np.int64]:
    rows = np.zeros(layout.blocks * layout.slots, dtype=np.int64)
    rows[: values.size] = values
    return rows.reshape(layout.blocks, layout.slots)


def _counted(rows: NDArray[np.int64], layout: Layout) -> NDArray[np.int64]:
    """Return rows with a further slot that counts as one, if contributors are counted."""
    return np.hstack([rows, np.ones((len(rows), layout.counting), dtype=np.int64)])


def _shuffled(items: NDArray[np.int64], source: ByteSource) -> NDArray[np.int64]:
    return items[np.argsort(random_words(items.size, source))]


class SparseMember(MemberPart):
    """The user U^(n) of the paper: encrypts the blocks that changed."""

    def __init__(self, name: str, roster: Roster, setup: Setup, resources: Resources, vouch: Vouch) -> None:
        super().__init__(name, roster, setup, resources, vouch)
        self._key, self.layout = read_key(setup.encryption_key, roster), layout_of(roster.terms)

    @classmethod
    def check(cls, terms: Terms) -> None:
        layout_of(terms).check()

    @classmethod
    def sizes(cls, terms: Terms) -> Sizes:
        return layout_of(terms).sizes

    def released(self, answer: Answer) -> NDArray[np.bool_]:
        """Mark the weights in blocks that were not withheld."""
        if not self.layout.counting:
            return super().released(answer)
        blocks = self.layout.blocks
        bitmap = unseal(self.setup.shared, answer.released, purpose=released_purpose(answer.round))
        if len(bitmap) != -(-blocks // 8):
            raise MessageError("the list of released blocks has the wrong length.")
        bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), count=blocks).astype(np.bool_)
        return np.repeat(bits, self.layout.slots)[: self.terms.dimension]

    def answer(self, call: Call, integers: NDArray[np.int64] | None, secrets: bytes) -> tuple[bytes, bytes]:
        values, round, source = self.contribution(integers), call.round, self.resources.source
        permutations = self.layout.permutations(self.roster)
        shards = decompose(values, self.layout, source=source)  # Algorithm 1, step 3: w = K v
        shared = permutations.shared(self.setup.shared, round)
        own = permutations.own(self.setup.own[0], self.name, round)
        places, plaintexts = [], []
        for shard in shards:  # step 4: Phi(K) = phi^(n) phi K (Eq. 7)
            permuted = own.forward(shared.forward(shard.blocks))
            order = np.argsort(permuted)
            places.append(permuted[order])
            plaintexts += [shard.plaintexts[i] for i in order.tolist()]
        if self.layout.tagged:
            context = context_of(self.roster.digest, round)
            slots = slots_of(values, self.layout)
            plaintexts.append(tag(slots, shared=self.setup.shared, offset=self.setup.offset, context=context))
        matrix = self._key.encrypt(
            plaintexts, source=source, pool=self.resources.pool, progress=self.resources.progress
        ).to_matrix()
        count = len(shards) * self.layout.room
        ciphertexts = matrix[:count].reshape(len(shards), self.layout.room, -1)
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
        self.key, self.layout = read_key(setup.encryption_key, roster), layout_of(roster.terms)
        self._own = dict(zip(self.terms.members, setup.own, strict=True))
        self.sum, self._tags = EncryptedSum(self.key, self.layout.blocks), EncryptedSum(self.key, 1)
        self._senders = np.zeros(self.layout.blocks, dtype=np.int64)

    def check(self, step: str, member: str, reply: Reply) -> CheckedShards:
        layout, shards = self.layout, decode(reply.body, Shards, max_bytes=self.terms.most_bytes)
        count = shards.places.shape[0] if shards.places.ndim == 2 else 0
        if not 1 <= count <= layout.max_shards or shards.places.shape != (count, layout.room):
            raise MessageError(
                f"a contribution has 1 to {layout.max_shards} shards of {layout.room} places; that of {member!r} has "
                "not."
            )
        if shards.ciphertexts.shape != (count, layout.room, self.key.width):
            raise MessageError(f"the contribution of {member!r} does not have one ciphertext for each of its places.")
        if shards.tag.shape != (int(layout.tagged), self.key.width):
            raise MessageError(f"the contribution of {member!r} does not have one tag.")
        for places in shards.places:
            check_places(places, layout.blocks)
        ciphertexts = [Ciphertexts.from_matrix(self.key, matrix) for matrix in shards.ciphertexts]
        own = layout.permutations(self.roster).own(self._own[member], member, self.turn[0])
        backward = [own.backward(places) for places in shards.places]  # Eq. 8
        return CheckedShards(backward, ciphertexts, Ciphertexts.from_matrix(self.key, shards.tag))

    def add(self, step: str, member: str, checked: CheckedShards) -> None:
        for places, ciphertexts in zip(checked.places, checked.ciphertexts, strict=True):
            self.sum.add(ciphertexts, places)  # the element-wise product of Eq. 4
        self._senders[np.unique(checked.places)] += 1  # once, however many shards name a place
        self.ciphertexts[member] = sum(map(len, checked.ciphertexts)) + len(checked.tag)
        if len(checked.tag):
            self._tags.add(checked.tag)

    def request(self) -> bytes:
        """Return the encrypted sum in the order of phi (Algorithm 1, steps 5 and 6)."""
        places, packed = self.total()
        senders = self._senders[places] if self.layout.counting else self._senders[:0]
        tags = self._tags.touched()[1].to_matrix()
        self.ciphertexts[AGGREGATOR] = len(packed) + len(tags)
        return encode(SparseSum(places, packed.to_matrix(), tags, senders))

    def total(self) -> tuple[NDArray[np.int64], Ciphertexts]:
        """Return the places that somebody sent, in the order of phi, and their encrypted sums, packed."""
        places, sums = self.sum.touched()
        return places, self.packed(sums)

    def packed(self, ciphertexts: Ciphertexts) -> Ciphertexts:
        threads, progress = self.resources.threads, self.resources.progress
        return pack_ciphertexts(ciphertexts, self.layout, threads=threads, progress=progress)


def pack_ciphertexts(
    ciphertexts: Ciphertexts, layout: Layout, *, threads: int | None = None, progress: Progress = silent
) -> Ciphertexts:
    """Return one ciphertext for every `Layout.blocks_per_request` in a row, so that little is left to decrypt.

    From ciphertexts of packed blocks m_0, m_1, ... of b bits anyone can make one of m_0 + m_1 2^b + m_2 2^2b + ..., at
    b squarings for each. With one weight of 32 bits per ciphertext, 63 of them share one decryption at 2048 bits. (The
    paper decrypts every weight by itself.)
    """
    width = layout.blocks_per_request
    if width == 1:
        return ciphertexts
    chunks = [ciphertexts[start : start + _CHUNK * width] for start in range(0, len(ciphertexts), _CHUNK * width)]
    shift = 1 << (layout.packing.slots * layout.terms.slot_bits)
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
        self._terms, self._layout, self._resources = terms, layout_of(terms), resources
        options = self._layout.options
        if isinstance(secret, bytes):
            secret = PrivateKey.from_secret_bytes(secret, insecure=options.insecure)
        kind: Keys = "conservative" if options.keys == "conservative" else "subgroup"
        self._secret = secret or generate_keys(
            options.key_bits, keys=kind, insecure=options.insecure, source=self._resources.source
        )
        public = self._secret.public
        if (public.bits, public.keys) != (options.key_bits, options.keys):
            raise InputError(
                f"the terms ask for a {options.keys} key of {options.key_bits} bits; got {public.bits}, {public.keys}."
            )
        self.encryption_key = self._secret.public.to_bytes()

    def secret_bytes(self) -> bytes:
        return self._secret.secret_bytes()

    def open(self, body: bytes, members: tuple[str, ...], round: int, setup: Setup, offsets: list[bytes]) -> Opened:
        terms, layout, request = self._terms, self._layout, decode(body, SparseSum)
        roster = Roster.from_bytes(setup.roster, expected=terms)
        check_request(request, layout, len(members))
        packing = SlotPacking(terms.slot_bits, layout.packing.slots * layout.blocks_per_request)
        sums = Ciphertexts.from_matrix(self._secret.public, request.ciphertexts)
        tags = Ciphertexts.from_matrix(self._secret.public, request.tag)
        places = request.places
        try:
            numbers = self._decrypted(sums, packing.max_packed())
            total = self._decrypted(tags, PRIME * len(members))
            slots = packing.unpack(numbers, len(numbers) * packing.slots)
        except Exception as error:
            raise ForgedError(f"the sum cannot be decrypted ({type(error).__name__}).") from None
        used = places.size * layout.packing.slots
        rows = np.zeros((layout.blocks, layout.packing.slots), dtype=np.int64)
        blocks = layout.permutations(roster).shared(setup.shared, round).backward(places)
        rows[blocks] = slots[:used].reshape(places.size, -1)
        if slots[used:].any():
            raise ForgedError("a part of the sum belongs to no place.")
        if layout.tagged and not matches(
            rows.ravel(),
            total[0],
            shared=setup.shared,
            offsets=offsets,
            context=context_of(roster.digest, round),
        ):
            raise ForgedError("the sum does not match the contributors' tags.")
        senders = np.zeros(layout.blocks, dtype=np.int64)
        if layout.counting:
            senders[blocks] = request.senders
        return _released(rows, senders, layout, members)

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


def check_request(request: SparseSum, layout: Layout, contributors: int) -> None:
    check_places(request.places, layout.blocks)
    width = layout.ciphertext_bytes
    packed = -(-request.places.size // layout.blocks_per_request)
    if request.ciphertexts.shape != (packed, width) or request.tag.shape != (int(layout.tagged), width):
        raise MessageError("the numbers of places, of ciphertexts and of tags do not match.")
    senders = request.senders
    if senders.shape != (request.places.size * layout.counting,) or ((senders < 0) | (senders > contributors)).any():
        raise MessageError("the request does not say of every place how many contributors sent it.")


def _released(rows: NDArray[np.int64], senders: NDArray[np.int64], layout: Layout, members: tuple[str, ...]) -> Opened:
    """Withhold the blocks that fewer than `minimum_per_position` members changed; refuse all if a number was forged."""
    terms, weights, counts = layout.terms, rows[:, : layout.slots], rows[:, layout.slots :]
    if ((counts < 0) | (counts > senders[:, None])).any():
        raise ForgedError("a block has more contributors than senders, or less than none: a count was forged.")
    if beyond(weights, len(members) * terms.max_integer) or weights.ravel()[terms.dimension :].any():
        raise ForgedError("the sum is not one that these contributors can have: one overflowed or was forged.")
    if not layout.counting:
        return Opened(members, weights.ravel()[: terms.dimension])
    released: NDArray[np.bool_] = np.all(counts >= layout.minimum_per_position, axis=1)
    sums = np.where(released[:, None], weights, 0).ravel()[: terms.dimension]
    return Opened(members, sums, released)


# What is promised


def _statement(terms: Terms, source: ByteSource) -> PrivacyStatement:
    layout = layout_of(terms)
    options, name = layout.options, "block DPHE" if layout.slots > 1 else "DPHE"
    weights = f"blocks of {layout.slots} weights" if layout.slots > 1 else "single weights"
    checked = ", with a tag that shows the sum to be the sum" if layout.tagged else ""
    decrypted = ("the sum in plain order before anything is withheld", layout.seen, "and who contributed")
    return PrivacyStatement(
        guarantee="none" if options.insecure else "cryptographic",
        summary=f"only sums of updates are opened ({terms.scheme}, {options.key_bits} bits; the aggregator colludes "
        "with nobody)",
        mechanism=f"{name}: Paillier encryption of {weights} under a {options.key_bits}-bit key, {layout.order}, "
        f"padded to {layout.room} of {layout.blocks} per shard{checked}",
        unit="person",
        epsilon=None,
        delta=None,
        randomness=randomness_of(source),
        who_sees={
            "key generator": f"{', '.join(filter(None, decrypted))}; it could decrypt any contribution, but receives "
            "none",
            "aggregator": "ciphertexts; in permuted order, which blocks each member sent (padding included), hence how "
            "many any two members share; how many shards each member sent; the sum in plain order",
            "members": "their own update, the sum, "
            f"{'which blocks were released, ' * layout.counting}and who contributed",
            "someone who intercepts a contribution": "nothing but the number of shards: contributions are sealed",
        },
        not_protected=_leaks(layout),
        assumptions=lines(
            *KEYED,
            "shared-permutation",
            "dphe-hardness-subgroup" if options.keys == "subgroup" else "dphe-hardness",
            "sealed-setup",
        ),
    )


def _leaks(layout: Layout) -> tuple[Line, ...]:
    found = [*lines("exact-blocks", "differences", "spoilt-round", "took-part-shards", "plain-indices")]
    least = layout.minimum_per_position
    if least == 1:
        share = single_contributor_share(len(layout.terms.members), layout.room / layout.blocks)
        found.append(line("single-blocks", share=f"{share:.0%}"))
    else:
        found.append(line("withheld-blocks", least=least))
        if least == 2:
            found.append(line("pair-blocks"))
        found += [line("forged-count", least=least), line("forged-senders")]
    if layout.options.insecure:
        found.append(line("short-key", bits=layout.options.key_bits))
    return tuple(found)


def single_contributor_share(members: int, density: float) -> float:
    """Return the share of the changed blocks that one member alone changed, if supports are independent.

    >>> round(single_contributor_share(members=5, density=0.044), 2)
    0.91
    """
    changed = 1 - (1 - density) ** members
    return members * density * (1 - density) ** (members - 1) / changed


DPHE = register(
    Scheme(
        name="dphe",
        member=SparseMember,
        adder=SparseAdder,
        opener=SparseOpener,
        options=DpheOptions,
        statement=_statement,
        sealed=True,
        sparse=True,
    )
)
BLOCK_DPHE = register(replace(DPHE, name="block-dphe", packed=True))
