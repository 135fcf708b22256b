"""k-ary response and subset selection keep their stated probabilities and losses: by enumeration and simulation.

Statistical tests are seeded and fail by chance with probability below 1e-6 each (over the choice of the seed).
"""

import inspect
import math
import os
from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from blindsight.errors import InputError
from blindsight.rng import seeded_bytes
from blindsight.search.flipping import odds, response_beta
from blindsight.search.symbols import KaryResponse, SubsetSelection, random_subsets

FALSE_ALARM = 1e-6
BUDGETS = [0.1, 1.0, 4.0, 8.0]
SELECTIONS = [(4, 1), (5, 2), (6, 3), (6, 5)]


def chance(mechanism: SubsetSelection, truth: int, subset: tuple[int, ...]) -> Fraction:
    """Return how likely a set is released, from how it is drawn: hold the truth or not, then any such set."""
    k, size = mechanism.k, mechanism.size
    if truth in subset:
        return mechanism.truth / math.comb(k - 1, size - 1)
    return (1 - mechanism.truth) / math.comb(k - 1, size)


# --- by enumeration ---


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_kary_response_loses_epsilon_over_all_releases_and_neighbours(k: int, epsilon: float) -> None:
    mechanism = KaryResponse(k, epsilon)
    # What is drawn is exactly e^epsilon rounded down away from uniform ...
    assert mechanism.truth / ((1 - mechanism.truth) / (k - 1)) == odds(epsilon)
    # ... and the table says the same in floats, over all pairs of true symbols and all releases.
    table = mechanism.probabilities()
    assert table.sum(axis=1) == pytest.approx(np.ones(k))
    assert np.log(table[:, None] / table[None]).max() == pytest.approx(mechanism.loss, abs=1e-9)


@pytest.mark.parametrize(("k", "size"), SELECTIONS)
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_subset_selection_loses_epsilon_over_all_releases_and_neighbours(k: int, size: int, epsilon: float) -> None:
    mechanism = SubsetSelection(k, epsilon, size)
    subsets = list(combinations(range(k), size))
    for truth in range(k):
        assert sum(chance(mechanism, truth, subset) for subset in subsets) == 1
    ratios = {
        chance(mechanism, a, subset) / chance(mechanism, b, subset)
        for a in range(k)
        for b in range(k)
        for subset in subsets
    }
    assert max(ratios) == odds(epsilon)
    assert math.log(max(ratios)) == pytest.approx(mechanism.loss, abs=1e-9)


def test_special_cases_agree() -> None:
    assert float(1 - KaryResponse(2, 1.3).truth) == pytest.approx(response_beta(1.3), rel=1e-15)
    assert SubsetSelection(7, 1.3, 1).truth == KaryResponse(7, 1.3).truth


@pytest.mark.parametrize("k", [2, 3, 10, 33, 100])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 2.0, 4.0, 700.0])
def test_default_size_has_the_least_variance(k: int, epsilon: float) -> None:
    def variance(size: int) -> float:
        """Return that of the estimate (share of sets with the symbol - q) / (p - q) from one set, symbols uniform."""
        p = float(SubsetSelection(k, epsilon, size).truth)
        q = ((size - 1) * p + size * (1 - p)) / (k - 1)
        return size / k * (1 - size / k) / (p - q) ** 2

    best = SubsetSelection(k, epsilon).size
    assert variance(best) <= min(variance(size) for size in range(1, k)) * (1 + 1e-9)
    assert abs(best - max(1.0, k / (math.exp(epsilon) + 1))) < 1


# --- posteriors ---


def test_posterior_is_bayes_rule() -> None:
    prior = np.array([0.5, 0.2, 0.2, 0.1, 0.0])
    kary = KaryResponse(5, 1.5)
    joint = prior[:, None] * kary.probabilities()
    assert kary.posterior(10 * prior) == pytest.approx((joint / joint.sum(axis=0)).T)
    selection = SubsetSelection(5, 1.5, 2)
    subsets = list(combinations(range(5), 2))
    released = np.array([[symbol in subset for symbol in range(5)] for subset in subsets])
    expected = np.array([[prior[t] * float(chance(selection, t, subset)) for t in range(5)] for subset in subsets])
    expected /= expected.sum(axis=1, keepdims=True)
    assert selection.posterior(prior, released) == pytest.approx(expected)
    assert selection.posterior(prior, released[:0]).shape == (0, 5)


def test_posterior_of_a_release_the_prior_excludes_is_the_prior() -> None:
    prior = np.array([0.0, 0.25, 0.75])
    assert KaryResponse(3, 700.0).posterior(prior)[0] == pytest.approx(prior)


# --- the draws ---


@pytest.mark.parametrize(("k", "epsilon"), [(2, 1.0), (3, 0.1), (10, 4.0), (32, 1.0)])
def test_kary_releases_follow_the_table(k: int, epsilon: float) -> None:
    mechanism, n = KaryResponse(k, epsilon), 20_000
    source = seeded_bytes(7)
    for truth in {0, 1, k - 1}:
        counts = np.bincount(mechanism.release(np.full(n, truth), source=source), minlength=k)
        assert stats.chisquare(counts, n * mechanism.probabilities()[truth]).pvalue > FALSE_ALARM / 3


