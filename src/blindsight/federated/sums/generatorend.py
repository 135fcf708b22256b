"""The key generator's end of a run of sums across machines; its secret key never leaves the folder.

For masks, which need no key generator, it is the registrar: it vouches for everybody's signing key and reads nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError
from blindsight.federated.sums.messages import RosterSetup
from blindsight.federated.sums.orders import readable
from blindsight.federated.sums.runterms import RunTerms
from blindsight.federated.sums.signingseed import signing_key
from blindsight.learn.dphe import KeyGenerator
from blindsight.learn.dphe.messages import Enrolment
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.lattice.keygenerator import LatticeKeyGenerator
from blindsight.learn.roster import Roster


class GeneratorEnd(ABC):
    """The key generator's end, whatever the scheme."""

    def __init__(self, terms: RunTerms, folder: Path) -> None:
        self.terms, self.folder = terms, folder

    @abstractmethod
    def check(self, party: str, enrolment: bytes) -> None:
        """Refuse an enrolment that is none, or in another's name, before any is believed."""

    @abstractmethod
    def open(self, enrolments: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the set-up of every user and of the aggregator; asked again, the same."""

    @abstractmethod
    def answer(self, request: bytes) -> bytes:
        """Decrypt the sum that the aggregator asks for."""

    @property
    @abstractmethod
    def log(self) -> tuple[str, ...]:
        """A sentence for every round that was decrypted."""


class PaillierGeneratorEnd(GeneratorEnd):
    """The key generator of DPHE and block DPHE."""

    @cached_property
    def _generator(self) -> KeyGenerator:
        path = self.folder / "generator"
        if not path.exists():
            return KeyGenerator(self.terms.paillier, path=path)
        generator = KeyGenerator.load(path)
        if generator.terms != self.terms.paillier:
            raise MessageError("this run has begun on other terms.")
        return generator

    def check(self, party: str, enrolment: bytes) -> None:
        """Refuse a user who enrols as somebody else; the aggregator does not sign and has nothing to say."""
        if party == AGGREGATOR:
            return
        message = decode(enrolment, Enrolment)
        if message.user != party or len(message.user_key) != 32:
            raise MessageError(f"{party!r} does not enrol as itself, with a key of 32 bytes.")

    def open(self, enrolments: Mapping[str, bytes]) -> dict[str, bytes]:
        """Enrol all users and return keys and permutations."""
        for user in self.terms.users:
            self._generator.enrol(enrolments[user])
        return self._generator.setup()

    def answer(self, request: bytes) -> bytes:
        """Decrypt and reorder a sum."""
        return self._generator.answer(request)

    @property
    def log(self) -> tuple[str, ...]:
        return tuple(map(readable, self._generator.log))


class RosterEnd(GeneratorEnd):
    """The registrar of masks."""

    def check(self, party: str, enrolment: bytes) -> None:
        """Refuse what cannot be a key."""
        if len(enrolment) != 32:
            raise MessageError(f"the key that verifies the signatures of {party!r} has 32 bytes.")

    def open(self, enrolments: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the roster, to everyone."""
        roster = self._roster(enrolments)
        setup = encode(RosterSetup(roster.to_bytes(), self._setup(roster)))
        return dict.fromkeys((*self.terms.users, AGGREGATOR), setup)

    def _roster(self, enrolments: Mapping[str, bytes]) -> Roster:
        return Roster(self.terms.sums, {party: enrolments[party] for party in (*self.terms.users, AGGREGATOR)})

    def _setup(self, roster: Roster) -> bytes:
        return b""

    def answer(self, request: bytes) -> bytes:
        """Refuse: nobody decrypts."""
        raise MessageError(f"nothing is decrypted in a run of {self.terms.scheme}.")

    @property
    def log(self) -> tuple[str, ...]:
        """Nothing is ever decrypted."""
        return ()


class LatticeGeneratorEnd(RosterEnd):
    """The key generator of BFV."""

    @property
    def _path(self) -> Path:
        return self.folder / "generator"

    def _roster(self, enrolments: Mapping[str, bytes]) -> Roster:
        own = signing_key(self.folder / "signing").public
        return Roster(self.terms.sums, {**super()._roster(enrolments).keys, KEY_GENERATOR: own})

    def _setup(self, roster: Roster) -> bytes:
        if self._path.exists():
            generator = LatticeKeyGenerator.load(self._path)
            if generator.roster.digest != roster.digest:
                raise MessageError("this run has begun with other parties or keys.")
        else:
            generator = LatticeKeyGenerator(roster, signing_key(self.folder / "signing"), path=self._path)
        return generator.setup()

    def answer(self, request: bytes) -> bytes:
        """Decrypt a sum."""
        return LatticeKeyGenerator.load(self._path).answer(request)

    @property
    def log(self) -> tuple[str, ...]:
        return tuple(map(readable, LatticeKeyGenerator.load(self._path).log))


GENERATOR_ENDS: dict[str, type[GeneratorEnd]] = {
    "dphe": PaillierGeneratorEnd,
    "block-dphe": PaillierGeneratorEnd,
    "bfv": LatticeGeneratorEnd,
    "masks": RosterEnd,
}
