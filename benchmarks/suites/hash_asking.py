"""What it costs to ask so that nobody learns the query: encrypted queries, and local indexes that are taken home.

Encrypted queries are asked of drawn codes of 128 bits, beside faiss in the clear on the same codes in the same run;
both must find the true nearest. Indexes that are taken home hold random symbols of a codebook: what they weigh does not
depend on what they show.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.engines import Album, Questions
from benchmarks.results import Result
from benchmarks.suites.hash_engines import K, recall
from benchmarks.table import Cell, Grid, heads
from blindsight.errors import InputError

BITS, QUERIES, DIMENSIONS = 128, 5, 32
SCANS, QUICK_SCANS = {"10k": 10_000, "100k": 100_000}, {"1k": 1_000}
PULLS, QUICK_PULLS = {"pull-1M": 1_000_000, "pull-10M": 10_000_000}, {"pull-5k": 5_000}


def tasks(settings: Settings) -> list[Task]:
    """Pose scans of two sizes, and two sizes to take home."""
    scans, pulls = (QUICK_SCANS, QUICK_PULLS) if settings.quick else (SCANS, PULLS)
    queries = 1 if settings.quick else QUERIES
    return [
        *(
            Task(
                name,
                f"{rows:,} drawn codes of {BITS} bits; {queries} queries, {K} hits each.",
                partial(_scan, rows, queries),
                ("encrypted", "encrypted-numbers", "faiss-flat"),
            )
            for name, rows in scans.items()
        ),
        *(
            Task(name, f"{rows:,} drawn releases of a local index.", partial(_pull, rows), ("pull",))
            for name, rows in pulls.items()
        ),
    ]


def _scan(rows: int, queries: int, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (rows, BITS // 8), dtype=np.uint8)
    asked = rng.integers(0, 256, (queries, BITS // 8), dtype=np.uint8)
    return Problem(Questions(codes, asked, K), partial(_score_scan, codes, asked))


def _score_scan(codes: Any, asked: Any, answer: Any) -> dict[str, float]:
    if recall(codes, asked, answer["positions"]) != 1:
        raise InputError("a full scan must find the true nearest.")
    return {name: float(value) for name, value in answer.items() if name != "positions"}


def _pull(rows: int, seed: int) -> Problem:
    return Problem(Album(rows, DIMENSIONS), partial(_score_pull, rows))


def _score_pull(rows: int, answer: Any) -> dict[str, float]:
    if not answer["same"]:
        raise InputError("what was taken home is not what was given.")
    return {name: float(value) for name, value in answer.items() if name != "same"} | {"records": float(rows)}


def sections(results: Sequence[Result]) -> list[Grid]:
    """Show scans beside faiss, then what taking home weighs."""
    scans = [result for result in results if result.method != "pull"]
    pulls = [result for result in results if result.method == "pull"]
    grids = []
    columns: tuple[str, ...]
    if scans:
        columns = heads(
            " | records | up, MB | down, MB | asker, CPU s | search, CPU s | encode once, CPU s | memory, MB"
        )
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (
                result.method,
                result.dataset,
                (result.score["up"] / 1e6,),
                (result.score["down"] / 1e6,),
                (result.score.get("encrypt", 0.0) + result.score.get("decrypt", 0.0),),
                (result.score["answer"],),
                (result.score["build"],),
                (result.score["memory"] / 1e6,),
            )
            for result in scans
        )
        grids.append(Grid(f"One query to codes of {BITS} bits", columns, rows))
    if pulls:
        columns = heads(
            " | epsilon | symbols | MB | bytes a record | give, CPU s | receive, CPU s | first, CPU s | rank, CPU s"
        )
        rows = tuple(
            (
                result.dataset,
                f"{result.arguments['epsilon']:g}",
                f"{result.score['symbols']:.0f}",
                (result.score["bytes"] / 1e6,),
                (result.score["bytes"] / result.score["records"],),
                *((result.score[step],) for step in ("give", "receive", "first", "rank")),
            )
            for result in pulls
        )
        grids.append(Grid("The whole index, taken home", columns, rows))
    return grids


BENCHMARK = Benchmark(
    name="hash-asking",
    title="Asking without being heard",
    tasks=tasks,
    methods=(
        Method("encrypted", "engines:encrypted"),
        Method("encrypted-numbers", "engines:encrypted", {"number_bits": 4}),
        Method("faiss-flat", "engines:plain"),
        Method("pull", "engines:pull", {"epsilon": 4.0}),
        Method("pull", "engines:pull", {"epsilon": 8.0}),
    ),
    sections=sections,
    notes=(
        "One thread each, CPU time a query. Targets of an encrypted query at 100,000 records: at most 1 s and 15 MB.",
        "Before the first encrypted query the asker takes the hash function and the pictures' numbers, eight bytes "
        "each; the search encodes its codes once.",
        f"encrypted-numbers: {BITS} numbers of 4 bits in place of bits.",
        "The first query to an index that was taken home sorts its records by symbol.",
    ),
    runs=1,
)
