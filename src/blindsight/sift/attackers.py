"""Attackers: classifiers that try to read a private attribute from what a sift lets out.

No list of attackers proves privacy; it shows what those on the list can do. Enev et al., "SensorSift", ACSAC 2012,
section 3, names five (`PAPER`): nearest neighbours (q = 9), a linear SVM (C = 10, liblinear), an SVM with radial basis
functions (C = 10), a neural network (100 tanh units) and a random forest (500 trees). The paper is silent on units and
on the kernel's width: numbers are standardised and gamma = 1/K, libsvm's own default.

These five are unweighted: where the attribute is rare they say "no" to everyone and look harmless. `MODERN` adds
balanced classes, a threshold chosen for balanced accuracy (on training rows alone), whitened and quantised views,
gradient boosting, a deeper network; for wide releases, in which whitening drowns a kernel, discriminants with shrinkage
(linear, quadratic, of random features), kernels in the features' own units and scaled by `Relevance`. Cheap attackers
come first, so that a sift that leaks is refused early.

With scikit-learn-intelex (extra `fast`) its nearest neighbours, kernel SVM and forest are used, by name and without
patching anything; otherwise those of scikit-learn. A view is fitted on the attackers' training half alone:

| view | what the attacker sees |
| --- | --- |
| `released` | the numbers as they come |
| `standardised` | each number with zero mean and unit variance: the paper's verifier, which says nothing of scaling |
| `natural` | all numbers in one unit, that of the features (`sift.natural_units`): large directions stay large |
| `whitened` | uncorrelated numbers of unit variance: two nearly equal columns give away what tells them apart |
| `quantised` | whitened and rounded to 16 levels: what is left without the digits |

Included mode: the platform ships the classifier too, and the app gets a label instead of numbers.

Enev et al., "SensorSift", ACSAC 2012, section 3. The classifier is data: a weight per number and a threshold, chosen
for balanced accuracy. PubLoss (section 6.2) is what the sift costs: the balanced accuracy of the best classifier on raw
features less that of this one, both on people neither has seen. The best is chosen on those very rows, which errs on
the side of calling a sift worse than it is.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

from blindsight.data.partition import train_test
from blindsight.errors import InputError, MissingExtraError, UnknownNameError
from blindsight.extras import require
from blindsight.metrics import balanced_accuracy, pub_loss
from blindsight.sift.labels import check_labels, check_released

View = Literal["released", "standardised", "natural", "whitened", "quantised"]
VIEWS: tuple[View, ...] = get_args(View)

Look = Callable[[NDArray[Any]], NDArray[Any]]

_NOTHING = 1e-12  # of the total variance of standardised numbers: what rounding alone leaves of a collinear column
_LEVELS, _RANGE = 16, 3.0  # standard deviations


def fit_view(view: View, reference: NDArray[Any]) -> Look:
    """Return the function that shows released numbers (n, K) as this view, fitted to `reference`.

    >>> look = fit_view("standardised", np.array([[0.0], [2.0]]))
    >>> look(np.array([[3.0]])).tolist()
    [[2.0]]
    """
    if view not in VIEWS:
        raise UnknownNameError("view", view, VIEWS)
    if view == "released":
        return lambda released: np.asarray(released, dtype=np.float64)
    given = np.asarray(reference, dtype=np.float64)
    mean, deviation = given.mean(axis=0), given.std(axis=0)
    if view == "natural":  # one factor for all of them
        deviation = np.full_like(deviation, np.sqrt(np.mean(deviation**2)))
    scale = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1), 0.0)
    turn = _whitener((given - mean) * scale) if view in ("whitened", "quantised") else None

    def look(released: NDArray[Any]) -> NDArray[Any]:
        seen = (np.asarray(released, dtype=np.float64) - mean) * scale
        if turn is not None:
            seen = seen @ turn
        if view == "quantised":
            step = 2 * _RANGE / _LEVELS
            seen = np.clip(np.floor(seen / step), -_LEVELS // 2, _LEVELS // 2 - 1)
        return np.asarray(seen, dtype=np.float32)  # units are sane by now, and most attackers take half the time

    return look


def _whitener(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K, k) to uncorrelated columns of unit variance; directions without variance are dropped."""
    variances, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = variances > _NOTHING * max(variances.sum(), _NOTHING)
    if not kept.any():
        return np.zeros((centred.shape[1], 1))  # nothing varies: every attacker is blind
    return np.asarray(directions[:, kept] / np.sqrt(variances[kept]))


Make = Callable[[int], Any]  # from a seed to a fresh classifier with scikit-learn's fit and predict

