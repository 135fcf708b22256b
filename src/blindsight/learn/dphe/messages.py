"""Every message of the protocol, and every record of a role's own state, as bytes with a schema (`crypto.wire`).

Who sends what to whom, in the order of Algorithm 1::

    user -> key generator            Enrolment                    a name and the key that verifies its signatures
    key generator -> user            UserSetup                    steps 1, 2: keys, phi, phi^(n)
    key generator -> aggregator      AggregatorSetup              steps 1, 2: keys, all phi^(n), never phi
    user -> aggregator               Contribution, one per shard  steps 3, 4: Enc(v), Phi(K) and a signed Receipt
    aggregator -> key generator      Request                      steps 5, 6: Enc(w_sum) in the order of phi, receipts
    key generator -> all             Answer, signed               step 6: w_sum in plain order

A user signs the `Receipt`, which holds the digest of its shard, and not the shard: so the key generator, who could
decrypt a shard, checks who contributed without ever receiving one.
"""

from typing import Annotated

from blindsight.crypto.wire import Integers, Limit, Message, Octets
from blindsight.errors import MessageError

Digest = Annotated[bytes, Limit(32)]
Key = Annotated[bytes, Limit(32)]
Name = Annotated[str, Limit(256)]

REQUEST_FOR_DECRYPTION = b"request for decryption"
"""The purpose for which the aggregator seals a `Request` (`crypto.sealedbox`)."""


class TermsMessage(Message, name="dphe/terms.2"):
    """See `terms.Terms`."""

    run: Name
    users: tuple[str, ...]
    dimension: int
    capacity: int
    fraction_bits: int
    slots: int
    slot_bits: int
    key_bits: int
    keys: Name
    min_users: int
    min_per_block: int
    permutations: Name
    decrypt: Name
    as_published: bool
    insecure: bool


class AgreementMessage(Message, name="dphe/agreement.1"):
    """See `agreement.Agreement`; the keys that verify users stand in the order of the terms."""

    terms: bytes
    public_key: Annotated[bytes, Limit(4096)]
    generator_key: Key
    user_keys: tuple[bytes, ...]


class Enrolment(Message, name="dphe/enrolment.1"):
    """A user makes known the key that verifies its signatures."""

    user: Name
    user_key: Key


class UserSetup(Message, name="dphe/user-setup.1"):
    """The secret behind phi, and the one behind this user's phi^(n)."""

    agreement: bytes
    user: Name
    shared_secret: Key
    own_secret: Key


class AggregatorSetup(Message, name="dphe/aggregator-setup.1"):
    """The secrets behind every phi^(n), and the one that seals what goes to the key generator."""

    agreement: bytes
    channel_secret: Key
    own_secrets: tuple[bytes, ...]


class Receipt(Message, name="dphe/receipt.1"):
    """What a user signs: this shard, of so many, in this round of this run."""

    run: Digest
    round: int
    shard: int
    shards: int
    body: Digest


class Shard(Message, name="dphe/shard.1"):
    """Phi(K) in ascending order, Enc(v) in the same order, and 32 random bytes (see `receipts`)."""

    salt: Key
    places: Integers
    ciphertexts: Octets


class Contribution(Message, name="dphe/contribution.1"):
    """A signed `Receipt` and the `Shard` it is about."""

    receipt: Annotated[bytes, Limit(2048)]
    shard: bytes


class Request(Message, name="dphe/request.2"):
    """The places of the encrypted sum in the order of phi, their sums (packed), and the receipts of what it holds.

    If contributors are counted, `senders` says for each place how many users sent it, padding included; else it is
    empty.
    """

    run: Digest
    round: int
    receipts: tuple[bytes, ...]
    places: Integers
    ciphertexts: Octets
    senders: Integers


class Answer(Message, name="dphe/answer.1"):
    """The sum in plain order, whose contributions it holds, and (sealed for the users) which blocks were released."""

    run: Digest
    round: int
    users: tuple[str, ...]
    sums: Integers
    released: bytes


class UserState(Message, name="dphe/user-state.1"):
    """What a user must remember between two messages."""

    terms: bytes
    user: Name
    seed: Key
    setup: bytes
    round: int
    update: Digest
    sent: tuple[bytes, ...]


class GeneratorState(Message, name="dphe/generator-state.1"):
    """What the key generator must remember between two messages."""

    terms: bytes
    private_key: Annotated[bytes, Limit(4096)]
    seed: Key
    shared_secret: Key
    channel_secret: Key
    own_secrets: tuple[bytes, ...]
    user_keys: tuple[bytes, ...]
    round: int
    request: Digest
    answer: bytes
    log: tuple[str, ...]


class RoundBegun(Message, name="dphe/round-begun.1"):
    """The first record of an aggregator's journal; accepted contributions follow as they came."""

    terms: bytes
    setup: bytes
    round: int


class RoundClosed(Message, name="dphe/round-closed.1"):
    """The last record of an aggregator's journal: no further contribution counts."""

    round: int


def check_places(places: Integers, ciphertexts: Octets, blocks: int, *, per_ciphertext: int = 1) -> None:
    """Refuse what is not one or more ascending places in 0 ... blocks - 1 with so many places for each ciphertext.

    Neighbours are compared and never subtracted: differences of int64 wrap around, and 0, 2^63 - 1, -2^63 would pass.
    """
    if places.ndim != 1 or ciphertexts.ndim != 2 or len(ciphertexts) != -(-places.size // per_ciphertext):
        raise MessageError("the numbers of places and of ciphertexts do not match.")
    if not places.size or places[0] < 0 or places[-1] >= blocks or not (places[1:] > places[:-1]).all():
        raise MessageError("there are no places, or some out of range, out of order or twice.")
