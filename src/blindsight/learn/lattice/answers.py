"""What the key generator sends to everyone: its public key, and the sum of each round."""

from blindsight.crypto.bfv import PublicKey
from blindsight.errors import MessageError
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.terms import KEY_GENERATOR
from blindsight.learn.lattice.messages import Answer, Setup
from blindsight.learn.residues import read_residues, to_integers
from blindsight.learn.roster import Roster

SETUP_ROUND = -1


def read_setup(roster: Roster, envelope: bytes, *, known: PublicKey | None) -> PublicKey:
    """Return the key of a run; it never changes, and it must hold the sums of all users."""
    _, setup = roster.open(envelope, Setup, round=SETUP_ROUND, authors=[KEY_GENERATOR])
    key = PublicKey.from_bytes(setup.public_key)
    if known is not None and known.fingerprint != key.fingerprint:
        raise MessageError("the run has another encryption key already.")
    if key.max_value(len(roster.terms.users)) < roster.terms.max_integer:
        raise MessageError("the encryption key is too small for the sums of this run.")
    return key


def read_answer(roster: Roster, envelope: bytes, *, round: int) -> Total:
    """Return the sum that the key generator signed for this round."""
    _, answer = roster.open(envelope, Answer, round=round, authors=[KEY_GENERATOR])
    sums = to_integers(read_residues(answer.sums, roster.terms))
    return Total(round, answer.users, sums, roster.terms.values(sums))
