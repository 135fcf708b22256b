"""What an aggregator can make of the bytes it received from one owner: guesses of that owner's update.

A round is recorded with ``open_session(..., record=recorder)``; `Recorder` keeps what the aggregator got, message by
message. The attacker here is generous: it knows every format, undoes the permutation phi^(n) that the aggregator shares
with each user, and reads whatever is left as numbers in every way that could make sense: single bytes, 32-bit integers
of either byte order at every alignment, from every start near the front of a message and in consecutive stretches
behind it; for DPHE also one number per ciphertext, or its bytes as the weights of its block, at the places they were
sent for. The sum that everybody gets is not among them (`averages` measures what that tells).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import Message, decode
from blindsight.errors import InputError, MessageError
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.messages import AggregatorSetup, AgreementMessage, Contribution, Receipt, Shard
from blindsight.learn.dphe.terms import AGGREGATOR, Terms
from blindsight.learn.lattice.messages import Vouched
from blindsight.learn.schemes.plain import Update

_STARTS = 64  # how many starts are tried near the front of a message
_STRETCHES = 32  # and how many consecutive stretches behind it, at each alignment
_KINDS = ("i1", "<i4", ">i4")


class Recorder:
    """Keeps the messages that the aggregator receives; give it to `open_session` as `record`."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.received: list[bytes] = []

    def __call__(self, party: str, message: bytes) -> None:
        """Note a message if it is the aggregator's."""
        if party == AGGREGATOR:
            self.received.append(message)

    def forget_rounds(self) -> None:
        """Keep only what DPHE's key generator handed out: a round's messages are read with it."""
        self.received = [message for message in self.received if _is_setup(message)]


@dataclass(frozen=True, eq=False)
class OwnerGuesses:
    """Guesses of one owner's update, a row each, unscaled; and the blocks its messages name, if they name any."""

    rows: NDArray[np.float64]
    places: NDArray[np.int64] | None
    block: int

    def __repr__(self) -> str:
        return f"<OwnerGuesses: {len(self.rows)}, hidden>"


def guesses_from_view(received: Sequence[bytes], owner: str, dimension: int) -> OwnerGuesses:
    """Return all guesses of an update with so many weights from what an aggregator received in one round."""
    messages = [message for message in received if author(message) == owner]
    if not messages:
        raise InputError(
            f"the aggregator's view has no message of {owner!r}. Record the round: open_session(..., record=...)."
        )
    rows = [row for message in messages for row in stretches(message, dimension)]
    setups = [decode(message, AggregatorSetup) for message in received if _is_setup(message)]
    if not setups:
        return OwnerGuesses(_stacked(rows, dimension), None, 1)
    setup = setups[0]
    terms = Terms.from_bytes(decode(setup.agreement, AgreementMessage).terms)
    sent = [_shard(message, setup, terms, owner) for message in messages]
    for number in (0, 1):  # the places as they were sent, and with phi^(n) undone
        rows += _placed([(where[number], ciphertexts) for where, ciphertexts in sent], terms)
    places = np.concatenate([where[1] for where, _ in sent])
    return OwnerGuesses(_stacked(rows, dimension), places, terms.slots)


def author(message: bytes) -> str | None:
    """Return who made a message; None if it does not say."""
    try:
        found: Message = decode(message, Update, Contribution, Vouched, Signed)
    except MessageError:
        return None
    match found:
        case Update():
            return found.user
        case Contribution():
            found = decode(found.receipt, Signed)
        case Vouched():
            found = decode(found.envelope, Signed)
    return found.author if isinstance(found, Signed) else None


def _is_setup(message: bytes) -> bool:
    try:
        decode(message, AggregatorSetup)
    except MessageError:
        return False
    return True


def stretches(message: bytes, dimension: int) -> Iterator[NDArray[np.float64]]:
    """Read stretches of a message as numbers of every kind."""
    for kind in _KINDS:
        size = np.dtype(kind).itemsize
        for shift in range(size):
            usable = message[shift : shift + (len(message) - shift) // size * size]
            numbers = np.frombuffer(usable, dtype=kind).astype(np.float64)
            last = numbers.size - dimension
            starts = {*range(min(_STARTS, last + 1)), *range(0, last + 1, dimension), max(last, 0)}
            for start in sorted(starts)[: _STARTS + _STRETCHES]:
                if start <= last:
                    yield numbers[start : start + dimension]


Placed = tuple[NDArray[np.int64], NDArray[np.uint8]]
"""Blocks, and for each the bytes of its ciphertext."""


def _shard(
    message: bytes, setup: AggregatorSetup, terms: Terms, owner: str
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.uint8]]:
    """Return the places of a shard as they were sent and as phi K (Eq. 8), and its ciphertexts."""
    contribution = decode(message, Contribution)
    round = decode(decode(contribution.receipt, Signed).body, Receipt).round
    shard = decode(contribution.shard, Shard)
    agreement = Agreement.from_bytes(setup.agreement, expected=terms)
    secret = dict(zip(terms.users, setup.own_secrets, strict=True))[owner]
    return (shard.places, agreement.own_permutation(secret, owner, round).backward(shard.places)), shard.ciphertexts


def _placed(shards: list[Placed], terms: Terms) -> list[NDArray[np.float64]]:
    """Return guesses that take a ciphertext for its block: its leading bytes as one number, or its bytes as weights."""
    numbers, weights = np.zeros((2, terms.blocks, terms.slots))
    for places, ciphertexts in shards:
        numbers[places] = ciphertexts[:, :1].astype(np.float64) - 127.5
        wide = np.ascontiguousarray(ciphertexts[:, ::-1][:, : 4 * terms.slots]).view("<i4")  # little-endian slots
        weights[places, : wide.shape[1]] = wide
    return [numbers.ravel()[: terms.dimension], weights.ravel()[: terms.dimension]]


def _stacked(rows: list[NDArray[np.float64]], dimension: int) -> NDArray[np.float64]:
    """Return the guesses that are not all zero, one row each."""
    kept = [row for row in rows if row.any()]
    return np.array(kept) if kept else np.zeros((1, dimension))
