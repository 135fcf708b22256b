"""Blindsight's federated classifier: the paper's variant (target "classifier") or our own (target "update").

All schemes give the same sums bit for bit, so accuracies are measured with "plain" sums; `model` answers with the model
itself, to show that this is so. `sent` answers with what the real scheme sends.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.owners import OwnersData
from blindsight.learn.classifier import FederatedClassifier


def run(given: OwnersData, *, seed: int, **parameters: Any) -> NDArray[np.floating[Any]]:
    """Learn with the estimator's parameters and return the scores of the test pictures."""
    return _fit(given, seed, parameters).decision_function(given.test)


def model(given: OwnersData, *, seed: int, **parameters: Any) -> NDArray[np.float64]:
    """Return the weights (classes, D + 1) after the last round."""
    return _fit(given, seed, parameters).model_.weights


def sent(given: OwnersData, *, seed: int, **parameters: Any) -> NDArray[np.float64]:
    """Return the megabytes (10^6) that a member sends on average in one round."""
    (report,) = _fit(given, seed, {"rounds": 1, **parameters}).history_
    return np.array([report.sent["members"] / len(report.contributors) / 1e6])


def _fit(given: OwnersData, seed: int, parameters: dict[str, Any]) -> FederatedClassifier:
    learner = FederatedClassifier(multilabel=given.multilabel, random_state=seed, **parameters)
    return learner.fit(list(given.owners), public=given.public)
