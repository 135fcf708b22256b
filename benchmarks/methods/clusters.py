"""Clusters in several owners' pictures, found together under encryption or in one place."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.preprocessing import StandardScaler

from benchmarks.methods.owners import OwnersData
from blindsight.learn.kmeans import FederatedKMeans


def federated(given: OwnersData, *, seed: int, **parameters: Any) -> NDArray[np.int64]:
    """Find as many clusters as there are classes, without a look at labels; return those of the test pictures."""
    learner = FederatedKMeans(given.labels.rows, random_state=seed, **parameters)
    return learner.fit([X for X, _ in given.owners], public=given.public[0]).predict(given.test)


def pooled(given: OwnersData, *, seed: int) -> NDArray[np.int64]:
    """Find them by scikit-learn's mini-batch k-means in all training data: no privacy."""
    scaler = StandardScaler().fit(given.everyone[0])
    learner = MiniBatchKMeans(given.labels.rows, n_init=3, random_state=seed).fit(scaler.transform(given.everyone[0]))
    return np.asarray(learner.predict(scaler.transform(given.test)), dtype=np.int64)
