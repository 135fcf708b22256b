"""The key generator's desk: it opens runs for members it can name, and decrypts one sum a round for each.

It trusts the server with nothing: every party's keys must have the fingerprint that the members file says, enrolments
are letters that the server cannot write, and set-ups are letters that it cannot read.
"""

from dataclasses import dataclass

from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.federated.home import Home
from blindsight.federated.identity import PublicIdentity
from blindsight.federated.members import Members
from blindsight.federated.sums.generatorend import GENERATOR_ENDS, GeneratorEnd
from blindsight.federated.sums.greeting import greet
from blindsight.federated.sums.messages import Letters, Opening, RunTermsMessage, Step
from blindsight.federated.sums.runterms import RunTerms
from blindsight.federated.sums.userdesk import ENROLMENT, SETUP
from blindsight.learn.dphe.storage import read_state, write_state
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR

ROLE = "key-generator"


@dataclass(frozen=True)
class GeneratorDesk:
    """The desk of the key generator in this home."""

    home: Home
    members: Members
    minimum: int = 3
    insecure: bool = False

    def __post_init__(self) -> None:
        """Refuse a members file that does not name this key generator."""
        self.members.check(self.home.identity.public)
        if self.home.identity.name != KEY_GENERATOR:
            raise PrivacyError(f"the identity in this home is that of {self.home.identity.name!r}.")

    def handle(self, kind: str, parts: tuple[bytes, ...]) -> list[bytes]:
        """Answer the server; what is wrong with a message raises and changes nothing."""
        match kind, parts:
            case "hello", (message,):
                return greet(self.home.identity, ROLE, message)
            case "open", (opening,):
                return [self._open(decode(opening, Opening))]
            case "answer", (message,):
                step = decode(message, Step)
                return [self.end(step.run).answer(step.message)]
        raise MessageError(f"a key generator does not know what to do with {kind!r} of {len(parts)} parts.")

    def end(self, run: str) -> GeneratorEnd:
        """Return the key generator's end of a run that it has opened."""
        path = self.home.run(run) / "terms"
        if not path.exists():
            raise MessageError(f"the key generator has not opened the run {run!r}.")
        return self._end(RunTerms.from_bytes(encode(read_state(path, RunTermsMessage))))

    def _open(self, opening: Opening) -> bytes:
        """Check everybody, make the keys, and return a letter to each party."""
        terms = RunTerms.from_bytes(opening.terms)
        parties = self._parties(opening, terms)
        identity, run = self.home.identity, terms.run
        enrolments = {
            party: identity.read(letter, sender=parties[party], purpose=ENROLMENT, run=run)
            for party, letter in zip(opening.parties, opening.letters, strict=True)
        }
        path = self.home.run(run) / "terms"
        if not path.exists():
            write_state(path, decode(opening.terms, RunTermsMessage))
        elif encode(read_state(path, RunTermsMessage)) != opening.terms:
            raise MessageError("this run has begun on other terms.")
        setups = self._end(terms).open(enrolments)
        letters = (identity.write(setups[party], to=to, purpose=SETUP, run=run) for party, to in parties.items())
        return encode(Letters(tuple(letters)))

    def _parties(self, opening: Opening, terms: RunTerms) -> dict[str, PublicIdentity]:
        """Return everybody's identity, in the order of the opening; nobody may be missing, unknown or forged."""
        if terms.scheme not in GENERATOR_ENDS:
            raise MessageError(f"a run of {terms.scheme} needs no key generator.")
        if terms.insecure and not self.insecure:
            raise PrivacyError("this key generator makes keys of full length only.")
        if terms.minimum < self.minimum:
            raise PrivacyError(f"this key generator opens sums of {self.minimum} or more; got {terms.minimum}.")
        if set(opening.parties) != {AGGREGATOR, *terms.users} or not (
            len(opening.parties) == len(opening.identities) == len(opening.letters) == len(terms.users) + 1
        ):
            raise MessageError("an opening has one identity and one letter for each party.")
        parties = {}
        for name, blob in zip(opening.parties, opening.identities, strict=True):
            identity = PublicIdentity.from_bytes(blob)
            if identity.name != name:
                raise MessageError(f"{identity.name!r} is presented as {name!r}.")
            self.members.check(identity)
            parties[name] = identity
        return parties

    def _end(self, terms: RunTerms) -> GeneratorEnd:
        return GENERATOR_ENDS[terms.scheme](terms, self.home.run(terms.run))