_HELD_OUT = 0.25  # of the training rows, to choose a threshold on


@dataclass(frozen=True)
class Attacker:
    """A classifier, the view it is given, and whether its threshold is tuned for balanced accuracy.

    Any scikit-learn classifier will do: ``Attacker("bayes", lambda seed: GaussianNB())``. A tuned one needs
    `decision_function` or `predict_proba`.
    """

    name: str
    make: Make
    view: View = "whitened"
    tune: bool = False

    def attack(
        self,
        train: NDArray[Any],
        labels: NDArray[Any],
        test: NDArray[Any],
        *,
        persons: NDArray[Any] | None = None,
        seed: int = 0,
    ) -> NDArray[np.int8]:
        """Learn the attribute from the training rows and guess it, 0 or 1, for every test row."""
        look = fit_view(self.view, train)
        seen, model = look(train), self.make(seed)
        if not self.tune:
            return _guesses(model.fit(seen, labels).predict(look(test)), len(test), self.name)
        learn, held_out = train_test(labels, test=_HELD_OUT, persons=persons, random_state=seed)
        model.fit(seen[learn], labels[learn])
        threshold = best_threshold(_scores(model, seen[held_out], self.name), labels[held_out])
        return _guesses(_scores(model, look(test), self.name) > threshold, len(test), self.name)


