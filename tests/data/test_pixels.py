import json
import math
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA

from blindsight import files
from blindsight.data import pixels as module
from blindsight.data.pixels import PLANES, PixelFeatures, planes
from blindsight.errors import CorruptFileError, DataError, InputError, StorageError


def pictures(count, height=6, width=5, seed=0):
    """Smooth random images with a few pixels of noise: their spectrum falls as that of photographs does."""
    rng = np.random.default_rng(seed)
    down, right = np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij")
    waves = np.stack([np.cos(np.pi * (i * down + j * right)) for i in range(3) for j in range(3)], axis=-1)
    amplitudes = rng.normal(size=(count, 9, 3)) * 40 / (1 + np.arange(9))[:, None]
    smooth = 128 + np.einsum("hwk,nkc->nhwc", waves, amplitudes)
    return np.clip(smooth + rng.normal(size=smooth.shape) * 3, 0, 255).astype(np.uint8)


def planes_by_loop(image):
    """The definition, pixel by pixel, in Python floats."""
    height, width, _ = image.shape
    grey = [[sum(w * float(v) for w, v in zip((0.299, 0.587, 0.114), px, strict=True)) for px in row] for row in image]

    def slope(values, k):
        low, high = max(k - 1, 0), min(k + 1, len(values) - 1)
        return (values[high] - values[low]) / (high - low)

    orientation, magnitude = [], []
    for r in range(height):
        for c in range(width):
            down, right = slope([grey[k][c] for k in range(height)], r), slope(grey[r], c)
            orientation.append(math.atan2(down, right))
            magnitude.append(math.hypot(down, right))
    parts = [[float(v) for v in image.ravel()], [v for row in grey for v in row], orientation, magnitude]
    result = []
    for part in parts:
        mu = sum(part) / len(part)
        sigma = math.sqrt(sum((v - mu) ** 2 for v in part) / len(part))
        result += [(v - mu) / (2 * sigma) for v in part]
    return result


def small_batches(monkeypatch, rows, images):
    monkeypatch.setattr(module, "_BATCH_BYTES", rows * 4 * PLANES * images.shape[1] * images.shape[2])


def assert_agrees(fitted, images, energy):
    """Compare with a full SVD: as many components, the same energies, the same subspace."""
    table = planes(images).astype(np.float64)
    oracle = PCA(svd_solver="full").fit(table)
    shares = np.cumsum(oracle.explained_variance_ratio_)
    fewest = int(np.searchsorted(shares, energy)) + 1
    assert fitted.n_components_ == fewest
    assert fitted.energy_ >= energy > fitted.energies_[:-1].sum()  # reached, and not with one component fewer
    np.testing.assert_allclose(fitted.energies_, oracle.explained_variance_ratio_[:fewest], rtol=1e-3)
    assert subspace_angles(fitted.components_.T, oracle.components_[:fewest].T).max() < 0.02
    # What is left after projection is what the energy says: no estimate.
    projected = fitted.transform(images) @ fitted.components_ + fitted.mean_
    left = np.sum((table - projected) ** 2) / np.sum((table - table.mean(axis=0)) ** 2)
    assert left == pytest.approx(1 - fitted.energy_, abs=1e-5)


