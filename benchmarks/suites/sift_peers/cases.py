"""Which policies the peers compete for, and who attacks their sifts."""

from functools import partial

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.sifting import Pair
from benchmarks.suites.sift_matrix.cases import developer_data
from benchmarks.suites.sift_matrix.pictures import UTKFACE_FILE, People, drawn_numbers, utkface, utkface_path
from benchmarks.suites.sift_matrix.scores import Judge
from benchmarks.suites.sift_peers import symbols
from blindsight.errors import InputError
from blindsight.sift.attackers import MODERN, PAPER
from blindsight.sift.trial import QUICK

PHOTOGRAPHS = 12_000
TARGETED: tuple[Pair, ...] = (("female", "white"), ("white", "female"), ("under_30", "female"))
POLICIES = (*TARGETED, ("female", "under_30"))
QUICK_POLICIES: tuple[Pair, ...] = (("male", "smiling"),)
BLIND = ("pls", "ppls", "leace", "inlp", "symbols")
"""Who never learns the private label of anybody who is judged."""

DEEP, TOLD = ("adversarial",), ("correlation-remover",)


def tasks(settings: Settings) -> list[Task]:
    """Pose the policies once to those who need no private label, once to the one who is told it."""
    path = None if settings.quick else utkface_path(settings)
    if path is None and not settings.quick:
        raise InputError(f"sift-peers needs a folder with {UTKFACE_FILE} (--data-dir); --quick draws numbers instead.")
    text = (
        "drawn numbers in place of photographs, to see whether everything works"
        if path is None
        else f"{PHOTOGRAPHS:,} faces of UTKFace ({UTKFACE_FILE}) by EfficientNet-lite0 (1280), drawn by the seed"
    )
    people = drawn_numbers if path is None else partial(utkface, path, PHOTOGRAPHS)
    policies = QUICK_POLICIES if settings.quick else POLICIES
    said = f"{text}; 40% make the sifts, 30% teach the attackers, 30% judge."

    def pose(seed: int, *, told: bool) -> Problem:
        return _pose(people(seed), policies, told, settings.quick)

    return [
        Task("utkface", said, partial(pose, told=False), BLIND if settings.quick else BLIND + DEEP),
        Task("utkface-told", "the same, with everybody's private label.", partial(pose, told=True), TOLD),
        symbols.task(settings),
    ]


def _pose(people: People, policies: tuple[Pair, ...], told: bool, quick: bool) -> Problem:
    given = developer_data(people, policies, told=told)
    attackers = (PAPER[0], *QUICK[:2]) if quick else MODERN
    return Problem(given, Judge(people, attackers, attackers, strict=True))
