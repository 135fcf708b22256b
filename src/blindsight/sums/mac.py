"""A linear code that shows a sum to be the sum: the key generator releases nothing that it cannot check.

Each member adds to its values s (all slots of all its plaintexts: weights, counts, padding; a place it does not send
counts as zero) a tag, modulo the prime P = 2^61 - 1:

    tag_m = sum_j r_j s_j + o_m        r: one number per slot and round, from a secret of all members and the key
                                       generator; o_m: one per member and round, from a secret of that member and it

The aggregator, who knows neither, adds up tags like everything else. The key generator decrypts a sum S and a tag T,
which are said to be those of the members in N, who signed receipts, and releases S only if

    T = sum_j r_j S_j + sum_{m in N} o_m   (mod P).

    Claim. Whatever an aggregator asks for without a member's help, it is accepted with probability at most 2^-60 if S
    is not the sum of what the members of N encrypted in this round.
    Proof. Let it even know all s^(m) and tag_m in the clear. A member makes one tag a round, and its o_m is uniform, so
    the tags are uniform and independent of r. Accepted means T - sum_N tag_m = sum_j r_j (S_j - sum_N s_j^(m)). If S is
    another sum, some factor of an r_j is not zero: slots are below P / 2 in absolute value, so it is none modulo P
    either. Given all other r, exactly one value of that r_j is accepted: probability 1 / P, and r_j deviates from
    uniform by less than 1 / P. []

Nothing about the encryption was used: it may be malleable. All that is needed is that S and T determine every bit of
what was decrypted, which the schemes check. That a sum was refused tells something about r: so a mismatch uses up the
round and the key (`generator`). The sum of the tags tells the key generator nothing that it does not know
from S; a tag by itself would be a fingerprint of its member's update.

*What it does not do.* A member knows r. One that colludes with the aggregator makes tags for sums of its own, and a
member that lies about its own update has a right tag for the lie. It cannot, however, contribute what it has seen
another member encrypt, or the negative of it: the tag would need that member's o_m twice, or not at all.
"""

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

PRIME = (1 << 61) - 1
TAG_BITS = 61

_LABEL = b"blindsight sums code 1"
_LIMB = 16  # bits of r that are multiplied at once
_CHUNK = 1 << 14  # products of 16 and 33 bits, so many of which fit 63


def tag(values: NDArray[np.int64], *, shared: bytes, offset: bytes, context: bytes) -> int:
    """Return one member's tag of its values in the round that `context` names."""
    return (_combined(values, shared, context) + _offset(offset, context)) % PRIME


def matches(values: NDArray[np.int64], total: int, *, shared: bytes, offsets: Iterable[bytes], context: bytes) -> bool:
    """Tell whether `total` is the sum of the tags of the members with these offsets, whose values add to `values`."""
    known = sum(_offset(offset, context) for offset in offsets)
    return (total - _combined(values, shared, context) - known) % PRIME == 0


def context_of(run: bytes, round: int) -> bytes:
    return b"round %d of " % round + run


def _combined(values: NDArray[np.int64], secret: bytes, context: bytes) -> int:
    """Return sum_j r_j v_j mod P, in exact integers: r in limbs of 16 bits, v in halves of 31 and 33."""
    factors = _stream(secret, b"factors of " + context, values.size) & np.uint64(PRIME)
    high = values >> 31
    halves = [(values, 0)]
    if high.size and (high.max() > 0 or high.min() < -1):
        halves = [(values & 0x7FFFFFFF, 0), (high, 31)]
    total = 0
    for place in range(0, TAG_BITS, _LIMB):
        limb = ((factors >> np.uint64(place)) & np.uint64((1 << _LIMB) - 1)).astype(np.int64)
        for half, shift in halves:
            products = limb * half
            starts = np.arange(0, products.size, _CHUNK)
            total += sum(np.add.reduceat(products, starts).tolist()) << (place + shift) if products.size else 0
    return total % PRIME


def _offset(secret: bytes, context: bytes) -> int:
    return int(_stream(secret, b"offset of " + context, 1)[0]) & PRIME


def _stream(secret: bytes, info: bytes, count: int) -> NDArray[np.uint64]:
    key = HKDF(algorithm=SHA256(), length=32, salt=_LABEL, info=info).derive(secret)
    stream = Cipher(AES256(key), CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8").astype(np.uint64)
