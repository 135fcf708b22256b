"""What the metrics accept: labels that are labels, scores that are numbers, arrays that speak of the same rows."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError

Labels = NDArray[Any]
"""One-dimensional labels: whole numbers, booleans or strings."""


def label_pair(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[Labels, Labels]:
    """Return both as label arrays of one length, or say what is wrong with them."""
    truth, guess = _labels(y_true, "y_true", 1), _labels(y_pred, "y_pred", 1)
    same_shape(truth, "y_true", guess, "y_pred")
    if (truth.dtype.kind == "U") != (guess.dtype.kind == "U"):
        raise InputError("y_true and y_pred must be both names or both numbers; got one of each.")
    return truth, guess


def binary_pair(
    y_true: ArrayLike, y_pred: ArrayLike, dimensions: int = 1
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return both as booleans of one shape; only 0 and 1 (or False and True) are accepted."""
    truth, guess = binary(y_true, "y_true", dimensions), binary(y_pred, "y_pred", dimensions)
    same_shape(truth, "y_true", guess, "y_pred")
    return truth, guess


def binary(values: ArrayLike, name: str, dimensions: int) -> NDArray[np.bool_]:
    """Return 0/1 labels as booleans."""
    array = _labels(values, name, dimensions)
    strange = array if array.dtype.kind == "U" else array[(array != 0) & (array != 1)]
    if strange.size:
        got = repr(strange.flat[0].item())
        raise InputError(
            f"{name} must hold only 0 and 1; got {got}. Code yes as 1, no as 0 and drop unknown (-1) rows."
        )
    return array.astype(bool)


def finite(values: ArrayLike, name: str, dimensions: int) -> NDArray[Any]:
    """Return an array of finite numbers, at least one of them; integers stay integers."""
    array = _shaped(np.asarray(values), name, dimensions)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers; got {array.dtype}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{name} must be finite; got {array[~np.isfinite(array)][0]}. Remove or replace such values.")
    return array


def same_shape(left: NDArray[Any], left_name: str, right: NDArray[Any], right_name: str) -> None:
    """Refuse two arrays that do not speak of the same rows."""
    if left.shape != right.shape:
        raise InputError(f"{left_name} and {right_name} must have one shape; got {left.shape} and {right.shape}.")


def _labels(values: ArrayLike, name: str, dimensions: int) -> Labels:
    array = _shaped(np.asarray(values), name, dimensions)
    if array.dtype.kind not in "biufU":
        raise InputError(f"{name} must be whole numbers, booleans or strings; got {array.dtype}.")
    if array.dtype.kind == "f" and not (array == np.rint(array)).all():  # NaN differs from itself
        strange = array[array != np.rint(array)][0]
        raise InputError(f"{name} must be labels; got {strange}. Turn scores into labels with a threshold first.")
    return array


def _shaped(array: NDArray[Any], name: str, dimensions: int) -> NDArray[Any]:
    if array.ndim != dimensions:
        raise InputError(f"{name} must have {dimensions} dimension(s); got shape {array.shape}.")
    if array.size == 0:
        raise InputError(f"{name} must not be empty; got shape {array.shape}.")
    return array
