"""Ten to a thousand virtual members through the real protocol over Flower's messages: masks beside plain FedAvg."""

from collections.abc import Sequence
from functools import partial

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.mask_round import MaskRound
from benchmarks.results import Result
from benchmarks.suites.masks_round import score
from benchmarks.table import Row, Section

WEIGHTS = 10_000
MEMBERS = (10, 100, 1000)
NAMES = {"masks": "masks", "FedAvg": "FedAvg in the clear"}


def tasks(settings: Settings) -> list[Task]:
    """Pose one task per number of members: ten in a quick run, up to a thousand in a full one."""
    most = 10 if settings.quick else 1000 if settings.full else 100
    return [
        Task(f"{members}", f"{WEIGHTS:,} random weights of {members:,} members.", partial(_pose, members))
        for members in MEMBERS
        if members <= most
    ]


def _pose(members: int, seed: int) -> Problem:
    given = MaskRound(members, WEIGHTS, seed)
    return Problem(given, lambda answer: score(given, answer) | {"first": answer["first"]})


def sections(results: Sequence[Result]) -> list[Section]:
    """Show CPU seconds of the first round and of a later one, and those of a member."""

    def rows(key: str, share: bool) -> tuple[Row, ...]:
        return tuple(
            Row(
                f"{members:,} members, {NAMES[method]}",
                tuple(
                    result.score[key] / (members if share else 1)
                    for result in results
                    if (result.dataset, result.method) == (str(members), method)
                ),
            )
            for members in sorted({int(result.dataset) for result in results})
            for method in NAMES
        )

    return [
        Section("CPU seconds of a first round, with everybody's set-up", rows("first", share=False), digits=2),
        Section("CPU seconds of a later round, all members and the server", rows("seconds", share=False), digits=2),
        Section("The same for each member", rows("seconds", share=True), digits=4),
    ]


BENCHMARK = Benchmark(
    name="simulated-members",
    title="Virtual members over Flower's messages",
    tasks=tasks,
    methods=(
        Method("masks", "mask_round:blindsight", {"rounds": 1}),
        Method("FedAvg", "mask_round:fedavg", {"rounds": 1}),
    ),
    sections=sections,
    notes=(
        "Every member has an identity, signs, seals and keeps its state on disk; all messages are serialised as on a "
        "network. From 100 members on masks are shared within groups of at least 50. One process, so no time is spent "
        "on waiting, polling or starting processes.",
    ),
    runs=1,
)
