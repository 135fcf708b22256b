"""Learning from several owners' pictures: together, alone, in one place, with the papers' noise or a proven epsilon.

All schemes give the same sums bit for bit, so accuracies are measured with "plain" sums. Noise comes from the operating
system, whatever the seed.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from blindsight.crypto.encoding import SlotPacking
from blindsight.data.features import Standardiser
from blindsight.dp.accounting import LaplaceLoss, epsilon_of, gaussian_sigma
from blindsight.dp.mechanisms import GaussianMechanism
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.kmeans import FederatedKMeans
from blindsight.learn.model import Attributes, Classes, Labels, decision_function
from blindsight.learn.private import PrivateLearner, PublicSpace, Records, public_start, targets
from blindsight.papers.dphe import PublishedClassifier, PublishedKMeans, baselines
from blindsight.rounds import Privacy, Sums
from blindsight.rounds.task import SLOT_BITS
from blindsight.sums.terms import threshold

Floats = NDArray[np.float32]
Pair = tuple[Floats, NDArray[np.int64]]
Scores = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class OwnersData:
    """Features and labels of the public and of every owner; of the test pictures the features only.

    Labels are classes 0, 1, ... (n,) or attributes (n, a). Methods answer with the scores (n, classes or attributes)
    of the test pictures, or with one such array for each of several models.
    """

    public: Pair
    owners: tuple[Pair, ...]
    test: Floats

    @property
    def multilabel(self) -> bool:
        """Tell whether labels are attributes."""
        return self.public[1].ndim == 2

    @property
    def labels(self) -> Labels:
        """What the labels say."""
        y = self.public[1]
        return Attributes(y.shape[1]) if self.multilabel else Classes(np.unique(y))

    @property
    def everyone(self) -> Pair:
        """All training data in one place."""
        return _joined((self.public, *self.owners))

    @property
    def with_public(self) -> list[Pair]:
        """Each owner's data with the public data added, as the paper does for methods without an initial model."""
        return [_joined((self.public, owner)) for owner in self.owners]


def _joined(pairs: tuple[Pair, ...]) -> Pair:
    X, y = map(np.concatenate, zip(*pairs, strict=True))
    return X, y


def pooled(given: OwnersData, *, seed: int, C: float) -> NDArray[np.float64]:
    """Learn from everything: no privacy."""
    return _scores(given, given.everyone, C, seed)


def alone(given: OwnersData, *, seed: int, C: float) -> NDArray[np.float64]:
    """Let every owner learn from its own and the public data, and share nothing: one model per owner."""
    return np.stack([_scores(given, pair, C, seed) for pair in given.with_public])


def _scores(given: OwnersData, train: Pair, C: float, seed: int) -> NDArray[np.float64]:
    """Return the scores (n, classes or attributes); the public data have examples of every class."""
    scaler, y = StandardScaler().fit(train[0]), train[1]
    X, unseen = scaler.transform(train[0]), scaler.transform(given.test)
    machines = [LinearSVC(C=C, random_state=seed).fit(X, answers) for answers in (y.T if given.multilabel else [y])]
    return np.column_stack([machine.decision_function(unseen) for machine in machines])


def federated(given: OwnersData, *, seed: int, **parameters: Any) -> Scores:
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
    sums, published, others = _split(parameters)
    made = {"multilabel": given.multilabel, "random_state": seed, **others}
    learner = PublishedClassifier(sums, **published, **made) if published else FederatedClassifier(sums, **made)
    return learner.fit(list(given.owners), public=given.public)


def _split(parameters: dict[str, Any]) -> tuple[Sums, dict[str, Any], dict[str, Any]]:
    """Return the sums, what of the parameters is of learning as published, if anything, and the others."""
    others = dict(parameters)
    named = {name: others.pop(name) for name in ("key_bits", "minimum_per_position") if name in others}
    scheme, sparsity = others.pop("scheme", "masks"), others.pop("sparsity", None)
    published: dict[str, Any] = {name: others.pop(name) for name in ("target", "selection") if name in others}
    if not published:
        return Sums.sending(scheme, sparsity=sparsity, **named), {}, others
    if "key_bits" in named:  # blocks as large as the paper's scheme has under this key
        published["block_size"] = SlotPacking.for_key(named["key_bits"], slot_bits=SLOT_BITS).slots
    if sparsity is not None:
        published["sparsity"] = sparsity
    return Sums.sending(scheme, **named), {"target": "update"} | published, others


def prr10(given: OwnersData, *, seed: int, clipped: bool, **privacy: float) -> Scores:
    """Average logistic regressions of all owners and add noise."""
    return _noisy_scores(given, baselines.prr10, clipped, privacy)


def ra12(given: OwnersData, *, seed: int, clipped: bool, **privacy: float) -> Scores:
    """Descend together by noisy gradients."""
    return _noisy_scores(given, baselines.ra12, clipped, privacy)


def _noisy_scores(given: OwnersData, learn: Any, clipped: bool, privacy: dict[str, float]) -> Scores:
    """Clip features, if at all, to the length of an average row of standardised ones."""
    standardiser = Standardiser.fit(given.public[0])
    pairs = [(standardiser.apply(X), given.labels.signs(y)) for X, y in given.with_public]
    clip = float(np.sqrt(given.test.shape[1])) if clipped else None
    return decision_function(learn(pairs, clip=clip, **privacy).weights, standardiser.apply(given.test))


