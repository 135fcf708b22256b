"""Kernel hash functions, and KSH against brute force: the residual, the gradient and the greedy bits."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.spatial.distance import cdist

from blindsight.errors import InputError
from blindsight.metrics import query_average_precision
from blindsight.search import kernel as module
from blindsight.search.codes import hamming, unpack
from blindsight.search.function import LinearHash
from blindsight.search.functionfile import load_function, save_function
from blindsight.search.kernel import KSH, KernelHash, Residual, greedy_bit, kernel_features, signs, smoothed_loss


def rings(rows, seed=0):
    """Two classes that no plane separates: points near two circles around the origin, in three dimensions."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, rows)
    directions = rng.normal(size=(rows, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return (directions * (1 + classes[:, None]) + rng.normal(0, 0.1, (rows, 3))).astype(np.float32), classes


def mean_precision(function, X, y, queries, wanted):
    return query_average_precision(hamming(function(queries), function(X)), wanted[:, None] == y).mean()


@pytest.fixture
def problem():
    rng = np.random.default_rng(3)
    classes = rng.integers(0, 3, 40)
    basis, _ = np.linalg.qr(rng.normal(size=(40, 6)))
    return basis, Residual.of(classes, bits=8), classes


def test_kernel_features_are_gaussians_of_the_distance_even_far_from_the_origin():
    rng = np.random.default_rng(0)
    X, anchors = (rng.normal(size=(n, 5)).astype(np.float32) + np.float32(1000) for n in (30, 7))
    expected = np.exp(-cdist(X.astype(float), anchors.astype(float), "sqeuclidean") / (2 * 1.5**2))
    np.testing.assert_allclose(kernel_features(X, anchors, 1.5), expected, atol=1e-5)


def test_blocks_change_no_score(monkeypatch):
    X, y = rings(50)
    function = KSH(8, anchors=20).fit(X, y).function_
    whole = function.scores(X)
    monkeypatch.setattr(module, "_ROWS", 7)
    np.testing.assert_allclose(function.scores(X), whole, rtol=1e-4, atol=1e-4)


def test_the_residual_is_what_the_bits_left_undone(problem):
    basis, residual, classes = problem
    rng = np.random.default_rng(0)
    bits = rng.choice([-1.0, 1.0], size=(40, 2))
    dense = 8 * np.where(classes[:, None] == classes, 1, -1) - bits @ bits.T
    left = residual.without(bits[:, 0]).without(bits[:, 1])
    vector = rng.normal(size=40)
    np.testing.assert_allclose(left.times(vector), dense @ vector)
    np.testing.assert_allclose(left.between(basis), basis.T @ dense @ basis, atol=1e-12)
    assert left.gain(bits[:, 0]) == pytest.approx(bits[:, 0] @ dense @ bits[:, 0])


def test_the_gradient_is_that_of_finite_differences(problem):
    basis, residual, _ = problem
    for seed in range(3):
        weights = np.random.default_rng(seed).normal(size=6) * 5
        value, slope = (lambda w, part=part: smoothed_loss(w, basis, residual)[part] for part in (0, 1))
        assert check_grad(value, slope, weights) < 1e-5 * np.linalg.norm(slope(weights))


def test_refining_a_bit_never_loses_and_often_gains(problem):
    basis, residual, _ = problem
    gained = 0
    for _ in range(8):
        _, vectors = np.linalg.eigh(residual.between(basis))
        relaxed = residual.gain(signs(basis @ vectors[:, -1]))
        bit = signs(basis @ greedy_bit(basis, residual))
        assert residual.gain(bit) >= relaxed
        gained += residual.gain(bit) > relaxed
        residual = residual.without(bit)
    assert gained >= 4


def test_refinement_often_finds_the_best_bit_of_all_where_the_relaxation_seldom_does():
    """In two dimensions every direction can be tried: 3,600 of them miss hardly any of the 2 l sign patterns."""
    angles = np.linspace(0, 2 * np.pi, 3600)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    relaxed, refined = 0, 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        basis, _ = np.linalg.qr(rng.normal(size=(12, 2)))
        residual = Residual.of(rng.integers(0, 3, 12), bits=4)
        best = max(residual.gain(signs(column)) for column in (basis @ circle).T)
        _, vectors = np.linalg.eigh(residual.between(basis))
        relaxed += residual.gain(signs(basis @ vectors[:, -1])) >= best
        refined += residual.gain(signs(basis @ greedy_bit(basis, residual))) >= best
    assert relaxed <= 5 < 9 <= refined


def test_with_a_free_basis_the_first_bit_is_the_best_of_all_codes():
    """Any code can be reached when the basis is the identity: 2^8 codes against one greedy bit."""
    classes = np.array([0, 0, 0, 1, 1, 1, 1, 2])
    residual = Residual.of(classes, bits=3)
    best = max(residual.gain(np.array(code)) for code in product([-1.0, 1.0], repeat=8))
    assert residual.gain(signs(greedy_bit(np.eye(8), residual))) == best


def test_codes_of_ksh_approach_the_wished_inner_products():
    X, y = rings(200)
    wishes = np.where(y[:, None] == y, 1, -1)
    misses = []
    for bits in (1, 4, 16):
        codes = np.where(unpack(KSH(bits, anchors=50).fit_transform(X, y), bits), 1.0, -1.0)
        misses.append(np.mean((codes @ codes.T / bits - wishes) ** 2))
    assert misses[0] < 0.5
    assert misses[-1] < 0.1


def test_ksh_separates_what_no_plane_does():
    X, y = rings(400)
    queries, wanted = rings(50, seed=1)
    learned = KSH(16, anchors=100).fit(X, y).function_
    planes = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    assert mean_precision(LinearHash(X.mean(axis=0), planes), X, y, queries, wanted) < 0.7
    assert mean_precision(learned, X, y, queries, wanted) > 0.95


def test_the_same_seed_gives_the_same_function_and_a_file_gives_it_back(tmp_path):
    X, y = rings(60)
    first, again, other = (KSH(12, anchors=20, pairs_rows=40, random_state=s).fit(X, y).function_ for s in (0, 0, 1))
    assert first.digest == again.digest != other.digest
    save_function(first, tmp_path / "ksh")
    assert load_function(tmp_path / "ksh").digest == first.digest


def test_ksh_learns_more_bits_than_dimensions_from_fewer_rows_than_anchors():
    X, y = rings(20)
    learner = KSH(40).fit(X, y)
    assert learner.function_.anchors.shape == (20, 3)
    assert learner.transform(X).shape == (20, 5)


def test_repeated_rows_and_constant_features_do_no_harm():
    X, y = rings(30)
    X, y = np.repeat(np.c_[X, np.ones(30)], 4, axis=0), np.repeat(y, 4)
    codes = KSH(8).fit_transform(X, y)
    assert (codes[::4] == codes[3::4]).all()
    assert len(np.unique(codes, axis=0)) > 1


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"anchors": 0}, "at least 1 anchor; got 0"),
        ({"pairs_rows": 1}, "pairs_rows must be at least 2; got 1"),
        ({"bandwidth": 0.0}, r"bandwidth must be positive; got 0\.0"),
        ({"bits": 0}, "whole number of bits .* got 0"),
    ],
)
def test_wrong_parameters_get_a_sentence(parameters, sentence):
    with pytest.raises(InputError, match=sentence):
        KSH(**{"bits": 4} | parameters).fit(*rings(20))


