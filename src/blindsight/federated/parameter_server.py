"""The parameter server towards participants that are elsewhere: what each is told, what its report changes, and turns.

*The guarantee.* Whoever speaks is known from the transport, and nobody uploads, asks or reports in another's name. An
upload is added once or not at all (`learn.selective.server`); a report that comes twice, late or in the wrong order
changes nothing but what the participant is told next, and its own numbers sort that out. What is kept here is in memory
alone: a server that was killed asks each participant again, and the next answer tells it what became of its upload.

Nobody holds the others up for longer than `deadline`. Whoever is late is left out for now; what it sends later is added
if the terms' `max_staleness` allows. In turns (`play_synchronous`), all download the same parameters and then upload
one after the other, so the last of n uploads of a turn builds on parameters that are n - 1 uploads old: agree on a
`max_staleness` of at least as many, or on none. Without turns (`play_asynchronous`), everyone gets its next instruction
as soon as its report has come. Time is a difference on the server's own clock: other clocks play no role.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError, ServiceError, UnknownNameError
from blindsight.federated.sharing import EXCHANGE, REQUEST_BYTES, Instruction, Report
from blindsight.selective.accounting import compose_sharing, sharing_statement
from blindsight.selective.protection import Sharing
from blindsight.selective.server import ParameterServer
from blindsight.selective.terms import Receipt, Request, SelectiveTerms, Upload
from blindsight.statement import PrivacyStatement
from blindsight.sums.transport import Response, Transport

Clock = Callable[[], float]

_FRAME_BYTES = 4096  # more than a report takes besides its upload and request
_OPEN_TICKETS = 2  # of one participant: the last, and one whose reply may still come
_POLL_SECONDS = 1.0
_PATIENCE = 3  # deadlines without any reply, after which nobody is expected to reply any more


@dataclass(frozen=True)
class Taken:
    """What a report led to: an upload that was added or refused (and why), and how the participant is.

    `idle` tells that it had the newest parameters and nothing to send; `version` is the server's.
    """

    uploaded: bool
    refused: str | None
    idle: bool
    spent: bool
    waiting: int
    version: int


@dataclass(frozen=True)
class _Fate:
    """What became of the last upload: the receipt, or the digest of what was refused."""

    receipt: bytes = b""
    refused: bytes = b""


class SharingServer:
    """A parameter server and those of its participants that are elsewhere."""

    def __init__(self, server: ParameterServer, names: Collection[str]) -> None:
        """Serve these names, participants of the server's run."""
        for name in names:
            if name not in server.terms.participants:
                raise UnknownNameError("participant", name, server.terms.participants)
        if server.terms.together > 1:
            raise PrivacyError(
                f"by the terms only sums of {server.terms.together} uploads may be opened; here the server reads each. "
                "Agree on together=1."
            )
        self.names = tuple(names)
        self._server = server
        self._requests: dict[str, Request] = {}
        self._fates: dict[str, _Fate] = {}

    @property
    def version(self) -> int:
        """How many uploads the parameters hold."""
        return self._server.version

    def knows(self, name: str) -> bool:
        """Whether this participant's request is known, so that an instruction answers it."""
        return name in self._requests

    def instruction(self, name: str) -> bytes:
        """Return what to tell a participant now; nothing changes by it."""
        self._check_name(name)
        request, fate = self._requests.get(name), self._fates.get(name, _Fate())
        answer = b"" if request is None else self._server.answer(encode(request))
        asked = -1 if request is None else request.version
        return encode(Instruction(self._server.terms.digest, name, fate.receipt, fate.refused, asked, answer))

    def take(self, name: str, reply: bytes) -> Taken:
        """Take the report that came from `name`; `MessageError` if it is not one, and nothing has changed then."""
        self._check_name(name)
        report = decode(reply, Report, max_bytes=self._server.terms.upload_bytes + REQUEST_BYTES + _FRAME_BYTES)
        self._check_author(name, report.terms, report.participant)
        request = self._checked_request(name, report.request)
        added, refused = self._upload(name, report.upload) if report.upload else (False, None)
        self._requests[name] = request
        return Taken(
            uploaded=added,
            refused=refused,
            idle=report.taken and not report.upload,
            spent=report.spent,
            waiting=report.waiting,
            version=self.version,
        )

    def _upload(self, name: str, upload: bytes) -> tuple[bool, str | None]:
        """Let the server add an upload; return whether it did (now, not before) and why not if it refused."""
        before = self.version
        try:
            self._check_uploader(name, upload)
            receipt = self._server.receive(upload)
        except MessageError as error:
            self._fates[name] = _Fate(refused=hashlib.sha256(upload).digest())
            return False, str(error)
        self._fates[name] = _Fate(receipt=receipt)
        return decode(receipt, Receipt).version > before, None

    def _check_uploader(self, name: str, upload: bytes) -> None:
        message = decode(upload, Upload, max_bytes=self._server.terms.upload_bytes)
        self._check_author(name, message.terms, message.participant)

    def _checked_request(self, name: str, blob: bytes) -> Request:
        request = decode(blob, Request)
        self._check_author(name, request.terms, request.participant)
        if not -1 <= request.version <= self.version:
            raise MessageError(
                f"{name!r} has the parameters of version {request.version}; the newest here are {self.version}. The "
                "server must go on in the folder of the run, or all begin again."
            )
        return request

    def _check_author(self, name: str, terms: bytes, author: str) -> None:
        if terms != self._server.terms.digest:
            raise MessageError(f"the message of {name!r} belongs to another run, or to a network of another shape.")
        if author != name:
            raise MessageError(f"{name!r} speaks in the name of {author!r}.")

    def _check_name(self, name: str) -> None:
        if name not in self.names:
            raise UnknownNameError("participant", name, self.names)


