"""The five attackers of SensorSift from scikit-learn, with the paper's parameters and the library's defaults."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from benchmarks.methods.sift_attacks import ReleasedNumbers


def run(given: ReleasedNumbers, *, seed: int, attacker: str) -> NDArray[np.int8]:
    """Guess the private label of every test row."""
    model: Any = {
        "linear SVM": LinearSVC(C=10, random_state=seed),
        "nearest neighbours": KNeighborsClassifier(n_neighbors=9),
        "neural network": MLPClassifier((100,), activation="tanh", random_state=seed),
        "kernel SVM": SVC(C=10, gamma="auto"),
        "random forest": RandomForestClassifier(n_estimators=500, random_state=seed),
    }[attacker]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # after 200 passes the network is good enough to guess
        fitted = make_pipeline(StandardScaler(), model).fit(given.train, given.labels)
    return np.asarray(fitted.predict(given.test), dtype=np.int8)
