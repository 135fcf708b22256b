"""Every message of a run and every state of a role, as bytes with a schema (`crypto.wire`); one set for all schemes.

::

    party -> key generator     Enrolment     a name and the key that verifies its signatures
    key generator -> party     Setup         the roster, and the secrets that are for this party
    aggregator -> member       Call          do this step of a round; signed by the aggregator
    member -> aggregator       Reply         a signed Receipt, and the body that the receipt has the digest of
    aggregator -> key gen.     Request       a sum to be opened, and the receipts of what is in it; sealed for it
    key gen. -> aggregator     Answer        the sum, signed for everybody; or a Refusal; sealed for the aggregator

In schemes without a key generator the aggregator signs the `Answer` itself. Members sign receipts, not bodies: so the
key generator, who could decrypt a body, checks who contributed without receiving one, and nobody hashes megabytes
twice. Steps and bodies belong to the schemes (`masks`, `dphe`, `bfv`, `plain`).

Every signed message is bound to the `Roster` (by digest), the round and the attempt; receipts and calls also to the
`model` that is learned from. So the carrier can lose messages, but not change, swap or reuse them elsewhere, or have
two members contribute to one sum from different models.

*On disk*, a role's state is readable by its owner alone, whole after a crash, and never executed when read. A state
file is one message, replaced as a whole. A journal is a first message and others appended to it: one whose `append`
returned is on disk, and what an interrupted one leaves at the end was never acknowledged and is cut off.
"""

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.permutation import derive_permutation
from blindsight.crypto.signing import SigningKey, verify
from blindsight.crypto.wire import HEADER_BYTES, MAX_BYTES, Limit, M, Message, announced_bytes, decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, StorageError, VersionError
from blindsight.files import AnyPath, as_path, atomic_writer, storage_errors
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, Digest, Name, Terms

Key = Annotated[bytes, Limit(32)]
Names = tuple[str, ...]
RECEIPT_BYTES = 4096


class Enrolment(Message, name="sums/enrolment.2"):
    """A party agrees to the terms with this digest, and makes known the key that verifies its signatures.

    `exchange` is an X25519 key, fresh for the run, of a member of a scheme with fixed cohorts; else empty.
    """

    party: Name
    terms: Digest
    key: Key
    exchange: Key = b""


class RosterMessage(Message, name="sums/roster.2"):
    """See `Roster`; keys stand in the order of the members, then the aggregator's and the key generator's."""

    terms: bytes
    keys: tuple[bytes, ...]
    encryption_key: Digest
    generation: int
    exchange: tuple[bytes, ...]
    partition: Digest


class Setup(Message, name="sums/setup.1"):
    """What a party needs to know; secrets that are not for it are empty.

    `shared` is known to all members and the key generator, `own` to one member and the aggregator (who gets those of
    all, in the order of the members), `offset` to one member and the key generator, `channel` to the two services.
    `void` is the last round that was used up by a forged sum, with the key before this one; -1 if none was.
    """

    roster: bytes
    encryption_key: bytes
    shared: Key
    own: tuple[bytes, ...]
    offset: Key
    channel: Key
    void: int


class RoundMessage(Message, name="sums/round-message.1"):
    """What every signed message of a round begins with: the roster's digest, the round, and the attempt at it."""

    run: Digest
    round: int
    attempt: int


RoundMessageT = TypeVar("RoundMessageT", bound=RoundMessage)


class Call(RoundMessage, name="sums/call.1"):
    """The aggregator asks a member (all of them, if it names none) for a step of a round.

    `model` is the digest of all that travels with the call and is learned from, `base` that of its first part, which
    names the weights (`weights_digest`; `roles.Member` says when members learn from weights once, whatever settings
    come with them). `body` is the
    scheme's, `note` the application's message to this member.
    """

    member: Name
    step: Name
    model: Digest
    body: bytes
    note: bytes
    base: Digest = b""


class Receipt(RoundMessage, name="sums/receipt.1"):
    """A member vouches for what it answers to a step: the digest of the body."""

    step: Name
    model: Digest
    body: Digest


class Reply(Message, name="sums/reply.1"):
    """A signed `Receipt`, and the body that it is about; under a keyed scheme the body is sealed for the aggregator."""

    receipt: Annotated[bytes, Limit(RECEIPT_BYTES)]
    body: bytes


