"""What a node does: the handler of a member, and that of the key generator; one message in, one answer out.

A handler is made for every message from what lies in the party's key store, so a node may be killed between any two.

*What a member insists on*, whatever the server proposes: the key generator whose fingerprint it was told out of band;
its own minimum of members in a sum, also at every position of a sparse sum; one of the schemes it accepts; keys of full
length; the run config whose digest is in the terms; and calls signed by the aggregator that the key generator vouches
for (`sums.roles`). In a plain run nobody vouches for anybody: it follows the aggregator that set it up. And it learns
under the `settings` with which it joined alone: what the carrier, and not the aggregator, tells its app. Members send
them to the key generator, which sets up a run for those with the same settings: nobody is alone with its own.

*Nothing that it learned is lost on the way.* What did not enter a sum (it did not fit, was rounded off, clipped,
withheld, late or lost) stays in the member's `Memory` and is sent later, as in one process (`learn.rounds`). A proposal
is on disk before it leaves, and stays there until the signed answer of its round tells what became of it. A call to a
round that has begun gets the same proposal again.

*The key generator* knows its members by fingerprint. Enrolments come to it in sealed messages that the server cannot
make; its set-ups and refusals leave in sealed messages that the server cannot read. It opens one checked sum a round
(`sums.roles`).

| message | parts | answer |
| --- | --- | --- |
| hello | `identity.Hello` | who this is, and the proof |
| enrol | terms, the key generator's identity | sealed `sums` enrolment for the key generator, and settings |
| advertise, share, consistency, unmask | run, signed call | signed reply |
| contribute | run, signed call, what is learned from | signed reply |
| register (key generator) | `Registration` | sealed `Setups`, or a `RunRefusal` |
| open (key generator) | run, sealed request | sealed answer; signed, that it has no such run |

A member's set-up travels in the note of the first call to it, and is read before the call is believed: it is sealed by
the key generator, and the terms hold the digest of the config.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import Limit, Message, Secret, decode, encode
from blindsight.errors import CorruptFileError, MessageError, PrivacyError
from blindsight.federated.identity import (
    GENERATOR_ROLE,
    MEMBER_ROLE,
    KeyStore,
    Members,
    PublicIdentity,
    check_fingerprint,
)
from blindsight.files import atomic_writer, read_arrays, storage_errors, write_arrays
from blindsight.learn.rounds import Memory, Proposal, finite, remembered
from blindsight.sums import HIDING_SCHEMES, KeyGenerator, Member, Terms
from blindsight.sums.dphe import layout_of
from blindsight.sums.messages import Answer, Call, Enrolment, model_digest, read_state, write_state
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

ENROLMENT, SETUP, REGISTRATION, FORGOTTEN = "enrolment", "set-up", "registration", "forgotten"
STEPS = ("advertise", "share", "consistency", "unmask")

Propose = Callable[[bytes, int, Memory], Proposal]
"""Learn from the member's data, given the run config, the round and what the member remembers."""

_MEMORY = "blindsight/member-memory.1"
_MOST_CHARACTERS = 150


def config_digest(config: bytes) -> bytes:
    return hashlib.sha256(config).digest()


class Note(Message, name="federated/note.3"):
    """What a call tells one member: signed answers that it has not seen, its sealed set-up and the config."""

    answers: tuple[bytes, ...] = ()
    setup: bytes = b""
    config: bytes = b""


class Settings(Message, name="federated/settings.1"):
    """What a member's app is told besides the aggregator's messages, entry by entry, in order."""

    entries: Annotated[tuple[str, ...], Limit(1 << 16)]


class SettledEnrolment(Message, name="federated/settled-enrolment.1"):
    """A member's enrolment with the settings under which it learns."""

    enrolment: Annotated[bytes, Limit(4096)]
    settings: Annotated[tuple[str, ...], Limit(1 << 16)]


class Registration(Message, name="federated/registration.1"):
    """A run to be set up: its terms, and the identity and sealed enrolment of everyone; the aggregator comes first."""

    terms: bytes
    parties: tuple[str, ...]
    identities: tuple[bytes, ...]
    enrolments: tuple[bytes, ...]


