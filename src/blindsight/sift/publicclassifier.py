"""Included mode: the platform ships the classifier too, and the app gets a label instead of numbers.

Enev et al., "SensorSift", ACSAC 2012, section 3. The classifier is data: a weight per number and a threshold, chosen
for balanced accuracy. PubLoss (section 6.2) is what the sift costs: the balanced accuracy of the best classifier on raw
features less that of this one, both on people neither has seen. The best is chosen on those very rows, which errs on
the side of calling a sift worse than it is.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy, pub_loss
from blindsight.sift.attackers import PAPER, Attacker, best_threshold
from blindsight.sift.labels import check_labels, check_released


class RawAccuracy(NamedTuple):
    """The best balanced accuracy on raw features, and whose it is."""

    accuracy: float
    classifier: str


@dataclass(frozen=True, eq=False)
class PublicClassifier:
    """Says yes where (z - mean) . weights > threshold. Accuracies are balanced, None until measured."""

    mean: NDArray[np.float64]
    weights: NDArray[np.float64]
    threshold: float
    accuracy: float | None = None
    raw: RawAccuracy | None = None

    def predict(self, released: ArrayLike) -> NDArray[np.int8]:
        """Return the public attribute, 0 or 1, of every row of released numbers (n, K)."""
        numbers = check_released(released)
        if numbers.shape[1] != len(self.weights):
            raise InputError(f"this classifier takes {len(self.weights)} numbers per row; got {numbers.shape[1]}.")
        return ((numbers - self.mean) @ self.weights > self.threshold).astype(np.int8)

    @property
    def pub_loss(self) -> float | None:
        """None where the raw features were not at hand."""
        return None if self.accuracy is None or self.raw is None else pub_loss(self.raw.accuracy, self.accuracy)

    def summary(self) -> dict[str, Any]:
        numbers = self.mean.tobytes() + self.weights.tobytes() + np.float64(self.threshold).tobytes()
        return {
            "digest": hashlib.sha256(numbers).hexdigest(),
            "balanced_accuracy": self.accuracy,
            "raw_balanced_accuracy": None if self.raw is None else self.raw.accuracy,
            "raw_classifier": None if self.raw is None else self.raw.classifier,
            "pub_loss": self.pub_loss,
        }

    def measured(self, released: ArrayLike, labels: ArrayLike, raw: RawAccuracy | None = None) -> "PublicClassifier":
        """Return the classifier with its balanced accuracy on these rows, and that of the best raw classifier."""
        known, truth = _known(labels)
        return replace(self, accuracy=balanced_accuracy(truth, self.predict(np.asarray(released)[known])), raw=raw)


def train_public_classifier(released: ArrayLike, labels: ArrayLike, *, random_state: int = 0) -> PublicClassifier:
    """Train a logistic classifier on released numbers (n, K) and labels 1, 0, -1 (unknown); freeze it."""
    known, truth = _known(labels)
    numbers = check_released(released)[known].astype(np.float64)
    mean, deviation = numbers.mean(axis=0), numbers.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1)
    model = LogisticRegression(C=10, class_weight="balanced", max_iter=1000, random_state=random_state)
    weights = model.fit((numbers - mean) / scale, truth).coef_[0] / scale
    return PublicClassifier(mean, weights, best_threshold((numbers - mean) @ weights, truth))


def _raw_logistic(seed: int) -> Any:
    return LogisticRegression(C=0.01, class_weight="balanced", max_iter=300)


RAW_CLASSIFIERS = (Attacker("logistic regression", _raw_logistic, "standardised"), PAPER[3])
"""A linear and a kernel classifier: the best readers of raw features."""


def best_raw_accuracy(
    train: NDArray[Any], train_labels: ArrayLike, test: NDArray[Any], test_labels: ArrayLike, *, random_state: int = 0
) -> RawAccuracy:
    (learn, labels), (judge, truth) = _known(train_labels), _known(test_labels)
    guesses = (
        (peer.name, peer.attack(train[learn], labels, test[judge], seed=random_state)) for peer in RAW_CLASSIFIERS
    )
    return max(RawAccuracy(balanced_accuracy(truth, guess), name) for name, guess in guesses)


def _known(labels: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    column = check_labels(labels, name="public labels")[:, 0]
    rows = np.flatnonzero(column >= 0)
    if len(np.unique(column[rows])) < 2:
        raise InputError("the public attribute is the same, or unknown, in all rows: there is nothing to learn.")
    return rows, column[rows]
