"""A member makes one update a round, keeps it until its fate is known, and loses nothing of what it learned."""

import copy
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError
from blindsight.rounds import Member, Memory, Update
from blindsight.rounds.member import member_seed, top_blocks, top_entries
from blindsight.sums import make_terms

NAMES = ("ann", "bob", "cem")
TERMS = make_terms("plain", run="a", members=NAMES, dimension=4, fraction_bits=4)
SOME, ALL, NONE = np.array([True, False, True, False]), np.ones(4, dtype=bool), np.zeros(4, dtype=bool)


def update(*numbers, held=0.0, extra=b""):
    return lambda memory: Update(np.array(numbers), Memory(np.full(4, held), extra))


def fail(memory):
    raise AssertionError("it has learned already")


@pytest.mark.parametrize("kept", [True, False], ids=["on disk", "in memory"])
def test_a_round_that_is_asked_for_again_gets_the_same_update(tmp_path, kept):
    path = tmp_path / "memory.npz" if kept else None
    member = Member("ann", TERMS, path=path)
    sent = member.contribute(1, update(0.5, 0.0, 1.0, 0.03))
    assert sent.tolist() == [8, 0, 16, 0]
    again = Member("ann", TERMS, path=path) if kept else member
    assert again.awaits(1)
    assert not again.awaits(2)
    assert again.contribute(1, fail).tolist() == sent.tolist()


def test_what_did_not_enter_is_carried_over_and_settling_twice_changes_nothing(tmp_path):
    member = Member("ann", TERMS, path=tmp_path / "memory.npz")
    member.contribute(1, update(0.5, 0.25, 1.0, 0.03, held=0.125, extra=b"place"))
    for _ in range(2):
        member.settle(1, SOME)
        member = Member("ann", TERMS, path=tmp_path / "memory.npz")
    np.testing.assert_allclose(member.memory.held, [0.125, 0.375, 0.125, 0.155])
    assert member.memory.extra == b"place"
    assert member.pending is None


def test_an_update_of_unknown_fate_is_carried_over_whole_by_the_next_round(tmp_path):
    member = Member("ann", TERMS, path=tmp_path / "memory.npz")
    member.contribute(1, update(0.5, 0.0, 1.0, 0.03))
    held = []
    member.contribute(2, lambda memory: held.append(memory.held) or update(1.0, 1.0, 1.0, 1.0)(memory))
    np.testing.assert_allclose(held[0], [0.5, 0.0, 1.0, 0.03])
    with pytest.raises(MessageError, match="round 2"):
        member.contribute(1, fail)
    member.settle(1, ALL)  # too late: what it was about is in the memory
    assert member.awaits(2)


def test_a_member_that_fails_to_learn_still_has_what_it_had(tmp_path):
    member = Member("ann", TERMS, path=tmp_path / "memory.npz")
    member.contribute(1, update(0.5, 0.0, 1.0, 0.03))
    for wrong in (np.nan, np.inf):
        with pytest.raises(InputError, match="finite"):
            member.contribute(2, update(wrong, 0.0, 0.0, 0.0))
    with pytest.raises(MessageError, match="'ann'"):
        member.contribute(2, lambda memory: Update(np.zeros(5)))
    for again in (member, Member("ann", TERMS, path=tmp_path / "memory.npz")):
        assert again.contribute(1, fail).tolist() == [8, 0, 16, 0]


def test_what_is_out_of_range_is_cut_and_carried_over():
    member = Member("ann", make_terms("plain", run="a", members=NAMES, dimension=4, fraction_bits=24))
    limit = member.terms.limit
    member.contribute(1, update(3 * limit, -3 * limit, 1.0, 0.0))
    assert member.sending().tolist() == [limit, -limit, 1.0, 0.0]
    member.settle(1, ALL)
    np.testing.assert_allclose(member.memory.held, [2 * limit, -2 * limit, 0.0, 0.0])


def test_a_learner_without_a_memory_carries_nothing_over():
    member = Member("ann", TERMS)
    member.contribute(1, lambda memory: Update(np.ones(4), Memory(extra=b"x")))
    member.settle(1, NONE)
    assert (member.memory.held, member.memory.extra) == (None, b"x")


