"""What a scheme is, and which there are: `SCHEMES` by name, each with its parts, options, traits and statement.

A scheme has a member's part, the aggregator's part of one round, and perhaps the key generator's (`roles` call them).
The parts compute; they know nothing of signatures, disks or networks. One that raises `MessageError` changed nothing.
Another module adds a scheme with `register`; a party that did not import that module does not know the scheme and
refuses its terms. Everything that depends on the scheme asks its traits (`Terms.traits`), never its name.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import Message, encode
from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import PrivacyStatement
from blindsight.sums.statements import line

if TYPE_CHECKING:  # terms and messages stand on this module
    from blindsight.sums.messages import Answer, Call, Reply, Roster, Setup
    from blindsight.sums.terms import Terms

Integers = NDArray[np.int64]

Turn = tuple[int, int]
"""A round, and the attempt at it."""

Vouch = Callable[[str, Turn, bytes, bytes], bytes]
"""Return the signed reply to a step of a turn, with this model and body."""

CONTRIBUTE = "contribute"


class ForgedError(MessageError):
    """What was decrypted is no sum of the named contributions, or one of them overflowed: the key is used up."""


@dataclass(frozen=True, eq=False)
class Resources:
    """Where secrets come from, and what computes: a process `pool` encrypts, `threads` decrypt."""

    source: ByteSource = system_bytes
    pool: Executor | None = None
    threads: int | None = None
    progress: Progress = silent


class SchemeOptions(Message, name="sums/scheme-options.1"):
    """What members agree on for one scheme alone: a subclass names its fields and checks them (`Terms.options`)."""

    def to_bytes(self) -> bytes:
        return encode(self)


class Sizes(NamedTuple):
    """How large a contribution is: about `shard` bytes in each of at most `shards` parts.

    `block` consecutive weights are sent together or not at all.
    """

    shard: int
    shards: int = 1
    block: int = 1


class MemberPart(ABC):
    """A member of a run."""

    steps: ClassVar[tuple[str, ...]] = (CONTRIBUTE,)

    @classmethod
    def check(cls, terms: "Terms") -> None:
        """Refuse terms with which the scheme cannot work; the rest of them is in order."""
        return

    @classmethod
    def sizes(cls, terms: "Terms") -> Sizes:
        """Return how large contributions are: by default that of one residue per weight."""
        return Sizes(terms.dimension * terms.residue_type.itemsize)

    def __init__(self, name: str, roster: "Roster", setup: "Setup", resources: Resources, vouch: Vouch) -> None:
        self.name, self.roster, self.terms = name, roster, roster.terms
        self.setup, self.resources, self.vouch = setup, resources, vouch

    @classmethod
    def needed(cls, terms: "Terms") -> int:
        """Return how many members the sum of a round needs."""
        return terms.minimum

    @classmethod
    def prepared(cls, source: ByteSource) -> bytes:
        """Return the secrets that a member has before set-up: by default none."""
        return b""

    @classmethod
    def exchange_key(cls, secrets: bytes) -> bytes:
        """Return the public key that a member enrols with, besides that of its signatures: by default none."""
        return b""

    def begun(self, secrets: bytes) -> bytes:
        """Return the secrets that a member has after set-up."""
        return b""

    def missing(self, call: "Call", secrets: bytes) -> int:
        """Return how many members are missing from the sum that a call opens, where members open it themselves."""
        return 0

    def begins(self, step: str, turn: Turn, secrets: bytes) -> bool:
        """Tell whether an attempt at a round may begin with this step."""
        return step == self.steps[0]

    @abstractmethod
    def answer(self, call: "Call", integers: Integers | None, secrets: bytes) -> tuple[bytes, bytes]:
        """Return the body of the reply to a call, and what the scheme keeps secret for the next step."""

    def released(self, answer: "Answer") -> NDArray[np.bool_]:
        """Mark the weights whose sum is in the answer of a round: by default all."""
        return np.ones(self.terms.dimension, dtype=np.bool_)

    def contribution(self, integers: Integers | None) -> Integers:
        if integers is None:
            raise InputError(f"{self.name!r} is asked to contribute and has no update.")
        return integers


@dataclass(frozen=True, eq=False)
class Opened:
    """A sum: whose, in integers; and where a part of it can be withheld, which blocks of it were released."""

    members: tuple[str, ...]
    sums: Integers
    released: NDArray[np.bool_] | None = None


class Adder(ABC):
    """The aggregator's part of one attempt at a round."""

    steps: ClassVar[tuple[str, ...]] = (CONTRIBUTE,)

    def __init__(self, roster: "Roster", setup: "Setup", turn: Turn, resources: Resources) -> None:
        self.roster, self.terms, self.setup, self.turn = roster, roster.terms, setup, turn
        self.resources, self.model = resources, b""
        self.members: tuple[str, ...] = ()  # whose contributions are in the sum
        self.ciphertexts: dict[str, int] = {}  # how many each sent, and how many are to be decrypted

    def carried(self, turn: Turn) -> Mapping[str, bytes]:
        """Return what the adder of this later turn has to know of this one, by member: by default nothing."""
        return {}

    def follow(self, ahead: Mapping[str, bytes]) -> None:
        """Take over what the adder before carried: by default nothing."""
        return

    def asked(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of the members that the terms ask in this round are asked: by default all."""
        return names

    def already(self, step: str) -> tuple[str, ...]:
        """Return the members whose answer to a step is there before they are asked."""
        return ()

    def bodies(self, step: str, members: tuple[str, ...]) -> Mapping[str, bytes]:
        return dict.fromkeys(members, b"")

    @abstractmethod
    def check(self, step: str, member: str, reply: "Reply") -> Any:
        """Return what is to be added of a reply whose receipt is in order; raise if it does not fit."""

    @abstractmethod
    def add(self, step: str, member: str, checked: Any) -> None:
        """Add what was just checked."""

    def close(self, step: str, heard: tuple[str, ...]) -> tuple[str, ...]:
        """End a step: return the members that go on; `PrivacyError` if they are too few."""
        self.require(len(heard), self.terms.minimum)
        self.members = heard
        return heard

    def suffices(self, step: str, heard: tuple[str, ...]) -> bool:
        """Tell whether a step could be ended with these members."""
        return len(heard) >= self.terms.minimum

    def may_end(self, step: str, heard: tuple[str, ...]) -> bool:
        """Return True if a step can be ended, well or not, when those who have not answered are waited for no more."""
        return self.suffices(step, heard)

    def require(self, there: int, needed: int) -> None:
        if there < needed:
            raise PrivacyError(
                f"round {self.turn[0]} has contributions of {there} members; a sum needs {needed}. Wait for more, or "
                "begin a new round."
            )

    def request(self) -> bytes:
        raise InputError(f"nothing is decrypted in a run of {self.terms.scheme}.")

    def opened(self) -> Opened:
        """Return the sum, in schemes without a key generator."""
        raise InputError(f"a run of {self.terms.scheme} has a key generator.")


def released_purpose(round: int) -> bytes:
    return b"released blocks of round %d" % round


class Opener(ABC):
    """The key generator's part: `encryption_key` is public, `secret_bytes` are not."""

    encryption_key: bytes

    @abstractmethod
    def __init__(self, terms: "Terms", secret: Any, resources: Resources) -> None:
        """Take a key pair, one that `secret_bytes` wrote, or make another."""

    @abstractmethod
    def secret_bytes(self) -> bytes: ...

    @abstractmethod
    def open(self, body: bytes, members: tuple[str, ...], round: int, setup: "Setup", offsets: list[bytes]) -> Opened:
        """Decrypt a request; `ForgedError` if it is not the sum of these members, whose offsets are given."""


# The registry


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A way of adding up updates: who does what, what members agree on, what it promises, and its traits.

    hides : the aggregator sees no single update.
    sealed : what could be decrypted travels sealed: contributions, and what the aggregator and the key generator write.
    sparse : members send what changed, in blocks of weights, and the key generator may withhold a part of a sum.
    packed : of the sparse schemes: as many weights as a plaintext holds are sent together, so updates should be sparse
        in whole blocks.
    threshold : no key generator opens a sum, more than two thirds of the members do, together. So each knows whether it
        helped to open a sum, and who was missing from it; and a round in which too few did can be tried again, with new
        secrets.
    cohorts : who is summed with whom is fixed for the run, by the roster (`Roster.cohorts`), where every member has an
        X25519 key, too. There is one attempt at a round, and members may learn from a model again.
    requires : a module of an optional extra without which it cannot run.
    """

    name: str
    member: type[MemberPart]
    adder: type[Adder]
    statement: Callable[["Terms", ByteSource], PrivacyStatement]
    opener: type[Opener] | None = None
    options: type[SchemeOptions] | None = None
    hides: bool = True
    sealed: bool = False
    sparse: bool = False
    packed: bool = False
    threshold: bool = False
    cohorts: bool = False
    requires: str = ""

    @property
    def keyed(self) -> bool:
        """Whether a key generator decrypts the sum; in other schemes it vouches for everybody's keys at most."""
        return self.opener is not None


SCHEMES: dict[str, Scheme] = {}
"""Every scheme that this process knows, by name. `blindsight.sums` brings its own; `register` adds others."""


def register(scheme: Scheme) -> Scheme:
    """Make a scheme known under its name; a name stands for one scheme."""
    if SCHEMES.setdefault(scheme.name, scheme) is not scheme:
        raise InputError(f"there is a scheme {scheme.name!r} already. Choose another name.")
    return scheme


def find_scheme(name: str) -> Scheme:
    """Return the scheme of this name."""
    if name not in SCHEMES:
        raise UnknownNameError("aggregation scheme", name, SCHEMES)
    return SCHEMES[name]


# Which to take

OWN_SCHEMES = ("plain", "dphe", "block-dphe", "bfv", "masks")
"""The library's own; `SCHEMES` has those that other modules registered, too."""

MASK_WAVES = 5
"""How often a member is asked in a round of masks: keys, shares, upload, signature, unmasking shares."""

_REASONS = {
    "masks": "nobody holds a key that opens an update, and every number that is opened is a sum over all contributors",
    "two-wave-masks": "as masks, with keys for the whole run: a member is asked twice in a round",
    "bfv": "a member is asked once in a round; a key generator that does not collude with the aggregator opens the sum",
    "dphe": "the paper's protocol; members choose what they send, so weights that too few changed are withheld",
    "block-dphe": "the paper's protocol with blocks of weights; those that too few members changed are withheld",
    "plain": "nothing is hidden: the aggregator reads every update",
}


@dataclass(frozen=True)
class Choice:
    """A scheme and the reason for it."""

    scheme: str
    why: str

    def __str__(self) -> str:
        return f"{self.scheme}: {self.why}"


def choose_scheme(wanted: str | None = None, *, waves: int | None = None) -> Choice:
    """Return the scheme that is wanted, or else masks, or bfv where a member may be asked `waves` times at most.

    Size does not decide (masks cost least at every size that a run may have). DPHE and block DPHE are taken by name:
    where members choose themselves what they send, most of what a sum of few members opens is one member's own, so that
    it has to be withheld.

    >>> choose_scheme().scheme, choose_scheme(waves=2).scheme
    ('masks', 'bfv')
    """
    if waves is not None and waves < 1:
        raise InputError(f"a member is asked at least once in a round; got waves={waves}.")
    chosen = wanted or ("masks" if waves is None or waves >= MASK_WAVES else "bfv")
    if chosen not in _REASONS:
        raise UnknownNameError("aggregation scheme", chosen, SCHEMES)
    return Choice(chosen, _REASONS[chosen])


def installed_schemes() -> tuple[str, ...]:
    """Return the library's schemes that can run here: all, but for those whose extra is not installed."""
    return tuple(name for name in OWN_SCHEMES if not (needs := SCHEMES[name].requires) or find_spec(needs) is not None)


# No protection at all, for comparison


class PlainMember(MemberPart):
    """Sends its update."""

    def answer(self, call: "Call", integers: Integers | None, secrets: bytes) -> tuple[bytes, bytes]:
        return self.terms.residues(self.contribution(integers)).tobytes(), b""


class PlainAdder(Adder):
    """Adds up what it reads."""

    def __init__(self, roster: "Roster", setup: "Setup", turn: Turn, resources: Resources) -> None:
        super().__init__(roster, setup, turn, resources)
        self._sum = np.zeros(self.terms.dimension, dtype=np.int64)

    def check(self, step: str, member: str, reply: "Reply") -> Integers:
        return self.terms.read_sums(reply.body, 1)

    def add(self, step: str, member: str, checked: Integers) -> None:
        self._sum += checked

    def opened(self) -> Opened:
        return Opened(self.members, self._sum)


def _plain(terms: "Terms", source: ByteSource) -> PrivacyStatement:
    return PrivacyStatement(
        guarantee="none",
        mechanism="none: updates are sent and added up in the clear",
        unit="person",
        epsilon=None,
        delta=None,
        randomness="none",
        who_sees={
            "aggregator": "every member's update, weight by weight, and the sum",
            "members": "their own update, the sum, and who contributed",
            "someone who intercepts a message": "the update in it",
        },
        not_protected=(line("every-update"),),
    )


PLAIN = register(Scheme(name="plain", member=PlainMember, adder=PlainAdder, statement=_plain, hides=False))
