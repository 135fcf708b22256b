"""Messages as bytes: one encoding per message, every length checked before it is believed, no code inside.

A message is a frozen class with annotated fields; the annotation is the schema::

    class Update(Message, name="example/update.1"):
        round: int
        author: Annotated[str, Limit(64)]
        places: Integers
        values: Octets

    blob = encode(Update(round=3, author="anna", places=places, values=values))
    update = decode(blob, Update)

`decode` returns one of the expected types or raises `MessageError` with a sentence, whatever the bytes are: it never
executes, never guesses, and copies nothing before its announced length agrees with what arrived. A message that passes
is canonical: ``encode(decode(blob, T)) == blob``. The checksum finds accidents; against forgery see `signing`.

Layout (numbers big-endian, array elements little-endian)::

    "BLSM" | version u8 | name length u8 | payload length u64 | name | payload | SHA-256 of all before
    payload: per field in declared order   kind u8 | length u64 | body

Field types: bool, int (any size up to its limit), float (finite), str, bytes, tuple[str, ...], tuple[bytes, ...] and
the arrays Floats (float64, finite), Integers (int64), Octets (uint8) of up to three dimensions. Each type has one codec
with exactly one encoding per value: `unpack` raises ValueError on anything that `pack` does not write.

What must never become bytes by accident is a `Secret`.
"""

import hashlib
import math
import operator
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import (
    Annotated,
    Any,
    ClassVar,
    NoReturn,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, MessageError, PrivacyError, VersionError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Octets = NDArray[np.uint8]

MAX_BYTES = 1 << 28
"""The largest message, and so the largest field, unless a smaller limit is given."""

HEADER_BYTES = 14

_LENGTH = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")
_MAX_DIMENSIONS = 3
_INT_BYTES = 513  # a key of 4096 bits; Python writes no more than 4300 digits, and a sentence may have to
_MAX_ITEMS = 1 << 16
_MAGIC, _VERSION = b"BLSM", 1
_HEADER = struct.Struct(">4sBBQ")
_FIELD = struct.Struct(">BQ")
_DIGEST_BYTES = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9./-]{0,63}")


@dataclass(frozen=True)
class Limit:
    """The most bytes a field may take, as in ``Annotated[str, Limit(64)]``."""

    nbytes: int


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=False)
class Message:
    """Base of every message: a subclass names itself and annotates its fields; it becomes a frozen dataclass."""

    _name: ClassVar[str]
    _schema: ClassVar[tuple["_Field", ...]]

    def __init_subclass__(cls, *, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise TypeError(f"a message name is 1 to 64 of a-z, 0-9, '.', '/', '-'; got {name!r}.")
        cls._name = name
        dataclass(frozen=True, eq=False, repr=False)(cls)
        cls._schema = _schema(cls)

    def __repr__(self) -> str:
        return f"<message {self._name}>"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Message) and encode(self) == encode(other)

    def __hash__(self) -> int:
        return hash(encode(self))


M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    """Return the one encoding of a message; a field that breaks its schema raises `InputError`."""
    parts = [message._name.encode("ascii")]
    for field in message._schema:
        try:
            body = field.codec.pack(getattr(message, field.name))
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"field {field.name!r} of {message!r} must be {field.codec.noun}.") from error
        if len(body) > field.limit:
            raise InputError(f"field {field.name!r} of {message!r} may take {field.limit} bytes; got {len(body)}.")
        parts += [_FIELD.pack(field.codec.kind, len(body)), body]
    parts.insert(0, _HEADER.pack(_MAGIC, _VERSION, len(parts[0]), sum(map(len, parts[1:]))))
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return b"".join([*parts, digest.digest()])


def decode(blob: bytes, *expected: type[M], max_bytes: int = MAX_BYTES) -> M:
    """Return the message in `blob`, which must be whole, canonical and of one of the `expected` types."""
    if len(blob) != (announced := announced_bytes(blob[:HEADER_BYTES], max_bytes=max_bytes)):
        raise MessageError(f"the message announces {announced} bytes and {len(blob)} arrived.")
    body = memoryview(blob)[:-_DIGEST_BYTES]
    if hashlib.sha256(body).digest() != blob[-_DIGEST_BYTES:]:
        raise MessageError("the message was damaged on its way: its checksum does not match.")
    start = HEADER_BYTES + blob[5]
    name = bytes(body[HEADER_BYTES:start]).decode("latin-1")
    if not _NAME.fullmatch(name):
        raise MessageError("the message bears no valid name.")
    for candidate in expected:
        if candidate._name == name:
            return _read_fields(candidate, body[start:])
    known = " or ".join(candidate._name for candidate in expected)
    if name.rpartition(".")[0] in {candidate._name.rpartition(".")[0] for candidate in expected} - {""}:
        raise VersionError(f"{name} is of another version of Blindsight; this one reads {known}.")
    raise MessageError(f"expected a message {known}; got {name}.")


