"""The five classifiers of SensorSift's Table 2, one per label: features and labels in, yes or no per picture out."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC


@dataclass(frozen=True)
class LabelledFeatures:
    """What a classifier may see: both halves' features, but the labels (1, 0, -1 unknown) of the training half only."""

    train: NDArray[np.float32]
    labels: NDArray[np.int8]
    test: NDArray[np.float32]


def predict_each(given: LabelledFeatures, make: Callable[[], Any]) -> NDArray[np.int8]:
    """Train a fresh classifier for every label on the pictures where it is known; return (test pictures, labels)."""
    columns = []
    for labels in given.labels.T:
        known = labels >= 0
        columns.append(make().fit(given.train[known], labels[known]).predict(given.test))
    return np.stack(columns, axis=1)


def linear_svm(given: LabelledFeatures, *, seed: int, C: float) -> NDArray[np.int8]:
    return predict_each(given, lambda: SVC(kernel="linear", C=C, random_state=seed))


def rbf_svm(given: LabelledFeatures, *, seed: int, C: float) -> NDArray[np.int8]:
    return predict_each(given, lambda: SVC(C=C, random_state=seed))


def nearest_neighbours(given: LabelledFeatures, *, seed: int, neighbours: int) -> NDArray[np.int8]:
    return predict_each(given, lambda: KNeighborsClassifier(neighbours))


def random_forest(given: LabelledFeatures, *, seed: int, trees: int) -> NDArray[np.int8]:
    return predict_each(given, lambda: RandomForestClassifier(trees, random_state=seed))


def neural_network(given: LabelledFeatures, *, seed: int, units: int, epochs: int) -> NDArray[np.int8]:
    """One hidden layer of tanh units; training ends after so many epochs at the latest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return predict_each(
            given, lambda: MLPClassifier((units,), activation="tanh", max_iter=epochs, random_state=seed)
        )
