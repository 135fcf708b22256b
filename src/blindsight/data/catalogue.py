"""Every collection by name: `load(name, ...)`, the catalogue of what it opens, and `register_collection` for more."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import Dataset, PictureDataset
from blindsight.data.faces import faces
from blindsight.data.published import read_caltech101, read_celeba, read_cub, read_utkface
from blindsight.data.readers import NOT_STATED, Reading, read_csv, read_folder, some_rows
from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.files import AnyPath, as_path
from blindsight.progress import Progress, silent

Reader = Callable[..., Dataset]
Origin = Literal["bundled", "fetched", "from a path"]

OF_THE_PAPERS = ("caltech101", "cifar10", "fashion-mnist", "lfw", "orl")
"""Collections that `blindsight.papers.collections` registers."""


@dataclass(frozen=True)
class CatalogueEntry:
    """One collection `load` can open: what it is, how it comes, and under which terms."""

    name: str
    title: str
    licence: str
    comes: Origin
    reader: Reader = field(repr=False)
    find: Callable[[AnyPath | None], AnyPath] | None = field(default=None, repr=False)

    def is_here(self) -> bool:
        """Return True if it can be opened now, without a path."""
        if self.find is None:
            return self.comes == "bundled"
        try:
            self.find(None)
        except DataError:
            return False
        return True


_ENTRIES: dict[tuple[str, bool], CatalogueEntry] = {}  # by name, and whether a path is given


def register_collection(
    name: str,
    reader: Reader,
    *,
    title: str = "",
    licence: str = NOT_STATED,
    comes: Origin = "bundled",
    find: Callable[[AnyPath | None], AnyPath] | None = None,
) -> None:
    """Make a collection known to `load`, under a unique name.

    The reader of a "bundled" collection takes options only, that of one "from a path" the path first, that of a
    "fetched" one the folder that `find` returns for a cache (None: the usual one; DataError if it is not there).
    Options are keywords; `load` sets those called `n` or `limit`, `size`, `random_state`, `progress` and `cache`::

        register_collection("cats", read_cats, comes="from a path")
        load("cats", path="photos/cats", count=100)
    """
    if (comes == "fetched") != (find is not None):
        raise InputError(f"find= and comes='fetched' need each other; got comes={comes!r}, find={find!r}.")
    key = name, comes == "from a path"
    if key in _ENTRIES and _ENTRIES[key].reader.__module__ != reader.__module__:
        raise InputError(f"{_ENTRIES[key].reader.__module__} has registered a collection {name!r}. Use another name.")
    _ENTRIES[key] = CatalogueEntry(name, title, licence, comes, reader, find)


def catalogue() -> list[CatalogueEntry]:
    """Return every collection once, the bundled ones first, then the fetched ones, then those read from a path."""
    unique: dict[str, CatalogueEntry] = {}
    for entry in sorted(_ENTRIES.values(), key=lambda entry: (get_args(Origin).index(entry.comes), entry.name)):
        unique.setdefault(entry.name, entry)
    return list(unique.values())


@overload
def load(
    name: Literal["digits", "faces", "folder", "csv"],
    *,
    path: str | os.PathLike[str] | None = ...,
    cache: str | os.PathLike[str] | None = ...,
    count: int | None = ...,
    size: int | None = ...,
    random_state: int = ...,
    progress: Progress = ...,
    **options: Any,
) -> PictureDataset: ...


@overload
def load(
    name: str,
    *,
    path: str | os.PathLike[str] | None = ...,
    cache: str | os.PathLike[str] | None = ...,
    count: int | None = ...,
    size: int | None = ...,
    random_state: int = ...,
    progress: Progress = ...,
    **options: Any,
) -> Dataset: ...


def load(
    name: str,
    *,
    path: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    count: int | None = None,
    size: int | None = None,
    random_state: int = 0,
    progress: Progress = silent,
    **options: Any,
) -> Dataset:
    """Open a collection by name.

    With `path` it is read from there (folder, file or table); without, it is bundled or in the cache: nothing is
    downloaded here. `count` is the largest number of pictures (a random part, the same for the same `random_state`),
    `size` their side in pixels where it can be chosen. Further options go to the collection's own reader, e.g.
    `correlation` for faces.

    >>> load("digits", count=100)
    Dataset('digits', 100 pictures, 8x8x3, labels)
    """
    _check_count(count)
    folder = None if cache is None else as_path(cache)
    entry = _entry(name, path is not None)
    reader, start = entry.reader, () if path is None else (as_path(path),)
    start = start if entry.find is None else (as_path(entry.find(folder)),)
    shared = {"size": size, "random_state": random_state, "progress": progress, "cache": folder}
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


def reader_options(name: str, path: str | os.PathLike[str] | None = None) -> set[str]:
    """Return the options that `load` passes to a collection's reader: `keep_copies` where it decodes files, for one."""
    _check_name(name)
    entry = _ENTRIES.get((name, path is not None))
    return set() if entry is None else _options_of(entry.reader)


