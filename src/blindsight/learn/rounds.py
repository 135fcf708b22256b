"""Rounds of learning together: every owner improves the shared model on its own data, a session adds up, all go on.

*The guarantee.* What leaves an owner leaves through the session (`blindsight.sums`) and in no other way. Given the same
proposals, the scheme changes the cost and who sees what, never the model: all add the same integers. What an owner
learned and did not get into the sum (it did not fit, was rounded off, clipped, withheld or lost on its way) stays in
its `Memory` and is sent later; a learner that keeps no residual learns it again. With a `schedule` each round is about
the positions that it names, the same for all owners: the session adds up these numbers and no others. An owner that
cannot take part in a round is left out of it, and the others go on while there are three. A round is a function of the
state before it, the owners' data and the seed alone, so a run that was interrupted and resumed ends with the same model
as one that was not.

Yonetani et al., ICCV 2017, section 2.1: steps (1) to (3) of its Figure 1 are one call of `Federation.round`. `play` is
what `FederatedClassifier` and `FederatedKMeans` have in common: it opens the session, begins or resumes, plays the
rounds and says what was protected.

*Checkpoint.* One file, replaced atomically after each round and readable by its owner alone: it holds what owners have
not sent yet. In this simulation all owners share a process, hence one file. A round that was interrupted is played
again with the same updates. Were its sum read before, and an owner missing the second time, the two sums would differ
by what that owner sent: here nobody reads a sum but the process that was killed; between real parties no round is
opened twice (`sums.roles`).
"""

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.encoding import SlotPacking
from blindsight.errors import (
    BlindsightError,
    CorruptFileError,
    InputError,
    MessageError,
    PrivacyError,
    UnknownNameError,
)
from blindsight.files import AnyPath, as_path, read_arrays, storage_errors, write_arrays
from blindsight.learn.model import Array
from blindsight.learn.recording import RecordedRound, RoleView, Witness, listening
from blindsight.learn.sparsity import sparsity
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.statement import PrivacyStatement, facts_table
from blindsight.sums import SPARSE_SCHEMES, RoundResult, Session, open_session
from blindsight.sums.dphe import default_per_position
from blindsight.sums.engine import Cost
from blindsight.sums.noise import NoisePlan
from blindsight.sums.support import BLOCK, Schedule, Support
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

