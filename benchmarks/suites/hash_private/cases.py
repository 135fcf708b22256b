"""Which pictures are public, which private, and who asks."""

from functools import partial

import numpy as np

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.searching import Floats, Labels, PrivateCollection
from benchmarks.suites.dphe_tables.collections import FILES
from benchmarks.suites.hash_tables.pictures import Pictures, pictures, said, usable
from benchmarks.suites.hash_tables.scores import score_first
from blindsight.rng import science

SIZES = (20_000, 20_000, 500)  # public, private, queries
CALTECH_SIZES = (5_681, 2_496, 500)
LENGTHS = (1, 2, 4, 8, 16, 48)
HALF, CALTECH, UNRELATED = "fashion-mnist-half", "caltech101", "caltech101-unrelated"
_LEARN_FROM_PUBLIC = ("codebook", "labels", "local", "local-labels")
_PIXELS = (*_LEARN_FROM_PUBLIC, "bits", "central", "central-start", "published", "nothing-hidden")


def tasks(settings: Settings) -> list[Task]:
    """Pose what the data at hand allow."""
    posed = []
    names = ("fashion-mnist",) if settings.quick else ("fashion-mnist", "cifar10")  # drawn numbers would be the same
    for name in usable(settings, names):
        text = f"{said(settings, name)}: {_sized(SIZES)}"
        asked = _PIXELS if name == "fashion-mnist" else None  # the shipped codebook is for embeddings
        posed.append(Task(name, f"{text}.", partial(_pose, settings, name), asked))
        if name == "fashion-mnist":
            half = partial(_pose, settings, name, half=True)
            posed.append(Task(HALF, f"{text}, the public ones of five of the ten classes.", half, _LEARN_FROM_PUBLIC))
    path = None if settings.data_dir is None else settings.data_dir / FILES["caltech101-1280"]
    if path is not None and path.exists() and not settings.quick:
        text = f"Caltech-101, 8,677 pictures of 101 kinds, EfficientNet-lite0 features (1280): {_sized(CALTECH_SIZES)}"
        posed.append(Task(CALTECH, f"{text}.", partial(_pose_caltech, settings)))
        if "cifar10" in usable(settings, ("fashion-mnist", "cifar10")):
            elsewhere = partial(_pose_caltech, settings, unrelated=True)
            text += ", the public ones of CIFAR-10"
            posed.append(Task(UNRELATED, f"{text}.", elsewhere, ("codebook", "local", "central-start")))
    return posed


def _sized(sizes: tuple[int, int, int]) -> str:
    return "{:,} public, {:,} private, {:,} queries, drawn by the seed".format(*sizes)


def _pose(settings: Settings, name: str, seed: int, *, half: bool = False) -> Problem:
    (features, labels), sizes = pictures(settings, name), (200, 300, 50) if settings.quick else SIZES
    public, private, queries = divided(labels, sizes, seed, half=half)
    return _problem((features, labels), (features[public], labels[public]), private, queries)


def _pose_caltech(settings: Settings, seed: int, *, unrelated: bool = False) -> Problem:
    assert settings.data_dir is not None
    with np.load(settings.data_dir / FILES["caltech101-1280"]) as held:
        shown = held["label"] != "BACKGROUND_Google"
        features, labels = held["X"][shown].astype(np.float32), np.unique(held["label"][shown], return_inverse=True)[1]
    public, private, queries = divided(labels, CALTECH_SIZES, seed)
    queries = queries[np.isin(labels[queries], labels[private])]
    known = features[public], labels[public]
    if unrelated:
        others, classes = pictures(settings, "cifar10")
        drawn = science(seed).permutation(len(others))[: CALTECH_SIZES[0]]
        known = others[drawn], classes[drawn]
    return _problem((features, labels), known, private, queries)


def _problem(all_of: Pictures, public: Pictures, private: Labels, queries: Labels) -> Problem:
    features, labels = all_of
    lengths = tuple(np.linalg.norm(features[rows], axis=1) for rows in (private, queries))
    given = PrivateCollection(
        _unit(public[0]), public[1], _unit(features[private]), _unit(features[queries]), (lengths[0], lengths[1])
    )
    return Problem(given, partial(score_first, labels[queries], labels[private]))


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
