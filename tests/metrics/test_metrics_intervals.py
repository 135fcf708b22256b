"""Intervals: the coverage is computed by enumerating every outcome, so these tests have no false alarms."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from blindsight.errors import InputError
from blindsight.metrics import accuracy_interval, balanced_accuracy_interval


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


@pytest.mark.parametrize("totals", [(6, 9), (2, 30), (14, 14), (4, 5, 3)])
def test_balanced_accuracy_is_covered_with_the_stated_confidence(totals):
    outcomes = product(*(range(n + 1) for n in totals))
    intervals = {x: balanced_accuracy_interval(*predictions(x, totals), confidence=0.9) for x in outcomes}
    rng = np.random.default_rng(5)
    spots = [*rng.random((60, len(totals))), *rng.beta(0.2, 0.2, (60, len(totals))), np.full(len(totals), 0.5)]
    covered = [coverage(totals, rates, intervals) for rates in spots]
    assert min(covered) >= 0.9
    if totals == (14, 14):  # and it is not idle: somewhere nearly all of the error is used
        assert min(covered) < 0.93


@pytest.mark.parametrize(("hits", "totals"), [((4, 7), (8, 10)), ((15, 2), (20, 9)), ((0, 3), (5, 12))])
def test_upper_end_agrees_with_a_brute_force_search_over_both_rates(hits, totals):
    grid = np.linspace(0, 1, 401)
    (x, z), (n, m) = hits, totals
    tail = np.zeros((401, 401))  # P(T <= t) for every pair of rates
    for a, b in product(range(n + 1), range(m + 1)):
        if a * m + b * n <= x * m + z * n:
            tail += binom.pmf(a, n, grid)[:, None] * binom.pmf(b, m, grid)
    survivors = (grid[:, None] + grid)[tail > 0.025] / 2
    high = balanced_accuracy_interval(*predictions(hits, totals)).high
    assert survivors.max() - 0.003 <= high <= survivors.max() + 0.01


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
    ("call", "sentence"),
    [
        (lambda: balanced_accuracy_interval([1, 1], [1, 0]), "two classes or more"),
        (lambda: balanced_accuracy_interval([0, 1], [1, 0], confidence=95), r"in \(0, 1\); got 95. Write 95% as 0.95"),
        (lambda: accuracy_interval([0, 1], [1, 0], comparisons=0), "comparisons must be >= 1; got 0"),
        (lambda: accuracy_interval([], []), "must not be empty"),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()
