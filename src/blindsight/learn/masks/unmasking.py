"""Which masks are left in a sum of uploads, and how the users' shares lift them.

The masks of two users who both uploaded cancel. Left are each survivor's own mask, whose seed b_u the shares give back,
and the masks it shares with users that dropped out after the others had used their keys: the shares of such a user's
mask key s_u^SK give those. For no user are both secrets put together.
"""

import hashlib
from collections.abc import Collection, Mapping

import numpy as np

from blindsight.crypto.shamir import Reconstruction
from blindsight.errors import MessageError
from blindsight.learn.masks.expansion import public_half
from blindsight.learn.masks.keys import Peers, pair_mask, self_mask
from blindsight.learn.residues import Residues, residue_type
from blindsight.learn.roster import Roster


def remaining_masks(
    roster: Roster,
    peers: Peers,
    members: Collection[str],
    survivors: Collection[str],
    reveals: Mapping[str, Mapping[str, bytes]],
) -> Residues:
    """Return the sum of all masks in the sum of the survivors' uploads.

    `members` (U2) shared their secrets, `survivors` (U3) uploaded, `reveals` are shares by holder and owner. A secret
    that does not match what its owner advertised raises `MessageError`.
    """
    holders = sorted(reveals)[: peers.threshold]
    reconstruction = Reconstruction([peers.number(holder) for holder in holders])
    total = np.zeros(roster.terms.dimension, residue_type(roster.terms))
    for owner in sorted(members):
        secret = reconstruction.secret({peers.number(holder): reveals[holder][owner] for holder in holders})
        advertised = peers.keys[owner]
        if owner in survivors:
            _check(owner, hashlib.sha256(secret).digest(), advertised.commitment)
            total += self_mask(secret, roster, peers.round)
            continue
        _check(owner, public_half(secret), advertised.mask_key)
        for survivor in survivors:
            mask = pair_mask(secret, peers.keys[survivor].mask_key, roster, peers.round)
            if survivor < owner:  # as the survivor did when it masked its update
                total += mask
            else:
                total -= mask
    return total


def _check(owner: str, found: bytes, advertised: bytes) -> None:
    if found != advertised:
        raise MessageError(f"the shares of a secret of {owner!r} do not give what it advertised: one was altered.")
