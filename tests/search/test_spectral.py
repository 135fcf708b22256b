"""Spectral hashing against the paper's formulas, written out one direction and one mode at a time."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from blindsight.errors import InputError
from blindsight.search.codes import unpack
from blindsight.search.itq import principal_directions
from blindsight.search.spectral import SH, SpectralHash, smallest_modes


def published_scores(X, bits, rows):
    """Return the eigenfunctions of section 3 of the paper at some rows, smallest eigenvalues first."""
    X = X.astype(np.float64)
    centred = X - X.mean(axis=0)
    vectors = np.linalg.eigh(np.cov(centred.T))[1]
    W = vectors[:, ::-1][:, : min(bits, X.shape[1])]
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


@pytest.mark.parametrize(("width", "bits"), [(6, 4), (6, 6), (6, 40), (2, 25)])
def test_scores_are_the_published_eigenfunctions(width, bits):
    rng = np.random.default_rng(width + bits)
    X = (rng.uniform(-1, 1, (400, width)) * np.linspace(5, 1, width) @ rng.normal(size=(width, width))).astype("f4")
    learner = SH(bits).fit(X)
    expected = published_scores(X, bits, np.arange(50))
    np.testing.assert_allclose(learner.function_.scores(X[:50]), expected, atol=1e-3)
    sure = np.abs(expected) > 1e-3
    np.testing.assert_array_equal(unpack(learner.transform(X[:50]), bits)[sure], (expected >= 0)[sure])


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(1, 30))
def test_the_modes_kept_are_the_smallest_and_all_different(sides, count):
    side, k = smallest_modes(np.array(sides), count)
    kept = k / np.array(sides)[side]
    everything = sorted(k / length for length in sides for k in range(1, count + 1))
    np.testing.assert_allclose(kept, everything[:count])
    assert len(set(zip(side.tolist(), k.tolist(), strict=True))) == count


def test_the_first_bit_halves_the_longest_direction():
    x = np.linspace(-3, 5, 101, dtype=np.float32)
    X = np.stack([x, 0.1 * np.sin(9 * x)], axis=1)
    bits = unpack(SH(1).fit_transform(X), 1)[:, 0]
    along = (X - X.mean(axis=0)) @ principal_directions(X, 1)[1][:, 0]
    middle = (along.min() + along.max()) / 2
    away = np.abs(along - middle) > 1e-3
    np.testing.assert_array_equal(bits[away], along[away] < middle)


def test_directions_without_extent_are_not_sliced():
    X = load_digits().data[:200]
    flat = np.hstack([X, np.full((200, 5), 0.3), X])
    bits = 32
    function = SH(bits).fit(flat).function_
    assert function.bits == bits
    np.testing.assert_allclose(function.matrix[64:69], 0, atol=1e-6)
    share = unpack(function(flat), bits).mean(axis=0)
    assert ((share > 0.02) & (share < 0.98)).all()


def test_rows_that_are_all_equal_are_refused():
    with pytest.raises(InputError, match="all 9 rows are equal"):
        SH(4).fit(np.full((9, 3), 0.1))


@pytest.mark.parametrize(
    ("mean", "matrix", "phase", "sentence"),
    [
        (np.zeros(3), np.zeros((3, 4), "f4"), np.zeros(4, "f4"), "finite float32"),
        (np.zeros(3, "f4"), np.full((3, 4), np.nan, "f4"), np.zeros(4, "f4"), "finite float32"),
        (np.zeros(3, "f4"), np.zeros((3, 4), "f4"), np.zeros(3, "f4"), "do not fit"),
        (np.zeros(2, "f4"), np.zeros((3, 4), "f4"), np.zeros(4, "f4"), "do not fit"),
        (np.zeros(0, "f4"), np.zeros((0, 4), "f4"), np.zeros(4, "f4"), "do not fit"),
    ],
)
def test_parts_that_are_no_function_are_refused(mean, matrix, phase, sentence):
    with pytest.raises(InputError, match=sentence):
        SpectralHash(mean, matrix, phase)
