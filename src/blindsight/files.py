"""Files that are either whole or not there: atomic writes, locks, checksums, and errors a person can read."""

import errno
import fcntl
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from blindsight.errors import StorageError

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


def as_path(path: str | os.PathLike[str]) -> Path:
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
def atomic_writer(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a file that appears at `path` complete and synced when the block ends, or not at all.

    With `private=True` only the owner may read the result (mode 0600); otherwise the umask decides.
    """
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


def check_writable(folder: Path) -> None:
    """Refuse a folder, made if need be, into which nothing can be written; to be asked before anything is computed."""
    with storage_errors("write into", folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


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


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with storage_errors("read", path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cache_folder() -> Path:
    """Return where downloads and features are kept: $BLINDSIGHT_CACHE, else the user's cache folder."""
    named = os.environ.get("BLINDSIGHT_CACHE")
    if named:
        return as_path(named)
    return as_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "blindsight"
