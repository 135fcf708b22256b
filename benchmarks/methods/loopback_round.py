"""Rounds of the Flower app as it is deployed: real processes on this machine over TLS, with authenticated nodes.

The owners, the key generator, the SuperLink and the server learn together for a few rounds. The app's own report says
how long each round took; what the processes used of the machine is watched from outside.
"""

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from apps.federated.deployment.federation import LocalFederation, Pair
from apps.federated.deployment.loopback import ConfigValue, Loopback
from benchmarks.methods.costmodel import Scheme, Setting, calibrate
from benchmarks.methods.process_watch import Sample, Watch, sample
from blindsight.errors import ServiceError
from blindsight.learn.model import LinearModel
from blindsight.sums.terms import AGGREGATOR

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


def run(given: Deployment, *, seed: int, scheme: Scheme) -> LoopbackAnswer:
    """Start everything, learn, stop everything; the seed decides the data alone."""
    shares, public = given.data(seed)
    with tempfile.TemporaryDirectory(prefix="scale-loopback-") as folder:
        federation = LocalFederation.prepare(Path(folder), shares, public, public, insecure=given.insecure)
        begun = time.monotonic()
        with Watch(lambda: _finished_rounds(federation)) as watch, federation.loopback(warm=False) as network:
            started = time.monotonic()
            _learn(network, federation.run_config(**given.settings(scheme)), given.most_seconds)
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


def _learn(network: Loopback, config: dict[str, ConfigValue], seconds: float) -> None:
    """Play a run to its end, with deadlines that only the whole run can miss."""
    number = network.run({**config, "validation": "", "round-seconds": seconds, "step-seconds": seconds})
    if (status := network.wait(number, seconds)) != "finished:completed":
        rounds = network.log(number).count("Round ")
        raise ServiceError(f"the run ended as {status} after {rounds} rounds.")


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