def summed(given: OwnersData, *, seed: int, rounds: int, epsilon: float, delta: float, against: str) -> Scores:
    """Learn by sums with noise, calibrated `against` nobody, "one" colluder and drop-outs, or "all" other owners."""
    owners = len(given.owners)
    colluders, drop_outs = {"nobody": (0, 0), "one": (1, owners - threshold(owners)), "all": (owners - 1, 0)}[against]
    privacy = Privacy(epsilon=epsilon, delta=delta, unit="record", colluders=colluders, drop_outs=drop_outs)
    return federated(given, seed=seed, scheme="plain", rounds=rounds, privacy=privacy)


def curator(given: OwnersData, *, seed: int, rounds: int, epsilon: float, delta: float) -> Scores:
    """Descend on all records in one place, with Gaussian noise on the sum of their clipped gradients."""
    X, y = _joined(given.owners)
    standardiser, labels = Standardiser.fit(given.public[0]), given.labels
    public = standardiser.apply(given.public[0])
    space = PublicSpace.fit(public)
    privacy = Privacy(epsilon=epsilon, delta=delta, unit="record", colluders=0, drop_outs=0)
    size = labels.rows * space.size
    plan = privacy.plan(members=1, dimension=size, rounds=rounds, records=len(X), scheme="plain")
    known = Records(space.rows(public), targets(labels, given.public[1]))
    learner = PrivateLearner(labels, standardiser, space, plan, len(X), known)
    records = learner.read((X, y))
    multiplier = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0) * float(np.sqrt(rounds))
    mechanism = GaussianMechanism(sensitivity=plan.clip, sigma=multiplier * plan.clip)
    weights = learner.first(seed)
    for _ in range(rounds):
        noisy_sum = mechanism.release(learner.gradient(weights, *records))
        weights = learner.stepped(weights, noisy_sum)
    return decision_function(space.weights(weights), standardiser.apply(given.test))


def public(given: OwnersData, *, seed: int) -> Scores:
    """Learn from the public data alone, as all of these begin."""
    standardiser = Standardiser.fit(given.public[0])
    rows = standardiser.apply(given.public[0])
    space = PublicSpace.fit(rows)
    start = public_start(given.labels, space.rows(rows), targets(given.labels, given.public[1]))
    return decision_function(space.weights(start), standardiser.apply(given.test))


def proven_prr10(given: OwnersData, *, seed: int, epsilon: float, delta: float) -> Scores:
    """PRR10, features clipped, with the noise that proves epsilon for a record; the paper's own counts one weight."""
    classes, columns = given.labels.rows, given.test.shape[1] + 1
    smallest = min(len(X) for X, _ in given.with_public)
    left, right = 0.0, epsilon
    for _ in range(40):  # the epsilon of one classifier
        middle = (left + right) / 2
        fits = middle > 0 and epsilon_of([LaplaceLoss(middle, count=classes)], delta=delta) <= epsilon
        left, right = (middle, right) if fits else (left, middle)
    claimed = left * len(given.owners) / (math.sqrt(columns) * (1 + 1e-6 * smallest))
    return prr10(given, seed=seed, clipped=True, epsilon=claimed, delta=delta)


def proven_ra12(given: OwnersData, *, seed: int, epsilon: float, delta: float) -> Scores:
    """RA12, features clipped, with the noise that proves epsilon for a record; the paper's own counts one gradient."""
    rounds = 20
    multiplier = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0) * math.sqrt(rounds)
    claimed = math.sqrt(2 * math.log(1.25 / delta)) / (math.sqrt(given.labels.rows) * multiplier)
    return ra12(given, seed=seed, clipped=True, epsilon=claimed, delta=delta, rounds=rounds)


def none(given: OwnersData, *, seed: int, rounds: int) -> Scores:
    """Learn by sums without noise."""
    return federated(given, seed=seed, scheme="plain", rounds=rounds, selection="none", sparsity=0.0)


@dataclass(frozen=True)
class Unlabelled:
    """Everybody's features without any label, and how many clusters to find."""

    public: Floats
    owners: tuple[Floats, ...]
    test: Floats
    clusters: int


def federated_clusters(given: Unlabelled, *, seed: int, **parameters: Any) -> NDArray[np.int64]:
    """Find them together; return those of the test pictures."""
    sums, published, others = _split(parameters)
    if published:
        return _clusters(given, PublishedKMeans(given.clusters, sums, random_state=seed, **published, **others))
    return _clusters(given, FederatedKMeans(given.clusters, sums, random_state=seed, **others))


def _clusters(given: Unlabelled, learner: FederatedKMeans) -> NDArray[np.int64]:
    return learner.fit(list(given.owners), public=given.public).predict(given.test)


def pooled_clusters(given: Unlabelled, *, seed: int) -> NDArray[np.int64]:
    """Find them by scikit-learn's mini-batch k-means in all training data: no privacy."""
    everything = np.concatenate([given.public, *given.owners])
    scaler = StandardScaler().fit(everything)
    learner = MiniBatchKMeans(given.clusters, n_init=3, random_state=seed).fit(scaler.transform(everything))
    return np.asarray(learner.predict(scaler.transform(given.test)), dtype=np.int64)
