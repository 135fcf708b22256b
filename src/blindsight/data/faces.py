"""Bundled face pictures of nobody, with labels whose joint distribution is known because the caller chooses it.

Guarantee: each picture's twelve attributes follow one joint distribution with exactly the requested prevalences and
Pearson (phi) correlations (see `copula`); all twelve are free, so a person can smile with frowning brows. Attributes
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

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.copula import Copula
from blindsight.data.dataset import Dataset
from blindsight.data.portraits.studio import Portraits
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
GENERATOR = 1
"""Version of the pixels: rises whenever the same arguments would give other pictures."""

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
) -> Dataset:
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
    return Dataset(
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
    portraits = Portraits.cast(dict(zip(ATTRIBUTES, attributes.T, strict=True)), persons, traits)
    _keep_freed_memory()
    images = np.empty((len(persons), size, size, 3), dtype=np.uint8)
    for start in range(0, len(images), batch):
        rows = slice(start, start + batch)
        images[rows] = portraits[rows].paint(size, grain)
        progress("drawing faces", min(start + batch, len(images)), len(images))
    return images


def _streams(random_state: int) -> list[np.random.Generator]:
    """Return independent randomness for attributes, days, traits and sensor noise."""
    return science(random_state).spawn(4)


def _keep_freed_memory() -> None:
    """Let glibc reuse memory instead of handing it back to the system and paging it in anew: a quarter of the time.

    Once a block was freed, glibc keeps blocks up to that size (at most 32 MB) for itself. Elsewhere this does nothing.
    """
    block = np.empty(31 * 2**20, dtype=np.uint8)
    del block


def _spread_over(days: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    runs = np.tile(np.arange(days, dtype=np.int64), (-(-n // days), 1))
    spread: NDArray[np.int64] = rng.permuted(runs, axis=1).ravel()[:n]
    return spread


def _matrix(correlation: Correlation) -> NDArray[np.float64]:
    """Return a correlation matrix as given, or built from named pairs."""
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
