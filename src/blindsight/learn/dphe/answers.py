"""The key generator's answer: the sum in plain order, signed, with a list of released blocks that only users can read.

Two things must never reach the aggregator, because it knows in permuted order who touched which place:

- the decrypted sum in the order of phi. Beside the plain sum it would give phi away, value by value, and with phi every
  user's support. So the key generator answers in plain order only.
- which blocks were withheld in plain order. With a single withheld block the aggregator would know whose it is. So the
  users get, under a key made from their shared secret, one bit per block that says whether it was *released*: a user
  keeps what it sent and was not released (for its next update), and learns nothing about blocks others sent in vain.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.sealedbox import seal, unseal
from blindsight.crypto.signing import SigningKey, verify
from blindsight.crypto.wire import decode, encode
from blindsight.errors import BlindsightError, MessageError
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.messages import Answer
from blindsight.learn.dphe.terms import KEY_GENERATOR
from blindsight.rng import ByteSource


@dataclass(frozen=True, eq=False)
class Total:
    """The sum of one round: whose contributions it holds, as exact integers and as the weights they stand for."""

    round: int
    users: tuple[str, ...]
    integers: NDArray[np.int64]
    values: NDArray[np.float64]


def seal_released(
    agreement: Agreement, released: NDArray[np.bool_], shared_secret: bytes, *, round: int, source: ByteSource
) -> bytes:
    """Return the list of released blocks as only users can read it; nothing if every block always is."""
    if not agreement.terms.counting:
        return b""
    return seal(shared_secret, np.packbits(released).tobytes(), purpose=_purpose(round), source=source)


def sign_answer(key: SigningKey, answer: Answer) -> bytes:
    """Return the answer as the key generator sends it."""
    return key.sign(encode(answer), author=KEY_GENERATOR)


def nothing_released(round: int, reason: Exception) -> tuple[MessageError, str]:
    """Return what a key generator answers to every request that it cannot fulfil, and what it writes into its log.

    The sentence is the same whatever the reason: an answer that tells why is an oracle about what was decrypted.
    """
    why = str(reason) if isinstance(reason, BlindsightError) else f"of a {type(reason).__name__}."
    return MessageError(
        f"nothing of round {round} is released, and it is over: this is not the sum of enough contributors of this "
        "round, or a part of it overflowed or was forged. Begin a new round."
    ), f"round {round}: nothing was released, because {why}"


def read_answer(agreement: Agreement, answer: bytes, *, round: int) -> Answer:
    """Return the content of an answer signed by the key generator, for this run and round."""
    _, content = verify(answer, {KEY_GENERATOR: agreement.generator_key})
    message = decode(content, Answer)
    if message.run != agreement.digest or message.round != round:
        raise MessageError(f"the answer is not for round {round} of this run.")
    if message.sums.shape != (agreement.terms.dimension,):
        raise MessageError("the answer has the wrong number of weights.")
    return message


def released_blocks(agreement: Agreement, answer: Answer, shared_secret: bytes) -> NDArray[np.bool_]:
    """Return which blocks of the sum were released: all, unless contributors are counted."""
    terms = agreement.terms
    if not terms.counting:
        return np.ones(terms.blocks, dtype=np.bool_)
    bitmap = unseal(shared_secret, answer.released, purpose=_purpose(answer.round))
    if len(bitmap) != -(-terms.blocks // 8):
        raise MessageError("the list of released blocks has the wrong length.")
    return np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), count=terms.blocks).astype(np.bool_)


def _purpose(round: int) -> bytes:
    return b"released blocks of round %d" % round
