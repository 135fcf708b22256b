"""Seconds of a round over loopback: FedAvg, SecAgg+ of Flower and encrypted sums; Flower's launcher and the warm one.

The same app, nodes, TLS and node authentication; owners add one to every weight, so that nothing but the way is timed.
"""

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from apps.federated.deployment.federation import LocalFederation
from apps.federated.deployment.loopback import ConfigValue, Loopback
from benchmarks.methods.process_watch import cpu_seconds, sample
from blindsight.errors import ServiceError
from blindsight.sums.terms import AGGREGATOR

APPS = Path(__file__).parents[1] / "apps"
KINDS = ("fedavg", "secagg", "masks")


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


def run(given: Rounds, *, seed: int, kind: str, launcher: str) -> LatencyAnswer:
    """Start everything, play the rounds, stop everything; nothing is random, so the seed decides nothing."""
    encrypted, app = kind == "masks", APPS / ("secagg" if kind == "secagg" else "latency")
    names = [f"owner-{number}" for number in range(given.owners)]
    with tempfile.TemporaryDirectory(prefix="latency-") as place:
        folder = Path(place)
        federation = LocalFederation.settle(folder, names)
        nodes = [federation.node(name) for name in names]
        settings: dict[str, ConfigValue] = {
            "encrypted": encrypted,
            "weights": given.weights,
            "rounds": given.rounds,
            "users": given.owners,
            "home": str(federation.home(AGGREGATOR)),
            "members": str(folder / "members.toml"),
            "out": str(folder / "ends.json"),
        }
        nodes += [federation.generator_node()] if encrypted else []
        with Loopback(app, nodes, folder / "flower", warm=launcher == "warm") as network:
            parties, before, begun = cpu_seconds(network.processes), sample(), time.monotonic()
            number = network.run(settings)
            if (status := network.wait(number, given.most_seconds)) != "finished:completed":
                raise ServiceError(f"the run ended as {status}: {network.log(number)[-2000:]}")
            submitted, after = time.monotonic() - begun, sample()
            cpu = {name: seconds - parties[name] for name, seconds in cpu_seconds(network.processes).items()}
        ends = json.loads((folder / "ends.json").read_text())
    others = (after.all - before.all - (after.ours - before.ours)) / submitted
    means, ended = [mean for _, mean in ends], [end for end, _ in ends]
    return LatencyAnswer(means=means, ends=ended, cpu=cpu, others=others, submitted=submitted)
