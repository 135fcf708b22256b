"""A participant: its photos stay with it; when enough have gathered it trains, and shares a little of what it learned.

*What training changed* (`change_between`). The server adds in float32. The rounded difference of two float32 numbers,
added to the first, can miss the second: therefore what is sent is corrected where a neighbour of it hits. The numbers
that hit lie in an interval around the exact difference, so if there is one, it is the rounded difference or one of its
two neighbours.

After one step of gradient descent, after = fl(before - step), there always is one: -step. Training that rounds less
often has results which no float32 number leads to, at parameters that change their sign or lose more than half of
their size: several steps at once, and the fused multiply-add of torch's optimisers unless the learning rate is a power
of two. There the server's parameter differs from the trained one by about half a unit in the last place of the change.

*The guarantee.* Nothing of a photo leaves but through `protect`, and with a ledger no batch is trained on before its
cost is on record; training that fails has wasted it. When the budget is spent, training stops, and photos, parameters
and what was held back stay as they were. With one participant that shares and downloads everything, unbounded and
without noise, the server's parameters are those of plain training bit for bit.

*A hostile server* chooses the parameters it hands out. Those beyond `LARGEST_PARAMETER` are refused as they arrive, and
under noise no photo makes training fail: with noise per record one that is not finite counts as zero (`trainers`), with
any other noise a training that diverges counts as no change, and what is uploaded is noise alone. Without noise nothing
is promised, and training that diverges says so.

An upload stays *under way* until its fate is known: the receipt came (`settle`), the next download told (`take`), or it
was refused (`withdraw`). Until then it can be sent again, and no other takes its place; so nothing is counted twice.
With residuals (error feedback), all that was not sent, or was in a withdrawn upload, is added to the next change.
Without, it stays in the participant's own copy until a download overwrites it, as in the paper.

*The file of a participant*, which its owner alone can read, is replaced as a whole and synced before anything that
depends on it leaves. So one that is killed at any moment and loaded again stands where it last acted: it neither trains
twice on a photo nor sends two different uploads with one number. Training that was cut short is done again, from the
same place of the random generator, and is charged for again where there is a ledger. What its trainer remembers, such
as the moments of Adam, is kept too. Only one process at a time works with a file; the lock of a killed one is free.

Shokri and Shmatikov 2015, section 5; Bu 2019, section 6. theta_u and gamma are in `Sharing`, theta_d and the batch size
in `SelectiveTerms`, the learning rate alpha is the trainer's.
"""

import glob
import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.wire import Secret, decode, encode
from blindsight.dp.ledger import Ledger
from blindsight.errors import (
    BudgetExceededError,
    CorruptFileError,
    InputError,
    MessageError,
    PrivacyError,
    StorageError,
    UnknownNameError,
)
from blindsight.files import AnyPath, as_path, held_lock, only_link, read_arrays, storage_errors, write_arrays
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.selective.accounting import upload_loss
from blindsight.selective.codec import LARGEST_PARAMETER, SparseUpdate, Vector, decode_sparse, encode_sparse
from blindsight.selective.protection import RecordGaussian, Sharing, protect, remainder
from blindsight.selective.terms import Answer, Receipt, Request, SelectiveTerms, Upload
from blindsight.selective.trainers import DivergedError, Trainer, UnknownClassError, check_labels, check_photos
from blindsight.sums.messages import refuse_to_overwrite

_PARTICIPANT_KIND = "blindsight/participant.2"
_GENERATOR = "PCG64"  # numpy's default, whose position is a few whole numbers
_NUMBERS = ("version", "sequence", "gathered", "charged", "spent")
_ARRAYS = ("local", "residual", "inputs", "labels")


@dataclass(frozen=True, eq=False, repr=False)
class UnderWay(Secret):
    """What is not settled: what there was to send, what of it was sent, and in which upload (none: into a sum)."""

    wanted: Vector
    update: SparseUpdate
    upload: bytes = b""

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.upload).digest()


