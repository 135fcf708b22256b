"""The contributions of one round as the aggregator holds them: checked one by one, added up as they come.

Nothing is added before it has passed every check, and nothing of a user before all its shards are there. Memory is for
one vector of ciphertexts, a receipt per shard, and the shards of users who have sent some but not all.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from blindsight.crypto.paillier import Ciphertexts, EncryptedSum
from blindsight.crypto.wire import decode
from blindsight.errors import MessageError
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.messages import Contribution, Receipt, Shard, check_places
from blindsight.learn.dphe.packedsum import pack_ciphertexts
from blindsight.learn.dphe.receipts import read_receipt
from blindsight.progress import Progress
from blindsight.rng import ByteSource


@dataclass(frozen=True, eq=False, repr=False)
class CheckedShard:
    """One user's shard that has passed every check: ciphertexts and their places phi K."""

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
        self.users: set[str] = set()  # those whose shards are all here
        self._agreement, self._own_secrets = agreement, own_secrets
        self._sum = EncryptedSum(agreement.key, agreement.terms.blocks)
        self._senders = np.zeros(agreement.terms.blocks, dtype=np.int64)
        self._receipts: dict[str, dict[int, Receipt]] = {}
        self._envelopes: dict[str, list[bytes]] = {}
        self._waiting: dict[str, list[CheckedShard]] = {}

    def check(self, message: bytes) -> CheckedShard | None:
        """Return a contribution's shard, None if the very same is here already; `MessageError` says what is wrong."""
        contribution = decode(message, Contribution, max_bytes=self._agreement.terms.contribution_bytes)
        user, receipt = read_receipt(self._agreement, contribution.receipt, round=self.round)
        if hashlib.sha256(contribution.shard).digest() != receipt.body:
            raise MessageError(f"the receipt of {user!r} is for another shard than it came with.")
        known = self._receipts.get(user, {})
        if known.get(receipt.shard) == receipt:
            return None
        if receipt.shard in known or any(other.shards != receipt.shards for other in known.values()):
            raise MessageError(f"{user!r} has sent something else in round {self.round} already.")
        if self.closed:
            raise MessageError(f"round {self.round} is closed; {user!r} comes too late.")
        places, ciphertexts = self._read_shard(user, contribution.shard)
        return CheckedShard(user, receipt, contribution.receipt, places, ciphertexts)

    def add(self, shard: CheckedShard) -> None:
        """Take in a shard that was just checked."""
        user = shard.user
        self._receipts.setdefault(user, {})[shard.receipt.shard] = shard.receipt
        self._envelopes.setdefault(user, []).append(shard.envelope)
        self._waiting.setdefault(user, []).append(shard)
        if len(self._receipts[user]) == shard.receipt.shards:
            parts = self._waiting.pop(user)
            for part in parts:
                self._sum.add(part.ciphertexts, part.places)  # the element-wise product of Eq. 4
            self._senders[np.unique([part.places for part in parts])] += 1  # once, however many shards name a place
            self.users.add(user)

    def receipts(self) -> tuple[bytes, ...]:
        """Return the signed receipts of everything that was added."""
        return tuple(envelope for user in sorted(self.users) for envelope in self._envelopes[user])

    def senders(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many users sent each of these places, padding included; nothing unless contributors count."""
        return self._senders[places] if self._agreement.terms.counting else self._senders[:0]

    def total(
        self, *, source: ByteSource, threads: int | None, progress: Progress
    ) -> tuple[NDArray[np.int64], Ciphertexts]:
        """Return places in the order of phi, the touched ones or all as the terms say, and their encrypted sums.

        The sums are packed: one ciphertext holds those of `Terms.blocks_per_request` consecutive places.
        """
        terms, key = self._agreement.terms, self._agreement.key
        if terms.as_published:
            return self._published_total(source)
        places, sums = self._sum.touched()
        if terms.decrypt == "touched":
            return places, pack_ciphertexts(sums, terms, threads=threads, progress=progress)
        # A zero of its own for every packed ciphertext hides which of its places were not touched.
        values = np.full(terms.blocks, mpz(1), dtype=object)
        values[places] = sums.values
        packed = pack_ciphertexts(Ciphertexts(key, tuple(values)), terms, threads=threads, progress=progress)
        return np.arange(terms.blocks), packed + key.encrypt_zeros(len(packed), source=source)

    def _read_shard(self, user: str, body: bytes) -> tuple[NDArray[np.int64], Ciphertexts]:
        terms = self._agreement.terms
        shard = decode(body, Shard)
        if shard.places.shape != (terms.capacity,):
            raise MessageError(f"a shard has {terms.capacity} places; that of {user!r} has not.")
        check_places(shard.places, shard.ciphertexts, terms.blocks)
        ciphertexts = Ciphertexts.from_matrix(self._agreement.key, shard.ciphertexts)
        own = self._agreement.own_permutation(self._own_secrets[user], user, self.round)
        return own.backward(shard.places), ciphertexts  # Eq. 8

    def _published_total(self, source: ByteSource) -> tuple[NDArray[np.int64], Ciphertexts]:
        """Eqs. 4-6 to the letter: every contribution puts one and the same Enc0 at each place it does not touch."""
        key, counts = self._agreement.key, self._sum.counts
        modulus = mpz(key.n) ** 2
        (enc0,) = key.encrypt_zeros(1, source=source).values
        powers = [gmpy2.powmod(enc0, exponent, modulus) for exponent in range(len(self.receipts()) + 1)]
        places, touched = self._sum.touched()
        one, products = mpz(1), dict(zip(places.tolist(), touched.values, strict=True))
        values = [
            products.get(place, one) * powers[-1 - count] % modulus for place, count in enumerate(counts.tolist())
        ]
        return np.arange(len(values)), Ciphertexts(key, tuple(values))
