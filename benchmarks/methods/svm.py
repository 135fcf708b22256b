"""scikit-learn's linear support vector machine, one against the rest: on all data in one place, or on each owner's."""

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks.methods.owners import Floats, OwnersData, Pair
from blindsight.learn.labels import Labels


def pooled(given: OwnersData, *, seed: int, C: float) -> NDArray[np.float64]:
    """Learn from everything: no privacy."""
    return _scores(given.everyone, given.test, given.labels, C, seed)


def alone(given: OwnersData, *, seed: int, C: float) -> NDArray[np.float64]:
    """Let every owner learn from its own and the public data, and share nothing: one model per owner."""
    return np.stack([_scores(pair, given.test, given.labels, C, seed) for pair in given.with_public])


def _scores(train: Pair, test: Floats, labels: Labels, C: float, seed: int) -> NDArray[np.float64]:
    """Return the scores (n, rows); a question to which all answers are alike is answered so."""
    scaler = StandardScaler().fit(train[0])
    X, unseen = scaler.transform(train[0]), scaler.transform(test)
    columns = []
    for signs in labels.signs(train[1]).T:
        known = signs != 0
        if len(np.unique(signs[known])) < 2:
            columns.append(np.full(len(test), float(signs[known][0])))
        else:
            machine = LinearSVC(C=C, random_state=seed).fit(X[known], signs[known])
            columns.append(machine.decision_function(unseen))
    return np.stack(columns, axis=1)
