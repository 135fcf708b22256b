"""Accuracies against scikit-learn and worked examples; what each does with input it cannot score."""

import doctest
import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle

from blindsight import metrics
from blindsight.errors import InputError

FOUR = (metrics.accuracy, metrics.balanced_accuracy, metrics.mean_precision, metrics.adjusted_mutual_information)


@st.composite
def label_pairs(draw, classes):
    n = draw(st.integers(2, 40))
    labels = st.lists(st.integers(0, classes - 1), min_size=n, max_size=n)
    return np.array(draw(labels)), np.array(draw(labels))


@settings(deadline=None)
@given(label_pairs(classes=4))
def test_accuracies_agree_with_scikit_learn(pair):
    truth, guess = pair
    assert metrics.accuracy(truth, guess) == pytest.approx(oracle.accuracy_score(truth, guess))
    if len(set(truth)) > 1:
        recalls = [np.mean(guess[truth == c] == c) for c in set(truth)]
        assert metrics.balanced_accuracy(truth, guess) == pytest.approx(np.mean(recalls))
        if set(guess) <= set(truth):  # otherwise scikit-learn warns
            expected = oracle.balanced_accuracy_score(truth, guess)
            assert metrics.balanced_accuracy(truth, guess) == pytest.approx(expected)


@settings(deadline=None)
@given(label_pairs(classes=2))
def test_mean_precision_is_the_macro_average_of_precisions(pair):
    truth, guess = pair
    expected = oracle.precision_score(truth, guess, average="macro", labels=[0, 1], zero_division=0)
    assert metrics.mean_precision(truth, guess) == pytest.approx(expected)


def test_equation_5_by_hand():
    # tP 2, fP 1, tN 3, fN 2
    truth, guess = [1, 1, 0, 0, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0, 0, 0]
    assert metrics.mean_precision(truth, guess) == pytest.approx((2 / 3 + 3 / 5) / 2)
    assert metrics.accuracy(truth, guess) == 5 / 8  # Eq. 4


def test_equation_5_flatters_one_lucky_positive():
    truth, guess = np.repeat([1, 0], [2_000, 8_000]), np.zeros(10_000, dtype=int)
    guess[0] = 1
    assert metrics.mean_precision(truth, guess) == pytest.approx(0.90, abs=1e-3)
    assert metrics.balanced_accuracy(truth, guess) == pytest.approx(0.50, abs=1e-3)


def test_equation_5_accepts_an_attacker_who_is_right_in_three_of_four():
    truth = np.repeat([1, 0], [400, 7_600])
    guess = np.concatenate([np.repeat([1, 0], [300, 100]), np.repeat([0, 1], [5_700, 1_900])])
    assert metrics.mean_precision(truth, guess) == pytest.approx(0.56, abs=5e-3)
    assert metrics.balanced_accuracy(truth, guess) == 0.75
    assert metrics.priv_loss(metrics.mean_precision(truth, guess)) < 0.10 < metrics.priv_loss(0.75)


def test_a_class_that_is_never_predicted_has_precision_zero():
    assert metrics.mean_precision([1, 1, 1, 0], [1, 1, 1, 1]) == 0.75 / 2


def test_class_average_accuracy_weighs_small_categories_like_large_ones():
    truth = ["face"] * 98 + ["ibis", "lotus"]
    assert metrics.balanced_accuracy(truth, ["face"] * 100) == pytest.approx(1 / 3)


def test_mean_label_accuracy_is_the_mean_over_columns():
    rng = np.random.default_rng(3)
    truth, guess = rng.integers(0, 2, (2, 30, 5))
    columns = [oracle.accuracy_score(truth[:, j], guess[:, j]) for j in range(5)]
    assert metrics.mean_label_accuracy(truth, guess) == pytest.approx(np.mean(columns))


def test_losses_are_differences_of_accuracies():
    assert metrics.pub_loss(0.9, 0.95) == pytest.approx(-0.05)
    assert metrics.priv_loss(0.5) == 0
    assert metrics.priv_loss(0.5, classes=4) == 0.25


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: metrics.accuracy([], []), "y_true must not be empty"),
        (lambda: metrics.accuracy([0, 1], [0, 1, 1]), r"one shape; got \(2,\) and \(3,\)"),
        (lambda: metrics.accuracy([0, 1], [0.2, 0.9]), "got 0.2. Turn scores into labels"),
        (lambda: metrics.accuracy([0, 1], [0, np.nan]), "must be labels; got nan"),
        (lambda: metrics.accuracy(["a"], [1]), "both names or both numbers"),
        (lambda: metrics.accuracy([None, 1], [0, 1]), "whole numbers, booleans or strings; got object"),
        (lambda: metrics.accuracy([[1]], [[1]]), r"1 dimension\(s\); got shape \(1, 1\)"),
        (lambda: metrics.balanced_accuracy([1, 1], [1, 0]), "two classes or more in y_true; got only 1"),
        (lambda: metrics.mean_precision([-1, 1], [0, 1]), "only 0 and 1; got -1. Code yes as 1"),
        (lambda: metrics.mean_precision([0, 1], ["no", "yes"]), "y_pred must hold only 0 and 1; got 'no'"),
        (lambda: metrics.mean_label_accuracy([0, 1], [0, 1]), r"2 dimension\(s\)"),
        (lambda: metrics.pub_loss(92.86, 0.9), r"in \[0, 1\]; got 92.86. Divide percentages"),
        (lambda: metrics.priv_loss(float("nan")), "got nan"),
        (lambda: metrics.priv_loss(0.5, classes=1), "classes must be >= 2; got 1"),
        (lambda: metrics.adjusted_mutual_information([0, 1], [0]), "one shape"),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


@pytest.mark.parametrize("metric", FOUR)
def test_booleans_and_numbers_score_alike(metric):
    truth, guess = np.array([1, 0, 0, 1, 1]), np.array([1, 1, 0, 1, 0])
    assert metric(truth, guess) == metric(truth.astype(bool), guess.astype(float))


@pytest.mark.parametrize("average", ["arithmetic", "max"])
def test_mutual_information_is_zero_on_average_for_chance_and_one_for_renamed_groups(average):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 200)
    assert metrics.adjusted_mutual_information(truth, (truth + 2) % 5, average) == pytest.approx(1)
    chance = [metrics.adjusted_mutual_information(truth, rng.integers(0, 5, 200), average) for _ in range(20)]
    assert abs(np.mean(chance)) < 0.02


def test_every_public_name_is_there_and_sorted():
    assert metrics.__all__ == sorted(metrics.__all__)
    assert len(metrics.__all__) <= 15
    assert all(callable(getattr(metrics, name)) for name in metrics.__all__)


@pytest.mark.parametrize("part", ["classification", "clustering", "intervals", "ranking", "retrieval"])
def test_the_numbers_in_the_docstrings_are_true(part):
    outcome = doctest.testmod(importlib.import_module(f"blindsight.metrics.{part}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0
