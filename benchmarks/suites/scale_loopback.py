"""Seconds of a round as real processes over loopback, beside Flower's own ways and the cost model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.loopback import Deployment, LatencyAnswer, LoopbackAnswer, Rounds
from benchmarks.methods.scale import Exchange, NetworkCost
from benchmarks.results import Result
from benchmarks.table import Cell, Grid, heads
from blindsight.errors import InputError
from blindsight.learn import FederatedClassifier
from blindsight.learn.rounds import Selection

LATENCY = Rounds(5, 101 * 2048, rounds=3)
LATENCIES = (("fedavg", "stock"), ("fedavg", "warm"), ("secagg", "stock"), ("masks", "stock"), ("masks", "warm"))
OWNERS, MEGABYTES = (3, 5, 8), (1, 10, 100)
_ATTRIBUTES_PER_MEGABYTE, _FEATURES = 60, 1023  # with a bias 15 BFV ciphertexts of 4,096 weights


@dataclass(frozen=True)
class Case:
    """A deployment under a scheme."""

    scheme: str
    given: Deployment

    @property
    def dataset(self) -> str:
        """The name of the task."""
        return f"{self.given.owners}-owners-{self.given.weights}-weights-{self.scheme}"

    @property
    def name(self) -> str:
        """Its row in the tables."""
        return f"{self.scheme}, {self.given.owners} owners, {self.given.weights:,} weights"

    @property
    def description(self) -> str:
        """What a reader of the table should know."""
        sent = f"{1 - self.given.sparsity:.0%} of the weights at most" if self.scheme == "block-dphe" else "all weights"
        size = f"{self.given.attributes:,} attributes x ({self.given.features:,} features + 1)"
        return f"{self.given.owners} owners learn {size} from {self.given.samples} samples each; they send {sent}."


def full_cases() -> list[Case]:
    """Return the deployments of the full size, small ones first."""
    return [_paper(), *(dense(owners, megabytes) for megabytes in MEGABYTES for owners in OWNERS)]


def quick_cases() -> list[Case]:
    """Return the smallest, and one twice as large: two points are enough for a prediction."""
    return [dense(3, 1), dense(3, 2)]


def dense(owners: int, megabytes: int) -> Case:
    """Return a deployment under BFV whose owners send about so much."""
    rounds = Deployment(owners, _ATTRIBUTES_PER_MEGABYTE * megabytes, _FEATURES, sparsity=0.0, key_bits=3072)
    return Case("bfv", rounds)


def _paper() -> Case:
    return Case("block-dphe", Deployment(5, 101, 2047, sparsity=0.9, key_bits=3072))


def tasks(settings: Settings) -> list[Task]:
    """Pose each case."""
    rounds = replace(LATENCY, owners=3) if settings.quick else LATENCY
    latency = Task(
        f"latency-{rounds.owners}-owners-{rounds.weights}-weights",
        f"{rounds.owners} owners add one to each of {rounds.weights:,} weights in {rounds.rounds} rounds.",
        lambda seed: Problem(rounds, partial(latency_score, rounds)),
        tuple(f"{kind}-{launcher}" for kind, launcher in LATENCIES),
    )
    cases = quick_cases() if settings.quick else full_cases()
    return [latency, *(Task(case.dataset, case.description, partial(_pose, case), (case.scheme,)) for case in cases)]


def latency_score(given: Rounds, answer: LatencyAnswer) -> dict[str, float]:
    """Return the seconds of the first round, with all that comes before it, and of the later ones, after a check."""
    expected = np.arange(given.rounds + 1)
    if not np.allclose(answer["means"], expected, atol=1e-2 * expected[-1]):
        raise InputError(f"the mean weights are {answer['means']}, not those of FedAvg.")
    later, cpu = np.diff(answer["ends"][1:]), answer["cpu"]
    owners = [seconds for name, seconds in cpu.items() if name.startswith("node owner-")]
    return {
        "first": answer["ends"][1],
        "later": float(later.mean()),
        "slowest": float(later.max()),
        "whole": answer["submitted"],
        "cpu": sum(cpu.values()),
        "SuperLink": cpu["superlink"],
        "server": cpu["aggregator"],
        "owner": sum(owners) / len(owners),
        "others": answer["others"],
    }


def _pose(case: Case, seed: int) -> Problem:
    return Problem(case.given, partial(score, in_one_process(case, seed)))


def in_one_process(case: Case, seed: int) -> NDArray[np.float64]:
    """Return the model that the same owners learn in this process, under a scheme that costs nothing.

    The sparse scheme opens every block there (`Deployment.settings`), so that all schemes give the same model.
    """
    shares, public = case.given.data(seed)
    selection: Selection = "blocks" if case.scheme == "block-dphe" else "topk"
    ridge = case.given.features / (case.given.samples * (case.given.owners + 1))
    settings = case.given.settings("plain")
    classifier = FederatedClassifier(**settings, selection=selection, multilabel=True, ridge=ridge)
    return classifier.fit(shares, public=public).model_.weights


def score(truth: NDArray[np.float64], answer: LoopbackAnswer) -> dict[str, float]:
    """Return all figures, means over the rounds that count, after a check that nobody is missing in the model."""
    if not answer["complete"].all():
        raise InputError("not all owners were in every sum.")
    if not np.array_equal(answer["weights"], truth):
        raise InputError("the model is not the one that the same owners learn in one process.")
    figures = {f"round/{name}": float(values.mean()) for name, values in answer["rounds"].items()}
    figures |= {f"slowest/{name}": float(answer["rounds"][name].max()) for name in ("wall",)}
    figures |= {f"predicted/{name}": value for name, value in answer["predicted"].items()}
    return figures | {f"run/{name}": value for name, value in answer["run"].items()}


_MEGA = 1e-6
_LEAST_CORES = 0.1  # where others left nothing, predictions are large but finite


@dataclass(frozen=True)
class Measured:
    """One deployment that was measured."""

    case: Case
    result: Result

    def __getitem__(self, figure: str) -> float:
        return self.result.score[figure]

    @property
    def exchange(self) -> Exchange:
        """What the model knows of a round: what it carries and what its roles compute."""
        name = "predicted/"
        figures = {key.removeprefix(name): value for key, value in self.result.score.items() if key.startswith(name)}
        return Exchange.of(figures, self.case.given.owners, self.case.given.weights)

    @property
    def carried(self) -> float:
        """All bytes of a round."""
        each = self["round/call"] + self["round/contribution"]
        return self.case.given.owners * each + self["round/request"] + self["round/answer"]

    @property
    def work(self) -> float:
        """CPU seconds of a round beyond those of processes that look for work in vain."""
        return self["round/cpu"] - self["run/idle"] * self["round/wall"]

    @property
    def others(self) -> float:
        """How many cores everything else on the machine used in these rounds."""
        return self["round/others"] / self["round/wall"]

    @property
    def cores(self) -> float:
        """How many cores the machine has but for the looking for work."""
        return float(self.result.machine["cores"]) - self["run/idle"]


def sections(results: Sequence[Result]) -> list[Grid]:
    """Return the tables."""
    known = {case.dataset: case for case in (*quick_cases(), *full_cases())}
    found = [Measured(known[result.dataset], result) for result in results if result.dataset in known]
    latency = _latency([result for result in results if result.dataset.startswith("latency-")])
    return [table for table in (latency, _rounds(found), _usage(found), _predictions(found)) if table.rows]


def _latency(results: Sequence[Result]) -> Grid:
    """Show seconds of rounds, and how often the time of plain FedAvg as Flower starts it that is."""
    plain = {result.method: result.score["later"] for result in results}
    names = ("first", "later", "slowest", "whole", "cpu", "SuperLink", "server", "owner", "others")
    rows = [
        (
            result.method,
            *_figures(*(result.score.get(name, math.nan) for name in names)),
            *_figures(*(result.score["later"] / plain.get(f"fedavg-{way}", math.nan) for way in ("stock", "warm"))),
        )
        for result in results
    ]
    columns = heads(
        " | set-up and first round, s | a later round, s | slowest, s | the whole run, s | CPU, s | "
        "of it the SuperLink | the server | an owner's node | other work on the machine, cores | "
        "later round / plain FedAvg, stock | later round / plain FedAvg, warm"
    )
    return Grid("Latency", columns, tuple(rows))


def _rounds(found: Sequence[Measured]) -> Grid:
    rows = [
        (
            one.case.name,
            *_figures(one["round/contribution"] * _MEGA, one.carried * _MEGA),
            *_figures(*(one[f"round/{name}"] for name in ("wall", "contributing", "opening"))),
            *_figures(*(one[f"run/{name}"] for name in ("starting", "set-up", "first round"))),
        )
        for one in found
    ]
    columns = heads(
        " | a contribution, MB | all messages, MB | seconds of a round | contributing | opening the sum | "
        "starting all processes | before the first round, and after the last | first round, with set-up"
    )
    return Grid("Wall seconds", columns, tuple(rows))


def _usage(found: Sequence[Measured]) -> Grid:
    rows = [
        (
            one.case.name,
            *_figures(one["round/cpu"], one.work, one["run/idle"], one.others, one["run/peak bytes"] * _MEGA),
        )
        for one in found
    ]
    columns = heads(
        " | CPU seconds of a round | of these, beyond idling | idle processes, cores | "
        "other work on the machine, cores | all processes, peak MB"
    )
    return Grid("What all processes use together", columns, tuple(rows))


def _predictions(found: Sequence[Measured]) -> Grid:
    """Fit the two constants on the dense rounds of the fewest owners, and predict everything."""
    dense = [one for one in found if one.case.scheme == "bfv"]
    fewest = min((one.case.given.owners for one in dense), default=0)
    probes = [one for one in dense if one.case.given.owners == fewest]
    if len(probes) < 2:
        return Grid("Predicted beside measured", ("",), ())
    network = NetworkCost.fit([(one.exchange, one.work) for one in probes])
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        work = network.cpu_seconds(one.exchange)
        left = network.wall_seconds(one.exchange, cores=max(one.cores - one.others, _LEAST_CORES))
        alone = network.wall_seconds(one.exchange, cores=one.cores)
        figures = (one.work, work, work / one.work, one["round/wall"], left, left / one["round/wall"], alone)
        rows.append((one.case.name, *_figures(*figures)))
    columns = heads(
        " | CPU seconds | predicted | predicted / measured | wall seconds | "
        "predicted with the cores others left | predicted / measured | "
        "predicted for a machine with nothing else to do"
    )
    note = (
        f"Fitted to the rounds of {fewest} owners: {network.message:.2f} CPU seconds a message, "
        f"{network.byte / _MEGA:.3f} a megabyte. What the roles compute is calibrated in one process."
    )
    return Grid("Predicted beside measured", columns, tuple(rows), note)


def _figures(*values: float) -> tuple[Cell, ...]:
    return tuple("" if math.isnan(value) else (value,) for value in values)


BENCHMARK = Benchmark(
    name="scale-loopback",
    title="Rounds over loopback",
    tasks=tasks,
    methods=(
        *(
            Method(f"{kind}-{launcher}", "loopback:latency", {"kind": kind, "launcher": launcher})
            for kind, launcher in LATENCIES
        ),
        *(Method(scheme, "loopback:deployed", {"scheme": scheme}) for scheme in ("block-dphe", "bfv")),
    ),
    sections=sections,
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
        "Wall time is that of the machine as it was: the table says how many of its cores other work used meanwhile.",
    ),
    runs=1,
)
