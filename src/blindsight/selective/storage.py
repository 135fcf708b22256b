"""The server's state in a folder: an upload that was acknowledged is there after any crash, once.

Two files. The *journal* (`sums.storage.MessageJournal`) holds every upload as it came: it is appended to and synced
before the upload is acknowledged, so receiving one costs a write of its own bytes. The *snapshot* holds the parameters,
counters and version after some uploads; now and then a new one replaces it, and then the journal begins anew. Whatever
moment the server is killed at, the folder holds a whole snapshot and a journal that begins at it or before:

* in the middle of an append: the torn end was never acknowledged and is cut off when the journal is read;
* between append and acknowledgement: the upload counts, and the participant's next download tells it so;
* between snapshot and new journal: uploads are numbered by the version they make, and those in the snapshot are passed
  over when the journal is replayed.

One server at a time works in a folder; the lock of a killed one is free.
"""

import fcntl
import os
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import decode, encode
from blindsight.errors import CorruptFileError, MessageError, StorageError
from blindsight.files import AnyPath, as_path, read_arrays, storage_errors, write_arrays
from blindsight.selective.messages import JournalBegun
from blindsight.selective.serverstate import LastUpload, ServerState
from blindsight.selective.terms import SelectiveTerms
from blindsight.sums.storage import MessageJournal, refuse_to_overwrite

_KIND = "blindsight/parameter-server.1"
_LEAST_JOURNAL = 1 << 20  # bytes; a shorter journal is not worth a snapshot
_SNAPSHOTS_WORTH = 4  # so all snapshots together write a quarter of what uploads do


class ServerStore:
    """The folder of one server, locked until `close` or the end of the process.

    A snapshot is due when the journal holds `journal_bytes` (None: four times the state, and at least 1 MiB).
    """

    def __init__(self, folder: AnyPath, *, create: bool = False, journal_bytes: int | None = None) -> None:
        """Lock the folder, which must be there unless it is to be created."""
        folder = as_path(folder)
        self.folder = folder
        self.snapshot_path = folder / "snapshot.npz"
        self._journal = MessageJournal(folder / "journal")
        self._journal_bytes = journal_bytes
        self._size = 0  # of the journal, as the last acknowledged upload left it
        with storage_errors("use", folder):
            if create:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        self.close = weakref.finalize(self, os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StorageError(f"another server works in {folder}. Stop it first, or use another folder.") from None

    def begin(self, terms: SelectiveTerms, state: ServerState) -> None:
        """Make the files of a new server; those of an earlier one are never overwritten."""
        refuse_to_overwrite(self.snapshot_path)
        self._restart_journal(terms, state)
        self._write_snapshot(terms, state)  # comes last: without it there is no server to resume

    def load(self) -> tuple[SelectiveTerms, ServerState]:
        """Return the terms and the state of the snapshot; `uploads` returns what came since."""
        with storage_errors("clean", self.folder):
            for part in self.folder.glob(".*.part"):
                part.unlink()  # a writer was killed in the middle
        document, arrays = read_arrays(self.snapshot_path, _KIND)
        try:
            terms = SelectiveTerms.from_bytes(bytes.fromhex(document["terms"]))
            uploads = {
                name: LastUpload(sequence, bytes.fromhex(digest), version)
                for name, (sequence, digest, version) in document["uploads"].items()
            }
            parameters, counters = arrays["parameters"].astype(np.float32), arrays["counters"].astype(np.int64)
            if parameters.shape != (terms.dimension,) or counters.shape != (terms.dimension,):
                raise ValueError("the parameters are not those of the terms")
            return terms, ServerState(parameters, counters, document["version"], document["turn"], uploads)
        except (KeyError, TypeError, ValueError, AttributeError, MessageError) as error:
            raise CorruptFileError(f"{self.snapshot_path} holds no usable state: {error}.") from None

    def uploads(self, terms: SelectiveTerms, version: int) -> Iterator[bytes]:
        """Yield what the journal holds beyond this version, in order."""
        records = self._journal.messages()
        try:
            begun = decode(next(records, b""), JournalBegun)
        except MessageError as error:
            raise CorruptFileError(f"{self._journal.path} is not a server's journal: {error}") from None
        if begun.terms != terms.digest or begun.version > version:
            raise CorruptFileError(f"{self._journal.path} does not continue {self.snapshot_path.name}.")
        for made, record in enumerate(records, start=begun.version + 1):
            if made > version:
                yield record
        self._size = self._journal.path.stat().st_size

    def append(self, upload: bytes) -> None:
        """Write an upload through to the disk, or raise: then it is not to be acknowledged, and nothing changed."""
        path = self._journal.path
        if not self.close.alive:
            raise StorageError(f"the server was closed, and another may work in {self.folder}. Resume it from there.")
        with storage_errors("use", path):
            size = path.stat().st_size
        if size != self._size:
            raise StorageError(f"{path} was changed, or a write was interrupted. Resume the server from its folder.")
        self._journal.append(upload)
        self._size += len(upload)

    def snapshot_if_due(self, terms: SelectiveTerms, state: ServerState) -> None:
        """Replace the snapshot and begin a new journal if this one has become long."""
        due = self._journal_bytes
        if self._size < (max(_LEAST_JOURNAL, _SNAPSHOTS_WORTH * state.nbytes) if due is None else due):
            return
        self._write_snapshot(terms, state)
        self._restart_journal(terms, state)

    def _write_snapshot(self, terms: SelectiveTerms, state: ServerState) -> None:
        document = {
            "terms": terms.to_bytes().hex(),
            "version": state.version,
            "turn": state.turn,
            "uploads": {name: [last.sequence, last.digest.hex(), last.version] for name, last in state.uploads.items()},
        }
        arrays: dict[str, NDArray[Any]] = {"parameters": state.parameters, "counters": state.counters}
        write_arrays(self.snapshot_path, _KIND, document, arrays, private=True)

    def _restart_journal(self, terms: SelectiveTerms, state: ServerState) -> None:
        begun = JournalBegun(terms.digest, state.version)
        self._journal.restart(begun)
        self._size = len(encode(begun))
