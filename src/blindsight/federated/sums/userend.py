"""A user's end of a run of sums across machines: the roles of the schemes, with their state in a folder of its own.

Every message may be handled by another process: an end is made anew each time from what the folder holds, and a role
writes its state before it returns anything that depends on it. Asked the same again, it answers the same.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.federated.sums.messages import RosterSetup
from blindsight.federated.sums.runterms import RunTerms
from blindsight.federated.sums.signingseed import signing_key
from blindsight.learn.dphe import User
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.dphe.user import Outcome
from blindsight.learn.lattice.user import LatticeUser
from blindsight.learn.masks.messages import Delivery, Result
from blindsight.learn.masks.user import MaskUser
from blindsight.learn.residues import read_residues, to_integers, to_residues
from blindsight.learn.roster import Roster
from blindsight.learn.schemes import plain

Integers = NDArray[np.int64]


class UserEnd(ABC):
    """One user's end, whatever the scheme."""

    steps: ClassVar[tuple[str, ...]] = ()
    """What the server asks of a user in a round besides its contribution."""

    def __init__(self, name: str, terms: RunTerms, folder: Path) -> None:
        if name not in terms.users:
            raise InputError(f"{name!r} does not take part in this run.")
        self.name, self.terms, self.folder = name, terms, folder

    @abstractmethod
    def enrolment(self) -> bytes:
        """Return what the key generator must know about this user."""

    @abstractmethod
    def accept(self, setup: bytes) -> None:
        """Receive the key generator's set-up."""

    @abstractmethod
    def contribute(self, integers: Integers, attempt: int, note: bytes) -> list[bytes]:
        """Return the messages that add these integers to the sum."""

    @abstractmethod
    def read(self, answer: bytes, attempt: int) -> Outcome:
        """Return the sum, and where this user's contribution is part of it."""

    def step(self, kind: str, attempt: int, message: bytes) -> bytes:
        """Answer the server in a round, before or after contributing."""
        raise MessageError(f"users of {self.terms.scheme} are not asked to {kind}.")

    def _outcome(self, total: Total) -> Outcome:
        entered = np.full(self.terms.dimension, self.name in total.users)
        return Outcome(total.round, total.users, total.integers, total.values, entered)


class PaillierUserEnd(UserEnd):
    """A user of DPHE or block DPHE."""

    @cached_property
    def _user(self) -> User:
        path = self.folder / "user"
        if not path.exists():
            return User(self.name, self.terms.paillier, path=path)
        user = User.load(path)
        if user.terms != self.terms.paillier or user.name != self.name:
            raise MessageError("this run has begun on other terms.")
        return user

    def enrolment(self) -> bytes:
        """Return its own message to the key generator."""
        return self._user.enrolment()

    def accept(self, setup: bytes) -> None:
        self._user.accept(setup)

    def contribute(self, integers: Integers, attempt: int, note: bytes) -> list[bytes]:
        """Encrypt the changed blocks."""
        return self._user.contribute_integers(integers, attempt)

    def read(self, answer: bytes, attempt: int) -> Outcome:
        """Read the answer; blocks that were withheld have not been entered."""
        return self._user.read(answer, attempt)


class _RosterUserEnd(UserEnd):
    """A user of a scheme in which everybody knows everybody's signing key."""

    @cached_property
    def _key(self) -> SigningKey:
        return signing_key(self.folder / "signing")

    @property
    def _path(self) -> Path:
        return self.folder / "user"

    def _check_set_up(self) -> None:
        if not self._path.exists():
            raise MessageError(f"{self.name!r} is not set up yet for the run {self.terms.run!r}.")

    def enrolment(self) -> bytes:
        """Return the key that verifies this user's signatures."""
        return self._key.public

    def _roster(self, setup: bytes) -> tuple[Roster, bytes]:
        """Return what the key generator sent: the roster, on the terms of this run, and the scheme's message."""
        message = decode(setup, RosterSetup)
        roster = Roster.from_bytes(message.roster)
        if roster.terms != self.terms.sums or roster.keys.get(self.name) != self._key.public:
            raise MessageError(f"the set-up is not for {self.name!r} as it enrolled, or on other terms.")
        return roster, message.setup


