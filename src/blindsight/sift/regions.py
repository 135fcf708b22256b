"""Where in a picture an attribute shows: weights of features traced back to the pixels they were made of.

Enev et al., "SensorSift", ACSAC 2012, Figure 5, shows which pixels of the red plane covary with an attribute. With the
pixel pipeline that is exact: features are p = C (planes - mean), so a linear function of features with weights w is one
of planes with weights C'w, and the covariance of the planes with an attribute is C' times that of the features (up to
the energy that C leaves out). `PixelRegions.red` is the paper's picture; `energy` and `weight` put all six planes
together, because an attribute that shows as an edge is not in the red plane.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.data.pixels import PLANES, PixelFeatures
from blindsight.errors import InputError
from blindsight.sift.analysis import feature_directions
from blindsight.sift.features import Features
from blindsight.sift.labels import Labelled, label_columns
from blindsight.sift.sift import LinearSift

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PixelRegions:
    """Maps (height, width) of where a linear function of a picture looks."""

    energy: Array
    """Root of the summed squares over the six planes, in [0, 1]: the largest is 1."""
    weight: Array
    """Mean absolute weight over the six planes, in [0, 1]: the largest is 1."""
    red: Array
    """The red plane with its sign, in [-1, 1] (Figure 5); of several numbers, that which reads it most."""


def sift_regions(sift: LinearSift, pipeline: PixelFeatures) -> PixelRegions:
    """Return which pixels a sift reads, over all its numbers; the sift must belong to this pipeline.

    Numbers count alike, whatever units the sift gives them.
    """
    sift.check_pipeline(pipeline.fingerprint())
    weights = np.asarray(sift.weights, dtype=np.float64)
    return _regions(_planes(weights / np.linalg.norm(weights, axis=0), pipeline))


def attribute_regions(
    X: Features, labels: Labelled, names: tuple[str, ...], pipeline: PixelFeatures
) -> dict[str, PixelRegions]:
    """Return which pixels covary with each of two or more attributes, from features X of this pipeline (Figure 5)."""
    directions = feature_directions(X, label_columns(labels, names), scale=False)
    return {
        name: _regions(_planes(column[:, None], pipeline)) for name, column in zip(names, directions.T, strict=True)
    }


def _planes(weights: Array, pipeline: PixelFeatures) -> Array:
    """Return weights of features (d, k) as weights of pixels, (k, 6, height, width)."""
    if not pipeline.fitted or len(weights) != pipeline.n_components_:
        size = pipeline.n_components_ if pipeline.fitted else "an unfitted pipeline's"
        raise InputError(f"weights are of {len(weights)} features; the pixel pipeline has {size}.")
    pixels = weights.T if pipeline.energy is None else weights.T @ pipeline.components_.astype(np.float64)
    height, width = pipeline.image_shape_.tolist()
    colours, others = np.split(pixels, [3 * height * width], axis=1)
    rgb = colours.reshape(-1, height, width, 3).transpose(0, 3, 1, 2)
    return np.concatenate([rgb, others.reshape(-1, PLANES - 3, height, width)], axis=1)


def _regions(planes: Array) -> PixelRegions:
    reds = planes[:, 0]
    return PixelRegions(
        energy=_of_largest(np.sqrt(np.square(planes).sum(axis=(0, 1)))),
        weight=_of_largest(np.abs(planes).mean(axis=(0, 1))),
        red=_of_largest(reds[np.abs(reds).max(axis=(1, 2)).argmax()]),
    )


def _of_largest(values: Array) -> Array:
    """Return values in units of the largest; zeros stay zeros."""
    largest = float(np.abs(values).max())
    return values / largest if largest > 0 else values
