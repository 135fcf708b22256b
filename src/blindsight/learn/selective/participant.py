"""A participant: its photos stay with it; when enough have gathered it trains, and shares a little of what it learned.

*The guarantee.* Nothing of a photo leaves but through `protect`, and with a ledger no batch is trained on before its
cost is on record; training that fails has wasted it. When the budget is spent, training stops, and photos, parameters
and what was held back stay as they were. With one participant that shares and downloads everything, unbounded and
without noise, the server's parameters are those of plain training bit for bit (`change`).

An upload stays *under way* until its fate is known: the receipt came (`settle`), the next download told (`take`), or it
was refused (`withdraw`). Until then it can be sent again, and no other takes its place; so nothing is counted twice.
With residuals (error feedback), all that was not sent, or was in a withdrawn upload, is added to the next change.
Without, it stays in the participant's own copy until a download overwrites it, as in the paper.

Shokri and Shmatikov 2015, section 5; Bu 2019, section 6. theta_u and gamma are in `Sharing`, theta_d and the batch size
in `SelectiveTerms`, the learning rate alpha is the trainer's.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.secret import Secret
from blindsight.crypto.wire import decode, encode
from blindsight.dp.ledger import Ledger
from blindsight.dp.losses import Loss
from blindsight.errors import BudgetExceededError, InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.learn.selective.accounting import neighbouring, protected_unit, upload_loss
from blindsight.learn.selective.change import change_between
from blindsight.learn.selective.messages import Answer, Receipt, Request, Upload
from blindsight.learn.selective.noise import ParticipantGaussian, RecordGaussian
from blindsight.learn.selective.protection import Sharing, protect, remainder
from blindsight.learn.selective.sparsecodec import decode_sparse, encode_sparse
from blindsight.learn.selective.sparseupdate import SparseUpdate, Vector
from blindsight.learn.selective.terms import SelectiveTerms
from blindsight.learn.selective.trainer import Trainer, check_labels
from blindsight.rng import ByteSource, science, system_bytes


@dataclass(frozen=True, eq=False, repr=False)
class _UnderWay(Secret):
    """What is not settled: what there was to send, what of it was sent, and in which upload (none: into a sum)."""

    wanted: Vector
    update: SparseUpdate
    upload: bytes = b""


class Participant(Secret):
    """One participant of a run. `spent` tells that the ledger allowed no further upload."""

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
    ) -> None:
        """Join a run; the `ledger` is charged for each upload under `scope`, on which the caller sets the budget."""
        if name not in terms.participants:
            raise UnknownNameError("participant", name, terms.participants)
        if trainer.layout.digest != terms.layout:
            raise InputError(
                f"{name!r} trains a network of {trainer.layout.dimension} parameters whose names or shapes are not "
                f"those of the run's, which has {terms.dimension}. Use the same network and version as the server."
            )
        self.name, self.terms, self.sharing = name, terms, sharing
        self.spent = False
        self._trainer, self._ledger, self._source = trainer, ledger, source
        self._rng = science(random_state)
        self._inputs: list[NDArray[Any]] = []
        self._labels: list[np.int64] = []
        self._local: Vector | None = None
        self._version = -1
        self._sequence = 0  # of the last upload that the server added
        self._residual: Vector | None = None
        self._under_way: _UnderWay | None = None
        self._charged = False  # for the batch trained on last, and all went well
        self._check_sharing()
        self._loss = self._loss_of_an_upload()

    def _check_sharing(self) -> None:
        noise = self.sharing.noise
        if self.sharing.count(self.terms.dimension) > self.terms.most_values:
            raise InputError(
                f"the terms allow {self.terms.most_values} values in an upload; a share of {self.sharing.share} of "
                f"{self.terms.dimension} parameters is more. Share less."
            )
        if isinstance(noise, ParticipantGaussian) and noise.among > self.terms.together:
            raise PrivacyError(
                f"noise shared among {noise.among} protects only sums of as many uploads; by the terms sums of "
                f"{self.terms.together} may be opened. Agree on together={noise.among}."
            )
        if isinstance(noise, RecordGaussian):
            if getattr(self._trainer, "record_noise", None) != noise:
                raise PrivacyError(
                    "noise per record is added inside training; this trainer adds none, or another. Give it the same."
                )
            if not isinstance(getattr(self._trainer, "epochs", None), int):
                raise PrivacyError(
                    "noise per record is counted by how often a training uses a photo, which this trainer does not "
                    "tell. Give it `epochs`, a whole number."
                )

    def _loss_of_an_upload(self) -> Loss | None:
        steps = self._trainer.epochs if isinstance(self.sharing.noise, RecordGaussian) else 1
        loss = upload_loss(self.sharing, dimension=self.terms.dimension, steps=steps)
        if loss is None and self._ledger is not None:
            raise PrivacyError(
                "nothing is proven of what is shared this way, so a ledger cannot count it. Use Gaussian noise, or no "
                "ledger."
            )
        return loss

    @property
    def scope(self) -> str:
        """What the ledger calls this participant's photos."""
        return f"{self.terms.run}: {self.name}"

    @property
    def parameters(self) -> Vector:
        """Its own copy of the parameters."""
        return self._downloaded().copy()

    @property
    def version(self) -> int:
        """The server's version that was downloaded last; -1 if none was."""
        return self._version

    @property
    def waiting(self) -> int:
        """How many photos have gathered."""
        return len(self._labels)

    @property
    def ready(self) -> bool:
        """Whether it can train now: enough photos, budget left, and no upload of unknown fate."""
        return self.waiting >= self.terms.batch and not self.spent and self._under_way is None

    def gather(self, inputs: ArrayLike, labels: ArrayLike) -> None:
        """Take in new photos and their classes, counted from 0; each is trained on once, in the order of arrival."""
        try:
            rows = np.asarray(inputs)
        except ValueError:
            raise InputError("photos must all have one shape; got different ones.") from None
        if rows.ndim < 2 or rows.dtype.kind not in "biuf":
            raise InputError(f"photos must be rows of numbers, one for each; got {rows.dtype} {rows.shape}.")
        marks = check_labels(labels, len(rows))
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            raise InputError("photos must be finite; got NaN or infinity.")
        if self._inputs and len(rows) and rows.shape[1:] != self._inputs[0].shape:
            raise InputError(f"photos must have the shape {self._inputs[0].shape} as before; got {rows.shape[1:]}.")
        self._inputs += list(rows.copy())
        self._labels += list(marks)

    def request(self) -> bytes:
        """Ask the server for its most updated parameters; for all at first."""
        return encode(Request(self.terms.digest, self.name, self._version))

    def take(self, answer: bytes) -> None:
        """Overwrite its own parameters by the downloaded ones, and settle an upload that the answer speaks of."""
        message = decode(answer, Answer)
        self._check_addressee(message.terms, message.participant)
        if message.version < self._version:
            raise MessageError(f"the answer is of version {message.version}; {self._version} is here already.")
        if self._local is not None and not 0 <= message.sequence - self._sequence <= 1:
            raise MessageError(f"the answer speaks of upload {message.sequence}; {self._sequence} was the last.")
        news = decode_sparse(message.body, self.terms.dimension, max_values=self.terms.dimension)
        if self._local is None and news.indices.size < self.terms.dimension:
            raise MessageError("the first answer must hold all parameters.")
        self._local, self._version = self._overwritten(news), message.version
        if message.sequence != self._sequence:
            self._sequence = message.sequence
            self._learn_fate(message.upload)

    def _overwritten(self, news: SparseUpdate) -> Vector:
        """Return its own parameters with the downloaded ones in their places."""
        if news.indices.size == self.terms.dimension:
            return news.values
        local = self._downloaded().copy()
        local[news.indices] = news.values
        return local

    def _learn_fate(self, digest: bytes) -> None:
        """Settle the upload under way if it was added; if a withdrawn one of its number was instead, it cannot be."""
        if self._under_way is not None and self._under_way.upload:
            if hashlib.sha256(self._under_way.upload).digest() == digest:
                self._settle(self._under_way.update)
            else:
                self.withdraw()

    def train(self) -> bytes:
        """Train on a batch of gathered photos and return the upload; `BudgetExceededError` stops all training."""
        if self.terms.together > 1:
            raise PrivacyError(
                f"by the terms only sums of {self.terms.together} uploads may be opened. Use `encrypted`, not `train`."
            )
        under_way, after = self._prepared(self._rng)
        body = encode_sparse(under_way.update, half=self.sharing.half)
        upload = encode(Upload(self.terms.digest, self.name, self._sequence + 1, self._version, body))
        self._commit(replace(under_way, upload=upload), after)
        return upload

    def contribute(self, turn: int) -> SparseUpdate:
        """Train likewise and return what is to go into the sum of this turn, never to be sent alone."""
        rng = self._rng
        if isinstance(self.sharing.noise, ParticipantGaussian) and self.sharing.noise.among > 1:
            rng = np.random.default_rng([turn, *self.terms.digest])  # the same places for all
        under_way, after = self._prepared(rng)
        self._commit(under_way, after)
        return under_way.update

    def resend(self) -> bytes:
        """Return the upload that is under way, to be sent once more."""
        if self._under_way is None or not self._under_way.upload:
            raise InputError(f"no upload of {self.name!r} is under way.")
        return self._under_way.upload

    def settle(self, receipt: bytes) -> None:
        """Note that the upload under way was added."""
        message = decode(receipt, Receipt)
        self._check_addressee(message.terms, message.participant)
        if self._under_way is None or message.upload != hashlib.sha256(self._under_way.upload).digest():
            raise MessageError(f"the receipt is for another upload than the one of {self.name!r} under way.")
        self._sequence += 1
        self._settle(self._under_way.update)

    def entered(self, arrived: SparseUpdate) -> None:
        """Note that a contribution entered its sum, as `arrived`: rounded or cut by the scheme that adds."""
        if self._under_way is None or self._under_way.upload:
            raise InputError(f"no contribution of {self.name!r} is under way.")
        self._settle(arrived)

    def withdraw(self) -> None:
        """Give up the upload under way because it was refused; with residuals, its content goes into the next."""
        if self._under_way is not None and self.sharing.residual:
            self._residual = self._under_way.wanted
        self._under_way = None

    def _prepared(self, rng: np.random.Generator) -> tuple[_UnderWay, Vector]:
        """Return what to upload and the own parameters after training; nothing but the ledger has changed yet."""
        before = self._downloaded()
        if self._under_way is not None:
            raise InputError(f"an upload of {self.name!r} is under way. Settle, resend or withdraw it first.")
        if self.spent:
            raise BudgetExceededError(f"the budget of {self.scope!r} is spent: it trains no more.")
        batch = self.terms.batch
        if self.waiting < batch:
            raise InputError(f"{self.name!r} has gathered {self.waiting} photos; it trains on {batch}. Gather more.")
        self._charge()
        self._charged = False  # should anything fail from here on, the same photos are charged for once more
        after = self._trained(before)
        wanted = change_between(before, after)
        if self._residual is not None:
            wanted = wanted + self._residual
        return _UnderWay(wanted, protect(wanted, self.sharing, rng=rng, source=self._source)), after

    def _trained(self, before: Vector) -> Vector:
        """Return what the trainer makes of these parameters and the next batch."""
        inputs, labels = (np.stack(photos[: self.terms.batch]) for photos in (self._inputs, self._labels))
        after = self._trainer.train(before.copy(), inputs, labels, int(self._rng.integers(2**63)))
        if after.shape != before.shape or after.dtype != np.float32:
            raise InputError(f"a trainer returns {before.size} float32 parameters; got {after.dtype} {after.shape}.")
        if not np.isfinite(after).all():
            raise InputError(f"the training of {self.name!r} diverged. Lower the learning rate; nothing was sent.")
        return after

    def _charge(self) -> None:
        """Record what the upload costs before anything is done for it.

        Noise per record is charged once: each photo is in one batch only, so all batches together cost a photo no more
        than its own does (parallel composition; a photo that does not count leaves its place in the batch empty).
        """
        unit = protected_unit(self.sharing)
        if self._ledger is None or self._loss is None or (unit == "record" and self._charged):
            return
        try:
            self._ledger.spend(
                self._loss,
                scope=self.scope,
                unit=unit,
                neighbours=neighbouring(self.sharing),
                mechanism=str(self.sharing.noise),
                purpose=f"upload {self._sequence + 1}",
            )
        except BudgetExceededError:
            self.spent = True
            raise

    def _commit(self, under_way: _UnderWay, after: Vector) -> None:
        self._under_way, self._local, self._charged = under_way, after, True
        del self._inputs[: self.terms.batch], self._labels[: self.terms.batch]

    def _settle(self, arrived: SparseUpdate) -> None:
        assert self._under_way is not None
        if self.sharing.residual:
            self._residual = remainder(self._under_way.wanted, arrived, self.sharing)
        self._under_way = None

    def _downloaded(self) -> Vector:
        if self._local is None:
            raise InputError(f"{self.name!r} has no parameters yet. Let it take an answer of the server first.")
        return self._local

    def _check_addressee(self, terms: bytes, name: str) -> None:
        if terms != self.terms.digest or name != self.name:
            raise MessageError(f"the message is not for {self.name!r} in this run.")
