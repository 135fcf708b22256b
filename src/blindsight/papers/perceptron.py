"""Perceptrons on standardised features, which the networks of two documents train, as torch modules and as arrays."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from blindsight.extras import Module, load_torch

_FLAT = 0.1  # of the typical deviation: a feature that hardly varies is noise, not to be blown up


def perceptron(widths: Sequence[int], device: str = "cpu") -> Module:
    """Return linear layers of these widths with ReLU between them."""
    nn = load_torch().nn
    layers = [part for size in pairwise(widths) for part in (nn.Linear(*size), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).to(device)


def plain_layers(module: Module) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
    """Return the weights (inputs, outputs) and the biases of a perceptron's layers."""
    linear = [layer for layer in module if hasattr(layer, "weight")]
    weights = [np.ascontiguousarray(layer.weight.detach().cpu().numpy().T) for layer in linear]
    return weights, [layer.bias.detach().cpu().numpy().copy() for layer in linear]


def mean_and_scale(X: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return mean and scale of every feature; the scale is never 0, even of constant features."""
    variance = X.var(axis=0, dtype=np.float64)
    scale = np.sqrt(variance + _FLAT**2 * (variance.mean() or 1.0))
    return X.mean(axis=0, dtype=np.float64).astype(np.float32), scale.astype(np.float32)
