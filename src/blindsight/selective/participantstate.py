"""What a participant knows that changes: each event makes another state, and nothing else does."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import Secret
from blindsight.selective.protection import Sharing, remainder
from blindsight.selective.sparseupdate import SparseUpdate, Vector


@dataclass(frozen=True, eq=False, repr=False)
class UnderWay(Secret):
    """What is not settled: what there was to send, what of it was sent, and in which upload (none: into a sum)."""

    wanted: Vector
    update: SparseUpdate
    upload: bytes = b""

    def is_the_one_of(self, digest: bytes) -> bool:
        """Whether it was sent in the upload that has this SHA-256."""
        return hashlib.sha256(self.upload).digest() == digest


@dataclass(frozen=True, eq=False, repr=False)
class ParticipantState(Secret):
    """Where a participant stands."""

    local: Vector | None = None
    version: int = -1
    sequence: int = 0  # of the last upload that the server added
    residual: Vector | None = None
    under_way: UnderWay | None = None
    inputs: tuple[NDArray[Any], ...] = ()
    labels: tuple[np.int64, ...] = ()
    gathered: int = 0
    charged: bool = False  # for the batch trained on last, and all went well
    spent: bool = False

    def with_photos(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> "ParticipantState":
        """Take in photos, behind those that wait."""
        return replace(
            self,
            inputs=(*self.inputs, *rows.copy()),
            labels=(*self.labels, *labels),
            gathered=self.gathered + len(rows),
        )

    def trained(self, batch: int, local: Vector, under_way: UnderWay, *, charged: bool) -> "ParticipantState":
        """Give up the photos of a batch for what was learned from them."""
        return replace(
            self,
            local=local,
            under_way=under_way,
            inputs=self.inputs[batch:],
            labels=self.labels[batch:],
            charged=charged,
        )

    def settled(self, arrived: SparseUpdate, sharing: Sharing) -> "ParticipantState":
        """Remember, with residuals, what of that under way did not arrive."""
        assert self.under_way is not None
        residual = remainder(self.under_way.wanted, arrived, sharing) if sharing.residual else self.residual
        return replace(self, residual=residual, under_way=None)

    def withdrawn(self, sharing: Sharing) -> "ParticipantState":
        """Remember, with residuals, all that was under way: nothing arrived."""
        if self.under_way is not None and sharing.residual:
            return replace(self, residual=self.under_way.wanted, under_way=None)
        return replace(self, under_way=None)

    def added(self, sequence: int, digest: bytes, sharing: Sharing) -> "ParticipantState":
        """Learn which upload was added last; if a withdrawn one of the same number was, that under way cannot be."""
        after = replace(self, sequence=sequence)
        if sequence == self.sequence or self.under_way is None or not self.under_way.upload:
            return after
        if self.under_way.is_the_one_of(digest):
            return after.settled(self.under_way.update, sharing)
        return after.withdrawn(sharing)
