"""How likely an attribute is, given the features: well calibrated, and for every row by a model that never saw it.

Rows are divided into `FOLDS` parts, persons kept together where they are known. For each part a model is fitted to the
others; its answers on that part are honest (`held_out`), so that rules can be chosen on all rows at once. The models
together are the ensemble that is kept, which is better than any of them alone. Which kind of model, and how strongly
its weights are drawn to zero, is decided by the log-likelihood on the first part: a logistic regression where the
features are already linear in the attribute, or rows are few, and a small network otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from blindsight.data.partition import split
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sift.features import Features, finite_blocks
from blindsight.sift.labels import Labels, check_labels
from blindsight.sift.layers import Layers
from blindsight.sift.sift import Floats
from blindsight.validation import check_shape

FOLDS = 4
FEWEST = 20
"""Rows of either kind that an attribute needs."""

Array = NDArray[np.float64]

_HIDDEN, _BATCH, _STEPS, _RATE = 64, 128, 1200, 3e-4
_ROWS_FOR_NETWORKS = 1000
_PENALTIES = (50.0, 150.0, 500.0)  # of half the squared weights, beside the sum of the log losses of all rows
_FLAT = 0.01  # of the typical deviation: features that vary less are not blown up


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Models of several attributes; `held_out` (n, attributes) are P(attribute | x) of the rows they were made from."""

    networks: tuple[tuple[Layers, ...], ...]
    """Per attribute the models whose probabilities are averaged; each gives one logit."""
    held_out: Array

    def predict(self, X: Features) -> Array:
        """Return P(attribute | x), (n, attributes), of rows that the models were not made from."""
        columns = []
        for models in self.networks:
            network = Layers.side_by_side(models)
            logits = np.concatenate([network.apply(block) for block in finite_blocks(X, network.dimension)])
            columns.append(expit(logits.astype(np.float64)).mean(axis=1))
        return np.stack(columns, axis=1)

    def select(self, attributes: Sequence[int]) -> "Posteriors":
        """Return the models of these attributes alone: what was learned once serves many policies."""
        return Posteriors(tuple(self.networks[i] for i in attributes), self.held_out[:, list(attributes)])


def fit_posteriors(
    X: Features,
    labels: ArrayLike,
    *,
    names: Sequence[str] = (),
    persons: ArrayLike | None = None,
    networks: bool = True,
    random_state: int = 0,
    progress: Progress = silent,
) -> Posteriors:
    """Learn P(attribute | x) from features (n, d) and labels 1, 0, -1 (unknown), a column per attribute.

    `names` are what messages call the attributes. Without `networks` only logistic regressions are tried: a small part
    of the time.
    """
    rows = check_shape(X)
    columns = check_labels(labels, rows.shape[0])
    called = names or [f"attribute {number}" for number in range(columns.shape[1])]
    for name, column in zip(called, columns.T, strict=True):
        check_both_kinds(name, column)
    features = np.concatenate(list(finite_blocks(rows, rows.shape[1])))
    mean, scale = _units(features)
    scaled = (features - mean) / scale
    found, held_out = [], []
    for number, column in enumerate(columns.T):
        progress("learning attributes", number, columns.shape[1])
        models, probabilities = _fit_one(scaled, column, persons, networks, random_state)
        found.append(tuple(Layers(mean, scale, *model) for model in models))
        held_out.append(probabilities)
    progress("learning attributes", columns.shape[1], columns.shape[1])
    return Posteriors(tuple(found), np.stack(held_out, axis=1))


Weights = tuple[tuple[Floats, ...], tuple[Floats, ...]]
"""Weights and biases of a model on scaled features."""

Fit = Callable[[Floats, Labels, int], Weights]


