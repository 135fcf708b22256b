"""One round of averaging among three members over Flower's messages, in CPU seconds: our masks, SecAgg+, plain FedAvg.

All run in one process over a grid that serialises every message as a network does. What counts is everything that
members and server do in a round after the first, from the arrays that a training returns to the next model: also our
state on disk. SecAgg+ (Bell et al. 2020 as Flower implements it) signs nothing, keeps no state on disk, draws masks
from numpy's generator and does not agree on who dropped out.
"""

import logging
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypedDict
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class MaskRound:
    """Members and the length of their updates: float32, uniform in (-1, 1)."""

    members: int
    weights: int
    seed: int

    def update(self, member: int) -> NDArray[np.float32]:
        """Draw a member's update; every call draws the same."""
        return np.random.default_rng([self.seed, member]).uniform(-1, 1, self.weights).astype(np.float32)


class MaskAnswer(TypedDict):
    """The average of the members' updates, the CPU seconds of a first round with its set-up, and of one after it."""

    average: NDArray[np.float64]
    first: float
    seconds: float


class SerialGrid:
    """Flower's grid in one process: `nodes` answer at once, and every message is taken apart and put together."""

    def __init__(self, nodes: dict[int, Callable[[Any, Any], Any]], configs: dict[int, dict[str, Any]]) -> None:
        """Know who answers, and each node's config."""
        from flwr.app import Context, RecordDict
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 0, 0, 0
        logging.getLogger("flwr").setLevel(logging.ERROR)
        self._nodes, self._replies, self._count = nodes, dict[str, Any](), 0
        self._contexts = {node: Context(0, node, configs.get(node, {}), RecordDict(), {}) for node in nodes}

    run = SimpleNamespace(run_id=0)

    def get_node_ids(self) -> list[int]:
        return list(self._nodes)

    def push_messages(self, messages: Any) -> list[str]:
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids: Any) -> list[Any]:
        return [self._replies.pop(number) for number in message_ids if number in self._replies]

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Any]:
        return self.pull_messages(self.push_messages(messages))

    def _push(self, message: Any) -> str:
        self._count += 1
        number, node = str(self._count), message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = number
        self._replies[number] = self._moved(self._nodes[node](self._moved(message), self._contexts[node]))
        return number

    def _moved(self, message: Any) -> Any:
        from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        contents = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
        moved: Any = inflate_object_from_contents(message.object_id, contents)
        moved.metadata.__dict__["_message_id"] = message.metadata.message_id
        return moved


def _app(update: NDArray[np.float32], mods: list[Any]) -> Any:
    """Return a ClientApp that adds its update to the array that it is given."""
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Any, context: Any) -> Any:
        (record,) = message.content.array_records.values()
        trained = ArrayRecord({"w": Array(record["w"].numpy() + update)})
        content = RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return app


def _seconds(strategy: Any, grid: Any, weights: int, rounds: int) -> MaskAnswer:
    """Play rounds by a strategy of Flower's; the first, with its set-up, is not counted."""
    from flwr.app import Array, ArrayRecord, ConfigRecord

    arrays, average = ArrayRecord({"w": Array(np.zeros(weights, np.float32))}), np.zeros(0)
    begun = first = time.process_time()
    for number in range(1, rounds + 2):
        if number == 2:
            begun = time.process_time()
        messages = strategy.configure_train(number, arrays, ConfigRecord(), grid)
        arrays, _ = strategy.aggregate_train(number, grid.send_and_receive(messages))
        if number == 1:
            average = arrays["w"].numpy().astype(np.float64)
    return {"average": average, "first": begun - first, "seconds": (time.process_time() - begun) / rounds}


def fedavg(given: MaskRound, *, seed: int, rounds: int) -> MaskAnswer:
    """Flower's federated averaging, in the clear."""
    from flwr.serverapp.strategy import FedAvg

    nodes = {node: _app(given.update(node - 1), []) for node in range(1, given.members + 1)}
    return _seconds(FedAvg(min_train_nodes=given.members), SerialGrid(nodes, {}), given.weights, rounds)


def blindsight(given: MaskRound, *, seed: int, rounds: int) -> MaskAnswer:
    """`Encrypted` under masks, with identities, a key generator that vouches for keys, and state on disk."""
    from flwr.serverapp.strategy import FedAvg

    from blindsight.federated.flower import Encrypted, encrypted_updates, simulated_nodes

    mods = [simulated_nodes, encrypted_updates]
    nodes = {node: _app(given.update(node - 1), mods) for node in range(1, given.members + 1)}
    nodes[given.members + 1] = _app(np.zeros(0, np.float32), mods)  # the key generator, which never trains
    configs = {node: {"partition-id": node - 1, "num-partitions": len(nodes)} for node in nodes}
    with tempfile.TemporaryDirectory() as place, patch.object(tempfile, "tempdir", place):
        strategy = Encrypted(
            FedAvg(fraction_evaluate=0.0), simulated=True, users=given.members, most_examples=0, largest=2.0
        )
        return _seconds(strategy, SerialGrid(nodes, configs), given.weights, rounds)


def secagg_plus(given: MaskRound, *, seed: int, rounds: int) -> MaskAnswer:
    """Flower's SecAgg+ workflow and mod, stage by stage; all members share with all, two thirds give a secret back."""
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.client.mod import secaggplus_mod
    from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.compat.common import recorddict_compat as compat
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
    from flwr.server.workflow.secure_aggregation.secaggplus_workflow import WorkflowState

    updates = {node: given.update(node - 1) for node in range(1, given.members + 1)}

    def trained(message: Any, context: Any) -> Any:
        parameters = ndarrays_to_parameters([updates[message.metadata.dst_node_id]])
        result = FitRes(Status(Code.OK, ""), parameters, num_examples=1, metrics={})
        return Message(compat.fitres_to_recorddict(result, True), reply_to=message)

    grid: Any = SerialGrid({node: lambda m, c: secaggplus_mod(m, c, trained) for node in updates}, {})
    proxies = [SimpleNamespace(node_id=node) for node in updates]
    model = ndarrays_to_parameters([np.zeros(given.weights, np.float32)])
    found: list[Any] = []

    def averaged(number: int, results: Any, failures: Any) -> Any:
        found.append(results[0][1].parameters)
        return None, {}

    strategy = SimpleNamespace(
        configure_fit=lambda number, parameters, manager: [(proxy, FitIns(model, {})) for proxy in proxies],
        aggregate_fit=averaged,
    )
    record = RecordDict(
        {
            MAIN_CONFIGS_RECORD: ConfigRecord({Key.CURRENT_ROUND: 1}),
            MAIN_PARAMS_RECORD: compat.parameters_to_arrayrecord(model, True),
        }
    )
    context: Any = SimpleNamespace(
        state=record, strategy=strategy, client_manager=SimpleNamespace(num_available=lambda: given.members)
    )
    workflow: Any = SecAggPlusWorkflow(
        given.members, 2 * given.members // 3 or 2, max_weight=1, clipping_range=1.0, quantization_range=1 << 22
    )
    begun = time.process_time()
    for _ in range(rounds):
        state = WorkflowState()
        for stage in (
            workflow.setup_stage,
            workflow.share_keys_stage,
            workflow.collect_masked_vectors_stage,
            workflow.unmask_stage,
        ):
            if not stage(grid, context, state):
                raise RuntimeError("SecAgg+ came to no sum.")
    seconds = (time.process_time() - begun) / rounds
    (average,) = parameters_to_ndarrays(found[-1])
    return {"average": average.astype(np.float64), "first": seconds, "seconds": seconds}
