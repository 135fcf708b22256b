"""What the gateway holds: sifted releases a second, and how long one takes, each of them in two logs on disk."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.release_load import Answer, Load
from benchmarks.results import Result
from benchmarks.suites.hash_tables.relations import verdict
from benchmarks.table import Cell, Grid
from blindsight.errors import InputError

RATE, MOST_MILLISECONDS = 200, 100.0
WIDTH, DIMENSION = 5, 10_000
_HERE = "benchmarks.methods.release_load:run"


def tasks(settings: Settings) -> list[Task]:
    """Pose one: as many releases as the fastest method could ask for."""
    dimension, releases = (300, 400) if settings.quick else (DIMENSION, 10_000)
    text = (
        f"{WIDTH} numbers of {dimension:,} random features a release, each of another person in turn; SQLite, one "
        "process of the service and one that asks, on the same machine over loopback without TLS."
    )
    return [Task("sqlite", text, partial(_pose, dimension, releases))]


def _pose(dimension: int, releases: int, seed: int) -> Problem:
    return Problem(Load(dimension, WIDTH, releases), score)


def score(answer: Answer) -> dict[str, float]:
    """Return rate, percentiles and CPU time, if every single request was answered with finite numbers."""
    refused = int((answer["status"] != 200).sum())
    if refused or not answer["status"].size:
        raise InputError(f"{refused} of {answer['status'].size} releases were refused; all must be answered.")
    if answer["rows"].shape != (answer["status"].size, WIDTH) or not np.isfinite(answer["rows"]).all():
        raise InputError(f"every release must have {WIDTH} finite numbers; got shape {answer['rows'].shape}.")
    took = 1000 * (answer["answered"] - answer["due"])
    return {
        "releases": float(took.size),
        "rate": float(took.size / (answer["answered"].max() - answer["due"].min())),
        "p50": float(np.percentile(took, 50)),
        "p99": float(np.percentile(took, 99)),
        "most": float(took.max()),
        "cpu": float(1000 * answer["cpu"][0] / took.size),
    }


def sections(results: Sequence[Result]) -> list[Grid]:
    """Show every load, and whether the target is reached."""
    groups = {rate: [r for r in results if r.arguments["rate"] == rate] for rate in _RATES}

    def row(name: str, group: Sequence[Result]) -> tuple[Cell, ...]:
        return name, *(tuple(r.score[figure] for r in group) for figure in ("rate", "p50", "p99", "most", "cpu"))

    names = {rate: f"{rate} a second" if rate else "as many as it can" for rate in _RATES}
    slowest = tuple(r.score["p99"] for r in groups[RATE])
    target: tuple[Cell, ...] = (
        f"p99 at {RATE} releases a second, ms",
        f"below {MOST_MILLISECONDS:g}",
        slowest,
        verdict([-one for one in slowest], -MOST_MILLISECONDS, ("reached", "missed")),
    )
    columns = ("asked for", "released a second", "p50, ms", "p99, ms", "longest, ms", "CPU ms of the service")
    return [
        Grid("Target", ("", "target", "measured", ""), (target,)),
        Grid("Load", columns, tuple(row(names[rate], groups[rate]) for rate in _RATES)),
    ]


_RATES = (100, RATE, 0)

BENCHMARK = Benchmark(
    name="serve-load",
    title="Sifted releases under load",
    tasks=tasks,
    methods=tuple(
        Method("releases", _HERE, {"rate": rate, "seconds": 20.0 if rate else 10.0, "connections": 40 if rate else 8})
        for rate in _RATES
    ),
    sections=sections,
    notes=(
        "A request counts from the moment it was due, not from when a connection was free for it.",
        "These are wall times, for a machine with nothing else to do; other work on its cores makes them longer. What "
        "the service needs of a core is the CPU time.",
        "Before an answer leaves, its release is in the hash-chained audit log and in the platform's journal, both "
        "written through to the disk: two waits, which releases that arrive together share.",
        "Token, role, rate limits, body limit, grant, budget and terms are checked for every request, as in a service "
        "that `blindsight serve` starts.",
    ),
    runs=1,
)