@pytest.mark.parametrize(("k", "size"), SELECTIONS)
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_released_subsets_follow_their_law(k: int, size: int, epsilon: float) -> None:
    mechanism, n = SubsetSelection(k, epsilon, size), 20_000
    source = seeded_bytes(9)
    subsets = list(combinations(range(k), size))
    for truth in {0, k - 1}:
        released = mechanism.release(np.full(n, truth), source=source)
        counts = Counter(tuple(np.flatnonzero(row).tolist()) for row in released)
        assert set(counts) <= set(subsets)
        law = [n * float(chance(mechanism, truth, subset)) for subset in subsets]
        assert stats.chisquare([counts[subset] for subset in subsets], law).pvalue > FALSE_ALARM / 2


def test_random_subsets_are_uniform_for_each_size() -> None:
    sizes = np.repeat(np.arange(6), 10_000)
    drawn = random_subsets(sizes, 5, seeded_bytes(3))
    assert np.array_equal(drawn.sum(axis=1), sizes)
    codes = drawn @ (1 << np.arange(5))
    for size in range(1, 5):
        counts = np.bincount(codes[sizes == size], minlength=32)
        assert stats.chisquare(counts[counts > 0]).pvalue > FALSE_ALARM / 4
        assert (counts > 0).sum() == math.comb(5, size)


@settings(deadline=None)
@given(st.data(), st.integers(2, 40), st.floats(0.01, 20))
def test_releases_keep_shape_range_and_input(data: st.DataObject, k: int, epsilon: float) -> None:
    shape = data.draw(st.sampled_from([(0,), (5,), (2, 3), ()]))
    kind = data.draw(st.sampled_from([np.uint8, np.int32, np.int64]))
    symbols = data.draw(arrays(kind, shape, elements=st.integers(0, k - 1)))
    before = symbols.copy()
    symbols.flags.writeable = False
    released = KaryResponse(k, epsilon).release(symbols, source=seeded_bytes(1))
    assert released.dtype == np.int64
    assert released.shape == shape
    assert ((released >= 0) & (released < k)).all()
    assert np.array_equal(released, KaryResponse(k, epsilon).release(symbols, source=seeded_bytes(1)))
    selection = SubsetSelection(k, epsilon)
    subsets = selection.release(symbols.ravel(), source=seeded_bytes(1))
    assert subsets.dtype == np.bool_
    assert subsets.shape == (symbols.size, k)
    assert (subsets.sum(axis=1) == selection.size).all()
    assert np.array_equal(subsets, selection.release(symbols.ravel(), source=seeded_bytes(1)))
    assert np.array_equal(symbols, before)


def test_randomness_is_the_systems_unless_injected() -> None:
    symbols = np.zeros(200, np.int64)
    for mechanism in (KaryResponse(16, 0.1), SubsetSelection(16, 0.1)):
        assert inspect.signature(mechanism.release).parameters["source"].default is os.urandom
        # Two draws of 200 symbols agree with probability below 16^-190.
        assert not np.array_equal(mechanism.release(symbols), mechanism.release(symbols))


# --- refusals ---


@pytest.mark.parametrize("mechanism", [KaryResponse, SubsetSelection])
def test_parameters_without_a_guarantee_are_refused(mechanism: type[KaryResponse | SubsetSelection]) -> None:
    for epsilon in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="epsilon must be positive and finite"):
            mechanism(4, epsilon)
    for k in (1, 0, -2, 2.0, True):
        with pytest.raises(InputError, match="k must be a whole number >= 2"):
            mechanism(k, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 4, -1, 1.5, True])
def test_sizes_that_say_nothing_are_refused(size: int) -> None:
    with pytest.raises(InputError, match=r"size must be a whole number in \[1, 3\]"):
        SubsetSelection(4, 1.0, size)


@pytest.mark.parametrize("mechanism", [KaryResponse(4, 1.0), SubsetSelection(4, 1.0)])
def test_what_is_no_symbol_is_refused_without_telling_it(mechanism: KaryResponse | SubsetSelection) -> None:
    for wrong in ([1.0], [True], ["a"], [math.nan]):
        with pytest.raises(InputError, match="symbols must be whole numbers"):
            mechanism.release(wrong)
    for outside in ([0, 97], [-97], np.array([2**64 - 97], np.uint64)):
        with pytest.raises(InputError, match=r"symbols must be in \[0, 3\]") as refusal:
            mechanism.release(outside)
        assert "97" not in str(refusal.value)


def test_what_does_not_fit_the_mechanism_is_refused() -> None:
    selection = SubsetSelection(4, 1.0, 2)
    with pytest.raises(InputError, match=r"shape \(n,\)"):
        selection.release(np.zeros((2, 2), np.int64))
    with pytest.raises(InputError, match=r"truth values \(n, 4\)"):
        selection.posterior(np.ones(4), np.ones((3, 4)))
    with pytest.raises(InputError, match="hold 2 symbols each"):
        selection.posterior(np.ones(4), np.ones((3, 4), np.bool_))
    for prior in (np.ones(3), [1, -1, 1, 1], [0, 0, 0, 0], [math.nan, 1, 1, 1]):
        with pytest.raises(InputError, match="prior must be 4 finite numbers"):
            KaryResponse(4, 1.0).posterior(prior)
