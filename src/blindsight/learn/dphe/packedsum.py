"""Many encrypted sums in one ciphertext: the aggregator packs what it asks for, so that little is left to decrypt.

The sums are themselves packed blocks of b bits (`encoding.SlotPacking`). From ciphertexts of m_0, m_1, ... whoever adds
can make one of m_0 + m_1 2^b + m_2 2^2b + ..., a longer packed block, at b squarings for each. With one weight of 32
bits per ciphertext, 63 of them share one decryption at 2048 bits, and the request is as much shorter. The paper has
every weight decrypted by itself.
"""

import os
from concurrent.futures import ThreadPoolExecutor

from gmpy2 import mpz

from blindsight.crypto.paillier import Ciphertexts
from blindsight.learn.dphe.terms import Terms
from blindsight.progress import Progress, silent

_CHUNK = 64


def pack_ciphertexts(
    ciphertexts: Ciphertexts, terms: Terms, *, threads: int | None = None, progress: Progress = silent
) -> Ciphertexts:
    """Return one ciphertext for every `Terms.blocks_per_request` in a row; zeros fill up the last."""
    width = terms.blocks_per_request
    if width == 1:
        return ciphertexts
    chunks = [ciphertexts[start : start + _CHUNK * width] for start in range(0, len(ciphertexts), _CHUNK * width)]
    shift = 1 << (terms.packing.slots * terms.slot_bits)
    values: list[mpz] = []
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        for packed in pool.map(lambda chunk: _pack(chunk, width, shift), chunks):
            values += packed.values
            progress("packing", min(len(values) * width, len(ciphertexts)), len(ciphertexts))
    return Ciphertexts(ciphertexts.key, tuple(values))


def _pack(ciphertexts: Ciphertexts, width: int, shift: int) -> Ciphertexts:
    """Horner's rule; gmpy2 releases the interpreter's lock for a list of powers."""
    zeros = (mpz(1),) * (-len(ciphertexts) % width)  # 1 is a ciphertext of zero
    full = Ciphertexts(ciphertexts.key, ciphertexts.values + zeros)
    packed = full[width - 1 :: width]
    for start in reversed(range(width - 1)):
        packed = packed * shift + full[start::width]
    return packed
