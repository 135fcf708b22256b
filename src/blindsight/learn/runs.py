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
from blindsight.learn.recording import RecordedRound
from blindsight.learn.roleviews import RoleView, Witness
from blindsight.learn.rounds import Criterion, EarlyStopping, RoundReport
from blindsight.progress import Progress
from blindsight.rng import science
from blindsight.statement import PrivacyStatement
from blindsight.sums import Session, open_session

Selection = Literal["auto", "topk", "blocks", "strength", "none"]
Seed = int | np.random.Generator | None
OnRound = Callable[[RoundReport], object]
L = TypeVar("L", bound=Learner)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How updates are added up and how many times; `aggregation.open_session` explains the first five."""

    scheme: str
    key_bits: int
    minimum_per_position: int
    insecure: bool
    sparsity: float
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
    def of(cls, estimator: object) -> Self:
        """Return the settings among an estimator's parameters."""
        return cls(**{field.name: getattr(estimator, field.name) for field in fields(cls)})

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

    def sparsified(self, wanted: Selection, by_penalty: bool) -> Literal["topk", "blocks", "strength", "none"]:
        """Return how updates are made sparse: by the penalty, in blocks where the scheme packs, else one by one."""
        if wanted != "auto":
            return wanted
        if by_penalty:
            return "strength"
        return "blocks" if self.scheme == "block-dphe" else "topk"

    def capacity(self, dimension: int, sparsify: str) -> int:
        """Return how many weights an owner may change per message, so that its updates fit into one."""
        kept = 1 - self.sparsity
        if sparsify == "none":
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
    identity: Mapping[str, Any]  # settings and fingerprints of data, as plain data


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
    session = _open(task, settings, witness)
    federation = Federation(
        session=session,
        owners=task.owners,
        learner=task.learner,
        rounds=settings.rounds,
        stopping=settings.stopping,
        witness=witness,
    )
    kept = None if checkpoint is None else Checkpoint(as_path(checkpoint), _fingerprint(task, settings, random_state))
    state = None if kept is None else kept.load()
    if state is None:
        state = _begin(task, int(science(random_state).integers(2**63)))
    keep = _forget if kept is None else kept.save
    state = federation.run(state, keep=keep, on_round=on_round, progress=progress)
    statement = _statement(session, len(state.history))
    return Run(state, statement) if witness is None else Run(state, statement, witness.views, witness.recorded)


def _check(task: Task[L], settings: RunSettings) -> None:
    if settings.early_stopping == "score" and not task.learner.validated:
        raise InputError("stopping by score needs validation data. Give some, or stop by step.")
    if settings.minimum_per_position > 1 and not task.learner.adds:
        raise InputError("a mean of models with withheld weights is no model. Send target='update'.")


def _open(task: Task[L], settings: RunSettings, witness: Witness | None) -> Session:
    return open_session(
        settings.scheme,
        members=task.owners,
        dimension=task.dimension,
        fraction_bits=fraction_bits(len(task.owners), task.largest),
        slot_bits=SLOT_BITS,
        minimum_per_position=settings.minimum_per_position,
        capacity=task.capacity,
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
    whole = [list(task.owners), task.dimension, repeatable, course, dict(task.identity)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _statement(session: Session, rounds: int) -> PrivacyStatement:
    """Return the statement of the session, which speaks of one round, with what a run of several adds to it."""
    said = session.statement()
    added = (
        f"the sums of all {rounds} rounds: everybody sees how the model moved, not only where it ended",
        "how many samples all owners have together, where that sets the strength of the penalty or the fixed point",
    )
    return replace(said, not_protected=(*said.not_protected, *added))


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
