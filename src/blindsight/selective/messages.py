"""Every message of selective sharing, and every record of the server's journal, as bytes with a schema (`crypto.wire`).

Who sends what to whom::

    participant -> server    Request   what have I missed?
    server -> participant    Answer    the most updated parameters, and which of your uploads came last
    participant -> server    Upload    a few values to be added to the parameters
    server -> participant    Receipt   they were added, and are on disk
    aggregator -> server     Total     the sum of several participants' uploads, of which the server sees none

An upload has a number: those of one participant count up from 1, and the server adds each number once. An answer names
the last one added, so a participant whose receipt was lost learns from its next download what became of its upload.

Messages carry names, not signatures: whoever delivers them to the server must know who speaks.
"""

from typing import Annotated

from blindsight.crypto.wire import Limit, Message

Digest = Annotated[bytes, Limit(32)]
Name = Annotated[str, Limit(256)]


class TermsMessage(Message, name="selective/terms.1"):
    """See `terms.SelectiveTerms`; -1 stands for None."""

    run: Name
    participants: tuple[str, ...]
    layout: Name
    dimension: int
    batch: int
    download: float
    max_values: int
    max_staleness: int
    together: int


class Request(Message, name="selective/request.1"):
    """A participant that last downloaded the parameters of `version` (-1: never) wants newer ones."""

    terms: Digest
    participant: Name
    version: int


class Answer(Message, name="selective/answer.1"):
    """Parameters of one version (`sparsecodec`), and number and digest of the participant's last upload in them."""

    terms: Digest
    participant: Name
    version: int
    sequence: int
    upload: Digest
    body: bytes


class Upload(Message, name="selective/upload.1"):
    """What a participant adds (`sparsecodec`), after training on the parameters of version `base`."""

    terms: Digest
    participant: Name
    sequence: int
    base: int
    body: bytes


class Receipt(Message, name="selective/receipt.1"):
    """The upload of this number and digest was added, which made the parameters those of `version`."""

    terms: Digest
    participant: Name
    sequence: int
    upload: Digest
    version: int


class Total(Message, name="selective/total.1"):
    """What several participants add together in one turn (`sparsecodec`)."""

    terms: Digest
    turn: int
    participants: tuple[str, ...]
    body: bytes


class JournalBegun(Message, name="selective/journal.1"):
    """The first record of the server's journal; what was added to the parameters of `version` follows as it came."""

    terms: Digest
    version: int
