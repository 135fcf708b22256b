"""The best few-symbol release of public attributes under a cap on what it tells of private ones.

Three releases of one kind, by the cap alone:

| leak | release |
| --- | --- |
| 0.5 | the public label as well as the features know it: nothing is capped |
| 0.10 | the best release that should be *certified* within .10 on rows it has never seen |
| 0 | parity: the symbol is as frequent with a private attribute as without, as nearly as the data tell |

A plain label leaks half its demographic-parity difference. Where that is under the cap nothing is changed; otherwise
`symbolrule` makes the best exchange of accuracy for privacy, of two private attributes also for whatever can be asked
about both. The cap is met on held-out rows, with a margin for two
things that verification will add: the certificate's own distance from its estimate, and the luck of the draw.

A learner is not a promise: that a sift hides what it should is for verification to find out.
"""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy
from blindsight.sift.features import Features
from blindsight.sift.floor import check_leak_cap
from blindsight.sift.labels import Labels, check_labels
from blindsight.sift.layers import Layers
from blindsight.sift.posterior import Posteriors, check_both_kinds, fit_posteriors
from blindsight.sift.splits import FEWEST_OF_EITHER, check_persons, enough
from blindsight.sift.symbolrule import Array, SymbolRule, cells_of, leak_of, pairs_of, symbol_rule
from blindsight.sift.symbolsift import SymbolSift
from blindsight.validation import check_shape

_HALVINGS = 8
_ROWS_TO_VERIFY = 1.5  # verification rows per row that a sift is made from: 60% and 40%


class SymbolLearner(BaseEstimator):  # type: ignore[misc]
    """Fits a `SymbolSift` whose certified leak should stay within `leak`.

    `symbols` is 2 to the number of public attributes (1 to 3 of them) unless told; one attribute may also be released
    with 4 or 8 degrees of certainty. `confidence` is that of the certificate, `rows` on how many independent rows
    (persons, where they have several pictures) it will be counted: 1.5 for each of `fit`, unless told.
    """

    sift_: SymbolSift
    target_: float
    """The leak that held-out rows may show."""
    leak_: float
    """The leak they do show, of the worst private attribute."""
    accuracies_: tuple[float, ...]
    """Balanced accuracy of the released symbol on each public attribute, on held-out rows."""

    def __init__(
        self,
        symbols: int | None = None,
        leak: float = 0.10,
        *,
        confidence: float = 0.95,
        rows: int | None = None,
        random_state: int = 0,
        pipeline: str = "",
    ) -> None:
        self.symbols = symbols
        self.leak = leak
        self.confidence = confidence
        self.rows = rows
        self.random_state = random_state
        self.pipeline = pipeline

    def fit(self, X: Features, public: ArrayLike, private: ArrayLike, *, persons: ArrayLike | None = None) -> Self:
        """Learn from features (n, d) and labels 1, 0 and -1 (unknown), each (n,) or (n, attributes)."""
        self._check_parameters()
        told, hidden = _sides(public, private, check_shape(X).shape[0])
        differ = [hidden[:, i] ^ hidden[:, j] for i, j in pairs_of(hidden.shape[1])]
        unknown = [(hidden[:, [i, j]] < 0).any(axis=1) for i, j in pairs_of(hidden.shape[1])]
        pairs = [np.where(gap, -1, labels)[:, None] for gap, labels in zip(unknown, differ, strict=True)]
        if not all(enough(column[:, 0]) for column in pairs):
            pairs = []  # too few to learn it from: two attributes are nearly one
        columns = np.hstack([told, hidden, *pairs]).astype(np.int8)
        posteriors = fit_posteriors(X, columns, persons=persons, random_state=self.random_state)
        return self.fit_posteriors(posteriors, told, hidden, persons=persons)

    def fit_posteriors(
        self, posteriors: Posteriors, public: ArrayLike, private: ArrayLike, *, persons: ArrayLike | None = None
    ) -> Self:
        """Choose the rule for probabilities that were learned before, of the public attributes and then the private.

        Where those of every two private attributes to differ follow (`symbolrule.pairs_of`), any question about two of
        them is capped, not only each by itself.
        """
        self._check_parameters()
        rows = len(posteriors.held_out)
        told, hidden = _sides(public, private, rows)
        single = told.shape[1] + hidden.shape[1]
        jointly = len(posteriors.networks) == single + len(pairs_of(hidden.shape[1])) > single
        if not jointly and single != len(posteriors.networks):
            raise InputError(
                f"{told.shape[1]} public and {hidden.shape[1]} private attributes need as many posteriors; "
                f"got {len(posteriors.networks)}."
            )
        capped = np.hstack([hidden, cells_of(hidden, FEWEST_OF_EITHER)]) if jointly else hidden
        self.target_ = self._target(capped, check_persons(persons, rows))
        rule = self._best_rule(posteriors.held_out, told.shape[1], capped, single if jointly else None)
        released = rule.symbols(posteriors.held_out)
        self.leak_ = _worst_leak(released, capped)
        self.accuracies_ = _accuracies(released, told, rule.levels)
        self.sift_ = _freeze(rule, posteriors, self.pipeline)
        self.n_features_in_ = self.sift_.dimension
        return self

    def transform(self, X: Features) -> NDArray[Any]:
        """Return what the sift lets out, (n, width)."""
        check_is_fitted(self, "sift_")
        return self.sift_.apply(X)

    def _check_parameters(self) -> None:
        check_leak_cap(self.leak)
        if not 0.5 < self.confidence < 1:
            raise InputError(f"confidence must be in (0.5, 1); got {self.confidence}. Write 95% as 0.95.")
        if self.rows is not None and self.rows < 2:
            raise InputError(f"rows must be at least 2; got {self.rows}.")

    def _target(self, private: Labels, persons: ArrayLike | None) -> float:
        """Return the leak that held-out rows may show, so that the certificate will hold with about `confidence`.

        The spread of an estimated leak is at most sqrt(1 / n1 + 1 / n0) / 4. The certificate lies a quantile of its own
        spread above its estimate, which differs from the one here by the spreads of both. Several pictures of a person
        count as one, and are certified by Hoeffding's inequality.
        """
        if self.leak == 0.5:
            return 0.5
        quantile, margin = float(ndtri(self.confidence)), 0.0
        people = len(private) if persons is None else len(np.unique(np.asarray(persons)))
        reach = quantile if people == len(private) else math.sqrt(-2 * math.log(1 - self.confidence))
        share = people / len(private)
        for column in private.T:
            yes, no = int((column == 1).sum()), int((column == 0).sum())
            factor = _ROWS_TO_VERIFY * share if self.rows is None else self.rows / (yes + no)
            row = (1 / yes + 1 / no) / 16
            here, there = row / share, row / factor
            margin = max(margin, reach * math.sqrt(there) + quantile * math.sqrt(here + there))
        return max(0.0, self.leak - margin)

    def _best_rule(self, held_out: Array, public: int, private: Labels, single: int | None = None) -> SymbolRule:
        """Return the rule of the largest cap at which held-out labels show no more than the target."""
        told, hidden = held_out[:, :public], held_out[:, public:single]
        differ = None if single is None else held_out[:, single:]

        def rule_at(cap: float) -> tuple[SymbolRule, float]:
            rule = symbol_rule(told, hidden, cap, self.symbols, differ)
            return rule, _worst_leak(rule.symbols(held_out), private)

        best, leak = rule_at(0.5)
        if leak <= self.target_:
            return best
        low, high = 0.0, 0.5
        best, least = rule_at(low)
        if least > self.target_:
            return best  # as near as it gets
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            rule, leak = rule_at(middle)
            if leak <= self.target_:
                best, low = rule, middle
            else:
                high = middle
        return best