def test_wrong_data_gets_a_sentence():
    X, y = rings(20)
    with pytest.raises(InputError, match="all 20 labels are 7"):
        KSH(4).fit(X, np.full(20, 7))
    with pytest.raises(InputError, match="KSH learns from labels"):
        KSH(4).fit(X)
    with pytest.raises(InputError, match="NaN"):
        KSH(4).fit(np.where(X[3, 1] == X, np.nan, X), y)
    with pytest.raises(InputError, match="all rows are equal"):
        KSH(4).fit(np.ones((20, 3)), y)
    with pytest.raises(InputError, match="3 columns; got 2"):
        KSH(4).fit(X, y).transform(X[:, :2])


def test_a_function_refuses_parts_that_do_not_fit():
    anchors, mean, matrix = (np.ones(shape, dtype=np.float32) for shape in ((5, 3), 5, (5, 2)))
    assert KernelHash(anchors, 1.0, mean, matrix).bits == 2
    for parts in [
        (anchors[:4], 1.0, mean, matrix),
        (anchors, 1.0, mean[:, None], matrix),
        (anchors, 0.0, mean, matrix),
    ]:
        with pytest.raises(InputError):
            KernelHash(*parts)
    with pytest.raises(InputError, match="finite float32"):
        KernelHash(anchors, 1.0, mean, np.full((5, 2), np.inf, dtype=np.float32))
