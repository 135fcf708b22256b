"""Lower bounds on epsilon: from runs on neighbouring inputs, and from one run with many canaries."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import linprog

from blindsight.audit.epsilon import (
    by_coordinate,
    by_frequency,
    check_runs,
    epsilon_bound,
    gaussian_bound,
    known,
    least_mu,
    loss_limit,
    most_certifiable,
    runs_needed,
)
from blindsight.audit.onerun import canaries_needed, one_run_bound, one_run_p_value, published_p_value, surest_guesses
from blindsight.dp.accounting import gaussian_sigma
from blindsight.errors import InputError


def itself(values):
    return values.astype(float)


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

    Each audit may err with probability 1/2; more than 69 of 80 do so with probability below 1e-11.
    """
    rng = np.random.default_rng(1)
    audits = [rng.integers(0, 1000, (2, 2000)) for _ in range(80)]
    wrong = sum(epsilon_bound(*pair, delta=0.0, scorer=by_frequency, confidence=0.5).lower > 0 for pair in audits)
    assert wrong <= 69


def test_a_tight_mechanism_is_not_refuted_more_often_than_stated():
    """Randomised response at epsilon 1: more than 69 errors in 80 audits have a probability below 1e-11."""
    rng, lie = np.random.default_rng(2), 1 / (1 + math.e)
    wrong = 0
    for _ in range(80):
        lies = rng.random((2, 1000)) < lie
        wrong += epsilon_bound(lies[0], ~lies[1], delta=0.0, scorer=by_frequency, confidence=0.5).lower > 1
    assert wrong <= 69


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


@pytest.mark.parametrize("confidence", [0.9, 0.999])
@pytest.mark.parametrize(("alarms", "misses"), [(0.5, 0.5), (0.3, 0.3), (0.05, 0.6), (0.01, 0.01), (0.0, 0.4)])
def test_a_gaussian_limit_exceeds_the_truth_no_more_often_than_stated(alarms, misses, confidence):
    """Exact, over all counts: whatever the two rates of errors are, their mean is bounded as if all were equal."""
    n = 50
    chances = np.convolve(*(stats.binom.pmf(np.arange(n + 1), n, rate) for rate in (alarms, misses)))
    truth = -2 * stats.norm.ppf((alarms + misses) / 2)
    limits = np.array([least_mu(errors, n, confidence) for errors in range(2 * n + 1)])
    assert chances[limits > truth + 1e-12].sum() <= 1 - confidence + 1e-12
    assert limits[0] > 2


def test_gaussian_noise_of_known_epsilon_is_bounded_closely_and_never_too_often_beyond():
    """Each of 80 audits may err with probability 1/2; more than 69 do with probability below 1e-11."""
    rng, wrong, bounds = np.random.default_rng(6), 0, []
    for _ in range(80):
        noise = rng.standard_normal((2, 500))
        wrong += gaussian_bound(noise[0] + 1, noise[1], delta=1e-6, scorer=known(itself), confidence=0.5).mu > 1
    assert wrong <= 69
    noise = gaussian_sigma(epsilon=4.0, delta=1e-6, sensitivity=1.0) * rng.standard_normal((2, 5000))
    for make in (gaussian_bound, epsilon_bound):
        bounds.append(make(noise[0] + 1, noise[1], delta=1e-6, scorer=known(itself)).lower)
    assert 3 < bounds[0] <= 4
    assert bounds[1] < 2


def test_a_gaussian_bound_needs_a_delta_and_runs():
    with pytest.raises(InputError, match="delta"):
        gaussian_bound(np.zeros(9), np.ones(9), delta=0.0, scorer=known(itself))
    with pytest.raises(InputError, match="at least 5"):
        gaussian_bound(np.zeros(4), np.ones(4), delta=1e-6, scorer=known(itself))
    told = gaussian_bound(np.ones(100), np.zeros(100), delta=1e-6, scorer=known(itself))
    assert told.lower == told.most > 10
    assert "mu" in told.attack
    assert gaussian_bound(np.zeros(100), np.zeros(100), delta=1e-6, scorer=known(itself)).lower == 0


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


def test_learned_scores_order_releases_by_their_ratio():
    first = np.array([[1, 1]] * 6 + [[0, 1]] * 2 + [[0, 0]] * 2)
    second = np.array([[1, 1]] * 2 + [[0, 1]] * 2 + [[0, 0]] * 6)
    score = by_frequency(first, second)
    assert score(np.array([[0, 0], [0, 1], [1, 1], [7, 7]])).round(3).tolist() == [-0.956, 0.0, 0.956, 0.0]
    toward = by_coordinate(first, second)(np.array([[1, 1], [0, 0]]))
    assert toward[0] > toward[1]


