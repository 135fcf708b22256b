"""A study gives every picture to one side, keeps persons together, and learns what it was asked."""

import numpy as np
import pytest

from blindsight.data import Dataset, load
from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.learn.study import Study


def rows_of(study: Study) -> list[float]:
    """The features of these tests are row numbers, so that every row can be followed."""
    parts = [study.public[0], study.test[0], *(X for X, _ in study.owners.values())]
    return sorted(np.concatenate(parts)[:, 0].tolist())


def numbered(dataset: Dataset) -> np.ndarray:
    return np.arange(len(dataset), dtype=np.float32)[:, None]


def test_every_picture_is_on_one_side() -> None:
    digits = load("digits", count=300)
    study = Study.of(digits, numbered(digits), owners=4)
    assert rows_of(study) == list(range(300))
    assert not study.multilabel
    assert study.answers == tuple("0123456789")


def test_shares_are_as_in_the_paper() -> None:
    digits = load("digits")
    study = Study.of(digits, numbered(digits), owners=5)
    training = len(study.public[0]) + sum(len(X) for X, _ in study.owners.values())
    assert len(study.public[0]) == pytest.approx(0.1 * training, abs=6)
    assert len(study.test[0]) == pytest.approx(0.3 * len(digits), abs=6)
    assert len({len(X) // 2 for X, _ in study.owners.values()}) <= 2


def test_nobody_is_on_two_sides() -> None:
    faces = load("faces", count=300, pictures_per_person=3)
    assert faces.persons is not None
    study = Study.of(faces, numbered(faces), owners=3)
    sides = [study.public, study.test, *study.owners.values()]
    people = [set(faces.persons[X[:, 0].astype(int)]) for X, _ in sides]
    assert sum(map(len, people)) == len(set().union(*people)) == 100
    assert study.multilabel
    assert study.answers == faces.attribute_names


def test_only_the_named_attributes_are_learned() -> None:
    faces = load("faces", count=120)
    study = Study.of(faces, numbered(faces), owners=3, attributes=["hat", "male"])
    X, y = study.test
    np.testing.assert_array_equal(y[:, 0], faces.attribute("hat")[X[:, 0].astype(int)])
    assert study.answers == ("hat", "male")


def test_sharing_by_class_skews_the_owners() -> None:
    digits = load("digits")
    study = Study.of(digits, numbered(digits), owners=5, sharing="by-class", concentration=0.1)
    most = [np.bincount(y, minlength=10).max() / len(y) for _, y in study.owners.values()]
    assert max(most) > 0.3  # equal shares would have about 0.1


def test_same_seed_same_study() -> None:
    digits = load("digits", count=200)
    first, again, other = (Study.of(digits, numbered(digits), owners=3, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.test[0], again.test[0])
    assert not np.array_equal(first.test[0], other.test[0])


def test_what_cannot_be_shared_gets_a_sentence() -> None:
    digits, faces = load("digits", count=100), load("faces", count=60)
    with pytest.raises(InputError, match="does not say who is on its pictures"):
        Study.of(digits, numbered(digits), owners=3, sharing="by-person")
    with pytest.raises(InputError, match="sharing by class needs classes"):
        Study.of(faces, numbered(faces), owners=3, sharing="by-class")
    with pytest.raises(UnknownNameError, match="Did you mean 'hat'"):
        Study.of(faces, numbered(faces), owners=3, attributes=["hatt"])
    bare = Dataset("bare", licence="", source="", features=numbered(digits))
    with pytest.raises(DataError, match="neither classes nor attributes"):
        Study.of(bare, numbered(bare), owners=3)
