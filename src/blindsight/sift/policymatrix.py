"""Every public attribute against every private one: which pairs can be told apart, at what cost, and why.

Enev et al., "SensorSift", ACSAC 2012, Figure 4: rows are public, columns private; per cell the lowest PubLoss and the
highest PrivLoss over all classifiers, beside the correlation and overlap of the two attributes (`analysis`). Ten
attributes make 90 policies. A cell for which no sift exists (nothing of the public attribute is left once the private
one is hidden) keeps the sentence that says so and has no losses.

Why some policies fail: losses explained by the correlation and the overlap of their two attributes.

Enev et al., "SensorSift", ACSAC 2012, section 7, attribute 63% of PubLoss and 67% of PrivLoss to correlation and the
rest to overlap, and find correlation alone to leave a squared error 315% larger; they do not say how shares were taken.
Here: ordinary least squares of the loss on |correlation| and overlap, shares by the size of the coefficients in units
of a standard deviation each.

Standard errors are those of independent errors. The policies of a matrix share attributes, so the true ones are
larger: take them for what they are, the least that must be doubted.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.sift.analysis import Entanglement, entanglement
from blindsight.sift.labels import Labelled
from blindsight.sift.learner import FewerComponentsWarning
from blindsight.sift.lossbench import QUICK_VERIFIER, LossBench, SiftLearner
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import Features
from blindsight.sift.verdict import Verdict
from blindsight.sift.verify import Verifier

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


Figure = Literal["pub_loss", "priv_loss", "bound"]


@dataclass(frozen=True)
class PolicyCell:
    """One policy of one public and one private attribute; figures are NaN where there is a problem and no sift."""

    public: str
    private: str
    pub_loss: float = math.nan
    priv_loss: float = math.nan
    bound: float = math.nan
    """Upper limit of PrivLoss at the verifier's confidence."""
    attacker: str = ""
    """Who guessed best."""
    verdict: Verdict | None = None
    numbers: int = 0
    """How many numbers the sift lets out."""
    problem: str = ""


@dataclass(frozen=True, eq=False)
class PolicyMatrix:
    """All ordered pairs of `names`, cell by cell."""

    entanglement: Entanglement
    raw: Mapping[str, float]
    """Balanced accuracy of the best classifier on raw features, per attribute (Table 2)."""
    cells: tuple[PolicyCell, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes, in the order of rows and columns."""
        return self.entanglement.names

    @property
    def accepted(self) -> int:
        """How many policies passed verification."""
        return sum(cell.verdict == "accept" for cell in self.cells)

    def figures(self, figure: Figure) -> Array:
        """Return one figure as (public, private); NaN on the diagonal and where no sift exists."""
        place = {name: i for i, name in enumerate(self.names)}
        matrix = np.full((len(place), len(place)), math.nan)
        for cell in self.cells:
            matrix[place[cell.public], place[cell.private]] = getattr(cell, figure)
        return matrix

    def average(self, figure: Figure) -> float:
        """Return the mean of a figure over all policies that have a sift."""
        return float(np.nanmean(self.figures(figure)))

    def regression(self, figure: Figure = "priv_loss") -> LossRegression:
        """Return how far correlation and overlap of the attributes explain a loss."""
        losses = self.figures(figure)
        known = ~np.isnan(losses)
        return regress(losses[known], self.entanglement.correlation[known], self.entanglement.overlap[known])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for strict JSON; a figure that does not exist is None."""
        cells = [{key: _plain(value) for key, value in asdict(cell).items()} for cell in self.cells]
        matrices = ("correlation", "overlap", "cosine")
        entangled = {name: getattr(self.entanglement, name).tolist() for name in matrices}
        return {"names": list(self.names), "raw": dict(self.raw), "cells": cells} | entangled


def policy_matrix(
    X: Features,
    labels: Labelled,
    names: tuple[str, ...],
    *,
    method: SiftLearner | None = None,
    verifier: Verifier = QUICK_VERIFIER,
    persons: ArrayLike | None = None,
    progress: Progress = silent,
) -> PolicyMatrix:
    """Fit and measure a sift for every ordered pair of the named attributes.

    `method` is the learner, PPLS with K = 5 and lambda = 1 unless told otherwise; features are divided as `lossbench`
    tells, and raw accuracies measured once per attribute.
    """
    learner = PPLS() if method is None else method
    bench = LossBench(X, labels, names, verifier=verifier, persons=persons)
    entangled = entanglement(X, labels, names, scale=getattr(learner, "scale", True))
    raw: dict[str, float] = {}
    for done, name in enumerate(names):
        progress("attributes from raw features", done, len(names))
        raw[name] = bench.raw_accuracy(name)
    cells: list[PolicyCell] = []
    for public, private in permutations(names, 2):
        progress("policies", len(cells), len(names) * (len(names) - 1))
        cells.append(_cell(bench, learner, Policy((public,), (private,))))
    progress("policies", len(cells), len(cells))
    return PolicyMatrix(entangled, raw, tuple(cells))


def _cell(bench: LossBench, learner: SiftLearner, policy: Policy) -> PolicyCell:
    (pair,) = policy.pairs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewerComponentsWarning)  # `numbers` tells
            sift = bench.fit(learner, policy)
    except InputError as error:
        return PolicyCell(*pair, problem=str(error))
    losses = bench.losses(sift, policy)
    found = losses.verification
    return PolicyCell(
        *pair,
        pub_loss=losses.pub_loss,
        priv_loss=losses.priv_loss,
        bound=found.bound,
        attacker=found.best.attacker,
        verdict=found.verdict,
        numbers=sift.width,
    )


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