def best_threshold(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the threshold above which saying yes gives the highest balanced accuracy on these rows.

    >>> best_threshold(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0, 0, 1, 0]))
    0.25
    """
    order = np.argsort(scores, kind="stable")
    ordered, positive = scores[order], labels[order] == 1
    below_yes, below_no = np.cumsum(positive), np.cumsum(~positive)  # rows at or below each score
    gain = below_no / max(below_no[-1], 1) - below_yes / max(below_yes[-1], 1)
    gain[:-1][ordered[1:] == ordered[:-1]] = -np.inf  # no threshold separates equal scores
    best = int(np.argmax(gain))
    if gain[best] <= 0:
        return float(np.median(scores))
    return float((ordered[best] + ordered[min(best + 1, len(ordered) - 1)]) / 2)


def chosen_attackers(attackers: "str | Sequence[Attacker]") -> tuple[Attacker, ...]:
    """Return the attackers of a set by its name ("paper", "modern"), or those given, checked."""
    if isinstance(attackers, str):
        if attackers not in SETS:
            raise UnknownNameError("set of attackers", attackers, SETS)
        return SETS[attackers]
    chosen = tuple(attackers)
    names = [attacker.name for attacker in chosen]
    if not chosen or len(set(names)) < len(names):
        raise InputError(f"attackers must be one or more, each with its own name; got {names}.")
    return chosen


def _scores(model: Any, seen: NDArray[Any], name: str) -> NDArray[Any]:
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(seen), dtype=np.float64)
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(seen)[:, 1], dtype=np.float64)
    raise InputError(f"attacker {name!r} gives no scores, so no threshold can be tuned. Set tune=False.")


def _guesses(predicted: Any, rows: int, name: str) -> NDArray[np.int8]:
    guesses = np.asarray(predicted)
    if guesses.shape != (rows,) or not np.isin(guesses, (0, 1)).all():
        raise InputError(f"attacker {name!r} must guess 0 or 1 for each of {rows} rows; got shape {guesses.shape}.")
    return guesses.astype(np.int8)


@cache
def engine() -> Literal["scikit-learn-intelex", "scikit-learn"]:
    try:
        require("sklearnex", extra="fast", purpose="attacking several times faster")
    except MissingExtraError:
        return "scikit-learn"
    return "scikit-learn-intelex"


def _fast(module: str, name: str, **parameters: Any) -> Any:
    package = "sklearnex" if engine() == "scikit-learn-intelex" else "sklearn"
    return getattr(import_module(f"{package}.{module}"), name)(**parameters)


def _nearest(seed: int, neighbours: int) -> Any:
    return _fast("neighbors", "KNeighborsClassifier", n_neighbors=neighbours, n_jobs=1)


def _linear(seed: int, weight: str | None = None) -> Any:
    return LinearSVC(C=10, class_weight=weight, random_state=seed)


def _kernel(seed: int, weight: str | None = None) -> Any:
    jobs = {"n_jobs": 1} if engine() == "scikit-learn-intelex" else {}
    return _fast("svm", "SVC", C=10, gamma="auto", class_weight=weight, cache_size=500, **jobs)


def _network(seed: int) -> Any:
    # A larger step and an earlier stop than scikit-learn's defaults: the same accuracies in a third of the time.
    return MLPClassifier((100,), activation="tanh", learning_rate_init=3e-3, tol=5e-4, random_state=seed)


def _deep_network(seed: int) -> Any:
    return MLPClassifier((64, 64), alpha=1e-2, learning_rate_init=3e-3, early_stopping=True, random_state=seed)


def _forest(seed: int, weight: str | None = None, leaf: int = 1) -> Any:
    options = {"n_estimators": 500, "min_samples_leaf": leaf, "class_weight": weight, "n_jobs": 1}
    return _fast("ensemble", "RandomForestClassifier", random_state=seed, **options)


def _boosting(seed: int) -> Any:
    return HistGradientBoostingClassifier(
        learning_rate=0.05, max_leaf_nodes=15, early_stopping=True, class_weight="balanced", random_state=seed
    )


def _discriminant(seed: int) -> Any:
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=[0.5, 0.5])


def _quadratic(seed: int) -> Any:
    return QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto", priors=[0.5, 0.5])


def _random_features(seed: int) -> Any:
    return make_pipeline(RBFSampler(gamma="scale", n_components=400, random_state=seed), _discriminant(seed))


def _natural_kernel(seed: int) -> Any:
    return SVC(C=3, gamma="scale", class_weight="balanced", cache_size=500)


def _relevant_kernel(seed: int) -> Any:
    return make_pipeline(Relevance(), SVC(C=3, gamma="scale", class_weight="balanced", cache_size=500))


class Relevance(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scales every number by how far apart the two classes lie in it: what tells nothing drowns nothing."""

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        apart = np.abs(X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
        self.scale_ = apart if apart.any() else np.ones_like(apart)
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(X * self.scale_)


def _kernel_screen(seed: int) -> Any:
    features = Nystroem(n_components=60, random_state=seed)
    return make_pipeline(features, LogisticRegression(C=10, class_weight="balanced", max_iter=500))


class LookupTable:
    """The best attacker there is on few symbols: say yes to those seen more often with the attribute than without."""

    def fit(self, symbols: NDArray[Any], labels: NDArray[Any]) -> Self:
        self.symbols_, codes = np.unique(symbols, axis=0, return_inverse=True)
        yes, no = (np.bincount(codes.reshape(-1)[labels == c], minlength=len(self.symbols_)) for c in (1, 0))
        self.suspicious_ = {row.tobytes() for row in self.symbols_[yes * no.sum() > no * yes.sum()]}
        return self

    def predict(self, symbols: NDArray[Any]) -> NDArray[np.int8]:
        """A symbol that was never seen is a no."""
        return np.array([row.tobytes() in self.suspicious_ for row in np.ascontiguousarray(symbols)], dtype=np.int8)


LOOKUP = Attacker("lookup table", lambda seed: LookupTable(), "released")

PAPER: tuple[Attacker, ...] = (
    Attacker("linear SVM", _linear, "standardised"),
    Attacker("nearest neighbours", partial(_nearest, neighbours=9), "standardised"),
    Attacker("neural network", _network, "standardised"),
    Attacker("kernel SVM", _kernel, "standardised"),
    Attacker("random forest", _forest, "standardised"),
)

MODERN: tuple[Attacker, ...] = (
    *PAPER[:2],
    Attacker("gradient boosting, tuned", _boosting, "whitened", tune=True),
    Attacker("gradient boosting on levels, tuned", _boosting, "quantised", tune=True),
    Attacker("kernel screen, tuned", _kernel_screen, "whitened", tune=True),
    Attacker("linear SVM, balanced and tuned", partial(_linear, weight="balanced"), "whitened", tune=True),
    Attacker("shrinkage discriminant, tuned", _discriminant, "standardised", tune=True),
    Attacker("quadratic discriminant, tuned", _quadratic, "natural", tune=True),
    Attacker("random features, tuned", _random_features, "natural", tune=True),
    Attacker("kernel SVM in natural units, tuned", _natural_kernel, "natural", tune=True),
    Attacker("kernel SVM on what tells, tuned", _relevant_kernel, "whitened", tune=True),
    Attacker("45 nearest neighbours, tuned", partial(_nearest, neighbours=45), "whitened", tune=True),
    Attacker("deep network, tuned", _deep_network, "whitened", tune=True),
    PAPER[2],
    Attacker("kernel SVM, balanced and tuned", partial(_kernel, weight="balanced"), "whitened", tune=True),
    PAPER[3],
    Attacker("random forest, balanced and tuned", partial(_forest, weight="balanced", leaf=5), "whitened", tune=True),
    PAPER[4],
)

SETS = {"paper": PAPER, "modern": MODERN}


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
