"""One run of a scheme in one process: updates in, their exact sum out, with what it cost and what it protects.

The roles of a scheme exchange bytes and nothing else; a `Session` only carries them (`Post`), as a network would, and
measures. Nothing is encrypted before every update of the round has been checked.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.learn.costs import Cost, Meter, Step
from blindsight.learn.dphe.views import Record, forget
from blindsight.learn.sumterms import SumTerms
from blindsight.statement import PrivacyStatement
from blindsight.sums.session import RoundResult as RoundResult

Recorder = Callable[[str, bytes], object]
"""Called with a party's name and the bytes of each message it received (unsealed, where a seal was on it)."""

Transit = Callable[[str, str, bytes], Iterable[bytes]]
"""Called with sender, receiver and message, returns what arrives: nothing if it is lost, two if it is doubled, ..."""

Encoded = Mapping[str, Callable[[], NDArray[np.int64]]]
"""The checked updates of a round by user, each encoded when it is called for: one at a time is in memory."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Sum:
    """What a scheme finds out in a round."""

    users: tuple[str, ...]
    integers: NDArray[np.int64]
    withheld: NDArray[np.int64]


class Post:
    """Carries messages between the roles of one round, and measures what everyone does."""

    def __init__(self, users: tuple[str, ...], transit: Transit | None = None) -> None:
        """Begin with nothing; `transit` may lose, double or change messages, to show that it does no harm."""
        self.meter = Meter(users)
        self.working = self.meter.working
        self.refused: dict[str, str] = {}
        self._transit = transit

    def carry(
        self,
        message: bytes,
        route: tuple[str, str],
        steps: tuple[Step, Step],
        receive: Callable[[bytes], T],
        *,
        ciphertexts: int = 0,
    ) -> list[T]:
        """Hand a message to its receiver and return what that makes of it: nothing if it was lost or refused.

        `route` is (sender, receiver); `steps` are the one in which the message was made and the one in which it is
        received. A message that the receiver refuses is noted under its sender.
        """
        sender, receiver = route
        self.meter.carried(sender, receiver, steps[0], len(message), ciphertexts)
        results = []
        for arrived in [message] if self._transit is None else self._transit(sender, receiver, message):
            try:
                with self.working(receiver, steps[1]):
                    results.append(receive(arrived))
            except MessageError as error:
                self.refused[sender] = str(error)
        return results

    def spread(
        self,
        message: bytes,
        sender: str,
        steps: tuple[Step, Step],
        readers: Mapping[str, Callable[[bytes], T]],
    ) -> dict[str, T]:
        """Send the same message to several readers and return what each of those who could read it makes of it."""
        read = {
            reader: self.carry(message, (sender, reader), steps, receive)[:1] for reader, receive in readers.items()
        }
        results = {reader: found[0] for reader, found in read.items() if found}
        if not results:
            raise MessageError(f"what the {sender} sent to everyone was lost or refused. Begin a new round.")
        return results


class Session(ABC):
    """A run of one scheme. `block` is how many consecutive weights share a ciphertext: sparsity should follow it."""

    scheme: str
    block: int = 1

    def __init__(self, terms: SumTerms, *, transit: Transit | None = None) -> None:
        """Keep the terms; subclasses make the roles and set them up."""
        self.terms = terms
        self.setup_cost = Cost(terms.users, (), ())
        self._transit = transit
        self._last = -1

    @property
    def needed(self) -> int:
        """How many users the sum of a round needs."""
        return self.terms.minimum

    @abstractmethod
    def statement(self) -> PrivacyStatement:
        """Return what this run protects, from whom, under which assumptions."""

    @abstractmethod
    def _add(self, updates: Encoded, number: int, post: Post) -> Sum:
        """Play one round with the users that have an update."""

    def round(self, updates: Mapping[str, ArrayLike], number: int) -> RoundResult:
        """Add up the updates of one round; users without one have dropped out.

        Numbers go up from round to round. A round with too few users, or whose messages are spoilt, raises; it has
        given away no more than its sum, and its number is used up.
        """
        self._check(updates, number)
        self._last = number
        encoded = {user: partial(self._encode, user, updates) for user in self.terms.users if user in updates}
        post = Post(self.terms.users, self._transit)
        try:
            found = self._add(encoded, number, post)
        except (MessageError, PrivacyError) as error:
            for sender, sentence in post.refused.items():
                error.add_note(f"Refused from {sender}: {sentence}")
            raise
        values = self.terms.values(found.integers)
        return RoundResult(
            number, found.users, found.integers, values, found.withheld, dict(post.refused), post.meter.cost()
        )

    def _check(self, updates: Mapping[str, ArrayLike], number: int) -> None:
        """Refuse a round that cannot be, before anything is sent."""
        if number <= self._last:
            raise InputError(f"rounds count up from 0: after round {self._last} there is no round {number}.")
        for user in updates:
            if user not in self.terms.users:
                raise UnknownNameError("user", user, self.terms.users)
        if len(updates) < self.needed:
            raise PrivacyError(
                f"round {number} has updates of {len(updates)} users; a sum needs {self.needed}. Wait for more."
            )
        for user in updates:
            self._encode(user, updates)

    def _encode(self, user: str, updates: Mapping[str, ArrayLike]) -> NDArray[np.int64]:
        try:
            return self.terms.integers(updates[user])
        except InputError as error:
            raise InputError(f"the update of {user!r} cannot be added: {error}") from error


def recorder_of(record: Recorder | None, party: str) -> Record:
    """Return what a role is to call with each message it receives."""
    return forget if record is None else partial(record, party)
