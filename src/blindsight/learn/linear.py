"""A member's part in learning a linear classifier together: refine the shared average on its own data, send little.

Yonetani, Boddeti, Kitani & Sato, "Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic Encryption",
ICCV 2017, sections 2.1 and 3. Everything here is plain mathematics: no messages, no encryption, no averaging.

| paper | here |
| --- | --- |
| w-bar_t, the average that the aggregator hands out | `shared`, (classes, D + 1) |
| w_t^(n), user n's locally updated classifier | `LocalUpdate.weights` |
| linear SVM via SGD | `LinearTraining(loss="hinge")` |
| NC, the number of classes; one-vs-rest | columns of `signs`, rows of the weights |
| initial weights w-bar_0 from public data | `train` on the public data |

*What is sparse.* In the paper users send the classifier w^(n) itself, made sparse by an elastic net around zero. That
bends the classifier for the sake of the transport and costs accuracy (`blindsight.papers.dphe` has it). Here what is
sent is the *difference* to the shared average, the classifier stays dense, and what does not fit into a round is held
back and sent later (error feedback). The next local training starts from the shared average *plus* what is held;
adding it up only afterwards would count the same twice once local training nears its minimum. With
``sparsify="schedule"`` a member offers everything and a public schedule (`sums.support`) says which part of it has its
turn. There, what was not sent is learned again by the training that follows and full error feedback overshoots:
`error_feedback` says how much of it is carried on, from 1 (all, Seide et al. 2014) to 0 (none).

*Bias.* The last column of the weights is the bias: never penalised, sent like any other weight, counted in sparsity.

*One-sided data.* A class of which a member has no positive example, or no negative one, is not trained by that member:
its update is zero. Training it would only teach "never", on the evidence of one album. Consequently a member whose
pictures all are of one class learns nothing alone; append the public data to its own to give it the contrast.

*Training.* Many regularised binary problems are minimised at once, one classifier per row of a matrix.

For class c with weights w (the last one is the bias), samples z_i = (x_i, 1), signs s_i in {-1, 0, +1} (0: unknown) and
sample weights v_i that sum to one, the minimiser of

    J_c(w) = sum_i v_i loss(s_i w.z_i)  +  sum_j ridge_j/2 w_j^2  +  sum_j lasso_j |w_j - a_j| + pull_j/2 (w_j - a_j)^2

is approached by stochastic proximal gradient steps on mini-batches whose noise is removed: each pass starts with the
gradient of all samples, and every mini-batch only corrects it (Johnson & Zhang 2013; with the proximal step Xiao &
Zhang 2014, with momentum Nitanda 2014). So the iterates converge to the minimiser with a constant step, and with one
batch per pass the method is FISTA (Beck & Teboulle 2009). Momentum restarts per class when it points uphill
(O'Donoghue & Candes 2015); a class whose objective rises from one pass to the next gets half its step.

The step is 1/L, where L bounds the curvature that a mini-batch of size b sees (expected smoothness, Gower et al. 2019):
L = curvature * (largest eigenvalue + (n - b)/(b (n - 1)) * n max_i v_i |z_i|^2) + ridge + pull.

`LinearLearner` puts all of it behind the `Learner` of the rounds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.features import Standardiser
from blindsight.data.sites import check_pair
from blindsight.errors import InputError, UnknownNameError
from blindsight.learn.model import (
    Array,
    Floats,
    Labels,
    Signs,
    check_signs,
    check_weights,
    decision_function,
    read_labels,
    read_public,
)
from blindsight.rng import science
from blindsight.rounds import Memory, RoundSum, Task, Update
from blindsight.rounds.member import sparsity, top_blocks, top_entries
from blindsight.rounds.task import Pair
from blindsight.validation import check_features

Loss = Literal["hinge", "squared hinge", "logistic"]
"""Which loss of the margin m: max(0, 1 - m) smoothed at its corner, its square halved, or ln(1 + e^-m)."""


@dataclass(frozen=True)
class MarginLoss:
    """A convex loss of the margin with its derivative and the largest second derivative."""

    value: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    curvature: float


def margin_loss(name: Loss, smoothing: float) -> MarginLoss:
    """Return a loss by name. The hinge is rounded off over `smoothing` below margin 1: off by at most smoothing / 2.

    >>> float(margin_loss("hinge", 0.5).value(np.array([-1.0]))[0])  # the hinge would give 2
    1.75
    """
    if name not in get_args(Loss):
        raise UnknownNameError("loss", name, get_args(Loss))
    if name == "logistic":
        return MarginLoss(lambda m: np.logaddexp(0, -m), lambda m: -0.5 * (1 - np.tanh(m / 2)), 0.25)
    if name == "squared hinge":
        return MarginLoss(lambda m: 0.5 * np.maximum(1 - m, 0) ** 2, lambda m: -np.maximum(1 - m, 0), 1.0)
    if not 0 < smoothing <= 1:
        raise InputError(f"smoothing must be in (0, 1]; got {smoothing}.")

    def value(margin: Floats) -> Floats:
        short = np.maximum(1 - margin, 0)
        rounded: Floats = np.where(short < smoothing, short**2 / (2 * smoothing), short - smoothing / 2)
        return rounded

    return MarginLoss(value, lambda m: -np.clip((1 - m) / smoothing, 0, 1), 1 / smoothing)


@dataclass(frozen=True, eq=False)
class Problem:
    """The samples, what is known of them and the penalties; `signs` and `sample_weights` are (n, classes).

    Penalties are one number per column of the weights; `anchor` is what `lasso` and `pull` draw the weights to.
    """

    samples: Floats  # z, (n, columns)
    signs: Floats
    sample_weights: Floats
    loss: MarginLoss
    ridge: Floats
    lasso: Floats
    pull: Floats
    anchor: Floats

    def objective(self, weights: Floats, scores: Floats | None = None) -> Floats:
        """Return J_c(w) for every class; `scores` saves computing them again."""
        scores = self.samples @ weights.T if scores is None else scores
        losses: Floats = np.sum(self.sample_weights * self.loss.value(self.signs * scores), axis=0)
        away = weights - self.anchor
        penalty = weights**2 @ (self.ridge / 2) + np.abs(away) @ self.lasso + away**2 @ (self.pull / 2)
        return losses + penalty

    def gradient(self, weights: Floats) -> Floats:
        """Return the gradient of all of J but the lasso."""
        gradient: Floats = self.slopes(self.samples @ weights.T).T @ self.samples
        return gradient + self.penalty_gradient(weights)

    def slopes(self, scores: Floats, rows: Any = slice(None)) -> Floats:
        """Return the derivative of the weighted loss with respect to the scores of some rows."""
        signs = self.signs[rows]
        slopes: Floats = self.sample_weights[rows] * signs * self.loss.slope(signs * scores)
        return slopes

    def penalty_gradient(self, weights: Floats) -> Floats:
        """Return the gradient of the square penalties."""
        return self.ridge * weights + self.pull * (weights - self.anchor)

    def shrink(self, weights: Floats, step: Floats) -> Floats:
        """Return the proximal point of the lasso: the distance to the anchor soft-thresholded by step * lasso."""
        away = weights - self.anchor
        kept: Floats = np.sign(away) * np.maximum(np.abs(away) - step * self.lasso, 0)
        return self.anchor + kept

    def smoothness(self, batch: int, iterations: int = 20) -> Floats:
        """Return, per class, a bound of the curvature that mini-batches of this size see (see the module)."""
        n = len(self.samples)
        largest = self._largest_eigenvalues(iterations)
        spikes = (self.sample_weights * np.sum(self.samples**2, axis=1)[:, None]).max(axis=0)
        share = n * (n - batch) / (batch * (n - 1)) if batch < n else 0.0
        bound: Floats = self.loss.curvature * (largest + share * spikes) + (self.ridge + self.pull).max()
        return bound

    def _largest_eigenvalues(self, iterations: int) -> Floats:
        """Estimate the largest eigenvalue of sum_i v_i z_i z_i^T for every class, by power iteration."""
        weights = self.sample_weights
        if (weights == weights[:, :1]).all():
            weights = weights[:, :1]  # all classes weigh the samples alike: one eigenvalue serves them all
        vectors: Floats = (weights.T @ np.abs(self.samples)) + np.finfo(self.samples.dtype).tiny
        norms = np.zeros(len(vectors), dtype=self.samples.dtype)
        for _ in range(iterations):
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1), np.finfo(vectors.dtype).tiny)[:, None]
            vectors = (weights * (self.samples @ vectors.T)).T @ self.samples
            norms = np.linalg.norm(vectors, axis=1)
        return np.broadcast_to(1.05 * norms, (self.signs.shape[1],))  # 1.05: power iteration stops below the limit


@dataclass(frozen=True, eq=False)
class Descent:
    """Where the descent ended: the weights, J_c at the start of the last pass, and the passes made."""

    weights: Floats
    objective: Floats
    passes: int


def descend(
    problem: Problem,
    start: Floats,
    generator: np.random.Generator,
    *,
    passes: int,
    batch_size: int,
    tolerance: float = 0.0,
) -> Descent:
    """Minimise from `start` in at most `passes` passes over the samples, or until no step moves far.

    It stops early when a full step at the start of a pass, divided by its length, is at most `tolerance` in every class
    (the norm of the gradient, corrected for the lasso).
    """
    if passes < 1 or batch_size < 1:
        raise InputError(f"passes and batch_size must be at least 1; got {passes} and {batch_size}.")
    n = len(problem.samples)
    batches = math.ceil(n / batch_size)
    step = (1 / problem.smoothness(math.ceil(n / batches)))[:, None].astype(start.dtype)
    weights = ahead = start
    age = np.ones_like(step)
    objective = np.full(len(start), np.inf)
    for done in range(1, passes + 1):
        before, scores = objective, problem.samples @ ahead.T
        objective = problem.objective(ahead, scores)
        if batches > 1:
            step = np.where((objective > before)[:, None], step / 2, step)
        slopes = problem.slopes(scores)
        gradient: Floats = slopes.T @ problem.samples
        for number, rows in enumerate(_batches(n, batches, generator)):
            direction = gradient + problem.penalty_gradient(ahead)
            if number:  # in the first batch `ahead` is still where the gradient was taken
                moved = problem.slopes(problem.samples[rows] @ ahead.T, rows) - slopes[rows]
                direction += (n / len(rows)) * (moved.T @ problem.samples[rows])
            stepped = problem.shrink(ahead - step * direction, step)
            if number == 0 and (np.linalg.norm(stepped - ahead, axis=1) <= tolerance * step[:, 0]).all():
                return Descent(stepped, objective, done)
            ahead, age = _overshoot(ahead, stepped, weights, age)
            weights = stepped
    return Descent(weights, objective, passes)


def _overshoot(ahead: Floats, stepped: Floats, before: Floats, age: Floats) -> tuple[Floats, Floats]:
    """Return where momentum leads from the step just made, and its age; it starts anew where it points uphill."""
    uphill = np.sum((ahead - stepped) * (stepped - before), axis=1, keepdims=True) > 0
    age = np.where(uphill, np.ones_like(age), age)
    older = (1 + np.sqrt(1 + 4 * age**2)) / 2
    return stepped + (age - 1) / older * (stepped - before), older


def _batches(n: int, batches: int, generator: np.random.Generator) -> list[Any]:
    """Split the rows into batches of nearly equal size in random order; a single batch is all rows as they are."""
    if batches == 1:
        return [slice(None)]
    return np.array_split(generator.permutation(n), batches)


Sparsify = Literal["topk", "blocks", "schedule", "none"]
ClassWeight = Literal["equal", "balanced"] | tuple[float, ...]
"""How much the samples of a class count: alike, as much as those of any other class, or so much by class."""

LARGEST_WEIGHT = 64.0
"""Weights of standardised features stay far below; the fixed point has room for it."""


@dataclass(frozen=True, kw_only=True)
class LinearTraining:
    """How every member trains; all members of a run use the same.

    `ridge` is the weight of half the squared norm beside the *mean* loss. None means D / n for n samples, the scale of
    a prior under which standardised features give scores of unit variance; a run should set it to D divided by the
    samples of all members, which is the ridge of the pooled problem. `passes` over mini-batches of `batch_size` is how
    far a member goes in one round: few passes keep members together, many let each run to its own optimum.
    `error_feedback` is the part of what a member did not send that it carries into its next round.
    """

    loss: Loss = "hinge"
    sparsify: Sparsify = "topk"
    sparsity: float = 0.9
    block_size: int = 95  # 32-bit slots of one plaintext under a 3072-bit key
    ridge: float | None = None
    class_weight: ClassWeight = "equal"
    passes: int = 3
    batch_size: int = 64
    smoothing: float = 0.5  # of the hinge's corner
    error_feedback: float = 1.0

    def __post_init__(self) -> None:
        if self.sparsify not in get_args(Sparsify):
            raise UnknownNameError("sparsify", str(self.sparsify), get_args(Sparsify))
        if isinstance(self.class_weight, str):
            if self.class_weight not in ("equal", "balanced"):
                raise UnknownNameError("class_weight", self.class_weight, ("equal", "balanced"))
        elif not all(0 <= weight < np.inf for weight in self.class_weight) or sum(self.class_weight) <= 0:
            raise InputError(f"class weights must be finite and at least 0, not all 0; got {self.class_weight}.")
        margin_loss(self.loss, self.smoothing)
        if not 0 <= self.sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {self.sparsity}.")
        if not 0 <= self.error_feedback <= 1:
            raise InputError(f"error_feedback must be in [0, 1]; got {self.error_feedback}.")
        if self.ridge is not None and not 0 <= self.ridge < np.inf:
            raise InputError(f"ridge must be finite and at least 0; got {self.ridge}.")
        if min(self.passes, self.batch_size, self.block_size) < 1:
            raise InputError("passes, batch_size and block_size must be at least 1.")


@dataclass(frozen=True, eq=False)
class LocalUpdate:
    """What one member has after a round. Only `sent` may leave the member, and only encrypted."""

    weights: Array  # the local classifier, (classes, D + 1)
    sent: Array  # the difference to the shared average
    held: Array  # what of that is not sent
    trained: NDArray[np.bool_]  # the classes of which the member had both positive and negative examples

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
    data = LocalProblem.of(X, signs, training)
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
    held: Array | None = None,
    random_state: int | np.random.Generator | None = None,
) -> LocalUpdate:
    """Refine the `shared` weights on one member's standardised features and decide what to send.

    `held` is what the member did not send in earlier rounds. For a schedule `sent` is all there is to send.
    """
    data = LocalProblem.of(X, signs, training)
    average = check_weights(shared, data.shape[1] - 1, data.shape[0])
    owed = np.zeros(data.shape) if held is None else check_weights(held, data.shape[1] - 1, data.shape[0])
    owed = training.error_feedback * owed
    seed = int(science(random_state).integers(2**63))
    begin = data.pick(average + owed)
    learned = refined(data.problem, begin, training, seed) - begin
    pending = owed + data.spread(learned, np.zeros(data.shape))
    sent = np.where(_chosen(pending, training), pending, 0.0)
    return LocalUpdate(average + pending, sent, pending - sent, data.trained)


def _chosen(pending: Array, training: LinearTraining) -> NDArray[np.bool_]:
    """Mark what is sent of `pending`."""
    if training.sparsify == "topk":
        return top_entries(pending, 1 - training.sparsity)
    if training.sparsify == "blocks":
        return top_blocks(pending, training.block_size, 1 - training.sparsity)
    return np.ones(pending.shape, dtype=np.bool_)


def refined(problem: Problem, begin: Floats, training: LinearTraining, seed: int) -> Floats:
    """Return the weights after one round of a member's training."""
    found = descend(problem, begin, science(seed), passes=training.passes, batch_size=training.batch_size)
    return found.weights


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """One member's data as a problem over the classes it can train; `trained` marks these among all."""

    problem: Problem
    trained: NDArray[np.bool_]

    @classmethod
    def of(cls, X: ArrayLike, signs: ArrayLike, training: LinearTraining) -> Self:
        features = check_features(X, precision="wide")
        known = check_signs(signs, len(features))
        positive, negative = np.sum(known > 0, axis=0), np.sum(known < 0, axis=0)
        trained, weights = (positive > 0) & (negative > 0), _sample_weights(known, training.class_weight)[:, None]
        known, positive, negative = known[:, trained], positive[trained], negative[trained]
        if training.class_weight == "balanced":
            shares = np.where(known > 0, 0.5 / positive, 0.5 / negative)
        elif training.class_weight == "equal":
            shares = np.broadcast_to(1 / (positive + negative), known.shape)
        else:
            shares = weights / np.maximum(np.sum(weights * (known != 0), axis=0), np.finfo(np.float64).tiny)
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


