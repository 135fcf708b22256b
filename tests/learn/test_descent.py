"""The minimiser against independent ones: liblinear, saga and brute force, on problems small enough to check."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from blindsight.errors import InputError
from blindsight.learn.linear import Problem, descend, margin_loss


def two_classes(n=120, d=6, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, d))
    y = np.where(X @ generator.normal(size=d) + 0.7 * generator.normal(size=n) > 0.3, 1, -1)
    return X, y


def problem(X, y, *, loss, smoothing=0.5, ridge=0.0, lasso=0.0, pull=0.0, bias=True, anchor=0.0):
    samples = np.column_stack([X, np.ones(len(X))]) if bias else X
    signs = y.reshape(len(X), -1).astype(float)
    penalised = np.ones(samples.shape[1])
    penalised[-1] = not bias
    return Problem(
        samples=samples,
        signs=signs,
        sample_weights=np.full(signs.shape, 1 / len(X)),
        loss=margin_loss(loss, smoothing),
        ridge=ridge * penalised,
        lasso=lasso * penalised,
        pull=pull * penalised,
        anchor=np.full((signs.shape[1], samples.shape[1]), anchor),
    )


def minimise(given, *, batch_size, passes=3000, tolerance=1e-7):
    start = np.zeros(given.anchor.shape)
    return descend(
        given, start, np.random.default_rng(1), passes=passes, batch_size=batch_size, tolerance=tolerance
    ).weights


@pytest.mark.parametrize("batch_size", [10, 40, 1000])
def test_squared_hinge_reaches_the_minimum_that_liblinear_finds(batch_size):
    X, y = two_classes()
    given = problem(X, y, loss="squared hinge", ridge=0.1, bias=False)
    # liblinear: |w|^2 / 2 + C sum max(0, 1 - m)^2; ours times 1 / ridge
    oracle = LinearSVC(C=1 / (2 * 0.1 * len(X)), fit_intercept=False, tol=1e-7, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(minimise(given, batch_size=batch_size), oracle.coef_, atol=1e-5)


@pytest.mark.parametrize("batch_size", [15, 1000])
def test_elastic_net_logistic_reaches_the_minimum_that_saga_finds(batch_size):
    X, y = two_classes(seed=3)
    strength = 0.08
    oracle = LogisticRegression(C=1 / (strength * len(X)), l1_ratio=0.5, solver="saga", tol=1e-7, max_iter=100_000).fit(
        X, y
    )
    given = problem(X, y, loss="logistic", lasso=0.5 * strength, pull=0.5 * strength)
    found = minimise(given, batch_size=batch_size)
    np.testing.assert_allclose(found[0, :-1], oracle.coef_[0], atol=1e-5)
    assert found[0, -1] == pytest.approx(oracle.intercept_[0], abs=1e-5)
    assert (found[0, :-1] == 0).tolist() == (oracle.coef_[0] == 0).tolist()
    assert 0 < np.count_nonzero(found[0, :-1]) < X.shape[1]  # the lasso did something, and not everything


def test_smoothed_hinge_is_within_half_its_smoothing_of_the_true_minimum():
    X, y = two_classes(seed=5)
    ridge, smoothing = 0.05, 0.02
    oracle = LinearSVC(loss="hinge", C=1 / (ridge * len(X)), fit_intercept=False, tol=1e-6, max_iter=1_000_000)
    exact = oracle.fit(X, y).coef_[0]
    found = minimise(problem(X, y, loss="hinge", smoothing=smoothing, ridge=ridge, bias=False), batch_size=60)[0]

    def hinge_objective(w):
        return np.maximum(0, 1 - y * (X @ w)).mean() + ridge / 2 * w @ w

    assert hinge_objective(exact) - 1e-6 <= hinge_objective(found) <= hinge_objective(exact) + smoothing / 2


def test_many_problems_at_once_are_the_same_as_one_by_one():
    X, y = two_classes()
    both = np.column_stack([y, np.where(X[:, 0] > 0.5, 1, -1)])
    together = minimise(problem(X, both, loss="logistic", ridge=0.05), batch_size=1000)
    apart = [minimise(problem(X, column, loss="logistic", ridge=0.05), batch_size=1000)[0] for column in both.T]
    np.testing.assert_allclose(together, apart, atol=1e-5)


def test_a_heavy_lasso_returns_the_anchor_exactly():
    X, y = two_classes()
    given = problem(X, y, loss="logistic", lasso=5.0, bias=False, anchor=0.3)
    assert (minimise(given, batch_size=30) == given.anchor).all()


def test_gradient_agrees_with_differences():
    X, y = two_classes(n=20, d=3)
    for loss in ("hinge", "squared hinge", "logistic"):
        given = problem(X, y, loss=loss, ridge=0.2, pull=0.1, anchor=0.4)
        at = np.random.default_rng(2).normal(size=given.anchor.shape)
        for j in range(at.shape[1]):
            nudge = np.zeros_like(at)
            nudge[0, j] = 1e-6
            slope = (given.objective(at + nudge) - given.objective(at - nudge))[0] / 2e-6
            assert given.gradient(at)[0, j] == pytest.approx(slope, abs=1e-6)


def test_smoothness_bounds_the_hessian_and_grows_as_batches_shrink():
    X, y = two_classes()
    given = problem(X, y, loss="squared hinge", ridge=0.3)
    top = np.linalg.eigvalsh(given.samples.T @ given.samples / len(X))[-1]
    sizes = [given.smoothness(batch)[0] for batch in (len(X), 60, 10, 1)]
    assert top + 0.3 <= sizes[0] <= 1.1 * top + 0.3
    assert sizes == sorted(sizes)
    assert sizes[-1] >= (given.samples**2).sum(axis=1).max()


def test_same_seed_same_weights_and_other_seed_other_path():
    X, y = two_classes()
    given = problem(X, y, loss="hinge", ridge=0.1)
    start = np.zeros(given.anchor.shape)

    def run(seed):
        return descend(given, start, np.random.default_rng(seed), passes=2, batch_size=16).weights

    assert (run(4) == run(4)).all()
    assert (run(4) != run(5)).any()


def test_refuses_nonsense():
    with pytest.raises(InputError, match="'hinges'"):
        margin_loss("hinges", 0.5)
    with pytest.raises(InputError, match="smoothing"):
        margin_loss("hinge", 0)
    X, y = two_classes()
    with pytest.raises(InputError, match="at least 1"):
        minimise(problem(X, y, loss="logistic"), batch_size=0)
