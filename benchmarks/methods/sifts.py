"""Makers of sifts, those who attack them, and SensorSift's five classifiers of attributes (its Table 2).

A maker sees no label of the people whom its sifts are judged by, unless the sift cannot be applied without.
"""

import heapq
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Self

import numpy as np
from fairlearn.preprocessing import CorrelationRemover
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.stats import beta
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from blindsight.errors import InputError, PrivacyError
from blindsight.papers.sensorsift.adversarial import AdversarialSift
from blindsight.papers.sensorsift.cheats import Cheat, collinear_pair, low_digits, xor_hash
from blindsight.rng import science
from blindsight.sift.adaptive import share
from blindsight.sift.attackers import PAPER
from blindsight.sift.certificate import certify
from blindsight.sift.leace import Erasure, LeacePLS
from blindsight.sift.ppls import PPLS, FewerComponentsWarning, SiftLearner
from blindsight.sift.sift import LinearSift, without_negligible
from blindsight.sift.symbols import SymbolLearner, fit_posteriors
from blindsight.sift.verdict import Confidence
from tests.adversaries.holes import Hole, Segments, answers_followed, holes

Floats = NDArray[np.float32]
Labels = NDArray[np.int8]
Pair = tuple[str, str]
"""A public and a private attribute; several private ones, hidden jointly, have a plus between them."""


@dataclass(frozen=True)
class SiftingData:
    """Labelled features to make sifts from, features to apply them to, and the policies that want one.

    `scale` tells whether features are to be scaled each by itself. `told` has the private labels of the judged people.
    """

    features: Floats
    labels: Mapping[str, Labels]
    judged: Floats
    policies: tuple[Pair, ...]
    scale: bool
    told: Mapping[str, Labels] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelledRows:
    """Features with a public and a private label; they may be too large to be copied for each method: read-only."""

    features: NDArray[np.float32]
    public: NDArray[np.int8]
    private: NDArray[np.int8]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        self.features.setflags(write=False)
        return self


Released = dict[str, NDArray[Any]]
"""What is let out of the judged people: numbers (n, K), or symbols as whole numbers, by `key`."""


def key(policy: Pair, kind: str = "") -> str:
    """Name an answer; one maker may answer a policy with sifts of several kinds.

    >>> key(("smiling", "male")), key(("smiling", "male"), "label")
    ('smiling/male', 'smiling/male:label')
    """
    return "/".join(policy) + f":{kind}" * bool(kind)


def released_by_each(given: SiftingData, make: Callable[[], SiftLearner]) -> Released:
    """Fit a fresh learner for every policy; those for which no sift exists get no answer."""
    answer: Released = {}
    for public, private in given.policies:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FewerComponentsWarning)  # fewer numbers are an answer
                fitted = make().fit(given.features, given.labels[public], given.labels[private])
        except InputError:
            continue
        answer[key((public, private))] = fitted.sift_.apply(given.judged)
    return answer


def classes_of(labels: Mapping[str, Labels], private: str) -> NDArray[np.int64]:
    """Return the class of every row: a private attribute, or which combination of several.

    >>> classes_of({"a": np.array([0, 1, 1], np.int8), "b": np.array([1, 0, 1], np.int8)}, "a+b").tolist()
    [1, 2, 3]
    """
    found = np.zeros(len(next(iter(labels.values()))), dtype=np.int64)
    for name in private.split("+"):
        found = 2 * found + labels[name]
    return found


def held_out_leak(symbols: NDArray[np.int64], classes: NDArray[np.int64]) -> float:
    """Return the gain of the best attacker on these rows, of the two classes that are told apart best."""
    kinds = [np.bincount(symbols[classes == c], minlength=int(symbols.max()) + 1) for c in np.unique(classes)]
    rates = np.stack([counts / counts.sum() for counts in kinds])
    return float(np.abs(rates[:, None] - rates[None]).sum(axis=2).max()) / 4


def target_leak(given: SiftingData, classes: NDArray[np.int64], symbols: int) -> float:
    """Return the leak to aim at so that .10 can be certified on the judged rows, the same for every maker."""
    smallest = np.sort(np.bincount(classes))[:2] / len(classes) * len(given.judged)
    spread = float(np.sqrt((1 / smallest).sum())) / 4
    return max(0.0, 0.10 - spread * (1.645 if symbols <= 8 else 2.448) - 1.645 * spread)


