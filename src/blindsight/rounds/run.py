"""The rounds of a run: members improve the shared model, a backend adds up their updates, all go on.

*The guarantee.* What leaves a member leaves through the sum and in no other way. Given the same updates, the scheme
changes the cost and who sees what, never the model: all add the same integers. A round is a function of the state
before it, the members' data and the seed alone, so a run that was interrupted and resumed ends with the same model as
one that was not. A member that cannot take part in a round is missing from it, and the others go on while there are
enough of them.

Yonetani et al., ICCV 2017, section 2.1: steps (1) to (3) of its Figure 1 are one call of `Run.round`.

*State.* One file, replaced atomically after each round and readable by its owner alone: the shared model, the history,
and what the backend keeps of members in this process (`LocalSums`), which have nothing else on disk. A round that was
interrupted is played again with the same updates; no one but the process that was killed can have read its sum. Between
real parties no round is opened twice (`sums.roles`). With noise nothing is kept: the updates of a round that is played
again would hold other noise, and two noisy sums of one round are a release that was not counted.
"""

import hashlib
import json
import secrets
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral
from typing import Any, Literal, Protocol, Self, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import (
    BlindsightError,
    CorruptFileError,
    InputError,
    MessageError,
    PrivacyError,
    UnknownNameError,
)
from blindsight.files import AnyPath, Arrays, as_path, read_arrays, remove_parts, storage_errors, write_arrays
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.rounds.member import Array, Learner, Member, Memory, Update, member_seed, sparsity
from blindsight.rounds.task import Pair, Seed, Sums, Task
from blindsight.statement import PrivacyStatement, facts_table
from blindsight.sums import Session, Terms
from blindsight.sums.engine import Cost
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, Integers

Load = Callable[[], Any]
"""Return a member's data; called in every round."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundSum:
    """The sum of one round, as whole vectors: positions that had no turn are zero.

    `missing` says of members that were asked why they are not in it. `withheld` positions were not revealed, `clipped`
    numbers were out of range, `sparsity` is the mean share of zeros in what members sent: None where only members know.
    `seconds` and `sent` bytes are by role.
    """

    round: int
    contributors: tuple[str, ...]
    total: Integers
    values: Array
    missing: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    sent: Mapping[str, int] = field(default_factory=dict)
    withheld: NDArray[np.int64] | None = None
    clipped: int | None = None
    sparsity: float | None = None

    @property
    def average(self) -> Array:
        """The mean of the contributors' updates."""
        return self.values / len(self.contributors)


