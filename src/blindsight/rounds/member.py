"""One member's side of a run: what it learned, what it sends of that, and what it carries over to later rounds.

*The guarantee.* A member makes one update a round. The update is kept before it is sent, so a round that is asked for
again gets the same one; it stays `pending` until the answer of its round tells what entered the sum. What did not (it
had no turn, was rounded off, clipped, withheld, late or lost) stays in the `Memory` and is sent later: after any number
of rounds, all that entered the sums and the memory are together all that was learned (error feedback, Seide et al.
2014; Karimireddy et al. 2019). A learner that measures everything again in each round keeps no memory.

The same `Member` is used in one process, without a `path`, and on a node, where each message makes another one from its
file.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import Secret
from blindsight.errors import CorruptFileError, InputError, MessageError
from blindsight.files import AnyPath, as_path, read_arrays, write_arrays
from blindsight.sums.terms import Integers, Terms

if TYPE_CHECKING:  # rounds are played with members
    from blindsight.rounds.run import RoundSum

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_KIND = "blindsight/member-memory.2"


@dataclass(frozen=True, eq=False)
class Memory:
    """What a member carries from round to round; it never leaves the member.

    `held` was learned and not sent yet, as one vector; None where that is measured anew in each round. `extra` is the
    learner's own.
    """

    held: Array | None = field(default=None, repr=False)
    extra: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, eq=False)
class Update:
    """What a member wants to send, as one whole vector, and what it remembers once that has entered the sum.

    Of `sent` a round of a schedule takes its part; the rest is carried over. With noise, the numbers are whole and hold
    the member's share already.
    """

    sent: Array = field(repr=False)
    memory: Memory = field(default_factory=Memory, repr=False)


class Learner(Protocol):
    """How a member improves the shared model, and how the sum of improvements becomes the next one."""

    @property
    def size(self) -> int:
        """The length of the vectors that are sent."""

    @property
    def always(self) -> int:
        """How many of their last numbers are part of every round of a schedule."""

    @property
    def largest(self) -> float:
        """The largest number to be expected in them."""

    @property
    def additive(self) -> bool:
        """Whether the sum is added to the shared model, not a new one."""

    def first(self, seed: int) -> Array:
        """Return the model to begin with, from public data."""

    def update(self, data: Any, shared: Array, memory: Memory, seed: int) -> Update:
        """Improve the shared model on one member's data."""

    def combine(self, shared: Array, total: "RoundSum") -> Array:
        """Return the next shared model."""

    def score(self, shared: Array) -> float | None:
        """Return the quality of the model on validation data, if there are any."""


