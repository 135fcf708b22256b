"""A picture from a network's first gradient: for a batch of one, the input of a linear layer exactly.

    Claim. A linear layer computes a = W x + b, so its gradients for one sample are dW = g x^T and db = g with the same
    vector g: every row of dW is x times its entry of db. Whoever sees both divides, whatever the rest of the network is
    and whatever the learning rate was. []

A plain step of SGD sends a multiple of [dW | db] = g [x | 1]^T, and so do several steps on one picture if the layer is
the network's first (x is the picture itself then; behind convolutions x is what they make of it). The matrix has rank
one, so a *part* of it is enough: an upload of the largest or of random entries (Shokri & Shmatikov 2015, theta_u) shows
x wherever the uploaded entries hang together by rows and columns, and its length if one of them is a bias.

For several pictures the rows are mixtures. A unit that only one of them switched on (ReLU) still shows that one:
`row_ratios` returns all rows. The rest is a matter of optimisation (`matching`).

A layer's first moments under Adam or RMSProp are divided entry by entry, which destroys the ratio: this attack is for
SGD, with or without momentum.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.leakage.recovery import Vector
from blindsight.errors import InputError
from blindsight.selective.codec import ParameterLayout, SparseUpdate

Update = ArrayLike | SparseUpdate
"""A change of all parameters in one row, whole or in part."""


@dataclass(frozen=True, eq=False)
class LayerInput:
    """What a linear layer was shown: `sample`, zero where it is not `known`.

    `scaled` tells whether its length is right too, and not only its direction. `explained` is the share of the layer's
    uploaded squares that one sample accounts for: 1 for a batch of one, less for a mixture.
    """

    layer: str
    sample: Vector
    known: NDArray[np.bool_]
    scaled: bool
    explained: float

    def __repr__(self) -> str:
        return f"<LayerInput of {self.layer!r}: {int(self.known.sum())} of {self.known.size} features, hidden>"


def recover_layer_input(update: Update, layout: ParameterLayout, layer: str | None = None) -> LayerInput:
    """Return the input of a linear layer (by default the first) from an upload of a batch of one."""
    name, gradients, seen = _layer_gradients(update, layout, layer)
    if not gradients.any():
        raise InputError(f"the upload holds nothing of layer {name!r}. Choose another layer, or a larger upload.")
    starts = [True, False] if gradients[:, -1].any() else [False]
    return max((_from_start(name, gradients, seen, scaled) for scaled in starts), key=lambda found: found.explained)


def _from_start(name: str, gradients: NDArray[np.float64], seen: NDArray[np.bool_], scaled: bool) -> LayerInput:
    """Return what hangs together with the biases (`scaled`) or else with the row that has most squares."""
    slopes, inputs, known = _rank_one(gradients, seen, scaled)
    rest = np.where(seen, gradients - np.outer(slopes, inputs), 0.0)
    explained = 1 - float(np.sum(rest**2) / np.sum(gradients**2))
    return LayerInput(name, inputs[:-1], known[:-1], scaled, explained)


def row_ratios(update: Update, layout: ParameterLayout, layer: str | None = None) -> NDArray[np.float64]:
    """Return dW_r / db_r for every unit r whose bias moved: samples, or mixtures of those that switched the unit on."""
    _, gradients, _ = _layer_gradients(update, layout, layer)
    moved = gradients[gradients[:, -1] != 0]
    ratios: NDArray[np.float64] = moved[:, :-1] / moved[:, -1:]
    return ratios


def linear_layers(layout: ParameterLayout) -> tuple[str, ...]:
    """Return the names of the layers with a matrix of weights and a bias, in order."""
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    return tuple(
        name.removesuffix("weight").removesuffix(".")
        for name, shape in shapes.items()
        if name.endswith("weight") and len(shape) == 2 and shapes.get(name.removesuffix("weight") + "bias") == shape[:1]
    )


def _layer_gradients(
    update: Update, layout: ParameterLayout, layer: str | None
) -> tuple[str, NDArray[np.float64], NDArray[np.bool_]]:
    """Return a layer's name, its [dW | db], zero where nothing was uploaded, and where something was."""
    layers = linear_layers(layout)
    name = layer if layer is not None else next(iter(layers), None)
    if name is None or name not in layers:
        raise InputError(f"no linear layer with a bias is called {name!r}; there are: {', '.join(layers) or 'none'}.")
    if isinstance(update, SparseUpdate):
        values, seen = update.dense().astype(np.float64), np.zeros(update.dimension, dtype=np.bool_)
        seen[update.indices] = True
    else:
        values = np.asarray(update, dtype=np.float64)
        seen = np.ones(values.shape, dtype=np.bool_)
    if values.shape != (layout.dimension,):
        raise InputError(f"an update of this network has {layout.dimension} numbers; got shape {values.shape}.")
    prefix = f"{name}." if name else ""
    places = [_places(layout, prefix + kind) for kind in ("weight", "bias")]
    joined = np.hstack([places[0], places[1][:, None]])
    return name, values[joined], seen[joined]


def _places(layout: ParameterLayout, parameter: str) -> NDArray[np.int64]:
    """Return where a parameter stands in the vector, in its shape."""
    index = layout.names.index(parameter)
    start = sum(prod(shape) for shape in layout.shapes[:index])
    shape = layout.shapes[index]
    return np.arange(start, start + prod(shape)).reshape(shape)


def _rank_one(
    matrix: NDArray[np.float64], seen: NDArray[np.bool_], scaled: bool
) -> tuple[Vector, Vector, NDArray[np.bool_]]:
    """Return g, x and where x is known, such that g x^T is the seen part of the matrix (in least squares).

    It starts from the column of biases, where x is 1 (or from the row with most squares), and alternates: a row is
    known as soon as one of its seen columns is, and the other way round.
    """
    inputs, known = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], dtype=np.bool_)
    if scaled:
        inputs[-1], known[-1] = 1.0, True
    else:
        first = int(np.argmax(np.sum(matrix**2, axis=1)))
        inputs, known = matrix[first].copy(), seen[first].copy()
    while True:
        slopes = _fit(matrix, seen, inputs)
        inputs = _fit(matrix.T, seen.T, slopes)
        if scaled:
            inputs, slopes = inputs / inputs[-1], slopes * inputs[-1]
        reached = (seen & (slopes != 0)[:, None]).any(axis=0)
        if not (reached & ~known).any():
            return slopes, inputs, known | reached
        known |= reached


def _fit(matrix: NDArray[np.float64], seen: NDArray[np.bool_], other: Vector) -> Vector:
    """Return the factor that goes with the other one, row by row in least squares; 0 where nothing tells it."""
    weight = seen @ other**2
    fitted: Vector = np.divide(matrix @ other, weight, out=np.zeros(len(matrix)), where=weight > 0)
    return fitted
