"""Bundled face pictures of nobody, with labels whose joint distribution is known because the caller chooses it.

Guarantee: each picture's twelve attributes follow one joint distribution with exactly the requested prevalences and
Pearson (phi) correlations (see `Copula`); all twelve are free, so a person can smile with frowning brows. Attributes
of the person (`PERSON_ATTRIBUTES`) are constant over the person's pictures, the others belong to the moment. Every
attribute is visible in the pixels, by several cues where life has several.

The same arguments give the same pixels on every run, and the first pictures do not depend on n: the first 100 of
n = 1,000 equal n = 100.

| attribute | what it looks like |
| --- | --- |
| male * | wider, squarer jaw, thicker and lower brows, broader neck and shoulders, thinner and paler lips |
| youth * | large eyes, smooth skin; without: lines, eye bags, folds, thinner lips, often grey or little hair |
| pale_skin * | the palest skin tones; exposure and colour temperature blur the border |
| beard * | full beard, short beard or goatee |
| long_hair * | hair that falls over the shoulders |
| smiling | mouth corners up, mostly with teeth; narrower eyes, raised brows |
| frowning | brows low and slanted with a furrow between; mouth corners down unless smiling |
| eyeglasses | each person has one pair, from round to rectangular |
| hat | knitted cap, brimmed hat or peaked cap |
| obstructed_forehead | fringe, low hat or headband |
| outdoors | hills, trees or sea instead of a wall, a shelf or a window |
| looking_left | head and gaze turned to the left edge of the picture |

(*) belongs to the person.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from blindsight.data.dataset import PictureDataset
from blindsight.data.faces.portrait import Portraits
from blindsight.errors import InputError, UnknownNameError
from blindsight.progress import Progress, silent
from blindsight.rng import science

ATTRIBUTES = (
    "male",
    "youth",
    "pale_skin",
    "beard",
    "long_hair",
    "smiling",
    "frowning",
    "eyeglasses",
    "hat",
    "obstructed_forehead",
    "outdoors",
    "looking_left",
)
PERSON_ATTRIBUTES = ATTRIBUTES[:5]
SIZES = (64, 128)
GENERATOR = 1  # version of the pixels: rises whenever the same arguments would give other pictures

Matrix = NDArray[np.float64]
Correlation = ArrayLike | Mapping[tuple[str, str], float]

_PREVALENCE = (0.50, 0.50, 0.45, 0.20, 0.40, 0.45, 0.25, 0.30, 0.20, 0.35, 0.50, 0.35)
_CORRELATION = {
    ("male", "beard"): 0.42,
    ("male", "long_hair"): -0.40,
    ("male", "hat"): 0.10,
    ("male", "smiling"): -0.08,
    ("youth", "beard"): -0.18,
    ("youth", "long_hair"): 0.12,
    ("youth", "eyeglasses"): -0.15,
    ("youth", "smiling"): 0.08,
    ("beard", "long_hair"): -0.20,
    ("long_hair", "obstructed_forehead"): 0.15,
    ("smiling", "frowning"): -0.30,
    ("smiling", "outdoors"): 0.10,
    ("hat", "obstructed_forehead"): 0.25,
    ("hat", "outdoors"): 0.25,
}
_BATCH = 32
_SMALLEST_EIGENVALUE = 1e-6
_BISECTIONS = 60
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def default_prevalence() -> dict[str, float]:
    """Return the share of pictures that have each attribute unless asked otherwise."""
    return dict(zip(ATTRIBUTES, _PREVALENCE, strict=True))


def default_correlation() -> NDArray[np.float64]:
    """Return the mild, lifelike correlations that hold unless asked otherwise, in the order of `ATTRIBUTES`.

    >>> float(default_correlation()[ATTRIBUTES.index("smiling"), ATTRIBUTES.index("frowning")])
    -0.3
    """
    return _matrix(_CORRELATION)


def faces(
    n: int = 1000,
    *,
    size: int = 64,
    random_state: int = 0,
    correlation: Correlation | None = None,
    prevalence: Mapping[str, float] | None = None,
    pictures_per_person: int = 10,
    days: int | None = None,
    label: str | None = None,
    progress: Progress = silent,
) -> PictureDataset:
    """Return `n` pictures of people who do not exist, with attributes, persons and, if asked, days and labels.

    `correlation` and `prevalence` are those of `sample_attributes`. Consecutive pictures show the same person. With
    `days`, each run of that many pictures is spread over all days in random order. With `label`, that attribute is
    also the class label.
    """
    if days is not None and days < 1:
        raise InputError(f"days must be at least 1; got {days}.")
    if label is not None and label not in ATTRIBUTES:
        raise UnknownNameError("attribute", label, ATTRIBUTES)
    attributes, persons = sample_attributes(
        n,
        random_state=random_state,
        correlation=correlation,
        prevalence=prevalence,
        pictures_per_person=pictures_per_person,
    )
    return PictureDataset(
        name="faces",
        licence="generated: no person is depicted; Apache-2.0",
        source=f"procedural face generator of Blindsight, version {GENERATOR}, {size} px, seed {random_state}",
        images=draw_faces(attributes, persons, size=size, random_state=random_state, progress=progress),
        labels=None if label is None else attributes[:, ATTRIBUTES.index(label)].astype(np.int64),
        label_names=() if label is None else (f"not {label}", label),
        attributes=attributes,
        attribute_names=ATTRIBUTES,
        persons=persons,
        days=None if days is None else _spread_over(days, n, _streams(random_state)[1]),
        names=tuple(f"face-{i:06d}" for i in range(n)),
    )


def sample_attributes(
    n: int,
    *,
    random_state: int = 0,
    correlation: Correlation | None = None,
    prevalence: Mapping[str, float] | None = None,
    pictures_per_person: int = 10,
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Draw the attributes (n, 12), 0 or 1, and the person (n,) of each picture, without drawing the pictures.

    `correlation` is a 12 x 12 matrix in the order of `ATTRIBUTES` (`np.eye(12)`: independent), or a mapping from pairs
    of attributes to correlations, where pairs not named are uncorrelated; default `default_correlation()`.
    `prevalence` replaces single entries of `default_prevalence()`. Correlations are those of a picture chosen at
    random, so person and moment can correlate too: some people smile more often than others.
    """
    if n < 1:
        raise InputError(f"the number of pictures must be at least 1; got {n}.")
    if pictures_per_person < 1:
        raise InputError(f"the number of pictures per person must be at least 1; got {pictures_per_person}.")
    for name in prevalence or {}:
        _index(name)
    shares = np.array(list((default_prevalence() | dict(prevalence or {})).values()), dtype=np.float64)
    wanted = default_correlation() if correlation is None else _matrix(correlation)
    persons = np.arange(n, dtype=np.int64) // pictures_per_person
    copula = Copula.fit(ATTRIBUTES, shares, wanted)
    return copula.sample(PERSON_ATTRIBUTES, persons, _streams(random_state)[0]), persons