class Setups(Message, name="federated/setups.1"):
    """The key generator's sealed set-ups, in the order of the parties of the `Registration`."""

    setups: tuple[bytes, ...]


class RunRefusal(Message, name="federated/run-refusal.1"):
    """Why the key generator does not set up a run: who is not who it says, or agreed to something else."""

    parties: tuple[str, ...]
    sentences: tuple[str, ...]


class _Joined(Message, name="federated/joined.2"):
    """What a member remembers of a run it takes part in, besides its role's state."""

    terms: bytes
    generator: Annotated[bytes, Limit(4096)]


@dataclass(frozen=True)
class MemberHandler:
    """The handler of the member in this key store. `key_generator` is the fingerprint of the one that it trusts."""

    role: ClassVar[str] = MEMBER_ROLE
    store: KeyStore
    key_generator: str
    minimum: int = 3
    schemes: tuple[str, ...] = HIDING_SCHEMES
    insecure: bool = False
    minimum_per_position: int = 1
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fingerprint(self.key_generator)

    @property
    def name(self) -> str:
        return self.store.identity.name

    def handle(self, kind: str, parts: tuple[bytes, ...]) -> list[bytes]:
        """Answer the server; what is wrong with a message raises and changes nothing."""
        match kind, parts:
            case "enrol", (terms, generator):
                return [self._enrol(terms, generator)]
            case _, (run, message) if kind in STEPS:
                member, _ = self._called(_text(run), kind, message)
                return [member.answer(message)]
        raise MessageError(f"a member does not know what to do with {kind!r} of {len(parts)} parts.")

    def contribute(self, parts: Sequence[bytes], propose: Propose) -> bytes:
        """Settle what is pending, learn, and return the signed reply to a call (its parts: see the module)."""
        if len(parts) < 2:
            raise MessageError("a call to contribute has two parts at least.")
        run = _text(parts[0])
        member, call = self._called(run, CONTRIBUTE, parts[1])
        self._check_settings(run)
        if not hmac.compare_digest(model_digest(parts[2:]), call.model):
            raise MessageError("the aggregator has signed another model, or other parts beside it.")
        if not hmac.compare_digest(model_digest(parts[2:3]), call.base):
            raise MessageError("the aggregator says that it is another model that is learned from.")
        config, memory = self.config(run), self.memory(member.terms)
        proposal = memory.proposal(
            call.round, lambda held: self._proposed(member.terms, propose(config, call.round, held))
        )
        return member.answer(parts[1], member.terms.integers(memory.clipped(proposal, call.round)))

    def member(self, run: str) -> Member:
        self._joined(run)
        return Member.load(self._path(run))

    def memory(self, terms: Terms) -> "MemberMemory":
        return MemberMemory(self.store.folder(terms.run) / "memory.npz", terms)

    def config(self, run: str) -> bytes:
        path = self.store.folder(run) / "config"
        if not path.exists():
            raise MessageError(f"{self.name!r} is not set up yet for the run {run!r}.")
        with storage_errors("read", path):
            return path.read_bytes()

    def _called(self, run: str, kind: str, message: bytes) -> tuple[Member, Call]:
        """Return the role, and a call that it would answer; what the note in it tells is taken in."""
        self._set_up(run, _note(decode(decode(message, Signed).body, Call)))
        self.config(run)
        member = self.member(run)
        _, call = member.roster.open(message, Call, authors=[AGGREGATOR])
        if call.step != kind or call.member not in ("", self.name):
            raise MessageError(f"the call is to {call.step!r} for {call.member!r}; this is {kind!r} of {self.name!r}.")
        self._settle(member, _note(call).answers)
        member.read_call(message)
        return member, call

    def _settle(self, member: Member, answers: Iterable[bytes]) -> None:
        memory = self.memory(member.terms)
        for answer in answers:
            round = decode(decode(answer, Signed).body, Answer).round  # whether it is signed, the role finds out
            if memory.awaits(round):
                memory.settle(round, member.settle(answer, round).entered)

    def _proposed(self, terms: Terms, proposal: Proposal) -> Proposal:
        if finite(proposal).sent.shape != (terms.whole or terms.dimension,):
            raise MessageError(
                f"this run adds vectors of {terms.whole or terms.dimension} numbers; the data of {self.name!r} give "
                f"{proposal.sent.size}. Give it data of the same features and classes as the others'."
            )
        return proposal

    def _enrol(self, proposed: bytes, generator: bytes) -> bytes:
        """Join a run, if its terms are acceptable: return the enrolment for the key generator."""
        terms = Terms.from_bytes(proposed)
        self._check(terms)
        plain = terms.scheme == "plain"
        to = None if plain else self._pinned(generator)
        joined, folder = _Joined(proposed, b"" if plain else generator), self.store.run(terms.run)
        if not (folder / "joined").exists():
            if self.settings:
                write_state(folder / "settings", Settings(self.settings))
            write_state(folder / "joined", joined)
        elif read_state(folder / "joined", _Joined) != joined:
            raise MessageError("this run has begun on other terms.")
        self._check_settings(terms.run)
        path = self._path(terms.run)
        enrolment = (Member.load(path) if path.exists() else Member(self.name, terms, path=path)).enrolment()
        if to is None:
            return enrolment
        if self.settings:
            enrolment = encode(SettledEnrolment(enrolment, self.settings))
        return self.store.identity.seal(enrolment, to=to, purpose=ENROLMENT, run=terms.run)

    def _check_settings(self, run: str) -> None:
        """Refuse to learn under other settings than those with which this member joined the run."""
        path = self.store.folder(run) / "settings"
        joined = read_state(path, Settings).entries if path.exists() else ()
        if self.settings != joined:
            raise PrivacyError(
                f"{self.name!r} joined this run under other settings, and learns under no others. Now: "
                f"{_only(self.settings, joined)}; then: {_only(joined, self.settings)}."
            )

    def _set_up(self, run: str, note: Note) -> None:
        joined = self._joined(run)
        if not note.setup:
            return
        member, setup, path = self.member(run), note.setup, self.store.folder(run) / "config"
        if config_digest(note.config) != member.terms.config:
            raise MessageError("the run config is not the one that was agreed on with the terms of the run.")
        if joined.generator:
            sender = self._pinned(joined.generator)
            setup = self.store.identity.unseal(setup, sender=sender, purpose=SETUP, run=run)
        if path.exists():  # this may be a new key: answers under the old one can be read now and never again
            with suppress(MessageError):
                self._settle(member, note.answers)
        member.accept(setup)
        with atomic_writer(path, private=True) as stream:
            stream.write(note.config)

    def _check(self, terms: Terms) -> None:
        if self.name not in terms.members:
            raise PrivacyError(f"{self.name!r} is not among the members of this run.")
        if terms.scheme not in self.schemes:
            raise PrivacyError(
                f"this member does not take part in {terms.scheme}; it accepts {', '.join(self.schemes)}."
            )
        if terms.sparse and (least := layout_of(terms).minimum_per_position) < self.minimum_per_position:
            raise PrivacyError(
                f"this member takes part where {self.minimum_per_position} or more members change a position before "
                f"its sum is opened; got {least}."
            )
        _check_terms(terms, self.minimum, self.insecure)

    def _pinned(self, generator: bytes) -> PublicIdentity:
        identity = PublicIdentity.from_bytes(generator)
        if identity.fingerprint != self.key_generator:
            raise PrivacyError(
                f"the key generator of this run has the fingerprint {identity.fingerprint}; this member was told to "
                f"trust {self.key_generator} alone. Compare the two with the key generator's owner."
            )
        return identity

    def _joined(self, run: str) -> _Joined:
        path = self.store.folder(run) / "joined"
        if not path.exists():
            raise MessageError(f"{self.name!r} does not take part in the run {run!r}.")
        return read_state(path, _Joined)

    def _path(self, run: str) -> Path:
        return self.store.folder(run) / "member"


