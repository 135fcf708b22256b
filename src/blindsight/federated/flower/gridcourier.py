"""Flower's Grid as a courier: names instead of node numbers, replies as they come, nodes that come and go.

Every node proves who it is before anything else is sent to it (`directory`). Replies are pulled a few at a time, so
that the server holds few contributions at once.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from blindsight.federated.courier import Reply
from blindsight.federated.directory import Directory
from blindsight.federated.flower.records import pack, reply_in
from blindsight.federated.identity import PublicIdentity
from blindsight.federated.members import Members
from blindsight.federated.sums.greeting import hello

_POLL_SECONDS = 0.25
_AT_ONCE = 4  # replies in memory
_GONE = frozenset(
    {
        ErrorCode.NODE_UNAVAILABLE,
        ErrorCode.MESSAGE_UNAVAILABLE,
        ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
        ErrorCode.CLIENT_APP_CRASHED,
    }
)


class GridCourier:
    """Carries Blindsight's messages over a Grid to the members of a federation."""

    def __init__(self, grid: Grid, members: Members, *, hello_seconds: float = 60.0) -> None:
        """Know nobody yet; a node that does not answer a hello in so many seconds is asked again later."""
        self._grid, self._hello_seconds = grid, hello_seconds
        self.directory = Directory(members)

    def present(self) -> Mapping[str, int]:
        """Return the members that can be reached now; nodes that are new are asked who they are."""
        nodes = set(self._grid.get_node_ids())
        self.directory.keep(nodes)
        self._greet(sorted(nodes - self.directory.known))
        return self.directory.keep(nodes)

    def identities(self) -> Mapping[str, PublicIdentity]:
        """Return the members that can be reached now, with the keys they have shown."""
        return {name: self.directory.identities[name] for name in self.present()}

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        """Send parts to a member; to one that is not there nothing is sent, and no reply will come."""
        node = self.directory.nodes.get(name)
        return "" if node is None else self._push(node, kind, parts)

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Reply]]:
        """Yield replies as they come; a node that is gone is not waited for."""
        open_tickets = {ticket for ticket in tickets if ticket}
        until = time.monotonic() + seconds
        while open_tickets:
            for ticket, reply in self._pulled(open_tickets):
                open_tickets.discard(ticket)
                if reply is not None:
                    yield ticket, reply
            if not open_tickets or time.monotonic() > until:
                break
            time.sleep(_POLL_SECONDS)
        if not any(tickets) and tickets:  # everybody asked is away: do not ask again at once
            time.sleep(min(_POLL_SECONDS * 4, seconds))

    def complaints(self) -> str:
        """Say which nodes were not let in, and why."""
        return "".join(f" Node {node}: {sentence}" for node, sentence in self.directory.refused.items())

    def _greet(self, nodes: Sequence[int]) -> None:
        """Ask nodes who they are."""
        asked = {}
        for node in nodes:
            challenge, message = hello()
            asked[self._push(node, "hello", [message])] = (node, challenge)
        for ticket, reply in self.collect(asked, seconds=self._hello_seconds):
            node, challenge = asked[ticket]
            if reply.error:
                self.directory.refuse(node, reply.error)
            else:
                self.directory.enter(node, reply.parts, challenge)

    def _push(self, node: int, kind: str, parts: Sequence[bytes]) -> str:
        message = Message(pack(kind, parts), dst_node_id=node, message_type=message_type(kind))
        (ticket,) = self._grid.push_messages([message])
        return ticket or ""

    def _pulled(self, tickets: Collection[str]) -> Iterator[tuple[str, Reply | None]]:
        """Yield what has come; None for a node that is gone."""
        waiting = sorted(tickets)
        for start in range(0, len(waiting), _AT_ONCE):
            for message in self._grid.pull_messages(waiting[start : start + _AT_ONCE]):
                yield message.metadata.reply_to_message_id, read_reply(message)


def message_type(kind: str) -> str:
    """Return Flower's type of message: contributions are training, everything else is a query."""
    return MessageType.TRAIN if kind == "contribute" else MessageType.QUERY


def read_reply(message: Message) -> Reply | None:
    """Return what a node replied; None if it is gone."""
    if not message.has_error():
        return reply_in(message.content)
    if message.error.code in _GONE:
        return None
    return Reply(error=f"its app failed: {message.error.reason or 'no reason was given'}")