def draw_faces(
    attributes: NDArray[np.int8],
    persons: NDArray[np.int64],
    *,
    size: int = 64,
    random_state: int = 0,
    batch: int = _BATCH,
    progress: Progress = silent,
) -> NDArray[np.uint8]:
    """Draw one picture per row of `attributes` (n, 12): uint8 (n, size, size, 3).

    Whatever the attributes do not say is decided by the seed, the person and the row, so changing one attribute of one
    row changes only what that attribute means on that picture. `batch` pictures are painted at a time; it affects
    memory and speed, never pixels.
    """
    if size not in SIZES:
        raise InputError(f"faces are drawn at {' or '.join(map(str, SIZES))} pixels; got {size}.")
    if attributes.shape != (len(persons), len(ATTRIBUTES)) or not len(persons):
        raise InputError(f"attributes must be one row of {len(ATTRIBUTES)} per person named; got {attributes.shape}.")
    if not np.isin(attributes, (0, 1)).all() or persons.min() < 0:
        raise InputError("attributes must be 0 or 1, and persons numbered from 0.")
    _, _, traits, grain = _streams(random_state)
    portraits = Portraits(dict(zip(ATTRIBUTES, attributes.T, strict=True)), persons, traits)
    np.empty(31 * 2**20, dtype=np.uint8)  # freed at once: glibc then keeps blocks up to this size, 40% less CPU time
    images = np.empty((len(persons), size, size, 3), dtype=np.uint8)
    for start in range(0, len(images), batch):
        rows = slice(start, start + batch)
        images[rows] = portraits[rows].paint(size, grain)
        progress("drawing faces", min(start + batch, len(images)), len(images))
    return images