class Request(RoundMessage, name="sums/request.1"):
    """The aggregator asks for a sum of what these receipts are for."""

    receipts: tuple[bytes, ...]
    body: bytes


class Answer(RoundMessage, name="sums/answer.1"):
    """The sum (as residues), whose contributions it holds, and which blocks were released (`dphe`), sealed."""

    members: Names
    sums: bytes
    released: bytes


class Refusal(RoundMessage, name="sums/refusal.1"):
    """The key generator releases nothing of this round; `renewed` says that there is a new key, with a new set-up."""

    renewed: bool
    sentence: Annotated[str, Limit(4096)]


class MemberState(Message, name="sums/member-state.1"):
    """What a member must remember between two messages.

    `round`, `attempt`, `step` are what it did last, `asked` the digest of what it was asked, `sent` its reply;
    `proposal` is the digest of this round's update, `secrets` what the scheme keeps for the next step, `answered` the
    models it has answered, `over` whether this round may not be tried again, `missed` the absences it has seen.
    """

    terms: bytes
    member: Name
    seed: Key
    setup: bytes = b""
    round: int = -1
    attempt: int = 0
    step: Name = ""
    asked: Digest = b""
    sent: bytes = b""
    proposal: Digest = b""
    secrets: bytes = b""
    answered: bytes = b""
    over: bool = False
    missed: int = 0


class GeneratorState(Message, name="sums/generator-state.2"):
    """What the key generator must remember; `round` is the last one it was asked to open, `answer` what it answered.

    A forged sum uses up the key: the next `generation` begins, and `void` is the round that was forged.
    """

    terms: bytes
    seed: Key
    private_key: bytes
    encryption_key: bytes
    shared: Key
    own: tuple[bytes, ...]
    offsets: tuple[bytes, ...]
    channel: Key
    keys: tuple[bytes, ...]
    exchange: tuple[bytes, ...] = ()
    partition: Digest = b""
    generation: int = 0
    void: int = -1
    round: int = -1
    answer: bytes = b""
    log: tuple[str, ...] = ()


class RoundBegun(Message, name="sums/round-begun.1"):
    """First record of an aggregator's journal; of the `early` members the adder before carried `ahead`."""

    terms: bytes
    seed: Key
    setup: bytes = b""
    round: int = -1
    attempt: int = 0
    model: Digest = b""
    early: Names = ()
    ahead: tuple[bytes, ...] = ()
    base: Digest = b""


class StepClosed(Message, name="sums/step-closed.1"):
    """A record of an aggregator's journal: no further reply to this step counts."""

    step: Name


