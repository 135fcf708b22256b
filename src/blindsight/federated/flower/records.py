"""Blindsight's messages inside Flower's: parts of bytes travel as arrays of uint8, what they are as a small record.

Flower moves arrays in pieces; bytes in a ConfigRecord it encodes and hashes as one block, which takes ten times as long
for 100 MB. The arrays are of a serialisation type of their own, plain bytes: nothing is copied to pack them, and
nothing that came from elsewhere is parsed to unpack them. Text that came from elsewhere ends up in logs: of it, 500
printable characters are kept.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from blindsight.errors import MessageError
from blindsight.federated.courier import Reply

HEAD, PARTS = "blindsight", "blindsight-parts"
MOST_PARTS, MOST_CHARACTERS = 64, 500
_BYTES = "blindsight.bytes"


def pack(kind: str, parts: Sequence[bytes], *, error: str = "") -> RecordDict:
    """Return Flower's records for a message of this kind."""
    arrays = {_key(number): Array("uint8", (len(part),), _BYTES, part) for number, part in enumerate(parts)}
    head = ConfigRecord({"kind": kind, "parts": len(parts), "error": error})
    return RecordDict({HEAD: head, PARTS: ArrayRecord(arrays)})


def is_ours(content: RecordDict) -> bool:
    """Tell whether a message of Flower carries one of Blindsight's."""
    return HEAD in content


def unpack(content: RecordDict) -> tuple[str, tuple[bytes, ...], str]:
    """Return kind, parts and error of a message; `MessageError` on anything that `pack` did not make."""
    head, arrays = content.get(HEAD), content.get(PARTS)
    if not isinstance(head, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        raise MessageError("this is not one of Blindsight's messages.")
    kind, count, error = head.get("kind"), head.get("parts"), head.get("error")
    if not isinstance(kind, str) or not isinstance(count, int) or not isinstance(error, str):
        raise MessageError("the head of a message is damaged.")
    if not 0 <= count <= MOST_PARTS or len(arrays) != count:
        raise MessageError(f"a message announces {count} parts and has {len(arrays)}.")
    return printable(kind), tuple(_part(arrays, number) for number in range(count)), printable(error)


def lesson_digest(content: RecordDict) -> bytes:
    """Return the SHA-256 of all that a message tells the app: every record but Blindsight's own.

    Of a model it covers the order, names, types, shapes and bytes of the arrays, of a config all entries and their
    types, in whatever order; every piece is written with its length.
    """
    digest = hashlib.sha256(b"blindsight lesson 1")
    for name in sorted(content.keys() - {HEAD, PARTS}):
        record = content[name]
        items = record.items() if isinstance(record, ArrayRecord) else sorted(record.items())
        for piece in (name, type(record).__name__, len(record), *(part for item in items for part in _pieces(item))):
            text = piece if isinstance(piece, bytes) else str(piece).encode()
            digest.update(len(text).to_bytes(8, "big"))
            digest.update(text)
    return digest.digest()


def _pieces(value: Any) -> Iterator[Any]:
    """Yield what makes a value of a record what it is, with types and lengths; what comes last may be any bytes."""
    if isinstance(value, tuple | list):
        yield from ("list", len(value))
        for part in value:
            yield from _pieces(part)
    elif isinstance(value, Array):
        yield from ("array", value.dtype, len(value.shape), *value.shape, value.stype, value.data)
    elif isinstance(value, float):
        yield from ("float", struct.pack(">d", value))
    else:
        yield from (type(value).__name__, value)


def printable(text: str) -> str:
    """Return the beginning of a text on one line, with a space for what cannot be printed.

    >>> printable("gone\\n\\x1b[2J")
    'gone  [2J'
    """
    return "".join(character if character.isprintable() else " " for character in text[:MOST_CHARACTERS])


def reply_in(content: RecordDict) -> Reply:
    """Return what a node replied."""
    try:
        _, parts, error = unpack(content)
    except MessageError as problem:
        return Reply(error=str(problem))
    return Reply(error=error) if error else Reply(parts)


def _key(number: int) -> str:
    return f"{number:02d}"


def _part(arrays: ArrayRecord, number: int) -> bytes:
    array = arrays.get(_key(number))
    if array is None or array.dtype != "uint8" or array.stype != _BYTES or array.shape != (len(array.data),):
        raise MessageError(f"part {number} of a message is no row of bytes.")
    return array.data
