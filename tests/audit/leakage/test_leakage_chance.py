"""The tests against chance: right about noise at the stated rate, and not blind."""

import numpy as np
import pytest
from scipy import stats

from blindsight.audit.leakage.chance import Disguise, needed_trials, places_test, values_test
from blindsight.errors import InputError
from blindsight.rng import science


def structured_guesses(generator: np.random.Generator) -> np.ndarray:
    """Guesses that look anything but random: constants, ramps, headers."""
    rows = generator.integers(0, 255, size=(20, 40)).astype(float)
    rows[:, :12] = 255
    rows[0], rows[1] = np.arange(40), 1
    return rows


def test_false_alarms_come_at_the_stated_rate_whatever_the_guesses_look_like():
    """400 trials at 5%: more than 46 false alarms have probability below 1e-6 at that rate."""
    generator = science(0)
    truth = np.r_[np.linspace(5, 1, 12), np.zeros(28)]  # smooth, one-sided, all at the front, like the guesses
    alarms = 0
    for _ in range(400):
        hidden = Disguise.draw(40, generator).hide(truth)
        alarms += not values_test(
            structured_guesses(generator), hidden, generator=generator, false_alarm=0.05
        ).at_chance
    assert alarms <= stats.binom.isf(1e-6, 400, 0.05)
    assert alarms >= stats.binom.ppf(1e-6, 400, 0.05)  # and not much rarer: the test is exact


def test_a_partial_leak_among_many_guesses_is_found():
    generator = science(1)
    truth = generator.normal(size=200)
    guesses = generator.normal(size=(100, 200))
    guesses[37] += 0.8 * truth
    found = values_test(guesses, truth, generator=generator, false_alarm=0.001)
    assert not found.at_chance
    assert found.score > found.threshold
    assert found.trials == needed_trials(0.001)


def test_places_are_tested_by_blocks():
    generator = science(2)
    truth = np.zeros(300)
    truth[60:90] = generator.normal(size=30)  # blocks 6, 7 and 8 of 10 weights
    found = places_test(np.array([6, 7, 8]), truth, block=10, generator=generator, false_alarm=0.001)
    assert found.score == pytest.approx(1)
    assert not found.at_chance  # one set of places in 4060
    for places in (np.array([0, 1, 2]), np.arange(30)):  # beside it, and everywhere
        assert places_test(places, truth, block=10, generator=generator, false_alarm=0.001).at_chance


def test_false_alarms_of_places_come_at_most_at_the_stated_rate():
    """400 trials at 5%: more than 46 false alarms have probability below 1e-6 at that rate."""
    generator = science(3)
    truth = generator.normal(size=60)
    alarms = sum(
        not places_test(generator.permutation(60)[:12], truth, block=1, generator=generator, false_alarm=0.05).at_chance
        for _ in range(400)
    )
    assert alarms <= stats.binom.isf(1e-6, 400, 0.05)


def test_a_disguise_can_be_undone():
    generator = science(4)
    disguise, vector = Disguise.draw(50, generator), generator.normal(size=50)
    assert np.array_equal(disguise.reveal(disguise.hide(vector)), vector)
    assert not np.array_equal(disguise.hide(vector), vector)


def test_bad_input_gets_a_sentence():
    generator, row = science(0), np.ones((1, 4))
    with pytest.raises(InputError, match="rows of 3 numbers"):
        values_test(row, np.ones(3), generator=generator, false_alarm=0.1)
    with pytest.raises(InputError, match="the truth is zero"):
        values_test(row, np.zeros(4), generator=generator, false_alarm=0.1)
    with pytest.raises(InputError, match="blocks 0 to 1"):
        places_test(np.array([2]), np.ones(4), block=2, generator=generator, false_alarm=0.1)
    for rate in (0.0, 1e-9, 1.0):
        with pytest.raises(InputError, match="false-alarm rate"):
            needed_trials(rate)
