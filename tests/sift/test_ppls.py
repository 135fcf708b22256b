"""PPLS against the dense eigensolver and PLS, its stated covariances, its invariances, and all ways to feed it."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.cross_decomposition import PLSRegression

from blindsight.errors import InputError
from blindsight.sift.ppls import PPLS, FewerComponentsWarning, leading_direction


def sample(n=400, d=30, public=1, private=1, seed=0):
    """Features that tell of correlated attributes, each on its own scale and far from zero."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, public + private)) + 0.5 * rng.normal(size=(n, 1))
    labels = (latent > rng.normal(0, 0.3, public + private)).astype(np.int8)
    X = latent @ rng.normal(size=(public + private, d)) + rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) / 4
    X = X * rng.uniform(0.1, 10, d) + rng.normal(0, 5, d)
    return X, labels[:, :public], labels[:, public:]


def standard(columns):
    return (columns - columns.mean(axis=0)) / columns.std(axis=0)


def dense_ppls(X, public, private, count, privacy, combine):
    """Algorithm 1 word for word, with d x d matrices, on centred and scaled columns."""
    Z, n = standard(X), len(X)
    S, C = Z.T @ standard(public) / n, Z.T @ standard(private) / n
    if combine == "paper":
        S, C = S.mean(axis=1, keepdims=True), C.mean(axis=1, keepdims=True)
    found, loadings = [], []
    for j in range(count):
        if j:
            P = np.column_stack(loadings)
            S = S - P @ np.linalg.inv(P.T @ P) @ P.T @ S
        M = S @ S.T / S.shape[1] - privacy * C @ C.T / C.shape[1]
        w = np.linalg.eigh(M)[1][:, -1]
        found.append(w)
        loadings.append(Z.T @ (Z @ w) / (w @ Z.T @ Z @ w))
    return np.column_stack(found)


def misalignment(A, B):
    """1 - |cos| of the worst pair of columns."""
    cosines = np.abs((A * B).sum(axis=0)) / np.linalg.norm(A, axis=0) / np.linalg.norm(B, axis=0)
    return 1 - cosines.min()


@settings(deadline=None, max_examples=20)
@given(
    public=st.integers(1, 3),
    private=st.integers(1, 3),
    privacy=st.floats(0, 20),
    combine=st.sampled_from(["mean-of-squares", "paper"]),
    seed=st.integers(0, 50),
)
def test_the_low_rank_solution_is_that_of_the_dense_eigensolver(public, private, privacy, combine, seed):
    X, y, z = sample(public=public, private=private, seed=seed)
    fitted = PPLS(4, privacy, combine=combine).fit(X, y, z)
    assert misalignment(fitted.weights_, dense_ppls(X, y, z, 4, privacy, combine)) <= 1e-8
    assert np.linalg.norm(fitted.weights_, axis=0) == pytest.approx(np.ones(4), abs=1e-8)  # w'w = 1


@pytest.mark.parametrize("seed", range(2))
def test_without_privacy_it_is_partial_least_squares(seed):
    X, y, z = sample(seed=seed)
    theirs = PLSRegression(5, scale=True).fit(X, y.astype(float))
    assert misalignment(standard(X) @ PPLS(5, 0.0).fit(X, y, z).weights_, theirs.x_scores_) <= 1e-8
    X, y, z = sample(public=3, seed=seed)
    scores = standard(X) @ PPLS(5, 0.0).fit(X, y, z).weights_
    assert np.corrcoef(scores.T) == pytest.approx(np.eye(5), abs=1e-7)  # of many public attributes


@settings(deadline=None, max_examples=12)
@given(privacy=st.one_of(st.floats(0, 100), st.just(math.inf)), seed=st.integers(0, 50))
def test_each_released_number_has_the_stated_covariances(privacy, seed):
    X, y, z = sample(public=2, private=2, seed=seed)
    fitted = PPLS(3, privacy).fit(X, y, z)
    scores = standard(X) @ fitted.weights_
    assert fitted.private_covariance_ == pytest.approx(scores.T @ standard(z) / len(X), abs=1e-8)
    assert fitted.public_covariance_ == pytest.approx(scores.T @ standard(y) / len(X), abs=1e-8)
    assert fitted.transform(X) == pytest.approx(scores, abs=1e-4)  # the frozen sift is float32


