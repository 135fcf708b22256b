"""How the cost of a round grows with the number of owners, and whether the cost model foretells it.

`scale-owners`: 101 x 2048 weights; 10, 100 and 1,000 owners in one process, one at a time; regions below a root are a
plan. `scale-loopback`: seconds of a round as real processes over loopback, beside Flower's own ways.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.loopback import Deployment, LatencyAnswer, LoopbackAnswer, Rounds
from benchmarks.methods.rounds import Round
from benchmarks.methods.scale import Exchange, ModelAnswer, NetworkCost, Question, ScaleAnswer, aggregate_seconds
from benchmarks.results import Result
from benchmarks.table import Claim, Claims, Found, Grid, Table
from blindsight.crypto.encoding import SlotPacking
from blindsight.errors import InputError
from blindsight.papers.dphe import PublishedClassifier

PLANNED = (1_000, 10_000, 100_000)
DENSITY = 0.1
SCHEMES, SLOT_BITS = ("block-dphe", "bfv"), (32, 40)


@dataclass(frozen=True)
class Case:
    """A round of so many owners; `scheme` decides whether they change everything or a tenth of the blocks."""

    scheme: str
    owners: int
    weights: int = 101 * 2048
    key_bits: int = 3072

    def __str__(self) -> str:
        return f"{self.scheme}, {self.owners:,} owners"

    @property
    def dataset(self) -> str:
        kind = "dense" if self.scheme == "bfv" else f"{self.key_bits}-bits-90-zero"
        return f"{self.owners}-owners-{self.weights}-weights-{kind}"

    @property
    def task(self) -> Task:
        changed = "all of them" if self.scheme == "bfv" else f"their own 10% of the blocks of {self._block}"
        said = f"{self.owners:,} owners, {self.weights:,} weights; they change {changed}."
        return Task(self.dataset, said, self.pose, (self.scheme,))

    @property
    def _block(self) -> int:
        return 1 if self.scheme == "bfv" else SlotPacking.for_key(self.key_bits).slots

    def round(self, seed: int) -> Round:
        """Return what the methods are given."""
        blocks = -(-self.weights // self._block)
        return Round(
            users=tuple(f"owner-{number}" for number in range(self.owners)),
            weights=self.weights,
            block=self._block,
            kept=blocks if self.scheme == "bfv" else math.floor(DENSITY * blocks),
            shared=False,
            capacity=math.ceil(DENSITY * self.weights),
            key_bits=self.key_bits,
            whole=self.weights,
            seed=seed,
        )

    def pose(self, seed: int) -> Problem:
        given = self.round(seed)
        return Problem(given, partial(score, given.total()))


def cases(quick: bool) -> list[Case]:
    """Return all rounds, or small ones; few owners first."""
    if quick:
        return [Case(scheme, owners, 6_464, 2048) for scheme in SCHEMES for owners in (5, 20)]
    return [Case(scheme, owners) for scheme in SCHEMES for owners in (10, 100, 1_000)]


def _owner_tasks(settings: Settings) -> list[Task]:
    """Pose each case, and ask the model about all of them and about more owners."""
    posed = cases(settings.quick)
    asked = question(posed)
    text = (
        f"the model's answers for {asked.weights:,} weights; the plan has regions of {asked.region:,} owners and "
        f"{asked.shards} shards of the key service."
    )
    model = Task(
        f"model-{asked.weights}-weights", text, lambda seed: Problem(asked, partial(score_model, asked)), ("model",)
    )
    return [*(case.task for case in posed), model]


def question(posed: list[Case]) -> Question:
    """Return what the model is asked, to stand beside these cases."""
    owners = dict.fromkeys(case.owners for case in posed)
    return Question(posed[0].weights, posed[0].key_bits, DENSITY, tuple(owners), PLANNED)


def score(truth: NDArray[np.float64], answer: ScaleAnswer) -> dict[str, float]:
    """Return all figures, after a check that the sum is exact."""
    if not np.array_equal(answer["total"], truth):
        raise InputError("the sum is not that of the owners' updates.")
    figures = {f"measured/{name}": value for name, value in answer["measured"].items()}
    figures |= {"peak megabytes": answer["peak_bytes"] / 1e6, "seconds": answer["seconds"]}
    return figures | dict(zip(("set-up owner", "set-up generator"), answer["setup"], strict=True))


def score_model(asked: Question, answer: ModelAnswer) -> dict[str, float]:
    """Return all predictions: "round/<owners>/..." and "plan/<owners>/..."."""
    if (tuple(answer["rounds"]), tuple(answer["planned"])) != (asked.rounds, asked.planned):
        raise InputError(f"the model was asked about {asked.rounds} and {asked.planned} owners and answers otherwise.")
    found = {f"round/{owners}": figures for owners, figures in answer["rounds"].items()}
    found |= {f"plan/{owners}": figures for owners, figures in answer["planned"].items()}
    return {f"{about}/{name}": value for about, figures in found.items() for name, value in figures.items()}


MOST_MEGABYTES, MOST_GROWTH = 4000.0, 1.2
_SECONDS = ("encrypt", "read", "aggregate", "decrypt")
_MESSAGES = {
    "contribution": "a contribution",
    "request": "the request",
    "answer": "the answer",
    "set-up message": "a set-up message",
}
_GROWS = {
    "CPU seconds": ("measured/encrypt", "measured/read", "measured/add"),
    "bytes sent": ("measured/contribution",),
}
_PLAN = (
    "owner, s = encrypt | owner sends, MB = contribution * 1e-6 | aggregator holds, MB = held * 1e-6 | "
    "region, s = region seconds | region, MB = region bytes * 1e-6 | root, s = root seconds | "
    "root, MB = root bytes * 1e-6 | shard, s = shard seconds | shard, MB = shard bytes * 1e-6 | wall, s = wall | "
    "wall with one aggregator, s = wall, one aggregator"
)


_ROWS = {str(case): {"dataset": case.dataset} for quick in (False, True) for case in cases(quick)}


def _measured(found: Found) -> list[Case]:
    return [case for case in (*cases(False), *cases(True)) if found(case.dataset)]


def _growth(found: Found) -> list[Claim]:
    """Hold the most owners that were measured against the fewest."""
    made = []
    for measured in ([case for case in _measured(found) if case.scheme == scheme] for scheme in SCHEMES):
        if len(measured) < 2:
            continue
        few, many = measured[0], measured[-1]
        first, last = found(few.dataset), found(many.dataset)
        made.append(Claim(f"{many}: peak megabytes", last.of("peak megabytes"), most=MOST_MEGABYTES))
        for what, names in _GROWS.items():
            grown = tuple(above / below for above, below in zip(last.of(names), first.of(names), strict=False))
            made.append(Claim(f"{many}: {what} an owner, to those with {few.owners}", grown, most=MOST_GROWTH))
    return made


def _figure(about: str, name: str, owners: int, result: Result) -> float:
    """Return a figure in seconds or kilobytes; "aggregate" is the aggregator's whole round."""
    if name == "aggregate":
        return aggregate_seconds({part: result.score[f"{about}/{part}"] for part in ("add", "close")}, owners)
    return result.score[f"{about}/{name}"] * (1e-3 if name in _MESSAGES else 1.0)


