"""What members of the paper send: sparse classifiers and sparse centroids, by a penalty whose strength is searched.

Yonetani et al. 2017, section 3.2, and supplement, section 3.

| paper | here |
| --- | --- |
| users send sparse classifiers, their mean is the next one | ``PublishedClassifier("dphe", target="classifier")`` |
| linear SVM via SGD, elastic net, L1 ratio 0.5 | `ElasticNet(l1_ratio=0.5)` |
| strength "adjusted adaptively so that local classifiers had more than 90% sparsity" | `search_strength` |
| sparse centroids (L1-regularised stochastic k-means, Jumutc, Langone & Suykens 2015) | `PublishedKMeans` |
| every sum is opened, one user's own too | ``DpheOptions(minimum_per_position=1)`` |
| M = 0.1 D NC, the encryption capacity | (1 - sparsity) of the weights, in whole blocks for "block-dphe" |

A class that a member does not train is, as a sparse classifier, the largest of the shared weights; a cluster in which
it has no sample the largest entries of the shared centroid. With ``target="update"`` the elastic net lies around the
shared average instead (its square part is FedProx's proximal term, Li et al. 2020). Nothing is held back: the strength
alone is remembered from round to round. The library's own learners send differences, which costs less accuracy.

`selection` also chooses what a member sends under schemes that would send something else: for comparisons.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, UnknownNameError
from blindsight.learn.classifier import FederatedClassifier, classifier_task
from blindsight.learn.clustering import ClusterLearner, ClusterTraining, check_centroids, differences
from blindsight.learn.kmeans import FederatedKMeans, cluster_task
from blindsight.learn.linear import LinearLearner, LinearTraining, LocalProblem, Problem, refined
from blindsight.learn.model import Array, Floats, Labels
from blindsight.rng import science
from blindsight.rounds import EarlyStopping, Memory, Privacy, RoundSum, Sums, Task, Update, register_learner
from blindsight.rounds.member import sparsity, top_entries
from blindsight.rounds.task import Pair, Seed
from blindsight.sums import DpheOptions

Selection = Literal["strength", "topk", "blocks", "schedule", "none"]
Target = Literal["update", "classifier"]
ClusterTarget = Literal["update", "centroids"]

BLOCK = 95
"""32-bit slots of one plaintext under a 3072-bit key, which every scheme is compared at."""

_PASSES = 20  # an elastic net wants about ten to settle
_TRIALS = 16
_FIRST_STRIDE = math.log(4)  # how far the search first leaves a guess that is too low or too high; it doubles
_STRENGTH = struct.Struct(">d")


@dataclass(frozen=True, kw_only=True)
class ElasticNet:
    """The penalty that makes what is sent sparse, around zero (`target` "classifier") or the shared average."""

    target: Target = "classifier"
    sparsity: float = 0.9
    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        if self.target not in get_args(Target):
            raise UnknownNameError("target", str(self.target), get_args(Target))
        if not 0 <= self.sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {self.sparsity}.")
        if not 0 < self.l1_ratio <= 1:
            raise InputError(f"l1_ratio must be in (0, 1]; got {self.l1_ratio}.")


def penalised_update(
    shared: Array,
    X: Floats,
    signs: NDArray[np.int8],
    training: LinearTraining,
    net: ElasticNet,
    *,
    strength: float | None = None,
    random_state: Seed = None,
) -> tuple[Array, float]:
    """Return the sparse difference to the shared average, or the sparse classifier itself, and its strength.

    `strength` is that of the member's last round.
    """
    data = LocalProblem.of(X, signs, training)
    seed = int(science(random_state).integers(2**63))
    anchor, untrained, problem = shared, np.zeros(data.shape), data.problem
    if net.target == "classifier":
        anchor, problem = untrained, replace(problem, ridge=0 * problem.ridge)
        untrained = np.where(top_entries(shared, 1 - net.sparsity), shared, 0.0)
    begin, centre = data.pick(shared), data.pick(anchor)

    def sent_at(candidate: float) -> Array:
        lasso, pull = (data.columns(candidate * share) for share in (net.l1_ratio, 1 - net.l1_ratio))
        penalised = replace(problem, anchor=centre, lasso=lasso, pull=pull)
        return data.spread(refined(penalised, begin, training, seed) - centre, untrained)

    if not data.trained.any():
        return untrained, strength or 0.0
    return search_strength(sent_at, net.sparsity, strength or _first_strength(problem, centre, net))


def _first_strength(problem: Problem, centre: Floats, net: ElasticNet) -> float:
    """Guess the strength at which the wanted share of weights would not leave the centre in a first step."""
    pulls = np.abs(problem.gradient(centre)[:, :-1])
    return max(float(np.quantile(pulls, net.sparsity)) / net.l1_ratio, 1e-12)


def search_strength(
    train: Callable[[float], Array], target: float, guess: float, slack: float = 0.02
) -> tuple[Array, float]:
    """Find a penalty strength at which what `train` returns has sparsity in [target, target + slack].

    The search brackets the target from `guess` in growing strides and interpolates in the logarithm of the strength; it
    ends inside the slack or after sixteen trainings. It returns the trained values and their strength: those of the
    least strength that passed the target, or the sparsest ones if none did (a bias column that is never zero can make
    the target impossible). `train` must give the same answer for the same strength.
    """
    low: tuple[float, float] | None = None  # log strength and sparsity short of the target
    high: tuple[float, float] | None = None  # and past it
    best, best_sparsity, best_strength = np.zeros(0), -1.0, guess
    log, stride = math.log(guess), _FIRST_STRIDE
    for _ in range(_TRIALS):
        values = train(math.exp(log))
        found = sparsity(values)
        if found >= target or (high is None and found > best_sparsity):
            best, best_sparsity, best_strength = values, found, math.exp(log)
        if target <= found <= target + slack:
            break
        if found >= target:
            high = (log, found)
        else:
            low = (log, found)
        log = _next_log(low, high, target + slack / 2, stride)
        stride *= 2
    return best, best_strength


def _next_log(low: tuple[float, float] | None, high: tuple[float, float] | None, wanted: float, stride: float) -> float:
    """Return the next log strength to try: a stride outwards while one side is open, else between the two sides."""
    if low is not None and high is not None:
        gap = high[0] - low[0]
        share = (wanted - low[1]) / (high[1] - low[1]) if gap < 4 else 0.5
        return low[0] + min(max(share, 0.1), 0.9) * gap  # never too near an end
    open_end = low[0] + stride if low is not None else high[0] - stride if high is not None else 0.0
    return min(max(open_end, -80.0), 80.0)


class PublishedLearner(LinearLearner):
    """Sends what the elastic net leaves."""

    net: ElasticNet

    @classmethod
    def of(cls, task: Task, validation: Pair | None) -> Self:
        learner = super().of(task, validation)
        object.__setattr__(learner, "net", ElasticNet(**task.settings["net"]))
        return learner

    @property
    def additive(self) -> bool:  # type: ignore[override]
        return self.net.target == "update"

    def update(self, data: Any, shared: Array, memory: Memory, seed: int) -> Update:
        features, signs = self.examples(data)
        sent, strength = penalised_update(
            shared, features, signs, self.training, self.net, strength=_strength(memory), random_state=seed
        )
        return Update(sent.ravel(), Memory(extra=_STRENGTH.pack(strength)))

    def combine(self, shared: Array, total: RoundSum) -> Array:
        return super().combine(shared, total) if self.additive else total.average.reshape(self.shape)


class PublishedClusterLearner(ClusterLearner):
    """Sends sparse centroids, or sparse moves, as their L1 penalty leaves them."""

    target: ClusterTarget

    @classmethod
    def of(cls, task: Task, validation: Pair | None) -> Self:
        learner = super().of(task, validation)
        object.__setattr__(learner, "target", task.settings["target"])
        return learner

    @property
    def additive(self) -> bool:  # type: ignore[override]
        return self.target == "update"

    def update(self, data: Any, shared: Array, memory: Memory, seed: int) -> Update:
        sent, strength = penalised_clusters(
            shared, self.examples(data), self.training, self.target, strength=_strength(memory), random_state=seed
        )
        return Update(sent, Memory(extra=_STRENGTH.pack(strength)))

    def combine(self, shared: Array, total: RoundSum) -> Array:
        return super().combine(shared, total) if self.additive else total.average[: shared.size].reshape(shared.shape)


def penalised_clusters(
    shared: Array,
    features: Floats,
    training: ClusterTraining,
    target: ClusterTarget,
    *,
    strength: float | None = None,
    random_state: Seed = None,
) -> tuple[Array, float]:
    """Return the sparse centroids of a member, or its sparse moves times their counts; then all counts."""
    centroids = check_centroids(shared, features)
    seed = int(science(random_state).integers(2**63))
    anchor = centroids if target == "update" else np.zeros_like(centroids)
    stay = np.where(top_entries(centroids, 1 - training.sparsity), centroids, 0.0)

    def sent_at(candidate: float) -> Array:
        moves, counts = differences(centroids, anchor, features, training, seed, partial(_soft, strength=candidate))
        if target == "centroids":
            moves = np.where(counts[:, None] > 0, moves / np.maximum(counts, 1)[:, None], stay)
        return np.concatenate([moves.ravel(), counts])

    guess = strength or max(float(np.quantile(np.abs(features.mean(axis=0) - anchor), training.sparsity)), 1e-12)
    return search_strength(sent_at, training.sparsity, guess)


def _soft(values: Array, strength: float) -> Array:
    shrunk: Array = np.sign(values) * np.maximum(np.abs(values) - strength, 0)
    return shrunk


def _strength(memory: Memory) -> float | None:
    return float(_STRENGTH.unpack(memory.extra)[0]) if memory.extra else None


class _Published:
    """What both estimators choose: the target, and how what is sent becomes sparse."""

    target: str
    selection: Selection | None
    sparsity: float
    block_size: int

    def _chosen(self) -> Selection:
        chosen: Selection = self.selection or ("topk" if self.target == "update" else "strength")
        if chosen not in get_args(Selection):
            raise UnknownNameError("selection", str(chosen), get_args(Selection))
        if self.target != "update" and chosen != "strength":
            raise InputError(f"target={self.target!r} is made sparse by its penalty: it needs selection='strength'.")
        return chosen

    def _shared(self, sums: str | Sums) -> Sums:
        """Return sums whose rounds are about all numbers, or those of a schedule."""
        sums = Sums.of(sums)
        share = None if sums.traits.sparse else 1.0
        if (chosen := self._chosen()) in ("schedule", "none"):
            share = 1 - self.sparsity if chosen == "schedule" else 1.0
        options = sums.options or (DpheOptions() if sums.traits.sparse else None)
        if isinstance(options, DpheOptions):
            options = replace(options, sparsity=self.sparsity)
        return replace(sums, share=share, options=options)

    def _selected(self, sums: Sums) -> dict[str, Any]:
        """Return how a member selects what it sends, as settings of its training."""
        chosen = self._chosen()
        if chosen == "schedule":
            return {"sparsify": "schedule" if sums.scheduled else "none"}
        if chosen == "strength":
            return {"sparsify": "none", "sparsity": self.sparsity}
        return {
            "sparsify": chosen,
            "sparsity": self.sparsity,
            "block_size": sums.block_size if sums.traits.packed else self.block_size,
        }


class PublishedClassifier(_Published, FederatedClassifier):
    """`FederatedClassifier` whose members send what the paper's send.

    target : "classifier", the sparse classifier itself, as in the paper, or "update", the difference.
    selection : "strength" sends what the elastic net leaves, "topk" a member's largest weights, "blocks" its largest
        blocks, "schedule" those that have their turn, "none" everything. None: "strength" for classifiers, else "topk".
    sparsity : the share of the weights that a member does not send in a round.
    block_size : of blocks, under schemes without a block of their own.
    """

    def __init__(
        self,
        sums: str | Sums = "dphe",
        *,
        target: Target = "classifier",
        selection: Selection | None = None,
        sparsity: float = 0.9,
        block_size: int = BLOCK,
        rounds: int = 10,
        privacy: Privacy | None = None,
        loss: Any = "hinge",
        ridge: float | None = None,
        passes: int | None = None,
        batch_size: int = 64,
        class_weight: Any = None,
        multilabel: bool = False,
        classes: Any = None,
        error_feedback: float | None = None,
        early_stopping: EarlyStopping | None = None,
        features: str = "pixels",
        components: int | None = 200,
        random_state: Seed = 0,
    ) -> None:
        super().__init__(
            sums,
            rounds=rounds,
            privacy=privacy,
            loss=loss,
            ridge=ridge,
            passes=passes,
            batch_size=batch_size,
            class_weight=class_weight,
            multilabel=multilabel,
            classes=classes,
            error_feedback=error_feedback,
            early_stopping=early_stopping,
            features=features,
            components=components,
            random_state=random_state,
        )
        self.target = target
        self.selection = selection
        self.sparsity = sparsity
        self.block_size = block_size

    @property
    def _sums(self) -> Sums:
        return self._shared(self.sums)

    def _task(self, public: Pair, labels: Labels, sums: Sums, samples: int) -> Task:
        ridge = public[0].shape[1] / samples if self.ridge is None else self.ridge
        training = replace(self._training(sums, ridge, labels), **self._selected(sums))
        if self._chosen() != "strength":
            return classifier_task(public, labels, training)
        net = {"target": self.target, "sparsity": self.sparsity, "l1_ratio": 0.5}
        training = replace(training, passes=_PASSES if self.passes is None else self.passes)
        return classifier_task(public, labels, training, kind="published classifier", net=net)


class PublishedKMeans(_Published, FederatedKMeans):
    """`FederatedKMeans` whose members send what the paper's send: "centroids", or with target "update" the moves."""

    def __init__(
        self,
        n_clusters: int = 8,
        sums: str | Sums = "dphe",
        *,
        target: ClusterTarget = "centroids",
        selection: Selection | None = None,
        sparsity: float = 0.9,
        block_size: int = BLOCK,
        rounds: int = 20,
        passes: int = 1,
        batch_size: int = 1024,
        early_stopping: EarlyStopping | None = None,
        random_state: Seed = 0,
    ) -> None:
        super().__init__(
            n_clusters,
            sums,
            rounds=rounds,
            passes=passes,
            batch_size=batch_size,
            early_stopping=early_stopping,
            random_state=random_state,
        )
        self.target = target
        self.selection = selection
        self.sparsity = sparsity
        self.block_size = block_size

    @property
    def _sums(self) -> Sums:
        return self._shared(self.sums)

    def _task(self, public: NDArray[Any], sums: Sums, samples: int) -> Task:
        training = ClusterTraining(**self._selected(sums), passes=self.passes, batch_size=self.batch_size)
        if self._chosen() != "strength":
            return cluster_task(public, self.n_clusters, training, most_samples=samples)
        if self.target not in get_args(ClusterTarget):
            raise UnknownNameError("target", str(self.target), get_args(ClusterTarget))
        return cluster_task(
            public, self.n_clusters, training, most_samples=samples, kind="published k-means", target=self.target
        )


register_learner("published classifier", PublishedLearner.of)
register_learner("published k-means", PublishedClusterLearner.of)
