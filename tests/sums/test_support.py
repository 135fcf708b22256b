"""The public schedule of supports: every block has its turn, and all members derive the same."""

import hashlib
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blindsight.errors import InputError
from blindsight.sums.support import Schedule

SEED = hashlib.sha256(b"run config").digest()

schedules = st.builds(
    Schedule,
    dimension=st.integers(6, 400),
    block=st.integers(1, 50),
    share=st.floats(0.01, 1),
    seed=st.binary(min_size=16, max_size=32),
    always=st.integers(0, 5),
)


@given(schedules, st.integers(0, 3))
def test_every_position_has_its_turn_once_per_cycle_and_parts_differ_by_one_block(schedule, cycle):
    rounds = range(cycle * schedule.cycle, (cycle + 1) * schedule.cycle)
    parts = [schedule.positions(number) for number in rounds]
    turning = [part[: len(part) - schedule.always] for part in parts]
    assert np.array_equal(np.sort(np.concatenate(turning)), np.arange(schedule.dimension - schedule.always))
    for part in parts:
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()
        assert schedule.always < len(part) <= schedule.size
    counts = [len(np.unique(part // schedule.block)) for part in turning]
    assert max(counts) - min(counts) <= 1
    assert max(counts) <= schedule.share * schedule.blocks + 1


@given(schedules, st.integers(0, 20))
def test_gather_and_scatter_are_the_identity_on_the_support_and_zero_off_it(schedule, number):
    vector = np.arange(1.0, schedule.dimension + 1)
    support, mask = schedule.support(number), schedule.mask(number)
    picked = support.gather(vector)
    assert picked.shape == (schedule.size,)
    assert np.array_equal(support.scatter(picked), np.where(mask, vector, 0))
    assert np.array_equal(np.flatnonzero(mask), schedule.positions(number))


def test_members_agree_and_another_config_round_or_cycle_differs():
    ours, theirs = (Schedule(10_000, 8, 0.2, SEED) for _ in range(2))
    other = Schedule(10_000, 8, 0.2, hashlib.sha256(b"another config").digest())
    assert np.array_equal(ours.positions(7), theirs.positions(7))
    # 250 of 1,250 blocks coincide by chance once in far more than 10^6 times
    assert not np.array_equal(ours.positions(7), other.positions(7))
    assert not np.array_equal(ours.positions(2), ours.positions(7))
    assert not np.intersect1d(ours.positions(6), ours.positions(7)).size


def test_the_schedule_is_defined_by_bytes_not_by_a_library():
    """HKDF-SHA256 and AES-256 give it; a changed digest means that members of different versions disagree."""
    positions = Schedule(1000, 7, 0.2, SEED, always=3).positions(12)
    assert hashlib.sha256(positions.astype("<i8").tobytes()).hexdigest()[:16] == "8440093756c0196d"


def test_the_order_of_blocks_is_uniform():
    """Block 0 takes each of the 5 turns equally often: chi-squared with 4 degrees, false alarm below 1e-6."""
    turns = np.zeros(5)
    for number in range(1000):
        schedule = Schedule(20, 1, 0.2, hashlib.sha256(number.to_bytes(4)).digest())
        turns[next(turn for turn in range(5) if 0 in schedule.positions(turn))] += 1
    assert float(((turns - 200) ** 2 / 200).sum()) < 33.4


def test_a_share_of_one_is_everything():
    schedule = Schedule(10, 3, 1.0, SEED)
    assert (schedule.cycle, schedule.size) == (1, 10)
    assert schedule.mask(5).all()


def test_no_round_is_empty_when_there_are_few_blocks():
    schedule = Schedule(10, 4, 0.01, SEED)
    assert schedule.cycle == 3
    assert sorted(len(schedule.positions(number)) for number in range(3)) == [2, 4, 4]


def test_sixteen_million_weights_take_no_time():
    schedule = Schedule(1 << 24, 16, 0.2, SEED)
    began = time.process_time()
    assert len(schedule.positions(3)) <= schedule.size
    assert time.process_time() - began < 10  # about 0.4 s


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimension": 0},
        {"always": 10},
        {"always": -1},
        {"block": 0},
        {"share": 0.0},
        {"share": 1.1},
        {"share": float("nan")},
        {"seed": b"short"},
    ],
)
def test_impossible_schedules_are_refused(wrong):
    with pytest.raises(InputError):
        Schedule(**{"dimension": 10, "block": 2, "share": 0.5, "seed": SEED} | wrong)


def test_rounds_before_the_first_are_refused():
    with pytest.raises(InputError, match="-1"):
        Schedule(10, 2, 0.5, SEED).positions(-1)
