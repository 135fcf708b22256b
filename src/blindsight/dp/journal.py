"""An append-only journal: JSON lines chained by checksums, shared by processes, whole after a crash.

*The guarantee.* A record whose `Journal.append` returned is on disk, and every later reader gets it back; one whose
`append` raised was not acknowledged. A line that was changed, removed or inserted is noticed, because each line carries
the SHA-256 of the line before and of itself. What an interrupted append leaves at the end (a line without its newline,
or with blocks of zero bytes) is copied aside, cut off and reported, after every line before it was verified; a last
line that is whole but does not match its checksum was altered, and is refused like any other. So a file that is no
journal is never changed, and with `readonly` no file is: then the end is reported only.

The chain is no signature: anyone who may write the file may also rewrite all of it or cut off its end.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from blindsight.errors import CorruptFileError, StorageError
from blindsight.files import AnyPath, as_path, atomic_writer, file_lock, storage_errors


class Journal:
    """The records in one file, for one process; others may append to the same file."""

    def __init__(self, path: AnyPath, *, header: Mapping[str, Any], readonly: bool = False) -> None:
        """Open the file or create it (readable by its owner only); its first line must hold `header`.

        With `readonly` nothing is created, locked, repaired or appended.
        """
        path = as_path(path)
        self.path = path
        self.recovered: str | None = None
        self._heads: list[str] = []
        self._size = 0  # bytes read and verified so far
        self._broken = False
        self._header = dict(header)
        self._readonly = readonly
        with self.locked() as real:
            if not readonly and not real.exists():
                with atomic_writer(real, private=True) as stream:
                    stream.write(_line(self._header, "")[0])

    @property
    def head(self) -> str:
        """The checksum of the last line read, which stands for everything up to it."""
        return self._heads[-1]

    def includes(self, head: str) -> bool:
        """Tell whether the file continues the one that once had this head."""
        return head in self._heads

    @contextmanager
    def locked(self) -> Iterator[Path]:
        """Keep others from reading or appending, by whatever link they name the file, and yield its real path; a
        read-only journal needs no lock, as whole lines stay.
        """
        if self._readonly:
            yield self.path
            return
        with file_lock(self.path) as real:
            yield real

    def catch_up(self, apply: Callable[[dict[str, Any]], None]) -> None:
        """Pass on every record that anyone appended since the last call, in order. Call it while locked."""
        self._refuse_if_broken()
        with storage_errors("read", self.path), self.path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(self._size)
            added = stream.read()
        if size < max(self._size, 1):
            raise CorruptFileError(f"{self.path} is empty or shorter than it was: records are missing.")
        whole, torn = _split_torn_end(added)
        try:
            for line in whole.splitlines(keepends=True):
                apply(self._verified(line))
            self._set_aside(torn)
        except BaseException:
            self._broken = True  # else the next call would go on behind a record that was not passed on
            raise

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record through to the disk. Call it while locked and caught up.

        After a failure the file is cut back to its last whole line where possible, and this object refuses to go on:
        only opening the file again tells whether the record reached the disk.
        """
        if self._readonly:
            raise StorageError(f"{self.path} was opened for reading only: nothing was recorded or may be released.")
        self._refuse_if_broken()
        line, check = _line(record, self.head)
        with storage_errors("append to", self.path, remedy="Nothing may be released."):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            try:
                self._write_through(descriptor, line)
            finally:
                os.close(descriptor)
        self._size += len(line)
        self._heads.append(check)

    def _write_through(self, descriptor: int, line: bytes) -> None:
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except BaseException:
            self._broken = True
            with suppress(OSError):
                os.ftruncate(descriptor, self._size)
                os.fsync(descriptor)
            raise

    def _refuse_if_broken(self) -> None:
        if self._broken:
            raise StorageError(f"{self.path} could not be read or written before; open it anew to see what it holds.")

    def _verified(self, line: bytes) -> dict[str, Any]:
        before = self._heads[-1] if self._heads else ""
        number = len(self._heads) + 1
        try:
            record = json.loads(line)
            del record["check"]
            expected, check = _line(record, before)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise CorruptFileError(f"{self.path}, line {number} is not a record.") from None
        if line != expected:
            raise CorruptFileError(f"{self.path} was altered: line {number} does not match its checksum.")
        if number == 1 and record != self._header:
            raise CorruptFileError(f"{self.path} is of another kind or version: {record}.")
        self._heads.append(check)
        self._size += len(line)
        return dict(record)

    def _set_aside(self, torn: bytes) -> None:
        """Move away what an interrupted append left behind the verified lines; if read-only, tell of it."""
        if not self._heads:
            raise CorruptFileError(f"{self.path} is not whole: its first line is cut off.")
        if self._readonly:
            notice = f"the last line of {self.path} is not whole; its {len(torn)} bytes are left as they are, unread."
            self.recovered = notice if torn else None
            return
        if not torn:
            return
        aside = self.path.with_name(f"{self.path.name}.torn-{hashlib.sha256(torn).hexdigest()[:12]}")
        with atomic_writer(aside, private=True) as stream:
            stream.write(torn)
        with storage_errors("repair", self.path), self.path.open("r+b") as stream:
            stream.truncate(self._size)
            os.fsync(stream.fileno())
        self.recovered = (
            f"the last line of {self.path} was cut off before it was acknowledged; "
            f"its {len(torn)} bytes were moved to {aside.name}."
        )


def _split_torn_end(added: bytes) -> tuple[bytes, bytes]:
    """Return the whole lines and what an interrupted append left behind them: no newline, or blocks of zeros."""
    last = added.rfind(b"\n", 0, max(len(added) - 1, 0)) + 1  # where the last line begins
    torn = added[last:]
    if torn.endswith(b"\n") and b"\0" not in torn:
        return added, b""
    return added[:last], torn


def _line(record: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """Return a record as the line that follows the one with checksum `before`, and its own checksum."""
    body = json.dumps(record, sort_keys=True, allow_nan=False, separators=(",", ":"))
    check = hashlib.sha256(f"{before}\n{body}".encode()).hexdigest()
    separator = "," if record else ""
    return f'{body[:-1]}{separator}"check":"{check}"}}\n'.encode(), check
