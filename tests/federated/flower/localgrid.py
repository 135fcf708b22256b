"""Flower in one process: a Grid whose nodes answer at once, with every message serialised as on a real network."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

Tamper = Callable[[Message, Message], Message | None]
"""What becomes of a reply to a message on its way back; None if it is lost."""


@dataclass
class LocalNode:
    """A SuperNode: its app, its node-config, and `around`, the circumstances in which its app runs."""

    app: ClientApp
    config: dict[str, Any]
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    tamper: Tamper = lambda message, reply: reply
    state: RecordDict = field(default_factory=RecordDict)


class LocalGrid(Grid):
    """A Grid over `nodes` by number, which may come and go at any time; `wire` holds every message that moved."""

    def __init__(self, nodes, run_config=None):
        self.nodes = nodes
        self.run_config = run_config or {}
        self.wire: list[Message] = []
        self._replies: dict[str, Message] = {}

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        return SimpleNamespace(run_id=1)

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids):
        return [self._replies.pop(number) for number in message_ids if number in self._replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def _push(self, message):
        number = str(uuid4())
        message.metadata.__dict__["_message_id"] = number
        reply = self._handled(self._moved(message))
        if reply is not None:
            self._replies[number] = self._moved(reply)
        return number

    def _moved(self, message):
        """Return a message as its recipient gets it."""
        contents = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
        moved = inflate_object_from_contents(message.object_id, contents)
        moved.metadata.__dict__["_message_id"] = message.metadata.message_id
        self.wire.append(moved)
        return moved

    def _handled(self, message):
        """Let the node's app answer, as a SuperNode does: an exception becomes an error."""
        number = message.metadata.dst_node_id
        if number not in self.nodes:
            return Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
        node = self.nodes[number]
        context = Context(1, number, dict(node.config), node.state, dict(self.run_config))
        try:
            with node.around():
                reply = node.app(message, context)
        except Exception as error:
            reply = Message(
                Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error)}:<'{error}'>"), reply_to=message
            )
        return node.tamper(message, reply)
