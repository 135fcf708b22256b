"""What one policy comes to, as SensorSift shows it: the trade-off (Figure 3) and where in a picture attributes are seen
(Figure 5), beside what attackers read before and after sifting.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from blindsight.data import Dataset, FeaturePipeline, PixelFeatures
from blindsight.papers.sensorsift.analysis import PixelRegions, attribute_regions, sift_regions
from blindsight.papers.sensorsift.compare import TradeOff, trade_off
from blindsight.progress import Progress, silent
from blindsight.sift.fit import SiftResult
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS, SiftLearner
from blindsight.sift.sift import LinearSift
from blindsight.sift.trial import Sifted, Trial, divide_rows

_AVERAGED = 300  # pictures of the average face
_MOST_EVEN = 6  # attributes of a matrix where none are named


@dataclass(frozen=True, eq=False)
class PolicyStudy:
    """A sift for one policy, with PPLS's trade-off and maps of the attributes where they could be measured."""

    result: SiftResult
    trade_off: TradeOff | None = None
    regions: Mapping[str, PixelRegions] = field(default_factory=dict)
    average: NDArray[np.uint8] | None = field(default=None, repr=False)


def study_policy(
    dataset: Dataset,
    trial: Trial,
    policy: Policy,
    found: Sifted,
    learner: SiftLearner,
    pipeline: FeaturePipeline,
    *,
    progress: Progress = silent,
) -> PolicyStudy:
    """Measure the trade-off of PPLS, and where in a picture attributes are seen."""
    data, curves, regions, average = trial.data, None, {}, None
    if isinstance(learner, PPLS):
        numbers = sorted({1, 2, 5, learner.n_components, 2 * learner.n_components})
        weights = sorted({0.0, learner.privacy, math.inf})
        curves = trade_off(trial, policy, components=numbers, privacies=weights, method=learner, progress=progress)
    if dataset.images is not None and isinstance(pipeline, PixelFeatures):
        regions = attribute_regions(data.features, data.labels, policy.public + policy.private, pipeline)
        if isinstance(found.sift, LinearSift):
            regions["where the sift looks"] = sift_regions(found.sift, pipeline)
        _, judged = divide_rows(len(dataset), dataset.persons, trial.verifier.random_state)
        average = np.rint(dataset.images[judged[:_AVERAGED]].mean(axis=0)).astype(np.uint8)
    return PolicyStudy(SiftResult.of(trial, policy, [found], dataset), curves, regions, average)


def most_even(dataset: Dataset) -> tuple[str, ...]:
    """Return the six attributes with most pictures on their rarer side, in the order of the collection."""
    counts = {
        name: min(int((dataset.attribute(name) == value).sum()) for value in (0, 1)) for name in dataset.attribute_names
    }
    chosen = sorted(counts, key=lambda name: -counts[name])[:_MOST_EVEN]
    return tuple(name for name in dataset.attribute_names if name in chosen)
