"""The nodes: a member learns from its own data and sends what only a sum reveals; the key generator opens sums.

Which of the two a node is, and what it insists on, its node-config says (`blindsight.federated.flower.mod`). A member's
`data` is a file of its own (`data`). In selective sharing the server reads uploads, so a member takes part only if its
`schemes` name "sharing"; its node-config then also says what it shares: `share`, `least-batch`, `noise`, `epsilon`,
`delta`, `clip` (`blindsight.federated.sharing.OwnTerms`).
"""

from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from blindsight.errors import MessageError
from blindsight.federated.flower.mod import answer
from blindsight.federated.node import MemberHandler
from blindsight.federated.sharing import EXCHANGE, JOIN, SharingHandler
from blindsight.federated.task import learn

from .settings import read_features, read_pair

app = ClientApp()


@app.train()
def handle(message: Message, context: Context) -> Message:
    """Do what the protocols ask of this node; all their messages come as trainings."""
    config, clusters = context.node_config, context.run_config.get("task") == "k-means"
    read = read_features if clusters else read_pair

    def load() -> Any:
        return read(str(config.get("data", "")), "this member's data")

    def contribute(handler: MemberHandler, parts: tuple[bytes, ...]) -> list[bytes]:
        return [learn(handler, parts, load)]

    def join(handler: MemberHandler, parts: tuple[bytes, ...]) -> list[bytes]:
        SharingHandler.of(handler, config).join(_only(parts))
        return []

    def exchange(handler: MemberHandler, parts: tuple[bytes, ...]) -> list[bytes]:
        return [SharingHandler.of(handler, config).exchange(_only(parts), *load())]

    return answer(message, context, {"contribute": contribute, JOIN: join, EXCHANGE: exchange})


def _only(parts: tuple[bytes, ...]) -> bytes:
    if len(parts) != 1:
        raise MessageError("a message of selective sharing has one part.")
    return parts[0]
