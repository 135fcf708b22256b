"""Yes/no variables with exactly the correlations one asks for, some of them shared by all rows of a group.

Guarantee: every row taken by itself follows one joint distribution whose prevalences and Pearson (phi) correlations are
the requested ones, whatever the grouping. A request that cannot be met exactly is refused, never approximated.

How: a Gaussian copula (Emrich and Piedmonte, "A method for generating high-dimensional multivariate binary variates",
The American Statistician 45, 1991). Variable i is 1 where a standard normal z_i lies below h_i, the normal quantile of
its prevalence; for each pair the correlation of the two normals is solved for numerically, so that the *binary*
variables have the requested phi.

Groups: variables that belong to the group come first in the Cholesky factor z = L e. Their part of e is drawn once per
group, the rest once per row. So z has the same distribution in every row, group variables are constant within a
group, and what varies within it still has the requested correlation with them: the group's hidden z, of which the
group variable is only the sign, makes the others more or less likely in all its rows. Rows of one group are
independent of each other given that hidden z. What is estimated from n rows is as sharp as the number of groups allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from blindsight.errors import InputError

Matrix = NDArray[np.float64]

_SMALLEST_EIGENVALUE = 1e-6
_BISECTIONS = 60
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


@dataclass(frozen=True)
class Copula:
    """A joint distribution of named yes/no variables; draw from it with `sample`."""

    names: tuple[str, ...]
    prevalence: Matrix  # (a,)
    correlation: Matrix  # (a, a): of the binary variables
    latent: Matrix  # (a, a): of the normals behind them

    @classmethod
    def fit(cls, names: Sequence[str], prevalence: Matrix, correlation: Matrix) -> Self:
        """Find the distribution with these prevalences and phi correlations, or say why there is none."""
        check_prevalence(names, prevalence)
        check_correlation(names, correlation)
        check_bounds(names, prevalence, correlation)
        latent = latent_correlation(prevalence, correlation)
        values, vectors = np.linalg.eigh(latent)
        if values[0] < _SMALLEST_EIGENVALUE:
            blamed = ", ".join(names[i] for i in np.argsort(-np.abs(vectors[:, 0]))[:3])
            raise InputError(
                f"with these prevalences a Gaussian copula cannot have all these correlations at once (its smallest "
                f"eigenvalue would be {values[0]:.3g}). Weaken the correlations of {blamed}."
            )
        return cls(tuple(names), prevalence, correlation, latent)

    def sample(self, shared: Sequence[str], groups: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int8]:
        """Draw one row per entry of `groups` (numbered from 0); the `shared` variables are equal within a group."""
        order = sorted(range(len(self.names)), key=lambda i: self.names[i] not in shared)
        factor = np.linalg.cholesky(self.latent[np.ix_(order, order)])
        per_group, per_row = rng.spawn(2)
        own = per_group.standard_normal((int(groups.max()) + 1, len(shared)))[groups]
        noise = np.hstack([own, per_row.standard_normal((len(groups), len(order) - len(shared)))])
        z = np.einsum("ij,kj->ik", noise, factor)  # unlike a BLAS product, to the last bit independent of n
        drawn = np.empty(z.shape, dtype=np.int8)
        drawn[:, order] = z < ndtri(self.prevalence[order])
        return drawn


def latent_correlation(prevalence: Matrix, correlation: Matrix) -> Matrix:
    """Return the correlations of normals whose signs, cut at these prevalences, have the given phi correlations.

    With r = sin t, P(z_i < h, z_j < k) = p q + 1/(2 pi) times the integral over t from 0 of
    exp(-(h^2 + k^2 - 2 h k sin t) / (2 cos^2 t)), which grows with t: bisection finds it for all pairs at once.

    >>> halves = np.array([0.5, 0.5])
    >>> round(float(latent_correlation(halves, np.array([[1, 0.5], [0.5, 1]]))[0, 1]), 6)  # sin(pi/2 * 0.5)
    0.707107
    """
    first, second = np.triu_indices(len(prevalence), 1)
    spread = np.sqrt(prevalence * (1.0 - prevalence))
    wanted = correlation[first, second] * spread[first] * spread[second]  # P(both) - p q
    h, k = ndtri(prevalence[first]), ndtri(prevalence[second])
    low, high = np.full(len(first), -np.pi / 2), np.full(len(first), np.pi / 2)
    for _ in range(_BISECTIONS):
        angle = (low + high) / 2
        enough = _excess(h, k, angle) >= wanted
        high, low = np.where(enough, angle, high), np.where(enough, low, angle)
    latent = np.eye(len(prevalence))
    latent[first, second] = latent[second, first] = np.sin((low + high) / 2)
    return latent


def _excess(h: Matrix, k: Matrix, angle: Matrix) -> Matrix:
    """Return P(z_i < h, z_j < k) - P(z_i < h) P(z_j < k) for normals of correlation sin(angle)."""
    t = angle[:, None] * (_NODES + 1.0) / 2.0
    h, k = h[:, None], k[:, None]
    density = np.exp(-(h * h + k * k - 2.0 * h * k * np.sin(t)) / (2.0 * np.cos(t) ** 2)) / (2.0 * np.pi)
    excess: Matrix = angle / 2.0 * (density @ _WEIGHTS)
    return excess


def check_prevalence(names: Sequence[str], prevalence: Matrix) -> None:
    """Refuse shares that are not strictly between 0 and 1."""
    for name, share in zip(names, prevalence, strict=True):
        if not 0.0 < share < 1.0:
            raise InputError(f"the prevalence of {name} must lie strictly between 0 and 1; got {share:g}.")


def check_correlation(names: Sequence[str], correlation: Matrix) -> None:
    """Refuse what is not a correlation matrix; the sentence names the pair or the smallest eigenvalue."""
    a = len(names)
    if correlation.shape != (a, a):
        raise InputError(f"the correlation must be a {a} x {a} matrix; got shape {correlation.shape}.")
    for i, j in combinations_with_replacement(range(a), 2):
        pair, value, mirror = f"{names[i]} and {names[j]}", correlation[i, j], correlation[j, i]
        if i == j and value != 1.0:
            raise InputError(f"the correlation of {names[i]} with itself must be 1; got {value:g}.")
        if not abs(value - mirror) <= 1e-9:
            raise InputError(
                f"the correlation of {pair} must be one number; got {value:g} above and {mirror:g} below the diagonal."
            )
        if not -1.0 <= value <= 1.0:
            raise InputError(f"the correlation of {pair} must lie in [-1, 1]; got {value:g}.")
    smallest = float(np.linalg.eigvalsh(correlation)[0])
    if smallest < _SMALLEST_EIGENVALUE:
        raise InputError(
            f"the correlation matrix must be positive definite; its smallest eigenvalue is {smallest:.3g}. "
            "Some correlations contradict each other: weaken them."
        )


def check_bounds(names: Sequence[str], prevalence: Matrix, correlation: Matrix) -> None:
    """Refuse a correlation that two yes/no variables of these prevalences cannot have (Frechet's bounds)."""
    p, q = prevalence[:, None], prevalence[None, :]
    spread = np.sqrt(p * (1.0 - p) * q * (1.0 - q))
    low, high = (np.maximum(p + q - 1.0, 0.0) - p * q) / spread, (np.minimum(p, q) - p * q) / spread
    for i, j in combinations(range(len(names)), 2):
        if not low[i, j] <= correlation[i, j] <= high[i, j]:
            raise InputError(
                f"the correlation of {names[i]} and {names[j]} must lie in [{low[i, j]:.3f}, {high[i, j]:.3f}] when "
                f"{prevalence[i]:.3g} and {prevalence[j]:.3g} of all have them; got {correlation[i, j]:g}. "
                "Change one of the three."
            )
