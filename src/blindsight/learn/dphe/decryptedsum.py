"""What the key generator makes of a request: a sum in plain order, without the blocks that too few users changed.

If contributors are counted, every changed block carries a one in its last slot, and padding a zero: the decrypted slot
is the number of users who really changed the block. (The aggregator only knows how many *touched* it, and a dummy there
makes one contributor look like two.)
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
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the sum of so many users' weights, zero where it is withheld, and which blocks are released."""
    places = request.places
    check_places(places, request.ciphertexts, terms.blocks, per_ciphertext=terms.blocks_per_request)
    packing = SlotPacking(terms.slot_bits, terms.packing.slots * terms.blocks_per_request)
    ciphertexts = Ciphertexts.from_matrix(key.public, request.ciphertexts)
    numbers = key.decrypt(ciphertexts, bound=packing.max_packed(), threads=threads, progress=progress)
    rows = np.zeros((terms.blocks, terms.packing.slots), dtype=np.int64)
    # phi is undone here, before anyone else sees the sum.
    rows[shared.backward(places)] = packing.unpack(numbers, places.size * terms.packing.slots).reshape(places.size, -1)
    return _released(rows, terms, contributors)


def _released(rows: NDArray[np.int64], terms: Terms, contributors: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Check that the sum is possible, and withhold what fewer than `Terms.min_per_block` users changed."""
    sums = rows[:, : terms.slots].ravel()
    counts = rows[:, terms.slots :].ravel()
    most = contributors * terms.max_integer
    if (sums > most).any() or (sums < -most).any() or sums[terms.dimension :].any():
        raise MessageError("the sum is not one that these contributors can have: one overflowed or was forged.")
    if (counts < 0).any() or (counts > contributors).any():
        raise MessageError("the sum counts contributors that are not there: one was forged.")
    released = counts >= terms.min_per_block if terms.counting else np.ones(terms.blocks, dtype=np.bool_)
    return np.where(np.repeat(released, terms.slots), sums, 0)[: terms.dimension], released
