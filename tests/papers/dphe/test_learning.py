"""What the paper's members send: a searched penalty passes its target, and sparse models still tell classes apart."""

import numpy as np
import pytest

from blindsight.errors import InputError, UnknownNameError
from blindsight.learn.clustering import ClusterTraining, assign, initial_centroids
from blindsight.learn.linear import LinearTraining
from blindsight.learn.model import class_signs, predict
from blindsight.papers.dphe import PublishedClassifier, PublishedKMeans
from blindsight.papers.dphe.learning import ElasticNet, penalised_clusters, penalised_update, search_strength
from blindsight.rounds import Sums
from blindsight.rounds.member import sparsity
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums import DpheOptions

CLASSES, DIMENSIONS = 4, 20
FAST = DpheOptions(key_bits=1024, insecure=True, minimum_per_position=1)


def soft(values):
    return lambda strength: np.sign(values) * np.maximum(np.abs(values) - strength, 0)


@pytest.mark.parametrize("guess", [1e-9, 0.5, 1e6])
def test_search_passes_the_target_from_any_guess(guess):
    values = np.random.default_rng(0).normal(size=5000)
    found, strength = search_strength(soft(values), 0.9, guess)
    assert 0.9 <= sparsity(found) <= 0.92
    assert (found == soft(values)(strength)).all()


def test_a_higher_target_never_gets_a_lower_strength():
    values = np.random.default_rng(0).normal(size=5000)
    strengths = [search_strength(soft(values), target, 1.0)[1] for target in (0.1, 0.5, 0.8, 0.9, 0.95, 0.99)]
    assert strengths == sorted(strengths)


def test_an_impossible_target_gives_the_sparsest():
    values = np.ones(4)

    def with_a_bias(strength):
        return np.append(soft(values)(strength), 1.0)

    found, _ = search_strength(with_a_bias, 0.9, 0.01)
    assert sparsity(found) == 0.8


def test_the_search_does_not_train_forever():
    calls = []

    def jumps(strength):
        calls.append(strength)
        return np.zeros(10) if strength > 1 else np.ones(10)

    found, strength = search_strength(jumps, 0.9, 0.3)
    assert sparsity(found) == 1
    assert 1 < strength < 1.2
    assert len(calls) <= 16


def pictures(n=200, seed=0, classes=CLASSES, spread=1.5):
    generator = np.random.default_rng(seed)
    centres = spread * np.random.default_rng(99).normal(size=(classes, DIMENSIONS))
    labels = generator.integers(classes, size=n)
    return centres[labels] + 2 * generator.normal(size=(n, DIMENSIONS)), labels


def update(X, labels, net, shared=None, *, strength=None, **training):
    shared = np.zeros((CLASSES, DIMENSIONS + 1)) if shared is None else shared
    how = LinearTraining(sparsify="none", **training)
    signs = class_signs(labels, CLASSES)
    return penalised_update(shared, X, signs, how, net, strength=strength, random_state=0)


def test_the_elastic_net_around_the_average_leaves_most_weights_exactly_alone():
    X, labels = pictures()
    shared = np.random.default_rng(1).normal(size=(CLASSES, DIMENSIONS + 1)).astype(np.float32).astype(float)
    net = ElasticNet(target="update", sparsity=0.8)
    sent, strength = update(X, labels, net, shared)
    assert 0.8 <= sparsity(sent) < 1
    assert strength > 0
    again, same = update(X, labels, net, shared, strength=strength)
    assert (again == sent).all()
    assert same == pytest.approx(strength)


def test_the_papers_target_is_a_sparse_classifier_that_still_classifies():
    X, labels = pictures(400)
    sent, _ = update(X, labels, ElasticNet(sparsity=0.5), passes=30)
    assert sparsity(sent) >= 0.5
    assert (predict(sent, X) == labels).mean() > 0.8


def test_the_papers_target_has_its_elastic_net_and_no_ridge():
    X, labels = pictures()
    first, second = (update(X, labels, ElasticNet(), ridge=ridge)[0] for ridge in (0.0, 5.0))
    assert (first == second).all()


def test_a_stronger_wish_for_sparsity_gets_a_stronger_penalty():
    X, labels = pictures()
    found = [update(X, labels, ElasticNet(target="update", sparsity=s)) for s in (0.2, 0.5, 0.8, 0.9)]
    assert [strength for _, strength in found] == sorted(strength for _, strength in found)
    assert [sparsity(sent) for sent, _ in found] == sorted(sparsity(sent) for sent, _ in found)


def test_a_classifier_of_an_unseen_class_keeps_the_largest_shared_weights():
    X, labels = pictures()
    seen = labels != 2
    shared = np.random.default_rng(1).normal(size=(CLASSES, DIMENSIONS + 1))
    sent, _ = update(X[seen], labels[seen], ElasticNet(), shared)
    kept = sent[2] != 0
    assert (sent[2][kept] == shared[2][kept]).all()
    assert sparsity(sent) >= 0.85
    difference, _ = update(X[seen], labels[seen], ElasticNet(target="update"), shared)
    assert (difference[2] == 0).all()


def test_a_member_with_one_class_sends_nothing_and_does_not_fail():
    X, _ = pictures(5)
    sent, _ = update(X, np.full(5, 1), ElasticNet(target="update"), np.ones((CLASSES, DIMENSIONS + 1)))
    assert (sent == 0).all()


