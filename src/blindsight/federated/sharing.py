"""A participant of selective sharing that is elsewhere (`learn.selective`): how it joins, shares, and what it is told.

*The guarantee.* Nobody takes part who did not say so: the server reads uploads, so a member must name "sharing" among
its schemes, and how much it shares. With noise "record" all runs of a key store together cost each of its photos at
most the epsilon and delta that its owner named: the ledger in it counts all of them as one collection, whatever a
server calls its runs. A run costs them once (each photo is in one batch); the next is refused. So is a run whose
training was cut short after it was paid for: that wastes the budget, and never exceeds it.

The server's `SharingTask` holds the terms and how to train: data and never code. What a participant shares of what it
learned, under which noise and within which budget, it decides itself (`OwnTerms`).

An exchange begins with the server (`parameter_server`); its two messages carry those of `learn.selective.messages`::

    server -> participant    Instruction   what became of your last upload; the answer to your last request
    participant -> server    Report        my next upload, if I have one; my next request; how I am

`step` does what `learn.selective.play` does in process: learn what became of the last upload, download, train if there
is enough to train on, upload. Either message may be lost, late or doubled: nothing is done twice, and while an upload
is of unknown fate, the same bytes are sent again. If the participant has a file, this also holds across restarts.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.data.features import Standardiser
from blindsight.dp.ledger import Ledger
from blindsight.errors import BudgetExceededError, InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.identity import KeyStore
from blindsight.federated.node import SHARING, MemberHandler
from blindsight.files import atomic_writer, pack_arrays, storage_errors, unpack_arrays
from blindsight.selective.accounting import neighbouring, protected_unit
from blindsight.selective.noise import RecordGaussian, calibrate_record, check_whole
from blindsight.selective.participant import Participant
from blindsight.selective.protection import Sharing
from blindsight.selective.terms import Answer, Digest, Name, Receipt, SelectiveTerms
from blindsight.selective.trainers import SoftmaxTrainer, check_labels
from blindsight.validation import check_features

EXCHANGE = "sharing/exchange"
"""What a transport calls an exchange: one part goes, an `Instruction`, and one comes back, a `Report`."""

JOIN = "sharing/join"
"""What a transport calls joining: one part goes, a `SharingTask`, and nothing comes back."""

NOISES = ("none", "record")

REQUEST_BYTES = 1024
"""More than any request takes."""

NewPhotos = Callable[[], tuple[ArrayLike, ArrayLike] | None]
"""Returns photos and their classes that were never returned before, or None.

