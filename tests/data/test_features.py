"""Features are computed once, kept for their owner alone, and never lost to a cache; thumbnails learn nothing."""

import errno
import multiprocessing
import os
import stat
import warnings

import numpy as np
import pytest
from PIL import Image

from blindsight import files
from blindsight.data import Embedding, Thumbnails, pipeline
from blindsight.data import features as module
from blindsight.data.dataset import Dataset
from blindsight.data.features import CacheWarning, LearningPipeline, extract
from blindsight.data.pixels import PixelFeatures
from blindsight.errors import DataError, InputError, UnknownNameError


class Means:
    """A pipeline that learns nothing and counts how often it works."""

    def __init__(self, version=1):
        self.version, self.calls = version, 0

    def fit(self, images):
        return self

    def transform(self, images):
        self.calls += 1
        return images.mean(axis=(1, 2), dtype=np.float32) * self.version

    def fingerprint(self):
        return f"means {self.version}"


class Returns(Means):
    """A pipeline that returns whatever it was told."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def transform(self, images):
        return self.rows


def collection(count=5, seed=0):
    images = np.random.default_rng(seed).integers(0, 256, (count, 6, 5, 3), dtype=np.uint8)
    return Dataset("some", licence="CC0-1.0", source="drawn here", images=images)


def table(features):
    return Dataset("table", licence="CC0-1.0", source="drawn here", features=features)


def entry(cache):
    (path,) = (cache / "features").iterdir()
    return path


class TestKept:
    def test_second_time_nothing_is_computed(self, tmp_path):
        dataset, first, second = collection(), Means(), Means()
        reports = []
        computed = extract(dataset, first, cache=tmp_path)
        found = extract(dataset, second, cache=tmp_path, progress=lambda *report: reports.append(report))
        np.testing.assert_array_equal(found, computed)
        np.testing.assert_array_equal(found, dataset.images.mean(axis=(1, 2), dtype=np.float32))
        assert (first.calls, second.calls) == (1, 0)
        assert found.dtype == np.float32
        assert found.flags.writeable
        assert reports == [("features from the cache", 5, 5)]

    def test_other_images_or_another_pipeline_have_their_own_entry(self, tmp_path):
        for dataset in (collection(), collection(seed=1)):
            for version in (1, 2):
                means = Means(version)
                expected = dataset.images.mean(axis=(1, 2), dtype=np.float32) * version
                np.testing.assert_array_equal(extract(dataset, means, cache=tmp_path), expected)
                assert means.calls == 1
        assert len(list((tmp_path / "features").iterdir())) == 4

    def test_only_the_owner_may_read(self, tmp_path):
        extract(collection(), Means(), cache=tmp_path / "new")
        assert stat.S_IMODE((tmp_path / "new" / "features").stat().st_mode) == 0o700
        assert stat.S_IMODE(entry(tmp_path / "new").stat().st_mode) == 0o600

    def test_without_a_cache_progress_is_told_and_nothing_written(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(module, "_CHUNK", 2)
        reports = []
        features = extract(collection(), Means(), progress=lambda *report: reports.append(report))
        np.testing.assert_array_equal(features, extract(collection(), Means()))
        assert reports == [("features", done, 5) for done in (0, 2, 4, 5)]
        assert not list(tmp_path.iterdir())

    def test_no_images(self, tmp_path):
        for _ in range(2):
            assert extract(collection(0), Means(), cache=tmp_path).shape == (0, 3)


class TestLearning:
    def test_fit_is_kept_with_the_features(self, tmp_path):
        dataset, fresh, found = collection(20), PixelFeatures(0.9), PixelFeatures(0.9)
        assert isinstance(fresh, LearningPipeline)
        features = extract(dataset, fresh, cache=tmp_path)
        np.testing.assert_array_equal(features, PixelFeatures(0.9).fit(dataset.images).transform(dataset.images))
        found.fit = pytest.fail
        np.testing.assert_array_equal(extract(dataset, found, cache=tmp_path), features)
        assert found.fingerprint() == fresh.fingerprint()
        assert found.energy_ == fresh.energy_
        np.testing.assert_array_equal(found.transform(dataset.images), features)

    def test_a_fitted_pipeline_is_applied_not_fitted_again(self, tmp_path):
        train, test = collection(20), collection(8, seed=1)
        for cache in (None, tmp_path, tmp_path):
            pixels = PixelFeatures(0.9)
            extract(train, pixels, cache=cache)
            learned = pixels.fingerprint()
            features = extract(test, pixels, cache=cache)
            np.testing.assert_array_equal(features, PixelFeatures(0.9).fit(train.images).transform(test.images))
            assert pixels.fingerprint() == learned

    def test_fitted_to_the_public_rows_alone(self, tmp_path):
        dataset, public = collection(20), np.array([1, 3, 5, 7, 9, 11])
        alone = PixelFeatures(0.9).fit(dataset.images[public])
        for pixels in (PixelFeatures(0.9), PixelFeatures(0.9).fit(dataset.images)):
            features = extract(dataset, pixels, fit_to=public, cache=tmp_path)
            assert pixels.fingerprint() == alone.fingerprint()
            np.testing.assert_array_equal(features, alone.transform(dataset.images))
        np.testing.assert_array_equal(extract(dataset, Means(), fit_to=public), extract(dataset, Means()))

    def test_fits_to_different_images_do_not_share_an_entry(self, tmp_path):
        one, two = (PixelFeatures(0.9).fit(collection(20, seed=seed).images) for seed in (1, 2))
        here, there = (extract(collection(), pixels, cache=tmp_path) for pixels in (one, two))
        assert not np.array_equal(here, there)


def altered(content, position):
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


DAMAGES = {
    "first byte": lambda c: altered(c, 0),
    "key": lambda c: altered(c, c.index(b'"key"') + 10),
    "last value": lambda c: altered(c, c.index(b"PK\1\2") - 1),
    "truncated": lambda c: c[:-4],
    "empty": lambda c: b"",
    "another shape": lambda c: c.replace(b"(5, 3)", b"(3, 5)"),
    "another version": lambda c: c.replace(b"blindsight/features.2", b"blindsight/features.0"),
    "a foreign file": lambda c: b"GIF89a" * 100,
}


class TestDamaged:
    @pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
    def test_is_told_and_made_again(self, tmp_path, damage):
        good = extract(collection(), Means(), cache=tmp_path)
        path = entry(tmp_path)
        content = path.read_bytes()
        path.write_bytes(damage(content))
        assert path.read_bytes() != content
        means = Means()
        with pytest.warns(CacheWarning, match="computed again"):
            again = extract(collection(), means, cache=tmp_path)
        np.testing.assert_array_equal(again, good)
        assert means.calls == 1
        assert path.read_bytes() == content

    def test_an_entry_of_other_images_is_not_taken(self, tmp_path):
        extract(collection(seed=1), Means(), cache=tmp_path)
        foreign = entry(tmp_path).read_bytes()
        entry(tmp_path).unlink()
        good = extract(collection(), Means(), cache=tmp_path)
        entry(tmp_path).write_bytes(foreign)
        with pytest.warns(CacheWarning, match="other images"):
            np.testing.assert_array_equal(extract(collection(), Means(), cache=tmp_path), good)


class TestUnusable:
    @pytest.mark.parametrize(("number", "reason"), [(errno.EROFS, "read-only"), (errno.ENOSPC, "full")])
    def test_features_are_returned_all_the_same(self, tmp_path, monkeypatch, number, reason):
        def refuse(*_, **__):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(files.os, "fsync", refuse)
        with pytest.warns(CacheWarning, match=reason) as caught:
            features = extract(collection(), Means(), cache=tmp_path)
        np.testing.assert_array_equal(features, extract(collection(), Means()))
        assert [warning.filename for warning in caught] == [__file__]
        assert not list((tmp_path / "features").iterdir())

    def test_folder_cannot_be_made(self, tmp_path):
        (tmp_path / "file").write_text("no folder")
        with pytest.warns(CacheWarning, match="not a folder") as caught:
            features = extract(collection(), Means(), cache=tmp_path / "file")
        assert len(caught) == 1
        np.testing.assert_array_equal(features, extract(collection(), Means()))

    def test_entry_cannot_be_read(self, tmp_path, monkeypatch):
        good = extract(collection(), Means(), cache=tmp_path)

        def refuse(*_, **__):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(files, "file_content", refuse)
        with pytest.warns(CacheWarning, match="permission"):
            np.testing.assert_array_equal(extract(collection(), Means(), cache=tmp_path), good)


def _extract_many(cache, start):
    start.wait(timeout=60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(4):
            extract(collection(20, seed=seed), PixelFeatures(0.5), cache=cache)


def test_two_processes_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    other = context.Process(target=_extract_many, args=(tmp_path, start))
    other.start()
    _extract_many(tmp_path, start)
    other.join(timeout=60)
    assert other.exitcode == 0
    assert len(list((tmp_path / "features").iterdir())) == 4
    for seed in range(4):
        images, found, fresh = collection(20, seed=seed), PixelFeatures(0.5), PixelFeatures(0.5)
        found.fit = pytest.fail
        np.testing.assert_allclose(extract(images, found, cache=tmp_path), extract(images, fresh), atol=1e-4)


class TestReadyFeatures:
    def test_returned_as_they_are(self, tmp_path):
        features = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
        assert extract(table(features), Means(), cache=tmp_path) is features
        half = features.astype(np.float16)
        np.testing.assert_array_equal(extract(table(half), Means()), half.astype(np.float32))
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
    def test_not_a_number_is_refused(self, bad):
        features = np.zeros((4, 3))
        features[[1, 3], 2] = bad
        with pytest.raises(DataError, match=r"'table' .* 2 of 4 rows, first in row 1"):
            extract(table(features), Means())

    def test_not_a_table(self):
        with pytest.raises(InputError, match=r"\(4, 3, 2\)"):
            extract(table(np.zeros((4, 3, 2), np.float32)), Means())


class TestBadPipelines:
    def test_nan_is_refused_and_not_kept(self, tmp_path):
        rows = np.zeros((5, 2), np.float32)
        rows[4] = np.nan
        with pytest.raises(DataError, match=r"Returns .* 1 of 5 rows"):
            extract(collection(), Returns(rows), cache=tmp_path)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("shape", [(5,), (4, 2), (5, 2, 2)])
    def test_not_one_row_per_image(self, shape):
        with pytest.raises(DataError, match="one row per image"):
            extract(collection(), Returns(np.zeros(shape, np.float32)))


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
    with pytest.raises(InputError, match="side"):
        Thumbnails(side=side)


def test_what_is_no_image():
    with pytest.raises(InputError, match="uint8"):
        Thumbnails().transform(np.zeros((2, 8, 8, 3)))


def test_pipelines_by_name():
    assert repr(pipeline("pixels", components=7, random_state=2)) == repr(PixelFeatures(0.95, 7, 2))
    assert isinstance(pipeline("embedding"), Embedding)
    assert pipeline("~/models/mine.onnx").path.name == "mine.onnx"
    assert not str(pipeline("~/models/mine.onnx").path).startswith("~")
    with pytest.raises(UnknownNameError, match="'pixels'"):
        pipeline("pixel")