def _check_terms(terms: Terms, minimum: int, insecure: bool) -> None:
    """Refuse what neither a member nor a key generator takes part in."""
    if terms.minimum < minimum:
        raise PrivacyError(f"this party takes part in sums of {minimum} or more; got {terms.minimum}.")
    if terms.sparse and layout_of(terms).options.insecure and not insecure:
        raise PrivacyError("this party takes part with keys of full length only.")


class MemberMemory(Secret):
    """What a member has learned and not sent yet; `pending` is the proposal, with its round, of unknown fate."""

    def __init__(self, path: Path, terms: Terms) -> None:
        self._path, self._terms = path, terms
        self.memory, self.pending = Memory(None, None), None
        if path.exists():
            self._load()

    memory: Memory
    pending: tuple[int, Proposal] | None

    def awaits(self, round: int) -> bool:
        return self.pending is not None and self.pending[0] == round

    def proposal(self, round: int, propose: Callable[[Memory], Proposal]) -> Proposal:
        """Return the proposal of a round: the one that was made for it, or else a new one, which is kept."""
        if self.pending is not None and self.pending[0] != round:
            if self.pending[0] > round:
                raise MessageError(f"the call to round {round} comes too late: round {self.pending[0]} has begun.")
            self.settle(self.pending[0], np.zeros(self._terms.dimension, dtype=np.bool_), keep=False)
        if self.pending is None:
            self.pending = round, propose(self.memory)
            self._save()
        return self.pending[1]

    def settle(self, round: int, entered: NDArray[np.bool_], *, keep: bool = True) -> None:
        """Remember what of the pending proposal did not enter the sum of its round."""
        assert self.pending is not None
        proposal = self.pending[1]
        self.memory, self.pending = proposal.memory, None
        if proposal.memory.held is not None:
            support = self._terms.support(round)
            rounded = self._terms.values(self._terms.integers(self.clipped(proposal, round)))
            self.memory = remembered(proposal, support.scatter(rounded), support.scatter(entered.astype(np.int64)) > 0)
        if keep:
            self._save()

    def clipped(self, proposal: Proposal, round: int) -> NDArray[np.float64]:
        """Return what of a proposal can be sent in a round at the fixed point of the run."""
        limit = self._terms.limit
        return np.clip(self._terms.support(round).gather(proposal.sent), -limit, limit)

    def _save(self) -> None:
        document: dict[str, Any] = {"strength": self.memory.strength}
        arrays = {"held": self.memory.held}
        if self.pending is not None:
            round, proposal = self.pending
            document["pending"] = [round, proposal.memory.strength]
            arrays |= {"sent": proposal.sent, "next": proposal.memory.held}
        there = {name: array for name, array in arrays.items() if array is not None}
        write_arrays(self._path, _MEMORY, document, there, private=True)

    def _load(self) -> None:
        document, arrays = read_arrays(self._path, _MEMORY)
        try:
            self.memory = Memory(arrays.get("held"), document["strength"])
            if "pending" in document:
                round, strength = document["pending"]
                self.pending = round, Proposal(arrays["sent"], Memory(arrays.get("next"), strength))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(f"{self._path} does not hold what a member remembers: {error}.") from None


