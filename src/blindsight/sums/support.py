"""Agreed supports: which positions of a vector a round adds up, by a public schedule that every member derives alike.

*The guarantee.* The positions of a round are a function of the run's public config and the round's number. They hold
nothing private, no server chooses them, and every number that a round opens is a sum over all its contributors. In
contrast, where each member sends the positions that matter most to itself, most of what is opened belongs to one member
alone (with five members that each send a tenth, two thirds to five sixths of the blocks).

*The schedule.* A vector of `dimension` numbers consists of blocks of `block` consecutive ones; the last may be shorter.
A cycle is C = ceil(1 / share) rounds, in which every block has its turn exactly once, in a fresh, uniformly random
order (`crypto.permutation`). Hence a round has floor(B / C) or ceil(B / C) of the B blocks: at most `share` of them,
but for rounding up to a whole block. A share that is not one over a whole number is rounded down to the next that is
(0.7 means 0.5). No round is empty: a cycle has at most as many rounds as blocks. The last `always` numbers are part of
every round, for what cannot wait (the counts of clusters); they form no block.

Konecny et al. 2016, "Federated Learning: Strategies for Improving Communication Efficiency", section 2 ("random mask"),
let each client draw the positions for itself; drawn once for all, they fit a sum of whole vectors under masks.
"""

import math
from dataclasses import dataclass, field
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.permutation import derive_permutation
from blindsight.errors import InputError

Positions = NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.float64)

BLOCK = 16
"""Blocks this small cost no accuracy compared with single numbers, and a million of them are put in order at once."""


@dataclass(frozen=True, eq=False)
class Support:
    """The positions of one round among `dimension`, in ascending order; what the round adds up has length `size`."""

    positions: Positions
    dimension: int
    size: int

    @classmethod
    def everything(cls, dimension: int) -> Self:
        return cls(np.arange(dimension, dtype=np.int64), dimension, dimension)

    @property
    def mask(self) -> NDArray[np.bool_]:
        chosen = np.zeros(self.dimension, dtype=np.bool_)
        chosen[self.positions] = True
        return chosen

    def gather(self, vector: NDArray[Number]) -> NDArray[Number]:
        """Return what the round adds up of a vector, in the order of the positions, padded with zeros to `size`."""
        picked = np.zeros(self.size, dtype=vector.dtype)
        picked[: len(self.positions)] = vector[self.positions]
        return picked

    def scatter(self, picked: NDArray[Number]) -> NDArray[Number]:
        """Undo `gather`: return a whole vector, with zeros at the positions that are not the round's."""
        vector = np.zeros(self.dimension, dtype=picked.dtype)
        vector[self.positions] = picked[: len(self.positions)]
        return vector


@dataclass(frozen=True)
class Schedule:
    """Which positions belong to which round; `seed` is a digest of the run's public config (16 bytes or more).

    >>> schedule = Schedule(dimension=10, block=2, share=0.4, seed=bytes(16))
    >>> schedule.cycle, schedule.size
    (3, 4)
    >>> sorted(int(place) for round in range(3) for place in schedule.positions(round))
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    dimension: int
    block: int
    share: float
    seed: bytes = field(repr=False)
    always: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.always < self.dimension:
            raise InputError(
                f"a schedule needs at least one position that has turns: {self.dimension} in all, {self.always} in "
                "every round."
            )
        if self.block < 1:
            raise InputError(f"a block has at least 1 position; got {self.block}.")
        if not 0 < self.share <= 1:
            raise InputError(f"the share of a round must be in (0, 1]; got {self.share}.")
        if len(self.seed) < 16:
            raise InputError(f"a schedule's seed has at least 16 bytes; got {len(self.seed)}. Digest the run config.")

    @property
    def blocks(self) -> int:
        return -(-(self.dimension - self.always) // self.block)

    @property
    def cycle(self) -> int:
        """After how many rounds every block had its turn."""
        return min(math.ceil(1 / self.share - 1e-9), self.blocks)

    @property
    def size(self) -> int:
        """The most positions that a round has; vectors of a round are padded to it."""
        return min(-(-self.blocks // self.cycle) * self.block, self.dimension - self.always) + self.always

    def positions(self, round: int) -> Positions:
        """Return the positions of a round in ascending order; rounds count from 0."""
        if round < 0:
            raise InputError(f"rounds count up from 0; got {round}.")
        if self.cycle == 1:
            return np.arange(self.dimension, dtype=np.int64)
        cycle, turn = divmod(round, self.cycle)
        order = derive_permutation(self.seed, size=self.blocks, use="agreed support", cycle=cycle)
        first, last = (part * self.blocks // self.cycle for part in (turn, turn + 1))
        chosen = np.sort(order.backward(np.arange(first, last, dtype=np.int64)))
        within = (chosen[:, None] * self.block + np.arange(self.block, dtype=np.int64)).ravel()
        end = self.dimension - self.always
        return np.concatenate([within[within < end], np.arange(end, self.dimension, dtype=np.int64)])

    def mask(self, round: int) -> NDArray[np.bool_]:
        return self.support(round).mask

    def support(self, round: int) -> Support:
        return Support(self.positions(round), self.dimension, self.size)
