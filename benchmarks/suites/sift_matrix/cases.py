"""Which policies are asked for, on whose pictures, and who attacks the sifts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.sifting import Pair, SiftingData
from benchmarks.suites.sift_matrix.pictures import (
    COMPONENTS,
    FACE_ATTRIBUTES,
    FACES,
    QUICK_ATTRIBUTES,
    UTKFACE_ATTRIBUTES,
    UTKFACE_FILE,
    People,
    drawn_faces,
    drawn_numbers,
    utkface,
    utkface_path,
)
from benchmarks.suites.sift_matrix.scores import Judge
from blindsight.sift.attackers import MODERN, PAPER, Attacker
from blindsight.sift.trial import QUICK

PHOTOGRAPHS = 8000


@dataclass(frozen=True)
class Crowd:
    """Who attacks: the paper's and tuned ones, tuned ones only, or everybody; and who reads public attributes."""

    both: tuple[Attacker, ...]
    tuned: tuple[Attacker, ...]
    everybody: tuple[Attacker, ...]
    readers: tuple[Attacker, ...]


CROWD = Crowd((*PAPER, *QUICK), QUICK, MODERN, (PAPER[0], PAPER[3], *QUICK))
QUICK_CROWD = Crowd((PAPER[0], QUICK[0]), QUICK[:1], (PAPER[0], *QUICK[:2]), (PAPER[0],))

HANDFULS: dict[str, tuple[Pair, ...]] = {
    "faces": (
        ("male", "smiling"),
        ("smiling", "male"),
        ("beard", "youth"),
        ("outdoors", "frowning"),
        ("eyeglasses", "pale_skin"),
    ),
    "utkface": (("female", "white"), ("white", "female"), ("under_30", "female"), ("over_59", "female")),
}
"""Policies whose sifts are also attacked by everybody."""


def tasks(settings: Settings) -> list[Task]:
    """Pose all policies of every collection, then a handful of them to be attacked by everybody."""
    if settings.quick:
        text = "drawn numbers in place of pictures, to see whether everything works"
        return _posed("faces", text, drawn_numbers, QUICK_ATTRIBUTES, QUICK_CROWD)
    posed = _posed(
        "faces",
        f"{FACES:,} drawn faces of 64x64 pixels, one of each person; at most {COMPONENTS} principal components of the "
        "paper's six planes, learned from the developer's pictures",
        partial(drawn_faces, FACES),
        FACE_ATTRIBUTES,
    )
    path = utkface_path(settings)
    if path is not None:
        text = f"{PHOTOGRAPHS:,} faces of UTKFace ({UTKFACE_FILE}) by EfficientNet-lite0 (1280), drawn by the seed"
        posed += _posed("utkface", text, partial(utkface, path, PHOTOGRAPHS), UTKFACE_ATTRIBUTES)
    return posed


def _posed(
    name: str, text: str, people: Callable[[int], People], attributes: Sequence[str], crowd: Crowd = CROWD
) -> list[Task]:
    policies = tuple(permutations(attributes, 2))
    handful = tuple(policy for policy in HANDFULS[name] if policy in policies)
    share = f"{text}; 40% make the sifts, 30% teach the attackers, 30% judge. {len(policies)} policies"

    def task(suffix: str, said: str, chosen: tuple[Pair, ...], attackers: tuple[Attacker, ...], *methods: str) -> Task:
        readers = attackers if attackers is crowd.tuned else crowd.readers
        return Task(f"{name}{suffix}", said, partial(_pose, people, chosen, attackers, readers), methods)

    return [
        task("", f"{share}, attacked by {len(crowd.both)}: the paper's and tuned ones.", policies, crowd.both, "ppls"),
        task("-tuned", "the same, attacked by tuned ones.", policies, crowd.tuned, "ppls-infinite", "symbol"),
        task("-everybody", f"{len(handful)} policies, all {len(crowd.everybody)}.", handful, crowd.everybody, "ppls"),
    ]


def _pose(
    people: Callable[[int], People],
    policies: tuple[Pair, ...],
    attackers: tuple[Attacker, ...],
    readers: tuple[Attacker, ...],
    seed: int,
) -> Problem:
    found = people(seed)
    return Problem(developer_data(found, policies), Judge(found, attackers, readers, entangled=True))


def developer_data(people: People, policies: tuple[Pair, ...], *, told: bool = False) -> SiftingData:
    """Return what a maker of sifts may see: labels of the developer's people; if `told`, private ones of the others."""
    first = people.developers
    labels = {name: column[:first] for name, column in people.labels.items()}
    private = {name: people.labels[name][first:] for _, name in policies} if told else {}
    return SiftingData(people.features[:first], labels, people.features[first:], policies, people.scale, private)