Criterion = Literal["score", "step"]
"""Stop when the validation score no longer rises, or when the model no longer moves."""


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """One finished round.

    `score` is the accuracy averaged over classes (attributes; for clusters the adjusted mutual information) on the
    validation data, None without any. `sparsity` is the mean share of zeros in what owners sent, `step` how far the
    model moved relative to its length. `seconds` of CPU and `sent` bytes are by role: "members" together, "aggregator",
    "key generator"; `seconds` also has "training", all owners' local learning. `absent` says why an owner sent nothing
    and `refused` why what it sent did not count. `withheld` weights were not revealed, `clipped` ones were out of
    range of the fixed point.
    """

    round: int
    score: float | None
    sparsity: float
    step: float
    seconds: Mapping[str, float]
    sent: Mapping[str, int]
    contributors: tuple[str, ...]
    absent: Mapping[str, str]
    refused: Mapping[str, str]
    withheld: int
    clipped: int

    def _repr_html_(self) -> str:
        facts = {
            "score": None if self.score is None else f"{self.score:.3f}",
            "in the sum": f"{len(self.contributors)}: {', '.join(self.contributors)}",
            "absent": "; ".join(f"{name}: {why}" for name, why in self.absent.items()),
            "refused": "; ".join(f"{name}: {why}" for name, why in self.refused.items()),
            "zeros in what was sent": f"{self.sparsity:.1%}",
            "bytes": ", ".join(f"{role} {size:,}" for role, size in self.sent.items()),
            "CPU seconds": ", ".join(f"{role} {seconds:.2f}" for role, seconds in self.seconds.items()),
            "withheld, out of range": f"{self.withheld:,}, {self.clipped:,}",
        }
        return facts_table(f"Round {self.round}", facts)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_dict` described."""
        return cls(**{**data, "contributors": tuple(data["contributors"])})


def seconds_by_role(cost: Cost) -> dict[str, float]:
    """Return the CPU seconds of all members together and of each service."""
    members = sum(cost.seconds(party=member) for member in cost.members)
    return {"members": members} | {service: cost.seconds(party=service) for service in (AGGREGATOR, KEY_GENERATOR)}


def bytes_by_role(cost: Cost) -> dict[str, int]:
    """Return the bytes sent by all members together and by each service."""
    return {"members": sum(map(cost.sent, cost.members))} | {
        service: cost.sent(service) for service in (AGGREGATOR, KEY_GENERATOR)
    }


@dataclass(frozen=True)
class EarlyStopping:
    """Stop once `patience` rounds in a row brought less than `tolerance`: of score above the best, or of step."""

    criterion: Criterion
    patience: int
    tolerance: float

    def __post_init__(self) -> None:
        if self.criterion not in get_args(Criterion):
            raise UnknownNameError("early stopping", str(self.criterion), get_args(Criterion))
        if self.patience < 1 or not self.tolerance >= 0:
            raise InputError(
                f"patience must be at least 1 and tolerance at least 0; got {self.patience} and {self.tolerance}."
            )

    def reached(self, history: Sequence[RoundReport]) -> bool:
        """Tell whether the last of these rounds was the last one worth making."""
        if self.criterion == "step":
            recent = history[-self.patience :]
            return len(recent) == self.patience and all(report.step < self.tolerance for report in recent)
        scores = [report.score for report in history if report.score is not None]
        before, recently = scores[: -self.patience], scores[-self.patience :]
        return bool(before) and max(recently) < max(before) + self.tolerance


SLOT_BITS = 32


@dataclass(frozen=True, eq=False)
class Memory:
    """What one owner carries from round to round; it never leaves the owner."""

    held: Array | None  # learned but not sent yet, as one vector; None where that is measured anew in each round
    strength: float | None  # of the penalty that made its last update sparse

    def __repr__(self) -> str:
        return "<Memory, hidden>"


@dataclass(frozen=True, eq=False)
class Proposal:
    """What one owner wants to send, as one vector, and what it will remember once that has arrived.

    Of `sent` a round of a schedule takes its part; the rest is remembered as what has not arrived.
    """

    sent: Array
    memory: Memory

    def __repr__(self) -> str:
        return "<Proposal, hidden>"


class Learner(Protocol):
    """What is learned: how an owner improves the shared model, and how the sum of improvements becomes the next one."""

    @property
    def adds(self) -> bool:
        """Tell whether the sum is added to the shared model, not a new one."""

    @property
    def validated(self) -> bool:
        """Tell whether there are validation data."""

    def first(self, seed: int) -> Array:
        """Return the model to begin with, from public data."""

    def propose(self, owner: str, shared: Array, memory: Memory, seed: int) -> Proposal:
        """Improve the shared model on one owner's data."""

    def combine(self, shared: Array, result: RoundResult) -> Array:
        """Return the next shared model."""

    def score(self, shared: Array) -> float | None:
        """Return how good the model is on validation data, if there are any."""


@dataclass(frozen=True, eq=False)
class FederationState:
    """Everything a run needs to go on after a round."""

    shared: Array
    memories: Mapping[str, Memory]
    history: tuple[RoundReport, ...]
    seed: int
    first_score: float | None  # of the model before the first round


class ClippedWarning(UserWarning):
    """Weights were too large for the fixed point of the run."""


def fraction_bits(owners: int, largest: float) -> int:
    """Return the finest fixed point, up to 2^-24, at which so many owners may each send weights up to `largest`.

    >>> fraction_bits(5, 64.0), fraction_bits(100, 64.0)
    (22, 18)
    """
    room = SlotPacking(SLOT_BITS, 1).max_value(owners) / largest
    return min(24, max(0, math.floor(math.log2(max(room, 1.0)))))


@dataclass(frozen=True, kw_only=True, eq=False)
class Federation:
    """A session, the owners in it, what they learn and when they stop; a `witness` sees the first round played.

    Where there is a `schedule`, the vectors of the session have its `size`. With `noise` in the sums nothing is told of
    what single owners sent, not even its zeros.
    """

    session: Session
    owners: Sequence[str]
    learner: Learner
    rounds: int
    stopping: EarlyStopping | None = None
    schedule: Schedule | None = None
    witness: Witness | None = None
    noise: bool = False

    def run(
        self,
        state: FederationState,
        *,
        keep: Callable[[FederationState], None],
        on_round: Callable[[RoundReport], object] | None = None,
        progress: Progress = silent,
    ) -> FederationState:
        """Play the rounds that are left; after each, `keep` the state, then tell `on_round` about it."""
        while len(state.history) < self.rounds and not self._enough(state.history):
            state = self.round(state, progress)
            keep(state)
            progress("rounds", len(state.history), self.rounds)
            if on_round is not None:
                on_round(state.history[-1])
        return state

    def _enough(self, history: Sequence[RoundReport]) -> bool:
        return self.stopping is not None and self.stopping.reached(history)

    def round(self, state: FederationState, progress: Progress = silent) -> FederationState:
        """Play one round."""
        number, begun = len(state.history) + 1, time.process_time()
        proposals, absent = self._proposals(state, number, progress)
        training = time.process_time() - begun
        support = self._support(number)
        offered = {name: support.gather(proposal.sent) for name, proposal in proposals.items()}
        picked = {name: np.clip(vector, -self.limit, self.limit) for name, vector in offered.items()}
        result = self._sum(picked, number, support, absent)
        sent = {name: support.scatter(vector) for name, vector in picked.items()}
        shared = self.learner.combine(state.shared, result)
        if self.witness is not None:
            self.witness.look(state.shared, sent, result, support)
        report = RoundReport(
            round=number,
            score=self.learner.score(shared),
            sparsity=0.0 if self.noise else float(np.mean([sparsity(vector) for vector in sent.values()])),
            step=float(np.linalg.norm(shared - state.shared) / max(float(np.linalg.norm(shared)), 1e-300)),
            seconds={"training": training} | seconds_by_role(result.cost),
            sent=bytes_by_role(result.cost),
            contributors=result.contributors,
            absent=absent,
            refused=dict(result.refused),
            withheld=len(result.withheld),
            clipped=sum(int((offered[name] != vector).sum()) for name, vector in picked.items()),
        )
        self._warn_of_clipping(report)
        terms, memories = self.session.terms, {}
        for name, vector in picked.items():
            entered = np.full(support.dimension, name in result.contributors)
            entered[result.withheld] = False
            rounded = support.scatter(terms.values(terms.integers(vector)))  # zero where it was not a position's turn
            memories[name] = remembered(proposals[name], rounded, entered)
        return replace(state, shared=shared, memories={**state.memories, **memories}, history=(*state.history, report))

    @property
    def limit(self) -> float:
        """The largest weight that can be sent."""
        terms = self.session.terms
        return float(terms.values(np.array(terms.max_integer)))

    def _support(self, number: int) -> Support:
        if self.schedule is None:
            return Support.everything(self.session.terms.dimension)
        return self.schedule.support(number - 1)

    def _sum(
        self, picked: Mapping[str, Array], number: int, support: Support, absent: Mapping[str, str]
    ) -> RoundResult:
        """Add up what owners send, and return the sum as one of whole vectors."""
        try:
            with listening(self.witness):
                result = self.session.round(picked, number)
        except (MessageError, PrivacyError) as error:
            for name, reason in absent.items():
                error.add_note(f"Absent: {name}, because {reason}")
            raise
        withheld = result.withheld[result.withheld < len(support.positions)]  # the rest is padding
        return replace(
            result,
            total=support.scatter(result.total),
            values=support.scatter(result.values),
            withheld=support.positions[withheld],
        )

    def _warn_of_clipping(self, report: RoundReport) -> None:
        if report.clipped:
            warnings.warn(
                f"{report.clipped} weights of round {report.round} were clipped to +-{self.limit:g}, the most that the "
                "fixed point holds. Look for features that vary far more with an owner than in the public data.",
                ClippedWarning,
                stacklevel=2,
            )

    def _proposals(
        self, state: FederationState, number: int, progress: Progress
    ) -> tuple[dict[str, Proposal], dict[str, str]]:
        """Return what each owner proposes, and why some propose nothing."""
        proposals, absent = {}, {}
        for place, name in enumerate(self.owners):
            progress(f"round {number}: training", place, len(self.owners))
            seed = owner_seed(state.seed, number, place)
            try:
                proposals[name] = finite(self.learner.propose(name, state.shared, state.memories[name], seed))
            except (BlindsightError, OSError, MemoryError) as error:
                absent[name] = str(error) or type(error).__name__
        progress(f"round {number}: adding up", len(self.owners), len(self.owners))
        return proposals, absent


def owner_seed(seed: int, round: int, place: int) -> int:
    """Return the seed of one owner, by its place among the users, in one round of a run."""
    return int(np.random.SeedSequence((seed, round, place)).generate_state(1, np.uint64)[0])


def finite(proposal: Proposal) -> Proposal:
    """Return a proposal that can be sent; one with NaN or infinity raises."""
    if not np.isfinite(proposal.sent).all():
        raise InputError("its update is not finite. Look for extreme values among its features.")
    return proposal


def remembered(proposal: Proposal, rounded: Array, entered: NDArray[np.bool_]) -> Memory:
    """Return what an owner remembers: to what it held back comes all that did not enter the sum as `rounded`."""
    if proposal.memory.held is None:
        return proposal.memory
    arrived = np.where(entered, rounded, 0.0)
    return replace(proposal.memory, held=proposal.memory.held + (proposal.sent - arrived))


_KIND = "blindsight/federation-checkpoint.1"


@dataclass(frozen=True)
class Checkpoint:
    """Where a run keeps its state; `run` is a fingerprint of all that decides its course."""

    folder: Path
    run: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "state.npz"

    def save(self, state: FederationState) -> None:
        """Replace what is kept by this state."""
        memories = state.memories
        document = {
            "run": self.run,
            "seed": state.seed,
            "first score": state.first_score,
            "strengths": {name: memory.strength for name, memory in memories.items()},
            "history": [report.to_dict() for report in state.history],
        }
        arrays: dict[str, NDArray[Any]] = {"shared": state.shared}
        for number, memory in enumerate(memories.values()):
            if memory.held is not None:
                arrays[f"held-{number}"] = memory.held
        write_arrays(self.path, _KIND, document, arrays, private=True)

    def load(self) -> FederationState | None:
        """Return the state after the last finished round, None if there is none; that of another run is refused."""
        with storage_errors("use", self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in self.folder.glob(f".{self.path.name}.*.part"):
                part.unlink()  # a writer was killed in the middle
            if not self.path.exists():
                return None
        document, arrays = read_arrays(self.path, _KIND)
        if document["run"] != self.run:
            raise InputError(
                f"{self.folder} holds the checkpoint of another run: its owners, data or settings differ. "
                "Use another folder, or delete it to begin anew."
            )
        try:
            memories = {
                name: Memory(_writable(arrays.get(f"held-{number}")), strength)
                for number, (name, strength) in enumerate(document["strengths"].items())
            }
            history = tuple(RoundReport.from_dict(report) for report in document["history"])
            return FederationState(arrays["shared"], memories, history, document["seed"], document["first score"])
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptFileError(f"{self.path} holds no usable checkpoint: {error}.") from None


def _writable(array: NDArray[Any] | None) -> NDArray[np.float64] | None:
    return None if array is None else np.array(array, dtype=np.float64)


Sparsify = Literal["topk", "blocks", "schedule", "strength", "none"]
Selection = Literal["auto", "topk", "blocks", "schedule", "strength", "none"]
Seed = int | np.random.Generator | None
OnRound = Callable[[RoundReport], object]
L = TypeVar("L", bound=Learner)


def usual_sparsity(sparsify: Sparsify) -> float:
    """Return the share of weights that are not sent in a round, where nobody says so."""
    return {"schedule": 0.8, "none": 0.0}.get(sparsify, 0.9)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How updates are added up and how many times; `sums.open_session` explains the first four.

    `sparsity` is the share of weights that an owner does not send in a round, None the usual one (`sparsity_of`).
    """

    scheme: str
    key_bits: int
    minimum_per_position: int
    insecure: bool
    sparsity: float | None
    rounds: int
    early_stopping: Criterion | None
    patience: int
    tolerance: float
    record: bool
    keys: str = "subgroup"

    def __post_init__(self) -> None:
        """Refuse what cannot be played before any key is made."""
        if self.rounds < 1:
            raise InputError(f"rounds must be at least 1; got {self.rounds}.")
        _ = self.stopping

    @classmethod
    def of(cls, estimator: Any, owners: int) -> Self:
        """Return the settings among an estimator's parameters, for so many owners."""
        given = {field.name: getattr(estimator, field.name) for field in fields(cls)}
        if given["minimum_per_position"] is None:
            sparse = given["scheme"] in SPARSE_SCHEMES
            given["minimum_per_position"] = default_per_position(owners) if sparse else 1
        return cls(**given)

    @property
    def block_size(self) -> int:
        """How many consecutive weights one plaintext of block DPHE holds; the same for all schemes, to compare them."""
        counting = int(self.minimum_per_position > 1)
        return SlotPacking.for_key(self.key_bits, slot_bits=SLOT_BITS).slots - counting

    @property
    def stopping(self) -> EarlyStopping | None:
        """When to stop before the last round, if ever."""
        if self.early_stopping is None:
            return None
        return EarlyStopping(self.early_stopping, self.patience, self.tolerance)

    def sparsified(self, wanted: Selection, by_penalty: bool, *, schedules: bool = False) -> Sparsify:
        """Return how updates are made sparse: by the penalty, in blocks where the scheme packs, else one by one.

        Where the rounds know `schedules`, schemes that add up whole vectors follow one.
        """
        if wanted != "auto":
            return wanted
        if by_penalty:
            return "strength"
        if schedules and self.scheme not in SPARSE_SCHEMES:
            return "schedule"
        return "blocks" if self.scheme == "block-dphe" else "topk"

    def sparsity_of(self, sparsify: Sparsify) -> float:
        """Return the sparsity of updates that are made sparse in this way."""
        return usual_sparsity(sparsify) if self.sparsity is None else self.sparsity

    def share(self, sparsify: Sparsify) -> float | None:
        """Return the share of the weights that the rounds of a schedule have; None if there is no schedule."""
        return 1 - self.sparsity_of(sparsify) if sparsify == "schedule" else None

    def capacity(self, dimension: int, sparsify: Sparsify) -> int:
        """Return how many weights an owner may change per message, so that its updates fit into one."""
        kept = 1 - self.sparsity_of(sparsify)
        if sparsify in ("none", "schedule"):
            return dimension
        if sparsify != "blocks":
            return max(1, math.ceil(kept * dimension - 1e-9))
        block = min(self.block_size, dimension)
        return min(dimension, block * max(1, math.floor(kept * math.ceil(dimension / block) + 1e-9)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Task(Generic[L]):
    """What a run is about: who learns what, what is sent, and what makes this run recognisable."""

    owners: Sequence[str]
    learner: L
    dimension: int  # the length of the vectors that are sent
    capacity: int
    largest: float  # the largest weight that is to be expected in them
    share: float | None = None  # of the weights in a round, by a public schedule; None: owners choose, or send all
    always: int = 0  # how many of the last numbers are part of every round of a schedule
    identity: Mapping[str, Any]  # settings and fingerprints of data, as plain data
    noise: NoisePlan | None = None  # with noise, vectors are whole numbers and a sum needs all but its drop-outs


@dataclass(frozen=True, eq=False)
class Run:
    """What came of it."""

    state: FederationState
    statement: PrivacyStatement
    views: tuple[RoleView, ...] = ()
    recorded: RecordedRound | None = None


def play(
    task: Task[L],
    settings: RunSettings,
    *,
    random_state: Seed,
    checkpoint: AnyPath | None,
    on_round: OnRound | None,
    progress: Progress,
) -> Run:
    """Play all rounds, or those that a checkpoint says are left."""
    witness = Witness(settings.scheme, settings.minimum_per_position) if settings.record else None
    _check(task, settings)
    kept = None if checkpoint is None else Checkpoint(as_path(checkpoint), _fingerprint(task, settings, random_state))
    state = None if kept is None else kept.load()
    seed = int(science(random_state).integers(2**63)) if state is None else state.seed
    schedule = _schedule(task, seed)
    session = _open(task, settings, schedule, witness)
    federation = Federation(
        session=session,
        owners=task.owners,
        learner=task.learner,
        rounds=settings.rounds,
        stopping=settings.stopping,
        schedule=schedule,
        witness=witness,
        noise=task.noise is not None,
    )
    keep = _forget if kept is None else kept.save
    state = federation.run(state or _begin(task, seed), keep=keep, on_round=on_round, progress=progress)
    statement = _statement(session, len(state.history), schedule)
    return Run(state, statement) if witness is None else Run(state, statement, witness.views, witness.recorded)


def _check(task: Task[L], settings: RunSettings) -> None:
    if settings.early_stopping == "score" and not task.learner.validated:
        raise InputError("stopping by score needs validation data. Give some, or stop by step.")
    if settings.minimum_per_position > 1 and not task.learner.adds:
        raise InputError(
            f"a mean of models with withheld weights is no model; got minimum_per_position="
            f"{settings.minimum_per_position}. Send target='update', or name the paper's minimum_per_position=1."
        )
    if task.share is not None and not task.learner.adds:
        raise InputError("a mean of models of which a part is sent is no model. Send target='update'.")


def _schedule(task: Task[L], seed: int) -> Schedule | None:
    """Return the schedule that everybody derives from the run's public config, if there is one."""
    if task.share is None:
        return None
    config = [list(task.owners), task.dimension, task.always, task.share, BLOCK, seed]
    digest = hashlib.sha256(json.dumps(config).encode()).digest()
    return Schedule(task.dimension, BLOCK, task.share, digest, always=task.always)


def _open(task: Task[L], settings: RunSettings, schedule: Schedule | None, witness: Witness | None) -> Session:
    dimension = task.dimension if schedule is None else schedule.size
    return open_session(
        settings.scheme,
        members=task.owners,
        dimension=dimension,
        fraction_bits=0 if task.noise else fraction_bits(len(task.owners), task.largest),
        slot_bits=SLOT_BITS,
        minimum=3 if task.noise is None else task.noise.members - task.noise.drop_outs,
        minimum_per_position=settings.minimum_per_position,
        capacity=min(task.capacity, dimension),
        key_bits=settings.key_bits,
        keys=settings.keys,
        insecure=settings.insecure,
        record=witness,
    )


def _begin(task: Task[L], seed: int) -> FederationState:
    shared = task.learner.first(seed)
    memories = {name: Memory(None, None) for name in task.owners}
    return FederationState(shared, memories, (), seed, task.learner.score(shared))


def _fingerprint(task: Task[L], settings: RunSettings, random_state: Seed) -> str:
    """Return what two runs have in common exactly when one may go on where the other stopped."""
    course = asdict(settings)
    for name in ("rounds", "early_stopping", "patience", "tolerance", "record"):
        del course[name]  # a finished run may be prolonged
    repeatable = int(random_state) if isinstance(random_state, Integral) else None
    whole = [list(task.owners), task.dimension, task.share, repeatable, course, dict(task.identity)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _statement(session: Session, rounds: int, schedule: Schedule | None) -> PrivacyStatement:
    """Return the statement of the session, which speaks of one round, with what a run of several adds to it."""
    said = session.statement()
    added = (
        f"the sums of all {rounds} rounds: everybody sees how the model moved, not only where it ended",
        "how many samples all owners have together, where that sets the strength of the penalty or the fixed point",
    )
    said = replace(said, not_protected=(*said.not_protected, *added))
    if schedule is None:
        return said
    everybody = (
        f"which {schedule.size:,} of {schedule.dimension:,} weights a round is about, or fewer: a public schedule, the "
        "same for every owner, which holds nothing private; every number that is opened is a sum over all contributors"
    )
    mechanism = (
        f"{said.mechanism}; weights take turns by a public schedule, all of them once in {schedule.cycle} rounds"
    )
    return replace(said, mechanism=mechanism, who_sees={**said.who_sees, "everybody": everybody})


def alone() -> PrivacyStatement:
    """Return the statement of somebody who learned from its own data and sent nothing."""
    return PrivacyStatement(
        guarantee="none",
        mechanism="none: one owner learned alone and shared nothing",
        unit=None,
        epsilon=None,
        delta=None,
        randomness="none",
        who_sees={"owner": "its own data and the model", "everybody else": "nothing, until the model is passed on"},
        not_protected=("what the model tells about the data it was trained on, if it is passed on",),
    )


def _forget(state: FederationState) -> None:
    """Keep nothing."""