class TestPlanes:
    def test_paper_count(self):
        assert planes(np.zeros((1, 128, 128, 3), dtype=np.uint8)).shape == (1, 98_304)

    @pytest.mark.parametrize("shape", [(6, 5), (2, 2)])
    def test_definition_pixel_by_pixel(self, shape):
        images = np.random.default_rng(1).integers(0, 256, (3, *shape, 3), dtype=np.uint8)
        found = planes(images)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, [planes_by_loop(image) for image in images], atol=2e-5)

    @pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (17, 18, 19), (1, 2, 254)])
    def test_flat_images_have_no_edges(self, colour):
        flat = planes(np.broadcast_to(np.uint8(colour), (2, 7, 9, 3)))
        assert np.isfinite(flat).all()
        assert not flat[:, 3 * 63 :].any()  # neither intensity nor edges vary
        if len(set(colour)) == 1:
            assert not flat.any()

    def test_an_even_ramp_has_one_orientation_and_one_magnitude(self):
        ramp = np.broadcast_to(np.arange(0, 90, 9, dtype=np.uint8)[:, None, None], (1, 10, 8, 3))
        intensity, *edges = np.split(planes(ramp)[0, 240:], 3)
        assert intensity.std() == pytest.approx(0.5, rel=1e-5)
        assert not np.any(edges)

    @settings(deadline=None, max_examples=15)
    @given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 60))
    def test_contrast_and_brightness_do_not_matter(self, seed, gain, lift):
        images = np.random.default_rng(seed).integers(0, 48, (2, 5, 4, 3), dtype=np.uint8)
        np.testing.assert_allclose(planes(images * np.uint8(gain) + np.uint8(lift)), planes(images), atol=1e-4)

    @pytest.mark.parametrize(
        ("images", "sentence"),
        [
            (np.zeros((1, 4, 4, 3)), "float64"),
            (np.zeros((4, 4, 3), np.uint8), r"\(4, 4, 3\)"),
            (np.zeros((1, 4, 4, 1), np.uint8), r"\(1, 4, 4, 1\)"),
            (np.zeros((1, 0, 4, 3), np.uint8), r"\(1, 0, 4, 3\)"),
            (np.zeros((1, 1, 4, 3), np.uint8), "1x4"),
        ],
    )
    def test_what_is_no_image(self, images, sentence):
        with pytest.raises(InputError, match=sentence):
            planes(images)


class TestComponents:
    @pytest.mark.parametrize(("count", "energy"), [(40, 0.5), (180, 0.95), (181, 0.95), (400, 0.95)])  # of 180 features
    def test_agrees_with_full_svd(self, count, energy):
        images = pictures(count)
        assert_agrees(PixelFeatures(energy).fit(images), images, energy)

    @pytest.mark.parametrize(("count", "rows"), [(40, 1), (40, 7), (400, 64)])
    def test_batches_smaller_than_the_data(self, monkeypatch, count, rows):
        images = pictures(count)
        small_batches(monkeypatch, rows, images)
        assert_agrees(PixelFeatures(0.9).fit(images), images, 0.9)

    @pytest.mark.parametrize(("count", "energy"), [(40, 0.95), (400, 0.5), (400, 0.999)])
    def test_iteration_agrees_with_full_svd(self, monkeypatch, count, energy):
        images = pictures(count)
        monkeypatch.setattr(module, "_EXACT_UP_TO", 0)
        small_batches(monkeypatch, 50, images)
        assert_agrees(PixelFeatures(energy).fit(images), images, energy)

    def test_iteration_never_holds_what_the_exact_ways_hold(self, monkeypatch):
        images = pictures(300, 12, 12)
        largest = 0

        def watched(matrix):
            nonlocal largest
            largest = max(largest, len(matrix))
            return solve(matrix)

        solve = module._largest_first
        monkeypatch.setattr(module, "_largest_first", watched)
        monkeypatch.setattr(module, "_EXACT_UP_TO", 100)
        fitted = PixelFeatures(0.4).fit(images)
        assert fitted.n_components_ < 16
        assert largest == 64

    @pytest.mark.parametrize("exact", [0, 8192])
    def test_max_components_wins_over_energy(self, monkeypatch, exact):
        images = pictures(100)
        monkeypatch.setattr(module, "_EXACT_UP_TO", exact)
        whole, bounded = PixelFeatures(0.95).fit(images), PixelFeatures(0.95, max_components=4).fit(images)
        assert bounded.n_components_ == 4
        assert bounded.energy_ == pytest.approx(whole.energies_[:4].sum(), rel=1e-3)
        assert bounded.energy_ < 0.95
        np.testing.assert_allclose(bounded.transform(images), whole.transform(images)[:, :4], atol=0.05)

    def test_repeatable_and_signed(self, monkeypatch):
        monkeypatch.setattr(module, "_EXACT_UP_TO", 0)
        images = pictures(60)
        one, two = PixelFeatures(random_state=3).fit(images), PixelFeatures(random_state=3).fit(images)
        np.testing.assert_array_equal(one.components_, two.components_)
        peaks = np.abs(one.components_).argmax(axis=1)
        assert (one.components_[np.arange(len(peaks)), peaks] > 0).all()

    def test_memory_mapped_images(self, tmp_path):
        images = pictures(50)
        np.save(tmp_path / "images.npy", images)
        mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
        here, there = PixelFeatures().fit(images), PixelFeatures().fit(mapped)
        np.testing.assert_array_equal(here.transform(images), there.transform(mapped))

    def test_duplicates_do_not_invent_energy(self, monkeypatch):
        monkeypatch.setattr(module, "_EXACT_UP_TO", 0)
        images = np.repeat(pictures(3), 30, axis=0)  # rank 2 among 90 images
        fitted = PixelFeatures(0.999).fit(images)
        assert fitted.n_components_ == 2
        assert fitted.energy_ == pytest.approx(1, abs=1e-5)

    @pytest.mark.parametrize(
        "images", [pictures(1), np.repeat(pictures(1), 20, axis=0), np.zeros((5, 4, 4, 3), np.uint8)]
    )
    def test_images_without_variation(self, images):
        with pytest.raises(DataError, match="differ"):
            PixelFeatures().fit(images)


