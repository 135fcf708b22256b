"""A dataset's parts belong together row by row, and stay so when rows are taken."""

import numpy as np
import pytest

from blindsight.data.dataset import Dataset
from blindsight.errors import DataError, InputError, UnknownNameError

IMAGES = np.arange(4 * 2 * 2 * 3, dtype=np.uint8).reshape(4, 2, 2, 3)
FEATURES = np.zeros((2, 3), dtype=np.float32)


def dataset(**parts):
    return Dataset("small", licence="none", source="a test", **parts)


def small():
    return dataset(
        images=IMAGES,
        labels=np.array([0, 1, 0, 1]),
        label_names=("cat", "dog"),
        attributes=np.array([[1, 0], [0, -1], [1, 1], [0, 0]], dtype=np.int8),
        attribute_names=("smiling", "male"),
        persons=np.array([7, 7, 8, 9]),
        names=("a", "b", "c", "d"),
    )


def test_taking_rows_takes_every_part():
    taken = small().take([2, 0])
    assert (len(taken), taken.names, taken.label_names) == (2, ("c", "a"), ("cat", "dog"))
    assert taken.labels.tolist() == [0, 0]
    assert taken.persons.tolist() == [8, 7]
    assert taken.attribute("male").tolist() == [1, 0]
    np.testing.assert_array_equal(taken.images, IMAGES[[2, 0]])


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (slice(1, 3), "bc"),
        (slice(None, None, -1), "dcba"),
        (slice(2, 9), "cd"),
        (np.array([True, False, False, True]), "ad"),
        ([True, False, False, True], "ad"),
        (np.array([3, 0, 3]), "dad"),
        ([-1], "d"),
        ([], ""),
    ],
)
def test_slices_masks_and_row_numbers(rows, names):
    taken = small()[rows]
    assert taken.names == tuple(names)
    np.testing.assert_array_equal(taken.images, IMAGES[["abcd".index(name) for name in names]])


def test_a_slice_of_mapped_pictures_stays_on_disk(tmp_path):
    np.save(tmp_path / "images.npy", IMAGES)
    mapped = dataset(images=np.load(tmp_path / "images.npy", mmap_mode="r"))
    assert isinstance(mapped[1:3].images, np.memmap)


@pytest.mark.parametrize(
    ("rows", "word"),
    [([True, False], "mask"), ([4], "0..3"), ([-5], "0..3"), ([0.0], "float64"), (2, "slice"), ([[0, 1]], "slice")],
)
def test_rows_that_are_not_there_are_refused(rows, word):
    with pytest.raises(InputError, match=word):
        small()[rows]


def test_classes_are_matched_by_name():
    there = small().with_label_names(["bird", "dog", "cat"])
    assert there.label_names == ("bird", "dog", "cat")
    assert there.labels.tolist() == [2, 1, 2, 1]
    assert small()[[0, 2]].with_label_names(["cat"]).labels.tolist() == [0, 0]  # no row is a dog
    with pytest.raises(DataError) as caught:
        small().with_label_names(["bird", "cat"])
    assert all(name in str(caught.value) for name in ("not known: dog.", "cat, dog", "bird, cat"))
    with pytest.raises(DataError, match="no named classes"):
        dataset(images=IMAGES).with_label_names(["cat"])


def test_unknown_attribute_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="'smiling'"):
        small().attribute("smilling")


def test_content_hash_depends_on_pixels_and_not_on_labels():
    assert small().content_hash() == dataset(images=IMAGES).content_hash()
    assert small().content_hash() != small()[[1, 0, 2, 3]].content_hash()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, "neither images nor features"),
        ({"images": IMAGES[0]}, r"\(2, 2, 3\)"),
        ({"images": IMAGES[..., :2]}, r"\(4, 2, 2, 2\)"),
        ({"images": IMAGES.astype(float)}, "float64"),
        ({"features": FEATURES[0]}, r"\(3,\)"),
        ({"images": IMAGES, "labels": np.zeros(3, dtype=int)}, "labels has 3"),
        ({"features": FEATURES, "names": ("a",)}, "names has 1"),
        ({"features": FEATURES, "attributes": np.zeros((2, 2), dtype=np.int8)}, "0 attribute names"),
        ({"features": FEATURES, "labels": np.array([0.5, 1.0])}, "float64"),
        ({"features": FEATURES, "labels": np.array([0, 2]), "label_names": ("a", "b")}, r"0\.\.1"),
        ({"features": FEATURES, "labels": np.array([0, -1]), "label_names": ("a", "b")}, r"0\.\.1"),
        ({"features": FEATURES, "label_names": ("a", "a")}, "a, a"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, words):
    with pytest.raises(InputError, match=words):
        dataset(**parts)


def test_repr_tells_what_is_known_and_shows_no_pixels():
    assert repr(small()) == "Dataset('small', 4 pictures, 2x2x3, labels, attributes, persons)"
