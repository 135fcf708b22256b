"""Files that are either whole or not there: atomic writes, locks, checksums, arrays, and errors a person can read.

*Arrays*, in a file or in a message, are an ordinary ``.npz`` archive that `numpy.load` can open: one member per array,
aligned so that it can be used where it lies. A file also has a member "document" with JSON in UTF-8, which names the
kind of file and holds the SHA-256 of everything else. Nothing is executed and nothing is believed before it is checked:
what is truncated, altered, of another kind, pickled or compressed (a small file could unpack to a huge one) is refused.
"""

import errno
import fcntl
import hashlib
import io
import json
import math
import mmap
import os
import re
import secrets
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from blindsight.errors import CorruptFileError, InputError, MessageError, StorageError

if TYPE_CHECKING:  # the command line shows its help without numpy
    from numpy.typing import NDArray

AnyPath = str | os.PathLike[str]
"""A path as a caller may name it; see `as_path`."""

Arrays = Mapping[str, "NDArray[Any]"]

_DOCUMENT = "document"
_PLAIN_KINDS = "biufU"
_ALIGNMENT = 64
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a zip member: how it begins, the lengths of its name and extra field
_ZIP64_BYTES = 20
_PADDING = struct.Struct("<HH")
_PADDING_FIELD = 0xD935
_NPY_OPENING_BYTES = 10
_NPY_HEADER = re.compile(  # numpy's own reader would evaluate it as Python
    rb"\x93NUMPY\x01\x00(?P<length>..){'descr': '(?P<type>[<>|][biufU]\d{1,9})', "
    rb"'fortran_order': (?P<columns>True|False), 'shape': \((?P<shape>|\d{1,19},|\d{1,19}(?:, \d{1,19})+)\), } *\n",
    re.DOTALL,
)
_DAMAGE = (zipfile.BadZipFile, ValueError, TypeError, KeyError, EOFError, OSError, RuntimeError, struct.error)

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission was denied",
    errno.EPERM: "permission was denied",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a part of the path is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.ENOENT: "it does not exist",
}


def as_path(path: AnyPath) -> Path:
    """Return a path that a caller named, with a leading ``~`` expanded to the home folder."""
    return Path(path).expanduser()


@contextmanager
def storage_errors(action: str, path: Path, remedy: str = "") -> Iterator[None]:
    """Turn an operating-system error into one sentence: what could not be done, where, why, and the remedy."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        sentence = f"cannot {action} {path}: {reason}."
        raise StorageError(f"{sentence} {remedy}".rstrip()) from error


@contextmanager
def atomic_writer(path: AnyPath, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a file that appears at `path` complete and synced when the block ends, or not at all.

    With `private=True` only the owner may read the result (mode 0600); otherwise the umask decides.
    """
    path = as_path(path)
    with storage_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL  # read too: a caller may map it into memory
        descriptor = os.open(temporary, flags, 0o600 if private else 0o666)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def remove_parts(folder: Path, name: str = "*") -> None:
    """Remove what writers that were killed have left of a file in a folder."""
    for part in folder.glob(f".{name}.*.part"):
        part.unlink()


def check_writable(folder: AnyPath) -> None:
    """Refuse a folder, there or not, into which nothing can be written; to be asked before anything is computed."""
    folder = as_path(folder).absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    with storage_errors("write into", folder), tempfile.TemporaryFile(dir=there):
        pass


def write_together(folder: AnyPath, write: Callable[[Path], object], *, last: str) -> None:
    """Let `write` fill an empty folder, whose files then appear in `folder` together, or not at all.

    The file `last` is gone while others are moved: where it is, all are, even if the process is killed meanwhile. What
    a process that was killed has left of files is removed.
    If there is no room for them, they are written to a folder for temporary files instead, which the error names: what
    was computed is not lost.
    """
    folder = as_path(folder)
    try:
        with storage_errors("write into", folder):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as made:
                write(Path(made))
                (folder / last).unlink(missing_ok=True)
                for file in sorted(Path(made).iterdir(), key=lambda file: file.name == last):
                    file.replace(folder / file.name)
                sync_folder(folder)
            for left in folder.glob(".new-*"):
                shutil.rmtree(left)
            remove_parts(folder)
    except StorageError as error:
        rescued = Path(tempfile.mkdtemp(prefix=f"{folder.name}-"))
        try:
            write(rescued)
        except StorageError:
            shutil.rmtree(rescued, ignore_errors=True)
            raise error from None
        raise StorageError(f"{error} What was to be written is in {rescued}: move it where there is room.") from error


