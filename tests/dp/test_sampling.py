"""The samplers draw from the stated laws exactly: bounds by an independent series, forced slow paths, goodness of fit.

Statistical tests are seeded and fail by chance with probability below 1e-6 each (over the choice of the seed).
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from blindsight.dp import sampling
from blindsight.dp.sampling import MAX_SCALE, bernoulli, bernoulli_exp, discrete_gaussian, discrete_laplace
from blindsight.errors import InputError
from blindsight.rng import ByteSource, seeded_bytes

FALSE_ALARM = 1e-6
Sampler = Callable[[int, int, ByteSource], NDArray[np.int64]]


def replay(*words):
    """Return a source that gives these 64-bit words and then nothing more."""
    stock = b"".join(word.to_bytes(8, "little") for word in words)

    def source(count):
        nonlocal stock
        assert len(stock) >= count, "more bits were drawn than the question needed"
        given, stock = stock[:count], stock[count:]
        return given

    return source


def exp_by_series(x, terms):
    """Enclose exp(-x) = 1 / exp(x) by Taylor's series of exp(x) with its remainder: no library involved."""
    term, total = Fraction(1), Fraction(1)
    for k in range(1, terms):
        term *= x / k
        total += term
    assert x < terms / 2
    return 1 / (total + 2 * term), 1 / total


@pytest.mark.parametrize("x", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(2**40 - 1, 2**40), Fraction(40)])
@pytest.mark.parametrize("bits", [64, 128, 320])
def test_bounds_of_exp_enclose_it_closely(x, bits):
    low, high = sampling._exp_bounds(x, bits)
    least, most = exp_by_series(x, 400)
    assert low <= least * 2**bits
    assert most * 2**bits <= high
    assert high - low == 1


def test_bounds_of_exp_at_the_ends():
    assert sampling._exp_bounds(Fraction(0), 64) == (2**64, 2**64)
    assert sampling._exp_bounds(Fraction(10**300), 64) == (0, 1)


def test_table_of_geometric_thresholds_is_exact():
    table = sampling._geometric_thresholds()
    for k, threshold in zip(range(45, 0, -1), table.tolist(), strict=True):
        assert sampling._exp_bounds(Fraction(k), 64) == (threshold, threshold + 1)
    assert table[0] == 0  # so that every word is at or above a threshold


def test_coin_draws_more_bits_only_when_undecided():
    third = 2**64 // 3
    assert bernoulli(Fraction(1, 3), 1, replay(third - 1))[0]
    assert not bernoulli(Fraction(1, 3), 1, replay(third + 1))[0]
    assert bernoulli(Fraction(1, 3), 1, replay(third, 0))[0]
    assert not bernoulli(Fraction(1, 3), 1, replay(third, 2**64 - 1))[0]
    assert not bernoulli(Fraction(1, 3), 1, replay(third, third, third + 1))[0]
    assert not bernoulli(0.25, 1, replay(2**62))[0]  # U >= p is decided at once when p ends within the word


@pytest.mark.parametrize(("second", "count"), [(2**63, 45), (2**64 - 1, 44), (1, 88)])
def test_deep_tail_of_the_geometric_count(second: int, count: int) -> None:
    # U = second / 2^128 up to its later bits; the count is floor(-ln U): 45.05, 44.36 and 88.72.
    assert sampling._unit_geometric(1, replay(0, second)).tolist() == [count]


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("scale", [1, 2**40])
def test_slow_path_decides_as_the_fast_path(sampler, scale, monkeypatch):
    fast = sampler(scale, 500, seeded_bytes(3))
    monkeypatch.setattr(sampling, "_DOUBT", 2.0)
    assert np.array_equal(sampler(scale, 500, seeded_bytes(3)), fast)


def fits(draws, weights, reach):
    """Return the chi-square p-value of the draws against an exact law on the integers, tails pooled."""
    support = np.arange(-40 * reach, 40 * reach + 1)
    mass = weights(support)
    expected = mass / mass.sum() * draws.size
    edges = np.flatnonzero(expected >= 20)
    inner = slice(edges[0], edges[-1] + 1)
    observed = np.bincount(draws + 40 * reach, minlength=support.size)
    tails = lambda counts: [counts[: edges[0]].sum(), *counts[inner], counts[edges[-1] + 1 :].sum()]  # noqa: E731
    return float(stats.chisquare(tails(observed), tails(expected)).pvalue)


@pytest.mark.parametrize("scale", [1, 5, 30])
def test_discrete_laplace_fits_its_law(scale):
    draws = discrete_laplace(scale, 300_000, seeded_bytes(scale))
    assert fits(draws, lambda y: np.exp(-np.abs(y) / scale), scale) > FALSE_ALARM


@pytest.mark.parametrize("sigma", [1, 5, 30])
def test_discrete_gaussian_fits_its_law(sigma):
    draws = discrete_gaussian(sigma, 300_000, seeded_bytes(sigma))
    assert fits(draws, lambda y: np.exp(-(y**2) / (2 * sigma**2)), sigma) > FALSE_ALARM


def test_goodness_of_fit_can_fail():
    draws = discrete_laplace(30, 300_000, seeded_bytes(1))
    assert fits(draws, lambda y: np.exp(-np.abs(y) / 31), 30) < FALSE_ALARM


@pytest.mark.parametrize(("sampler", "law"), [(discrete_laplace, stats.laplace), (discrete_gaussian, stats.norm)])
def test_at_full_width_the_laws_are_the_continuous_ones(sampler, law):
    draws = sampler(MAX_SCALE, 200_000, seeded_bytes(11)) / MAX_SCALE  # a step is 2^-44: invisible to this test
    assert stats.kstest(draws, law.cdf).pvalue > FALSE_ALARM
    for moment in (1, 2, 4):  # five standard errors each: 6e-7
        values = draws**moment
        assert abs(values.mean() - law.moment(moment)) < 5 * values.std() / np.sqrt(draws.size)


@pytest.mark.parametrize("exponent", [0.0, 0.01, 1.0, 5.5])
def test_coins(exponent):
    heads = int(bernoulli_exp(exponent, 100_000, seeded_bytes(5)).sum())
    assert stats.binomtest(heads, 100_000, np.exp(-exponent)).pvalue > FALSE_ALARM
    heads = int(bernoulli(np.exp(-exponent), 100_000, seeded_bytes(6)).sum())
    assert stats.binomtest(heads, 100_000, np.exp(-exponent)).pvalue > FALSE_ALARM


def test_sizes_beyond_one_block_and_none_at_all():
    assert discrete_laplace(3, 0).size == 0
    assert bernoulli(0.0, 9).tolist() == [False] * 9
    assert discrete_gaussian(3, sampling._BLOCK + 1, seeded_bytes(1)).shape == (sampling._BLOCK + 1,)


@pytest.mark.parametrize("scale", [0, -3, MAX_SCALE + 1])
def test_scales_out_of_range_are_refused(scale):
    with pytest.raises(InputError, match="44"):
        discrete_laplace(scale, 1)
    with pytest.raises(InputError, match=r"sigma must be"):
        discrete_gaussian(scale, 1)


def test_probabilities_out_of_range_are_refused():
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="0, 1"):
            bernoulli(wrong, 1)
    for wrong in (-0.1, float("inf"), float("nan")):
        with pytest.raises(InputError, match="finite"):
            bernoulli_exp(wrong, 1)
