"""KSH and SDH against brute force and scikit-learn: residual, gradient, greedy bits, each step of the descent."""

from itertools import pairwise, product

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.spatial.distance import cdist
from sklearn.linear_model import Ridge

from blindsight.errors import InputError
from blindsight.search import supervised
from blindsight.search.codes import unpack
from blindsight.search.supervised import (
    KSH,
    SDH,
    Residual,
    discrete_descent,
    greedy_bit,
    kernel_features,
    ridge,
    signs,
    smoothed_loss,
)


def rings(rows, seed=0):
    """Two classes that no plane separates: points near two circles around the origin, in three dimensions."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, rows)
    directions = rng.normal(size=(rows, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return (directions * (1 + classes[:, None]) + rng.normal(0, 0.1, (rows, 3))).astype(np.float32), classes


@pytest.fixture
def problem():
    rng = np.random.default_rng(3)
    classes = rng.integers(0, 3, 40)
    basis, _ = np.linalg.qr(rng.normal(size=(40, 6)))
    return basis, Residual.of(classes, bits=8), classes


def test_kernel_features_are_gaussians_of_the_distance_even_far_from_the_origin(monkeypatch):
    rng = np.random.default_rng(0)
    X, anchors = (rng.normal(size=(n, 5)).astype(np.float32) + np.float32(1000) for n in (30, 7))
    expected = np.exp(-cdist(X.astype(float), anchors.astype(float), "sqeuclidean") / (2 * 1.5**2))
    np.testing.assert_allclose(kernel_features(X, anchors, 1.5), expected, atol=1e-5)
    X, y = rings(50)
    function = KSH(8, anchors=20).fit(X, y).function_
    whole = function.scores(X)
    monkeypatch.setattr(supervised, "_ROWS", 7)
    np.testing.assert_allclose(function.scores(X), whole, rtol=1e-3, atol=1e-3)  # blocks change no score


def test_the_residual_is_what_the_bits_left_undone(problem):
    basis, residual, classes = problem
    rng = np.random.default_rng(0)
    bits = rng.choice([-1.0, 1.0], size=(40, 2))
    dense = 8 * np.where(classes[:, None] == classes, 1, -1) - bits @ bits.T
    left = residual.without(bits[:, 0]).without(bits[:, 1])
    vector = rng.normal(size=40)
    np.testing.assert_allclose(left.times(vector), dense @ vector, atol=1e-9)
    np.testing.assert_allclose(left.between(basis), basis.T @ dense @ basis, atol=1e-9)
    assert left.gain(bits[:, 0]) == pytest.approx(bits[:, 0] @ dense @ bits[:, 0])


def test_the_gradient_is_that_of_finite_differences(problem):
    basis, residual, _ = problem
    for seed in range(3):
        weights = np.random.default_rng(seed).normal(size=6) * 5
        value, slope = (lambda w, part=part: smoothed_loss(w, basis, residual)[part] for part in (0, 1))
        assert check_grad(value, slope, weights) < 1e-4 * np.linalg.norm(slope(weights))


def test_refining_a_bit_never_loses_and_often_gains(problem):
    basis, residual, _ = problem
    gained = 0
    for _ in range(8):
        _, vectors = np.linalg.eigh(residual.between(basis))
        relaxed = residual.gain(signs(basis @ vectors[:, -1]))
        bit = signs(basis @ greedy_bit(basis, residual))
        assert residual.gain(bit) >= relaxed - 1e-9
        gained += residual.gain(bit) > relaxed + 1e-9
        residual = residual.without(bit)
    assert gained >= 4


def test_refinement_often_finds_the_best_bit_of_all_where_the_relaxation_seldom_does():
    """In two dimensions every direction can be tried: 900 of them miss hardly any of the 2 l sign patterns."""
    angles = np.linspace(0, 2 * np.pi, 900)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    relaxed, refined = 0, 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        basis, _ = np.linalg.qr(rng.normal(size=(12, 2)))
        residual = Residual.of(rng.integers(0, 3, 12), bits=4)
        best = max(residual.gain(signs(column)) for column in (basis @ circle).T) - 1e-9
        _, vectors = np.linalg.eigh(residual.between(basis))
        relaxed += residual.gain(signs(basis @ vectors[:, -1])) >= best
        refined += residual.gain(signs(basis @ greedy_bit(basis, residual))) >= best
    assert relaxed <= 5 < 9 <= refined
    # With a free basis any code can be reached: 2^8 codes against one greedy bit.
    residual = Residual.of(np.array([0, 0, 0, 1, 1, 1, 1, 2]), bits=3)
    best = max(residual.gain(np.array(code)) for code in product([-1.0, 1.0], repeat=8))
    assert residual.gain(signs(greedy_bit(np.eye(8), residual))) == pytest.approx(best)


def test_codes_of_ksh_approach_the_wished_inner_products():
    X, y = rings(150)
    wishes = np.where(y[:, None] == y, 1, -1)
    misses = []
    for bits in (1, 16):
        codes = np.where(unpack(KSH(bits, anchors=50).fit_transform(X, y), bits), 1.0, -1.0)
        misses.append(np.mean((codes @ codes.T / bits - wishes) ** 2))
    assert misses[0] < 0.5
    assert misses[-1] < 0.1
    assert KSH(40).fit(X[:20], y[:20]).function_.anchors.shape == (20, 3)  # fewer rows than anchors


@pytest.mark.parametrize("learner", [KSH, SDH])
def test_rows_that_are_all_equal_are_refused(learner):
    with pytest.raises(InputError, match="all rows are equal"):
        learner(4).fit(np.ones((20, 3)), rings(20)[1])


# --- SDH ---


def objective(codes, labels, classifier, fitted, nu):
    return np.sum((labels - codes @ classifier) ** 2) + nu * np.sum((codes - fitted) ** 2)


@pytest.fixture
def state():
    rng = np.random.default_rng(1)
    codes = rng.choice([-1.0, 1.0], size=(6, 5))
    return codes, np.eye(3)[[0, 0, 1, 1, 2, 2]], rng.normal(size=(5, 3)), rng.normal(size=(6, 5)), 0.3


def test_one_sweep_sets_each_column_to_the_best_of_all_of_its_codes(state, monkeypatch):
    codes, *rest = state
    monkeypatch.setattr(supervised, "_SWEEPS", 1)
    expected = codes.copy()
    columns = [np.array(column) for column in product([-1.0, 1.0], repeat=len(codes))]
    for bit in range(codes.shape[1]):
        tried = [np.column_stack([expected[:, :bit], column, expected[:, bit + 1 :]]) for column in columns]
        expected = min(tried, key=lambda candidate: objective(candidate, *rest))
    np.testing.assert_array_equal(discrete_descent(*state), expected)


def test_the_descent_never_raises_the_objective_and_ends_where_no_bit_can_be_flipped(state, monkeypatch):
    codes, *rest = state
    values = [objective(codes, *rest)]
    for sweeps in (1, 2, 3, 100):
        monkeypatch.setattr(supervised, "_SWEEPS", sweeps)
        final = discrete_descent(*state)
        values.append(objective(final, *rest))
    assert values[1] < values[0]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(values))
    for place in np.ndindex(final.shape):
        flipped = final.copy()
        flipped[place] *= -1
        assert objective(flipped, *rest) >= objective(final, *rest) - 1e-9
    codes = np.array([[1.0, -1.0], [-1.0, 1.0]])  # a bit without a wish stays as it is
    np.testing.assert_array_equal(discrete_descent(codes, np.eye(2), np.zeros((2, 2)), np.zeros((2, 2)), 0.0), codes)


def test_the_classifier_is_scikit_learns_ridge_and_reads_the_classes_from_the_codes():
    rng = np.random.default_rng(0)
    codes, labels = rng.choice([-1.0, 1.0], size=(50, 8)), np.eye(4)[rng.integers(0, 4, 50)]
    expected = Ridge(alpha=0.7, fit_intercept=False).fit(codes, labels).coef_.T
    np.testing.assert_allclose(ridge(codes, labels, 0.7), expected, atol=1e-8)
    X, y = rings(200)
    codes = np.where(unpack(SDH(12, anchors=100).fit_transform(X, y), 12), 1.0, -1.0)
    assert (np.argmax(codes @ ridge(codes, np.eye(2)[y], 1.0), axis=1) == y).mean() > 0.95
