"""The server of a run across machines: it sets everybody up, plays rounds over the engine of `sums`, keeps what came.

*The guarantee.* What is added up are the exact integers of those whose contributions counted, and a round is opened at
most once (`sums.engine`, `sums.roles`), whatever is lost, doubled, late, forged or garbage on the way, and whoever is
killed. A learning round is a round of the engine: one with too few members is begun again under the same number, a
server that was killed goes on with it, and a round that has a sum keeps it. Only where the key generator has used up a
round, because a sum was forged, is it played again under the next number, with a new key.

Nobody signs the errors that come back from the network: they are told to people, and to the protocol they are like a
lost message. What the key generator refuses comes sealed.

*How a run begins.* Members are waited for and enrol, the key generator sets the run up, its sealed set-ups go out.
Whoever refuses the terms or does not answer is left out, and the rest begin again under another name: keys are made for
those who take part and nobody else. Of a plain run the server is itself the registrar.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from blindsight.crypto.wire import Message, decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.federated.identity import KeyStore, PublicIdentity, Text, verify_signed
from blindsight.federated.node import (
    ENROLMENT,
    FORGOTTEN,
    REGISTRATION,
    SETUP,
    STEPS,
    Note,
    Registration,
    RunRefusal,
    Setups,
    config_digest,
)
from blindsight.files import atomic_writer, storage_errors
from blindsight.learn.owners import LEAST_OWNERS
from blindsight.learn.rounds import owner_seed
from blindsight.statement import PrivacyStatement
from blindsight.sums import (
    Aggregator,
    Engine,
    KeyGenerator,
    Patience,
    RefusedError,
    RoundResult,
    Terms,
    UnansweredError,
    statement,
)
from blindsight.sums.costs import Cost
from blindsight.sums.messages import Enrolment, model_digest
from blindsight.sums.roles import Total, read_answer
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.storage import read_state, write_state
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.sums.transport import Response, Transport

MakeTerms = Callable[[str, tuple[str, ...]], Terms]
"""Return the terms of a run with this name and these members."""

_POLL_SECONDS = 0.5


class Reception(Transport, Protocol):
    """A transport that knows who its parties are (`flower.transport`)."""

    def identities(self) -> Mapping[str, PublicIdentity]:
        """Return the members that can be reached now, by name, with the keys they have shown."""
        ...

    def complaints(self) -> str:
        """Say who was not let in, and why."""
        ...


# What the server keeps of a run


class _RunState(Message, name="federated/run.2"):
    terms: bytes
    generator: bytes
    registration: bytes
    setups: tuple[bytes, ...]


class _ProgressState(Message, name="federated/progress.2"):
    round: int
    number: int
    open: bool
    names: tuple[str, ...]
    counted: tuple[str, ...]


@dataclass
class Progress:
    """Where a run stands: learning round `round` is played under the engine's `number`, `open` until it has a sum.

    `counted` tells by member the number of the last round whose sum holds its contribution.
    """

    round: int = 0
    number: int = 0
    open: bool = False
    counted: dict[str, int] = field(default_factory=dict)


class RunStore:
    """What the server keeps of one run: terms, sealed set-ups, where it stands, and the signed answers of rounds.

    `registration` is what the key generator was told, to ask it again; there is none in a plain run.
    """

    def __init__(
        self,
        store: KeyStore,
        terms: Terms,
        setups: dict[str, bytes],
        generator: PublicIdentity | None = None,
        registration: bytes = b"",
    ) -> None:
        """Know what is kept there; `create` and `load` make one."""
        self.folder, self.terms, self.store = store.run(terms.run), terms, store
        self.setups, self.generator, self.registration = setups, generator, registration
        self.progress = Progress()

    @classmethod
    def create(
        cls,
        store: KeyStore,
        terms: Terms,
        setups: dict[str, bytes],
        generator: PublicIdentity | None = None,
        registration: bytes = b"",
    ) -> "RunStore":
        """Keep a run that has been set up."""
        run = cls(store, terms, setups, generator, registration)
        run.keep_setups(setups)
        return run

    @classmethod
    def load(cls, store: KeyStore, name: str) -> "RunStore":
        """Go on with a run."""
        state = read_state(store.folder(name) / "run", _RunState)
        terms = Terms.from_bytes(state.terms)
        setups = dict(zip(terms.members, state.setups, strict=True))
        generator = PublicIdentity.from_bytes(state.generator) if state.generator else None
        run = cls(store, terms, setups, generator, state.registration)
        if run._progress_path.exists():
            kept = read_state(run._progress_path, _ProgressState)
            counted = dict(zip(kept.names, map(int, kept.counted), strict=True))
            run.progress = Progress(kept.round, kept.number, kept.open, counted)
        return run

    @property
    def aggregator_path(self) -> Path:
        """Where the role keeps its journal."""
        return self.folder / "aggregator"

    @property
    def _progress_path(self) -> Path:
        return self.folder / "progress"

    def keep_setups(self, setups: dict[str, bytes]) -> None:
        """Keep the members' sealed set-ups, which replace earlier ones."""
        self.setups, ordered = setups, tuple(setups[name] for name in self.terms.members)
        generator = b"" if self.generator is None else self.generator.to_bytes()
        write_state(self.folder / "run", _RunState(self.terms.to_bytes(), generator, self.registration, ordered))

    def keep_progress(self) -> None:
        """Write where the run stands through to the disk."""
        now = self.progress
        names, numbers = tuple(now.counted), tuple(map(str, now.counted.values()))
        write_state(self._progress_path, _ProgressState(now.round, now.number, now.open, names, numbers))

    def keep_answer(self, number: int, answer: bytes) -> None:
        """Keep an answer: from now on the round has a sum, which members will read later."""
        with atomic_writer(self._answer_path(number), private=True) as stream:
            stream.write(answer)

    def forget_answers(self) -> None:
        """Delete the answers that nobody needs any more."""
        needed = {self.progress.number, *self.progress.counted.values()}
        with storage_errors("clean", self.folder):
            for path in self.folder.glob("answer-*"):
                if int(path.name.removeprefix("answer-")) not in needed:
                    path.unlink()

    def has_answer(self, number: int) -> bool:
        """Tell whether a round has a sum."""
        return self._answer_path(number).exists()

    def answer(self, number: int) -> bytes:
        """Return a kept answer."""
        path = self._answer_path(number)
        with storage_errors("read", path):
            return path.read_bytes()

    def _answer_path(self, number: int) -> Path:
        return self.folder / f"answer-{number}"


