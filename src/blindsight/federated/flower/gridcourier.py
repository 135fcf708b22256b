"""Flower's Grid as a courier: names instead of node numbers, replies as they come, nodes that come and go.

Every node proves who it is before anything else is sent to it (`directory`). Replies are pulled a few at a time, so
that the server holds few contributions at once.

All messages are of Flower's type "train": Flower hands a message to an app's mods only if the app has a function for
its type, and every app that learns has one to train.
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
_ASK_AGAIN_SECONDS = 60.0
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
        """Know nobody yet; a node that does not say who it is in so many seconds is asked again a minute later."""
        self._grid, self._hello_seconds = grid, hello_seconds
        self._refused_at: dict[int, float] = {}
        self._arrived: dict[str, Reply | None] = {}
        self.directory = Directory(members)

    def present(self) -> Mapping[str, int]:
        """Return the members that can be reached now; nodes that are new are asked who they are."""
        nodes = set(self._grid.get_node_ids())
        self.directory.keep(nodes)
        self._reconsider()
        self._greet(sorted(nodes - self.directory.known))
        return dict(self.directory.nodes)

    def identities(self) -> Mapping[str, PublicIdentity]:
        """Return the members that can be reached now, with the keys they have shown."""
        return {name: self.directory.identities[name] for name in self.present()}

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        """Send parts to a member; to one that is not there nothing is sent, and no reply will come."""
        node = self.directory.nodes.get(name)
        return "" if node is None else self._push(node, kind, parts)

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Reply]]:
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
        """Forget refusals after a minute: whoever runs the node may have mended it, or stopped its double."""
        now = time.monotonic()
        for node in [node for node, then in self._refused_at.items() if now - then >= _ASK_AGAIN_SECONDS]:
            self.directory.refused.pop(node, None)
            del self._refused_at[node]

    def _greet(self, nodes: Sequence[int]) -> None:
        """Ask nodes who they are; note why one is not let in."""
        asked, silent = {}, set(nodes)
        for node in nodes:
            challenge, message = hello()
            asked[self._push(node, "hello", [message])] = (node, challenge)
        for ticket, reply in self.collect(asked, seconds=self._hello_seconds):
            node, challenge = asked[ticket]
            silent.discard(node)
            if reply.error:
                self.directory.refuse(node, reply.error)
            else:
                self.directory.enter(node, reply.parts, challenge)
        for node in silent:
            self.directory.refuse(node, "it did not say who it is in time.")
        self._refused_at |= dict.fromkeys(self.directory.refused.keys() & set(nodes), time.monotonic())

    def _push(self, node: int, kind: str, parts: Sequence[bytes]) -> str:
        """Send a message and return its ticket; none if Flower would not take it."""
        tickets = list(self._grid.push_messages([envelope(node, kind, parts)]))
        return (tickets[0] or "") if tickets else ""

    def _pulled(self, tickets: Collection[str]) -> Iterator[tuple[str, Reply | None]]:
        """Yield what has come, None for a node that is gone; what is not taken now is kept."""
        queue = sorted(tickets)
        for start in range(0, len(queue), _AT_ONCE):
            few = queue[start : start + _AT_ONCE]
            missing = [ticket for ticket in few if ticket not in self._arrived]
            for message in self._grid.pull_messages(missing) if missing else ():
                self._arrived[message.metadata.reply_to_message_id] = read_reply(message)
            for ticket in few:
                if ticket in self._arrived:
                    yield ticket, self._arrived.pop(ticket)


def envelope(node: int, kind: str, parts: Sequence[bytes]) -> Message:
    """Return the message of Flower that carries parts to a node."""
    return Message(pack(kind, parts), dst_node_id=node, message_type=MessageType.TRAIN)


def read_reply(message: Message) -> Reply | None:
    """Return what a node replied; None if it is gone."""
    if not message.has_error():
        return reply_in(message.content)
    if message.error.code in _GONE:
        return None
    return Reply(error=f"its app failed: {message.error.reason or 'no reason was given'}")


def _sleep(seconds: float, until: float) -> None:
    time.sleep(max(0.0, min(seconds, until - time.monotonic())))
