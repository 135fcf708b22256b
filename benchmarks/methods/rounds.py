"""One round of secure sums: our schemes, python-paillier, TenSEAL, Flower's SecAgg+. Updates in, their sum and what it
took out.

Rounds over Flower's messages run in one process over a grid that serialises every message as a network does. All that
members and server do in a round after the first counts, from the arrays that a training returns to the next model: also
our state on disk. SecAgg+ (Bell et al. 2020 as Flower implements it) signs nothing, keeps no state on disk, draws masks
from numpy's generator and does not agree on who dropped out.
"""

import logging
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from types import SimpleNamespace
from typing import Any, NamedTuple, TypedDict
from unittest.mock import patch

import numpy as np
import tenseal
from gmpy2 import mpz
from numpy.typing import NDArray
from phe import paillier

from benchmarks.machine import measured
from benchmarks.methods.processes import Clock, alone
from blindsight.crypto.paillier import Keys, PublicKey, generate_keys, randomiser
from blindsight.papers.dphe.compare import cost_row
from blindsight.sums import Session, Terms, make_terms, open_session
from blindsight.sums.dphe import layout_of
from blindsight.sums.masks import add_streams, agree, public_half
from blindsight.sums.scheme import Resources
from blindsight.sums.terms import AGGREGATOR

FRACTION_BITS, SLOT_BITS = 20, 32


