"""Science repeats, secrets do not, and bounded integers are exactly uniform."""

import numpy as np
import pytest
from scipy import stats

from blindsight.errors import InputError
from blindsight.rng import random_below, random_words, science, seeded_bytes


def test_science_repeats_and_secrets_do_not():
    generator = np.random.default_rng(3)
    assert science(3).random() == np.random.default_rng(3).random()
    assert science(generator) is generator
    with pytest.raises(InputError, match="-1"):
        science(-1)
    assert not np.array_equal(random_words(4), random_words(4))


def test_bounded_integers_are_uniform() -> None:
    # Chi-square over 10 cells, 100,000 draws; the seed is fixed, the threshold has a false-alarm rate of 1e-6.
    counts = np.bincount(random_below(10, 100_000, seeded_bytes(1)), minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_words_that_would_bias_the_remainder_are_drawn_again() -> None:
    # For the bound 3, exactly one word of 2^64 is surplus: 0. A source that gives it first must be asked again.
    words = iter([0, 5])
    assert random_below(3, 1, lambda n: next(words).to_bytes(8, "little")).tolist() == [2]


def test_one_bound_per_draw():
    drawn = random_below(np.array([1, 2, 2**62], dtype=np.uint64), 3, seeded_bytes(0))
    assert drawn[0] == 0
    assert drawn[1] in (0, 1)
    assert 0 <= drawn[2] < 2**62


@pytest.mark.parametrize("bound", [0, 2**63])
def test_bound_out_of_range_gets_a_sentence(bound):
    with pytest.raises(InputError, match="must lie in"):
        random_below(bound, 1)
