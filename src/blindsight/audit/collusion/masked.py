"""Masks: how many users must talk to the aggregator before an upload is bare.

An upload wears its own mask and one for every other user (`learn.masks`). In every round the aggregator is given the
seeds of the survivors' own masks; that is how it lifts them from the sum. A member knows the mask it shares with the
victim. The masks that the victim shares with honest users come off only with its mask key, of which every user holds a
share: the threshold is how many members it takes. One fewer, and a uniformly random mask remains.
"""

from dataclasses import dataclass

import numpy as np

from blindsight.audit.collusion.played import ROUND, Coalition, signed
from blindsight.audit.collusion.recovery import Held, Recovery
from blindsight.crypto.shamir import Reconstruction
from blindsight.errors import InputError, MessageError
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.masks.keys import Peers, pair_mask, read_directory, self_mask
from blindsight.learn.masks.messages import Delivery, Reveal, Upload
from blindsight.learn.residues import Residues, read_residues, to_integers
from blindsight.learn.roster import Roster
from blindsight.learn.schemes.masks import MaskSession


@dataclass(frozen=True, eq=False)
class Stripped:
    """An upload without the masks that a coalition can lift; `worn` are the users whose masks it still wears."""

    residues: Residues
    worn: tuple[str, ...]


def with_users(coalition: Coalition, victim: str) -> Recovery:
    """Return a user's update, which enough users and the aggregator strip bare."""
    stripped = stripped_upload(coalition, victim)
    if stripped.worn:
        raise InputError(f"{len(coalition.updates)} users are too few to strip the upload of {victim!r}.")
    update = to_integers(stripped.residues)
    known = np.ones(update.size, dtype=np.bool_)
    return Recovery(coalition.members, victim, update.astype(np.float64), known, update != 0)


def too_few(coalition: Coalition, victim: str) -> Held:
    """Return what is left of a user's upload when too few users have lifted what they can; uniform, if masks are."""
    left = to_integers(stripped_upload(coalition, victim).residues)
    return Held(left[None].astype(np.float64))


def stripped_upload(coalition: Coalition, victim: str) -> Stripped:
    """Lift every mask of a user's upload that aggregator and members can lift together."""
    roster, peers = _roster(coalition), _peers(coalition)
    upload = signed(roster, coalition.messages(AGGREGATOR), Upload)[victim]
    bare = read_residues(upload.masked, roster.terms) - self_mask(_seed(coalition, peers, victim), roster, ROUND)
    others, key = [name for name in upload.peers if name != victim], _mask_key(coalition, peers, victim)
    worn = []
    for other in others:
        if key is not None:
            mask = pair_mask(key, peers.keys[other].mask_key, roster, ROUND)
            bare = bare - mask if victim < other else bare + mask
        elif other in coalition.updates:
            bare = bare + _shared_with(coalition, other, victim, peers)
        else:
            worn.append(other)
    return Stripped(bare, tuple(worn))


def _shared_with(coalition: Coalition, member: str, victim: str, peers: Peers) -> Residues:
    """Return the mask between a member and the victim, as the member adds it: the victim adds its negative."""
    keys, nothing = coalition.round_keys[member], np.zeros(coalition.session.terms.dimension, dtype=np.int64)
    return keys.masked(nothing, [victim], peers) - keys.masked(nothing, [], peers)


def _seed(coalition: Coalition, peers: Peers, victim: str) -> bytes:
    """Put together the seed of the victim's own mask, from the shares that the aggregator was given to add up."""
    reveals = signed(_roster(coalition), coalition.messages(AGGREGATOR), Reveal)
    holders = sorted(reveals)[: peers.threshold]
    shares = {
        peers.number(name): dict(zip(reveals[name].owners, reveals[name].shares, strict=True))[victim]
        for name in holders
    }
    return Reconstruction(list(shares)).secret(shares)


def _mask_key(coalition: Coalition, peers: Peers, victim: str) -> bytes | None:
    """Put together the victim's mask key from the shares that members hold; None if they are too few."""
    shares = {}
    for member, keys in coalition.round_keys.items():
        delivery = signed(_roster(coalition), coalition.messages(member), Delivery)[AGGREGATOR]
        sealed = dict(zip(delivery.senders, delivery.sealed, strict=True))[victim]
        shares[peers.number(member)] = keys.unseal(sealed, victim, peers)[0]
    if len(shares) < peers.threshold:
        return None
    enough = dict(list(shares.items())[: peers.threshold])
    return Reconstruction(list(enough)).secret(enough)


def _peers(coalition: Coalition) -> Peers:
    """Return the directory of the round, which every user received."""
    for user in coalition.updates:
        for envelope in coalition.messages(user):
            try:
                return read_directory(_roster(coalition), envelope, round=ROUND)
            except MessageError:
                continue  # of another kind
    raise InputError("masks are lifted by the aggregator with users; there is no user in the coalition.")


def _roster(coalition: Coalition) -> Roster:
    if not isinstance(coalition.session, MaskSession):
        raise InputError(f"only masks have masks to lift; got {coalition.session.scheme!r}.")
    return coalition.session.roster
