"""The aggregator A: adds up contributions that it cannot read, at places that it cannot name.

It sees each user's ciphertexts and, after undoing phi^(n) (Eq. 8), the places phi K; it never holds phi. A message that
is damaged, forged, late, different from an earlier one, for another round or from a stranger is refused with a sentence
and changes nothing.

What goes to the key generator is sealed with a secret that only the two share. A listener who held both the users'
contributions and the sum would otherwise recognise, wherever one user alone contributed, that user's ciphertext in the
sum, and with it the place phi K that phi^(n) was to hide; for places of two or three users he would try the products.
Sealing hides all of that at no cost. (Re-randomising the sum would do so too, for one encryption per place. Neither
helps against the key generator, who can decrypt whatever it comes by: that it comes by no contribution is assumed.)
"""

from blindsight.crypto.sealedbox import seal
from blindsight.crypto.wire import Secret, decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError
from blindsight.files import AnyPath
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.answers import Total, read_answer
from blindsight.learn.dphe.collection import Collection
from blindsight.learn.dphe.messages import (
    REQUEST_FOR_DECRYPTION,
    AggregatorSetup,
    Contribution,
    Request,
    RoundBegun,
    RoundClosed,
)
from blindsight.learn.dphe.storage import MessageJournal, refuse_to_overwrite
from blindsight.learn.dphe.terms import Terms
from blindsight.learn.dphe.views import Record, forget
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, system_bytes


class Aggregator(Secret):
    """The aggregator. With a `path`, a journal holds each accepted contribution before it is acknowledged."""

    def __init__(
        self,
        terms: Terms,
        *,
        path: AnyPath | None = None,
        source: ByteSource = system_bytes,
        record: Record = forget,
    ) -> None:
        """Make the aggregator of a run."""
        self.terms = terms
        self.refused = 0
        self._source, self._record = source, record
        refuse_to_overwrite(path)
        self._journal = MessageJournal(path) if path else None
        self._setup = b""
        self._collection: Collection | None = None
        self._restart_journal(-1)

    @classmethod
    def load(cls, path: AnyPath, *, source: ByteSource = system_bytes, record: Record = forget) -> "Aggregator":
        """Go on where the aggregator that kept its journal at `path` stopped, in the middle of a round or not."""
        journal = MessageJournal(path)
        messages = journal.messages()
        try:
            begun = decode(next(messages, b""), RoundBegun)
            aggregator = cls(Terms.from_bytes(begun.terms), source=source)
            if begun.setup:
                aggregator.accept(begun.setup)
            if begun.round >= 0:
                aggregator.open(begun.round)
            for message in messages:
                aggregator._replay(message)
        except (MessageError, InputError) as error:
            raise CorruptFileError(f"{path} is not an aggregator's journal: {error}") from error
        aggregator._journal, aggregator._record = journal, record
        return aggregator

    def accept(self, setup: bytes) -> None:
        """Receive encryption key and all phi^(n) from the key generator (Algorithm 1, step 2)."""
        self._record(setup)
        message = decode(setup, AggregatorSetup)
        agreement = Agreement.from_bytes(message.agreement, expected=self.terms)
        if len(message.own_secrets) != len(self.terms.users):
            raise MessageError("the set-up does not have one secret per user.")
        if self._setup not in (b"", setup):
            raise MessageError("the aggregator was already set up, differently.")
        if self._setup:
            return
        self._setup, self._agreement = setup, agreement
        self._channel_secret = message.channel_secret
        self._own_secrets = dict(zip(self.terms.users, message.own_secrets, strict=True))
        self._restart_journal(-1)

    @property
    def round(self) -> int:
        """The number of the round that was opened last; -1 if none was."""
        return self._collection.round if self._collection else -1

    @property
    def users(self) -> tuple[str, ...]:
        """Whose contributions are complete in this round."""
        return tuple(sorted(self._collection.users)) if self._collection else ()

    def open(self, round: int) -> None:
        """Begin a round, which must have a higher number than all before; an unfinished one is given up."""
        if not self._setup:
            raise InputError("the aggregator is not set up yet. Give it the key generator's message first.")
        if round <= self.round:
            raise InputError(f"the next round must have a number of at least {self.round + 1}; got {round}.")
        self._restart_journal(round)
        self._collection = Collection(self._agreement, self._own_secrets, round)

    def receive(self, message: bytes) -> None:
        """Take in a contribution; what is wrong with one raises `MessageError`, is counted and changes nothing."""
        self._record(message)
        try:
            if self._collection is None:
                raise MessageError("no round has begun.")
            shard = self._collection.check(message)
        except MessageError:
            self.refused += 1
            raise
        if shard is not None:
            self._append(message)
            self._collection.add(shard)

    def close(self, *, threads: int | None = None, progress: Progress = silent) -> bytes:
        """End the round and return the request to the key generator.

        Called again, also after a restart, it asks for the same sum. With too few users it raises and the round stays
        open: wait for more, or begin another.
        """
        if self._collection is None:
            raise InputError("no round has begun. Open one first.")
        if len(self._collection.users) < self.terms.min_users:
            raise PrivacyError(
                f"round {self.round} has contributions of {len(self._collection.users)} users; a sum needs "
                f"{self.terms.min_users}. Wait for more, or begin a new round."
            )
        if not self._collection.closed:
            self._append(encode(RoundClosed(self.round)))
            self._collection.closed = True
        # Algorithm 1, steps 5 and 6: the encrypted sum in the order of phi.
        places, ciphertexts = self._collection.total(source=self._source, threads=threads, progress=progress)
        receipts, senders = self._collection.receipts(), self._collection.senders(places)
        request = encode(
            Request(self._agreement.digest, self.round, receipts, places, ciphertexts.to_matrix(), senders)
        )
        if self.terms.as_published:
            return request
        return seal(self._channel_secret, request, purpose=REQUEST_FOR_DECRYPTION, source=self._source)

    def read(self, answer: bytes) -> Total:
        """Read the key generator's answer to this round's request (Algorithm 1, step 6)."""
        self._record(answer)
        if self._collection is None or not self._collection.closed:
            raise InputError("no answer is due: the round is not closed.")
        message = read_answer(self._agreement, answer, round=self.round)
        if message.users != self.users:
            raise MessageError("the answer names other users than the request did.")
        return Total(message.round, message.users, message.sums, self.terms.values(message.sums))

    def _replay(self, message: bytes) -> None:
        """Do again what a record of the journal stands for."""
        if self._collection is not None and isinstance(decode(message, RoundClosed, Contribution), RoundClosed):
            self._collection.closed = True
        else:
            self.receive(message)

    def _restart_journal(self, round: int) -> None:
        if self._journal is not None:
            self._journal.restart(RoundBegun(self.terms.to_bytes(), self._setup, round))

    def _append(self, message: bytes) -> None:
        if self._journal is not None:
            self._journal.append(message)
