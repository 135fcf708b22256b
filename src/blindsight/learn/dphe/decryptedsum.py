"""What the key generator makes of a request: a sum in plain order, without the blocks that too few users changed.

If contributors are counted, every changed block carries a one in its last slot, and padding a zero: the decrypted slot
is the number of users who really changed the block. (The aggregator only knows how many *sent* it, and a dummy there
makes one contributor look like two.)

Users who lie can put any number into that slot, also into those of blocks that they did not send, because sums share a
plaintext. So the aggregator says how many users sent each block, and

    Claim. With an aggregator that adds up honestly, no block is released that fewer than `Terms.min_per_block` users
    sent, whatever any number of them encrypted.
    Proof. A block is released only if min_per_block <= count <= senders, and the senders are the aggregator's. []

What remains: padding counts as sending. A block that one user changed and others padded is released if a single lying
user lifts its count to no more than the number of its senders; if everybody sends every block, the bound says nothing.
A lying user can also have any block withheld. Nobody but the user can check which of its blocks are padding: that is
what padding is for.
"""

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.paillier import Ciphertexts, PrivateKey
from blindsight.crypto.permutation import SecretPermutation
from blindsight.errors import MessageError
from blindsight.learn.dphe.messages import Request, check_places
from blindsight.learn.dphe.terms import Terms
from blindsight.progress import Progress


def decrypt_sum(
    request: Request,
    terms: Terms,
    *,
    key: PrivateKey,
    shared: SecretPermutation,
    contributors: int,
    threads: int | None,
    progress: Progress,
) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
    """Return the sum of so many users' weights, zero where it is withheld, which blocks are released, which forged."""
    check_request(request, terms, contributors)
    places = request.places
    packing = SlotPacking(terms.slot_bits, terms.packing.slots * terms.blocks_per_request)
    ciphertexts = Ciphertexts.from_matrix(key.public, request.ciphertexts)
    numbers = key.decrypt(ciphertexts, bound=packing.max_packed(), threads=threads, progress=progress)
    rows = np.zeros((terms.blocks, terms.packing.slots), dtype=np.int64)
    senders = np.zeros(terms.blocks, dtype=np.int64)
    blocks = shared.backward(places)  # phi is undone here, before anyone else sees the sum
    rows[blocks] = packing.unpack(numbers, places.size * terms.packing.slots).reshape(places.size, -1)
    if terms.counting:
        senders[blocks] = request.senders
    return _released(rows, senders, terms, contributors)


def check_request(request: Request, terms: Terms, contributors: int) -> None:
    """Refuse places, ciphertexts and numbers of senders that do not fit each other or these terms."""
    check_places(request.places, request.ciphertexts, terms.blocks, per_ciphertext=terms.blocks_per_request)
    senders = request.senders
    if senders.shape != (request.places.size * terms.counting,) or ((senders < 0) | (senders > contributors)).any():
        raise MessageError("the request does not say of every place how many contributors sent it.")


def _released(
    rows: NDArray[np.int64], senders: NDArray[np.int64], terms: Terms, contributors: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
    """Withhold what fewer than `Terms.min_per_block` users changed or anyone forged; raise if no count is kept."""
    weights, counts = rows[:, : terms.slots], rows[:, terms.slots :]
    most = contributors * terms.max_integer
    outside = np.hstack([(weights > most) | (weights < -most), (counts < 0) | (counts > senders[:, None])])
    forged: NDArray[np.bool_] = np.any(outside, axis=1)
    forged[-1] |= weights.ravel()[terms.dimension :].any()
    if forged.any() and not terms.counting:
        raise MessageError("the sum is not one that these contributors can have: one overflowed or was forged.")
    released: NDArray[np.bool_] = (counts >= terms.min_per_block).all(axis=1) & ~forged
    sums = np.where(released[:, None], weights, 0).ravel()[: terms.dimension]
    return sums, released, int(np.count_nonzero(forged))
