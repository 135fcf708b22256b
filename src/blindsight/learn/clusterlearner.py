"""What owners learn in a federation of clusters: `clustering` put behind the `Learner` of a `federation`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from blindsight.learn.clustering import ClusterTraining, assign, initial_centroids, local_clusters, next_centroids
from blindsight.learn.federation import Memory, Proposal
from blindsight.learn.linearmodel import Array, Floats, Standardiser
from blindsight.learn.owners import Load
from blindsight.metrics import adjusted_mutual_information
from blindsight.sums import RoundResult
from blindsight.validation import check_features


@dataclass(frozen=True, eq=False, repr=False)
class ClusterLearner:
    """Moves shared centroids; public and validation features are standardised already, owners' are when loaded."""

    owners: Mapping[str, Load]
    clusters: int
    standardiser: Standardiser
    training: ClusterTraining
    public: Floats
    validation: tuple[Floats, NDArray[Any]] | None

    @property
    def adds(self) -> bool:
        return self.training.target == "update"

    @property
    def validated(self) -> bool:
        return self.validation is not None

    def first(self, seed: int) -> Array:
        """Choose the first centroids among the public samples."""
        return initial_centroids(self.public, self.clusters, random_state=seed)

    def propose(self, owner: str, shared: Array, memory: Memory, seed: int) -> Proposal:
        """Move the shared centroids on one owner's data; what is not sent shows up again in the next round."""
        features = self.standardiser.apply(check_features(self.owners[owner](), precision="wide"))
        done = local_clusters(shared, features, self.training, strength=memory.strength, random_state=seed)
        return Proposal(done.sent, Memory(None, done.strength))

    def combine(self, shared: Array, result: RoundResult) -> Array:
        """Return the next shared centroids."""
        received = result.values if self.adds else result.average
        return next_centroids(shared, received, self.training)

    def score(self, shared: Array) -> float | None:
        """Return the adjusted mutual information of clusters and groups, if there are validation data."""
        if self.validation is None:
            return None
        features, y = self.validation
        return adjusted_mutual_information(y, assign(shared, features))