After a restart `Participant.gathered` tells how many a participant has taken from a collection.
"""


class Instruction(Message, name="sharing/instruction.1"):
    """What the server tells a participant; empty parts say nothing.

    `receipt` is for an upload that was added, `refused` the digest of one that was not. `answer` is for the request of
    a participant that had the parameters of version `asked`; without one, its request is not known yet.
    """

    terms: Digest
    participant: Name
    receipt: bytes
    refused: Digest
    asked: int
    answer: bytes


class Report(Message, name="sharing/report.1"):
    """What a participant tells the server.

    `taken` says whether it had the newest parameters when it decided to send an upload, or none.
    """

    terms: Digest
    participant: Name
    upload: bytes
    request: Annotated[bytes, Limit(REQUEST_BYTES)]
    taken: bool
    waiting: int
    spent: bool


class _TaskMessage(Message, name="sharing/task.1"):
    terms: bytes
    document: Annotated[bytes, Limit(4096)]
    arrays: bytes


@dataclass(frozen=True, eq=False)
class SharingTask:
    """The terms, and how every participant trains a softmax head on features that `standardiser` scales."""

    terms: SelectiveTerms
    standardiser: Standardiser
    classes: int
    learning_rate: float
    epochs: int = 1

    def trainer(self) -> SoftmaxTrainer:
        """Return the training without noise."""
        return SoftmaxTrainer(
            standardiser=self.standardiser,
            classes=self.classes,
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            batch=self.terms.batch,
        )

    def to_bytes(self) -> bytes:
        document = {"classes": self.classes, "learning_rate": self.learning_rate, "epochs": self.epochs}
        arrays = pack_arrays({"mean": self.standardiser.mean, "scale": self.standardiser.scale})
        return encode(_TaskMessage(self.terms.to_bytes(), json.dumps(document).encode(), arrays))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        message = decode(data, _TaskMessage)
        try:
            arrays, document = unpack_arrays(message.arrays), json.loads(message.document)
            standardiser = Standardiser(
                *(check_features(arrays[name][None], precision="wide")[0] for name in ("mean", "scale"))
            )
            task = cls(SelectiveTerms.from_bytes(message.terms), standardiser, **document)
            if task.trainer().layout.digest != task.terms.layout:
                raise InputError("its terms are for another network")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise MessageError(f"the task of this run cannot be understood: {error}") from None
        return task


@dataclass(frozen=True)
class OwnTerms:
    """What a participant shares: the largest `share` of its changes, with noise for each photo or without.

    An upload is made of at least `least_batch` photos. With noise "record" a photo is protected with `epsilon` and
    `delta`, over all runs; gradients are cut to the length `clip`.
    """

    share: float
    least_batch: int = 16
    noise: str = "none"
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        """Refuse half a promise."""
        check_whole("least-batch", self.least_batch)
        if self.least_batch < 1:
            raise InputError(f"least-batch must be at least 1; got {self.least_batch}.")
        if self.noise not in NOISES:
            raise UnknownNameError("noise", str(self.noise), NOISES)
        given = [name for name in ("epsilon", "delta", "clip") if getattr(self, name) is not None]
        if len(given) != (3 if self.noise == "record" else 0):
            raise InputError("noise 'record' needs epsilon, delta and clip, and nothing else has them.")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Return what a node-config says."""
        if "share" not in config:
            raise InputError("this node does not say how much it shares. Start it with --node-config 'share=0.1'.")
        names = ("share", "least-batch", "noise", "epsilon", "delta", "clip")
        return cls(**{name.replace("-", "_"): config[name] for name in names if name in config})

    def sharing(self, epochs: int) -> Sharing:
        """Return how it shares what it learned in so many passes over a batch."""
        if self.noise == "none":
            return Sharing(self.share, residual=True)
        assert self.epsilon is not None
        assert self.delta is not None
        assert self.clip is not None
        noise = calibrate_record(epsilon=self.epsilon, delta=self.delta, steps=epochs, clip=self.clip)
        return Sharing(self.share, residual=True, noise=noise)


