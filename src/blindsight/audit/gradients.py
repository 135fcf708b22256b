"""Gradients behind uploads: where the linear layers of a network stand, and what a first step of Adam or RMSProp hides.

A plain step of SGD is a multiple of the gradient. A first step of Adam or RMSProp divides every entry g by its own
size: it sends rate g / (a |g| + e), where e = 1e-8 and a = 1 (Adam) or .1 (RMSProp). In that step u the entry stands as
e u / (rate - a |u|), as far as float32 has not rounded u away beside the weight that it is added to. So at ordinary
weights most of a gradient of RMSProp can be read, and of Adam the rows of units with little of it; a server that
chooses the weights makes all of it little (`network_audit.chosen_weights`). Of several local steps the first can be
read in units that it switched off: RMSProp leaves them there, and how far Adam's momentum moves them is known. Later
uploads divide by what the optimiser remembers, and are not undone.
"""

from math import prod, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.recovery import Vector
from blindsight.learn.modules import ParameterLayout

_EPSILON = 1e-8  # torch's, of Adam and RMSProp
_ROUNDING = 2.0**-22  # of a step: a few roundings of float32 inside of it


def undo_division(
    update: Vector, optimiser: str, learning_rate: float, steps: int = 1, *, weights: ArrayLike = 0.0
) -> Vector:
    """Return minus the gradient behind a first step of Adam or RMSProp from these weights; of SGD the step itself.

    Of several `steps` it is that of the first, wherever the others had none.

    >>> gradient = np.array([1e-9, -3e-9, 2e-9])
    >>> step = 1e-3 * gradient / (np.abs(gradient) + 1e-8)
    >>> np.round(undo_division(step, "adam", 1e-3) / 1e-9, 6).tolist()
    [1.0, -3.0, 2.0]
    """
    if optimiser not in ("adam", "rmsprop"):
        return update
    parts = [(1.0, 0.1)]  # torch's sqrt(1 - alpha)
    if optimiser == "adam":  # by its momentum it goes on
        parts = [
            (0.1 * 0.9**t / (1 - 0.9 ** (t + 1)), sqrt(0.001 * 0.999**t / (1 - 0.999 ** (t + 1)))) for t in range(steps)
        ]
    longest = learning_rate * sum(above / below for above, below in parts)
    slope = learning_rate * sum(above / below**2 for above, below in parts) / longest
    before = np.asarray(weights, dtype=np.float32)
    after = before + update.astype(np.float32)
    step = after.astype(np.float64) - before
    rounding = sqrt(steps) * np.spacing(np.abs(after)) / 2 + _ROUNDING * longest
    undone: Vector = _EPSILON * slope * step / np.maximum(longest - np.abs(step), rounding)
    return undone


def linear_layers(layout: ParameterLayout) -> tuple[str, ...]:
    """Return the names of the layers with a matrix of weights and a bias, in order."""
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    return tuple(
        name.removesuffix("weight").removesuffix(".")
        for name, shape in shapes.items()
        if name.endswith("weight") and len(shape) == 2 and shapes.get(name.removesuffix("weight") + "bias") == shape[:1]
    )


def parameter_places(layout: ParameterLayout, parameter: str) -> NDArray[np.int64]:
    """Return where a parameter stands in the vector, in its shape."""
    index = layout.names.index(parameter)
    start = sum(prod(shape) for shape in layout.shapes[:index])
    shape = layout.shapes[index]
    return np.arange(start, start + prod(shape)).reshape(shape)
