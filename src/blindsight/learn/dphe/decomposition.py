"""w = K v (Eq. 3): an update as the blocks that changed, padded so that their number and order tell nothing.

    Claim. What is returned for an update with n changed blocks is, up to the secret permutation phi, a function of the
    number of shards F = max(1, ceil(n / M)) and fresh randomness alone: under a uniform phi, F shards of M places each
    are distributed alike for all updates with the same F.
    Proof. If F M <= B (the number of blocks), the shards are a uniformly random split of F M distinct blocks, and phi
    sends any F M distinct blocks to uniformly random ones. Else all B blocks occur in a uniformly random order, and the
    first F M - B of them a second time, in the last shard; again phi makes all cases alike. []

F itself is seen by whoever counts a user's messages. The paper leaves the split and the order open: shards filled in
the order of the weights would tell the aggregator which permuted places come first in the model.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.learn.dphe.terms import Terms
from blindsight.rng import ByteSource, random_words, system_bytes


@dataclass(frozen=True, eq=False, repr=False)
class IndexedValues:
    """One shard: `blocks` are the M rows in which K has a one, `plaintexts` is v, one packed block each."""

    blocks: NDArray[np.int64]
    plaintexts: list[int]


def decompose(integers: NDArray[np.int64], terms: Terms, *, source: ByteSource = system_bytes) -> list[IndexedValues]:
    """Split an encoded update into shards of exactly `terms.capacity` blocks, at least one shard."""
    rows = _as_blocks(integers, terms)
    changed = np.flatnonzero(rows.any(axis=1))
    packed = _packed(rows[changed], terms)
    count = max(1, -(-changed.size // terms.capacity)) * terms.capacity
    unchanged = np.setdiff1d(np.arange(terms.blocks), changed, assume_unique=True)
    padding = _shuffled(unchanged, source)[: count - changed.size]
    order = _shuffled(np.arange(changed.size + padding.size), source)
    blocks = np.concatenate([changed, padding])[order]
    plaintexts = [packed[i] if i < changed.size else 0 for i in order.tolist()]
    # More places than blocks: the last shard repeats some blocks of the first, with zeros.
    plaintexts += [0] * (count - blocks.size)
    blocks = np.concatenate([blocks, blocks[: count - blocks.size]])
    return [
        IndexedValues(blocks[start : start + terms.capacity], plaintexts[start : start + terms.capacity])
        for start in range(0, count, terms.capacity)
    ]


def _as_blocks(values: NDArray[np.int64], terms: Terms) -> NDArray[np.int64]:
    """Return one row of `terms.slots` weights per block; the last row is filled with zeros."""
    rows = np.zeros(terms.blocks * terms.slots, dtype=np.int64)
    rows[: values.size] = values
    return rows.reshape(terms.blocks, terms.slots)


def _packed(rows: NDArray[np.int64], terms: Terms) -> list[int]:
    """Return one plaintext per changed block; if contributors are counted, it counts as one."""
    counted = np.hstack([rows, np.ones((len(rows), terms.counting), dtype=np.int64)])
    return terms.packing.pack(counted.ravel(), terms=len(terms.users))


def _shuffled(items: NDArray[np.int64], source: ByteSource) -> NDArray[np.int64]:
    return items[np.argsort(random_words(items.size, source))]
