"""Accuracies against scikit-learn and worked examples; intervals against every possible outcome."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest
from sklearn import metrics as oracle

from blindsight import metrics
from blindsight.errors import InputError
from blindsight.metrics import accuracy_interval, balanced_accuracy_interval

FOUR = (metrics.accuracy, metrics.balanced_accuracy, metrics.mean_precision, metrics.adjusted_mutual_information)


@st.composite
def label_pairs(draw, classes):
    n = draw(st.integers(2, 40))
    labels = st.lists(st.integers(0, classes - 1), min_size=n, max_size=n)
    return np.array(draw(labels)), np.array(draw(labels))


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


def test_equation_5_flatters_and_accepts_where_balanced_accuracy_does_not():
    lucky, truth = np.arange(1_000) < 1, np.arange(1_000) < 200
    assert metrics.mean_precision(truth, lucky) == pytest.approx(0.90, abs=1e-3)
    assert metrics.balanced_accuracy(truth, lucky) == pytest.approx(0.50, abs=3e-3)
    truth, attack = np.repeat([1, 0], [40, 760]), np.repeat([1, 0, 0, 1], [30, 10, 570, 190])
    assert metrics.balanced_accuracy(truth, attack) == 0.75
    assert metrics.priv_loss(metrics.mean_precision(truth, attack)) < 0.10 < metrics.priv_loss(0.75)


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


# --- intervals: the coverage is computed by enumerating every outcome, so these tests have no false alarms ---


def predictions(hits, totals):
    """Labels and predictions with so many hits in each class; misses name the next class."""
    classes = len(totals)
    truth = np.repeat(np.arange(classes), totals)
    guess = [np.repeat([c, (c + 1) % classes], [x, n - x]) for c, (x, n) in enumerate(zip(hits, totals, strict=True))]
    return truth, np.concatenate(guess)


def coverage(totals, rates, intervals):
    """The exact probability that the interval holds the mean of `rates`, over all outcomes."""
    pmfs = [binom.pmf(np.arange(n + 1), n, p) for n, p in zip(totals, rates, strict=True)]
    covered = 0.0
    for hits, (low, high) in intervals.items():
        if low <= np.mean(rates) <= high:
            covered += np.prod([pmf[x] for pmf, x in zip(pmfs, hits, strict=True)])
    return covered


@pytest.mark.parametrize("totals", [(2, 20), (14, 14), (4, 5, 3)])
def test_balanced_accuracy_is_covered_with_the_stated_confidence(totals):
    outcomes = product(*(range(n + 1) for n in totals))
    intervals = {x: balanced_accuracy_interval(*predictions(x, totals), confidence=0.9) for x in outcomes}
    rng = np.random.default_rng(5)
    spots = [*rng.random((40, len(totals))), *rng.beta(0.2, 0.2, (40, len(totals))), np.full(len(totals), 0.5)]
    covered = [coverage(totals, rates, intervals) for rates in spots]
    assert min(covered) >= 0.9
    if totals == (14, 14):  # and it is not idle: somewhere nearly all of the error is used
        assert min(covered) < 0.93


@pytest.mark.parametrize(("hits", "totals"), [((4, 7), (8, 10)), ((15, 2), (20, 9)), ((0, 3), (5, 12))])
def test_upper_end_agrees_with_a_brute_force_search_over_both_rates(hits, totals):
    grid = np.linspace(0, 1, 201)
    (x, z), (n, m) = hits, totals
    tail = np.zeros((201, 201))  # P(T <= t) for every pair of rates
    for a, b in product(range(n + 1), range(m + 1)):
        if a * m + b * n <= x * m + z * n:
            tail += binom.pmf(a, n, grid)[:, None] * binom.pmf(b, m, grid)
    survivors = (grid[:, None] + grid)[tail > 0.025] / 2
    high = balanced_accuracy_interval(*predictions(hits, totals)).high
    assert survivors.max() - 0.006 <= high <= survivors.max() + 0.01


def test_published_half_width_and_its_rivals():
    low, high = balanced_accuracy_interval(*predictions((798, 798), (1450, 1450)))
    half = (high - low) / 2
    normal = 1.96 * np.sqrt(0.55 * 0.45 * 2 / 1450) / 2
    hoeffding = np.sqrt(np.log(40) / 2 * 2 / 1450) / 2
    assert normal <= half < 1.05 * normal < 0.8 * hoeffding
    assert half == pytest.approx(0.019, abs=5e-4)


def test_interval_mirrors_when_right_and_wrong_change_places():
    low, high = balanced_accuracy_interval(*predictions((9, 30), (12, 35)))
    mirrored = balanced_accuracy_interval(*predictions((3, 5), (12, 35)))
    assert (1 - high, 1 - low) == pytest.approx(mirrored)


def test_perfect_and_hopeless_answers_touch_the_ends():
    assert balanced_accuracy_interval(*predictions((5, 9), (5, 9))).high == 1
    assert balanced_accuracy_interval(*predictions((0, 0), (5, 9))).low == 0
    assert balanced_accuracy_interval(*predictions((1, 1), (1, 1))).high == 1


@pytest.mark.parametrize("interval", [accuracy_interval, balanced_accuracy_interval])
def test_comparisons_share_the_error(interval):
    pair = predictions((20, 33), (30, 50))
    assert interval(*pair, comparisons=5) == pytest.approx(interval(*pair, confidence=0.99))
    alone, together = interval(*pair), interval(*pair, comparisons=9)
    assert together.low < alone.low < alone.high < together.high


@pytest.mark.parametrize(("hits", "total"), [(0, 7), (3, 7), (7, 7), (930, 1000)])
def test_wilson_agrees_with_scipy(hits, total):
    truth = np.ones(total, dtype=int)
    expected = binomtest(hits, total).proportion_ci(0.95, method="wilson")
    got = accuracy_interval(truth, np.repeat([1, 0], [hits, total - hits]))
    assert got == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: metrics.accuracy([], []), "empty"),
        (lambda: metrics.accuracy([0, 1], [0, 1, 1]), r"\(2,\) and \(3,\)"),
        (lambda: metrics.accuracy([0, 1], [0.2, 0.9]), "0.2"),
        (lambda: metrics.accuracy([0, 1], [0, np.nan]), "nan"),
        (lambda: metrics.accuracy(["a"], [1]), "names"),
        (lambda: metrics.accuracy([None, 1], [0, 1]), "object"),
        (lambda: metrics.accuracy([[1]], [[1]]), r"\(1, 1\)"),
        (lambda: metrics.balanced_accuracy([1, 1], [1, 0]), "two classes"),
        (lambda: metrics.mean_precision([-1, 1], [0, 1]), "got -1"),
        (lambda: metrics.mean_precision([0, 1], ["no", "yes"]), "y_pred .* 'no'"),
        (lambda: metrics.mean_label_accuracy([0, 1], [0, 1]), "2 dimension"),
        (lambda: metrics.pub_loss(92.86, 0.9), "92.86"),
        (lambda: metrics.priv_loss(float("nan")), "nan"),
        (lambda: metrics.priv_loss(0.5, classes=1), "classes"),
        (lambda: metrics.adjusted_mutual_information([0, 1], [0]), "one shape"),
        (lambda: balanced_accuracy_interval([1, 1], [1, 0]), "two classes"),
        (lambda: balanced_accuracy_interval([0, 1], [1, 0], confidence=95), "confidence .* 95"),
        (lambda: accuracy_interval([0, 1], [1, 0], comparisons=0), "comparisons"),
    ],
)
def test_bad_input_is_refused(call, named):
    with pytest.raises(InputError, match=named):
        call()
