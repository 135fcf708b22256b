"""Included mode: the platform ships the classifier too, and the app gets a label instead of numbers.

Enev et al., "SensorSift", ACSAC 2012, section 3: for policies that are known in advance the platform itself turns
sifted numbers into the public attribute. The classifier is data: a weight per number and a threshold, chosen for
balanced accuracy. PubLoss (section 6.2) is what the sift costs: the balanced accuracy of the best classifier on raw
features less that of this one, both on people neither has seen. The best is chosen on those very rows, which errs
on the side of calling a sift worse than it is.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy, pub_loss
from blindsight.sift.attackers import PAPER, Attacker, best_threshold
from blindsight.sift.labels import check_labels, check_released


@dataclass(frozen=True, eq=False)
class PublicClassifier:
    """Says yes where (z - mean) . weights > threshold. Accuracies are balanced, None until measured."""

    mean: NDArray[np.float64]
    weights: NDArray[np.float64]
    threshold: float
    accuracy: float | None = None
    raw_accuracy: float | None = None
    raw_classifier: str | None = None

    def __post_init__(self) -> None:
        for part in ("mean", "weights"):
            array = np.array(getattr(self, part), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, part, array)
        if self.mean.ndim != 1 or self.mean.shape != self.weights.shape:
            raise InputError(f"a classifier has one mean per weight; got {self.mean.shape}, {self.weights.shape}.")
        if not (np.isfinite(self.mean).all() and np.isfinite(self.weights).all() and np.isfinite(self.threshold)):
            raise InputError("the numbers of a classifier must be finite.")

    def predict(self, released: ArrayLike) -> NDArray[np.int8]:
        """Return the public attribute, 0 or 1, of every row of released numbers (n, K)."""
        numbers = check_released(released)
        if numbers.shape[1] != len(self.weights):
            raise InputError(f"this classifier takes {len(self.weights)} numbers per row; got {numbers.shape[1]}.")
        return ((numbers - self.mean) @ self.weights > self.threshold).astype(np.int8)

    @property
    def pub_loss(self) -> float | None:
        """What the sift costs the public attribute; None where the raw features were not at hand."""
        if self.accuracy is None or self.raw_accuracy is None:
            return None
        return pub_loss(self.raw_accuracy, self.accuracy)

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers that decide its answers."""
        return hashlib.sha256(
            self.mean.tobytes() + self.weights.tobytes() + np.float64(self.threshold).tobytes()
        ).hexdigest()

    def summary(self) -> dict[str, Any]:
        return {
            "digest": self.digest,
            "balanced_accuracy": self.accuracy,
            "raw_balanced_accuracy": self.raw_accuracy,
            "raw_classifier": self.raw_classifier,
            "pub_loss": self.pub_loss,
        }

    def measured(self, released: ArrayLike, labels: ArrayLike, raw: "RawAccuracy | None" = None) -> "PublicClassifier":
        """Return the classifier with its balanced accuracy on these rows, beside that of the best raw classifier."""
        known, truth = _known(labels)
        accuracy = balanced_accuracy(truth, self.predict(np.asarray(released)[known]))
        if raw is None:
            return replace(self, accuracy=accuracy)
        return replace(self, accuracy=accuracy, raw_accuracy=raw.accuracy, raw_classifier=raw.classifier)


@dataclass(frozen=True)
class RawAccuracy:
    """The best balanced accuracy on raw features, and whose it is."""

    accuracy: float
    classifier: str


def train_public_classifier(released: ArrayLike, labels: ArrayLike, *, random_state: int = 0) -> PublicClassifier:
    """Train a logistic classifier on released numbers (n, K) and labels 1, 0, -1 (unknown); freeze it."""
    known, truth = _known(labels)
    numbers = check_released(released)[known].astype(np.float64)
    mean, deviation = numbers.mean(axis=0), numbers.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1)
    model = LogisticRegression(C=10, class_weight="balanced", max_iter=1000, random_state=random_state)
    weights = model.fit((numbers - mean) / scale, truth).coef_[0] / scale
    return PublicClassifier(mean, weights, best_threshold((numbers - mean) @ weights, truth))


RAW_CLASSIFIERS = (
    Attacker(
        "logistic regression",
        lambda seed: LogisticRegression(C=0.01, class_weight="balanced", max_iter=300),
        "standardised",
    ),
    PAPER[3],
)
"""Those that read attributes off raw features best: a linear and a kernel classifier."""


def best_raw_accuracy(
    train: NDArray[Any], train_labels: ArrayLike, test: NDArray[Any], test_labels: ArrayLike, *, random_state: int = 0
) -> RawAccuracy:
    """Return how well the public attribute can be read off raw features: what PubLoss is measured from."""
    (learn, labels), (judge, truth) = _known(train_labels), _known(test_labels)
    found = [
        RawAccuracy(
            balanced_accuracy(truth, peer.attack(train[learn], labels, test[judge], seed=random_state)), peer.name
        )
        for peer in RAW_CLASSIFIERS
    ]
    return max(found, key=lambda one: one.accuracy)


def _known(labels: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    column = check_labels(labels, name="public labels")[:, 0]
    rows = np.flatnonzero(column >= 0)
    if len(np.unique(column[rows])) < 2:
        raise InputError("the public attribute is the same, or unknown, in all rows: there is nothing to learn.")
    return rows, column[rows]
