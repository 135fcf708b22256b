"""fairlearn's exponentiated gradient under demographic parity: a randomised public label, one bit.

Agarwal et al., "A Reductions Approach to Fair Classification", ICML 2018. A released label's leak is half its
demographic-parity difference, so the constraint is twice the leak that is aimed at.
"""

import warnings

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from benchmarks.methods.sifting import Released, SiftingData, classes_of, key, target_leak

COMPONENTS = 64


def run(given: SiftingData, *, seed: int) -> Released:
    """Release the label of every policy, predicted from principal components."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    pca = PCA(min(COMPONENTS, given.features.shape[1]), random_state=0).fit(given.features)
    scale = pca.transform(given.features).std(axis=0)
    rows, judged = pca.transform(given.features) / scale, pca.transform(given.judged) / scale
    answer: Released = {}
    for policy in given.policies:
        private = classes_of(given.labels, policy[1])
        # fairlearn bounds every group's distance from the mean of all, half of that between two groups
        gap = target_leak(given, private, 2)
        learner = ExponentiatedGradient(
            LogisticRegression(C=0.1, max_iter=300, class_weight="balanced"),
            DemographicParity(difference_bound=max(gap, 0.005)),
            max_iter=30,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learner.fit(rows, given.labels[policy[0]].astype(np.int64), sensitive_features=private)
        answer[key(policy, "2")] = np.asarray(learner.predict(judged, random_state=seed), dtype=np.int64)
    return answer
