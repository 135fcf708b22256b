"""Thumbnails: unit length, blind to brightness, the same for every caller, and learned from nothing."""

import numpy as np
import pytest
from PIL import Image

from blindsight.data import Thumbnails, pipeline
from blindsight.data.features import LearningPipeline
from blindsight.errors import InputError


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, size=(5, 40, 30, 3), dtype=np.uint8)


def test_is_the_grey_picture_reduced_by_pillow_at_unit_length(images):
    features = Thumbnails(side=7).transform(images)
    grey = Image.fromarray(images[3]).convert("L").resize((7, 7), Image.Resampling.BICUBIC)
    expected = np.asarray(grey, dtype=np.float64).ravel()
    np.testing.assert_allclose(features[3], expected / np.linalg.norm(expected), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-6)


def test_images_of_the_right_size_keep_their_pixels():
    picture = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1).repeat(3, axis=3)
    features = Thumbnails(side=4).transform(picture)
    np.testing.assert_allclose(features[0] * np.sqrt(np.sum(np.arange(16.0) ** 2)), np.arange(16), rtol=1e-6)


def test_half_the_brightness_is_the_same_picture():
    picture = np.random.default_rng(1).integers(0, 128, size=(1, 28, 28, 3), dtype=np.uint8)
    dim, bright = Thumbnails().transform(picture), Thumbnails().transform(2 * picture)
    np.testing.assert_allclose(dim, bright, atol=2e-3)  # grey levels are rounded to whole numbers


def test_black_stays_zero():
    assert not Thumbnails(side=3).transform(np.zeros((1, 8, 8, 3), dtype=np.uint8)).any()


def test_learns_nothing(images):
    thumbnails = pipeline("thumbnail")
    before = thumbnails.fingerprint()
    alone = thumbnails.transform(images[:1])
    together = thumbnails.fit(images).transform(images)
    assert thumbnails.fingerprint() == before
    assert not isinstance(thumbnails, LearningPipeline)
    np.testing.assert_array_equal(alone[0], together[0])


@pytest.mark.parametrize("side", [1, 0, 513, 2.5, True])
def test_impossible_sides(side):
    with pytest.raises(InputError, match="side of a thumbnail"):
        Thumbnails(side=side)


def test_what_is_no_image():
    with pytest.raises(InputError, match="uint8"):
        Thumbnails().transform(np.zeros((2, 8, 8, 3)))
