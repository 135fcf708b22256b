"""The Hamming-ball mechanism keeps its stated probabilities and loss: by enumeration, forced digits, simulation.

Statistical tests are seeded and fail by chance with probability below 1e-6 each (over the choice of the seed).
"""

import inspect
import math
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from blindsight.errors import InputError
from blindsight.rng import ByteSource, seeded_bytes
from blindsight.search import hammingball
from blindsight.search.codes import pack, unpack
from blindsight.search.flipping import odds, record_beta, response_beta
from blindsight.search.hammingball import HammingBall, categorical

FALSE_ALARM = 1e-6


def replay(*words: int) -> ByteSource:
    """Return a source that gives these 64-bit words, one a call."""
    stock = iter(words)
    return lambda count: next(stock).to_bytes(count, "little")


# --- by enumeration ---


@pytest.mark.parametrize(("bits", "radius"), [(1, 0), (4, 0), (4, 1), (5, 3), (5, 4)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_loss_is_epsilon_over_all_releases_and_neighbours(bits: int, radius: int, epsilon: float) -> None:
    mechanism = HammingBall(bits, epsilon, radius)
    # A code at distance d is one of C(bits, d) that are drawn alike.
    chances = [chance / math.comb(bits, d) for d, chance in enumerate(mechanism._chances)]
    law = {(a, out): chances[(a ^ out).bit_count()] for a in range(2**bits) for out in range(2**bits)}
    assert sum(law[0, out] for out in range(2**bits)) == 1
    ratios = {law[a, out] / law[b, out] for a, out in law for b in range(2**bits)}
    assert max(ratios) == odds(epsilon)
    assert math.log(max(ratios)) == pytest.approx(mechanism.loss, abs=1e-9)


def test_distances_are_what_the_density_says() -> None:
    mechanism = HammingBall(48, 4.0, 11)
    weights = np.array([math.comb(48, d) * (math.exp(4.0) if d <= 11 else 1.0) for d in range(49)])
    assert mechanism.distance_distribution() == pytest.approx(weights / weights.sum(), rel=1e-12)
    assert float(mechanism.expected_distance) == pytest.approx(weights @ np.arange(49) / weights.sum(), rel=1e-12)


@pytest.mark.parametrize("bits", [1, 2, 8, 48, 65])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0, 30.0])
def test_default_radius_keeps_most_bits(bits: int, epsilon: float) -> None:
    best = HammingBall(bits, epsilon)
    distances = [HammingBall(bits, epsilon, radius).expected_distance for radius in range(bits)]
    assert best.radius == distances.index(min(distances))


def test_one_bit_is_randomised_response_and_long_codes_keep_more_than_flips() -> None:
    assert HammingBall(1, 1.3).distance_distribution()[1] == pytest.approx(response_beta(1.3), rel=1e-15)
    for epsilon in (1.0, 4.0, 8.0):
        assert HammingBall(48, epsilon).expected_distance < 48 * record_beta(epsilon, 48)


# --- the draws ---


def test_categorical_decides_by_further_digits_only_where_a_bound_continues() -> None:
    third = 2**64 // 3  # its digits 0101... go on for ever; those of 1/2 end
    up_to = [Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(1), Fraction(1)]
    for words, drawn in [
        ((0,), 1),
        ((third - 1,), 1),
        ((third, third - 1), 1),
        ((third, third, third, 2**64 - 1), 2),
        ((third, third + 1), 2),
        ((third + 1,), 2),
        ((2**63 - 1,), 2),
        ((2**63,), 3),
        ((2**64 - 1,), 3),
    ]:
        assert categorical(up_to, 1, replay(*words)).tolist() == [drawn], words


def test_categorical_resolves_bounds_closer_than_a_word() -> None:
    close = [Fraction(1, 2), Fraction(1, 2) + Fraction(1, 2**66), Fraction(1, 2) + Fraction(1, 2**65), Fraction(1)]
    for second, drawn in [(0, 1), (2**62 - 1, 1), (2**62, 2), (2**63 - 1, 2), (2**63, 3)]:
        assert categorical(close, 1, replay(2**63, second)).tolist() == [drawn]


