"""A model's arrays as one vector of numbers, and back: what is learned is floating point, the rest stays as it is.

Integers among the arrays (a counter of batches, say) are not averaged: the server's own are kept.
"""

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from blindsight.errors import InputError, MessageError

Floats = NDArray[np.float64]


def flatten(arrays: ArrayRecord) -> Floats:
    """Return all floating-point numbers of a record in the order of its arrays."""
    parts = [value.numpy() for value in arrays.values()]
    floats = [part.astype(np.float64).ravel() for part in parts if part.dtype.kind == "f"]
    vector: Floats = np.concatenate(floats) if floats else np.zeros(0)
    return vector


def unflatten(vector: Floats, like: ArrayRecord) -> ArrayRecord:
    """Return arrays of the names, shapes and types of `like` with the numbers of a vector."""
    made, start = {}, 0
    for name, value in like.items():
        part = value.numpy()
        if part.dtype.kind != "f":
            made[name] = value
            continue
        made[name] = Array(vector[start : start + part.size].reshape(part.shape).astype(part.dtype))
        start += part.size
    if start != vector.size:
        raise InputError(f"the arrays hold {start} numbers; got {vector.size}.")
    return ArrayRecord(made)


def aligned(arrays: ArrayRecord, like: ArrayRecord) -> ArrayRecord:
    """Return arrays in the order of the model that was sent; refuse others than that model has.

    Any precision will do for floating-point numbers: they are sent at the fixed point of the run anyway.
    """
    wanted, found = _layout(like), _layout(arrays)
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            raise MessageError(
                f"the array {name!r} is {_told(wanted.get(name))} in the model of the run and "
                f"{_told(found.get(name))} here. Use the same model and data of the same dimensions everywhere."
            )
    return ArrayRecord({name: arrays[name] for name in like})


def _layout(arrays: ArrayRecord) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (_numbers(value.dtype), tuple(value.shape)) for name, value in arrays.items()}


def _numbers(dtype: str) -> str:
    return "floating point" if dtype.startswith("float") else dtype


def _told(layout: tuple[str, tuple[int, ...]] | None) -> str:
    return "not there" if layout is None else f"{layout[0]} of shape {layout[1]}"
