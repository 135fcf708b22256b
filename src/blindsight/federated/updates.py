"""Updates of any Flower app: the vector that a member sends of what its app learned, and what their sum tells.

A vector is w times the member's change of the model, for its weight w, and after that w itself, whether its examples
were capped, how many values were clipped, and w times each metric that is asked for. Sums give weighted means and
totals; nobody sees a member's own. Under a sparse scheme the largest blocks are sent, besides the last numbers, and the
rest is carried over to later rounds; by a schedule, FEEDBACK of what had no turn is. Else a member carries nothing
over: what misses a sum is learned from the next model, as in plain federated averaging. With noise a member cuts its
change and adds its share of the noise to it; it sends nothing else, and all weigh the same.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.rounds import Memory, RoundSum, Sums, Task, Update, register_learner
from blindsight.rounds.member import top_blocks
from blindsight.rounds.task import Pair
from blindsight.sums import DpheOptions, Terms
from blindsight.sums.noise import NoisePlan, clipped

Floats = NDArray[np.float64]

KIND = "app"
MAX_EXAMPLES = 1 << 24
"""The number of examples at which a member's weight is full, where nobody names another."""

FEEDBACK = 0.7
"""How much of what had no turn by a schedule is carried over to the next round."""


@dataclass(frozen=True, eq=False)
class Training:
    """What a member's app learned: how it changed the model, from how many examples, and the metrics of the run."""

    change: Floats
    examples: float = 1.0
    metrics: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class MeanUpdate:
    """Weighted means; `capped` members have more examples than count, `clipped` values exceeded the range."""

    change: Floats
    examples: float
    metrics: dict[str, float] = field(default_factory=dict)
    capped: int = 0
    clipped: int = 0


