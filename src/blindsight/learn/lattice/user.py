"""A user of sums under BFV: encrypts its update, once a round, and reads the sum of everyone's.

Two contributions to one round would tell more than one. So a user with a `path` keeps the last one: asked again, also
after a restart, it sends the same bytes, and for another update it refuses. Without a path it remembers the round
alone, because the contributions of a thousand users in one process would fill its memory.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.bfv import PublicKey
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import Secret, encode
from blindsight.errors import InputError, PrivacyError
from blindsight.files import AnyPath
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.storage import read_state, refuse_to_overwrite, state_errors, write_state
from blindsight.learn.dphe.views import Record, forget
from blindsight.learn.lattice.answers import read_answer, read_setup
from blindsight.learn.lattice.messages import Receipt, Vouched, checksum
from blindsight.learn.lattice.states import UserState
from blindsight.learn.roster import Roster


@dataclass(frozen=True, eq=False, repr=False)
class _Memory:
    public: PublicKey | None = None
    round: int = -1
    update: bytes = b""  # digest of the integers that `sent` hides
    sent: bytes = b""


class LatticeUser(Secret):
    """One user. With a `path`, its state is on disk before anything that depends on it is returned."""

    def __init__(
        self, name: str, roster: Roster, key: SigningKey, *, path: AnyPath | None = None, record: Record = forget
    ) -> None:
        roster.check_identity(name, key)
        refuse_to_overwrite(path)
        self.name, self.roster = name, roster
        self._key, self._path, self._record = key, path, record
        self._memory = _Memory()
        self._remember()

    @classmethod
    def load(cls, path: AnyPath, *, record: Record = forget) -> "LatticeUser":
        state = read_state(path, UserState)
        with state_errors(path):
            user = cls(state.user, Roster.from_bytes(state.roster), SigningKey(state.seed), record=record)
            public = PublicKey.from_bytes(state.public_key) if state.public_key else None
        user._memory = _Memory(public, state.round, state.update, state.sent)
        user._path = path
        return user

    def accept(self, setup: bytes) -> None:
        self._record(setup)
        public = read_setup(self.roster, setup, known=self._memory.public)
        if self._memory.public is None:
            self._remember(public=public)

    def contribute(self, update: ArrayLike, round: int) -> list[bytes]:
        """Encrypt this round's update, encoded in fixed point, for the aggregator: one message."""
        return self.contribute_integers(self.roster.terms.integers(update), round)

    def contribute_integers(self, integers: NDArray[np.int64], round: int) -> list[bytes]:
        """Encrypt an update that is encoded already; without a path, keep the message if it may be needed again."""
        integers, memory = self.roster.terms.checked(integers), self._memory
        if round == memory.round and memory.sent and _digest(integers) == memory.update:
            return [memory.sent]
        if round < 0:
            raise InputError(f"rounds are numbered from 0; got {round}.")
        if round <= memory.round:
            raise PrivacyError(f"{self.name!r} has contributed to round {memory.round} already and does so once.")
        if memory.public is None:
            raise InputError(f"{self.name!r} is not set up yet. Give it the key generator's message first.")
        vector = memory.public.encrypt(integers, terms=len(self.roster.terms.users)).to_bytes()
        key = bytes.fromhex(memory.public.fingerprint)
        receipt = Receipt(self.roster.digest, round, key, checksum(vector))
        sent = encode(Vouched(self._key.sign(encode(receipt), author=self.name), vector))
        if self._path is None:
            self._remember(round=round)
        else:
            self._remember(round=round, update=_digest(integers), sent=sent)
        return [sent]

    def sent(self, round: int) -> list[bytes]:
        """Return again what was contributed to a round, if this user has a path and that round was its last."""
        if round != self._memory.round or not self._memory.sent:
            raise InputError(f"{self.name!r} does not keep what it contributed to round {round}.")
        return [self._memory.sent]

    def read(self, answer: bytes, round: int) -> Total:
        """Read the sum of a round."""
        self._record(answer)
        return read_answer(self.roster, answer, round=round)

    def _remember(self, **changes: Any) -> None:
        memory = replace(self._memory, **changes)
        if self._path is not None:
            state = UserState(
                roster=self.roster.to_bytes(),
                user=self.name,
                seed=self._key.secret_bytes(),
                public_key=memory.public.to_bytes() if memory.public else b"",
                round=memory.round,
                update=memory.update,
                sent=memory.sent,
            )
            write_state(self._path, state)
        self._memory = memory


def _digest(integers: NDArray[np.int64]) -> bytes:
    return hashlib.sha256(integers.tobytes()).digest()
