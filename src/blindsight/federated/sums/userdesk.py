"""A user's desk: it answers the server in every run, and takes part only on terms that protect it as it was told.

*What it insists on*, whatever the server proposes: the key generator whose fingerprint it was given out of band; sums
of at least so many users, also at every position of a sparse sum; one of the schemes it accepts; keys of full length;
the briefing whose digest is in the terms; and orders that the aggregator has signed for whom the key generator vouches.
In a plain run nobody vouches for anybody: it follows the aggregator that set it up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.federated.home import Home
from blindsight.federated.identity import PublicIdentity
from blindsight.federated.members import check_fingerprint
from blindsight.federated.sums.greeting import greet
from blindsight.federated.sums.messages import Call, Enrolment, SetUp, Step
from blindsight.federated.sums.orders import check_order, lesson_of, read_order, same_lesson
from blindsight.federated.sums.runterms import RunTerms, briefing_digest
from blindsight.federated.sums.userend import USER_ENDS, UserEnd
from blindsight.files import atomic_writer, storage_errors
from blindsight.learn.aggregation import HIDING_SCHEMES
from blindsight.learn.dphe.storage import read_state, write_state

ROLE = "user"
ENROLMENT, SETUP = "enrolment", "set-up"
SHARING = "sharing"
"""The name, among the schemes of a user, that lets it take part in selective sharing: the server reads its uploads."""


class _Joined(Message, name="federated/joined.1"):
    """What a user remembers of a run it takes part in."""

    terms: bytes
    generator: Annotated[bytes, Limit(4096)]


class _Followed(Message, name="federated/followed.1"):
    """Whose orders a user follows in a run."""

    aggregator: Annotated[bytes, Limit(4096)]


@dataclass(frozen=True)
class UserDesk:
    """The desk of the user in this home. `key_generator` is the fingerprint of the one key generator it trusts."""

    home: Home
    key_generator: str
    minimum: int = 3
    schemes: tuple[str, ...] = HIDING_SCHEMES
    insecure: bool = False
    minimum_per_position: int = 1

    def __post_init__(self) -> None:
        """Refuse a pin that is none."""
        check_fingerprint(self.key_generator)

    def greet(self, parts: tuple[bytes, ...], node: int) -> list[bytes]:
        return greet(self.home.identity, ROLE, parts, node)

    def handle(self, kind: str, parts: tuple[bytes, ...]) -> list[bytes]:
        match kind, parts:
            case "enrol", (terms, generator):
                return [self._enrol(terms, generator)]
            case "set-up", (run, letter, briefing):
                self._set_up(_text(run), letter, briefing)
                return []
            case _, (message,) if kind in _STEPS:
                step, order = read_order(message, Step)
                check_order(order, kind, (), self._aggregator(step.run))
                return [self.end(step.run).step(kind, step.attempt, step.message)]
        raise MessageError(f"a user does not know what to do with {kind!r} of {len(parts)} parts.")

    def end(self, run: str) -> UserEnd:
        """Return the user's end of a run it has joined."""
        return self._end(RunTerms.from_bytes(self._joined(run).terms))

    def call(self, parts: Sequence[bytes]) -> Call:
        """Return the call to contribute in the first part, if the aggregator signed it for this user and all parts."""
        if not parts:
            raise MessageError("a call has a part at least.")
        call, order = read_order(parts[0], Call)
        check_order(order, "contribute", parts[1:], self._aggregator(call.run))
        if call.user != self.home.identity.name:
            raise MessageError(f"the call is for {call.user!r}; this is {self.home.identity.name!r}.")
        if not same_lesson(call.attempt, lesson_of(parts[1:])):
            raise MessageError("the attempt that is called for has another model than comes with the call.")
        return call

    def briefing(self, run: str) -> bytes:
        """Return what the server said the run is about."""
        path = self.home.folder(run) / "briefing"
        if not path.exists():
            raise MessageError(f"{self.home.identity.name!r} was not told yet what the run {run!r} is about.")
        with storage_errors("read", path):
            return path.read_bytes()

    def _enrol(self, proposed: bytes, generator: bytes) -> bytes:
        """Join a run, if its terms are acceptable: return the letter that enrols with the key generator."""
        terms = RunTerms.from_bytes(proposed)
        self._check(terms)
        if terms.scheme == "plain":
            self._join(terms.run, _Joined(proposed, b""))
            return b""
        to = self._pinned(generator)
        self._join(terms.run, _Joined(proposed, generator))
        enrolment = encode(Enrolment(terms.digest, self._end(terms).enrolment()))
        return self.home.identity.write(enrolment, to=to, purpose=ENROLMENT, run=terms.run)

    def _join(self, run: str, joined: _Joined) -> None:
        path = self.home.run(run) / "joined"
        if not path.exists():
            write_state(path, joined)
        elif read_state(path, _Joined) != joined:
            raise MessageError("this run has begun on other terms.")

    def _set_up(self, run: str, letter: bytes, briefing: bytes) -> None:
        joined = self._joined(run)
        if briefing_digest(briefing) != RunTerms.from_bytes(joined.terms).briefing:
            raise MessageError("the briefing is not the one that was agreed on with the terms of the run.")
        aggregator = letter
        if joined.generator:
            sender = self._pinned(joined.generator)
            setup = decode(self.home.identity.read(letter, sender=sender, purpose=SETUP, run=run), SetUp)
            self.end(run).accept(setup.content)
            aggregator = setup.aggregator
        self._follow(run, PublicIdentity.from_bytes(aggregator))
        with atomic_writer(self.home.run(run) / "briefing", private=True) as stream:
            stream.write(briefing)

    def _follow(self, run: str, aggregator: PublicIdentity) -> None:
        """Keep whose orders count in a run; nobody else's ever will."""
        path, followed = self.home.run(run) / "followed", _Followed(aggregator.to_bytes())
        if not path.exists():
            write_state(path, followed)
        elif read_state(path, _Followed) != followed:
            raise MessageError("this run has begun with another aggregator.")

    def _aggregator(self, run: str) -> PublicIdentity:
        path = self.home.folder(run) / "followed"
        if not path.exists():
            raise MessageError(f"{self.home.identity.name!r} is not set up yet for the run {run!r}.")
        return PublicIdentity.from_bytes(read_state(path, _Followed).aggregator)

    def _check(self, terms: RunTerms) -> None:
        """Refuse terms that protect less than this user asks for."""
        if self.home.identity.name not in terms.users:
            raise PrivacyError(f"{self.home.identity.name!r} is not among the users of this run.")
        if terms.scheme not in self.schemes:
            raise PrivacyError(f"this user does not take part in {terms.scheme}; it accepts {', '.join(self.schemes)}.")
        if terms.minimum < self.minimum:
            raise PrivacyError(f"this user takes part in sums of {self.minimum} or more; got {terms.minimum}.")
        if terms.sparse and terms.minimum_per_position < self.minimum_per_position:
            raise PrivacyError(
                f"this user takes part where {self.minimum_per_position} or more users change a position before its "
                f"sum is opened; got {terms.minimum_per_position}."
            )
        if terms.insecure and not self.insecure:
            raise PrivacyError("this user takes part with keys of full length only.")

    def _pinned(self, generator: bytes) -> PublicIdentity:
        identity = PublicIdentity.from_bytes(generator)
        if identity.fingerprint != self.key_generator:
            raise PrivacyError(
                f"the key generator of this run has the fingerprint {identity.fingerprint}; this user was told to "
                f"trust {self.key_generator} alone. Compare the two with the key generator's owner."
            )
        return identity

    def _joined(self, run: str) -> _Joined:
        path = self.home.folder(run) / "joined"
        if not path.exists():
            raise MessageError(f"{self.home.identity.name!r} does not take part in the run {run!r}.")
        return read_state(path, _Joined)

    def _end(self, terms: RunTerms) -> UserEnd:
        return USER_ENDS[terms.scheme](self.home.identity.name, terms, self.home.run(terms.run))


_STEPS = frozenset(step for end in USER_ENDS.values() for step in end.steps)


def _text(part: bytes) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError:
        raise MessageError("the name of a run is text.") from None


def joined_terms(folder: Path) -> RunTerms:
    """Return the terms of the run that a user keeps in this folder."""
    return RunTerms.from_bytes(read_state(folder / "joined", _Joined).terms)
