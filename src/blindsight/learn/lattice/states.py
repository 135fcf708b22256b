"""What the roles of sums under BFV keep on disk (`dphe.storage`), each for itself: its secrets, and what it answered.

A copy must never be put back in a state's place: a role that forgot what it answered could answer again, differently.
"""

from typing import Annotated

from blindsight.crypto.wire import Limit, Message
from blindsight.learn.roster import Digest, Key


class UserState(Message, name="lattice/user-state.1"):
    """What a user must remember between two messages."""

    roster: bytes
    user: Annotated[str, Limit(256)]
    seed: Key
    public_key: bytes
    round: int
    update: Digest
    sent: bytes


class GeneratorState(Message, name="lattice/generator-state.1"):
    """What the key generator must remember between two messages."""

    roster: bytes
    seed: Key
    secret_key: bytes
    round: int
    request: Digest
    answer: bytes
    log: tuple[str, ...]


class RoundBegun(Message, name="lattice/round-begun.1"):
    """The first record of an aggregator's journal; accepted contributions follow as they came."""

    roster: bytes
    seed: Key
    public_key: bytes
    round: int


class RoundClosed(Message, name="lattice/round-closed.1"):
    """The last record of an aggregator's journal: no further contribution counts."""

    round: int