def kept_terms(folder: Path) -> Terms:
    """Return the terms of the run that a server keeps in this folder."""
    return Terms.from_bytes(read_state(folder / "run", _RunState).terms)


class _Label(Message, name="federated/label.1"):
    run: Text
    seed: int


def find_run(store: KeyStore, label: str, *, seed: int) -> RunStore | None:
    """Return the run that this server has set up before under this label and seed; None if it has none."""
    path = _label_path(store, label)
    if not path.exists():
        return None
    kept = read_state(path, _Label)
    if kept.seed != seed:
        raise InputError(f"the run {label!r} began with seed {kept.seed}; got {seed}. Give the same, or another label.")
    return RunStore.load(store, kept.run)


def label_run(store: KeyStore, label: str, run: RunStore, *, seed: int) -> None:
    """Let a run be found again by this label; an earlier run of that label is not."""
    write_state(_label_path(store, label), _Label(run.terms.run, seed))


def forget_labels(store: KeyStore, run: str) -> None:
    """Let the labels of a run name none: the next under such a label is a new one."""
    for path in (store.path / "labels").glob("[0-9a-f]*"):
        if read_state(path, _Label).run == run:
            with storage_errors("delete", path):
                path.unlink()


def _label_path(store: KeyStore, label: str) -> Path:
    return store.path / "labels" / hashlib.sha256(label.encode()).hexdigest()[:32]


# How a run begins


def wait_for_members(reception: Reception, *, wanted: int, seconds: float, keyed: bool = True) -> tuple[str, ...]:
    """Wait until `wanted` members and the key generator are there; with fewer after so many seconds, it raises."""
    until = time.monotonic() + seconds
    while True:
        here = reception.identities()
        members = tuple(sorted(name for name in here if name not in (AGGREGATOR, KEY_GENERATOR)))
        if len(members) >= wanted and (KEY_GENERATOR in here or not keyed):
            return members
        if time.monotonic() > until:
            missing = "" if KEY_GENERATOR in here or not keyed else " The key generator is not there."
            raise PrivacyError(
                f"{len(members)} of {wanted} members are there after {seconds:g} seconds.{missing}"
                f"{reception.complaints()}"
            )
        time.sleep(min(_POLL_SECONDS, seconds))


