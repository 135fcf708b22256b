"""The mechanisms keep their guarantees: by enumeration, by exact ratios of probabilities, on the real rounding."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight.dp.accounting import BoundedLoss, GaussianLoss, LaplaceLoss, gaussian_sigma
from blindsight.dp.mechanisms import (
    GaussianMechanism,
    LaplaceMechanism,
    RandomisedResponse,
    flip_loss,
    flip_probability,
)
from blindsight.errors import InputError
from blindsight.rng import seeded_bytes

FALSE_ALARM = 1e-6

positive = st.floats(0.02, 100.0)
vectors = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6)


# --- randomised response ---


@pytest.mark.parametrize("epsilon", [0.1, 4.0])
def test_randomised_response_loses_epsilon_per_bit_by_enumeration(epsilon):
    flip, bits = flip_probability(epsilon), 4

    def chance(truth, released):
        return math.prod(flip if a != b else 1 - flip for a, b in zip(truth, released, strict=True))

    codes = list(product((0, 1), repeat=bits))
    worst = {
        distance: max(
            math.log(chance(a, out) / chance(b, out))
            for a in codes
            for b in codes
            if sum(x != y for x, y in zip(a, b, strict=True)) == distance
            for out in codes
        )
        for distance in range(1, bits + 1)
    }
    assert worst == pytest.approx({distance: distance * epsilon for distance in worst})
    whole = RandomisedResponse(epsilon=epsilon, bits_per_unit=bits).loss
    assert whole.epsilon * whole.count == pytest.approx(worst[bits])


def test_flip_loss_and_probability_are_inverse_and_honest_at_the_ends():
    for epsilon in (0.0, 0.3, 2.0, 30.0):
        assert flip_loss(flip_probability(epsilon)) == pytest.approx(epsilon)
    for claimed, loss in ((1, 0.54), (2, 1.85), (4, 3.98)):  # of the flips of private hashing
        assert flip_loss(math.exp(-claimed)) == pytest.approx(loss, abs=0.005)
    assert flip_loss(0.0) == flip_loss(1.0) == math.inf
    assert flip_loss(0.98) == pytest.approx(flip_loss(0.02))  # turning nearly every bit around hides as little
    assert flip_probability(1000.0) == 0.0
    for refuse in (lambda: flip_probability(-0.1), lambda: flip_loss(1.1), lambda: flip_loss(math.nan)):
        with pytest.raises(InputError):
            refuse()


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_bits_are_flipped_as_often_as_stated(epsilon):
    truth = np.tile(np.array([0, 1], dtype=np.uint8), 50_000).reshape(50, -1)
    released = RandomisedResponse(epsilon=epsilon, bits_per_unit=1).release(truth, seeded_bytes(2))
    assert released.dtype == np.uint8
    assert released.shape == truth.shape
    for bit in (0, 1):
        flipped = int((released != truth)[truth == bit].sum())
        assert stats.binomtest(flipped, 50_000, 1 / (1 + math.exp(epsilon))).pvalue > FALSE_ALARM


def test_bits_stay_what_they_are_and_others_are_refused():
    truth = np.array([True, False, True])
    released = RandomisedResponse(epsilon=500.0, bits_per_unit=1).release(truth)
    assert released.dtype == np.bool_
    assert released.tolist() == truth.tolist()  # flipping one has probability e^-500
    for wrong in ([0, 2], [0.5], ["0"], [math.nan]):
        with pytest.raises(InputError, match="bits"):
            RandomisedResponse(epsilon=1.0, bits_per_unit=1).release(wrong)


# --- rounding: the bound holds for what the code does with real inputs ---


def steps(values, step):
    return [int(value) for value in np.rint(values / step)]


@settings(max_examples=50)
@given(vectors, st.data(), positive, positive)
def test_laplace_ratio_of_probabilities_is_bounded(values, data, sensitivity, epsilon):
    weights = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=len(values), max_size=len(values))))
    a = np.array(values)
    b = a + weights * (sensitivity / max(np.abs(weights).sum(), 1.0)) * (1 - 1e-9)
    grid = LaplaceMechanism(sensitivity=sensitivity, epsilon=epsilon).grid(a.size)
    # The probabilities of an outcome o are products of exp(-|o - steps| / noise) / Z: the largest ratio is exact.
    loss = sum(abs(x - y) for x, y in zip(steps(a, grid.step), steps(b, grid.step), strict=True)) / grid.noise
    assert loss <= epsilon
    assert grid.noise * grid.step <= 1.001 * sensitivity / epsilon  # and the noise is no larger than it must be


@settings(max_examples=50)
@given(vectors, st.data(), positive, positive)
def test_gaussian_noise_multiplier_is_kept(values, data, sensitivity, sigma):
    weights = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=len(values), max_size=len(values))))
    a = np.array(values)
    b = a + weights * (sensitivity / max(float(np.linalg.norm(weights)), 1.0)) * (1 - 1e-9)
    mechanism = GaussianMechanism(sensitivity=sensitivity, sigma=sigma)
    grid = mechanism.grid(a.size)
    shift = math.hypot(*(x - y for x, y in zip(steps(a, grid.step), steps(b, grid.step), strict=True)))
    assert shift / grid.noise <= (1 + 1e-12) / mechanism.loss.noise_multiplier
    assert grid.noise >= 2**32
    assert grid.noise * grid.step <= 1.001 * sigma


@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_rounding_at_its_worst_is_paid_for(size: int) -> None:
    # Every value lies just below the middle of a step and its neighbour just above: each moves by one step too many.
    laplace = LaplaceMechanism(sensitivity=0.9, epsilon=0.7)
    gaussian = GaussianMechanism(sensitivity=0.9, sigma=2.7)
    for mechanism, share, moved in ((laplace, 0.9 / size, size), (gaussian, 0.9 / math.sqrt(size), math.sqrt(size))):
        grid = mechanism.grid(size)
        whole = math.floor(share / grid.step)
        below, above = np.array([0.5 - 2**-16, whole + 0.5 + 2**-16]) * grid.step
        assert above - below <= share  # within the sensitivity
        (a,), (b,) = steps(np.array([below]), grid.step), steps(np.array([above]), grid.step)
        assert b - a == whole + 1
        bound = 0.7 if mechanism is laplace else 1 / 3.0
        assert moved * (b - a) / grid.noise <= bound


def test_million_values_cost_little_extra_noise():
    laplace = LaplaceMechanism(sensitivity=1.0, epsilon=0.1)
    assert laplace.grid(10**6).noise * laplace.grid(10**6).step < 1.0001 * laplace.scale
    gaussian = GaussianMechanism(sensitivity=1.0, sigma=4.0)
    assert gaussian.grid(10**6).noise * gaussian.grid(10**6).step < 1.0001 * gaussian.sigma


# --- the lemmas of the module's text ---


def laplace_delta(epsilon, at):
    """Return the exact curve of one continuous Laplace release."""
    return np.where(at < epsilon, 1 - np.exp((at - epsilon) / 2), 0.0)


def discrete_laplace_delta(scale, shifts, at):
    """Return the exact curve of discrete Laplace noise on several coordinates, from the law of its privacy loss.

    A coordinate's loss is (|y - shift| - |y|) / scale, a whole number between -shift and shift over scale; losses add.
    """
    total = np.ones(1)
    y = np.arange(-60 * scale, 60 * scale + 1)
    for shift in shifts:
        mass = math.tanh(1 / (2 * scale)) * np.exp(-np.abs(y) / scale)
        total = np.convolve(total, np.bincount(np.abs(y - shift) - np.abs(y) + shift, mass, 2 * shift + 1))
    loss = np.arange(-sum(shifts), sum(shifts) + 1) / scale
    return np.array([(np.maximum(1 - np.exp(x - loss), 0) * total).sum() for x in at])


@pytest.mark.parametrize("scale", [1, 2, 20])
@pytest.mark.parametrize("shifts", [(1,), (10,), (2, 3), (1, 1, 1), (1, 5, 20)])
def test_discrete_laplace_loses_no_more_than_a_slightly_larger_continuous_one(scale, shifts):
    at = np.linspace(0, sum(shifts) / scale * 1.1, 200)
    larger = sum(shift + 1 / (4 * scale) for shift in shifts) / scale
    assert np.all(discrete_laplace_delta(scale, shifts, at) <= laplace_delta(larger, at) + 1e-12)


def test_the_correction_for_discreteness_is_needed():
    at = np.linspace(0, 0.5, 60)
    assert np.any(discrete_laplace_delta(2, (1,), at) > laplace_delta(0.5, at) + 1e-3)


@pytest.mark.parametrize("sigma", [1, 2, 40])
def test_discrete_gaussian_is_close_to_the_rounded_continuous_one(sigma):
    n = np.arange(0, 6 * sigma + 1)
    everywhere = np.arange(-60 * sigma, 60 * sigma + 1)
    discrete = np.exp(-(n**2) / (2 * sigma**2)) / np.exp(-(everywhere**2) / (2 * sigma**2)).sum()
    rounded = stats.norm.sf((n - 0.5) / sigma) - stats.norm.sf((n + 0.5) / sigma)
    assert np.all(np.abs(np.log(rounded / discrete)) <= (1 + (n / sigma) ** 2) / (24 * sigma**2) + 1e-12)


# --- what is released ---


@pytest.mark.parametrize("size", [1, 1000])
def test_released_numbers_lie_on_the_grid(size):
    values = np.linspace(-1, 1, size)
    for mechanism in (LaplaceMechanism(sensitivity=1.0, epsilon=0.3), GaussianMechanism(sensitivity=1.0, sigma=3.0)):
        released = mechanism.release(values, seeded_bytes(1)) / mechanism.grid(size).step
        assert np.array_equal(released, np.rint(released))


def test_noise_has_the_stated_law_around_the_values():
    values = np.linspace(-50, 50, 100_000).reshape(100, -1)
    laplace = LaplaceMechanism(sensitivity=2.0, epsilon=0.5)
    noise = laplace.release(values, seeded_bytes(7)) - values
    assert noise.shape == values.shape
    assert stats.kstest(noise.ravel(), stats.laplace(scale=4.0).cdf).pvalue > FALSE_ALARM
    gaussian = GaussianMechanism(sensitivity=2.0, sigma=4.0)
    noise = gaussian.release(values, seeded_bytes(8)) - values
    assert stats.kstest(noise.ravel(), stats.norm(scale=4.0).cdf).pvalue > FALSE_ALARM


def test_noise_is_fresh_and_values_of_any_shape_are_taken():
    mechanism = LaplaceMechanism(sensitivity=1.0, epsilon=1e3)
    values = np.zeros(9)
    assert not np.array_equal(mechanism.release(values), mechanism.release(values))  # equal by chance: below 2^-100
    assert np.array_equal(mechanism.release(values, seeded_bytes(1)), mechanism.release(values, seeded_bytes(1)))
    assert mechanism.release(5).shape == ()
    assert mechanism.release([3, 4]) == pytest.approx([3, 4], abs=0.1)  # beyond 0.1 with probability e^-100
    assert mechanism.release(np.empty((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    "mechanism", [LaplaceMechanism(sensitivity=1.0, epsilon=1.0), GaussianMechanism(sensitivity=1.0, sigma=1.0)]
)
def test_values_without_a_guarantee_are_refused(mechanism):
    for values, word in (([1.0, math.nan], "finite"), ([math.inf], "finite"), (["a"], "real"), ([1j], "real")):
        with pytest.raises(InputError, match=word):
            mechanism.release(values)
    for values, word in (([1e30], "clip"), ([2**60], "53")):
        with pytest.raises(InputError, match=word):
            mechanism.release(values)


def test_parameters_without_a_guarantee_are_refused():
    for wrong in (0.0, -1.0, math.inf, math.nan):
        for make, named in (
            (lambda wrong: LaplaceMechanism(sensitivity=1.0, epsilon=wrong), "epsilon"),
            (lambda wrong: GaussianMechanism(sensitivity=wrong, sigma=1.0), "sensitivity"),
            (lambda wrong: GaussianMechanism(sensitivity=1.0, sigma=wrong), "sigma"),
            (lambda wrong: RandomisedResponse(epsilon=wrong, bits_per_unit=1), "epsilon"),
        ):
            with pytest.raises(InputError, match=named):
                make(wrong)
    for wrong in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(InputError, match="LaplaceMechanism"):
            GaussianMechanism.calibrated(sensitivity=1.0, epsilon=1.0, delta=wrong)
    with pytest.raises(InputError, match="bits_per_unit"):
        RandomisedResponse(epsilon=1.0, bits_per_unit=0)
    with pytest.raises(InputError, match="too small"):
        LaplaceMechanism(sensitivity=1.0, epsilon=1e-9).grid(10**6)
    with pytest.raises(InputError, match="range"):
        GaussianMechanism(sensitivity=1e300, sigma=1e300).grid(1)


# --- calibration ---


def gaussian_delta(multiplier, epsilon):
    """Return the exact delta of the Gaussian mechanism (Balle and Wang 2018, Theorem 8)."""
    a, b = 1 / (2 * multiplier), epsilon * multiplier
    return float(stats.norm.cdf(a - b) - math.exp(epsilon) * stats.norm.cdf(-a - b))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 0.05])
def test_sigma_is_exactly_enough(epsilon, delta):
    multiplier = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=3.0) / 3.0
    assert gaussian_delta(multiplier, epsilon) <= delta * (1 + 1e-6)  # the formula itself is right to about 1e-7
    assert gaussian_delta(multiplier * 0.9999, epsilon) > delta


def test_losses_and_descriptions():
    assert LaplaceMechanism(sensitivity=2.0, epsilon=0.5).loss == LaplaceLoss(0.5)
    assert GaussianMechanism(sensitivity=2.0, sigma=3.0).loss == GaussianLoss(1.5)
    assert RandomisedResponse(epsilon=0.5, bits_per_unit=8).loss == BoundedLoss(0.5, count=8)
    assert "scale 4 (L1 sensitivity 2)" in str(LaplaceMechanism(sensitivity=2.0, epsilon=0.5))
    assert "deviation 3 (L2 sensitivity 2)" in str(GaussianMechanism(sensitivity=2.0, sigma=3.0))
    assert "probability 0.377541 (8 per unit)" in str(RandomisedResponse(epsilon=0.5, bits_per_unit=8))
