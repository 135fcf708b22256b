"""The messages of sums under BFV; whatever is signed travels in its author's envelope (`roster`).

::

    key generator -> all             Setup                     the public key
    user -> aggregator               Vouched(Receipt, vector)  an encrypted update
    aggregator -> key generator      Vouched(Request, vector)  the encrypted sum, and the receipts of what is in it
    key generator -> all             Answer                    the sum

Users and aggregator do not sign a vector but its checksum, with which it ends. So the key generator, who could decrypt
an update, checks who contributed without ever receiving one, and nobody hashes megabytes twice.
"""

from typing import Annotated

from blindsight.crypto.wire import Limit, Message
from blindsight.learn.roster import Digest, RoundMessage


class Setup(RoundMessage, name="lattice/setup.1"):
    """The key under which all vectors of the run are encrypted; it comes before the first round, as round -1."""

    public_key: Annotated[bytes, Limit(1 << 21)]


class Receipt(RoundMessage, name="lattice/receipt.1"):
    """What a user signs: this vector, under this key, in this round."""

    key: Digest
    checksum: Digest


class Request(RoundMessage, name="lattice/request.1"):
    """What the aggregator signs: this vector is the sum of what these receipts are for."""

    checksum: Digest
    receipts: tuple[bytes, ...]


class Vouched(Message, name="lattice/vouched.1"):
    """A signed `Receipt` or `Request`, and the encrypted vector it is about."""

    envelope: bytes
    vector: bytes


class Answer(RoundMessage, name="lattice/answer.1"):
    """The sum (as `residues`) and whose vectors are in it."""

    users: tuple[str, ...]
    sums: bytes


def checksum(vector: bytes) -> bytes:
    """Return the SHA-256 with which a message ends; whoever reads the message checks it (`crypto.wire`)."""
    return vector[-32:]
