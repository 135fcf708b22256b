"""Indexes on disk: arrays that can be used where they lie, proven whole before they are, and never executed.

::

    "blindsight index"   16 bytes
    version               4 bytes, little-endian, as all numbers
    length of the header  8 bytes
    SHA-256 of the header 32 bytes
    header                JSON: kind, document, and name, type, shape, offset and SHA-256 of every section
    sections              plain arrays, each at a multiple of 64 bytes; the file ends with the last

A file that is truncated, altered, of another kind or of another version is refused. Files appear by an atomic rename,
so a memory-mapped index keeps the content it was opened with when the file is replaced.
"""

import hashlib
import json
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import CorruptFileError
from blindsight.files import atomic_writer, storage_errors
from blindsight.search.hits import IdArray

Sections = Mapping[str, NDArray[Any]]

_MAGIC = b"blindsight index"
_VERSION = 1
_OPENING = struct.Struct("<16sIQ32s")
_ALIGNMENT = 64
_TYPES = ("|u1", "<i4", "<i8")


def write_index(
    path: Path, kind: str, document: Mapping[str, Any], sections: Sections, *, private: bool = False
) -> None:
    """Write an index file, whole or not at all; a `private` one can be read by its owner alone."""
    arrays = {name: np.ascontiguousarray(array) for name, array in sections.items()}
    table, offset = {}, 0
    for name, array in arrays.items():
        assert array.dtype.str in _TYPES, f"sections are {_TYPES}, not {array.dtype}"
        digest = hashlib.sha256(array.data if array.size else b"").hexdigest()
        table[name] = {"type": array.dtype.str, "shape": array.shape, "offset": offset, "sha256": digest}
        offset += _padded(array.nbytes)
    header = json.dumps({"kind": kind, "document": document, "sections": table}, allow_nan=False).encode()
    with atomic_writer(path, private=private) as stream:
        stream.write(_OPENING.pack(_MAGIC, _VERSION, len(header), hashlib.sha256(header).digest()))
        for part in (np.frombuffer(header, dtype=np.uint8), *arrays.values()):
            stream.write(part.data if part.size else b"")
            stream.write(bytes(_padded(stream.tell()) - stream.tell()))


def read_index(
    path: Path, kind: str, *, mapped: bool = False, verify: bool = True
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the document and the sections of an index file of this kind.

    With `mapped=True` the sections stay on disk and are read as they are used. `verify=False` leaves out the checksums
    of the sections, which take one reading of the file; length and header are checked all the same.
    """
    with storage_errors("read", path), path.open("rb") as stream:
        size = stream.seek(0, 2)
        header, begin = _read_header(path, stream, size)
        try:
            found, document, table = header["kind"], header["document"], header["sections"]
            ends = [begin + _padded(entry["offset"] + _bytes(entry)) for entry in table.values()]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CorruptFileError(f"{path} has a header that makes no sense.") from None
        if found != kind:
            raise CorruptFileError(f"{path} is an index of {found!r}; one of {kind!r} was expected.")
        if size != max(ends, default=begin):
            raise CorruptFileError(f"{path} is truncated or was added to: its length does not match its header.")
        content = _content(stream, size, mapped=mapped)
    sections = {}
    for name, entry in table.items():
        section = content[begin + entry["offset"] :][: _bytes(entry)]
        if verify and hashlib.sha256(section.data if section.size else b"").hexdigest() != entry["sha256"]:
            raise CorruptFileError(f"{path} was altered: its {name} do not match their checksum.")
        sections[name] = section.view(entry["type"]).reshape(entry["shape"])
    return document, sections


def pack_ids(ids: IdArray) -> dict[str, NDArray[Any]]:
    """Return ids as sections of a file: integers as they are, text as UTF-8 and where each ends."""
    if ids.dtype == np.int64:
        return {"ids": ids}
    encoded = [key.encode() for key in ids]
    ends = np.cumsum([len(key) for key in encoded], dtype=np.int64)
    return {"id ends": ends, "id bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8)}


def unpack_ids(sections: Sections) -> IdArray:
    """Return the ids that `pack_ids` packed, as they were; whether they make sense is for `check_ids` to tell."""
    if "ids" in sections:
        return sections["ids"]
    whole, ends = sections["id bytes"].tobytes(), sections["id ends"].tolist()
    ids = np.empty(len(ends), dtype=object)
    ids[:] = [whole[begin:end].decode(errors="replace") for begin, end in zip([0, *ends], ends, strict=False)]
    return ids


def _read_header(path: Path, stream: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """Return the header and where the sections begin."""
    stream.seek(0)
    opening = stream.read(_OPENING.size)
    if len(opening) < _OPENING.size or not opening.startswith(_MAGIC):
        raise CorruptFileError(f"{path} is no index of Blindsight, or is truncated.")
    _, version, length, digest = _OPENING.unpack(opening)
    if version != _VERSION:
        raise CorruptFileError(
            f"{path} is an index file of version {version}; this Blindsight reads version {_VERSION}. Build it again."
        )
    text = stream.read(length) if length <= size else b""
    if hashlib.sha256(text).digest() != digest:
        raise CorruptFileError(f"{path} is truncated or was altered: its header does not match its checksum.")
    try:
        header: dict[str, Any] = json.loads(text)
    except ValueError:
        raise CorruptFileError(f"{path} has a header that makes no sense.") from None
    return header, _padded(_OPENING.size + length)


def _content(stream: BinaryIO, size: int, *, mapped: bool) -> NDArray[np.uint8]:
    if mapped:
        return np.frombuffer(mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ), dtype=np.uint8)
    stream.seek(0)
    return np.fromfile(stream, dtype=np.uint8)


def _bytes(entry: Mapping[str, Any]) -> int:
    """Return how many bytes a section takes, or raise unless its description is possible."""
    shape, offset = entry["shape"], entry["offset"]
    whole = [*shape, offset]
    if entry["type"] not in _TYPES or not all(isinstance(number, int) and number >= 0 for number in whole):
        raise ValueError
    if offset % _ALIGNMENT or not isinstance(entry["sha256"], str):
        raise ValueError
    count = int(np.dtype(entry["type"]).itemsize)
    for number in shape:
        count *= number
    return count


def _padded(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT
