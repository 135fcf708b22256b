"""Clusters found together are those of the pooled data, under every scheme, and survive on disk."""

import numpy as np
import pytest

from blindsight.errors import CorruptFileError, InputError
from blindsight.learn.clustering import ClusterModel, inertia
from blindsight.learn.kmeans import FederatedKMeans
from blindsight.rounds import Sums
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums import DpheOptions

CLUSTERS, D = 4, 16


def blobs(n, seed):
    generator = np.random.default_rng(seed)
    centres = 4 * np.random.default_rng(7).normal(size=(CLUSTERS, D))
    groups = generator.integers(CLUSTERS, size=n)
    return centres[groups] + generator.normal(size=(n, D)), groups


OWNERS = [blobs(50, seed)[0] for seed in (1, 2, 3)]
PUBLIC, TEST = blobs(12, 8)[0], blobs(300, 9)
FAST = DpheOptions(key_bits=1024, insecure=True, minimum_per_position=1)
DENSE = Sums(scheme="plain", share=1.0)


def test_clusters_of_all_owners_are_found_together():
    clusters = FederatedKMeans(CLUSTERS, Sums(scheme="plain", share=0.5)).fit(OWNERS, public=PUBLIC, validation=TEST)
    assert clusters.score(*TEST) > 0.95
    assert clusters.history_[-1].score == pytest.approx(clusters.score(*TEST))
    assert clusters.cluster_centers_.shape == (CLUSTERS, D)


def test_dense_rounds_are_lloyds_algorithm_on_the_pooled_data():
    clusters = FederatedKMeans(CLUSTERS, DENSE, rounds=10).fit(OWNERS, public=PUBLIC)
    standardised = clusters.model_.standardiser.apply(np.vstack(OWNERS))
    groups = clusters.predict(np.vstack(OWNERS))
    means = np.array([standardised[groups == k].mean(axis=0) for k in range(CLUSTERS)])
    np.testing.assert_allclose(clusters.cluster_centers_, means, atol=1e-3)
    assert inertia(means, standardised) <= inertia(clusters.cluster_centers_, standardised) + 1e-6


def test_every_scheme_finds_the_same_clusters_bit_for_bit():
    found = [
        FederatedKMeans(
            CLUSTERS, Sums(scheme=scheme, share=0.5, options=FAST if "dphe" in scheme else None), rounds=2
        ).fit(OWNERS, public=PUBLIC)
        for scheme in SCHEMES
    ]
    for clusters in found:
        assert (clusters.cluster_centers_ == found[0].cluster_centers_).all()


def test_one_owner_alone_gets_labels_and_a_statement_that_nothing_was_shared():
    clusters = FederatedKMeans(CLUSTERS).fit(OWNERS[0])
    assert (clusters.labels_ == clusters.predict(OWNERS[0])).all()
    assert "shared nothing" in clusters.statement_.mechanism


def test_clustering_resumes(tmp_path):
    FederatedKMeans(CLUSTERS, sums="plain", rounds=2).fit(OWNERS, public=PUBLIC, checkpoint=tmp_path)
    resumed = FederatedKMeans(CLUSTERS, sums="plain", rounds=4).fit(OWNERS, public=PUBLIC, checkpoint=tmp_path)
    whole = FederatedKMeans(CLUSTERS, sums="plain", rounds=4).fit(OWNERS, public=PUBLIC)
    assert (resumed.cluster_centers_ == whole.cluster_centers_).all()
    with pytest.raises(InputError, match="another run"):
        FederatedKMeans(3, sums="plain").fit(OWNERS, public=PUBLIC, checkpoint=tmp_path)


def test_saved_clusters_answer_as_before(tmp_path):
    clusters = FederatedKMeans(CLUSTERS, sums="plain", rounds=2).fit(OWNERS, public=PUBLIC)
    path = tmp_path / "clusters.npz"
    clusters.model_.save(path)
    assert (ClusterModel.load(path).predict(TEST[0]) == clusters.predict(TEST[0])).all()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptFileError):
        ClusterModel.load(path)


@pytest.mark.parametrize(
    ("options", "people", "words"),
    [
        ({}, OWNERS[:2], "got 2"),
        ({}, {"ann": OWNERS[0], "bob": OWNERS[1][:, :5], "cem": OWNERS[2]}, "bob: .*16 columns"),
        ({}, [OWNERS[0], OWNERS[1] * np.nan, OWNERS[2]], "member 2: .*finite"),
        ({"n_clusters": 13}, OWNERS, "n_clusters"),
        ({"n_clusters": 0}, OWNERS, "n_clusters"),
    ],
)
def test_bad_input_is_refused(options, people, words):
    with pytest.raises(InputError, match=words):
        FederatedKMeans(**{"n_clusters": CLUSTERS, "sums": "plain"} | options).fit(people, public=PUBLIC)