def _sample_weights(known: Signs, class_weight: ClassWeight) -> Array:
    """Return the weight of each sample's class."""
    if isinstance(class_weight, str):
        return np.ones(len(known))
    by_class = np.asarray(class_weight, dtype=np.float64)
    single = known.shape[1] == 1
    weights: Array = np.where(known[:, 0] > 0, by_class[1], by_class[0]) if single else (known > 0) @ by_class
    return weights


def _columns(penalty: float, dimensions: int, like: Floats) -> Floats:
    columns = np.full(dimensions + 1, penalty, dtype=like.dtype)
    columns[-1] = 0
    return columns


@dataclass(frozen=True, eq=False, repr=False)
class LinearLearner:
    """The `Learner` of a linear classifier; public and validation features are standardised already.

    A member whose samples all have the same answer to every question learns nothing from them alone (see the module).
    It gets the public data as contrast.
    """

    labels: Labels
    standardiser: Standardiser
    training: LinearTraining
    public: tuple[Floats, Signs]
    validation: tuple[Floats, NDArray[Any]] | None = None

    always: ClassVar[int] = 0
    largest: ClassVar[float] = LARGEST_WEIGHT
    additive: ClassVar[bool] = True

    @classmethod
    def of(cls, task: Task, validation: Pair | None) -> Self:
        """Return the learner of a task (`task_of`)."""
        standardiser, public = read_public(task.arrays)
        labels, signs = read_labels(task), check_signs(task.arrays["signs"], len(public))
        if signs.shape[1] != labels.rows:
            raise InputError(f"signs must have {labels.rows} columns, one per question; got {signs.shape[1]}.")
        training, classes = cls.training_of(task), len(task.arrays.get("classes", ()))
        if not isinstance(training.class_weight, str) and len(training.class_weight) != classes:
            raise InputError(f"class_weight must have {classes} numbers; got {len(training.class_weight)}.")
        held_out = None if validation is None else (standardiser.apply(validation[0]), validation[1])
        return cls(labels, standardiser, training, (public, signs), held_out)

    @classmethod
    def training_of(cls, task: Task) -> LinearTraining:
        """Return how members train, from the settings of a task."""
        return LinearTraining(**task.settings["training"])

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the weights."""
        return self.labels.rows, self.public[0].shape[1] + 1

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def first(self, seed: int) -> Array:
        """Train the public model; a class without public examples begins with "no"."""
        start = np.zeros(self.shape)
        start[:, -1] = -1
        return train(*self.public, self.training, start=start, random_state=seed)

    def update(self, data: Any, shared: Array, memory: Memory, seed: int) -> Update:
        """Refine the shared weights on one member's features and labels."""
        features, signs = self.examples(data)
        held = None if memory.held is None else memory.held.reshape(self.shape)
        done = local_update(shared, features, signs, self.training, held=held, random_state=seed)
        return Update(done.sent.ravel(), Memory(done.held.ravel()))

    def examples(self, data: Any) -> tuple[Floats, Signs]:
        """Return what a member trains on."""
        X, y = check_pair(data, self.shape[1] - 1)
        features, signs = self.standardiser.apply(X), self.labels.signs(y)
        if not ((signs > 0).any(axis=0) & (signs < 0).any(axis=0)).any():
            features, signs = np.vstack([features, self.public[0]]), np.vstack([signs, self.public[1]])
        return features, signs

    def combine(self, shared: Array, total: RoundSum) -> Array:
        """Return the shared weights, moved by the mean of the updates."""
        return shared + total.average.reshape(self.shape)

    def score(self, shared: Array) -> float | None:
        """Return the accuracy averaged over classes or attributes, if there are validation data."""
        if self.validation is None:
            return None
        features, y = self.validation
        return self.labels.quality(decision_function(shared, features), y)

    def weights(self, shared: Array) -> Array:
        """Return the weights of standardised features."""
        return shared
