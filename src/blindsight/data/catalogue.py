"""One door to every collection: `load(name, ...)`, and the catalogue of what it opens."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data import collections
from blindsight.data.dataset import Dataset
from blindsight.data.faces import faces
from blindsight.data.fetching.fetch import is_intact
from blindsight.data.fetching.sources import FETCHABLE
from blindsight.data.reading import published, readers
from blindsight.data.reading.listing import Reading, some_rows
from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.files import cache_folder
from blindsight.progress import Progress, silent

_BUNDLED: dict[str, Callable[..., Dataset]] = {"digits": collections.digits, "faces": faces}
_FETCHED: dict[str, Callable[..., Dataset]] = {
    "caltech101": collections.caltech101,
    "cifar10": collections.cifar10,
    "fashion-mnist": collections.fashion_mnist,
    "lfw": collections.lfw,
    "orl": collections.orl,
}
_READ: dict[str, Callable[..., Dataset]] = {
    "caltech101": published.read_caltech101,
    "celeba": published.read_celeba,
    "csv": readers.read_csv,
    "cub": published.read_cub,
    "folder": readers.read_folder,
    "utkface": published.read_utkface,
}
_TITLES = {
    "celeba": ("CelebA: celebrity faces with 40 attributes", "non-commercial research"),
    "csv": ("your own pictures, named in a table", "yours"),
    "cub": ("CUB-200-2011: birds with 312 attributes", "non-commercial research and education"),
    "digits": ("1,797 handwritten digits of 8 x 8 pixels", "CC BY 4.0"),
    "faces": ("drawn faces with known attributes and persons", "Apache-2.0; no person is depicted"),
    "folder": ("your own pictures, a folder per class", "yours"),
    "utkface": ("UTKFace: faces with age, gender and race", "non-commercial research"),
}


@dataclass(frozen=True)
class CatalogueEntry:
    """One collection `load` can open: what it is, how it comes, and under which terms."""

    name: str
    title: str
    licence: str
    comes: str  # "bundled", "fetched" or "from a path"

    def is_here(self) -> bool:
        """Tell whether it can be loaded now without a path."""
        return self.comes == "bundled" or (self.comes == "fetched" and is_intact(cache_folder() / self.name))


def catalogue() -> list[CatalogueEntry]:
    """Return every collection, the bundled ones first, then the fetched ones, then those read from a path."""
    bundled = [CatalogueEntry(name, *_TITLES[name], comes="bundled") for name in _BUNDLED]
    fetched = [
        CatalogueEntry(name, FETCHABLE[name].title, FETCHABLE[name].licence.split(";")[0], comes="fetched")
        for name in _FETCHED
    ]
    read = [CatalogueEntry(name, *_TITLES[name], comes="from a path") for name in _READ if name in _TITLES]
    return bundled + fetched + read


def load(
    name: str,
    *,
    path: str | Path | None = None,
    cache: str | Path | None = None,
    count: int | None = None,
    size: int | None = None,
    random_state: int = 0,
    progress: Progress = silent,
    **options: Any,
) -> Dataset:
    """Open a collection by name.

    With `path` it is read from there (folder, file or table, as the collection comes); without, it is bundled or lies
    in the cache, where `blindsight data fetch NAME` puts it: nothing is downloaded here. `count` is how many pictures
    at most (a random part, the same for the same `random_state`), `size` their side in pixels where it can be chosen.
    Further options go to the collection's own reader, e.g. `correlation` for faces or `split` for cifar10.

    >>> load("digits", count=100)
    Dataset('digits', 100 pictures, 8x8x3, labels)
    """
    _check_count(count)
    cache = None if cache is None else Path(cache)
    reader, start = _reader(name, path, cache)
    shared = {"size": size, "random_state": random_state, "progress": progress, "cache": cache}
    asked = {**shared, "limit": count, "n": count}
    taken = _options_of(reader)
    given = {key: value for key, value in asked.items() if key in taken and value is not None}
    free = taken - asked.keys()
    refused = sorted((options.keys() - free) | ({"size"} if size is not None and "size" not in taken else set()))
    if refused:
        raise InputError(f"{name} takes no option {refused[0]!r}; it takes: {', '.join(sorted(free)) or 'none'}.")
    try:
        dataset = reader(*start, **given, **options)
    except (TypeError, AttributeError) as error:
        if not options:
            raise
        raise InputError(f"{name} cannot use an option's value ({', '.join(sorted(options))}): {error}.") from error
    if count is not None and len(dataset) > count:
        dataset = dataset.take(some_rows(len(dataset), count, random_state))
    return dataset


def _check_count(count: int | None) -> None:
    if count is None:
        return
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise InputError(f"count must be a whole number of pictures; got {count!r}.")
    if count < 1:
        raise InputError(f"count must be at least 1 picture; got {count}.")


def _reader(name: str, path: str | Path | None, cache: Path | None) -> tuple[Callable[..., Dataset], tuple[Path, ...]]:
    if not isinstance(name, str):
        raise InputError(f"a collection is opened by its name, such as 'faces'; got {name!r}.")
    if name not in {*_BUNDLED, *_FETCHED, *_READ}:
        raise UnknownNameError("collection", name, {*_BUNDLED, *_FETCHED, *_READ})
    if path is not None:
        if name not in _READ:
            raise InputError(f"{name} is not read from a path. Leave the path out, or use 'folder' or 'csv'.")
        return _READ[name], (Path(path),)
    if name in _BUNDLED:
        return _BUNDLED[name], ()
    if name not in _FETCHED:
        raise InputError(f"{name} is read from a path: say where it lies (path=..., on the command line --path).")
    folder = (cache or cache_folder()) / name
    if not is_intact(folder):
        raise DataError(f"{name} is not in the cache {folder.parent}. Run: blindsight data fetch {name}")
    return _FETCHED[name], (folder,)


def _options_of(reader: Callable[..., Dataset]) -> set[str]:
    """Return the names of the keyword options a reader takes, those of `Reading` included where it takes them."""
    taken: set[str] = set()
    for parameter in inspect.signature(reader).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            taken |= set(Reading.__annotations__)
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or parameter.name == "n":
            taken.add(parameter.name)
    return taken
