"""Which policies are asked for, on whose pictures, and who attacks the sifts."""

from collections.abc import Callable, Sequence
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
from blindsight.sift.lossbench import QUICK

PHOTOGRAPHS = 8000
READERS = (PAPER[0], PAPER[3], *QUICK)
"""Of public attributes: the paper's two that read them best, and three that are tuned."""

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
        return _posed("faces", text, drawn_numbers, QUICK_ATTRIBUTES, (PAPER[0], *QUICK), QUICK[:2], (READERS[0],))
    posed = _posed(
        "faces",
        f"{FACES:,} drawn faces of 64x64 pixels, one of each person; at most {COMPONENTS} principal components of the "
        "paper's six planes, learned from the developer's pictures",
        partial(drawn_faces, FACES),
        FACE_ATTRIBUTES,
    )
    path = utkface_path(settings)
    if path is not None:
        text = f"{PHOTOGRAPHS:,} photographs of UTKFace ({UTKFACE_FILE}) by EfficientNet-lite0 (1280), drawn by the seed"
        posed += _posed("utkface", text, partial(utkface, path, PHOTOGRAPHS), UTKFACE_ATTRIBUTES)
    return posed


def _posed(
    name: str,
    text: str,
    people: Callable[[int], People],
    attributes: Sequence[str],
    attackers: Sequence[Attacker] = (*PAPER, *QUICK),
    fast: Sequence[Attacker] = QUICK,
    readers: Sequence[Attacker] = READERS,
) -> list[Task]:
    policies = tuple(permutations(attributes, 2))
    handful = tuple(policy for policy in HANDFULS[name] if policy in policies)
    share = f"{text}; 40% make the sifts, 30% teach the attackers, 30% judge. {len(policies)} policies"
    everybody = MODERN if len(attackers) > len(PAPER) else attackers
    return [
        Task(
            name,
            f"{share}, attacked by {len(attackers)}: the paper's and three tuned ones.",
            partial(_pose, people, policies, attackers, readers),
            ("ppls",),
        ),
        Task(
            f"{name}-fast",
            "the same, attacked by the three tuned ones.",
            partial(_pose, people, policies, fast, fast),
            ("ppls-infinite", "symbol"),
        ),
        Task(
            f"{name}-everybody",
            f"{len(handful)} of these policies, attacked by all of the verifier's {len(everybody)}.",
            partial(_pose, people, handful, everybody, readers),
            ("ppls",),
        ),
    ]


def _pose(
    people: Callable[[int], People],
    policies: tuple[Pair, ...],
    attackers: Sequence[Attacker],
    readers: Sequence[Attacker],
    seed: int,
) -> Problem:
    found = people(seed)
    first = found.developers
    labels = {name: column[:first] for name, column in found.labels.items()}
    given = SiftingData(found.features[:first], labels, found.features[first:], policies, found.scale)
    return Problem(given, Judge(found, attackers, readers, entangled=True))
