"""Any torch module as one vector of float32, the form in which members of a run share it, and two modules of ours.

*What the vector holds.* All parameters that require a gradient, in the order and under the names of
`module.named_parameters()`. A parameter that two layers share (tied weights) counts once, under its first name. Frozen
parameters and all buffers, the running statistics of BatchNorm among them, are not part of it: they stay as they are
in the first model, which everybody has.

*Two modules*, after PPDL (Bu 2019, section 5). `small_cnn` is the one from scratch: the paper draws its own
without sizes, so ours has three convolutions of 32, 64 and 128 channels, each followed by pooling, GroupNorm (it knows
single records only, which BatchNorm does not) and ReLU, and one linear layer. `head` is what is learned above a frozen
backbone: as its weights never change, the features of a picture are computed once, by `blindsight.data.Embedding`
(EfficientNet-lite0), and the head learns from features.

Both put their inputs on one scale themselves, by constants that are buffers. Bytes (n, height, width, 3) reach a module
as fractions (n, 3, height, width), see `blindsight.extras.to_batch`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.features import Standardiser
from blindsight.errors import InputError, UnknownNameError
from blindsight.extras import Module, Tensor, load_torch, seeded
from blindsight.files import as_path
from blindsight.rng import science

Vector = NDArray[np.float32]
"""All trainable parameters of a module, or a change of them, in one row."""


@dataclass(frozen=True)
class ParameterLayout:
    """Names and shapes of the trainable parameters, in the order in which they form one vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.names:
            raise InputError("this module has no trainable parameters, so there is nothing to share.")
        if len(self.names) != len(self.shapes) or len(set(self.names)) != len(self.names):
            raise InputError("a layout names every parameter once and gives each a shape.")

    @classmethod
    def of(cls, parameters: Iterable[tuple[str, tuple[int, ...]]]) -> "ParameterLayout":
        pairs = [(name, tuple(int(side) for side in shape)) for name, shape in parameters]
        return cls(tuple(name for name, _ in pairs), tuple(shape for _, shape in pairs))

    @cached_property
    def dimension(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    @cached_property
    def digest(self) -> str:
        """A hash that is equal exactly for equal names, shapes and order."""
        return hashlib.sha256(json.dumps([self.names, self.shapes]).encode()).hexdigest()


_WIDTHS = (32, 64, 128)  # channels of the three convolutions
_SHRINKS = 2 ** len(_WIDTHS)  # times, by the poolings
_PER_GROUP = 8  # channels that GroupNorm looks at together
_MIDDLE, _SPREAD = 0.5, 0.25  # of the brightness of photos, as a fraction of white

OPTIMISERS = {"sgd": ("SGD", 0.05), "rmsprop": ("RMSprop", 1e-3), "adam": ("Adam", 1e-3)}
"""By name, torch's class and a learning rate that often does."""


def small_cnn(classes: int, side: int | tuple[int, int], channels: int = 3, *, random_state: int = 0) -> Module:
    """Return a convolutional network with fresh weights for photos of `side` x `side` or (height, width) pixels."""
    _check_classes(classes)
    height, width = side if isinstance(side, tuple) else (side, side)
    if min(height, width) < _SHRINKS or channels < 1:
        raise InputError(
            f"photos must have at least 1 channel and {_SHRINKS} pixels a side; got {channels} and {height} x {width}."
        )
    nn = load_torch().nn
    with seeded(science(random_state), "cpu"):
        layers = [_standardise(np.full((channels, 1, 1), _MIDDLE), np.full((channels, 1, 1), _SPREAD))]
        for before, after in pairwise((channels, *_WIDTHS)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.MaxPool2d(2)]
            layers += [nn.GroupNorm(after // _PER_GROUP, after), nn.ReLU()]
        pixels = (height // _SHRINKS) * (width // _SHRINKS)
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(_WIDTHS[-1] * pixels, classes))


def head(
    features: int,
    classes: int,
    hidden: int | None = None,
    *,
    standardiser: Standardiser | None = None,
    random_state: int = 0,
) -> Module:
    """Return a classifier of features with fresh weights: linear, or with one layer of `hidden` units before.

    `standardiser`, fitted on *public* features, puts all features on one scale first; its numbers become buffers.
    """
    _check_classes(classes)
    if min(features, hidden or 1) < 1 or hidden == 0:
        raise InputError(f"a head needs at least 1 feature and 1 hidden unit; got {features} and {hidden}.")
    if standardiser is not None and standardiser.mean.shape != (features,):
        raise InputError(f"the standardiser is of {len(standardiser.mean)} features; the head takes {features}.")
    nn = load_torch().nn
    with seeded(science(random_state), "cpu"):
        layers = [] if standardiser is None else [_standardise(standardiser.mean, standardiser.scale)]
        if hidden is not None:
            layers += [nn.Linear(features, hidden), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(hidden or features, classes))


def module_maker(place: str) -> Callable[[int, int], Module]:
    """Return what makes the module that "file.py:Name" names, given the number of classes and a seed.

    The name is that of a class or function, which is called with the number of classes; without, if it takes nothing.
    The file is run here, so that what is wrong with it is said before any picture is read.
    """
    path, colon, name = place.rpartition(":")
    file = as_path(path if colon else place)
    if not colon or not file.is_file():
        missing = f"there is no file {file}" if colon else f"got {place!r}, without a name"
        raise InputError(f"a module of your own is named as in net.py:Net; {missing}.")
    described = spec_from_file_location(file.stem, file)
    if described is None or described.loader is None:
        raise InputError(f"a module of your own is named as in net.py:Net; {file} is no file of Python code.")
    code = module_from_spec(described)
    try:
        described.loader.exec_module(code)
    except SyntaxError as error:
        raise InputError(f"{file} is no Python code: line {error.lineno}: {error.msg}.") from error
    except Exception as error:  # whatever the user's file raises
        raise InputError(f"{file} cannot be run: {_reason(error)}") from error
    make = getattr(code, name, None)
    if not callable(make):
        raise UnknownNameError(f"class or function in {file}", name, [one for one in vars(code) if one[0] != "_"])

    def made(classes: int, random_state: int = 0) -> Module:
        with seeded(science(random_state), "cpu"):
            try:
                module = make(classes) if signature(make).parameters else make()
            except Exception as error:  # whatever the user's class raises
                raise InputError(
                    f"{name} of {file} takes the number of classes, {classes}, or nothing; called so it fails: "
                    f"{_reason(error)}"
                ) from error
        trainable(module)
        return module

    return made


def module_from(place: str, classes: int, *, random_state: int = 0) -> Module:
    """Return the module of "file.py:Name" for a number of classes; its first weights are those of the seed."""
    return module_maker(place)(classes, random_state)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}."


def trainable(module: Module) -> dict[str, Tensor]:
    """Return the parameters that are learned, by name; a module of which none is, or not in float32, is refused."""
    torch = load_torch()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"a network must be a torch.nn.Module; got {type(module).__name__}.")
    found = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    if not found:
        raise InputError("this model has no trainable parameters, so there is nothing to share.")
    for name, parameter in found.items():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise InputError(f"the shape of {name!r} is not known yet. Run one batch through the module first.")
        if parameter.dtype != torch.float32:
            raise InputError(f"parameters are shared as float32; {name!r} is {parameter.dtype}. Call module.float().")
    return found


def layout_of(module: Module) -> ParameterLayout:
    return ParameterLayout.of((name, tuple(parameter.shape)) for name, parameter in trainable(module).items())


class FlatParameters:
    """The parameters of a module that are learned, read and written as one vector.

    Everything is looked up once and kept, so that reading or writing costs a copy for each parameter and little more.
    `named` are the parameters as plain tensors that share the module's memory.
    """

    def __init__(self, module: Module) -> None:
        self.tensors = trainable(module)
        self.named = {name: tensor.detach() for name, tensor in self.tensors.items()}
        self.dimension = sum(tensor.numel() for tensor in self.named.values())
        self._flat = np.empty(self.dimension, dtype=np.float32)
        self._parts = self.split(load_torch().from_numpy(self._flat))

    def split(self, flat: Tensor) -> list[Tensor]:
        """Cut one row of numbers into views, each of a parameter's shape."""
        parts = flat.split([tensor.numel() for tensor in self.named.values()])
        return [part.view(tensor.shape) for part, tensor in zip(parts, self.named.values(), strict=True)]

    def read(self) -> Vector:
        load_torch()._foreach_copy_(self._parts, [*self.named.values()])
        return self._flat.copy()

    def write(self, vector: ArrayLike) -> None:
        """Set the parameters; a vector that does not fit is refused and changes nothing."""
        values = np.asarray(vector)
        if values.shape != (self.dimension,):
            raise InputError(
                f"this network has {self.dimension} trainable parameters; got {values.shape}. "
                "Server and participants must run the same version of the network."
            )
        self._flat[:] = values
        if not np.isfinite(self._flat).all():
            raise InputError("parameters must be finite numbers; got NaN or infinite ones.")
        load_torch()._foreach_copy_([*self.named.values()], self._parts)


def rate_of(optimiser: str, learning_rate: float | None = None) -> float:
    """Return the learning rate, or one that often does with this optimiser."""
    if optimiser not in OPTIMISERS:
        raise UnknownNameError("optimiser", optimiser, OPTIMISERS)
    rate = OPTIMISERS[optimiser][1] if learning_rate is None else learning_rate
    if not 0 < rate < np.inf:
        raise InputError(f"learning_rate must be positive and finite; got {rate}.")
    return rate


def new_optimiser(name: str, module: Module, learning_rate: float | None = None) -> Any:
    rate = rate_of(name, learning_rate)
    return getattr(load_torch().optim, OPTIMISERS[name][0])(trainable(module).values(), lr=rate)


def _check_classes(classes: int) -> None:
    if classes < 2:
        raise InputError(f"a classifier tells at least two classes apart; got {classes}.")


def _standardise(mean: Any, scale: Any) -> Module:
    return _standardise_class()(mean, scale)


@cache
def _standardise_class() -> Any:
    torch = load_torch()

    class Standardise(torch.nn.Module):  # type: ignore[misc, name-defined]
        """(x - mean) / scale."""

        def __init__(self, mean: Any, scale: Any) -> None:
            super().__init__()
            self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
            self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32))

        def forward(self, inputs: Tensor) -> Tensor:
            return (inputs - self.mean) / self.scale

    return Standardise
