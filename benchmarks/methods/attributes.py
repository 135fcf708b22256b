"""What attribute classifiers share: features and labels come in, a yes or no per picture and label goes out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