class TestPixelFeatures:
    def test_without_compression_features_are_the_planes(self, monkeypatch):
        images = pictures(9)
        small_batches(monkeypatch, 4, images)
        fitted = PixelFeatures(energy=None).fit(images)
        np.testing.assert_array_equal(fitted.transform(images), planes(images))
        assert (fitted.n_components_, fitted.energy_) == (180, 1.0)

    def test_features_are_float32_and_rows_independent(self):
        images = pictures(30)
        fitted = PixelFeatures().fit(images)
        features = fitted.transform(images)
        assert features.dtype == np.float32
        assert features.shape == (30, fitted.n_components_)
        np.testing.assert_allclose(fitted.transform(images[7:9]), features[7:9], atol=1e-5)
        assert fitted.transform(images[:0]).shape == (0, fitted.n_components_)

    def test_pictures_come_back_up_to_brightness_and_contrast(self):
        images = pictures(40, 8, 8)
        for energy in (None, 0.999):
            fitted = PixelFeatures(energy).fit(images)
            again = fitted.inverse_images(fitted.transform(images))
            assert again.shape == images.shape
            for old, new in zip(images, again, strict=True):
                assert np.corrcoef(old.ravel(), new.ravel())[0, 1] > 0.97

    @pytest.mark.parametrize(
        ("parameters", "sentence"),
        [
            ({"energy": 0.0}, "energy"),
            ({"energy": 1.0}, "energy"),
            ({"energy": math.nan}, "energy"),
            ({"max_components": 0}, "max_components"),
        ],
    )
    def test_bad_parameters(self, parameters, sentence):
        with pytest.raises(InputError, match=sentence):
            PixelFeatures(**parameters).fit(pictures(3))

    def test_bad_input(self):
        images = pictures(10)
        with pytest.raises(InputError, match="not fitted"):
            PixelFeatures().transform(images)
        with pytest.raises(InputError, match="no images"):
            PixelFeatures().fit(images[:0])
        fitted = PixelFeatures().fit(images)
        with pytest.raises(InputError, match=r"6x5 .* 5x6"):
            fitted.transform(images.transpose(0, 2, 1, 3))
        with pytest.raises(InputError, match=f"{fitted.n_components_} columns; got 3"):
            fitted.inverse_images(np.zeros((2, 3), np.float32))

    def test_a_failed_fit_changes_nothing(self):
        fitted = PixelFeatures().fit(pictures(10))
        before = fitted.fingerprint()
        with pytest.raises(DataError):
            fitted.fit(pictures(1, seed=5))
        assert fitted.fingerprint() == before

    def test_fingerprint_tells_parameters_and_what_was_learned(self):
        prints = [PixelFeatures(), PixelFeatures(0.9), PixelFeatures(max_components=3), PixelFeatures(random_state=1)]
        prints += [PixelFeatures().fit(pictures(10)), PixelFeatures().fit(pictures(10, seed=1))]
        assert len({pipeline.fingerprint() for pipeline in prints}) == 6
        assert PixelFeatures().fit(pictures(10)).fingerprint() == prints[4].fingerprint()


