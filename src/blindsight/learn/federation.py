"""Rounds of learning together: every owner improves the shared model on its own data, a session adds up, all go on.

*The guarantee.* What leaves an owner leaves through the session (`aggregation`) and in no other way. Given the same
proposals, the scheme changes the cost and who sees what, never the model: all add the same integers. What an owner
learned and did not get into the sum (it did not fit, was rounded off, clipped, withheld or lost on its way) stays in
its `Memory` and is sent later; a learner that keeps no residual learns it again. With a `schedule` each round is about
the positions that it names, the same for all owners: the session adds up these numbers and no others. An owner that
cannot take part in a round is left out of it, and the others go on while there are three. A round is a function of the
state before it, the owners' data and the seed alone, so a run that was interrupted and resumed ends with the same model
as one that was not.

Yonetani et al., ICCV 2017, section 2.1: steps (1) to (3) of its Figure 1 are one call of `Federation.round`.
"""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.encoding import SlotPacking
from blindsight.errors import BlindsightError, InputError, MessageError, PrivacyError
from blindsight.learn.model import Array
from blindsight.learn.recording import Witness, listening
from blindsight.learn.rounds import EarlyStopping, RoundReport, bytes_by_role, seconds_by_role
from blindsight.learn.sparsity import sparsity
from blindsight.progress import Progress, silent
from blindsight.sums import RoundResult, Session
from blindsight.sums.support import Schedule, Support

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

    Where there is a `schedule`, the vectors of the session have its `size`.
    """

    session: Session
    owners: Sequence[str]
    learner: Learner
    rounds: int
    stopping: EarlyStopping | None = None
    schedule: Schedule | None = None
    witness: Witness | None = None

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
            sparsity=float(np.mean([sparsity(vector) for vector in sent.values()])),
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
