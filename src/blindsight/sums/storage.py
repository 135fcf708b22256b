"""The state of a role on disk: readable by its owner alone, whole after a crash, and never executed when read.

A *state file* is one message, replaced as a whole. A *journal* is a first message and others appended to it: adding one
costs no more than writing it, and one whose `append` returned is on disk. What an interrupted append leaves at the end
was never acknowledged and is cut off when the journal is opened.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from blindsight.crypto.wire import HEADER_BYTES, MAX_BYTES, M, Message, announced_bytes, decode, encode
from blindsight.errors import CorruptFileError, MessageError, StorageError
from blindsight.files import AnyPath, as_path, atomic_writer, storage_errors


def refuse_to_overwrite(path: AnyPath | None) -> None:
    """Raise if there is a file at the place where a new role is to keep its state: it may hold the only key."""
    if path is not None and as_path(path).exists():
        raise StorageError(f"{path} exists already. Load the role from it, or name another file.")


def write_state(path: AnyPath, state: Message) -> None:
    blob = encode(state)
    if len(blob) > MAX_BYTES:
        raise StorageError(
            f"a state of {len(blob)} bytes is too long for {path}: at most {MAX_BYTES} can be read again."
        )
    with atomic_writer(path, private=True) as stream:
        stream.write(blob)


def read_state(path: AnyPath, kind: type[M]) -> M:
    path = as_path(path)
    with storage_errors("read", path), path.open("rb") as stream:
        _refuse_if_public(path, stream.fileno())
        data = stream.read()
    with state_errors(path):
        return decode(data, kind)


@contextmanager
def state_errors(path: AnyPath) -> Iterator[None]:
    """Turn what is wrong with the content of a state file into one sentence that names the file."""
    try:
        yield
    except (MessageError, ValueError) as error:
        raise CorruptFileError(f"{path} does not hold what was saved there: {error}") from error


class MessageJournal:
    """Messages in one file, in the order in which they were appended."""

    def __init__(self, path: AnyPath) -> None:
        self.path = as_path(path)
        self._size = 0

    def restart(self, first: Message) -> None:
        blob = encode(first)
        with atomic_writer(self.path, private=True) as stream:
            stream.write(blob)
        self._size = len(blob)

    def append(self, blob: bytes) -> None:
        """Write one message through to the disk, or raise and leave the file as it was."""
        with storage_errors("append to", self.path):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            try:
                rest = memoryview(blob)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(descriptor, self._size)
                raise
            finally:
                os.close(descriptor)
        self._size += len(blob)

    def messages(self) -> Iterator[bytes]:
        """Yield every whole message, one at a time; then cut off what an interrupted append left behind them."""
        with storage_errors("read", self.path), self.path.open("r+b") as stream:
            _refuse_if_public(self.path, stream.fileno())
            self._size = 0
            while blob := self._next(stream):
                yield blob
                self._size += len(blob)
            if self._size:  # else it is no journal, and is left as it is
                stream.truncate(self._size)

    def _next(self, stream: BinaryIO) -> bytes:
        header = stream.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES or not any(header):
            return b""
        try:
            length = announced_bytes(header)
        except MessageError as error:
            raise CorruptFileError(f"{self.path} was altered: {error}") from error
        blob = header + stream.read(length - HEADER_BYTES)
        if len(blob) == length and hashlib.sha256(blob[:-32]).digest() == blob[-32:]:
            return blob
        if stream.read(1):
            raise CorruptFileError(f"{self.path} was altered: a message in it does not match its checksum.")
        return b""


def _refuse_if_public(path: Path, descriptor: int) -> None:
    if os.fstat(descriptor).st_mode & 0o077:
        raise StorageError(f"others can read the secrets in {path}. Run: chmod 600 {path}")
