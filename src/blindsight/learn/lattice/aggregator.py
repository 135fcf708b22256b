"""The aggregator of sums under BFV: adds up vectors that it cannot read, one at a time as they come.

A message that is damaged, forged, late, different from an earlier one, for another round or from a stranger is refused
with a sentence and changes nothing. Memory is for one encrypted vector, and a receipt per user; a journal on disk takes
the contributions of one round.
"""

from dataclasses import dataclass, field

from blindsight.crypto.bfv import EncryptedVector, PublicKey, add_all
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import Secret, decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.files import AnyPath
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.storage import MessageJournal, refuse_to_overwrite, state_errors
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.dphe.views import Record, forget
from blindsight.learn.lattice.answers import read_answer, read_setup
from blindsight.learn.lattice.messages import Request, Vouched, checksum
from blindsight.learn.lattice.receipts import read_receipt
from blindsight.learn.lattice.states import RoundBegun, RoundClosed
from blindsight.learn.roster import Roster


@dataclass(eq=False, repr=False)
class _Round:
    number: int
    closed: bool = False
    sum: EncryptedVector | None = None
    receipts: dict[str, bytes] = field(default_factory=dict)


class LatticeAggregator(Secret):
    """The aggregator. With a `path`, a journal holds each accepted contribution before it is acknowledged."""

    def __init__(
        self, roster: Roster, key: SigningKey, *, path: AnyPath | None = None, record: Record = forget
    ) -> None:
        roster.check_identity(AGGREGATOR, key)
        refuse_to_overwrite(path)
        self.roster = roster
        self.refused = 0
        self._key, self._record = key, record
        self._public: PublicKey | None = None
        self._round: _Round | None = None
        self._journal = MessageJournal(path) if path else None
        self._restart_journal(self._public, -1)

    @classmethod
    def load(cls, path: AnyPath, *, record: Record = forget) -> "LatticeAggregator":
        journal = MessageJournal(path)
        messages = journal.messages()
        with state_errors(path):
            begun = decode(next(messages, b""), RoundBegun)
            aggregator = cls(Roster.from_bytes(begun.roster), SigningKey(begun.seed))
            if begun.public_key:
                aggregator._public = PublicKey.from_bytes(begun.public_key)
            if begun.round >= 0:
                aggregator.open(begun.round)
            for message in messages:
                aggregator._replay(message)
        aggregator._journal, aggregator._record = journal, record
        return aggregator

    @property
    def round(self) -> int:
        return -1 if self._round is None else self._round.number

    @property
    def users(self) -> tuple[str, ...]:
        """Whose contributions are in this round's sum."""
        return () if self._round is None else tuple(sorted(self._round.receipts))

    def accept(self, setup: bytes) -> None:
        """Receive the encryption key from the key generator."""
        self._record(setup)
        public = read_setup(self.roster, setup, known=self._public)
        if self._public is None:
            self._restart_journal(public, self.round)
            self._public = public

    def open(self, round: int) -> None:
        if round <= self.round:
            raise InputError(f"rounds count up from 0: after round {self.round} there is no round {round}.")
        self._restart_journal(self._public, round)
        self._round = _Round(round)

    def receive(self, message: bytes) -> None:
        self._record(message)
        try:
            self._take_in(message)
        except MessageError:
            self.refused += 1
            raise

    def close(self) -> bytes:
        """End the round and return the request to the key generator; with too few users the round stays open.

        Called again, also after a restart, it asks for the same sum.
        """
        current, needed = self._started(), self.roster.terms.minimum
        if current.sum is None or len(current.receipts) < needed:
            raise PrivacyError(
                f"round {current.number} has contributions of {len(current.receipts)} users; a sum needs {needed}. "
                "Wait for more, or begin a new round."
            )
        if not current.closed:
            self._append(encode(RoundClosed(current.number)))
            current.closed = True
        receipts = tuple(current.receipts[user] for user in self.users)
        vector = current.sum.to_bytes()
        request = Request(self.roster.digest, current.number, checksum(vector), receipts)
        return encode(Vouched(self._key.sign(encode(request), author=AGGREGATOR), vector))

    def read(self, answer: bytes) -> Total:
        """Read the key generator's answer to this round's request."""
        self._record(answer)
        current = self._started()
        total = read_answer(self.roster, answer, round=current.number)
        if not current.closed or total.users != self.users:
            raise MessageError("the answer names other users than the request did.")
        return total

    def _take_in(self, message: bytes) -> None:
        current, public = self._started(), self._public
        if public is None:
            raise InputError("the aggregator is not set up yet. Give it the key generator's message first.")
        contribution = decode(message, Vouched)
        key = bytes.fromhex(public.fingerprint)
        user, receipt = read_receipt(self.roster, contribution.envelope, key=key, round=current.number)
        if checksum(contribution.vector) != receipt.checksum:
            raise MessageError(f"the receipt of {user!r} is for another vector than it came with.")
        known = current.receipts.get(user)
        if known == contribution.envelope:
            return
        if known is not None:
            raise MessageError(f"{user!r} has sent something else in round {current.number} already.")
        if current.closed:
            raise MessageError(f"round {current.number} is closed; {user!r} comes too late.")
        vector = public.read_vector(contribution.vector)
        if vector.terms != 1 or len(vector) != self.roster.terms.dimension:
            raise MessageError(f"the vector of {user!r} has the wrong length, or is a sum already.")
        total = vector if current.sum is None else add_all([current.sum, vector])
        self._append(message)
        current.sum, current.receipts[user] = total, contribution.envelope

    def _replay(self, message: bytes) -> None:
        if isinstance(decode(message, RoundClosed, Vouched), RoundClosed):
            self._started().closed = True
        else:
            self._take_in(message)

    def _restart_journal(self, public: PublicKey | None, round: int) -> None:
        if self._journal is not None:
            key = public.to_bytes() if public else b""
            self._journal.restart(RoundBegun(self.roster.to_bytes(), self._key.secret_bytes(), key, round))

    def _append(self, message: bytes) -> None:
        if self._journal is not None:
            self._journal.append(message)

    def _started(self) -> _Round:
        if self._round is None:
            raise MessageError("no round has begun.")
        return self._round
