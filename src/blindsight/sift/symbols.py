"""The best few-symbol release of public attributes under a cap on what it tells of private ones.

| leak | release |
| --- | --- |
| 0.5 | the public label as well as the features know it: nothing is capped |
| 0.10 | the best release that should be *certified* within .10 on rows it has never seen |
| 0 | parity: the symbol is as frequent with a private attribute as without, as nearly as the data tell |

Guarantee of the rule: if the probabilities are right, no other way to choose one of m symbols from them, random or not,
serves the app better without leaking more than the cap, up to rows that lie exactly on a boundary.

For an attribute with probability eta(x) and prevalence pi let g(x) = eta / pi - (1 - eta) / (1 - pi), which is also
(eta - pi) / (pi (1 - pi)). A release of symbol s with probability q_s(x) has P(s | yes) - P(s | no) = E[q_s g], so

- a guess u of the public attribute has balanced accuracy 1/2 + E[u g+] / 2, linear in q;
- the best attacker on a private attribute gains sum_s |E[q_s g-]| / 4 (half the total variation distance), convex in q.

Two private attributes a and b are capped together where the probability that they differ is known as well: then each of
the four cells has a probability, P(a and b) = (eta_a + eta_b - eta_differ) / 2 and so on, and for every two cells c, d
there is a g(x) = eta_c / pi_c - eta_d / pi_d, linear in the probabilities, whose cap bounds the total variation between
them. Every yes-or-no question about the two is a mixture of that, a and b themselves included.

The best q solves a linear program over the rows; by complementary slackness it is

    s(x) = argmax over s of  reward_s(x) - sum_j mu_sj g-_j(x),

with the multipliers mu of the caps, which are all that is kept. For one public bit and one private attribute this reads
u = 1[g+ - mu g- > 0]: a threshold other than 0 would not help, since accuracies are balanced. Several public bits are
released together and each counts the same. One public attribute with 4 to 32 symbols is released with its certainty:
steps along g+, of which the middle one at 0 decides between yes and no.

Probabilities are calibrated, and cross-fitted: rows are divided into `FOLDS` parts, persons kept together, and for each
part a model is fitted to the others. The models together are the ensemble that is kept. The kind (a logistic
regression, or a small network) and its weight decay are chosen by the log-likelihood on the first part. The cap is met
on held-out rows, with a margin for two things that verification will add: the certificate's own distance from its
estimate, and the luck of the draw.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import expit, ndtri
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from blindsight.data.partition import split
from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sift.certificate import EXACT_SYMBOLS
from blindsight.sift.labels import (
    FEWEST_OF_EITHER,
    Labels,
    check_labels,
    check_learnable,
    check_persons,
    check_sides,
    enough,
)
from blindsight.sift.policy import check_leak_cap
from blindsight.sift.ppls import SiftEstimator
from blindsight.sift.sift import MOST_SYMBOLS, Features, Floats, Layers, SymbolSift, finite_blocks
from blindsight.validation import check_shape

FOLDS = 4
FEWEST = 20

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
    """Learn P(attribute | x) from features (n, d) and labels 1, 0, -1 (unknown), a column per attribute. `names` are
    for messages. Without `networks` only logistic regressions are tried: a small part of the time.
    """
    rows = check_shape(X)
    columns = check_labels(labels, rows.shape[0])
    called = names or [f"attribute {number}" for number in range(columns.shape[1])]
    for name, column in zip(called, columns.T, strict=True):
        check_learnable(name, column, FEWEST)
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

_Fit = Callable[[Floats, Labels, int], Weights]


def _fit_one(
    X: Floats, labels: Labels, persons: ArrayLike | None, networks: bool, random_state: int
) -> tuple[list[Weights], Array]:
    """A model per fold and the probabilities of every row by the model that did not see it."""
    folds = split(labels, (1 / FOLDS,) * FOLDS, persons=persons, random_state=random_state)
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
) -> tuple[_Fit, Weights]:
    """The kind of model that explains the fold best when fitted to the rest, and that model."""
    known = fold[labels[fold] >= 0]
    families = (_logistic, _network) if networks and len(rest) >= _ROWS_FOR_NETWORKS else (_logistic,)
    kinds: list[_Fit] = [partial(family, penalty=penalty) for family in families for penalty in _PENALTIES]
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
    """Mean and scale of every feature; features that hardly vary keep a typical scale."""
    deviation = X.std(axis=0, dtype=np.float64)
    typical = float(np.sqrt(np.mean(deviation**2)))
    if not typical > 0:
        raise InputError("no feature varies. Are these really features of different pictures?")
    scale = np.where(deviation > _FLAT * typical, deviation, typical)
    return X.mean(axis=0, dtype=np.float64).astype(np.float32), scale.astype(np.float32)


_FEWEST = 0.01  # share of rows below which a cell of two attributes is left out
_CELLS = 20_000  # rows times symbols of a linear program; more rows are thinned out evenly


@dataclass(frozen=True, eq=False)
class SymbolRule:
    """symbol = argmax of probabilities @ matrix + offset; `matrix` is (attributes, symbols), the public ones first."""

    matrix: Array
    offset: Array
    levels: tuple[int, ...]  # how a symbol reads: bits, one per public attribute, or one number of several levels

    def symbols(self, probabilities: Array) -> NDArray[np.int64]:
        return np.asarray(np.argmax(probabilities @ self.matrix + self.offset, axis=1), dtype=np.int64)


def symbol_rule(
    public: Array, private: Array, leak: float, symbols: int | None = None, differ: Array | None = None
) -> SymbolRule:
    """Return the best rule whose best attacker gains at most `leak` on each private attribute.

    `public` (n, p) and `private` (n, k) are probabilities of the same rows. With `differ` (n, pairs), the probabilities
    that two private attributes differ (`pairs_of`), it gains no more on any question about two of them; the rule's
    matrix then has a row for each of these, too. Without `symbols` there is one bit per public attribute; one attribute
    alone may have 2, 4, 8, 16 or 32 symbols.
    """
    check_leak_cap(leak)
    slopes, offset, levels = _rewards(public, symbols)
    told = slopes.T @ _gains(public).T - offset[:, None]  # (m, n)
    steepness, centre = _affine(public)
    hidden = private if differ is None else np.hstack([private, differ])
    turn, shift = _cells(private, hidden)
    prices = -_multipliers(told.T, hidden @ turn + shift, leak)
    matrix = np.vstack([steepness[:, None] * slopes, turn @ prices])
    return SymbolRule(matrix, shift @ prices - (centre * steepness) @ slopes - offset, levels)


def pairs_of(attributes: int) -> list[tuple[int, int]]:
    """Every two attributes, in the order of the columns of `differ`."""
    return list(combinations(range(attributes), 2))


def cells_of(private: Labels, fewest: int) -> Labels:
    """Labels (n, columns) that tell two cells of two attributes apart, each with `fewest` rows: 1, 0, or -1."""
    columns = [np.zeros((len(private), 0), dtype=np.int8)]
    for i, j in pairs_of(private.shape[1]):
        known = (private[:, [i, j]] >= 0).all(axis=1)
        cell = np.where(known, 2 * private[:, i] + private[:, j], -1)
        for c, d in combinations(range(4), 2):
            if min((cell == c).sum(), (cell == d).sum()) >= fewest:
                columns.append(np.where(cell == c, 1, np.where(cell == d, 0, -1)).astype(np.int8)[:, None])
    return np.hstack(columns)


def leak_of(symbols: NDArray[np.int64], labels: Labels) -> float:
    """Return what the best attacker gains on these rows over a blind guess, half the total variation distance.

    >>> leak_of(np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 0, 1, 1], dtype=np.int8))  # of four noes one says 1
    0.375
    """
    most = int(symbols.max()) + 1
    yes, no = (np.bincount(symbols[labels == value], minlength=most) / np.sum(labels == value) for value in (1, 0))
    return float(np.abs(yes - no).sum()) / 4


def _affine(probabilities: Array) -> tuple[Array, Array]:
    """Slope and centre of g(eta) = slope (eta - centre) per attribute."""
    centre = np.clip(probabilities.mean(axis=0), 1e-6, 1 - 1e-6)
    return 1 / (centre * (1 - centre)), centre


def _cells(private: Array, hidden: Array) -> tuple[Array, Array]:
    """The map from probabilities to what is capped, hidden @ turn + shift: attributes, or cells of two."""
    k = private.shape[1]
    steepness, centre = _affine(private)
    turn, shift = [np.vstack([np.diag(steepness), np.zeros((hidden.shape[1] - k, k))])], [-centre * steepness]
    for number, (i, j) in enumerate(pairs_of(k) if hidden.shape[1] > k else []):
        weights = np.zeros((hidden.shape[1], 4))
        weights[[i, j, k + number]] = np.array([[-1, -1, 1, 1], [-1, 1, -1, 1], [-1, 1, 1, -1]]) / 2  # 00, 01, 10, 11
        constant = np.array([1.0, 0, 0, 0])
        shares = (hidden @ weights + constant).mean(axis=0)
        for c, d in combinations(np.flatnonzero(shares > _FEWEST), 2):
            turn.append((weights[:, c] / shares[c] - weights[:, d] / shares[d])[:, None])
            shift.append(np.array([constant[c] / shares[c] - constant[d] / shares[d]]))
    return np.hstack(turn), np.concatenate(shift)


def _gains(probabilities: Array) -> Array:
    slope, centre = _affine(probabilities)
    return (probabilities - centre) * slope


def _rewards(public: Array, symbols: int | None) -> tuple[Array, Array, tuple[int, ...]]:
    """Slopes (p, m) and offsets (m,) of the rewards, slopes' g+ - offset, and how symbols read."""
    bits = public.shape[1]
    count = 1 << bits if symbols is None else symbols
    allowed = (2, 4, 8, 16, 32) if bits == 1 else (1 << bits,)
    if count not in allowed or count > MOST_SYMBOLS:
        raise InputError(
            f"one public attribute is released as 2, 4, 8, 16 or 32 symbols, two to five as a bit each; got {count} "
            f"symbols for {bits} public attributes."
        )
    if bits > 1 or count == 2:
        slopes = (np.arange(count) >> np.arange(bits)[::-1, None]) & 1
        return slopes.astype(np.float64), np.zeros(count), (2,) * bits
    gains, inner = _gains(public)[:, 0], np.arange(1, count // 2) / (count // 2)
    steps = [np.quantile(gains[gains < 0], inner), [0.0], np.quantile(gains[gains >= 0], inner)]
    step = 1 / (count - 1)
    offset = np.concatenate([[0.0], np.cumsum(np.concatenate(steps)) * step])
    return np.arange(count)[None] * step, offset, (count,)


def _multipliers(rewards: Array, gains: Array, leak: float) -> Array:
    """mu (private, symbols): the prices of the caps at the optimum of the linear program."""
    (n, m), k = rewards.shape, gains.shape[1]
    every = -(-n * m // _CELLS)
    rewards, gains = rewards[::every], gains[::every] - gains[::every].mean(axis=0)
    n = len(rewards)
    # variables: q row by row, then the sizes |E[q_s g_j]| attribute by attribute
    gaps, one = sparse.kron(gains.T / n, sparse.eye_array(m)), sparse.eye_array(m * k)
    sums = sparse.kron(sparse.eye_array(k), np.ones((1, m)))
    limits = sparse.block_array([[gaps, -one], [-gaps, -one], [None, sums]], format="csr")
    whole = sparse.hstack([sparse.kron(sparse.eye_array(n), np.ones((1, m))), sparse.csr_array((n, m * k))])
    best = linprog(
        np.concatenate([-rewards.ravel() / n, np.zeros(m * k)]),
        A_ub=limits,
        b_ub=np.repeat([0.0, 4 * leak], [2 * m * k, k]),
        A_eq=whole.tocsr(),
        b_eq=np.ones(n),
        method="highs",
    )
    assert best.success, best.message  # a constant symbol is always feasible
    above, below = np.split(best.ineqlin.marginals[: 2 * m * k], 2)
    return np.asarray((below - above).reshape(k, m))


_HALVINGS = 8
_ROWS_TO_VERIFY = 1.5  # verification rows per row that a sift is made from: 60% and 40%


@dataclass(eq=False, repr=False)
class SymbolLearner(SiftEstimator):
    """Fits a `SymbolSift` whose certified leak should stay within `leak`.

    `symbols` is by default 2 to the number of public attributes (1 to 5 of them); one attribute may also be released
    with 4, 8, 16 or 32 degrees of certainty. `confidence` is that of the certificate, `rows` on how many independent
    rows (persons, where they have several pictures) it will be counted: by default 1.5 for each of `fit`.
    """

    symbols: int | None = None
    leak: float = 0.10
    _: KW_ONLY
    confidence: float = 0.95
    rows: int | None = None
    random_state: int = 0
    pipeline: str = ""
    sift_: SymbolSift = field(init=False)
    target_: float = field(init=False)  # the leak that held-out rows may show
    leak_: float = field(init=False)  # the leak they do show, of the worst private attribute
    accuracies_: tuple[float, ...] = field(init=False)
    """Balanced accuracy of the released symbol on each public attribute, on held-out rows."""

    def fit(self, X: Features, public: ArrayLike, private: ArrayLike, *, persons: ArrayLike | None = None) -> Self:
        """Learn from features (n, d) and labels 1, 0 and -1 (unknown), each (n,) or (n, attributes)."""
        self._check_parameters()
        told, hidden = check_sides(public, private, check_shape(X).shape[0], FEWEST)
        both = [(hidden[:, i], hidden[:, j]) for i, j in pairs_of(hidden.shape[1])]
        differ = [np.where((a < 0) | (b < 0), -1, a ^ b) for a, b in both]
        if not all(enough(column) for column in differ):
            differ = []  # too few to learn it from: two attributes are nearly one
        columns = np.column_stack([told, hidden, *differ]).astype(np.int8)
        posteriors = fit_posteriors(X, columns, persons=persons, random_state=self.random_state)
        return self.fit_posteriors(posteriors, told, hidden, persons=persons)

    def fit_posteriors(
        self, posteriors: Posteriors, public: ArrayLike, private: ArrayLike, *, persons: ArrayLike | None = None
    ) -> Self:
        """Choose the rule for probabilities learned before: of the public attributes, the private ones, and optionally
        of every two private ones to differ (`pairs_of`): then any question about two of them is capped, not only each
        by itself.
        """
        self._check_parameters()
        rows = len(posteriors.held_out)
        told, hidden = check_sides(public, private, rows, FEWEST)
        single = told.shape[1] + hidden.shape[1]
        jointly = len(posteriors.networks) == single + len(pairs_of(hidden.shape[1])) > single
        if not jointly and single != len(posteriors.networks):
            raise InputError(
                f"{told.shape[1]} public and {hidden.shape[1]} private attributes need as many posteriors; "
                f"got {len(posteriors.networks)}."
            )
        capped = np.hstack([hidden, cells_of(hidden, FEWEST_OF_EITHER)]) if jointly else hidden
        symbols = 1 << told.shape[1] if self.symbols is None else self.symbols
        self.target_ = self._target(capped, check_persons(persons, rows), symbols)
        rule = self._best_rule(posteriors.held_out, told.shape[1], capped, single if jointly else None)
        released = rule.symbols(posteriors.held_out)
        self.leak_ = _worst_leak(released, capped)
        self.accuracies_ = _accuracies(released, told, rule.levels)
        self.sift_ = _freeze(rule, posteriors, self.pipeline)
        self.n_features_in_ = self.sift_.dimension
        return self

    def _check_parameters(self) -> None:
        check_leak_cap(self.leak)
        if not 0.5 < self.confidence < 1:
            raise InputError(f"confidence must be in (0.5, 1); got {self.confidence}. Write 95% as 0.95.")
        if self.rows is not None and self.rows < 2:
            raise InputError(f"rows must be at least 2; got {self.rows}.")

    def _target(self, private: Labels, persons: ArrayLike | None, symbols: int) -> float:
        """Return the leak that held-out rows may show, so that the certificate will hold with about `confidence`.

        The spread of an estimated leak is at most sqrt(1 / n1 + 1 / n0) / 4. The certificate lies a quantile of its own
        spread above its estimate, which differs from the one here by the spreads of both. Several pictures of a person
        count as one.
        """
        if self.leak == 0.5:
            return 0.5
        quantile, margin = float(ndtri(self.confidence)), 0.0
        exact = symbols <= EXACT_SYMBOLS  # else the certificate is Hoeffding's
        reach = quantile if exact else math.sqrt(-2 * math.log(1 - self.confidence))
        people = len(private) if persons is None else len(np.unique(np.asarray(persons)))
        share = people / len(private)
        for column in private.T:
            yes, no = int((column == 1).sum()), int((column == 0).sum())
            factor = _ROWS_TO_VERIFY * share if self.rows is None else self.rows / (yes + no)
            row = (1 / yes + 1 / no) / 16
            here, there = row / share, row / factor
            margin = max(margin, reach * math.sqrt(there) + quantile * math.sqrt(here + there))
        return max(0.0, self.leak - margin)

    def _best_rule(self, held_out: Array, public: int, private: Labels, single: int | None = None) -> SymbolRule:
        """The rule of the largest cap at which held-out labels show no more than the target."""
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


def _worst_leak(symbols: NDArray[np.int64], private: Labels) -> float:
    return max(leak_of(symbols, column) for column in private.T)


def _accuracies(symbols: NDArray[np.int64], public: Labels, levels: tuple[int, ...]) -> tuple[float, ...]:
    numbers = np.stack(np.unravel_index(symbols, levels), axis=1)
    says_yes = numbers >= np.array(levels) / 2
    pairs = ((column, says_yes[:, i]) for i, column in enumerate(public.T))
    return tuple(balanced_accuracy(column[column >= 0], guess[column >= 0].astype(np.int8)) for column, guess in pairs)


def _freeze(rule: SymbolRule, posteriors: Posteriors, pipeline: str) -> SymbolSift:
    """Models of attributes that decide nothing are left out."""
    used = [i for i, row in enumerate(rule.matrix) if np.ptp(row) > 0]
    networks = [network for i in used for network in posteriors.networks[i]]
    shares = [rule.matrix[i] / len(posteriors.networks[i]) for i in used for _ in posteriors.networks[i]]
    layers = Layers.side_by_side(networks)
    matrix, offset = np.stack(shares).astype(np.float32), rule.offset.astype(np.float32)
    return SymbolSift(layers, matrix, offset, rule.levels, pipeline)
