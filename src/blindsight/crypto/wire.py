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
the arrays Floats (float64, finite), Integers (int64), Octets (uint8) of up to three dimensions.
"""

import hashlib
import re
import struct
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from blindsight.crypto.fields import CODECS, Codec
from blindsight.crypto.fields import MAX_BYTES as MAX_BYTES
from blindsight.crypto.fields import Floats as Floats
from blindsight.crypto.fields import Integers as Integers
from blindsight.crypto.fields import Octets as Octets
from blindsight.errors import InputError, MessageError

HEADER_BYTES = 14

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
        """Make the subclass a frozen dataclass that knows its name on the wire."""
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
    raise MessageError(f"expected a message {' or '.join(t._name for t in expected)}; got {name}.")


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
