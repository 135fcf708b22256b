"""The server of a run across machines: it sets everybody up, plays rounds over the engine of `sums`, keeps what came.

*The guarantee.* What is added up are the exact integers of those whose contributions counted, and a round is opened at
most once (`sums.engine`, `sums.roles`), whatever is lost, doubled, late, forged or garbage on the way, and whichever
party is killed. A learning round is a round of the engine: one with too few members is begun again under the same
number, a server that was killed goes on with it, and a round that has a sum keeps it. Only where the key generator has
used up a round, because a sum was forged, is it played again under the next number, with a new key.

Errors from the network are unsigned: people are told, and to the protocol they are like a lost message. What the key
generator refuses comes sealed.

*How a run begins.* Members are waited for and enrol, the key generator sets the run up, and its sealed set-ups go out
with the first calls. Members that refuse the terms or do not answer are left out, and the rest begin again under
another name: keys are made only for those who take part. Of a plain run the server is itself the registrar.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from blindsight.crypto.wire import Message, decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.federated.identity import KeyStore, PublicIdentity, Text, verify_signed
from blindsight.federated.node import (
    ENROLMENT,
    FORGOTTEN,
    REGISTRATION,
    SETUP,
    Note,
    Registration,
    RunRefusal,
    Setups,
    lesson,
)
from blindsight.files import Arrays, atomic_writer, storage_errors
from blindsight.rounds import MIN_MEMBERS, RoundSum, Task
from blindsight.rounds.member import Array
from blindsight.statement import PrivacyStatement
from blindsight.sums import (
    Aggregator,
    Engine,
    KeyGenerator,
    Patience,
    RefusedError,
    Terms,
    UnansweredError,
    statement,
)
from blindsight.sums.engine import Parts, Response, Transport, ask_generator
from blindsight.sums.messages import Enrolment, model_digest, read_state, write_state
from blindsight.sums.roles import Total, read_answer
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

MakeTerms = Callable[[str, tuple[str, ...]], Terms]

_POLL_SECONDS = 0.5
_SILENT = "no contribution of it came in time."


class IdentifyingTransport(Transport, Protocol):
    """A transport that knows who its parties are (`flower.transport`)."""

    def identities(self) -> Mapping[str, PublicIdentity]: ...

    def complaints(self) -> str: ...


# What the server keeps of a run


class _RunState(Message, name="federated/run.2"):
    terms: bytes
    generator: bytes
    registration: bytes
    setups: tuple[bytes, ...]


class _Progress(Message, name="federated/progress.2"):
    round: int
    number: int
    open: bool
    names: tuple[str, ...]
    counted: tuple[str, ...]


class _Label(Message, name="federated/label.2"):
    label: Text
    seed: int


@dataclass(eq=False)
class RunStore:
    """What the server keeps of one run: terms, sealed set-ups, where it stands, and the signed answers of rounds.

    `registration` is what the key generator was told, to ask it again; there is none in a plain run. Learning round
    `round` is played under the engine's `number`, `open` until it has a sum; `counted` tells by member the number of
    the last round whose sum holds its contribution.
    """

    store: KeyStore
    terms: Terms
    setups: dict[str, bytes]
    generator: PublicIdentity | None = None
    registration: bytes = b""
    round: int = 0
    number: int = 0
    open: bool = False
    counted: dict[str, int] = field(default_factory=dict)

    @classmethod
    def load(cls, store: KeyStore, folder: Path) -> "RunStore":
        state = read_state(folder / "run", _RunState)
        terms = Terms.from_bytes(state.terms)
        setups = dict(zip(terms.members, state.setups, strict=True))
        generator = PublicIdentity.from_bytes(state.generator) if state.generator else None
        run = cls(store, terms, setups, generator, state.registration)
        if (folder / "progress").exists():
            kept = read_state(folder / "progress", _Progress)
            run.round, run.number, run.open = kept.round, kept.number, kept.open
            run.counted = dict(zip(kept.names, map(int, kept.counted), strict=True))
        return run

    @property
    def folder(self) -> Path:
        return self.store.folder(self.terms.run)

    def save(self) -> None:
        """Write the run to disk; set-ups may replace earlier ones."""
        generator = b"" if self.generator is None else self.generator.to_bytes()
        setups = tuple(self.setups[name] for name in self.terms.members)
        write_state(self.folder / "run", _RunState(self.terms.to_bytes(), generator, self.registration, setups))

    def save_progress(self) -> None:
        names, numbers = tuple(self.counted), tuple(map(str, self.counted.values()))
        write_state(self.folder / "progress", _Progress(self.round, self.number, self.open, names, numbers))

    def close_round(self, answer: bytes, members: Sequence[str]) -> None:
        """Keep the answer of the present round: from now on it has a sum, which members will read later."""
        with atomic_writer(self._answer_path(self.number), private=True) as stream:
            stream.write(answer)
        self.open = False
        self.counted |= dict.fromkeys(members, self.number)
        self.save_progress()
        needed = {self._answer_path(number) for number in (self.number, *self.counted.values())}
        with storage_errors("clean", self.folder):
            for path in set(self.folder.glob("answer-*")) - needed:
                path.unlink()

    def has_sum(self, round: int) -> bool:
        return self.round == round and self._answer_path(self.number).exists()

    def answer(self, number: int) -> bytes:
        path = self._answer_path(number)
        with storage_errors("read", path):
            return path.read_bytes()

    def label(self, label: str, *, seed: int) -> None:
        write_state(self.folder / "label", _Label(label, seed))

    def _answer_path(self, number: int) -> Path:
        return self.folder / f"answer-{number}"


def load_run(store: KeyStore, label: str, *, seed: int) -> RunStore | None:
    """Return the run that this server has set up before under this label and seed; None if it has none."""
    for path in sorted((store.path / "runs").glob("[0-9a-f]*/label")):
        kept = read_state(path, _Label)
        if kept.label == label and kept.seed != seed:
            raise InputError(
                f"the run {label!r} began with seed {kept.seed}; got {seed}. Give the same, or another label."
            )
        if kept.label == label:
            return RunStore.load(store, path.parent)
    return None


# How a run begins


def wait_for_members(
    transport: IdentifyingTransport, *, wanted: int, seconds: float, keyed: bool = True
) -> tuple[str, ...]:
    """Wait until `wanted` members and the key generator are there; with fewer after so many seconds, it raises."""
    until = time.monotonic() + seconds
    while True:
        here = transport.identities()
        members = _members(here)
        if len(members) >= wanted and (KEY_GENERATOR in here or not keyed):
            return members
        if time.monotonic() > until:
            missing = "" if KEY_GENERATOR in here or not keyed else " The key generator is not there."
            raise PrivacyError(
                f"{len(members)} of {wanted} members are there after {seconds:g} seconds.{missing}"
                f"{transport.complaints()}"
            )
        time.sleep(min(_POLL_SECONDS, seconds))


def await_and_set_up(
    store: KeyStore,
    transport: IdentifyingTransport,
    make_terms: MakeTerms,
    patience: Patience,
    *,
    wanted: int,
    seconds: float,
    keyed: bool,
    warn: Callable[[str], object],
) -> RunStore:
    """Wait for members and set up a run with those who agree; `warn` is told of everybody who does not take part."""
    wait_for_members(transport, wanted=wanted, seconds=seconds, keyed=keyed)
    if complaints := transport.complaints():
        warn(f"Not let in:{complaints}")
    run, refused = set_up(store, transport, transport.identities(), make_terms, patience)
    for name, sentence in sorted(refused.items()):
        warn(f"{name} does not take part: {sentence}")
    return run


def set_up(
    store: KeyStore,
    transport: Transport,
    identities: Mapping[str, PublicIdentity],
    make_terms: MakeTerms,
    patience: Patience,
) -> tuple[RunStore, dict[str, str]]:
    """Set up a run with those who agree; return it, and why others do not take part."""
    refused: dict[str, str] = {}
    members = _members(identities)
    while len(members) >= MIN_MEMBERS:
        try:
            terms = make_terms(secrets.token_hex(8), members)
        except InputError as error:
            raise InputError(f"{len(members)} members cannot begin a run: {error}{_reasons(refused)}") from None
        generator = identities.get(KEY_GENERATOR) if terms.traits.hides else None
        if generator is None and terms.traits.hides:
            raise PrivacyError(f"a run of {terms.scheme} needs the key generator, which is not there.")
        shown = b"" if generator is None else generator.to_bytes()
        enrolments, complaints = _enrol(transport, terms, shown, patience)
        if not complaints:
            run, aggregator = RunStore(store, terms, {}, generator), Aggregator(terms, path=_role(store, terms))
            if generator is None:
                complaints = _register_here(run, aggregator, enrolments)
            else:
                complaints = _register(run, transport, aggregator, identities, enrolments, patience)
            if not complaints:
                return run, refused
        refused |= complaints
        members = tuple(name for name in members if name not in complaints)
    raise PrivacyError(f"{len(members)} members take part; a run needs {MIN_MEMBERS}.{_reasons(refused)}")


def _members(names: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(sorted(names.keys() - {AGGREGATOR, KEY_GENERATOR}))


def _role(store: KeyStore, terms: Terms) -> Path:
    return store.run(terms.run) / "aggregator"


def _reasons(refused: Mapping[str, str]) -> str:
    return "".join(f" {name}: {sentence}" for name, sentence in sorted(refused.items()))


def _enrol(
    transport: Transport, terms: Terms, generator: bytes, patience: Patience
) -> tuple[dict[str, bytes], dict[str, str]]:
    tickets = {transport.send(name, "enrol", (terms.to_bytes(), generator)): name for name in terms.members}
    enrolments, complaints = {}, dict.fromkeys(terms.members, "it did not answer in time.")
    for ticket, response in transport.collect(tickets, seconds=patience.step):
        name = tickets[ticket]
        if len(response.parts) == 1:
            enrolments[name] = response.parts[0]
            complaints.pop(name, None)
        elif name in complaints:
            complaints[name] = response.error or "it answered something that is no enrolment."
    return enrolments, complaints


def _register_here(run: RunStore, aggregator: Aggregator, enrolments: Mapping[str, bytes]) -> dict[str, str]:
    """Be the registrar of a plain run: nobody else vouches for anybody's key. Return why members are refused."""
    registrar, refused = KeyGenerator(run.terms), {}
    registrar.enrol(aggregator.enrolment())
    for name, enrolment in enrolments.items():
        try:
            if decode(enrolment, Enrolment, max_bytes=4096).party != name:
                raise MessageError(f"{name!r} sends an enrolment that is not its own.")
            registrar.enrol(enrolment)
        except (MessageError, PrivacyError) as error:
            refused[name] = str(error)
    if not refused:
        run.setups = registrar.setup()
        aggregator.accept(run.setups.pop(AGGREGATOR))
        run.save()
    return refused


