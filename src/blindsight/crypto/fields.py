"""How one field of a message becomes bytes and comes back: a codec per type, each with exactly one encoding per value.

`unpack` raises ValueError on anything that `pack` does not write, so a field that passes is canonical.
"""

import math
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Octets = NDArray[np.uint8]

MAX_BYTES = 1 << 28
"""The largest message, and so the largest field, unless a smaller limit is given."""

_LENGTH = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")
_MAX_DIMENSIONS = 3
_MAX_ITEMS = 1 << 16


@dataclass(frozen=True)
class Codec:
    """How one field type becomes bytes and comes back; `unpack` raises ValueError on anything `pack` does not write."""

    kind: int
    noun: str
    limit: int
    pack: Callable[[Any], bytes]
    unpack: Callable[[memoryview], Any]


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _unpack_bool(body: memoryview) -> bool:
    if bytes(body) not in (b"\0", b"\1"):
        raise ValueError
    return body[0] == 1


def _pack_int(value: Any) -> bytes:
    if isinstance(value, bool):
        raise TypeError
    number = operator.index(value)
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _unpack_int(body: memoryview) -> int:
    number = int.from_bytes(body, "big", signed=True)
    if _pack_int(number) != bytes(body):
        raise ValueError  # leading bytes that say nothing: not the one encoding
    return number


def _pack_float(value: Any) -> bytes:
    if not math.isfinite(value):
        raise ValueError
    return _DOUBLE.pack(value)


def _unpack_float(body: memoryview) -> float:
    (value,) = _DOUBLE.unpack(body)
    if not math.isfinite(value):
        raise ValueError
    return float(value)


def _pack_str(value: Any) -> bytes:
    return bytes(_expect(value, str).encode("utf-8"))


def _unpack_str(body: memoryview) -> str:
    return str(body, "utf-8")


def _pack_bytes(value: Any) -> bytes:
    return bytes(_expect(value, bytes))


def _pack_tuple(pack: Callable[[Any], bytes], values: Any) -> bytes:
    if len(_expect(values, tuple)) > _MAX_ITEMS:
        raise ValueError
    return b"".join(_LENGTH.pack(len(item)) + item for item in map(pack, values))


def _unpack_tuple(unpack: Callable[[memoryview], Any], body: memoryview) -> tuple[Any, ...]:
    items: list[Any] = []
    while body:
        (length,) = _LENGTH.unpack_from(body)
        body = body[_LENGTH.size :]
        if length > len(body) or len(items) == _MAX_ITEMS:
            raise ValueError
        items.append(unpack(body[:length]))
        body = body[length:]
    return tuple(items)


def _pack_array(dtype: str, value: Any) -> bytes:
    if not isinstance(value, np.ndarray) or not np.can_cast(value.dtype, dtype, "safe") or value.ndim > _MAX_DIMENSIONS:
        raise TypeError
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ValueError
    return bytes([value.ndim]) + b"".join(map(_LENGTH.pack, value.shape)) + value.astype(dtype, order="C").tobytes()


def _unpack_array(dtype: str, body: memoryview) -> NDArray[Any]:
    if not body or body[0] > _MAX_DIMENSIONS:
        raise ValueError
    start = 1 + _LENGTH.size * body[0]
    shape = [length for (length,) in _LENGTH.iter_unpack(body[1:start])]
    elements = np.dtype(dtype)
    if len(shape) != body[0] or math.prod(shape) * elements.itemsize != len(body) - start:
        raise ValueError
    array = np.frombuffer(body[start:], dtype=elements).astype(elements.newbyteorder("="), copy=True).reshape(shape)
    if elements.kind == "f" and not np.isfinite(array).all():
        raise ValueError
    array.flags.writeable = False
    return array


def _tuple_codec(kind: int, noun: str, pack: Callable[[Any], bytes], unpack: Callable[[memoryview], Any]) -> Codec:
    return Codec(kind, noun, MAX_BYTES, partial(_pack_tuple, pack), partial(_unpack_tuple, unpack))


def _array_codec(kind: int, noun: str, dtype: str) -> Codec:
    return Codec(kind, noun, MAX_BYTES, partial(_pack_array, dtype), partial(_unpack_array, dtype))


CODECS: dict[Any, Codec] = {
    bool: Codec(1, "true or false", 1, lambda value: bytes([_expect(value, bool)]), _unpack_bool),
    int: Codec(2, "a whole number", 2048, _pack_int, _unpack_int),
    float: Codec(3, "a finite number", 8, _pack_float, _unpack_float),
    str: Codec(4, "text", 4096, _pack_str, _unpack_str),
    bytes: Codec(5, "bytes", MAX_BYTES, _pack_bytes, bytes),
    tuple[str, ...]: _tuple_codec(6, "a tuple of texts", _pack_str, _unpack_str),
    tuple[bytes, ...]: _tuple_codec(7, "a tuple of bytes", _pack_bytes, bytes),
    Floats: _array_codec(8, "an array of finite float64", "<f8"),
    Integers: _array_codec(9, "an array of int64", "<i8"),
    Octets: _array_codec(10, "an array of uint8", "|u1"),
}
