"""A member's part in clustering together: move the shared centroids towards its own data, send little.

Yonetani et al. 2017, supplement, section 3 ("Clustering on Caltech101/256"): k-means++ on public data gives the first
centroids, users refine them and the centroids are averaged. The paper's sparse centroids are in `papers.dphe`.

*The local step.* The minimiser of |w - x|^2 / 2 over the samples of one cluster is their mean, so there is no step
size. The only approximation is that mini-batches are assigned one after the other, to the centroids as moved so far;
meanwhile each shared centroid counts as one average cluster of samples (the proximal function of dual averaging, Xiao
2010) to keep it from jumping to the first sample it meets. With one batch a pass is a step of Lloyd's algorithm.

*What is sent, and how it is averaged.* A member sends count * difference to the shared centroid, and the count, of each
cluster: the sums over members give the mean of *all* samples of a cluster, exactly Lloyd's step on the pooled data when
nothing is left out. No memory is needed: the difference to the shared centroids is measured again in each round, so
what was not sent shows up again. With ``sparsify="schedule"`` a member offers all moves and a public schedule
(`sums.support`) says which have their turn; the counts are part of every round.

*Empty clusters.* A cluster in which no member has a sample stays where it is; placing it elsewhere would take a sample.

`ClusterLearner` puts this behind the `Learner` of the rounds; `ClusterModel` is what clustering together leaves behind:
centroids that can only be applied, saved and read again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.features import Standardiser
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.learn.model import Array, Floats, read_public
from blindsight.metrics import adjusted_mutual_information
from blindsight.rng import science
from blindsight.rounds import Memory, RoundSum, Task, Update
from blindsight.rounds.member import sparsity, top_blocks, top_entries
from blindsight.rounds.task import Pair
from blindsight.validation import check_features

Sparsify = Literal["topk", "blocks", "schedule", "none"]


@dataclass(frozen=True, kw_only=True)
class ClusterTraining:
    """How every member moves the centroids; all members of a run use the same."""

    sparsify: Sparsify = "topk"
    sparsity: float = 0.9
    block_size: int = 95  # 32-bit slots of one plaintext under a 3072-bit key
    passes: int = 1
    batch_size: int = 1024

    def __post_init__(self) -> None:
        if self.sparsify not in get_args(Sparsify):
            raise UnknownNameError("sparsify", str(self.sparsify), get_args(Sparsify))
        if not 0 <= self.sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {self.sparsity}.")
        if min(self.passes, self.batch_size, self.block_size) < 1:
            raise InputError("passes, batch_size and block_size must be at least 1.")


@dataclass(frozen=True, eq=False)
class LocalClusters:
    """What one member has after a round. Only `sent` may leave the member, and only encrypted."""

    sent: Array  # one long vector: cluster by cluster, count * difference; then all counts

    @property
    def sparsity(self) -> float:
        """The share of exact zeros in what is sent."""
        return sparsity(self.sent)

    def __repr__(self) -> str:
        return f"LocalClusters({self.sent.size} numbers, sparsity={self.sparsity:.3f})"


def initial_centroids(X: ArrayLike, clusters: int, *, random_state: int | np.random.Generator | None = None) -> Array:
    """Choose the first centroids among public samples by k-means++ (Arthur & Vassilvitskii 2007)."""
    features = check_features(X, precision="wide")
    if not 1 <= clusters <= len(features):
        raise InputError(f"clusters must be in 1..{len(features)}, the public samples at hand; got {clusters}.")
    seed = int(science(random_state).integers(2**32))
    from sklearn.cluster import kmeans_plusplus  # half a second, and owners never need it

    return np.asarray(kmeans_plusplus(features, clusters, random_state=seed)[0], dtype=np.float64)


def assign(centroids: ArrayLike, X: ArrayLike) -> NDArray[np.int64]:
    """Return the nearest centroid of every sample; the first of several equally near."""
    features = check_features(X, precision="wide")
    return _nearest(check_centroids(centroids, features).astype(features.dtype), features)


def inertia(centroids: ArrayLike, X: ArrayLike) -> float:
    """Return the mean squared distance of the samples to their nearest centroid."""
    features = check_features(X, precision="wide")
    chosen = check_centroids(centroids, features)[assign(centroids, features)]
    return float(np.mean(np.sum((features - chosen) ** 2, axis=1)))


def local_clusters(
    shared: ArrayLike,
    X: ArrayLike,
    training: ClusterTraining,
    *,
    random_state: int | np.random.Generator | None = None,
) -> LocalClusters:
    """Move the `shared` centroids on one member's data and decide what to send."""
    features = check_features(X, precision="wide")
    centroids = check_centroids(shared, features)
    seed = int(science(random_state).integers(2**63))
    moves, counts = differences(centroids, centroids, features, training, seed)
    everything = np.concatenate([moves.ravel(), counts])
    return LocalClusters(np.where(_chosen(moves, training), everything, 0.0))