def _fit_one(
    X: Floats, labels: Labels, persons: ArrayLike | None, networks: bool, random_state: int
) -> tuple[list[Weights], Array]:
    """Return a model per fold and the probabilities of every row by the model that did not see it."""
    fractions = (1 / FOLDS,) * FOLDS
    folds = split(labels, fractions, persons=persons, random_state=random_state)
    seeds = science(random_state).integers(2**31, size=FOLDS)
    learned: list[Weights] = []
    held_out, best = np.empty(len(X)), None
    for fold, seed in zip(folds, seeds, strict=True):
        rest = np.setdiff1d(np.flatnonzero(labels >= 0), fold)
        if best is None:
            best, model = _best_kind(X, labels, rest, fold, networks, int(seed))
        else:
            model = best(X[rest], labels[rest], int(seed))
        learned.append(model)
        held_out[fold] = _probabilities(model, X[fold])
    return learned, held_out


def _best_kind(
    X: Floats, labels: Labels, rest: NDArray[np.int64], fold: NDArray[np.int64], networks: bool, seed: int
) -> tuple[Fit, Weights]:
    """Return the kind of model that explains the labels of the fold best when fitted to the rest, and that model."""
    known = fold[labels[fold] >= 0]
    families = (_logistic, _network) if networks and len(rest) >= _ROWS_FOR_NETWORKS else (_logistic,)
    kinds: list[Fit] = [partial(family, penalty=penalty) for family in families for penalty in _PENALTIES]
    tried = [(kind, kind(X[rest], labels[rest], seed)) for kind in kinds]
    losses = [_log_loss(labels[known], _probabilities(model, X[known])) for _, model in tried]
    return tried[int(np.argmin(losses))]


def _logistic(X: Floats, labels: Labels, seed: int, penalty: float) -> Weights:
    model = LogisticRegression(C=1 / penalty, max_iter=1000).fit(X, labels)
    return (model.coef_.T.astype(np.float32),), (model.intercept_.astype(np.float32),)


def _network(X: Floats, labels: Labels, seed: int, penalty: float) -> Weights:
    batch = min(_BATCH, len(X))
    # scikit-learn divides its penalty by the batch, not by all rows
    model = MLPClassifier(
        (_HIDDEN,), alpha=penalty * batch / len(X), batch_size=batch, learning_rate_init=_RATE, random_state=seed
    )
    for _ in range(-(-_STEPS * batch // len(X))):
        model.partial_fit(X, labels, classes=(0, 1))
    return tuple(w.astype(np.float32) for w in model.coefs_), tuple(b.astype(np.float32) for b in model.intercepts_)


def _probabilities(model: Weights, X: Floats) -> Array:
    zero, one = np.zeros(X.shape[1], dtype=np.float32), np.ones(X.shape[1], dtype=np.float32)
    return np.asarray(expit(Layers(zero, one, *model).apply(X)[:, 0].astype(np.float64)))


def _log_loss(labels: Labels, probabilities: Array) -> float:
    right = np.where(labels == 1, probabilities, 1 - probabilities)
    return float(-np.log(np.maximum(right, 1e-12)).mean())


def _units(X: Floats) -> tuple[Floats, Floats]:
    """Return mean and scale of every feature; features that hardly vary keep a typical scale."""
    deviation = X.std(axis=0, dtype=np.float64)
    typical = float(np.sqrt(np.mean(deviation**2)))
    if not typical > 0:
        raise InputError("no feature varies. Are these really features of different pictures?")
    scale = np.where(deviation > _FLAT * typical, deviation, typical)
    return X.mean(axis=0, dtype=np.float64).astype(np.float32), scale.astype(np.float32)


def check_both_kinds(name: str, labels: Labels) -> None:
    """Refuse an attribute that is constant, or too rare to learn how likely it is."""
    yes, no = int((labels == 1).sum()), int((labels == 0).sum())
    if min(yes, no) < FEWEST:
        raise InputError(
            f"{name} has {yes} rows with it and {no} without; at least {FEWEST} of either are needed to learn how "
            "likely it is. Label more rows."
        )