def _predictions(found: Found) -> Grid:
    rows, errors = [], {}
    for case, name in ((case, name) for case in _measured(found) for name in (*_SECONDS, *_MESSAGES)):
        models = found(method="model", scheme=case.scheme, slot_bits=32)  # that of every round that is measured
        measured = found(case.dataset).of(partial(_figure, "measured", name, case.owners))
        predicted = models.of(partial(_figure, f"round/{case.owners}", name, case.owners))
        if predicted:
            ratio, what = statistics.fmean(predicted) / statistics.fmean(measured), f"{case}: {name}"
            errors[what] = abs(ratio - 1)
            rows.append((what, measured, predicted, (ratio,)))
    worst = max(errors, key=errors.__getitem__, default="")
    note = f"Seconds, or kilobytes of a message. The largest error is {errors[worst]:.0%} ({worst})." if worst else ""
    return Grid("Predicted beside measured", " | measured | predicted | predicted / measured", rows, note)


OWNERS = Benchmark(
    name="scale-owners",
    title="Rounds of many owners",
    tasks=_owner_tasks,
    methods=(
        *(Method(scheme, "scale:played", {"scheme": scheme}) for scheme in SCHEMES),
        *Method.over("model", "scale:model", scheme=SCHEMES, slot_bits=SLOT_BITS),
    ),
    tables=(
        Claims(
            "Targets",
            _growth,
            ("reached", "missed"),
            "An owner's seconds are its encryption, its reading of the sum and what the aggregator does for it. What "
            "comes once a round, whoever takes part, is in the next table.",
        ),
        Table(
            "CPU seconds of a round, and memory",
            _ROWS,
            " | an owner encrypts = measured/encrypt | an owner reads = measured/read | "
            "aggregator, a contribution = measured/add | aggregator, once = measured/close | "
            "key generator, once = measured/decrypt | set-up, an owner = set-up owner | "
            "set-up, key generator = set-up generator | peak MB = peak megabytes",
            more={"everyone's, by owners": {"figure": lambda r: r.score["seconds"] / int(r.dataset.split("-")[0])}},
            measured=True,
        ),
        Table(
            "Kilobytes of messages",
            _ROWS,
            "".join(f" | {said} = measured/{name} * 1e-3" for name, said in _MESSAGES.items()),
            measured=True,
        ),
        _predictions,
        Table(
            "Plan: regions below a root, a key service in shards",
            {
                f"{scheme}, {bits} bits, {n:,} owners": {"scheme": scheme, "slot_bits": bits, "of": f"plan/{n}"}
                for scheme in SCHEMES
                for bits in SLOT_BITS
                for n in PLANNED
            },
            f" | regions = regions | {_PLAN}",
            "CPU seconds and megabytes of one machine of each kind in one round; wall seconds of the round. Predicted.",
            of=lambda found: found(method="model").parts("of", 2),
            measured=True,
        ),
    ),
    notes=(
        "All sums are checked: each is that of the owners' updates, bit for bit.",
        "All roles are in one process. An owner draws its update, contributes and is dropped before the next; the peak "
        "is that of the whole process, with Python and its libraries.",
        "`block-dphe` has 3072-bit keys; owners change their own tenth of the blocks of 95 weights. `bfv` sends all.",
        "An owner is charged for the window table or the lattice key that it prepares, as in a process of its own. "
        "Its seconds are the median over all owners; those of reading the answer, over ten.",
        "Making the Paillier or lattice key is not counted. Seconds are CPU seconds of one core.",
        "The model is calibrated once for each scheme, on rounds of 3, 9 and 60 owners, and foretells all others. That "
        "is not at the time of the measurements: on a busy machine, CPU seconds of the two differ by that alone.",
        "The plan is predicted, not measured. Its machines have 8 cores and 1 Gbit/s, owners 10 Mbit/s; nodes ask for "
        "work every 3 seconds; nothing overlaps but what different machines do.",
    ),
    runs=1,
)

