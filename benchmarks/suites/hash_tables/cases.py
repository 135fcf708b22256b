"""Who is asked what: CIFAR-10 as in the paper's protocol, and two collections for ITQ beside faiss."""

from functools import partial

import numpy as np

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.searching import Labels, Searchable, Unlabelled
from benchmarks.suites.hash_tables.pictures import drawn, pictures, said, usable
from benchmarks.suites.hash_tables.relations import EVERYTHING
from benchmarks.suites.hash_tables.scores import score
from blindsight.rng import science

QUERIES = 1000
LABELLED = 500  # a class
TIMED = (50_000, 512)
LEARNED = (*map(str.lower, EVERYTHING), "pitq", "pitq-right")
ROTATIONS = ("itq-blindsight", "itq-faiss")


def tasks(settings: Settings) -> list[Task]:
    """Pose what the data at hand allow."""
    here = usable(settings, ("cifar10", "fashion-mnist"))
    rows, width = (400, 80) if settings.quick else TIMED
    posed = [Task(f"drawn-{rows}x{width}", "Drawn numbers, to be timed.", partial(_pose_timed, rows, width), ROTATIONS)]
    if "fashion-mnist" in here:
        text = f"{said(settings, 'fashion-mnist')}: 20,000 to learn from, 20,000 to search, 500 queries."
        posed.append(Task("fashion-mnist", text, partial(_pose_rotation, settings), ROTATIONS))
    if "cifar10" in here:
        asked = "all pictures" if settings.full else f"{QUERIES:,} pictures drawn by the seed"
        text = (
            f"{said(settings, 'cifar10')}: the database is the training split, {asked} of the test split are queries, "
            f"{LABELLED} pictures of each class have labels to learn from."
        )
        posed.append(Task("cifar10", text, partial(_pose_tables, settings), LEARNED))
    return posed


def _pose_tables(settings: Settings, seed: int) -> Problem:
    """Divide as published: the last sixth is the test split."""
    (features, labels), rng = pictures(settings, "cifar10"), science(seed)
    database = len(labels) * 5 // 6
    asked = len(labels) - database if settings.full else min(QUERIES, len(labels) - database)
    each = 10 if settings.quick else LABELLED
    queries = database + rng.choice(len(labels) - database, asked, replace=False)
    classes = (np.flatnonzero(labels[:database] == number) for number in range(labels.max() + 1))
    known = np.concatenate([rng.choice(rows, each, replace=False) for rows in classes])
    given = Searchable(features[:database], features[queries], (features[known], labels[known]))
    return Problem(given, partial(score, labels[queries], labels[:database]))


def _pose_rotation(settings: Settings, seed: int) -> Problem:
    features, labels = pictures(settings, "fashion-mnist")
    sizes = (310, 310, 100) if settings.quick else (20_000, 20_000, 500)
    train, database, queries = _parts(len(labels), sizes, seed)
    given = Unlabelled(features[train], features[database], features[queries])
    return Problem(given, partial(score, labels[queries], labels[database]))


def _pose_timed(rows: int, width: int, seed: int) -> Problem:
    """Learn from many rows and hash few, so that it is learning which is timed."""
    features, labels = drawn(rows, width)
    _, database, queries = _parts(rows, (0, rows // 5, rows // 100), seed)
    given = Unlabelled(features, features[database], features[queries])
    return Problem(given, partial(score, labels[queries], labels[database]))


def _parts(rows: int, sizes: tuple[int, ...], seed: int) -> list[Labels]:
    """Draw parts of these sizes without a row in common."""
    return np.split(science(seed).permutation(rows), np.cumsum(sizes))[: len(sizes)]
