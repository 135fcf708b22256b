"""PRR10 and RA12, the paper's private rivals; their noise comes from the operating system, whatever the seed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.owners import OwnersData
from blindsight.data.features import Standardiser
from blindsight.learn import baselines
from blindsight.learn.model import decision_function


def prr10(given: OwnersData, *, seed: int, clipped: bool, **privacy: float) -> NDArray[np.floating[Any]]:
    """Average logistic regressions of all owners and add noise."""
    return _scores(given, baselines.prr10, clipped, privacy)


def ra12(given: OwnersData, *, seed: int, clipped: bool, **privacy: float) -> NDArray[np.floating[Any]]:
    """Descend together by noisy gradients."""
    return _scores(given, baselines.ra12, clipped, privacy)


def _scores(given: OwnersData, learn: Any, clipped: bool, privacy: dict[str, float]) -> NDArray[np.floating[Any]]:
    """Clip features, if at all, to the length of an average row of standardised ones."""
    standardiser = Standardiser.fit(given.public[0])
    pairs = [(standardiser.apply(X), given.labels.signs(y)) for X, y in given.with_public]
    clip = float(np.sqrt(given.test.shape[1])) if clipped else None
    return decision_function(learn(pairs, clip=clip, **privacy).weights, standardiser.apply(given.test))
