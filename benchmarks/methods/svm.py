"""scikit-learn's linear support vector machine, one against the rest: on all data in one place, or on each owner's."""

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks.methods.owners import OwnersData, Pair


def pooled(given: OwnersData, *, seed: int, C: float) -> NDArray[np.float64]:
    """Learn from everything: no privacy."""
    return _scores(given, given.everyone, C, seed)


def alone(given: OwnersData, *, seed: int, C: float) -> NDArray[np.float64]:
    """Let every owner learn from its own and the public data, and share nothing: one model per owner."""
    return np.stack([_scores(given, pair, C, seed) for pair in given.with_public])


def _scores(given: OwnersData, train: Pair, C: float, seed: int) -> NDArray[np.float64]:
    """Return the scores (n, classes or attributes); the public data have examples of every class."""
    scaler, y = StandardScaler().fit(train[0]), train[1]
    X, unseen = scaler.transform(train[0]), scaler.transform(given.test)
    machines = [LinearSVC(C=C, random_state=seed).fit(X, answers) for answers in (y.T if given.multilabel else [y])]
    return np.column_stack([machine.decision_function(unseen) for machine in machines])