@dataclass(frozen=True, kw_only=True)
class AppLearner:
    """How members make their vectors of the `numbers` of a model.

    `sparsity` is the share of numbers that are *not* sent, in blocks of `block`; if rounds are `scheduled`
    (`sums.Terms.support`), what had no turn is carried over in part. A member's weight is its number of examples over
    `max_examples`, at most one; with 0, all weigh the same. Apps report that number as `weighted_by`, and the `metrics`
    whose weighted means the server wants. `largest` is the largest number to be expected in a vector.
    """

    numbers: int
    sparsity: float = 0.0
    block: int = 1
    scheduled: bool = False
    max_examples: int = 0
    weighted_by: str = "num-examples"
    metrics: tuple[str, ...] = ()
    largest: float = 1.0
    noise: NoisePlan | None = None

    additive = True

    def __post_init__(self) -> None:
        for name, kind in {
            "numbers": int,
            "block": int,
            "max_examples": int,
            "weighted_by": str,
            "scheduled": bool,
        }.items():
            if type(value := getattr(self, name)) is not kind:
                raise InputError(f"{name} must be of type {kind.__name__}; got {value!r}.")
        if not 0 <= self.sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {self.sparsity}.")
        if self.numbers < 1 or self.block < 1 or self.max_examples < 0 or not 0 < self.largest < np.inf:
            raise InputError(
                "numbers and block must be at least 1, max_examples at least 0 and largest finite and above 0; got "
                f"{self.numbers}, {self.block}, {self.max_examples} and {self.largest}."
            )
        names = (*self.metrics, self.weighted_by)
        if len(set(names)) != len(names) or not all(isinstance(name, str) and len(name) <= 256 for name in names):
            raise InputError(f"metrics are named once each, without {self.weighted_by!r}; got {self.metrics}.")
        if self.noise is not None and (self.sparsity or self.scheduled or self.max_examples or self.metrics):
            raise InputError("with noise members send their whole change and nothing else, and all weigh the same.")

    def task(self, *, delta: float = 0.0) -> Task:
        """Return the task of a run whose members learn this way; `delta` is what the epsilon of noise is stated for."""
        settings = {name: value for name, value in asdict(replace(self, noise=None)).items() if name != "noise"}
        settings["metrics"] = list(self.metrics)
        return Task(kind=KIND, settings=settings, noise=self.noise, delta=delta)

    @classmethod
    def of(cls, task: Task) -> "AppLearner":
        """Return the learner of a task, which must be that of an app."""
        learner = task.learner()
        if not isinstance(learner, cls):
            raise MessageError(f"this node learns with an app; the task of the run is {task.kind!r}.")
        return learner

    @property
    def extra(self) -> int:
        """How many numbers follow the change: weight, capped examples, clipped values and metrics; none with noise."""
        return 0 if self.noise is not None else 3 + len(self.metrics)

    @property
    def size(self) -> int:
        return self.numbers + self.extra

    @property
    def always(self) -> int:
        return self.extra

    def sums(self, sums: Sums) -> Sums:
        """Return sums with room for what a member sends in one message, under a sparse scheme."""
        if not sums.traits.sparse:
            return sums
        options = sums.options if isinstance(sums.options, DpheOptions) else DpheOptions()
        capacity = int(np.count_nonzero(self.chosen(np.ones(self.size))))
        return replace(sums, options=replace(options, capacity=capacity))

    def chosen(self, wanted: Floats) -> NDArray[np.bool_]:
        """Mark what is sent: the blocks that hold more than changes, and the largest of the others.

        >>> AppLearner(numbers=4, sparsity=0.5).chosen(np.array([1.0, 9.0, 2.0, 8.0, 0.5, 0.5, 0.5])).tolist()
        [False, True, False, True, True, True, True]
        """
        if not self.sparsity:
            return np.ones(wanted.shape, dtype=np.bool_)
        others = self.numbers // self.block * self.block
        always = np.ones(wanted.size - others, dtype=np.bool_)
        return np.concatenate([top_blocks(wanted[:others], self.block, 1 - self.sparsity), always])

    def update_of(self, trained: Training, memory: Memory, terms: Terms, round: int) -> tuple[Update, int]:
        """Return a member's update, and how many values of it are clipped.

        The counts of capped examples and of clipped values are whole steps of the fixed point, and one more than
        counted: a sparse sum withholds what too few members have changed.
        """
        if self.noise is not None:
            (cut,) = clipped(trained.change[None, :], self.noise.clip)
            return Update(self.noise.contribution([cut]).astype(np.float64)), 0
        if not np.isfinite(trained.change).all() or not np.isfinite(trained.metrics).all():
            raise MessageError("what was learned is not finite. Look for a learning rate that is too high.")
        step, size = 2.0**-terms.fraction_bits, trained.change.size
        weight = min(1.0, trained.examples / self.max_examples) if self.max_examples else 1.0
        capped = bool(self.max_examples) and trained.examples > self.max_examples
        counts = [weight, step * (1 + capped), step]
        wanted = np.concatenate([weight * trained.change, counts, weight * np.array(trained.metrics)])
        if memory.held is not None:
            wanted[:size] += (FEEDBACK if self.scheduled else 1.0) * memory.held[:size]
        chosen = self.chosen(wanted)
        sent = np.where(chosen, wanted, 0.0)
        beyond = np.abs(terms.support(round).gather(sent)) > terms.max_integer * step
        count = int(np.count_nonzero(beyond))
        sent[size + 2] += step * min(count, terms.max_integer - 1)
        held = None
        if self.scheduled:
            held = np.zeros(wanted.size)
        elif self.sparsity:
            held = np.where(chosen, 0.0, wanted)
        return Update(sent, Memory(held)), count

    def mean(self, total: RoundSum, terms: Terms) -> MeanUpdate:
        """Return what the sum of a round tells.

        Weights are above 0 and at most 1. If their sum shows that one was not, its member could choose the mean.
        """
        contributors = len(total.contributors)
        if self.noise is not None:
            return MeanUpdate(self.noise.values(total.total) / contributors, float(contributors))
        change, extra = total.values[: -self.extra], total.values[-self.extra :]
        weight = float(extra[0])
        if not 0 < weight <= contributors:
            raise PrivacyError(
                f"the weights of {contributors} members add up to {weight:g}; it must be above 0 and at most "
                f"{contributors}: there is no mean, and somebody may have sent a forged weight."
            )
        capped, clipped_values = (round(float(count) * 2.0**terms.fraction_bits) - contributors for count in extra[1:3])
        metrics = dict(zip(self.metrics, (extra[3:] / weight).tolist(), strict=True))
        return MeanUpdate(change / weight, weight * (self.max_examples or 1), metrics, capped, clipped_values)

    def _apps(self, *arguments: Any) -> NoReturn:
        raise InputError("the model of an app is made and improved by the app and its strategy.")

    first = update = combine = score = _apps


def _learner(task: Task, validation: Pair | None) -> AppLearner:
    settings: Mapping[str, Any] = task.settings
    if not isinstance(metrics := settings["metrics"], list):
        raise InputError(f"metrics must be a list; got {metrics!r}.")
    return AppLearner(**{**settings, "metrics": tuple(metrics)}, noise=task.noise)


register_learner(KIND, _learner)
