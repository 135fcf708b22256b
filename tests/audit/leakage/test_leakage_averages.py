"""What a user learns of another from the average."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.audit.leakage.averages import attack_averages, average_findings, others_sum
from blindsight.errors import InputError
from blindsight.learn.aggregation import open_session
from blindsight.rng import science


@pytest.fixture(scope="module")
def leaks(digits):
    found = attack_averages(digits.private, users=(2, 3), victims=40, random_state=0)
    return {(leak.users, leak.case): leak for leak in found}


def test_of_two_users_each_has_the_others_update(leaks, digits):
    for (users, case), leak in leaks.items():
        if users == 2:
            assert leak.update_cosines.min() > 1 - 1e-6  # fixed point
            if case != "sparse hinge":
                assert leak.sample_cosines.min() > 0.999
            assert leak.sample.shape == (64,)


def test_of_three_users_each_has_the_sum_of_two(leaks):
    hinge, average = leaks[3, "hinge"], leaks[3, "average of one class"]
    assert hinge.update_cosines.max() < 0.999
    # Signed samples of random labels: cos of y1 x1 + y2 x2 with y1 x1 is between 0 and 1, by how alike they are.
    assert 0.45 < hinge.update_cosines.mean() < 0.8
    assert hinge.gain.low > 0
    # Averages over one class resemble each other, so that one's own is nearly as good a guess.
    assert average.blind_update_cosines.mean() > 0.8
    assert average.gain.value < 0.2


def test_updates_that_have_nothing_in_common():
    """Brute force for orthogonal updates: the cosine is 1 / sqrt(N - 1), and the sum is what a round gives."""
    users = ("ann", "bob", "cem")
    updates = dict(zip(users, 3 * np.eye(3), strict=True))
    average = open_session("plain", users=users, dimension=3).round(updates, 0).average
    rest = others_sum(average, updates["cem"], 3)
    assert rest.tolist() == pytest.approx([3, 3, 0])


def test_findings(leaks):
    findings = {
        (finding.details["users"], finding.attack.split(":")[0]): finding
        for finding in average_findings(leaks.values())
    }
    assert (findings[2, "hinge"].verdict, findings[2, "hinge"].measured.low > 0.999) == ("leaks", True)
    assert findings[2, "hinge"].source == "nobody (the paper asks for N >= 3)"
    assert findings[3, "hinge"].verdict == "leaks"
    assert findings[3, "hinge"].measured.low < findings[3, "hinge"].measured.value


def test_two_users_are_judged_by_what_was_measured(leaks):
    two = leaks[2, "hinge"]
    blind = replace(two, update_cosines=two.blind_update_cosines)  # an attack that is no better than one's own update
    assert average_findings([blind])[0].verdict == "at chance"


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


def test_bad_input_gets_a_sentence(digits):
    with pytest.raises(InputError, match="two victims or more"):
        attack_averages(digits.private, victims=1)
    with pytest.raises(InputError, match="if there are any"):
        others_sum([1.0], [1.0], 1)
    with pytest.raises(InputError, match="With fewer than three"):
        open_session("plain", users=("ann", "bob"), dimension=3)
