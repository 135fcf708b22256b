"""Which pictures are public, which private, and who asks."""

from functools import partial

import numpy as np

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.searching import Floats, Labels, PrivateCollection
from benchmarks.suites.hash_tables.pictures import pictures, said, usable
from benchmarks.suites.hash_tables.scores import score
from blindsight.rng import science

SIZES = (20_000, 20_000, 500)  # public, private, queries
LENGTHS = (1, 2, 4, 8, 16, 48)
HALF = "fashion-mnist-half"
_LEARN_FROM_PUBLIC = ("codebook", "labels", "local", "local-labels")


def tasks(settings: Settings) -> list[Task]:
    """Pose what the data at hand allow."""
    posed = []
    names = ("fashion-mnist",) if settings.quick else ("fashion-mnist", "cifar10")  # drawn numbers would be the same
    for name in usable(settings, names):
        public, private, queries = SIZES
        text = f"{said(settings, name)}: {public:,} public, {private:,} private, {queries} queries, drawn by the seed"
        posed.append(Task(name, f"{text}.", partial(_pose, settings, name)))
        if name == "fashion-mnist":
            half = partial(_pose, settings, name, half=True)
            posed.append(Task(HALF, f"{text}, the public ones of five of the ten classes.", half, _LEARN_FROM_PUBLIC))
    return posed


def _pose(settings: Settings, name: str, seed: int, *, half: bool = False) -> Problem:
    (features, labels), sizes = pictures(settings, name), (200, 300, 50) if settings.quick else SIZES
    public, private, queries = divided(labels, sizes, seed, half=half)
    given = PrivateCollection(
        _unit(features[public]), labels[public], _unit(features[private]), _unit(features[queries])
    )
    return Problem(given, partial(score, labels[queries], labels[private]))


def divided(labels: Labels, sizes: tuple[int, int, int], seed: int, *, half: bool = False) -> tuple[Labels, ...]:
    """Draw public and private rows and queries; with `half`, half of the classes are never public."""
    rng = science(seed)
    order, classes = rng.permutation(len(labels)), rng.permutation(labels.max() + 1)
    queries, private, rest = np.split(order, np.cumsum(sizes[:0:-1]))
    if half:
        rest = rest[np.isin(labels[rest], classes[::2])]
    return rest[: sizes[0]], private, queries


def _unit(rows: Floats) -> Floats:
    """Scale every row to length one, which takes nothing but the row."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, np.finfo(np.float32).tiny), dtype=np.float32)