class LatticeUserEnd(_RosterUserEnd):
    """A user of BFV."""

    def accept(self, setup: bytes) -> None:
        roster, message = self._roster(setup)
        if not self._path.exists():
            LatticeUser(self.name, roster, self._key, path=self._path)
        if self._user.roster.digest != roster.digest:
            raise MessageError(f"{self.name!r} was already set up, differently.")
        self._user.accept(message)

    @cached_property
    def _user(self) -> LatticeUser:
        self._check_set_up()
        return LatticeUser.load(self._path)

    def contribute(self, integers: Integers, attempt: int, note: bytes) -> list[bytes]:
        """Encrypt the whole vector."""
        return self._user.contribute_integers(integers, attempt)

    def read(self, answer: bytes, attempt: int) -> Outcome:
        return self._outcome(self._user.read(answer, attempt))


class MaskUserEnd(_RosterUserEnd):
    """A user of masks."""

    steps: ClassVar[tuple[str, ...]] = ("advertise", "share", "consistency", "unmask")

    def accept(self, setup: bytes) -> None:
        roster, _ = self._roster(setup)
        if not self._path.exists():
            MaskUser(self.name, roster, self._key, path=self._path)
        if self._user.roster.digest != roster.digest:
            raise MessageError(f"{self.name!r} was already set up, differently.")

    @cached_property
    def _user(self) -> MaskUser:
        self._check_set_up()
        return MaskUser.load(self._path)

    def step(self, kind: str, attempt: int, message: bytes) -> bytes:
        """Make keys, share them out, sign whose uploads are in the sum, or reveal what lifts its masks."""
        if kind == "advertise":
            return self._user.advertise(attempt)
        if kind == "share":
            return self._user.share(message)
        if kind == "consistency":
            return self._user.sign(message)
        if kind == "unmask":
            return self._user.unmask(message)
        return super().step(kind, attempt, message)

    def contribute(self, integers: Integers, attempt: int, note: bytes) -> list[bytes]:
        """Mask the whole vector; `note` holds the shares that others sealed for this user, in this very attempt."""
        self._user.roster.open(note, Delivery, round=attempt, authors=[AGGREGATOR])
        return [self._user.mask_integers(integers, note)]

    def read(self, answer: bytes, attempt: int) -> Outcome:
        """Read the result, also that of a round before the one that has begun."""
        roster, terms = self._user.roster, self.terms.sums
        _, result = roster.open(answer, Result, round=attempt, authors=[AGGREGATOR])
        sums = to_integers(read_residues(result.sums, terms))
        return self._outcome(Total(attempt, result.users, sums, terms.values(sums)))


class PlainUserEnd(UserEnd):
    """A user who sends its update in the clear, for comparison."""

    def enrolment(self) -> bytes:
        return b""

    def accept(self, setup: bytes) -> None:
        """Receive nothing."""

    def contribute(self, integers: Integers, attempt: int, note: bytes) -> list[bytes]:
        """Send the vector as it is."""
        residues = to_residues(self.terms.sums.checked(integers), self.terms.sums).tobytes()
        return [encode(plain.Update(attempt, self.name, residues))]

    def read(self, answer: bytes, attempt: int) -> Outcome:
        total, terms = decode(answer, plain.Total), self.terms.sums
        if total.round != attempt:
            raise MessageError(f"the sum is of attempt {total.round}; {attempt} was asked for.")
        sums = to_integers(read_residues(total.residues, terms))
        return self._outcome(Total(attempt, total.users, sums, terms.values(sums)))


USER_ENDS: dict[str, type[UserEnd]] = {
    "plain": PlainUserEnd,
    "dphe": PaillierUserEnd,
    "block-dphe": PaillierUserEnd,
    "bfv": LatticeUserEnd,
    "masks": MaskUserEnd,
}