LEAKS = {"label": 0.5, "capped": 0.10, "parity": 0.0}
"""Kinds of one-bit releases by the leak that is allowed."""


def ppls(given: SiftingData, *, seed: int, components: int, privacy: float | str) -> Released:
    """Release numbers of PPLS; an infinite `privacy` is the text "inf"."""
    return released_by_each(given, lambda: PPLS(components, float(privacy), scale=given.scale))


def leace(given: SiftingData, *, seed: int, components: int) -> Released:
    """Release numbers of linear erasure and partial least squares."""
    return released_by_each(given, lambda: LeacePLS(components, scale=given.scale))


def adversarial(given: SiftingData, *, seed: int, components: int) -> Released:
    """Release numbers of an encoder trained against adversaries; needs torch."""
    return released_by_each(given, lambda: AdversarialSift(components, random_state=seed))


def inlp(given: SiftingData, *, seed: int, rounds: int, components: int) -> Released:
    """Release the first numbers of PLS on what `rounds` projections leave."""
    made = wide(given, seed=seed, maker="inlp", components=components, rounds=rounds)
    return {name: sift.apply(given.judged) for name, sift in made.items()}


def correlation_remover(given: SiftingData, *, seed: int, components: int) -> Released:
    """Release the first numbers of PLS on what is left, knowing the private label of every judged person."""
    made = wide(given, seed=seed, maker="correlation-remover", components=components)
    return {
        name: sift.apply(np.column_stack([given.judged, given.told[name.split("/")[1]]]).astype(np.float32))
        for name, sift in made.items()
    }


def symbols(given: SiftingData, *, seed: int, kinds: str) -> Released:
    """Release one bit of each of the `kinds`, names with spaces between; every attribute is learned once."""
    names = list(dict.fromkeys(name for policy in given.policies for name in policy))
    columns = np.stack([given.labels[name] for name in names], axis=1)
    posteriors = fit_posteriors(given.features, columns, names=names, random_state=seed)
    wanted, answer = kinds.split(), Released()
    for policy in given.policies:
        pair, sides = posteriors.select([names.index(name) for name in policy]), [given.labels[name] for name in policy]
        for kind in wanted:
            learner = SymbolLearner(leak=LEAKS[kind], rows=len(given.judged), random_state=seed)
            sift = learner.fit_posteriors(pair, *sides).sift_
            answer[key(policy, kind if len(wanted) > 1 else "")] = sift.apply(given.judged)
    return answer


def more_symbols(given: SiftingData, *, seed: int, symbols: str) -> Released:
    """Release one of so many symbols, each number of them in turn; several private attributes are capped jointly."""
    names = list(dict.fromkeys(name for policy in given.policies for part in policy for name in part.split("+")))
    pairs = dict.fromkeys(tuple(private.split("+")) for _, private in given.policies if "+" in private)
    learned = {name: given.labels[name] for name in names}
    learned |= {"+".join(pair): given.labels[pair[0]] ^ given.labels[pair[1]] for pair in pairs}
    columns = np.stack(list(learned.values()), axis=1)
    posteriors = fit_posteriors(given.features, columns, names=list(learned), networks=False, random_state=seed)
    answer = Released()
    for public, private in given.policies:
        hidden = private.split("+")
        wanted = [public, *hidden, *([private] if len(hidden) > 1 else [])]
        chosen = posteriors.select([list(learned).index(name) for name in wanted])
        sides = given.labels[public], np.stack([given.labels[name] for name in hidden], axis=1)
        for count in map(int, symbols.split()):
            learner = SymbolLearner(count, leak=0.10, rows=len(given.judged), random_state=seed)
            answer[key((public, private), str(count))] = learner.fit_posteriors(chosen, *sides).sift_.symbols(
                given.judged
            )
    return answer


def directions(features: Floats, labels: Labels, rounds: int) -> NDArray[np.float32]:
    """Return an orthonormal basis (d, rounds) of what linear classifiers read, each on what the former ones left."""
    left, found = features, np.zeros((features.shape[1], 0), dtype=np.float32)
    for _ in range(rounds):
        weights = LogisticRegression(C=0.01, max_iter=200).fit(left, labels).coef_[0]
        weights = weights - found @ (found.T @ weights)
        direction = (weights / np.linalg.norm(weights)).astype(np.float32)
        left = left - np.outer(left @ direction, direction)
        found = np.column_stack([found, direction])
    return found


