"""Who contributed: signed receipts, which tell the key generator whose shards a sum holds without showing it a shard.

A receipt binds the run, the round, the number of the shard and the digest of its body. The body is salted: the key
generator, who knows every permutation and sees some users' ciphertexts unchanged in the sum, could otherwise rebuild a
small shard and find out by its digest whose it is.

A receipt does not prove that the aggregator really added that shard: an aggregator that breaks the protocol could name
three users and send one user's ciphertexts. It must be semi-honest; the receipts are what it can be held to.
"""

import hashlib
from collections.abc import Sequence

from blindsight.crypto.signing import SigningKey, verify
from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.messages import Contribution, Receipt

_MAX_BYTES = 2048


def vouch(key: SigningKey, user: str, bodies: Sequence[bytes], *, run: bytes, round: int) -> list[bytes]:
    """Return one contribution message for each shard's bytes, with the receipt that `user` signs for it."""
    messages = []
    for shard, body in enumerate(bodies):
        receipt = Receipt(run, round, shard, len(bodies), hashlib.sha256(body).digest())
        messages.append(encode(Contribution(key.sign(encode(receipt), author=user), body)))
    return messages


def read_receipt(agreement: Agreement, envelope: bytes, *, round: int) -> tuple[str, Receipt]:
    """Return the user who signed a receipt, and the receipt, which must be for this run and round."""
    user, content = verify(envelope, agreement.verifiers, max_bytes=_MAX_BYTES)
    receipt = decode(content, Receipt, max_bytes=_MAX_BYTES)
    if receipt.run != agreement.digest:
        raise MessageError(f"{user!r} contributes to another run.")
    if receipt.round != round:
        raise MessageError(f"{user!r} contributes to round {receipt.round}; this is round {round}.")
    if not 0 <= receipt.shard < receipt.shards <= agreement.terms.max_shards:
        raise MessageError(f"{user!r} sends shard {receipt.shard + 1} of {receipt.shards}, which these terms rule out.")
    return user, receipt


def contributors(agreement: Agreement, envelopes: Sequence[bytes], *, round: int) -> tuple[str, ...]:
    """Return the users whose shards are all named, each once; `PrivacyError` if they are too few for a sum."""
    shards: dict[str, set[int]] = {}
    wanted: dict[str, int] = {}
    for envelope in envelopes:
        user, receipt = read_receipt(agreement, envelope, round=round)
        named = shards.setdefault(user, set())
        if receipt.shard in named or wanted.setdefault(user, receipt.shards) != receipt.shards:
            raise MessageError(f"the receipts of {user!r} contradict each other.")
        named.add(receipt.shard)
    for user, named in shards.items():
        if len(named) != wanted[user]:
            raise MessageError(f"{user!r} sent {wanted[user]} shards, of which {len(named)} are named.")
    if len(shards) < agreement.terms.min_users:
        raise PrivacyError(
            f"round {round} has contributions of {len(shards)} users; a sum needs {agreement.terms.min_users}."
        )
    return tuple(sorted(shards))
