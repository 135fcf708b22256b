"""Who takes part in a run, and by which signature each is known: nobody can speak for another, or to another run.

Every party gets the roster before the run, in a way it trusts (as it would get the others' certificates). Each message
of a round is signed by its author and bound to the roster's digest and to the round; `Roster.open` refuses all others,
so whoever carries the messages can lose them, but not change them, swap them or use them again elsewhere.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Annotated, TypeVar

from blindsight.crypto.signing import SigningKey, verify
from blindsight.crypto.wire import MAX_BYTES, Limit, Message, decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.sumterms import SumTerms

Digest = Annotated[bytes, Limit(32)]
Key = Annotated[bytes, Limit(32)]


class _RosterMessage(Message, name="sum/roster.1"):
    run: Annotated[str, Limit(256)]
    users: tuple[str, ...]
    dimension: int
    fraction_bits: int
    slot_bits: int
    minimum: int
    parties: tuple[str, ...]
    keys: tuple[bytes, ...]


class RoundMessage(Message, name="sum/round-message.1"):
    """What every message of a round begins with: the roster's digest and the round."""

    run: Digest
    round: int


RoundMessageT = TypeVar("RoundMessageT", bound=RoundMessage)


@dataclass(frozen=True, eq=False)
class Roster:
    """The terms, and the key that verifies each party's signatures: all users and the services of the scheme."""

    terms: SumTerms
    keys: Mapping[str, bytes]

    def __post_init__(self) -> None:
        strangers = set(self.keys) - {*self.terms.users, AGGREGATOR, KEY_GENERATOR}
        missing = {*self.terms.users, AGGREGATOR} - set(self.keys)
        if strangers or missing:
            raise InputError(f"a roster has a key for each party; wrong: {', '.join(sorted(strangers | missing))}.")
        if any(len(key) != 32 for key in self.keys.values()):
            raise InputError("the key that verifies a party's signatures has 32 bytes.")

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """Return the roster as a message; it holds no secret."""
        parties = sorted(self.keys)
        keys = [self.keys[party] for party in parties]
        return encode(_RosterMessage(**asdict(self.terms), parties=tuple(parties), keys=tuple(keys)))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Roster":
        """Read what `to_bytes` wrote; `MessageError` on anything else. Nothing in it proves that it can be trusted."""
        message = decode(data, _RosterMessage)
        try:
            terms = SumTerms(**{field.name: getattr(message, field.name) for field in fields(SumTerms)})
            roster = cls(terms, dict(zip(message.parties, message.keys, strict=False)))
        except InputError as error:
            raise MessageError(f"the roster is not one: {error}") from error
        if roster.to_bytes() != data:
            raise MessageError("the roster is not one: it has not one key for each party, in the order of names.")
        return roster

    def open(
        self,
        envelope: bytes,
        *kinds: type[RoundMessageT],
        round: int | None,
        authors: Collection[str],
        max_bytes: int = MAX_BYTES,
    ) -> tuple[str, RoundMessageT]:
        """Return which of `authors` signed a message of these kinds for this round (None: any), and the message."""
        author, content = verify(envelope, self.keys, max_bytes=max_bytes)
        if author not in authors:
            raise MessageError(f"a message of this kind is not for {author!r} to send.")
        message = decode(content, *kinds, max_bytes=max_bytes)
        if message.run != self.digest:
            raise MessageError(f"{author!r} takes part in another run.")
        if round is not None and message.round != round:
            raise MessageError(f"{author!r} speaks of round {message.round}; this is round {round}.")
        return author, message

    def check_identity(self, party: str, key: SigningKey) -> None:
        """Refuse a party that the others would not recognise."""
        if self.keys.get(party) != key.public:
            raise InputError(f"the roster has no {party!r} with this signing key.")