@dataclass(frozen=True)
class GeneratorHandler:
    """The handler of the key generator in this key store."""

    role: ClassVar[str] = GENERATOR_ROLE
    store: KeyStore
    members: Members
    minimum: int = 3
    insecure: bool = False

    def __post_init__(self) -> None:
        self.members.check(self.store.identity.public)
        if self.store.identity.name != KEY_GENERATOR:
            raise PrivacyError(f"the identity in this key store is that of {self.store.identity.name!r}.")

    def handle(self, kind: str, parts: tuple[bytes, ...]) -> list[bytes]:
        match kind, parts:
            case "register", (registration,):
                return [self._register(decode(registration, Registration))]
            case "open", (run, request):
                path = self.store.folder(_text(run)) / "generator"
                if not path.exists():
                    return [self.store.identity.sign(run, purpose=FORGOTTEN)]
                return [KeyGenerator.load(path).answer(request)]
        raise MessageError(f"a key generator does not know what to do with {kind!r} of {len(parts)} parts.")

    def _register(self, registration: Registration) -> bytes:
        """Check everybody, make the keys, and return the sealed set-ups, or why not; both for the aggregator alone.

        Asked again, the set-ups are the same, or those with the key that replaced one that was used up.
        """
        terms = Terms.from_bytes(registration.terms)
        named = dict(zip(registration.parties, registration.identities, strict=False))
        if AGGREGATOR not in named:
            raise MessageError("a registration names the aggregator.")
        aggregator = self._member(AGGREGATOR, named[AGGREGATOR])
        answer: Setups | RunRefusal
        try:
            answer = self._set_up(registration, terms)
        except (MessageError, PrivacyError) as error:
            answer = RunRefusal((), (str(error),))
        return self.store.identity.seal(encode(answer), to=aggregator, purpose=REGISTRATION, run=terms.run)

    def _set_up(self, registration: Registration, terms: Terms) -> Setups | RunRefusal:
        self._check(registration, terms)
        parties: dict[str, PublicIdentity] = {}
        enrolments: dict[str, bytes] = {}
        settings: dict[str, tuple[str, ...]] = {}
        refused: dict[str, str] = {}
        rows = zip(registration.parties, registration.identities, registration.enrolments, strict=True)
        for name, identity, sealed in rows:
            try:
                parties[name] = self._member(name, identity)
                enrolments[name], settings[name] = self._enrolment(sealed, parties[name], terms)
            except (MessageError, PrivacyError) as error:
                refused[name] = str(error)
        settings.pop(AGGREGATOR, None)
        if refused := refused or _outvoted(settings):
            return RunRefusal(tuple(refused), tuple(refused.values()))
        path = self.store.run(terms.run) / "generator"
        generator = KeyGenerator.load(path) if path.exists() else KeyGenerator(terms, path=path)
        if generator.terms != terms:
            raise MessageError("this run has begun on other terms.")
        for enrolment in enrolments.values():
            generator.enrol(enrolment)
        setups, seal = generator.setup(), self.store.identity.seal
        return Setups(tuple(seal(setups[name], to=to, purpose=SETUP, run=terms.run) for name, to in parties.items()))

    def _check(self, registration: Registration, terms: Terms) -> None:
        if terms.scheme == "plain":
            raise MessageError("a run of plain sums needs no key generator.")
        _check_terms(terms, self.minimum, self.insecure)
        lengths = {len(registration.parties), len(registration.identities), len(registration.enrolments)}
        if lengths != {len(terms.members) + 1} or set(registration.parties) != {AGGREGATOR, *terms.members}:
            raise MessageError("a registration has one identity and one enrolment for each party.")

    def _member(self, name: str, blob: bytes) -> PublicIdentity:
        identity = PublicIdentity.from_bytes(blob)
        if identity.name != name:
            raise MessageError(f"{identity.name!r} is presented as {name!r}.")
        self.members.check(identity)
        return identity

    def _enrolment(self, sealed: bytes, sender: PublicIdentity, terms: Terms) -> tuple[bytes, tuple[str, ...]]:
        """Return a party's enrolment, which must be in its own name and for these terms, and its settings."""
        body = self.store.identity.unseal(sealed, sender=sender, purpose=ENROLMENT, run=terms.run)
        settings: tuple[str, ...] = ()
        message: Message = decode(body, *(Enrolment, SettledEnrolment), max_bytes=1 << 17)
        if isinstance(message, SettledEnrolment):
            body, settings = message.enrolment, message.settings
        enrolment = decode(body, Enrolment, max_bytes=4096)
        if enrolment.party != sender.name or len(enrolment.key) != 32:
            raise MessageError(f"{sender.name!r} sends an enrolment that is not its own.")
        if enrolment.terms != terms.digest:
            raise PrivacyError(f"{sender.name!r} agreed to other terms than the key generator is asked for.")
        return body, settings


def _outvoted(settings: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return why members whose settings are not those of most cannot take part with them."""
    most, _ = Counter(settings.values()).most_common(1)[0]
    return {
        name: f"its settings are not those of most members. Its own: {_only(own, most)}; theirs: {_only(most, own)}."
        for name, own in settings.items()
        if own != most
    }


def _only(entries: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Return which entries the others do not have, cut short and without what a terminal might obey."""
    return repr(", ".join(sorted({*entries} - {*others})))[1:-1][:_MOST_CHARACTERS] or "nothing more"


def joined_terms(folder: Path) -> Terms:
    return Terms.from_bytes(read_state(folder / "joined", _Joined).terms)


def _note(call: Call) -> Note:
    return decode(call.note, Note) if call.note else Note()


def _text(part: bytes) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError:
        raise MessageError("the name of a run is text.") from None
