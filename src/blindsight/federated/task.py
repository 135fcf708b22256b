"""What is learned across machines: a task that the server gives to all, and the rounds in which it is learned.

A `Task` is what members elsewhere must know to learn: the questions, how to train, the public data. It holds nothing of
any member, and is data and never code: numbers, names and settings that are checked one by one. `classifier_task` and
`cluster_task` make the server's side of it, `run_task` plays the rounds, `learn` is a member's part of one. All learn
as the owners of `FederatedClassifier` and `FederatedKMeans` do in one process. Here nobody knows how many samples the
others have: the penalty takes each owner to have as many as are public, unless `ridge` is given, and `most_samples`
bounds what the clusters of all owners together hold. After every round, the server's disk has the model and what is
known of each round; members' disks have what they have not sent yet.

*Updates of any model* (`UpdateConfig`, for apps that bring a model of their own): a vector is w times the member's
change of the model, for its weight w, and after that w itself, whether its examples were cut, how many values were
clipped, and w times each metric that is asked for. Sums give weighted means and totals; nobody sees a member's own.
With `sparsity` only the largest blocks are sent, besides the last, and the rest is remembered and sent later
(`learn.sparsity`). Without, a member remembers nothing: what misses a sum is learned from the next model, as in plain
federated averaging.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.data.features import Standardiser
from blindsight.data.sites import error_context
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.node import MemberHandler, config_digest
from blindsight.federated.server import SumServer
from blindsight.files import pack_arrays, read_arrays, unpack_arrays, write_arrays
from blindsight.learn.clustering import ClusterLearner, ClusterTraining
from blindsight.learn.estimators import FEEDBACK
from blindsight.learn.linear import LARGEST_WEIGHT, LinearLearner, LinearTraining
from blindsight.learn.model import Array, Attributes, Classes, Labels, check_signs
from blindsight.learn.owners import LEAST_OWNERS, Load, check_pair
from blindsight.learn.rounds import SLOT_BITS, Memory, Proposal, fraction_bits
from blindsight.learn.sparsity import top_blocks
from blindsight.sums import SCHEMES, SPARSE_SCHEMES, RoundResult, Terms
from blindsight.sums.noise import NoisePlan, clipped
from blindsight.sums.session import usual_terms
from blindsight.validation import check_features

Kind = Literal["classifier", "k-means"]
Pair = tuple[NDArray[Any], NDArray[Any]]
Floats = NDArray[np.float64]

_STATE = "blindsight/task-state.1"
_SILENT = "no contribution of it came in time."


class _TaskMessage(Message, name="federated/task.1"):
    document: Annotated[bytes, Limit(1 << 16)]
    arrays: bytes


@dataclass(frozen=True, eq=False)
class Task:
    """A task of linear classification or of clustering; `public` features are standardised already."""

    training: LinearTraining | ClusterTraining
    standardiser: Standardiser
    public: NDArray[Any]
    labels: Labels | None = None  # of a classifier
    signs: NDArray[np.int8] | None = None
    clusters: int = 0

    @property
    def kind(self) -> Kind:
        return "classifier" if isinstance(self.training, LinearTraining) else "k-means"

    def learner(self, owner: str, load: Load, validation: Any = None) -> LinearLearner | ClusterLearner:
        if isinstance(self.training, ClusterTraining):
            return ClusterLearner(
                {owner: load}, self.clusters, self.standardiser, self.training, self.public, validation
            )
        if self.labels is None or self.signs is None:
            raise InputError("a task of classification needs labels.")
        public = self.public, self.signs
        return LinearLearner({owner: load}, self.labels, self.standardiser, self.training, public, validation)

    @property
    def shape(self) -> tuple[int, int]:
        features = len(self.standardiser.mean)
        return (self.clusters, features) if self.labels is None else (self.labels.rows, features + 1)

    def to_bytes(self) -> bytes:
        arrays = {"mean": self.standardiser.mean, "scale": self.standardiser.scale, "public": self.public}
        document: dict[str, Any] = {"kind": self.kind, "training": asdict(self.training), "clusters": self.clusters}
        if isinstance(self.labels, Classes):
            arrays["classes"] = np.asarray(self.labels.names)
        elif isinstance(self.labels, Attributes):
            document["attributes"] = self.labels.count
        if self.signs is not None:
            arrays["signs"] = self.signs
        return encode(_TaskMessage(json.dumps(document).encode(), pack_arrays(arrays)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; `MessageError` on anything else."""
        message = decode(data, _TaskMessage)
        try:
            document, arrays = json.loads(message.document), unpack_arrays(message.arrays)
            standardiser, public = _checked_public(arrays)
            if document["kind"] == "k-means":
                return cls(
                    ClusterTraining(**document["training"]), standardiser, public, clusters=_count(document["clusters"])
                )
            named = "attributes" not in document
            labels = Classes(arrays["classes"]) if named else Attributes(_count(document["attributes"]))
            signs = check_signs(arrays["signs"], len(public))
            if signs.shape[1] != labels.rows:
                raise InputError(f"the public data answer {signs.shape[1]} questions; there are {labels.rows}.")
            return cls(LinearTraining(**document["training"]), standardiser, public, labels, signs)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise MessageError(f"the task of this run cannot be understood: {error}") from None


