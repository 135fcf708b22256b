"""A learned perceptron as plain arrays: it hashes with numpy alone, whatever library trained it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, UnknownNameError
from blindsight.search.codes import blocks
from blindsight.search.function import Floats, HashFunction

Activation = Literal["relu", "tanh"]
"""What stands between the layers: max(0, x) or tanh(x)."""

_ROWS = 4096  # rows whose hidden values are in memory at once


@dataclass(frozen=True, eq=False)
class LayeredHash(HashFunction):
    """sign of a multilayer perceptron: (x - mean) / scale, then x @ weight + bias layer by layer.

    `weights[k]` is (inputs, outputs) of layer k; the last layer gives one score per bit and has no activation.
    """

    mean: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activation: Activation = "relu"
    name: ClassVar[str] = "layered"

    def __post_init__(self) -> None:
        if self.activation not in get_args(Activation):
            raise UnknownNameError("activation", self.activation, get_args(Activation))
        for part in (self.mean, self.scale, *self.weights, *self.biases):
            if part.dtype != np.float32 or not part.size or not np.isfinite(part).all():
                raise InputError("a layered hash function is made of finite float32 numbers.")
        if not self.weights or len(self.weights) != len(self.biases) or not (self.scale > 0).all():
            raise InputError("a layered hash function needs layers of weights and biases and a positive scale.")
        width = self.mean.shape
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight.ndim != 2 or weight.shape[:1] != width or weight.shape[1:] != bias.shape:
                raise InputError(f"weights {weight.shape} and bias {bias.shape} do not fit {width} values.")
            width = bias.shape
        if self.scale.shape != self.mean.shape:
            raise InputError(f"mean {self.mean.shape} and scale {self.scale.shape} do not fit each other.")

    @property
    def bits(self) -> int:
        return len(self.biases[-1])

    @property
    def dimension(self) -> int:
        return len(self.mean)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the standardiser, every layer and the name of the activation."""
        layers = {f"weight{k}": weight for k, weight in enumerate(self.weights)}
        layers |= {f"bias{k}": bias for k, bias in enumerate(self.biases)}
        return {"mean": self.mean, "scale": self.scale, "activation": np.array(self.activation), **layers}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        depth = sum(name.startswith("weight") for name in arrays)
        weights = tuple(arrays[f"weight{k}"] for k in range(depth))
        biases = tuple(arrays[f"bias{k}"] for k in range(depth))
        activation: Any = str(arrays["activation"])
        return cls(arrays["mean"], arrays["scale"], weights, biases, activation)

    def _scores(self, X: Floats) -> Floats:
        scores = np.empty((len(X), self.bits), dtype=np.float32)
        for span in blocks(len(X), _ROWS):
            values = (X[span] - self.mean) / self.scale
            for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                values = values @ weight + bias
                np.tanh(values, out=values) if self.activation == "tanh" else np.maximum(values, 0, out=values)
            scores[span] = values @ self.weights[-1] + self.biases[-1]
        return scores