@dataclass(frozen=True, eq=False, repr=False)
class ParticipantState(Secret):
    """Where a participant stands."""

    local: Vector | None = None
    version: int = -1
    sequence: int = 0  # of the last upload that the server added
    residual: Vector | None = None
    under_way: UnderWay | None = None
    inputs: NDArray[Any] | None = None  # photos that wait, and their classes
    labels: NDArray[np.int64] | None = None
    gathered: int = 0
    charged: bool = False  # for the batch trained on last, and all went well
    spent: bool = False

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
        if self.under_way.digest == digest:
            return after.settled(self.under_way.update, sharing)
        return after.withdrawn(sharing)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that is not in `_NUMBERS`, for a file."""
        held = {name: getattr(self, name) for name in _ARRAYS}
        if (sent := self.under_way) is not None:
            held |= {"wanted": sent.wanted, "places": sent.update.indices, "values": sent.update.values}
            held["upload"] = np.frombuffer(sent.upload, dtype=np.uint8)
        return {name: array for name, array in held.items() if array is not None}

    @classmethod
    def of(cls, document: dict[str, Any], arrays: dict[str, NDArray[Any]], dimension: int) -> "ParticipantState":
        for name in {"local", "residual", "wanted"} & arrays.keys():
            if arrays[name].shape != (dimension,) or arrays[name].dtype != np.float32:
                raise ValueError(f"{name} is no vector of {dimension} parameters")
        under_way = None
        if "wanted" in arrays:
            update = SparseUpdate(dimension, arrays["places"], arrays["values"])
            under_way = UnderWay(arrays["wanted"], update, arrays["upload"].tobytes())
        held = {name: arrays.get(name) for name in _ARRAYS} | {name: document[name] for name in _NUMBERS}
        return cls(under_way=under_way, **held)


class ParticipantFile:
    """The file of one participant, locked until `close` or the end of the process."""

    def __init__(self, path: AnyPath, *, new: bool) -> None:
        """Lock the file, which must not be there if it is `new` and must be otherwise."""
        path = only_link(as_path(path))  # a link would be another name, with a lock of its own, of what is spent here
        self.path = path
        with storage_errors("use", path):
            if new:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif path.stat().st_mode & 0o077:
                raise StorageError(f"others can read the photos in {path}. Run: chmod 600 {path}")
            lock = path.with_name(f".{path.name}.lock")
            self.close = held_lock(self, lock, f"another process works with {path}. Let it finish first.")
        if new:
            refuse_to_overwrite(path)

    def write(self, document: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Replace the file, or raise and leave it as it was."""
        if not self.close.alive:
            raise StorageError(f"{self.path} was closed, and another process may work with it. Load it again.")
        write_arrays(self.path, _PARTICIPANT_KIND, document, arrays, private=True)

    def read(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        with storage_errors("clean", self.path):
            for part in self.path.parent.glob(f".{glob.escape(self.path.name)}.????????.part"):
                part.unlink()  # a writer was killed in the middle
        return read_arrays(self.path, _PARTICIPANT_KIND)


def check_joining(name: str, terms: SelectiveTerms, trainer: Trainer, sharing: Sharing) -> None:
    """Refuse a stranger, another network than the run's, and a way of sharing that the terms do not allow."""
    if name not in terms.participants:
        raise UnknownNameError("participant", name, terms.participants)
    if trainer.layout.digest != terms.layout:
        raise InputError(
            f"{name!r} trains a network of {trainer.layout.dimension} parameters whose names or shapes are not "
            f"those of the run's, which has {terms.dimension}. Use the same network and version as the server."
        )
    if sharing.count(terms.dimension) > terms.most_values:
        raise InputError(
            f"the terms allow {terms.most_values} values in an upload; a share of {sharing.share} of "
            f"{terms.dimension} parameters is more. Share less."
        )
    if sharing.shared is not None and sharing.shared.among > terms.together:
        raise PrivacyError(
            f"noise shared among {sharing.shared.among} protects only sums of as many uploads; by the terms sums of "
            f"{terms.together} may be opened. Agree on together={sharing.shared.among}."
        )
    if isinstance(sharing.noise, RecordGaussian):
        if getattr(trainer, "record_noise", None) != sharing.noise:
            raise PrivacyError(
                "noise per record is added inside training; this trainer adds none, or another. Give it the same."
            )
        if not isinstance(getattr(trainer, "epochs", None), int):
            raise PrivacyError(
                "noise per record is counted by how often a training uses a photo, which this trainer does not "
                "tell. Give it `epochs`, a whole number."
            )


def change_between(before: Vector, after: Vector) -> Vector:
    """Return the change that, added to `before` in float32, gives `after` bit for bit wherever there is such a number.

    >>> before, after = np.float32([0.1, -1.0]), np.float32([0.1, 0.5])
    >>> change_between(before, after).tolist()
    [0.0, 1.5]
    """
    with np.errstate(over="ignore"):
        change = after - before
        missed = np.flatnonzero(before + change != after)
        rounded = change[missed]
        for toward in (np.inf, -np.inf):
            neighbour = np.nextafter(rounded, np.float32(toward))
            hits = before[missed] + neighbour == after[missed]
            change[missed[hits]] = neighbour[hits]
    zeros = np.flatnonzero(change == 0)
    change[zeros] = np.copysign(change[zeros], after[zeros])  # -0.0 + 0.0 would be 0.0
    return change


class Participant(Secret):
    """One participant of a run."""

    def __init__(
        self,
        name: str,
        terms: SelectiveTerms,
        trainer: Trainer,
        sharing: Sharing,
        *,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | None = None,
        source: ByteSource = system_bytes,
        path: AnyPath | None = None,
        scope: str | None = None,
    ) -> None:
        """Join a run; the `ledger` is charged for each upload under `scope`, on which the caller sets the budget.

        Without a `scope` every run has one of its own: photos that are in several runs must be given the same in all.
        With a `path`, where no file must be yet, everything the participant knows is kept there (`load`).
        """
        check_joining(name, terms, trainer, sharing)
        self.name, self.terms, self.sharing = name, terms, sharing
        self._trainer, self._ledger, self._source = trainer, ledger, source
        self._scope = f"{terms.run}: {name}" if scope is None else scope
        self._rng = science(random_state)
        steps = trainer.epochs if isinstance(sharing.noise, RecordGaussian) else 1
        self._loss = upload_loss(sharing, dimension=terms.dimension, steps=steps)
        if self._loss is None and ledger is not None:
            raise PrivacyError(
                "nothing is proven of what is shared this way, so a ledger cannot count it. Use Gaussian noise, or no "
                "ledger."
            )
        self._state = ParticipantState()
        self._file: ParticipantFile | None = None
        if path is not None:
            self._file = ParticipantFile(path, new=True)
            try:
                self._keep(self._state)
            except BaseException:
                self._file.close()
                raise

    @classmethod
    def load(
        cls,
        path: AnyPath,
        *,
        trainer: Trainer,
        sharing: Sharing,
        ledger: Ledger | None = None,
        source: ByteSource = system_bytes,
        scope: str | None = None,
    ) -> "Participant":
        """Go on where the participant that kept its state at `path` stopped or was killed."""
        file = ParticipantFile(path, new=False)
        try:
            document, arrays = file.read()
            try:
                terms, rng = SelectiveTerms.from_bytes(bytes.fromhex(document["terms"])), science(0)
                rng.bit_generator.state = document["generator"]
                state = ParticipantState.of(document, arrays, terms.dimension)
                name, manner, counted = document["name"], document["manner"], document["counted"]
            except (KeyError, TypeError, ValueError, AttributeError, MessageError) as error:
                raise CorruptFileError(f"{file.path} holds no usable state: {error}.") from None
            itself = cls(name, terms, trainer, sharing, ledger=ledger, random_state=rng, source=source, scope=scope)
            if counted and ledger is None:
                raise PrivacyError(f"what {name!r} shares is counted by a ledger. Give it the same one again.")
            if itself._manner != manner:
                raise InputError(f"{name!r} shared in another way so far. Give it the same sharing and trainer.")
            try:
                trainer.recall({key[7:]: array for key, array in arrays.items() if key.startswith("memory ")})
            except (KeyError, IndexError, ValueError) as error:
                raise InputError(f"what {name!r} remembers is another trainer's: {error}.") from None
        except BaseException:
            file.close()
            raise
        itself._state, itself._file = state, file
        return itself

    def close(self) -> None:
        """Let another process work with the file; this participant changes no more."""
        if self._file is not None:
            self._file.close()

    @property
    def _manner(self) -> str:
        return f"{self.sharing!r}, {self._loss!r}"  # the same loss, or batches would be charged too little for

    def _keep(self, state: ParticipantState) -> None:
        """Go on to another state, which is on disk then; if it cannot be written, stay in this one."""
        if self._file is not None:
            position = self._rng.bit_generator.state
            if position["bit_generator"] != _GENERATOR:
                raise InputError(f"only a generator of the kind {_GENERATOR} can be kept in a file. Give a seed.")
            document = {name: getattr(state, name) for name in _NUMBERS}
            document |= {"name": self.name, "terms": self.terms.to_bytes().hex(), "generator": position}
            document |= {"manner": self._manner, "counted": self._ledger is not None}
            memory = {f"memory {name}": array for name, array in self._trainer.memory().items()}
            self._file.write(document, state.arrays() | memory)
        self._state = state

    @property
    def scope(self) -> str:
        """What the ledger calls this participant's photos."""
        return self._scope

    @property
    def parameters(self) -> Vector:
        return self._downloaded().copy()

    @property
    def version(self) -> int:
        """The server's version that was downloaded last; -1 if none was."""
        return self._state.version

    @property
    def gathered(self) -> int:
        """How many photos it was given in all: where to go on in a collection after a restart."""
        return self._state.gathered

    @property
    def waiting(self) -> int:
        """How many of them were not trained on yet."""
        return 0 if self._state.labels is None else len(self._state.labels)

    @property
    def spent(self) -> bool:
        """Whether the ledger allowed no further upload."""
        return self._state.spent

    @property
    def under_way(self) -> bytes:
        """The upload of unknown fate; empty if there is none."""
        return b"" if self._state.under_way is None else self._state.under_way.upload

    @property
    def ready(self) -> bool:
        """Whether it can train now: enough photos, budget left, and nothing of unknown fate."""
        return self.waiting >= self.terms.batch and not self.spent and self._state.under_way is None

    def gather(self, inputs: ArrayLike, labels: ArrayLike, *, refuse: bool = True) -> None:
        """Take in new photos and their classes, counted from 0; each is trained on once, in the order of arrival.

        Classes that the model does not have are refused, unless whoever chose the classes would see that.
        """
        state = self._state
        rows = check_photos(inputs, None if state.inputs is None else state.inputs.shape[1:])
        truth = check_labels(labels, len(rows))
        if refuse:
            self._trainer.check(rows, truth)
        both = (rows.copy(), truth)
        if state.inputs is not None and state.labels is not None:
            both = np.concatenate([state.inputs, rows]), np.concatenate([state.labels, truth])
        if len(rows):
            self._keep(replace(state, inputs=both[0], labels=both[1], gathered=state.gathered + len(rows)))

    def request(self) -> bytes:
        """Ask the server for its most updated parameters; for all at first."""
        return encode(Request(self.terms.digest, self.name, self.version))

    def take(self, answer: bytes) -> None:
        """Overwrite its own parameters by the downloaded ones, and settle an upload that the answer speaks of."""
        message = decode(answer, Answer)
        self._check_addressee(message.terms, message.participant)
        state = self._state
        if message.version < state.version:
            raise MessageError(f"the answer is of version {message.version}; {state.version} is here already.")
        if state.local is not None and not 0 <= message.sequence - state.sequence <= 1:
            raise MessageError(f"the answer speaks of upload {message.sequence}; {state.sequence} was the last.")
        news = decode_sparse(message.body, self.terms.dimension, max_values=self.terms.dimension)
        if news.values.size and not max(news.values.max(), -news.values.min()) <= LARGEST_PARAMETER:
            raise MessageError(f"the answer holds parameters larger than {LARGEST_PARAMETER:,.0f}; none is accepted.")
        if state.local is None and news.indices.size < self.terms.dimension:
            raise MessageError("the first answer must hold all parameters.")
        state = state.added(message.sequence, message.upload, self.sharing)
        self._keep(replace(state, local=self._overwritten(news), version=message.version))

    def _overwritten(self, news: SparseUpdate) -> Vector:
        if news.indices.size == self.terms.dimension:
            return news.values
        local = self._downloaded().copy()
        local[news.indices] = news.values
        return local

    def train(self) -> bytes:
        """Train on a batch of gathered photos and return the upload; `BudgetExceededError` stops all training."""
        if self.terms.together > 1:
            raise PrivacyError(
                f"by the terms only sums of {self.terms.together} uploads may be opened. Use `encrypted`, not `train`."
            )
        under_way, after = self._prepared(self._rng)
        body = encode_sparse(under_way.update, half=self.sharing.half)
        upload = encode(Upload(self.terms.digest, self.name, self._state.sequence + 1, self.version, body))
        self._commit(replace(under_way, upload=upload), after)
        return upload

    def contribute(self, turn: int) -> SparseUpdate:
        """Train likewise and return what is to go into the sum of this turn, never to be sent alone."""
        rng = self._rng
        if self.sharing.shared is not None:
            rng = np.random.default_rng([turn, *self.terms.digest])  # the same places for all
        under_way, after = self._prepared(rng)
        self._commit(under_way, after)
        return under_way.update

    def resend(self) -> bytes:
        if not self.under_way:
            raise InputError(f"no upload of {self.name!r} is under way.")
        return self.under_way

    def settle(self, receipt: bytes) -> None:
        message, sent = decode(receipt, Receipt), self._state.under_way
        self._check_addressee(message.terms, message.participant)
        if sent is None or sent.digest != message.upload:
            raise MessageError(f"the receipt is for another upload than the one of {self.name!r} under way.")
        self._keep(self._state.added(self._state.sequence + 1, message.upload, self.sharing))

    def entered(self, arrived: SparseUpdate) -> None:
        """Note that a contribution entered its sum, as `arrived`: rounded or cut by the scheme that adds."""
        sent = self._state.under_way
        if sent is None or sent.upload:
            raise InputError(f"no contribution of {self.name!r} is under way.")
        self._keep(self._state.settled(arrived, self.sharing))

    def withdraw(self) -> None:
        """Give up the upload under way because it was refused; with residuals, its content goes into the next."""
        self._keep(self._state.withdrawn(self.sharing))

    def _prepared(self, rng: np.random.Generator) -> tuple[UnderWay, Vector]:
        """Return what to upload and the own parameters after training; nothing but the ledger has changed yet."""
        before = self._downloaded()
        if self._state.under_way is not None:
            raise InputError(f"an upload of {self.name!r} is under way. Settle, resend or withdraw it first.")
        if self.spent:
            raise BudgetExceededError(f"the budget of {self.scope!r} is spent: it trains no more.")
        batch = self.terms.batch
        if self.waiting < batch:
            raise InputError(f"{self.name!r} has gathered {self.waiting} photos; it trains on {batch}. Gather more.")
        self._charge()
        if self._state.charged:  # should anything fail from here on, the same photos are charged for once more
            self._keep(replace(self._state, charged=False))
        after, held_back = self._trained(before), self._state.residual
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = after - before
            if held_back is not None:
                wanted += held_back
        if self.sharing.noise is not None:
            np.nan_to_num(wanted, copy=False)
        update = protect(wanted, self.sharing, rng=rng, source=self._source)
        if held_back is None and not self._noise_outside and not self.sharing.half:
            places = update.where
            wanted[places] = change_between(before[places], after[places])
            update.values[:] = self.sharing.cut(wanted[places])
        return UnderWay(wanted, update), after

    def _trained(self, before: Vector) -> Vector:
        assert self._state.inputs is not None
        assert self._state.labels is not None
        inputs, labels = (photos[: self.terms.batch] for photos in (self._state.inputs, self._state.labels))
        shown = before.view()
        shown.flags.writeable = False
        try:
            after = self._trainer.train(shown, inputs, labels, int(self._rng.integers(2**63)))
        except (DivergedError, UnknownClassError):
            if not self._noise_outside:
                raise
            return before
        if after.shape != before.shape or after.dtype != np.float32:
            raise InputError(f"a trainer returns {before.size} float32 parameters; got {after.dtype} {after.shape}.")
        if np.isfinite(after).all():
            return after
        if self._noise_outside:
            return before
        raise DivergedError(f"the training of {self.name!r} diverged. Lower the learning rate; nothing was sent.")

    @property
    def _noise_outside(self) -> bool:
        """Whether the promise is about what training returns, so that its failure would tell what noise is to hide."""
        return self.sharing.noise is not None and not isinstance(self.sharing.noise, RecordGaussian)

    def _charge(self) -> None:
        """Record what the upload costs before anything is done for it.

        Noise per record is charged once: each photo is in one batch only, so all batches together cost a photo no more
        than its own does (parallel composition; a photo that does not count leaves its place in the batch empty).
        """
        unit = self.sharing.unit
        if self._ledger is None or self._loss is None or (unit == "record" and self._state.charged):
            return
        try:
            self._ledger.spend(
                self._loss,
                scope=self.scope,
                unit=unit,
                neighbours=self.sharing.neighbours,
                mechanism=str(self.sharing.noise),
                purpose=f"upload {self._state.sequence + 1}",
            )
        except BudgetExceededError:
            self._keep(replace(self._state, spent=True))
            raise

    def _commit(self, under_way: UnderWay, local: Vector) -> None:
        """Give up the photos of a batch for what was learned from them, before any of it leaves."""
        state, rest = self._state, slice(self.terms.batch, None)
        assert state.inputs is not None
        assert state.labels is not None
        left = replace(state, inputs=state.inputs[rest], labels=state.labels[rest], charged=self._ledger is not None)
        self._keep(replace(left, local=local, under_way=under_way))

    def _downloaded(self) -> Vector:
        if self._state.local is None:
            raise InputError(f"{self.name!r} has no parameters yet. Let it take an answer of the server first.")
        return self._state.local

    def _check_addressee(self, terms: bytes, name: str) -> None:
        if terms != self.terms.digest or name != self.name:
            raise MessageError(f"the message is not for {self.name!r} in this run.")