def _register(
    run: RunStore,
    transport: Transport,
    aggregator: Aggregator,
    identities: Mapping[str, PublicIdentity],
    enrolments: Mapping[str, bytes],
    patience: Patience,
) -> dict[str, str]:
    terms, own = run.terms, run.store.identity
    sealed = own.seal(aggregator.enrolment(), to=identities[KEY_GENERATOR], purpose=ENROLMENT, run=terms.run)
    shown = (own.public, *(identities[name] for name in terms.members))
    registration = Registration(
        terms.to_bytes(),
        (AGGREGATOR, *terms.members),
        tuple(identity.to_bytes() for identity in shown),
        (sealed, *(enrolments[name] for name in terms.members)),
    )
    run.registration = encode(registration)
    answer = _ask_to_register(run, aggregator, transport, patience)
    if answer is None:
        return {}
    refused = dict(zip(answer.parties, answer.sentences, strict=False))
    if not refused or not set(refused) <= set(terms.members):
        raise PrivacyError(f"the key generator does not set up the run: {' '.join(answer.sentences)}")
    return refused


def _ask_to_register(
    run: RunStore, aggregator: Aggregator, transport: Transport, patience: Patience
) -> RunRefusal | None:
    assert run.generator is not None
    generator, terms, unseal = run.generator, run.terms, run.store.identity.unseal

    def read(sealed: bytes) -> Message:
        answer: Message = decode(
            unseal(sealed, sender=generator, purpose=REGISTRATION, run=terms.run), *(Setups, RunRefusal)
        )
        if isinstance(answer, Setups) and len(answer.setups) != len(terms.members) + 1:
            raise MessageError("it has set up others.")
        return answer

    answer = ask_generator(transport, patience, "register", (run.registration,), read, "set up the run")
    if isinstance(answer, RunRefusal):
        return answer
    assert isinstance(answer, Setups)
    setup = unseal(answer.setups[0], sender=generator, purpose=SETUP, run=terms.run)
    run.setups = dict(zip(terms.members, answer.setups[1:], strict=True))
    run.save()  # before the role goes on with a key that members do not have
    aggregator.accept(setup)
    return None


