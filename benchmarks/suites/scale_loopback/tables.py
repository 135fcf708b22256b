"""The tables: how long a round takes over loopback, what the processes use, and what the cost model says of both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.methods.network_cost import Exchange, NetworkCost
from benchmarks.results import Result
from benchmarks.suites.scale_loopback.cases import Case, full_cases, quick_cases
from benchmarks.table import Cell, Grid

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
    columns = (
        "",
        "set-up and first round, s",
        "a later round, s",
        "slowest, s",
        "the whole run, s",
        "CPU, s",
        "of it the SuperLink",
        "the server",
        "an owner's node",
        "other work on the machine, cores",
        "later round / plain FedAvg, stock",
        "later round / plain FedAvg, warm",
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
    columns = (
        "",
        "a contribution, MB",
        "all messages, MB",
        "seconds of a round",
        "contributing",
        "opening the sum",
        "starting all processes",
        "before the first round, and after the last",
        "first round, with set-up",
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
    columns = (
        "",
        "CPU seconds of a round",
        "of these, beyond idling",
        "idle processes, cores",
        "other work on the machine, cores",
        "all processes, peak MB",
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
    columns = (
        "",
        "CPU seconds",
        "predicted",
        "predicted / measured",
        "wall seconds",
        "predicted with the cores others left",
        "predicted / measured",
        "predicted for a machine with nothing else to do",
    )
    note = (
        f"Fitted to the rounds of {fewest} owners: {network.message:.2f} CPU seconds a message, "
        f"{network.byte / _MEGA:.3f} a megabyte. What the roles compute is calibrated in one process."
    )
    return Grid("Predicted beside measured", columns, tuple(rows), note)


def _figures(*values: float) -> tuple[Cell, ...]:
    return tuple("" if math.isnan(value) else (value,) for value in values)
