"""DPHE and block DPHE: what falls when the aggregator talks to a user, or to the key generator.

*Aggregator and one user.* The aggregator undoes every phi^(n), any user knows phi: together they read which blocks each
user sent, padding included. A block that the victim did not send is zero. One that nobody else outside the coalition
sent holds, less the members' own weights, exactly the victim's, in the plain sum; unless it was withheld. Of blocks
that several others sent they know the sum. Encryption keeps them from more: it is randomised, so a guess at a plaintext
cannot be checked.

*All users but one.* They have the sum of the last one's weights, which are its weights, where they were released. Users
are told where: a block that was withheld though a single contributor was missing, the last user did not change.

*Aggregator and key generator* (or whoever has a contribution): it is simply decrypted.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.collusion.played import ROUND, Coalition, Integers
from blindsight.audit.collusion.recovery import Mask, Recovery, from_sum, left_of_sum
from blindsight.crypto.paillier import PrivateKey
from blindsight.crypto.wire import encode
from blindsight.errors import InputError
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.collection import CheckedShard, Collection
from blindsight.learn.dphe.messages import Contribution
from blindsight.learn.dphe.terms import AGGREGATOR, Terms
from blindsight.learn.schemes.paillier import PaillierSession

T = TypeVar("T", bound=np.generic)


def with_a_user(coalition: Coalition, victim: str) -> Recovery:
    """Return what aggregator and users of a round learn about another user, from places and sum."""
    terms, guess = _terms(coalition), from_sum(coalition, victim)
    sent = {user: np.zeros(terms.blocks, dtype=np.bool_) for user in coalition.session.terms.users}
    for shard, blocks in _plain_shards(coalition):
        sent[shard.user][blocks] = True
    senders: Integers = np.sum([sent[user] for user in coalition.rest], axis=0, dtype=np.int64)
    left, released = left_of_sum(coalition)
    mine = _weights(sent[victim], terms)
    alone = _weights(senders == 1, terms) & released
    update = np.where(mine, left / np.maximum(_weights(senders, terms), 1), 0.0)
    known = ~mine | alone | guess.known
    return Recovery(coalition.members, victim, update, known, mine & ~(known & (update == 0)))


def all_but_one(coalition: Coalition, victim: str) -> Recovery:
    """Return what all other users learn about one, from the sum and from what of it was withheld."""
    terms, found = _terms(coalition), from_sum(coalition, victim)
    if not terms.counting:
        return found
    changes = [_changed(own, terms) for own in coalition.updates.values()]
    missing_one = np.sum(changes, axis=0, dtype=np.int64) == terms.min_per_block - 1
    zero = _weights(missing_one, terms) & ~left_of_sum(coalition)[1]
    return replace(found, known=found.known | zero, possible=found.possible & ~zero)


def with_the_key(coalition: Coalition, victim: str) -> Recovery:
    terms, key = _terms(coalition), coalition.key
    if not isinstance(key, PrivateKey):
        raise InputError(f"nobody in the coalition of {', '.join(coalition.members)} can decrypt.")
    rows = np.zeros((terms.blocks, terms.slots), dtype=np.int64)
    for shard, blocks in _plain_shards(coalition):
        if shard.user == victim:
            slots = terms.packing.unpack(key.decrypt(shard.ciphertexts), len(blocks) * terms.packing.slots)
            np.add.at(rows, blocks, slots.reshape(len(blocks), -1)[:, : terms.slots])
    update = rows.ravel()[: terms.dimension]
    known = np.ones(update.size, dtype=np.bool_)
    return Recovery(coalition.members, victim, update.astype(np.float64), known, update != 0)


def _plain_shards(coalition: Coalition) -> Iterator[tuple[CheckedShard, Integers]]:
    """Yield every contribution, and its blocks in plain order: phi^(n) is undone by one member, phi by another."""
    terms, setup = _terms(coalition), coalition.aggregator_setup
    agreement = Agreement.from_bytes(setup.agreement, expected=terms)
    collection = Collection(agreement, dict(zip(terms.users, setup.own_secrets, strict=True)), ROUND)
    phi = agreement.shared_permutation(coalition.shared_secret, ROUND)
    for contribution in coalition.received(AGGREGATOR, Contribution):
        shard = collection.check(encode(contribution))
        assert shard is not None  # nothing was added to the collection, so nothing is there twice
        yield shard, phi.backward(shard.places)


def _terms(coalition: Coalition) -> Terms:
    if not isinstance(coalition.session, PaillierSession):
        raise InputError(f"only dphe and block-dphe permute what they send; got {coalition.session.scheme!r}.")
    return coalition.session.sparse


def _changed(integers: Integers, terms: Terms) -> Mask:
    """Return which blocks an update changes."""
    rows = np.zeros(terms.blocks * terms.slots, dtype=np.int64)
    rows[: integers.size] = integers
    return np.asarray(np.any(rows.reshape(terms.blocks, terms.slots), axis=1))


def _weights(blocks: NDArray[T], terms: Terms) -> NDArray[T]:
    """Return what is said of each block, for each of its weights."""
    return np.asarray(np.repeat(blocks, terms.slots)[: terms.dimension])