COMPONENTS = 64


def exponentiated_gradient(given: SiftingData, *, seed: int) -> Released:
    """Release the label of every policy, predicted from principal components."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    pca = PCA(min(COMPONENTS, given.features.shape[1]), random_state=0).fit(given.features)
    scale = pca.transform(given.features).std(axis=0)
    rows, judged = pca.transform(given.features) / scale, pca.transform(given.judged) / scale
    answer: Released = {}
    for policy in given.policies:
        private = classes_of(given.labels, policy[1])
        # fairlearn bounds every group's distance from the mean of all, half of that between two groups
        gap = target_leak(given, private, 2)
        learner = ExponentiatedGradient(
            LogisticRegression(C=0.1, max_iter=300, class_weight="balanced"),
            DemographicParity(difference_bound=max(gap, 0.005)),
            max_iter=30,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learner.fit(rows, given.labels[policy[0]].astype(np.int64), sensitive_features=private)
        answer[key(policy, "2")] = np.asarray(learner.predict(judged, random_state=seed), dtype=np.int64)
    return answer


BINS, FEWEST_IN_LEAF = 32, 25
GAMMAS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tree:
    """Splits in the order in which they were made: (leaf, feature, edge, new leaf); fewer splits are a smaller tree."""

    splits: tuple[tuple[int, int, float, int], ...]

    def leaves(self, features: Array, most: int) -> NDArray[np.int64]:
        """Return the leaf of every row in the tree of at most so many leaves."""
        found = np.zeros(len(features), dtype=np.int64)
        for leaf, feature, edge, other in self.splits[: most - 1]:
            found[(found == leaf) & (features[:, feature] > edge)] = other
        return found


def grow(features: Array, public: NDArray[np.int64], private: NDArray[np.int64], gamma: float, most: int) -> Tree:
    """Grow a tree of at most so many leaves."""
    edges = np.quantile(features, np.arange(1, BINS) / BINS, axis=0)
    binned = np.stack([np.searchsorted(edges[:, j], features[:, j]) for j in range(features.shape[1])], axis=1)
    kinds = private.max() + 1
    joint = public * kinds + private

    def impurity(counts: Array) -> Array:
        """Return rows times impurity of cells (..., 2, kinds)."""
        total = np.maximum(counts.sum(axis=(-1, -2)), 1e-9)
        told = 1 - np.square(counts.sum(axis=-1)).sum(axis=-1) / total**2
        mixed = 1 - np.square(counts.sum(axis=-2)).sum(axis=-1) / total**2
        return np.asarray(total * ((1 - gamma) * told + gamma * (1 - mixed / (1 - 1 / kinds))))

    def best(leaf: int, rows: NDArray[np.int64]) -> tuple[float, int, int, int]:
        """Return (-gain, leaf, feature, bin) of the best split."""
        d, cells = features.shape[1], 2 * kinds
        flat = (np.arange(d) * BINS + binned[rows]) * cells + joint[rows, None]
        counts = np.bincount(flat.ravel(), minlength=d * BINS * cells).reshape(d, BINS, 2, kinds)
        left = np.cumsum(counts, axis=1)[:, :-1].astype(np.float64)
        whole = counts[0].sum(axis=0).astype(np.float64)
        right = whole - left
        gain = impurity(whole) - impurity(left) - impurity(right)
        few = np.minimum(left.sum(axis=(2, 3)), right.sum(axis=(2, 3))) < FEWEST_IN_LEAF
        gain[few] = -np.inf
        feature, place = np.unravel_index(int(np.argmax(gain)), gain.shape)
        return -float(gain[feature, place]), leaf, int(feature), int(place)

    members = {0: np.arange(len(features))}
    heap = [best(0, members[0])]
    splits: list[tuple[int, int, float, int]] = []
    while heap and len(members) < most:
        cost, leaf, feature, place = heapq.heappop(heap)
        if not math.isfinite(cost):
            break
        rows, other = members[leaf], len(members)
        beyond = binned[rows, feature] > place
        splits.append((leaf, feature, float(edges[place, feature]), other))
        members[leaf], members[other] = rows[~beyond], rows[beyond]
        for one in (leaf, other):
            heapq.heappush(heap, best(one, members[one]))
    return Tree(tuple(splits))


def fare(given: SiftingData, *, seed: int, symbols: str, inputs: str) -> Released:
    """Release leaves of trees on principal components or on probabilities of the attributes, of each number of leaves.

    Of every size the tree is taken that tells most of the public attribute, on a quarter of the rows that it was not
    grown from, among those whose leak there is within the target.
    """
    learn, check = np.arange(len(given.features)) % 4 > 0, np.arange(len(given.features)) % 4 == 0
    answer, seen = Released(), _fare_inputs(given, inputs, seed)
    for policy in given.policies:
        rows, judged = seen((policy[0], *policy[1].split("+")))
        public, private = given.labels[policy[0]].astype(np.int64), classes_of(given.labels, policy[1])
        most = max(map(int, symbols.split()))
        trees = [grow(rows[learn], public[learn], private[learn], gamma, most) for gamma in GAMMAS]
        for count in map(int, symbols.split()):
            found = []
            for tree in trees:
                leaves = tree.leaves(rows, count)
                leak = held_out_leak(leaves[check], private[check])
                told = held_out_leak(leaves[check], public[check])
                found.append((leak > target_leak(given, private, count), -told if leak <= 0.5 else leak, tree))
            within = [one for one in found if not one[0]]
            tree = min(within, key=lambda one: one[1])[2] if within else trees[-1]
            answer[key(policy, str(count))] = tree.leaves(judged, count)
    return answer


def _fare_inputs(given: SiftingData, inputs: str, seed: int) -> Callable[[Sequence[str]], tuple[Array, Array]]:
    """Return what a tree on some attributes sees of the learning and of the judged rows."""
    if inputs == "components":
        pca = PCA(min(COMPONENTS, given.features.shape[1]), random_state=0).fit(given.features)
        seen = pca.transform(given.features), pca.transform(given.judged)
        return lambda names: seen

    @cache
    def probabilities(name: str) -> tuple[Array, Array]:
        found = fit_posteriors(given.features, given.labels[name], names=[name], networks=False, random_state=seed)
        return found.held_out, found.predict(given.judged)

    def joined(names: Sequence[str]) -> tuple[Array, Array]:
        own, judged = zip(*map(probabilities, names), strict=True)
        return np.hstack(own), np.hstack(judged)

    return joined


def fare_bound(symbols: NDArray[np.int64], private: NDArray[np.int64], confidence: float = 0.95) -> float:
    """Return FARE's kind of upper limit of every attacker's gain on one private attribute (0 or 1), rows independent.

    The best attacker's balanced accuracy is E[max(P(s=1|z) / (2 P(s=1)), P(s=0|z) / (2 P(s=0)))]: per cell the upper
    ends of Clopper-Pearson intervals, over cells a mean of numbers below their maximum.
    """
    error = (1 - confidence) / 3  # base rates, cells, the mean over cells
    order = science(0).permutation(len(private))  # rows may come sorted by anything
    symbols, private = symbols[order], private[order]
    n, ones = len(private), int(private.sum())
    low, high = beta.ppf(error / 2, ones, n - ones + 1), beta.ppf(1 - error / 2, ones + 1, n - ones)
    cells, index = np.unique(symbols, return_inverse=True)
    half = n // 2  # cells are learned from one half, their frequencies from the other
    reach = np.zeros(len(cells))
    for cell in range(len(cells)):
        mine = private[:half][index[:half] == cell]
        k, total = int(mine.sum()), len(mine)
        each = error / (2 * len(cells))
        most = float(beta.ppf(1 - each, k + 1, total - k)) if k < total else 1.0
        least = float(beta.ppf(each, k, total - k + 1)) if k else 0.0
        reach[cell] = max(most / (2 * low), (1 - least) / (2 * (1 - high)))
    rates = np.bincount(index[half:], minlength=len(cells)) / (n - half)
    slack = math.sqrt(-math.log(error) / (2 * (n - half))) * float(np.ptp(reach))
    return min(0.5, float(rates @ reach) + slack - 0.5)


def wide(given: SiftingData, *, seed: int, maker: str, components: int, **more: int) -> dict[str, LinearSift]:
    """Return a sift of so many numbers for every policy."""
    answer = {}
    for public, private in given.policies:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewerComponentsWarning)  # fewer numbers are an answer
            sides = (given.labels[public], given.labels[private])
            answer[key((public, private))] = MAKERS[maker](given.features, *sides, components, given.scale, **more)
    return answer


def _fitted(learner: Callable[..., SiftLearner]) -> Callable[..., LinearSift]:
    def make(X: Floats, public: Labels, private: Labels, components: int, scale: bool) -> LinearSift:
        found: LinearSift = learner(components, scale=scale).fit(X, public, private).sift_
        return found

    return make


def _inlp(X: Floats, public: Labels, private: Labels, components: int, scale: bool, rounds: int = 15) -> LinearSift:
    mean, deviation = _units(X, scale)
    rows = (X - mean) / deviation
    erased = directions(rows, private, rounds).astype(np.float64)
    left = (rows - (rows @ erased) @ erased.T).astype(np.float32)
    matrix = PPLS(components, 0.0, scale=False).fit(left, public, private).sift_.weights.astype(np.float64)
    return _linear(mean, deviation, matrix - erased @ (erased.T @ matrix))


def _erased_components(X: Floats, public: Labels, private: Labels, components: int, scale: bool) -> LinearSift:
    """Erase linearly, then keep the leading principal components, whatever they tell."""
    mean, deviation = _units(X, scale)
    rows = ((X - mean) / deviation).astype(np.float64)
    covariance = rows.T @ rows / len(rows)
    erasure = Erasure.fit(covariance, rows.T @ (private - private.mean())[:, None] / len(rows))
    left = erasure.apply(erasure.apply(covariance).T)
    leading = np.linalg.eigh((left + left.T) / 2)[1][:, ::-1][:, :components]
    return _linear(mean, deviation, erasure.transposed(leading))


def _correlation_remover(X: Floats, public: Labels, private: Labels, components: int, scale: bool) -> LinearSift:
    """Subtract what the private label explains, then PLS: a sift that is told the label, as its last feature."""
    remover = CorrelationRemover(sensitive_feature_ids=[0])
    left = remover.fit_transform(np.column_stack([private, X])).astype(np.float32)
    found: LinearSift = PPLS(components, 0.0, scale=scale).fit(left, public, private).sift_
    explained = (-remover.beta_[:1] / found.scale) @ found.matrix
    mean, deviation = np.append(found.mean, private.mean()), np.append(found.scale, 1.0)
    return LinearSift(mean.astype(np.float32), deviation.astype(np.float32), np.vstack([found.matrix, explained]))


def _units(X: Floats, scale: bool) -> tuple[Floats, Floats]:
    deviation = np.maximum(X.std(axis=0), 1e-6)
    return X.mean(axis=0), deviation if scale else np.full_like(deviation, np.sqrt(np.mean(deviation**2)))


def _linear(mean: Floats, deviation: Floats, matrix: np.ndarray) -> LinearSift:
    return LinearSift(mean, deviation, without_negligible(matrix / np.linalg.norm(matrix, axis=0)).astype(np.float32))


MAKERS: dict[str, Callable[..., LinearSift]] = {
    "ppls": _fitted(partial(PPLS, privacy=1.0)),
    "ppls-infinite": _fitted(partial(PPLS, privacy=np.inf)),
    "leace": _fitted(LeacePLS),
    "inlp": _inlp,
    "erased-components": _erased_components,
    "correlation-remover": _correlation_remover,
}


_CHEATS = {"collinear_pair": collinear_pair, "low_digits": low_digits, "xor_hash": xor_hash}


def honest(given: LabelledRows, *, seed: int) -> Cheat:
    """Hide nothing: five numbers of PPLS without private covariance, and no decoder."""
    sift = PPLS(5, float("inf")).fit(given.features, given.public, given.private).sift_
    return Cheat("honest", sift.apply, lambda released: np.zeros(len(released), dtype=np.int8), sift)


def cheating(given: LabelledRows, *, seed: int, cheat: str) -> Cheat:
    """Smuggle by the named cheat."""
    return _CHEATS[cheat](given.features, given.public, given.private)


def few_symbols(given: LabelledRows, *, seed: int, levels: int) -> Cheat:
    """Smuggle a bit XOR a hash beside one of few levels, so that it can be declared as symbols."""
    return xor_hash(given.features, given.public, given.private, levels=levels)


def eight_holes(given: int, *, seed: int) -> tuple[Hole, ...]:
    """Try eight ways around a platform's verdict on so many rows."""
    return holes(seed, rows=given)


