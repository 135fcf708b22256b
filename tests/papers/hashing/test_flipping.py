"""Mechanisms on codes keep their stated probabilities and losses: enumeration, exact oracles, simulation.

Statistical tests are seeded and fail by chance with probability below 1e-6 each (over the choice of the seed).
"""

import inspect
import math
import os
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from blindsight.dp.mechanisms import flip_loss
from blindsight.errors import InputError
from blindsight.papers.hashing import flipping
from blindsight.papers.hashing.flipping import (
    SMALLEST_PAPER_EPSILON,
    HammingBall,
    bit_loss,
    categorical,
    flip,
    grid_beta,
    paper_beta,
    record_beta,
    record_loss,
    response_beta,
)
from blindsight.rng import seeded_bytes
from blindsight.search.codes import hamming, pack, unpack
from blindsight.search.symbols import KaryResponse, odds

FALSE_ALARM = 1e-6
BUDGETS = [0.1, 1.0, 8.0]
EPSILONS = [1e-9, 0.02, 1.0, 8.0, 700.0]
SMALL_CODES = list(product((0, 1), repeat=4))


def decimal_exp(epsilon):
    """Return e^epsilon to 80 digits by another library."""
    context, exact = Context(prec=80), Fraction(epsilon)
    return Fraction(context.exp(context.divide(Decimal(exact.numerator), Decimal(exact.denominator))))


def chance(truth, released, beta):
    return math.prod(beta if a != b else 1 - beta for a, b in zip(truth, released, strict=True))


# --- probabilities from budgets ---


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_smaller_beta_keeps_the_budget_of_a_bit(epsilon):
    beta = Fraction(response_beta(epsilon))
    assert 0 < beta <= Fraction(1, 2)
    assert (1 - beta) / beta <= decimal_exp(epsilon)
    smaller = Fraction(math.nextafter(response_beta(epsilon), 0))
    assert (1 - smaller) / smaller > decimal_exp(epsilon)


@pytest.mark.parametrize("bits", [1, 48, 1000])
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_record_budget_is_kept_over_all_bits(epsilon, bits):
    beta = Fraction(record_beta(epsilon, bits))
    assert ((1 - beta) / beta) ** bits <= decimal_exp(epsilon)
    assert record_loss(float(beta), bits) == pytest.approx(epsilon, rel=1e-9)


# --- exact losses of flips ---


@pytest.mark.parametrize("beta", [0.05, 0.4999, 0.7])
def test_losses_by_enumeration_of_all_outputs_and_neighbours(beta):
    pairs = [(a, b) for a in SMALL_CODES for b in SMALL_CODES if a != b]
    one_bit = [(a, b) for a, b in pairs if sum(x != y for x, y in zip(a, b, strict=True)) == 1]
    for neighbours, loss in ((one_bit, bit_loss(beta)), (pairs, record_loss(beta, 4))):
        worst = max(math.log(chance(a, o, beta) / chance(b, o, beta)) for a, b in neighbours for o in SMALL_CODES)
        assert worst == pytest.approx(loss, abs=1e-9)


def test_losses_at_the_ends():
    for beta in (0.0, 1.0):
        assert bit_loss(beta) == record_loss(beta, 48) == math.inf
    assert bit_loss(0.5) == record_loss(0.5, 48) == 0.0
    assert record_beta(np.float32(1), np.int64(48)) == record_beta(1.0, 48)  # numbers of numpy are numbers


@given(st.floats(1e-300, 1, exclude_max=True))
def test_loss_of_a_bit_is_that_of_randomised_response(beta):
    assert bit_loss(beta) == pytest.approx(flip_loss(beta), rel=1e-12, abs=1e-15)


def test_theorem_4_is_about_one_bit_and_fails_even_there_below_the_golden_ratio():
    for claimed, bit, record in ((1, 0.54, 26), (2, 1.85, 89), (4, 3.98, 191)):
        assert bit_loss(paper_beta(claimed)) == pytest.approx(bit, abs=0.005)
        assert record_loss(paper_beta(claimed), 48) == pytest.approx(record, abs=0.5)
    assert pytest.approx(0.4812118250596) == SMALLEST_PAPER_EPSILON
    for epsilon in np.linspace(0.02, 5, 200):
        assert (bit_loss(paper_beta(epsilon)) <= epsilon) == (epsilon >= SMALLEST_PAPER_EPSILON)
    assert bit_loss(paper_beta(1 / 50)) > bit_loss(paper_beta(1.0))  # less epsilon, less privacy


# --- exact losses of the others ---


