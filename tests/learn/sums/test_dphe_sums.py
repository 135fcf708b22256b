"""The sum that comes out is the sum of what went in, exactly, whatever the layout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.learn.dphe import Terms, set_up
from blindsight.learn.dphe.decomposition import decompose

NAMES = ("anna", "bert", "cleo", "dora", "emil")


@st.composite
def runs(draw):
    """Draw terms, and updates of three or more of the users."""
    users = NAMES[: draw(st.integers(3, 5))]
    published = draw(st.booleans())
    slots, counted = (1, 1) if published else (draw(st.sampled_from([1, 2, 5, 30])), draw(st.integers(1, 3)))
    dimension = draw(st.integers(1, 40))
    terms = Terms(
        run="drawn",
        users=users,
        fraction_bits=8,
        key_bits=1024,
        insecure=True,
        dimension=dimension,
        slots=slots,
        capacity=draw(st.integers(1, -(-dimension // slots))),
        min_per_block=counted,
        permutations=draw(st.sampled_from(["single", "double"])),
        decrypt="all" if published else draw(st.sampled_from(["touched", "all"])),
        as_published=published,
    )
    weights = st.one_of(st.just(0), st.just(0), st.integers(-terms.max_integer, terms.max_integer))
    update = st.lists(weights, min_size=dimension, max_size=dimension).map(np.array)
    present = users[: draw(st.integers(3, len(users)))]
    return terms, {name: draw(update) for name in present}


def expected_sum(terms, updates):
    """The same by brute force: the sum, and where enough users changed the block (one is always enough)."""
    total, enough = np.zeros(terms.dimension, dtype=np.int64), np.ones(terms.dimension, dtype=bool)
    for start in range(0, terms.dimension, terms.slots):
        part = slice(start, start + terms.slots)
        changed = sum(bool(update[part].any()) for update in updates.values())
        enough[part] = terms.min_per_block == 1 or changed >= terms.min_per_block
        total[part] = sum(update[part] for update in updates.values())
    return np.where(enough, total, 0), enough


@settings(max_examples=20)
@given(run=runs())
def test_the_answer_is_the_plain_sum(key, run):
    terms, updates = run
    parties = set_up(terms, key=key)
    answer = parties.sum(updates, round=0)
    total, enough = expected_sum(terms, updates)
    seen = parties.aggregator.read(answer)
    assert seen.users == tuple(sorted(updates))
    np.testing.assert_array_equal(seen.integers, total)
    np.testing.assert_array_equal(seen.values, total / 2.0**terms.fraction_bits)
    for name, user in parties.users.items():
        outcome = user.read(answer, round=0)
        np.testing.assert_array_equal(outcome.integers, total)
        np.testing.assert_array_equal(outcome.entered, enough & (name in updates))


@settings(max_examples=30)
@given(run=runs())
def test_shards_are_full_distinct_and_add_up_to_the_update(run):
    terms, updates = run
    for update in updates.values():
        shards = decompose(update, terms)
        rows = np.zeros((terms.blocks, terms.packing.slots), dtype=np.int64)
        for shard in shards:
            assert shard.blocks.size == len(shard.plaintexts) == terms.capacity == np.unique(shard.blocks).size
            rows[shard.blocks] += terms.packing.unpack(shard.plaintexts, rows[shard.blocks].size).reshape(
                terms.capacity, -1
            )
        changed = sum(bool(update[i : i + terms.slots].any()) for i in range(0, terms.dimension, terms.slots))
        assert len(shards) == max(1, -(-changed // terms.capacity))
        np.testing.assert_array_equal(rows[:, : terms.slots].ravel()[: terms.dimension], update)  # Eq. 3
        if terms.counting:
            assert rows[:, -1].sum() == changed
        places = np.concatenate([shard.blocks for shard in shards])
        assert np.unique(places).size == min(places.size, terms.blocks)


@pytest.mark.parametrize("changes", [{}, {"slots": 5, "capacity": 2}, {"slots": 4, "capacity": 3, "min_per_block": 2}])
def test_extremes_of_all_users_add_without_overflow(new_run, changes):
    parties = new_run(**changes)
    terms = parties.generator.terms
    for round, sign in enumerate([1, -1]):
        most = np.full(terms.dimension, sign * terms.max_integer)
        answer = parties.sum(dict.fromkeys(terms.users, most), round)
        np.testing.assert_array_equal(parties.aggregator.read(answer).integers, len(terms.users) * most)


def test_little_is_left_to_decrypt(new_run, key, sparse_update):
    """Single weights are packed by the aggregator: 24 of them take one decryption, blocks of 16 take one each."""
    for changes, ciphertexts in (({"capacity": 24}, 1), ({"slots": 16, "capacity": 2}, 2)):
        parties = new_run(**changes)
        terms = parties.generator.terms
        parties.sum({name: sparse_update(terms, 0, blocks=1) for name in terms.users}, 0)
        assert len(parties.aggregator.close()) < (ciphertexts + 1) * key.public.width + 8 * terms.blocks + 2000
        assert terms.blocks_per_request == 31 // terms.slots
