"""DPHE gives the exact sum whatever the layout, and says what holds, what does not and why."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.learn.dphe import Terms, set_up, statement
from blindsight.learn.dphe.claims import single_contributor_share
from blindsight.learn.dphe.decomposition import decompose
from blindsight.rng import seeded_bytes

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


@pytest.fixture
def make_long_terms(make_terms):
    return lambda **changes: make_terms(key_bits=3072, insecure=False, **changes)


def test_an_honest_run_is_proven_under_its_assumptions(make_long_terms):
    said = statement(make_long_terms(slots=12, capacity=1))
    assert said.status == "proven"
    assert said.guarantee == "cryptographic"
    assert "blocks of 12 weights under a 3072-bit key" in said.mechanism
    assert "fresh in every round" in said.mechanism
    assert set(said.who_sees) == {"key generator", "aggregator", "users", "someone who intercepts a contribution"}
    assert any("semi-honest" in line for line in said.assumptions)
    assert any("not differentially private" in line for line in said.not_protected)


def test_the_published_scheme_and_short_keys_prove_nothing(make_terms, make_long_terms):
    published = statement(make_long_terms(as_published=True, decrypt="all"))
    assert published.status == "unproven"
    assert published.claim is not None
    assert "one permutation serves all rounds" in str(published.claim.why_it_fails)
    assert "the same in every round" in published.mechanism
    short = statement(make_terms())
    assert short.status == "unproven"
    assert "factor 1024 bits" in short.not_protected[-1]


def test_repeatable_secrets_void_the_statement(make_long_terms):
    assert statement(make_long_terms(), source=seeded_bytes(0)).status == "void"


@pytest.mark.parametrize(
    ("least", "sentence"),
    [(1, "where one user alone changed a weight"), (2, "where two users changed a weight"), (3, "key generator still")],
)
def test_why_the_theorem_fails_depends_on_what_is_withheld(make_long_terms, least, sentence):
    said = statement(make_long_terms(min_per_block=least))
    assert said.claim is not None
    assert sentence in str(said.claim.why_it_fails)
    assert ("how many users changed each block" in said.who_sees["key generator"]) == (least > 1)


def test_the_share_of_single_contributors_agrees_with_counting():
    rng = np.random.default_rng(0)
    counts = (rng.random((200_000, 5)) < 0.1).sum(axis=1)
    # Five standard errors of a share over some 80,000 changed blocks: false alarm below 1e-6.
    assert single_contributor_share(5, 0.1) == pytest.approx((counts == 1).sum() / (counts > 0).sum(), abs=0.008)


def test_single_permutations_are_said_to_be_readable_by_users(make_long_terms):
    seen = statement(make_long_terms(permutations="single")).who_sees["someone who intercepts a contribution"]
    assert "the plain indices" in seen
