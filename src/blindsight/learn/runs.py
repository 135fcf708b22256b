"""One run from settings to result: open the session, begin or resume, play the rounds, say what was protected.

What `FederatedClassifier` and `FederatedKMeans` have in common.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np

from blindsight.crypto.encoding import SlotPacking
from blindsight.errors import InputError
from blindsight.files import AnyPath, as_path
from blindsight.learn.checkpoint import Checkpoint
from blindsight.learn.federation import SLOT_BITS, Federation, FederationState, Learner, Memory, fraction_bits
from blindsight.learn.recording import RecordedRound, RoleView, Witness
from blindsight.learn.rounds import Criterion, EarlyStopping, RoundReport
from blindsight.progress import Progress
from blindsight.rng import science
from blindsight.statement import PrivacyStatement
from blindsight.sums import SPARSE_SCHEMES, Session, open_session
from blindsight.sums.noise import NoisePlan
from blindsight.sums.session import default_per_position
from blindsight.sums.support import BLOCK, Schedule

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
    """How updates are added up and how many times; `aggregation.open_session` explains the first four.

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