def next_centroids(shared: ArrayLike, received: ArrayLike) -> Array:
    """Return the next shared centroids from the sum of what members sent."""
    centroids, total = np.asarray(shared, dtype=np.float64), np.asarray(received, dtype=np.float64)
    clusters, dimensions = centroids.shape
    if total.shape != (clusters * (dimensions + 1),):
        raise InputError(
            f"{clusters} centroids of {dimensions} features need {clusters * (dimensions + 1)} numbers, counts "
            f"included; got {total.shape}."
        )
    moves, counts = total[:-clusters].reshape(centroids.shape), total[-clusters:, None]
    return centroids + np.where(counts > 0, moves / np.where(counts > 0, counts, 1.0), 0.0)


def differences(
    shared: Array,
    anchor: Array,
    features: Floats,
    training: ClusterTraining,
    seed: int,
    shrink: Callable[[Array], Array] = np.positive,
) -> tuple[Array, Array]:
    """Return count * (local centroid - anchor) and the counts of a member's own samples after its passes.

    `shrink` is the proximal map of a penalty on the difference; by default there is none.
    """
    generator = science(seed)
    batches = -(-len(features) // training.batch_size)
    prior = len(features) / len(shared)  # each shared centroid counts as one average cluster of samples
    moving, away, counts = shared, np.zeros_like(shared), np.zeros(len(shared))
    for _ in range(training.passes):
        sums, counts = np.zeros_like(shared), np.zeros(len(shared))
        for rows in np.array_split(generator.permutation(len(features)), batches):
            members = np.equal.outer(np.arange(len(shared)), _nearest(moving.astype(features.dtype), features[rows]))
            sums += members.astype(features.dtype) @ features[rows]
            counts += members.sum(axis=1)
            blend = (prior * shared + sums) / (prior + counts)[:, None]
            moving = anchor + shrink(blend - anchor)
        away = shrink(sums / np.maximum(counts, 1)[:, None] - anchor)
        moving = np.where(counts[:, None] > 0, anchor + away, shared)
    return counts[:, None] * away, counts


def _chosen(moves: Array, training: ClusterTraining) -> NDArray[np.bool_]:
    """Mark what is sent: all counts, and of the moves those that are largest beside the whole move of their cluster.

    A centroid that moved in a few features only lies between places; were the farthest moves sent first, the centroids
    that moved would swallow the samples of those that had to wait.
    """
    relative = moves / np.maximum(np.linalg.norm(moves, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    counts = np.full(len(moves), np.inf)
    importance = np.concatenate([relative.ravel(), counts])
    chosen = np.ones(importance.shape, dtype=np.bool_)
    if training.sparsify == "topk":
        chosen = top_entries(importance, 1 - training.sparsity)
    elif training.sparsify == "blocks":
        chosen = top_blocks(importance, training.block_size, 1 - training.sparsity)
    chosen[-len(moves) :] = True
    return chosen


def _nearest(centroids: Floats, features: Floats) -> NDArray[np.int64]:
    """|x - c|^2 without |x|^2, which is the same for every centroid."""
    partial: Floats = np.sum(centroids**2, axis=1) - 2 * (features @ centroids.T)
    nearest: NDArray[np.int64] = partial.argmin(axis=1).astype(np.int64)
    return nearest


def check_centroids(centroids: ArrayLike, features: Floats) -> Array:
    """Return centroids of the width of the features."""
    points = np.asarray(centroids, dtype=np.float64)
    return check_features(points, features.shape[1], what="centroids", precision="wide")


@dataclass(frozen=True, eq=False, repr=False)
class ClusterLearner:
    """The `Learner` of clusters; public and validation features are standardised already.

    `most_samples` bounds how many samples a cluster of all members together has: what is sent is a sum over them.
    """

    clusters: int
    standardiser: Standardiser
    training: ClusterTraining
    public: Floats
    most_samples: int
    validation: tuple[Floats, NDArray[Any]] | None = None

    additive: ClassVar[bool] = True

    @classmethod
    def of(cls, task: Task, validation: Pair | None) -> Self:
        """Return the learner of a task (`kmeans.cluster_task`)."""
        standardiser, public = read_public(task.arrays)
        clusters, most_samples = task.settings["clusters"], task.settings["most_samples"]
        if type(clusters) is not int or not 1 <= clusters <= len(public):
            raise InputError(f"n_clusters must be in 1 ... {len(public)}, the public samples; got {clusters}.")
        if type(most_samples) is not int or most_samples < 1:
            raise InputError(f"most_samples must be a whole number of at least 1; got {most_samples!r}.")
        held_out = None if validation is None else (standardiser.apply(validation[0]), validation[1])
        return cls(clusters, standardiser, cls.training_of(task), public, most_samples, held_out)

    @classmethod
    def training_of(cls, task: Task) -> ClusterTraining:
        """Return how members train, from the settings of a task."""
        return ClusterTraining(**task.settings["training"])

    @property
    def size(self) -> int:
        return self.clusters * (len(self.standardiser.mean) + 1)

    @property
    def always(self) -> int:
        """The counts are part of every round."""
        return self.clusters

    @property
    def largest(self) -> float:
        return 4.0 * max(self.most_samples, 16)

    def first(self, seed: int) -> Array:
        """Choose the first centroids among the public samples."""
        return initial_centroids(self.public, self.clusters, random_state=seed)

    def update(self, data: Any, shared: Array, memory: Memory, seed: int) -> Update:
        """Move the shared centroids on one member's features."""
        return Update(local_clusters(shared, self.examples(data), self.training, random_state=seed).sent)

    def examples(self, data: Any) -> Floats:
        """Return what a member trains on."""
        return self.standardiser.apply(check_features(data, len(self.standardiser.mean), precision="wide"))

    def combine(self, shared: Array, total: RoundSum) -> Array:
        """Return the next shared centroids."""
        return next_centroids(shared, total.values)

    def score(self, shared: Array) -> float | None:
        """Return the adjusted mutual information of clusters and groups, if there are validation data."""
        if self.validation is None:
            return None
        features, y = self.validation
        return adjusted_mutual_information(y, assign(shared, features))


_KIND = "blindsight/cluster-model.1"


@dataclass(frozen=True, eq=False)
class ClusterModel:
    """A standardiser, and (clusters, D) centroids of standardised features."""

    centroids: Array
    standardiser: Standardiser

    def __post_init__(self) -> None:
        if self.centroids.ndim != 2 or self.centroids.shape[1:] != self.standardiser.mean.shape:
            raise InputError(f"centroids must be (clusters, D); got shape {self.centroids.shape}.")

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the nearest cluster of every sample of raw features."""
        return assign(self.centroids, self.standardiser.apply(X))

    def save(self, path: AnyPath) -> None:
        """Write the model to one file, whole or not at all."""
        arrays = {"centroids": self.centroids, "mean": self.standardiser.mean, "scale": self.standardiser.scale}
        write_arrays(path, _KIND, {}, arrays)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read a model that `save` wrote; a damaged file raises `CorruptFileError`."""
        _, arrays = read_arrays(path, _KIND)
        try:
            return cls(arrays["centroids"], Standardiser(arrays["mean"], arrays["scale"]))
        except (KeyError, InputError) as error:
            raise CorruptFileError(f"{path} holds no usable model: {error}.") from None
