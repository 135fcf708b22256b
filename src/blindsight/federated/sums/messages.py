"""The messages of a run across machines, around those of the schemes (`learn.dphe`, `learn.lattice`, `learn.masks`).

::

    server -> everyone         Hello            who are you? (a fresh challenge)
    node -> server             Greeting         signed with the node's identity
    server -> user             RunTerms         will you take part? -> a letter to the key generator: Enrolment
    server -> key generator    Opening          the terms, and everybody's letter -> a letter to each party: its set-up,
                                                or a Refusal, and the rest begin anew
    server -> user             a letter         SetUp, from the key generator; with it the briefing
    server -> user             Order            a Call to contribute to this round -> Contribution, or a Step
    server -> key generator    the request for decryption of the scheme -> its answer

Letters (`identity`) are signed by their author and sealed for their reader: the server carries them unread. Users do
what the aggregator has signed, and nobody else; the key generator's letter says who that is.
"""

from typing import Annotated

from blindsight.crypto.wire import Limit, Message

PROTOCOL = 2
"""Raised whenever a message changes its meaning: nodes of different protocols refuse each other with a sentence."""

Name = Annotated[str, Limit(256)]
Key = Annotated[bytes, Limit(32)]


class RunTermsMessage(Message, name="federated/run-terms.1"):
    """See `runterms.RunTerms`."""

    scheme: Name
    run: Name
    users: tuple[str, ...]
    dimension: int
    fraction_bits: int
    slot_bits: int
    minimum: int
    capacity: int
    key_bits: int
    minimum_per_position: int
    insecure: bool
    briefing: Key


class Hello(Message, name="federated/hello"):
    """The server wants to know who a node is; the name has no version, so that all versions can refuse each other."""

    protocol: int
    software: Name
    challenge: Key
    node: int


class Greeting(Message, name="federated/greeting"):
    """Who a node is, signed (`identity`)."""

    protocol: int
    software: Name
    challenge: Key
    role: Name
    identity: Annotated[bytes, Limit(4096)]
    node: int


class Enrolment(Message, name="federated/enrolment.1"):
    """A party agrees to the terms with this digest; `content` is what the scheme's key generator must know of it."""

    terms: Key
    content: Annotated[bytes, Limit(4096)]


class Opening(Message, name="federated/opening.1"):
    """A run to be opened: its terms, and the identity of and a letter from everyone who takes part."""

    terms: bytes
    parties: tuple[str, ...]
    identities: tuple[bytes, ...]
    letters: tuple[bytes, ...]


class Letters(Message, name="federated/letters.1"):
    """The key generator's letters, in the order of the parties of the `Opening`."""

    letters: tuple[bytes, ...]


class Refusal(Message, name="federated/refusal.1"):
    """Why the key generator does not open a run: who is not who the opening says, or agreed to something else."""

    parties: tuple[str, ...]
    sentences: tuple[str, ...]


class SetUp(Message, name="federated/set-up.1"):
    """A set-up: whose orders are to be followed in this run, a `PublicIdentity`, and the scheme's own set-up."""

    aggregator: Annotated[bytes, Limit(4096)]
    content: bytes


class RosterSetup(Message, name="federated/roster-setup.1"):
    """The set-up of schemes with a roster: everybody's signing key, and the scheme's own message, if it has one."""

    roster: bytes
    setup: bytes


class Order(Message, name="federated/order.1"):
    """A `Call` or a `Step` for users, and the aggregator's signature under it and all that comes with it (`orders`)."""

    body: bytes
    signature: Annotated[bytes, Limit(4096)]


class Call(Message, name="federated/call.1"):
    """Contribute to this attempt at a round of learning.

    `settles` is the attempt whose `answer` comes with it, -1 if none does: the last one in which the user's
    contribution was counted. `note` is what the scheme has to tell before (masks: what others sealed for this user).
    """

    run: Name
    user: Name
    round: int
    attempt: int
    seed: int
    settles: int
    answer: bytes
    note: bytes


class Contribution(Message, name="federated/contribution.1"):
    """What a user adds, as the scheme encrypts it."""

    attempt: int
    messages: tuple[bytes, ...]


class Step(Message, name="federated/step.1"):
    """A step of a round besides contributing: what the scheme's message is about."""

    run: Name
    attempt: int
    message: bytes
