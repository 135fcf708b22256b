"""What a search answers, as raw as it comes: codes that Hamming distance ranks, or symbols that scores rank."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Found = dict[str, NDArray[Any]]
"""Either codes of `queries` and `items`, or one of k `symbols` per item and the queries' `scores` of them, (q, k)."""

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]


def by_codes(queries: NDArray[np.uint8], items: NDArray[np.uint8]) -> Found:
    """Answer with packed codes: the nearest item comes first."""
    return {"queries": queries, "items": items}


def by_symbols(scores: NDArray[Any], symbols: NDArray[np.int64]) -> Found:
    """Answer with one symbol per item: that with the highest score comes first."""
    return {"scores": scores, "symbols": symbols}