@pytest.mark.parametrize(("bits", "radius"), [(1, 0), (4, 1), (5, 4)])
@pytest.mark.parametrize("epsilon", BUDGETS)
def test_hamming_ball_loses_epsilon_over_all_releases_and_neighbours(bits, radius, epsilon):
    mechanism = HammingBall(bits, epsilon, radius)
    # A code at distance d is one of C(bits, d) that are drawn alike.
    chances = [share / math.comb(bits, d) for d, share in enumerate(mechanism._chances)]
    law = {(a, out): chances[(a ^ out).bit_count()] for a in range(2**bits) for out in range(2**bits)}
    assert sum(law[0, out] for out in range(2**bits)) == 1
    worst = max(law[a, out] / law[b, out] for a, out in law for b in range(2**bits))
    assert worst == odds(epsilon)
    assert math.log(worst) == pytest.approx(mechanism.loss, abs=1e-9)


def test_special_cases_agree():
    assert float(1 - KaryResponse(2, 1.3).truth) == pytest.approx(response_beta(1.3), rel=1e-14)
    assert float(HammingBall(1, 1.3)._chances[1]) == pytest.approx(response_beta(1.3), rel=1e-14)
    for epsilon in (1.0, 4.0, 8.0):  # long codes keep more than flips do
        assert HammingBall(48, epsilon).expected_distance < 48 * record_beta(epsilon, 48)


def test_distances_are_what_the_density_says_and_the_default_radius_keeps_most_bits():
    mechanism = HammingBall(48, 4.0, 11)
    weights = np.array([math.comb(48, d) * (math.exp(4.0) if d <= 11 else 1.0) for d in range(49)])
    assert np.array(mechanism._chances, dtype=float) == pytest.approx(weights / weights.sum(), rel=1e-11)
    assert float(mechanism.expected_distance) == pytest.approx(weights @ np.arange(49) / weights.sum(), rel=1e-11)
    for bits, epsilon in product((1, 8, 48), (0.01, 4.0, 30.0)):
        distances = [HammingBall(bits, epsilon, radius).expected_distance for radius in range(bits)]
        assert HammingBall(bits, epsilon).radius == distances.index(min(distances))


# --- the draws ---


def replay(*words):
    """Return a source that gives these 64-bit words, one a call."""
    stock = iter(words)
    return lambda count: next(stock).to_bytes(count, "little")


@pytest.mark.parametrize("share", [0, 1, 13, 32, 63, 64])
def test_coins_are_exact_over_all_digits(share):
    # The 64 coins of one word see all 2^6 sequences of six digits once: exactly `share` of them must be 1.
    words = [sum(1 << lane for lane in range(64) if lane >> digit & 1) for digit in range(6)]
    assert int(flipping._coins(share << 58, 1, replay(*words))[0]).bit_count() == share


def test_categorical_decides_by_further_digits_only_where_a_bound_continues():
    third = 2**64 // 3  # its digits 0101... go on for ever; those of 1/2 end
    up_to = [Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(1), Fraction(1)]
    for words, drawn in [
        ((0,), 1),
        ((third, third - 1), 1),
        ((third, third, third, 2**64 - 1), 2),
        ((third, third + 1), 2),
        ((2**63 - 1,), 2),
        ((2**63,), 3),
        ((2**64 - 1,), 3),
    ]:
        assert categorical(up_to, 1, replay(*words)).tolist() == [drawn], words
    close = [Fraction(1, 2), Fraction(1, 2) + Fraction(1, 2**66), Fraction(1, 2) + Fraction(1, 2**65), Fraction(1)]
    for second, drawn in [(0, 1), (2**62 - 1, 1), (2**62, 2), (2**63 - 1, 2), (2**63, 3)]:  # closer than a word
        assert categorical(close, 1, replay(2**63, second)).tolist() == [drawn]


def test_categorical_follows_its_law():
    law = np.array([1, 2, 3, 0, 4]) / 10
    counts = np.bincount(categorical([Fraction(i, 10) for i in (1, 3, 6, 6, 10)], 20_000, seeded_bytes(4)))
    assert counts[3] == 0
    assert stats.chisquare(counts[law > 0], 20_000 * law[law > 0]).pvalue > FALSE_ALARM


@pytest.mark.parametrize("beta", [0.0, 1e-5, 0.018, math.exp(-1), 0.98, 1.0])
def test_every_bit_is_flipped_as_often_as_stated(beta):
    n, bits = 20_000, 12
    truth = pack(np.random.default_rng(3).integers(0, 2, (n, bits)))
    flips = unpack(flip(truth, bits, beta, source=seeded_bytes(5)), bits) ^ unpack(truth, bits)
    for position in range(bits):
        assert stats.binomtest(int(flips[:, position].sum()), n, beta).pvalue > FALSE_ALARM / bits
    assert stats.binomtest(int(flips.sum()), flips.size, beta).pvalue > FALSE_ALARM


