"""Whose pictures apps cheat with: whole numbers, as pixels are, since one of the cheats lives behind the point."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.sift_cheating import AppData
from benchmarks.methods.sifting import Floats, Labels
from benchmarks.suites.sift_cheats.platform import Platform
from benchmarks.suites.sift_matrix.pictures import FACES, UTKFACE_FILE, divided, utkface_path
from blindsight.audit.siftclaims import Hole
from blindsight.sift.attackers import MODERN, PAPER
from blindsight.sift.trial import QUICK

SIDE = 16
POLICIES = {"faces": ("male", "smiling"), "utkface": ("female", "white")}

Rows = tuple[Floats, dict[str, Labels]]
"""Features and labels."""


def tasks(settings: Settings) -> list[Task]:
    """Pose one policy on every collection."""
    path = None if settings.quick else utkface_path(settings)
    text = "drawn numbers in place of pictures" if settings.quick else f"{FACES:,} drawn faces, one of each person"
    sources: dict[str, tuple[str, Callable[[], Rows]]] = {
        "faces": (text, _drawn_numbers if settings.quick else _drawn_faces)
    }
    if path is not None:
        sources["utkface"] = (f"{2 * FACES:,} faces of UTKFace ({UTKFACE_FILE})", partial(_photographs, path))
    numbers = 1000 if settings.quick else 3000
    apps = ("honest", "collinear_pair", "low_digits", "xor_hash", "few_symbols")
    said = f"{{}}, {SIDE}x{SIDE} grey pixels as whole numbers; public {{}}, private {{}}; 40% are the app's."
    return [
        Task(name, said.format(text, *POLICIES[name]), partial(_pose, name, load, settings.quick), apps)
        for name, (text, load) in sources.items()
    ] + [Task("holes", f"{numbers:,} drawn rows whose truth is known.", partial(_pose_holes, numbers), ("holes",))]


def _pose_holes(numbers: int, seed: int) -> Problem:
    def score(found: tuple[Hole, ...]) -> dict[str, float]:
        figures = ("read", "before", "now")
        return {f"{hole.name}/{figure}": float(getattr(hole, figure)) for hole in found for figure in figures}

    return Problem(numbers, score)


def _pose(name: str, load: Callable[[], Rows], quick: bool, seed: int) -> Problem:
    people, (public, private) = divided(*load(), seed, scale=True), POLICIES[name]
    first = people.developers
    given = AppData(people.features[:first], people.labels[public][:first], people.labels[private][:first])
    crowds = (PAPER[:2], (PAPER[0], *QUICK[:2])) if quick else (PAPER, MODERN)
    return Problem(given, Platform(people, (public, private), *crowds))


@cache
def _drawn_numbers(count: int = 1500, dimensions: int = 30) -> Rows:
    rng = np.random.default_rng(0)
    answers = rng.integers(0, 2, (count, 2)).astype(np.int8)
    told = 0.6 * (answers - 0.5) @ rng.standard_normal((2, dimensions))
    rows = np.clip(np.rint(128 + 40 * (told + rng.standard_normal(told.shape))), 0, 255)
    return rows.astype(np.float32), dict(zip(POLICIES["faces"], answers.T, strict=True))


@cache
def _drawn_faces() -> Rows:
    from blindsight.data.faces import faces

    drawn = faces(FACES, size=64, random_state=0, pictures_per_person=1)
    assert drawn.images is not None
    return _grey(drawn.images), {name: drawn.attribute(name) for name in POLICIES["faces"]}


@cache
def _photographs(path: Path) -> Rows:
    from blindsight.data import load

    dataset = load("utkface", path=path, count=2 * FACES)
    assert dataset.images is not None
    return _grey(dataset.images), {name: dataset.attribute(name) for name in POLICIES["utkface"]}


def _grey(images: NDArray[np.uint8]) -> Floats:
    """Return square pictures as means of blocks, rounded to whole numbers, one row each."""
    block = images.shape[1] // SIDE
    grey = images.mean(axis=3, dtype=np.float32).reshape(len(images), SIDE, block, SIDE, block)
    return np.asarray(np.rint(grey.mean(axis=(2, 4))), dtype=np.float32).reshape(len(images), -1)