def gather_run(
    store: KeyStore,
    reception: Reception,
    make_terms: MakeTerms,
    patience: Patience,
    *,
    wanted: int,
    seconds: float,
    keyed: bool,
    warn: Callable[[str], object],
) -> RunStore:
    """Wait for members and set up a run with those who agree; `warn` is told of everybody who does not take part."""
    wait_for_members(reception, wanted=wanted, seconds=seconds, keyed=keyed)
    if complaints := reception.complaints():
        warn(f"Not let in:{complaints}")
    run, refused = begin_run(store, reception, reception.identities(), make_terms, patience)
    for name, sentence in sorted(refused.items()):
        warn(f"{name} does not take part: {sentence}")
    return run


def begin_run(
    store: KeyStore,
    transport: Transport,
    identities: Mapping[str, PublicIdentity],
    make_terms: MakeTerms,
    patience: Patience,
) -> tuple[RunStore, dict[str, str]]:
    """Set up a run with those who agree; return it, and why others do not take part."""
    refused: dict[str, str] = {}
    members = tuple(sorted(name for name in identities if name not in (AGGREGATOR, KEY_GENERATOR)))
    while len(members) >= LEAST_OWNERS:
        try:
            terms = make_terms(secrets.token_hex(8), members)
        except InputError as error:
            raise InputError(f"{len(members)} members cannot begin a run: {error}{_reasons(refused)}") from None
        generator = identities.get(KEY_GENERATOR)
        if generator is None and terms.scheme != "plain":
            raise PrivacyError(f"a run of {terms.scheme} needs the key generator, which is not there.")
        shown = b"" if generator is None else generator.to_bytes()
        enrolments, complaints = _enrol(transport, terms, shown, patience)
        if not complaints:
            aggregator = Aggregator(terms, path=store.run(terms.run) / "aggregator")
            if generator is None or terms.scheme == "plain":
                found = _registered_here(store, aggregator, enrolments)
            else:
                found = _registered(store, transport, aggregator, {**identities, AGGREGATOR: store.identity.public},
                                    enrolments, patience)  # fmt: skip
            if isinstance(found, RunStore):
                return found, refused
            complaints = found
        refused |= complaints
        members = tuple(name for name in members if name not in complaints)
    raise PrivacyError(f"{len(members)} members take part; a run needs {LEAST_OWNERS}.{_reasons(refused)}")


def _reasons(refused: Mapping[str, str]) -> str:
    return "".join(f" {name}: {sentence}" for name, sentence in sorted(refused.items()))