_MARKS = {
    "gallery.npz": "an index for pictures (`search`)",
    "sift.npz": "a sift (`sift`)",
    "network.npz": "a network (`learn network`)",
    "pictures.npz": "a classifier of pictures (`learn`)",
    "model.npz": "a model of ready-made features (`learn`)",
    "run.json": "a run of learning that has not finished (`learn`)",
    "service.db": "what a service keeps (`serve`)",
    "audit.json": "the report of an audit (`audit`)",
}


def folder_content(folder: AnyPath) -> str:
    """Return what lies in a folder, for the error of a command that expected something else."""
    folder = as_path(folder)
    with storage_errors("read", folder):
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.stat() and folder.name}
    known = next((what for mark, what in _MARKS.items() if mark in names), "")
    return known or ("files of other kinds" if names else "nothing")


def sync_folder(folder: Path) -> None:
    """Make a rename or a new file in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold an advisory lock on the file `path` (made if need be); other processes wait. A killed holder frees it."""
    with storage_errors("lock", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def file_lock(path: Path, *, replaced: bool = False) -> Iterator[Path]:
    """Hold an advisory lock on a file of state, there or not, whichever links name it; yield its one real path.

    Symbolic links are followed, and hard links are one file, which is locked itself. If it is `replaced` as a whole,
    hard links would become files of their own: `only_link` refuses them. Otherwise as `exclusive_lock`.
    """
    real = Path(os.path.realpath(path))
    with exclusive_lock(real.with_name(real.name + ".lock")), ExitStack() as held:  # the name, to make or replace it
        if replaced:
            only_link(path)
        while real.exists():
            with storage_errors("lock", path):
                descriptor = os.open(real, os.O_RDWR)
                held.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(descriptor), real.stat()):
                    break
            held.pop_all().close()  # replaced meanwhile, by what takes no lock
        yield real


