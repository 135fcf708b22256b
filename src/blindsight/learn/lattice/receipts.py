"""Who contributed to a sum under BFV: signed receipts, as in `dphe.receipts`, for vectors that come in one piece.

A receipt does not prove that the aggregator added that vector: one that breaks the protocol could name three users and
send the vector of one. It must be semi-honest; the receipts make its claim one that can be held against it.
"""

from collections.abc import Iterable

from blindsight.errors import MessageError, PrivacyError
from blindsight.learn.lattice.messages import Receipt
from blindsight.learn.roster import Roster

_MAX_BYTES = 2048


def read_receipt(roster: Roster, envelope: bytes, *, key: bytes, round: int) -> tuple[str, Receipt]:
    """Return the user who signed a receipt for this round under this encryption key (its digest), and the receipt."""
    user, receipt = roster.open(envelope, Receipt, round=round, authors=roster.terms.users, max_bytes=_MAX_BYTES)
    if receipt.key != key:
        raise MessageError(f"{user!r} encrypts under another key.")
    return user, receipt


def contributors(roster: Roster, envelopes: Iterable[bytes], *, key: bytes, round: int) -> tuple[str, ...]:
    """Return the users who signed these receipts, each one; `PrivacyError` if they are too few for a sum."""
    users = [read_receipt(roster, envelope, key=key, round=round)[0] for envelope in envelopes]
    if len(set(users)) != len(users):
        raise MessageError("a user is named twice in a request.")
    if len(users) < roster.terms.minimum:
        raise PrivacyError(
            f"round {round} has contributions of {len(users)} users; a sum needs {roster.terms.minimum}."
        )
    return tuple(sorted(users))
