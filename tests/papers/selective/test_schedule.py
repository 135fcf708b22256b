"""Plans of days: each photo once, everyone with something to learn."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError
from blindsight.papers.selective.days import Schedule, schedule_days

LABELS = np.arange(600) % 4


@given(st.integers(1, 8), st.integers(1, 9), st.floats(0.1, 0.6), st.integers(0, 9))
@settings(max_examples=40)
def test_each_photo_is_taken_once_and_days_are_even(participants, days, initial, seed):
    plan = schedule_days(LABELS, participants=participants, days=days, initial=initial, random_state=seed)
    taken = np.concatenate([plan.initial, *chain.from_iterable(plan.days)])
    assert sorted(taken) == list(range(600))
    assert len(plan.initial) == pytest.approx(600 * initial, abs=1)
    assert len(plan.days) == days
    sizes = [len(rows) for day in plan.days for rows in day]
    assert max(sizes) - min(sizes) <= 2
    assert len(plan.participants) == participants
    assert plan.uploads(7) == max(len(plan.taken_by(name)) for name in plan.participants) // 7


def test_day_zero_has_all_classes_in_proportion():
    plan = schedule_days(LABELS, participants=3, days=4, initial=0.2, random_state=0)
    assert np.bincount(LABELS[plan.initial]).tolist() == [30, 30, 30, 30]


def test_skewed_participants_differ_in_their_classes():
    def shares(skew):
        plan = schedule_days(LABELS, participants=4, days=5, initial=0.2, random_state=1, skew=skew)
        counts = [np.bincount(LABELS[plan.taken_by(name)], minlength=4) for name in plan.participants]
        return np.array([count / count.sum() for count in counts])

    assert np.ptp(shares(None), axis=0).max() < 0.2
    assert np.ptp(shares(0.3), axis=0).max() > 0.4


def test_all_can_upload_together_as_often_as_the_one_with_fewest_photos_can():
    plan = schedule_days(np.arange(500) % 5, participants=3, days=4, initial=0.2, random_state=0, skew=1.0)
    batches = [len(plan.taken_by(name)) // 16 for name in plan.participants]
    assert plan.turns(16) == min(batches) < max(batches) == plan.uploads(16)


def test_the_same_seed_makes_the_same_plan():
    first, second, other = (
        schedule_days(LABELS, participants=3, days=4, initial=0.5, random_state=seed).taken_by("participant 2").tolist()
        for seed in (0, 0, 1)
    )
    assert first == second != other


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"participants": 0}, "participant"),
        ({"days": 0}, "day"),
        ({"initial": 0.0}, "initial"),
        ({"initial": 1.0}, "1.0"),
        ({"days": 301}, "day"),
    ],
)
def test_plans_that_cannot_be_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        schedule_days(LABELS, **{"participants": 1, "days": 4, "initial": 0.5} | options)


def test_a_participant_with_one_class_or_nothing_is_refused():
    one = Schedule(np.array([0, 1]), ((np.array([2, 3]), np.array([4, 8])),))
    with pytest.raises(InputError, match="participant 2 are of class 0"):
        one.check(LABELS)
    none = Schedule(np.array([0, 1]), ((np.array([2, 3]), np.array([], dtype=int)),))
    with pytest.raises(InputError, match="participant 2 takes no photo"):
        none.check(LABELS)
    with pytest.raises(InputError, match="photo 3"):
        none.check(LABELS[:3])


def test_a_photo_taken_twice_is_refused():
    with pytest.raises(InputError, match="once"):
        Schedule(np.array([0, 1]), ((np.array([1, 2]),),))
    with pytest.raises(InputError, match="same participants"):
        Schedule(np.array([0]), ((np.array([1]),), (np.array([2]), np.array([3]))))
