"""The nodes: a member learns from its own data and sends what only a sum reveals; the key generator opens sums.

Which of the two a node is, and what it insists on, its node-config says (`blindsight.federated.flower.mod`). A member's
`data` is a file of its own.
"""

from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from blindsight.federated.flower.mod import answer
from blindsight.federated.node import MemberNode
from blindsight.learn import classifier, kmeans, private  # noqa: F401  (the kinds of tasks that this node learns)

from .settings import read_features, read_pair

app = ClientApp()


@app.train()
def handle(message: Message, context: Context) -> Message:
    """Do what the protocols ask of this node; all their messages come as trainings."""
    config, clusters = context.node_config, context.run_config.get("task") == "k-means"
    read = read_features if clusters else read_pair

    def load() -> Any:
        return read(str(config.get("data", "")), "this member's data")

    def contribute(node: MemberNode, parts: tuple[bytes, ...]) -> list[bytes]:
        return [node.learn(parts, load)]

    return answer(message, context, {"contribute": contribute})
