"""The key generator's desk: it opens runs for members it can name, and decrypts one sum a round for each.

It trusts the server with nothing but to have added what the receipts name: it decrypts the vector that comes with
valid receipts of enough users, and cannot see what was added up in it. Every party's keys must have the fingerprint
that the members file says, enrolments are letters that the server cannot write, and set-ups are letters that it cannot
read, in which it also vouches for the aggregator.
"""

from dataclasses import dataclass

from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.federated.home import Home
from blindsight.federated.identity import PublicIdentity
from blindsight.federated.members import Members
from blindsight.federated.sums.generatorend import GENERATOR_ENDS, GeneratorEnd
from blindsight.federated.sums.greeting import greet
from blindsight.federated.sums.messages import Enrolment, Letters, Opening, Refusal, RunTermsMessage, SetUp, Step
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

    def greet(self, parts: tuple[bytes, ...], node: int) -> list[bytes]:
        """Answer the server's hello to the node that this is."""
        return greet(self.home.identity, ROLE, parts, node)

    def handle(self, kind: str, parts: tuple[bytes, ...]) -> list[bytes]:
        """Answer the server; what is wrong with a message raises and changes nothing."""
        match kind, parts:
            case "open", (opening,):
                return [self._open(decode(opening, Opening))]
            case "answer", (message,):
                step = decode(message, Step)
                return [self.end(step.run).answer(step.message)]
        raise MessageError(f"a key generator does not know what to do with {kind!r} of {len(parts)} parts.")

    def end(self, run: str) -> GeneratorEnd:
        """Return the key generator's end of a run that it has opened."""
        path = self.home.folder(run) / "terms"
        if not path.exists():
            raise MessageError(f"the key generator has not opened the run {run!r}.")
        return self._end(RunTerms.from_bytes(encode(read_state(path, RunTermsMessage))))

    def _open(self, opening: Opening) -> bytes:
        """Check everybody, make the keys, and return a letter to each party; or say who cannot take part."""
        terms = RunTerms.from_bytes(opening.terms)
        self._check(opening, terms)
        parties, enrolments, refused = {}, {}, {}
        for name, identity, letter in zip(opening.parties, opening.identities, opening.letters, strict=True):
            try:
                parties[name] = self._member(name, identity)
                enrolments[name] = self._enrolment(letter, parties[name], terms)
            except (MessageError, PrivacyError) as error:
                refused[name] = str(error)
        if refused:
            return encode(Refusal(tuple(refused), tuple(refused.values())))
        self._keep_terms(terms)
        setups, aggregator = self._end(terms).open(enrolments), parties[AGGREGATOR].to_bytes()
        return encode(
            Letters(tuple(self._letter(SetUp(aggregator, setups[name]), to, terms) for name, to in parties.items()))
        )

    def _letter(self, setup: SetUp, to: PublicIdentity, terms: RunTerms) -> bytes:
        return self.home.identity.write(encode(setup), to=to, purpose=SETUP, run=terms.run)

    def _check(self, opening: Opening, terms: RunTerms) -> None:
        """Refuse an opening on terms that protect too little, or in which somebody is missing."""
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

    def _member(self, name: str, blob: bytes) -> PublicIdentity:
        identity = PublicIdentity.from_bytes(blob)
        if identity.name != name:
            raise MessageError(f"{identity.name!r} is presented as {name!r}.")
        self.members.check(identity)
        return identity

    def _enrolment(self, letter: bytes, sender: PublicIdentity, terms: RunTerms) -> bytes:
        """Return what a member wrote for the scheme, if it agreed to these terms."""
        body = self.home.identity.read(letter, sender=sender, purpose=ENROLMENT, run=terms.run)
        enrolment = decode(body, Enrolment)
        if enrolment.terms != terms.digest:
            raise PrivacyError(f"{sender.name!r} agreed to other terms than the key generator is asked for.")
        self._end(terms).check(sender.name, enrolment.content)
        return enrolment.content

    def _keep_terms(self, terms: RunTerms) -> None:
        path = self.home.run(terms.run) / "terms"
        if not path.exists():
            write_state(path, decode(terms.to_bytes(), RunTermsMessage))
        elif encode(read_state(path, RunTermsMessage)) != terms.to_bytes():
            raise MessageError("this run has begun on other terms.")

    def _end(self, terms: RunTerms) -> GeneratorEnd:
        return GENERATOR_ENDS[terms.scheme](terms, self.home.folder(terms.run))
