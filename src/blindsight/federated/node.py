"""What a node does: a member's, and the key generator's; one message in, one answer out.

A `MemberNode` or `KeyGeneratorNode` is made for every message from what lies in the party's key store, so a node may be
killed between any two.

*What a member insists on*, whatever the server proposes: the key generator whose fingerprint it was told out of band;
its own quorum of members in a sum, also at every position of a sparse sum; one of the schemes it accepts; keys of full
length; the task whose digest is in the terms, under terms that carry its noise (`rounds.Task.check`); and calls signed
by the aggregator that the key generator vouches for (`sums.roles`). In a plain run nobody vouches for anybody: it
follows the aggregator that set it up. And it learns under the `settings` with which it joined alone: what the carrier,
and not the aggregator, tells its app. Members send them to the key generator, which sets up a run for those with the
same settings: nobody is alone with its own.

*Nothing that it learned is lost on the way.* The member of a run is the same object as in one process
(`rounds.Member`), with its memory on disk: an update is there before it leaves, and stays until the signed answer of
its round tells what became of it. A call to a round that has begun gets the same update again.

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

A member's set-up and the task travel in the note of the first call to it, and are read before the call is believed: the
set-up is sealed by the key generator, and the terms hold the digest of the task.
"""

import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.federated.identity import (
    GENERATOR_ROLE,
    MEMBER_ROLE,
    KeyStore,
    Members,
    PublicIdentity,
    check_fingerprint,
)
from blindsight.files import atomic_writer, pack_arrays, storage_errors, unpack_arrays
from blindsight.rounds import MIN_MEMBERS, Member, Memory, Task, Update
from blindsight.rounds.member import Array, member_seed
from blindsight.rounds.run import Load
from blindsight.sums import HIDING_SCHEMES, KeyGenerator, Terms
from blindsight.sums import Member as MemberRole
from blindsight.sums.dphe import layout_of
from blindsight.sums.generator import Partitions
from blindsight.sums.messages import Answer, Call, Enrolment, model_digest, read_state, weights_digest, write_state
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

ENROLMENT, SETUP, REGISTRATION, FORGOTTEN = "enrolment", "set-up", "registration", "forgotten"
STEPS = ("advertise", "share", "consistency", "unmask")

Learn = Callable[[Task, Terms, int, Memory], Update]
"""Learn from the member's data, given the task and terms of the run, the round and the member's memory."""

_MOST_CHARACTERS = 150


def lesson(shared: Array) -> tuple[bytes, bytes]:
    """Return what members learn from in a round: the digest of the shared model, and the model, written in one way."""
    return weights_digest([shared]), pack_arrays({"shared": shared.astype("<f8") + 0.0})


