"""VGG16 as a frozen backbone: published sizes, the activations before its last layer, weights files that are none."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from blindsight.data.features import Standardiser  # noqa: E402
from blindsight.errors import CorruptFileError, InputError, StorageError  # noqa: E402
from blindsight.learn.modules import layout_of  # noqa: E402
from blindsight.papers.selective import vgg16 as vgg  # noqa: E402
from blindsight.papers.selective.vgg16 import VGG16Features, vgg16  # noqa: E402

nn = torch.nn


def test_vgg16_is_configuration_d():
    with torch.device("meta"):
        network = vgg16()
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    convolutions = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28]
    names = [f"features.{place}" for place in convolutions] + [f"classifier.{place}" for place in (0, 3, 6)]
    assert list(shapes) == [f"{name}.{part}" for name in names for part in ("weight", "bias")]
    assert shapes["features.28.weight"] == (512, 512, 3, 3)
    assert shapes["classifier.0.weight"] == (4096, 25088)
    assert layout_of(network).dimension == 138_357_544  # as published


@pytest.fixture
def little(monkeypatch, tmp_path):
    """Write the weights of a VGG16 that is narrow and works on small photos."""
    monkeypatch.setattr(vgg, "_VGG_WIDTHS", ((2, 2), (3,)))
    monkeypatch.setattr(vgg, "_HIDDEN", 5)
    monkeypatch.setattr(vgg, "_SIZE", 32)
    with torch.random.fork_rng(devices=[]):
        network = vgg16(classes=3)

    def write(change=lambda weights: weights):
        path = tmp_path / "vgg16.pth"
        torch.save(change(dict(network.state_dict())), path)
        return path

    return network.eval(), write


def photos(count=3, side=32):
    return np.random.default_rng(0).integers(0, 256, size=(count, side, side, 3), dtype=np.uint8)


def without_last(weights):
    return {name: value for name, value in weights.items() if not name.startswith("classifier.6")}


@pytest.mark.parametrize("change", [dict, without_last])
def test_features_of_vgg16_are_what_its_last_layer_gets(little, change):
    network, write = little
    seen = []
    network.classifier[-1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    mean, scale = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    pixels = (photos() / np.float32(255) - mean) / scale
    with torch.no_grad():
        network(torch.tensor(pixels.transpose(0, 3, 1, 2)))
    torch.manual_seed(3)
    state = torch.get_rng_state()
    pipeline = VGG16Features(write(change), batch=2).fit(photos())
    np.testing.assert_allclose(pipeline.transform(photos()), seen[0].numpy(), rtol=1e-4, atol=1e-6)
    assert torch.equal(torch.get_rng_state(), state)
    assert pipeline.transform(photos(2, side=20)).shape == (2, 5)


def test_other_weights_have_another_fingerprint(little):
    write = little[1]
    one = VGG16Features(write()).fingerprint()
    assert one == VGG16Features(write()).fingerprint()
    other = write(lambda weights: {name: value + 1 for name, value in weights.items()})
    assert one != VGG16Features(other).fingerprint()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda w: w | {"features.0.weight": torch.zeros(2, 3, 5, 5)}, InputError, r"\(2, 3, 5, 5\)"),
        (lambda w: {k: v for k, v in w.items() if k != "features.5.bias"}, InputError, r"features\.5\.bias"),
        (lambda w: w | {"features.0.bias": torch.full((2,), torch.nan)}, InputError, "NaN"),
        (lambda w: {"state_dict": w}, InputError, "by name"),
        (lambda w: [1, 2], InputError, "by name"),
        (lambda w: Standardiser(np.zeros(1), np.ones(1)), CorruptFileError, "torch weights"),
    ],
)
def test_a_wrong_weights_file_is_refused(little, change, error, words):
    with pytest.raises(error, match=words) as caught:
        VGG16Features(little[1](change)).transform(photos())
    assert "\n" not in str(caught.value)


def test_a_weights_file_that_is_damaged_or_missing_is_refused(little, tmp_path):
    path = little[1]()
    for content in (b"", b"hello", path.read_bytes()[:-100]):
        path.write_bytes(content)
        with pytest.raises(CorruptFileError, match="state_dict"):
            VGG16Features(path).fit(photos())
    with pytest.raises(StorageError, match=r"none\.pth"):
        VGG16Features(tmp_path / "none.pth").fit(photos())
    with pytest.raises(InputError, match="batch"):
        VGG16Features(path, batch=0)