def _sides(public: ArrayLike, private: ArrayLike, rows: int) -> tuple[Labels, Labels]:
    """Return the labels of both sides, every attribute with enough of either answer."""
    told, hidden = check_labels(public, rows, "public labels"), check_labels(private, rows, "private labels")
    for role, side in (("public", told), ("private", hidden)):
        for number, column in enumerate(side.T):
            check_both_kinds(f"{role} attribute {number}", column)
    return told, hidden


def _worst_leak(symbols: NDArray[np.int64], private: Labels) -> float:
    return max(leak_of(symbols, column) for column in private.T)


def _accuracies(symbols: NDArray[np.int64], public: Labels, levels: tuple[int, ...]) -> tuple[float, ...]:
    """Return how often the release, read as yes or no, is right about each public attribute."""
    numbers = np.stack(np.unravel_index(symbols, levels), axis=1)
    says_yes = numbers >= np.array(levels) / 2
    pairs = ((column, says_yes[:, i]) for i, column in enumerate(public.T))
    return tuple(balanced_accuracy(column[column >= 0], guess[column >= 0].astype(np.int8)) for column, guess in pairs)


def _freeze(rule: SymbolRule, posteriors: Posteriors, pipeline: str) -> SymbolSift:
    """Return the sift of a rule; models of attributes that decide nothing are left out."""
    used = [i for i, row in enumerate(rule.matrix) if np.ptp(row) > 0]
    networks = [network for i in used for network in posteriors.networks[i]]
    shares = [rule.matrix[i] / len(posteriors.networks[i]) for i in used for _ in posteriors.networks[i]]
    layers = Layers.side_by_side(networks)
    matrix, offset = np.stack(shares).astype(np.float32), rule.offset.astype(np.float32)
    return SymbolSift(layers, matrix, offset, rule.levels, pipeline)
