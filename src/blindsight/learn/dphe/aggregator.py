"""The aggregator A: adds up contributions that it cannot read, at places that it cannot name.

It sees each user's ciphertexts and, after undoing phi^(n) (Eq. 8), the places phi K: it never holds phi. A message that
is damaged, forged, late, repeated differently, for another round or from a stranger is refused with a sentence and
changes nothing. A user counts when all its shards have arrived, and not at all before. Memory is for one vector of
ciphertexts, a receipt per shard, and the shards of users who have sent some but not all.

What goes to the key generator is sealed with a secret that only the two share. A listener who held both the users'
contributions and the sum would otherwise recognise, wherever one user alone contributed, that user's ciphertext in the
sum, and with it the place phi K that phi^(n) was to hide; for places of two or three users he would try the products.
Sealing hides all of that at no cost. (Re-randomising the sum would also do, at the price of an encryption per place;
against the key generator, who can decrypt whatever it comes by, neither is of any use.)
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from blindsight.crypto.encryptedsum import EncryptedSum
from blindsight.crypto.paillier import Ciphertexts
from blindsight.crypto.secret import Secret
from blindsight.crypto.wire import decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.answers import Total, read_answer
from blindsight.learn.dphe.messages import (
    AggregatorSetup,
    Contribution,
    Receipt,
    RoundBegun,
    RoundClosed,
    Shard,
    SumPart,
)
from blindsight.learn.dphe.receipts import read_receipt
from blindsight.learn.dphe.sealing import seal
from blindsight.learn.dphe.storage import MessageJournal
from blindsight.learn.dphe.terms import Terms
from blindsight.learn.dphe.views import Record, forget
from blindsight.rng import ByteSource, system_bytes

REQUEST = b"decrypt the sum"
PART_PLACES = 8192
"""So many ciphertexts go to the key generator in one message."""


class _Round:
    """What has arrived in one round."""

    def __init__(self, agreement: Agreement, number: int) -> None:
        self.number = number
        self.closed = False
        self.sum = EncryptedSum(agreement.key, agreement.terms.blocks)
        self.receipts: dict[str, dict[int, bytes]] = {}  # signed, by user and shard
        self.digests: dict[tuple[str, int], bytes] = {}
        self.waiting: dict[str, list[tuple[NDArray[np.int64], Ciphertexts]]] = {}
        self.complete: set[str] = set()

    def add(self, user: str, receipt: Receipt, envelope: bytes, places: NDArray[np.int64], values: Ciphertexts) -> None:
        self.receipts.setdefault(user, {})[receipt.shard] = envelope
        self.digests[user, receipt.shard] = receipt.body
        self.waiting.setdefault(user, []).append((places, values))
        if len(self.receipts[user]) == receipt.shards:
            # Algorithm 1, step 5: the element-wise product (Eqs. 4 and 6).
            for where, ciphertexts in self.waiting.pop(user):
                self.sum.add(ciphertexts, where)
            self.complete.add(user)