# Rounds


class LostRunError(RefusedError):
    """The key generator says that it has no such run: none of its rounds will ever be opened again."""


class RemoteSums(Engine):
    """The sums of one run that has been set up (`set_up`), over members elsewhere: a backend of `rounds.Run`.

    The engine, with what it keeps on disk. `round` pulls a round to its end; a Flower strategy pushes one by `begin`,
    `receive` and `finish`.
    """

    renews = True

    def __init__(self, run: RunStore, transport: Transport, patience: Patience, task: Task) -> None:
        """Go on where the run stands; members get the task with their set-up."""
        if task.digest != run.terms.config:
            raise InputError("this run began with another task. Give the same settings and data, or another label.")
        role = Aggregator.load(_role(run.store, run.terms))
        super().__init__(role, transport, patience, prefix=(run.terms.run.encode(),))
        self.run, self.terms, self.task = run, run.terms, task
        self._ready: set[str] = set()
        self._told: set[str] = set()
        self._briefs: dict[int, bytes] = {}

    def begin(self, round: int, payload: Sequence[bytes] = ()) -> dict[str, Parts]:
        self._told = set()
        return super().begin(self._number(round, payload), payload)

    def receive(self, member: str, response: Response) -> None:
        """Take in what a member responded; one that does so properly has its set-up."""
        super().receive(member, response)
        if member not in self.refused:
            self._ready.add(member)

    def finish(self) -> tuple[bytes, Total]:
        """End the round, and keep its sum; where nothing of it will ever be opened, `begin` the next."""
        try:
            answer, total = super().finish()
        except RefusedError as error:
            if error.renewed:
                self._renew()
            self.run.open = False
            self.run.save_progress()
            raise
        self.run.close_round(answer, total.members)
        return answer, total

    def read(self, answer: bytes) -> tuple[bytes, Total]:
        """Read the key generator's answer; it may have signed that it has no such run."""
        try:
            return super().read(answer)
        except MessageError:
            if self.run.generator is None:
                raise
            if verify_signed(answer, self.run.generator, purpose=FORGOTTEN) != self.prefix[0]:
                raise
        raise LostRunError(
            "the key generator has nothing of this run: its disk was lost, or it was told to forget. What was learned "
            "so far stays; begin another run."
        )

    def round(self, round: int, shared: Array) -> RoundSum:
        """Let members learn from the shared model, and return their sum.

        A round that was played before, by a server that was killed since, has the same sum.
        """
        begun = time.monotonic()
        if self.run.has_sum(round):
            answer = self.run.answer(self.run.number)
            message, sums = read_answer(self.aggregator.roster, answer, self.run.number)
            self.run.close_round(answer, message.members)
            total = Total(self.run.number, message.members, sums, self.terms.values(sums))
        else:
            try:
                total = self.play(round, lesson(shared))[1]
            except RefusedError:
                raise
            except PrivacyError as error:
                raise PrivacyError(f"{error}{_reasons(self.refused)}") from None
        return replace(self.sum_of(total), seconds={"round": time.monotonic() - begun})

    def sum_of(self, total: Total) -> RoundSum:
        """Return a sum as whole vectors, and why members that were asked are not in it."""
        support = self.terms.support(total.round)
        asked = self.terms.sampled(total.round)
        return RoundSum(
            round=self.run.round,
            contributors=total.members,
            total=support.scatter(total.integers),
            values=support.scatter(total.values),
            missing={name: self.refused.get(name, _SILENT) for name in asked if name not in total.members},
        )

    def state(self) -> Arrays:
        """Return nothing: members keep their own."""
        return {}

    def restore(self, state: Arrays) -> None:
        """Do nothing: members keep their own."""

    def statement(self) -> PrivacyStatement:
        """Return what one sum protects, and what the machines between add."""
        return statement_of(self.terms)

    def note(self, member: str) -> bytes:
        """Return what a member is told: the answers that it may not have seen, once in an attempt, and its set-up."""
        answers = () if member in self._told else self._unseen(member)
        self._told.add(member)
        setup = b"" if member in self._ready else self.run.setups[member]
        if not answers and not setup:
            return b""
        return encode(Note(answers, setup, self.task.to_bytes() if setup else b""))

    def _number(self, round: int, payload: Sequence[bytes]) -> int:
        """Return the number under which the engine plays a learning round, which is on disk before anybody hears it."""
        now, role = self.run, self.aggregator
        if round < now.round:
            raise InputError(f"the run is at round {now.round}; there is no way back to round {round}.")
        if now.has_sum(round):
            raise InputError(f"round {round} has its sum already. Play the next.")
        begun = role.round == now.number
        goes_on = now.open and now.round == round and now.number > role.void
        if not goes_on or (begun and role.model != model_digest(payload)):
            now.round, now.number, now.open = round, max(now.number, role.round) + 1, True
            now.save_progress()
        return now.number

    def _unseen(self, name: str) -> tuple[bytes, ...]:
        """Return the answers of the last round that holds a member's contribution, and of the last that was played."""
        counted = self.run.counted
        numbers = {counted.get(name, -1), max(counted.values(), default=-1)} - {-1}
        for number in numbers - self._briefs.keys():
            self._briefs[number] = self.aggregator.brief(self.run.answer(number))
        self._briefs = {number: brief for number, brief in self._briefs.items() if number in {*counted.values()}}
        return tuple(self._briefs[number] for number in sorted(numbers))

    def _renew(self) -> None:
        """Get everybody the key that replaces one that was used up; asked again, it is the same."""
        before = self.aggregator.roster.generation
        if refusal := _ask_to_register(self.run, self.aggregator, self.transport, self.patience):
            raise PrivacyError(f"the key generator gives no new key: {' '.join(refusal.sentences)}")
        if self.aggregator.roster.generation == before:
            raise UnansweredError(
                "what came as the key generator's new set-up is the old one; it is to be asked again."
            )
        self._ready.clear()


