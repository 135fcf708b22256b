"""Collections that benchmarks measure on: fetched, in a folder of one's own, drawn, or for a quick run numbers."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import blindsight.papers.collections  # noqa: F401  (makes them known to `load`)
from benchmarks.harness import Settings
from blindsight.errors import InputError
from blindsight.rng import science
from blindsight.sift.trial import divide_rows

Floats = NDArray[np.float32]
Labels = NDArray[np.int8]
Pictures = tuple[Floats, NDArray[np.int64]]

FILES = {
    "caltech101-1280": "caltech101-efficientnet1280.npz",
    "caltech101-2048": "caltech101-resnet2048.npz",
    "utkface": "utkface64.npz",
}
"""What is kept in a folder of one's own; all others are fetched."""

SAID = {
    "cifar10": "CIFAR-10, 60,000 pictures, EfficientNet-lite0 features (1280)",
    "fashion-mnist": "Fashion-MNIST, 70,000 pictures, grey pixels of unit length (784)",
    "caltech101-1280": "Caltech-101 without background (caltech101-efficientnet1280.npz)",
    "caltech101-2048": "Caltech-101 without background (caltech101-resnet2048.npz)",
    "utkface": "3,000 faces by EfficientNet-lite0 (utkface64.npz)",
}


def usable(settings: Settings, names: Sequence[str]) -> tuple[str, ...]:
    """Return those of the collections that are here; say what the others lack, and refuse if none is left."""
    if settings.quick or settings.recorded:
        return tuple(names)
    lacking = {name: lack for name in names if (lack := _lack(settings, name))}
    left = tuple(name for name in names if name not in lacking)
    if not left:
        raise InputError(f"there are no pictures: {'; '.join(lacking.values())}. --quick draws numbers instead.")
    for lack in lacking.values():
        _tell_once(f"{lack}: its part is not measured.")
    return left


def described(settings: Settings, name: str) -> str:
    """Describe a collection for the table."""
    return "drawn numbers in place of pictures" if settings.quick else SAID[name]


def pictures(settings: Settings, name: str) -> Pictures:
    """Return features and classes, those published for training first."""
    if settings.quick:
        return drawn(540, 40, 12, 1.5) if name in FILES else drawn(720, 80)
    return _caltech(settings.file(FILES[name])) if name in FILES else _fetched(name)


@cache
def drawn(count: int, dimensions: int, classes: int = 10, apart: float = 0.7) -> Pictures:
    """Draw rows around a point for every class."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(count) % classes)
    centres = apart * rng.standard_normal((classes, dimensions))
    return (centres[labels] + rng.standard_normal((count, dimensions))).astype(np.float32), labels


@cache
def _tell_once(line: str) -> None:
    print(line, file=sys.stderr)


@cache
def _caltech(path: Path | None) -> Pictures:
    from blindsight.data import load

    assert path is not None
    dataset = load("caltech101", path=path, background=False)
    return np.asarray(dataset.features), np.asarray(dataset.labels)


@cache
def _fetched(name: str) -> Pictures:
    from blindsight.data import Embedding, Thumbnails, extract, load
    from blindsight.files import cache_folder

    dataset = load(name)
    pipeline = Embedding() if name == "cifar10" else Thumbnails(side=28)
    return extract(dataset, pipeline, cache=cache_folder()), np.asarray(dataset.labels)


def _lack(settings: Settings, name: str) -> str:
    """Say what a collection lacks, or nothing."""
    from blindsight.data import catalogue

    if name in FILES:
        where = "no --data-dir was given with" if settings.data_dir is None else f"{settings.data_dir} lacks"
        return "" if settings.file(FILES[name]) else f"{where} {FILES[name]}"
    if not any(entry.name == name and entry.is_here() for entry in catalogue()):
        return f"{name} is not here (blindsight papers fetch {name}, or python tools/sources.py {name})"
    if name == "cifar10" and find_spec("torch") is None:
        return "the features of cifar10 need torch (pip install '.[deep]')"
    return ""


UTKFACE_FILE = FILES["utkface"]
FACES, COMPONENTS = 6000, 300
FACE_ATTRIBUTES = (
    "male",
    "long_hair",
    "pale_skin",
    "youth",
    "smiling",
    "frowning",
    "eyeglasses",
    "obstructed_forehead",
    "beard",
    "outdoors",
)
"""In the order of the paper's ten; long hair stands in for Attractive Female."""

UTKFACE_ATTRIBUTES = ("female", "under_30", "over_59", "white", "black", "asian", "indian")
QUICK_ATTRIBUTES = ("male", "smiling", "outdoors")


