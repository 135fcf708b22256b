"""Random hyperplanes against faiss, and against the angle that they must measure."""

import faiss
import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone

from blindsight.search.codes import hamming
from blindsight.search.lsh import LSH


def faiss_codes(function, X):
    """Return faiss's codes for the same hyperplanes."""
    index = faiss.IndexLSH(function.dimension, function.bits, True)
    faiss.copy_array_to_vector(np.ascontiguousarray(function.matrix.T).ravel(), index.rrot.A)
    index.rrot.is_trained = True
    return index.sa_encode(X - function.mean)


@pytest.mark.parametrize("bits", [12, 64, 100])
def test_codes_are_those_of_faiss_bit_for_bit(bits):
    X = np.random.default_rng(1).normal(3, 1, (200, 40)).astype(np.float32)
    learner = LSH(bits).fit(X)
    # Sums in another order may move a score by rounding: rows with a score that near zero are left out.
    clear = X[np.abs(learner.function_.scores(X)).min(axis=1) > 1e-4]
    assert len(clear) > 190
    np.testing.assert_array_equal(learner.transform(clear), faiss_codes(learner.function_, clear))


@pytest.mark.parametrize("degrees", [5, 60, 90, 150])
def test_bits_differ_as_often_as_the_angle_says(degrees):
    angle, bits = np.radians(degrees), 60_000
    X = np.array([[2.0, 0, 0], [0.1 * np.cos(angle), 0.1 * np.sin(angle), 0]], dtype=np.float32)
    codes = LSH(bits, random_state=degrees, centre=False).fit_transform(X)
    differing = int(hamming(codes[:1], codes[1:])[0, 0])
    # False alarms: 2e-7 for each angle.
    assert binom.ppf(1e-7, bits, angle / np.pi) <= differing <= binom.ppf(1 - 1e-7, bits, angle / np.pi)


def test_without_centre_the_function_does_not_depend_on_the_data():
    rng = np.random.default_rng(2)
    one, other = rng.normal(0, 1, (10, 6)), rng.normal(5, 2, (30, 6))
    assert LSH(16, centre=False).fit(one).function_.digest == LSH(16, centre=False).fit(other).function_.digest
    assert LSH(16).fit(one).function_.digest != LSH(16).fit(other).function_.digest


def test_with_centre_only_the_mean_is_learned():
    X = np.random.default_rng(3).normal(5, 2, (30, 6)).astype(np.float32)
    function = LSH(16).fit(X).function_
    np.testing.assert_allclose(function.mean, X.mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(function.matrix, LSH(16, centre=False).fit(X).function_.matrix)


def test_the_seed_decides_the_hyperplanes():
    X = np.eye(4)
    learner = LSH(32, random_state=7)
    assert learner.fit(X).function_.digest == clone(learner).fit(X).function_.digest
    assert learner.fit(X).function_.digest != LSH(32, random_state=8).fit(X).function_.digest
