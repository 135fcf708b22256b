"""What every inversion is: something that learns from public pictures and their features, then turns features back.

A `Decoder` is frozen: it can only be applied. Whatever it shows comes from its input and from public pictures, never
from the owner of the features; a decoder that gets nothing useful shows an average public picture.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError

Pictures = NDArray[np.uint8]
"""(n, height, width, 3)."""

Floats = NDArray[np.float32]

LARGEST = 1e12
"""No number that is decoded is larger."""


@dataclass(frozen=True, eq=False)
class Decoder(ABC):
    """From `dimension` numbers back to a picture of `shape` (height, width, 3)."""

    dimension: int
    shape: tuple[int, int, int]

    @abstractmethod
    def paint(self, rows: Floats) -> Floats:
        """Return the pictures of checked rows as numbers in [0, 255], (n, height, width, 3)."""

    def decode(self, features: ArrayLike) -> Pictures:
        """Return one picture per row of features, uint8 (n, height, width, 3)."""
        pictures: Pictures = np.rint(self.paint(check_rows(features, self.dimension))).astype(np.uint8)
        return pictures


class Inversion(Protocol):
    """A way to learn a decoder."""

    def fit(self, features: ArrayLike, images: Pictures, persons: ArrayLike | None = None) -> Decoder:
        """Learn from public pictures and their features, row by row; `persons` tells which rows show the same one."""
        ...


def check_pictures(pictures: Pictures) -> None:
    """Refuse anything but uint8 RGB pictures of one size, at least one."""
    if pictures.dtype != np.uint8 or pictures.ndim != 4 or pictures.shape[3] != 3 or not pictures.size:
        raise InputError(
            f"pictures must be uint8 of shape (n, height, width, 3), one or more; got {pictures.dtype} "
            f"{pictures.shape}."
        )


def check_rows(features: ArrayLike, dimension: int | None = None) -> Floats:
    """Return features as float32 (n, d); rows of another length and numbers that are not finite are refused."""
    rows = np.asarray(features)
    if rows.ndim != 2 or 0 in rows.shape or rows.dtype.kind not in "biuf":
        raise InputError(f"features must be numbers of shape (n, d), one row or more; got {rows.dtype} {rows.shape}.")
    if dimension is not None and rows.shape[1] != dimension:
        raise InputError(
            f"this decoder was trained on {dimension} features; got {rows.shape[1]}. Is it another feature pipeline?"
        )
    with np.errstate(over="ignore"):
        floats = rows.astype(np.float32, copy=False)
    if not (np.abs(floats) <= LARGEST).all():
        raise InputError(f"features must be finite and within +-{LARGEST:g}. Remove, repair or rescale those rows.")
    return floats


def check_pairs(features: ArrayLike, images: Pictures) -> Floats:
    """Return the features to learn from, checked to belong to these pictures."""
    check_pictures(images)
    rows = check_rows(features)
    if len(rows) != len(images):
        raise InputError(f"every public picture needs its features; got {len(images)} pictures, {len(rows)} rows.")
    if len(rows) < 2:
        raise InputError(f"a decoder is learned from 2 public pictures or more; got {len(rows)}.")
    return rows
