"""Apps that learn from answers which sift looks harmless: what they get accepted, by how often they may ask.

Rows whose truth is known (`blindsight.sift.cheats.Segments`) judge sift after sift. One schedule gives try n the error
alpha / (n (n + 1)), which is right for a list that is fixed beforehand; the other gives it its place in the tree of all
answers (`blindsight.sift.adaptive`).
"""

from collections.abc import Sequence
from functools import partial

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.results import Result
from benchmarks.table import Cell, Grid
from blindsight.sift.cheats import Segments

THRESHOLD, CONFIDENCE = 0.10, 0.95
ROWS, TRIES = 3000, (100, 307, 1000, 1500)


def tasks(settings: Settings) -> list[Task]:
    """Pose every number of tries."""
    counts = TRIES[:1] if settings.quick else TRIES
    return [Task(f"tries-{n}", f"{ROWS:,} rows, {n:,} tries and a search.", partial(_pose, n)) for n in counts]


def _pose(tries: int, seed: int) -> Problem:
    rows = Segments.draw(ROWS, random_state=seed)
    return Problem((rows, tries, 1 - CONFIDENCE), lambda got: {"most let out": float(got)})


def sections(results: Sequence[Result]) -> list[Grid]:
    """Show the most that was let out, run by run."""
    rows: list[tuple[Cell, ...]] = []
    for dataset in dict.fromkeys(result.dataset for result in results):
        row: tuple[Cell, ...] = (dataset.removeprefix("tries-"),)
        for method in ("forgetful", "tree"):
            found = [r.score["most let out"] for r in results if (r.dataset, r.method) == (dataset, method)]
            row += (tuple(found), f"{sum(value > THRESHOLD for value in found)} of {len(found)}")
        rows.append(row)
    columns = ("tries", "fixed list: most let out", "beyond .10", "tree of answers: most let out", "beyond .10")
    return [Grid("What an adaptive app gets accepted", columns, tuple(rows), "True PrivLoss; .10 is allowed.")]


BENCHMARK = Benchmark(
    name="sift-adaptive",
    title="Apps that learn from yes and no",
    tasks=tasks,
    methods=(Method("forgetful", "sifts:adaptive", {"tree": False}), Method("tree", "sifts:adaptive", {"tree": True})),
    sections=sections,
    notes=("In the tree every answer is used up: after many of them nothing is accepted any more on the same rows.",),
    runs=5,
)