def test_categorical_follows_its_law() -> None:
    law = np.array([1, 2, 3, 0, 4]) / 10
    counts = np.bincount(categorical([Fraction(i, 10) for i in (1, 3, 6, 6, 10)], 50_000, seeded_bytes(4)))
    assert counts[3] == 0
    assert stats.chisquare(counts[law > 0], 50_000 * law[law > 0]).pvalue > FALSE_ALARM


@pytest.mark.parametrize("radius", [0, 1, 3])
def test_releases_of_a_short_code_follow_the_density(radius: int) -> None:
    bits, n, truth = 5, 40_000, 0b01101
    mechanism = HammingBall(bits, 1.5, radius)
    released = mechanism.release(np.full((n, 1), truth, np.uint8), source=seeded_bytes(2))[:, 0]
    inside = np.array([(truth ^ out).bit_count() <= radius for out in range(2**bits)])
    law = np.where(inside, math.exp(1.5), 1.0)
    assert stats.chisquare(np.bincount(released, minlength=32), n * law / law.sum()).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("bits", "epsilon"), [(12, 1.0), (48, 8.0), (70, 4.0)])
def test_releases_of_long_codes_follow_distance_and_spread_evenly(bits: int, epsilon: float) -> None:
    mechanism, n = HammingBall(bits, epsilon), 40_000  # more than one block
    codes = pack(np.random.default_rng(1).integers(0, 2, (n, bits)))
    flips = unpack(mechanism.release(codes, source=seeded_bytes(3)) ^ codes, bits)
    law = n * mechanism.distance_distribution()
    likely = np.flatnonzero(law > 50)
    cells = np.clip(np.arange(bits + 1), likely[0], likely[-1]) - likely[0]  # the tails go with their neighbours
    counts, expected = np.bincount(cells[flips.sum(axis=1)]), np.bincount(cells, weights=law)
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM
    wrong = float(mechanism.expected_distance) / bits
    for position in range(bits):
        assert stats.binomtest(int(flips[:, position].sum()), n, wrong).pvalue > FALSE_ALARM / bits


@settings(deadline=None)
@given(st.data(), st.integers(1, 40), st.integers(0, 9), st.floats(0.01, 20))
def test_release_keeps_shape_padding_and_input(data: st.DataObject, bits: int, n: int, epsilon: float) -> None:
    codes = pack(data.draw(arrays(np.bool_, (n, bits))))
    before = codes.copy()
    codes.flags.writeable = False
    mechanism = HammingBall(bits, epsilon)
    released = mechanism.release(codes, source=seeded_bytes(1))
    assert np.array_equal(pack(unpack(released, bits)), released)  # refuses bits beyond the code
    assert released.shape == codes.shape
    assert np.array_equal(codes, before)
    assert np.array_equal(mechanism.release(codes, source=seeded_bytes(1)), released)


def test_blocks_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hammingball, "_ROWS", 7)
    released = HammingBall(40, 1.0).release(np.zeros((100, 5), np.uint8))
    assert len(np.unique(released, axis=0)) == 100  # some two agree with probability below 1e-6


def test_randomness_is_the_systems_unless_injected() -> None:
    assert inspect.signature(HammingBall.release).parameters["source"].default is os.urandom
    codes = np.zeros((20, 8), np.uint8)
    assert not np.array_equal(HammingBall(64, 1.0).release(codes), HammingBall(64, 1.0).release(codes))


# --- refusals ---


def test_parameters_without_a_guarantee_are_refused() -> None:
    for epsilon in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="epsilon must be positive and finite"):
            HammingBall(8, epsilon)
    for radius in (-1, 8, 1.5, True):
        with pytest.raises(InputError, match=r"radius must be a whole number in \[0, 7\]"):
            HammingBall(8, 1.0, radius)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="whole number of bits"):
        HammingBall(0, 1.0)
    with pytest.raises(InputError, match=r"uint8 of shape \(n, 1\)"):
        HammingBall(8, 1.0).release(np.zeros((3, 2), np.uint8))