def test_bits_are_flipped_independently_within_and_between_codes_and_blocks(monkeypatch):
    beta, n = 0.3, 30_000
    flips = unpack(flip(np.zeros((n, 2), np.uint8), 16, beta, source=seeded_bytes(8)), 16)
    law = [beta ** outcome.bit_count() * (1 - beta) ** (3 - outcome.bit_count()) for outcome in range(8)]
    for near in (flips[:, [0, 1, 9]], np.stack([flips[:-2, 4], flips[1:-1, 4], flips[2:, 4]], axis=1)[::3]):
        counts = np.bincount(near @ [1, 2, 4], minlength=8)
        assert stats.chisquare(counts, np.array(law) * counts.sum()).pvalue > FALSE_ALARM
    monkeypatch.setattr(flipping, "_BLOCK", 3)
    monkeypatch.setattr(flipping, "_ROWS", 7)
    flips = unpack(flip(np.zeros((2000, 5), np.uint8), 40, beta, source=seeded_bytes(2)), 40)
    assert stats.binomtest(int(flips.sum()), flips.size, beta).pvalue > FALSE_ALARM
    assert len(np.unique(flips, axis=0)) > 1950  # 2^40 codes: no block repeats another
    released = HammingBall(40, 1.0).release(np.zeros((100, 5), np.uint8))
    assert len(np.unique(released, axis=0)) == 100  # some two agree with probability below 1e-6


def test_balls_around_a_short_code_follow_the_density():
    bits, n, truth = 5, 20_000, 0b01101
    for radius in (0, 3):
        released = HammingBall(bits, 1.5, radius).release(np.full((n, 1), truth, np.uint8), source=seeded_bytes(2))
        inside = np.array([(truth ^ out).bit_count() <= radius for out in range(2**bits)])
        law = np.where(inside, math.exp(1.5), 1.0)
        counts = np.bincount(released[:, 0], minlength=32)
        assert stats.chisquare(counts, n * law / law.sum()).pvalue > FALSE_ALARM / 2


@pytest.mark.parametrize(("bits", "epsilon"), [(12, 1.0), (48, 8.0)])
def test_balls_around_long_codes_follow_distance_and_spread_evenly(bits, epsilon):
    mechanism, n = HammingBall(bits, epsilon), 20_000  # more than one block
    codes = pack(np.random.default_rng(1).integers(0, 2, (n, bits)))
    flips = unpack(mechanism.release(codes, source=seeded_bytes(3)) ^ codes, bits)
    law = n * np.array(mechanism._chances, dtype=float)
    likely = np.flatnonzero(law > 50)
    cells = np.clip(np.arange(bits + 1), likely[0], likely[-1]) - likely[0]  # the tails go with their neighbours
    counts, expected = np.bincount(cells[flips.sum(axis=1)]), np.bincount(cells, weights=law)
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM
    wrong = float(mechanism.expected_distance) / bits
    for position in range(bits):
        assert stats.binomtest(int(flips[:, position].sum()), n, wrong).pvalue > FALSE_ALARM / bits


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 80), st.integers(0, 9), st.floats(0.01, 20))
def test_codes_keep_their_shape_and_padding_and_the_input_is_left_alone(data, bits, n, epsilon):
    codes = pack(data.draw(arrays(np.bool_, (n, bits))))
    before = codes.copy()
    codes.flags.writeable = False
    for release in (lambda source: flip(codes, bits, min(1, epsilon), source=source),) + (
        (lambda source: HammingBall(bits, epsilon).release(codes, source=source),) if bits < 41 else ()
    ):
        released = release(seeded_bytes(1))
        assert np.array_equal(pack(unpack(released, bits)), released)  # refuses bits beyond the code
        assert released.shape == codes.shape
        assert np.array_equal(release(seeded_bytes(1)), released)
    assert np.array_equal(codes, before)


def test_certain_flips():
    for bits in (3, 48, np.int64(77)):
        truth = np.random.default_rng(0).integers(0, 2, (50, bits)).astype(bool)
        codes = pack(truth)
        assert np.array_equal(flip(codes, bits, 0.0), codes)
        assert flip(codes, bits, 0.0) is not codes
        assert np.array_equal(unpack(flip(codes, bits, 1.0), bits), ~truth)


