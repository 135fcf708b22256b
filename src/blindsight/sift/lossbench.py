"""What a sift costs and what it leaks, measured on people that neither the sift nor any classifier was made from.

Enev et al., "SensorSift", ACSAC 2012, section 6.2: PubLoss is what the best classifier loses on a public attribute when
it gets the sift instead of raw features, PrivLoss what the best attacker on a private one gains over guessing. The
paper does not say who fits on what. Here two fifths of the rows are the developer's, who fits the sift; of the rest
classifiers and attackers learn from one half and are judged by the other; where persons are known nobody is on two
sides. Accuracies are balanced.
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from blindsight.data.partition import split
from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy, pub_loss
from blindsight.progress import Progress, silent
from blindsight.sift.attackers import MODERN, Attacker, chosen_attackers
from blindsight.sift.labels import Labelled, Labels, check_persons, label_columns, verification_halves
from blindsight.sift.policy import Policy
from blindsight.sift.publicclassifier import best_raw_accuracy
from blindsight.sift.sift import Features, Sift
from blindsight.sift.verdict import Verification
from blindsight.sift.verify import Verifier
from blindsight.validation import check_shape

DEVELOPER = 0.4
"""Share of the rows that sifts are fitted to."""

_BY_NAME = {attacker.name: attacker for attacker in MODERN}

QUICK: tuple[Attacker, ...] = (
    _BY_NAME["linear SVM, balanced and tuned"],
    _BY_NAME["kernel screen, tuned"],
    _BY_NAME["gradient boosting, tuned"],
)
"""Three attackers that together read nearly what all read, at a small part of the cost: for many policies at once."""

QUICK_VERIFIER = Verifier(QUICK, stop_early=False)
"""Lets every quick attacker have its turn, so that PrivLoss is that of the best."""


class SiftLearner(Protocol):
    """What makes a sift from features and labels: `PPLS`, `LeacePLS` and their peers."""

    sift_: Any
    """The fitted `Sift`."""

    def fit(self, X: Any, public: ArrayLike, private: ArrayLike) -> Any:
        """Learn from features (n, d) and labels (n, attributes)."""
        ...


@dataclass(frozen=True)
class Losses:
    """What one sift does under one policy."""

    accuracies: dict[str, float]
    """Balanced accuracy of the best classifier on each public attribute, from the sift."""
    pub_loss: float
    """Mean PubLoss over the public attributes."""
    verification: Verification

    @property
    def priv_loss(self) -> float:
        """PrivLoss of the best attacker on any private attribute."""
        return self.verification.priv_loss


class LossBench:
    """Features and labels divided once, on which any number of sifts and policies are measured alike."""

    def __init__(
        self,
        X: Features,
        labels: Labelled,
        names: tuple[str, ...],
        *,
        verifier: Verifier = QUICK_VERIFIER,
        persons: ArrayLike | None = None,
    ) -> None:
        features, columns = check_shape(X), label_columns(labels, names)
        rows = features.shape[0]
        if len(columns) != rows:
            raise InputError(f"labels must have a row per sample; got {len(columns)} for {rows} samples.")
        who = check_persons(persons, rows)
        develop, judge = split(
            np.zeros(rows), (DEVELOPER, 1 - DEVELOPER), persons=who, stratify=False, random_state=verifier.random_state
        )
        self.verifier = verifier
        self._made_from, self._judged = features[develop], features[judge]
        self._persons = None if who is None else who[judge]
        self._fitted_labels = dict(zip(names, columns[develop].T, strict=True))
        self._labels: dict[str, Labels] = dict(zip(names, columns[judge].T, strict=True))
        self._raw: dict[str, float] = {}

    def fit(self, learner: SiftLearner, policy: Policy) -> Sift:
        """Return the sift that a fresh copy of the learner makes from the developer's rows."""
        sides = (label_columns(self._fitted_labels, side) for side in (policy.public, policy.private))
        sift: Sift = copy.deepcopy(learner).fit(self._made_from, *sides).sift_
        return sift

    def raw_accuracy(self, name: str) -> float:
        """Return how well an attribute is read off raw features by the best classifier; measured once."""
        if name not in self._raw:
            (train, learned), (test, truth) = self._halves(name)
            dense = [_dense(self._judged[rows]) for rows in (train, test)]
            with _converged_or_not():
                best = best_raw_accuracy(dense[0], learned, dense[1], truth, random_state=self.verifier.random_state)
            self._raw[name] = best.accuracy
        return self._raw[name]

    def losses(self, sift: Sift, policy: Policy, *, progress: Progress = silent) -> Losses:
        """Return what the sift costs and leaks on the rows that it was not made from."""
        released = sift.apply(self._judged)
        accuracies = {name: self._accuracy(released, name) for name in policy.public}
        costs = [pub_loss(self.raw_accuracy(name), accuracy) for name, accuracy in accuracies.items()]
        private = {name: self._labels[name] for name in policy.private}
        verification = self.verifier.verify((sift, self._judged), private, persons=self._persons, progress=progress)
        return Losses(accuracies, float(np.mean(costs)), verification)

    def _accuracy(self, released: NDArray[Any], name: str) -> float:
        """Return the balanced accuracy of the best of the verifier's classifiers."""
        (train, learned), (test, truth) = self._halves(name)
        who = None if self._persons is None else self._persons[train]
        seed = self.verifier.random_state
        with _converged_or_not():
            return max(
                balanced_accuracy(truth, peer.attack(released[train], learned, released[test], persons=who, seed=seed))
                for peer in chosen_attackers(self.verifier.attackers)
            )

    def _halves(self, name: str) -> tuple[tuple[NDArray[np.int64], Labels], tuple[NDArray[np.int64], Labels]]:
        """Return the rows to learn an attribute from and those to be judged by, with labels, where it is known."""
        column = self._labels[name]
        train, test = (
            half[column[half] >= 0]
            for half in verification_halves({name: column}, self._persons, self.verifier.random_state)
        )
        return (train, column[train]), (test, column[test])


@contextmanager
def _converged_or_not() -> Iterator[None]:
    """Take classifiers as they are after their last step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _dense(rows: Any) -> NDArray[Any]:
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)