def blobs(n=120, seed=0, clusters=6, dimensions=60, informative=6):
    """Clusters that differ in a few features only, each in its own, around a common mean of zero."""
    generator = np.random.default_rng(seed)
    centres = np.zeros((clusters, dimensions))
    for k in range(clusters):
        centres[k, k * informative : (k + 1) * informative] = 4
    labels = generator.integers(clusters, size=n)
    X = centres[labels] + 0.5 * generator.normal(size=(n, dimensions))
    return X - centres.mean(axis=0), labels


def test_sparse_centroids_are_soft_thresholded_means():
    X, _ = blobs()
    shared = initial_centroids(X, 6, random_state=0)
    training = ClusterTraining(sparsify="none", sparsity=0.8, batch_size=10**6)
    sent, strength = penalised_clusters(shared, X, training, "centroids", random_state=0)
    for k in range(6):
        mean = X[assign(shared, X) == k].mean(axis=0)
        wanted = np.sign(mean) * np.maximum(np.abs(mean) - strength, 0)
        np.testing.assert_allclose(sent[:-6].reshape(6, -1)[k], wanted, atol=1e-9)


@pytest.mark.parametrize("target", ["centroids", "update"])
def test_what_is_sent_of_clusters_is_sparse_but_for_the_counts(target):
    X, _ = blobs()
    shared = initial_centroids(blobs(40, seed=9)[0], 6, random_state=0)
    sent, _ = penalised_clusters(shared, X, ClusterTraining(sparsify="none"), target, random_state=0)
    assert sparsity(sent) >= 0.9
    assert sent[-6:].sum() == len(X)


def test_a_member_without_samples_keeps_the_largest_of_the_shared_centroid():
    shared = np.zeros((2, 20))
    shared[1, :3] = [50.0, 40.0, 0.1]
    training = ClusterTraining(sparsify="none", sparsity=0.9)
    sent, _ = penalised_clusters(shared, np.full((3, 20), 0.2), training, "centroids", random_state=0)
    assert sent[20:23].tolist() == [50.0, 40.0, 0.1]
    assert sent[-2:].tolist() == [3, 0]


# The estimators


def data(n, seed):
    generator = np.random.default_rng(seed)
    y = np.concatenate([np.arange(4), generator.integers(4, size=n - 4)])
    centres = 4 * np.random.default_rng(7).normal(size=(4, 16))
    return centres[y] + generator.normal(size=(n, 16)), y


MEMBERS, PUBLIC, TEST = [data(50, seed) for seed in (1, 2, 3)], data(12, 8), data(300, 9)


def sums(scheme):
    return Sums(scheme=scheme, options=FAST if "dphe" in scheme else None)


def test_the_papers_way_averages_sparse_classifiers():
    classifier = PublishedClassifier(sums("dphe"), sparsity=0.5, rounds=3)
    classifier.fit(MEMBERS, public=PUBLIC, validation=TEST)
    assert all(report.sparsity >= 0.5 for report in classifier.history_)
    assert (classifier.coef_ == 0).mean() > 0.1  # a mean of sparse classifiers has zeros where all of them have
    assert classifier.score(*TEST) > 0.6


def test_the_papers_way_averages_sparse_centroids():
    clusters = PublishedKMeans(4, "plain", sparsity=0.3)
    clusters.fit([X for X, _ in MEMBERS], public=PUBLIC[0], validation=TEST)
    assert all(report.sparsity >= 0.3 for report in clusters.history_)
    assert clusters.score(*TEST) > 0.9


@pytest.mark.parametrize("selection", ["blocks", "topk", "strength"])
def test_every_scheme_gives_the_same_model_bit_for_bit(selection):
    how = {"target": "update", "selection": selection, "sparsity": 0.6, "rounds": 2}
    how |= {"block_size": Sums(scheme="block-dphe", options=FAST).block_size}
    found = [PublishedClassifier(sums(scheme), **how).fit(MEMBERS, public=PUBLIC).model_ for scheme in SCHEMES]
    assert all((model.weights == found[0].weights).all() for model in found)


@pytest.mark.parametrize("kind", [PublishedClassifier, PublishedKMeans])
def test_the_strength_is_remembered_in_a_checkpoint(tmp_path, kind):
    members = MEMBERS if kind is PublishedClassifier else [X for X, _ in MEMBERS]
    public = PUBLIC if kind is PublishedClassifier else PUBLIC[0]

    def model(rounds, folder=None):
        made = kind(sums="plain", sparsity=0.5, rounds=rounds).fit(members, public=public, checkpoint=folder).model_
        return made.weights if kind is PublishedClassifier else made.centroids

    model(2, tmp_path)
    assert (model(4, tmp_path) == model(4)).all()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"target": "model"}, "model"),
        ({"selection": "random"}, "random"),
        ({"selection": "topk"}, "strength"),
        ({"sparsity": 1.0}, "sparsity"),
        ({"sums": "dphe"}, "minimum_per_position"),
        ({"sums": Sums(scheme="dphe", options=DpheOptions(minimum_per_position=2))}, "minimum_per_position"),
    ],
)
def test_bad_settings_are_refused(wrong, named):
    with pytest.raises(InputError, match=named):
        PublishedClassifier(**{"sums": "plain"} | wrong).fit(MEMBERS, public=PUBLIC)


def test_an_unknown_target_of_clusters_is_refused():
    with pytest.raises(UnknownNameError, match="classifier"):
        PublishedKMeans(4, "plain", target="classifier").fit([X for X, _ in MEMBERS], public=PUBLIC[0])
