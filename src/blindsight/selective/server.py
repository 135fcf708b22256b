"""The parameter server: it adds up what participants upload, and hands out the parameters that were updated most.

*The guarantee.* An upload is added once or not at all. Whatever is a duplicate, too late, damaged, too large, not
finite, or of another run, network or participant is refused with one sentence (`MessageError`), counted, and changes
nothing; whoever sends its last upload once more is told again that it was added.

*The folder of a server*: an upload that was acknowledged is there after any crash, once. The *journal*
(`sums.messages.MessageJournal`) holds every upload as it came: it is appended to and synced before the upload is
acknowledged, so receiving one costs a write of its own bytes. The *snapshot* holds the parameters, counters and version
after some uploads; now and then a new one replaces it, and then the journal begins anew. Whatever moment the server is
killed at, the folder holds a whole snapshot and a journal that begins at it or before:

* in the middle of an append: the torn end was never acknowledged and is cut off when the journal is read;
* between append and acknowledgement: the upload counts, and the participant's next download tells it so;
* between snapshot and new journal: uploads are numbered by the version they make, and those in the snapshot are passed
  over when the journal is replayed.

R. Shokri, V. Shmatikov, "Privacy-Preserving Deep Learning", CCS 2015, and M. Bu's study of it with photos (2019): the
server keeps w_global and a counter "stat" per parameter; upload: w += dw, stat += 1; download: the fraction theta_d
of the parameters with the largest stat. Neither says what a participant begins with: here its first download holds all
parameters, whatever theta_d is.

What the server sees: every upload with its author, unless the terms ask for sums (`SelectiveTerms.together`).
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import Message, decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, StorageError
from blindsight.files import AnyPath, as_path, held_lock, read_arrays, storage_errors, write_arrays
from blindsight.selective.codec import (
    LARGEST_PARAMETER,
    NotFiniteError,
    SparseUpdate,
    Vector,
    as_half,
    decode_sparse,
    encode_sparse,
    every_place,
)
from blindsight.selective.protection import select_largest
from blindsight.selective.terms import Answer, JournalBegun, Receipt, Request, SelectiveTerms, Total, Upload
from blindsight.sums.messages import MessageJournal, refuse_to_overwrite
from blindsight.sums.roles import Record, forget

Reason = Literal["damaged", "oversized", "stranger", "duplicate", "late", "alone", "not finite"]
"""Why an upload was refused; "alone" is a single one, or a sum of too few, where the terms ask for more together."""

M = TypeVar("M", bound=Message)


class LastUpload(NamedTuple):
    """Number and SHA-256 of the last upload of one participant that was added, and the version it made."""

    sequence: int
    digest: bytes
    version: int


NO_UPLOAD = LastUpload(0, b"", 0)


@dataclass(eq=False)
class ServerState:
    """One version of the parameters; every addition makes the next."""

    parameters: Vector
    counters: NDArray[np.int64]  # by parameter: in how many additions it was
    version: int = 0
    turn: int = 0  # the last turn whose sum was added
    uploads: dict[str, LastUpload] = field(default_factory=dict)

    @classmethod
    def of(cls, parameters: Vector) -> "ServerState":
        return cls(np.array(parameters, dtype=np.float32), np.zeros(len(parameters), dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.parameters.nbytes + self.counters.nbytes

    def sums(self, update: SparseUpdate) -> Vector:
        """Return the parameters at the update's places after adding it; one too large is a `MessageError`."""
        if not np.isfinite(update.values).all():
            raise MessageError("the upload holds values that are not finite.")
        with np.errstate(over="ignore"):
            sums = self.parameters[update.where] + update.values
        if not (np.abs(sums) <= LARGEST_PARAMETER).all():
            raise MessageError(f"adding the upload would make parameters larger than {LARGEST_PARAMETER:,.0f}.")
        return sums

    def replace(self, update: SparseUpdate, sums: Vector) -> None:
        """Go on to the next version, with these `sums` at the places of the update."""
        self.parameters[update.where] = sums
        self.counters[update.where] += 1
        self.version += 1

    def most_updated(self, count: int) -> SparseUpdate:
        """Return the `count` parameters that were updated most; among equals those that come first.

        >>> state = ServerState(np.arange(5, dtype=np.float32), np.array([1, 3, 1, 0, 1]))
        >>> state.most_updated(3).indices.tolist()
        [0, 1, 2]
        """
        if count == len(self.counters):
            return SparseUpdate(count, every_place(count), self.parameters.copy())
        indices = select_largest(self.counters.astype(np.float64), count)
        return SparseUpdate(len(self.counters), indices, self.parameters[indices])


