"""Rounds of very many simulated owners in one process, and a cost model for more of them than anyone has at hand.

Keys, permutations, ciphertexts and receipts of a simulated round are real, and so are the roles (`sums.roles`). An
owner draws its update when it is asked, contributes and is dropped; it is charged for what it would prepare on its own
machine. A few owners, spread over all, stay to read the answer, and stand for all.

No cost is typed in. `calibrate` plays four small rounds and fits to each figure the quantities it must depend on
(`_TERMS`), with costs that are never negative; `predict` applies them to a round of any size.

*Where it holds.* The window table with which an owner encrypts grows in steps (`crypto.paillier`): an owner's
encryption is calibrated on 16 to 800 ciphertexts, and predicted too high beyond. Seconds are CPU seconds of one core of
the machine that was calibrated. Wall time (`Network`) is arithmetic about a network that nobody measured.

In a deployment (`NetworkCost`) every message to a node is handled by a process that starts for it, and every byte is
hashed, encrypted, stored and read several times, on the machines of all parties together:

    CPU of a round = roles + message x messages + byte x bytes

Nodes are asked twice in a round, all users for a contribution, then the key generator to open the sum; whoever is asked
finds out when it next looks, every `poll` seconds. On one machine all parties share its cores.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from benchmarks.machine import measured
from benchmarks.methods.processes import alone
from benchmarks.methods.rounds import FRACTION_BITS, Round
from blindsight.crypto import bfv, paillier
from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.paillier import randomiser
from blindsight.errors import InputError, UnknownNameError
from blindsight.sums import Aggregator, KeyGenerator, Member, Terms, make_terms
from blindsight.sums.bfv import length
from blindsight.sums.dphe import layout_of
from blindsight.sums.engine import Cost, Meter
from blindsight.sums.scheme import Resources
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, MAX_MEMBERS

Update = Callable[[str], NDArray[np.float64]]
"""Draws the update of a member, when it is its turn."""

READERS = 10


@dataclass(frozen=True, eq=False)
class SimulatedRound:
    """The sum of a round, what the set-up and the round cost, and whose reading of the answer was measured.

    `ciphertexts` is how many a member sends, `opened` how many the key generator decrypted. `closing` are those of the
    aggregator's seconds that it needs once, to make the request, and not for each contribution.
    """

    integers: NDArray[np.int64]
    setup: Cost
    cost: Cost
    readers: tuple[str, ...]
    ciphertexts: int
    opened: int
    closing: float


def simulated_round(terms: Terms, update: Update, *, key: Any = None) -> SimulatedRound:
    """Play a round of a scheme with a key generator; an existing key pair saves the time to make one."""
    setup, meter, resources = Meter(terms.members), Meter(terms.members), Resources(threads=1)
    with setup.working(KEY_GENERATOR, "set up"):
        generator = KeyGenerator(terms, key=key, resources=resources)
    aggregator = Aggregator(terms, resources=resources)
    members = {name: Member(name, terms, resources=resources) for name in terms.members}
    for party in (*members.values(), aggregator):
        enrolment = party.enrolment()
        setup.carried(party.name, KEY_GENERATOR, "set up", len(enrolment))
        with setup.working(KEY_GENERATOR, "set up"):
            generator.enrol(enrolment)
    with setup.working(KEY_GENERATOR, "set up"):
        setups = generator.setup()
    for name, message in setups.items():
        setup.carried(KEY_GENERATOR, name, "set up", len(message))
        with setup.working(name, "set up"):
            (aggregator if name == AGGREGATOR else members[name]).accept(message)
    readers = {name: members[name] for name in _spread(terms.members)}
    with meter.working(AGGREGATOR, "aggregate"):
        aggregator.open(0)
        calls = aggregator.calls()
    for name, call in calls.items():
        integers = terms.integers(update(name))
        randomiser.cache_clear()  # on a machine of its own, a member has no other's table
        member = members.pop(name)
        with meter.working(name, "encrypt"):
            reply = member.answer(call, integers)
        meter.carried(name, AGGREGATOR, "encrypt", len(reply))
        with meter.working(AGGREGATOR, "aggregate"):
            aggregator.receive(reply)
    before = meter.cost().seconds("aggregate", party=AGGREGATOR)
    with meter.working(AGGREGATOR, "aggregate"):
        aggregator.advance()
        request = aggregator.request()
    closing = meter.cost().seconds("aggregate", party=AGGREGATOR) - before
    meter.carried(AGGREGATOR, KEY_GENERATOR, "aggregate", len(request))
    with meter.working(KEY_GENERATOR, "decrypt"):
        sealed = generator.answer(request)
    meter.carried(KEY_GENERATOR, AGGREGATOR, "decrypt", len(sealed))
    with meter.working(AGGREGATOR, "read"):
        answer, total = aggregator.conclude(sealed)
    for name, reader in readers.items():
        meter.carried(AGGREGATOR, name, "read", len(answer))
        with meter.working(name, "read"):
            reader.read(answer, 0)
    sent, opened = aggregator.ciphertexts[terms.members[0]], aggregator.ciphertexts[AGGREGATOR]
    return SimulatedRound(total.integers, setup.cost(), meter.cost(), tuple(readers), sent, opened, closing)


def _spread(members: tuple[str, ...]) -> tuple[str, ...]:
    """Return up to `READERS` members at equal distances."""
    return members[:: -(-len(members) // READERS)]


Scheme = Literal["block-dphe", "bfv"]
Figures = Mapping[str, float]
"""CPU seconds: of one owner to "encrypt" and to "read", of the aggregator to "add" one contribution and to "close" the
round, of the key generator to "decrypt". Bytes: of one message of each kind."""


@dataclass(frozen=True)
class Size:
    """A round, as far as its cost goes: `sent` ciphertexts by each owner, `opened` ones in the sum."""

    owners: int
    weights: int
    sent: float
    opened: float


_TERMS: dict[str, Callable[[Size], tuple[float, ...]]] = {
    "encrypt": lambda size: (1, size.sent),
    "read": lambda size: (1, size.weights),
    "add": lambda size: (1, size.sent),
    "close": lambda size: (1, size.owners, size.opened),  # each owner has a receipt
    "decrypt": lambda size: (1, size.owners, size.opened),
    "contribution": lambda size: (1, size.sent),
    "request": lambda size: (1, size.owners, size.opened),
    "answer": lambda size: (1, size.owners, size.weights),  # it names the owners
    "set-up message": lambda size: (1, size.owners),  # it tells everyone's key
}
FIGURES = tuple(_TERMS)
_BY_OWNERS = ("close", "decrypt", "request", "answer", "set-up message")


@dataclass(frozen=True)
class Setting:
    """What is calibrated: a scheme with its parameters, and the share of the weights that owners change at most."""

    scheme: Scheme
    key_bits: int = 3072
    slot_bits: int = 32
    density: float = 0.1
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.scheme not in get_args(Scheme):
            raise UnknownNameError("scheme with a cost model", self.scheme, get_args(Scheme))
        if not 0 < self.density <= 1:
            raise InputError(f"density must be in (0, 1]; got {self.density}.")

    @property
    def per_ciphertext(self) -> int:
        if self.scheme == "bfv":
            return bfv.parameters_for(_largest_sum(self.slot_bits)).degree
        return SlotPacking.for_key(self.key_bits, slot_bits=self.slot_bits).slots

    def key(self) -> Any:
        """Make a key pair."""
        if self.scheme == "bfv":
            return bfv.generate_keys(max_sum=_largest_sum(self.slot_bits))
        return paillier.generate_keys(self.key_bits, insecure=self.insecure)

    def size(self, owners: int, weights: int) -> Size:
        """Return the round of so many owners; supports are independent, so that the sum covers what chance leaves."""
        if owners < 3 or weights < 1:
            raise InputError(f"a round has at least 3 owners and one weight; got {owners} and {weights}.")
        blocks = -(-weights // self.per_ciphertext)
        if self.scheme == "bfv":
            tagged = length(self.terms(min(owners, MAX_MEMBERS), weights)) // self.per_ciphertext
            return Size(owners, weights, tagged, tagged)
        sent = -(-math.ceil(self.density * weights) // self.per_ciphertext)
        covered = blocks * (1 - (1 - sent / blocks) ** owners)
        return Size(owners, weights, sent + 1, covered + 1)  # and the tag

    def terms(self, owners: int, weights: int) -> Terms:
        """Return the terms of a round of so many owners."""
        return make_terms(
            self.scheme,
            run="calibration",
            members=tuple(f"owner-{number}" for number in range(owners)),
            dimension=weights,
            fraction_bits=8,
            slot_bits=self.slot_bits,
            capacity=math.ceil(self.density * weights),
            key_bits=self.key_bits,
            insecure=self.insecure,
            minimum_per_position=1,
            absences=-1,
        )


@dataclass(frozen=True, eq=False)
class CostModel:
    """The calibrated constants: by figure, one for each quantity that it depends on."""

    setting: Setting
    constants: Mapping[str, tuple[float, ...]]

    def at(self, size: Size) -> dict[str, float]:
        """Return all figures of a round of this size."""
        return {
            figure: sum(constant * term for constant, term in zip(constants, _TERMS[figure](size), strict=True))
            for figure, constants in self.constants.items()
        }

    def predict(self, owners: int, weights: int) -> dict[str, float]:
        """Return all figures of a round with one aggregator and one key generator."""
        return self.at(self.setting.size(owners, weights))


def aggregate_seconds(figures: Figures, owners: int) -> float:
    """Return what an aggregator needs for all contributions of a round."""
    return owners * figures["add"] + figures["close"]


def aggregator_bytes(figures: Figures) -> float:
    """Return what an aggregator must hold: the sum and the receipts, as long as its request, and one contribution."""
    return figures["request"] + figures["contribution"]


def calibrate(setting: Setting, *, weights: int = 200_000, owners: int = 60, repeats: int = 3) -> CostModel:
    """Play small rounds of up to so many owners and weights, and fit the constants: seconds, not minutes.

    Every round is played `repeats` times and the median counts, because a busy machine is slow now and then.
    """
    small, key = setting.per_ciphertext, setting.key()
    probes = [(3, small), (owners, small), (3, weights), (9, weights // 8)]
    runs = [[measure(_play(setting, key, *probe)) for probe in probes] for _ in range(repeats)]
    sizes = [size for size, _ in runs[0]]  # the same in all
    constants = {}
    for figure in FIGURES:
        medians = [statistics.median(run[probe][1][figure] for run in runs) for probe in range(len(probes))]
        found = [(_TERMS[figure](size), value) for size, value in zip(sizes, medians, strict=True)]
        if figure in _BY_OWNERS:
            constants[figure] = fit_by_owners(found)
        else:
            # The window table of an owner is that of the large rounds: a single ciphertext is made without one.
            constants[figure] = fit(found[2:] if figure == "encrypt" else found)
    return CostModel(setting, constants)


def measure(played: SimulatedRound) -> tuple[Size, dict[str, float]]:
    """Return the size of a round that was played, and its figures as `CostModel.predict` would name them."""
    cost, setup, owners = played.cost, played.setup, played.cost.members
    size = Size(len(owners), played.integers.size, played.ciphertexts, played.opened)
    return size, {
        "encrypt": statistics.median(cost.seconds("encrypt", party=owner) for owner in owners),
        "read": statistics.median(cost.seconds("read", party=owner) for owner in played.readers),
        "add": (cost.seconds("aggregate", party=AGGREGATOR) - played.closing) / len(owners),
        "close": played.closing + cost.seconds("read", party=AGGREGATOR),
        "decrypt": cost.seconds(party=KEY_GENERATOR),
        "contribution": sum(map(cost.sent, owners)) / len(owners),
        "request": cost.received(KEY_GENERATOR),
        "answer": cost.received(played.readers[0]),
        "set-up message": setup.received(owners[0]),
    }


def fit(rounds: Sequence[tuple[Sequence[float], float]]) -> tuple[float, ...]:
    """Return constants >= 0 that explain what was found by its terms, in the least squares of relative errors.

    >>> [round(constant, 9) for constant in fit([((1, 10), 7.0), ((1, 30), 17.0)])]
    [2.0, 0.5]
    """
    matrix = np.array([terms for terms, _ in rounds], dtype=np.float64)
    found = np.array([value for _, value in rounds])
    scale = matrix.max(axis=0)
    constants, _ = nnls(matrix / scale / found[:, None], np.ones(len(found)))
    return tuple((constants / scale).tolist())


def fit_by_owners(rounds: Sequence[tuple[Sequence[float], float]]) -> tuple[float, ...]:
    """Fit what depends on (1, owners, ...), where the first two rounds differ in their owners and in nothing else.

    What one owner adds is that difference. Fitted with all the rest, it would drown: it is a tenth of a millisecond
    for a receipt, where a ciphertext takes ten.
    """
    (one, low), (other, high) = rounds[:2]
    each = max(0.0, (high - low) / (other[1] - one[1]))
    fixed, *rest = fit([((1, *terms[2:]), value - each * terms[1]) for terms, value in (rounds[0], *rounds[2:])])
    return fixed, each, *rest


def _largest_sum(slot_bits: int) -> int:
    return (1 << (slot_bits - 1)) - 1


def _play(setting: Setting, key: Any, owners: int, weights: int) -> SimulatedRound:
    """Play a round in which every owner changes as much as it may, at places of its own."""
    terms = setting.terms(owners, weights)
    if not terms.sparse:
        return simulated_round(terms, lambda name: np.ones(weights), key=key)
    layout = layout_of(terms)

    def update(name: str) -> NDArray[np.float64]:
        rng, values = np.random.default_rng(terms.members.index(name)), np.zeros((layout.blocks, layout.slots))
        values[rng.choice(layout.blocks, layout.room, replace=False)] = 1.0
        return values.ravel()[:weights]

    return simulated_round(terms, update, key=key)


@dataclass(frozen=True)
class Hierarchy:
    """Regional aggregators below a root, and a key service in shards: a plan, which nobody has built."""

    regions: int
    shards: int

    def figures(self, model: CostModel, owners: int, weights: int) -> dict[str, float]:
        """Return CPU seconds and bytes, in and out, of one region, of the root and of one shard of the key service.

        The root adds, for each region, as many ciphertexts as a region's sum has, and checks everyone's receipt. So
        does a shard, which opens its part of the sum. An owner's costs are those of `CostModel.predict`.
        """
        if not (1 <= self.regions <= owners // 3 and 1 <= self.shards <= weights):
            raise InputError(f"a hierarchy has regions of at least 3 owners, and a weight for each shard; got {self}.")
        local, everyone = (model.setting.size(number, weights) for number in (-(-owners // self.regions), owners))
        region, whole = model.at(local), model.at(everyone)
        root = model.at(replace(everyone, owners=self.regions, sent=local.opened))
        shard = model.at(replace(everyone, opened=everyone.opened / self.shards))
        receipts = owners * model.constants["decrypt"][1]
        return {
            "region seconds": aggregate_seconds(region, local.owners),
            "region bytes": local.owners * (region["contribution"] + whole["answer"]) + region["request"],
            "root seconds": aggregate_seconds(root, self.regions) + receipts,
            "root bytes": self.regions * (region["request"] + whole["answer"]) + whole["request"],
            "shard seconds": shard["decrypt"],
            "shard bytes": shard["request"] + whole["answer"] / self.shards,
        }


@dataclass(frozen=True)
class Network:
    """The machines of a deployment: cores that work, bytes a second, seconds of a round trip, how often nodes ask.

    Wall time is one step after another: nothing is assumed to overlap but what different machines do side by side. A
    server's line carries all that it receives and sends; its cores share its work (today's aggregators use one). In a
    round, nodes are asked three times, for a contribution, to open the sum and to read it; each time they wait for
    their next poll.
    """

    cores: int = 8
    owner_bytes: float = 1.25e6
    server_bytes: float = 1.25e8
    latency: float = 0.05
    poll: float = 3.0

    def seconds(self, figures: Figures, owners: int) -> float:
        """Return the wall seconds of a round with one aggregator and one key generator."""
        carried = owners * (figures["contribution"] + figures["answer"])
        aggregator = self._server(carried, aggregate_seconds(figures, owners))
        return self._owner(figures) + aggregator + self._server(figures["request"], figures["decrypt"])

    def regional_seconds(self, figures: Figures, machines: Mapping[str, float]) -> float:
        """Return the wall seconds of a round in regions, from an owner's figures and those of `Hierarchy`."""
        servers = (self._server(machines[f"{kind} bytes"], machines[f"{kind} seconds"]) for kind in _MACHINES)
        return self._owner(figures) + sum(servers)

    def _owner(self, figures: Figures) -> float:
        carried = figures["contribution"] + figures["answer"]
        waiting = 3 * (self.poll + self.latency)
        return figures["encrypt"] + figures["read"] + carried / self.owner_bytes + waiting

    def _server(self, carried: float, seconds: float) -> float:
        return carried / self.server_bytes + seconds / self.cores


