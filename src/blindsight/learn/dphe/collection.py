"""The contributions of one round as the aggregator holds them: checked one by one, added up as they come.

Nothing is added before it has passed every check, and nothing of a user before all its shards are there. Memory is for
one vector of ciphertexts, a receipt per shard, and the shards of users who have sent some but not all.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from blindsight.crypto.encryptedsum import EncryptedSum
from blindsight.crypto.paillier import Ciphertexts
from blindsight.crypto.wire import decode
from blindsight.errors import MessageError
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.messages import Contribution, Receipt, Shard
from blindsight.learn.dphe.receipts import read_receipt
from blindsight.rng import ByteSource


@dataclass(frozen=True, eq=False, repr=False)
class CheckedShard:
    """One user's shard after all checks: ciphertexts and their places phi K."""

    user: str
    receipt: Receipt
    envelope: bytes
    places: NDArray[np.int64]
    ciphertexts: Ciphertexts


class Collection:
    """What one round has brought so far."""

    def __init__(self, agreement: Agreement, own_secrets: Mapping[str, bytes], round: int) -> None:
        """Begin with nothing; `own_secrets` are the ones behind each user's phi^(n)."""
        self.round, self.closed = round, False
        self.users: set[str] = set()  # whose shards are all here
        self._agreement, self._own_secrets = agreement, own_secrets
        self._sum = EncryptedSum(agreement.key, agreement.terms.blocks)
        self._shards: dict[str, dict[int, CheckedShard]] = {}  # of users who are not complete
        self._envelopes: dict[str, dict[int, tuple[bytes, bytes]]] = {}  # digest and signed receipt, by user and shard

    def check(self, message: bytes) -> CheckedShard | None:
        """Return a contribution's shard, None if the very same is here already; `MessageError` tells what is wrong."""
        contribution = decode(message, Contribution, max_bytes=self._agreement.terms.contribution_bytes)
        user, receipt = read_receipt(self._agreement, contribution.receipt, round=self.round)
        if hashlib.sha256(contribution.shard).digest() != receipt.body:
            raise MessageError(f"the receipt of {user!r} is for another shard than it came with.")
        before = self._envelopes.get(user, {})
        if receipt.shard in before:
            if before[receipt.shard][0] == receipt.body:
                return None
            raise MessageError(f"{user!r} has sent shard {receipt.shard + 1} already, with another content.")
        if any(read != receipt.shards for read in self._announced(user)):
            raise MessageError(f"{user!r} first announced another number of shards.")
        if self.closed:
            raise MessageError(f"round {self.round} is closed; {user!r} comes too late.")
        places, ciphertexts = self._read_shard(user, contribution.shard)
        return CheckedShard(user, receipt, contribution.receipt, places, ciphertexts)