def _enrol(
    transport: Transport, terms: Terms, generator: bytes, patience: Patience
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Ask members to take part: return the enrolments of those who do, and why others do not."""
    tickets = {transport.send(name, "enrol", (terms.to_bytes(), generator)): name for name in terms.members}
    enrolments, complaints = {}, dict.fromkeys(terms.members, "it did not answer in time.")
    for ticket, response in transport.collect(tickets, seconds=patience.step):
        name = tickets[ticket]
        if response.error:
            complaints[name] = response.error
        elif len(response.parts) != 1:
            complaints[name] = "it answered something that is no enrolment."
        else:
            enrolments[name] = response.parts[0]
    return enrolments, {name: sentence for name, sentence in complaints.items() if name not in enrolments}


def _registered_here(
    store: KeyStore, aggregator: Aggregator, enrolments: Mapping[str, bytes]
) -> RunStore | dict[str, str]:
    """Be the registrar of a plain run: nobody else vouches for anybody's key."""
    registrar, refused = KeyGenerator(aggregator.terms), {}
    registrar.enrol(aggregator.enrolment())
    for name, enrolment in enrolments.items():
        try:
            if decode(enrolment, Enrolment, max_bytes=4096).party != name:
                raise MessageError(f"{name!r} sends an enrolment that is not its own.")
            registrar.enrol(enrolment)
        except (MessageError, PrivacyError) as error:
            refused[name] = str(error)
    if refused:
        return refused
    setups = registrar.setup()
    aggregator.accept(setups.pop(AGGREGATOR))
    return RunStore.create(store, aggregator.terms, setups)


def _registered(
    store: KeyStore,
    transport: Transport,
    aggregator: Aggregator,
    identities: Mapping[str, PublicIdentity],
    enrolments: Mapping[str, bytes],
    patience: Patience,
) -> RunStore | dict[str, str]:
    """Let the key generator set up a run, and keep what it sealed; or return why it refuses some members."""
    terms, generator = aggregator.terms, identities[KEY_GENERATOR]
    own = store.identity.seal(aggregator.enrolment(), to=generator, purpose=ENROLMENT, run=terms.run)
    parties = (AGGREGATOR, *terms.members)
    registration = encode(
        Registration(
            terms.to_bytes(),
            parties,
            tuple(identities[party].to_bytes() for party in parties),
            (own, *(enrolments[name] for name in terms.members)),
        )
    )
    answer = _ask_generator(store, transport, registration, generator, patience)
    if isinstance(answer, RunRefusal):
        refused = dict(zip(answer.parties, answer.sentences, strict=False))
        if not refused or not set(refused) <= set(terms.members):
            raise PrivacyError(f"the key generator does not set up the run: {' '.join(answer.sentences)}")
        return refused
    setups = dict(zip(terms.members, answer.setups[1:], strict=True))
    aggregator.accept(store.identity.unseal(answer.setups[0], sender=generator, purpose=SETUP, run=terms.run))
    return RunStore.create(store, terms, setups, generator, registration)


def _ask_generator(
    store: KeyStore, transport: Transport, registration: bytes, generator: PublicIdentity, patience: Patience
) -> Setups | RunRefusal:
    """Have the key generator set up a run; one that is away is waited for, and what it did not seal is ignored."""
    until, reason = time.monotonic() + patience.generator, "it did not answer."
    terms = Terms.from_bytes(decode(registration, Registration).terms)
    while True:
        for response in _generators_responses(transport, registration, patience):
            try:
                if len(response.parts) != 1:
                    raise MessageError(response.error or "it answered something else.")
                body = store.identity.unseal(response.parts[0], sender=generator, purpose=REGISTRATION, run=terms.run)
                answer = decode(body, Setups, RunRefusal)
                if isinstance(answer, RunRefusal):
                    return answer
                if isinstance(answer, Setups) and len(answer.setups) == len(terms.members) + 1:
                    return answer
            except MessageError as error:
                reason = str(error)
        if time.monotonic() > until or patience.pause == 0:
            raise UnansweredError(f"the key generator has not set up the run: {reason}")
        time.sleep(patience.pause)


def _generators_responses(transport: Transport, registration: bytes, patience: Patience) -> Iterator[Response]:
    if KEY_GENERATOR in transport.present():
        ticket = transport.send(KEY_GENERATOR, "register", (registration,))
        for _, response in transport.collect([ticket], seconds=patience.step):
            yield response


# Rounds


class LostRunError(RefusedError):
    """The key generator says that it has no such run: none of its rounds will ever be opened again."""


class _RunTransport:
    """Carries the messages of one run: whoever gets one is told which run it belongs to.

    `setups` are those that members get along with the call of a step; who answers it is `ready`.
    """

    def __init__(self, transport: Transport, run: RunStore, ready: set[str]) -> None:
        self._transport, self._run, self._generator = transport, run.terms.run.encode(), run.generator
        self._ready, self.setups = ready, dict[str, tuple[bytes, ...]]()
        self._carried: dict[str, str] = {}

    def present(self) -> Mapping[str, int]:
        return self._transport.present()

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        setup = self.setups.get(name, ()) if kind in STEPS else ()
        ticket = self._transport.send(name, kind, (self._run, *parts, *setup))
        if setup:
            self._carried[ticket] = name
        return ticket

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Response]]:
        for ticket, response in self._transport.collect(tickets, seconds=seconds):
            if self._forgotten(response):
                raise LostRunError(
                    "the key generator has nothing of this run: its disk was lost, or it was told to forget. What was "
                    "learned so far stays; begin another run."
                )
            if (name := self._carried.pop(ticket, "")) and not response.error:
                self._ready.add(name)
                self.setups.pop(name, None)
            yield ticket, response

    def _forgotten(self, response: Response) -> bool:
        """Tell whether the key generator signed that it has no such run."""
        if self._generator is None or len(response.parts) != 1:
            return False
        try:
            return verify_signed(response.parts[0], self._generator, purpose=FORGOTTEN) == self._run
        except MessageError:
            return False