_MACHINES = ("region", "root", "shard")


_WEIGHT_BYTES = 8  # of the shared model that goes out with every call


@dataclass(frozen=True)
class Exchange:
    """What a round of so many users carries: messages, bytes there and back; and CPU seconds of its roles."""

    users: int
    bytes: float
    roles: float

    @classmethod
    def of(cls, figures: Figures, users: int, weights: int) -> "Exchange":
        """Return that of a round with these figures (`CostModel.predict`)."""
        each = figures["answer"] + _WEIGHT_BYTES * weights + figures["contribution"]
        work = users * (figures["encrypt"] + figures["read"]) + aggregate_seconds(figures, users) + figures["decrypt"]
        return cls(users, users * each + figures["request"] + figures["answer"], work)

    @property
    def messages(self) -> int:
        """One to each user, one to the key generator."""
        return self.users + 1


@dataclass(frozen=True)
class NetworkCost:
    """CPU seconds that a message takes, and a byte."""

    message: float
    byte: float

    @classmethod
    def fit(cls, rounds: Sequence[tuple[Exchange, float]]) -> "NetworkCost":
        """Return the constants that explain the CPU seconds of measured rounds, beyond those of the roles."""
        beyond = [((exchange.messages, exchange.bytes), found - exchange.roles) for exchange, found in rounds]
        if len(beyond) < 2 or min(value for _, value in beyond) <= 0:
            raise InputError("a network is calibrated on two rounds or more that took longer than their roles compute.")
        return cls(*fit(beyond))

    def cpu_seconds(self, exchange: Exchange) -> float:
        """Return the CPU seconds of a round, of all parties together."""
        return exchange.roles + self.message * exchange.messages + self.byte * exchange.bytes

    def wall_seconds(self, exchange: Exchange, *, cores: float, poll: float = 3.0) -> float:
        """Return how long a round takes on one machine with so many cores to spare.

        Users look at times of their own, and the last of n does so n / (n + 1) of a poll after the call, on average.
        """
        waiting = poll * (exchange.users / (exchange.users + 1) + 0.5)
        return waiting + self.cpu_seconds(exchange) / cores