class SumBackend(Protocol):
    """What adds up the members' updates: in this process, or across machines."""

    terms: Terms

    def round(self, round: int, shared: Array) -> RoundSum:
        """Let members learn from the shared model, and return their sum."""

    def state(self) -> Arrays:
        """Return what `restore` reads: of members in this process; empty across machines."""

    def restore(self, state: Arrays) -> None:
        """Go on where `state` was taken."""

    def statement(self) -> PrivacyStatement:
        """Return what one sum protects."""


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """One finished round, of a run in one process or across machines.

    `score` is the quality on the validation data (accuracy averaged over classes or attributes, of clusters the
    adjusted mutual information), None without any. `step` is how far the model moved relative to its length. `missing`
    says why members are not in the sum, `failure` why there is none. `seconds` and `sent` bytes are by role: "members"
    together, "aggregator", "key generator"; `seconds` also has "training". `sparsity` (the mean share of zeros in what
    members sent), `withheld` weights and `clipped` ones are None where only members know. Of updates of an app:
    `examples` of all contributors together, and how many members were `capped`, because they have more than count.
    """

    round: int
    score: float | None = None
    step: float = 0.0
    contributors: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    sent: Mapping[str, int] = field(default_factory=dict)
    sparsity: float | None = None
    withheld: int | None = None
    clipped: int | None = None
    examples: float | None = None
    capped: int | None = None

    def _repr_html_(self) -> str:
        def shown(value: float | None, form: str) -> str | None:
            return None if value is None else format(value, form)

        facts = {
            "score": shown(self.score, ".3f"),
            "in the sum": f"{len(self.contributors)}: {', '.join(self.contributors)}",
            "missing": "; ".join(f"{name}: {why}" for name, why in self.missing.items()),
            "zeros in what was sent": shown(self.sparsity, ".1%"),
            "bytes": ", ".join(f"{role} {size:,}" for role, size in self.sent.items()),
            "CPU seconds": ", ".join(f"{role} {seconds:.2f}" for role, seconds in self.seconds.items()),
            "withheld": shown(self.withheld, ","),
            "out of range": shown(self.clipped, ","),
        }
        return facts_table(f"Round {self.round}", facts)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_dict` described."""
        return cls(**{**data, "contributors": tuple(data["contributors"])})


OnRound = Callable[[RoundReport], object]


@dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """Stop after `patience` rounds without progress of at least `tolerance`.

    criterion "score": the validation score did not exceed the best earlier score. "step": the model moved by less than
    `tolerance` of its length. The model of the last round is kept, not the best one.
    """

    criterion: Literal["score", "step"] = "score"
    patience: int = 3
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        if self.criterion not in (known := get_args(self.__annotations__["criterion"])):
            raise UnknownNameError("criterion of early stopping", str(self.criterion), known)
        if self.patience < 1 or not self.tolerance >= 0:
            raise InputError(
                f"patience must be at least 1 and tolerance at least 0; got {self.patience} and {self.tolerance}."
            )

    def should_stop(self, history: Sequence[RoundReport]) -> bool:
        """Return True if no round in the last `patience` rounds made progress; rounds without a sum do not count."""
        played = [report for report in history if not report.failure]
        if self.criterion == "step":
            recent = played[-self.patience :]
            return len(recent) == self.patience and all(report.step < self.tolerance for report in recent)
        scores = [report.score for report in played if report.score is not None]
        earlier, latest = scores[: -self.patience], scores[-self.patience :]
        return bool(earlier) and max(latest) < max(earlier) + self.tolerance


class ClippedWarning(UserWarning):
    """Weights were too large for the fixed point of the run."""


_KIND = "blindsight/run-state.1"


@dataclass(frozen=True, eq=False)
class RunState:
    """Where a run stands: the shared model, its score before the first round, the rounds played, and the seed."""

    shared: Array
    first_score: float | None
    history: tuple[RoundReport, ...]
    seed: int

    def save(self, path: AnyPath, run: str, backend: Arrays) -> None:
        """Write the state of the run with this fingerprint, and that of its backend, to one file."""
        document = {
            "run": run,
            "seed": self.seed,
            "first score": self.first_score,
            "history": [report.to_dict() for report in self.history],
        }
        arrays = {"shared": self.shared} | {f"backend-{name}": array for name, array in backend.items()}
        write_arrays(path, _KIND, document, arrays, private=True)

    @classmethod
    def load(cls, path: AnyPath, run: str) -> tuple[Self, Arrays] | None:
        """Return what `save` wrote, None if there is nothing; the state of another run is refused."""
        path = as_path(path)
        with storage_errors("use", path.parent):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_parts(path.parent, path.name)
            if not path.exists():
                return None
        document, arrays = read_arrays(path, _KIND)
        try:
            if document["run"] != run:
                raise InputError(
                    f"{path.parent} holds the state of another run: its members, data or settings differ. Use another "
                    "folder, or delete it to begin again."
                )
            history = tuple(RoundReport.from_dict(report) for report in document["history"])
            state = cls(arrays.pop("shared"), document["first score"], history, document["seed"])
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptFileError(f"{path} does not hold the state of a run: {error}.") from None
        return state, {name.removeprefix("backend-"): array for name, array in arrays.items()}


class Run:
    """A run of a task over a backend; with a `path`, its state is kept there, and resumed from there.

    `identity` is a fingerprint of all that decides the course of the run: the state of another is refused.
    """

    def __init__(
        self,
        task: Task,
        backend: SumBackend,
        *,
        rounds: int,
        validation: Pair | None = None,
        path: AnyPath | None = None,
        identity: str = "",
        stopping: EarlyStopping | None = None,
        on_round: OnRound | None = None,
        progress: Progress = silent,
    ) -> None:
        if rounds < 1:
            raise InputError(f"rounds must be at least 1; got {rounds}.")
        self.task, self.backend, self.rounds, self.stopping = task, backend, rounds, stopping
        self.learner: Learner = task.learner(validation)
        self._on_round, self._progress = on_round, progress
        self._path, self._identity = path, identity
        kept = None if path is None else RunState.load(path, identity)
        if kept is not None:
            self.state, held = kept
            backend.restore(held)
        else:
            first = self.learner.first(task.seed)
            self.state = RunState(first, self.learner.score(first), (), task.seed)
        if stopping is not None and stopping.criterion == "score" and self.state.first_score is None:
            raise InputError("stopping by score needs validation data. Give some, or stop by step.")

    state: RunState

    @property
    def statement(self) -> PrivacyStatement:
        """What the rounds that were played protect."""
        return self.task.statement(self.backend.statement(), self.backend.terms, len(self.state.history))

    def play(self) -> RunState:
        """Play the rounds that are left; after each, keep the state, then call `on_round`."""
        while len(self.state.history) < self.rounds and not self._should_stop():
            report = self.round()
            self._progress("rounds", len(self.state.history), self.rounds)
            if self._on_round is not None:
                self._on_round(report)
        return self.state

    def _should_stop(self) -> bool:
        return self.stopping is not None and self.stopping.should_stop(self.state.history)

    def round(self) -> RoundReport:
        """Play one round."""
        before, number = self.state, len(self.state.history) + 1
        self.task.check(self.backend.terms, number, colluders=0)
        total = self.backend.round(number, before.shared)
        shared = self.learner.combine(before.shared, total)
        report = RoundReport(
            round=number,
            score=self.learner.score(shared),
            step=float(np.linalg.norm(shared - before.shared) / max(float(np.linalg.norm(shared)), 1e-300)),
            contributors=total.contributors,
            missing=dict(total.missing),
            seconds=dict(total.seconds),
            sent=dict(total.sent),
            sparsity=total.sparsity,
            withheld=None if total.withheld is None else len(total.withheld),
            clipped=total.clipped,
        )
        if total.clipped:
            limit = self.backend.terms.limit
            warnings.warn(
                f"{total.clipped} weights of round {number} were clipped to +-{limit:g}, the most that the fixed point "
                "holds. Look for features that vary far more with a member than in the public data.",
                ClippedWarning,
                stacklevel=2,
            )
        self.state = replace(before, shared=shared, history=(*before.history, report))
        if self._path is not None:
            self.state.save(self._path, self._identity, self.backend.state())
        return report


class Recorder(Protocol):
    """Sees one round of a run in this process: the messages that each party receives, the updates and their sum."""

    def __call__(self, party: str, message: bytes) -> object:
        """Note a message that a party received."""

    def recording(self) -> AbstractContextManager[None]:
        """Let what happens meanwhile be recorded, unless a round was recorded before."""

    def look(self, terms: Terms, before: Array, sent: Mapping[str, Array], total: RoundSum) -> object:
        """See the model before the round, the updates as sent, and their sum."""


class LocalSums:
    """All parties of a run in this process: a `Member` for each, over a `sums.Session`."""

    def __init__(
        self,
        task: Task,
        terms: Terms,
        members: Mapping[str, Load],
        *,
        recorder: Recorder | None = None,
        progress: Progress = silent,
        **session: Any,
    ) -> None:
        self.terms, self._learner, self._seed, self._loads = terms, task.learner(), task.seed, dict(members)
        self._recorder, self._progress, self._noisy = recorder, progress, task.noise is not None
        self._session = Session(terms, record=recorder, **session)
        self.members = {name: Member(name, terms) for name in terms.members}

    def round(self, round: int, shared: Array) -> RoundSum:
        """Let every member that is asked learn, and add up what they send."""
        begun = time.process_time()
        contributions, missing = self._contributions(round, shared)
        training = time.process_time() - begun
        sent = {name: self.members[name].sending() for name in contributions}
        clipped = sum(int((self.members[name].offered() != vector).sum()) for name, vector in sent.items())
        recorder = self._recorder
        try:
            with nullcontext() if recorder is None else recorder.recording():
                result = self._session.round(contributions, round, encoded=True)
        except (MessageError, PrivacyError) as error:
            for name, reason in missing.items():
                error.add_note(f"Missing: {name}, because {reason}")
            raise
        support = self.terms.support(round)
        withheld = result.withheld[result.withheld < len(support.positions)]  # the rest is padding
        for name in contributions:
            entered = np.full(self.terms.dimension, name in result.contributors)
            entered[result.withheld] = False
            self.members[name].settle(round, entered)
        whole = {name: support.scatter(vector) for name, vector in sent.items()}
        total = RoundSum(
            round=round,
            contributors=result.contributors,
            total=support.scatter(result.total),
            values=support.scatter(result.values),
            missing=missing | dict(result.refused),
            seconds={"training": training} | seconds_by_role(result.cost),
            sent=bytes_by_role(result.cost),
            withheld=support.positions[withheld],
            clipped=clipped,
            sparsity=None if self._noisy else float(np.mean([sparsity(vector) for vector in whole.values()])),
        )
        if recorder is not None:
            recorder.look(self.terms, shared, whole, total)
        return total

    def _contributions(self, round: int, shared: Array) -> tuple[dict[str, Integers], dict[str, str]]:
        """Return what each member sends, and why some send nothing."""
        contributions, missing, asked = {}, {}, set(self.terms.sampled(round))
        for place, name in enumerate(self.terms.members):
            if name not in asked:
                continue
            self._progress(f"round {round}: training", place, len(self.terms.members))
            seed = member_seed(self._seed, round, place)

            def learn(memory: Memory, name: str = name, seed: int = seed) -> Update:
                return self._learner.update(self._loads[name](), shared, memory, seed)

            try:
                contributions[name] = self.members[name].contribute(round, learn)
            except (BlindsightError, OSError, MemoryError) as error:
                missing[name] = str(error) or type(error).__name__
        self._progress(f"round {round}: adding up", len(asked), len(asked))
        return contributions, missing

    def state(self) -> Arrays:
        """Return the members' memories."""
        arrays: dict[str, NDArray[Any]] = {}
        for place, member in enumerate(self.members.values()):
            if member.memory.held is not None:
                arrays[f"held-{place}"] = member.memory.held
            if member.memory.extra:
                arrays[f"extra-{place}"] = np.frombuffer(member.memory.extra, dtype=np.uint8)
        return arrays

    def restore(self, state: Arrays) -> None:
        """Give the members these memories."""
        for place, member in enumerate(self.members.values()):
            held, extra = state.get(f"held-{place}"), state.get(f"extra-{place}")
            member.memory = Memory(
                None if held is None else np.array(held, dtype=np.float64), b"" if extra is None else extra.tobytes()
            )

    def statement(self) -> PrivacyStatement:
        """Return what one sum protects."""
        return self._session.statement()


def seconds_by_role(cost: Cost) -> dict[str, float]:
    """Return the CPU seconds of all members together and of each service."""
    members = sum(cost.seconds(party=member) for member in cost.members)
    return {"members": members} | {service: cost.seconds(party=service) for service in (AGGREGATOR, KEY_GENERATOR)}


def bytes_by_role(cost: Cost) -> dict[str, int]:
    """Return the bytes sent by all members together and by each service."""
    return {"members": sum(map(cost.sent, cost.members))} | {
        service: cost.sent(service) for service in (AGGREGATOR, KEY_GENERATOR)
    }


def run_here(
    task: Task,
    sums: Sums,
    members: Mapping[str, Load],
    *,
    rounds: int,
    random_state: Seed,
    validation: Pair | None = None,
    prints: Sequence[str] = (),
    checkpoint: AnyPath | None = None,
    stopping: EarlyStopping | None = None,
    recorder: Recorder | None = None,
    on_round: OnRound | None = None,
    progress: Progress = silent,
) -> Run:
    """Play a run with all parties in this process, or the rounds that a checkpoint says are left.

    `random_state` gives the task its seed. `prints` are fingerprints of the members' data. A finished run may be
    prolonged.
    """
    if task.noise is not None and checkpoint is not None:
        raise InputError(
            "with noise there is no checkpoint: a round that was interrupted and played again would be a further "
            "release, which was not counted."
        )
    if task.noise is not None and recorder is not None:
        raise InputError("a recorded round shows every member's own noise. Record one without privacy.")
    names, name, path, identity, kept = tuple(members), secrets.token_hex(8), None, "", None
    if checkpoint is not None:
        path, repeatable = as_path(checkpoint) / "state.npz", None
        if isinstance(random_state, Integral):
            repeatable = int(random_state)
        course = [task.terms(sums, run="-", members=names).digest.hex(), repeatable, list(prints)]
        identity = hashlib.sha256(json.dumps(course).encode()).hexdigest()
        kept = RunState.load(path, identity)
    seed = int(science(random_state).integers(2**63)) if kept is None else kept[0].seed
    task = replace(task, seed=seed)
    terms = task.terms(sums, run=name, members=names)
    backend = LocalSums(task, terms, members, recorder=recorder, progress=progress)
    run = Run(
        task,
        backend,
        rounds=rounds,
        validation=validation,
        path=path,
        identity=identity,
        stopping=stopping,
        on_round=on_round,
        progress=progress,
    )
    run.play()
    return run
