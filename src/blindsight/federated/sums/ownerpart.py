"""What an owner does in a round: settle the last one, learn, send; and nothing it learned is lost on the way.

The same rules as in one process (`learn.federation`): what did not enter a sum (it did not fit, was rounded off,
clipped, withheld, late or lost) stays in the owner's `Memory` and is sent later. What an owner proposed is on its disk
before it leaves, and stays there until the owner knows what became of it: a round that is tried again gets the same
proposal, not a second one. A call that comes late, after one to a later attempt, is refused and changes nothing, and so
is one to learn from another model in the same round.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import Secret, encode
from blindsight.errors import CorruptFileError, MessageError
from blindsight.federated.sums.messages import Call, Contribution
from blindsight.federated.sums.orders import ordinal, same_lesson
from blindsight.federated.sums.userend import UserEnd
from blindsight.files import read_arrays, write_arrays
from blindsight.learn.model import Array
from blindsight.learn.rounds import Memory, Proposal, finite, owner_seed, remembered

Propose = Callable[[Memory, int], Proposal]
"""Learn from the owner's data, given what it remembers and a seed."""

_KIND = "blindsight/owner-memory.1"


@dataclass(frozen=True, eq=False, repr=False)
class _Pending(Secret):
    """A proposal whose fate is not known yet."""

    round: int
    attempt: int
    proposal: Proposal


@dataclass(frozen=True, eq=False, repr=False)
class _Remembered(Secret):
    memory: Memory
    pending: _Pending | None


class OwnerPart(Secret):
    """The owner at a user's end of a run."""

    def __init__(self, end: UserEnd) -> None:
        """Go on from what the end's folder holds, if anything."""
        self._end = end
        self._path = end.folder / "memory.npz"

    def contribute(self, call: Call, propose: Propose) -> bytes:
        """Settle what is pending, learn, and return the contribution to this attempt."""
        kept = self._load()
        memory, pending = kept.memory, kept.pending
        _check_order(call, pending)
        if pending is not None and (pending.round != call.round or pending.attempt == call.settles):
            memory, pending = self._settled(pending, call), None
        proposal = pending.proposal if pending is not None else self._proposed(call, memory, propose)
        self._save(_Remembered(memory, _Pending(call.round, call.attempt, proposal)))
        integers = self._end.terms.sums.integers(self._clipped(proposal))
        messages = self._end.contribute(integers, call.attempt, call.note)
        return encode(Contribution(call.attempt, tuple(messages)))

    def _proposed(self, call: Call, memory: Memory, propose: Propose) -> Proposal:
        place = self._end.terms.users.index(self._end.name)
        proposal = finite(propose(memory, owner_seed(call.seed, call.round, place)))
        if proposal.sent.shape != (self._end.terms.dimension,):
            raise MessageError(
                f"this run adds vectors of {self._end.terms.dimension} numbers; the data of {self._end.name!r} give "
                f"{proposal.sent.size}. Give it data of the same features and classes as the others'."
            )
        return proposal

    def _settled(self, pending: _Pending, call: Call) -> Memory:
        """Return what the owner remembers once it knows what of a proposal entered the sum."""
        sent = self._clipped(pending.proposal)
        entered: NDArray[np.bool_] = np.zeros(sent.shape, dtype=np.bool_)
        if call.settles == pending.attempt:
            entered = self._end.read(call.answer, pending.attempt).entered
        terms = self._end.terms.sums
        return remembered(pending.proposal, terms.values(terms.integers(sent)), entered)

    def _clipped(self, proposal: Proposal) -> Array:
        terms = self._end.terms.sums
        limit = float(terms.values(np.array(terms.max_integer)))
        return np.clip(proposal.sent, -limit, limit)

    def _save(self, kept: _Remembered) -> None:
        document: dict[str, Any] = {"strength": kept.memory.strength}
        arrays: dict[str, NDArray[Any]] = {}
        if kept.memory.held is not None:
            arrays["held"] = kept.memory.held
        if kept.pending is not None:
            proposal = kept.pending.proposal
            document["pending"] = [kept.pending.round, kept.pending.attempt, proposal.memory.strength]
            arrays["sent"] = proposal.sent
            if proposal.memory.held is not None:
                arrays["next"] = proposal.memory.held
        write_arrays(self._path, _KIND, document, arrays, private=True)

    def _load(self) -> _Remembered:
        if not self._path.exists():
            return _Remembered(Memory(None, None), None)
        document, arrays = read_arrays(self._path, _KIND)
        return _remembered_from(self._path, document, arrays)


def _check_order(call: Call, pending: _Pending | None) -> None:
    """Refuse a call that an owner cannot follow without forgetting what it sent since."""
    if call.settles >= call.attempt:
        raise MessageError(
            f"a call to attempt {ordinal(call.attempt)} cannot tell what became of attempt {ordinal(call.settles)}."
        )
    if pending is None or (call.round, call.attempt) == (pending.round, pending.attempt):
        return
    if call.round == pending.round and not same_lesson(call.attempt, pending.attempt):
        raise MessageError(f"round {call.round} has begun with another model.")
    if call.attempt <= pending.attempt or call.round < pending.round:
        raise MessageError(
            f"the call to attempt {ordinal(call.attempt)} at round {call.round} comes too late: attempt "
            f"{ordinal(pending.attempt)} at round {pending.round} has begun."
        )


def _remembered_from(path: Path, document: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> _Remembered:
    try:
        pending = None
        if "pending" in document:
            round, attempt, strength = document["pending"]
            pending = _Pending(round, attempt, Proposal(arrays["sent"], Memory(arrays.get("next"), strength)))
        return _Remembered(Memory(arrays.get("held"), document["strength"]), pending)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{path} does not hold what an owner remembers: {error}.") from None
