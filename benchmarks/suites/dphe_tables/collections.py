"""Where the pictures come from: files that are not shipped, or, for a quick run, numbers drawn in their place."""

import sys
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Settings
from benchmarks.methods.owners import Pair
from blindsight.errors import InputError

FILES = {
    "caltech101-1280": "caltech101-efficientnet1280.npz",
    "caltech101-2048": "caltech101-resnet2048.npz",
    "utkface": "utkface64.npz",
}
FACES = 3000
ATTRIBUTES = ("female", "under_30", "over_59", "white", "black", "asian", "indian")


class Collections:
    """Features and labels by name; each is read once."""

    def __init__(self, settings: Settings) -> None:
        """Look which files are there; say once which are not."""
        self.drawn, folder = settings.quick, settings.data_dir
        paths = {} if folder is None else {name: folder / file for name, file in FILES.items()}
        self._paths = {name: path for name, path in paths.items() if path.is_file()}
        self.names = tuple(FILES if self.drawn else self._paths)
        missing = tuple(file for name, file in FILES.items() if name not in self.names)
        if missing:
            _tell_missing(folder, missing, bool(self.names))

    def load(self, name: str) -> Pair:
        """Return the features, and the classes (n,) or attributes (n, a)."""
        if self.drawn:
            return _drawn_faces() if name == "utkface" else _drawn_objects()
        return _faces(self._paths[name]) if name == "utkface" else _objects(self._paths[name])

    def describe(self, name: str) -> str:
        """Tell a reader what the data are."""
        if self.drawn:
            return f"drawn numbers in place of {FILES[name]}, to see whether everything works."
        what = f"{FACES:,} faces by EfficientNet-lite0" if name == "utkface" else "Caltech-101 without background"
        return f"{what} ({FILES[name]})."


@cache
def _tell_missing(folder: Path | None, files: tuple[str, ...], others: bool) -> None:
    where = "no --data-dir was given" if folder is None else f"{folder} lacks {', '.join(files)}"
    if not others:
        raise InputError(f"{where}. dphe-tables needs some of {', '.join(FILES.values())}; --quick needs none.")
    print(f"{where}: what needs them is skipped.", file=sys.stderr)


@cache
def _objects(path: Path) -> Pair:
    from blindsight.data import load

    dataset = load("caltech101", path=path, background=False)
    assert dataset.features is not None
    assert dataset.labels is not None
    return dataset.features, dataset.labels


@cache
def _faces(path: Path) -> Pair:
    from blindsight.data import Embedding, extract, load
    from blindsight.files import cache_folder

    dataset = load("utkface", path=path, limit=FACES, random_state=0)
    answers = np.stack([dataset.attribute(name) for name in ATTRIBUTES], axis=1)
    return extract(dataset, Embedding(), cache=cache_folder()), answers.astype(np.int64)


@cache
def _drawn_objects(classes: int = 12, each: int = 45, dimensions: int = 40) -> Pair:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    return _around(1.5 * rng.standard_normal((classes, dimensions))[labels], rng), labels


@cache
def _drawn_faces(count: int = 800, dimensions: int = 40) -> Pair:
    rng = np.random.default_rng(1)
    answers = (rng.random((count, len(ATTRIBUTES))) < 0.3).astype(np.int64)
    return _around(2.0 * answers @ rng.standard_normal((len(ATTRIBUTES), dimensions)), rng), answers


def _around(centres: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float32]:
    return (centres + rng.standard_normal(centres.shape)).astype(np.float32)
