"""What the methods that add up one round share: the users' updates come in, their sum and what it took go out."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

FRACTION_BITS, SLOT_BITS = 20, 32


@dataclass(frozen=True)
class Round:
    """Users who each changed `kept` blocks of `block` weights, the same blocks or their own.

    Weights are multiples of 2^-20 below 1/4 (of 2^-14 for slots of 16 bits), so exact schemes have no excuse. A user
    sends `capacity` weights or a multiple of that, as in the paper. If this is a part of a round, `whole` is how many
    weights that round has.
    """

    users: tuple[str, ...]
    weights: int
    block: int
    kept: int
    shared: bool
    capacity: int
    key_bits: int
    whole: int
    seed: int
    slot_bits: int = SLOT_BITS

    @property
    def insecure(self) -> bool:
        """Whether the key is of the paper's length, which no longer protects anything."""
        return self.key_bits < 2048

    @property
    def fraction_bits(self) -> int:
        """The finest fixed point at which the sum of seven users fits a slot."""
        return min(FRACTION_BITS, self.slot_bits - 2)

    @property
    def blocks(self) -> int:
        """How many blocks hold all weights."""
        return -(-self.weights // self.block)

    def update(self, user: str) -> NDArray[np.float64]:
        """Draw a user's update; every call draws the same."""
        number = self.users.index(user)
        values = np.random.default_rng([self.seed, number, 0])
        supports = np.random.default_rng([self.seed, len(self.users) if self.shared else number, 1])
        rows = np.zeros((self.blocks, self.block))
        limit = 1 << (self.fraction_bits - 2)
        steps = values.integers(1, limit, (self.kept, self.block)) * values.choice((-1, 1), (self.kept, self.block))
        rows[supports.choice(self.blocks, self.kept, replace=False)] = steps / (1 << self.fraction_bits)
        return rows.ravel()[: self.weights]

    def shards(self, weights: int) -> int:
        """Return how many times `capacity` a user sends who changed so many weights."""
        return max(1, -(-weights // self.capacity))


class Measured(NamedTuple):
    """Seconds or bytes, and the share of the round's work that they were measured on."""

    amount: float
    share: float = 1.0


class RoundAnswer(TypedDict):
    """The sum of all updates at `places`, and what the round took: CPU seconds by step, bytes that one user sends.

    Steps are "encrypt" (one user), "aggregate" and "decrypt"; where it applies also "table" (what one user prepares
    once per key) and "decrypt all" (every place, touched or not). `peak_bytes` is 0 if nobody looked at memory.
    """

    total: NDArray[np.float64]
    places: NDArray[np.int64]
    seconds: dict[str, Measured]
    sent: Measured
    peak_bytes: int


class Clock:
    """CPU time of this process by step."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Count the block."""
        begun = time.process_time()
        try:
            yield
        finally:
            self.seconds[step] += time.process_time() - begun
