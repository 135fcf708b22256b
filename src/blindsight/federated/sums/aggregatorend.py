"""The aggregator's end of a run of sums across machines: what the server does in a round, whatever the scheme.

`begin`, then `receive` each contribution as it comes, then `finish`. Contributions are added up one at a time. The
aggregators of DPHE and BFV keep a journal: one that was killed in a round goes on with it, and `finish` asked again
asks for the same sum. A round of masks dies with its server, and another is begun.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path

from blindsight.crypto.wire import decode
from blindsight.errors import MessageError, PrivacyError
from blindsight.federated.sums.messages import RosterSetup
from blindsight.federated.sums.runterms import RunTerms
from blindsight.federated.sums.signingseed import signing_key
from blindsight.learn.dphe import Aggregator
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.dphe.views import forget
from blindsight.learn.lattice.aggregator import LatticeAggregator
from blindsight.learn.masks.messages import Result
from blindsight.learn.masks.server import MaskServer
from blindsight.learn.residues import read_residues, to_integers
from blindsight.learn.roster import Roster
from blindsight.learn.schemes import plain

Ask = Callable[[str, Mapping[str, bytes]], Mapping[str, bytes]]
"""Ask parties for a step of the round; returns what those answered who did in time."""


class UnansweredError(MessageError):
    """The key generator has not answered: nothing is lost, and it may be asked again."""


class AggregatorEnd(ABC):
    """The aggregator's end, whatever the scheme; `refused` tells by user what was wrong with a step of this round."""

    def __init__(self, terms: RunTerms, folder: Path) -> None:
        self.terms, self.folder = terms, folder
        self.refused: dict[str, str] = {}

    @abstractmethod
    def enrolment(self) -> bytes:
        """Return what the key generator must know about the aggregator."""

    @abstractmethod
    def accept(self, setup: bytes) -> None:
        """Receive the key generator's set-up."""

    @abstractmethod
    def begin(self, attempt: int, users: Collection[str], ask: Ask) -> Mapping[str, bytes]:
        """Begin a round with these users, or go on with it; return the note that each user needs to contribute."""

    @abstractmethod
    def receive(self, user: str, message: bytes) -> None:
        """Take in a message that came from this user; what is wrong with one raises and changes nothing."""

    @property
    @abstractmethod
    def contributors(self) -> tuple[str, ...]:
        """Whose contributions are complete in this round."""

    @abstractmethod
    def finish(self, ask: Ask) -> tuple[bytes, Total]:
        """End the round: return the answer that users read, and the sum; too few users are a `PrivacyError`."""

    @abstractmethod
    def read(self, answer: bytes, attempt: int) -> Total:
        """Return the sum in the answer of the attempt that was finished last."""

    def _total(self, attempt: int, users: tuple[str, ...], residues: bytes) -> Total:
        terms = self.terms.sums
        sums = to_integers(read_residues(residues, terms))
        return Total(attempt, users, sums, terms.values(sums))


class _KeyedAggregatorEnd(AggregatorEnd):
    """The aggregator of a scheme in which a key generator decrypts the sum."""

    _request: tuple[int, bytes] = (-1, b"")

    @property
    @abstractmethod
    def _aggregator(self) -> Aggregator | LatticeAggregator:
        """The role, as its journal says."""

    def begin(self, attempt: int, users: Collection[str], ask: Ask) -> Mapping[str, bytes]:
        """Open the round, unless it is open."""
        if self._aggregator.round != attempt:
            self._aggregator.open(attempt)
        return dict.fromkeys(users, b"")

    def receive(self, user: str, message: bytes) -> None:
        """Take in what a user encrypted; it counts for the user who signed it."""
        self._aggregator.receive(message)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Who has sent everything."""
        return self._aggregator.users

    def finish(self, ask: Ask) -> tuple[bytes, Total]:
        """Ask the key generator for the sum; what cannot be read has not come from it, and it is to be asked again."""
        attempt = self._aggregator.round
        if self._request[0] != attempt:
            self._request = attempt, self._aggregator.close()
        answers = ask("answer", {KEY_GENERATOR: self._request[1]})
        if KEY_GENERATOR not in answers:
            raise UnansweredError("the key generator did not answer.")
        try:
            return answers[KEY_GENERATOR], self.read(answers[KEY_GENERATOR], attempt)
        except MessageError as error:
            raise UnansweredError(f"what came as the key generator's answer cannot be read: {error}") from None

    def read(self, answer: bytes, attempt: int) -> Total:
        """Read what the key generator signed."""
        return self._aggregator.read(answer)


class PaillierAggregatorEnd(_KeyedAggregatorEnd):
    """The aggregator of DPHE and block DPHE."""

    @cached_property
    def _aggregator(self) -> Aggregator:
        path = self.folder / "aggregator"
        return Aggregator.load(path) if path.exists() else Aggregator(self.terms.paillier, path=path)

    def enrolment(self) -> bytes:
        """Return nothing: the aggregator of DPHE signs nothing."""
        return b""

    def accept(self, setup: bytes) -> None:
        """Receive keys and permutations."""
        self._aggregator.accept(setup)


class _RosterAggregatorEnd(AggregatorEnd):
    """The aggregator of a scheme in which everybody knows everybody's signing key."""

    def enrolment(self) -> bytes:
        """Return the key that verifies the aggregator's signatures."""
        return signing_key(self.folder / "signing").public

    def _roster(self, setup: bytes) -> tuple[Roster, bytes]:
        message = decode(setup, RosterSetup)
        roster = Roster.from_bytes(message.roster)
        if roster.terms != self.terms.sums:
            raise MessageError("the set-up is on other terms than were agreed.")
        return roster, message.setup


