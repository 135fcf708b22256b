"""What methods that learn from several owners share: everybody's data come in, scores of test pictures go out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.learn.model import Attributes, Classes, Labels

Floats = NDArray[np.float32]
Pair = tuple[Floats, NDArray[np.int64]]


@dataclass(frozen=True)
class OwnersData:
    """Features and labels of the public and of every owner; of the test pictures the features only.

    Labels are classes 0, 1, ... (n,) or attributes (n, a). Methods answer with the scores (n, classes or attributes)
    of the test pictures, or with one such array for each of several models.
    """

    public: Pair
    owners: tuple[Pair, ...]
    test: Floats

    @property
    def multilabel(self) -> bool:
        """Tell whether labels are attributes."""
        return self.public[1].ndim == 2

    @property
    def labels(self) -> Labels:
        """What the labels say."""
        y = self.public[1]
        return Attributes(y.shape[1]) if self.multilabel else Classes(np.unique(y))

    @property
    def everyone(self) -> Pair:
        """All training data in one place."""
        return _joined((self.public, *self.owners))

    @property
    def with_public(self) -> list[Pair]:
        """Each owner's data with the public data added, as the paper does for methods without an initial model."""
        return [_joined((self.public, owner)) for owner in self.owners]


def _joined(pairs: tuple[Pair, ...]) -> Pair:
    return np.concatenate([X for X, _ in pairs]), np.concatenate([y for _, y in pairs])
