"""Indexes on disk: array files (`blindsight.files`) that hold codes or symbols and their ids.

Version 0.1 wrote indexes in a format of their own, which is still read::

    "blindsight index"   16 bytes
    version               4 bytes, little-endian, as all numbers
    length of the header  8 bytes
    SHA-256 of the header 32 bytes
    header                JSON: kind, document, and name, type, shape, offset and SHA-256 of every section
    sections              plain arrays, each at a multiple of 64 bytes; the file ends with the last
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import CorruptFileError
from blindsight.files import AnyPath, as_path, file_content, read_arrays, storage_errors
from blindsight.search.hits import IdArray

_OLD_MAGIC = b"blindsight index\1\0\0\0"
_OLD_OPENING = struct.Struct("<20sQ32s")
_OLD_KINDS = {"blindsight/code-index.1": "codes", "blindsight/symbol-index.1": "symbols"}
_OLD_TYPES = ("|u1", "<i4", "<i8")


def read_index(
    path: AnyPath, kind: str, *, mapped: bool = False, verify: bool = True
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the document and the arrays of an index file of this kind, of this version or of 0.1."""
    path = as_path(path)
    with storage_errors("read", path), path.open("rb") as stream:
        if stream.read(len(_OLD_MAGIC)) != _OLD_MAGIC:
            return read_arrays(path, kind, mapped=mapped, verify=verify)
        content = file_content(stream, mapped=mapped)
    try:
        return _read_old(content, _OLD_KINDS[kind], verify=verify)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, struct.error):
        raise CorruptFileError(f"{path} is truncated, altered or an index of another kind.") from None


def pack_ids(ids: IdArray) -> dict[str, NDArray[Any]]:
    """Return ids as arrays of a file: integers as they are, text as UTF-8 and where each ends."""
    if ids.dtype == np.int64:
        return {"ids": ids}
    encoded = [key.encode() for key in ids]
    ends = np.cumsum([len(key) for key in encoded], dtype=np.int64)
    return {"id ends": ends, "id bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8)}


def unpack_ids(sections: Mapping[str, NDArray[Any]]) -> IdArray:
    """Return the ids that `pack_ids` packed, as they were; whether they make sense is for `check_ids` to tell."""
    if "ids" in sections:
        return sections["ids"]
    whole, ends = sections["id bytes"].tobytes(), sections["id ends"].tolist()
    ids = np.empty(len(ends), dtype=object)
    ids[:] = [whole[begin:end].decode(errors="replace") for begin, end in zip([0, *ends], ends, strict=False)]
    return ids


def _read_old(content: memoryview, kind: str, *, verify: bool) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    _, length, digest = _OLD_OPENING.unpack_from(content)
    text = content[_OLD_OPENING.size :][:length]
    header = json.loads(bytes(text))
    if hashlib.sha256(text).digest() != digest or header["kind"] != kind:
        raise ValueError
    body = content[_padded(_OLD_OPENING.size + length) :]
    arrays, end = {}, 0
    for name, entry in header["sections"].items():
        size = math.prod(entry["shape"]) * np.dtype(entry["type"]).itemsize
        section = body[entry["offset"] :][:size]
        if entry["type"] not in _OLD_TYPES or entry["offset"] != end or len(section) != size:
            raise ValueError
        if verify and hashlib.sha256(section).hexdigest() != entry["sha256"]:
            raise ValueError
        arrays[name] = np.frombuffer(section, dtype=entry["type"]).reshape(entry["shape"])
        end += _padded(size)
    if len(body) != end:
        raise ValueError
    return header["document"], arrays


def _padded(length: int) -> int:
    return -(-length // 64) * 64
