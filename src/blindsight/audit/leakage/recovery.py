"""What an attack gives back: candidates for a private sample, the most plausible first.

A candidate is a feature vector of the victim, never more certain than the attack: a step of a linear model without a
bias leaves the sign of sample and label open, an unknown learning rate leaves the length open, so an attack returns all
that remain possible. `Recovery.closest` scores them with the truth in hand, which only an audit has.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.leakage.steps import NO_PENALTY, Penalty
from blindsight.errors import InputError

Vector = NDArray[np.float64]

RECOVERED = 0.99
"""A |cosine| with the truth from which on a vector counts as recovered."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One possible sample and its label (None: any), under the settings that make it one.

    `source` tells who would choose these settings, `plausibility` in (0, 1] how much the sample looks like public ones.
    """

    sample: Vector
    label: int | None
    learning_rate: float
    penalty: Penalty = NO_PENALTY
    source: str = "given"
    plausibility: float | None = None

    def __repr__(self) -> str:
        scored = "" if self.plausibility is None else f", plausibility {self.plausibility:.3g}"
        return f"<Candidate: {self.sample.size} features, label {self.label}, {self.source}{scored}>"


@dataclass(frozen=True, eq=False)
class Recovery:
    """All candidates, best first; none if the step told nothing, and then `reason` says why."""

    candidates: tuple[Candidate, ...] = field(repr=False)
    reason: str = ""

    @property
    def best(self) -> Candidate:
        """The first candidate."""
        if not self.candidates:
            raise InputError(f"nothing was recovered: {self.reason}")
        return self.candidates[0]

    def closest(self, truth: ArrayLike) -> float:
        """Return the largest |cosine| of any candidate with the true sample; 0 if there is none."""
        return max((abs(cosine(candidate.sample, truth)) for candidate in self.candidates), default=0.0)

    def nearest(self, truth: ArrayLike) -> Vector:
        """Return the candidate at the smallest angle to the true sample; zeros if there is none."""
        samples = [np.zeros(np.shape(truth)), *(candidate.sample for candidate in self.candidates)]
        return max(samples, key=lambda sample: cosine(sample, truth))


def cosine(left: ArrayLike, right: ArrayLike) -> float:
    """Return the cosine of the angle between two vectors; 0 if either is zero.

    >>> cosine([3.0, 0.0], [3.0, 4.0])
    0.6
    """
    one, other = np.ravel(np.asarray(left, dtype=np.float64)), np.ravel(np.asarray(right, dtype=np.float64))
    if one.shape != other.shape:
        raise InputError(f"only vectors of one length have an angle; got {one.size} and {other.size} numbers.")
    lengths = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float(one @ other) / lengths if lengths > 0 else 0.0
