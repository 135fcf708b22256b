"""Exact Hamming search over codes where they lie, in memory or in a mapped file: faiss's kernels, nothing copied.

Hits come by distance, then by position: of equally distant codes those that stand first are found, and in that order.
"""

import faiss
import numpy as np
from numpy.typing import NDArray

from blindsight.search.codes import Codes

Found = tuple[NDArray[np.int32], NDArray[np.int64]]
"""Distances and positions."""


def nearest(codes: Codes, queries: Codes, k: int) -> Found:
    """Return the k <= n nearest codes of each query, (queries, k)."""
    if not len(queries):
        return np.empty((0, k), dtype=np.int32), np.empty((0, k), dtype=np.int64)
    found: Found = faiss.knn_hamming(queries, codes, k, variant="hc")
    return found


def neighbourhoods(codes: Codes, queries: Codes, radius: int) -> tuple[*Found, NDArray[np.int64]]:
    """Return all codes that differ from a query in at most `radius` bits, and where each query's begin and end."""
    result = faiss.RangeSearchResult(len(queries))
    sizes = len(queries), len(codes), radius + 1, codes.shape[1]
    faiss.hamming_range_search(faiss.swig_ptr(queries), faiss.swig_ptr(codes), *sizes, result)  # type: ignore[attr-defined]
    bounds = faiss.rev_swig_ptr(result.lims, len(queries) + 1).astype(np.int64)
    count = int(bounds[-1])
    if not count:
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64), bounds
    distances = faiss.rev_swig_ptr(result.distances, count).astype(np.int32)
    positions = faiss.rev_swig_ptr(result.labels, count).astype(np.int64)
    owners = np.repeat(np.arange(len(queries)), np.diff(bounds))
    order = np.lexsort((positions, distances, owners))
    return distances[order], positions[order], bounds
