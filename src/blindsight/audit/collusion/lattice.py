"""BFV: the key generator decrypts whatever the aggregator shows it; with a user it holds ciphertexts and the sum."""

import numpy as np

from blindsight.audit.collusion.played import ROUND, Coalition
from blindsight.audit.collusion.recovery import Held, Recovery
from blindsight.audit.leakage.payloads import differences, owner_payloads
from blindsight.crypto.bfv import SecretKey
from blindsight.errors import InputError
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.lattice.messages import Receipt, Vouched
from blindsight.learn.schemes.bfv import LatticeSession


def with_the_key(coalition: Coalition, victim: str) -> Recovery:
    """Return a user's update, decrypted with the key generator's key from what the aggregator received."""
    session, key = coalition.session, coalition.key
    if not isinstance(session, LatticeSession) or not isinstance(key, SecretKey):
        raise InputError(f"nobody in the coalition of {', '.join(coalition.members)} can decrypt lattice ciphertexts.")
    for vouched in coalition.received(AGGREGATOR, Vouched):
        author, _ = session.roster.open(vouched.envelope, Receipt, round=ROUND, authors=session.terms.users)
        if author == victim:
            update = key.decrypt(key.public.read_vector(vouched.vector))
            known = np.ones(update.size, dtype=np.bool_)
            return Recovery(coalition.members, victim, update.astype(np.float64), known, update != 0)
    raise InputError(f"{victim!r} did not contribute to this round.")


def with_a_user(coalition: Coalition, victim: str) -> Held:
    """Return how a user's ciphertexts differ from those of another one outside the coalition, read as numbers."""
    other = next(user for user in coalition.rest if user != victim)
    received = coalition.messages(AGGREGATOR)
    mine, others = (owner_payloads(received, user) for user in (victim, other))
    return Held(differences(mine, others, coalition.session.terms.dimension), other)
