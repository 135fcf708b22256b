"""Mechanisms on symbols keep their stated probabilities and losses: enumeration, exact oracles, simulation.

Statistical tests are seeded and fail by chance with probability below 1e-6 each (over the choice of the seed).
"""

import inspect
import math
import os
from collections import Counter
from decimal import Context, Decimal
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from blindsight.errors import InputError
from blindsight.rng import seeded_bytes
from blindsight.search.symbols import KaryResponse, SubsetSelection, odds, random_subsets

FALSE_ALARM = 1e-6
BUDGETS = [0.1, 1.0, 8.0]
EPSILONS = [1e-9, 0.02, 1.0, 8.0, 700.0]
SELECTIONS = [(4, 1), (5, 2), (6, 5)]


def decimal_exp(epsilon):
    """Return e^epsilon to 80 digits by another library."""
    context, exact = Context(prec=80), Fraction(epsilon)
    return Fraction(context.exp(context.divide(Decimal(exact.numerator), Decimal(exact.denominator))))


def subset_chance(mechanism, truth, subset):
    """Return how likely a set is released, from how it is drawn: hold the truth or not, then any such set."""
    k, size = mechanism.k, mechanism.size
    if truth in subset:
        return mechanism.truth / math.comb(k - 1, size - 1)
    return (1 - mechanism.truth) / math.comb(k - 1, size)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_odds_are_just_below_the_exponential(epsilon):
    assert 0 < 1 - odds(epsilon) / decimal_exp(epsilon) < Fraction(1, 2**126)


@pytest.mark.parametrize("epsilon", BUDGETS)
def test_symbols_lose_epsilon_over_all_releases_and_neighbours(epsilon):
    for k in (2, 3, 10):
        mechanism = KaryResponse(k, epsilon)
        # What is drawn is exactly e^epsilon rounded down away from uniform, and the table says the same in floats.
        assert mechanism.truth / ((1 - mechanism.truth) / (k - 1)) == odds(epsilon)
        table = mechanism.probabilities()
        assert table.sum(axis=1) == pytest.approx(np.ones(k))
        assert np.log(table[:, None] / table[None]).max() == pytest.approx(mechanism.loss, abs=1e-9)
    for k, size in SELECTIONS:
        mechanism, subsets = SubsetSelection(k, epsilon, size), list(combinations(range(k), size))
        law = [[subset_chance(mechanism, truth, subset) for subset in subsets] for truth in range(k)]
        assert {sum(row) for row in law} == {1}
        worst = max(a / b for column in zip(*law, strict=True) for a in column for b in column)
        assert worst == odds(epsilon)
        assert math.log(worst) == pytest.approx(mechanism.loss, abs=1e-9)


def test_a_set_of_one_is_a_response():
    assert SubsetSelection(7, 1.3, 1).truth == KaryResponse(7, 1.3).truth


@pytest.mark.parametrize("k", [2, 10, 33])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0, 700.0])
def test_default_size_has_the_least_variance(k, epsilon):
    def variance(size):
        """Return that of the estimate (share of sets with the symbol - q) / (p - q) from one set, symbols uniform."""
        p = float(SubsetSelection(k, epsilon, size).truth)
        q = ((size - 1) * p + size * (1 - p)) / (k - 1)
        return size / k * (1 - size / k) / (p - q) ** 2

    best = SubsetSelection(k, epsilon).size
    assert variance(best) <= min(variance(size) for size in range(1, k)) * (1 + 1e-9)
    assert abs(best - max(1.0, k / (math.exp(epsilon) + 1))) < 1


def test_random_subsets_follow_their_law():
    sizes = np.repeat(np.arange(6), 5_000)
    drawn = random_subsets(sizes, 5, seeded_bytes(3))
    assert np.array_equal(drawn.sum(axis=1), sizes)
    codes = drawn @ (1 << np.arange(5))
    for size in range(1, 5):
        counts = np.bincount(codes[sizes == size], minlength=32)
        assert stats.chisquare(counts[counts > 0]).pvalue > FALSE_ALARM / 4
        assert (counts > 0).sum() == math.comb(5, size)


