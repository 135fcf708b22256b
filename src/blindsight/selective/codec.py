"""Networks as plain vectors, a few values of such a vector, and these as few bytes, in one encoding only.

*The guarantee.* `decode_sparse(encode_sparse(x))` is x, bit for bit, and every blob that is accepted is the one that
`encode_sparse` writes for what it holds; anything else raises `MessageError`. All lengths are checked against the blob,
the dimension and the caller's limit before memory is taken: decoding takes memory in proportion to the blob.

*The form.* One byte tells the type of the values, a variable-length number (seven bits a byte, the least first) how
many there are. Then come the places and the values. Of present and absent places the fewer are written (none at all
when every place is present), as gaps g >= 0 between neighbours in Rice's code (Rice and Plaunt 1971): a byte k, the low
k bits of all gaps, then g >> k zeros and a one for each. Gaps of random places follow a geometric law, for which this
code is within a few percent of the entropy (Gallager and Van Voorhis 1975): 4.76 bits a place at a share of 0.1, where
the entropy is 4.69.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, MessageError


@dataclass(frozen=True)
class ParameterLayout:
    """Names and shapes of the parameters that are learned, in the order in which they make up one vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.names:
            raise InputError("this model has no trainable parameters, so there is nothing to share.")
        if len(self.names) != len(self.shapes) or len(set(self.names)) != len(self.names):
            raise InputError("a layout names every parameter once and gives each a shape.")

    @classmethod
    def of(cls, parameters: Iterable[tuple[str, tuple[int, ...]]]) -> "ParameterLayout":
        pairs = [(name, tuple(int(side) for side in shape)) for name, shape in parameters]
        return cls(tuple(name for name, _ in pairs), tuple(shape for _, shape in pairs))

    @cached_property
    def dimension(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    @cached_property
    def digest(self) -> str:
        """What stands for this layout in messages: equal exactly for equal names, shapes and order."""
        return hashlib.sha256(json.dumps([self.names, self.shapes]).encode()).hexdigest()


Vector = NDArray[np.float32]
"""All trainable parameters of a network, or a change of them, in one row."""

LARGEST_PARAMETER = 2.0**20
"""The largest magnitude of a parameter that a server hands out and a participant accepts.

No network that learns comes near it; near the end of float32 a server could choose weights that fail on some photos.
"""


@lru_cache(maxsize=4)
def every_place(dimension: int) -> NDArray[np.int64]:
    """Return all places of a vector, read-only: as long as the vector itself, they are made once and kept."""
    places = np.arange(dimension)
    places.setflags(write=False)
    return places


@dataclass(frozen=True, eq=False)
class SparseUpdate:
    """Values at ascending places of a vector of `dimension` zeros. It is private until it was protected."""

    dimension: int
    indices: NDArray[np.int64]
    values: Vector

    def __post_init__(self) -> None:
        if self.indices.ndim != 1 or self.indices.shape != self.values.shape:
            raise InputError(
                f"an update has one value for each place; got {self.indices.shape} and {self.values.shape}."
            )
        if self.indices.size == self.dimension and self.indices is every_place(self.dimension):
            return
        if self.indices.size and (
            self.indices[0] < 0 or self.indices[-1] >= self.dimension or (self.indices[1:] <= self.indices[:-1]).any()
        ):
            raise InputError(f"places must ascend within 0 to {self.dimension - 1}, each once.")

    def __repr__(self) -> str:
        return f"<SparseUpdate: {self.indices.size} of {self.dimension} values, hidden>"

    @property
    def where(self) -> slice | NDArray[np.int64]:
        """The places, in the way numpy is quickest with."""
        return slice(None) if self.indices.size == self.dimension else self.indices

    def dense(self) -> Vector:
        vector = np.zeros(self.dimension, dtype=np.float32)
        vector[self.where] = self.values
        return vector


LARGEST_HALF = 65504.0
"""The largest float16."""

LARGEST_DIMENSION = 2**31
"""The most parameters a vector may have; sums of gaps, forged ones too, then stay within 64 bits."""

_TYPES = (np.dtype("<f4"), np.dtype("<f2"))
_OTHER_FORM = "a sparse update is not written in the one form it has."
_COUNT_BYTES = 5  # of the variable-length count: below 2^35

Places = NDArray[np.int64]


class NotFiniteError(MessageError):
    """An update is well formed but holds NaN or infinity."""


def as_half(values: Vector) -> Vector:
    """Return the values rounded to float16, those beyond its range to the largest; still as float32.

    >>> as_half(np.array([0.1, 1e6], dtype=np.float32)).tolist()
    [0.0999755859375, 65504.0]
    """
    limited = np.clip(values, -LARGEST_HALF, LARGEST_HALF)
    return limited.astype(np.float16).astype(np.float32)


def encode_sparse(update: SparseUpdate, *, half: bool = False) -> bytes:
    """Return the update as bytes, with values of 16 bits where `half` is set: round them with `as_half` first.

    >>> places = np.arange(0, 5120, 10)
    >>> len(encode_sparse(SparseUpdate(5120, places, np.ones(512, dtype=np.float32)))) / (4 * 5120)
    0.1158203125
    """
    _check_dimension(update.dimension)
    if not np.isfinite(update.values).all() or (half and (as_half(update.values) != update.values).any()):
        kind = "finite and rounded to float16 (`as_half`)" if half else "finite"
        raise InputError(f"the values of an update must be {kind} before they are encoded.")
    head = bytes([half]) + _pack_count(update.indices.size)
    values = update.values.astype(_TYPES[half], copy=False).tobytes()
    return head + _pack_places(_written(update.indices, update.dimension)) + values


def decode_sparse(blob: bytes, dimension: int, *, max_values: int) -> SparseUpdate:
    """Return the update that `encode_sparse` wrote, of a vector of `dimension`, with `max_values` values at most."""
    _check_dimension(dimension)
    if not blob or blob[0] > 1:
        raise MessageError("a sparse update begins with a byte for the type of its values; this one does not.")
    half = blob[0] == 1
    count, start = _unpack_count(blob)
    if count > min(max_values, dimension):
        raise MessageError(
            f"a sparse update of {dimension} parameters may have {min(max_values, dimension)} values here; got {count}."
        )
    end = len(blob) - count * _TYPES[half].itemsize
    if end < start:
        raise MessageError("a sparse update is shorter than its values.")
    written = _unpack_places(blob[start:end], min(count, dimension - count), dimension)
    values = np.frombuffer(blob, dtype=_TYPES[half], offset=end).astype(np.float32)
    if not np.isfinite(values).all():
        raise NotFiniteError("a sparse update holds a value that is not finite.")
    present = written if count <= dimension - count else _others(written, dimension)
    return SparseUpdate(dimension, present, values)


def most_bytes(count: int, dimension: int, *, half: bool = False) -> int:
    """Return how many bytes `encode_sparse` takes at most for `count` values, wherever they stand.

    With k low bits a place takes k + 1 bits, and the rest of all gaps together at most dimension / 2^k.

    >>> most_bytes(512, 5120), most_bytes(5120, 5120)
    (2381, 20483)
    """
    _check_dimension(dimension)
    written = min(count, dimension - count)
    bits = min(written * (k + 1) + (dimension - written >> k) for k in range(dimension.bit_length()))
    places = 2 + -(-bits // 8) if written else 0  # the byte k, and low bits and the rest each in whole bytes
    return 1 + len(_pack_count(count)) + places + count * _TYPES[half].itemsize


def _check_dimension(dimension: int) -> None:
    if not 1 <= dimension <= LARGEST_DIMENSION:
        raise InputError(f"updates are written for 1 to 2^31 parameters; got {dimension}.")


# --- the count ---


def _pack_count(count: int) -> bytes:
    packed = bytearray()
    while count >= 128:
        packed.append(count & 127 | 128)
        count >>= 7
    return bytes([*packed, count])


def _unpack_count(blob: bytes) -> tuple[int, int]:
    """Return the count that begins at the second byte, and where it ends."""
    count = 0
    for i, byte in enumerate(blob[1 : 1 + _COUNT_BYTES]):
        count |= (byte & 127) << 7 * i
        if byte < 128:
            if blob[1 : i + 2] != _pack_count(count):
                raise MessageError(_OTHER_FORM)
            return count, i + 2
    raise MessageError("a sparse update does not tell how many values it has.")


# --- the places ---


def _written(present: Places, dimension: int) -> Places:
    """Return the places to write: those present, or those absent if they are fewer."""
    return present if present.size <= dimension - present.size else _others(present, dimension)


def _others(places: Places, dimension: int) -> Places:
    if not places.size:
        return every_place(dimension)
    if places.size == dimension:
        return np.zeros(0, dtype=np.int64)
    left = np.ones(dimension, dtype=np.bool_)
    left[places] = False
    return np.flatnonzero(left)


def _pack_places(places: Places) -> bytes:
    if not places.size:
        return b""
    gaps = places.astype(np.int32)  # places are below 2^31
    gaps[1:] -= gaps[:-1] + 1
    low_bits = _best_low_bits(gaps)
    low = np.empty((gaps.size, low_bits), dtype=np.uint8)
    for bit in range(low_bits):
        np.bitwise_and(gaps >> bit, 1, out=low[:, bit], casting="unsafe")
    ends = np.cumsum((gaps >> low_bits) + 1)
    unary = np.zeros(ends[-1], dtype=np.uint8)
    unary[ends - 1] = 1
    return bytes([low_bits]) + np.packbits(low).tobytes() + np.packbits(unary).tobytes()


def _unpack_places(body: bytes, count: int, dimension: int) -> Places:
    if not count:
        if body:
            raise MessageError("a sparse update has more bytes than it needs.")
        return np.zeros(0, dtype=np.int64)
    low_bits = body[0] if body else 0
    split = 1 + (count * low_bits + 7) // 8
    unary_bits = 8 * (len(body) - split)
    if low_bits > dimension.bit_length() or not count <= unary_bits < count + (dimension >> low_bits) + 8:
        raise MessageError("a sparse update has too few or too many bytes for its places.")
    low = np.unpackbits(np.frombuffer(body[1:split], dtype=np.uint8))
    ones = np.flatnonzero(np.unpackbits(np.frombuffer(body[split:], dtype=np.uint8)))
    if ones.size != count:
        raise MessageError("a sparse update has more or fewer places than values.")
    gaps = (np.diff(ones, prepend=-1) - 1) << low_bits
    for bit in range(low_bits):
        gaps |= low[bit : count * low_bits : low_bits].astype(np.int64) << bit
    if low[count * low_bits :].any() or unary_bits - ones[-1] > 8 or low_bits != _best_low_bits(gaps):
        raise MessageError(_OTHER_FORM)
    places: Places = np.cumsum(gaps + 1) - 1
    if places[-1] >= dimension:
        raise MessageError(f"a sparse update names a place beyond its {dimension} parameters.")
    return places


def _best_low_bits(gaps: NDArray[np.signedinteger]) -> int:
    """Return the k with which Rice's code is shortest; the least of them if several are.

    One more low bit costs a bit for each gap and saves half of what was left of it, rounded up. The larger k, the less
    it saves: so the search for where it stops to pay may begin anywhere, and begins where it does for geometric gaps.
    """
    k = int(0.69 * gaps.mean()).bit_length()
    if _pays(gaps, k):
        while _pays(gaps, k + 1):
            k += 1
        return k + 1
    while k and not _pays(gaps, k - 1):
        k -= 1
    return k


def _pays(gaps: NDArray[np.signedinteger], low_bits: int) -> bool:
    """Tell whether one more low bit makes Rice's code shorter."""
    return int((((gaps >> low_bits) + 1) >> 1).sum()) > gaps.size
