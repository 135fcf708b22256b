"""One owner's part in learning a linear classifier together: refine the shared average on its own data, send little.

Yonetani, Boddeti, Kitani & Sato, "Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic Encryption",
ICCV 2017, sections 2.1 and 3. Everything here is plain mathematics: no messages, no encryption, no averaging.

| paper | here |
| --- | --- |
| w-bar_t, the average that the aggregator hands out | `shared`, (classes, D + 1) |
| w_t^(n), user n's locally updated classifier | `LocalUpdate.weights` |
| linear SVM via SGD, elastic net, L1 ratio 0.5 | `LinearTraining(loss="hinge", l1_ratio=0.5)` |
| strength adjusted until sparsity > 90% | `sparsify="strength"`, `sparsity=0.9` |
| NC, the number of classes; one-vs-rest | columns of `signs`, rows of the weights |
| initial weights w-bar_0 from public data | `train` on the public data |

*What is sparse.* In the paper users send the classifier w^(n) itself, made sparse by an elastic net around zero:
``target="classifier"``. That bends the classifier for the sake of the transport and costs accuracy. By default what is
sent is the *difference* to the shared average (``target="update"``), the classifier stays dense, and what does not fit
into a round is kept in a `Residual` and sent later (error feedback). The next local training starts from the shared
average *plus* that residual; adding it up only afterwards would count the same twice once local training nears its
minimum. With ``sparsify="schedule"`` an owner offers everything and a public schedule (`sums.support`) says which part
of it is the round's. There, what was not sent is learned again by the training that follows and full error feedback
overshoots: `error_feedback` says how much of it is carried on, from 1 (all, Seide et al. 2014) to 0 (none).
With ``sparsify="strength"`` the elastic net lies around the shared average (its square part is FedProx's proximal
term, Li et al. 2020), and nothing is held back.

*Bias.* The last column of the weights is the bias: never penalised, sent like any other weight, counted in sparsity.

*One-sided data.* A class of which an owner has no positive example, or no negative one, is not trained by that owner:
its update is zero (as a sparse classifier: the largest of the shared weights). Training it would only teach "never", on
the evidence of one album. Consequently an owner whose pictures all are of one class learns nothing alone; append
the public data to its own to give it the contrast.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError, UnknownNameError
from blindsight.learn.descent import Loss, Problem, descend, margin_loss
from blindsight.learn.linearmodel import Array, Floats, check_signs, check_weights
from blindsight.learn.sparsity import Residual, search_strength, sparsity, top_blocks, top_entries
from blindsight.rng import science
from blindsight.validation import check_features

Target = Literal["update", "classifier"]
Sparsify = Literal["topk", "blocks", "schedule", "strength", "none"]
ClassWeight = Literal["equal", "balanced"]

LARGEST_WEIGHT = 64.0
"""Weights of standardised features stay far below; the fixed point has room for it."""


@dataclass(frozen=True, kw_only=True)
class LinearTraining:
    """How every owner trains; all owners of a federation use the same.

    `ridge` is the weight of half the squared norm beside the *mean* loss. None means D / n for n samples, the scale of
    a prior under which standardised features give scores of unit variance; a federation should set it to D divided by
    the samples of all owners, which is the ridge of the pooled problem. (The classifier target has its elastic net and
    no ridge besides.) `passes` over mini-batches of `batch_size` is how far an owner goes in one round: few passes
    keep owners together, many let each run to its own optimum; an elastic net wants about ten to settle.
    `error_feedback` is the part of what an owner did not send that it carries into its next round.
    """

    loss: Loss = "hinge"
    target: Target = "update"
    sparsify: Sparsify = "topk"
    sparsity: float = 0.9
    block_size: int = 95  # 32-bit slots of one plaintext under a 3072-bit key
    l1_ratio: float = 0.5
    ridge: float | None = None
    class_weight: ClassWeight = "equal"
    passes: int = 3
    batch_size: int = 64
    smoothing: float = 0.5  # of the hinge's corner
    error_feedback: float = 1.0

    def __post_init__(self) -> None:
        for kind, choices in (("target", Target), ("sparsify", Sparsify), ("class_weight", ClassWeight)):
            if getattr(self, kind) not in get_args(choices):
                raise UnknownNameError(kind, str(getattr(self, kind)), get_args(choices))
        margin_loss(self.loss, self.smoothing)
        if not 0 <= self.sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {self.sparsity}.")
        if not 0 < self.l1_ratio <= 1:
            raise InputError(f"l1_ratio must be in (0, 1]; got {self.l1_ratio}.")
        if not 0 <= self.error_feedback <= 1:
            raise InputError(f"error_feedback must be in [0, 1]; got {self.error_feedback}.")
        if self.ridge is not None and not 0 <= self.ridge < np.inf:
            raise InputError(f"ridge must be finite and at least 0; got {self.ridge}.")
        if min(self.passes, self.batch_size, self.block_size) < 1:
            raise InputError("passes, batch_size and block_size must be at least 1.")
        if self.target == "classifier" and self.sparsify != "strength":
            raise InputError("target='classifier' is made sparse by its penalty: it needs sparsify='strength'.")


@dataclass(frozen=True, eq=False)
class LocalUpdate:
    """What one owner has after a round. Only `sent` may leave the owner, and only encrypted."""

    weights: Array  # the local classifier, (classes, D + 1)
    sent: Array  # the difference to the shared average, or with target "classifier" the classifier itself
    residual: Residual
    trained: NDArray[np.bool_]  # the classes of which the owner had both positive and negative examples
    strength: float | None  # of the elastic net, where it was searched

    @property
    def sparsity(self) -> float:
        return sparsity(self.sent)

    def __repr__(self) -> str:
        return f"LocalUpdate(shape={self.sent.shape}, sparsity={self.sparsity:.3f})"


def train(
    X: ArrayLike,
    signs: ArrayLike,
    training: LinearTraining,
    *,
    start: ArrayLike | None = None,
    passes: int = 200,
    tolerance: float = 1e-3,
    random_state: int | np.random.Generator | None = None,
) -> Array:
    """Train on one set of data up to the minimum: the initial model, a pooled or a lonely classifier.

    It ends when no class has a gradient longer than `tolerance`, or after so many `passes`. Of `training` only loss,
    ridge and class weights count. Classes without both kinds of examples keep their `start`, zero unless given.
    """
    data = _Data.of(X, signs, training)
    begin = np.zeros(data.shape) if start is None else check_weights(start, data.shape[1] - 1, data.shape[0])
    batch = max(training.batch_size, len(data.problem.samples) // 8)
    generator = science(random_state)
    found = descend(data.problem, data.pick(begin), generator, passes=passes, batch_size=batch, tolerance=tolerance)
    return data.spread(found.weights, begin)


def local_update(
    shared: ArrayLike,
    X: ArrayLike,
    signs: ArrayLike,
    training: LinearTraining,
    *,
    residual: Residual | None = None,
    strength: float | None = None,
    random_state: int | np.random.Generator | None = None,
) -> LocalUpdate:
    """Refine the `shared` weights on one owner's standardised features and decide what to send.

    `residual` and `strength` are those of the owner's last round, if there was one. The elastic net neither takes from
    the residual nor adds to it. For a schedule `sent` is all there is to send; what the round leaves of it is residual.
    """
    data = _Data.of(X, signs, training)
    average = check_weights(shared, data.shape[1] - 1, data.shape[0])
    owed = Residual.nothing(data.shape) if residual is None else residual
    held = training.error_feedback * check_weights(owed.held, data.shape[1] - 1, data.shape[0])
    seed = int(science(random_state).integers(2**63))
    if training.sparsify == "strength":
        sent, found = _penalised(data, average, training, strength, seed)
        weights = average + sent if training.target == "update" else sent
        return LocalUpdate(weights, sent, owed, data.trained, found)
    begin = data.pick(average + held)
    learned = _refined(data.problem, begin, training, seed) - begin
    pending = held + data.spread(learned, np.zeros(data.shape))
    sent = np.where(_chosen(pending, training), pending, 0.0)
    return LocalUpdate(average + pending, sent, Residual.after(pending, sent), data.trained, None)


def _chosen(pending: Array, training: LinearTraining) -> NDArray[np.bool_]:
    """Mark what is sent of `pending`."""
    if training.sparsify == "topk":
        return top_entries(pending, 1 - training.sparsity)
    if training.sparsify == "blocks":
        return top_blocks(pending, training.block_size, 1 - training.sparsity)
    return np.ones(pending.shape, dtype=np.bool_)


def _penalised(
    data: "_Data", average: Array, training: LinearTraining, strength: float | None, seed: int
) -> tuple[Array, float]:
    """Let the elastic net make the difference to the average, or the classifier itself, sparse."""
    anchor, untrained, problem = average, np.zeros(data.shape), data.problem
    if training.target == "classifier":
        anchor, problem = untrained, replace(problem, ridge=0 * problem.ridge)
        untrained = np.where(top_entries(average, 1 - training.sparsity), average, 0.0)
    begin, centre = data.pick(average), data.pick(anchor)

    def sent_at(candidate: float) -> Array:
        lasso, pull = (data.columns(candidate * share) for share in (training.l1_ratio, 1 - training.l1_ratio))
        penalised = replace(problem, anchor=centre, lasso=lasso, pull=pull)
        return data.spread(_refined(penalised, begin, training, seed) - centre, untrained)

    if not data.trained.any():
        return untrained, strength or 0.0
    return search_strength(sent_at, training.sparsity, strength or _first_strength(problem, centre, training))


def _first_strength(problem: Problem, centre: Floats, training: LinearTraining) -> float:
    """Guess the strength at which the wanted share of weights would not leave the centre in a first step."""
    pulls = np.abs(problem.gradient(centre)[:, :-1])
    return max(float(np.quantile(pulls, training.sparsity)) / training.l1_ratio, 1e-12)


def _refined(problem: Problem, begin: Floats, training: LinearTraining, seed: int) -> Floats:
    """Return the weights after one round of an owner's training."""
    found = descend(problem, begin, science(seed), passes=training.passes, batch_size=training.batch_size)
    return found.weights


