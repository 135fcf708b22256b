"""LSH, SH, KSH and SDH against faiss, scipy, scikit-learn, brute force and the papers' formulas."""

import math
from itertools import pairwise, product

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.spatial.distance import cdist
from scipy.stats import binom
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

from blindsight.errors import InputError
from blindsight.papers.hashing import learners
from blindsight.papers.hashing.learners import (
    KSH,
    LSH,
    SDH,
    SH,
    Residual,
    discrete_descent,
    greedy_bit,
    kernel_features,
    ridge,
    signs,
    smallest_modes,
    smoothed_loss,
)
from blindsight.search.codes import hamming, unpack
from blindsight.search.itq import principal_directions


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)[:1200], y[:1200]


# --- random hyperplanes ---


@pytest.mark.parametrize("bits", [12, 100])
def test_codes_of_lsh_are_those_of_faiss(bits):
    X = np.random.default_rng(1).normal(3, 1, (200, 40)).astype(np.float32)
    learner = LSH(bits).fit(X)
    function = learner.function_
    index = faiss.IndexLSH(function.dimension, function.bits, True)
    faiss.copy_array_to_vector(np.ascontiguousarray(function.matrix.T).ravel(), index.rrot.A)
    index.rrot.is_trained = True
    # Sums in another order may move a score by rounding: rows with a score that near zero are left out.
    clear = X[np.abs(function.scores(X)).min(axis=1) > 1e-4]
    assert len(clear) > 190
    np.testing.assert_array_equal(learner.transform(clear), index.sa_encode(clear - function.mean))


@pytest.mark.parametrize("degrees", [5, 90, 150])
def test_bits_of_lsh_differ_as_often_as_the_angle_says(degrees):
    angle, bits = np.radians(degrees), 20_000
    X = np.array([[2.0, 0, 0], [0.1 * np.cos(angle), 0.1 * np.sin(angle), 0]], dtype=np.float32)
    codes = LSH(bits, random_state=degrees, centre=False).fit_transform(X)
    differing = int(hamming(codes[:1], codes[1:])[0, 0])
    # False alarms: 2e-7 for each angle.
    assert binom.ppf(1e-7, bits, angle / np.pi) <= differing <= binom.ppf(1 - 1e-7, bits, angle / np.pi)


def test_lsh_learns_the_mean_or_nothing():
    rng = np.random.default_rng(2)
    one, other = rng.normal(0, 1, (10, 6)), rng.normal(5, 2, (30, 6)).astype(np.float32)
    blind, centred = (LSH(16, centre=centre).fit(other).function_ for centre in (False, True))
    assert LSH(16, centre=False).fit(one).function_.digest == blind.digest != centred.digest
    np.testing.assert_allclose(centred.mean, other.mean(axis=0), rtol=1e-5)
    np.testing.assert_array_equal(centred.matrix, blind.matrix)


# --- spectral hashing ---


def published_scores(X, bits, rows):
    """Return the eigenfunctions of section 3 of the paper at some rows, smallest eigenvalues first."""
    X = X.astype(np.float64)
    centred = X - X.mean(axis=0)
    W = np.linalg.eigh(np.cov(centred.T))[1][:, ::-1][:, : min(bits, X.shape[1])]
    W = W * np.sign(W[np.abs(W).argmax(axis=0), np.arange(W.shape[1])])
    V = centred @ W
    candidates = []
    for direction in range(V.shape[1]):
        a, b = V[:, direction].min(), V[:, direction].max()
        for k in range(1, bits + 1):
            eigenvalue = 1 - math.exp(-0.5 * 1e-4 * (k * math.pi / (b - a)) ** 2)  # eps = 0.01
            scores = np.sin(math.pi / 2 + k * math.pi / (b - a) * (V[rows, direction] - a))
            candidates.append((eigenvalue, scores))
    candidates.sort(key=lambda candidate: candidate[0])
    return np.stack([scores for _, scores in candidates[:bits]], axis=1)


@pytest.mark.parametrize(("width", "bits"), [(6, 4), (6, 40), (2, 25)])
def test_scores_are_the_published_eigenfunctions(width, bits):
    rng = np.random.default_rng(width + bits)
    X = (rng.uniform(-1, 1, (400, width)) * np.linspace(5, 1, width) @ rng.normal(size=(width, width))).astype("f4")
    learner = SH(bits).fit(X)
    expected = published_scores(X, bits, np.arange(50))
    np.testing.assert_allclose(learner.function_.scores(X[:50]), expected, atol=1e-3)
    sure = np.abs(expected) > 1e-3
    np.testing.assert_array_equal(unpack(learner.transform(X[:50]), bits)[sure], (expected >= 0)[sure])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(1, 30))
def test_the_modes_kept_are_the_smallest_and_all_different(sides, count):
    side, k = smallest_modes(np.array(sides), count)
    everything = sorted(k / length for length in sides for k in range(1, count + 1))
    np.testing.assert_allclose(k / np.array(sides)[side], everything[:count])
    assert len(set(zip(side.tolist(), k.tolist(), strict=True))) == count


def test_directions_without_extent_are_not_sliced(digits):
    X, _ = digits
    padded = np.hstack([X, np.full((len(X), 3), 0.1), X[:, :10]]).astype(np.float32)
    function = SH(32).fit(padded).function_
    np.testing.assert_allclose(function.matrix[64:67], 0, atol=1e-5)
    share = unpack(function(padded), function.bits).mean(axis=0)
    assert ((share > 0.02) & (share < 0.98)).all()


def test_the_first_bit_halves_the_longest_direction_and_equal_rows_are_refused():
    x = np.linspace(-3, 5, 101, dtype=np.float32)
    X = np.stack([x, 0.1 * np.sin(9 * x)], axis=1)
    bits = unpack(SH(1).fit_transform(X), 1)[:, 0]
    along = (X - X.mean(axis=0)) @ principal_directions(X, 1)[1][:, 0]
    middle = (along.min() + along.max()) / 2
    away = np.abs(along - middle) > 1e-3
    np.testing.assert_array_equal(bits[away], along[away] < middle)
    with pytest.raises(InputError, match="9 rows are equal"):
        SH(4).fit(np.full((9, 3), 0.1))


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
    monkeypatch.setattr(learners, "_KERNEL_ROWS", 7)
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
    monkeypatch.setattr(learners, "_SWEEPS", 1)
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
        monkeypatch.setattr(learners, "_SWEEPS", sweeps)
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
