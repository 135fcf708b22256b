"""One owner's part in clustering together: move the shared centroids towards its own data, send little.

Yonetani et al. 2017, supplement, section 3 ("Clustering on Caltech101/256"): k-means++ on public data gives the first
centroids, users refine them by the L1-regularised stochastic k-means of Jumutc, Langone & Suykens (IEEE Big Data
2015), its strength is searched until sparsity exceeds 90%, and the sparse centroids are averaged.

*The local step.* For the samples x_1, ..., x_t of one cluster, regularised dual averaging (Xiao 2010) of the losses
|w - x|^2 / 2 with the penalty strength * |w - a|_1 has a closed form without any step size, because the square part of
every loss can be kept whole: w = a + soft(mean(x) - a, strength). This is also the exact minimiser, so the only
approximation left is that mini-batches are assigned one after the other, to the centroids as moved so far; meanwhile
each shared centroid counts as one average cluster of samples (the proximal function of dual averaging) to keep it from
jumping to the first sample it meets. With one batch a pass is a step of Lloyd's algorithm.

*What is sparse, and how it is averaged.* With ``target="centroids"`` (the paper) the centroids themselves are sparse,
a = 0, and the plain mean over users becomes the next centroid, whether a user has a thousand samples of a cluster or
none; one with none sends the largest entries of the shared centroid. With ``target="update"``, the default, a is the
shared centroid and what is sent is count * difference and the count of each cluster: the sums over owners give the mean
of *all* samples of a cluster, exactly Lloyd's step on the pooled data when nothing is left out. No residual is needed
here: the difference to the shared centroids is measured anew in each round, so what was not sent shows up again. With
``sparsify="schedule"`` an owner offers all moves and a public schedule (`sums.support`) says which are the round's; the
counts are part of every round.

*Empty clusters.* A cluster in which no owner has a sample stays where it is; placing it elsewhere would take a sample.

| paper | here |
| --- | --- |
| centroids w_k | `shared`, (clusters, D) |
| eta, the strength of the L1 term | `LocalClusters.strength` |
| sparse local centroids | `LocalClusters.sent`, clusters * (D + 1) numbers; the last ones count the samples |

`ClusterLearner` puts this behind the `Learner` of the rounds; `ClusterModel` is what clustering together leaves behind:
centroids that can only be applied, saved and read again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.features import Standardiser
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.learn.model import Array, Floats
from blindsight.learn.owners import Load
from blindsight.learn.rounds import Memory, Proposal
from blindsight.learn.sparsity import search_strength, sparsity, top_blocks, top_entries
from blindsight.metrics import adjusted_mutual_information
from blindsight.rng import science
from blindsight.sums import RoundResult
from blindsight.validation import check_features

Target = Literal["update", "centroids"]
Sparsify = Literal["topk", "blocks", "schedule", "strength", "none"]


@dataclass(frozen=True, kw_only=True)
class ClusterTraining:
    """How every owner moves the centroids; all owners of a federation use the same."""

    target: Target = "update"
    sparsify: Sparsify = "topk"
    sparsity: float = 0.9
    block_size: int = 95  # 32-bit slots of one plaintext under a 3072-bit key
    passes: int = 1
    batch_size: int = 1024

    def __post_init__(self) -> None:
        for kind, choices in (("target", Target), ("sparsify", Sparsify)):
            if getattr(self, kind) not in get_args(choices):
                raise UnknownNameError(kind, str(getattr(self, kind)), get_args(choices))
        if not 0 <= self.sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {self.sparsity}.")
        if min(self.passes, self.batch_size, self.block_size) < 1:
            raise InputError("passes, batch_size and block_size must be at least 1.")
        if self.target == "centroids" and self.sparsify != "strength":
            raise InputError("target='centroids' is made sparse by its penalty: it needs sparsify='strength'.")


@dataclass(frozen=True, eq=False)
class LocalClusters:
    """What one owner has after a round. Only `sent` may leave the owner, and only encrypted."""

    sent: Array  # one long vector: cluster by cluster, count * difference or the sparse centroid; then all counts
    strength: float | None  # of the L1 penalty, where it was searched

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
    return _nearest(_check_centroids(centroids, features).astype(features.dtype), features)


def inertia(centroids: ArrayLike, X: ArrayLike) -> float:
    """Return the mean squared distance of the samples to their nearest centroid."""
    features = check_features(X, precision="wide")
    chosen = _check_centroids(centroids, features)[assign(centroids, features)]
    return float(np.mean(np.sum((features - chosen) ** 2, axis=1)))


def local_clusters(
    shared: ArrayLike,
    X: ArrayLike,
    training: ClusterTraining,
    *,
    strength: float | None = None,
    random_state: int | np.random.Generator | None = None,
) -> LocalClusters:
    """Move the `shared` centroids on one owner's data and decide what to send; `strength` is that of its last round."""
    features = check_features(X, precision="wide")
    centroids = _check_centroids(shared, features)
    seed = int(science(random_state).integers(2**63))
    if training.sparsify != "strength":
        moves, counts = _differences(centroids, centroids, features, training, 0.0, seed)
        everything = np.concatenate([moves.ravel(), counts])
        return LocalClusters(np.where(_chosen(moves, training), everything, 0.0), None)
    anchor = centroids if training.target == "update" else np.zeros_like(centroids)
    stay = np.where(top_entries(centroids, 1 - training.sparsity), centroids, 0.0)

    def sent_at(candidate: float) -> Array:
        moves, counts = _differences(centroids, anchor, features, training, candidate, seed)
        if training.target == "centroids":
            moves = np.where(counts[:, None] > 0, moves / np.maximum(counts, 1)[:, None], stay)
        return np.concatenate([moves.ravel(), counts])

    guess = strength or max(float(np.quantile(np.abs(features.mean(axis=0) - anchor), training.sparsity)), 1e-12)
    return LocalClusters(*search_strength(sent_at, training.sparsity, guess))


def next_centroids(shared: ArrayLike, received: ArrayLike, training: ClusterTraining) -> Array:
    """Return the next shared centroids from the mean (or, for the update target, the sum) of what owners sent."""
    centroids, total = np.asarray(shared, dtype=np.float64), np.asarray(received, dtype=np.float64)
    clusters, dimensions = centroids.shape
    if total.shape != (clusters * (dimensions + 1),):
        raise InputError(
            f"{clusters} centroids of {dimensions} features need {clusters * (dimensions + 1)} numbers, counts "
            f"included; got {total.shape}."
        )
    moves, counts = total[:-clusters].reshape(centroids.shape), total[-clusters:, None]
    if training.target == "centroids":
        return moves
    return centroids + np.where(counts > 0, moves / np.where(counts > 0, counts, 1.0), 0.0)


def _differences(
    shared: Array, anchor: Array, features: Floats, training: ClusterTraining, strength: float, seed: int
) -> tuple[Array, Array]:
    """Return count * (local centroid - anchor) and the counts of an owner's own samples after its passes."""
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
            moving = anchor + _soft(blend - anchor, strength)
        away = _soft(sums / np.maximum(counts, 1)[:, None] - anchor, strength)
        moving = np.where(counts[:, None] > 0, anchor + away, shared)
    return counts[:, None] * away, counts


def _soft(values: Array, strength: float) -> Array:
    shrunk: Array = np.sign(values) * np.maximum(np.abs(values) - strength, 0)
    return shrunk


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


def _check_centroids(centroids: ArrayLike, features: Floats) -> Array:
    points = np.asarray(centroids, dtype=np.float64)
    return check_features(points, features.shape[1], what="centroids", precision="wide")


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
