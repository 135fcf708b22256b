"""The messages of sums under BFV; each travels in an envelope signed by its author (`roster`), but for the vectors.

::

    key generator -> all             Setup         the public key
    user -> aggregator               Contribution  an encrypted vector and a signed Receipt of its digest
    aggregator -> key generator      SumRequest    the encrypted sum and the receipts
    key generator -> all             Answer        the sum

A user signs the `Receipt`, not the vector: so the key generator, who could decrypt a vector, checks who contributed
without ever receiving one.
"""

from typing import Annotated

from blindsight.crypto.wire import Integers, Limit, Message
from blindsight.learn.roster import Digest, RoundMessage


class Setup(RoundMessage, name="lattice/setup.1"):
    """The key under which all vectors of the run are encrypted; it comes before the first round, as round -1."""

    public_key: Annotated[bytes, Limit(1 << 21)]


class Receipt(RoundMessage, name="lattice/receipt.1"):
    """What a user signs: this vector, under this key, in this round."""

    key: Digest
    body: Digest


class Contribution(Message, name="lattice/contribution.1"):
    """A signed `Receipt` and the encrypted vector it is about."""

    receipt: Annotated[bytes, Limit(2048)]
    vector: bytes


class SumRequest(RoundMessage, name="lattice/sum-request.1"):
    """The encrypted sum and whose vectors are in it."""

    receipts: tuple[bytes, ...]
    vector: bytes


class Answer(RoundMessage, name="lattice/answer.1"):
    """The sum and whose vectors are in it."""

    users: tuple[str, ...]
    sums: Integers