class LatticeAggregatorEnd(_RosterAggregatorEnd, _KeyedAggregatorEnd):
    """The aggregator of BFV."""

    @property
    def _path(self) -> Path:
        return self.folder / "aggregator"

    @cached_property
    def _aggregator(self) -> LatticeAggregator:
        return LatticeAggregator.load(self._path)

    def accept(self, setup: bytes) -> None:
        """Receive the roster and the encryption key."""
        roster, message = self._roster(setup)
        if not self._path.exists():
            LatticeAggregator(roster, signing_key(self.folder / "signing"), path=self._path)
        self._aggregator.accept(message)


class MaskAggregatorEnd(_RosterAggregatorEnd):
    """The server of masks; it keeps nothing of a round on disk."""

    _server: MaskServer | None = None

    def accept(self, setup: bytes) -> None:
        """Receive the roster."""
        roster, _ = self._roster(setup)
        self._server = MaskServer(roster, signing_key(self.folder / "signing"))

    @property
    def _masks(self) -> MaskServer:
        if self._server is None:
            raise PrivacyError("the run is not set up yet.")
        return self._server

    def begin(self, attempt: int, users: Collection[str], ask: Ask) -> Mapping[str, bytes]:
        """Let users make keys and share them out; return what the others sealed for each."""
        self.refused = {}
        self._masks.open(attempt)
        self._phase(ask("advertise", dict.fromkeys(users, b"")))
        directory = self._masks.directory()
        self._phase(ask("share", dict.fromkeys(self._masks.awaited, directory)))
        return self._masks.deliveries()

    def receive(self, user: str, message: bytes) -> None:
        """Take in a masked vector; it counts for the user who signed it."""
        self._masks.receive(message)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Whose masked vectors have come."""
        return self._masks.heard

    def finish(self, ask: Ask) -> tuple[bytes, Total]:
        """Let users agree on whose vectors are in the sum, and lift its masks."""
        survivors = self._masks.survivors()
        self._phase(ask("consistency", dict.fromkeys(self._masks.awaited, survivors)))
        request = self._masks.request()
        self._phase(ask("unmask", dict.fromkeys(self._masks.awaited, request)))
        answer = self._masks.result()
        _, result = self._opened(answer, None)
        return answer, self._total(result.round, result.users, result.sums)

    def read(self, answer: bytes, attempt: int) -> Total:
        """Read what this server signed."""
        _, result = self._opened(answer, attempt)
        return self._total(attempt, result.users, result.sums)

    def _opened(self, answer: bytes, attempt: int | None) -> tuple[str, Result]:
        return self._masks.roster.open(answer, Result, round=attempt, authors=[AGGREGATOR])

    def _phase(self, replies: Mapping[str, bytes]) -> None:
        """Take in what users answered; whoever answers rubbish has dropped out of the round."""
        for user, reply in replies.items():
            try:
                self._masks.receive(reply)
            except MessageError as error:
                self.refused[user] = str(error)


class PlainAggregatorEnd(AggregatorEnd):
    """An aggregator that reads every update, for comparison."""

    _adder: plain.PlainAggregator | None = None
    _users: frozenset[str] = frozenset()

    def enrolment(self) -> bytes:
        """Return nothing: nobody has a key."""
        return b""

    def accept(self, setup: bytes) -> None:
        """Receive nothing."""

    def begin(self, attempt: int, users: Collection[str], ask: Ask) -> Mapping[str, bytes]:
        """Begin with nothing, or go on."""
        if self._adder is None or self._adder.round != attempt:
            self._adder, self._users = plain.PlainAggregator(self.terms.sums, attempt, forget), frozenset()
        return dict.fromkeys(users, b"")

    def receive(self, user: str, message: bytes) -> None:
        """Take in an update, which must be in its sender's name."""
        if decode(message, plain.Update).user != user:
            raise MessageError(f"{user!r} sends an update in another's name.")
        self._begun.receive(message)
        self._users |= {user}

    @property
    def _begun(self) -> plain.PlainAggregator:
        if self._adder is None:
            raise MessageError("no round has begun.")
        return self._adder

    @property
    def contributors(self) -> tuple[str, ...]:
        """Whose updates have come."""
        return tuple(sorted(self._users))

    def finish(self, ask: Ask) -> tuple[bytes, Total]:
        """Add up."""
        answer = self._begun.total()
        return answer, self.read(answer, self._begun.round)

    def read(self, answer: bytes, attempt: int) -> Total:
        """Read the sum."""
        total = decode(answer, plain.Total)
        return self._total(attempt, total.users, total.residues)


AGGREGATOR_ENDS: dict[str, type[AggregatorEnd]] = {
    "plain": PlainAggregatorEnd,
    "dphe": PaillierAggregatorEnd,
    "block-dphe": PaillierAggregatorEnd,
    "bfv": LatticeAggregatorEnd,
    "masks": MaskAggregatorEnd,
}
