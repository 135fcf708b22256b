"""Codes and ids in the formats of PostgreSQL: bit strings, and the binary format of COPY for bulk loads.

PostgreSQL writes bit 0 of a code leftmost: in every byte of ours the bits are turned round.
"""

import struct
from collections.abc import Iterator

import numpy as np

from blindsight.search.codes import Codes, blocks, unpack
from blindsight.search.hits import IdArray

_OPENING = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = struct.pack(">h", -1)
_TURNED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1), axis=1, bitorder="little").ravel()
_ROWS = 65_536  # rows that are written at once


def bit_strings(codes: Codes, bits: int) -> list[str]:
    """Return codes as PostgreSQL writes them, bit 0 first.

    >>> bit_strings(np.array([[0b011]], dtype=np.uint8), 3)
    ['110']
    """
    digits = unpack(codes, bits).astype(np.uint8) + ord("0")
    return [row.tobytes().decode("ascii") for row in digits]


def copy_stream(ids: IdArray, codes: Codes, bits: int) -> Iterator[bytes]:
    """Yield rows of id (bigint or text) and code (bit) in the binary format of COPY."""
    yield _OPENING
    for span in blocks(len(ids), _ROWS):
        part, turned = ids[span], _TURNED[codes[span]]
        yield _integer_rows(part, turned, bits) if part.dtype == np.int64 else _text_rows(part, turned, bits)
    yield _END


def _integer_rows(ids: IdArray, codes: Codes, bits: int) -> bytes:
    width = codes.shape[1]
    layout = [("fields", ">i2"), ("id size", ">i4"), ("id", ">i8"), ("size", ">i4"), ("bits", ">i4")]
    rows = np.empty(len(ids), dtype=[*layout, ("code", "u1", (width,))])
    rows["fields"], rows["id size"], rows["id"] = 2, 8, ids
    rows["size"], rows["bits"], rows["code"] = 4 + width, bits, codes
    return rows.tobytes()


def _text_rows(ids: IdArray, codes: Codes, bits: int) -> bytes:
    tail = struct.pack(">ii", 4 + codes.shape[1], bits)
    texts = [key.encode() for key in ids]
    pairs = zip(texts, codes, strict=True)
    return b"".join(struct.pack(">hi", 2, len(text)) + text + tail + code.tobytes() for text, code in pairs)
