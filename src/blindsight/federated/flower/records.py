"""Blindsight's messages inside Flower's: parts of bytes travel as arrays of uint8, what they are as a small record.

Flower copies and hashes bytes in a ConfigRecord value by value; arrays go through as one block.
"""

from collections.abc import Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from blindsight.errors import MessageError
from blindsight.federated.courier import Reply
from blindsight.federated.sums.messages import PROTOCOL

HEAD, PARTS = "blindsight", "blindsight-parts"
MOST_PARTS = 64


def pack(kind: str, parts: Sequence[bytes], *, error: str = "") -> RecordDict:
    """Return Flower's records for a message of this kind."""
    arrays = {f"{number:02d}": Array(np.frombuffer(part, dtype=np.uint8)) for number, part in enumerate(parts)}
    head = ConfigRecord({"protocol": PROTOCOL, "kind": kind, "parts": len(parts), "error": error})
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
    return kind, tuple(_part(arrays, number) for number in range(count)), error


def reply_in(content: RecordDict) -> Reply:
    """Return what a node replied."""
    try:
        _, parts, error = unpack(content)
    except MessageError as problem:
        return Reply(error=str(problem))
    return Reply(error=error) if error else Reply(parts)


def _part(arrays: ArrayRecord, number: int) -> bytes:
    try:
        array = arrays[f"{number:02d}"].numpy()
    except (KeyError, ValueError, TypeError, OSError, EOFError) as error:
        raise MessageError(f"part {number} of a message is damaged: {type(error).__name__}.") from None
    if array.dtype != np.uint8 or array.ndim != 1:
        raise MessageError(f"part {number} of a message is no row of bytes.")
    return array.tobytes()
