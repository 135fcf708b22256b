"""The six planes of an image: raw RGB, intensity, edge orientation and edge magnitude, normalised per image.

Section 5 of Enev, Jung, Bo, Ren and Kohno, "SensorSift: Balancing Sensor Data Privacy and Utility in Automated Face
Understanding" (ACSAC 2012). Where the paper is silent or loose:

- 128 x 128 faces give its 98,304 features as 3 planes of RGB and one each of intensity, edge orientation, magnitude.
- Intensity is 0.299 R + 0.587 G + 0.114 B. Edges are its central differences (one-sided at the border): orientation is
  the angle of steepest brightening in (-pi, pi], 0 where there is no edge; magnitude is the length of the gradient.
- The energy normalisation (x - mu) / (2 sigma) comes "after computing these transforms" and before they are
  concatenated. It is therefore read per face and per transform: mu and sigma over all RGB values together (colour casts
  survive), then over each of the other three planes. A constant transform becomes zeros. Nothing is clipped: the
  paper's "to remove outliers" means that values beyond [-1, 1] are rare.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import DataError, InputError

PLANES = 6
"""RGB, intensity, edge orientation, edge magnitude: features per pixel."""

_BATCH_BYTES = 1 << 27  # planes held in memory at once

Float32 = NDArray[np.float32]


def check_images(images: NDArray[np.uint8]) -> None:
    """Refuse anything but uint8 RGB images of one size."""
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or 0 in images.shape[1:3]:
        raise InputError(f"images must be uint8 of shape (n, height, width, 3); got {images.dtype} {images.shape}.")


def check_finite(features: Float32, origin: str) -> None:
    """Refuse features of which a row is not a number or infinite."""
    rows = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if rows.size:
        raise DataError(f"{origin} is NaN or infinite in {rows.size} of {len(features)} rows, first in row {rows[0]}.")


def planes(images: NDArray[np.uint8]) -> Float32:
    """Return the six normalised planes of every image, one row each: RGB, intensity, edge orientation, edge magnitude.

    >>> planes(np.zeros((2, 128, 128, 3), dtype=np.uint8)).shape
    (2, 98304)
    """
    check_images(images)
    if min(images.shape[1:3]) < 2:
        raise InputError(f"edges need images of at least 2x2 pixels; got {images.shape[1]}x{images.shape[2]}.")
    rgb = np.asarray(images, dtype=np.float32)
    # Weights in thousandths keep intensities and differences exact in float32, so that flat stays exactly flat; the
    # factor 1000 falls out of the normalisation.
    intensity = rgb @ np.array([299, 587, 114], dtype=np.float32)
    down, right = np.gradient(intensity, axis=(1, 2))
    transforms = (rgb, intensity, np.arctan2(down, right), np.sqrt(down**2 + right**2))
    return np.concatenate(
        [_normalised(part.reshape(len(images), math.prod(part.shape[1:]))) for part in transforms], axis=1
    )


def _normalised(part: Float32) -> Float32:
    """Apply (x - mu) / (2 sigma) to every row; rows whose spread is only rounding become zeros."""
    mu = part.mean(axis=1, dtype=np.float64, keepdims=True)
    centred = part - mu.astype(np.float32)
    sigma = np.sqrt(np.einsum("ij,ij->i", centred, centred) / part.shape[1])[:, None]
    varies = sigma > 1e-6 * np.abs(mu)
    result: Float32 = centred * np.divide(0.5, sigma, out=np.zeros_like(sigma), where=varies)
    return result


@dataclass(frozen=True)
class PlaneRows:
    """The planes of many images, less their mean: a tall matrix of which only the batch at hand is ever made."""

    images: NDArray[np.uint8]
    mean: Float32 | None = None

    def __len__(self) -> int:
        return len(self.images)

    @property
    def width(self) -> int:
        """Return how many planes' pixels an image has."""
        return PLANES * math.prod(self.images.shape[1:3])

    def spans(self) -> list[slice]:
        """Return the batches that together cover all images."""
        step = max(1, _BATCH_BYTES // (4 * self.width))
        return [slice(start, start + step) for start in range(0, len(self.images), step)]

    def batch(self, span: slice | NDArray[np.int64]) -> Float32:
        """Make the rows of one batch."""
        images = self.images[span]
        batch = np.empty((len(images), self.width), dtype=np.float32)
        for start in range(0, len(images), 16):  # few at a time, so that the intermediate planes stay in the cache
            batch[start : start + 16] = planes(images[start : start + 16])
        if self.mean is not None:
            batch -= self.mean
        return batch

    def __iter__(self) -> Iterator[Float32]:
        return map(self.batch, self.spans())