def announced_bytes(header: bytes, *, max_bytes: int = MAX_BYTES) -> int:
    """Return the length of the message that begins with `header`: readers of a stream ask before they allocate."""
    if len(header) < HEADER_BYTES:
        raise MessageError(f"the message is cut short: {len(header)} bytes are less than a header.")
    magic, version, name_length, payload_length = _HEADER.unpack_from(header)
    if magic != _MAGIC:
        raise MessageError("this is not a Blindsight message: it does not begin like one.")
    if version != _VERSION:
        raise MessageError(f"the message has format version {version}; this program reads version {_VERSION}.")
    total: int = HEADER_BYTES + name_length + payload_length + _DIGEST_BYTES
    if total > max_bytes:
        raise MessageError(f"the message announces {total} bytes; at most {max_bytes} are accepted here.")
    return total


def _read_fields(message_type: type[M], payload: memoryview) -> M:
    values: dict[str, Any] = {}
    for field in message_type._schema:
        what = f"field {field.name!r} of message {message_type._name}"
        if len(payload) < _FIELD.size:
            raise MessageError(f"{what} is missing.")
        kind, length = _FIELD.unpack_from(payload)
        payload = payload[_FIELD.size :]
        if kind != field.codec.kind:
            raise MessageError(f"{what} is of the wrong kind.")
        if length > field.limit or length > len(payload):
            raise MessageError(
                f"{what} announces {length} bytes; {len(payload)} are there and {field.limit} are allowed."
            )
        try:
            values[field.name] = field.codec.unpack(payload[:length])
        except (ValueError, OverflowError, struct.error) as error:
            raise MessageError(f"{what} is not {field.codec.noun}.") from error
        payload = payload[length:]
    if payload:
        raise MessageError(f"message {message_type._name} has {len(payload)} bytes after its last field.")
    return message_type(**values)


@dataclass(frozen=True)
class Codec:
    """How one field type becomes bytes and comes back."""

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
    int: Codec(2, "a whole number", _INT_BYTES, _pack_int, _unpack_int),
    float: Codec(3, "a finite number", 8, _pack_float, _unpack_float),
    str: Codec(4, "text", 4096, _pack_str, _unpack_str),
    bytes: Codec(5, "bytes", MAX_BYTES, _pack_bytes, bytes),
    tuple[str, ...]: _tuple_codec(6, "a tuple of texts", _pack_str, _unpack_str),
    tuple[bytes, ...]: _tuple_codec(7, "a tuple of bytes", _pack_bytes, bytes),
    Floats: _array_codec(8, "an array of finite float64", "<f8"),
    Integers: _array_codec(9, "an array of int64", "<i8"),
    Octets: _array_codec(10, "an array of uint8", "|u1"),
}


@dataclass(frozen=True)
class _Field:
    name: str
    codec: Codec
    limit: int


def _schema(message_type: type[Message]) -> tuple[_Field, ...]:
    hints = get_type_hints(message_type, include_extras=True)
    schema = []
    for item in fields(message_type):  # type: ignore[arg-type]
        hint, limits = hints[item.name], []
        if get_origin(hint) is Annotated:
            hint, *extras = get_args(hint)
            limits = [extra.nbytes for extra in extras if isinstance(extra, Limit)]
        if hint not in CODECS:
            raise TypeError(f"field {item.name!r} of {message_type.__name__} has a type that messages do not carry.")
        codec = CODECS[hint]
        schema.append(_Field(item.name, codec, min([codec.limit, *limits])))
    return tuple(schema)


class Secret:
    """Base of objects that hold a secret: never shown, never pickled, never copied by accident.

    `pickle`, `copy` and `multiprocessing` all go through `__reduce_ex__`, which refuses. What may leave the process
    leaves only through the method a class offers for it.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, hidden>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise PrivacyError(f"a {type(self).__name__} holds a secret: it cannot be pickled or copied.")
