"""A study divides a collection so that nothing private is learned from, and every query has something to find."""

import numpy as np
import pytest

from blindsight.data import Dataset, PixelFeatures, load
from blindsight.errors import DataError, InputError
from blindsight.search.compare import SearchStudy, divide


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
