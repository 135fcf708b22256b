"""LEACE and PLS: linear erasure of private attributes, then partial least squares for public ones.

Guarantee: after the erasure no linear predictor of a private attribute beats the constant one on the training data
(their covariance is zero), and no other linear map with that property moves the features less, in any norm. PLS then
picks directions of what is left. Both maps are linear, so the result is one `LinearSift`.

Belrose et al., "LEACE: Perfect linear concept erasure in closed form", NeurIPS 2023, Theorem 4.3. They write
P = I - W^+ P_{W Sigma_xz} W with W the whitening matrix. Expanding the projection, W drops out:

    P x = x - C (C' Sigma^+ C)^+ (Sigma^+ C)' (x - mean),       C = Sigma_xz,

so only the coefficients Sigma^+ C of the least-squares regression of the attributes on the features are needed. Rank
and cost of the correction grow with the number of private attributes, not of features.
"""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy.linalg import eigh

from blindsight.sift.ppls import Array, Covariances, LinearSiftLearner, privacy_components


@dataclass(frozen=True, eq=False)
class Erasure:
    """x -> x - left right' x on centred features; `left` and `right` are (d, attributes)."""

    left: Array
    right: Array

    @classmethod
    def fit(cls, covariance: Array, private: Array) -> "Erasure":
        """Return the least change that takes all covariance with `private` (d, attributes) away."""
        values, vectors = eigh(covariance)
        kept = values > values[-1] * len(values) * np.finfo(np.float64).eps
        basis = vectors[:, kept]
        regression = basis @ ((basis.T @ private) / values[kept, None])  # Sigma^+ C
        explained = np.linalg.pinv(private.T @ regression, rcond=1e-10, hermitian=True)
        return cls(private @ explained, regression)

    def apply(self, columns: Array) -> Array:
        """P columns: erased features, or covariances of erased features with something."""
        return columns - self.left @ (self.right.T @ columns)

    def transposed(self, directions: Array) -> Array:
        """P' directions: what to measure on the original features to see `directions` of the erased ones."""
        return directions - self.right @ (self.left.T @ directions)


@dataclass(eq=False, repr=False)
class LeacePLS(LinearSiftLearner):
    """Fits a `LinearSift` of `n_components` numbers from which private attributes are linearly erased. Needs the d x d
    covariance matrix of the features, so d is limited to 4,096.
    """

    n_components: int = 5
    _: KW_ONLY
    scale: bool = True
    pipeline: str = ""

    def _needs_matrix(self, passes: bool) -> bool:
        return True

    def _directions(self, covariances: Covariances) -> Array:
        matrix = covariances.matrix()
        erasure = Erasure.fit(matrix, covariances.private)

        def loading(direction: Array) -> Array:
            return erasure.apply(matrix @ erasure.transposed(direction))

        erased = erasure.apply(covariances.public)
        nothing = np.zeros((len(erased), 1))  # what was private is gone: plain PLS
        size = float(np.linalg.norm(covariances.public))
        found = privacy_components(erased, nothing, loading, self.n_components, 0.0, size=size)
        directions = erasure.transposed(found)
        return np.asarray(directions / np.linalg.norm(directions, axis=0))
