"""ITQ: principal components, rotated until they lose least when only their signs are kept.

Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin, "Iterative Quantization: A Procrustean Approach to Learning Binary Codes
for Large-Scale Image Retrieval", IEEE TPAMI 35(12), 2013. Centred features X, their leading directions W, V = X W; from
a random rotation R, in turn

    B = sign(V R)                                              (`itq_rotation`)
    R = argmin ||B - V R|| over rotations = S T', where V' B = S D T'    (`procrustes`)

No iteration raises the loss (`losses_`). With a transpose too many, as in faiss's `ITQTransform`, the loss rises and
falls and the codes find less.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from blindsight.errors import InputError
from blindsight.rng import science
from blindsight.search.codes import blocks
from blindsight.search.function import Classes, Floats, HashLearner, LinearHash

_ROWS = 2048  # rows at a time: with up to a few hundred columns they stay in the processor's cache
_ROUNDING = float(np.finfo(np.float32).eps)


@dataclass(eq=False, repr=False)
class ITQ(HashLearner):
    """ITQ, with at most as many bits as features vary in directions; `losses_` is ||B - V R||^2 by iteration."""

    bits: int
    iterations: int = 50  # how often signs and rotation are refitted; with 0 the rotation stays random
    random_state: int = 0  # decides the rotation at the start

    def _learn(self, X: Floats, y: Classes | None) -> LinearHash:
        mean, directions = principal_directions(X, self.bits)
        found = directions.shape[1]
        if found < self.bits:
            raise InputError(
                f"ITQ needs a direction per bit; got bits = {self.bits}, but {len(X)} rows of {X.shape[1]} features "
                f"vary in only {found} directions. Ask for fewer bits, or take LSH, which has no such bound."
            )
        rotation, self.losses_ = itq_rotation(project(X, mean, directions), self.iterations, science(self.random_state))
        return LinearHash(mean, directions @ rotation)


def principal_directions(X: Floats, most: int) -> tuple[Floats, Floats]:
    """Return the mean (d,) and the unit directions (d, at most `most`) of largest variance, the largest first.

    Directions in which rows differ by no more than rounding are left out. Each direction's largest entry is positive.
    Memory: two d x d matrices; sums are in double precision.
    """
    mean = X.mean(axis=0, dtype=np.float64)
    width, energy = X.shape[1], 0.0
    scatter = np.zeros((width, width))
    for span in blocks(len(X), _ROWS):
        rows = X[span].astype(np.float64)
        energy += float(np.vdot(rows, rows))
        rows -= mean
        scatter += rows.T @ rows
    values, vectors = eigh(scatter, subset_by_index=(max(0, width - most), width - 1), check_finite=False)
    directions = vectors[:, ::-1][:, : int(np.sum(values > _ROUNDING**2 * energy))]
    peaks = np.take_along_axis(directions, np.abs(directions).argmax(axis=0, keepdims=True), axis=0)
    return mean.astype(np.float32), np.ascontiguousarray(directions * np.sign(peaks), dtype=np.float32)


def project(X: Floats, mean: Floats, directions: Floats) -> Floats:
    """Return (X - mean) directions, without a second copy of X."""
    V = np.empty((len(X), directions.shape[1]), dtype=np.float32)
    for span in blocks(len(X), _ROWS):
        np.matmul(X[span] - mean, directions, out=V[span])
    return V


def itq_rotation(V: Floats, iterations: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.float64]]:
    """Return a rotation R for which V R is near its signs, and the loss ||sign(V R) - V R||^2 after each iteration.

    `V` has centred columns, (n, c); the start is a uniformly random rotation, drawn from `rng`.
    """
    if iterations < 0:
        raise InputError(f"iterations must be >= 0; got {iterations}.")
    R = nearest_rotation(rng.standard_normal((V.shape[1], V.shape[1])))[0]
    constant = V.size + sum(float(np.square(V[span], dtype=np.float64).sum()) for span in blocks(len(V), _ROWS))
    losses = np.empty(iterations)
    for iteration in range(iterations):
        R, alignment = nearest_rotation(_products_with_signs(V, R))
        losses[iteration] = constant - 2 * alignment  # ||B||^2 + ||V||^2 - 2 trace(B' V R)
    return R, losses


def procrustes(B: NDArray[np.floating], V: NDArray[np.floating]) -> Floats:
    """Return the rotation (or reflection) R that minimises ||B - V R||.

    >>> procrustes(np.array([[0.0, 1.0], [-1.0, 0.0]]), np.eye(2))
    array([[ 0.,  1.],
           [-1.,  0.]], dtype=float32)
    """
    return nearest_rotation(V.T @ B)[0]


def nearest_rotation(M: NDArray[np.floating]) -> tuple[Floats, float]:
    """Return the orthogonal R that maximises trace(R' M), and that maximum, the sum of M's singular values."""
    left, values, right = np.linalg.svd(M.astype(np.float64))
    return np.asarray(left @ right, dtype=np.float32), float(values.sum())


def _products_with_signs(V: Floats, R: Floats) -> NDArray[np.float64]:
    """Return V' B for B = sign(V R), which is never held whole."""
    products = np.zeros(R.shape)
    scratch = np.empty((_ROWS, R.shape[1]), dtype=np.float32)
    for span in blocks(len(V), _ROWS):
        rows = V[span]
        signs = np.matmul(rows, R, out=scratch[: len(rows)])
        np.copysign(np.float32(1), signs, out=signs)
        products += rows.T @ signs
    return products