@dataclass(frozen=True)
class Question:
    """Which rounds are asked about: their weights, and their owners if there is one aggregator (`rounds`), and for
    the plan (`planned`), in regions of `region` owners with `shards` of the key service. `repeats` is for calibration.
    """

    weights: int
    key_bits: int
    density: float
    rounds: tuple[int, ...]
    planned: tuple[int, ...]
    region: int = 1_000
    shards: int = 4
    insecure: bool = False
    repeats: int = 3


class ModelAnswer(TypedDict):
    """Predicted figures: by owners, with one aggregator and as planned."""

    rounds: dict[int, dict[str, float]]
    planned: dict[int, dict[str, float]]


def model(given: Question, *, seed: int, scheme: Scheme, slot_bits: int) -> ModelAnswer:
    """Calibrate once on this machine, and predict everything from that."""
    setting = Setting(
        scheme, key_bits=given.key_bits, slot_bits=slot_bits, density=given.density, insecure=given.insecure
    )
    model = calibrate(setting, weights=given.weights, repeats=given.repeats)
    return ModelAnswer(
        rounds={number: model.predict(number, given.weights) for number in given.rounds},
        planned={number: _plan(model, number, given) for number in given.planned},
    )


def _plan(model: CostModel, owners: int, given: Question) -> dict[str, float]:
    network, regions = Network(), -(-owners // given.region)
    figures = model.predict(owners, given.weights)
    machines = Hierarchy(regions, given.shards).figures(model, owners, given.weights)
    return {
        **figures,
        **machines,
        "regions": float(regions),
        "held": aggregator_bytes(model.predict(min(owners, given.region), given.weights)),
        "wall, one aggregator": network.seconds(figures, owners),
        "wall": network.regional_seconds(figures, machines),
    }


class ScaleAnswer(TypedDict):
    """The exact sum, and what the round took: the figures of `costmodel`.

    `setup` are CPU seconds: of one owner, and of the key generator for all owners (without making its key). `seconds`
    are those of all parties in the round.
    """

    total: NDArray[np.float64]
    measured: dict[str, float]
    setup: tuple[float, float]
    seconds: float
    peak_bytes: int


@alone
def played(given: Round, *, seed: int, scheme: Scheme) -> ScaleAnswer:
    """Play the round in a child; the seed has no say in keys, permutations and masks."""
    with measured() as memory:
        played = _play_round(given, scheme)
    owners, figures = played.cost.members, measure(played)[1]
    return ScaleAnswer(
        total=np.ldexp(played.integers.astype(np.float64), -FRACTION_BITS),
        measured=figures,
        setup=(
            sum(played.setup.seconds(party=owner) for owner in owners) / len(owners),
            played.setup.seconds(party=KEY_GENERATOR),
        ),
        seconds=played.cost.seconds() + (len(owners) - len(played.readers)) * figures["read"],
        peak_bytes=memory.peak_memory_bytes,
    )


def _play_round(given: Round, scheme: Scheme) -> SimulatedRound:
    terms = make_terms(
        scheme,
        run="benchmark",
        members=given.users,
        dimension=given.weights,
        fraction_bits=FRACTION_BITS,
        capacity=given.capacity,
        key_bits=given.key_bits,
        insecure=given.insecure,
        minimum_per_position=1,
        absences=-1,
    )
    key = Setting(scheme, key_bits=given.key_bits, insecure=given.insecure).key()
    return simulated_round(terms, given.update, key=key)
