"""How much a release speaks for one input and against another: what an auditor thresholds to tell them apart.

Any score gives a valid bound (`epsilon`); one that grows with the likelihood ratio gives the best. Where the mechanism
is known so is its ratio, and nothing has to be learned (`known`). Otherwise a score is learned from releases:
`by_frequency` where there are few different ones, `by_coordinate` where there are many numbers or bits in each.
"""

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.epsilon import Draws, Score, Scorer


def known(score: Score) -> Scorer:
    """Return a scorer that learns nothing: the score is known beforehand."""
    return lambda first, second: score


def by_frequency(first: Draws, second: Draws) -> Score:
    """Score each release by the logarithm of how much more often it was seen from the first input.

    For releases (single values or rows) of which there are far fewer than runs. Half a sighting is added to each count,
    and releases that were never seen speak for neither input.
    """
    kinds, places = np.unique(np.concatenate([first, second]), axis=0, return_inverse=True)
    seen = [np.bincount(part, minlength=len(kinds)) for part in np.split(places.ravel(), [len(first)])]
    ratios = np.log(seen[0] + 0.5) - np.log(seen[1] + 0.5)
    table = {kind.tobytes(): float(ratio) for kind, ratio in zip(kinds, ratios, strict=True)}

    def score(released: Draws) -> NDArray[np.float64]:
        found, where = np.unique(released, axis=0, return_inverse=True)
        return np.array([table.get(kind.tobytes(), 0.0) for kind in found])[where.ravel()]

    return score


def by_coordinate(first: Draws, second: Draws) -> Score:
    """Score rows of numbers or bits by the direction that tells the inputs apart, each coordinate by itself.

    Weights are the differences of the means over the mean variance (Fisher's discriminant with a diagonal covariance):
    the likelihood ratio of independent Gaussians, and of independent bits flipped with one probability.
    """
    rows = [np.reshape(part, (len(part), -1)).astype(np.float64) for part in (first, second)]
    gap = rows[0].mean(axis=0) - rows[1].mean(axis=0)
    spread = (rows[0].var(axis=0) + rows[1].var(axis=0)) / 2
    weights = gap / np.maximum(spread, max(float(spread.max()), 1e-30) * 1e-6)
    return lambda released: np.asarray(np.reshape(released, (len(released), -1)) @ weights)
