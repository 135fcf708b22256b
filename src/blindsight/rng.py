"""Two kinds of randomness that must never be mixed up.

*Science* (splits, initial weights, procedural pictures) is repeatable: `science(seed)` gives a numpy generator.
*Secrets* (keys, permutations, privacy noise) come from the operating system: functions that draw them take a
`ByteSource` whose default is `os.urandom`; only tests pass `seeded_bytes(seed)` instead.
"""

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError

ByteSource = Callable[[int], bytes]
"""Called with a count, returns that many random bytes."""

system_bytes: ByteSource = os.urandom


def science(random_state: int | np.random.Generator | None) -> np.random.Generator:
    """Return a generator for repeatable science; an existing generator is passed through.

    >>> float(science(7).random()) == float(science(7).random())
    True
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is not None and random_state < 0:
        raise InputError(f"a seed must be a whole number >= 0; got {random_state}.")
    return np.random.default_rng(random_state)


def seeded_bytes(seed: int) -> ByteSource:
    """Return a repeatable stand-in for the operating system's randomness: for tests, never for secrets."""
    return np.random.default_rng(seed).bytes


def random_words(size: int, source: ByteSource = system_bytes) -> NDArray[np.uint64]:
    """Draw `size` uniform 64-bit words."""
    return np.frombuffer(source(8 * size), dtype="<u8").astype(np.uint64)


def random_below(bound: int | NDArray[np.uint64], size: int, source: ByteSource = system_bytes) -> NDArray[np.int64]:
    """Draw `size` integers uniform in [0, bound), exactly: words that would bias the remainder are drawn again.

    `bound` is one positive number below 2^63 or one per draw.
    """
    bounds = np.broadcast_to(np.asarray(bound, dtype=np.uint64), (size,))
    if size and (bounds.min() < 1 or bounds.max() >= 2**63):
        raise InputError("bounds of uniform integers must lie in [1, 2^63).")
    drawn = np.empty(size, dtype=np.int64)
    pending = np.arange(size)
    while pending.size:
        word, wanted = random_words(pending.size, source), bounds[pending]
        # 2^64 mod wanted, in 64-bit arithmetic: words below it are the surplus that would bias the remainder.
        surplus = (np.uint64(0) - wanted) % wanted
        fair = word >= surplus
        drawn[pending[fair]] = (word[fair] % wanted[fair]).astype(np.int64)
        pending = pending[~fair]
    return drawn
