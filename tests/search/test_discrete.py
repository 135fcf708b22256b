"""SDH against brute force and scikit-learn: each of its steps, and what it learns."""

from itertools import pairwise, product

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from blindsight.errors import InputError
from blindsight.metrics import query_average_precision
from blindsight.search import discrete as module
from blindsight.search.codes import hamming, unpack
from blindsight.search.discrete import SDH, discrete_descent, ridge
from blindsight.search.function import LinearHash
from blindsight.search.functionfile import load_function, save_function


def objective(codes, labels, classifier, fitted, nu):
    return np.sum((labels - codes @ classifier) ** 2) + nu * np.sum((codes - fitted) ** 2)


def clouds(rows, seed=0):
    """Three classes of two clouds each, in four dimensions."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(6, 4)) * 2
    cloud = rng.integers(0, 6, rows)
    return (centres[cloud] + rng.normal(0, 0.4, (rows, 4))).astype(np.float32), cloud % 3


@pytest.fixture
def state():
    rng = np.random.default_rng(1)
    codes = rng.choice([-1.0, 1.0], size=(6, 5))
    return codes, np.eye(3)[[0, 0, 1, 1, 2, 2]], rng.normal(size=(5, 3)), rng.normal(size=(6, 5)), 0.3


def test_the_classifier_is_scikit_learns_ridge():
    rng = np.random.default_rng(0)
    codes, labels = rng.choice([-1.0, 1.0], size=(50, 8)), np.eye(4)[rng.integers(0, 4, 50)]
    expected = Ridge(alpha=0.7, fit_intercept=False).fit(codes, labels).coef_.T
    np.testing.assert_allclose(ridge(codes, labels, 0.7), expected, atol=1e-10)


def test_one_sweep_sets_each_column_to_the_best_of_all_of_its_codes(state, monkeypatch):
    codes, *rest = state
    monkeypatch.setattr(module, "_SWEEPS", 1)
    expected = codes.copy()
    for bit in range(codes.shape[1]):
        columns = [np.array(column) for column in product([-1.0, 1.0], repeat=len(codes))]
        tried = [np.column_stack([expected[:, :bit], column, expected[:, bit + 1 :]]) for column in columns]
        expected = min(tried, key=lambda candidate: objective(candidate, *rest))
    np.testing.assert_array_equal(discrete_descent(*state), expected)


def test_the_descent_never_raises_the_objective_and_ends_where_no_bit_can_be_flipped(state, monkeypatch):
    codes, *rest = state
    values = [objective(codes, *rest)]
    for sweeps in range(1, 6):
        monkeypatch.setattr(module, "_SWEEPS", sweeps)
        values.append(objective(discrete_descent(*state), *rest))
    assert values[1] < values[0]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))
    monkeypatch.setattr(module, "_SWEEPS", 100)
    final = discrete_descent(*state)
    for place in np.ndindex(final.shape):
        flipped = final.copy()
        flipped[place] *= -1
        assert objective(flipped, *rest) >= objective(final, *rest) - 1e-12


def test_a_bit_without_a_wish_stays_as_it_is():
    codes = np.array([[1.0, -1.0], [-1.0, 1.0]])
    found = discrete_descent(codes, np.eye(2), np.zeros((2, 2)), np.zeros((2, 2)), 0.0)
    np.testing.assert_array_equal(found, codes)


def test_the_codes_tell_the_classes_of_rows_never_seen():
    X, y = clouds(400)
    queries, wanted = clouds(60, seed=1)

    def precision(function):
        return query_average_precision(hamming(function(queries), function(X)), wanted[:, None] == y).mean()

    planes = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    assert precision(LinearHash(X.mean(axis=0), planes)) < 0.85
    assert precision(SDH(16, anchors=100).fit(X, y).function_) > 0.95


def test_a_linear_classifier_reads_the_classes_from_the_codes():
    X, y = clouds(300)
    codes = np.where(unpack(SDH(12, anchors=100).fit_transform(X, y), 12), 1.0, -1.0)
    assert (np.argmax(codes @ ridge(codes, np.eye(3)[y], 1.0), axis=1) == y).mean() > 0.95


def test_the_same_seed_gives_the_same_function_and_a_file_gives_it_back(tmp_path):
    X, y = clouds(80)
    first, again, other = (SDH(12, anchors=30, random_state=seed).fit(X, y).function_ for seed in (0, 0, 1))
    assert first.digest == again.digest != other.digest
    save_function(first, tmp_path / "sdh")
    assert load_function(tmp_path / "sdh").digest == first.digest


def test_more_bits_than_dimensions_fewer_rows_than_anchors_and_equal_rows_are_fine():
    X, y = clouds(20)
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    assert SDH(40).fit_transform(X, y).shape == (60, 5)


@pytest.mark.parametrize("parameters", [{"iterations": 0}, {"nu": -1.0}, {"lam": 0.0}, {"nu": float("nan")}])
def test_wrong_parameters_get_a_sentence(parameters):
    with pytest.raises(InputError, match="SDH needs iterations >= 1, nu >= 0 and lam > 0; got"):
        SDH(4, **parameters).fit(*clouds(20))


def test_wrong_data_gets_a_sentence():
    X, y = clouds(20)
    with pytest.raises(InputError, match="SDH learns from labels"):
        SDH(4).fit(X)
    with pytest.raises(InputError, match="all 20 labels are 1"):
        SDH(4).fit(X, np.ones(20, dtype=int))
    with pytest.raises(InputError, match=r"shape \(20,\); got \(19,\)"):
        SDH(4).fit(X, y[:19])
    with pytest.raises(InputError, match="all rows are equal"):
        SDH(4).fit(np.zeros((20, 4)), y)
