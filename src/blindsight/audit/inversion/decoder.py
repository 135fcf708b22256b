"""What every inversion is: something that learns from public pictures and their features, then turns features back.

A `Decoder` is frozen: it can only be applied. Whatever it shows comes from its input and from public pictures, never
from the owner of the features; a decoder that gets nothing useful shows an average public picture.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.dataset import check_images
from blindsight.errors import InputError
from blindsight.validation import check_features

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

    def fit(self, features: ArrayLike, images: Pictures, persons: ArrayLike | None = None) -> Decoder: ...


def check_rows(features: ArrayLike, dimension: int | None = None) -> Floats:
    """Return features as float32 (n, d); rows of another length and numbers that are not finite are refused."""
    floats: Floats = check_features(features, dimension)
    if not (np.abs(floats) <= LARGEST).all():
        raise InputError(f"features must be within +-{LARGEST:g}. Remove, repair or rescale those rows.")
    return floats


def check_pairs(features: ArrayLike, images: Pictures) -> Floats:
    """Return the features to learn from, checked to belong to these pictures."""
    check_images(images, least=1)
    rows = check_rows(features)
    if len(rows) != len(images):
        raise InputError(f"every public picture needs its features; got {len(images)} pictures, {len(rows)} rows.")
    if len(rows) < 2:
        raise InputError(f"a decoder is learned from 2 public pictures or more; got {len(rows)}.")
    return rows
