"""LEACE: nothing is linearly left, nothing less would do, and the published implementation agrees."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from blindsight.errors import InputError
from blindsight.sift.leace import Erasure, LeacePLS
from blindsight.sift.ppls import FewerComponentsWarning


def sample(n=500, d=12, private=2, seed=0):
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 1 + private)) + 0.5 * rng.normal(size=(n, 1))
    X = latent @ rng.normal(size=(1 + private, d)) + rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    labels = (latent > 0).astype(np.int8)
    return X - X.mean(axis=0), labels[:, :1], labels[:, 1:]


def erasure_of(X, z):
    centred = z - z.mean(axis=0)
    return Erasure.fit(X.T @ X / len(X), X.T @ centred / len(X))


def linear_guess(X, z):
    """Share of the variance of a label that the best linear predictor explains, on its own training data."""
    return LinearRegression().fit(X, z).score(X, z)


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_guess_works_before_and_not_after(seed):
    X, _, z = sample(seed=seed)
    erased = erasure_of(X, z).apply(X.T).T
    assert linear_guess(X, z) > 0.2
    assert linear_guess(erased, z) < 1e-8
    assert np.abs(erased.T @ (z - z.mean(axis=0))).max() / len(X) < 1e-8


def test_the_published_implementation_agrees():
    torch = pytest.importorskip("torch")
    leace = pytest.importorskip("concept_erasure")
    X, _, z = sample()
    fitter = leace.LeaceFitter(12, 2, dtype=torch.float64, shrinkage=False, constrain_cov_trace=False, svd_tol=1e-8)
    theirs = fitter.update(torch.from_numpy(X), torch.from_numpy(z.astype(float))).eraser.P.numpy()
    ours = erasure_of(X, z)
    assert ours.apply(np.eye(12)) == pytest.approx(theirs, abs=1e-8)
    assert ours.transposed(np.eye(12)) == pytest.approx(theirs.T, abs=1e-8)


def test_no_other_linear_erasure_moves_the_features_less():
    X, _, z = sample()
    eraser = erasure_of(X, z)
    moved = np.sum((X - eraser.apply(X.T).T) ** 2)
    cross = X.T @ (z - z.mean(axis=0))
    basis = np.linalg.qr(cross)[0]
    assert moved < np.sum((X @ basis @ basis.T) ** 2)  # the orthogonal projection
    rng = np.random.default_rng(0)
    for _ in range(50):  # every map x - left right' x with left right' C = C erases; these have left in the span of C
        right = rng.normal(size=(12, 2)) + eraser.right
        other = Erasure(cross @ np.linalg.inv(right.T @ cross), right)
        assert np.abs(other.apply(cross)).max() < 1e-8 * np.abs(cross).max()
        assert moved <= np.sum((X - other.apply(X.T).T) ** 2) * (1 + 1e-8)


def test_erasing_twice_changes_nothing_and_rank_does_not_matter():
    X, _, z = sample(private=1)
    X = np.column_stack([X, X[:, :3]])  # a singular covariance matrix
    eraser = erasure_of(X, np.hstack([z, z]))  # and a private attribute named twice
    once = eraser.apply(X.T)
    assert eraser.apply(once) == pytest.approx(once, abs=1e-7)
    assert linear_guess(once.T, z) < 1e-8
    assert np.allclose(once, erasure_of(X, z).apply(X.T), atol=1e-8)


def test_what_the_sift_releases_is_the_composition():
    X, y, z = sample()
    learner = LeacePLS(3, scale=False).fit(X + 7, y, z)
    erased = erasure_of(X, z).apply(X.T).T
    released = learner.transform(X + 7).astype(np.float64)
    assert LinearRegression().fit(erased, released).score(erased, released) == pytest.approx(1, abs=1e-7)
    assert np.abs(learner.private_covariance_).max() < 1e-8
    assert np.linalg.norm(learner.weights_, axis=0) == pytest.approx(np.ones(3))
    assert linear_guess(released, z) < 1e-7
    assert linear_guess(released, y) > 0.05
    first = erased.T @ (y - y.mean())
    assert abs(np.corrcoef(erased @ first[:, 0], released[:, 0])[0, 1]) == pytest.approx(1, abs=1e-6)  # PLS's first


def test_batches_give_the_same_sift_and_limits_are_told():
    X, y, z = sample()
    pieces = LeacePLS(3)
    for rows in (slice(0, 100), slice(100, 500)):
        pieces.partial_fit(X[rows], y[rows], z[rows])
    assert pieces.weights_ == pytest.approx(LeacePLS(3).fit(X, y, z).weights_, abs=1e-6)
    with pytest.raises(InputError, match="5000 x 5000"):
        LeacePLS().fit(np.zeros((10, 5000)), np.arange(10) % 2, np.arange(10) % 2)
    with pytest.raises(InputError, match="no direction"):
        LeacePLS().fit(X, y, y)
    with pytest.warns(FewerComponentsWarning, match="1 of 5"):
        LeacePLS().fit(X[:, :2], y, z[:, :1])
