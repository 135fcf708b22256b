"""One user's secrets of one round, and the public keys of all: what masks, shares and commitments are made from.

All are drawn afresh for every round, because the secrets of one that drops out are put together again by the server.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.sealedbox import seal, unseal
from blindsight.crypto.shamir import SECRET_BYTES, SHARE_BYTES, read_share, split
from blindsight.crypto.wire import Secret, encode
from blindsight.errors import InputError, MessageError
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.masks.expansion import agree, expand, public_half
from blindsight.learn.masks.messages import Advertisement, Directory
from blindsight.learn.residues import Residues, to_residues
from blindsight.learn.roster import Roster
from blindsight.rng import ByteSource

Shares = tuple[bytes, bytes]
"""One holder's share of a user's mask key, and of its seed."""


def threshold(users: int) -> int:
    """Return t: how many of so many users of a run must take part in every step of a round, more than two thirds.

    >>> [threshold(users) for users in (3, 4, 5, 10)]
    [3, 3, 4, 7]
    """
    return 2 * users // 3 + 1


def colluders(users: int) -> int:
    """Return c: how many of so many users may collude with a lying server: the most with 2t > n + c and t - c >= 2.

    >>> [colluders(users) for users in (3, 4, 5, 10)]
    [1, 1, 2, 3]
    """
    needed = threshold(users)
    return min(2 * needed - users - 1, needed - 2)


@dataclass(frozen=True, eq=False)
class Peers:
    """U1: the users of a round by name, with the public keys they signed.

    `digest` is that of the whole directory, `threshold` that of the run: so many shares give a secret back.
    """

    run: bytes
    round: int
    keys: dict[str, Advertisement]
    digest: bytes
    threshold: int

    def agreed(self, survivors: Collection[str]) -> bytes:
        """Return what users sign who were told of these survivors and have this directory."""
        return hashlib.sha256(self.digest + _framed(sorted(survivors))).digest()

    def number(self, name: str) -> int:
        """Return the number of the shares that a user holds: its place in the order of names, from 1."""
        return list(self.keys).index(name) + 1


def read_directory(roster: Roster, envelope: bytes, *, round: int) -> Peers:
    """Return the users of a round; each key must be signed by its owner, so the server cannot put in its own."""
    _, directory = roster.open(envelope, Directory, round=round, authors=[AGGREGATOR])
    keys: dict[str, Advertisement] = {}
    for advertised in directory.advertisements:
        author, advertisement = roster.open(advertised, Advertisement, round=round, authors=roster.terms.users)
        check_advertisement(author, advertisement)
        keys[author] = advertisement
    if len(keys) != len(directory.advertisements) or list(keys) != sorted(keys):
        raise MessageError("the directory names a user twice or out of order.")
    digest = hashlib.sha256(encode(directory)).digest()
    return Peers(roster.digest, round, keys, digest, threshold(len(roster.terms.users)))


def enough(roster: Roster) -> int:
    """Return how many users the sum of a round needs."""
    return max(roster.terms.minimum, threshold(len(roster.terms.users)))


def check_advertisement(author: str, advertisement: Advertisement) -> None:
    """Refuse keys that are none."""
    if {len(advertisement.channel_key), len(advertisement.mask_key), len(advertisement.commitment)} != {32}:
        raise MessageError(f"the keys of {author!r} have the wrong length.")


class RoundKeys(Secret):
    """c_u^SK, s_u^SK and b_u of one user and round."""

    __slots__ = ("_channel", "_mask", "_name", "_roster", "_round", "_seed")

    def __init__(self, name: str, roster: Roster, round: int, source: ByteSource) -> None:
        """Draw new ones."""
        self._name, self._roster, self._round = name, roster, round
        self._channel, self._mask, self._seed = (source(SECRET_BYTES) for _ in range(3))

    def secret_bytes(self) -> bytes:
        """Return all three, for the owner's own storage (mode 0600)."""
        return self._channel + self._mask + self._seed

    @classmethod
    def from_secret_bytes(cls, data: bytes, name: str, roster: Roster, round: int) -> "RoundKeys":
        """Take what `secret_bytes` returned."""
        if len(data) != 3 * SECRET_BYTES:
            raise InputError(f"the secrets of a round have {3 * SECRET_BYTES} bytes; got {len(data)}.")
        return cls(name, roster, round, BytesIO(data).read)

    def advertisement(self) -> Advertisement:
        """Return the public side."""
        return Advertisement(
            run=self._roster.digest,
            round=self._round,
            channel_key=public_half(self._channel),
            mask_key=public_half(self._mask),
            commitment=hashlib.sha256(self._seed).digest(),
        )

    def shares(self, peers: Peers, source: ByteSource) -> dict[str, Shares]:
        """Share out both secrets among all peers, oneself included."""
        count = len(peers.keys)
        mask_key = split(self._mask, threshold=peers.threshold, shares=count, source=source)
        seed = split(self._seed, threshold=peers.threshold, shares=count, source=source)
        return dict(zip(peers.keys, zip(mask_key, seed, strict=True), strict=True))

    def seal(self, shares: Shares, receiver: str, peers: Peers, source: ByteSource) -> bytes:
        """Encrypt shares for one peer; it can open them only if it has the same directory."""
        secret = agree(self._channel, peers.keys[receiver].channel_key)
        return seal(secret, b"".join(shares), purpose=_purpose(peers, self._name, receiver), source=source)

    def unseal(self, sealed: bytes, sender: str, peers: Peers) -> Shares:
        """Decrypt the shares that a peer sealed for this user."""
        secret = agree(self._channel, peers.keys[sender].channel_key)
        content = unseal(secret, sealed, purpose=_purpose(peers, sender, self._name))
        shares = content[:SHARE_BYTES], content[SHARE_BYTES:]
        for share in shares:
            read_share(share)
        return shares

    def masked(self, integers: NDArray[np.int64], members: Iterable[str], peers: Peers) -> Residues:
        """Return y_u = x_u + PRG(b_u) + the masks shared with larger names - those shared with smaller ones."""
        terms = self._roster.terms
        masked = to_residues(integers, terms) + self_mask(self._seed, self._roster, self._round)
        for name in members:
            if name == self._name:
                continue
            mask = pair_mask(self._mask, peers.keys[name].mask_key, self._roster, self._round)
            if self._name < name:
                masked += mask
            else:
                masked -= mask
        return masked


def self_mask(seed: bytes, roster: Roster, round: int) -> Residues:
    """Return PRG(b_u)."""
    return expand(seed, roster.terms, context=_context(b"self", roster, round))


def pair_mask(private: bytes, public: bytes, roster: Roster, round: int) -> Residues:
    """Return PRG(s_uv), which both users make from their own private and the other's public key."""
    return expand(agree(private, public), roster.terms, context=_context(b"pair", roster, round))


def _context(purpose: bytes, roster: Roster, round: int) -> bytes:
    return b"%s of round %d of " % (purpose, round) + roster.digest


def _purpose(peers: Peers, sender: str, receiver: str) -> bytes:
    return b"shares of round %d of " % peers.round + peers.run + peers.digest + _framed((sender, receiver))


def _framed(names: Iterable[str]) -> bytes:
    return b"".join(len(name.encode()).to_bytes(2, "big") + name.encode() for name in names)
