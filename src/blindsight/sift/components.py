"""Algorithm 1 of SensorSift: directions that covary with public attributes and not with private ones, one by one.

Enev et al., "SensorSift", ACSAC 2012, section 4. Everything happens in cross-products, never in a d x d matrix.

| paper | here |
| --- | --- |
| S_j = X^T Y+, deflated | `public`, (d, public attributes) |
| X^T Y-, never deflated | `private`, (d, private attributes) |
| lambda (Eq. 3) | `privacy`, 0 to infinity |
| w_j | columns of the result, w'w = 1 |
| p_j = X^T X w_j / (w_j' X^T X w_j) | `loading(w)`; its length does not matter |

Step 3 as printed, S^T S - X^T Y- (Y-)^T X, adds matrices of different sizes and has lost lambda; it is
M = S S^T - lambda C C^T with C = X^T Y-. M has rank d+ + d- at most, so with [S C] = Q R its leading eigenvector is Q
times that of the small R diag(I, -lambda I) R^T: exact, at the cost of a thin QR. As lambda grows without bound the
eigenvector turns orthogonal to C; at infinity it is the leading left singular vector of S - P_C S, and the release has
no covariance with any private attribute at all (linear guardedness).
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXHAUSTED = 1e-4
"""Components end where what is left of the public covariance is this small beside what there was."""


def privacy_components(
    public: Array, private: Array, loading: Callable[[Array], Array], count: int, privacy: float, *, size: float
) -> Array:
    """Return up to `count` unit directions (d, k); fewer where nothing worth `size`, the public covariance, is left."""
    least = EXHAUSTED * size
    found: list[Array] = []
    seen = np.zeros((len(public), 0))  # orthonormal basis of the loadings P
    for _ in range(count):
        if found:
            fresh = _new_part(loading(found[-1]), seen)  # step 4
            if fresh is None:
                break
            seen = np.column_stack([seen, fresh])  # step 5
            public = public - np.outer(fresh, fresh @ public)  # step 2: only S is deflated
        direction = leading_direction(public, private, privacy, least)  # step 3
        if direction is None:
            break
        found.append(direction)
    return np.column_stack(found) if found else np.zeros((len(public), 0))


def leading_direction(public: Array, private: Array, privacy: float, least: float = 0.0) -> Array | None:
    """Return the unit vector w that maximises |public' w|^2 - privacy |private' w|^2 (Eq. 3).

    None where the best w gains less than `least` squared. Its largest entry is positive: eigenvectors have no sign.
    """
    if math.isinf(privacy):
        barred = _orthonormal(private)
        basis, gains, _ = np.linalg.svd(_outside(public, barred), full_matrices=False)
        gain, direction = gains[0], _outside(basis[:, 0], barred)
    else:
        basis, small = np.linalg.qr(np.column_stack([public, private]))
        signs = np.repeat([1.0, -privacy], [public.shape[1], private.shape[1]])
        values, vectors = np.linalg.eigh((small * signs) @ small.T)
        gain, direction = math.sqrt(max(0.0, values[-1])), basis @ vectors[:, -1]
    if gain <= least:
        return None
    direction = direction / np.linalg.norm(direction)
    return np.asarray(direction * np.sign(direction[np.abs(direction).argmax()]))


def _outside(vectors: Array, basis: Array) -> Array:
    """Return the part of vectors orthogonal to a basis; twice, for the digits the first time loses."""
    for _ in range(2):
        vectors = vectors - basis @ (basis.T @ vectors)
    return vectors


def _new_part(loading: Array, seen: Array) -> Array | None:
    """Return the unit vector along what the loading adds to those seen, or None where it adds nothing."""
    fresh = _outside(loading, seen)
    length = float(np.linalg.norm(fresh))
    return None if length <= 1e-8 * float(np.linalg.norm(loading)) else fresh / length


def _orthonormal(vectors: Array) -> Array:
    """Return an orthonormal basis of the span, whatever its rank."""
    basis, sizes, _ = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(basis[:, sizes > 1e-10 * max(sizes[0], np.finfo(float).tiny)])
