"""Whose face is it? How often the nearest known face to a reconstructed one belongs to the same person.

The attacker has a gallery: pictures with names, say from a social network, and shows them through the same decoder as
the probes. A probe gets the name of the gallery picture with the largest cosine after the gallery's mean is taken from
both; ties are broken at random, so a reconstruction that is the same for everybody matches at chance, not never.

Chance is the rate of the best blind guess: always the person with the most probes; with as many probes of everybody,
1 / persons. Intervals are those of Clopper & Pearson. They take probes for independent: exact where reconstructions
tell nothing of persons, and where each person has one probe; with more, they speak of these persons only, since one
person's pictures are recognised together or not at all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.finding import Interval
from blindsight.audit.rates import rate
from blindsight.errors import InputError
from blindsight.rng import science

_TIED = 1e-6  # cosines this near are the same up to rounding


@dataclass(frozen=True)
class MatchRate:
    """How many of `probes` got the right name among so many `persons`, and the rate of a blind guess."""

    hits: int
    probes: int
    persons: int
    chance: float

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return the rate with its exact interval."""
        return rate(self.hits, self.probes, confidence=confidence)

    def beats_chance(self, confidence: float = 0.95) -> bool:
        """Whether the rate is above a blind guess's; by luck alone it is with at most (1 - confidence) / 2."""
        return self.interval(confidence).low > self.chance

    def __str__(self) -> str:
        return f"{self.hits} of {self.probes} ({self.hits / self.probes:.0%}; blind {self.chance:.1%})"


def match_rate(
    probes: ArrayLike,
    gallery: ArrayLike,
    *,
    probe_persons: ArrayLike,
    gallery_persons: ArrayLike,
    random_state: int | np.random.Generator | None = 0,
) -> MatchRate:
    """Name every probe, pictures or features (n, ...), after its nearest neighbour in the gallery.

    >>> faces = np.eye(3)
    >>> str(match_rate(faces + 0.1, faces, probe_persons=[0, 1, 2], gallery_persons=[0, 1, 2]))
    '3 of 3 (100%; blind 33.3%)'
    """
    known, asked = _rows(gallery), _rows(probes)
    names, truth = np.asarray(gallery_persons), np.asarray(probe_persons)
    _check(known, asked, names, truth)
    mean = known.mean(axis=0)
    cosines = _unit(asked - mean) @ _unit(known - mean).T
    nearest = cosines >= cosines.max(axis=1, keepdims=True) - _TIED
    draw = science(random_state).random(cosines.shape, dtype=np.float32)
    found = names[np.argmax(np.where(nearest, draw, -1), axis=1)]
    counts = np.unique(truth, return_counts=True)[1]
    return MatchRate(int(np.sum(found == truth)), len(asked), len(np.unique(names)), float(counts.max() / len(asked)))


def _rows(pictures: ArrayLike) -> NDArray[np.float32]:
    """Return everything known of each picture as one row."""
    rows = np.asarray(pictures)
    if rows.ndim < 2 or not rows.size or rows.dtype.kind not in "biuf":
        raise InputError(f"faces to match must be numbers of shape (n, ...); got {rows.dtype} {rows.shape}.")
    return rows.reshape(len(rows), -1).astype(np.float32)


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows of length 1; rows of zeros stay zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: NDArray[np.float32] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return units


def _check(known: NDArray[Any], asked: NDArray[Any], names: NDArray[Any], truth: NDArray[Any]) -> None:
    if known.shape[1] != asked.shape[1]:
        raise InputError(
            f"probes and gallery must be of one kind; got {asked.shape[1]} and {known.shape[1]} numbers a face."
        )
    if names.shape != known.shape[:1] or truth.shape != asked.shape[:1]:
        raise InputError(
            f"every face needs its person; got {truth.shape} persons of {len(asked)} probes and {names.shape} of "
            f"{len(known)} in the gallery."
        )
    if len(np.unique(names)) < 2:
        raise InputError("a gallery needs 2 persons or more: with one, every match is right.")
    if not np.isin(truth, names).all():
        raise InputError("every person of the probes must be in the gallery: others could never be matched.")
