"""Principal components of more rows than fit in memory: exact where one side is small, by iteration where none is.

Guarantees: the energies returned are those that the returned unit vectors really hold, never an estimate; memory is
that of one batch, of the components kept, and of one matrix with at most 8,192 rows and columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

_EXACT_UP_TO = 8192  # the largest eigenproblem solved whole: about a minute, two gigabytes
_MAX_PASSES = 30
_SETTLED = 1e-5  # subspace iteration ends when a pass adds less than this share of the energy

Float32 = NDArray[np.float32]


class Rows(Protocol):
    """A tall matrix of mean zero, of which only the batch at hand is ever made."""

    @property
    def width(self) -> int:
        """Return the number of columns."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Float32]: ...

    def spans(self) -> list[slice]:
        """Return the batches that together cover all rows."""

    def batch(self, span: slice | NDArray[np.int64]) -> Float32:
        """Make the rows of one batch."""


@dataclass(frozen=True)
class Target:
    """How much energy to hold, out of how much, with how many components at most."""

    energy: float
    total: float
    most: int

    def count(self, energies: NDArray[np.float64]) -> int:
        """Return the fewest leading components that reach the energy, or as many as there may be."""
        enough = int(np.searchsorted(np.cumsum(energies), self.energy * self.total)) + 1
        return min(enough, len(energies), self.most)


Principal = tuple[NDArray[np.float64], Float32]
"""Energies in falling order, and the unit vectors (k, d) that hold them."""


def principal_components(rows: Rows, target: Target, generator: np.random.Generator) -> Principal:
    """Return the fewest leading components that hold the target, each with its largest entry positive."""
    if min(len(rows), rows.width) > _EXACT_UP_TO:
        energies, components = _by_iteration(rows, target, generator)
    else:
        energies, components = (_by_gram if len(rows) < rows.width else _by_covariance)(rows, target)
    peaks = np.abs(components).argmax(axis=1, keepdims=True)  # eigenvectors have no sign of their own
    components *= np.sign(np.take_along_axis(components, peaks, axis=1))
    return energies, components


def _by_gram(rows: Rows, target: Target) -> Principal:
    """Solve the n x n problem of inner products exactly: for few images of many pixels."""
    gram = np.empty((len(rows), len(rows)))
    spans = rows.spans()
    for i, here in enumerate(spans):
        batch = rows.batch(here)
        for there in spans[: i + 1]:
            block = batch @ (batch if there is here else rows.batch(there)).T
            gram[here, there], gram[there, here] = block, block.T
    energies, vectors = _largest_first(gram)
    count = target.count(energies)
    energies = energies[:count]
    turn = (vectors[:, :count] / np.sqrt(energies)).astype(np.float32)
    components = np.zeros((count, rows.width), dtype=np.float32)
    for span in spans:
        components += turn[span].T @ rows.batch(span)
    return energies, components


def _by_covariance(rows: Rows, target: Target) -> Principal:
    """Solve the d x d problem exactly: for many images of few pixels."""
    covariance = np.zeros((rows.width, rows.width))
    for batch in rows:
        covariance += batch.T @ batch
    energies, vectors = _largest_first(covariance)
    count = target.count(energies)
    return energies[:count], np.ascontiguousarray(vectors[:, :count].T, dtype=np.float32)


def _by_iteration(rows: Rows, target: Target, generator: np.random.Generator) -> Principal:
    """Turn the span of some random images towards the leading components, one pass over all a turn: for many of both.

    Ritz values are the true energies of the vectors returned with them, so the target is held; their number is the
    fewest possible up to what a further pass would still gain.
    """
    widest = min(len(rows) - 1, rows.width)
    order = generator.permutation(len(rows))
    sketch = np.empty((rows.width, 0), dtype=np.float32)
    wanted, held = min(64, widest), np.zeros(0)
    for _ in range(_MAX_PASSES):
        fresh = rows.batch(order[sketch.shape[1] : wanted])
        basis = np.linalg.qr(np.hstack([sketch, fresh.T]))[0]
        sketch = np.zeros_like(basis)
        for batch in rows:
            sketch += batch.T @ (batch @ basis)
        energies, turn = _largest_first((basis.T @ sketch).astype(np.float64))
        count, before, held = target.count(energies), held, np.cumsum(energies)
        settled = count <= len(before) and held[count - 1] - before[count - 1] < _SETTLED * target.total
        short = count == basis.shape[1] < target.most
        wanted = min(2 * count if short else count + count // 4 + 16, widest)
        if settled and wanted <= basis.shape[1]:
            break
    return energies[:count], np.ascontiguousarray((basis @ turn[:, :count].astype(np.float32)).T)


def _largest_first(symmetric: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return eigenvalues and eigenvectors in falling order, without those that are rounding errors of zero."""
    values, vectors = eigh(symmetric, overwrite_a=True, check_finite=False, driver="evd")
    kept = max(1, int(np.sum(values > 1e-7 * values[-1])))
    return values[::-1][:kept], vectors[:, ::-1][:, :kept]