def p_value(m, r, v, epsilon, delta=0.0):
    return one_run_p_value(canaries=m, guesses=r, correct=v, epsilon=epsilon, delta=delta)


def tail_by_dynamic_programme(guesses, correct, epsilon):
    """How likely so many coins of e^epsilon : 1 come up right, one coin after the other."""
    honest = math.exp(epsilon) / (1 + math.exp(epsilon))
    right = [1.0]
    for _ in range(guesses):
        right = [
            (right[k - 1] * honest if k else 0.0) + (right[k] * (1 - honest) if k < len(right) else 0.0)
            for k in range(len(right) + 1)
        ]
    return sum(right[correct:])


def most_likely_success(m, r, v, epsilon, delta):
    """The largest probability of v right guesses over *all* (epsilon, delta)-private mechanisms: a linear programme.

    Unknowns are the probabilities P[s, t] of guesses t (r of them not 0) for coins s, and for each ordered pair of
    neighbouring coins by how much each output exceeds e^epsilon times its other probability.
    """
    coins = list(product((-1, 1), repeat=m))
    guesses = [t for t in product((-1, 0, 1), repeat=m) if np.count_nonzero(t) == r]
    pairs = [(a, b) for a in range(len(coins)) for b in range(len(coins)) if sum(np.not_equal(coins[a], coins[b])) == 1]
    n_s, n_t = len(coins), len(guesses)
    unknowns = n_s * n_t + len(pairs) * n_t
    success = np.array([[np.sum(np.equal(s, t)) >= v for t in guesses] for s in coins]).ravel() / n_s
    rows, limits = [], []
    for number, (a, b) in enumerate(pairs):
        excess = n_s * n_t + number * n_t
        for t in range(n_t):
            row = np.zeros(unknowns)
            row[a * n_t + t], row[b * n_t + t], row[excess + t] = 1, -math.exp(epsilon), -1
            rows.append(row)
            limits.append(0.0)
        row = np.zeros(unknowns)
        row[excess : excess + n_t] = 1
        rows.append(row)
        limits.append(delta)
    sums = np.zeros((n_s, unknowns))
    for s in range(n_s):
        sums[s, s * n_t : (s + 1) * n_t] = 1
    objective = np.concatenate([-success, np.zeros(len(pairs) * n_t)])
    solved = linprog(objective, A_ub=np.array(rows), b_ub=limits, A_eq=sums, b_eq=np.ones(n_s), method="highs")
    return -solved.fun


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
def test_the_pure_p_value_is_a_binomial_tail(epsilon):
    for guesses, correct in ((1, 1), (7, 3), (40, 31), (40, 40)):
        expected = tail_by_dynamic_programme(guesses, correct, epsilon)
        assert p_value(50, guesses, correct, epsilon) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("m", "r"), [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (0.5, 0.02), (1.5, 0.1), (0.0, 0.05)])
def test_no_private_mechanism_beats_the_p_value(m, r, epsilon, delta):
    for v in range(1, r + 1):
        best, limit = most_likely_success(m, r, v, epsilon, delta), p_value(m, r, v, epsilon, delta)
        assert best <= limit + 1e-8
        if delta == 0:
            assert best == pytest.approx(limit, abs=1e-8)  # and randomised response attains it


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_the_bound_exceeds_the_truth_no_more_often_than_stated(epsilon, delta):
    """Exact, over all numbers of right guesses, for randomised response that also tells the truth in delta of cases."""
    m, confidence = 60, 0.9
    coins = np.ones(m, dtype=np.bool_)
    right = np.arange(m + 1)
    lowers = np.array(
        [
            one_run_bound(coins, np.where(np.arange(m) < v, 1, -1), delta=delta, confidence=confidence).lower
            for v in right
        ]
    )
    honest = delta + (1 - delta) / (1 + math.exp(-epsilon))
    assert stats.binom.pmf(right[lowers > epsilon], m, honest).sum() <= 1 - confidence
    assert (np.diff(lowers) >= 0).all()
    assert lowers[-1] > epsilon


def test_the_published_p_value_is_exceeded_by_a_private_mechanism():
    """Three coins: all answers equally often, but less often the one that is wrong in all three."""
    delta, coins = 0.05, list(product((-1, 1), repeat=3))
    answers = {s: {t: (1 - 7 * delta if np.equal(s, t).sum() == 0 else 1 + delta) / 8 for t in coins} for s in coins}
    for s, t in product(coins, repeat=2):
        if np.not_equal(s, t).sum() == 1:
            assert sum(max(0.0, answers[s][a] - answers[t][a]) for a in coins) <= delta + 1e-12
    success = sum(chance for t, chance in answers[coins[0]].items() if np.equal(coins[0], t).any())
    published = published_p_value(canaries=3, guesses=3, correct=1, epsilon=0.0, delta=delta)
    assert published < success <= p_value(3, 3, 1, 0.0, delta)
    assert (published, success) == pytest.approx((0.9125, 0.91875))


