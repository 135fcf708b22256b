"""Curves against scikit-learn, operating points against all thresholds, intervals against scipy and against chance."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, rankdata
from sklearn.metrics import roc_auc_score, roc_curve

from blindsight.audit.rates import rate
from blindsight.audit.roc import fewest_others, measure
from blindsight.errors import InputError

scores = st.lists(st.integers(0, 12).map(float), min_size=10, max_size=60)  # few values: many draws


@given(members=scores, others=scores)
def test_curve_and_area_are_scikit_learns(members, others):
    roc = measure(members, others, fprs=(0.1,))
    truth = np.repeat([1, 0], [len(members), len(others)])
    fpr, tpr, _ = roc_curve(truth, members + others, drop_intermediate=False)
    np.testing.assert_allclose(roc.curve(), (fpr, tpr))
    assert roc.auc.value == pytest.approx(roc_auc_score(truth, members + others))
    assert roc.auc.low <= roc.auc.value <= roc.auc.high


@given(members=scores, others=scores, allowed=st.sampled_from([0.1, 0.2, 0.5]))
def test_no_threshold_finds_more_members_at_the_allowed_rate(members, others, allowed):
    (point,) = measure(members, others, fprs=(allowed,)).points
    candidates = [-1.0, *sorted(set(members + others))]
    rates = [(np.mean(np.array(others) > t), np.mean(np.array(members) > t)) for t in candidates]
    assert point.tpr.value == max(tpr for fpr, tpr in rates if fpr <= allowed)
    assert point.fpr.value <= allowed <= 1


@given(st.data())
def test_rates_have_clopper_and_pearsons_interval(data):
    trials = data.draw(st.integers(1, 300))
    hits, confidence = data.draw(st.integers(0, trials)), data.draw(st.sampled_from([0.9, 0.95, 0.999]))
    found, exact = rate(hits, trials, confidence=confidence), binomtest(hits, trials).proportion_ci(confidence)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-9)


@given(members=scores, others=scores)
def test_rank_test_agrees_with_permutations_on_small_samples(members, others):
    """The exact p-value of a few distinct scores, by trying every division of them."""
    inside, outside = np.array(members[:4]) + np.arange(4) / 16, np.array(others[:4]) + np.arange(4) / 16 + 1 / 128
    found = measure(inside, outside, fprs=(0.5,)).p_value
    both = np.concatenate([inside, outside])
    sums = [sum(rankdata(both)[list(chosen)]) for chosen in combinations(range(8), 4)]
    assert found == pytest.approx(np.mean(np.array(sums) >= rankdata(both)[:4].sum() - 1e-9))


def test_a_small_gain_over_many_rows_is_not_called_chance():
    rng = np.random.default_rng(0)
    roc = measure(rng.normal(0.2, 1, 1200), rng.normal(size=600), fprs=(0.1,))
    assert roc.auc.low < 0.5  # the long interval alone would not tell
    assert roc.tells()
    assert not measure(np.zeros(50), np.zeros(50), fprs=(0.1,)).tells()


def test_scores_that_tell_nothing_are_seldom_called_a_leak():
    """At a tail of 2.5% 50 of 2,000 are expected; 100 or more happen less than once in 10^9."""
    rng = np.random.default_rng(0)
    alarms = sum(measure(rng.random(60), rng.random(40), fprs=(0.5,)).tells() for _ in range(2000))
    assert 15 < alarms < 100


def test_a_low_rate_needs_enough_others():
    with pytest.raises(InputError, match=r"TPR at 0.001 FPR needs at least 1,000 non-members.*got 999"):
        measure(np.arange(10.0), np.arange(999.0))
    assert measure(np.arange(10.0), np.arange(1000.0)).points[0].fpr.value == 0.001
    assert fewest_others(0.003) == 334


def test_the_true_rate_behind_a_threshold_is_within_its_interval():
    rng, misses, confidence = np.random.default_rng(0), 0, 0.9
    for _ in range(2000):
        (point,) = measure([0.0], rng.random(200), fprs=(0.05,), confidence=confidence).points
        misses += not point.fpr.low <= 1 - point.threshold <= point.fpr.high
    # At most 10% of 2,000 miss, on average; 280 or more happen less than once in 10^8.
    assert misses < 280


@pytest.mark.parametrize(("members", "others"), [([], [1.0]), ([np.nan], [1.0]), ([["a"]], [1.0])])
def test_scores_that_are_none_are_refused(members, others):
    with pytest.raises(InputError, match="scores of members"):
        measure(members, others, fprs=(0.5,))


def test_rates_and_confidences_beyond_their_bounds_are_refused():
    with pytest.raises(InputError, match=r"FPR must be in \(0, 1\); got 1"):
        measure([1.0], [0.0], fprs=(1,))
    with pytest.raises(InputError, match="got 3 of 2"):
        rate(3, 2)
    with pytest.raises(InputError, match=r"Write 95% as 0\.95"):
        rate(1, 2, confidence=95)
