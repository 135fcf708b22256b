"""Flower's Grid as a transport: names instead of node numbers, responses as they come, nodes that come and go.

Every node proves who it is before anything else is sent to it (`membership`). Nobody waits for a node that keeps silent
about that, except at the beginning, when nobody else is known; it is asked again later, after ever longer pauses.
Replies are pulled a few at a time, so that the server holds few contributions at once. `MeteredTransport` counts what
each kind of message took.

All messages are of Flower's type "train": Flower hands a message to an app's mods only if the app has a function for
its type, and every app that learns has one to train.
"""

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from blindsight.federated.flower.records import pack, printable, response_in
from blindsight.federated.identity import PublicIdentity
from blindsight.federated.membership import Directory, Members, hello
from blindsight.sums.transport import Response, Transport

_POLL_SECONDS = 0.25
_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3600.0  # seconds before a node that was refused is asked again
_AT_ONCE = 4  # replies in memory
_GONE = frozenset(
    {
        ErrorCode.NODE_UNAVAILABLE,
        ErrorCode.MESSAGE_UNAVAILABLE,
        ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
        ErrorCode.CLIENT_APP_CRASHED,
    }
)


@dataclass(frozen=True)
class _Hello:
    """The question who a node is: the ticket of its answer, the challenge in it, and when the answer is overdue."""

    ticket: str
    challenge: bytes
    due: float


@dataclass(frozen=True)
class _Pause:
    """When a node that was refused is asked again, and how many seconds that is after its refusal."""

    until: float
    seconds: float


class GridTransport:
    """Carries Blindsight's messages over a Grid to the members of a federation."""

    def __init__(self, grid: Grid, members: Members, *, hello_seconds: float = 60.0) -> None:
        """Know nobody yet; a node that does not say who it is in so many seconds is refused until it does."""
        self._grid, self._hello_seconds = grid, hello_seconds
        self._hellos: dict[int, _Hello] = {}  # by node, those without an answer
        self._pauses: dict[int, _Pause] = {}
        self._arrived: dict[str, Response | None] = {}
        self.directory = Directory(members)

    def present(self) -> Mapping[str, int]:
        """Return the members that can be reached now.

        Nodes that are new are asked who they are; what they answer is waited for if nobody else is known, and else
        heard the next time.
        """
        nodes = set(self._grid.get_node_ids())
        self.directory.keep(nodes)
        self._hellos = {node: asked for node, asked in self._hellos.items() if node in nodes}
        self._pauses = {node: pause for node, pause in self._pauses.items() if node in nodes}
        self._reconsider()
        for node in sorted(nodes - self.directory.known - self._hellos.keys()):
            self._ask(node)
        self._hear()
        return dict(self.directory.nodes)

    def identities(self) -> Mapping[str, PublicIdentity]:
        """Return the members that can be reached now, with the keys they have shown."""
        return {name: self.directory.identities[name] for name in self.present()}

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        """Send parts to a member; to one that is not there nothing is sent, and no reply will come."""
        node = self.directory.nodes.get(name)
        return "" if node is None else self._push(node, kind, parts)

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Response]]:
        """Yield replies as they come; a node that is gone is not waited for."""
        waiting = {ticket for ticket in tickets if ticket}
        until = time.monotonic() + seconds
        while waiting:
            for ticket, reply in self._pulled(waiting):
                waiting.discard(ticket)
                if reply is not None:
                    yield ticket, reply
            if not waiting or time.monotonic() >= until:
                return
            _sleep(_POLL_SECONDS, until)
        if tickets:  # everybody asked is away: do not ask again at once
            _sleep(_POLL_SECONDS * 4, until)

    def complaints(self) -> str:
        """Say which nodes were not let in, and why."""
        return "".join(f" Node {node}: {sentence}" for node, sentence in self.directory.refused.items())

    def _reconsider(self) -> None:
        """Forget refusals after a while: whoever runs the node may have mended it, or stopped its double."""
        now = time.monotonic()
        for node, pause in self._pauses.items():
            if node in self.directory.refused and now >= pause.until:
                del self.directory.refused[node]
                self._hellos.pop(node, None)

    def _ask(self, node: int) -> None:
        """Ask a node who it is."""
        challenge, message = hello(node)
        if ticket := self._push(node, "hello", [message]):
            self._hellos[node] = _Hello(ticket, challenge, time.monotonic() + self._hello_seconds)
        else:
            self._refuse(node, "Flower took no message for it.")

    def _hear(self) -> None:
        """Take in who nodes say they are, in the order in which they were asked.

        One whose answer is overdue is refused, until it comes after all.
        """
        tickets = [asked.ticket for asked in self._hellos.values()]
        heard = dict(self.collect(tickets, seconds=self._patience()))
        for node, asked in list(self._hellos.items()):
            if asked.ticket in heard:
                del self._hellos[node]
                self._meet(node, heard[asked.ticket], asked.challenge)
            elif time.monotonic() >= asked.due and node not in self.directory.refused:
                self._refuse(node, "it did not say who it is in time.")

    def _meet(self, node: int, reply: Response, challenge: bytes) -> None:
        """Let a node in by what it answered, or refuse it."""
        self.directory.refused.pop(node, None)
        if not reply.error:
            self.directory.enter(node, reply.parts, challenge)
        if sentence := reply.error or self.directory.refused.get(node):
            self._refuse(node, sentence)
        else:
            self._pauses.pop(node, None)

    def _patience(self) -> float:
        """Return how long to wait for answers: until all are due, if nobody is known with whom to go on."""
        if self.directory.nodes:
            return 0.0
        return max((asked.due - time.monotonic() for asked in self._hellos.values()), default=0.0)

    def _refuse(self, node: int, sentence: str) -> None:
        """Do not let a node in; each time it is twice as long until it is asked again."""
        last = self._pauses.get(node)
        seconds = _FIRST_PAUSE if last is None else min(2 * last.seconds, _LONGEST_PAUSE)
        self._pauses[node] = _Pause(time.monotonic() + seconds, seconds)
        self.directory.refuse(node, sentence)

    def _push(self, node: int, kind: str, parts: Sequence[bytes]) -> str:
        """Send a message and return its ticket; none if Flower would not take it."""
        tickets = list(self._grid.push_messages([envelope(node, kind, parts)]))
        return (tickets[0] or "") if tickets else ""

    def _pulled(self, tickets: Collection[str]) -> Iterator[tuple[str, Response | None]]:
        """Yield what has come, None for a node that is gone; what is not taken now is kept."""
        queue = sorted(tickets)
        for start in range(0, len(queue), _AT_ONCE):
            few = queue[start : start + _AT_ONCE]
            missing = [ticket for ticket in few if ticket not in self._arrived]
            for message in self._grid.pull_messages(missing) if missing else ():
                self._arrived[message.metadata.reply_to_message_id] = read_response(message)
            for ticket in few:
                if ticket in self._arrived:
                    yield ticket, self._arrived.pop(ticket)


