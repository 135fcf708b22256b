"""Selective sharing across machines (`blindsight.selective`): participants elsewhere, and the server they upload to.

*The guarantee to a participant.* Nobody takes part who did not say so: the server reads uploads, so a member must name
"sharing" among its schemes, and how much it shares (`OwnTerms`). With noise "record" all runs of a key store together
cost each of its photos at most the epsilon and delta that its owner named: its ledger counts all of them as one
collection, whatever a server calls its runs. A run costs them once (each photo is in one batch); the next is refused.
So is a run whose training was cut short after it was paid for: that wastes the budget, and never exceeds it. The
server's `SharingTask` holds the terms and how to train: data and never code.

*The guarantee to the server.* The transport says who speaks, and nobody uploads, asks or reports in another's name. An
upload is added once or not at all (`selective.server`); a report that comes twice, late or in the wrong order changes
nothing but what the participant is told next, and its own numbers sort that out. A `SharingServer` keeps its part in
memory alone: one that was killed asks each participant again.

An exchange begins with the server; its two messages carry those of `selective.terms`::

    server -> participant    Instruction   whether your last upload was refused; the answer to your last request
    participant -> server    Report        my next upload, if I have one; my next request; how I am

The answer tells which of its uploads was added last. Either message may be lost, late or doubled: nothing is done
twice, and while an upload is of unknown fate, the same bytes are sent again, also after a restart.

Nobody holds the others up for longer than `deadline`. Late participants are left out for now; what they send later is
added if the terms' `max_staleness` allows. In turns (`play_synchronous`), all download the same parameters and then
upload one after the other, so the last of n uploads of a turn builds on parameters that are n - 1 uploads old: agree on
a `max_staleness` of at least as many, or on none. Without turns (`play_asynchronous`), everyone gets its next
instruction as soon as its report has come. Time is measured on the server's clock alone.
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.wire import MAX_BYTES, Limit, Message, decode, encode
from blindsight.data.features import Standardiser
from blindsight.dp.ledger import Ledger
from blindsight.errors import (
    BudgetExceededError,
    InputError,
    MessageError,
    PrivacyError,
    ServiceError,
    UnknownNameError,
)
from blindsight.federated.identity import KeyStore
from blindsight.federated.node import SHARING, MemberHandler
from blindsight.files import atomic_writer, pack_arrays, storage_errors, unpack_arrays
from blindsight.selective.accounting import compose_sharing, sharing_statement
from blindsight.selective.participant import Participant
from blindsight.selective.protection import RecordGaussian, Sharing, calibrate_record, check_whole
from blindsight.selective.server import ParameterServer
from blindsight.selective.terms import Answer, Digest, Name, Request, SelectiveTerms, Upload
from blindsight.selective.trainers import SoftmaxTrainer, check_labels
from blindsight.statement import PrivacyStatement
from blindsight.sums.engine import Response, Transport
from blindsight.validation import check_features

EXCHANGE = "sharing/exchange"
"""What a transport calls an exchange: one part goes, an `Instruction`, and one comes back, a `Report`."""

JOIN = "sharing/join"
"""What a transport calls joining: one part goes, a `SharingTask`, and nothing comes back."""

NOISES = ("none", "record")
Clock = Callable[[], float]
NewPhotos = Callable[[], tuple[ArrayLike, ArrayLike] | None]
"""Returns photos and their classes never returned before, or None; see `Participant.gathered` after a restart."""

_REQUEST_BYTES = 1024  # more than any request takes
_FRAME_BYTES = 4096  # more than a report takes besides its upload and request
_OPEN_TICKETS = 2  # of one participant: the last, and one whose reply may still come
_POLL_SECONDS = 1.0
_PATIENCE = 3  # deadlines without any reply, after which nobody is expected to reply any more


class Instruction(Message, name="sharing/instruction.2"):
    """What the server tells a participant; empty parts say nothing.

    `refused` is the digest of an upload that was not added. `answer` is for the request of a participant that had the
    parameters of version `asked`; without one, its request is not known yet.
    """

    terms: Digest
    participant: Name
    refused: Digest
    asked: int
    answer: bytes


class Report(Message, name="sharing/report.2"):
    """What a participant tells the server; `taken`: it had the newest parameters when it decided what to send."""

    terms: Digest
    participant: Name
    upload: bytes
    request: Annotated[bytes, Limit(_REQUEST_BYTES)]
    taken: bool
    spent: bool


class _TaskMessage(Message, name="sharing/task.1"):
    terms: bytes
    document: Annotated[bytes, Limit(4096)]
    arrays: bytes


@dataclass(frozen=True, eq=False)
class SharingTask:
    """The terms, and how every participant trains a softmax head on features that `standardiser` scales."""

    terms: SelectiveTerms
    standardiser: Standardiser
    classes: int
    learning_rate: float
    epochs: int = 1

    def trainer(self) -> SoftmaxTrainer:
        return SoftmaxTrainer(
            standardiser=self.standardiser,
            classes=self.classes,
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            batch=self.terms.batch,
        )

    def to_bytes(self) -> bytes:
        document = {"classes": self.classes, "learning_rate": self.learning_rate, "epochs": self.epochs}
        arrays = pack_arrays({"mean": self.standardiser.mean, "scale": self.standardiser.scale})
        return encode(_TaskMessage(self.terms.to_bytes(), json.dumps(document).encode(), arrays))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        message = decode(data, _TaskMessage)
        try:
            arrays, document = unpack_arrays(message.arrays), json.loads(message.document)
            standardiser = Standardiser(
                *(check_features(arrays[name][None], precision="wide")[0] for name in ("mean", "scale"))
            )
            task = cls(SelectiveTerms.from_bytes(message.terms), standardiser, **document)
            if task.trainer().layout.digest != task.terms.layout:
                raise InputError("its terms are for another network")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise MessageError(f"the task of this run cannot be understood: {error}") from None
        return task


@dataclass(frozen=True)
class OwnTerms:
    """What a participant shares: the largest `share` of its changes, with noise for each photo or without.

    An upload is made of at least `least_batch` photos. With noise "record" a photo is protected with `epsilon` and
    `delta`, over all runs; gradients are cut to the length `clip`.
    """

    share: float
    least_batch: int = 16
    noise: str = "none"
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        check_whole("least-batch", self.least_batch)
        if self.least_batch < 1:
            raise InputError(f"least-batch must be at least 1; got {self.least_batch}.")
        if self.noise not in NOISES:
            raise UnknownNameError("noise", str(self.noise), NOISES)
        given = [name for name in ("epsilon", "delta", "clip") if getattr(self, name) is not None]
        if len(given) != (3 if self.noise == "record" else 0):
            raise InputError("noise 'record' needs epsilon, delta and clip, and nothing else has them.")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        if "share" not in config:
            raise InputError("this node does not say how much it shares. Start it with --node-config 'share=0.1'.")
        names = ("share", "least-batch", "noise", "epsilon", "delta", "clip")
        return cls(**{name.replace("-", "_"): config[name] for name in names if name in config})

    def sharing(self, epochs: int) -> Sharing:
        noise = None
        if self.epsilon is not None and self.delta is not None and self.clip is not None:
            noise = calibrate_record(epsilon=self.epsilon, delta=self.delta, steps=epochs, clip=self.clip)
        return Sharing(self.share, residual=True, noise=noise)


@dataclass(frozen=True)
class SharingHandler:
    """The node handler of a participant in selective sharing, which shares as its `own` terms say."""

    store: KeyStore
    own: OwnTerms

    @classmethod
    def of(cls, member: MemberHandler, config: Mapping[str, Any]) -> Self:
        """Return the handler of a member with this node-config; `PrivacyError` if it does not take part in sharing."""
        if SHARING not in member.schemes:
            raise PrivacyError(
                f"this member does not take part in {SHARING}, where the server reads uploads; it accepts "
                f"{', '.join(member.schemes)}."
            )
        return cls(member.store, OwnTerms.of(config))

    @property
    def scope(self) -> str:
        """What the ledger calls the photos of this key store, in all runs."""
        return f"photos of {self.store.identity.name}"

    def join(self, task: bytes) -> None:
        """Take part in a run; another task for the same run is refused."""
        joined = SharingTask.from_bytes(task)
        if self.store.identity.name not in joined.terms.participants:
            raise MessageError(f"{self.store.identity.name!r} is not among the participants of this run.")
        self._check_batch(joined)
        path = self._folder(joined.terms.digest) / "task"
        if path.exists():
            if _read(path) != task:
                raise MessageError("this run has begun with another task.")
            return
        with atomic_writer(path, private=True) as stream:
            stream.write(task)

    def exchange(self, instruction: bytes, features: NDArray[Any], classes: NDArray[Any]) -> bytes:
        """Do what an instruction leads to, with photos of the collection that were not used before."""
        folder = self._folder(decode(instruction, Instruction).terms)
        path = folder / "task"
        if not path.exists():
            raise MessageError(f"{self.store.identity.name!r} does not take part in this run.")
        task = SharingTask.from_bytes(_read(path))
        self._check_batch(task)
        if features.ndim != 2 or features.shape[1] != len(task.standardiser.mean):
            raise MessageError(
                f"the photos of {self.store.identity.name!r} have the shape {features.shape[1:]}; the others' have "
                f"{len(task.standardiser.mean)} numbers. Use the same features everywhere."
            )
        classes_told = task.classes if self.own.noise == "none" else None  # by noise a class too many counts as zero
        check_labels(classes, len(features), classes_told)  # before they cost anything
        with closing(self._participant(task, folder)) as participant:

            def new_photos() -> tuple[NDArray[Any], NDArray[Any]] | None:
                start = participant.gathered
                some = slice(start, start + task.terms.batch)
                return (features[some], classes[some]) if start < len(features) else None

            return step(participant, instruction, new_photos)

    def _participant(self, task: SharingTask, folder: Path) -> Participant:
        sharing, path = self.own.sharing(task.epochs), folder / "participant.npz"
        trainer, ledger = task.trainer(), None
        if isinstance(sharing.noise, RecordGaussian) and self.own.epsilon is not None and self.own.delta is not None:
            trainer = replace(trainer, record_noise=sharing.noise)
            ledger = Ledger(self.store.path / "ledger.jsonl")  # all runs together have the budget that one needs
            budget = {"epsilon": self.own.epsilon, "delta": self.own.delta}
            ledger.set_budget(self.scope, unit=sharing.unit, neighbours=sharing.neighbours, **budget)
        if path.exists():
            return Participant.load(path, trainer=trainer, sharing=sharing, ledger=ledger, scope=self.scope)
        name = self.store.identity.name
        return Participant(name, task.terms, trainer, sharing, ledger=ledger, scope=self.scope, path=path)

    def _check_batch(self, task: SharingTask) -> None:
        if task.terms.batch < self.own.least_batch:
            raise PrivacyError(
                f"this member shares what it learned from {self.own.least_batch} photos or more; got a batch of "
                f"{task.terms.batch}."
            )

    def _folder(self, digest: bytes) -> Path:
        return self.store.run(digest.hex())


def _read(path: Path) -> bytes:
    with storage_errors("read", path):
        return path.read_bytes()


def step(participant: Participant, instruction: bytes, new_photos: NewPhotos) -> bytes:
    """Do what an instruction leads to and return the report; what is not for this participant raises."""
    message = decode(instruction, Instruction)
    if message.terms != participant.terms.digest or message.participant != participant.name:
        raise MessageError(
            f"the instruction is not for {participant.name!r} in this run. All must agree on its terms, and each needs "
            "a name of its own."
        )
    taken = _take(participant, message)
    if taken and not participant.under_way:
        _train(participant, new_photos)
    return encode(
        Report(
            participant.terms.digest,
            participant.name,
            participant.under_way,
            participant.request(),
            taken,
            participant.spent,
        )
    )


def _take(participant: Participant, message: Instruction) -> bool:
    """Download, if the answer is to the last request and comes before anything was trained on top of it."""
    under_way = hashlib.sha256(participant.under_way).digest() if participant.under_way else b""
    if under_way and message.refused == under_way:
        participant.withdraw()
        under_way = b""
    if not message.answer or message.asked != participant.version:
        return False
    if under_way and decode(message.answer, Answer).upload != under_way:
        return False
    participant.take(message.answer)
    return True


def _train(participant: Participant, new_photos: NewPhotos) -> None:
    if participant.waiting < participant.terms.batch and not participant.spent:
        photos = new_photos()
        if photos is not None:
            participant.gather(*photos, refuse=participant.sharing.noise is None)
    if participant.ready:
        with suppress(BudgetExceededError):  # the report tells
            participant.train()


# The server


M = TypeVar("M", Report, Request, Upload)


@dataclass(frozen=True)
class Taken:
    """What a report led to; `idle`: the participant had the newest parameters and nothing to send."""

    uploaded: bool
    refused: str
    idle: bool
    spent: bool


class SharingServer:
    """A parameter server and those of its participants that are elsewhere."""

    def __init__(self, server: ParameterServer, names: Collection[str]) -> None:
        for name in names:
            if name not in server.terms.participants:
                raise UnknownNameError("participant", name, server.terms.participants)
        if server.terms.together > 1:
            raise PrivacyError(
                f"by the terms only sums of {server.terms.together} uploads may be opened; here the server reads each. "
                "Agree on together=1."
            )
        self.names, self.terms = tuple(names), server.terms
        self._server = server
        self._requests: dict[str, Request] = {}
        self._refused: dict[str, bytes] = {}

    @property
    def version(self) -> int:
        return self._server.version

    def knows(self, name: str) -> bool:
        return name in self._requests

    def instruction(self, name: str) -> bytes:
        """Return what to tell a participant now; nothing changes by it."""
        self._check_name(name)
        asked, answer = -1, b""
        if (request := self._requests.get(name)) is not None:
            asked, answer = request.version, self._server.answer(encode(request))
        return encode(Instruction(self.terms.digest, name, self._refused.get(name, b""), asked, answer))

    def take(self, name: str, reply: bytes) -> Taken:
        """Take the report that came from `name`; `MessageError` if it is not one, and nothing has changed then."""
        self._check_name(name)
        report = self._read(name, reply, Report, self.terms.upload_bytes + _REQUEST_BYTES + _FRAME_BYTES)
        request = self._read(name, report.request, Request)
        if not -1 <= request.version <= self.version:
            raise MessageError(
                f"{name!r} has the parameters of version {request.version}; the newest here are {self.version}. The "
                "server must go on in the folder of the run, or all begin again."
            )
        before, refused = self.version, ""
        if report.upload:
            self._refused.pop(name, None)
            try:
                self._read(name, report.upload, Upload, self.terms.upload_bytes)
                self._server.receive(report.upload)
            except MessageError as error:
                self._refused[name], refused = hashlib.sha256(report.upload).digest(), str(error)
        self._requests[name] = request
        idle = report.taken and not report.upload
        return Taken(uploaded=self.version > before, refused=refused, idle=idle, spent=report.spent)

    def _read(self, name: str, blob: bytes, kind: type[M], most: int = MAX_BYTES) -> M:
        message = decode(blob, kind, max_bytes=most)
        if message.terms != self.terms.digest:
            raise MessageError(f"the message of {name!r} belongs to another run, or to a network of another shape.")
        if message.participant != name:
            raise MessageError(f"{name!r} speaks in the name of {message.participant!r}.")
        return message

    def _check_name(self, name: str) -> None:
        if name not in self.names:
            raise UnknownNameError("participant", name, self.names)


@dataclass
class Turn:
    """What happened in one turn, or, without turns, by one report that has news."""

    uploaded: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    spent: set[str] = field(default_factory=set)

    def note(self, name: str, outcome: Taken | str) -> None:
        sentence = outcome if isinstance(outcome, str) else outcome.refused
        if sentence:
            self.refused[name] = sentence
        if isinstance(outcome, Taken):
            self.uploaded += [name] * outcome.uploaded
            self.spent |= {name} if outcome.spent else set()


OnTurn = Callable[[Turn], None]


def play_synchronous(
    server: SharingServer,
    transport: Transport,
    *,
    turns: int,
    deadline: float,
    minimum: int = 1,
    on_turn: OnTurn = lambda turn: None,
    clock: Clock = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Play that many turns, in each of which all who are present get one exchange; fewer if all budgets are spent.

    A turn lasts `deadline` seconds at most. It begins when at least `minimum` participants are present; if there are
    not so many within another `deadline`, `ServiceError` is raised, and the run can be gone on with later.
    """
    _check_bounds(turns=turns, minimum=minimum, deadline=deadline)
    exchanges = _Exchanges(server, transport, clock)
    for _ in range(turns):
        present = _enough(server, transport, minimum, deadline, pause)
        turn, ends = Turn(), clock() + deadline
        absent = exchanges.exchange([name for name in present if not server.knows(name)], turn, ends)
        absent += exchanges.exchange([name for name in present if server.knows(name)], turn, ends)
        turn.late += sorted(set(absent) - set(turn.refused))
        on_turn(turn)
        if turn.spent == set(server.names):
            return