def adaptive(given: tuple[Segments, int, float], *, seed: int, tree: bool) -> float:
    """Return the most that the app gets accepted."""
    rows, tries, alpha = given
    asked = accepts = 0

    def accepted(chosen: NDArray[Any]) -> bool:
        nonlocal asked, accepts
        asked += 1
        try:
            part = share(asked - 1, accepts) if tree else 1 / (asked * (asked + 1))
        except PrivacyError:
            return False  # on these rows nothing is accepted any more
        yes = rows.accepts(chosen, alpha * part)
        accepts += yes
        return yes

    return answers_followed(rows, accepted, tries, random_state=seed)


@dataclass(frozen=True, eq=False)
class Draw:
    """One bit of every picture, the private label, and who is on it."""

    symbols: NDArray[np.int64]
    private: NDArray[np.int8]
    persons: NDArray[np.int64]


def persons(given: list[Draw], *, seed: int, persons: bool) -> list[tuple[float, float]]:
    """Return of every draw the certified bound, and the lower end of what the bit as a guess is worth."""
    found = []
    for draw in given:
        who = draw.persons if persons else None
        bound = certify(draw.symbols, draw.private, confidence=0.95, persons=who).bound
        guess = draw.symbols.astype(np.int8)
        low = Confidence(0.95, 1).bounds(draw.private, guess, who)[0].low - 0.5
        found.append((bound, low))
    return found


