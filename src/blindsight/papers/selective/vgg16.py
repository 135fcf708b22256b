"""VGG16 as a frozen backbone, the model that PPDL fine-tunes (Bu 2019, section 5 and Table 2).

Configuration D of Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition" (ICLR
2015): 13 convolutions of 3 x 3, five poolings, three dense layers. The paper freezes all of it but the last layer; so
`VGG16Features` gives the 4096 activations before that layer, and `learn.modules.head` is what learns from them.

No weights come with Blindsight. The file is a torch state dict under the usual names (`features.0.weight` to
`classifier.6.bias`, where the last layer may be missing or of any width), made for RGB photos as fractions of white,
less the mean of ImageNet's colours and divided by their deviation. It is read without unpickling any code.
"""

import pickle
from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import Float32, check_images
from blindsight.data.embedding import resized
from blindsight.errors import CorruptFileError, InputError
from blindsight.extras import Module, load_torch, to_batch
from blindsight.files import sha256_of, storage_errors

_VERSION = 1  # raised whenever the same images would give other features
_VGG_WIDTHS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))  # pooling after each group
_HIDDEN = 4096
_POOLED = 7  # pixels a side before the dense layers
_SIZE = 224
_MEAN, _SCALE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def vgg16(classes: int = 1000) -> Module:
    """Return the network, with torch's usual first weights, under the names that weights files use."""
    nn = load_torch().nn
    layers, before = [], 3
    for group in _VGG_WIDTHS:
        for width in group:
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
            before = width
        layers.append(nn.MaxPool2d(2))
    dense = [nn.Linear(before * _POOLED**2, _HIDDEN), nn.ReLU(), nn.Dropout(), nn.Linear(_HIDDEN, _HIDDEN), nn.ReLU()]
    return nn.Sequential(
        OrderedDict(
            features=nn.Sequential(*layers),
            avgpool=nn.AdaptiveAvgPool2d(_POOLED),
            flatten=nn.Flatten(),
            classifier=nn.Sequential(*dense, nn.Dropout(), nn.Linear(_HIDDEN, classes)),
        )
    )


class VGG16Features:
    """VGG16 without its last layer, a pipeline for `blindsight.data.features.extract`: float32 (n, 4096).

    Photos are stretched to 224 x 224 pixels. `batch` of them go through the network at once.
    """

    def __init__(self, weights: Path | str, *, batch: int = 8, device: str = "cpu") -> None:
        if batch < 1:
            raise InputError(f"batch must be at least 1; got {batch}.")
        self.weights = Path(weights)
        self.batch = batch
        self.device = device

    def __repr__(self) -> str:
        return f"VGG16Features({str(self.weights)!r}, batch={self.batch}, device={self.device!r})"

    def fit(self, images: NDArray[np.uint8]) -> Self:
        """Check the images and the weights; there is nothing to learn."""
        check_images(images)
        self._network  # noqa: B018 - loads it, or says what is wrong
        return self

    def transform(self, images: NDArray[np.uint8]) -> Float32:
        check_images(images)
        torch, network = load_torch(), self._network
        mean, scale = (torch.tensor(each, device=self.device)[:, None, None] for each in (_MEAN, _SCALE))
        features = np.empty((len(images), _HIDDEN), dtype=np.float32)
        with torch.inference_mode():
            for start in range(0, len(images), self.batch):
                span = slice(start, start + self.batch)
                pixels = to_batch(resized(images[span], _SIZE), self.device)
                features[span] = network((pixels - mean) / scale).cpu().numpy()
        return features

    def fingerprint(self) -> str:
        return f"VGG16Features version={_VERSION} size={_SIZE} weights={sha256_of(self.weights)}"

    @cached_property
    def _network(self) -> Module:
        torch = load_torch()
        with torch.device("meta"):  # no first weights are drawn: torch's global generator stays untouched
            network = vgg16()
        del network.classifier[-1]
        network.load_state_dict(_read(self.weights, network.state_dict()), strict=True, assign=True)
        return network.eval().requires_grad_(False).to(self.device)


def _read(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the weights in the file, if they are those of a VGG16 without its last layer."""
    torch = load_torch()
    with storage_errors("read", path, "Pass the path of a file with the weights of VGG16."), path.open("rb") as stream:
        try:
            found = torch.load(stream, map_location="cpu", weights_only=True)
        except (RuntimeError, OSError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
            raise CorruptFileError(f"{path} cannot be read as a file of torch weights: save a state_dict.") from error
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise InputError(f"{path} holds no weights by name. Save the state_dict of a VGG16.")
    for name, parameter in expected.items():
        shape = tuple(found[name].shape) if name in found else None
        if shape != tuple(parameter.shape):
            raise InputError(
                f"{path} is not of a VGG16: {name} must have shape {tuple(parameter.shape)} and "
                f"{'is missing' if shape is None else f'has {shape}'}."
            )
    weights = {name: found[name].float() for name in expected}
    if not all(torch.isfinite(value).all() for value in weights.values()):
        raise InputError(f"{path} holds weights that are NaN or infinite.")
    return weights
