"""Arrays and a JSON document in one file that is proven whole before it is used, and never executed.

The file is an ordinary ``.npz`` archive that `numpy.load` can open: one member per array, and a member "document" with
JSON in UTF-8. The document names the kind of file and holds the SHA-256 of everything else. Whatever does not match is
refused: truncated, altered, of another kind or version, pickled or compressed (so that no small file unpacks to a huge
one). Files appear by an atomic rename.
"""

import errno
import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import CorruptFileError, InputError
from blindsight.files import atomic_writer, storage_errors

Arrays = Mapping[str, NDArray[Any]]

_DOCUMENT = "document"
_PLAIN_KINDS = "biufU"


def write_arrays(path: Path, kind: str, document: Mapping[str, Any], arrays: Arrays, *, private: bool = False) -> None:
    """Write a file of this kind; a `private` one can be read by its owner alone."""
    for name, array in arrays.items():
        if array.dtype.kind not in _PLAIN_KINDS:
            raise InputError(f"only numbers and text can be saved; {name} is {array.dtype}.")
    sealed = {"kind": kind, "sha256": _digest(kind, document, arrays), "content": document}
    text = json.dumps(sealed, allow_nan=False, ensure_ascii=False).encode()
    with atomic_writer(path, private=private) as stream:
        np.savez(stream, allow_pickle=False, **{_DOCUMENT: np.frombuffer(text, dtype=np.uint8)}, **dict(arrays))


def read_arrays(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the document and the arrays of a whole file of this kind."""
    with storage_errors("read", path), path.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                packed = [item.filename for item in archive.infolist() if item.compress_type != zipfile.ZIP_STORED]
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as members:
                arrays = {} if packed else {name: members[name] for name in members.files}
            sealed = json.loads(arrays.pop(_DOCUMENT).tobytes())
            found, digest, document = sealed["kind"], sealed["sha256"], sealed["content"]
        except (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, RuntimeError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # damage may point before its start
                raise
            raise CorruptFileError(f"{path} is truncated or altered, or was never a file of Blindsight.") from None
    if found != kind:
        raise CorruptFileError(f"{path} holds a {found!r}; a {kind!r} was expected.")
    if digest != _digest(kind, document, arrays):
        raise CorruptFileError(f"{path} was altered: its content does not match its checksum.")
    return document, arrays


def _digest(kind: str, document: Any, arrays: Arrays) -> str:
    """Return a SHA-256 of all content, whatever the order of the arrays."""
    digest = hashlib.sha256(json.dumps([kind, document], sort_keys=True, ensure_ascii=False).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
