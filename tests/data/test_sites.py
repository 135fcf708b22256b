"""A study gives every picture to one side, keeps persons together, and learns what it was asked."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.data import Dataset, PixelFeatures, load
from blindsight.data.sites import Study, divide
from blindsight.errors import DataError, InputError, UnknownNameError


def rows_of(study):
    """The features of these tests are row numbers, so that every row can be followed."""
    parts = [study.public[0], study.test[0], *(X for X, _ in study.owners.values())]
    return sorted(np.concatenate(parts)[:, 0].tolist())


def numbered(dataset):
    return np.arange(len(dataset), dtype=np.float32)[:, None]


def study_of(dataset, **how):
    return Study.of(dataset, numbered(dataset), divide(dataset, **how))


def test_every_picture_is_on_one_side():
    digits = load("digits", count=300)
    study = study_of(digits, owners=4)
    assert rows_of(study) == list(range(300))
    assert not study.multilabel
    assert study.answers == tuple("0123456789")


def test_shares_are_as_in_the_paper():
    digits = load("digits")
    study = study_of(digits, owners=5)
    training = len(study.public[0]) + sum(len(X) for X, _ in study.owners.values())
    assert len(study.public[0]) == pytest.approx(0.1 * training, abs=6)
    assert len(study.test[0]) == pytest.approx(0.3 * len(digits), abs=6)
    assert len({len(X) // 2 for X, _ in study.owners.values()}) <= 2


def test_nobody_is_on_two_sides():
    faces = load("faces", count=300, pictures_per_person=3)
    assert faces.persons is not None
    study = study_of(faces, owners=3)
    sides = [study.public, study.test, *study.owners.values()]
    people = [set(faces.persons[X[:, 0].astype(int)]) for X, _ in sides]
    assert sum(map(len, people)) == len(set().union(*people)) == 100
    assert study.multilabel
    assert study.answers == faces.attribute_names


def test_only_the_named_attributes_are_learned():
    faces = load("faces", count=120)
    study = study_of(faces, owners=3, attributes=["hat", "male"])
    X, y = study.test
    np.testing.assert_array_equal(y[:, 0], faces.attribute("hat")[X[:, 0].astype(int)])
    assert study.answers == ("hat", "male")


def test_sharing_by_class_skews_the_owners():
    digits = load("digits")
    study = study_of(digits, owners=5, sharing="by-class", concentration=0.1)
    most = [np.bincount(y, minlength=10).max() / len(y) for _, y in study.owners.values()]
    assert max(most) > 0.3  # equal shares would have about 0.1


def test_same_seed_same_study():
    digits = load("digits", count=200)
    first, again, other = (study_of(digits, owners=3, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.test[0], again.test[0])
    assert not np.array_equal(first.test[0], other.test[0])


def test_what_cannot_be_shared_is_refused():
    digits, faces = load("digits", count=100), load("faces", count=60)
    with pytest.raises(InputError, match="digits"):
        study_of(digits, owners=3, sharing="by-person")
    with pytest.raises(InputError, match="class"):
        study_of(faces, owners=3, sharing="by-class")
    with pytest.raises(UnknownNameError, match="'hat'"):
        study_of(faces, owners=3, attributes=["hatt"])
    bare = Dataset("bare", licence="", source="", features=numbered(digits))
    with pytest.raises(DataError, match="bare"):
        study_of(bare, owners=3)
    with pytest.raises(InputError, match="attributes"):
        study_of(digits, owners=3, attributes=["hat"])


def test_features_learn_from_public_pictures_alone():
    digits = load("digits", count=300)
    assert digits.images is not None
    division = divide(digits, owners=3)
    fitted, alone = PixelFeatures(max_components=5), PixelFeatures(max_components=5)
    study = Study.prepare(digits, division, fitted)
    alone.fit(digits.images[division.public])
    np.testing.assert_array_equal(fitted.components_, alone.components_)
    np.testing.assert_allclose(study.test[0], alone.transform(digits.images[division.held_out]), atol=1e-4)


def test_where_the_classes_are_the_persons_all_of_them_are_learned():
    digits = load("digits", count=400)
    people = replace(digits, persons=digits.labels)
    study = study_of(people, owners=3)
    learned = np.concatenate([study.public[1], *(y for _, y in study.owners.values())])
    assert set(study.test[1]) <= set(learned)