@pytest.mark.parametrize(
    ("release", "input"),
    [
        (flip, (np.zeros((4, 8), np.uint8), 64, 0.5)),
        (HammingBall(64, 1.0).release, (np.zeros((20, 8), np.uint8),)),
    ],
)
def test_randomness_is_the_systems_unless_injected(release, input):
    assert inspect.signature(release).parameters["source"].default is os.urandom
    assert not np.array_equal(release(*input), release(*input))  # equal with probability below 2^-200


@given(st.floats(0, 1))
@example(5e-324)
@example(2.0**-11)
@example(math.nextafter(1, 0))
def test_grid_is_reached_towards_one_half(beta):
    rounded = Fraction(grid_beta(beta))
    assert (rounded * 2**64).denominator == 1
    assert 0 <= rounded - Fraction(beta) < Fraction(1, 2**64)
    assert beta < 2.0**-11 or rounded == beta
    assert bit_loss(grid_beta(beta)) <= bit_loss(beta)


# --- Lemmas 5 and 7 ---


def expected_norm(beta, n, bits):
    """Return mean and deviation of ||U - U'||_F: each flip adds 4 to its square, and flips are binomial."""
    flips = np.arange(n * bits + 1)
    mean = float((2 * np.sqrt(flips) * stats.binom.pmf(flips, n * bits, beta)).sum())
    return mean, math.sqrt(4 * n * bits * beta - mean**2)


@pytest.mark.parametrize(("beta", "n", "bits"), [(math.exp(-4), 2, 12), (math.exp(-1), 5, 12)])
def test_lemma_5_is_an_upper_bound_and_not_an_equality(beta, n, bits):
    mean, deviation = expected_norm(beta, n, bits)
    assert 0 < 2 * math.sqrt(beta * n * bits) - mean < deviation
    runs = 4000
    codes = np.zeros((runs * n, -(-bits // 8)), np.uint8)
    flipped = np.bitwise_count(flip(codes, bits, beta, source=seeded_bytes(4))).reshape(runs, -1).sum(axis=1)
    # Six standard deviations of a mean over 4,000 runs: false alarm below 1e-6 (normal: 2e-9).
    assert abs((2 * np.sqrt(flipped)).mean() - mean) < 6 * deviation / math.sqrt(runs)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_lemma_7_holds_and_the_number_of_flips_is_far_tighter(epsilon):
    n, bits, beta, runs = 50, 24, paper_beta(epsilon), 200
    rows = np.random.default_rng(1).integers(0, 2, (n + 1, bits))
    query, codes = pack(rows[:1]), pack(rows[1:])
    before, source = hamming(query, codes).astype(int), seeded_bytes(6)
    changes = [np.abs(hamming(query, flip(codes, bits, beta, source=source)) - before).sum() for _ in range(runs)]
    # A change |d_i - d'_i| varies no more than d'_i, by c beta (1 - beta): six standard deviations of the mean.
    expected = n * bits * beta
    mean = float(np.mean(changes)) - 6 * math.sqrt(expected / runs)
    assert mean < expected < n * bits * math.sqrt(n * beta) / 7


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.floats(0.01, 0.49))
def test_uniform_debiasing_never_changes_a_ranking(seed, beta):
    rows = np.random.default_rng(seed).integers(0, 2, (60, 24))
    noisy = hamming(pack(rows[:1]), flip(pack(rows[1:]), 24, beta, source=seeded_bytes(seed)))[0].astype(float)
    debiased = (noisy - 24 * beta) / (1 - 2 * beta)  # its mean is the true distance
    assert np.array_equal(stats.rankdata(debiased), stats.rankdata(noisy))


# --- refusals ---


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_budget_and_no_probability_is_refused(wrong):
    for refuse in (paper_beta, response_beta, lambda e: record_beta(e, 48), lambda e: HammingBall(8, e)):
        with pytest.raises(InputError, match="epsilon"):
            refuse(wrong)
    if wrong:
        for refuse in (bit_loss, grid_beta, lambda b: flip(np.zeros((1, 1), np.uint8), 8, b)):
            with pytest.raises(InputError, match="probability"):
                refuse(wrong)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: response_beta(701.0), "700"),
        (lambda: record_loss(0.3, 0), "bits"),
        (lambda: flip(np.zeros((3, 8), np.uint8), 48, 0.3), "uint8"),
        (lambda: HammingBall(0, 1.0), "bits"),
        *((lambda radius=radius: HammingBall(8, 1.0, radius), "radius") for radius in (-1, 8, 1.5, True)),
        (lambda: HammingBall(8, 1.0).release(np.zeros((3, 2), np.uint8)), "uint8"),
    ],
)
def test_parameters_without_a_guarantee_and_what_does_not_fit_are_refused(call, named):
    with pytest.raises(InputError, match=named):
        call()
