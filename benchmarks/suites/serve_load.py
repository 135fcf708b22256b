"""What the gateway holds: sifted releases a second, single and in batches, how long one takes, and what it costs."""

from collections.abc import Sequence
from functools import partial

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.release_load import Figures, Load
from benchmarks.results import Result
from benchmarks.table import Cell, Grid
from blindsight.errors import InputError

TARGETS = {"single": 1000.0, "batch": 2000.0}
MOST_MILLISECONDS = 100.0
WIDTH, DIMENSION = 5, 10_000
_NAMES = {
    "single": "one a request",
    "batch": "20 a request, an eighth of the connections",
    "idle": "one a request, beside 1,000 idle connections",
    "streams": "one a request, beside 200 event streams, an event a second each",
    "two": "one a request, two processes",
    "bare": "a bare FastAPI endpoint that commits a row to SQLite",
}
_COLUMNS = ("rate", "p50", "p99", "most", "cpu", "generator", "memory")


def tasks(settings: Settings) -> list[Task]:
    """Pose one: as many releases as the fastest could ask for."""
    small = Load(300, WIDTH, 24_000, 1, connections=8, idle=100, streams=5, soak=2_000)
    load = small if settings.quick else Load(DIMENSION, WIDTH, 48_000, 10)
    text = (
        f"{WIDTH} numbers of {load.dimension:,} random features a release, each of another person in turn; the "
        f"service, its database and wrk, which asks on {load.connections} connections, on the same cores over "
        "loopback without TLS."
    )
    return [Task("load", text, partial(_pose, load))]


def _pose(load: Load, seed: int) -> Problem:
    return Problem(load, score)


def score(answer: dict[str, Figures]) -> dict[str, float]:
    """Return the figures of every load, if every single request was answered and logged."""
    for load, figures in answer.items():
        if figures["failed"] or not figures["releases"]:
            raise InputError(f"{load}: {figures['failed']:.0f} of {figures['releases']:.0f} failed; none may.")
    return {f"{load} {name}": value for load, figures in answer.items() for name, value in figures.items()}


def sections(results: Sequence[Result]) -> list[Grid]:
    """Show every load, and whether the targets are reached."""
    rows: list[tuple[Cell, ...]] = []
    judged: list[tuple[Cell, ...]] = []
    for result in results:
        for load, name in _NAMES.items():
            if f"{load} rate" in result.score:
                rows.append((result.method, name, *((result.score[f"{load} {part}"],) for part in _COLUMNS)))
            if load in TARGETS and load != "bare" and f"{load} rate" in result.score and result.method != "bare":
                rate, p99 = result.score[f"{load} rate"], result.score[f"{load} p99"]
                reached = rate >= TARGETS[load] and p99 < MOST_MILLISECONDS
                target = f"{TARGETS[load]:,.0f} a second, p99 below {MOST_MILLISECONDS:g} ms"
                judged.append((result.method, name, target, (rate,), (p99,), "reached" if reached else "missed"))
    held = [
        (f"{int(name.removeprefix('soak at ')):,}", (value,))
        for result in results
        for name, value in sorted(result.score.items(), key=lambda item: len(item[0]))
        if name.startswith("soak at ")
    ]
    columns = ("", "", "released a second", "p50, ms", "p99, ms", "longest, ms")
    costs = ("CPU ms of service and database a release", "CPU ms of wrk a release", "MB of the service")
    return [
        Grid("Target", ("", "", "target", "a second", "p99, ms", ""), tuple(judged)),
        Grid("Load", (*columns, *costs), tuple(rows)),
        Grid("Memory", ("releases so far", "MB of the service"), tuple(held)),
    ]


BENCHMARK = Benchmark(
    name="serve-load",
    title="Sifted releases under load",
    tasks=tasks,
    methods=(
        *(Method(kind, "benchmarks.methods.release_load:run", {"database": kind}) for kind in ("sqlite", "postgresql")),
        Method("bare", "benchmarks.methods.release_load:run_bare"),
        Method("soak", "benchmarks.methods.release_load:run_soak"),
    ),
    tables=(sections,),
    notes=(
        "Needs wrk (Debian: apt-get install wrk). It sends the next request of a connection when the one before it was "
        "answered; its CPU time is shown beside the service's, which with PostgreSQL includes the database.",
        "Before an answer leaves, its release is in the log, written through to the disk under a signed head that a "
        "witness file holds: two waits, which releases that arrive together share.",
        "Memory: a million releases in batches of a hundred, then 200,000 one a request. All frames of these grants "
        "are released soon, after which the last release is repeated, logged and signed like any other.",
        "Token, role, rate limits, body limit, grant, budget and terms are checked for every release, as in a service "
        "that `blindsight serve` starts.",
    ),
    runs=1,
)
