"""Entanglement of attributes: their correlation, the features and pixels that show them, and losses of every policy.

Enev et al., "SensorSift", ACSAC 2012, section 7: a policy works as long as its two attributes are neither correlated
nor shown by the same features. With a and b the covariances of every feature with two attributes, Eq. 6 is

    overlap = max over |w| = 1 of cov(Xw, Y+)^2 cov(Xw, Y-)^2 = max (a.w)^2 (b.w)^2 = ((|a||b| + |a.b|) / 2)^2.

Closed form: (a.w)(b.w) is the quadratic form of (ab' + ba') / 2, whose only eigenvalues other than zero are
(a.b + |a||b|) / 2 and (a.b - |a||b|) / 2. The sum printed before the maximum has no index; it is left out.

| paper | here |
| --- | --- |
| cov(X, Y), the features that covary with an attribute | columns of `feature_directions` |
| Correlation (Figure 4, absolute values) | `correlations`, with sign |
| Overlap (Eq. 6), "normalized to 1 across our 90 policies" | `overlaps`, the largest pair 1 unless told otherwise |
| PubLoss and PrivLoss of every pair (Figure 4) | `policy_matrix`, rows public, columns private |
| pixels of the red plane that covary with an attribute (Figure 5) | `PixelRegions.red` |

Overlap never vanishes: attributes on separate features still have (|a||b| / 2)^2, a quarter of what one attribute has
with itself. The cosine of a and b is 0 for separate features.

With the pixel pipeline regions are exact: features are p = C (planes - mean), so weights w of features are weights C'w
of planes, and the covariance of the planes with an attribute is C' times that of the features (up to the energy that C
leaves out). An attribute that shows as an edge is not in the red plane: `energy` and `weight` combine all six planes.

The paper attributes 63% of PubLoss and 67% of PrivLoss to correlation and the rest to overlap, and finds that
correlation alone leaves a squared error 315% larger; it does not say how shares were taken. `regress` is ordinary least
squares of the loss on |correlation| and overlap, shares by the size of standardised coefficients. Standard errors
assume independent errors. The policies of a matrix share attributes, so the true ones are larger.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.dataset import UNKNOWN
from blindsight.data.pixels import PLANES, PixelFeatures
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.sift.labels import Labelled, Labels, label_columns
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS, CrossProducts, SiftLearner
from blindsight.sift.sift import Features, LinearSift
from blindsight.sift.trial import Sifted, Trial, by_learner

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Entanglement:
    """Three (attributes, attributes) matrices in the order of `names`; each is symmetric."""

    names: tuple[str, ...]
    correlation: Array
    overlap: Array
    cosine: Array


def entanglement(X: Features, labels: Labelled, names: tuple[str, ...], *, scale: bool = True) -> Entanglement:
    columns = label_columns(labels, names)
    directions = feature_directions(X, columns, scale=scale)
    return Entanglement(tuple(names), correlations(columns), overlaps(directions), cosines(directions))


def correlations(labels: Labels) -> Array:
    """Return Pearson's correlation of every two attributes over the rows where both are known; labels 1, 0, -1.

    >>> correlations(np.array([[1, 0], [1, 0], [0, 1], [0, 0], [-1, 1]], dtype=np.int8)).round(2)
    array([[ 1.  , -0.58],
           [-0.58,  1.  ]])
    """
    columns = np.asarray(labels)
    result = np.eye(columns.shape[1])
    for i in range(columns.shape[1]):
        for j in range(i):
            both = (columns[:, i] != UNKNOWN) & (columns[:, j] != UNKNOWN)
            a, b = columns[both, i].astype(np.float64), columns[both, j].astype(np.float64)
            if not a.size or not np.ptp(a) or not np.ptp(b):
                raise InputError(
                    f"attributes {j} and {i} have no correlation: where both are known, one of them is constant."
                )
            result[i, j] = result[j, i] = np.corrcoef(a, b)[0, 1]
    return result


def feature_directions(X: Features, labels: Labels, *, scale: bool = True) -> Array:
    """Return covariances (d, attributes) of features, scaled to unit variance if `scale`, with attributes of unit
    variance.
    """
    columns = np.asarray(labels)
    if columns.shape[1] < 2:
        raise InputError(f"at least two attributes are needed to compare; got {columns.shape[1]}.")
    sides = columns[:, :1], columns[:, 1:]
    products = CrossProducts.like(X, *sides)
    products.update(X, *sides)
    if products.one_sided().any():
        number = int(np.flatnonzero(products.one_sided())[0])
        raise InputError(f"attribute {number} is the same, or unknown, for every sample: no feature shows it.")
    deviation = products.deviation if scale else np.ones(products.mean.size)
    inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    return products.covariances * inverse[:, None]


def overlaps(directions: Array, *, normalise: bool = True) -> Array:
    """Return the overlap of every two attributes (Eq. 6) from their `feature_directions`.

    Normalised, the largest overlap of two different attributes is 1; the diagonal may be larger.

    >>> overlaps(np.array([[1.0, 0.0], [0.0, 1.0]]), normalise=False)
    array([[1.  , 0.25],
           [0.25, 1.  ]])
    """
    products, lengths = directions.T @ directions, np.linalg.norm(directions, axis=0)
    overlap = np.asarray(((np.outer(lengths, lengths) + np.abs(products)) / 2) ** 2)
    largest = overlap[~np.eye(len(overlap), dtype=bool)].max(initial=0.0)
    return overlap / largest if normalise and largest > 0 else overlap


def cosines(directions: Array) -> Array:
    lengths = np.linalg.norm(directions, axis=0)
    units = np.divide(directions, lengths, out=np.zeros_like(directions), where=lengths > 0)
    return np.asarray(units.T @ units)


@dataclass(frozen=True, eq=False)
class PixelRegions:
    """Maps (height, width) of where a linear function of a picture looks."""

    energy: Array  # root of the summed squares over the six planes; the largest is 1
    weight: Array  # mean absolute weight over the six planes; the largest is 1
    red: Array  # the red plane with its sign, in [-1, 1] (Figure 5); of several numbers, that which reads it most


def sift_regions(sift: LinearSift, pipeline: PixelFeatures) -> PixelRegions:
    """Return which pixels a sift of this pipeline reads, over all its numbers; these count alike in any units."""
    sift.check_pipeline(pipeline.fingerprint())
    weights = np.asarray(sift.weights, dtype=np.float64)
    return _regions(_planes(weights / np.linalg.norm(weights, axis=0), pipeline))


def attribute_regions(
    X: Features, labels: Labelled, names: tuple[str, ...], pipeline: PixelFeatures
) -> dict[str, PixelRegions]:
    """Return which pixels covary with each of two or more attributes (Figure 5)."""
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
    largest = float(np.abs(values).max())
    return values / largest if largest > 0 else values


@dataclass(frozen=True)
class Coefficient:
    """A coefficient of the regression and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class LossRegression:
    """loss = intercept + correlation |r| + overlap o, by least squares."""

    intercept: Coefficient
    correlation: Coefficient
    overlap: Coefficient
    r_squared: float
    correlation_share: float  # of what is explained, the part of correlation; the rest is overlap's
    correlation_alone: float  # how much larger the squared error is without overlap: 3.15 for the paper's 315%
    policies: int


