"""A user's desk: it answers the server in every run, and takes part only on terms that protect it as it was told.

*What it insists on*, whatever the server proposes: the key generator whose fingerprint it was given out of band; sums
of at least so many users; one of the schemes it accepts; keys of full length.
"""

from dataclasses import dataclass
from typing import Annotated

from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.federated.home import Home
from blindsight.federated.identity import PublicIdentity
from blindsight.federated.members import check_fingerprint
from blindsight.federated.sums.greeting import greet
from blindsight.federated.sums.messages import Enrolment, Step
from blindsight.federated.sums.runterms import RunTerms
from blindsight.federated.sums.userend import USER_ENDS, UserEnd
from blindsight.files import atomic_writer, storage_errors
from blindsight.learn.dphe.storage import read_state, write_state

ROLE = "user"
ENROLMENT, SETUP = "enrolment", "set-up"
HIDING_SCHEMES = ("block-dphe", "dphe", "bfv", "masks")


class _Joined(Message, name="federated/joined.1"):
    """What a user remembers of a run it takes part in."""

    terms: bytes
    generator: Annotated[bytes, Limit(4096)]


@dataclass(frozen=True)
class UserDesk:
    """The desk of the user in this home. `key_generator` is the fingerprint of the one key generator it trusts."""

    home: Home
    key_generator: str
    minimum: int = 3
    schemes: tuple[str, ...] = HIDING_SCHEMES
    insecure: bool = False

    def __post_init__(self) -> None:
        """Refuse a pin that is none."""
        check_fingerprint(self.key_generator)

    def handle(self, kind: str, parts: tuple[bytes, ...]) -> list[bytes]:
        """Answer the server; what is wrong with a message raises and changes nothing."""
        match kind, parts:
            case "hello", (message,):
                return greet(self.home.identity, ROLE, message)
            case "enrol", (terms, generator):
                return [self._enrol(terms, generator)]
            case "set-up", (run, letter, briefing):
                self._set_up(_text(run), letter, briefing)
                return []
            case _, (message,) if kind in _STEPS:
                step = decode(message, Step)
                return [self.end(step.run).step(kind, step.attempt, step.message)]
        raise MessageError(f"a user does not know what to do with {kind!r} of {len(parts)} parts.")

    def end(self, run: str) -> UserEnd:
        """Return the user's end of a run it has joined."""
        return self._end(RunTerms.from_bytes(self._joined(run).terms))

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
        if joined.generator:
            sender = self._pinned(joined.generator)
            self.end(run).accept(self.home.identity.read(letter, sender=sender, purpose=SETUP, run=run))
        with atomic_writer(self.home.run(run) / "briefing", private=True) as stream:
            stream.write(briefing)

    def _check(self, terms: RunTerms) -> None:
        """Refuse terms that protect less than this user asks for."""
        if self.home.identity.name not in terms.users:
            raise PrivacyError(f"{self.home.identity.name!r} is not among the users of this run.")
        if terms.scheme not in self.schemes:
            raise PrivacyError(f"this user does not take part in {terms.scheme}; it accepts {', '.join(self.schemes)}.")
        if terms.minimum < self.minimum:
            raise PrivacyError(f"this user takes part in sums of {self.minimum} or more; got {terms.minimum}.")
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