LATENCY = Rounds(5, 101 * 2048, rounds=3)
LATENCIES = (("fedavg", "stock"), ("fedavg", "warm"), ("secagg", "stock"), ("masks", "stock"), ("masks", "warm"))
_ATTRIBUTES_PER_MEGABYTE, _FEATURES = 60, 1023  # with a bias 15 BFV ciphertexts of 4,096 weights
_LEAST_CORES = 0.1  # where others left nothing, predictions are large but finite


@dataclass(frozen=True)
class Deployed:
    """A deployment under a scheme."""

    scheme: str
    given: Deployment

    def __str__(self) -> str:
        return f"{self.scheme}, {self.given.owners} owners, {self.given.weights:,} weights"

    @property
    def dataset(self) -> str:
        return f"{self.given.owners}-owners-{self.given.weights}-weights-{self.scheme}"

    @property
    def task(self) -> Task:
        sent = f"{1 - self.given.sparsity:.0%} of the weights at most" if self.scheme == "block-dphe" else "all weights"
        size = f"{self.given.attributes:,} attributes x ({self.given.features:,} features + 1)"
        said = f"{self.given.owners} owners learn {size} from {self.given.samples} samples each; they send {sent}."
        return Task(self.dataset, said, self.pose, (self.scheme,))

    def pose(self, seed: int) -> Problem:
        return Problem(self.given, partial(score_deployed, in_one_process(self, seed)))


def dense(owners: int, megabytes: int) -> Deployed:
    """Return a deployment under BFV whose owners send about so much."""
    return Deployed(
        "bfv", Deployment(owners, _ATTRIBUTES_PER_MEGABYTE * megabytes, _FEATURES, sparsity=0.0, key_bits=3072)
    )


@cache
def deployments(quick: bool) -> list[Deployed]:
    """Return all of them, small ones first, or two: enough for a prediction."""
    if quick:
        return [dense(3, 1), dense(3, 2)]
    paper = Deployed("block-dphe", Deployment(5, 101, 2047, sparsity=0.9, key_bits=3072))
    return [paper, *(dense(owners, megabytes) for megabytes in (1, 10, 100) for owners in (3, 5, 8))]


