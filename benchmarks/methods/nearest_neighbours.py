"""A vote of the nearest training pictures per label."""

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.methods.attributes import LabelledFeatures, predict_each


def run(given: LabelledFeatures, *, seed: int, neighbours: int) -> NDArray[np.int8]:
    """Answer yes or no for every test picture and label."""
    return predict_each(given, lambda: KNeighborsClassifier(neighbours))
