"""What all parties of a DPHE run agree on before anything is encrypted; nobody accepts a set-up with other terms.

The overflow proof lives here: an update whose integers stay within `Terms.max_integer` adds without overflow over all
users (`encoding.SlotPacking`), because a user's shards never change the same weight twice and padding adds zero.

Symbols of the paper: D is `dimension`, M is `capacity` (counted in blocks), N is ``len(users)``. A block is `slots`
consecutive weights in one plaintext; with ``slots=1`` a block is a weight, as in the paper.
"""

from dataclasses import asdict, dataclass
from typing import Literal, get_args

from blindsight.crypto.encoding import FixedPoint, SlotPacking
from blindsight.crypto.paillier import Keys, check_key_bits, check_keys
from blindsight.crypto.wire import MAX_BYTES, decode, encode
from blindsight.errors import InputError
from blindsight.learn.dphe.messages import TermsMessage
from blindsight.learn.fixedpoint import FixedPointTerms

AGGREGATOR, KEY_GENERATOR = "aggregator", "key generator"

Permutations = Literal["double", "single"]
Decrypt = Literal["touched", "all"]

_MAX_DIMENSION = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Terms(FixedPointTerms):
    """The terms of one run.

    `min_users` contributions of different users are needed for a sum; a block that fewer than `min_per_block` users
    changed is withheld from it. `keys` is the kind of Paillier keys (`crypto.paillier`). ``permutations="single"``
    leaves out the users' own permutations (section 2.3 of the paper). ``decrypt="all"`` sends every place to the key
    generator, as the paper does, instead of the touched ones. `as_published` also brings back what is wrong with it,
    for audits: permutations reused in every round and a single encryption of zero.
    """

    run: str
    users: tuple[str, ...]
    dimension: int
    capacity: int
    fraction_bits: int
    slots: int = 1
    slot_bits: int = 32
    key_bits: int = 3072
    keys: Keys = "subgroup"
    min_users: int = 3
    min_per_block: int = 1
    permutations: Permutations = "double"
    decrypt: Decrypt = "touched"
    as_published: bool = False
    insecure: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "users", tuple(self.users))
        self._check_names()
        check_key_bits(self.key_bits, insecure=self.insecure)
        check_keys(self.keys)
        FixedPoint(self.fraction_bits)
        self._check_sizes()
        if self.permutations not in get_args(Permutations) or self.decrypt not in get_args(Decrypt):
            raise InputError('permutations are "double" or "single", and "touched" or "all" places are decrypted.')
        if self.as_published and (self.slots, self.min_per_block, self.decrypt) != (1, 1, "all"):
            raise InputError('the published scheme has slots=1, min_per_block=1 and decrypt="all".')

    def _check_names(self) -> None:
        if not 1 <= len(self.run) <= 64:
            raise InputError(f"a run's name has 1 to 64 characters; got {len(self.run)}.")
        if not all(1 <= len(name) <= 64 for name in self.users) or {AGGREGATOR, KEY_GENERATOR} & set(self.users):
            raise InputError(f"a user's name has 1 to 64 characters and is not {AGGREGATOR!r} or {KEY_GENERATOR!r}.")
        if len(set(self.users)) != len(self.users):
            raise InputError("every user needs a name of its own.")
        if not 3 <= self.min_users <= len(self.users):
            raise InputError(
                f"a sum needs at least 3 users, and no more than there are; got min_users={self.min_users} of "
                f"{len(self.users)}. With fewer than three, each reads the others' update from the sum."
            )
        if not 1 <= self.min_per_block <= len(self.users):
            raise InputError(f"min_per_block must be in 1 ... {len(self.users)}; got {self.min_per_block}.")

    def _check_sizes(self) -> None:
        if not 1 <= self.dimension <= _MAX_DIMENSION:
            raise InputError(f"dimension must be in 1 ... {_MAX_DIMENSION}; got {self.dimension}.")
        most = SlotPacking.for_key(self.key_bits, slot_bits=self.slot_bits).slots - self.counting
        if not 1 <= self.slots <= most:
            counted = " with one slot for the number of contributors" if self.counting else ""
            raise InputError(f"a {self.key_bits}-bit key holds 1 to {most} slots{counted}; got {self.slots}.")
        if not 1 <= self.capacity <= self.blocks:
            raise InputError(f"capacity must be in 1 ... {self.blocks}, the number of blocks; got {self.capacity}.")
        if self.contribution_bytes > MAX_BYTES:
            raise InputError(
                f"a shard of {self.capacity} blocks takes more than {MAX_BYTES} bytes. Lower the capacity."
            )
        if self.request_bytes > MAX_BYTES // 2:
            raise InputError(f"a sum of {self.blocks} blocks is too long for one message. Use more slots per block.")
        if self.max_integer < 1:
            raise InputError(f"{len(self.users)} users need slots of more than {self.slot_bits} bits.")

    @property
    def counting(self) -> int:
        """1 if each block has a further slot that counts who changed it, else 0."""
        return int(self.min_per_block > 1)

    @property
    def packing(self) -> SlotPacking:
        """How a block becomes one plaintext; the slot that counts, if any, is the last."""
        return SlotPacking(self.slot_bits, self.slots + self.counting)

    @property
    def blocks(self) -> int:
        """How many blocks hold all weights."""
        return -(-self.dimension // self.slots)

    @property
    def max_shards(self) -> int:
        """The most shards a user may need."""
        return -(-self.blocks // self.capacity)

    @property
    def max_integer(self) -> int:
        """The largest absolute value of an encoded weight: that of every user together still fits a slot."""
        return self.packing.max_value(len(self.users))

    @property
    def blocks_per_request(self) -> int:
        """How many blocks of the sum the aggregator packs into one plaintext before it asks for decryption."""
        room = SlotPacking.for_key(self.key_bits, slot_bits=self.slot_bits).slots
        return 1 if self.as_published else room // self.packing.slots

    @property
    def request_bytes(self) -> int:
        """A bound on the length of a request for decryption, receipts aside."""
        numbers = self.blocks * 8 * (1 + self.counting)
        return -(-self.blocks // self.blocks_per_request) * (self.key_bits // 4) + numbers

    @property
    def contribution_bytes(self) -> int:
        """A bound on the length of one contribution message."""
        return self.capacity * (self.key_bits // 4 + 8) + 4096

    def to_bytes(self) -> bytes:
        """Return the terms as a message."""
        return encode(TermsMessage(**asdict(self)))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Terms":
        """Read what `to_bytes` wrote."""
        message = decode(data, TermsMessage)
        return cls(**{name: getattr(message, name) for name in cls.__dataclass_fields__})
