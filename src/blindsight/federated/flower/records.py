"""Blindsight's messages inside Flower's, what the aggregator signs of a model, and models as vectors of numbers.

Parts of bytes travel as arrays of uint8, what they are as a small record. Flower moves arrays in pieces; bytes in a
ConfigRecord it encodes and hashes as one block, which takes ten times as long for 100 MB. The arrays are of a
serialisation type of their own, plain bytes: nothing is copied to pack them, and nothing that came from elsewhere is
parsed to unpack them. Text that came from elsewhere ends up in logs: of it, 500 printable characters are kept.

As a vector, a model is its floating-point numbers; the rest stays as it is. Integers among the arrays (a counter of
batches, say) are not averaged: the server's own are kept.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from blindsight.errors import InputError, MessageError
from blindsight.sums.transport import Response

Floats = NDArray[np.float64]

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


def content_digest(content: RecordDict) -> bytes:
    """Return the SHA-256 of all that a message tells the app: every record but Blindsight's own.

    Of a model it covers the order, names, types, shapes and bytes of the arrays, of a config all entries and their
    types, in whatever order; every piece is written with its length.
    """
    digest = hashlib.sha256(b"blindsight content 1")
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


def response_in(content: RecordDict) -> Response:
    """Return what a node replied."""
    try:
        _, parts, error = unpack(content)
    except MessageError as problem:
        return Response(error=str(problem))
    return Response(error=error) if error else Response(parts)


def _key(number: int) -> str:
    return f"{number:02d}"


def _part(arrays: ArrayRecord, number: int) -> bytes:
    array = arrays.get(_key(number))
    if array is None or array.dtype != "uint8" or array.stype != _BYTES or array.shape != (len(array.data),):
        raise MessageError(f"part {number} of a message is no row of bytes.")
    return array.data


def flatten(arrays: ArrayRecord) -> Floats:
    """Return all floating-point numbers of a record in the order of its arrays."""
    parts = [value.numpy() for value in arrays.values()]
    floats = [part.astype(np.float64).ravel() for part in parts if part.dtype.kind == "f"]
    vector: Floats = np.concatenate(floats) if floats else np.zeros(0)
    return vector


def unflatten(vector: Floats, like: ArrayRecord) -> ArrayRecord:
    """Return arrays of the names, shapes and types of `like` with the numbers of a vector."""
    made, start = {}, 0
    for name, value in like.items():
        part = value.numpy()
        if part.dtype.kind != "f":
            made[name] = value
            continue
        made[name] = Array(vector[start : start + part.size].reshape(part.shape).astype(part.dtype))
        start += part.size
    if start != vector.size:
        raise InputError(f"the arrays hold {start} numbers; got {vector.size}.")
    return ArrayRecord(made)


def aligned(arrays: ArrayRecord, like: ArrayRecord) -> ArrayRecord:
    """Return arrays in the order of the model that was sent; refuse others than that model has.

    Any precision will do for floating-point numbers: they are sent at the fixed point of the run anyway.
    """
    wanted, found = _layout(like), _layout(arrays)
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            raise MessageError(
                f"the array {name!r} is {_told(wanted.get(name))} in the model of the run and "
                f"{_told(found.get(name))} here. Use the same model and data of the same dimensions everywhere."
            )
    return ArrayRecord({name: arrays[name] for name in like})


def _layout(arrays: ArrayRecord) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (_numbers(value.dtype), tuple(value.shape)) for name, value in arrays.items()}


def _numbers(dtype: str) -> str:
    return "floating point" if dtype.startswith("float") else dtype


def _told(layout: tuple[str, tuple[int, ...]] | None) -> str:
    return "not there" if layout is None else f"{layout[0]} of shape {layout[1]}"
