"""fairlearn's CorrelationRemover before PLS. It subtracts what the private label explains, so it must be told it."""

import numpy as np
from fairlearn.preprocessing import CorrelationRemover

from benchmarks.methods.sifting import Released, SiftingData, key
from blindsight.sift.ppls import PPLS


def run(given: SiftingData, *, seed: int, components: int) -> Released:
    """Release the first numbers of PLS on what is left, knowing the private label of every judged person."""
    answer: Released = {}
    for public, private in given.policies:
        remover = CorrelationRemover(sensitive_feature_ids=[0])
        train = remover.fit_transform(np.column_stack([given.labels[private], given.features]))
        judged = remover.transform(np.column_stack([given.told[private], given.judged]))
        pls = PPLS(components, 0.0, scale=given.scale).fit(train, given.labels[public], given.labels[private])
        answer[key((public, private))] = pls.sift_.apply(judged)
    return answer
