"""What users are told to do in a round comes from the run's aggregator, or it is not done.

An order is a `Call` or a `Step` with the aggregator's signature. Under the signature stand the kind of the message, the
order itself and the digest of every part that travels beside it (the shared model). Nobody on the way can alter one,
make one up, hand one user's call to another or attach another model. An old order can be repeated: its attempt says
that it is old. Who the aggregator is users know from the key generator's letter (`userdesk`).

*One model for all.* The number of an attempt ends in the digest of the parts beside its calls, and all that schemes
sign, mask or decrypt is bound to that number. So an aggregator that signs different models for different users asks
them to contribute to different sums: a key generator refuses receipts of both, and masks of both do not cancel.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import TypeVar

from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError
from blindsight.federated.identity import Identity, PublicIdentity, verify_signed
from blindsight.federated.sums.messages import Call, Order, Step

AnyOrder = TypeVar("AnyOrder", Call, Step)

_DIGEST_BITS = 256


def next_attempt(last: int, beside: Sequence[bytes]) -> int:
    """Return the number of the attempt after `last` (-1: none yet) whose calls have these parts beside them.

    >>> first = next_attempt(-1, [b"a model"])
    >>> ordinal(first), ordinal(next_attempt(first, [b"another"]))
    (0, 1)
    """
    return (ordinal(last) + 1 << _DIGEST_BITS) + lesson_of(beside)


def ordinal(attempt: int) -> int:
    """Return which attempt of the run a number means, counted from 0."""
    return attempt >> _DIGEST_BITS


def same_lesson(one: int, other: int) -> bool:
    """Tell whether two attempts have the same parts beside their calls."""
    return (one ^ other) % (1 << _DIGEST_BITS) == 0


def lesson_of(beside: Sequence[bytes]) -> int:
    """Return the last bits of an attempt's number: none if nothing travels beside its calls."""
    return int.from_bytes(_digest(b"lesson", beside), "big") if beside else 0


def readable(sentence: str) -> str:
    """Return a sentence of a scheme, for which attempts are rounds, with numbers that a person can read.

    >>> readable(f"this is round {next_attempt(-1, [b'a model'])}.")
    'this is attempt 0.'
    """
    return re.sub(r"\bround (\d{60,})", lambda found: f"attempt {ordinal(int(found[1]))}", sentence)


def sign_order(identity: Identity, kind: str, order: Call | Step, beside: Sequence[bytes] = ()) -> bytes:
    """Return an order of this kind, signed together with the parts that travel beside it."""
    body = encode(order)
    return encode(Order(body, identity.sign(_digest(body, beside), purpose=kind)))


def read_order(message: bytes, kind: type[AnyOrder]) -> tuple[AnyOrder, Order]:
    """Return what a message orders, and the message for `check_order`: nothing of it is to be believed before."""
    order = decode(message, Order)
    return decode(order.body, kind), order


def check_order(order: Order, kind: str, beside: Sequence[bytes], aggregator: PublicIdentity) -> None:
    """Refuse an order that this aggregator has not signed, for this kind of message with these parts beside it."""
    signed = verify_signed(order.signature, aggregator, purpose=kind)
    if not hmac.compare_digest(signed, _digest(order.body, beside)):
        raise MessageError("the aggregator has signed another order, or other parts beside it.")


def _digest(body: bytes, beside: Sequence[bytes]) -> bytes:
    digests = [hashlib.sha256(part).digest() for part in (body, *beside)]
    return hashlib.sha256(b"".join(digests)).digest()