class Member(Secret):
    """One member of a run; with a `path`, its memory is on disk before anything is sent."""

    def __init__(self, name: str, terms: Terms, *, path: AnyPath | None = None) -> None:
        self.name, self.terms = name, terms
        self._path = None if path is None else as_path(path)
        self.memory, self.pending = Memory(), None
        if self._path is not None and self._path.exists():
            self._load(self._path)

    memory: Memory
    pending: tuple[int, Update] | None

    def contribute(self, round: int, learn: Callable[[Memory], Update]) -> Integers:
        """Return what is sent in a round, encoded: of the update that was made for it, or else of a new one."""
        if self.pending is not None and self.pending[0] > round:
            raise MessageError(f"the call to round {round} comes too late: round {self.pending[0]} has begun.")
        if self.pending is None or self.pending[0] < round:
            memory = self.memory if self.pending is None else self._carried_over(np.zeros(self.terms.dimension, bool))
            update = self._checked(learn(memory))
            self.memory, self.pending = memory, (round, update)
            self._save()
        return self.terms.integers(self.sending())

    def awaits(self, round: int) -> bool:
        """Return True if it is unknown what became of this round's update."""
        return self.pending is not None and self.pending[0] == round

    def settle(self, round: int, entered: Mask) -> None:
        """Carry over what of the pending update did not enter the sum of its round; idempotent."""
        if self.awaits(round):
            self.memory, self.pending = self._carried_over(entered), None
            self._save()

    def offered(self) -> Array:
        """Return what of the pending update has its turn in its round."""
        round, update = self._pending
        return self.terms.support(round).gather(update.sent)

    def sending(self) -> Array:
        """Return what of that can be sent at the fixed point of the run."""
        return np.clip(self.offered(), -self.terms.limit, self.terms.limit)

    @property
    def _pending(self) -> tuple[int, Update]:
        assert self.pending is not None
        return self.pending

    def _checked(self, update: Update) -> Update:
        size = self.terms.whole or self.terms.dimension
        if update.sent.shape != (size,):
            raise MessageError(
                f"this run adds vectors of {size} numbers; the data of {self.name!r} give {update.sent.size}. Give it "
                "data of the same features and classes as the others'."
            )
        if not np.isfinite(update.sent).all():
            raise InputError("its update is not finite. Look for extreme values among its features.")
        return update

    def _carried_over(self, entered: Mask) -> Memory:
        round, update = self._pending
        if update.memory.held is None:
            return update.memory
        support, terms = self.terms.support(round), self.terms
        arrived = np.where(entered, terms.values(terms.integers(self.sending())), 0.0)
        return replace(update.memory, held=update.memory.held + (update.sent - support.scatter(arrived)))

    def _save(self) -> None:
        if self._path is None:
            return
        document: dict[str, Any] = {"extra": self.memory.extra.hex()}
        arrays = {"held": self.memory.held}
        if self.pending is not None:
            round, update = self.pending
            document["pending"] = {"round": round, "extra": update.memory.extra.hex()}
            arrays |= {"sent": update.sent, "next": update.memory.held}
        kept = {name: array for name, array in arrays.items() if array is not None}
        write_arrays(self._path, _KIND, document, kept, private=True)

    def _load(self, path: Path) -> None:
        document, arrays = read_arrays(path, _KIND)
        try:
            self.memory = Memory(arrays.get("held"), bytes.fromhex(document["extra"]))
            if "pending" in document:
                about = document["pending"]
                later = Memory(arrays.get("next"), bytes.fromhex(about["extra"]))
                self.pending = about["round"], Update(arrays["sent"], later)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(f"{path} does not hold the memory of a member: {error}.") from None


def member_seed(seed: int, round: int, place: int) -> int:
    """Return the seed of one member, by its place among all, in one round of a run."""
    return int(np.random.SeedSequence((seed, round, place)).generate_state(1, np.uint64)[0])


# What is sent of an update


def sparsity(values: Array) -> float:
    """Return the share of exact zeros.

    >>> sparsity(np.array([0.0, 2.0, 0.0, 0.0]))
    0.75
    """
    return 1 - int(np.count_nonzero(values)) / max(values.size, 1)


def top_entries(values: Array, keep_fraction: float) -> Mask:
    """Mark the entries of largest magnitude, at most `keep_fraction` of all but at least one; ties go to the first.

    >>> top_entries(np.array([0.1, -3.0, 2.0, 0.0]), 0.5)
    array([False,  True,  True, False])
    """
    return _largest(np.abs(values).ravel(), keep_fraction).reshape(values.shape)


def top_blocks(values: Array, block_size: int, keep_fraction: float) -> Mask:
    """Mark whole blocks of `block_size` consecutive entries (row by row; the last may be shorter) by largest norm.

    At most `keep_fraction` of the blocks are marked but at least one; ties go to the first. Packed encryption wants
    this shape: at 90% unstructured sparsity 99.9% of the blocks of 63 weights still hold a number.

    >>> top_blocks(np.array([[1.0, 1.0, 0.0], [0.0, 3.0, 0.0]]), block_size=2, keep_fraction=0.4)
    array([[False, False, False],
           [False,  True,  True]])
    """
    if block_size < 1:
        raise InputError(f"block_size must be at least 1; got {block_size}.")
    starts = np.arange(0, values.size, block_size)
    energy = np.add.reduceat(values.ravel() ** 2, starts) if values.size else np.zeros(0)
    chosen = np.repeat(_largest(energy, keep_fraction), block_size)[: values.size]
    return chosen.reshape(values.shape)


def _largest(sizes: Array, keep_fraction: float) -> Mask:
    if not 0 < keep_fraction <= 1:
        raise InputError(f"keep_fraction must be in (0, 1]; got {keep_fraction}.")
    count = max(math.floor(keep_fraction * sizes.size + 1e-9), 1)
    mask = np.zeros(sizes.size, dtype=np.bool_)
    mask[np.argsort(-sizes, kind="stable")[:count]] = True
    return mask