def _loopback_tasks(settings: Settings) -> list[Task]:
    rounds = replace(LATENCY, owners=3) if settings.quick else LATENCY
    latency = Task(
        f"latency-{rounds.owners}-owners-{rounds.weights}-weights",
        f"{rounds.owners} owners add one to each of {rounds.weights:,} weights in {rounds.rounds} rounds.",
        lambda seed: Problem(rounds, partial(score_latency, rounds)),
        tuple(f"{kind}-{launcher}" for kind, launcher in LATENCIES),
    )
    return [latency, *(one.task for one in deployments(settings.quick))]


def score_latency(given: Rounds, answer: LatencyAnswer) -> dict[str, float]:
    """Return the seconds of the first round, with all that comes before it, and of the later ones, after a check."""
    expected = np.arange(given.rounds + 1)
    if not np.allclose(answer["means"], expected, atol=1e-2 * expected[-1]):
        raise InputError(f"the mean weights are {answer['means']}, not those of FedAvg.")
    later, cpu = np.diff(answer["ends"][1:]), answer["cpu"]
    return {
        "first": answer["ends"][1],
        "later": float(later.mean()),
        "slowest": float(later.max()),
        "whole": answer["submitted"],
        "cpu": sum(cpu.values()),
        "SuperLink": cpu["superlink"],
        "server": cpu["aggregator"],
        "owner": statistics.fmean(seconds for name, seconds in cpu.items() if name.startswith("node owner-")),
        "others": answer["others"],
    }


def in_one_process(case: Deployed, seed: int) -> NDArray[np.float64]:
    """Return the model that the same owners learn in this process, under a scheme that costs nothing.

    The sparse scheme opens every block there (`Deployment.settings`), so that all schemes give the same model.
    """
    shares, public = case.given.data(seed)
    ridge = case.given.features / (case.given.samples * (case.given.owners + 1))
    given = case.given
    classifier = PublishedClassifier(
        "plain",
        target="update",
        selection="blocks" if case.scheme == "block-dphe" else "topk",
        sparsity=given.sparsity,
        rounds=given.rounds,
        passes=1,
        multilabel=True,
        ridge=ridge,
    )
    return classifier.fit(shares, public=public).model_.weights


def score_deployed(truth: NDArray[np.float64], answer: LoopbackAnswer) -> dict[str, float]:
    """Return all figures, means over the rounds that count, after a check that nobody is missing in the model."""
    if not answer["complete"].all():
        raise InputError("not all owners were in every sum.")
    if not np.array_equal(answer["weights"], truth):
        raise InputError("the model is not the one that the same owners learn in one process.")
    figures = {f"round/{name}": float(values.mean()) for name, values in answer["rounds"].items()}
    figures["slowest/wall"] = float(answer["rounds"]["wall"].max())
    figures |= {f"predicted/{name}": value for name, value in answer["predicted"].items()}
    return figures | {f"run/{name}": value for name, value in answer["run"].items()}


def _beside_fedavg(found: Found) -> Found:
    """Add how often the time of plain FedAvg a later round takes, as Flower starts it and warm."""
    plain = {way: found(method=f"fedavg-{way}").of("later") for way in ("stock", "warm")}
    return found("latency-*").adding(
        lambda r: {way: r.score["later"] / times[0] for way, times in plain.items() if times}
    )


_DEPLOYED = {one.dataset: one for quick in (False, True) for one in deployments(quick)}
_DEPLOYED_ROWS = {str(one): {"dataset": dataset} for dataset, one in _DEPLOYED.items()}


def _derived(found: Found) -> Found:
    """Add all bytes of a round, its CPU seconds beyond idling, and how many cores others used and there are."""

    def more(result: Result) -> dict[str, float]:
        score, idle = result.score, result.score["run/idle"]
        each = score["round/call"] + score["round/contribution"]
        owners = _DEPLOYED[result.dataset].given.owners
        return {
            "carried": owners * each + score["round/request"] + score["round/answer"],
            "work": score["round/cpu"] - idle * score["round/wall"],
            "others": score["round/others"] / score["round/wall"],
            "cores": float(result.machine["cores"]) - idle,
        }

    return found(_DEPLOYED).adding(more)