# Turns


@dataclass
class Turn:
    """What happened in one turn: whose uploads were added, refused (why) or lacking (why), and who was late."""

    number: int
    version: int = 0
    uploaded: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    spent: set[str] = field(default_factory=set)

    def note(self, name: str, outcome: Taken | str) -> None:
        """Write down what came from a participant: a report, or a sentence that says why there is none."""
        if isinstance(outcome, str):
            self.failed[name] = outcome
            return
        if outcome.uploaded:
            self.uploaded.append(name)
        if outcome.refused is not None:
            self.refused[name] = outcome.refused
        if outcome.spent:
            self.spent.add(name)


def play_synchronous(
    server: SharingServer,
    transport: Transport,
    *,
    turns: int,
    deadline: float,
    minimum: int = 1,
    on_turn: Callable[[Turn], None] = lambda turn: None,
    clock: Clock = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Play so many turns, in each of which all who are present get one exchange; fewer if all budgets are spent.

    A turn lasts `deadline` seconds at most. It begins when at least `minimum` participants are present; if there are
    not so many within another `deadline`, `ServiceError` is raised, and the run can be gone on with later.
    """
    _check_bounds(turns=turns, minimum=minimum, deadline=deadline)
    exchanges = _Exchanges(server, transport, clock)
    for number in range(1, turns + 1):
        present = _enough(server, transport, minimum, deadline, pause)
        turn, ends = Turn(number), clock() + deadline
        absent = exchanges.exchange([name for name in present if not server.knows(name)], turn, ends)
        absent += exchanges.exchange([name for name in present if server.knows(name)], turn, ends)
        turn.late += sorted(set(absent) - set(turn.failed))
        turn.version = server.version
        on_turn(turn)
        if turn.spent == set(server.names):
            return


def play_asynchronous(
    server: SharingServer,
    transport: Transport,
    *,
    uploads: int,
    deadline: float,
    on_upload: Callable[[str, Taken], None] = lambda name, taken: None,
    on_failure: Callable[[str, str], None] = lambda name, sentence: None,
    clock: Clock = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Play until so many uploads were added, or nobody has photos and budget left.

    `on_upload` is told of every upload, added or refused, and of everyone whose budget is spent; `on_failure` of every
    error that came instead of a report.
    Whoever had nothing to send, or failed, is asked again after as many uploads of others as there are participants.
    Whoever has not replied for `deadline` seconds is sent a new instruction. If nobody replies for three times as long,
    `ServiceError` is raised.
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
        last_heard, (name, outcome) = clock(), heard
        resting[name] = _rests_until(outcome, server)
        if isinstance(outcome, str):
            on_failure(name, outcome)
        elif outcome.uploaded or outcome.refused is not None or outcome.spent:
            added += outcome.uploaded
            on_upload(name, outcome)


def _rests_until(outcome: Taken | str, server: SharingServer) -> float:
    """Return the server's version at which a participant is to be asked again."""
    if isinstance(outcome, str):
        return server.version + len(server.names)
    if outcome.spent:
        return float("inf")
    return server.version + len(server.names) if outcome.idle else 0


def _enough(
    server: SharingServer, transport: Transport, minimum: int, deadline: float, pause: Callable[[float], None]
) -> list[str]:
    """Return who is present, once they are enough."""
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
        """Return whose instructions are not older than the deadline."""
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

    def hear(self, seconds: float) -> Iterator[tuple[str, Taken | str]]:
        """Yield who replied, and what came of it or why nothing did."""
        for _, name, outcome in self._replies(seconds):
            yield name, outcome

    def exchange(self, names: Sequence[str], turn: Turn, ends: float) -> list[str]:
        """Send each its instruction, note what comes until all have replied or time is over; return who has not."""
        missing = self.send(names)
        unreached = [name for name in names if name not in missing.values()]
        if missing:
            for ticket, name, outcome in self._replies(max(0.0, ends - self._clock())):
                turn.note(name, outcome)
                missing.pop(ticket, None)
                if not missing:
                    break
        return [*unreached, *missing.values()]

    def _replies(self, seconds: float) -> Iterator[tuple[str, str, Taken | str]]:
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


# What a run protects


def sharing_statement_of(terms: SelectiveTerms, uploads: int) -> PrivacyStatement:
    """Return the statement of a run on these terms with so many uploads.

    It is that of the most that participants may share, without noise. One that adds noise has a better one, which only
    its own ledger can prove.
    """
    most = Sharing(terms.most_values / terms.dimension)
    said = sharing_statement(compose_sharing(most, dimension=terms.dimension, uploads=max(1, uploads), delta=0.0))
    return replace(
        said,
        mechanism=f"up to {terms.most_values} of {terms.dimension} values of each change, learned from {terms.batch} "
        "photos, in the clear; how many, and with what noise if any, is each participant's own choice and not known to "
        "the server",
        who_sees={
            **said.who_sees,
            "operator of the SuperLink": "what the server sees, and the addresses and times of all nodes",
        },
        not_protected=(
            *said.not_protected,
            f"all {uploads} uploads of this run: what a participant's own noise protects, its own ledger tells and "
            "nothing here",
        ),
        assumptions=(
            *said.assumptions,
            "nodes run the app they mean to run: Flower's SuperLink sends the app's code to the nodes",
        ),
    )