@dataclass(frozen=True)
class Round:
    """Users who each changed `kept` blocks of `block` weights, the same blocks or their own.

    Weights are multiples of 2^-20 below 1/4 (of 2^-14 for slots of 16 bits), so exact schemes have no excuse. A user
    sends `capacity` weights or a multiple of that, as in the paper. If this is a part of a round, `whole` is how many
    weights that round has.
    """

    users: tuple[str, ...]
    weights: int
    block: int
    kept: int
    shared: bool
    capacity: int
    key_bits: int
    whole: int
    seed: int
    slot_bits: int = SLOT_BITS

    @property
    def insecure(self) -> bool:
        """Whether the key is of the paper's length, which no longer protects anything."""
        return self.key_bits < 2048

    @property
    def fraction_bits(self) -> int:
        """The finest fixed point at which the sum of seven users fits a slot."""
        return min(FRACTION_BITS, self.slot_bits - 2)

    @property
    def blocks(self) -> int:
        """How many blocks hold all weights."""
        return -(-self.weights // self.block)

    def update(self, user: str) -> NDArray[np.float64]:
        """Draw a user's update; every call draws the same."""
        number = self.users.index(user)
        values = np.random.default_rng([self.seed, number, 0])
        supports = np.random.default_rng([self.seed, len(self.users) if self.shared else number, 1])
        rows = np.zeros((self.blocks, self.block))
        limit = 1 << (self.fraction_bits - 2)
        steps = values.integers(1, limit, (self.kept, self.block)) * values.choice((-1, 1), (self.kept, self.block))
        rows[supports.choice(self.blocks, self.kept, replace=False)] = steps / (1 << self.fraction_bits)
        return rows.ravel()[: self.weights]

    def total(self) -> NDArray[np.float64]:
        """Return the sum of all updates; it is exact, for these are multiples of 2^-20."""
        total = np.zeros(self.weights)
        for user in self.users:
            total += self.update(user)
        return total

    def shards(self, weights: int) -> int:
        """Return how many times `capacity` a user sends who changed so many weights."""
        return max(1, -(-weights // self.capacity))


class Measured(NamedTuple):
    """Seconds or bytes, and the share of the round's work that they were measured on."""

    amount: float
    share: float = 1.0


class RoundAnswer(TypedDict):
    """The sum of all updates at `places`, and what the round took: CPU seconds by step, bytes that one user sends.

    Steps are "encrypt" (one user), "aggregate" and "decrypt"; where it applies also "table" (what one user prepares
    once per key) and "decrypt all" (every place, touched or not). `peak_bytes` is 0 if nobody looked at memory.
    """

    total: NDArray[np.float64]
    places: NDArray[np.int64]
    seconds: dict[str, Measured]
    sent: Measured
    peak_bytes: int


def dense(given: Round, *, seed: int, scheme: str, rounds: int) -> RoundAnswer:
    """Play so many rounds with the same updates and take the mean cost; the seed has no say in keys and masks."""
    session = open_session(scheme, members=given.users, dimension=given.weights, fraction_bits=FRACTION_BITS)
    updates = {user: given.update(user) for user in given.users}
    results = [session.round(updates, number) for number in range(rounds)]
    costs = [cost_row(scheme, result.cost) for result in results]
    return RoundAnswer(
        total=results[-1].values,
        places=np.arange(given.weights),
        seconds={
            step: Measured(sum(getattr(cost, f"{step}_seconds") for cost in costs) / rounds)
            for step in ("encrypt", "aggregate", "decrypt")
        },
        sent=Measured(1e6 * costs[-1].megabytes_sent),
        peak_bytes=0,
    )


def sparse(given: Round, *, seed: int, blocks: bool, keys: Keys = "subgroup") -> RoundAnswer:
    """Play a round; the seed has no say in keys, permutations and masks.

    A member is charged for the window table that its own ciphertexts call for (those of the whole round, where this is
    a part of one), although in this process all members share it.
    """
    terms = make_terms(
        "block-dphe" if blocks else "dphe",
        run="benchmark",
        members=given.users,
        dimension=given.weights,
        fraction_bits=given.fraction_bits,
        slot_bits=given.slot_bits,
        keys=keys,
        capacity=given.capacity,
        key_bits=given.key_bits,
        insecure=given.insecure,
        minimum_per_position=1,
        absences=-1,
    )
    key = generate_keys(given.key_bits, keys=keys, insecure=given.insecure)
    session, clock, sent = Session(terms, resources=Resources(threads=1), key=key), Clock(), 0
    with clock("table"):
        _make_table(key.public, _ciphertexts(given, terms))
    aggregator = session.aggregator
    aggregator.open(0)
    for name, call in aggregator.calls().items():
        update = given.update(name)
        with clock("encrypt"):
            reply = session.members[name].answer(call, terms.integers(update))
        sent += len(reply)
        with clock("aggregate"):
            aggregator.receive(reply)
    with clock("aggregate"):
        aggregator.advance()
        request = aggregator.request()
    with clock("decrypt"):
        answer = session.generator.answer(request)
    users = len(given.users)
    clock.seconds["encrypt"] /= users
    return RoundAnswer(
        total=aggregator.conclude(answer)[1].values,
        places=np.arange(given.weights),
        seconds={step: Measured(seconds) for step, seconds in clock.seconds.items()},
        sent=Measured(sent / users),
        peak_bytes=0,
    )


def _ciphertexts(given: Round, terms: Terms) -> int:
    """Return how many ciphertexts a user makes in the whole round."""
    layout = layout_of(terms)
    changed = -(-min(given.kept * given.block, given.weights) // layout.slots)
    return max(1, -(-changed // layout.room)) * layout.room * given.whole // given.weights


def _make_table(key: PublicKey, ciphertexts: int) -> None:
    masks = randomiser(key.n, key.h)
    masks.mask([mpz(0)], masks.draw(1), window=masks.plan(ciphertexts))


@alone
def crowd(given: Round, *, seed: int) -> RoundAnswer:
    """Play a round and report the peak memory of its process."""
    with measured() as cost:
        answer = sparse(given, seed=seed, blocks=True)
    answer["peak_bytes"] = cost.peak_memory_bytes
    return answer


@dataclass(frozen=True)
class Plaintexts:
    """What to encrypt, and the key; nobody has encrypted anything with it yet."""

    key: PublicKey
    values: tuple[int, ...]


def encrypt(given: Plaintexts, *, seed: int) -> NDArray[np.uint8]:
    """Return the ciphertexts as bytes, one per row; the seed has no say in their randomness."""
    return given.key.encrypt(given.values).to_matrix()


_INDEX_BYTES = 8


def python_paillier(given: Round, *, seed: int, values: int) -> RoundAnswer:
    """Measure so many places that some user touched."""
    generator = np.random.default_rng(seed)
    sent, touched = _traffic(given, generator)
    places = np.sort(generator.choice(touched, min(values, len(touched)), replace=False))
    updates = [np.rint(given.update(user)[places] * 2**FRACTION_BITS).astype(int).tolist() for user in given.users]
    public, private = paillier.generate_paillier_keypair(n_length=given.key_bits)
    users, clock = len(updates), Clock()
    with clock("encrypt"):
        encrypted = [[public.encrypt(weight) for weight in update] for update in updates]
    with clock("aggregate"):
        sums = [reduce(add, column) for column in zip(*encrypted, strict=True)]
    with clock("decrypt"):
        total = [private.decrypt(number) for number in sums]
    additions = users * sent - len(touched)
    seconds = {
        "encrypt": Measured(clock.seconds["encrypt"] / users, len(places) / sent),
        "aggregate": Measured(clock.seconds["aggregate"], (users - 1) * len(places) / additions),
        "decrypt": Measured(clock.seconds["decrypt"], len(places) / len(touched)),
        "decrypt all": Measured(clock.seconds["decrypt"], len(places) / given.weights),
    }
    return RoundAnswer(
        total=np.array(total) / 2**FRACTION_BITS,
        places=places,
        seconds=seconds,
        sent=Measured(sent * (given.key_bits // 4 + _INDEX_BYTES)),
        peak_bytes=0,
    )


def _traffic(given: Round, generator: np.random.Generator) -> tuple[int, NDArray[np.int64]]:
    """Return how many ciphertexts a user sends, and the places that some user touches with a weight or with padding."""
    touched = np.zeros(given.weights, dtype=np.bool_)
    for user in given.users:
        changed = given.update(user) != 0
        sent = given.shards(int(changed.sum())) * given.capacity
        padding = generator.permutation(np.flatnonzero(~changed))[: sent - int(changed.sum())]
        touched |= changed
        touched[padding] = True
    return sent, np.flatnonzero(touched)


def by_tenseal(given: Round, *, seed: int, scheme: str, degree: int, rounds: int) -> RoundAnswer:
    """Play so many rounds with the same updates and take the mean cost; the seed has no say in keys and masks.

    BFV has the parameters of Blindsight's `bfv` at degree 4096, for sums of 32 bits; CKKS those of TenSEAL's own
    tutorials, for sums only.
    """
    exact = scheme == "bfv"
    if exact:
        chosen = {"plain_modulus": 4295049217, "coeff_mod_bit_sizes": [32, 32, 33]}
        secret = tenseal.context(tenseal.SCHEME_TYPE.BFV, degree, n_threads=1, **chosen)
        make, read, scale = tenseal.bfv_vector, tenseal.bfv_vector_from, 2**FRACTION_BITS
    else:
        secret = tenseal.context(tenseal.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=[60, 40, 60], n_threads=1)
        secret.global_scale = 2**40
        make, read, scale = tenseal.ckks_vector, tenseal.ckks_vector_from, 1
    public = secret.copy()
    public.make_context_public()
    size, updates, clock = degree if exact else degree // 2, [], Clock()
    for user in given.users:
        values = np.rint(given.update(user) * scale).astype(np.int64) if exact else given.update(user)
        updates.append([values[start : start + size] for start in range(0, len(values), size)])
    for _ in range(rounds):
        with clock("encrypt"):
            sent = [[make(public, part).serialize() for part in update] for update in updates]
        with clock("aggregate"):
            sums = [read(public, part) for part in sent[0]]
            for message in sent[1:]:
                for place, part in zip(sums, message, strict=True):
                    place.add_(read(public, part))
            request = [place.serialize() for place in sums]
        with clock("decrypt"):
            parts = [np.array(read(secret, part).decrypt()) for part in request]
    clock.seconds["encrypt"] /= len(updates)
    return RoundAnswer(
        total=np.concatenate(parts) / scale,
        places=np.arange(given.weights),
        seconds={step: Measured(seconds / rounds) for step, seconds in clock.seconds.items()},
        sent=Measured(sum(map(len, sent[0]))),
        peak_bytes=0,
    )


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
            FedAvg(fraction_evaluate=0.0), simulated=True, members=given.members, max_examples=0, largest=2.0
        )
        return _seconds(strategy, SerialGrid(nodes, configs), given.weights, rounds)


class MemberAnswer(TypedDict):
    """The average; CPU milliseconds of a member and of the aggregator, and kilobytes of a member beside its vector."""

    average: NDArray[np.float64]
    member: float
    aggregator: float
    up: float
    down: float


def session_members(given: MaskRound, *, seed: int, scheme: str, rounds: int) -> MemberAnswer:
    """Rounds of a session after a first one: what each party computes, signs and reads, without a network or a disk."""
    names = tuple(f"member {number:04d}" for number in range(given.members))
    session = open_session(scheme, members=names, dimension=given.weights, fraction_bits=FRACTION_BITS)
    updates = {name: given.update(number) for number, name in enumerate(names)}
    results = [session.round(updates, number) for number in range(rounds + 1)][1:]
    vector = given.weights * session.terms.residue_type.itemsize / 1e3
    each = 1e3 / (rounds * given.members)
    return {
        "average": results[-1].average,
        "member": each * sum(result.cost.seconds(party=name) for result in results for name in names),
        "aggregator": 1e3 / rounds * sum(result.cost.seconds(party=AGGREGATOR) for result in results),
        "up": each / 1e6 * sum(result.cost.sent(name) for result in results for name in names) - vector,
        "down": each / 1e6 * sum(result.cost.received(name) for result in results for name in names) - vector,
    }


def floor_members(given: MaskRound, *, seed: int, cohort: int) -> MemberAnswer:
    """What no sum of pairwise masks does without: streams of AES-256, a key agreement for each other member."""
    cohorts = [range(first, min(first + cohort, given.members)) for first in range(0, given.members, cohort)]
    private = [number.to_bytes(32, "big") for number in range(1, given.members + 1)]
    public = [public_half(key) for key in private]
    total, hiding, lifting = np.zeros(given.weights, "<u4"), 0.0, 0.0
    for members in cohorts:
        for member in members:
            vector = np.rint(given.update(member).astype(np.float64) * 2**FRACTION_BITS).astype(np.int64).astype("<u4")
            begun = time.process_time()
            pairs = [(agree(private[member], public[other]), member < other) for other in members if other != member]
            add_streams(vector, [(private[member], True), *pairs])
            total += vector
            hiding += time.process_time() - begun
        begun = time.process_time()
        add_streams(total, [(private[member], False) for member in members])
        lifting += time.process_time() - begun
    average = total.view("<i4") / 2**FRACTION_BITS / given.members
    each = 1e3 * hiding / given.members
    return {"average": average, "member": each, "aggregator": 1e3 * lifting, "up": 0.0, "down": 0.0}


def secagg_members(given: MaskRound, *, seed: int) -> MemberAnswer:
    """Flower's SecAgg+: the mod of the members, and the workflow without them and without the grid's serialising."""
    spent = {"members": 0.0, "grid": 0.0}
    answer = secagg_plus(given, seed=seed, rounds=1, spent=spent)
    server = answer["seconds"] - spent["grid"]
    member = 1e3 * spent["members"] / given.members
    return {"average": answer["average"], "member": member, "aggregator": 1e3 * server, "up": 0.0, "down": 0.0}


def secagg_plus(given: MaskRound, *, seed: int, rounds: int, spent: dict[str, float] | None = None) -> MaskAnswer:
    """Flower's SecAgg+ workflow and mod, stage by stage; all members share with all, two thirds give a secret back.

    `spent` gets the seconds that members took, and the grid with them.
    """
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

    def timed(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            begun = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                if spent is not None:
                    spent[what] += time.process_time() - begun

        return call

    answer = timed("members", lambda message, context: secaggplus_mod(message, context, trained))
    grid: Any = SerialGrid(dict.fromkeys(updates, answer), {})
    grid.send_and_receive = timed("grid", grid.send_and_receive)
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
