"""Rounds as they are deployed: real processes on this machine over TLS, authenticated nodes, watched from outside."""

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from apps.federated.deployment.federation import LocalFederation, Pair
from apps.federated.deployment.loopback import ConfigValue, Loopback
from benchmarks.methods.processes import Processes
from benchmarks.methods.scale import Scheme, Setting, calibrate
from blindsight.errors import ServiceError
from blindsight.learn.model import LinearModel
from blindsight.sums.terms import AGGREGATOR

_PERIOD = 0.5  # seconds


@dataclass(frozen=True)
class Sample:
    """CPU seconds so far: of all that descends from this process (`ours`), of the machine (`all`); memory now."""

    ours: float
    all: float
    bytes: int


def sample() -> Sample:
    """Look around once; what ended is counted with its parent. Memory that processes share counts for each of them."""
    seen, ended = Processes.now(), os.times()
    found = seen.below(os.getpid())
    ours = sum(seen.seconds[pid] for pid in found) + ended.children_user + ended.children_system
    busy = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    idle, guests = int(busy[3]) + int(busy[4]), sum(map(int, busy[8:10]))  # guests count as user time already
    everything = (sum(map(int, busy)) - idle - guests) / os.sysconf("SC_CLK_TCK")
    return Sample(ours, everything, sum(seen.bytes[pid] for pid in found))


class Watch:
    """Samples in a thread of its own; `laps` holds a sample for each time that `lap()` returned something new."""

    def __init__(self, lap: Callable[[], object]) -> None:
        self._lap, self._seen = lap, lap()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.laps: list[Sample] = []
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_PERIOD):
            now = sample()
            self.peak_bytes = max(self.peak_bytes, now.bytes)
            if (seen := self._lap()) != self._seen:
                self._seen = seen
                self.laps.append(now)


APP = Path(__file__).parents[1] / "apps" / "latency"


@dataclass(frozen=True)
class Rounds:
    """So many owners and weights; the first round has the set-up in it."""

    owners: int
    weights: int
    rounds: int = 4
    most_seconds: float = 600.0


class LatencyAnswer(TypedDict):
    """The mean weight after each round, when each ended after the app began, and CPU seconds by party.

    `others` is how many cores everything else on the machine used meanwhile.
    """

    means: list[float]
    ends: list[float]
    cpu: dict[str, float]
    others: float
    submitted: float


def latency(given: Rounds, *, seed: int, kind: str, launcher: str) -> LatencyAnswer:
    """Start everything, play the rounds, stop everything; nothing is random, so the seed decides nothing."""
    names = [f"owner-{number}" for number in range(given.owners)]
    with tempfile.TemporaryDirectory(prefix="latency-") as place:
        folder = Path(place)
        federation = LocalFederation.settle(folder, names)
        nodes = [federation.node(name) for name in names]
        settings: dict[str, ConfigValue] = {
            "kind": kind,
            "weights": given.weights,
            "rounds": given.rounds,
            "users": given.owners,
            "home": str(federation.home(AGGREGATOR)),
            "members-file": str(folder / "members.toml"),
            "out": str(folder / "ends.json"),
        }
        nodes += [federation.generator_node()] if kind == "masks" else []
        with Loopback(APP, nodes, folder / "flower", warm=launcher == "warm") as network:
            parties, before, begun = Processes.now(), sample(), time.monotonic()
            _play(network, settings, given.most_seconds)
            submitted, after = time.monotonic() - begun, sample()
            then = Processes.now()
            cpu = {name: then.cpu(pid) - parties.cpu(pid) for name, pid in network.processes.items()}
        ends = json.loads((folder / "ends.json").read_text())
    others = (after.all - before.all - (after.ours - before.ours)) / submitted
    means, ended = [mean for _, mean in ends], [end for end, _ in ends]
    return LatencyAnswer(means=means, ends=ended, cpu=cpu, others=others, submitted=submitted)


def _play(network: Loopback, config: dict[str, ConfigValue], seconds: float) -> None:
    """Play a run to its end."""
    number = network.run(config)
    if (status := network.wait(number, seconds)) != "finished:completed":
        raise ServiceError(f"the run ended as {status}: {network.log(number)[-2000:]}")


WARM_UP = 1  # rounds that are not counted: the first one also sets users up
IDLE_SECONDS = 6.0


