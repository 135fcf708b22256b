"""What a participant and the parameter server know, and how it outlives their processes.

*A participant's file*, which its owner alone can read. The file is replaced as a whole and synced before anything that
depends on it leaves the participant. So one that is killed at any moment and loaded again stands where it last acted:
it neither trains twice on a photo nor sends two different uploads with one number. Training that was cut short is done
again, from the same place of the random generator, and is charged for again where there is a ledger. What a trainer
itself remembers, such as the moments of Adam, is not kept here.

Only one process at a time works with a file; the lock of a killed one is free. A write costs what waits to be trained
on as well: gather photos as they are needed.

*The server's folder*: an upload that was acknowledged is there after any crash, once. The *journal*
(`sums.storage.MessageJournal`) holds every upload as it came: it is appended to and synced before the upload is
acknowledged, so receiving one costs a write of its own bytes. The *snapshot* holds the parameters, counters and version
after some uploads; now and then a new one replaces it, and then the journal begins anew. Whatever moment the server is
killed at, the folder holds a whole snapshot and a journal that begins at it or before:

* in the middle of an append: the torn end was never acknowledged and is cut off when the journal is read;
* between append and acknowledgement: the upload counts, and the participant's next download tells it so;
* between snapshot and new journal: uploads are numbered by the version they make, and those in the snapshot are passed
  over when the journal is replayed.

One server at a time works in a folder; the lock of a killed one is free.
"""

import fcntl
import glob
import hashlib
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import Secret, decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, StorageError
from blindsight.files import AnyPath, as_path, read_arrays, storage_errors, write_arrays
from blindsight.selective.codec import LARGEST_PARAMETER, SparseUpdate, Vector, every_place
from blindsight.selective.protection import Sharing, remainder, select_largest
from blindsight.selective.terms import JournalBegun, SelectiveTerms
from blindsight.sums.storage import MessageJournal, refuse_to_overwrite


@dataclass(frozen=True, eq=False, repr=False)
class UnderWay(Secret):
    """What is not settled: what there was to send, what of it was sent, and in which upload (none: into a sum)."""

    wanted: Vector
    update: SparseUpdate
    upload: bytes = b""

    def is_the_one_of(self, digest: bytes) -> bool:
        """Whether it was sent in the upload that has this SHA-256."""
        return hashlib.sha256(self.upload).digest() == digest