def _checked_public(arrays: Mapping[str, NDArray[Any]]) -> tuple[Standardiser, Floats]:
    mean, scale = (check_features(arrays[name][None], precision="wide")[0] for name in ("mean", "scale"))
    public = check_features(arrays["public"], precision="wide")
    if not len(mean) == len(scale) == public.shape[1] or not (scale > 0).all():
        raise InputError("features have a mean and a scale above 0 each.")
    return Standardiser(mean, scale), public


def _count(number: Any) -> int:
    if type(number) is not int or number < 1:
        raise InputError(f"clusters and attributes are counted from 1; got {number!r}.")
    return number


# The server's side


@dataclass(frozen=True, kw_only=True)
class SumOptions:
    """How updates are added up, under every task; `Encrypted` explains them."""

    scheme: str = "masks"
    sparsity: float | None = None  # 0.9 where it makes messages shorter, else 0
    share: float = 1.0
    minimum: int = LEAST_OWNERS
    minimum_per_position: int | None = None
    sample: int | None = None
    absences: int = 0
    key_bits: int = 3072
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise UnknownNameError("aggregation scheme", self.scheme, SCHEMES)
        if self.share != 1 and (self.scheme in SPARSE_SCHEMES or self.sparsity):
            raise InputError("a share of the numbers goes with masks, bfv or plain, without sparsity.")

    @property
    def dropped(self) -> float:
        return (0.9 if self.scheme in SPARSE_SCHEMES else 0.0) if self.sparsity is None else self.sparsity

    def block_size(self, slot_bits: int = SLOT_BITS) -> int:
        """How many consecutive numbers are sent together or not at all: as many as a plaintext of the scheme holds."""
        if self.scheme != "block-dphe":
            return 1
        counting = int(self.minimum_per_position != 1)
        return SlotPacking.for_key(self.key_bits, slot_bits=slot_bits).slots - counting

    def terms(self, run: str, members: tuple[str, ...], *, config: bytes, **others: Any) -> Terms:
        return usual_terms(
            self.scheme,
            run=run,
            members=members,
            minimum_per_position=self.minimum_per_position,
            key_bits=self.key_bits,
            insecure=self.insecure,
            share=self.share,
            absences=self.absences,
            config=config_digest(config),
            **{"minimum": self.minimum, "sample": self.sample or 0} | others,
        )


@dataclass(frozen=True, kw_only=True)
class TaskOptions(SumOptions):
    """How owners learn and what they send; `FederatedClassifier` explains it."""

    ridge: float | None = None
    passes: int | None = None
    clusters: int = 8
    most_samples: int = 100_000

    @property
    def selection(self) -> dict[str, Any]:
        """How updates are made sparse: by a schedule, in blocks where the scheme packs, else one by one."""
        kind = "schedule" if self.share < 1 else "blocks" if self.scheme == "block-dphe" else "topk"
        return {"sparsify": kind, "sparsity": self.dropped, "block_size": self.block_size()}


