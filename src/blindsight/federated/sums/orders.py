"""What users are told to do in a round comes from the run's aggregator, or it is not done.

An order is a `Call` or a `Step` with the aggregator's signature. Under the signature stand the kind of the message, the
order itself and the digest of every part that travels beside it (the shared model). Nobody on the way can alter one,
make one up, hand one user's call to another or attach another model. An old order can be repeated: its attempt says
that it is old. Who the aggregator is users know from the key generator's letter (`userdesk`).
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import TypeVar

from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError
from blindsight.federated.identity import Identity, PublicIdentity, verify_signed
from blindsight.federated.sums.messages import Call, Order, Step

AnyOrder = TypeVar("AnyOrder", Call, Step)


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
