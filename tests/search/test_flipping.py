"""Random Flipping keeps its stated probabilities and losses: by enumeration, exact oracles, simulation.

Statistical tests are seeded and fail by chance with probability below 1e-6 each (over the choice of the seed).
"""

import inspect
import math
import os
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product

import gmpy2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from blindsight.dp.mechanisms import flip_loss
from blindsight.errors import InputError
from blindsight.rng import seeded_bytes
from blindsight.search import flipping
from blindsight.search.codes import hamming, pack, unpack
from blindsight.search.flipping import (
    SMALLEST_PAPER_EPSILON,
    bit_loss,
    expected_flips,
    flip,
    grid_beta,
    lemma5_bound,
    lemma7_bound,
    odds,
    paper_beta,
    record_beta,
    record_beta_approximate,
    record_delta,
    record_loss,
    response_beta,
)

FALSE_ALARM = 1e-6
EPSILONS = [1e-9, 0.02, 0.5, 1.0, 4.0, 8.0, 50.0, 700.0]
SMALL_CODES = list(product((0, 1), repeat=4))


def decimal_exp(epsilon: float | Fraction) -> Fraction:
    """Return e^epsilon to 80 digits by another library."""
    context = Context(prec=80)
    exact = Fraction(epsilon)
    return Fraction(context.exp(context.divide(Decimal(exact.numerator), Decimal(exact.denominator))))


def chance(truth: tuple[int, ...], released: tuple[int, ...], beta: float) -> float:
    return math.prod(beta if a != b else 1 - beta for a, b in zip(truth, released, strict=True))


def exact_delta(beta: float, bits: int, epsilon: float) -> gmpy2.mpfr:
    """Return the hockey-stick divergence between complementary codes in far more digits than a float has."""
    with gmpy2.context(precision=400 + bits):
        lie, factor = gmpy2.mpfr(min(beta, 1 - beta)), gmpy2.exp(gmpy2.mpfr(epsilon))
        excess = (
            math.comb(bits, k) * ((1 - lie) ** k * lie ** (bits - k) - factor * lie**k * (1 - lie) ** (bits - k))
            for k in range(bits + 1)
        )
        return sum((term for term in excess if term > 0), gmpy2.mpfr(0))


# --- probabilities from budgets ---


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_odds_are_below_the_exponential_and_close(epsilon: float) -> None:
    assert 0 < 1 - odds(epsilon) / decimal_exp(epsilon) < Fraction(1, 2**126)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_response_loses_at_most_epsilon_per_bit_and_no_smaller_beta_does(epsilon: float) -> None:
    beta = Fraction(response_beta(epsilon))
    assert 0 < beta <= Fraction(1, 2)
    assert (1 - beta) / beta <= decimal_exp(epsilon)
    smaller = Fraction(math.nextafter(response_beta(epsilon), 0))
    assert (1 - smaller) / smaller > decimal_exp(epsilon)


@pytest.mark.parametrize("bits", [1, 7, 48, 1000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_record_budget_is_kept_over_all_bits(epsilon: float, bits: int) -> None:
    beta = Fraction(record_beta(epsilon, bits))
    assert ((1 - beta) / beta) ** bits <= decimal_exp(epsilon)
    assert record_loss(float(beta), bits) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("bits", [1, 4, 48, 256])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (1.0, 1e-6), (8.0, 1e-6), (8.0, 1e-14), (1.0, 0.3)])
def test_approximate_record_budget_is_kept_and_no_smaller_beta_does(epsilon: float, delta: float, bits: int) -> None:
    beta = record_beta_approximate(epsilon, delta, bits)
    assert exact_delta(beta, bits, epsilon) <= delta
    assert exact_delta(beta * (1 - 1e-9), bits, epsilon) > delta
    assert beta <= record_beta(epsilon, bits)


def test_delta_zero_is_the_pure_budget_and_long_codes_gain_from_delta() -> None:
    assert record_beta_approximate(1.0, 0.0, 48) == record_beta(1.0, 48)
    assert record_beta(8.0, 48) - record_beta_approximate(8.0, 1e-6, 48) > 0.01


# --- exact losses ---


