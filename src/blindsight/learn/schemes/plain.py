"""No protection at all: users send their updates as they are, and the aggregator adds them up. For comparison."""

import hashlib
from functools import partial
from typing import Annotated

import numpy as np

from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.dphe.views import Record
from blindsight.learn.residues import beyond, read_residues, to_integers, to_residues
from blindsight.learn.session import Encoded, Post, Recorder, Session, Sum, Transit, recorder_of
from blindsight.learn.sumterms import SumTerms
from blindsight.statement import PrivacyStatement


class Update(Message, name="plain/update.1"):
    """One user's encoded update."""

    round: int
    user: Annotated[str, Limit(256)]
    residues: bytes


class Total(Message, name="plain/total.1"):
    """The sum."""

    round: int
    users: tuple[str, ...]
    residues: bytes


class PlainAggregator:
    """Adds up what it reads; garbage, strangers and second thoughts are refused and change nothing."""

    def __init__(self, terms: SumTerms, round: int, record: Record) -> None:
        self.terms, self.round = terms, round
        self._record = record
        self._sum = np.zeros(terms.dimension, dtype=np.int64)
        self._seen: dict[str, bytes] = {}

    def receive(self, message: bytes) -> None:
        """Take in an update."""
        self._record(message)
        update, digest = decode(message, Update), hashlib.sha256(message).digest()
        if update.user not in self.terms.users or update.round != self.round:
            raise MessageError("an update is from a stranger or for another round.")
        if self._seen.get(update.user, digest) != digest:
            raise MessageError(f"{update.user!r} has sent something else in round {self.round} already.")
        values = to_integers(read_residues(update.residues, self.terms))
        if beyond(values, self.terms.max_integer):
            raise MessageError(f"the update of {update.user!r} is out of range.")
        if update.user not in self._seen:
            self._sum += values
            self._seen[update.user] = digest

    def total(self) -> bytes:
        """Return the sum of those whose updates came."""
        if len(self._seen) < self.terms.minimum:
            raise PrivacyError(
                f"round {self.round} has updates of {len(self._seen)} users; a sum needs {self.terms.minimum}."
            )
        return encode(Total(self.round, tuple(sorted(self._seen)), to_residues(self._sum, self.terms).tobytes()))


class PlainSession(Session):
    """A run without protection."""

    scheme = "plain"

    def __init__(self, terms: SumTerms, *, record: Recorder | None = None, transit: Transit | None = None) -> None:
        """Begin."""
        super().__init__(terms, transit=transit)
        self._record = record

    def _add(self, updates: Encoded, number: int, post: Post) -> Sum:
        aggregator = PlainAggregator(self.terms, number, recorder_of(self._record, AGGREGATOR))
        for user, encoded in updates.items():
            with post.working(user, "encrypt"):
                message = encode(Update(number, user, to_residues(encoded(), self.terms).tobytes()))
            post.carry(message, (user, AGGREGATOR), ("encrypt", "aggregate"), aggregator.receive)
        with post.working(AGGREGATOR, "aggregate"):
            answer = aggregator.total()
        readers = {user: partial(_read, recorder_of(self._record, user)) for user in updates}
        total = next(iter(post.spread(answer, AGGREGATOR, ("aggregate", "read"), readers).values()))
        integers = to_integers(read_residues(total.residues, self.terms))
        return Sum(total.users, integers, np.empty(0, dtype=np.int64))

    def statement(self) -> PrivacyStatement:
        return statement()


def statement() -> PrivacyStatement:
    """Say that nothing is protected."""
    return PrivacyStatement(
        guarantee="none",
        mechanism="none: updates are sent and added up in the clear",
        unit="person",
        epsilon=None,
        delta=None,
        randomness="none",
        who_sees={
            "aggregator": "every user's update, weight by weight, and the sum",
            "users": "their own update, the sum, and who contributed",
            "someone who intercepts a message": "the update in it",
        },
        not_protected=("every user's update, and all that can be learned from it about its pictures",),
    )


def _read(record: Record, message: bytes) -> Total:
    record(message)
    return decode(message, Total)
