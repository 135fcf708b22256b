"""DPHE as published, and the attacks that work on it and fail on the library's.

A claim of the paper is tested where it fails: with permutations reused over rounds, with a single permutation, with one
ciphertext of zero for all places. Statistical tests state their false-alarm rate; their randomness is seeded.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from blindsight.errors import InputError
from blindsight.papers.dphe.protocol import theorem_8
from blindsight.statement import line_id
from blindsight.sums import statement
from tests.sums.sparse import (
    FALSE_ALARM,
    FOUR,
    Listener,
    Recorded,
    check_sum,
    overlap_is_chance,
    runs,
    sparse_update,
    terms_of,
)


def long_terms(scheme, **changes):
    return terms_of(scheme, key_bits=3072, insecure=False, **changes)


@settings(max_examples=8)
@given(drawn=runs(("dphe-published",), published=True))
def test_the_published_protocol_gives_the_plain_sum(drawn):
    check_sum(*drawn)


@settings(max_examples=12)
@given(drawn=runs(("dphe-single", "dphe-all")))
def test_the_variants_give_the_plain_sum(drawn):
    check_sum(*drawn)


@pytest.mark.parametrize("published", [True, False])
def test_one_ciphertext_of_zero_shows_the_union_of_supports_and_fresh_ones_do_not(published):
    blocks = {"block": 31, "dimension": 24 * 31, "capacity": 6 * 31}
    terms = terms_of("dphe-published") if published else terms_of("dphe-all", **blocks)
    recorded = Recorded(terms, {name: sparse_update(terms, seed, blocks=6) for seed, name in enumerate(FOUR)})
    union = set[int]().union(*map(recorded.places, FOUR))
    rows = [row.tobytes() for row in recorded.sum.ciphertexts]
    assert len(rows) == 24 > len(union)
    (most_frequent, times), *_ = Counter(rows).most_common(1)
    if published:
        assert {place for place, row in enumerate(rows) if row != most_frequent} == union
    else:
        assert times == 1


@pytest.mark.parametrize("reused", [True, False])
def test_reused_permutations_link_a_support_over_rounds_and_fresh_ones_do_not(reused):
    """The aggregator guesses, from what it knows, whether a member's support changed from one round to the next."""
    scheme = "dphe-published" if reused else "dphe"
    listener = Listener(terms_of(scheme, dimension=64, capacity=4), seed=12)
    rng = np.random.default_rng(0)
    overlaps, right, games = [], 0, 60
    for _ in range(games):
        first, other = rng.choice(64, 4, replace=False), rng.choice(64, 4, replace=False)
        same = rng.random() < 0.5
        before, after = listener.as_aggregator(first), listener.as_aggregator(first if same else other)
        overlaps += [len(before & after)] * same
        right += (len(before & after) > 2) == same
    if reused:
        assert right == games
        assert set(overlaps) == {4}
    else:
        assert right <= stats.binom.isf(FALSE_ALARM, games, 0.5)
        assert overlap_is_chance(overlaps, 4, 64)


@pytest.mark.parametrize("scheme", ["dphe-single", "dphe"])
def test_a_member_who_intercepts_reads_single_permutations_and_not_double_ones(scheme):
    """Section 2.4, with the seal undone."""
    listener = Listener(terms_of(scheme, dimension=64, capacity=4), seed=13)
    rng = np.random.default_rng(0)
    supports = [rng.choice(64, 4, replace=False) for _ in range(60)]
    overlaps = [len(listener.as_another_member(blocks) & set(blocks.tolist())) for blocks in supports]
    if scheme == "dphe-single":
        assert set(overlaps) == {4}
    else:
        assert overlap_is_chance(overlaps, 4, 64)


def test_nothing_is_proven_of_the_published_protocol():
    said = statement(long_terms("dphe-published"))
    assert said.status == "unproven"
    assert said.claim is not None
    assert said.claim.why_it_fails == theorem_8(long_terms("dphe-published")).why_it_fails
    ids = {*map(line_id, said.not_protected), *map(line_id, said.assumptions)}
    assert {"support-changed", "untouched-blocks", "unsealed", "all-honest"} <= ids
    assert not {"checked-sums", "aggregator-apart", "generator-apart"} & ids
    alone = statement(long_terms("dphe-published", single=True))
    assert "unsealed-single" in map(line_id, alone.not_protected)


@pytest.mark.parametrize("scheme", ["dphe-single", "dphe-all"])
def test_why_the_theorem_fails_depends_on_what_is_withheld(scheme):
    claims = [statement(long_terms(scheme, minimum_per_position=least)).claim for least in (1, 2, 3)]
    assert len({claim.why_it_fails for claim in claims}) == 3


@pytest.mark.parametrize("changes", [{"minimum_per_position": 2}, {"block": 2}, {"dimension": 2**20}])
def test_what_the_published_protocol_cannot_do_is_refused(changes):
    with pytest.raises(InputError):
        terms_of("dphe-published", **changes)
