"""The two messages of an exchange between the parameter server and a participant that is elsewhere.

They carry those of `learn.selective.messages` as they are. An exchange begins with the server::

    server -> participant    Instruction   what became of your last upload; the answer to your last request
    participant -> server    Report        my next upload, if I have one; my next request; how I am

Either may be lost, late or doubled: all that matters in them is told apart by digest, number and version.
"""

from typing import Annotated

from blindsight.crypto.wire import Limit, Message
from blindsight.learn.selective.messages import Digest, Name

EXCHANGE = "sharing/exchange"
"""What a transport calls an exchange: one part goes, an `Instruction`, and one comes back, a `Report`."""

REQUEST_BYTES = 1024
"""More than any request takes."""


class Instruction(Message, name="sharing/instruction.1"):
    """What the server tells a participant; empty parts say nothing.

    `receipt` is for an upload that was added, `refused` the digest of one that was not. `answer` is for the request of
    a participant that had the parameters of version `asked`; without one, its request is not known yet.
    """

    terms: Digest
    participant: Name
    receipt: bytes
    refused: Digest
    asked: int
    answer: bytes


class Report(Message, name="sharing/report.1"):
    """What a participant tells the server.

    `taken` says whether it had the newest parameters when it decided to send an upload, or none.
    """

    terms: Digest
    participant: Name
    upload: bytes
    request: Annotated[bytes, Limit(REQUEST_BYTES)]
    taken: bool
    waiting: int
    spent: bool
