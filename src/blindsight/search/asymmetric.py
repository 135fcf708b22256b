"""The asymmetric distance: binary codes ranked by a query that was not made binary.

The score of a code b in {-1, +1}^c for a real query s is their inner product, sum_j s_j b_j. A query whose values are
signs gets c - 2 times the Hamming distance: the same ranking. All codes are compared, a block at a time.
"""

import faiss
import numpy as np
from numpy.typing import NDArray

from blindsight.search.codes import Codes, blocks, unpack

_ROWS = 32_768  # codes that are spread out as floats at once


def best_by_score(
    codes: Codes, bits: int, scores: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return positions and scores of the k <= n codes with the highest inner product, (queries, k), best first."""
    best = faiss.ResultHeap(len(scores), k, keep_max=True)
    for span in blocks(len(codes), _ROWS):
        signs = unpack(codes[span], bits) * np.float32(2) - np.float32(1)
        values, places = faiss.knn(scores, signs, min(k, len(signs)), metric=faiss.METRIC_INNER_PRODUCT)
        best.add_result(values, places + span.start)
    best.finalize()
    order = np.lexsort((best.I, -best.D))  # equal scores: the older row first
    return np.take_along_axis(best.I, order, axis=1), np.take_along_axis(best.D, order, axis=1)
