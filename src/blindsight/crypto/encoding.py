"""Numbers as integers that survive encrypted addition: fixed point, and many small integers in one plaintext.

*Fixed point*: x becomes the integer nearest to x * 2^F (ties to even), exactly, or an error; sums of encodings decode
to the exact sum of what was encoded.

*Slot packing*: integers v_0, v_1, ... become sum_i v_i 2^(S i), so that one addition of packed numbers adds every slot.

    Claim. If each of N vectors has |v_i| <= V with N V < 2^(S-1), the sum of their packed numbers unpacks to their sum.
    Proof. The sum is sum_i s_i 2^(S i) with |s_i| <= N V < 2^(S-1). Adding the constant sum_i 2^(S-1) 2^(S i) gives
    digits s_i + 2^(S-1), all in [0, 2^S): so they are *the* digits of that number in base 2^S; nothing was carried or
    borrowed between slots. Subtracting 2^(S-1) from each digit gives s_i. []

N V < 2^(S-1) is checked before anything is encrypted. The packed sum of k slots is below 2^(S k - 1) in absolute value,
and a Paillier plaintext under a modulus of b bits holds everything below 2^(b - 2): hence k = floor((b - 1) / S), which
is 63 slots of 32 bits at 2048 bits and 95 at 3072.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError, MessageError


@dataclass(frozen=True)
class FixedPoint:
    """Reals as multiples of 2^-fraction_bits in 64-bit integers."""

    fraction_bits: int

    def __post_init__(self) -> None:
        if not 0 <= self.fraction_bits <= 62:
            raise InputError(f"fraction_bits must be in 0 ... 62; got {self.fraction_bits}.")

    def encode(self, values: ArrayLike) -> NDArray[np.int64]:
        """Return the nearest encodable integers.

        >>> FixedPoint(fraction_bits=4).encode([1.0, -0.5, 0.03125, 0.09375]).tolist()
        [16, -8, 0, 2]
        """
        # Scaling by a power of two is exact, so `rint` sees the true value.
        with np.errstate(over="ignore"):
            scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), self.fraction_bits))
        fits = np.abs(scaled) < 2.0**63  # false for NaN, too
        if not fits.all():
            index = int(np.flatnonzero(~fits)[0])
            what = "is not a finite number" if not np.isfinite(np.ravel(values)[index]) else "overflows 64 bits"
            raise InputError(f"value {index} {what} at {self.fraction_bits} fraction bits. Clip or scale it first.")
        return scaled.astype(np.int64)

    def decode(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the numbers that integers stand for (exact below 2^53).

        >>> FixedPoint(fraction_bits=4).decode(np.array([16, -8])).tolist()
        [1.0, -0.5]
        """
        return np.ldexp(np.asarray(integers, dtype=np.int64).astype(np.float64), -self.fraction_bits)


@dataclass(frozen=True)
class SlotPacking:
    """`slots` signed integers of `slot_bits` bits each in one big integer."""

    slot_bits: int
    slots: int

    def __post_init__(self) -> None:
        if self.slot_bits not in range(8, 65, 8):
            raise InputError(f"slot_bits must be 8, 16, 24, ... 64; got {self.slot_bits}.")
        if self.slots < 1:
            raise InputError(f"a packed number has at least one slot; got {self.slots}. Use a longer key.")

    @classmethod
    def for_key(cls, key_bits: int, *, slot_bits: int = 32) -> "SlotPacking":
        """Return the packing that fills a Paillier plaintext.

        >>> SlotPacking.for_key(2048).slots, SlotPacking.for_key(3072).slots
        (63, 95)
        """
        return cls(slot_bits, (key_bits - 1) // slot_bits)

    def max_value(self, terms: int) -> int:
        """Return the largest V with terms * V < 2^(slot_bits - 1): `terms` vectors within it add without overflow.

        >>> SlotPacking(32, 63).max_value(5)
        429496729
        """
        if terms < 1:
            raise InputError(f"a sum has at least one term; got {terms}.")
        return ((1 << (self.slot_bits - 1)) - 1) // terms

    def max_packed(self) -> int:
        """Return a bound on any packed sum's absolute value."""
        return (1 << (self.slot_bits * self.slots - 1)) - 1

    def blocks(self, count: int) -> int:
        """Return how many packed numbers hold `count` integers."""
        return -(-count // self.slots)

    def pack(self, values: NDArray[np.int64], *, terms: int) -> list[int]:
        """Pack integers, to be added with `terms` - 1 further such vectors; the last block is filled with zeros."""
        values = np.asarray(values)
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InputError(f"slots take a vector of whole numbers; got {values.dtype} of shape {values.shape}.")
        limit = self.max_value(terms)
        outside = (values > limit) | (values < -limit)
        if outside.any():
            raise InputError(
                f"value {int(np.flatnonzero(outside)[0])} is beyond +-{limit}, the most that {terms} terms may have in "
                f"{self.slot_bits}-bit slots. Clip it, use fewer fraction bits or wider slots."
            )
        digits = np.zeros(self.blocks(len(values)) * self.slots, dtype="<i8")
        digits[: len(values)] = values
        digits += self._offset()  # wraps for 64-bit slots, as two's complement should
        data = digits.view(np.uint8).reshape(-1, 8)[:, : self.slot_bits // 8].tobytes()
        size, centre = self.slots * self.slot_bits // 8, self._centre()
        return [int.from_bytes(data[i : i + size], "little") - centre for i in range(0, len(data), size)]

    def unpack(self, packed: Sequence[int], count: int) -> NDArray[np.int64]:
        """Return the first `count` integers of packed numbers or sums of them."""
        if len(packed) != self.blocks(count):
            raise InputError(f"{count} integers take {self.blocks(count)} packed numbers; got {len(packed)}.")
        size, centre = self.slots * self.slot_bits // 8, self._centre()
        try:
            data = b"".join([(int(number) + centre).to_bytes(size, "little") for number in packed])
        except OverflowError:
            raise MessageError("a packed sum is beyond its slots: a contribution overflowed or was forged.") from None
        digits: NDArray[Any] = np.zeros((len(packed) * self.slots, 8), dtype=np.uint8)
        digits[:, : self.slot_bits // 8] = np.frombuffer(data, dtype=np.uint8).reshape(-1, self.slot_bits // 8)
        values = digits.view("<i8")[:count, 0].astype(np.int64)
        return values - self._offset()

    def _offset(self) -> np.int64:
        return np.uint64(1 << (self.slot_bits - 1)).astype(np.int64)

    def _centre(self) -> int:
        """sum_i 2^(S-1) 2^(S i): the number whose digits are all 2^(S-1)."""
        return int.from_bytes((bytes(self.slot_bits // 8 - 1) + b"\x80") * self.slots, "little")
