"""A linear support vector machine per label."""

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from benchmarks.methods.attributes import LabelledFeatures, predict_each


def run(given: LabelledFeatures, *, seed: int, C: float) -> NDArray[np.int8]:
    """Answer yes or no for every test picture and label."""
    return predict_each(given, lambda: SVC(kernel="linear", C=C, random_state=seed))
