"""INLP before PLS: directions that a linear classifier reads the private attribute from are taken out, one by one.

Ravfogel et al., "Null It Out: Guarding Protected Attributes by Iterative Nullspace Projection", ACL 2020.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.methods.sifting import Floats, Labels, Released, SiftingData, key
from blindsight.sift.ppls import PPLS


def run(given: SiftingData, *, seed: int, rounds: int, components: int) -> Released:
    """Release the first numbers of PLS on what `rounds` projections leave."""
    mean, scale = given.features.mean(axis=0), np.maximum(given.features.std(axis=0), 1e-6)
    train, judged = (given.features - mean) / scale, (given.judged - mean) / scale
    erased = {
        private: directions(train, given.labels[private], rounds)
        for private in dict.fromkeys(private for _, private in given.policies)
    }
    answer: Released = {}
    for public, private in given.policies:
        basis = erased[private]
        left, left_of_judged = (rows - (rows @ basis) @ basis.T for rows in (train, judged))
        pls = PPLS(components, 0.0, scale=False).fit(left, given.labels[public], given.labels[private])
        answer[key((public, private))] = pls.sift_.apply(left_of_judged)
    return answer


def directions(features: Floats, labels: Labels, rounds: int) -> NDArray[np.float32]:
    """Return an orthonormal basis (d, rounds) of what linear classifiers read, each on what the former ones left."""
    left, found = features, np.zeros((features.shape[1], 0), dtype=np.float32)
    for _ in range(rounds):
        weights = LogisticRegression(C=0.01, max_iter=200).fit(left, labels).coef_[0]
        weights = weights - found @ (found.T @ weights)
        direction = (weights / np.linalg.norm(weights)).astype(np.float32)
        left = left - np.outer(left @ direction, direction)
        found = np.column_stack([found, direction])
    return found
