"""Clustering together is Lloyd's algorithm on the pooled data; sparse, it still finds the clusters."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import adjusted_mutual_info_score

from blindsight.errors import InputError
from blindsight.learn.clustering import (
    ClusterTraining,
    assign,
    inertia,
    initial_centroids,
    local_clusters,
    next_centroids,
)

DENSE = ClusterTraining(sparsify="none", batch_size=10**6)
ALL = [
    DENSE,
    ClusterTraining(),
    ClusterTraining(sparsify="blocks", block_size=6),
    ClusterTraining(batch_size=16, passes=2),
]


def blobs(n=120, seed=0, clusters=6, dimensions=60, informative=6):
    """Clusters that differ in a few features only, each in its own, around a common mean of zero."""
    generator = np.random.default_rng(seed)
    centres = np.zeros((clusters, dimensions))
    for k in range(clusters):
        centres[k, k * informative : (k + 1) * informative] = 4
    labels = generator.integers(clusters, size=n)
    X = centres[labels] + 0.5 * generator.normal(size=(n, dimensions))
    return X - centres.mean(axis=0), labels


def one_round(shared, owners, training, seed=0):
    sent = [local_clusters(shared, X, training, random_state=seed + i).sent for i, X in enumerate(owners)]
    return next_centroids(shared, np.sum(sent, axis=0)), sent


def rounds(training, owners, public, count=10):
    shared = initial_centroids(public, 6, random_state=3)
    for number in range(count):
        shared, _ = one_round(shared, owners, training, seed=10 * number)
    return shared


def test_one_dense_round_is_one_step_of_lloyd_on_the_pooled_data():
    owners = [blobs(n, seed)[0] for seed, n in enumerate((30, 5, 90))]
    pooled = np.vstack(owners)
    start = initial_centroids(pooled, 6, random_state=0)
    ours, _ = one_round(start, owners, DENSE)
    nearest = np.argmin(((pooled[:, None] - start) ** 2).sum(axis=2), axis=1)
    lloyd = np.array([pooled[nearest == k].mean(axis=0) for k in range(6)])
    np.testing.assert_allclose(ours, lloyd, atol=1e-9)


def test_the_objective_never_rises_on_full_batches():
    owners = [np.random.default_rng(seed).normal(size=(60, 8)) for seed in range(3)]
    shared = initial_centroids(owners[0], 10, random_state=1)
    costs = []
    for _ in range(12):
        costs.append(inertia(shared, np.vstack(owners)))
        shared, _ = one_round(shared, owners, DENSE)
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(costs))
    assert costs[-1] < 0.9 * costs[0]


def test_federated_dense_clustering_ends_where_kmeans_ends():
    owners = [np.random.default_rng(seed).normal(size=(50, 5)) for seed in range(3)]
    start = initial_centroids(owners[0], 4, random_state=1)
    shared = start
    for _ in range(60):
        shared, _ = one_round(shared, owners, DENSE)
    oracle = KMeans(4, init=start, n_init=1, max_iter=300, tol=0).fit(np.vstack(owners))
    np.testing.assert_allclose(shared, oracle.cluster_centers_, atol=1e-6)


@pytest.mark.parametrize("training", ALL, ids=lambda t: f"{t.sparsify}-{t.batch_size}")
def test_every_way_finds_separable_clusters(training):
    owners = [blobs(seed=seed)[0] for seed in range(4)]
    public, _ = blobs(40, seed=9)
    X, labels = blobs(600, seed=20)
    found = adjusted_mutual_info_score(labels, assign(rounds(training, owners, public), X))
    peer = MiniBatchKMeans(6, random_state=0, n_init=10).fit(np.vstack(owners)).predict(X)
    assert found > 0.97
    assert found >= adjusted_mutual_info_score(labels, peer) - 0.02


@pytest.mark.parametrize("training", ALL[1:], ids=lambda t: f"{t.sparsify}-{t.batch_size}")
def test_what_is_sent_is_sparse(training):
    X, _ = blobs()
    shared = initial_centroids(blobs(40, seed=9)[0], 6, random_state=0)
    done = local_clusters(shared, X, training, random_state=0)
    assert done.sparsity >= 0.9
    assert done.sent[-6:].sum() == len(X)  # the counts are never left out


def test_counts_are_sent_even_where_they_alone_are_too_many():
    done = local_clusters(np.eye(3), np.eye(3), ClusterTraining(), random_state=0)
    assert done.sent[-3:].tolist() == [1, 1, 1]


def test_owners_count_by_their_samples_and_those_without_any_do_not_count():
    shared = np.array([[0.0, 0.0], [100.0, 0.0]])
    many, few = np.tile([1.0, 0.0], (9, 1)), np.array([[2.0, 10.0]])
    centroids, sent = one_round(shared, [many, few], DENSE)
    np.testing.assert_allclose(centroids[0], [(9 * 1 + 2) / 10, 1.0])
    assert (sent[0].reshape(3, 2)[1] == 0).all()
    assert (centroids[1] == shared[1]).all()  # no owner has a sample there: it stays


def test_initial_centroids_are_public_samples():
    X, _ = blobs(40)
    chosen = initial_centroids(X, 6, random_state=5)
    assert all((centroid == X).all(axis=1).any() for centroid in chosen)
    assert (chosen == initial_centroids(X, 6, random_state=5)).all()


def test_later_batches_meet_the_centroids_that_earlier_ones_moved():
    shared = np.array([[0.0], [10.0]])
    X = np.repeat([[4.0], [5.1]], [30, 10], axis=0)
    in_one, in_four = (
        local_clusters(shared, X, ClusterTraining(sparsify="none", batch_size=size), random_state=0).sent[-2:]
        for size in (40, 10)
    )
    assert in_one.tolist() == [30, 10]
    assert in_four[0] > 30  # the first centroid came nearer to the samples at 5.1


def test_same_seed_same_update():
    X, _ = blobs()
    shared = initial_centroids(X, 6, random_state=0) + 1.0
    first, second = (local_clusters(shared, X, ClusterTraining(batch_size=10), random_state=1).sent for _ in range(2))
    assert (first == second).all()


def test_bad_input_is_refused():
    X, _ = blobs(5)
    with pytest.raises(InputError, match="6"):
        initial_centroids(X, 6)
    with pytest.raises(InputError, match="features"):
        local_clusters(np.zeros((2, 60)), np.full((3, 60), np.nan), DENSE)
    with pytest.raises(InputError, match=r"\(0, 60\)"):
        local_clusters(np.zeros((2, 60)), X[:0], DENSE)
    with pytest.raises(InputError, match="61"):
        assign(np.zeros((2, 61)), X)
    with pytest.raises(InputError, match="centroids"):
        local_clusters(np.full((2, 60), np.inf), X, DENSE)
    with pytest.raises(InputError, match="122"):
        next_centroids(np.zeros((2, 60)), np.zeros((2, 60)))
    with pytest.raises(InputError, match="topk"):
        ClusterTraining(sparsify="strength")
    with pytest.raises(InputError, match="sparsity"):
        ClusterTraining(sparsity=-0.1)
