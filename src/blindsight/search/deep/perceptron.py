"""The network that is trained on features: standardised, a few layers with ReLU between, frozen to plain arrays."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from blindsight.extras import Module, load_torch
from blindsight.search.function import Floats
from blindsight.search.layers import LayeredHash

_FLOOR = 0.1  # of the features' root mean variance: a feature that hardly varies is noise, not to be blown up


def standardiser(X: Floats) -> tuple[Floats, Floats]:
    """Return mean and scale of every feature; the scale is never 0, even of constant features."""
    variance = X.var(axis=0, dtype=np.float64)
    typical = variance.mean() or 1.0
    scale = np.sqrt(variance + _FLOOR**2 * typical)
    return X.mean(axis=0, dtype=np.float64).astype(np.float32), scale.astype(np.float32)


def perceptron(widths: Sequence[int], device: str = "cpu") -> Module:
    """Return a torch module of linear layers between these widths, with ReLU between them."""
    nn = load_torch().nn
    layers = [part for size in pairwise(widths) for part in (nn.Linear(*size), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).to(device)


def frozen(layers: Module, mean: Floats, scale: Floats) -> LayeredHash:
    """Return a trained perceptron as plain arrays."""
    linear = [layer for layer in layers if hasattr(layer, "weight")]
    weights = tuple(np.ascontiguousarray(layer.weight.detach().cpu().numpy().T) for layer in linear)
    biases = tuple(layer.bias.detach().cpu().numpy().copy() for layer in linear)
    return LayeredHash(mean, scale, weights, biases, "relu")
