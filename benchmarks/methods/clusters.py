"""Clusters in several owners' pictures, found together under encryption or in one place."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.preprocessing import StandardScaler

from benchmarks.methods.owners import Floats
from blindsight.learn.kmeans import FederatedKMeans


@dataclass(frozen=True)
class Unlabelled:
    """Everybody's features without any label, and how many clusters to find."""

    public: Floats
    owners: tuple[Floats, ...]
    test: Floats
    clusters: int


def federated(given: Unlabelled, *, seed: int, **parameters: Any) -> NDArray[np.int64]:
    """Find them together; return those of the test pictures."""
    learner = FederatedKMeans(given.clusters, random_state=seed, **parameters)
    return learner.fit(list(given.owners), public=given.public).predict(given.test)


def pooled(given: Unlabelled, *, seed: int) -> NDArray[np.int64]:
    """Find them by scikit-learn's mini-batch k-means in all training data: no privacy."""
    everything = np.concatenate([given.public, *given.owners])
    scaler = StandardScaler().fit(everything)
    learner = MiniBatchKMeans(given.clusters, n_init=3, random_state=seed).fit(scaler.transform(everything))
    return np.asarray(learner.predict(scaler.transform(given.test)), dtype=np.int64)