def digits() -> PictureDataset:
    """Return the 1,797 handwritten digits that scikit-learn carries: 8 x 8 grey levels, no download needed.

    >>> digits()
    Dataset('digits', 1797 pictures, 8x8x3, labels)
    """
    from sklearn.datasets import load_digits

    bundle = load_digits()
    return PictureDataset(
        name="digits",
        licence="CC BY 4.0 (UCI Machine Learning Repository); the copy within scikit-learn BSD-3-Clause",
        source="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998 (test part), by scikit-learn",
        images=grey_to_rgb(np.round(bundle.images * (255 / 16)).astype(np.uint8)),
        labels=bundle.target.astype(np.int64),
        label_names=tuple(str(digit) for digit in range(10)),
        names=tuple(f"{row:04d}" for row in range(len(bundle.target))),
        notes=("Pixels of 0..16 are scaled to 0..255.",),
    )


def grey_to_rgb(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return grey pictures with three equal channels."""
    return np.repeat(grey[..., None], 3, axis=-1)


def _check_count(count: int | None) -> None:
    if count is None:
        return
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise InputError(f"count must be a whole number of pictures; got {count!r}.")
    if count < 1:
        raise InputError(f"count must be at least 1 picture; got {count}.")


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise InputError(f"a collection is opened by its name, such as 'faces'; got {name!r}.")
    known = {known for known, _ in _ENTRIES}
    if name not in known and name in OF_THE_PAPERS:
        raise InputError(_register_first(name))
    if name not in known:
        raise UnknownNameError("collection", name, known | set(OF_THE_PAPERS))


def _register_first(name: str) -> str:
    return (
        f"{name} is a collection of the papers: `import blindsight.papers.collections` makes it known, "
        f"`blindsight papers fetch {name}` downloads it."
    )


def _entry(name: str, from_path: bool) -> CatalogueEntry:
    _check_name(name)
    entry = _ENTRIES.get((name, from_path))
    if entry is not None:
        return entry
    if from_path:
        raise InputError(f"{name} is not read from a path. Omit the path, or use 'folder' or 'csv'.")
    more = f" Or: {_register_first(name)}" if name in OF_THE_PAPERS else ""
    raise InputError(f"{name} is read from a path: name it (path=..., on the command line --path).{more}")


def _options_of(reader: Callable[..., Dataset]) -> set[str]:
    taken: set[str] = set()
    for parameter in inspect.signature(reader).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            taken |= set(Reading.__annotations__)
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or parameter.name == "n":
            taken.add(parameter.name)
    return taken


_HERE: tuple[tuple[str, Reader, str, str, Origin], ...] = (
    ("digits", digits, "1,797 handwritten digits of 8 x 8 pixels", "CC BY 4.0", "bundled"),
    ("faces", faces, "drawn faces with known attributes and persons", "Apache-2.0; no person is depicted", "bundled"),
    ("caltech101", read_caltech101, "Caltech-101: photographs of 101 kinds of objects", "CC BY 4.0", "from a path"),
    ("celeba", read_celeba, "CelebA: celebrity faces with 40 attributes", "non-commercial research", "from a path"),
    ("csv", read_csv, "your own pictures, named in a table", "yours", "from a path"),
    ("cub", read_cub, "CUB-200-2011: birds with 312 attributes", "non-commercial research", "from a path"),
    ("folder", read_folder, "your own pictures, a folder per class", "yours", "from a path"),
    ("utkface", read_utkface, "UTKFace: faces with age, gender and race", "non-commercial research", "from a path"),
)
for _name, _reader, _title, _licence, _comes in _HERE:
    register_collection(_name, _reader, title=_title, licence=_licence, comes=_comes)
