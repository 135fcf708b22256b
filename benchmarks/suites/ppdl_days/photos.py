"""Photos of four classes that stand in for the paper's men, women, dogs and cats: two pairs that look alike."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Settings
from benchmarks.suites.hash_tables.pictures import drawn, pictures

CLASSES = ("automobile", "truck", "dog", "cat")

Labelled = tuple[NDArray[Any], NDArray[np.int64]]


@cache
def features(settings: Settings) -> Labelled:
    """Return what the frozen backbone makes of the photos, and their classes; for a quick run, drawn numbers."""
    if settings.quick:
        return drawn(1200, 20, len(CLASSES))
    every, labels = pictures(settings, "cifar10")
    return _of_classes(every, labels)


@cache
def pixels(settings: Settings) -> Labelled:
    """Return the photos themselves; for a quick run, drawn ones of 8 x 8 pixels."""
    if settings.quick:
        rows, labels = drawn(1200, 192, len(CLASSES))
        return np.clip(128 + 30 * rows, 0, 255).astype(np.uint8).reshape(-1, 8, 8, 3), labels
    from blindsight.data import load

    dataset = load("cifar10")
    assert dataset.images is not None
    assert dataset.labels is not None
    return _of_classes(np.asarray(dataset.images), dataset.labels)


def _of_classes(inputs: NDArray[Any], labels: NDArray[np.int64]) -> Labelled:
    names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    place = np.full(len(names), -1)
    place[[names.index(name) for name in CLASSES]] = np.arange(len(CLASSES))
    kept = place[labels] >= 0
    return inputs[kept], place[labels[kept]]