@dataclass(frozen=True, eq=False)
class _Data:
    """One owner's data as a problem over the classes it can train; `trained` marks these among all."""

    problem: Problem
    trained: NDArray[np.bool_]

    @classmethod
    def of(cls, X: ArrayLike, signs: ArrayLike, training: LinearTraining) -> Self:
        features = check_features(X, precision="wide")
        known = check_signs(signs, len(features))
        positive, negative = np.sum(known > 0, axis=0), np.sum(known < 0, axis=0)
        trained = (positive > 0) & (negative > 0)
        known, positive, negative = known[:, trained], positive[trained], negative[trained]
        if training.class_weight == "balanced":
            shares = np.where(known > 0, 0.5 / positive, 0.5 / negative)
        else:
            shares = np.broadcast_to(1 / (positive + negative), known.shape)
        n, dimensions = features.shape
        ridge = dimensions / n if training.ridge is None else training.ridge
        problem = Problem(
            samples=np.column_stack([features, np.ones(n, dtype=features.dtype)]),
            signs=known.astype(features.dtype),
            sample_weights=np.where(known != 0, shares, 0.0).astype(features.dtype),
            loss=margin_loss(training.loss, training.smoothing),
            ridge=_columns(ridge, dimensions, features),
            lasso=_columns(0.0, dimensions, features),
            pull=_columns(0.0, dimensions, features),
            anchor=np.zeros((known.shape[1], dimensions + 1), dtype=features.dtype),
        )
        return cls(problem, trained)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the weights of all classes."""
        return len(self.trained), self.problem.samples.shape[1]

    def pick(self, weights: Array) -> Floats:
        """Return the rows that are trained, in the precision of the features."""
        return weights[self.trained].astype(self.problem.samples.dtype)

    def spread(self, rows: Floats, others: Array) -> Array:
        """Return weights of all classes: the trained rows given, the rest from `others`."""
        weights = others.copy()
        weights[self.trained] = rows
        return weights

    def columns(self, penalty: float) -> Floats:
        """Return a penalty for every column but the bias."""
        return _columns(penalty, self.shape[1] - 1, self.problem.samples)


def _columns(penalty: float, dimensions: int, like: Floats) -> Floats:
    columns = np.full(dimensions + 1, penalty, dtype=like.dtype)
    columns[-1] = 0
    return columns