@pytest.mark.parametrize("beta", [0.05, 0.27, 0.4999, 0.5, 0.7])
def test_losses_by_enumeration_of_all_outputs_and_neighbours(beta: float) -> None:
    pairs = [(a, b) for a in SMALL_CODES for b in SMALL_CODES if a != b]
    one_bit = [(a, b) for a, b in pairs if sum(x != y for x, y in zip(a, b, strict=True)) == 1]
    for neighbours, loss in ((one_bit, bit_loss(beta)), (pairs, record_loss(beta, 4))):
        worst = max(math.log(chance(a, o, beta) / chance(b, o, beta)) for a, b in neighbours for o in SMALL_CODES)
        assert worst == pytest.approx(loss, abs=1e-9)


@pytest.mark.parametrize("beta", [0.05, 0.27, 0.7])
@pytest.mark.parametrize("epsilon", [0.0, 0.8, 2.5])
def test_delta_by_enumeration_is_that_of_the_complement(beta: float, epsilon: float) -> None:
    def divergence(a: tuple[int, ...], b: tuple[int, ...]) -> float:
        return sum(max(0.0, chance(a, o, beta) - math.exp(epsilon) * chance(b, o, beta)) for o in SMALL_CODES)

    deltas = {(a, b): divergence(a, b) for a in SMALL_CODES for b in SMALL_CODES}
    assert max(deltas.values()) == pytest.approx(record_delta(beta, 4, epsilon), rel=1e-12)
    assert deltas[SMALL_CODES[0], SMALL_CODES[-1]] == pytest.approx(max(deltas.values()))


@pytest.mark.parametrize("bits", [1, 48, 256])
@pytest.mark.parametrize("beta", [1e-12, 0.018, 0.27, 0.45, 0.4999, 0.98])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_delta_is_right_to_twelve_digits(bits: int, beta: float, share: float) -> None:
    epsilon = share * record_loss(beta, bits)
    exact = exact_delta(beta, bits, epsilon)
    assert abs(record_delta(beta, bits, epsilon) - exact) <= 1e-12 * exact


def test_losses_at_the_ends() -> None:
    for beta in (0.0, 1.0):
        assert bit_loss(beta) == record_loss(beta, 48) == math.inf
        assert record_delta(beta, 48, 100.0) == 1.0
    assert bit_loss(0.5) == record_loss(0.5, 48) == record_delta(0.5, 48, 0.0) == 0.0
    assert record_delta(0.3, 48, record_loss(0.3, 48)) == 0.0


@given(st.floats(1e-300, 1, exclude_max=True))
def test_loss_of_a_bit_is_that_of_randomised_response(beta: float) -> None:
    assert bit_loss(beta) == pytest.approx(flip_loss(beta), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("claimed", "bit", "record"), [(1, 0.54, 26), (2, 1.85, 89), (4, 3.98, 191)])
def test_theorem_4_is_about_one_bit(claimed: float, bit: float, record: float) -> None:
    assert bit_loss(paper_beta(claimed)) == pytest.approx(bit, abs=0.005)
    assert record_loss(paper_beta(claimed), 48) == pytest.approx(record, abs=0.5)


def test_theorem_4_fails_even_for_one_bit_below_the_golden_ratio() -> None:
    assert pytest.approx(0.4812118250596) == SMALLEST_PAPER_EPSILON
    for epsilon in np.linspace(0.02, 5, 200):
        assert (bit_loss(paper_beta(epsilon)) <= epsilon) == (epsilon >= SMALLEST_PAPER_EPSILON)
    assert bit_loss(paper_beta(1 / 50)) > bit_loss(paper_beta(1.0))  # less epsilon, less privacy


# --- the draws ---


@pytest.mark.parametrize("share", range(65))
def test_coins_are_exact_over_all_digits(share: int) -> None:
    # The 64 coins of one word see all 2^6 sequences of six digits once: exactly `share` of them must be 1.
    words = [sum(1 << lane for lane in range(64) if lane >> digit & 1) for digit in range(6)]
    stock = iter(words)
    coins = flipping._coins(share << 58, 1, lambda count: next(stock).to_bytes(count, "little"))
    assert int(coins[0]).bit_count() == share