def play_asynchronous(
    server: SharingServer,
    transport: Transport,
    *,
    uploads: int,
    deadline: float,
    on_turn: OnTurn = lambda turn: None,
    clock: Clock = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Play until that many uploads were added, or nobody has photos and budget left.

    `on_turn` is told of every upload, added or refused, of everyone whose budget is spent, and of every error that came
    instead of a report. Participants that had nothing to send, or failed, are asked again after as many uploads of
    others as there are participants, and those silent for `deadline` seconds are sent a new instruction. If nobody
    replies for three times as long, `ServiceError` is raised.
    """
    _check_bounds(uploads=uploads, deadline=deadline)
    exchanges, resting, added, last_heard = _Exchanges(server, transport, clock), dict[str, float](), 0, clock()
    while added < uploads:
        awake = [name for name in server.names if resting.get(name, 0) <= server.version]
        present, waited_for = transport.present(), exchanges.waited_for(deadline)
        if not awake and not waited_for:
            return
        exchanges.send([name for name in awake if name in present and name not in waited_for])
        heard = next(exchanges.hear(deadline), None)
        if heard is None:
            if clock() - last_heard >= _PATIENCE * deadline:
                raise ServiceError(f"nobody has replied for {_PATIENCE * deadline:g} seconds.")
            exchanges.wait_no_longer()
            pause(_POLL_SECONDS)
            continue
        last_heard, (_, name, outcome) = clock(), heard
        resting[name] = _rests_until(outcome, server)
        turn = Turn()
        turn.note(name, outcome)
        added += len(turn.uploaded)
        if turn != Turn():
            on_turn(turn)


def _rests_until(outcome: Taken | str, server: SharingServer) -> float:
    if isinstance(outcome, Taken) and outcome.spent:
        return float("inf")
    return server.version + len(server.names) if isinstance(outcome, str) or outcome.idle else 0


def _enough(
    server: SharingServer, transport: Transport, minimum: int, deadline: float, pause: Callable[[float], None]
) -> list[str]:
    waited = 0.0
    while True:
        reachable = transport.present()
        present = [name for name in server.names if name in reachable]
        if len(present) >= minimum:
            return present
        if waited >= deadline:
            raise ServiceError(
                f"a turn needs {minimum} participants; {len(present)} could be reached within {deadline:g} seconds."
            )
        pause(_POLL_SECONDS)
        waited += _POLL_SECONDS


class _Exchanges:
    """What is under way between the server and the participants: tickets, whose they are, and since when."""

    def __init__(self, server: SharingServer, transport: Transport, clock: Clock) -> None:
        self._server, self._transport, self._clock = server, transport, clock
        self._open: dict[str, tuple[str, float]] = {}  # the oldest first

    def waited_for(self, deadline: float) -> set[str]:
        now = self._clock()
        return {name for name, since in self._open.values() if now - since < deadline}

    def wait_no_longer(self) -> None:
        """Let all that is under way be older than any deadline; a reply is still welcome."""
        self._open = {ticket: (name, float("-inf")) for ticket, (name, _) in self._open.items()}

    def send(self, names: Sequence[str]) -> dict[str, str]:
        """Send each its instruction, and return whose each ticket is; of earlier ones only the last is kept."""
        sent = {}
        for name in names:
            earlier = [ticket for ticket, (who, _) in self._open.items() if who == name]
            for ticket in earlier[: 1 - _OPEN_TICKETS]:
                del self._open[ticket]
            if ticket := self._transport.send(name, EXCHANGE, [self._server.instruction(name)]):
                self._open[ticket] = (name, self._clock())
                sent[ticket] = name
        return sent

    def exchange(self, names: Sequence[str], turn: Turn, ends: float) -> list[str]:
        """Send each its instruction, note what comes until all have replied or time is over; return who has not."""
        missing = self.send(names)
        unreached = [name for name in names if name not in missing.values()]
        if missing:
            for ticket, name, outcome in self.hear(max(0.0, ends - self._clock())):
                turn.note(name, outcome)
                missing.pop(ticket, None)
                if not missing:
                    break
        return [*unreached, *missing.values()]

    def hear(self, seconds: float) -> Iterator[tuple[str, str, Taken | str]]:
        """Yield the ticket of each reply, who replied, and what came of it or why nothing did."""
        for ticket, reply in self._transport.collect(tuple(self._open), seconds=seconds):
            if ticket in self._open:  # a network may deliver twice
                name, _ = self._open.pop(ticket)
                yield ticket, name, self._outcome(name, reply)

    def _outcome(self, name: str, reply: Response) -> Taken | str:
        if reply.error:
            return reply.error
        if len(reply.parts) != 1:
            return f"{name!r} replied {len(reply.parts)} parts, where one report was expected."
        try:
            return self._server.take(name, reply.parts[0])
        except MessageError as error:
            return str(error)


def _check_bounds(*, deadline: float, **counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"{name} must be at least 1; got {count}.")
    if not 0 < deadline < float("inf"):
        raise InputError(f"deadline must be positive and finite; got {deadline}.")


def sharing_statement_of(terms: SelectiveTerms, uploads: int) -> PrivacyStatement:
    """Return the statement for the most that participants may share, without noise; only own ledgers prove better."""
    most = Sharing(terms.most_values / terms.dimension)
    said = sharing_statement(compose_sharing(most, dimension=terms.dimension, uploads=max(1, uploads), delta=0.0))
    operator = "what the server sees, and the addresses and times of all nodes"
    more = f"all {uploads} uploads of this run: what its own noise protects, each participant's ledger tells"
    app = "nodes run the app they mean to run: Flower's SuperLink sends the app's code to the nodes"
    return replace(
        said,
        mechanism=f"up to {terms.most_values} of {terms.dimension} values of each change, learned from {terms.batch} "
        "photos, in the clear; how many, and with what noise if any, is each participant's own choice and not known to "
        "the server",
        who_sees={**said.who_sees, "operator of the SuperLink": operator},
        not_protected=(*said.not_protected, more),
        assumptions=(*said.assumptions, app),
    )
