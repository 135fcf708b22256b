"""Selections equal brute force; protecting a change: exact counts, the honest order of steps, nothing lost."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight.errors import InputError
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective import noise as noise_module
from blindsight.papers.selective.noise import (
    Laplace,
    ParticipantGaussian,
    PublishedLaplace,
    Sharing,
    protect,
    remainder,
    select_largest,
    select_random,
)
from blindsight.rng import seeded_bytes

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


GAUSSIAN = ParticipantGaussian(clip=1.0, noise_multiplier=0.5)
EVERY_WAY = [
    Sharing(0.1),
    Sharing(0.1, select="random", bound=0.2, half=True),
    Sharing(0.1, select="threshold", threshold=0.3),
    Sharing(0.1, bound=0.2, noise=PublishedLaplace(1.0)),
    Sharing(0.1, select="random", bound=0.2, noise=Laplace(1.0)),
    Sharing(0.1, select="threshold", bound=0.2, threshold=0.1, noise=Laplace(8.0), half=True),
    Sharing(0.1, noise=GAUSSIAN, half=True),
    Sharing(0.1, select="random", bound=0.2, noise=GAUSSIAN),
    Sharing(0.1, noise=RecordGaussian(1.0, 0.5)),
]


def change_of(size, seed=1):
    return np.random.default_rng(seed).normal(scale=0.3, size=size).astype(np.float32)


def shared(change, sharing, seed=1):
    return protect(change, sharing, rng=np.random.default_rng(seed), source=seeded_bytes(seed))


@pytest.mark.parametrize("sharing", EVERY_WAY, ids=str)
def test_every_way_gives_few_finite_values(sharing):
    change = change_of(1003)
    before = change.copy()
    update = shared(change, sharing)
    assert update.indices.size == 100 or (sharing.select == "threshold" and 0 < update.indices.size <= 100)
    assert update.values.dtype == np.float32
    assert np.isfinite(update.values).all()
    left = remainder(change, update, sharing)
    assert left.dtype == np.float32
    unsent = np.setdiff1d(np.arange(1003), update.indices)
    assert np.array_equal(left[unsent], change[unsent])
    assert np.array_equal(change, before)  # the caller's vector is left alone
    assert np.isfinite(shared(np.full(40, 3e38, dtype=np.float32), sharing).values).all()


@pytest.mark.parametrize(
    ("share", "dimension", "count"),
    [(0.1, 5124, 512), (0.29, 100, 29), (1.0, 7, 7), (0.01, 10, 1), (1 / 3, 9, 3), (0.7, 10, 7), (1e-9, 5, 1)],
)
def test_counts_are_at_most_the_share_and_one_at_least(share, dimension, count):
    assert Sharing(share).count(dimension) == count


def test_sharing_everything_without_noise_changes_no_bit():
    change = np.array([1e-45, -0.0, 3e38, -1.5, 0.1], dtype=np.float32)
    update = shared(change, Sharing(1.0))
    assert update.dense().tobytes() == change.tobytes()


@settings(max_examples=60)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=30), st.floats(0.01, 1), st.booleans())
def test_what_is_sent_and_what_remains_make_the_change(values, share, half):
    change = np.array(values, dtype=np.float32)
    sharing = Sharing(share, bound=1.0, residual=True, half=half)
    update = shared(change, sharing)
    left = remainder(change, update, sharing)
    assert np.abs(update.values).max() <= 1
    assert (left + update.dense()).tolist() == pytest.approx(change.tolist(), rel=1e-6)


@pytest.mark.parametrize("sharing", [way for way in EVERY_WAY if way.select == "random" and way.noise], ids=str)
def test_remainder_holds_no_noise(sharing):
    change = change_of(300)
    rests = []
    for seed in (1, 2):
        update = protect(change, sharing, rng=np.random.default_rng(5), source=seeded_bytes(seed))
        rests.append(remainder(change, update, sharing))
    assert np.array_equal(*rests)  # the same places and other noise leave the same


def test_gaussian_remainder_is_what_shortening_took():
    change = np.full(4, 1.0, dtype=np.float32)  # of length 2, shortened to 1
    left = remainder(change, shared(change, Sharing(1.0, noise=GAUSSIAN)), Sharing(1.0, noise=GAUSSIAN))
    assert left == pytest.approx([0.5] * 4, abs=1e-6)
    random = Sharing(0.5, select="random", noise=GAUSSIAN)  # two of them have length 1.41
    update = shared(change, random)
    left = remainder(change, update, random)
    assert left[update.indices] == pytest.approx([1 - math.sqrt(0.5)] * 2, abs=1e-6)


# --- the order of the steps ---


@pytest.mark.parametrize(("select", "noised"), [("largest", 1000), ("random", 100)])
def test_largest_adds_noise_to_all_and_random_to_what_is_sent(monkeypatch, select, noised):
    sizes = []  # of what noise was drawn for; none is added
    silent = lambda mechanism, values, source: sizes.append(values.size) or values  # noqa: E731
    monkeypatch.setattr(noise_module.GaussianMechanism, "release", silent)
    change = change_of(1000)
    update = shared(change, Sharing(0.1, select=select, noise=GAUSSIAN))
    assert sizes == [noised]
    length = float(np.linalg.norm(change if select == "largest" else change[update.indices]))
    assert update.values == pytest.approx(change[update.indices] / max(length, 1.0), abs=1e-6)


def test_largest_of_the_noisy_values_are_sent():
    everything = shared(change_of(500), Sharing(1.0, noise=GAUSSIAN)).values
    update = shared(change_of(500), Sharing(0.1, noise=GAUSSIAN))
    assert sorted(np.abs(update.values)) == sorted(np.abs(everything))[-50:]
    quiet = np.argsort(-np.abs(change_of(500)))[:50]
    assert set(update.indices.tolist()) != set(quiet.tolist())  # not those of the change itself


@pytest.mark.parametrize("noise", [GAUSSIAN, Laplace(1.0)])
def test_random_places_do_not_depend_on_the_change(noise):
    sharing = Sharing(0.1, select="random", bound=0.2, noise=noise)
    assert np.array_equal(shared(change_of(300, 1), sharing).indices, shared(change_of(300, 2), sharing).indices)


def test_noise_of_the_operating_system_is_the_default():
    sharing = Sharing(1.0, noise=GAUSSIAN)
    first, second = (protect(change_of(20), sharing, rng=np.random.default_rng(1)).values for _ in range(2))
    assert (first != second).all()


def test_record_noise_is_left_to_training():
    change = change_of(100)
    plain = shared(change, Sharing(0.3))
    record = shared(change, Sharing(0.3, noise=RecordGaussian(1.0, 2.0)))
    assert np.array_equal(plain.dense(), record.dense())


BAD = {
    "share": [{"share": share} for share in (0.0, 1.2, math.nan, True, "0.1")],
    "bound": [{"bound": bound} for bound in (True, 0.0, -0.1, math.inf)],
    "'largest'": [{"select": "largst"}],
    "threshold": [{"select": "threshold"}, *({"select": "threshold", "threshold": bad} for bad in ("low", -1.0))],
    "both": [{"threshold": 0.1}],
    "no value reaches": [{"select": "threshold", "threshold": 0.2, "bound": 0.1}],
    "Name the bound": [{"noise": Laplace(1.0)}, {"noise": PublishedLaplace(1.0), "select": "random"}],
    "noise": [{"noise": 1.0}, {"noise": GAUSSIAN, "select": "threshold", "threshold": 0.1}],
}


@pytest.mark.parametrize(("words", "arguments"), [(words, arguments) for words in BAD for arguments in BAD[words]])
def test_what_cannot_be_meant_is_refused(words, arguments):
    with pytest.raises(InputError, match=words):
        Sharing(**({"share": 0.1} | arguments))


@pytest.mark.parametrize("change", [[], [[1.0]], [math.nan], [1.0, math.inf]])
def test_what_is_no_change_is_refused(change):
    with pytest.raises(InputError, match="finite"):
        shared(np.array(change, dtype=np.float32), Sharing(0.5))