@pytest.mark.parametrize("beta", [0.0, 1e-5, 0.018, 0.27, math.exp(-1), 0.5, 0.98, 1.0])
@pytest.mark.parametrize("bits", [12, 64])
def test_every_bit_is_flipped_as_often_as_stated(beta: float, bits: int) -> None:
    n = 40_000
    truth = pack(np.random.default_rng(3).integers(0, 2, (n, bits)))
    flips = unpack(flip(truth, bits, beta, source=seeded_bytes(5)), bits) ^ unpack(truth, bits)
    for position in range(bits):
        assert stats.binomtest(int(flips[:, position].sum()), n, beta).pvalue > FALSE_ALARM / bits
    assert stats.binomtest(int(flips.sum()), flips.size, beta).pvalue > FALSE_ALARM


def test_bits_are_flipped_independently_within_and_between_codes() -> None:
    beta, n = 0.3, 60_000
    flips = unpack(flip(np.zeros((n, 2), np.uint8), 16, beta, source=seeded_bytes(8)), 16)
    law = [beta ** outcome.bit_count() * (1 - beta) ** (3 - outcome.bit_count()) for outcome in range(8)]
    for near in (flips[:, [0, 1, 9]], np.stack([flips[:-2, 4], flips[1:-1, 4], flips[2:, 4]], axis=1)[::3]):
        counts = np.bincount(near @ [1, 2, 4], minlength=8)
        assert stats.chisquare(counts, np.array(law) * counts.sum()).pvalue > FALSE_ALARM


@settings(deadline=None)
@given(st.data(), st.integers(1, 80), st.integers(0, 9), st.floats(0, 1))
def test_flip_keeps_shape_padding_and_input(data: st.DataObject, bits: int, n: int, beta: float) -> None:
    codes = pack(data.draw(arrays(np.bool_, (n, bits))))
    before = codes.copy()
    codes.flags.writeable = False
    released = flip(codes, bits, beta, source=seeded_bytes(1))
    assert np.array_equal(pack(unpack(released, bits)), released)  # refuses bits beyond the code
    assert released.shape == codes.shape
    assert np.array_equal(codes, before)
    assert np.array_equal(flip(codes, bits, beta, source=seeded_bytes(1)), released)


@pytest.mark.parametrize("bits", [3, 48, np.int64(77)])
def test_certain_flips(bits: int) -> None:
    truth = np.random.default_rng(0).integers(0, 2, (50, bits)).astype(bool)
    codes = pack(truth)
    assert np.array_equal(flip(codes, bits, 0.0), codes)
    assert flip(codes, bits, 0.0) is not codes
    assert np.array_equal(unpack(flip(codes, bits, 1.0), bits), ~truth)


def test_flips_span_blocks_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flipping, "_BLOCK", 3)
    flips = unpack(flip(np.zeros((4000, 5), np.uint8), 40, 0.3, source=seeded_bytes(2)), 40)
    assert stats.binomtest(int(flips.sum()), flips.size, 0.3).pvalue > FALSE_ALARM
    assert len(np.unique(flips, axis=0)) > 3900  # 2^40 codes: no block repeats another


def test_randomness_is_the_systems_unless_injected() -> None:
    assert inspect.signature(flip).parameters["source"].default is os.urandom
    codes = np.zeros((4, 8), np.uint8)
    assert not np.array_equal(flip(codes, 64, 0.5), flip(codes, 64, 0.5))  # equal with probability 2^-256


@given(st.floats(0, 1))
@example(5e-324)
@example(2.0**-11)
@example(math.nextafter(1, 0))
def test_grid_is_reached_towards_one_half(beta: float) -> None:
    rounded = Fraction(grid_beta(beta))
    assert (rounded * 2**64).denominator == 1
    assert 0 <= rounded - Fraction(beta) < Fraction(1, 2**64)
    assert beta < 2.0**-11 or rounded == beta
    assert bit_loss(grid_beta(beta)) <= bit_loss(beta)


# --- Lemmas 5 and 7 ---


