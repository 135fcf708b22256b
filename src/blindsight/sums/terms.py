"""The terms of a run of sums: scheme, members, length and fixed point of the vectors, and how many must contribute.

All parties hold the same `Terms`, everything that is signed is bound to their digest, and nobody accepts others. Every
scheme adds the integers that `Terms.integers` makes of the updates, so all give the same sum bit for bit. It is exact:
each integer is at most `max_integer` in absolute value, so that all members' together stay below 2^(slot_bits - 1),
which is within the slots of Paillier plaintexts (`crypto.encoding`), the plain modulus of BFV (`crypto.bfv`) and the
modulus of the masks (`Terms.residues`).

Who is asked to contribute follows from the terms and the round's number (`Terms.sampled`), and so do the groups of the
masks (`Terms.groups`): the server chooses neither.

Symbols of DPHE (Yonetani et al., ICCV 2017): D is `dimension`, M is `room` (counted in blocks), N is ``len(members)``.
A block is `slots` consecutive weights in one plaintext; with one slot a block is a weight, as in the paper.
"""

import hashlib
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.bfv import parameters_for
from blindsight.crypto.encoding import FixedPoint, SlotPacking
from blindsight.crypto.paillier import check_key_bits, check_keys
from blindsight.crypto.permutation import derive_permutation
from blindsight.crypto.wire import MAX_BYTES, Limit, Message, decode, encode
from blindsight.errors import InputError, MessageError, UnknownNameError
from blindsight.sums.support import BLOCK, Schedule, Support

AGGREGATOR, KEY_GENERATOR = "aggregator", "key generator"