def regress(losses: ArrayLike, correlations: ArrayLike, overlaps: ArrayLike) -> LossRegression:
    """Explain the losses of four or more policies by the absolute correlation and the overlap of their attributes."""
    y, r, o = (np.asarray(values, dtype=np.float64).ravel() for values in (losses, correlations, overlaps))
    if not len(y) == len(r) == len(o) or len(y) < 4:
        raise InputError(f"a regression needs both figures for four policies or more; got {len(y)} losses.")
    r = np.abs(r)
    design = np.column_stack([np.ones_like(y), r, o])
    if np.linalg.matrix_rank(design) < 3:
        raise InputError(
            "correlation and overlap do not vary, or vary alike, over these policies: nothing to tell apart."
        )
    values, left, _, _ = np.linalg.lstsq(design, y, rcond=None)
    squared, without = float(left[0]), float(np.linalg.lstsq(design[:, :2], y, rcond=None)[1][0])
    total = float(np.square(y - y.mean()).sum())
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * squared / (len(y) - 3))
    strengths = np.abs(values[1:]) * np.array([r.std(), o.std()])
    intercept, correlation, overlap = (Coefficient(float(v), float(e)) for v, e in zip(values, errors, strict=True))
    return LossRegression(
        intercept,
        correlation,
        overlap,
        r_squared=1 - squared / total if total > 0 else 0.0,
        correlation_share=float(strengths[0] / strengths.sum()) if strengths.sum() > 0 else 0.5,
        correlation_alone=without / squared - 1 if squared > 0 else 0.0,
        policies=len(y),
    )


