"""A user of sums under BFV: encrypts its update, once a round, and reads the sum of everyone's."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.bfv import PublicKey
from blindsight.crypto.secret import Secret
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import encode
from blindsight.errors import InputError, PrivacyError
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.views import Record, forget
from blindsight.learn.lattice.answers import read_answer, read_setup
from blindsight.learn.lattice.messages import Receipt, Vouched, checksum
from blindsight.learn.roster import Roster


class LatticeUser(Secret):
    """One user."""

    def __init__(self, name: str, roster: Roster, key: SigningKey, *, record: Record = forget) -> None:
        """Make the user of a run that the roster knows by this signing key."""
        roster.check_identity(name, key)
        self.name, self.roster = name, roster
        self._key, self._record = key, record
        self._public: PublicKey | None = None
        self._round = -1

    def accept(self, setup: bytes) -> None:
        """Receive the encryption key from the key generator."""
        self._record(setup)
        self._public = read_setup(self.roster, setup, known=self._public)

    def contribute(self, update: ArrayLike, round: int) -> list[bytes]:
        """Encrypt this round's update, encoded in fixed point, for the aggregator: one message."""
        return self.contribute_integers(self.roster.terms.integers(update), round)

    def contribute_integers(self, integers: NDArray[np.int64], round: int) -> list[bytes]:
        """Encrypt an update that is encoded already; keep the message if it may have to be sent again."""
        integers = self.roster.terms.checked(integers)
        if round <= self._round:
            raise PrivacyError(f"{self.name!r} has contributed to round {self._round} already and does so once.")
        if self._public is None:
            raise InputError(f"{self.name!r} is not set up yet. Give it the key generator's message first.")
        vector = self._public.encrypt(integers, terms=len(self.roster.terms.users)).to_bytes()
        key = bytes.fromhex(self._public.fingerprint)
        receipt = Receipt(self.roster.digest, round, key, checksum(vector))
        self._round = round
        return [encode(Vouched(self._key.sign(encode(receipt), author=self.name), vector))]

    def read(self, answer: bytes, round: int) -> Total:
        """Read the sum of a round."""
        self._record(answer)
        return read_answer(self.roster, answer, round=round)