Scheme = Literal["plain", "dphe", "block-dphe", "bfv", "masks"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
SPARSE_SCHEMES: tuple[Scheme, ...] = ("dphe", "block-dphe")
KEYED_SCHEMES: tuple[Scheme, ...] = ("dphe", "block-dphe", "bfv")
"""The schemes in which a key generator decrypts the sum; for masks it only vouches for everybody's keys."""
HIDING_SCHEMES: tuple[Scheme, ...] = tuple(scheme for scheme in SCHEMES if scheme != "plain")
"""The schemes under which the aggregator sees no single update."""

MAX_DIMENSION = 1 << 24
MAX_MEMBERS = 1024
GROUP_MEMBERS = 50
"""From twice this many members on, masks are shared within groups of at least this many."""

Digest = Annotated[bytes, Limit(32)]
Name = Annotated[str, Limit(256)]
Integers = NDArray[np.int64]
Residues = NDArray[np.unsignedinteger[Any]]
"""Numbers modulo 2^b in numpy's unsigned type of b bits."""

_LATTICE_BYTES = {4096: 17, 8192: 30}  # of a weight, by ring degree (`crypto.bfv`)
_AROUND = 1 << 22  # bytes, at most, around what a member sends: keys, names, signatures


class Terms(Message, name="sums/terms.1"):
    """The terms of one run.

    The vectors may be parts of longer ones: in each round the `share` of `whole` numbers that a public schedule names
    (`support`), and the last `always` of them in every round; `dimension` is then the schedule's size. `minimum`
    members must contribute to a round before anybody learns its sum. `sample` of the members are asked in a round (0:
    all), and a member goes on while no more than `absences` of the members that were asked can have been missing from
    the sums of the run, all rounds together (-1: any number). `config` is the digest of whatever else the members must
    agree on.

    For DPHE: `capacity` weights per shard; `minimum_per_position` members must have changed a block, or it is withheld;
    `block` weights share a plaintext (0: as many as fit for block-dphe, one for dphe); `keys` are "subgroup" or
    "conservative" (`crypto.paillier`). ``permutations="single"`` leaves out the members' own permutations (section 2.3
    of the paper), ``decrypt="all"`` sends every place to the key generator instead of the touched ones, and
    `as_published` brings back what is wrong with the paper's protocol, for audits.

    >>> terms = Terms(scheme="plain", run="a", members=("ann", "bob", "cem"), dimension=3, fraction_bits=4)
    >>> terms.integers([1.0, -0.5, 0.03125]).tolist()
    [16, -8, 0]
    """

    scheme: Name
    run: Name
    members: tuple[str, ...]
    dimension: int
    fraction_bits: int
    slot_bits: int = 32
    minimum: int = 3
    sample: int = 0
    absences: int = -1
    config: Digest = b""
    capacity: int = 0
    minimum_per_position: int = 1
    block: int = 0
    key_bits: int = 3072
    keys: Name = "subgroup"
    insecure: bool = False
    permutations: Name = "double"
    decrypt: Name = "touched"
    as_published: bool = False
    whole: int = 0
    share: float = 1.0
    always: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(self.members))
        if self.scheme not in SCHEMES:
            raise UnknownNameError("aggregation scheme", self.scheme, SCHEMES)
        FixedPoint(self.fraction_bits)
        self._check_members()
        if not 1 <= len(self.run) <= 64:
            raise InputError(f"a run's name has 1 to 64 characters; got {len(self.run)}.")
        if not 1 <= self.dimension <= MAX_DIMENSION:
            raise InputError(f"dimension must be in 1 ... {MAX_DIMENSION}; got {self.dimension}.")
        if self.max_integer < 1:
            raise InputError(f"{len(self.members)} members need slots of more than {self.slot_bits} bits.")
        if self.keyed and self.slot_bits > 56:
            raise InputError(f"{self.scheme} checks sums in slots of at most 56 bits; got {self.slot_bits}.")
        if len(self.config) not in (0, 32):
            raise InputError("the terms hold the SHA-256 of the configuration.")
        if self.whole and self.dimension != self._schedule(bytes(16)).size:
            raise InputError(f"a share of {self.share} of {self.whole} numbers has another size than {self.dimension}.")
        if self.sparse:
            self._check_sparse()
        elif (self.capacity, self.minimum_per_position) != (0, 1) or self.as_published:
            raise InputError(
                f"{self.scheme} adds whole vectors and does not count who changed a position; got minimum_per_position="
                f"{self.minimum_per_position}. Use dphe or block-dphe."
            )
        if self.contribution_bytes + _AROUND > MAX_BYTES:
            raise InputError(
                f"a contribution of {self.dimension} weights under {self.scheme} takes {self.contribution_bytes >> 20} "
                f"MiB; a message may take {MAX_BYTES >> 20}. Learn fewer weights, send fewer of them (sparsity), or "
                "use another scheme."
            )

    def _check_members(self) -> None:
        for name in self.members:
            if not 1 <= len(name) <= 64 or name in (AGGREGATOR, KEY_GENERATOR):
                reserved = f"{AGGREGATOR!r} or {KEY_GENERATOR!r}"
                raise InputError(f"a member's name has 1 to 64 characters and is not {reserved}; got {name!r}.")
        if len(set(self.members)) != len(self.members):
            raise InputError("every member needs a name of its own.")
        if not 3 <= len(self.members) <= MAX_MEMBERS:
            raise InputError(
                f"a run has 3 to {MAX_MEMBERS} members; got {len(self.members)}. With fewer than three, each reads the "
                "other's update from the sum."
            )
        if self.sample and not 3 <= self.sample <= len(self.members):
            raise InputError(f"sample must be 0 (all) or in 3 ... {len(self.members)}; got {self.sample}.")
        if not 3 <= self.minimum <= self.asked:
            raise InputError(
                f"minimum must be in 3 ... {self.asked}, the members that are asked in a round; got {self.minimum}."
            )

    def _check_sparse(self) -> None:
        check_key_bits(self.key_bits, insecure=self.insecure)
        check_keys(self.keys)
        if self.permutations not in ("double", "single") or self.decrypt not in ("touched", "all"):
            raise InputError('permutations are "double" or "single", and "touched" or "all" places are decrypted.')
        if not 1 <= self.minimum_per_position <= len(self.members):
            raise InputError(
                f"minimum_per_position must be in 1 ... {len(self.members)}; got {self.minimum_per_position}."
            )
        most = SlotPacking.for_key(self.key_bits, slot_bits=self.slot_bits).slots - self.counting
        if not 1 <= self.slots <= most:
            counted = " with one slot for the number of contributors" if self.counting else ""
            raise InputError(f"a {self.key_bits}-bit key holds 1 to {most} slots{counted}; got {self.slots}.")
        if not 1 <= self.capacity <= self.dimension:
            raise InputError(f"capacity must be in 1 ... {self.dimension}, the number of weights; got {self.capacity}.")
        if self.request_bytes > MAX_BYTES // 2:
            raise InputError(f"a sum of {self.blocks} blocks is too long for one message. Use more slots per block.")
        if self.as_published and (self.slots, self.minimum_per_position, self.decrypt) != (1, 1, "all"):
            raise InputError('the published scheme has one slot, minimum_per_position=1 and decrypt="all".')

    # Fixed point

    @cached_property
    def max_integer(self) -> int:
        """The largest absolute value of an encoded weight: that of every member together still fits a slot."""
        return SlotPacking(self.slot_bits, 1).max_value(len(self.members))

    @property
    def limit(self) -> float:
        return float(self.max_integer / 2**self.fraction_bits)

    def integers(self, update: ArrayLike) -> Integers:
        """Encode an update of real weights in fixed point, exactly as every scheme does."""
        try:
            values = np.asarray(update, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("an update is a vector of real numbers.") from None
        self._check_shape(values)
        return self.checked(FixedPoint(self.fraction_bits).encode(values))

    def checked(self, integers: Integers) -> Integers:
        """Return encoded weights that are fit to be contributed; others raise `InputError`."""
        self._check_shape(integers)
        if integers.dtype.kind not in "iu":
            raise InputError(f"encoded weights are whole numbers; got {integers.dtype}. Use `integers`.")
        if beyond(integers, self.max_integer):
            outside = np.flatnonzero((integers > self.max_integer) | (integers < -self.max_integer))
            raise InputError(
                f"weight {outside[0]} is beyond +-{self.limit:g}, the most that "
                f"{len(self.members)} members may add in {self.slot_bits}-bit slots at {self.fraction_bits} fraction "
                "bits. Clip it, use fewer fraction bits or wider slots."
            )
        return integers.astype(np.int64, copy=False)

    def values(self, integers: Integers) -> NDArray[np.float64]:
        """Return the weights that encoded integers, or sums of them, stand for."""
        return FixedPoint(self.fraction_bits).decode(integers)

    def _check_shape(self, values: NDArray[Any]) -> None:
        if values.shape != (self.dimension,):
            raise InputError(f"an update is a vector of {self.dimension} weights; got shape {values.shape}.")

    # Residues modulo 2^b, where b is the smallest of 8, 16, 32 and 64 that holds a sum with its sign

    @cached_property
    def residue_type(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The unsigned type in which sums are told apart: any two differ by less than 2^b."""
        return np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if 8 * size >= self.slot_bits)}")

    def residues(self, integers: Integers) -> Residues:
        return integers.astype(self.residue_type)

    def read_residues(self, data: bytes) -> Residues:
        """Return one residue per weight from what somebody sent; `MessageError` if it is too long or too short."""
        size = self.dimension * self.residue_type.itemsize
        if len(data) != size:
            raise MessageError(f"a vector of {self.dimension} weights takes {size} bytes.")
        return np.frombuffer(data, dtype=self.residue_type)

    def read_sums(self, data: bytes, contributors: int) -> Integers:
        """Return the sums of that many members in [-2^(b-1), 2^(b-1)); `MessageError` if they are too large."""
        residues = self.read_residues(data)
        sums = residues.view(residues.dtype.str.replace("u", "i")).astype(np.int64)
        if beyond(sums, contributors * self.max_integer):
            raise MessageError("the sum is not one that these contributors can have: one overflowed or was forged.")
        return sums

    # Who takes part

    @property
    def asked(self) -> int:
        return self.sample or len(self.members)

    @property
    def needed(self) -> int:
        """How many members the sum of a round needs; masks need more than two thirds of those that are asked."""
        return max(self.minimum, threshold(self.asked)) if self.scheme == "masks" else self.minimum

    def sampled(self, round: int) -> tuple[str, ...]:
        """Return the members that are asked in a round, in the order of names; anybody can compute them."""
        if not self.sample:
            return tuple(sorted(self.members))
        order = derive_permutation(self.digest, size=len(self.members), use="sample", round=round)
        return tuple(sorted(self.members[i] for i in order.backward(np.arange(self.sample)).tolist()))

    def groups(self, round: int) -> tuple[tuple[str, ...], ...]:
        """Return the groups in which masks are shared: one, or from 100 members on several of at least 50."""
        asked = self.sampled(round)
        count = max(1, len(asked) // GROUP_MEMBERS) if len(asked) >= 2 * GROUP_MEMBERS else 1
        if count == 1:
            return (asked,)
        order = derive_permutation(self.digest, size=len(asked), use="groups", round=round).forward(
            np.arange(len(asked))
        )
        return tuple(tuple(sorted(asked[i] for i in order[group::count].tolist())) for group in range(count))

    # Agreed supports

    def _schedule(self, seed: bytes) -> Schedule:
        return Schedule(self.whole, BLOCK, self.share, seed, always=self.always)

    def support(self, round: int) -> Support:
        """Return which numbers of the whole vectors a round is about: those that everybody derives from the terms."""
        if not self.whole:
            return Support(np.arange(self.dimension, dtype=np.int64), self.dimension, self.dimension)
        return self._schedule(self.digest).support(round)

    @classmethod
    def share_size(cls, whole: int, share: float, always: int = 0) -> int:
        """Return the `dimension` of terms whose rounds are about a share of the whole vectors."""
        return Schedule(whole, BLOCK, share, bytes(16), always=always).size

    # Sparse schemes

    @property
    def sparse(self) -> bool:
        return self.scheme in SPARSE_SCHEMES

    @property
    def keyed(self) -> bool:
        return self.scheme in KEYED_SCHEMES

    @property
    def counting(self) -> int:
        """1 if each block has a further slot that counts who changed it, else 0."""
        return int(self.minimum_per_position > 1)

    @cached_property
    def slots(self) -> int:
        if self.scheme != "block-dphe":
            return self.block or 1
        return self.block or SlotPacking.for_key(self.key_bits, slot_bits=self.slot_bits).slots - self.counting

    @cached_property
    def packing(self) -> SlotPacking:
        """How a block becomes one plaintext; the slot that counts, if any, is the last."""
        return SlotPacking(self.slot_bits, self.slots + self.counting)

    @property
    def blocks(self) -> int:
        return -(-self.dimension // self.slots)

    @property
    def room(self) -> int:
        return -(-self.capacity // self.slots)

    @property
    def max_shards(self) -> int:
        return -(-self.blocks // self.room)

    @property
    def blocks_per_request(self) -> int:
        """How many blocks of the sum the aggregator packs into one plaintext before it asks for decryption."""
        room = SlotPacking.for_key(self.key_bits, slot_bits=self.slot_bits).slots
        return 1 if self.as_published else room // self.packing.slots

    # Bytes

    @property
    def request_bytes(self) -> int:
        """A bound on the length of a request for decryption of a sparse sum, receipts aside."""
        numbers = self.blocks * 8 * (1 + self.counting)
        return -(-self.blocks // self.blocks_per_request) * (self.key_bits // 4) + numbers

    @property
    def contribution_bytes(self) -> int:
        """How long a member's contribution is, about; of a sparse one, with one shard."""
        if self.sparse:
            return self.room * (self.key_bits // 4 + 8) + 4096
        if self.scheme == "bfv":
            lattice = parameters_for(self.max_integer * len(self.members))
            return -(-self.dimension // lattice.degree) * lattice.degree * _LATTICE_BYTES[lattice.degree]
        return self.dimension * self.residue_type.itemsize

    @property
    def most_bytes(self) -> int:
        """What no contribution exceeds: sparse ones may come in several shards, ciphertexts compress more or less."""
        shards = self.max_shards if self.sparse else 1
        return min(MAX_BYTES, 2 * shards * self.contribution_bytes + _AROUND)

    def to_bytes(self) -> bytes:
        return encode(self)

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.to_bytes()).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Terms":
        """Read what `to_bytes` wrote; terms that cannot be are refused."""
        try:
            return decode(data, cls, max_bytes=1 << 20)
        except InputError as error:
            raise MessageError(f"the run is on impossible terms: {error}") from None


def threshold(members: int) -> int:
    """Return t: how many members of a group of masks must take part in every step, more than two thirds.

    >>> [threshold(members) for members in (3, 4, 5, 10)]
    [3, 3, 4, 7]
    """
    return 2 * members // 3 + 1


def beyond(integers: Integers, most: int) -> bool:
    """Tell whether an absolute value exceeds `most`; none is taken, because that of -2^63 is itself.

    >>> beyond(np.array([-(2**63)]), 5), beyond(np.array([-5, 5]), 5)
    (True, False)
    """
    return integers.size > 0 and bool(integers.max() > most or integers.min() < -most)
