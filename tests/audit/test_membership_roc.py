"""Curves against scikit-learn, operating points against all thresholds, intervals against scipy and against chance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score, roc_curve

from blindsight.audit.rates import rate
from blindsight.audit.roc import fewest_others, measure, others_to_be_sure
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


def test_a_low_rate_needs_enough_others():
    with pytest.raises(InputError, match=r"TPR at 0.001 FPR needs at least 1,000 non-members.*got 999"):
        measure(np.arange(10.0), np.arange(999.0))
    assert measure(np.arange(10.0), np.arange(1000.0)).points[0].fpr.value == 0.001
    assert fewest_others(0.003) == 334
    assert rate(0, others_to_be_sure(0.003)).high <= 0.003 < rate(0, others_to_be_sure(0.003) - 1).high


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