Figure = Literal["pub_loss", "priv_loss", "bound"]


@dataclass(frozen=True, eq=False)
class PolicyMatrix:
    """All ordered pairs of `names`, (public, private); a pair without a sift keeps a sentence that says why."""

    entanglement: Entanglement
    raw: Mapping[str, float]  # balanced accuracy of the best classifier on raw features, per attribute (Table 2)
    cells: Mapping[tuple[str, str], Sifted]

    @property
    def names(self) -> tuple[str, ...]:
        return self.entanglement.names

    @property
    def accepted(self) -> int:
        return sum(cell.verdict == "accept" for cell in self.cells.values())

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(cell.problem for cell in self.cells.values() if cell.problem)

    def figures(self, figure: Figure) -> Array:
        """Return one figure as (public, private); NaN on the diagonal and where no sift exists."""
        place = {name: i for i, name in enumerate(self.names)}
        matrix = np.full((len(place), len(place)), math.nan)
        for (public, private), cell in self.cells.items():
            matrix[place[public], place[private]] = getattr(cell, figure)
        return matrix

    def average(self, figure: Figure) -> float:
        return float(np.nanmean(self.figures(figure)))

    def regression(self, figure: Figure = "priv_loss") -> LossRegression:
        losses = self.figures(figure)
        known = ~np.isnan(losses)
        return regress(losses[known], self.entanglement.correlation[known], self.entanglement.overlap[known])

    def to_dict(self) -> dict[str, Any]:
        cells = [{"public": a, "private": b} | cell.to_dict() for (a, b), cell in self.cells.items()]
        matrices = ("correlation", "overlap", "cosine")
        entangled = {name: getattr(self.entanglement, name).tolist() for name in matrices}
        return {"names": list(self.names), "raw": dict(self.raw), "cells": cells} | entangled


def policy_matrix(
    trial: Trial, names: tuple[str, ...], *, method: SiftLearner | None = None, progress: Progress = silent
) -> PolicyMatrix:
    """Fit and measure a sift for every ordered pair of attributes, by default with PPLS, K = 5 and lambda = 1."""
    learner = PPLS() if method is None else method
    entangled = entanglement(trial.data.features, trial.data.labels, names, scale=getattr(learner, "scale", True))
    progress("attributes from raw features", 0, len(names))
    raw = trial.raw(names)
    pairs = list(permutations(names, 2))
    cells = {}
    for done, (public, private) in enumerate(pairs):
        progress("policies", done, len(pairs))
        policy = Policy((public,), (private,))
        cells[public, private] = trial.attempt(str(policy), by_learner(learner), policy)
    progress("policies", len(pairs), len(pairs))
    return PolicyMatrix(entangled, raw, cells)
