"""The searches of private hashing beside those of the library: what is found, claimed and proven."""

import math

import pytest

from blindsight.data import load, pipeline
from blindsight.errors import InputError, UnknownNameError
from blindsight.papers.hashing import compare
from blindsight.search.trial import METHODS, SearchStudy, contest, divide


@pytest.fixture(scope="module")
def study():
    digits = load("digits", count=500)
    return SearchStudy.prepare(digits, divide(digits, queries=40, random_state=0), pipeline("thumbnail"))


@pytest.fixture(scope="module")
def rows(study):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blindsight.search.codebook.CELLS_PER_KIND", 1.2)
        return contest(study, epsilons=[1.0, 8.0], delta=1e-4, bits=16)


def one(rows, method, epsilon=None):
    return next(row for row in rows if row.method == method and row.epsilon == epsilon)


def test_every_method_at_every_epsilon_proves_what_was_asked_and_the_paper_nothing(study, rows):
    named = ("DPSH", "DSH", "HashNet", "ADSH", "shipped codebook")
    methods = {name: one.group for name, one in METHODS.items() if name not in named}
    open_ones = [name for name, group in methods.items() if group == "nobody"]
    assert len(rows) == len(open_ones) + 2 * (len(methods) - len(open_ones))
    assert {row.method for row in rows} == set(methods)
    for row in rows:
        assert 0 < row.score <= 1
        if row.group in ("local", "central"):
            assert row.proven <= row.epsilon
            assert row.statement.unit == "record"
            assert row.statement.delta in ((0,) if row.group == "local" or row.proven == 0 else (1e-4,))
        if row.group == "the paper":
            assert row.proven == math.inf
            assert row.statement.claim.why_it_fails
    for error, asked in (
        (UnknownNameError, {"epsilons": [1.0], "methods": ["magic"]}),
        (InputError, {"epsilons": [0.0]}),
        (InputError, {"epsilons": []}),
        (InputError, {"epsilons": [1.0], "methods": ["shipped codebook"]}),  # thumbnails are no embedding
    ):
        with pytest.raises(error):
            contest(study, delta=1e-6, **asked)


def test_a_public_function_would_lose_what_all_bits_lose(rows):
    assert compare.at_best(one(rows, compare.PAPER, 8.0)) > 16 * 7
    assert compare.at_best(one(rows, "PITQ", 8.0)) is None


def test_what_is_found_follows_what_may_be_lost(rows):
    chance = 0.11
    assert one(rows, "features").score > 0.4
    assert one(rows, "codebook", 8.0).score > one(rows, "codebook", 1.0).score
    assert one(rows, "codebook", 8.0).score > 2 * chance
    assert one(rows, "codebook", 8.0).score > one(rows, "flipped bits", 8.0).score
    assert one(rows, "PITQ", 1.0).score == pytest.approx(one(rows, "ITQ").score, abs=0.1)  # it hides nothing


@pytest.mark.parametrize("method", ["KSH", "SDH", "DPSH", "ADSH"])
def test_learners_of_public_classes_take_part(study, rows, method):
    if method in ("DPSH", "ADSH"):
        pytest.importorskip("torch")
        rows = contest(study, epsilons=[1.0], delta=1e-4, bits=16, methods=[method])
    assert one(rows, method).score > 0.4  # of codes of 16 bits; chance is .1
