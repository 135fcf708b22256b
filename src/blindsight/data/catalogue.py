"""Every collection by name: `load(name, ...)`, the catalogue of what it opens, and the readers of what was fetched.

Readers of fetched collections take the folder that `fetch` returned. `split` is "train" or "test" where the
collection's makers drew that line, and "all" everywhere: the training pictures, then the test pictures (see `names`).
"""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import Dataset
from blindsight.data.faces import faces
from blindsight.data.fetching import is_intact
from blindsight.data.published import read_caltech101, read_celeba, read_cub, read_utkface
from blindsight.data.readers import Reading, read_csv, read_folder, some_rows
from blindsight.data.sources import CIFAR10_BATCHES, FETCHABLE, ORL_HEADER
from blindsight.errors import CorruptFileError, DataError, InputError, UnknownNameError
from blindsight.files import as_path, cache_folder, storage_errors
from blindsight.progress import Progress, silent

Split = Literal["train", "test", "all"]

CIFAR10_LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FASHION_MNIST_LABELS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_PARTS: dict[str, tuple[str, ...]] = {"train": ("train",), "test": ("test",), "all": ("train", "test")}
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
    path: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
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
    folder = None if cache is None else as_path(cache)
    reader, start = _reader(name, path, folder)
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
    """Return the options that `load` hands on for a collection: `keep_copies` where it decodes files, for one."""
    _check_name(name)
    readers = _READ if path is not None else _BUNDLED | _FETCHED
    return _options_of(readers[name]) if name in readers else set()


def digits() -> Dataset:
    """Return the 1,797 handwritten digits that scikit-learn carries: 8 x 8 grey levels, no download needed.

    >>> digits()
    Dataset('digits', 1797 pictures, 8x8x3, labels)
    """
    from sklearn.datasets import load_digits

    bundle = load_digits()
    return Dataset(
        name="digits",
        licence="CC BY 4.0 (UCI Machine Learning Repository); the copy within scikit-learn BSD-3-Clause",
        source="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998 (test part), by scikit-learn",
        images=_grey_to_rgb(np.round(bundle.images * (255 / 16)).astype(np.uint8)),
        labels=bundle.target.astype(np.int64),
        label_names=tuple(str(digit) for digit in range(10)),
        names=tuple(f"{row:04d}" for row in range(len(bundle.target))),
        notes=("Pixels of 0..16 are scaled to 0..255.",),
    )


