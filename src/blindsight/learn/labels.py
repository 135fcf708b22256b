"""What a classifier is asked: one of several classes, one class or not, or several independent yes/no attributes.

The answers become the signs that training takes (`linearmodel`), and the scores of a trained classifier become answers
again. Two classes are one question: a single row of weights, whose score also ranks (detection).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.learn.linearmodel import Floats, Signs, attribute_signs, class_signs
from blindsight.metrics import accuracy, balanced_accuracy


@dataclass(frozen=True, eq=False)
class Classes:
    """One class per sample; `names` are all there are, sorted."""

    names: NDArray[Any]

    def __post_init__(self) -> None:
        if self.names.ndim != 1 or len(self.names) < 2:
            raise InputError("a classifier tells at least two classes apart; got one class.")

    @property
    def rows(self) -> int:
        """How many rows of weights: one per class, or a single one for two classes."""
        return 1 if len(self.names) == 2 else len(self.names)

    def numbers(self, y: ArrayLike) -> NDArray[np.int64]:
        """Return the labels as positions in `names`; an unknown label is refused."""
        labels = np.asarray(y)
        if labels.ndim != 1:
            raise InputError(f"labels must be one per sample; got shape {labels.shape}.")
        try:
            places = np.minimum(np.searchsorted(self.names, labels), len(self.names) - 1)
            strange = labels[self.names[places] != labels]
        except TypeError:
            strange = labels
        if strange.size:
            raise InputError(
                f"{len(strange)} labels are none of the {len(self.names)} classes, which are those of the public data "
                "unless named by `classes`."
            )
        return places.astype(np.int64)

    def signs(self, y: ArrayLike) -> Signs:
        """Return what training takes."""
        numbers = self.numbers(y)
        return attribute_signs(numbers) if self.rows == 1 else class_signs(numbers, self.rows)

    def scores(self, scores: Floats) -> Floats:
        """Return scores as callers expect them: (n,) for two classes."""
        return scores[:, 0] if self.rows == 1 else scores

    def answers(self, scores: Floats) -> NDArray[Any]:
        """Return the class of every sample."""
        best = (scores[:, 0] > 0).astype(np.int64) if self.rows == 1 else scores.argmax(axis=1)
        answers: NDArray[Any] = self.names[best]
        return answers

    def quality(self, scores: Floats, y: ArrayLike) -> float:
        """Return the accuracy averaged over the classes, as the paper reports it."""
        truth, guess = self.numbers(y), self.numbers(self.answers(scores))
        return balanced_accuracy(truth, guess) if len(np.unique(truth)) > 1 else accuracy(truth, guess)


@dataclass(frozen=True, eq=False)
class Attributes:
    """Several independent attributes per sample, each 1 (yes), 0 (no) or -1 (unknown)."""

    count: int

    @property
    def rows(self) -> int:
        """How many rows of weights."""
        return self.count

    def signs(self, y: ArrayLike) -> Signs:
        """Return what training takes; an unknown attribute trains nothing."""
        attributes = np.asarray(y)
        if attributes.ndim != 2 or attributes.shape[1] != self.count:
            raise InputError(f"attributes must have {self.count} columns; got shape {attributes.shape}.")
        return attribute_signs(attributes)

    def scores(self, scores: Floats) -> Floats:
        """Return scores as callers expect them."""
        return scores

    def answers(self, scores: Floats) -> NDArray[Any]:
        """Return 1 or 0 for every sample and attribute."""
        return (scores > 0).astype(np.int64)

    def quality(self, scores: Floats, y: ArrayLike) -> float:
        """Return the accuracy averaged over the attributes, over the samples of which each is known."""
        signs = self.signs(y)
        known = (signs != 0).sum(axis=0)
        if not known.any():
            raise InputError("no attribute of any sample is known, so nothing can be scored.")
        right = ((scores > 0) == (signs > 0)) & (signs != 0)
        return float(np.mean(right.sum(axis=0)[known > 0] / known[known > 0]))


Labels = Classes | Attributes
