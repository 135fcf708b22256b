"""Binary codes as packed bytes, one bit per hash function, and their Hamming and asymmetric distances.

Bit j of a code stands in byte j // 8 at position j % 8 (little end first), as faiss counts; padding is zeros, which no
distance sees. A bit is 1 where a hash function's score is >= 0: the papers' +1; 0 is their -1.

Searches are exact, by faiss's kernels, over codes where they lie. Hits come by distance, then by position. A
real-valued query ranks codes b in {-1, +1}^c by sum_j s_j b_j: for signs, c - 2 times the Hamming distance.
"""

import math
from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError

Codes = NDArray[np.uint8]  # packed, (n, ceil(bits / 8))
_MOST_BYTES = 2**13 - 1  # so that every distance fits into 16 bits


def code_bytes(bits: int) -> int:
    check_bits(bits)
    return -(-bits // 8)


def check_bits(bits: int) -> None:
    check_whole("bits, the length of a code,", bits, 1, 8 * _MOST_BYTES)


def check_whole(name: str, value: object, least: int, most: float = math.inf) -> int:
    """Return a whole number of any type as an int, or raise unless it lies in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        bounds = f">= {least}" if most == math.inf else f"in [{least}, {most}]"
        raise InputError(f"{name} must be a whole number {bounds}; got {value!r}.")
    return int(value)


def check_codes(codes: ArrayLike, bits: int, what: str = "codes") -> Codes:
    """Return the codes as they are, or raise unless they are packed codes of this length with clean padding."""
    packed = np.asarray(codes)
    width = code_bytes(bits)
    if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != width:
        raise InputError(
            f"{what} of {bits} bits must be uint8 of shape (n, {width}); got {packed.dtype} {packed.shape}. "
            "Were they made by another hash function?"
        )
    if bits % 8 and len(packed) and int(packed[:, -1].max()) >> (bits % 8):
        raise InputError(f"{what} have bits beyond the {bits} that were announced. Were they made for a longer code?")
    return packed


def pack(bits: ArrayLike) -> Codes:
    """Return rows of truth values (or of -1 and +1) as packed codes.

    >>> pack([[1, 0, 0, 0, 0, 0, 0, 0, 1], [-1, 1, -1, -1, -1, -1, -1, -1, -1]])
    array([[1, 1],
           [2, 0]], dtype=uint8)
    """
    rows = np.asarray(bits)
    if rows.ndim != 2 or rows.shape[1] < 1:
        raise InputError(f"bits must have shape (n, bits >= 1); got {rows.shape}.")
    return np.packbits(rows > 0, axis=1, bitorder="little")


def unpack(codes: ArrayLike, bits: int) -> NDArray[np.bool_]:
    """Return packed codes as rows of truth values, (n, bits).

    >>> unpack(pack([[True, False, True]]), 3)
    array([[ True, False,  True]])
    """
    packed = check_codes(codes, bits)
    return np.unpackbits(packed, axis=1, count=int(bits), bitorder="little").astype(np.bool_)


def hamming(queries: Codes, codes: Codes) -> NDArray[np.uint16]:
    """Return the Hamming distances between all queries and all codes of the same length, (queries, n).

    >>> hamming(pack([[1, 1, 0]]), pack([[1, 1, 0], [0, 0, 1]]))
    array([[0, 3]], dtype=uint16)
    """
    left, right = _words(queries), _words(codes)
    if queries.shape[1] != codes.shape[1]:
        raise InputError(f"codes of {queries.shape[1]} and {codes.shape[1]} bytes have no Hamming distance.")
    distances = np.zeros((len(left), len(right)), dtype=np.uint16)
    for word in range(left.shape[1]):
        distances += np.bitwise_count(left[:, word, None] ^ right[None, :, word])
    return distances


def blocks(rows: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _words(codes: Codes) -> NDArray[np.uint64]:
    packed: NDArray[Any] = np.asarray(codes)
    if packed.dtype != np.uint8 or packed.ndim != 2:
        raise InputError(f"codes must be packed: uint8 of shape (n, bytes); got {packed.dtype} {packed.shape}.")
    if packed.shape[1] > _MOST_BYTES:
        raise InputError(f"codes of more than {_MOST_BYTES} bytes are not compared; got {packed.shape[1]}.")
    width = -(-packed.shape[1] // 8) * 8
    padded = np.zeros((len(packed), width), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


Found = tuple[NDArray[np.int32], NDArray[np.int64]]  # distances and positions


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