class Note(Message, name="federated/note.3"):
    """What a call tells one member: signed answers that it has not seen, its sealed set-up and the task."""

    answers: tuple[bytes, ...] = ()
    setup: bytes = b""
    task: bytes = b""


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
class MemberNode:
    """The node of the member in this key store. `key_generator` is the fingerprint of the one that it trusts.

    With `max_epsilon` it takes part in runs alone that prove an epsilon of at most this much, by noise in their sums.
    """

    role: ClassVar[str] = MEMBER_ROLE
    store: KeyStore
    key_generator: str
    quorum: int = MIN_MEMBERS
    schemes: tuple[str, ...] = HIDING_SCHEMES
    insecure: bool = False
    minimum_per_position: int = 1
    max_epsilon: float | None = None
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
                role, _ = self._called(_text(run), kind, message)
                return [role.answer(message)]
        raise MessageError(f"a member does not know what to do with {kind!r} of {len(parts)} parts.")

    def learn(self, parts: Sequence[bytes], load: Load) -> bytes:
        """Do a member's part of a round of a task that needs no app: learn from what `load` returns."""
        if len(parts) != 4:
            raise MessageError("a call to learn has four parts.")

        def update(task: Task, terms: Terms, round: int, memory: Memory) -> Update:
            shared = unpack_arrays(parts[3]).get("shared", np.full(1, np.nan))
            if shared.dtype.kind != "f" or not np.isfinite(shared).all() or lesson(shared) != (parts[2], parts[3]):
                raise MessageError("the shared model is not finite, or not the one that the call is for.")
            seed = member_seed(task.seed, round, terms.members.index(self.name))
            return task.learner().update(_fitting(load(), task), shared, memory, seed)

        return self.contribute(parts, update)

    def contribute(self, parts: Sequence[bytes], learn: Learn) -> bytes:
        """Settle what is pending, learn, and return the signed reply to a call (its parts: see the module)."""
        if len(parts) < 2:
            raise MessageError("a call to contribute has two parts at least.")
        run = _text(parts[0])
        role, call = self._called(run, CONTRIBUTE, parts[1])
        self._check_settings(run)
        if not hmac.compare_digest(model_digest(parts[2:]), call.model):
            raise MessageError("the aggregator has signed another model, or other parts beside it.")
        if not hmac.compare_digest(model_digest(parts[2:3]), call.base):
            raise MessageError("the aggregator says that it is another model that is learned from.")
        task, terms = self.task(run), role.terms
        self._check_task(task, terms, call.round)
        member = self.member(terms)
        return role.answer(parts[1], member.contribute(call.round, lambda held: learn(task, terms, call.round, held)))

    def sum_role(self, run: str) -> MemberRole:
        """Return this member's role in the sums of a run."""
        self._joined(run)
        return MemberRole.load(self._path(run))

    def member(self, terms: Terms) -> Member:
        """Return this member of a run, with its memory."""
        return Member(self.name, terms, path=self.store.folder(terms.run) / "memory.npz")

    def task(self, run: str) -> Task:
        path = self.store.folder(run) / "task"
        if not path.exists():
            raise MessageError(f"{self.name!r} is not set up yet for the run {run!r}.")
        with storage_errors("read", path):
            return Task.from_bytes(path.read_bytes())

    def _called(self, run: str, kind: str, message: bytes) -> tuple[MemberRole, Call]:
        """Return the role, and a call that it would answer; what the note in it tells is taken in."""
        self._set_up(run, _note(decode(decode(message, Signed).body, Call)))
        if not (self.store.folder(run) / "task").exists():
            raise MessageError(f"{self.name!r} is not set up yet for the run {run!r}.")
        role = self.sum_role(run)
        _, call = role.roster.open(message, Call, authors=[AGGREGATOR])
        if call.step != kind or call.member not in ("", self.name):
            raise MessageError(f"the call is to {call.step!r} for {call.member!r}; this is {kind!r} of {self.name!r}.")
        self._settle(role, _note(call).answers)
        role.read_call(message)
        return role, call

    def _settle(self, role: MemberRole, answers: Iterable[bytes]) -> None:
        member = self.member(role.terms)
        for answer in answers:
            round = decode(decode(answer, Signed).body, Answer).round  # whether it is signed, the role finds out
            if member.awaits(round):
                member.settle(round, role.settle(answer, round).entered)

    def _enrol(self, proposed: bytes, generator: bytes) -> bytes:
        """Join a run, if its terms are acceptable: return the enrolment for the key generator."""
        terms = Terms.from_bytes(proposed)
        self._check(terms)
        plain = not terms.traits.hides
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
        enrolment = (MemberRole.load(path) if path.exists() else MemberRole(self.name, terms, path=path)).enrolment()
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
        role, setup, path = self.sum_role(run), note.setup, self.store.folder(run) / "task"
        self._check_task(Task.from_bytes(note.task), role.terms)
        if joined.generator:
            sender = self._pinned(joined.generator)
            setup = self.store.identity.unseal(setup, sender=sender, purpose=SETUP, run=run)
        if path.exists():  # this may be a new key: answers under the old one can be read now and never again
            with suppress(MessageError):
                self._settle(role, note.answers)
        role.accept(setup)
        with atomic_writer(path, private=True) as stream:
            stream.write(note.task)

    def _check_task(self, task: Task, terms: Terms, round: int | None = None) -> None:
        """Refuse a task that is not that of the terms, or whose noise proves less than it should under them."""
        task.check(terms, round)
        if self.max_epsilon is None:
            return
        if task.noise is None:
            raise PrivacyError(f"this member takes part with an epsilon of at most {self.max_epsilon:g}; got none.")
        if (epsilon := task.noise.under(terms).epsilon(task.delta)) > self.max_epsilon:
            raise PrivacyError(
                f"this member takes part with an epsilon of at most {self.max_epsilon:g}; the sums of this run prove "
                f"{epsilon:.3g} for a {task.noise.unit}."
            )

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
        _check_terms(terms, self.quorum, self.insecure)

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


def _check_terms(terms: Terms, quorum: int, insecure: bool) -> None:
    """Refuse what neither a member nor a key generator takes part in."""
    if terms.minimum < quorum:
        raise PrivacyError(f"this party takes part in sums of {quorum} or more; got {terms.minimum}.")
    if terms.sparse and layout_of(terms).options.insecure and not insecure:
        raise PrivacyError("this party takes part with keys of full length only.")


@dataclass(frozen=True)
class KeyGeneratorNode:
    """The node of the key generator in this key store."""

    role: ClassVar[str] = GENERATOR_ROLE
    store: KeyStore
    members: Members
    quorum: int = MIN_MEMBERS
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
        if path.exists():
            generator = KeyGenerator.load(path)
        else:
            generator = KeyGenerator(
                terms, partition=self._partition(parties) if terms.traits.cohorts else b"", path=path
            )
        if generator.terms != terms:
            raise MessageError("this run has begun on other terms.")
        for enrolment in enrolments.values():
            generator.enrol(enrolment)
        setups, seal = generator.setup(), self.store.identity.seal
        return Setups(tuple(seal(setups[name], to=to, purpose=SETUP, run=terms.run) for name, to in parties.items()))

    def _partition(self, parties: Mapping[str, PublicIdentity]) -> bytes:
        """Return the seed of who is summed with whom; it outlives every run of this key generator."""
        members = (one.fingerprint.encode() for name, one in parties.items() if name != AGGREGATOR)
        return Partitions(self.store.path / "partitions").seed(members)

    def _check(self, registration: Registration, terms: Terms) -> None:
        if not terms.traits.hides:
            raise MessageError(f"a run of {terms.scheme} sums needs no key generator.")
        _check_terms(terms, self.quorum, self.insecure)
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


def _fitting(data: Any, task: Task) -> Any:
    """Return a member's data; of features unlike the task's the server may read how many columns they have."""
    shape, columns = np.shape(data[0] if isinstance(data, tuple) else data), len(task.arrays["mean"])
    if len(shape) == 2 and shape[1] != columns:
        raise MessageError(f"features must have {columns} columns; got {shape[1]}.")
    return data


def joined_terms(folder: Path) -> Terms:
    return Terms.from_bytes(read_state(folder / "joined", _Joined).terms)


def _note(call: Call) -> Note:
    return decode(call.note, Note) if call.note else Note()


def _text(part: bytes) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError:
        raise MessageError("the name of a run is text.") from None