@dataclass(frozen=True, eq=False)
class People:
    """Features and labels, first the developer's `developers` rows; `scale` as in `SiftingData`."""

    features: Floats
    labels: dict[str, Labels]
    developers: int
    scale: bool

    @property
    def own(self) -> Floats:
        """Features of the developer's people."""
        return self.features[: self.developers]

    @property
    def judged(self) -> Floats:
        """Features of the others."""
        return self.features[self.developers :]

    def truth(self, name: str) -> Labels:
        """Return an attribute of the others."""
        return self.labels[name][self.developers :]


Described = tuple[str, Callable[[int], People]]
"""What a collection is, and how a seed draws from it."""


def utkface_path(settings: Settings) -> Path | None:
    """Return the packed file of UTKFace if it is there; say once if it is not."""
    if settings.file(UTKFACE_FILE) is None:
        _tell_once(f"{_lack(settings, 'utkface')}: its part is not measured.")
    return settings.file(UTKFACE_FILE)


def people(settings: Settings, faces: int, photographs: int, *, few: bool = False) -> Mapping[str, Described]:
    """Return the collections that are here, described and drawn by a seed; with `few`, without looking at the other
    photographs, which takes a part of the time.
    """
    if settings.quick:
        return {"faces": ("drawn numbers in place of pictures", drawn_numbers)}
    said = (
        f"{faces:,} drawn faces of 64x64 pixels, one of each person; at most {COMPONENTS} principal components of the "
        "paper's six planes, learned from the developer's pictures"
    )
    found = {"faces": (said, partial(drawn_faces, faces))}
    if path := utkface_path(settings):
        said = f"{photographs:,} faces of UTKFace ({UTKFACE_FILE}) by EfficientNet-lite0 (1280), drawn by the seed"
        found["utkface"] = (said, partial(few_of_utkface if few else utkface, path, photographs))
    return found


def divided(features: NDArray[np.float32], labels: dict[str, Labels], seed: int, *, scale: bool) -> People:
    """Put the rows that the seed gives to the developer first."""
    develop, judge = divide_rows(len(features), None, seed)
    order = np.concatenate([develop, judge])
    return People(features[order], {name: column[order] for name, column in labels.items()}, len(develop), scale)


@cache
def drawn_faces(count: int, seed: int) -> People:
    """Draw so many people, one picture each; the compression of pixels is learned from the developer's pictures."""
    from blindsight.data.faces import faces
    from blindsight.data.pixels import PixelFeatures

    drawn = faces(count, size=64, random_state=0, pictures_per_person=1)
    images, labels = np.asarray(drawn.images), {name: drawn.attribute(name) for name in FACE_ATTRIBUTES}
    order = divided(np.arange(count, dtype=np.float32)[:, None], labels, seed, scale=False)
    rows = order.features[:, 0].astype(np.int64)
    pixels = PixelFeatures(max_components=COMPONENTS).fit(images[rows[: order.developers]])
    return People(pixels.transform(images[rows]), order.labels, order.developers, scale=False)


@cache
def utkface(path: Path, count: int, seed: int) -> People:
    """Return so many photographs, drawn by the seed, as EfficientNet-lite0 sees them."""
    features, labels = _photographs(path)
    rows = science(seed).permutation(len(features))[:count]
    return divided(features[rows], {name: column[rows] for name, column in labels.items()}, seed, scale=True)


@cache
def few_of_utkface(path: Path, count: int, seed: int) -> People:
    """Return so many photographs, drawn by the seed, without looking at the others: a part of the time."""
    from blindsight.data import Embedding, extract, load
    from blindsight.files import cache_folder

    dataset = load("utkface", path=path)
    chosen = dataset.take(np.sort(science(seed).permutation(len(dataset))[:count]))
    labels = {name: chosen.attribute(name) for name in UTKFACE_ATTRIBUTES}
    return divided(extract(chosen, Embedding(), cache=cache_folder()), labels, seed, scale=True)


@cache
def drawn_numbers(seed: int, count: int = 900, dimensions: int = 24) -> People:
    """Draw rows around points that the attributes move, three of them, nearly independent."""
    rng = np.random.default_rng(0)
    answers = rng.integers(0, 2, (count, len(QUICK_ATTRIBUTES))).astype(np.int8)
    agree = rng.random(count) < 0.1
    answers[agree, 1] = answers[agree, 0]
    moved = 1.2 * (answers - 0.5) @ rng.standard_normal((len(QUICK_ATTRIBUTES), dimensions))
    features = (moved + rng.standard_normal(moved.shape)).astype(np.float32)
    return divided(features, dict(zip(QUICK_ATTRIBUTES, answers.T, strict=True)), seed, scale=True)


@cache
def _photographs(path: Path) -> tuple[Floats, dict[str, Labels]]:
    from blindsight.data import Embedding, extract, load
    from blindsight.files import cache_folder

    dataset = load("utkface", path=path)
    labels = {name: dataset.attribute(name) for name in UTKFACE_ATTRIBUTES}
    return extract(dataset, Embedding(), cache=cache_folder()), labels
