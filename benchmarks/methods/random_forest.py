"""A forest of decision trees per label."""

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from benchmarks.methods.attributes import LabelledFeatures, predict_each


def run(given: LabelledFeatures, *, seed: int, trees: int) -> NDArray[np.int8]:
    """Answer yes or no for every test picture and label."""
    return predict_each(given, lambda: RandomForestClassifier(trees, random_state=seed))
