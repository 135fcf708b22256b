"""A dataset's parts belong together row by row, and stay so when rows are taken."""

import numpy as np
import pytest

from blindsight.data.dataset import Dataset
from blindsight.errors import InputError, UnknownNameError


def small() -> Dataset:
    return Dataset(
        "small",
        licence="none",
        source="a test",
        images=np.arange(4 * 2 * 2 * 3, dtype=np.uint8).reshape(4, 2, 2, 3),
        labels=np.array([0, 1, 0, 1]),
        label_names=("cat", "dog"),
        attributes=np.array([[1, 0], [0, -1], [1, 1], [0, 0]], dtype=np.int8),
        attribute_names=("smiling", "male"),
        persons=np.array([7, 7, 8, 9]),
        names=("a", "b", "c", "d"),
    )


def test_taking_rows_takes_every_part() -> None:
    taken = small().take([2, 0])
    assert taken.names == ("c", "a")
    assert taken.labels is not None
    assert taken.persons is not None
    assert taken.images is not None
    assert taken.labels.tolist() == [0, 0]
    assert taken.persons.tolist() == [8, 7]
    assert taken.attribute("male").tolist() == [1, 0]
    assert taken.images[1, 0, 0].tolist() == [0, 1, 2]
    assert len(taken) == 2


def test_taking_by_mask_equals_taking_by_index() -> None:
    dataset = small()
    assert dataset.take(np.array([True, False, False, True])).names == dataset.take([0, 3]).names


def test_unknown_attribute_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'smiling'"):
        small().attribute("smilling")


def test_content_hash_depends_on_pixels_and_not_on_labels() -> None:
    dataset = small()
    assert dataset.content_hash() == Dataset("other", licence="", source="", images=dataset.images).content_hash()
    assert dataset.content_hash() != dataset.take([1, 0, 2, 3]).content_hash()


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({}, "neither images nor features"),
        ({"images": np.zeros((2, 4, 4), dtype=np.uint8)}, r"images must be uint8 of shape"),
        ({"images": np.zeros((2, 4, 4, 3))}, r"got float64"),
        ({"images": np.zeros((2, 4, 4, 3), dtype=np.uint8), "labels": np.zeros(3, dtype=int)}, "labels has 3 rows"),
        ({"features": np.zeros((2, 3), dtype=np.float32), "names": ("a",)}, "names has 1 rows"),
        (
            {"features": np.zeros((2, 3), dtype=np.float32), "attributes": np.zeros((2, 2), dtype=np.int8)},
            "but 0 attribute names",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Dataset("wrong", licence="", source="", **parts)  # type: ignore[arg-type]


def test_repr_tells_what_is_known_and_shows_no_pixels() -> None:
    assert repr(small()) == "Dataset('small', 4 pictures, 2x2x3, labels, attributes, persons)"