def _foretold(found: Found) -> Iterable[Grid]:
    """Fit the network's two constants on dense rounds of the fewest owners; predict all."""
    measured, exchanges = _derived(found), dict[str, Exchange]()
    for result in measured:
        given = _DEPLOYED[result.dataset].given
        (figures,) = Found([result]).parts("kind")(kind="predicted")
        exchanges[result.dataset] = Exchange.of(figures.score, given.owners, given.weights)
    dense = measured(method="bfv")
    fewest = min((exchanges[result.dataset].users for result in dense), default=0)
    probes = [result for result in dense if exchanges[result.dataset].users == fewest]
    if len(probes) < 2:
        return []
    network = NetworkCost.fit([(exchanges[result.dataset], result.score["work"]) for result in probes])

    def more(result: Result) -> dict[str, float]:
        score, exchange = result.score, exchanges[result.dataset]
        work, alone = network.cpu_seconds(exchange), network.wall_seconds(exchange, cores=score["cores"])
        left = network.wall_seconds(exchange, cores=max(score["cores"] - score["others"], _LEAST_CORES))
        ratios = {"cpu ratio": work / score["work"], "left ratio": left / score["round/wall"]}
        return {**ratios, "cpu": work, "left": left, "alone": alone}

    return Table(
        "Predicted beside measured",
        _DEPLOYED_ROWS,
        " | CPU seconds = work | predicted = cpu | predicted / measured = cpu ratio | wall seconds = round/wall | "
        "predicted with the cores others left = left | predicted / measured = left ratio | "
        "predicted for a machine with nothing else to do = alone",
        f"Fitted to the rounds of {fewest} owners: {network.message:.2f} CPU seconds a message, "
        f"{network.byte * 1e6:.3f} a megabyte. What the roles compute is calibrated in one process.",
        measured=True,
    )(measured.adding(more))


LOOPBACK = Benchmark(
    name="scale-loopback",
    title="Rounds over loopback",
    tasks=_loopback_tasks,
    methods=(
        *(
            Method(f"{kind}-{launcher}", "loopback:latency", {"kind": kind, "launcher": launcher})
            for kind, launcher in LATENCIES
        ),
        *(Method(scheme, "loopback:deployed", {"scheme": scheme}) for scheme in SCHEMES),
    ),
    tables=(
        Table(
            "Latency",
            "method",
            " | set-up and first round, s = first | a later round, s = later | slowest, s = slowest | "
            "the whole run, s = whole | CPU, s = cpu | of it the SuperLink = SuperLink | the server = server | "
            "an owner's node = owner | other work on the machine, cores = others | "
            "later round / plain FedAvg, stock = stock | later round / plain FedAvg, warm = warm",
            of=_beside_fedavg,
        ),
        Table(
            "Wall seconds",
            _DEPLOYED_ROWS,
            " | a contribution, MB = round/contribution * 1e-6 | all messages, MB = carried * 1e-6 | "
            "seconds of a round = round/wall | contributing = round/contributing | opening the sum = round/opening | "
            "starting all processes = run/starting | before the first round, and after the last = run/set-up | "
            "first round, with set-up = run/first round",
            of=_derived,
            measured=True,
        ),
        Table(
            "What all processes use together",
            _DEPLOYED_ROWS,
            " | CPU seconds of a round = round/cpu | of these, beyond idling = work | "
            "idle processes, cores = run/idle | other work on the machine, cores = others | "
            "all processes, peak MB = run/peak bytes * 1e-6",
            of=_derived,
            measured=True,
        ),
        _foretold,
    ),
    notes=(
        "Latency: `stock` is Flower as it is (a program for every message, polls every 3 seconds), `warm` the launcher "
        "`blindsight.federated.flower.launcher`, which has the SuperLink in both. Masks and SecAgg+ take four waves of "
        "messages a round, FedAvg one. `--only '*-[sw]*' --force` measures this table alone.",
        "Real processes on one machine: a SuperLink, the server's side, a key generator and the owners, each with a "
        "SuperNode; TLS, authenticated nodes, a database on disk. All of them share the cores of the machine.",
        "Every model is checked: it is the one that the same owners learn in one process, number for number.",
        "Means of two rounds after a first one that is not counted. An owner is sent the model (8 bytes a weight) and "
        "the last sum, learns from 12 samples, encrypts and sends its contribution.",
        "`block-dphe` has 3072-bit keys and sends a tenth of the blocks; `bfv` sends all weights, 17 bytes each.",
        "Nodes ask the SuperLink for work every 3 seconds, and every message to one is handled by a process that "
        "starts for it. Of CPU seconds, those that idle processes use (measured after each run) are shown apart.",
    ),
    runs=1,
)
