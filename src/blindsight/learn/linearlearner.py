"""What owners learn in a federation of linear classifiers: `linear` put behind the `Learner` of a `federation`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.learn.federation import Memory, Proposal
from blindsight.learn.labels import Labels
from blindsight.learn.linear import LinearTraining, local_update, train
from blindsight.learn.linearmodel import Array, Floats, Signs, Standardiser, decision_function
from blindsight.learn.owners import Load, check_pair
from blindsight.learn.sparsity import Residual
from blindsight.sums import RoundResult


@dataclass(frozen=True, eq=False, repr=False)
class LinearLearner:
    """Refines shared weights; public and validation features are standardised already, owners' are when loaded.

    An owner whose samples all have the same answer to every question learns nothing from them alone (see `linear`). It
    gets the public data as contrast.
    """

    owners: Mapping[str, Load]
    labels: Labels
    standardiser: Standardiser
    training: LinearTraining
    public: tuple[Floats, Signs]
    validation: tuple[Floats, NDArray[Any]] | None

    @property
    def adds(self) -> bool:
        return self.training.target == "update"

    @property
    def validated(self) -> bool:
        return self.validation is not None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the weights."""
        return self.labels.rows, self.public[0].shape[1] + 1

    def first(self, seed: int) -> Array:
        """Train the public model; a class without public examples begins with "no"."""
        start = np.zeros(self.shape)
        start[:, -1] = -1
        return train(*self.public, self.training, start=start, random_state=seed)

    def propose(self, owner: str, shared: Array, memory: Memory, seed: int) -> Proposal:
        """Refine the shared weights on one owner's data."""
        X, y = check_pair(self.owners[owner]())
        features, signs = self.standardiser.apply(X), self.labels.signs(y)
        if not ((signs > 0).any(axis=0) & (signs < 0).any(axis=0)).any():
            features, signs = np.vstack([features, self.public[0]]), np.vstack([signs, self.public[1]])
        residual = None if memory.held is None else Residual(memory.held.reshape(self.shape))
        done = local_update(
            shared, features, signs, self.training, residual=residual, strength=memory.strength, random_state=seed
        )
        # The elastic net keeps no residual: what did not arrive is learned again.
        held = None if self.training.sparsify == "strength" else done.residual.held.ravel()
        return Proposal(done.sent.ravel(), Memory(held, done.strength))

    def combine(self, shared: Array, result: RoundResult) -> Array:
        """Return the mean of classifiers, or the shared one moved by the mean of the updates."""
        mean = result.average.reshape(self.shape)
        return shared + mean if self.adds else mean

    def score(self, shared: Array) -> float | None:
        """Return the accuracy averaged over classes or attributes, if there are validation data."""
        if self.validation is None:
            return None
        features, y = self.validation
        return self.labels.quality(decision_function(shared, features), y)