def envelope(node: int, kind: str, parts: Sequence[bytes]) -> Message:
    """Return the message of Flower that carries parts to a node."""
    return Message(pack(kind, parts), dst_node_id=node, message_type=MessageType.TRAIN)


def read_response(message: Message) -> Response | None:
    """Return what a node replied; None if it is gone."""
    if not message.has_error():
        return response_in(message.content)
    if message.error.code in _GONE:
        return None
    return Response(error=f"its app failed: {printable(message.error.reason or 'no reason was given.')}")


def _sleep(seconds: float, until: float) -> None:
    time.sleep(max(0.0, min(seconds, until - time.monotonic())))


@dataclass
class Traffic:
    """What the messages of one kind took: how many there were, bytes there and back, wall seconds.

    The seconds are those of sending and of waiting for responses, with what was done with each before the next.
    """

    messages: int = 0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0


class MeteredTransport:
    """Carries messages as `transport` does, and counts."""

    def __init__(self, transport: Transport) -> None:
        """Begin at zero."""
        self._transport = transport
        self._kinds: dict[str, str] = {}
        self._traffic: defaultdict[str, Traffic] = defaultdict(Traffic)

    def take(self) -> dict[str, Traffic]:
        """Return what was counted by kind, and begin at zero."""
        traffic = dict(self._traffic)
        self._traffic.clear()
        return traffic

    def present(self) -> Mapping[str, int]:
        """Return the names that can be reached now."""
        return self._transport.present()

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        """Send parts to a name; what is known not to be answered counts as well."""
        begun = time.monotonic()
        ticket = self._transport.send(name, kind, parts)
        traffic = self._traffic[kind]
        traffic.messages += 1
        traffic.sent += sum(map(len, parts))
        traffic.seconds += time.monotonic() - begun
        self._kinds[ticket] = kind
        return ticket

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Response]]:
        """Yield responses; the time counts for the kind of the messages that are waited for."""
        kind, begun = next((self._kinds[ticket] for ticket in tickets if ticket in self._kinds), ""), time.monotonic()
        try:
            for ticket, response in self._transport.collect(tickets, seconds=seconds):
                self._traffic[self._kinds.pop(ticket, kind)].received += sum(map(len, response.parts))
                yield ticket, response
        finally:
            if kind:
                self._traffic[kind].seconds += time.monotonic() - begun
