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
    """The key generator could not be reached: nothing is lost, and it may be asked again."""


class AggregatorEnd(ABC):
    """The aggregator's end, whatever the scheme."""

    def __init__(self, terms: RunTerms, folder: Path) -> None:
        """Go on from what the folder holds, if anything."""
        self.terms, self.folder = terms, folder

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
        """End the round: return the answer that users read, and the sum."""

    def _answered(self, ask: Ask, request: bytes) -> bytes:
        answers = ask("answer", {KEY_GENERATOR: request})
        if KEY_GENERATOR not in answers:
            raise UnansweredError("the key generator did not answer.")
        return answers[KEY_GENERATOR]


class PaillierAggregatorEnd(AggregatorEnd):
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

    def begin(self, attempt: int, users: Collection[str], ask: Ask) -> Mapping[str, bytes]:
        """Open the round, unless it is open."""
        if self._aggregator.round != attempt:
            self._aggregator.open(attempt)
        return dict.fromkeys(users, b"")

    def receive(self, user: str, message: bytes) -> None:
        """Take in a shard."""
        self._aggregator.receive(message)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Who has sent all shards."""
        return self._aggregator.users

    def finish(self, ask: Ask) -> tuple[bytes, Total]:
        """Ask the key generator for the sum."""
        answer = self._answered(ask, self._aggregator.close())
        return answer, self._aggregator.read(answer)


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


class LatticeAggregatorEnd(_RosterAggregatorEnd):
    """The aggregator of BFV."""

    _loaded: LatticeAggregator | None = None

    @property
    def _path(self) -> Path:
        return self.folder / "aggregator"

    @property
    def _aggregator(self) -> LatticeAggregator:
        if self._loaded is None:
            self._loaded = LatticeAggregator.load(self._path)
        return self._loaded

    def accept(self, setup: bytes) -> None:
        """Receive the roster and the encryption key."""
        roster, message = self._roster(setup)
        if not self._path.exists():
            key = signing_key(self.folder / "signing")
            self._loaded = LatticeAggregator(roster, key, path=self._path)
        self._aggregator.accept(message)

    def begin(self, attempt: int, users: Collection[str], ask: Ask) -> Mapping[str, bytes]:
        """Open the round, unless it is open."""
        if self._aggregator.round != attempt:
            self._aggregator.open(attempt)
        return dict.fromkeys(users, b"")

    def receive(self, user: str, message: bytes) -> None:
        """Take in an encrypted vector."""
        self._aggregator.receive(message)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Whose vectors are in the sum."""
        return self._aggregator.users

    def finish(self, ask: Ask) -> tuple[bytes, Total]:
        """Ask the key generator for the sum."""
        answer = self._answered(ask, self._aggregator.close())
        return answer, self._aggregator.read(answer)


class MaskAggregatorEnd(_RosterAggregatorEnd):
    """The server of masks; it keeps nothing of a round on disk."""

    _server: MaskServer | None = None
    _uploaded: tuple[str, ...] = ()

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
        self._uploaded = ()
        self._masks.open(attempt)
        self._phase(ask("advertise", dict.fromkeys(users, b"")))
        directory = self._masks.directory()
        self._phase(ask("share", dict.fromkeys(self._masks.awaited, directory)))
        return self._masks.deliveries()

    def receive(self, user: str, message: bytes) -> None:
        """Take in a masked vector."""
        self._masks.receive(message)
        self._uploaded = (*self._uploaded, user)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Whose masked vectors have come."""
        return tuple(sorted(set(self._uploaded)))

    def finish(self, ask: Ask) -> tuple[bytes, Total]:
        """Let users lift the masks of the sum."""
        request = self._masks.request()
        self._phase(ask("unmask", dict.fromkeys(self._masks.awaited, request)))
        answer = self._masks.result()
        roster, terms = self._masks.roster, self.terms.sums
        _, result = roster.open(answer, Result, round=None, authors=[AGGREGATOR])
        sums = to_integers(read_residues(result.sums, terms))
        return answer, Total(result.round, result.users, sums, terms.values(sums))

    def _phase(self, replies: Mapping[str, bytes]) -> None:
        """Take in what users answered; whoever answers rubbish has dropped out of the round."""
        for reply in replies.values():
            try:
                self._masks.receive(reply)
            except MessageError:
                continue


class PlainAggregatorEnd(AggregatorEnd):
    """An aggregator that reads every update, for comparison."""

    _adder: plain.PlainAggregator | None = None
    _users: tuple[str, ...] = ()

    def enrolment(self) -> bytes:
        """Return nothing: nobody has a key."""
        return b""

    def accept(self, setup: bytes) -> None:
        """Receive nothing."""

    def begin(self, attempt: int, users: Collection[str], ask: Ask) -> Mapping[str, bytes]:
        """Begin with nothing."""
        self._adder, self._users = plain.PlainAggregator(self.terms.sums, attempt, forget), ()
        return dict.fromkeys(users, b"")

    def receive(self, user: str, message: bytes) -> None:
        """Take in an update, which must be in its sender's name."""
        if decode(message, plain.Update).user != user:
            raise MessageError(f"{user!r} sends an update in another's name.")
        self._begun.receive(message)
        self._users = (*self._users, user)

    @property
    def _begun(self) -> plain.PlainAggregator:
        if self._adder is None:
            raise MessageError("no round has begun.")
        return self._adder

    @property
    def contributors(self) -> tuple[str, ...]:
        """Whose updates have come."""
        return tuple(sorted(set(self._users)))

    def finish(self, ask: Ask) -> tuple[bytes, Total]:
        """Add up."""
        answer, terms = self._begun.total(), self.terms.sums
        total = decode(answer, plain.Total)
        sums = to_integers(read_residues(total.residues, terms))
        return answer, Total(total.round, total.users, sums, terms.values(sums))


AGGREGATOR_ENDS: dict[str, type[AggregatorEnd]] = {
    "plain": PlainAggregatorEnd,
    "dphe": PaillierAggregatorEnd,
    "block-dphe": PaillierAggregatorEnd,
    "bfv": LatticeAggregatorEnd,
    "masks": MaskAggregatorEnd,
}