# What a run protects


def statement_of(terms: Terms) -> PrivacyStatement:
    """Return the statement of one sum on these terms: that of the scheme, and what the machines between add."""
    said = statement(terms)
    operator = "what the aggregator sees, and the addresses and times of all nodes"
    also_sees = {"operator of the SuperLink": operator}
    also_assumed: tuple[str, ...] = (_APP,)
    if terms.traits.hides:  # else there is no key generator, and nothing is sealed
        also_sees["operator of the SuperLink"] += "; sealed messages between members and key generator pass unread"
        also_assumed = (*_HIDDEN, _APP)
    if terms.traits.threshold:
        also_sees[KEY_GENERATOR] = "who takes part, and the keys that verify their signatures: it is the registrar"
        also_assumed = (_REGISTRAR, *also_assumed)
    return replace(said, who_sees={**said.who_sees, **also_sees}, assumptions=(*said.assumptions, *also_assumed))


_APP = "nodes run the app they mean to run: Flower's SuperLink sends the app's code to the nodes"
_HIDDEN = (
    "fingerprints were compared out of band: members know the key generator's, it knows everybody's",
    "the server does not begin further runs, with other members, in order to subtract sums from each other: a member "
    "learns from a model once in a run, not over all runs",
)
_REGISTRAR = (
    "no collusion of key generator and aggregator: the key generator is the registrar, whose word everybody takes for "
    "everybody's keys, and together they could put their own in place of them and read every update"
)
