"""The statement says what holds, what does not, and what the tests of the views found."""

import numpy as np
import pytest

from blindsight.learn.dphe import statement
from blindsight.learn.dphe.claims import single_contributor_share
from blindsight.rng import seeded_bytes


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