@dataclass(frozen=True)
class SharingHandler:
    """The node handler of a participant in selective sharing, which shares as its `own` terms say."""

    store: KeyStore
    own: OwnTerms

    @classmethod
    def of(cls, member: MemberHandler, config: Mapping[str, Any]) -> Self:
        """Return the handler of a member with this node-config; `PrivacyError` if it does not take part in sharing."""
        if SHARING not in member.schemes:
            raise PrivacyError(
                f"this member does not take part in {SHARING}, where the server reads uploads; it accepts "
                f"{', '.join(member.schemes)}."
            )
        return cls(member.store, OwnTerms.of(config))

    @property
    def scope(self) -> str:
        """What the ledger calls the photos of this key store, in all runs."""
        return f"photos of {self.store.identity.name}"

    def join(self, task: bytes) -> None:
        """Take part in a run; another task for the same run is refused."""
        joined = SharingTask.from_bytes(task)
        if self.store.identity.name not in joined.terms.participants:
            raise MessageError(f"{self.store.identity.name!r} is not among the participants of this run.")
        self._check_batch(joined)
        path = self._folder(joined.terms.digest) / "task"
        if path.exists():
            if _read(path) != task:
                raise MessageError("this run has begun with another task.")
            return
        with atomic_writer(path, private=True) as stream:
            stream.write(task)

    def exchange(self, instruction: bytes, features: NDArray[Any], classes: NDArray[Any]) -> bytes:
        """Do what an instruction leads to, with photos of the collection that were not used before."""
        folder = self._folder(decode(instruction, Instruction).terms)
        path = folder / "task"
        if not path.exists():
            raise MessageError(f"{self.store.identity.name!r} does not take part in this run.")
        task = SharingTask.from_bytes(_read(path))
        self._check_batch(task)
        if features.ndim != 2 or features.shape[1] != len(task.standardiser.mean):
            raise MessageError(
                f"the photos of {self.store.identity.name!r} have the shape {features.shape[1:]}; the others' have "
                f"{len(task.standardiser.mean)} numbers. Use the same features everywhere."
            )
        classes_told = task.classes if self.own.noise == "none" else None  # by noise a class too many counts as zero
        check_labels(classes, len(features), classes_told)  # before they cost anything
        with closing(self._participant(task, folder)) as participant:

            def new_photos() -> tuple[NDArray[Any], NDArray[Any]] | None:
                start = participant.gathered
                some = slice(start, start + task.terms.batch)
                return (features[some], classes[some]) if start < len(features) else None

            return step(participant, instruction, new_photos)

    def _participant(self, task: SharingTask, folder: Path) -> Participant:
        sharing, path = self.own.sharing(task.epochs), folder / "participant.npz"
        trainer, ledger = task.trainer(), None
        if isinstance(sharing.noise, RecordGaussian):
            trainer, ledger = replace(trainer, record_noise=sharing.noise), self._ledger(sharing)
        if path.exists():
            return Participant.load(path, trainer=trainer, sharing=sharing, ledger=ledger, scope=self.scope)
        name = self.store.identity.name
        return Participant(name, task.terms, trainer, sharing, ledger=ledger, scope=self.scope, path=path)

    def _ledger(self, sharing: Sharing) -> Ledger:
        """Return the ledger of this key store, in which all runs together have the budget that one of them needs."""
        ledger = Ledger(self.store.path / "ledger.jsonl")
        assert self.own.epsilon is not None
        assert self.own.delta is not None
        ledger.set_budget(
            self.scope,
            unit=protected_unit(sharing),
            neighbours=neighbouring(sharing),
            epsilon=self.own.epsilon,
            delta=self.own.delta,
        )
        return ledger

    def _check_batch(self, task: SharingTask) -> None:
        """Refuse uploads that are about a few photos; the owner may have asked for more since it joined."""
        if task.terms.batch < self.own.least_batch:
            raise PrivacyError(
                f"this member shares what it learned from {self.own.least_batch} photos or more; got a batch of "
                f"{task.terms.batch}."
            )

    def _folder(self, digest: bytes) -> Path:
        return self.store.run(digest.hex())


def _read(path: Path) -> bytes:
    with storage_errors("read", path):
        return path.read_bytes()


def step(participant: Participant, instruction: bytes, new_photos: NewPhotos) -> bytes:
    """Do what an instruction leads to and return the report; what is not for this participant raises."""
    message = decode(instruction, Instruction)
    if message.terms != participant.terms.digest or message.participant != participant.name:
        raise MessageError(
            f"the instruction is not for {participant.name!r} in this run. All must agree on its terms, and each needs "
            "a name of its own."
        )
    _learn_fate(participant, message)
    taken = _take(participant, message)
    if taken and not participant.under_way:
        _train(participant, new_photos)
    return encode(
        Report(
            participant.terms.digest,
            participant.name,
            participant.under_way,
            participant.request(),
            taken,
            participant.waiting,
            participant.spent,
        )
    )


def _learn_fate(participant: Participant, message: Instruction) -> None:
    """Settle or withdraw the upload under way if the instruction speaks of it."""
    if not participant.under_way:
        return
    digest = hashlib.sha256(participant.under_way).digest()
    if message.receipt and decode(message.receipt, Receipt).upload == digest:
        participant.settle(message.receipt)
    elif message.refused == digest:
        participant.withdraw()


def _take(participant: Participant, message: Instruction) -> bool:
    """Download, if the answer is to the last request and comes before anything was trained on top of it."""
    if not message.answer or message.asked != participant.version:
        return False
    if participant.under_way:
        added = decode(message.answer, Answer).upload
        if added != hashlib.sha256(participant.under_way).digest():
            return False
    participant.take(message.answer)
    return True


def _train(participant: Participant, new_photos: NewPhotos) -> None:
    """Train if there are photos and budget enough; the upload is under way then."""
    if participant.waiting < participant.terms.batch and not participant.spent:
        photos = new_photos()
        if photos is not None:
            participant.gather(*photos)
    if participant.ready:
        with suppress(BudgetExceededError):  # the report tells
            participant.train()
