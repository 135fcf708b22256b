"""Signs, scores and standardised features."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from blindsight.errors import InputError
from blindsight.learn.linearmodel import (
    Standardiser,
    attribute_signs,
    class_signs,
    decision_function,
    predict,
    predict_attributes,
)


def test_standardiser_agrees_with_sklearn_and_keeps_constant_features():
    X = np.random.default_rng(0).normal(3, [1, 5, 0.1], size=(50, 3)).astype(np.float32)
    X = np.column_stack([X, np.full(50, 7, dtype=np.float32)])
    ours = Standardiser.fit(X).apply(X)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, StandardScaler().fit_transform(X), atol=1e-4)
    assert (ours[:, 3] == 0).all()


def test_standardiser_of_one_picture_only_shifts():
    assert Standardiser.fit([[2.0, 5.0]]).apply([[3.0, 5.0]]).tolist() == [[1.0, 0.0]]


def test_halves_are_widened():
    X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float16)
    assert Standardiser.fit(X).apply(X).dtype == np.float32


def test_standardiser_refuses_other_features():
    fitted = Standardiser.fit(np.eye(3))
    with pytest.raises(InputError, match="3 columns; got 2"):
        fitted.apply(np.eye(2))
    with pytest.raises(InputError, match="finite"):
        fitted.apply([[np.inf, 0, 0]])
    with pytest.raises(InputError, match="numbers"):
        fitted.apply([["a", "b", "c"]])


def test_scores_are_products_plus_bias():
    weights = np.array([[1.0, 2.0, 10.0], [0.0, -1.0, 0.0]])
    assert decision_function(weights, [[1.0, 1.0]]).tolist() == [[13.0, -1.0]]
    assert predict(weights, [[1.0, 1.0], [0.0, -20.0]]).tolist() == [0, 1]
    assert predict_attributes(weights, [[1.0, 1.0], [0.0, -20.0]]).tolist() == [[1, 0], [0, 1]]
    assert predict(weights[:1], [[1.0, 1.0], [0.0, -20.0]]).tolist() == [1, 0]


def test_scores_refuse_weights_of_other_features():
    with pytest.raises(InputError, match=r"\(2, 3\)"):
        decision_function(np.zeros((2, 3)), np.zeros((1, 3)))
    with pytest.raises(InputError, match=r"got \(\)"):
        decision_function(3.0, np.zeros((1, 3)))


def test_labels_outside_the_classes_are_refused():
    with pytest.raises(InputError, match="labels"):
        class_signs([0, 3], 3)
    with pytest.raises(InputError, match="float64"):
        class_signs([0.5], 3)
    with pytest.raises(InputError, match="attributes"):
        attribute_signs([[2]])


def test_unsigned_attributes_are_understood():
    assert attribute_signs(np.array([1, 0], dtype=np.uint8)).tolist() == [[1], [-1]]