def test_infinite_privacy_leaves_no_covariance_and_still_tells():
    X, y, z = sample(public=1, private=3, d=40)
    fitted = PPLS(5, math.inf).fit(X, y, z)
    assert np.abs(fitted.private_covariance_).max() <= 1e-8
    assert np.abs(fitted.public_covariance_[0, 0]) > 0.1
    released = fitted.transform(X).astype(np.float64)
    assert np.abs(standard(released).T @ standard(z)).max() / len(X) <= 1e-4
    assert misalignment(PPLS(3, 1e9).fit(X, y, z).weights_, fitted.weights_[:, :3]) <= 1e-5  # the limit of large ones


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 1000), private=st.integers(1, 3))
def test_more_privacy_never_means_more_private_covariance(seed, private):
    X, y, z = sample(private=private, seed=seed)
    grid = [0, 0.1, 0.3, 1, 3, 10, 100, math.inf]
    leaks = [np.sum(PPLS(1, privacy).fit(X, y, z).private_covariance_ ** 2) for privacy in grid]
    assert (np.diff(leaks) <= 1e-8).all()


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 50), privacy=st.sampled_from([0.5, 1.0, math.inf]), data=st.data())
def test_neither_the_scale_of_features_nor_the_coding_of_labels_matters(seed, privacy, data):
    X, y, z = sample(public=2, private=2, seed=seed)
    factors = data.draw(st.lists(st.floats(1e-3, 1e3), min_size=30, max_size=30))
    shifts = data.draw(st.lists(st.floats(-100, 100), min_size=30, max_size=30))
    flips = np.array(data.draw(st.lists(st.booleans(), min_size=4, max_size=4)), dtype=np.int8)
    weights = PPLS(3, privacy).fit(X, y, z).weights_
    rescaled = PPLS(3, privacy).fit(X * factors + shifts, y ^ flips[:2], z ^ flips[2:])
    assert rescaled.weights_ == pytest.approx(weights, abs=1e-6)


def test_the_papers_average_cancels_and_the_mean_of_squares_does_not():
    X, y, z = sample(public=1, private=2, seed=4)
    opposed = z ^ np.array([0, 1], dtype=np.int8)
    paper = [PPLS(1, math.inf, combine="paper").fit(X, y, coded) for coded in (z, opposed)]
    assert misalignment(paper[0].weights_, paper[1].weights_) > 1e-3  # the answer depends on yes or no
    assert max(np.abs(fit.private_covariance_).max() for fit in paper) > 0.1  # and leaks
    assert np.abs(PPLS(1, math.inf).fit(X, y, opposed).private_covariance_).max() < 1e-8


def test_one_common_scale_keeps_the_shape_of_principal_components():
    X, y, z = sample()
    centred = X - X.mean(axis=0)
    whitened = np.linalg.svd(centred, full_matrices=False)[0] * math.sqrt(len(X))
    with pytest.warns(FewerComponentsWarning, match="only 2 of 5"):
        assert PPLS(5).fit(whitened, y, z).sift_.width == 2  # d+ + d-
    principal = centred @ np.linalg.svd(centred, full_matrices=False)[2].T
    with pytest.warns(FewerComponentsWarning):
        PPLS(5).fit(principal, y, z)
    assert PPLS(5, scale=False).fit(principal, y, z).sift_.width == 5


def test_streams_and_sparse_features_give_the_same_sift():
    X, y, z = sample(public=2, private=2)
    X[np.abs(X - X.mean(axis=0)) < X.std(axis=0)] = 0
    whole = PPLS(3).fit(X, y, z).weights_
    spans = [slice(0, 50), slice(50, 51), slice(51, 300), slice(300, 400)]
    stream = PPLS(3).fit_stream(lambda: ((X[s], y[s], z[s]) for s in spans))
    mixed = PPLS(3).fit_stream(lambda: [(X[:99], y[:99], z[:99]), (sparse.csc_matrix(X[99:]), y[99:], z[99:])])
    piecewise = PPLS(3)
    for s in spans:
        piecewise.partial_fit(sparse.csr_array(X[s]) if s.start else X[s], y[s], z[s])
    for other in (stream, mixed, piecewise, PPLS(3).fit(sparse.csr_matrix(X), y, z)):
        assert other.weights_ == pytest.approx(whole, abs=1e-6)
    assert PPLS(3).fit(X.astype(np.float32), y, z).weights_ == pytest.approx(whole, abs=1e-4)


