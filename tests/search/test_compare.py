"""Searches side by side: a division in which nothing private is learned from, what is found, claimed and proven."""

import math

import numpy as np
import pytest

from blindsight.data import Dataset, PixelFeatures, load, pipeline
from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.search.codes import unpack
from blindsight.search.compare import METHODS, SearchStudy, contest, divide
from blindsight.search.evaluation import CodeSearcher, FeatureSearcher
from blindsight.search.hashers import ITQ


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
    methods = {name: group for name, (group, _) in METHODS.items() if name not in named}
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


def test_what_is_found_follows_what_may_be_lost(rows):
    chance = 0.11
    assert one(rows, "features").score > 0.4
    assert one(rows, "codebook", 8.0).score > one(rows, "codebook", 1.0).score
    assert one(rows, "codebook", 8.0).score > 2 * chance
    assert one(rows, "codebook", 8.0).score > one(rows, "flipped bits", 8.0).score
    assert one(rows, "PITQ", 1.0).score == pytest.approx(one(rows, "ITQ").score, abs=0.1)  # it hides nothing


def test_feature_searcher_ranks_by_euclidean_distance(study):
    searcher = FeatureSearcher(study.indexed.features)
    queries = study.queries.features[:5]
    exact = ((queries[:, None] - study.indexed.features) ** 2).sum(axis=2)
    found = searcher.nearest(queries, 4)
    near = np.take_along_axis(exact, found, axis=1)
    np.testing.assert_allclose(near, np.sort(exact, axis=1)[:, :4], rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="k must"):
        searcher.nearest(queries, 10**6)


def test_code_searcher_ranks_by_hamming_distance_and_position(study):
    function = ITQ(12).fit(study.public.features).function_
    codes = function(study.indexed.features)
    found = CodeSearcher(function, codes).nearest(study.queries.features[:3], 6)
    bits = unpack(codes, 12)
    for query, answer in zip(unpack(function(study.queries.features[:3]), 12), found, strict=True):
        expected = sorted(range(len(bits)), key=lambda item: (int((bits[item] != query).sum()), item))[:6]
        assert answer.tolist() == expected


@pytest.mark.parametrize("method", ["KSH", "SDH", "DPSH", "ADSH"])
def test_learners_of_public_classes_take_part(study, rows, method):
    if method in ("DPSH", "ADSH"):
        pytest.importorskip("torch")
        rows = contest(study, epsilons=[1.0], delta=1e-4, bits=16, methods=[method])
    assert one(rows, method).score > 0.4  # of codes of 16 bits; chance is .1


def test_parts_are_disjoint_and_everything_is_somewhere():
    digits = load("digits")
    division = divide(digits, queries=100, public=0.4, random_state=3)
    together = np.concatenate([division.public, division.held_out, division.owners[0]])
    assert sorted(together) == list(range(len(digits)))
    assert len(division.held_out) == 100
    assert abs(len(division.public) - 0.4 * len(digits)) < 10


def test_without_classes_persons_are_sought_and_nobody_public_is_private():
    faces = load("faces", count=120, pictures_per_person=4, random_state=0)
    study = SearchStudy.of(faces, np.zeros((120, 2), dtype=np.float32), divide(faces, queries=20, random_state=0))
    assert not np.isin(study.public.labels, study.indexed.labels).any()
    assert np.isin(study.queries.labels, study.indexed.labels).all()  # queries that nothing answers are left out


def test_features_learn_from_public_pictures_alone():
    digits = load("digits", count=300)
    division = divide(digits, queries=30, random_state=1)
    pipeline = PixelFeatures(max_components=10)
    study = SearchStudy.prepare(digits, division, pipeline)
    alone = PixelFeatures(max_components=10).fit(digits.images[division.public])
    expected = alone.transform(digits.images[division.owners[0]])
    np.testing.assert_allclose(study.indexed.features, expected, rtol=1e-4, atol=1e-4)


def test_impossible_divisions():
    for options, named in (({"public": 1.0}, "public share"), ({"queries": 900}, "queries")):
        with pytest.raises(InputError, match=named):
            divide(load("digits"), **options)
    with pytest.raises(DataError, match="classes"):  # nothing to tell right from wrong
        divide(Dataset("bare", "none", "here", features=np.zeros((9, 2), dtype=np.float32)))
