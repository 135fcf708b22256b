"""A network with one hidden layer of tanh units per label."""

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from benchmarks.methods.attributes import LabelledFeatures, predict_each


def run(given: LabelledFeatures, *, seed: int, units: int, epochs: int) -> NDArray[np.int8]:
    """Answer yes or no for every test picture and label; training ends after so many epochs at the latest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return predict_each(
            given, lambda: MLPClassifier((units,), activation="tanh", max_iter=epochs, random_state=seed)
        )