def cifar10(folder: str | os.PathLike[str], *, split: Split = "all") -> Dataset:
    """Read CIFAR-10 (32 x 32 colour): 50,000 pictures for training and 10,000 for testing."""
    batches = {"train": CIFAR10_BATCHES[:-1], "test": CIFAR10_BATCHES[-1:]}

    def read(part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        images, labels = zip(*(_cifar_batch(as_path(folder) / f"{name}.bin") for name in batches[part]), strict=True)
        return np.concatenate(images), np.concatenate(labels)

    return _in_parts("cifar10", split, read, CIFAR10_LABELS)


def fashion_mnist(folder: str | os.PathLike[str], *, split: Split = "all") -> Dataset:
    """Read Fashion-MNIST (28 x 28 grey): 60,000 pictures for training and 10,000 for testing."""
    prefix = {"train": "train", "test": "t10k"}

    def read(part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        images = _read_idx(as_path(folder) / f"{prefix[part]}-images-idx3-ubyte", dimensions=3)
        return _grey_to_rgb(images), _read_idx(as_path(folder) / f"{prefix[part]}-labels-idx1-ubyte", dimensions=1)

    return _in_parts("fashion-mnist", split, read, FASHION_MNIST_LABELS)


def orl(folder: str | os.PathLike[str], *, split: Split = "all") -> Dataset:
    """Read the ORL faces (112 x 92 grey): ten pictures of each of 40 people, who are labels and persons alike."""
    _only_all("orl", split)
    names = [f"s{person}/{picture}.pgm" for person in range(1, 41) for picture in range(1, 11)]
    people = np.repeat(np.arange(40), 10)
    return Dataset(
        name="orl",
        licence=FETCHABLE["orl"].licence,
        source=FETCHABLE["orl"].homepage,
        images=_grey_to_rgb(np.stack([_orl_face(as_path(folder) / name) for name in names])),
        labels=people,
        label_names=tuple(f"s{person}" for person in range(1, 41)),
        persons=people,
        names=tuple(names),
        notes=("532 of 4.1 million pixels may be 3 grey levels darker than they were (see `orl_from_wheel`).",),
    )


def caltech101(
    folder: str | os.PathLike[str], *, split: Split = "all", background: bool = True, **how: Unpack[Reading]
) -> Dataset:
    """Read Caltech-101, each picture made square; the options are those of `read_caltech101`."""
    _only_all("caltech101", split)
    return read_caltech101(folder, background=background, **how)


def lfw(folder: str | os.PathLike[str], *, split: Split = "all", **how: Unpack[Reading]) -> Dataset:
    """Read Labeled Faces in the Wild, each picture made square; the people are labels and persons alike."""
    _only_all("lfw", split)
    faces = read_folder(as_path(folder) / "lfw_funneled", **how)
    entry = FETCHABLE["lfw"]
    return replace(faces, name="lfw", licence=entry.licence, source=entry.homepage, persons=faces.labels)


_BUNDLED: dict[str, Callable[..., Dataset]] = {"digits": digits, "faces": faces}
_FETCHED: dict[str, Callable[..., Dataset]] = {
    "caltech101": caltech101,
    "cifar10": cifar10,
    "fashion-mnist": fashion_mnist,
    "lfw": lfw,
    "orl": orl,
}
_READ: dict[str, Callable[..., Dataset]] = {
    "caltech101": read_caltech101,
    "celeba": read_celeba,
    "csv": read_csv,
    "cub": read_cub,
    "folder": read_folder,
    "utkface": read_utkface,
}


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
    if name not in {*_BUNDLED, *_FETCHED, *_READ}:
        raise UnknownNameError("collection", name, {*_BUNDLED, *_FETCHED, *_READ})


def _reader(
    name: str, path: str | os.PathLike[str] | None, cache: Path | None
) -> tuple[Callable[..., Dataset], tuple[Path, ...]]:
    _check_name(name)
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
    taken: set[str] = set()
    for parameter in inspect.signature(reader).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            taken |= set(Reading.__annotations__)
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or parameter.name == "n":
            taken.add(parameter.name)
    return taken


def _cifar_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read records of one label, then 32 x 32 red, green and blue values; return pictures and labels."""
    content = _read(path)
    record = 1 + 3 * 32 * 32
    if not len(content) or len(content) % record:
        raise CorruptFileError(f"{path} is not a CIFAR-10 batch: {len(content)} bytes are no multiple of {record}.")
    labels, *planes = np.split(content.reshape(-1, record), [1, 1 + 32 * 32, 1 + 2 * 32 * 32], axis=1)
    return np.stack(planes, axis=-1).reshape(-1, 32, 32, 3), labels[:, 0]


def _read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an IDX file of bytes: two zeros, type 8, the number of dimensions, each as 4 bytes, then the values."""
    content = _read(path)
    start = 4 * (1 + dimensions)
    if bytes(content[:4]) != bytes([0, 0, 8, dimensions]) or len(content) < start:
        raise CorruptFileError(f"{path} is not an IDX file of bytes in {dimensions} dimensions.")
    shape = tuple(int(length) for length in content[4:start].view(">u4"))
    if len(content) - start != np.prod(shape):
        raise CorruptFileError(f"{path} is not complete: it should hold {shape} values.")
    return content[start:].reshape(shape)


def _orl_face(path: Path) -> NDArray[np.uint8]:
    content, start = _read(path), len(ORL_HEADER)
    if bytes(content[:start]) != ORL_HEADER or len(content) != start + 112 * 92:
        raise CorruptFileError(f"{path} is not a grey PGM picture of 92 x 112 pixels.")
    return content[start:].reshape(112, 92)


def _read(path: Path) -> NDArray[np.uint8]:
    with storage_errors("read", path, "Fetch the collection again."):
        return np.fromfile(path, dtype=np.uint8)


def _grey_to_rgb(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(grey[..., None], 3, axis=-1)


def _parts(split: str) -> tuple[str, ...]:
    if split not in _PARTS:
        raise UnknownNameError("split", split, _PARTS)
    return _PARTS[split]


def _only_all(name: str, split: str) -> None:
    if _parts(split) != _PARTS["all"]:
        raise InputError(f"{name} has no split of its makers; got split={split!r}. Use 'all' and divide it yourself.")


def _in_parts(
    name: str,
    split: str,
    read: Callable[[str], tuple[NDArray[np.uint8], NDArray[np.uint8]]],
    label_names: tuple[str, ...],
) -> Dataset:
    parts = {part: read(part) for part in _parts(split)}
    labels = np.concatenate([labels for _, labels in parts.values()]).astype(np.int64)
    if np.any(labels >= len(label_names)):
        raise CorruptFileError(f"the labels of {name} must be below {len(label_names)}. Fetch the collection again.")
    return Dataset(
        name=name,
        licence=FETCHABLE[name].licence,
        source=FETCHABLE[name].homepage,
        images=np.concatenate([images for images, _ in parts.values()]),
        labels=labels,
        label_names=label_names,
        names=tuple(f"{part}/{row:05d}" for part, (images, _) in parts.items() for row in range(len(images))),
    )
