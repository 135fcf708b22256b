"""How what a participant knows outlives its process: one file that its owner alone can read.

*The guarantee.* The file is replaced as a whole and synced before anything that depends on it leaves the participant.
So one that is killed at any moment and loaded again stands where it last acted: it neither trains twice on a photo nor
sends two different uploads with one number. Training that was cut short is done again, from the same place of the
random generator, and is charged for again where there is a ledger. What a trainer itself remembers, such as the moments
of Adam, is not kept here.

Only one process at a time works with a file; the lock of a killed one is free. A write costs what waits to be trained
on as well: gather photos as they are needed.
"""

import fcntl
import glob
import os
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import CorruptFileError, InputError, MessageError, StorageError
from blindsight.files import AnyPath, as_path, read_arrays, storage_errors, write_arrays
from blindsight.selective.participantstate import ParticipantState, UnderWay
from blindsight.selective.sparseupdate import SparseUpdate
from blindsight.selective.terms import SelectiveTerms
from blindsight.sums.storage import refuse_to_overwrite

_KIND = "blindsight/participant.1"
_GENERATOR = "PCG64"  # numpy's default, whose position is a few whole numbers


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
            lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        self.close = weakref.finalize(self, os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StorageError(f"another process works with {path}. Let it finish first.") from None
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
        write_arrays(self.path, _KIND, document, _arrays(state), private=True)

    def read(self) -> tuple[Membership, ParticipantState, np.random.Generator]:
        """Return what was written last."""
        with storage_errors("clean", self.path):
            for part in self.path.parent.glob(f".{glob.escape(self.path.name)}.????????.part"):
                part.unlink()  # a writer was killed in the middle
        document, arrays = read_arrays(self.path, _KIND)
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
