"""Why some policies fail: losses explained by the correlation and the overlap of their two attributes.

Enev et al., "SensorSift", ACSAC 2012, section 7, attribute 63% of PubLoss and 67% of PrivLoss to correlation and the
rest to overlap, and find correlation alone to leave a squared error 315% larger; they do not say how shares were taken.
Here: ordinary least squares of the loss on |correlation| and overlap, shares by the size of the coefficients in units
of a standard deviation each.

Standard errors are those of independent errors. The policies of a matrix share attributes, so the true ones are
larger: take them for what they are, the least that must be doubted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError

Array = NDArray[np.float64]


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
    """Share of the variance of the loss that both explain together."""
    correlation_share: float
    """Of what is explained, the part of correlation; the rest is overlap's."""
    correlation_alone: float
    """How much larger the squared error is without overlap: 3.15 for the paper's 315%."""
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
    squared = float(left[0])
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
        correlation_alone=_squared_error(design[:, :2], y) / squared - 1 if squared > 0 else 0.0,
        policies=len(y),
    )


def _squared_error(design: Array, y: Array) -> float:
    values = np.linalg.lstsq(design, y, rcond=None)[0]
    return float(np.square(y - design @ values).sum())
