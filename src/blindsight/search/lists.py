"""Inverted lists: codes grouped around centroids, so that a search compares only those of the nearest groups.

This is faiss's IndexBinaryIVF over positions in a table of codes. It is an aid, never the record: everything in it can
be made again from the codes, the centroids and the list of every code.
"""

import math
from threading import Lock
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from blindsight.rng import science
from blindsight.search.codes import Codes, blocks

_SAMPLE = 40  # codes per centroid that k-means learns from
_ROUNDS = 10
_ROWS = 1 << 20  # codes that are assigned at once


class Lists:
    """Positions and codes by nearest centroid; searches from several threads take turns."""

    def __init__(self, centroids: Codes, codes: Codes, assignment: NDArray[np.int64] | None = None) -> None:
        """Sort codes into lists: by nearest centroid, or as an earlier `assignment` says."""
        self.centroids = np.ascontiguousarray(centroids)
        count, width = self.centroids.shape
        quantizer = faiss.IndexBinaryFlat(8 * width)
        quantizer.add(self.centroids)
        self._ivf = faiss.IndexBinaryIVF(quantizer, 8 * width, count)
        self._ivf.is_trained = True
        self._turn = Lock()
        positions = np.arange(len(codes), dtype=np.int64)
        for span in blocks(len(codes), _ROWS):
            self._add(positions[span], codes[span], None if assignment is None else assignment[span])

    @classmethod
    def learned(cls, codes: Codes) -> Self:
        """Return about sqrt(n) lists around centroids that k-means finds in a sample of the n codes."""
        count = max(1, math.isqrt(len(codes)))
        sample = science(0).choice(len(codes), min(len(codes), _SAMPLE * count), replace=False)
        width = codes.shape[1]
        learner = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(8 * width), 8 * width, count)
        learner.cp.niter = _ROUNDS
        learner.cp.min_points_per_centroid = 1
        learner.train(np.ascontiguousarray(codes[np.sort(sample)]))
        return cls(learner.quantizer.reconstruct_n(0, count), codes)

    def __len__(self) -> int:
        """Return how many lists there are."""
        return len(self.centroids)

    @property
    def assignment(self) -> NDArray[np.int64]:
        """The list of every position."""
        places = np.empty(self._ivf.ntotal, dtype=np.int64)
        for number in range(len(self)):
            places[self._positions(number)] = number
        return places

    def search(self, queries: Codes, k: int, probes: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return distances and positions of the k nearest among the codes of the nearest lists, -1 where none is."""
        with self._turn:
            self._ivf.nprobe = probes
            distances, positions = self._ivf.search(queries, k)
        distances[positions < 0] = -1
        return distances, positions

    def add(self, begin: int, codes: Codes) -> None:
        """Add codes whose positions are `begin` and on."""
        self._add(np.arange(begin, begin + len(codes), dtype=np.int64), codes)

    def replace(self, positions: NDArray[np.int64], codes: Codes) -> None:
        """Give positions other codes."""
        self._ivf.remove_ids(positions)
        self._add(positions, codes)

    def remove(self, kept: NDArray[np.bool_]) -> None:
        """Forget all positions but these, and close the gaps."""
        self._ivf.remove_ids(np.flatnonzero(~kept))
        new = np.cumsum(kept, dtype=np.int64) - 1
        for number in range(len(self)):
            positions = self._positions(number)
            positions[:] = new[positions]

    def _add(self, positions: NDArray[np.int64], codes: Codes, lists: NDArray[np.int64] | None = None) -> None:
        rows = np.ascontiguousarray(codes)
        if lists is None:
            self._ivf.add_with_ids(rows, positions)
        else:
            arrays: list[NDArray[Any]] = [rows, positions, np.ascontiguousarray(lists)]
            self._ivf.add_core(len(rows), *map(faiss.swig_ptr, arrays))  # type: ignore[attr-defined]

    def _positions(self, number: int) -> NDArray[Any]:
        """Return the positions in one list, not copied."""
        size = self._ivf.invlists.list_size(number)
        if not size:
            return np.empty(0, dtype=np.int64)
        positions: NDArray[Any] = faiss.rev_swig_ptr(self._ivf.invlists.get_ids(number), size)
        return positions
