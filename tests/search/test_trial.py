"""Searches side by side: a division in which nothing private is learned from, what is found and proven."""

import numpy as np
import pytest

from blindsight.data import Dataset, PixelFeatures, load, pipeline
from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.search.codes import unpack
from blindsight.search.evaluation import CodeSearcher, FeatureSearcher
from blindsight.search.itq import ITQ
from blindsight.search.trial import METHODS, Method, SearchStudy, contest, divide, register


@pytest.fixture(scope="module")
def study():
    digits = load("digits", count=500)
    return SearchStudy.prepare(digits, divide(digits, queries=40, random_state=0), pipeline("thumbnail"))


def test_every_method_proves_what_was_asked(study, monkeypatch):
    monkeypatch.setattr("blindsight.search.codebook.CELLS_PER_KIND", 1.2)
    names = ["features", "ITQ", "codebook", "labelled codebook", "central", "central, public start"]
    rows = contest(study, epsilons=[1.0, 8.0], delta=1e-4, bits=16, methods=names)
    assert [(row.method, row.epsilon) for row in rows] == [
        *(("features", None), ("ITQ", None)),
        *((name, epsilon) for name in names[2:] for epsilon in (1.0, 8.0)),
    ]
    for row in rows:
        assert 0 < row.score <= 1
        if row.epsilon is not None:
            assert row.proven <= row.epsilon
            assert row.statement.unit == "record"
            assert row.statement.delta in ((0,) if row.group == "local" or row.proven == 0 else (1e-4,))
    scores = {(row.method, row.epsilon): row.score for row in rows}
    assert scores["features", None] > 0.4
    assert scores["codebook", 8.0] > max(scores["codebook", 1.0], 2 * 0.11)  # twice what chance finds
    for error, asked in (
        (UnknownNameError, {"epsilons": [1.0], "methods": ["magic"]}),
        (InputError, {"epsilons": [0.0]}),
        (InputError, {"epsilons": []}),
        (InputError, {"epsilons": [1.0], "methods": ["shipped codebook"]}),  # thumbnails are no embedding
    ):
        with pytest.raises(error):
            contest(study, delta=1e-6, **asked)


def test_a_registered_method_takes_part_and_no_name_has_two_meanings(study, monkeypatch):
    monkeypatch.setattr("blindsight.search.trial.METHODS", dict(METHODS))
    exact = Method("nobody", lambda entry: (FeatureSearcher(entry.study.indexed.features), None))
    for _ in range(2):
        register("mine", exact)
    mine, features = contest(study, epsilons=[1.0], delta=1e-4, methods=["mine", "features"])
    assert mine.score == features.score
    with pytest.raises(InputError, match="'features'"):
        register("features", exact)


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