@dataclass(frozen=True, eq=False)
class Roster:
    """Who takes part in a run, and by which signature each is known; `encryption_key` is the digest of the scheme's.

    In schemes with fixed cohorts also the X25519 key of each member, and the seed of the `partition`.
    """

    terms: Terms
    keys: Mapping[str, bytes]
    encryption_key: bytes = b""
    generation: int = 0
    exchange: Mapping[str, bytes] = field(default_factory=dict)
    partition: bytes = b""

    def __post_init__(self) -> None:
        expected = {*self.terms.members, AGGREGATOR, *((KEY_GENERATOR,) if self.terms.keyed else ())}
        if wrong := expected ^ set(self.keys):
            raise InputError(f"a roster has a key for each party; wrong: {', '.join(sorted(wrong))}.")
        if any(len(key) != 32 for key in self.keys.values()):
            raise InputError("the key that verifies a party's signatures has 32 bytes.")
        paired = set(self.terms.members) if self.terms.traits.cohorts else set[str]()
        if set(self.exchange) != paired or any(len(key) != 32 for key in self.exchange.values()):
            raise InputError(f"a roster of {self.terms.scheme} has {len(paired)} exchange keys of 32 bytes.")
        if len(self.partition) != (32 if paired else 0):
            raise InputError("the seed of a partition has 32 bytes.")

    @cached_property
    def cohorts(self) -> tuple[Names, ...]:
        """Who is summed with whom, for the whole run; only schemes with fixed cohorts have them."""
        if not self.partition:
            raise InputError(f"a run of {self.terms.scheme} has no fixed cohorts.")
        members, count = sorted(self.terms.members), len(self.terms.group_sizes)
        order = derive_permutation(self.partition, size=len(members), use="cohorts", round=0)
        places = order.forward(np.arange(len(members)))
        return tuple(tuple(sorted(members[i] for i in places[first::count].tolist())) for first in range(count))

    def cohort(self, name: str) -> Names:
        """Return the cohort of a member, in the order of names."""
        return next(names for names in self.cohorts if name in names)

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        parties = (*self.terms.members, AGGREGATOR, KEY_GENERATOR)
        keys = tuple(self.keys.get(party, b"") for party in parties)
        exchange = tuple(self.exchange.get(member, b"") for member in self.terms.members) if self.exchange else ()
        return encode(
            RosterMessage(self.terms.to_bytes(), keys, self.encryption_key, self.generation, exchange, self.partition)
        )

    @classmethod
    def from_bytes(cls, data: bytes, *, expected: Terms) -> "Roster":
        """Read a roster, which must be on the terms that the reader `expected`."""
        message = decode(data, RosterMessage)
        if message.terms != expected.to_bytes():
            raise MessageError("the set-up is on other terms than were agreed.")
        parties = (*expected.members, AGGREGATOR, KEY_GENERATOR)
        try:
            keys = {party: key for party, key in zip(parties, message.keys, strict=True) if key}
            exchange = dict(zip(expected.members, message.exchange, strict=True)) if message.exchange else {}
            return cls(expected, keys, message.encryption_key, message.generation, exchange, message.partition)
        except ValueError as error:
            raise MessageError(f"the roster is not one: {error}") from None

    def open(
        self,
        envelope: bytes,
        *kinds: type[RoundMessageT],
        authors: Collection[str],
        turn: tuple[int, int] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> tuple[str, RoundMessageT]:
        """Return which of `authors` signed a message of these kinds for this (round, attempt), and the message."""
        author, content = verify(envelope, self.keys, max_bytes=max_bytes)
        if author not in authors:
            raise MessageError(f"a message of this kind is not for {author!r} to send.")
        message = decode(content, *kinds, max_bytes=max_bytes)
        if message.run != self.digest:
            raise MessageError(f"{author!r} takes part in another run.")
        if turn is not None and (message.round, message.attempt) != turn:
            raise MessageError(f"{author!r} speaks of round {message.round}; this is round {turn[0]}.")
        return author, message

    def receipt(self, envelope: bytes, *, turn: tuple[int, int], step: str, model: bytes) -> tuple[str, Receipt]:
        """Return the member who signed a receipt for this step of a round with this model, and the receipt."""
        author, receipt = self.open(envelope, Receipt, authors=self.terms.members, turn=turn, max_bytes=RECEIPT_BYTES)
        if receipt.step != step:
            raise MessageError(f"{author!r} answers to the step {receipt.step!r}; this is {step!r}.")
        if receipt.model != model:
            raise MessageError(f"{author!r} contributes to round {turn[0]} with another model.")
        return author, receipt

    def signed(self, key: SigningKey, author: str, message: RoundMessage) -> bytes:
        return key.sign(encode(message), author=author)


def model_digest(parts: Collection[bytes]) -> bytes:
    if not parts:
        return b""
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def weights_digest(arrays: Iterable[NDArray[Any]]) -> bytes:
    """Return the digest of the numbers in these arrays, however they are written.

    Equal weights have one digest, whatever the arrays are called, in which order and type they come, with empty ones
    among them or without: written in another way, a model is not another model.

    >>> one, two = np.array([1.0, -0.0]), np.array([[3, 4]])
    >>> weights_digest([one, two]) == weights_digest([two.astype("f4"), np.zeros(0), np.array([1, 0])])
    True
    """
    return hashlib.sha256(b"blindsight weights 1" + b"".join(sorted(map(_numbers_digest, arrays)))).digest()


def _numbers_digest(array: NDArray[Any]) -> bytes:
    if array.dtype.kind not in "fiub":
        raise MessageError(f"weights are real numbers; got {array.dtype}.")
    if not array.size:
        return b""
    numbers = array.astype("<f8").ravel() + 0.0  # zero has one sign
    numbers[np.isnan(numbers)] = np.nan
    return hashlib.sha256(f"{array.shape}:".encode() + numbers.tobytes()).digest()


def framed(*parts: bytes) -> bytes:
    """Return parts in one string that no other parts give."""
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


# On disk


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
    except VersionError as error:
        raise VersionError(f"{as_path(path).name} was kept by another version of Blindsight: {error}") from error
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