def expected_norm(beta: float, n: int, bits: int) -> tuple[float, float]:
    """Return mean and deviation of ||U - U'||_F: each flip adds 4 to its square, and flips are binomial."""
    flips = np.arange(n * bits + 1)
    law = stats.binom.pmf(flips, n * bits, beta)
    mean = float((2 * np.sqrt(flips) * law).sum())
    return mean, math.sqrt(4 * n * bits * beta - mean**2)


@pytest.mark.parametrize(("beta", "n", "bits"), [(math.exp(-4), 2, 12), (math.exp(-1), 5, 12), (math.exp(-2), 40, 24)])
def test_lemma_5_is_an_upper_bound_and_not_an_equality(beta: float, n: int, bits: int) -> None:
    mean, deviation = expected_norm(beta, n, bits)
    assert 0 < lemma5_bound(beta, n, bits) - mean < deviation
    runs = 4000
    codes = np.zeros((runs * n, -(-bits // 8)), np.uint8)
    flipped = np.bitwise_count(flip(codes, bits, beta, source=seeded_bytes(4))).reshape(runs, -1).sum(axis=1)
    # Six standard deviations of a mean over 4,000 runs: false alarm below 1e-6 (normal: 2e-9).
    assert abs((2 * np.sqrt(flipped)).mean() - mean) < 6 * deviation / math.sqrt(runs)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_lemma_7_holds_and_the_number_of_flips_is_far_tighter(epsilon: float) -> None:
    n, bits, beta, runs = 50, 24, paper_beta(epsilon), 200
    rows = np.random.default_rng(1).integers(0, 2, (n + 1, bits))
    query, codes = pack(rows[:1]), pack(rows[1:])
    before = hamming(query, codes).astype(int)
    source = seeded_bytes(6)
    changes = [np.abs(hamming(query, flip(codes, bits, beta, source=source)) - before).sum() for _ in range(runs)]
    # A change |d_i - d'_i| varies no more than d'_i, by c beta (1 - beta): six standard deviations of the mean.
    mean = float(np.mean(changes)) - 6 * math.sqrt(expected_flips(beta, n, bits) / runs)
    assert mean < expected_flips(beta, n, bits) < lemma7_bound(beta, n, bits) / 7


@settings(deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 0.49))
def test_uniform_debiasing_never_changes_a_ranking(seed: int, beta: float) -> None:
    rows = np.random.default_rng(seed).integers(0, 2, (60, 24))
    noisy = hamming(pack(rows[:1]), flip(pack(rows[1:]), 24, beta, source=seeded_bytes(seed)))[0].astype(float)
    debiased = (noisy - 24 * beta) / (1 - 2 * beta)  # its mean is the true distance
    assert np.array_equal(stats.rankdata(debiased), stats.rankdata(noisy))


# --- refusals ---


@pytest.mark.parametrize("beta", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_is_refused(beta: float) -> None:
    for refuse in (bit_loss, grid_beta, lambda b: flip(np.zeros((1, 1), np.uint8), 8, b)):
        with pytest.raises(InputError, match=r"probability must be in \[0, 1\]"):
            refuse(beta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_budgets_must_be_positive_and_finite(epsilon: float) -> None:
    for refuse in (odds, paper_beta, response_beta, lambda e: record_beta(e, 48)):
        with pytest.raises(InputError, match="epsilon must be positive and finite"):
            refuse(epsilon)


def test_numbers_of_numpy_are_numbers() -> None:
    assert record_beta(np.float32(1), np.int64(48)) == record_beta(1.0, 48)  # type: ignore[arg-type]
    assert record_delta(0.3, np.int64(48), np.float64(1)) == record_delta(0.3, 48, 1.0)  # type: ignore[arg-type]


def test_other_bad_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="epsilon must be at most 700"):
        response_beta(701.0)
    with pytest.raises(InputError, match=r"delta must be in \[0, 1\)"):
        record_beta_approximate(1.0, 1.0, 48)
    with pytest.raises(InputError, match="epsilon must be at least 0"):
        record_delta(0.3, 48, -1.0)
    with pytest.raises(InputError, match="whole number of bits"):
        record_loss(0.3, 0)
    with pytest.raises(InputError, match=r"uint8 of shape \(n, 6\)"):
        flip(np.zeros((3, 8), np.uint8), 48, 0.3)