@dataclass(frozen=True, eq=False, repr=False)
class ParticipantState(Secret):
    """Where a participant stands."""

    local: Vector | None = None
    version: int = -1
    sequence: int = 0  # of the last upload that the server added
    residual: Vector | None = None
    under_way: UnderWay | None = None
    inputs: tuple[NDArray[Any], ...] = ()
    labels: tuple[np.int64, ...] = ()
    gathered: int = 0
    charged: bool = False  # for the batch trained on last, and all went well
    spent: bool = False

    def with_photos(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> "ParticipantState":
        """Take in photos, behind those that wait."""
        return replace(
            self,
            inputs=(*self.inputs, *rows.copy()),
            labels=(*self.labels, *labels),
            gathered=self.gathered + len(rows),
        )

    def trained(self, batch: int, local: Vector, under_way: UnderWay, *, charged: bool) -> "ParticipantState":
        """Give up the photos of a batch for what was learned from them."""
        return replace(
            self,
            local=local,
            under_way=under_way,
            inputs=self.inputs[batch:],
            labels=self.labels[batch:],
            charged=charged,
        )

    def settled(self, arrived: SparseUpdate, sharing: Sharing) -> "ParticipantState":
        """Remember, with residuals, what of that under way did not arrive."""
        assert self.under_way is not None
        residual = remainder(self.under_way.wanted, arrived, sharing) if sharing.residual else self.residual
        return replace(self, residual=residual, under_way=None)

    def withdrawn(self, sharing: Sharing) -> "ParticipantState":
        """Remember, with residuals, all that was under way: nothing arrived."""
        if self.under_way is not None and sharing.residual:
            return replace(self, residual=self.under_way.wanted, under_way=None)
        return replace(self, under_way=None)

    def added(self, sequence: int, digest: bytes, sharing: Sharing) -> "ParticipantState":
        """Learn which upload was added last; if a withdrawn one of the same number was, that under way cannot be."""
        after = replace(self, sequence=sequence)
        if sequence == self.sequence or self.under_way is None or not self.under_way.upload:
            return after
        if self.under_way.is_the_one_of(digest):
            return after.settled(self.under_way.update, sharing)
        return after.withdrawn(sharing)


_PARTICIPANT_KIND = "blindsight/participant.1"
_GENERATOR = "PCG64"  # numpy's default, whose position is a few whole numbers


def _locked(holder: Any, path: Path, busy: str) -> "weakref.finalize[[int], Any]":
    """Lock a file until what is returned is called, or the holder or its process ends."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    close = weakref.finalize(holder, os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        close()
        raise StorageError(busy) from None
    return close


@dataclass(frozen=True)
class Membership:
    """What never changes: who takes part in which run, sharing how at what cost (in words), counted or not."""

    name: str
    terms: SelectiveTerms
    manner: str
    counted: bool


class ParticipantFile:
    """The file of one participant, locked until `close` or the end of the process."""

    def __init__(self, path: AnyPath, *, new: bool) -> None:
        """Lock the file, which must not be there if it is `new` and must be otherwise."""
        path = as_path(path)
        self.path = path
        with storage_errors("use", path):
            if new:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif path.stat().st_mode & 0o077:
                raise StorageError(f"others can read the photos in {path}. Run: chmod 600 {path}")
            lock = path.with_name(f".{path.name}.lock")
            self.close = _locked(self, lock, f"another process works with {path}. Let it finish first.")
        if new:
            refuse_to_overwrite(path)

    def write(self, member: Membership, state: ParticipantState, rng: np.random.Generator) -> None:
        """Replace the file, or raise and leave it as it was."""
        if not self.close.alive:
            raise StorageError(f"{self.path} was closed, and another process may work with it. Load it again.")
        position = rng.bit_generator.state
        if position["bit_generator"] != _GENERATOR:
            raise InputError(f"only a generator of the kind {_GENERATOR} can be kept in a file. Give a seed instead.")
        document = {
            "name": member.name,
            "terms": member.terms.to_bytes().hex(),
            "manner": member.manner,
            "counted": member.counted,
            "generator": position,
            **{field: getattr(state, field) for field in _NUMBERS},
        }
        write_arrays(self.path, _PARTICIPANT_KIND, document, _arrays(state), private=True)

    def read(self) -> tuple[Membership, ParticipantState, np.random.Generator]:
        """Return what was written last."""
        with storage_errors("clean", self.path):
            for part in self.path.parent.glob(f".{glob.escape(self.path.name)}.????????.part"):
                part.unlink()  # a writer was killed in the middle
        document, arrays = read_arrays(self.path, _PARTICIPANT_KIND)
        try:
            terms = SelectiveTerms.from_bytes(bytes.fromhex(document["terms"]))
            member = Membership(document["name"], terms, document["manner"], document["counted"])
            rng = np.random.Generator(np.random.PCG64())
            rng.bit_generator.state = document["generator"]
            return member, _state(document, arrays, terms.dimension), rng
        except (KeyError, TypeError, ValueError, AttributeError, MessageError) as error:
            raise CorruptFileError(f"{self.path} holds no usable state: {error}.") from None


_NUMBERS = ("version", "sequence", "gathered", "charged", "spent")
_VECTORS = ("local", "residual")


def _arrays(state: ParticipantState) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {
        name: vector for name in _VECTORS if (vector := getattr(state, name)) is not None
    }
    if state.inputs:
        arrays |= {"inputs": np.stack(state.inputs), "labels": np.array(state.labels, dtype=np.int64)}
    if (sent := state.under_way) is not None:
        upload = np.frombuffer(sent.upload, dtype=np.uint8)
        arrays |= {"wanted": sent.wanted, "places": sent.update.indices, "values": sent.update.values, "upload": upload}
    return arrays


def _state(document: dict[str, Any], arrays: dict[str, NDArray[Any]], dimension: int) -> ParticipantState:
    under_way = None
    if "wanted" in arrays:
        update = SparseUpdate(dimension, arrays["places"], arrays["values"])
        under_way = UnderWay(arrays["wanted"], update, arrays["upload"].tobytes())
    for name in (*_VECTORS, "wanted"):
        if name in arrays and (arrays[name].shape != (dimension,) or arrays[name].dtype != np.float32):
            raise ValueError(f"{name} is no vector of {dimension} parameters")
    return ParticipantState(
        inputs=tuple(arrays.get("inputs", ())),
        labels=tuple(arrays.get("labels", ())),
        local=arrays.get("local"),
        residual=arrays.get("residual"),
        under_way=under_way,
        **{name: document[name] for name in _NUMBERS},
    )


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
        """Return the state at the beginning."""
        return cls(np.array(parameters, dtype=np.float32), np.zeros(len(parameters), dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """How large it is."""
        return self.parameters.nbytes + self.counters.nbytes

    def sums(self, update: SparseUpdate) -> Vector:
        """Return the parameters at the update's places after adding it; one too large is a `MessageError`."""
        if not np.isfinite(update.values).all():
            raise MessageError("the upload holds values that are not finite.")
        with np.errstate(over="ignore"):
            sums = self.parameters[_places(update)] + update.values
        if not (np.abs(sums) <= LARGEST_PARAMETER).all():
            raise MessageError(f"adding the upload would make parameters larger than {LARGEST_PARAMETER:,.0f}.")
        return sums

    def replace(self, update: SparseUpdate, sums: Vector) -> None:
        """Go on to the next version, with these `sums` at the places of the update."""
        places = _places(update)
        self.parameters[places] = sums
        self.counters[places] += 1
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


def _places(update: SparseUpdate) -> slice | NDArray[np.int64]:
    """Return where an update goes, in the way numpy is quickest with."""
    return slice(None) if update.indices.size == update.dimension else update.indices


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
            self.close = _locked(self, folder / "lock", busy)

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
