"""Noise inside a sum: bounds against laws computed number by number, invariants of clipping, ranges, sentences.

Statistical tests are seeded and fail by chance with probability below 1e-6 each (over the choice of the seed).
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats

from blindsight.dp.accounting import gaussian_sigma
from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.rng import seeded_bytes
from blindsight.statement import find_line, line_id
from blindsight.sums import OWN_SCHEMES, make_terms, open_session, statements
from blindsight.sums.masks import colluders
from blindsight.sums.noise import NoisePlan, clip_factors, clipped, noised, sum_distance
from blindsight.sums.statements import HIDDEN_BY_NOISE
from blindsight.sums.terms import threshold

TERMS = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "clip": 1.0, "members": 5, "drop_outs": 1, "colluders": 1}
TERMS |= {"dimension": 200, "rounds": 10, "largest": 2**28, "reach": 1000.0}
COARSE = NoisePlan(
    unit="member",
    clip=1.0,
    members=4,
    drop_outs=0,
    colluders=0,
    dimension=1,
    rounds=1,
    scale=2.5,
    sigma=2,
    largest=1000,
)


PLAN = NoisePlan.calibrated(**TERMS)
FIVE = ("ann", "bob", "cem", "dan", "eva")


def law(sigma, shares=1, reach=160):
    """Return the probabilities of -reach ... reach under a sum of discrete Gaussians, by convolution."""
    numbers = np.arange(-reach, reach + 1)
    one = np.exp(-(numbers**2) / (2 * sigma**2))
    one /= one.sum()
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one, mode="same")
    return total


def shifted(probabilities, by):
    return np.concatenate([np.zeros(by), probabilities])[: probabilities.size]


@pytest.mark.parametrize("sigma", [math.sqrt(0.5), 1.0, 1.3])
@pytest.mark.parametrize("shares", [2, 3, 6])
def test_a_sum_of_shares_is_as_close_to_one_gaussian_as_tau_says(sigma, shares):
    total, one = law(sigma, shares), law(sigma * math.sqrt(shares))
    seen = one > 1e-30  # beyond, the convolution is rounding
    distance = np.abs(np.log(total[seen] / one[seen])).max()
    assert distance <= sum_distance(sigma, shares) / 2 + 1e-12
    if shares == 2:  # and the bound is no wild exaggeration
        assert distance >= sum_distance(sigma, shares) / 8


@pytest.mark.parametrize("sigma", [math.sqrt(0.5), 1.0, 2.0])
@pytest.mark.parametrize("shares", [1, 2, 5])
@pytest.mark.parametrize("shift", [1, 3])
def test_the_renyi_divergence_stays_below_the_bound(sigma, shares, shift):
    first = law(sigma, shares)
    second = shifted(first, shift)
    both = (first > 1e-200) & (second > 1e-200)
    tau = sum_distance(sigma, shares)
    for order in (1.1, 2.0, 5.0):
        log = order * np.log(first[both]) + (1 - order) * np.log(second[both])
        numeric = np.logaddexp.reduce(log) / (order - 1)
        assert numeric <= order * shift**2 / (2 * shares * sigma**2) + tau + 1e-9


def hockey_stick(first, second, epsilon):
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("sigma", [2, 5])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_the_proven_epsilon_covers_the_exact_trade_off(sigma, rounds, delta):
    plan = replace(COARSE, sigma=sigma, rounds=rounds)
    assert plan.sensitivity == 3.0
    first = law(sigma, plan.honest)
    second = shifted(first, 3)
    if rounds == 2:
        first, second = (np.outer(one, one).ravel() for one in (first, second))
    assert hockey_stick(first, second, plan.epsilon(delta)) <= delta


@pytest.mark.parametrize(("rounds", "delta"), [(1, 1e-5), (20, 1e-6)])
def test_the_proven_epsilon_agrees_with_privacy_loss_distributions(rounds, delta):
    from dp_accounting.pld import privacy_loss_distribution

    plan = replace(COARSE, members=1, sigma=400, scale=49.5, rounds=rounds, largest=100_000)
    exact = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        400, sensitivity=50, value_discretization_interval=1e-4, use_connect_dots=True
    )
    oracle = exact.self_compose(rounds).get_epsilon_for_delta(delta)
    assert plan.sensitivity == 50
    assert plan.accountant(delta) == "gaussian"
    assert oracle * 0.999 <= plan.epsilon(delta) <= oracle * 1.005


def test_where_steps_are_coarse_the_renyi_bound_takes_over():
    plan = replace(COARSE, rounds=20, sigma=1, members=9, dimension=4, scale=1.0)
    assert plan.accountant(1e-6) == "rdp"
    assert math.isfinite(plan.epsilon(1e-6))
    assert plan.rho == pytest.approx(20 * (4 / 18 + 4 * sum_distance(1, 9)))


def test_noise_is_calibrated_to_the_budget_and_to_no_more():
    plan = NoisePlan.calibrated(**TERMS)
    assert 0.9999 < plan.epsilon(1e-6) <= 1.0
    assert plan.loss(1e-6).epsilon <= 1.0
    textbook = gaussian_sigma(epsilon=1.0, delta=1e-6, sensitivity=1.0) * math.sqrt(10)
    assert textbook <= plan.noise_multiplier <= 1.001 * textbook
    assert plan.deviation == pytest.approx(textbook * math.sqrt(5 / 3), rel=0.005)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("epsilon", (8.0, 2.0, 1.0, 0.1)),
        ("delta", (1e-3, 1e-6, 1e-9)),
        ("rounds", (1, 10, 100)),
        ("colluders", (0, 1, 3)),
        ("drop_outs", (0, 2, 3)),
        ("clip", (0.5, 1.0, 4.0)),
    ],
)
def test_what_asks_for_more_gets_more_noise(name, values):
    plans = [NoisePlan.calibrated(**TERMS | {name: value}) for value in values]
    deviations = [plan.deviation for plan in plans]
    assert deviations == sorted(deviations)
    assert len(set(deviations)) == len(deviations)


@pytest.mark.parametrize("unit", ["record", "member"])
@pytest.mark.parametrize("members", [3, 50, 1000])
@pytest.mark.parametrize("dimension", [1, 10_000])
def test_nothing_leaves_the_range(unit, members, dimension):
    largest = (2**31 - 1) // members
    plan = NoisePlan.calibrated(
        **TERMS
        | {"unit": unit, "members": members, "dimension": dimension, "largest": largest, "drop_outs": 0, "reach": 20.0}
    )
    assert plan.limit + plan.tail <= plan.largest
    assert plan.limit >= 20 * plan.clip * plan.scale * (1 - 2**-10) or dimension > 1
    for huge in (1e300, -1e300, np.inf, np.nan):
        sent = plan.contribution([np.full(dimension, huge)], seeded_bytes(1))
        assert np.abs(sent).max() <= largest
    assert np.abs(plan.contribution([], seeded_bytes(2))).max() <= plan.tail


vectors = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(allow_nan=True, allow_infinity=True, width=64),
)


@settings(max_examples=200)
@given(vectors, st.sampled_from([1e-3, 1.0, 1e6]))
def test_clipped_rows_are_short_finite_and_keep_their_direction(rows, clip):
    cut = clipped(rows, clip)
    assert np.isfinite(cut).all()
    assert (np.linalg.norm(cut, axis=1) <= clip).all()
    for row, short in zip(rows, cut, strict=True):
        if not np.isfinite(row).all():
            assert not short.any()
        elif np.abs(row).max() < clip / 8:
            assert (short == row).all()
        else:
            assert (np.sign(short) * np.sign(row) >= 0).all()
            with np.errstate(over="ignore"):
                long = np.linalg.norm(row) > clip
            assert not long or np.linalg.norm(short) >= clip * (1 - 2**-19)


@given(st.lists(st.floats(min_value=0) | st.just(math.nan), min_size=1, max_size=5))
def test_factors_of_lengths_cut_them(lengths):
    factors = clip_factors(np.array(lengths), 2.0)
    for length, factor in zip(lengths, factors, strict=True):
        assert factor * length <= 2.0 if math.isfinite(length) else factor == 0


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from(["record", "member"]), st.floats(1e-3, 1e6))
def test_neighbouring_contributions_are_no_further_apart_than_the_sensitivity(seed, unit, length):
    plan = NoisePlan.calibrated(**TERMS | {"unit": unit, "reach": 4.0})
    rng = np.random.default_rng(seed)
    unit_value = clipped(length * rng.standard_normal(plan.dimension), plan.clip)[0]
    others = clipped(rng.standard_normal((3, plan.dimension)), plan.clip).sum(axis=0) if unit == "record" else 0.0
    zero = np.zeros(plan.dimension)
    sent = plan.contribution([others + unit_value], seeded_bytes(seed))
    without = plan.contribution([others + zero], seeded_bytes(seed))
    assert np.linalg.norm(sent - without) <= plan.sensitivity


def test_contributions_follow_the_stated_law():
    plan = replace(COARSE, dimension=60_000, largest=100)
    total = sum(plan.contribution([], seeded_bytes(seed)) for seed in range(4))
    probabilities = law(2, 4)
    kept = probabilities * total.size >= 20
    observed = np.array([(total == number).sum() for number in np.flatnonzero(kept) - 160])
    expected = probabilities[kept] * total.size
    observed, expected = (
        np.append(observed, total.size - observed.sum()),
        np.append(expected, total.size - expected.sum()),
    )
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_a_plan_is_plain_data():
    plan = NoisePlan.calibrated(**TERMS)
    assert NoisePlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    for wrong in (
        {},
        plan.to_dict() | {"version": 9},
        plan.to_dict() | {"sigma": "x"},
        {"schema": plan.to_dict()["schema"]},
    ):
        with pytest.raises(InputError):
            NoisePlan.from_dict(wrong)


def test_a_sum_stands_for_its_values():
    plan = NoisePlan.calibrated(**TERMS)
    parts = [np.full(plan.dimension, 3.0), np.full(plan.dimension, -1.0)]
    with_values, noise = plan.contribution(parts, seeded_bytes(3)), plan.contribution([], seeded_bytes(3))
    assert plan.values(with_values - noise) == pytest.approx(np.full(plan.dimension, 2.0), abs=1 / plan.scale)


def test_the_statement_names_epsilon_colluders_and_drop_outs():
    plan = PLAN
    said = noised(open_session("masks", members=FIVE, dimension=200).statement(), plan, delta=1e-6, scheme="masks")
    assert said.guarantee == "differential privacy"
    assert (said.unit, said.neighbours, said.delta) == ("record", "add/remove", 1e-6)
    assert said.epsilon == plan.epsilon(1e-6)
    assert any("c = 1" in line and "d = 1" in line for line in said.assumptions)
    assert "n - d = 4" in find_line(said.assumptions, "noise-minimum")
    assert said.randomness == "operating system"
    assert not set(HIDDEN_BY_NOISE) & set(map(line_id, said.not_protected))  # noise is what helps there
    assert {"took-part-records", "general-truth", "epsilon", "spoilt-run"} == set(map(line_id, said.not_protected))
    void = noised(said, plan, delta=1e-6, scheme="masks", source=seeded_bytes(1))
    assert void.status == "void"


def test_without_hiding_the_statement_says_what_the_aggregator_sees():
    said = open_session("plain", members=FIVE, dimension=200).statement()
    plain = noised(said, NoisePlan.calibrated(**TERMS), delta=1e-6, scheme="plain")
    assert line_id(plain.not_protected[0]) == "lone-shares"
    assert "every-update" in map(line_id, plain.not_protected)


def test_words_do_not_decide_what_noise_protects(monkeypatch):
    monkeypatch.setattr(statements, "LINES", {id: f"sentence {i}" for i, id in enumerate(statements.LINES)})
    said = open_session("masks", members=FIVE, dimension=200).statement()
    ids = [line_id(line) for line in noised(said, PLAN, delta=1e-6, scheme="masks").not_protected]
    assert ids == ["epsilon", "took-part-records", "general-truth", "spoilt-run"]


@pytest.mark.parametrize("scheme", OWN_SCHEMES)
def test_noise_leaves_out_what_it_protects_and_nothing_else(scheme):
    said = open_session(scheme, members=FIVE, dimension=200).statement()
    noisy = noised(said, PLAN, delta=1e-6, scheme=scheme)
    gone = {*map(line_id, said.not_protected)} - {*map(line_id, noisy.not_protected)}
    assert gone == {*map(line_id, said.not_protected)} & set(HIDDEN_BY_NOISE)
    assert set(said.assumptions) < set(noisy.assumptions)


# Noise and the terms that a member signs


def terms_for(plan, scheme="masks", **changes):
    names = tuple(f"m{number:03}" for number in range(plan.members))
    fields = {"run": "r", "members": names, "dimension": plan.dimension, "fraction_bits": 0, "absences": -1}
    fields |= {"minimum": plan.members - plan.drop_outs, "minimum_per_position": 1}
    return make_terms(scheme, **fields | changes)


def plan_for(members, **changes):
    needed = threshold(members)
    fields = {"members": members, "drop_outs": members - needed, "colluders": colluders(members), "reach": 1.0}
    largest = terms_for(COARSE, members=tuple(map(str, range(members))), minimum=3).max_integer
    return NoisePlan.calibrated(**TERMS | {"unit": COARSE.unit, "largest": largest} | fields | changes)


@pytest.mark.parametrize("scheme", OWN_SCHEMES)
def test_a_plan_that_was_made_for_the_terms_proves_what_it_was_made_for(scheme):
    plan = plan_for(5)
    terms = terms_for(plan, scheme)
    plan.check(terms, 1e-6)
    assert plan.under(terms) == plan


WRONG = {
    "members": {"members": tuple(map(str, range(6)))},
    "dimension": {"dimension": 100},
    "largest": {"slot_bits": 24},
    "fraction_bits": {"fraction_bits": 8},
    "sample": {"sample": 4, "minimum": 4},
    "whole": {"dimension": 1000, "share": 0.2, "config": bytes(32)},
    "opened": {"minimum": 3},
    "withheld": {"scheme": "dphe", "minimum_per_position": 2},
}


@pytest.mark.parametrize(("named", "changes"), WRONG.items())
def test_a_plan_for_other_terms_is_refused(named, changes):
    plan = plan_for(5)
    with pytest.raises(PrivacyError, match=named):
        plan.check(terms_for(plan, **changes), 1e-6)


def test_groups_and_colluders_are_those_of_the_terms():
    """200 members under masks: the server sees sums of four groups, and members in each may help it."""
    plan = plan_for(200, groups=4, colluders=colluders(50))
    careless = plan_for(200, colluders=0)
    terms = terms_for(plan)
    plan.check(terms, 1e-6)
    assert careless.epsilon(1e-6) <= 1.0
    assert careless.under(terms).epsilon(1e-6) > 2.5  # what the server would read
    for wrong, named in ((careless, "groups is 4"), (replace(plan, colluders=0), "may collude, planned 0")):
        with pytest.raises(PrivacyError, match=named):
            wrong.check(terms, 1e-6)
    replace(plan, colluders=0).check(terms, 1e-6, colluders=0)  # a choice of whoever answers for all members
    assert replace(plan, colluders=0).under(terms).colluders == colluders(50)


@pytest.mark.parametrize(("changes", "delta"), [({"epsilon": 50.0, "delta": 0.5}, 0.5), ({}, 1e-300), ({}, 0.0)])
def test_noise_that_hides_nothing_is_refused(changes, delta):
    plan = plan_for(5, **changes)
    with pytest.raises(PrivacyError, match="noise"):
        plan.check(terms_for(plan), delta)


@settings(max_examples=25)
@given(st.integers(3, 120), st.integers(0, 40), st.integers(0, 20), st.integers(3, 120))
def test_what_terms_leave_of_noise_is_counted_or_refused(members, drop_outs, lying, minimum):
    try:
        plan = replace(COARSE, members=members, drop_outs=drop_outs, colluders=lying, sigma=100, largest=2**20)
    except InputError:
        return
    terms = terms_for(plan, minimum=min(minimum, members), slot_bits=40)
    try:
        real = plan.under(terms)
    except PrivacyError:
        return
    smallest = min(map(len, terms.groups(0)))
    shares = -(-terms.minimum * smallest // members) - max(lying, colluders(smallest))
    assert real.honest == shares >= 1


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": 51.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"clip": 0.0}, "clip"),
        ({"clip": math.nan}, "clip"),
        ({"members": 0}, "members"),
        ({"members": 2.5}, "members"),
        ({"drop_outs": -1}, "drop_outs"),
        ({"colluders": 4}, "collude"),
        ({"groups": 0}, "groups"),
        ({"groups": 3}, "collude"),
        ({"dimension": 0}, "dimension"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"largest": 0}, "largest"),
        ({"reach": 0.0}, "reach"),
        ({"largest": 1000}, "range"),
    ],
)
def test_wrong_parameters_get_a_sentence(wrong, named):
    with pytest.raises(InputError, match=named):
        NoisePlan.calibrated(**TERMS | wrong)


def test_an_unknown_unit_and_a_plan_without_room_are_refused():
    with pytest.raises(UnknownNameError, match="photo"):
        NoisePlan.calibrated(**TERMS | {"unit": "photo"})
    with pytest.raises(InputError, match="room"):
        replace(COARSE, largest=32)
    with pytest.raises(InputError, match="1/2"):
        sum_distance(0.5, 3)
    with pytest.raises(InputError, match="delta"):
        COARSE.epsilon(0.0)
