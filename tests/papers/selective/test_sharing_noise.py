"""Noise of selective sharing: its exact scale, what clipping bounds, calibration."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight.dp.accounting import GaussianLoss, epsilon_of
from blindsight.errors import InputError
from blindsight.learn.protection import RecordGaussian, calibrate_record
from blindsight.papers.selective import noise as noise_module
from blindsight.papers.selective.noise import Laplace, ParticipantGaussian, PublishedLaplace, calibrate_participant
from blindsight.rng import seeded_bytes

FALSE_ALARM = 1e-6  # of each statistical test here

sizes = st.floats(-1e30, 1e30)


def scale_is(noise, sigma):
    """Whether the sum of squares is what Gaussian noise of this deviation gives, two-sided."""
    chance = stats.chi2.cdf(np.square(noise / sigma).sum(), noise.size)
    return min(chance, 1 - chance) > FALSE_ALARM / 2


# --- Laplace ---


@pytest.mark.parametrize("kind", [Laplace, PublishedLaplace])
@pytest.mark.parametrize("centre", [0.1, -0.04])
def test_laplace_scale_is_twice_the_bound_by_epsilon(kind, centre):
    bound, epsilon, draws = 0.1, 4.0, 100_000
    released = kind(epsilon).release(np.full(draws, centre), bound, seeded_bytes(3))
    edges = np.linspace(-bound, bound, 21)
    inside = np.histogram(released[np.abs(released) < bound], edges)[0]
    seen = [int((released == -bound).sum()), *inside.tolist(), int((released == bound).sum())]
    law = stats.laplace(loc=centre, scale=2 * bound / epsilon)
    chances = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    assert sum(seen) == draws
    assert stats.chisquare(seen, draws * chances).pvalue > FALSE_ALARM
    wrong = np.diff(np.concatenate([[0.0], stats.laplace(loc=centre, scale=2.1 * bound / epsilon).cdf(edges), [1.0]]))
    assert stats.chisquare(seen, draws * wrong).pvalue < FALSE_ALARM  # five percent more noise would be seen


def test_laplace_bounds_what_any_two_changes_can_tell(monkeypatch):
    asked = []

    def silent(scale, size, source):
        asked.append(scale)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(noise_module, "discrete_laplace", silent)
    bound, epsilon = 0.1, 1.5
    step = noise_module.LaplaceMechanism(sensitivity=2 * bound, epsilon=epsilon).grid(1).step
    changes = np.array([-3e38, -1.0, -0.1, -0.05, 0.0, 1e-40, 0.1, 7.0, 3e38])
    sent = Laplace(epsilon).release(changes, bound) / step
    for first, second in product(sent, repeat=2):  # probabilities differ by exp(|steps apart| / scale) at most
        assert abs(round(first) - round(second)) / asked[0] <= epsilon


def test_published_order_lets_a_large_change_through():
    everything = PublishedLaplace(1.0).release(np.array([1e9, -1e9]), 0.1)
    assert everything.tolist() == [0.1, -0.1]  # surely, so the loss is infinite
    ends = Laplace(1.0).release(np.repeat([1e9, -1e9], 2000), 0.1, seeded_bytes(1)).reshape(2, -1)
    upper, lower = (ends == 0.1).mean(axis=1)
    assert 0.15 < lower < upper < 1.3 * math.e * lower  # the chances are 1/2 and 1/(2e)


# --- Gaussian, per participant ---


def test_gaussian_scale_is_the_multiplier_times_the_clip():
    gaussian = ParticipantGaussian(clip=0.3, noise_multiplier=1.7)
    released = gaussian.release(np.zeros(100_000), seeded_bytes(4))
    assert scale_is(released, 1.7 * 0.3)
    assert not scale_is(released, 1.03 * 1.7 * 0.3)  # three percent less noise would be seen


@settings(max_examples=50)
@given(st.lists(sizes, min_size=1, max_size=30), st.floats(1e-3, 1e3))
def test_shortened_values_are_no_longer_than_the_clip_in_exact_arithmetic(values, clip):
    change = np.array(values)
    short = ParticipantGaussian(clip, 1.0).shorten(change)
    squares = sum((Fraction(value) ** 2 for value in short.tolist()), start=Fraction(0))
    assert squares <= Fraction(clip) ** 2
    length = math.hypot(*values)
    assert np.allclose(short, change * min(1.0, clip / max(length, 1e-300)), rtol=1e-9, atol=0)


def test_shortening_many_values_keeps_within_the_clip():
    change = np.random.default_rng(1).standard_normal(10**5)
    short = ParticipantGaussian(1.0, 1.0).shorten(change)
    assert 1 - 1e-9 < math.sqrt(math.fsum(np.square(short).tolist())) < 1


def test_sensitivity_is_the_clip_by_enumerating_what_a_participant_may_send(monkeypatch):
    released, asked = [], []

    def silent(mechanism, values, source):
        asked.append(mechanism)
        released.append(values)
        return values

    monkeypatch.setattr(noise_module.GaussianMechanism, "release", silent)
    gaussian = ParticipantGaussian(clip=0.25, noise_multiplier=0.8)
    for change in product((-1e30, -0.2, -1e-9, 0.0, 0.1, 0.25, 3.0), repeat=3):
        gaussian.release(np.array(change))
    lengths = np.linalg.norm(released, axis=1)  # against zero: the participant's part removed
    assert 0.25 * (1 - 1e-9) < lengths.max() <= 0.25
    assert {(one.sensitivity, one.sigma) for one in asked} == {(0.25, 0.2)}


# --- calibration ---


@pytest.mark.parametrize(("epsilon", "uploads"), [(0.5, 1), (8.0, 74)])
def test_participant_noise_meets_its_target_from_below_and_tightly(epsilon, uploads):
    found = calibrate_participant(epsilon=epsilon, delta=1e-5, uploads=uploads, clip=2.0)
    assert found.clip == 2.0
    spent = epsilon_of([GaussianLoss(found.noise_multiplier, count=uploads)], delta=1e-5)
    assert epsilon * (1 - 2e-5) < spent <= epsilon
    oracle = pld.from_gaussian_mechanism(
        found.noise_multiplier / math.sqrt(uploads), value_discretization_interval=1e-4
    )
    assert oracle.get_epsilon_for_delta(1e-5) == pytest.approx(epsilon, rel=2e-3)


def test_record_noise_counts_the_steps_on_a_photo():
    one, four = (calibrate_record(epsilon=2.0, delta=1e-6, steps=steps, clip=1.0) for steps in (1, 4))
    assert isinstance(one, RecordGaussian)
    assert four.noise_multiplier == pytest.approx(2 * one.noise_multiplier, rel=1e-6)
    assert one.sigma == one.noise_multiplier


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Laplace(0.0), "epsilon"),
        (lambda: PublishedLaplace(-1.0), "epsilon"),
        (lambda: Laplace(math.nan), "epsilon"),
        (lambda: Laplace("1"), "epsilon"),
        (lambda: ParticipantGaussian(0.0, 1.0), "clip"),
        (lambda: ParticipantGaussian("1", 1.0), "clip"),
        (lambda: ParticipantGaussian(1.0, 0.0), "noise_multiplier"),
        (lambda: RecordGaussian(math.inf, 1.0), "clip"),
        (lambda: RecordGaussian(1.0, math.nan), "noise_multiplier"),
        (lambda: RecordGaussian(1.0, True), "True"),
        (lambda: calibrate_participant(epsilon=0.0, delta=1e-5, uploads=1, clip=1.0), "epsilon"),
        (lambda: calibrate_participant(epsilon=1.0, delta=0.0, uploads=1, clip=1.0), "delta"),
        (lambda: calibrate_record(epsilon=1.0, delta=1e-5, steps=0, clip=1.0), "at least 1"),
    ],
)
def test_bad_parameters_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
