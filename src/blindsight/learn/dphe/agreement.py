"""The public part of a set-up: terms and keys, the same for everyone; its digest binds every later message to the run.

The permutations of Eqs. 7 and 8 are derived here, from secrets that the set-up hands to those who may know them. Their
context holds the digest and the round, so that no permutation serves twice. The paper reuses phi in every round (as
`Terms.as_published` does): the aggregator then recognises a user's support from round to round.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blindsight.crypto.paillier import PublicKey
from blindsight.crypto.permutation import SecretPermutation, derive_permutation
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.learn.dphe.messages import AgreementMessage
from blindsight.learn.dphe.terms import Terms


@dataclass(frozen=True)
class Agreement:
    """Terms, encryption key, and the keys that verify the signatures of the key generator and of each user."""

    terms: Terms
    key: PublicKey
    generator_key: bytes
    user_keys: tuple[bytes, ...]

    def __post_init__(self) -> None:
        key = (self.key.bits, self.key.keys)
        if key != (self.terms.key_bits, self.terms.keys) or len(self.user_keys) != len(self.terms.users):
            raise InputError("the keys of a set-up do not match its terms.")

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.to_bytes()).digest()

    @cached_property
    def verifiers(self) -> dict[str, bytes]:
        """Each user's key, by name."""
        return dict(zip(self.terms.users, self.user_keys, strict=True))

    def to_bytes(self) -> bytes:
        """Return the agreement as a message."""
        return encode(AgreementMessage(self.terms.to_bytes(), self.key.to_bytes(), self.generator_key, self.user_keys))

    @classmethod
    def from_bytes(cls, data: bytes, *, expected: Terms) -> "Agreement":
        """Read an agreement, which must be on the terms that the reader `expected`."""
        message = decode(data, AgreementMessage)
        if message.terms != expected.to_bytes():
            raise MessageError("the set-up is on other terms than were agreed.")
        try:
            key = PublicKey.from_bytes(message.public_key, insecure=expected.insecure)
            return cls(expected, key, message.generator_key, message.user_keys)
        except InputError as error:
            raise MessageError(f"the set-up is unusable: {error}") from None

    def shared_permutation(self, secret: bytes, round: int) -> SecretPermutation:
        """Return phi of a round: known to the users and the key generator, not to the aggregator."""
        return derive_permutation(secret, size=self.terms.blocks, role="users", **self._context(round))

    def own_permutation(self, secret: bytes, user: str, round: int) -> SecretPermutation:
        """Return phi^(n) of a round: known to one user and the aggregator; the identity if permutations are single."""
        if self.terms.permutations == "single":
            return SecretPermutation(np.arange(self.terms.blocks))
        return derive_permutation(secret, size=self.terms.blocks, role="own", user=user, **self._context(round))

    def _context(self, round: int) -> dict[str, str | int | bytes]:
        return {"run": self.digest, "round": 0 if self.terms.as_published else round}
