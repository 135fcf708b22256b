"""ITQ against faiss, scipy, scikit-learn and the paper's formulas."""

import faiss
import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from blindsight.errors import InputError
from blindsight.search.codes import pack, unpack
from blindsight.search.evaluation import evaluate_codes
from blindsight.search.itq import ITQ, itq_rotation, principal_directions, procrustes, project


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)[:1200], y[:1200]


def test_directions_are_those_of_scikit_learn_and_procrustes_is_that_of_scipy(digits):
    X, _ = digits
    mean, directions = principal_directions(X, 10)
    oracle = PCA(10, svd_solver="full").fit(X.astype(np.float64)).components_.T
    np.testing.assert_allclose(np.abs(oracle.T @ directions), np.eye(10), atol=1e-4)
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(project(X, mean, directions), (X - mean) @ directions, atol=1e-5)
    rng = np.random.default_rng(0)
    V, B = rng.normal(size=(50, 8)), np.sign(rng.normal(size=(50, 8)))
    np.testing.assert_allclose(procrustes(B, V), orthogonal_procrustes(V, B)[0], atol=1e-5)


def test_directions_survive_features_of_very_different_scale():
    rng = np.random.default_rng(1)
    scales = np.array([1e4, 1.0, 1e-1])  # variances from 1e8 to 1e-2: more than single precision holds in one sum
    X = (rng.normal(size=(3_000, 3)) * scales).astype(np.float32)
    _, directions = principal_directions(X, 3)
    oracle = np.linalg.eigh(np.cov(X.astype(np.float64).T))[1][:, ::-1]
    np.testing.assert_allclose(np.abs((oracle * directions).sum(axis=0)), 1, atol=1e-5)


def test_the_loss_never_rises_and_is_that_of_the_rotation_returned(digits):
    X, _ = digits
    V = 5 * project(X, *principal_directions(X, 24))
    rotation, losses = itq_rotation(V, 30, np.random.default_rng(2))
    assert losses.shape == (30,)
    assert (np.diff(losses) <= 1e-5 * losses[0]).all()
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(24), atol=1e-4)
    scores = V @ rotation
    final = float(((np.where(scores >= 0, 1, -1) - scores) ** 2).sum())
    # The signs are refitted after the last rotation, which can only help.
    assert losses[-1] * 0.99 < final <= losses[-1] * (1 + 1e-5)


def test_each_iteration_is_the_published_one_and_codes_are_signs_of_rotated_components(digits):
    X, _ = digits
    mean, directions = principal_directions(X, 12)
    V = project(X, mean, directions)
    R = itq_rotation(V, 0, np.random.default_rng(3))[0].astype(np.float64)
    B = np.where(V @ R >= 0, 1.0, -1.0)
    R = orthogonal_procrustes(V.astype(np.float64), B)[0]
    learner = ITQ(12, iterations=1, random_state=3).fit(X)  # one: later ones may follow another sign at rounding
    np.testing.assert_allclose(learner.function_.scores(X), (X - mean) @ directions @ R, atol=1e-3)
    assert learner.losses_[-1] == pytest.approx(float(((B - V @ R) ** 2).sum()), rel=1e-4)


@pytest.mark.parametrize("bits", [16, 32])
def test_codes_of_itq_find_more_than_those_of_faiss_and_of_a_random_rotation(digits, bits):
    X, y = digits

    def precision(codes):
        return evaluate_codes(codes[:200], codes[200:], y[:200], y[200:], bits=bits).mean_average_precision

    other = faiss.ITQTransform(X.shape[1], bits, True)
    other.train(X[200:])
    ours, unrefined = (
        np.mean([precision(ITQ(bits, turns, random_state=seed).fit(X[200:]).transform(X)) for seed in range(4)])
        for turns in (50, 0)
    )
    assert ours > precision(pack(other.apply(X) >= 0))
    assert ours > unrefined


def test_constant_and_repeated_features_do_no_harm(digits):
    X, _ = digits
    padded = np.hstack([X, np.full((len(X), 3), 0.1), X[:, :10]]).astype(np.float32)
    assert principal_directions(padded, 77)[1].shape[1] == principal_directions(X, 64)[1].shape[1] < 64
    function = ITQ(16).fit(padded).function_
    np.testing.assert_allclose(function.matrix[64:67], 0, atol=1e-5)
    share = unpack(function(padded), function.bits).mean(axis=0)
    assert ((share > 0.02) & (share < 0.98)).all()


@pytest.mark.parametrize(
    ("X", "bits", "directions"),
    [
        (np.random.default_rng(5).normal(size=(100, 8)), 9, 8),
        (np.random.default_rng(5).normal(size=(10, 50)), 10, 9),
        (np.tile([[0.1, 0.7, 1e6]], (20, 1)), 1, 0),
        (np.outer(np.arange(30), [0.1, 0.3, 0.7]) + 0.1, 2, 1),
    ],
)
def test_more_bits_than_directions_are_refused(X, bits, directions):
    with pytest.raises(InputError, match=f"only {directions} directions"):
        ITQ(bits).fit(X)
