"""Tests against chance, right about noise at the stated rate; what averages and sums tell of single owners."""

import numpy as np
import pytest
from scipy import stats

from blindsight.audit.recovery import needed_trials
from blindsight.errors import InputError
from blindsight.papers.dphe.attacks import (
    Disguise,
    _average_finding,
    attack_averages,
    attack_singles,
    others_sum,
    places_test,
    values_test,
)
from blindsight.rng import science, seeded_bytes
from blindsight.sums.dphe import single_contributor_share
from blindsight.sums.session import open_session


def structured_guesses(generator):
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


@pytest.fixture(scope="module")
def averages(digits):
    found = attack_averages(digits.private, users=(2, 3), victims=40, random_state=0)
    return {(row.details["users"], row.attack.partition(":")[0]): row for row in found}


def test_of_two_users_each_has_the_others_update(averages):
    for (users, case), row in averages.items():
        if users == 2:
            assert row.details["least_update_cosine"] > 1 - 1e-6  # fixed point
            assert row.details["least_sample_cosine"] > (0.4 if case == "sparse hinge" else 0.999)
    two = averages[2, "hinge"]
    assert (two.verdict, two.measured.low > 0.999) == ("leaks", True)
    assert two.source == "nobody (the paper asks for N >= 3)"


def test_of_three_users_each_has_the_sum_of_two(averages):
    hinge, average = averages[3, "hinge"], averages[3, "average of one class"]
    # Signed samples of random labels: cos of y1 x1 + y2 x2 with y1 x1 is between 0 and 1, by how alike they are.
    assert 0.45 < hinge.measured.value < 0.8
    assert hinge.measured.low < hinge.measured.value
    assert hinge.verdict == "leaks"
    # Averages over one class resemble each other, so that one's own is nearly as good a guess.
    assert average.details["blind_update_cosine"] > 0.8
    assert average.details["gain"] < 0.2


def test_updates_that_have_nothing_in_common():
    """Brute force for orthogonal updates: the cosine is 1 / sqrt(N - 1), and the sum is what a round gives."""
    users = ("ann", "bob", "cem")
    updates = dict(zip(users, 3 * np.eye(3), strict=True))
    average = open_session("plain", members=users, dimension=3).round(updates, 0).average
    rest = others_sum(average, updates["cem"], 3)
    assert rest.tolist() == pytest.approx([3, 3, 0])


def test_two_users_are_judged_by_what_was_measured():
    blind = science(5).uniform(0.5, 0.9, size=(4, 40))
    blind[1] = blind[0]  # an attack that is no better than one's own update
    assert _average_finding(2, "hinge", blind).verdict == "at chance"


def test_unrelated_updates_give_no_gain():
    """If the victim is not in the sum, nothing is gained: the sum of two strangers against one's own update."""
    generator = science(3)
    gains = []
    for _ in range(200):
        victim, own, *strangers = generator.normal(size=(4, 50))
        rest = others_sum((own + sum(strangers)) / 3, own, 3)
        gains.append(abs(rest @ victim) / np.linalg.norm(rest) / np.linalg.norm(victim))
    # Mean |cosine| in 50 dimensions is .113, with standard deviation .085 / sqrt(200) = .006; 1e-6 at 5 of them.
    assert np.mean(gains) == pytest.approx(0.113, abs=0.03)


def attacked(minimum, **options):
    options = {"dimension": 600, "sparsity": 0.9, "members": 4} | options
    return attack_singles(
        minimum_per_position=minimum, key_bits=1024, insecure=True, random_state=7, source=seeded_bytes(7), **options
    )


@pytest.fixture(scope="module")
def rounds():
    return {minimum: attacked(minimum) for minimum in (1, 2, 3)}


def counts(rows):
    return [row.measured.counts for row in rows]


def test_without_the_rule_every_single_weight_is_shown(rounds):
    (exposed, singles), (subtracted, pairs) = counts(rounds[1])
    assert exposed == singles > 100
    assert subtracted == pairs > 0
    details = rounds[1][0].details
    assert details["shown"] == details["touched"]
    assert details["precision"] == details["single_share"]


def test_with_the_rule_no_single_weight_is_shown_but_users_need_one_more(rounds):
    (_, all_singles), _ = counts(rounds[1])
    (exposed, singles), (subtracted, pairs) = counts(rounds[2])
    assert (exposed, singles) == (0, all_singles)
    assert subtracted == pairs > 0  # a user who was one of the two reads the other
    assert [hits for hits, _ in counts(rounds[3])] == [0, 0]
    assert 0 < rounds[2][0].details["shown"] < rounds[1][0].details["shown"]


def test_the_share_of_singles_is_the_formula_of_independent_supports(rounds):
    """Brute force over 200,000 weights: the share is within 5 standard errors (2e-7 would be 5.2)."""
    changed = science(8).random((4, 200_000)) < 0.1
    several = changed.sum(axis=0)
    touched, singles = np.count_nonzero(several), np.count_nonzero(several == 1)
    expected, details = single_contributor_share(4, 0.1), rounds[1][0].details
    assert abs(singles / touched - expected) < 5.2 * np.sqrt(expected * (1 - expected) / touched)
    deviation = np.sqrt(expected * (1 - expected) / details["touched"])
    assert abs(details["single_share"] - expected) < 5.2 * deviation
    assert details["expected_single_share"] == pytest.approx(expected, abs=0.03)


def test_blocks_are_counted_whole_and_verdicts_follow(rounds):
    """Block DPHE protects owners of whole blocks alike, and not single weights in a block that others changed too."""
    whole = attacked(2, scheme="block-dphe", dimension=1800)
    assert counts(whole)[0][0] == 0
    assert not whole[0].details["scattered"]
    scattered = attacked(2, scheme="block-dphe", whole_blocks=False)
    assert scattered[0].details["scattered"]
    assert scattered[0].measured.value > 0.5
    assert [row.verdict for row in (*rounds[1], *rounds[2], *rounds[3], *scattered)] == [
        *("refuted", "refuted"),  # the theorem admits nothing
        *("not refuted", "as stated"),
        *("not refuted", "not refuted"),
        *("leaks", "as stated"),
    ]
    assert rounds[1][0].measured.low > 0.9
    assert "minimum_per_position = 1" in rounds[1][1].claim


def test_bad_input_gets_a_sentence(digits):
    generator, row = science(0), np.ones((1, 4))
    alarm = {"generator": generator, "false_alarm": 0.1}
    for call, words in [
        (lambda: values_test(row, np.ones(3), **alarm), "3 numbers"),
        (lambda: values_test(row, np.zeros(4), **alarm), "zero"),
        (lambda: places_test(np.array([2]), np.ones(4), block=2, **alarm), "0 to 1"),
        *((lambda rate=rate: needed_trials(rate), "false-alarm rate") for rate in (0.0, 1e-9, 1.0)),
        (lambda: attack_averages(digits.private, victims=1), "two victims"),
        (lambda: others_sum([1.0], [1.0], 1), "if there are any"),
        (lambda: open_session("plain", members=("ann", "bob"), dimension=3), "three"),
        (lambda: attack_singles(scheme="bfv"), "'bfv'"),
        (lambda: attack_singles(sparsity=1.0), "sparsity"),
    ]:
        with pytest.raises(InputError, match=words):
            call()