@dataclass(frozen=True)
class Deployment:
    """So many owners learn to tell `attributes` from `features` numbers (and a bias), each from a few samples."""

    owners: int
    attributes: int
    features: int
    sparsity: float
    key_bits: int
    rounds: int = WARM_UP + 2
    samples: int = 12
    most_seconds: float = 900.0
    insecure: bool = False

    @property
    def weights(self) -> int:
        """How many numbers an owner has to say."""
        return self.attributes * (self.features + 1)

    @property
    def names(self) -> tuple[str, ...]:
        """The owners."""
        return tuple(f"owner-{number}" for number in range(self.owners))

    def data(self, seed: int) -> tuple[dict[str, Pair], Pair]:
        """Return random data of all owners, and public data that teach nothing, so that the first model is zero."""
        rng = np.random.default_rng(seed)

        def pair() -> Pair:
            labels = rng.integers(0, 2, (self.samples, self.attributes), dtype=np.int8)
            return rng.standard_normal((self.samples, self.features)), labels

        features, labels = pair()
        return {name: pair() for name in self.names}, (features, np.ones_like(labels))

    def settings(self, scheme: str) -> dict[str, Any]:
        """Return how they learn: one pass over the data in a round."""
        chosen = {"rounds": self.rounds, "sparsity": self.sparsity, "key_bits": self.key_bits, "passes": 1}
        return {"scheme": scheme, "minimum_per_position": 1, **chosen}


class LoopbackAnswer(TypedDict):
    """The model, figures of every counted round by name, figures of the run, and what the cost model says of the roles.

    `complete` tells of every round whether all owners were in the sum.
    """

    weights: NDArray[np.float64]
    complete: NDArray[np.bool_]
    rounds: dict[str, NDArray[np.float64]]
    run: dict[str, float]
    predicted: dict[str, float]


def deployed(given: Deployment, *, seed: int, scheme: Scheme) -> LoopbackAnswer:
    """Start everything, learn, stop everything; the seed decides the data alone."""
    shares, public = given.data(seed)
    with tempfile.TemporaryDirectory(prefix="scale-loopback-") as folder:
        federation = LocalFederation.prepare(Path(folder), shares, public, public, insecure=given.insecure)
        begun = time.monotonic()
        with Watch(lambda: _finished_rounds(federation)) as watch, federation.loopback(warm=False) as network:
            started = time.monotonic()
            config = federation.run_config(**given.settings(scheme))
            most = given.most_seconds  # which only the whole run can miss
            _play(network, {**config, "validation": "", "round-seconds": most, "step-seconds": most}, most)
            ended, idle = time.monotonic(), idle_cores()
        report = json.loads((federation.out / "report.json").read_text())
        weights = LinearModel.load(federation.out / "model.npz").weights
    rounds = report["rounds"]
    setting = Setting(scheme, key_bits=given.key_bits, density=1 - given.sparsity, insecure=given.insecure)
    return LoopbackAnswer(
        weights=weights,
        complete=np.array([sorted(row["contributors"]) == sorted(given.names) for row in rounds]),
        rounds=round_figures(report, watch.laps),
        run={
            "starting": started - begun,
            "idle": idle,
            "set-up": ended - started - sum(row["seconds"] for row in rounds),
            "first round": rounds[0]["seconds"],
            "peak bytes": float(watch.peak_bytes),
        },
        predicted=calibrate(setting, repeats=1).predict(given.owners, given.weights),
    )


def idle_cores() -> float:
    """Return how much of a core all processes use while nothing goes on but that they look for work."""
    before, begun = sample(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    return (sample().ours - before.ours) / (time.monotonic() - begun)


def round_figures(report: dict[str, Any], ends: list[Sample]) -> dict[str, NDArray[np.float64]]:
    """Return the figures of every round after the first ones; `ends` are samples at the end of each round."""
    if len(ends) != len(report["rounds"]):
        raise ServiceError(f"{len(ends)} rounds were seen to end; the report has {len(report['rounds'])}.")
    rows = []
    for number in range(WARM_UP, len(ends)):
        before, after, row = ends[number - 1], ends[number], report["rounds"][number]
        traffic = report["traffic"][str(row["round"])]
        calls, opening = traffic["contribute"], traffic["open"]
        rows.append(
            {
                "wall": row["seconds"],
                "contributing": calls["seconds"],
                "opening": opening["seconds"],
                "cpu": after.ours - before.ours,
                "others": after.all - before.all - (after.ours - before.ours),
                "contribution": calls["received"] / calls["messages"],
                "call": calls["sent"] / calls["messages"],
                "request": opening["sent"],
                "answer": opening["received"],
            }
        )
    return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}


def _finished_rounds(federation: LocalFederation) -> tuple[int, ...]:
    """Return something that changes whenever the server has kept the model of another round."""
    return tuple(path.stat().st_mtime_ns for path in federation.home(AGGREGATOR).glob("runs/*/task.npz"))
