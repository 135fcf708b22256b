"""One round of averaging a million and ten million weights of three members: masks beside SecAgg+ and plain FedAvg."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.mask_round import MaskAnswer, MaskRound
from benchmarks.results import Result
from benchmarks.table import Row, Section
from blindsight.errors import InputError

MEMBERS = 3
SIZES = {"1M": 1_000_000, "10M": 10_000_000}
TARGETS = {"1M": 0.6, "10M": 6.0}
NAMES = {"masks": "Blindsight, masks", "SecAggPlus": "Flower, SecAgg+", "FedAvg": "Flower, FedAvg in the clear"}


def tasks(settings: Settings) -> list[Task]:
    """Pose one task per size; a quick run has a hundredth of it."""
    shrink = 100 if settings.quick else 1
    return [
        Task(name, f"{size // shrink:,} random weights of {MEMBERS} members.", partial(_pose, size // shrink))
        for name, size in SIZES.items()
    ]


def _pose(weights: int, seed: int) -> Problem:
    given = MaskRound(MEMBERS, weights, seed)
    return Problem(given, partial(score, given))


def score(given: MaskRound, answer: MaskAnswer) -> dict[str, float]:
    """Return the CPU seconds of a round, after a check that the average is right to 1e-5."""
    right = np.mean([given.update(member).astype(np.float64) for member in range(given.members)], axis=0)
    error = float(np.max(np.abs(answer["average"] - right)))
    if not error < 1e-5:
        raise InputError(f"the average is wrong by {error:g}.")
    return {"seconds": answer["seconds"], "error": error}


def sections(results: Sequence[Result]) -> list[Section]:
    """Show CPU seconds of a round, and ours as a share of the others' in the same run."""
    cost = {(r.dataset, r.method, r.seed, r.session): r.score["seconds"] for r in results}
    runs = dict.fromkeys((result.seed, result.session) for result in results)

    def times(size: str, method: str) -> tuple[float, ...]:
        return tuple(cost[size, method, *run] for run in runs if (size, method, *run) in cost)

    def ratios(size: str, other: str) -> tuple[float, ...]:
        both = [run for run in runs if {(size, "masks", *run), (size, other, *run)} <= cost.keys()]
        return tuple(cost[size, other, *run] / cost[size, "masks", *run] for run in both)

    seconds = [Row(f"{size}: {NAMES[method]}", times(size, method)) for size in SIZES for method in NAMES]
    others = [name for name in NAMES if name != "masks"]
    against = [Row(f"{size}: {NAMES[other]} / masks", ratios(size, other)) for size in SIZES for other in others]
    return [
        Section("CPU seconds of a round, all members and the server", tuple(seconds), digits=3),
        Section("Ratios in the same run", tuple(against), digits=2),
    ]


BENCHMARK = Benchmark(
    name="masks-round",
    title="One round of secure averaging: masks, SecAgg+, FedAvg",
    tasks=tasks,
    methods=(
        Method("masks", "mask_round:blindsight", {"rounds": 2}),
        Method("SecAggPlus", "mask_round:secagg_plus", {"rounds": 2}),
        Method("FedAvg", "mask_round:fedavg", {"rounds": 2}),
    ),
    sections=sections,
    notes=(
        f"Aims: {TARGETS['1M']} CPU seconds at a million weights, {TARGETS['10M']:g} at ten million.",
        "All go over Flower's messages, serialised as on a network, in one process. Masks include signatures of every "
        "message, the signed round on who dropped out and state on disk, which SecAgg+ has not.",
    ),
    runs=3,
)