@dataclass(frozen=True, eq=False)
class ServedTask:
    """The server's side of a task: `learner` is its part of the learning, without owners."""

    options: TaskOptions
    task: Task
    learner: LinearLearner | ClusterLearner
    dimension: int
    largest: float

    def terms(self, run: str, members: tuple[str, ...]) -> Terms:
        block = self.options.block_size()
        sent = (1 - self.options.dropped) * -(-self.dimension // block)
        blocks = max(1, math.ceil(sent - 1e-9) if block == 1 else math.floor(sent + 1e-9))
        return self.options.terms(
            run,
            members,
            config=self.task.to_bytes(),
            dimension=self.dimension,
            capacity=min(self.dimension, block * blocks),
            always=self.task.clusters,  # counts of clusters are part of every round
            fraction_bits=fraction_bits(len(members), self.largest),
            slot_bits=SLOT_BITS,
        )


def classifier_task(public: Pair, validation: Pair | None, owners: int, options: TaskOptions) -> ServedTask:
    """Return the task of linear classification of the classes, or attributes, of the public data."""
    with error_context("the public data"):
        X, y = check_pair(public)
        labels: Labels = Attributes(y.shape[1]) if y.ndim == 2 else Classes(np.unique(y))
    samples = len(X) * (owners + 1)
    training = LinearTraining(
        **options.selection,
        ridge=X.shape[1] / samples if options.ridge is None else options.ridge,
        passes=3 if options.passes is None else options.passes,
        error_feedback=FEEDBACK if options.share < 1 else 1.0,
    )
    standardiser = Standardiser.fit(X)
    task = Task(training, standardiser, standardiser.apply(X), labels, labels.signs(y))
    learner = task.learner("", lambda: None, _held_out(validation, standardiser, X.shape[1]))
    return ServedTask(options, task, learner, labels.rows * (X.shape[1] + 1), LARGEST_WEIGHT)


def cluster_task(public: NDArray[Any], validation: Pair | None, options: TaskOptions) -> ServedTask:
    """Return the task of clustering that begins among the public samples."""
    with error_context("the public data"):
        X = check_features(public, precision="wide")
    if not 1 <= options.clusters <= len(X):
        raise InputError(f"clusters must be in 1 ... {len(X)}, the public samples; got {options.clusters}.")
    training = ClusterTraining(
        **options.selection,
        passes=1 if options.passes is None else options.passes,
    )
    standardiser = Standardiser.fit(X)
    task = Task(training, standardiser, standardiser.apply(X), clusters=options.clusters)
    learner = task.learner("", lambda: None, _held_out(validation, standardiser, X.shape[1]))
    size = options.clusters * (X.shape[1] + 1)
    return ServedTask(options, task, learner, size, 4.0 * max(options.most_samples, 16))


def _held_out(validation: Pair | None, standardiser: Standardiser, dimensions: int) -> Pair | None:
    if validation is None:
        return None
    with error_context("the validation data"):
        features, answers = check_pair(validation, dimensions)
    return standardiser.apply(features), answers


@dataclass(frozen=True)
class RoundReport:
    """One finished round; `score` is None without validation data, `refused` says why members are not in the sum."""

    round: int
    score: float | None
    contributors: tuple[str, ...]
    refused: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


OnReport = Callable[[RoundReport], object]


@dataclass(frozen=True, eq=False)
class TaskState:
    """Where a run stands: the shared model, its score before the first round, and the rounds."""

    shared: Array
    first_score: float | None
    rounds: tuple[RoundReport, ...] = ()

    def save(self, path: Path) -> None:
        document = {"first score": self.first_score, "rounds": [asdict(report) for report in self.rounds]}
        write_arrays(path, _STATE, document, {"shared": self.shared}, private=True)

    @classmethod
    def load(cls, path: Path) -> "TaskState":
        document, arrays = read_arrays(path, _STATE)
        try:
            reports = ({**report, "contributors": tuple(report["contributors"])} for report in document["rounds"])
            return cls(arrays["shared"], document["first score"], tuple(RoundReport(**report) for report in reports))
        except (KeyError, TypeError) as error:
            raise CorruptFileError(f"{path} does not hold where a run stands: {error}.") from None


def run_task(
    served: ServedTask, server: SumServer, *, rounds: int, seed: int, on_report: OnReport | None = None
) -> TaskState:
    """Play the rounds that are left of a run, and keep the state after each."""
    if config_digest(served.task.to_bytes()) != server.terms.config:
        raise InputError("this run began with other settings or public data. Give the same, or another label.")
    path, learner = server.run.folder / "task.npz", served.learner
    if path.exists():
        state = TaskState.load(path)
    else:
        first = learner.first(seed)
        state = TaskState(first, learner.score(first))
    while len(state.rounds) < rounds:
        begun, number = time.monotonic(), len(state.rounds) + 1
        result = server.play(number, (pack_arrays({"shared": state.shared}),))
        shared = learner.combine(state.shared, result)
        missing = [name for name in server.terms.members if name not in result.contributors]
        refused = {name: server.refused.get(name, _SILENT) for name in missing}  # one may have come in later
        report = RoundReport(number, learner.score(shared), result.contributors, refused, time.monotonic() - begun)
        state = TaskState(shared, state.first_score, (*state.rounds, report))
        state.save(path)
        if on_report is not None:
            on_report(report)
    return state


def learn(handler: MemberHandler, parts: Sequence[bytes], load: Load) -> bytes:
    """Do a member's part of a round: learn from what `load` returns, and return the signed reply."""
    if len(parts) != 3:
        raise MessageError("a call to learn has three parts.")

    def propose(config: bytes, round: int, memory: Memory, seed: int) -> Proposal:
        task = Task.from_bytes(config)
        shared = unpack_arrays(parts[2]).get("shared")
        if shared is None or shared.dtype != np.float64 or shared.shape != task.shape or not np.isfinite(shared).all():
            raise MessageError("the shared model is not one of this task.")
        learner = task.learner(handler.name, _fitting(load, task))
        return learner.propose(handler.name, shared, memory, seed)

    return handler.contribute(parts, propose)


def _fitting(load: Load, task: Task) -> Load:
    """Return a `load` that refuses features unlike the task's; the server may read that error: only column counts."""
    columns = len(task.standardiser.mean)

    def loaded() -> Any:
        data = load()
        shape = np.shape(data if task.labels is None else data[0])
        if len(shape) == 2 and shape[1] != columns:
            raise MessageError(f"features must have {columns} columns; got {shape[1]}.")
        return data

    return loaded


# Updates of any model

MOST_EXAMPLES = 1 << 24
"""The number of examples at which an owner's weight is full, where nobody names another."""


class UpdateConfig(Message, name="federated/update-config.3"):
    """How owners make their vectors: the share of numbers they do *not* send, in blocks of how many.

    An owner's weight is its number of examples over `most_examples`, at most one; with 0, all weigh the same. Apps
    report that number as `weighted_by`, and the `metrics` whose weighted means the server wants. If rounds are
    `scheduled` (`sums.Terms.support`), what had no turn is carried on in part. With noise (a `plan` in JSON) an owner
    cuts its change, adds its share of it, sends nothing else and keeps nothing back; `delta` is what its epsilon is
    stated for.
    """

    sparsity: float = 0.9
    block: int = 1
    most_examples: int = 0
    weighted_by: Annotated[str, Limit(256)] = "num-examples"
    metrics: tuple[str, ...] = ()
    plan: str = ""
    delta: float = 0.0
    scheduled: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {self.sparsity}.")
        if self.block < 1 or self.most_examples < 0:
            raise InputError(
                f"a block has at least 1 number, and examples are counted; got {self.block} and {self.most_examples}."
            )
        if len(set(self.metrics)) != len(self.metrics) or self.weighted_by in self.metrics:
            raise InputError(f"metrics are named once each, without {self.weighted_by!r}; got {self.metrics}.")
        if self.noise is not None and (self.sparsity or self.most_examples or self.metrics):
            raise InputError("with noise owners send their whole change and nothing else, and all weigh the same.")

    @cached_property
    def noise(self) -> NoisePlan | None:
        return NoisePlan.from_dict(json.loads(self.plan)) if self.plan else None

    def noised(self, plan: NoisePlan, delta: float) -> "UpdateConfig":
        return replace(self, plan=json.dumps(plan.to_dict(), sort_keys=True), delta=delta)

    @property
    def extra(self) -> int:
        """How many numbers follow the change: weight, cut examples, clipped values and the metrics; none with noise."""
        return 0 if self.noise is not None else 3 + len(self.metrics)

    def check(self, terms: Terms, round: int) -> None:
        """Refuse to learn in a round whose sum would not carry the noise that the config promises."""
        plan = self.noise
        if plan is None:
            return
        promised = (plan.members, plan.dimension, plan.largest, 0, 0)
        if promised != (len(terms.members), terms.dimension, terms.max_integer, terms.fraction_bits, terms.sample):
            raise PrivacyError("the noise of this run is made for other terms than the run has.")
        if terms.minimum < plan.members - plan.drop_outs:
            needed = plan.members - plan.drop_outs
            raise PrivacyError(f"the noise counts on {needed} contributions; sums of {terms.minimum} are opened.")
        if not 1 <= round <= plan.rounds:
            raise PrivacyError(f"the noise is enough for {plan.rounds} rounds; got round {round}.")

    def chosen(self, wanted: Floats) -> NDArray[np.bool_]:
        """Mark what is sent: the blocks that hold more than changes, and the largest of the others.

        >>> UpdateConfig(sparsity=0.5).chosen(np.array([1.0, 9.0, 2.0, 8.0, 0.5, 0.5, 0.5])).tolist()
        [False, True, False, True, True, True, True]
        """
        if not self.sparsity:
            return np.ones(wanted.shape, dtype=np.bool_)
        others = (wanted.size - self.extra) // self.block * self.block
        always = np.ones(wanted.size - others, dtype=np.bool_)
        return np.concatenate([top_blocks(wanted[:others], self.block, 1 - self.sparsity), always])

    @classmethod
    def from_bytes(cls, data: bytes) -> "UpdateConfig":
        try:
            return decode(data, cls, max_bytes=1 << 14)
        except (ValueError, TypeError, AttributeError) as error:
            raise MessageError(f"the config of the run is impossible: {error}") from None


@dataclass(frozen=True, eq=False)
class Training:
    """What a member's app learned: how it changed the model, from how many examples, and the metrics of the config."""

    change: Floats
    examples: float = 1.0
    metrics: tuple[float, ...] = ()


def propose_update(
    trained: Training, memory: Memory, config: UpdateConfig, terms: Terms, round: int
) -> tuple[Proposal, int]:
    """Return what an owner sends, with what it will remember once that has arrived, and how many values are clipped.

    The counts of cut examples and of clipped values are whole steps of the fixed point, and one more than counted: a
    sparse sum withholds what too few members have changed.
    """
    if config.noise is not None:
        (cut,) = clipped(trained.change[None, :], config.noise.clip)
        noisy = config.noise.contribution([cut])
        return Proposal(noisy.astype(np.float64), Memory(None, None)), 0
    if not np.isfinite(trained.change).all() or not np.isfinite(trained.metrics).all():
        raise MessageError("what was learned is not finite. Look for a learning rate that is too high.")
    step, size = 2.0**-terms.fraction_bits, trained.change.size
    weight = min(1.0, trained.examples / config.most_examples) if config.most_examples else 1.0
    cut_short = bool(config.most_examples) and trained.examples > config.most_examples
    counts = [weight, step * (1 + cut_short), step]
    wanted = np.concatenate([weight * trained.change, counts, weight * np.array(trained.metrics)])
    if memory.held is not None:
        wanted[:size] += (FEEDBACK if config.scheduled else 1.0) * memory.held[:size]
    chosen = config.chosen(wanted)
    sent = np.where(chosen, wanted, 0.0)
    beyond = np.abs(terms.support(round).gather(sent)) > terms.max_integer * step
    count = int(np.count_nonzero(beyond))
    sent[size + 2] += step * min(count, terms.max_integer - 1)
    held = None
    if config.scheduled:
        held = np.zeros(wanted.size)
    elif config.sparsity:
        held = np.where(chosen, 0.0, wanted)
    return Proposal(sent, Memory(held, None)), count


@dataclass(frozen=True, eq=False)
class MeanUpdate:
    """Weighted means over owners; `cut` owners have more examples than count, `clipped` values exceeded the range."""

    change: Floats
    examples: float
    metrics: dict[str, float] = field(default_factory=dict)
    cut: int = 0
    clipped: int = 0


def mean_update(result: RoundResult, config: UpdateConfig, terms: Terms) -> MeanUpdate:
    """Return what the sum of a round tells.

    Weights are above 0 and at most 1. If their sum shows that one was not, the mean would be its owner's to choose.
    """
    contributors = len(result.contributors)
    if config.noise is not None:
        return MeanUpdate(config.noise.values(result.total) / contributors, float(contributors))
    change, extra = result.values[: -config.extra], result.values[-config.extra :]
    weight = float(extra[0])
    if not 0 < weight <= contributors:
        raise PrivacyError(
            f"the weights of {contributors} owners add up to {weight:g}; it must be above 0 and at most "
            f"{contributors}: there is no mean, and somebody may have sent a forged weight."
        )
    cut, clipped_values = (round(float(count) * 2.0**terms.fraction_bits) - contributors for count in extra[1:3])
    metrics = dict(zip(config.metrics, (extra[3:] / weight).tolist(), strict=True))
    return MeanUpdate(change / weight, weight * (config.most_examples or 1), metrics, cut, clipped_values)