def _streams(random_state: int) -> list[np.random.Generator]:
    return science(random_state).spawn(4)


def _spread_over(days: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    runs = np.tile(np.arange(days, dtype=np.int64), (-(-n // days), 1))
    spread: NDArray[np.int64] = rng.permuted(runs, axis=1).ravel()[:n]
    return spread


def _matrix(correlation: Correlation) -> NDArray[np.float64]:
    if not isinstance(correlation, Mapping):
        return np.asarray(correlation, dtype=np.float64)
    matrix, named = np.eye(len(ATTRIBUTES)), set[frozenset[str]]()
    for pair, value in correlation.items():
        if not isinstance(pair, tuple) or len(set(pair)) != 2 or frozenset(pair) in named:
            raise InputError(f"correlations are named by pairs of different attributes, each pair once; got {pair!r}.")
        i, j = _index(pair[0]), _index(pair[1])
        named.add(frozenset(pair))
        matrix[i, j] = matrix[j, i] = value
    return matrix


def _index(name: str) -> int:
    if name not in ATTRIBUTES:
        raise UnknownNameError("attribute", name, ATTRIBUTES)
    return ATTRIBUTES.index(name)


@dataclass(frozen=True)
class Copula:
    """A joint distribution of named yes/no variables, some of them shared by all rows of a group.

    Guarantee: every row taken by itself follows one joint distribution whose prevalences and Pearson (phi) correlations
    are the requested ones, whatever the grouping. A request that cannot be met exactly is refused, never approximated.

    How: a Gaussian copula (Emrich and Piedmonte, "A method for generating high-dimensional multivariate binary
    variates", The American Statistician 45, 1991). Variable i is 1 where a standard normal z_i lies below h_i, the
    normal quantile of its prevalence; for each pair the correlation of the two normals is solved for numerically, so
    that the *binary* variables have the requested phi.

    Groups: variables that belong to the group come first in the Cholesky factor z = L e. Their part of e is drawn once
    per group, the rest once per row. So z has the same distribution in every row, group variables are constant within a
    group, and what varies within it still has the requested correlation with them: the group's hidden z, of which the
    group variable is only the sign, makes the others more or less likely in all its rows. Rows of one group are
    independent of each other given that hidden z. What is estimated from n rows is as sharp as the number of groups.
    """

    names: tuple[str, ...]
    prevalence: Matrix  # (a,)
    correlation: Matrix  # (a, a): of the binary variables
    latent: Matrix  # (a, a): of the normals behind them

    @classmethod
    def fit(cls, names: Sequence[str], prevalence: Matrix, correlation: Matrix) -> Self:
        """Find the distribution with these prevalences and phi correlations, or say why there is none."""
        _check_prevalence(names, prevalence)
        _check_correlation(names, correlation)
        _check_bounds(names, prevalence, correlation)
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


def _check_prevalence(names: Sequence[str], prevalence: Matrix) -> None:
    for name, share in zip(names, prevalence, strict=True):
        if not 0.0 < share < 1.0:
            raise InputError(f"the prevalence of {name} must lie strictly between 0 and 1; got {share:g}.")


def _check_correlation(names: Sequence[str], correlation: Matrix) -> None:
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


def _check_bounds(names: Sequence[str], prevalence: Matrix, correlation: Matrix) -> None:
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
