"""Selections: exactly as many as asked for, equal to brute force, random ones without a look at the values."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight.errors import InputError
from blindsight.learn.selective.selection import select_largest, select_random

FALSE_ALARM = 1e-6

few_levels = st.lists(st.sampled_from([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0]), min_size=1, max_size=40)
any_values = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=40)


@settings(max_examples=40)
@given(st.one_of(few_levels, any_values), st.data())
def test_largest_equals_sorting_by_size_then_place(values, data):
    count = data.draw(st.integers(1, len(values)))
    order = sorted(range(len(values)), key=lambda place: (-abs(values[place]), place))
    assert select_largest(np.array(values, dtype=np.float32), count).tolist() == sorted(order[:count])


@settings(max_examples=40)
@given(any_values, st.data(), st.integers(0, 2**32))
def test_random_places_are_ascending_distinct_and_blind(values, data, seed):
    count = data.draw(st.integers(1, len(values)))
    places = select_random(np.array(values), count, np.random.default_rng(seed))
    assert places.size == count
    assert (np.diff(places) > 0).all()
    assert places.tolist() == select_random(np.zeros(len(values)), count, np.random.default_rng(seed)).tolist()


def test_every_set_of_places_is_equally_likely():
    rng = np.random.default_rng(3)
    sets = dict.fromkeys(combinations(range(5), 2), 0)
    for _ in range(5000):
        first, second = select_random(np.zeros(5), 2, rng).tolist()
        sets[first, second] += 1
    assert stats.chisquare(list(sets.values())).pvalue > FALSE_ALARM


@pytest.mark.parametrize("count", [0, 4])
def test_counts_out_of_range_are_refused(count):
    with pytest.raises(InputError, match="1 to 3"):
        select_largest(np.zeros(3), count)
    with pytest.raises(InputError, match="1 to 3"):
        select_random(np.zeros(3), count, np.random.default_rng(1))
