"""What the participants of a run and its server agree on, and every message they exchange (`crypto.wire`).

Who sends what to whom::

    participant -> server    Request   what have I missed?
    server -> participant    Answer    the most updated parameters, and which of your uploads came last
    participant -> server    Upload    a few values to be added to the parameters
    server -> participant    Receipt   they were added, and are on disk
    aggregator -> server     Total     the sum of several participants' uploads, of which the server sees none

An upload has a number: those of one participant count up from 1, and the server adds each number once. An answer names
the last one added, so a participant whose receipt was lost learns from its next download what became of its upload.

Messages carry names, not signatures: whoever delivers them to the server must know who speaks.

The digest of the terms stands in each message, so nothing of another run, another network or another agreement is ever
added to this one's parameters.

Symbols of the paper: theta_d is `download`; the batch size that triggers local training is `batch`. What a participant
uploads (theta_u, gamma, noise) is its own business (`Sharing`), up to `max_values`.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Annotated, Any

from blindsight.crypto.wire import MAX_BYTES, Limit, Message, decode, encode
from blindsight.errors import InputError
from blindsight.selective.codec import ParameterLayout
from blindsight.selective.protection import check_number, check_whole

Digest = Annotated[bytes, Limit(32)]
Name = Annotated[str, Limit(256)]


class TermsMessage(Message, name="selective/terms.2"):
    """See `terms.SelectiveTerms`; -1 stands for None."""

    run: Name
    participants: tuple[str, ...]
    layout: Name
    dimension: int
    batch: int
    download: float
    max_values: int
    max_staleness: int
    together: int
    half: bool


class Request(Message, name="selective/request.1"):
    """A participant that last downloaded the parameters of `version` (-1: never) wants newer ones."""

    terms: Digest
    participant: Name
    version: int


class Answer(Message, name="selective/answer.1"):
    """Parameters of one version (`codec`), and number and digest of the participant's last upload in them."""

    terms: Digest
    participant: Name
    version: int
    sequence: int
    upload: Digest
    body: bytes


class Upload(Message, name="selective/upload.1"):
    """What a participant adds (`codec`), after training on the parameters of version `base`."""

    terms: Digest
    participant: Name
    sequence: int
    base: int
    body: bytes


class Receipt(Message, name="selective/receipt.1"):
    """The upload of this number and digest was added, which made the parameters those of `version`."""

    terms: Digest
    participant: Name
    sequence: int
    upload: Digest
    version: int


class Total(Message, name="selective/total.1"):
    """What several participants add together in one turn (`codec`)."""

    terms: Digest
    turn: int
    participants: tuple[str, ...]
    body: bytes


class JournalBegun(Message, name="selective/journal.1"):
    """The first record of the server's journal; what was added to the parameters of `version` follows as it came."""

    terms: Digest
    version: int


_FRAME_BYTES = 4096  # more than a message takes besides its values
_MAX_PARTICIPANTS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class SelectiveTerms:
    """The terms of one run.

    `batch` gathered photos make a participant train. It then gets the fraction `download` of the parameters that were
    updated most. An upload has at most `max_values` values (None: as many as there are parameters) and is refused if it
    builds on parameters that are more than `max_staleness` uploads old (None: however old). With `together` > 1 the
    server takes no single upload, only sums of at least so many (`EncryptedTurns`). With `half` parameters are handed
    out rounded to float16; the server's own stay as they are.
    """

    run: str
    participants: tuple[str, ...]
    layout: str
    dimension: int
    batch: int = 32
    download: float = 1.0
    max_values: int | None = None
    max_staleness: int | None = None
    together: int = 1
    half: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "participants", tuple(self.participants))
        self._check_names()
        for name in ("dimension", "batch", "max_values", "max_staleness", "together"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        check_number("download", self.download)
        if self.dimension < 1 or 5 * self.dimension + _FRAME_BYTES > MAX_BYTES:
            most = (MAX_BYTES - _FRAME_BYTES) // 5
            raise InputError(f"a model that is shared has 1 to {most} parameters; got {self.dimension}.")
        if not 0 < self.download <= 1:
            raise InputError(f"download must be in (0, 1]; got {self.download}.")
        if self.batch < 1:
            raise InputError(f"batch must be at least 1; got {self.batch}.")
        if self.max_values is not None and not 1 <= self.max_values <= self.dimension:
            raise InputError(f"max_values must be in 1 ... {self.dimension}; got {self.max_values}.")
        if self.max_staleness is not None and self.max_staleness < 0:
            raise InputError(f"max_staleness must be at least 0; got {self.max_staleness}.")
        if not 1 <= self.together <= len(self.participants):
            raise InputError(
                f"together must be in 1 ... {len(self.participants)}, the number of participants; got {self.together}."
            )

    def _check_names(self) -> None:
        names = self.participants
        if not 1 <= len(names) <= _MAX_PARTICIPANTS or len(set(names)) != len(names):
            raise InputError(f"a run has 1 to {_MAX_PARTICIPANTS} participants, each with a name of its own.")
        for name in (self.run, *names):
            if not 1 <= len(name) <= 64:
                raise InputError(f"a run or participant has a name of 1 to 64 characters; got {len(name)}.")

    @classmethod
    def of(cls, layout: ParameterLayout, *, run: str, participants: Sequence[str], **others: Any) -> "SelectiveTerms":
        return cls(
            run=run, participants=tuple(participants), layout=layout.digest, dimension=layout.dimension, **others
        )

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.to_bytes()).digest()

    @property
    def most_values(self) -> int:
        return self.dimension if self.max_values is None else self.max_values

    @property
    def upload_bytes(self) -> int:
        """A bound on the length of an upload: 4 bytes a value and less than 5 for its place."""
        return 9 * self.most_values + _FRAME_BYTES

    @property
    def total_bytes(self) -> int:
        return 9 * self.dimension + 260 * len(self.participants) + _FRAME_BYTES

    @property
    def downloaded(self) -> int:
        """How many parameters an answer holds: theta_d of all, at least one."""
        return max(1, math.floor(self.download * self.dimension + 1e-9))

    def to_bytes(self) -> bytes:
        values: dict[str, Any] = {name: -1 if value is None else value for name, value in asdict(self).items()}
        return encode(TermsMessage(**values))

    @classmethod
    def from_bytes(cls, data: bytes) -> "SelectiveTerms":
        message = decode(data, TermsMessage)
        values: dict[str, Any] = {field.name: getattr(message, field.name) for field in fields(cls)}
        for name in ("max_values", "max_staleness"):
            values[name] = None if values[name] == -1 else values[name]
        return cls(**values)