@dataclass(frozen=True)
class Halves:
    """What a reader may see: numbers of both halves' pictures, but the labels (1, 0, -1 unknown) of the first alone."""

    train: NDArray[Any]
    labels: Labels
    test: NDArray[Any]


_ATTACKERS = {attacker.name: attacker for attacker in PAPER}
for _attacker in PAPER:
    _attacker.make(0)  # so that libraries are imported before the clock starts


def attack(given: Halves, *, seed: int, attacker: str) -> NDArray[np.int8]:
    """Guess the private label of every test row."""
    return _ATTACKERS[attacker].attack(given.train, given.labels, given.test, seed=seed)


def attack_plain(given: Halves, *, seed: int, attacker: str) -> NDArray[np.int8]:
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


def _for_each_label(make: Callable[..., Any]) -> Callable[..., NDArray[np.int8]]:
    """Return a method that trains a fresh classifier for every label, on the pictures where it is known."""

    def predict(given: Halves, *, seed: int, **arguments: Any) -> NDArray[np.int8]:
        columns = []
        for labels in given.labels.T:
            known = labels >= 0
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                fitted = make(seed, **arguments).fit(given.train[known], labels[known])
            columns.append(fitted.predict(given.test))
        return np.stack(columns, axis=1)

    return predict


linear_svm = _for_each_label(lambda seed, C: SVC(kernel="linear", C=C, random_state=seed))
rbf_svm = _for_each_label(lambda seed, C: SVC(C=C, random_state=seed))
nearest_neighbours = _for_each_label(lambda seed, neighbours: KNeighborsClassifier(neighbours))
random_forest = _for_each_label(lambda seed, trees: RandomForestClassifier(trees, random_state=seed))
neural_network = _for_each_label(
    lambda seed, units, epochs: MLPClassifier((units,), activation="tanh", max_iter=epochs, random_state=seed)
)


@dataclass(frozen=True)
class ScaledCovariances:
    """Covariances of every feature, at unit variance, with the public and the private attribute, (d,) each."""

    public: NDArray[np.float64]
    private: NDArray[np.float64]


def library(given: LabelledRows, *, seed: int, components: int) -> NDArray[np.float64]:
    """Return the directions of a whole fit at lambda = 1, (d, components)."""
    return PPLS(components).fit(given.features, given.public, given.private).weights_


def dense(given: ScaledCovariances, *, seed: int) -> NDArray[np.float64]:
    """Return the first direction alone, (d, 1): the leading eigenvector of the d x d matrix of Algorithm 1, step 3."""
    matrix = np.outer(given.public, given.public) - np.outer(given.private, given.private)
    last = len(matrix) - 1
    _, vectors = eigh(matrix, subset_by_index=(last, last), overwrite_a=True, check_finite=False)
    return np.asarray(vectors)