def test_of_a_schedule_the_rest_is_carried_over():
    terms = make_terms("plain", run="a", members=NAMES, dimension=40, share=0.4, config=bytes(32), fraction_bits=10)
    member, seen = Member("ann", terms), []
    for round in (1, 2, 3):
        member.contribute(round, lambda memory: Update(np.ones(40) + (0 if memory.held is None else memory.held),
                                                       Memory(np.zeros(40))))  # fmt: skip
        seen.append(terms.support(round).positions)
        member.settle(round, np.ones(terms.dimension, dtype=bool))
    assert sorted(np.concatenate(seen).tolist()) == list(range(40))  # a cycle
    assert member.memory.held[seen[2]].tolist() == [0] * len(seen[2])
    assert member.memory.held[seen[1]].tolist() == [1] * len(seen[1])
    assert member.memory.held[seen[0]].tolist() == [2] * len(seen[0])


def test_memories_and_updates_show_nothing_and_a_member_is_never_copied():
    memory = Memory(np.array([0.125]), b"0.375")
    for shown in map(repr, (memory, Update(np.array([0.25]), memory), Member("ann", TERMS))):
        assert not any(secret in shown for secret in ("0.125", "0.25", "0.375"))
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(PrivacyError):
            attempt(Member("ann", TERMS))


def test_a_damaged_memory_is_refused(tmp_path):
    path = tmp_path / "memory.npz"
    Member("ann", TERMS, path=path).contribute(1, update(0.5, 0.0, 1.0, 0.03))
    assert path.stat().st_mode & 0o777 == 0o600
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptFileError):
            Member("ann", TERMS, path=path)


def test_seeds_differ_by_member_and_round():
    seeds = [member_seed(seed, round, place) for seed in (0, 1) for round in (1, 2) for place in (0, 1)]
    assert len(set(seeds)) == 8
    assert seeds == [member_seed(seed, round, place) for seed in (0, 1) for round in (1, 2) for place in (0, 1)]
    assert all(one != other for one, other in pairwise(seeds))


# What is sent of an update


def test_top_entries_keeps_exactly_the_largest():
    values = np.random.default_rng(0).normal(size=(7, 30))
    mask = top_entries(values, 0.1)
    assert mask.sum() == 21
    assert np.abs(values[mask]).min() > np.abs(values[~mask]).max()


def test_a_tenth_of_a_thousand_is_a_hundred_despite_floating_point():
    assert top_entries(np.arange(1000.0), 1 - 0.9).sum() == 100


def test_top_blocks_keeps_whole_blocks_of_largest_norm():
    values = np.random.default_rng(1).normal(size=(3, 11))  # 33 entries: four blocks of 8 and a short one
    mask = top_blocks(values, 8, 0.4).ravel()
    norms = [np.linalg.norm(values.ravel()[i : i + 8]) for i in range(0, 33, 8)]
    assert [bool(mask[i]) for i in range(0, 33, 8)] == [norm >= sorted(norms)[-2] for norm in norms]
    assert all(len(set(mask[i : i + 8])) == 1 for i in range(0, 33, 8))


def test_something_is_always_sent():
    assert top_entries(np.array([0.5, -1.0]), 0.1).tolist() == [False, True]
    assert top_blocks(np.array([[0.5, -1.0]]), 95, 0.1).all()


@pytest.mark.parametrize("keep", [0.0, -0.1, 1.1, float("nan")])
def test_refuses_a_share_outside_zero_and_one(keep):
    with pytest.raises(InputError, match="keep_fraction"):
        top_entries(np.ones(3), keep)


def test_refuses_empty_blocks():
    with pytest.raises(InputError, match="block_size"):
        top_blocks(np.ones(3), 0, 0.5)


dyadic = st.integers(-(2**20), 2**20).map(lambda whole: whole / 1024)  # sums of these are exact in float64


@settings(max_examples=30)
@given(
    st.lists(st.lists(dyadic, min_size=4, max_size=4), min_size=1, max_size=8),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_all_that_entered_and_what_is_held_are_all_that_was_learned(rounds, entered):
    member = Member("ann", make_terms("plain", run="a", members=NAMES, dimension=4, fraction_bits=10))
    arrived, mask = np.zeros(4), np.array(entered)
    for round, learned in enumerate(rounds, start=1):

        def learn(memory, learned=learned):
            pending = np.array(learned) + (0 if memory.held is None else memory.held)
            sent = np.where(top_entries(pending, 0.5), pending, 0.0)
            return Update(sent, Memory(pending - sent))

        arrived += np.where(mask, member.terms.values(member.contribute(round, learn)), 0.0)
        member.settle(round, mask)
    assert (arrived + member.memory.held == np.sum(rounds, axis=0)).all()
