"""The lower bound on epsilon from runs on neighbouring inputs."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight.audit.epsilon import (
    check_runs,
    epsilon_bound,
    loss_limit,
    most_certifiable,
    runs_needed,
)
from blindsight.audit.rates import clopper_pearson
from blindsight.audit.scores import by_coordinate, by_frequency, known
from blindsight.errors import InputError


def itself(values):
    return values.astype(float)


@pytest.mark.parametrize(("hits", "trials", "tail"), [(0, 10, 0.025), (10, 10, 0.05), (3, 40, 1e-5), (777, 1000, 0.01)])
def test_clopper_pearson_agrees_with_scipy(hits, trials, tail):
    interval = stats.binomtest(hits, trials).proportion_ci(confidence_level=1 - 2 * tail, method="exact")
    assert np.allclose(clopper_pearson(hits, trials, tail), (interval.low, interval.high), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize(("likely", "unlikely"), [(0.5, 0.5), (0.8, 0.2), (0.3, 0.05), (1.0, 0.01), (0.02, 0.01)])
def test_a_limit_exceeds_the_truth_no_more_often_than_stated(likely, unlikely, delta):
    """Exact: over all counts that can occur, not over some that were drawn."""
    n, tail = 40, 0.05
    counts = np.arange(n + 1)
    limits = loss_limit(counts[:, None], counts[None, :], n, delta=delta, tail=tail)
    chances = np.outer(stats.binom.pmf(counts, n, likely), stats.binom.pmf(counts, n, unlikely))
    truth = math.log(max((likely - delta) / unlikely, 1.0))
    assert chances[limits > truth + 1e-12].sum() <= 2 * tail


def test_choosing_the_event_costs_no_confidence():
    """Releases of 1,000 kinds that do not depend on the input: some kinds always look telling, to those who look.

    Each audit may err with probability 1/2; more than 150 of 200 do so with probability below 1e-12.
    """
    rng = np.random.default_rng(1)
    audits = [rng.integers(0, 1000, (2, 2000)) for _ in range(200)]
    wrong = sum(epsilon_bound(*pair, delta=0.0, scorer=by_frequency, confidence=0.5).lower > 0 for pair in audits)
    assert wrong <= 150


def test_a_tight_mechanism_is_not_refuted_more_often_than_stated():
    """Randomised response at epsilon 1: more than 150 errors in 200 audits have a probability below 1e-12."""
    rng, lie = np.random.default_rng(2), 1 / (1 + math.e)
    wrong = 0
    for _ in range(200):
        lies = rng.random((2, 1000)) < lie
        wrong += epsilon_bound(lies[0], ~lies[1], delta=0.0, scorer=by_frequency, confidence=0.5).lower > 1
    assert wrong <= 150


def test_the_bound_is_near_the_truth_with_many_runs():
    """Binary, continuous and many-dimensional releases; seeds are fixed."""
    rng = np.random.default_rng(3)
    lies = rng.random((2, 200_000)) < 1 / (1 + math.e**2)
    assert 1.9 < epsilon_bound(lies[0], ~lies[1], delta=0.0, scorer=by_frequency).lower <= 2
    noise = rng.laplace(size=(2, 200_000))
    assert 0.93 < epsilon_bound(noise[0] + 1, noise[1], delta=0.0, scorer=known(itself)).lower <= 1
    bits = rng.random((2, 100_000, 3)) < 0.2
    assert 3 < epsilon_bound(bits[0], ~bits[1], delta=0.0, scorer=by_coordinate).lower <= 3 * math.log(4)


def test_both_directions_are_looked_at():
    """Only one of the inputs ever shows the event that tells them apart."""
    rng = np.random.default_rng(4)
    never, sometimes = np.zeros(4000, dtype=np.int64), (rng.random(4000) < 0.3).astype(np.int64)
    bounds = [
        epsilon_bound(*pair, delta=0.0, scorer=by_frequency).lower for pair in ((never, sometimes), (sometimes, never))
    ]
    assert bounds[0] == bounds[1] > 4  # the other direction alone shows no more than -ln 0.7


def test_delta_excuses_what_is_that_rare():
    """A mechanism that tells everything once in a hundred times is (0, 0.01)-private."""
    rng = np.random.default_rng(5)
    told = [np.where(rng.random(50_000) < 0.01, number, 0) for number in (1, 2)]
    assert epsilon_bound(*told, delta=0.01, scorer=by_frequency).lower == 0
    assert epsilon_bound(*told, delta=0.0, scorer=by_frequency).lower > 3


@settings(deadline=None, max_examples=50)
@given(st.floats(0, 9), st.floats(0.5, 1 - 1e-9), st.sampled_from([0.0, 1e-6, 0.1]))
def test_runs_needed_are_enough_and_no_fewer_are(epsilon, confidence, delta):
    runs = runs_needed(epsilon, confidence=confidence, delta=delta)
    assert most_certifiable(runs, confidence=confidence, delta=delta) >= epsilon * (1 - 1e-9)
    if runs > 2:
        assert most_certifiable(runs - 1, confidence=confidence, delta=delta) < epsilon + 1e-9


def test_a_perfect_distinguisher_reaches_what_is_certifiable():
    runs = runs_needed(3.0, confidence=0.95)
    bound = epsilon_bound(np.zeros(runs), np.ones(runs), delta=0.0, scorer=by_frequency, confidence=0.95)
    assert 3 <= bound.lower == bound.most < 3.05
    assert bound.to_dict()["most"] == bound.most
    assert f"{runs} runs" in bound.attack


def test_too_few_runs_get_told_how_many_are_needed():
    with pytest.raises(InputError, match=r"at least 49,457 runs of each input are needed; got 1,000, which show 4"):
        check_runs(1000, 8.0)
    check_runs(runs_needed(8.0), 8.0)


def test_learned_scores_order_releases_by_their_ratio():
    first = np.array([[1, 1]] * 6 + [[0, 1]] * 2 + [[0, 0]] * 2)
    second = np.array([[1, 1]] * 2 + [[0, 1]] * 2 + [[0, 0]] * 6)
    score = by_frequency(first, second)
    assert score(np.array([[0, 0], [0, 1], [1, 1], [7, 7]])).round(3).tolist() == [-0.956, 0.0, 0.956, 0.0]
    toward = by_coordinate(first, second)(np.array([[1, 1], [0, 0]]))
    assert toward[0] > toward[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confidence": 1.0}, "confidence must be in"),
        ({"delta": -0.1}, "delta must be in"),
        ({"second": np.zeros(3)}, "as many runs"),
        ({"scorer": known(lambda values: np.full(len(values), np.nan))}, "not NaN"),
        ({"scorer": known(lambda values: values[:1])}, "one number"),
    ],
)
def test_bad_input_gets_a_sentence(change, message):
    given = {"first": np.zeros(4), "second": np.ones(4), "delta": 0.0, "scorer": by_frequency} | change
    with pytest.raises(InputError, match=message):
        epsilon_bound(**given)
    with pytest.raises(InputError, match="takes years"):
        runs_needed(31.0)
