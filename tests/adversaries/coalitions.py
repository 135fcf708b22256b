"""What coalitions read under BFV and masks: all members but one, aggregator and key generator, aggregator and members.

| coalition | bfv | masks |
| --- | --- | --- |
| all members but one | the update | the update |
| aggregator and key generator | the update | - |
| aggregator and one member | ciphertexts, and the sum | - |
| aggregator and as many members as the threshold | - | the update |
| aggregator and one member fewer | - | a masked upload, and the sum |

Rounds are played and judged by `papers.dphe.coalitions`, which has those of DPHE. Ciphertexts and masked uploads are
compared with the updates: what tells more of them than chance *refutes* the statement.

*Masks.* An upload wears its own mask and one for every other member (`sums.masks`). In every round the aggregator is
given the seeds of the survivors' own masks; that is how it lifts them from the sum. A member knows the mask it shares
with the victim. The masks that the victim shares with honest members come off only with its mask key, of which every
member holds a share: the threshold is how many it takes. One fewer, and a uniformly random mask remains.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from blindsight.audit.views import differences, owner_payloads
from blindsight.crypto.bfv import SecretKey
from blindsight.crypto.shamir import Reconstruction
from blindsight.crypto.wire import decode
from blindsight.papers.dphe.coalitions import (
    ROUND,
    TURN,
    WITH_A_MEMBER,
    Account,
    Coalition,
    CoalitionResult,
    Held,
    PlayedRound,
    attack_round,
    certain,
    from_sum,
    others,
    sparse_plans,
)
from blindsight.sums import masks
from blindsight.sums.masks import UNMASK, Peers, Reveal, agree, read_directory
from blindsight.sums.messages import Roster
from blindsight.sums.scheme import Turn
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, Integers, threshold


def lattice_with_the_key(coalition: PlayedRound, victim: str) -> Account:
    """Return a member's update, decrypted with the key generator's key from what the aggregator received."""
    key = coalition.key
    assert isinstance(key, SecretKey)
    update = key.decrypt(key.public.read_vector(coalition.replies()[victim]))
    return certain(update[: coalition.session.terms.dimension])


def lattice_with_a_member(coalition: PlayedRound, victim: str) -> Held:
    """Return how a member's ciphertexts differ from those of another one outside the coalition, read as numbers."""
    other = next(member for member in coalition.rest if member != victim)
    mine, others = (owner_payloads(coalition.views[AGGREGATOR], member) for member in (victim, other))
    return Held(differences(mine, others, coalition.session.terms.dimension), other)


def masked_with_members(coalition: PlayedRound, victim: str) -> Account:
    """Return a member's update, which enough members and the aggregator strip bare."""
    return certain(stripped_upload(coalition, victim)[0])


def masked_with_too_few(coalition: PlayedRound, victim: str) -> Held:
    """Return what is left of a member's upload when too few have lifted what they can; uniform, if masks are."""
    return Held(stripped_upload(coalition, victim)[0][None].astype(np.float64))


def stripped_upload(coalition: PlayedRound, victim: str) -> tuple[Integers, tuple[str, ...]]:
    """Lift every mask of a member's upload that aggregator and members can lift together.

    Return what is left of it, and the members whose masks it still wears.
    """
    terms, roster = coalition.session.terms, coalition.session.aggregator.roster
    group = next(names for names in terms.groups(ROUND) if victim in names)
    told = next(kept for kept in coalition.secrets.values() if victim in kept.owners)
    peers = read_directory(roster, told.directory, TURN, b"", group)
    reveals = {name: decode(body, Reveal).shares for name, body in coalition.replies(UNMASK).items() if name in group}
    seed = joined(
        peers, {name: dict(zip(told.owners, shares, strict=True))[victim] for name, shares in reveals.items()}
    )
    held = {
        name: dict(zip(kept.owners, kept.mask_key_shares, strict=True))[victim]
        for name, kept in coalition.secrets.items()
        if victim in kept.owners
    }
    key = joined(peers, held)
    pairs: dict[str, bytes] = {}
    for other in told.owners:
        if other != victim and key is not None:
            pairs[other] = agree(key, peers.keys[other].mask_key)
        elif other in coalition.secrets:
            pairs[other] = agree(coalition.secrets[other].mask, peers.keys[victim].mask_key)
    assert seed is not None  # the aggregator had enough shares of it: it has opened the sum
    bare = bared(roster, TURN, coalition.replies()[victim], victim, seed, pairs)
    return bare, tuple(name for name in told.owners if name != victim and name not in pairs)


def joined(peers: Peers, shares: Mapping[str, bytes]) -> bytes | None:
    """Return the secret that shares by holder give; None if they are too few."""
    chosen = {peers.number(holder): share for holder, share in sorted(shares.items())[: peers.threshold]}
    return Reconstruction(list(chosen)).secret(chosen) if len(chosen) == peers.threshold else None


def bared(roster: Roster, turn: Turn, upload: bytes, victim: str, seed: bytes, pairs: Mapping[str, bytes]) -> Integers:
    """Return a member's upload without its own mask and those it shares with others, by the secret behind each."""
    residues = roster.terms.read_residues(upload).copy()
    worn = [(seed, masks.mask_context(b"self", roster, turn, (victim,)), False)]
    for other, secret in pairs.items():
        worn.append((secret, masks.mask_context(b"pair", roster, turn, (victim, other)), victim > other))
    masks.add_masks(residues, worn)
    return residues.view(residues.dtype.str.replace("u", "i")).astype(np.int64)


def plans(played: PlayedRound) -> tuple[Coalition, ...]:
    """Return every kind of coalition that a scheme has to fear."""
    terms, rest = played.session.terms, partial(others, played)
    if terms.sparse:
        return sparse_plans(played)
    every = Coalition("all members but one", rest, from_sum, ("honest-members", "masks-threshold", "every-update"))
    if terms.keyed:
        with_the_key = Coalition(
            "aggregator and key generator",
            lambda _: [AGGREGATOR, KEY_GENERATOR],
            lattice_with_the_key,
            ("generator-apart",),
        )
        return (
            every,
            with_the_key,
            Coalition(WITH_A_MEMBER, lambda victim: [AGGREGATOR, rest(victim)[0]], lattice_with_a_member),
        )
    if not terms.traits.threshold:
        return (every,)
    size = len(terms.groups(ROUND)[0])
    needed = threshold(size)
    few = min(needed - 1, size - 2)  # of three members, one: two are all but one
    enough = Coalition(
        "aggregator and as many members as the threshold",
        lambda victim: [AGGREGATOR, *rest(victim)[:needed]],
        masked_with_members,
        ("masks-threshold",),
    )
    return every, enough, Coalition(FEWER, lambda victim: [AGGREGATOR, *rest(victim)[:few]], masked_with_too_few)


FEWER = "aggregator and one member fewer than the threshold"


def attack_every_coalition(played: PlayedRound, **how: Any) -> tuple[CoalitionResult, ...]:
    """Let every kind of coalition that its scheme has attack every member of a round."""
    return attack_round(played, plans(played), **how)