class TestSaved:
    @pytest.mark.parametrize("energy", [0.8, None])
    def test_round_trip(self, tmp_path, energy):
        images = pictures(12)
        fitted = PixelFeatures(energy, max_components=5, random_state=4).fit(images)
        fitted.save(tmp_path / "pixels.npz")
        again = PixelFeatures.load(tmp_path / "pixels.npz")
        assert again.fingerprint() == fitted.fingerprint()
        np.testing.assert_array_equal(again.transform(images), fitted.transform(images))
        assert stat.S_IMODE((tmp_path / "pixels.npz").stat().st_mode) == 0o600

    def test_a_file_of_an_older_version_is_refused_and_stays(self, tmp_path):
        fitted, path = PixelFeatures(0.8).fit(pictures(12)), tmp_path / "pixels.npz"
        described = {"version": 1, "parameters": {"energy": 0.8}, "content": fitted.fingerprint()}
        np.savez(path, description=np.array(json.dumps(described)), **fitted.state())
        before = path.read_bytes()
        with pytest.raises(CorruptFileError, match=r"pixels\.npz"):
            PixelFeatures.load(path)
        assert path.read_bytes() == before

    def test_unfitted_is_not_saved(self, tmp_path):
        with pytest.raises(InputError, match="not fitted"):
            PixelFeatures().save(tmp_path / "pixels.npz")
        assert not list(tmp_path.iterdir())

    def test_every_altered_byte_is_found_or_harmless(self, tmp_path):
        path = tmp_path / "pixels.npz"
        fitted = PixelFeatures(max_components=1).fit(pictures(5, 2, 2))
        fitted.save(path)
        content, refused = path.read_bytes(), 0
        for position in range(0, len(content), 11):
            path.write_bytes(content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :])
            try:
                assert PixelFeatures.load(path).fingerprint() == fitted.fingerprint()
            except CorruptFileError:
                refused += 1
        assert refused > len(content) / 22

    def test_truncated_empty_foreign_and_missing_files(self, tmp_path):
        path = tmp_path / "pixels.npz"
        PixelFeatures().fit(pictures(8)).save(path)
        content = path.read_bytes()
        np.savez(tmp_path / "other.npz", description=np.array("[]"))
        files.write_arrays(tmp_path / "foreign.npz", module._KIND, {"energy": 0.5}, {"mean_": np.zeros(3)})
        foreign = [(tmp_path / name).read_bytes() for name in ("other.npz", "foreign.npz")]
        for bad in (b"", b"hello", content[:-1], content[: len(content) // 2], content[1:], *foreign):
            path.write_bytes(bad)
            with pytest.raises(CorruptFileError):
                PixelFeatures.load(path)
        with pytest.raises(StorageError, match="does not exist"):
            PixelFeatures.load(tmp_path / "none.npz")

    def test_another_version_is_refused(self, tmp_path, monkeypatch):
        PixelFeatures().fit(pictures(8)).save(tmp_path / "pixels.npz")
        monkeypatch.setattr(module, "_KIND", "blindsight/pixel-features.0")
        with pytest.raises(CorruptFileError, match="pixel-features"):
            PixelFeatures.load(tmp_path / "pixels.npz")

    def test_a_path_may_begin_at_home(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        PixelFeatures().fit(pictures(8)).save("~/pixels.npz")
        assert (
            PixelFeatures.load("~/pixels.npz").fingerprint()
            == PixelFeatures.load(tmp_path / "pixels.npz").fingerprint()
        )
