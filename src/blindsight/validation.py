"""One validator of features: finite numbers of shape (n, d), of the width and precision that the caller can use."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import BlindsightError, InputError

Precision = Literal["single", "wide", "given"]
"""float32; float32 for halves and singles, float64 for all else; or as the numbers come."""


def check_shape(
    X: Any,
    width: int | tuple[int, ...] | None = None,
    *,
    what: str = "features",
    least: int = 1,
    flat: bool = True,
    dense: bool = False,
) -> Any:
    """Return numbers as an array (or, unless `dense`, in compressed sparse rows), without a copy or a look at them.

    `width` is the number of columns or the shape of one row; rows that are not `flat` may have any shape.
    """
    try:
        rows: Any = _compressed(X) if hasattr(X, "tocsr") and not dense else np.asarray(X)
    except ValueError:
        raise InputError(f"{what} must all have one shape; got different ones.") from None
    right = rows.ndim == 2 if flat else rows.ndim >= 2
    if not right or rows.dtype.kind not in "biuf" or rows.shape[0] < least or 0 in rows.shape[1:]:
        count = {0: "", 1: ", one row or more"}.get(least, f", {least} rows or more")
        raise InputError(
            f"{what} must be numbers of shape (n, {'d' if flat else '...'}){count}; got {rows.dtype} {rows.shape}."
        )
    if width is not None and rows.shape[1:] != (width if isinstance(width, tuple) else (width,)):
        wanted, got = (
            (f"shape {width}", rows.shape[1:]) if isinstance(width, tuple) else (f"{width} columns", rows.shape[1])
        )
        raise InputError(f"{what} must have rows of {wanted}; got {got}. Is it another feature pipeline?")
    return rows


def check_features(
    X: Any,
    width: int | tuple[int, ...] | None = None,
    *,
    what: str = "features",
    least: int = 1,
    flat: bool = True,
    precision: Precision = "single",
) -> NDArray[Any]:
    """Return finite numbers (n, d) in one block of memory and the asked precision, or say what is wrong with them.

    >>> check_features([[1, 2], [3, 4]], 2)
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    rows = check_shape(X, width, what=what, least=least, flat=flat, dense=True)
    if precision != "given":
        single = precision == "single" or rows.dtype in (np.float16, np.float32)
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
            rows = np.ascontiguousarray(rows, dtype=np.float32 if single else np.float64)
    check_finite(rows, what)
    if precision == "wide":
        _check_size(rows, what)
    return np.asarray(rows)


def _check_size(rows: NDArray[Any], what: str) -> None:
    """Refuse numbers whose squares no sum could hold."""
    if rows.dtype.kind == "f":
        most = float(np.sqrt(np.finfo(rows.dtype).max)) / 1e4
        if rows.size and max(float(rows.max()), -float(rows.min())) > most:
            raise InputError(f"{what} must be at most {most:.0e} in size; got larger numbers. Scale them.")


def check_finite(
    rows: NDArray[Any], what: str, *, error: type[BlindsightError] = InputError, first: bool = False
) -> None:
    """Refuse NaN and infinite numbers; `first` names the first row, where that tells nothing private."""
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        bad = np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))
        where = f" in {bad.size} of {len(rows)} rows, first in row {bad[0]}" if first else ""
        raise error(f"{what} must be finite; got NaN or infinite values{where}. Remove or repair those rows.")


def _compressed(X: Any) -> Any:
    from scipy.sparse import csr_array

    return csr_array(X)