def only_link(path: Path) -> Path:
    """Return the real path of a file that is replaced as a whole, symbolic links followed; hard links are refused."""
    real = Path(os.path.realpath(path))
    with storage_errors("use", path):
        links = real.stat().st_nlink if real.is_file() else 1
    if links > 1:
        raise StorageError(
            f"{path} is one of {links} hard links to a file, and saving would make two files of it. Copy it, remove "
            "the links, and give the copy the name."
        )
    return real


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold an advisory lock on a folder itself, so that no lock file lies in it; otherwise as `exclusive_lock`."""
    with storage_errors("lock", folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def free_memory() -> int:
    """Return the bytes of memory that a process can still take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def sha256_of(path: AnyPath) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    path = as_path(path)
    with storage_errors("read", path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cache_folder() -> Path:
    """Return where downloads and features are kept: $BLINDSIGHT_CACHE, else the user's cache folder."""
    named = os.environ.get("BLINDSIGHT_CACHE")
    if named:
        return as_path(named)
    return as_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "blindsight"


def write_arrays(
    path: AnyPath, kind: str, document: Mapping[str, Any], arrays: Arrays, *, private: bool = False
) -> None:
    """Write a file of this kind; a `private` one can be read by its owner alone."""
    members = _sealed(kind, document, arrays)
    with atomic_writer(path, private=private) as stream:
        _write_members(stream, members)


def file_bytes(kind: str, document: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return what `write_arrays` would write."""
    stream = io.BytesIO()
    _write_members(stream, _sealed(kind, document, arrays))
    return stream.getvalue()


def _sealed(kind: str, document: Mapping[str, Any], arrays: Arrays) -> "dict[str, NDArray[Any]]":
    """Return the members of a file, the document with the checksum first."""
    import numpy as np

    for name, array in arrays.items():
        if array.dtype.kind not in _PLAIN_KINDS:
            raise InputError(f"only numbers and text can be saved; {name} is {array.dtype}.")
    sealed = {"kind": kind, "sha256": _digest(kind, document, arrays), "content": document}
    text = json.dumps(sealed, allow_nan=False, ensure_ascii=False).encode()
    return {_DOCUMENT: np.frombuffer(text, dtype=np.uint8), **arrays}


def read_arrays(
    path: AnyPath, kind: str, *, mapped: bool = False, verify: bool = True
) -> "tuple[dict[str, Any], dict[str, NDArray[Any]]]":
    """Return the document and the arrays of a whole file of this kind.

    With `mapped=True` the arrays stay on disk, cannot be changed and are read as they are used. `verify=False` leaves
    out the checksum, which takes one reading of the file.
    """
    path = as_path(path)
    with storage_errors("read", path), path.open("rb") as stream:
        try:
            arrays = _read_members(stream, file_content(stream, mapped=mapped), mapped=mapped)
            sealed = json.loads(arrays.pop(_DOCUMENT).tobytes())
            found, digest, document = sealed["kind"], sealed["sha256"], sealed["content"]
        except (MessageError, ValueError, KeyError, TypeError, RecursionError):
            raise CorruptFileError(f"{path} is truncated or altered, or was never a file of Blindsight.") from None
    if found != kind:
        raise CorruptFileError(f"{path} holds a {found!r}; a {kind!r} was expected.")
    if verify and digest != _digest(kind, document, arrays):
        raise CorruptFileError(f"{path} was altered: its content does not match its checksum.")
    return document, arrays


def pack_arrays(arrays: Arrays) -> bytes:
    """Return plain arrays as bytes for a message."""
    stream = io.BytesIO()
    _write_members(stream, arrays)
    return stream.getvalue()


def unpack_arrays(data: bytes) -> "dict[str, NDArray[Any]]":
    """Return the arrays in what somebody sent; `MessageError` unless it is what `pack_arrays` wrote."""
    return _read_members(io.BytesIO(data), memoryview(data))


def file_content(stream: BinaryIO, *, mapped: bool = False) -> memoryview:
    """Return all bytes of an open file, read into memory or mapped."""
    if mapped:
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    content = bytearray(stream.seek(0, io.SEEK_END))
    stream.seek(0)
    return memoryview(content)[: stream.readinto(content)]  # type: ignore[attr-defined]


def _write_members(stream: BinaryIO, arrays: Arrays) -> None:
    from numpy.lib import format as npy

    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            item = zipfile.ZipInfo(f"{name}.npy")
            begin = stream.tell() + _LOCAL_HEADER.size + len(item.filename.encode()) + _PADDING.size + _ZIP64_BYTES
            item.extra = _PADDING.pack(_PADDING_FIELD, -begin % _ALIGNMENT) + bytes(-begin % _ALIGNMENT)
            with archive.open(item, "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def _read_members(stream: BinaryIO, content: memoryview, *, mapped: bool = False) -> "dict[str, NDArray[Any]]":
    """Return the arrays of an archive: views of its content, or copies where that cannot be written to."""
    import numpy as np

    try:
        with zipfile.ZipFile(stream) as archive:
            items = archive.infolist()
        if any(item.compress_type != zipfile.ZIP_STORED for item in items):
            raise MessageError("arrays are kept and sent as they are, not compressed.")
        if sum(item.file_size for item in items) > len(content):
            raise MessageError("arrays announce more than was sent.")
        arrays = {item.filename.removesuffix(".npy"): _read_array(_member(content, item)) for item in items}
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # damage may point before the start of a file
            raise
        raise MessageError(f"arrays arrived damaged: {type(error).__name__}.") from None
    return arrays if mapped else {name: np.require(array, requirements=["A", "W"]) for name, array in arrays.items()}


def _member(content: memoryview, item: zipfile.ZipInfo) -> memoryview:
    opening, name, extra = _LOCAL_HEADER.unpack_from(content, max(item.header_offset, 0))
    if opening != b"PK\3\4":
        raise MessageError("arrays stand elsewhere than announced.")
    begin = item.header_offset + _LOCAL_HEADER.size + name + extra
    return content[begin : begin + item.file_size]


def _read_array(member: memoryview) -> "NDArray[Any]":
    """Return the numbers or text in one member; its header is believed once it agrees with what follows it."""
    import numpy as np

    header = _NPY_HEADER.match(member)
    if header is None or int.from_bytes(header["length"], "little") != header.end() - _NPY_OPENING_BYTES:
        raise MessageError("an array has a header that numpy did not write, or is no plain array.")
    dtype, shape = np.dtype(header["type"].decode()), [int(side) for side in header["shape"].split(b",") if side]
    content = member[header.end() :]
    if math.prod(shape) * dtype.itemsize != len(content):
        raise MessageError("an array holds something else than as many numbers or texts as it announces.")
    return np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if header["columns"] == b"True" else "C")


def _digest(kind: str, document: Any, arrays: Arrays) -> str:
    """Return a SHA-256 of all content, whatever the order of the arrays."""
    import numpy as np

    digest = hashlib.sha256(json.dumps([kind, document], sort_keys=True, ensure_ascii=False).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
