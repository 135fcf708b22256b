"""Where the pictures of the search benchmarks come from: collections that were fetched, or, for a quick run, numbers
drawn in their place.
"""

import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import numpy as np

from benchmarks.harness import Settings
from benchmarks.methods.searching import Floats, Labels
from blindsight.errors import InputError

Pictures = tuple[Floats, Labels]

SAID = {
    "cifar10": "CIFAR-10, 60,000 pictures, EfficientNet-lite0 features (1280)",
    "fashion-mnist": "Fashion-MNIST, 70,000 pictures, grey pixels of unit length (784)",
}
_DRAWN = "drawn numbers in place of pictures"


def usable(settings: Settings, names: Sequence[str]) -> tuple[str, ...]:
    """Return those of the collections that are here; say what the others lack, and refuse if none is left."""
    if settings.quick:
        return tuple(names)
    lacking = {name: lack for name in names if (lack := _lack(name))}
    left = tuple(name for name in names if name not in lacking)
    if not left:
        raise InputError(f"there are no pictures: {'; '.join(lacking.values())}. --quick draws numbers instead.")
    for lack in lacking.values():
        _tell_once(f"{lack}: its part is not measured.")
    return left


def said(settings: Settings, name: str) -> str:
    """Describe a collection for the table."""
    return _DRAWN if settings.quick else SAID[name]


def pictures(settings: Settings, name: str) -> Pictures:
    """Return features and classes, those published for training first."""
    return drawn(720, 80) if settings.quick else _fetched(name)


@cache
def drawn(count: int, dimensions: int, classes: int = 10) -> Pictures:
    """Draw rows around a point for every class."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(count) % classes)
    centres = 0.7 * rng.standard_normal((classes, dimensions))
    return (centres[labels] + rng.standard_normal((count, dimensions))).astype(np.float32), labels


@cache
def _tell_once(line: str) -> None:
    print(line, file=sys.stderr)


@cache
def _fetched(name: str) -> Pictures:
    from blindsight.data import Embedding, Thumbnails, extract, load
    from blindsight.files import cache_folder

    dataset = load(name)
    assert dataset.labels is not None
    pipeline = Embedding() if name == "cifar10" else Thumbnails(side=28)
    return extract(dataset, pipeline, cache=cache_folder()), dataset.labels


def _lack(name: str) -> str:
    """Say what a collection lacks, or nothing."""
    from blindsight.data import catalogue

    if not any(entry.name == name and entry.is_here() for entry in catalogue()):
        return f"{name} is not here (blindsight data fetch {name})"
    if name == "cifar10" and find_spec("torch") is None:
        return "the features of cifar10 need torch (pip install 'blindsight-vision[deep]')"
    return ""