_SERVER_KIND = "blindsight/parameter-server.1"
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
            busy = f"another server works in {folder}. Stop it first, or use another folder."
            self.close = held_lock(self, folder / "lock", busy)

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
        document, arrays = read_arrays(self.snapshot_path, _SERVER_KIND)
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
        write_arrays(self.snapshot_path, _SERVER_KIND, document, arrays, private=True)

    def _restart_journal(self, terms: SelectiveTerms, state: ServerState) -> None:
        begun = JournalBegun(terms.digest, state.version)
        self._journal.restart(begun)
        self._size = len(encode(begun))


@dataclass(frozen=True, eq=False)
class _Addition:
    """A message that has passed every check, and what becomes of the parameters at its places."""

    message: Upload | Total
    digest: bytes
    update: SparseUpdate
    sums: Vector


class _AddedBeforeError(MessageError):
    """The very same upload was the last of its participant that was added."""

    def __init__(self, receipt: Receipt) -> None:
        super().__init__(f"this very upload {receipt.sequence} of {receipt.participant!r} was added before.")
        self.receipt = receipt


class ParameterServer:
    """The server of one run. `refusals` counts what it refused since it was started, by reason."""

    def __init__(
        self,
        terms: SelectiveTerms,
        initial: Vector,
        *,
        folder: AnyPath | None = None,
        journal_bytes: int | None = None,
        record: Record = forget,
    ) -> None:
        """Begin with the `initial` parameters; `record` is called with every message the server receives.

        With a `folder`, which must not hold a server yet, the state is kept there; when the journal of uploads holds
        `journal_bytes` (None: four times the state) a snapshot replaces it.
        """
        fits = initial.shape == (terms.dimension,) and initial.dtype == np.float32
        if not fits or not (np.abs(initial) <= LARGEST_PARAMETER).all():
            raise InputError(
                f"the initial parameters must be a row of {terms.dimension} finite float32 of at most "
                f"{LARGEST_PARAMETER:,.0f}; got {initial.dtype} of shape {initial.shape}, or larger ones."
            )
        self.terms, self._participants = terms, frozenset(terms.participants)
        self.refusals: Counter[Reason] = Counter()
        self._state, self._record = ServerState.of(initial), record
        self._mutex = threading.Lock()
        self._store: ServerStore | None = None
        if folder is not None:
            self._store = ServerStore(folder, create=True, journal_bytes=journal_bytes)
            try:
                self._store.begin(terms, self._state)
            except BaseException:
                self._store.close()
                raise

    @classmethod
    def resume(cls, folder: AnyPath, *, journal_bytes: int | None = None, record: Record = forget) -> "ParameterServer":
        """Go on where the server that kept its state in `folder` stopped or was killed."""
        store = ServerStore(folder, journal_bytes=journal_bytes)
        try:
            terms, state = store.load()
            server = cls(terms, state.parameters, record=record)
            server._state = state
            for upload in store.uploads(terms, state.version):
                server._add(server._checked_addition(upload, Upload, Total))
        except BaseException as error:
            store.close()
            if isinstance(error, MessageError):
                raise CorruptFileError(f"{folder} holds an upload that was never accepted: {error}") from error
            raise
        server._store = store
        return server

    def close(self) -> None:
        """Let another server work in the folder; this one receives no more."""
        if self._store is not None:
            self._store.close()

    @property
    def parameters(self) -> Vector:
        with self._mutex:
            return self._state.parameters.copy()

    @property
    def counters(self) -> NDArray[np.int64]:
        with self._mutex:
            return self._state.counters.copy()

    @property
    def version(self) -> int:
        """How many uploads (or sums of uploads) the parameters hold."""
        return self._state.version

    @property
    def turn(self) -> int:
        """The last turn whose sum was added; 0 if none was."""
        return self._state.turn

    def receive(self, upload: bytes) -> bytes:
        """Add a participant's upload and return the receipt; once more, if it was added and the receipt was lost."""
        self._record(upload)
        with self._mutex:
            try:
                addition = self._accept(upload, Upload)
            except _AddedBeforeError as before:
                return encode(before.receipt)
            message = addition.message
            assert isinstance(message, Upload)
            return encode(self._receipt(message))

    def receive_total(self, total: bytes) -> None:
        """Add the sum of several uploads, from whoever opens such sums: not a door for participants."""
        self._record(total)
        with self._mutex:
            self._accept(total, Total)

    def answer(self, request: bytes) -> bytes:
        """Return the most updated parameters to a participant that asks for them; all on its first request."""
        self._record(request)
        with self._mutex:
            message = self._decoded(request, Request, limit=1024)
            self._check_participant(message.terms, message.participant)
            state = self._state
            if not -1 <= message.version <= state.version:
                self._refuse("damaged", f"there is no version {message.version}; the newest is {state.version}.")
            places = self.terms.dimension if message.version < 0 else self.terms.downloaded
            last = state.uploads.get(message.participant, NO_UPLOAD)
            news = state.most_updated(places)
            if self.terms.half:
                news = replace(news, values=as_half(news.values))
            body = encode_sparse(news, half=self.terms.half)
            return encode(Answer(message.terms, message.participant, state.version, last.sequence, last.digest, body))

    def _accept(self, blob: bytes, kind: type[Upload | Total]) -> _Addition:
        """Check a message, write it through to the disk, and only then add it."""
        addition = self._checked_addition(blob, kind)
        if self._store is not None:
            self._store.append(blob)
        self._add(addition)
        if self._store is not None:
            with suppress(StorageError):  # the journal has it all; the next upload tries again
                self._store.snapshot_if_due(self.terms, self._state)
        return addition

    def _checked_addition(self, blob: bytes, *kinds: type[Upload | Total]) -> _Addition:
        """Return what a message adds; one that may not be added is counted and raises."""
        limit = self.terms.total_bytes if Total in kinds else self.terms.upload_bytes
        message = self._decoded(blob, *kinds, limit=limit)
        digest = hashlib.sha256(blob).digest()
        if isinstance(message, Upload):
            self._check_upload(message, digest)
        else:
            self._check_total(message)
        with self._counting("damaged"):
            update = decode_sparse(message.body, self.terms.dimension, max_values=self.terms.dimension)
        most = self.terms.most_values if isinstance(message, Upload) else self.terms.dimension
        if update.indices.size > most:
            self._refuse("oversized", f"an upload has at most {most} values; got {update.indices.size}.")
        with self._counting("not finite"):
            return _Addition(message, digest, update, self._state.sums(update))

    def _check_upload(self, upload: Upload, digest: bytes) -> None:
        self._check_participant(upload.terms, upload.participant)
        if self.terms.together > 1:
            self._refuse("alone", f"in this run only sums of at least {self.terms.together} uploads are opened.")
        last, name = self._state.uploads.get(upload.participant, NO_UPLOAD), upload.participant
        if digest == last.digest:
            self.refusals["duplicate"] += 1
            raise _AddedBeforeError(self._receipt(upload))
        if upload.sequence <= last.sequence:
            self._refuse("duplicate", f"an upload {upload.sequence} of {name!r} was added before.")
        if upload.sequence > last.sequence + 1:
            self._refuse("damaged", f"upload {last.sequence + 1} of {name!r} is due; got {upload.sequence}.")
        age = self._state.version - upload.base
        if age < 0 or upload.base < 0:
            self._refuse("damaged", f"there is no version {upload.base} to build on.")
        if self.terms.max_staleness is not None and age > self.terms.max_staleness:
            self._refuse(
                "late",
                f"the upload of {name!r} builds on parameters {age} uploads old; at most {self.terms.max_staleness} "
                "are accepted. Download and train again.",
            )

    def _check_total(self, total: Total) -> None:
        names = set(total.participants)
        self._check_terms(total.terms)
        if len(names) != len(total.participants) or not names <= self._participants:
            self._refuse("stranger", "a sum names each of its participants once, and no stranger.")
        if len(names) < max(self.terms.together, 2):
            self._refuse("alone", f"a sum of {len(names)} uploads is no sum of at least {max(self.terms.together, 2)}.")
        if total.turn <= self._state.turn:
            self._refuse("duplicate", f"the sum of turn {total.turn} comes after that of turn {self._state.turn}.")

    def _add(self, addition: _Addition) -> None:
        message, state = addition.message, self._state
        state.replace(addition.update, addition.sums)
        if isinstance(message, Upload):
            state.uploads[message.participant] = LastUpload(message.sequence, addition.digest, state.version)
        else:
            state.turn = message.turn

    def _receipt(self, upload: Upload) -> Receipt:
        last = self._state.uploads[upload.participant]
        return Receipt(upload.terms, upload.participant, last.sequence, last.digest, last.version)

    def _decoded(self, blob: bytes, *kinds: type[M], limit: int) -> M:
        if len(blob) > limit:
            self._refuse("oversized", f"the message has {len(blob)} bytes; at most {limit} are accepted here.")
        with self._counting("damaged"):
            return decode(blob, *kinds, max_bytes=limit)

    def _check_participant(self, terms: bytes, name: str) -> None:
        self._check_terms(terms)
        if name not in self._participants:
            self._refuse("stranger", f"{name!r} does not take part in this run.")

    def _check_terms(self, terms: bytes) -> None:
        if terms != self.terms.digest:
            self._refuse("stranger", "the message belongs to another run, or to a network of another shape.")

    @contextmanager
    def _counting(self, reason: Reason) -> Iterator[None]:
        try:
            yield
        except MessageError as error:
            self.refusals["not finite" if isinstance(error, NotFiniteError) else reason] += 1
            raise

    def _refuse(self, reason: Reason, sentence: str) -> NoReturn:
        self.refusals[reason] += 1
        raise MessageError(sentence)