def test_released_symbols_and_subsets_follow_their_law():
    n, source = 10_000, seeded_bytes(7)
    for k, epsilon in ((2, 1.0), (10, 4.0)):
        mechanism = KaryResponse(k, epsilon)
        for truth in (0, k - 1):
            counts = np.bincount(mechanism.release(np.full(n, truth), source=source), minlength=k)
            assert stats.chisquare(counts, n * mechanism.probabilities()[truth]).pvalue > FALSE_ALARM / 4
    for (k, size), epsilon in product(SELECTIONS, (0.1, 2.0)):
        mechanism, subsets = SubsetSelection(k, epsilon, size), list(combinations(range(k), size))
        released = mechanism.release(np.full(n, k - 1), source=source)
        counts = Counter(tuple(np.flatnonzero(row).tolist()) for row in released)
        assert set(counts) <= set(subsets)
        law = [n * float(subset_chance(mechanism, k - 1, subset)) for subset in subsets]
        assert stats.chisquare([counts[subset] for subset in subsets], law).pvalue > FALSE_ALARM / 6


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(2, 40), st.floats(0.01, 20))
def test_symbols_keep_their_shape_and_range_and_the_input_is_left_alone(data, k, epsilon):
    shape = data.draw(st.sampled_from([(0,), (5,), (2, 3), ()]))
    kind = data.draw(st.sampled_from([np.uint8, np.int32, np.int64]))
    symbols = data.draw(arrays(kind, shape, elements=st.integers(0, k - 1)))
    before = symbols.copy()
    symbols.flags.writeable = False
    released = KaryResponse(k, epsilon).release(symbols, source=seeded_bytes(1))
    assert (released.dtype, released.shape) == (np.int64, shape)
    assert ((released >= 0) & (released < k)).all()
    assert np.array_equal(released, KaryResponse(k, epsilon).release(symbols, source=seeded_bytes(1)))
    selection = SubsetSelection(k, epsilon)
    subsets = selection.release(symbols.ravel(), source=seeded_bytes(1))
    assert (subsets.dtype, subsets.shape) == (np.bool_, (symbols.size, k))
    assert (subsets.sum(axis=1) == selection.size).all()
    assert np.array_equal(subsets, selection.release(symbols.ravel(), source=seeded_bytes(1)))
    assert np.array_equal(symbols, before)


@pytest.mark.parametrize("mechanism", [KaryResponse(16, 0.1), SubsetSelection(16, 0.1)])
def test_randomness_is_the_systems_unless_injected(mechanism):
    assert inspect.signature(mechanism.release).parameters["source"].default is os.urandom
    truth = np.zeros(200, np.int64)
    assert not np.array_equal(mechanism.release(truth), mechanism.release(truth))  # equal below 2^-200


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf, 701.0])
def test_what_is_no_budget_is_refused(wrong):
    for refuse in (odds, lambda e: KaryResponse(4, e), lambda e: SubsetSelection(4, e)):
        with pytest.raises(InputError, match="epsilon"):
            refuse(wrong)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        *((lambda k=k: KaryResponse(k, 1.0), "k must") for k in (1, -2, 2.0, True)),
        (lambda: SubsetSelection(1, 1.0), "k must"),
        *((lambda size=size: SubsetSelection(4, 1.0, size), "size") for size in (0, 4, 1.5, True)),
        (lambda: SubsetSelection(4, 1.0, 2).release(np.zeros((2, 2), np.int64)), "shape"),
    ],
)
def test_parameters_without_a_guarantee_and_what_does_not_fit_are_refused(call, named):
    with pytest.raises(InputError, match=named):
        call()


@pytest.mark.parametrize("mechanism", [KaryResponse(4, 1.0), SubsetSelection(4, 1.0)])
def test_what_is_no_symbol_is_refused_without_telling_it(mechanism):
    for wrong in ([1.0], [True], ["a"], [math.nan]):
        with pytest.raises(InputError, match="whole numbers"):
            mechanism.release(wrong)
    for outside in ([0, 97], [-97], np.array([2**64 - 97], np.uint64)):
        with pytest.raises(InputError, match=r"\[0, 3\]") as refusal:
            mechanism.release(outside)
        assert "97" not in str(refusal.value)