@pytest.mark.parametrize(
    ("m", "r", "v"), [(1000, 1000, 800), (1000, 1000, 1000), (1000, 100, 95), (10**4, 10**4, 6000)]
)
def test_bounds_are_no_lower_than_with_the_published_p_value(m, r, v):
    """At 95% and delta = 1e-5; all guesses of 1,000 right, for example, show 5.809 instead of 5.782."""
    coins = np.ones(m, dtype=np.bool_)
    guesses = np.repeat([1, -1, 0], [v, r - v, m - r])
    lower = one_run_bound(coins, guesses, delta=1e-5, confidence=0.95).lower
    assert published_p_value(canaries=m, guesses=r, correct=v, epsilon=lower, delta=1e-5) > 0.05
    assert one_run_bound(coins, guesses, delta=0.0, confidence=0.95).lower >= lower


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize(("m", "r", "v"), [(100, 20, 17), (1000, 1000, 700), (10**5, 10**4, 9000)])
def test_what_is_ruled_out_is_everything_below_one_epsilon(m, r, v, delta):
    """So that halving finds it, and the bound is sound for every epsilon below it."""
    values = [p_value(m, r, v, epsilon, delta) for epsilon in np.linspace(0, 8, 200)]
    for wanted in (0.05, 1e-3):
        ruled_out = [value <= wanted for value in values]
        assert ruled_out == sorted(ruled_out, reverse=True)


def test_all_guesses_right_give_the_closed_form():
    coins = np.arange(1000) % 3 == 0
    bound = one_run_bound(coins, np.where(coins, 1, -1), delta=0.0, confidence=0.95)
    honest = 0.05 ** (1 / 1000)
    assert bound.lower == bound.most == pytest.approx(math.log(honest / (1 - honest)), abs=1e-9)  # 5.81
    assert (bound.canaries, bound.guesses, bound.correct) == (1000, 1000, 1000)


def test_abstaining_pays_where_few_canaries_tell():
    """Of 1,000 coins 100 are known for sure; guessing the others blindly hides that."""
    rng = np.random.default_rng(1)
    coins = rng.random(1000) < 0.5
    scores = np.where(np.arange(1000) < 100, np.where(coins, 2.0, -2.0), rng.uniform(-1, 1, 1000))
    few, all_of_them = (
        one_run_bound(coins, surest_guesses(scores, guesses), delta=1e-6, confidence=0.95) for guesses in (100, 1000)
    )
    assert few.lower > 3 > 0.5 > all_of_them.lower


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (3.0, 0.0), (3.0, 1e-4), (1.0, 1e-3)])
def test_canaries_needed_are_enough_and_no_fewer_are(epsilon, delta):
    needed = canaries_needed(epsilon, confidence=0.95, delta=delta)

    def perfect(number):
        coins = np.ones(number, dtype=np.bool_)
        return one_run_bound(coins, np.ones(number), delta=delta, confidence=0.95).lower

    assert perfect(needed - 1) < epsilon - 1e-12
    assert perfect(needed) >= epsilon - 1e-12


def bounded(**change):
    return epsilon_bound(**{"first": np.zeros(4), "second": np.ones(4), "delta": 0.0, "scorer": by_frequency} | change)


def test_bad_input_gets_a_sentence():
    coins = np.ones(4, dtype=np.bool_)
    check_runs(runs_needed(8.0), 8.0)
    for call, words in [
        (lambda: check_runs(1000, 8.0), r"49,457.*1,000"),
        (lambda: bounded(confidence=1.0), "confidence"),
        (lambda: bounded(delta=-0.1), "delta"),
        (lambda: bounded(second=np.zeros(3)), "as many runs"),
        (lambda: bounded(scorer=known(lambda values: np.full(len(values), np.nan))), "NaN"),
        (lambda: bounded(scorer=known(lambda values: values[:1])), "one number"),
        (lambda: runs_needed(31.0), "years"),
        (lambda: one_run_bound(coins, [1, 1], delta=0.0), "coin"),
        (lambda: one_run_bound([1, 1, 0, 0], [1, 1, 1, 1], delta=0.0), "coin"),
        (lambda: one_run_bound(coins, [2, 1, 1, 1], delta=0.0), "guess"),
        (lambda: p_value(3, 4, 4, 1.0), "correct"),
        (lambda: surest_guesses([0.0, 1.0], 3), "1 to 2"),
        (lambda: canaries_needed(8.0, delta=1e-3), "canaries"),
    ]:
        with pytest.raises(InputError, match=words):
            call()
