"""Features as they come: dense or sparse, of any kind of number, too many for a copy; they are read block by block."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blindsight.validation import check_finite, check_shape

Features: TypeAlias = ArrayLike | Any
"""Numbers of shape (n, d): an array, possibly memory-mapped, or a scipy.sparse matrix."""

Floats = NDArray[np.float32]

_CELLS = 1 << 20  # numbers in one dense block while a sift is applied


def blocks(rows: Any, cells: int = _CELLS) -> Iterator[tuple[slice, Any]]:
    """Yield spans of rows and these rows: float32, or float64 where they are double or sparse; sparse stays sparse."""
    width = rows.nnz // rows.shape[0] + 1 if sparse.issparse(rows) else rows.shape[1]
    precision = np.float64 if rows.dtype == np.float64 or sparse.issparse(rows) else np.float32
    step = max(1, cells // width)
    for start in range(0, rows.shape[0], step):
        span = slice(start, min(start + step, rows.shape[0]))
        yield span, rows[span].astype(precision, copy=False)


def finite_blocks(X: Features, dimension: int) -> Iterator[Floats]:
    """Yield dense float32 blocks of all rows; NaN and infinite values are refused."""
    rows = check_shape(X, dimension)
    step = max(1, _CELLS // dimension)
    for start in range(0, rows.shape[0], step):
        block = rows[start : start + step]
        with np.errstate(over="ignore"):
            floats = (block.toarray() if sparse.issparse(block) else block).astype(np.float32, copy=False)
        check_finite(floats, "features")
        yield floats
