"""The terms of a run of sums: scheme, members, length and fixed point of the vectors, and how many must contribute.

All parties hold the same `Terms`, everything that is signed is bound to their digest, and nobody accepts others. Every
scheme adds the integers that `Terms.integers` makes of the updates, so all give the same sum bit for bit. It is exact:
each integer is at most `max_integer` in absolute value, so that all members' together stay below 2^(slot_bits - 1),
which is within the slots of Paillier plaintexts (`crypto.encoding`), the plain modulus of BFV (`crypto.bfv`) and the
modulus of the masks (`Terms.residues`). What only one scheme needs is in its own options (`Terms.options`).

Who is asked to contribute follows from the terms and the round's number (`Terms.sampled`), and so do the groups of the
masks (`Terms.groups`): the server chooses neither.
"""

import hashlib
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.encoding import FixedPoint, SlotPacking
from blindsight.crypto.permutation import derive_permutation
from blindsight.crypto.wire import MAX_BYTES, Limit, Message, decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.sums.scheme import Scheme, SchemeOptions, Sizes, find_scheme
from blindsight.sums.support import BLOCK, Schedule, Support

AGGREGATOR, KEY_GENERATOR = "aggregator", "key generator"

MAX_DIMENSION = 1 << 24
MAX_MEMBERS = 1024
GROUP_MEMBERS = 50
"""From twice this many members on, masks are shared within groups of at least this many."""

Digest = Annotated[bytes, Limit(32)]
Name = Annotated[str, Limit(256)]
Integers = NDArray[np.int64]
Residues = NDArray[np.unsignedinteger[Any]]
"""Numbers modulo 2^b in numpy's unsigned type of b bits."""

_AROUND = 1 << 22  # bytes, at most, around what a member sends: keys, names, signatures


class Terms(Message, name="sums/terms.2"):
    """The terms of one run.

    The vectors may be parts of longer ones: in each round the `share` of `whole` numbers that a public schedule names
    (`support`), and the last `always` of them in every round; `dimension` is then the schedule's size. `minimum`
    members must contribute to a round before anybody learns its sum. `sample` of the members are asked in a round (0:
    all), and a member goes on while no more than `absences` of the members that were asked can have been missing from
    the sums of the run, all rounds together (-1: any number). `config` is the digest of whatever else the members must
    agree on. `extra` holds the scheme's own options as bytes (`SchemeOptions.to_bytes`), empty where it has none.

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
    whole: int = 0
    share: float = 1.0
    always: int = 0
    extra: Annotated[bytes, Limit(4096)] = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(self.members))
        _ = self.traits  # an unknown scheme is refused before its options are read
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
        if self.whole and not self.config:
            raise InputError("a share of the numbers is taken by a schedule that follows from the config. Give one.")
        if self.whole and self.dimension != self._schedule(bytes(16)).size:
            raise InputError(f"a share of {self.share} of {self.whole} numbers has another size than {self.dimension}.")
        _ = self.options
        self.traits.member.check(self)
        if self.sizes.shard + _AROUND > MAX_BYTES:
            raise InputError(
                f"a contribution of {self.dimension} weights under {self.scheme} takes {self.sizes.shard >> 20} MiB; a "
                f"message may take {MAX_BYTES >> 20}. Learn fewer weights, send fewer of them (sparsity), or use "
                "another scheme."
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

    # The scheme

    @cached_property
    def traits(self) -> Scheme:
        """The scheme itself; unknown here, it raises `UnknownNameError`."""
        return find_scheme(self.scheme)

    @cached_property
    def options(self) -> SchemeOptions | None:
        """The scheme's own options; None where it has none."""
        kind = self.traits.options
        if kind is None and self.extra:
            raise InputError(f"{self.scheme} has no options of its own.")
        if kind is not None and not self.extra:
            raise InputError(f"{self.scheme} needs options: extra={kind.__name__}(...).to_bytes().")
        return None if kind is None else decode(self.extra, kind)

    @property
    def sparse(self) -> bool:
        return self.traits.sparse

    @property
    def keyed(self) -> bool:
        return self.traits.keyed

    # Fixed point

    @cached_property
    def max_integer(self) -> int:
        """The largest absolute value of an encoded weight."""
        return largest_integer(len(self.members), self.slot_bits)

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
        """How many members the sum of a round needs."""
        return self.traits.member.needed(self)

    def sampled(self, round: int) -> tuple[str, ...]:
        """Return the members that are asked in a round, in the order of names; anybody can compute them."""
        if not self.sample:
            return tuple(sorted(self.members))
        order = derive_permutation(self.digest, size=len(self.members), use="sample", round=round)
        return tuple(sorted(self.members[i] for i in order.backward(np.arange(self.sample)).tolist()))

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """How many members are in each of the groups (or cohorts) whose sums are opened."""
        count = group_count(self.asked) if self.traits.threshold else 1
        return tuple(len(range(first, self.asked, count)) for first in range(count))

    def groups(self, round: int) -> tuple[tuple[str, ...], ...]:
        """Return the groups whose sums are opened: for masks, from 100 members on several of at least 50; else one."""
        if self.traits.cohorts:
            raise InputError(f"the cohorts of {self.scheme} are in the roster: they do not follow from the terms.")
        asked, count = self.sampled(round), len(self.group_sizes)
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
        """Return which numbers of the whole vectors a round is about, by the schedule that follows from the config.

        Rounds count from 1.
        """
        if not self.whole:
            return Support(np.arange(self.dimension, dtype=np.int64), self.dimension, self.dimension)
        return self._schedule(self.config).support(round - 1)

    @classmethod
    def share_size(cls, whole: int, share: float, always: int = 0) -> int:
        """Return the `dimension` of terms whose rounds are about a share of the whole vectors."""
        return Schedule(whole, BLOCK, share, bytes(16), always=always).size

    # Bytes

    @cached_property
    def sizes(self) -> Sizes:
        """How large a contribution is, about."""
        return self.traits.member.sizes(self)

    @property
    def most_bytes(self) -> int:
        """What no contribution exceeds: sparse ones may come in several shards, ciphertexts compress more or less."""
        return min(MAX_BYTES, 2 * self.sizes.shards * self.sizes.shard + _AROUND)

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


def largest_integer(members: int, slot_bits: int) -> int:
    """Return the largest absolute value of an encoded weight: that of every member together still fits a slot."""
    return SlotPacking(slot_bits, 1).max_value(members)


def group_count(asked: int) -> int:
    """Return in how many groups masks are shared.

    >>> [group_count(asked) for asked in (3, 99, 100, 149, 150)]
    [1, 1, 2, 2, 3]
    """
    return asked // GROUP_MEMBERS if asked >= 2 * GROUP_MEMBERS else 1


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