class SumServer:
    """The server of one run that has been set up (`begin_run`)."""

    def __init__(
        self, run: RunStore, transport: Transport, patience: Patience, *, seed: int = 0, config: bytes = b""
    ) -> None:
        """Go on where the run stands; members get the run `config` with their set-up, and `seed` decides theirs."""
        if config_digest(config) != run.terms.config:
            raise InputError("the run began with another config, and its members accept no other.")
        self.run, self.terms = run, run.terms
        self._transport, self._patience, self._seed, self._config = transport, patience, seed, config
        self._ready: set[str] = set()
        self._carrier = _RunTransport(transport, run, self._ready)
        self._engine = Engine(Aggregator.load(run.aggregator_path), self._carrier, patience, ready=self._prepared)
        self._unready: dict[str, str] = {}
        self._told: set[str] = set()
        self._briefs: dict[int, bytes] = {}

    @property
    def refused(self) -> dict[str, str]:
        """Tell by member what was wrong with its set-up, or with its part of the present round."""
        return self._unready | self._engine.refused

    def begin(self, round: int, payload: Sequence[bytes] = ()) -> dict[str, tuple[bytes, ...]]:
        """Begin a learning round, or go on with it; return the parts of the call to contribute for each member there.

        The payload goes with every call: members refuse the call with any other.
        """
        number, self._unready, self._told = self._number(round, payload), {}, set()
        calls = self._engine.begin(number, payload, self._note)
        return {name: (self.terms.run.encode(), call, *payload) for name, call in calls.items()}

    def take(self, member: str, response: Response) -> None:
        """Take in what a member responded to its call."""
        self._engine.take(member, response)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Whose contributions have come."""
        return self._engine.aggregator.contributors

    def finish(self) -> RoundResult:
        """End the round and return its sum.

        `PrivacyError` says that there are too few members, and `begin` asks the rest again; `UnansweredError` that the
        same may be asked again; `RefusedError` that nothing of this round will ever be opened: `begin` the next.
        """
        try:
            answer, total = self._engine.finish()
        except RefusedError as error:
            if error.renewed:
                self._renew()
            self.run.progress.open = False
            self.run.keep_progress()
            raise
        return self._concluded(answer, total)

    def play(self, round: int, payload: Sequence[bytes] = ()) -> RoundResult:
        """Play one learning round: call for contributions, with what is learned from, and add up what comes in time.

        A round that was played before, by a server that was killed since, has the same sum as then.
        """
        now = self.run.progress
        if now.round == round and self.run.has_answer(now.number):
            answer = self.run.answer(now.number)
            message, sums = read_answer(self._engine.aggregator.roster, answer, now.number)
            return self._concluded(answer, Total(now.number, message.members, sums, self.terms.values(sums)))
        until = time.monotonic() + self._patience.generator
        for tried in range(1, self._patience.attempts + 1):
            try:
                calls = self.begin(round, payload)
                tickets = {self._transport.send(name, CONTRIBUTE, parts): name for name, parts in calls.items()}
                for ticket, response in self._transport.collect(tickets, seconds=self._patience.round):
                    self.take(tickets[ticket], response)
                return self.finish()
            except RefusedError as error:
                if not error.renewed or tried == self._patience.attempts:
                    raise
            except PrivacyError as error:
                if tried == self._patience.attempts or time.monotonic() > until:
                    raise PrivacyError(f"{error}{_reasons(self.refused)}") from None
            time.sleep(self._patience.pause)
        raise AssertionError

    def _number(self, round: int, payload: Sequence[bytes]) -> int:
        """Return the number under which the engine plays a learning round, which is on disk before anybody hears it."""
        now, role = self.run.progress, self._engine.aggregator
        if round < now.round:
            raise InputError(f"the run is at round {now.round}; there is no way back to round {round}.")
        if now.round == round and self.run.has_answer(now.number):
            raise InputError(f"round {round} has its sum already. Play the next.")
        begun = role.round == now.number
        goes_on = now.open and now.round == round and now.number > role.void
        if goes_on and (not begun or role.model == model_digest(payload)):
            return now.number
        now.round, now.number, now.open = round, max(now.number, role.round) + 1, True
        self.run.keep_progress()
        return now.number

    def _note(self, name: str) -> bytes:
        """Return what a member is told with a call: the answers that it may not have seen, once in an attempt."""
        now = self.run.progress
        seed = owner_seed(self._seed, now.round, self.terms.members.index(name))
        answers = () if name in self._told else self._unseen(name)
        self._told.add(name)
        if self._engine.aggregator.step != CONTRIBUTE and not answers:
            return b""
        return encode(Note(seed, answers))

    def _unseen(self, name: str) -> tuple[bytes, ...]:
        """Return the answers of the last round that holds a member's contribution, and of the last that was played."""
        now = self.run.progress
        last = max((number for number in now.counted.values()), default=-1)
        numbers = {now.counted.get(name, -1), last} - {-1}
        for number in numbers - self._briefs.keys():
            self._briefs[number] = self._engine.aggregator.brief(self.run.answer(number))
        self._briefs = {number: brief for number, brief in self._briefs.items() if number in {*now.counted.values()}}
        return tuple(self._briefs[number] for number in sorted(numbers))

    def _concluded(self, answer: bytes, total: Total) -> RoundResult:
        """Keep the answer, remember whose contributions are in the sum, and return it."""
        now = self.run.progress
        self.run.keep_answer(now.number, answer)
        now.open = False
        now.counted |= dict.fromkeys(total.members, now.number)
        self.run.keep_progress()
        self.run.forget_answers()
        nowhere = np.empty(0, dtype=np.int64)  # only members know which blocks were withheld
        cost = Cost(self.terms.members, (), ())
        support = self.terms.support(now.number)
        integers, values = support.scatter(total.integers), support.scatter(total.values)
        return RoundResult(now.round, total.members, integers, values, nowhere, dict(self.refused), cost)

    def _renew(self) -> None:
        """Get everybody the key that replaces one that was used up; asked again, it is the same."""
        run, role = self.run, self._engine.aggregator
        if run.generator is None:
            raise MessageError("a plain run has no key generator.")
        answer = _ask_generator(run.store, self._transport, run.registration, run.generator, self._patience)
        if isinstance(answer, RunRefusal):
            raise PrivacyError(f"the key generator gives no new key: {' '.join(answer.sentences)}")
        setup = run.store.identity.unseal(answer.setups[0], sender=run.generator, purpose=SETUP, run=self.terms.run)
        run.keep_setups(dict(zip(self.terms.members, answer.setups[1:], strict=True)))
        before = role.roster.generation
        role.accept(setup)
        if role.roster.generation == before:
            raise UnansweredError(
                "what came as the key generator's new set-up is the old one; it is to be asked again."
            )
        self._ready.clear()

    def _prepared(self, present: Sequence[str]) -> list[str]:
        """Hand the set-up to those who may not have it, with the call of a step or before one to contribute."""
        run, renewed = self.terms.run.encode(), self._engine.aggregator.roster.generation > 0
        needed: dict[str, tuple[bytes, ...]] = {
            name: (self.run.setups[name], self._config, encode(Note(0, self._unseen(name) if renewed else ())))
            for name in present
            if name not in self._ready
        }
        if self._engine.aggregator.step in STEPS:
            self._carrier.setups = needed
            return list(present)
        tickets = {self._transport.send(name, "set-up", (run, *parts)): name for name, parts in needed.items()}
        for ticket, response in self._transport.collect(tickets, seconds=self._patience.step):
            name = tickets[ticket]
            if response.error:
                self._unready[name] = response.error
            else:
                self._ready.add(name)
                self._unready.pop(name, None)
        return [name for name in present if name in self._ready]


# What a run protects


def statement_of(terms: Terms, rounds: int) -> PrivacyStatement:
    """Return the statement of so many rounds on these terms: that of the scheme, and what the machines between add."""
    said = statement(terms)
    operator = "what the aggregator sees, and the addresses and times of all nodes"
    also_sees = {"operator of the SuperLink": operator}
    also_assumed: tuple[str, ...] = (_APP,)
    if terms.scheme != "plain":  # there is no key generator, and nothing is sealed
        also_sees["operator of the SuperLink"] += "; sealed messages between members and key generator pass unread"
        also_assumed = (*_HIDDEN, _APP)
    if terms.scheme == "masks":
        also_sees[KEY_GENERATOR] = "who takes part, and the keys that verify their signatures: it is the registrar"
        also_assumed = (_REGISTRAR, *also_assumed)
    return replace(
        said,
        who_sees={**said.who_sees, **also_sees},
        not_protected=(
            *said.not_protected,
            f"the sums of all {rounds} rounds: everybody sees how the model moved, not only where it ended",
        ),
        assumptions=(*said.assumptions, *also_assumed),
    )


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