def test_one_pass_over_many_features_is_exact_or_refused_and_no_square_matrix_is_made():
    rng = np.random.default_rng(0)
    X, y, z = rng.normal(size=(60, 5000)), rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    one = PPLS(1).partial_fit(X[:30], y[:30], z[:30]).partial_fit(X[30:], y[30:], z[30:])
    assert one.weights_ == pytest.approx(PPLS(1).fit(X, y, z).weights_, abs=1e-7)
    with pytest.raises(InputError, match="5000 x 5000"):
        PPLS(2).partial_fit(X, y, z)
    tracemalloc.start()
    PPLS(5).fit(X.astype(np.float32), y, z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6  # 5,000 x 5,000 would be 200 MB


def test_features_far_from_zero_lose_no_digits_and_constant_ones_get_no_weight():
    X, y, z = sample()
    near = (X - X.mean(axis=0)) / X.std(axis=0)
    far = (near + 3000).astype(np.float32)
    weights = PPLS(3).fit(near, y, z).weights_
    assert misalignment(PPLS(3).fit(far, y, z).weights_, weights) < 1e-4
    fitted = PPLS(3).fit(np.column_stack([near, np.full(len(X), 1234.5678)]), y, z)
    assert (fitted.weights_[-1] == 0).all()
    assert fitted.weights_[:-1] == pytest.approx(weights, abs=1e-7)


def test_unknown_labels_leave_a_row_out_of_that_attribute_only():
    X, y, z = sample(n=600)
    gappy = z.copy()
    gappy[:150] = -1
    fitted = PPLS(1, math.inf).fit(X, y, gappy)
    Z = standard(X)
    public, private = Z.T @ standard(y) / 600, Z[150:].T @ standard(z[150:]) / 450
    assert misalignment(fitted.weights_, leading_direction(public, private, math.inf)[:, None]) < 1e-8
    assert fitted.private_covariance_ == pytest.approx(np.zeros((1, 1)), abs=1e-8)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda X, y, z: (X * np.nan, y, z), "NaN"),
        (lambda X, y, z: (np.where(X.max() - 1 < X, np.inf, X), y, z), "infinite"),
        (lambda X, y, z: (X[:5], y[:5], z[:5]), "more samples"),
        (lambda X, y, z: (X, y * 0, z), "public attribute 0"),
        (lambda X, y, z: (X, y, z * 0 + 1), "private attribute 0"),
        (lambda X, y, z: (X, y, z * 0 - 1), "private attribute 0"),
        (lambda X, y, z: (X, y + 1, z), "must be 1"),
        (lambda X, y, z: (X, y, z[:-1]), "row"),
        (lambda X, y, z: (X * 0, y, z), "varies"),
        (lambda X, y, z: (X, y, y), "no direction"),
        (lambda X, y, z: (X[0], y, z), "shape"),
    ],
)
def test_bad_data_are_refused(change, named):
    with pytest.raises(InputError, match=named):
        PPLS(5).fit(*change(*sample()))


def test_bad_parameters_and_batches_are_refused_and_cost_nothing():
    X, y, z = sample()
    for name, value in (("n_components", 0), ("privacy", -1.0), ("privacy", math.nan), ("combine", "papr")):
        with pytest.raises(InputError, match=name):
            PPLS(**{name: value}).fit(X, y, z)
    learner = PPLS(3).partial_fit(X, y, z)
    for rows, public, named in ((X, np.hstack([y, y]), "attributes"), (X[:, 1:], y, "30"), (X * np.nan, y, "NaN")):
        with pytest.raises(InputError, match=named):
            learner.partial_fit(rows, public, z)
    again = learner.partial_fit(X, y, z)  # the same data twice: the same sift, up to rounding
    assert again.weights_ == pytest.approx(PPLS(3).fit(X, y, z).weights_, abs=1e-6)
    lengths = iter([400, 300])  # a stream that changes between passes
    with pytest.raises(InputError, match="300"):
        PPLS(3).fit_stream(lambda: [(X[:rows], y[:rows], z[:rows]) for rows in (next(lengths),)])
    with pytest.raises(InputError, match="no batches"):
        PPLS(3).fit_stream(list)


def test_it_is_an_estimator_and_its_sift_knows_its_pipeline():
    learner = clone(PPLS(2, 3.0, pipeline="pixels"))
    sift = learner.fit(*sample()).sift_
    assert learner.get_params()["privacy"] == 3.0
    sift.check_pipeline("pixels")
    with pytest.raises(InputError, match="rows of 30"):
        learner.transform(np.zeros((2, 29)))
