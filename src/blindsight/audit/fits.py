"""How well a model fits a row: the number that membership inference looks at, and trainers that return it.

- A linear classifier: the margin, the score of the true class above the best other one. Hinge and logistic loss fall as
  it grows, so it orders rows as the loss does (of two classes, exactly), and it is nearly normal, which a loss is not.
- A hash function: minus the quantisation error mean_j (1 - |s_j|)^2 of the scores whose signs are the code. It is what
  ITQ minimises over its rows, and SDH's codes are fitted to be such scores.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.membership import Fit, Scorer, Trainer
from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.learn.linear import LinearTraining, train
from blindsight.learn.model import Classes, LinearModel
from blindsight.search.function import HashFunction, HashLearner

Rows = NDArray[Any]


def margin_fit(model: LinearModel) -> Scorer:
    """Return a scorer by the margin of a classifier of one class per row."""
    labels = model.labels
    if not isinstance(labels, Classes):
        raise InputError("margins are those of a classifier that tells classes apart; got one of attributes.")

    def fit(X: Rows, y: Rows) -> Fit:
        scores, truth = np.asarray(model.decision_function(X), dtype=np.float64), labels.numbers(y)
        if scores.ndim == 1:
            return np.where(truth == 1, scores, -scores)
        own = np.take_along_axis(scores, truth[:, None], axis=1)[:, 0]
        others = np.where(np.arange(scores.shape[1]) == truth[:, None], -np.inf, scores)
        return np.asarray(own - others.max(axis=1))

    return fit


def linear_trainer(
    training: LinearTraining | None = None, *, classes: ArrayLike, standardiser: Standardiser, passes: int = 50
) -> Trainer:
    """Return a trainer of `learn`'s linear classifiers; `standardiser` was fitted on public rows, as there."""
    settings, labels = training or LinearTraining(), Classes(np.unique(np.asarray(classes)))

    def fitted(X: Rows, y: Rows, seed: int) -> Scorer:
        features = standardiser.apply(X)
        weights = train(features, labels.signs(y), settings, passes=passes, random_state=seed)
        return margin_fit(LinearModel(weights, standardiser, labels))

    return fitted


def code_fit(function: HashFunction) -> Scorer:
    """Return a scorer by the quantisation error of codes; labels are not looked at."""

    def fit(X: Rows, y: Rows) -> Fit:
        return np.asarray(-np.mean((1 - np.abs(function.scores(X).astype(np.float64))) ** 2, axis=1))

    return fit


def hash_trainer(make: Callable[[int], HashLearner]) -> Trainer:
    """Return a trainer of hash functions; `make` is given a seed and returns a learner to be fitted."""

    def fitted(X: Rows, y: Rows, seed: int) -> Scorer:
        return code_fit(make(seed).fit(X, y).function_)

    return fitted
