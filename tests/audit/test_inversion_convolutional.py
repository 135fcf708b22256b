"""The convolutional decoder: better than the linear one it starts from, repeatable, and of any size."""

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from blindsight.audit.inversion.convolutional import ConvolutionalInversion  # noqa: E402
from blindsight.audit.inversion.ridge import RidgeInversion  # noqa: E402
from blindsight.audit.inversion.similarity import ssim  # noqa: E402
from blindsight.errors import InputError, MissingExtraError  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def discs(count, seed=0, height=32, width=28):
    """Bright discs with hard edges, and where they are: the mean of such discs is a blur, none of them is."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, size=(count, 2)).astype(np.float32)
    row, column = np.mgrid[0:height, 0:width]
    centre = np.array([height, width]) / 2 + 5 * features
    distance = np.hypot(row - centre[:, :1, None], column - centre[:, 1:, None])
    images = np.where(distance < 7, 210, 40)[..., None] + rng.integers(0, 20, size=(count, 1, 1, 3))
    return features, images.astype(np.uint8)


def test_it_draws_better_pictures_than_the_linear_decoder_of_rows_it_never_saw():
    features, images = discs(150)
    others, truth = discs(60, seed=1)
    linear = ssim(truth, RidgeInversion().fit(features, images).decode(others))
    decoder = ConvolutionalInversion(steps=100, batch=16, channels=24, learning_rate=2e-3).fit(features, images)
    assert decoder.decode(others).shape == truth.shape
    assert ssim(truth, decoder.decode(others)).mean() > linear.mean() + 0.05


@pytest.mark.parametrize("size", [(13, 18), (70, 66)])  # no whole number of cells; larger than the pieces learned from
def test_pictures_of_any_size_come_back_in_that_size(size):
    features, images = discs(8, height=size[0], width=size[1])
    decoder = ConvolutionalInversion(steps=2, batch=4, channels=4).fit(features, images, np.arange(8) // 2)
    assert decoder.decode(features[:3]).shape == (3, *size, 3)


def test_the_same_seed_gives_the_same_pictures_and_leaves_the_global_generator_alone():
    features, images = discs(20)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    decoded = [
        ConvolutionalInversion(steps=3, batch=8, channels=4, learning_rate=0.02, random_state=seed)
        .fit(features, images)
        .decode(features)
        for seed in (0, 0, 1)
    ]
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(decoded[0], decoded[1])
    assert not np.array_equal(decoded[0], decoded[2])


def test_bad_settings_are_refused_in_one_sentence():
    features, images = discs(6)
    with pytest.raises(InputError, match="at least 1"):
        ConvolutionalInversion(steps=0).fit(features, images)
    with pytest.raises(InputError, match="diverged"):
        ConvolutionalInversion(steps=20, channels=4, learning_rate=1e30).fit(features, images)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"blindsight-vision\[deep\]"):
        ConvolutionalInversion().fit(*discs(6))
