"""Pairwise-masked secure aggregation: the aggregator adds vectors it cannot read, and no other party decrypts anything.

*The guarantee.* Of the n members of a group up to c may collude with an aggregator that lies as it likes; t members
must help to unmask a sum, with 2t > n + c and t - c >= 2 (`threshold`, `colluders`). Every upload looks uniformly
random whatever the update is. Of the updates of the others the aggregator learns one sum a round and group, of at least
t - c of them, or nothing. One that follows the protocol learns no more with up to t - 1 members, short of all but one.
With fewer than t left an attempt is given up before anything is unmasked, and the round is tried again with new masks.

*Why.* An upload wears two locks: its own mask, and masks shared with the others. Shares of the seed open the first,
shares of the mask key the second. A member reveals its shares once a round, in one attempt at it: of the seeds of those
in U3, of the mask keys of the rest, and only if t members have signed the very set U3 (and directory) that it signed
itself.

1. *One set.* Honest members sign one set an attempt. Two sets would take 2t signatures, of which at most c are by
   members that sign both: 2t <= n + c. So all honest members reveal for the same U3, hence one kind of share of each
   upload, and the c others hold fewer than t of the other kind. For the same reason a round is unmasked at most once:
   members that revealed take part in no other attempt at it.
2. *Enough in it.* U3 has t signers, so t - c >= 2 honest members at least.
3. *All of it or nothing.* An aggregator may also tell members different U2. A signer has masks with all of U3, or it
   would not have signed. A member v of U3 that has not signed was told of t members at least, itself among them. If k
   honest members of U3 have not signed, U3 has t + k members, so v was told of 2t + k - n > c + k of them: one is an
   honest signer w. The mask between v and w goes only with w's upload, and w's masks only with all of U3: it is
   derived for these two names, so no other pair has it, whatever key a member advertises as its own (that of w, or one
   that gives the same secret with every other key: bit 255 flipped, a point of low order added). Different directories
   lead nowhere: shares sealed under another one do not open, and two of them take 2t members again.

t counts all members that are asked in a round, which follow from the terms, and not those who come: the aggregator
could choose a small round with c members of its own. From 100 members on masks are shared in groups of at least 50
(`Terms.groups`), each with its own t and c: the aggregator then learns the sum of each group.

K. Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4; all keys
are fresh in every attempt, and the steps are

    paper                    step            server tells        member replies
    0 AdvertiseKeys          "advertise"                         `Advertisement`; those for the next round come ahead
    1 ShareKeys              "share"         `Directory` (U1)    `SealedShares`
    2 MaskedInputCollection  "contribute"    `Delivery` (U2)     y_u
    3 ConsistencyCheck       "consistency"   `Survivors` (U3)    a digest of directory and U3
    4 Unmasking              "unmask"        `UnmaskRequest`     `Reveal`

    symbol                   here
    y_u = x_u + PRG(b_u) + sum_{u<v} PRG(s_uv) - sum_{v<u} PRG(s_uv)          `MaskMember._masked`
    b_u, s_u^SK, c_u^SK      `RoundSecrets`: seed of the self-mask, mask key, channel key
    PRG, KA.agree            `add_masks`, `agree`: AES-256 in counter mode, X25519 + HKDF
    SS.share, SS.recon       `crypto.shamir`
    t                        `threshold`
    sigma'_u                 the receipt of "consistency"
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from blindsight.crypto.sealedbox import of_low_order, seal, unseal
from blindsight.crypto.shamir import SECRET_BYTES, SHARE_BYTES, Reconstruction, read_share, split
from blindsight.crypto.wire import Message, decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.rng import ByteSource
from blindsight.statement import PrivacyStatement, randomness_of
from blindsight.sums.messages import Call, Key, Names, Receipt, Reply, Roster, Setup
from blindsight.sums.scheme import CONTRIBUTE, Adder, MemberPart, Opened, Resources, Scheme, Turn, register
from blindsight.sums.statements import line, lines
from blindsight.sums.terms import Digest, Integers, Residues, Terms, threshold

ADVERTISE, SHARE, CONSISTENCY, UNMASK = "advertise", "share", "consistency", "unmask"
STEPS = (ADVERTISE, SHARE, CONTRIBUTE, CONSISTENCY, UNMASK)

Shares = tuple[bytes, bytes]
"""One holder's share of a member's mask key, and of its seed."""

_LABEL = b"blindsight masks 3"
_CHUNK = 1 << 18  # bytes of a mask that are made and added while they are in the cache
_ZEROS = bytes(_CHUNK)
_CHOICES = 1000  # of t holders, that are tried if some of them lie


def colluders(members: int) -> int:
    """Return c: how many of a group may collude with a lying server: the most with 2t > n + c and t - c >= 2.

    >>> [colluders(members) for members in (3, 4, 5, 10)]
    [1, 1, 2, 3]
    """
    needed = threshold(members)
    return min(2 * needed - members - 1, needed - 2)


def enough(terms: Terms, group: Collection[str]) -> int:
    """Return how many members of a group must be in its sum: t, or its part of the run's minimum."""
    return max(threshold(len(group)), -(-terms.minimum * len(group) // terms.asked))


class Advertisement(Message, name="masks/advertisement.2"):
    """c_u^PK, s_u^PK, and SHA-256 of b_u, by which the server notices a forged share of it."""

    channel_key: Key
    mask_key: Key
    commitment: Digest


class Directory(Message, name="masks/directory.2"):
    """U1: the replies to "advertise", as their authors signed them, in the order of names."""

    advertisements: tuple[bytes, ...]


class SealedShares(Message, name="masks/sealed-shares.2"):
    """What one member sealed for each of the others in the directory, in the order of names."""

    sealed: tuple[bytes, ...]


class Delivery(Message, name="masks/delivery.2"):
    """U2 without the receiver, and what each of them sealed for it."""

    senders: Names
    sealed: tuple[bytes, ...]


class Survivors(Message, name="masks/survivors.2"):
    """U3."""

    survivors: Names


class UnmaskRequest(Message, name="masks/unmask-request.3"):
    """The receipts of "consistency" of at least t members."""

    receipts: tuple[bytes, ...]


class Reveal(Message, name="masks/reveal.2"):
    """One share for each member of U2, in the order of names; and the reply to "advertise" of the next round."""

    shares: tuple[bytes, ...]
    ahead: bytes


class RoundSecrets(Message, name="masks/round-secrets.1"):
    """What a member keeps between the steps of an attempt: c_u^SK, s_u^SK, b_u, and what it was told and handed."""

    round: int
    attempt: int
    channel: Key
    mask: Key
    seed: Key
    directory: bytes
    owners: Names
    mask_key_shares: tuple[bytes, ...]
    seed_shares: tuple[bytes, ...]
    survivors: Names

    @property
    def advertisement(self) -> Advertisement:
        return Advertisement(public_half(self.channel), public_half(self.mask), hashlib.sha256(self.seed).digest())


@dataclass(frozen=True, eq=False)
class Peers:
    """U1: the members of a group by name, with the public keys they signed; `digest` is that of the directory."""

    run: bytes
    turn: Turn
    group: Names
    keys: Mapping[str, Advertisement]
    digest: bytes

    @property
    def threshold(self) -> int:
        return threshold(len(self.group))

    def agreed(self, survivors: Iterable[str]) -> bytes:
        """Return what members stand by who were told of these survivors and have this directory."""
        return hashlib.sha256(self.digest + _framed(sorted(survivors))).digest()

    def number(self, name: str) -> int:
        """Return the number of the shares that a member holds: its place in the order of names, from 1."""
        return list(self.keys).index(name) + 1


def read_directory(roster: Roster, data: bytes, turn: Turn, model: bytes, group: Names) -> Peers:
    """Return the members of a group; each key must be signed by its owner, so the server cannot put in its own."""
    keys: dict[str, Advertisement] = {}
    for envelope in decode(data, Directory).advertisements:
        reply = decode(envelope, Reply, max_bytes=1 << 14)
        author, receipt = roster.receipt(reply.receipt, turn=turn, step=ADVERTISE, model=b"")
        keys[author] = read_advertisement(author, reply, receipt)
    if len(keys) != len(decode(data, Directory).advertisements) or list(keys) != sorted(keys):
        raise MessageError("the directory names a member twice or out of order.")
    if not set(keys) <= set(group):
        raise MessageError("the directory names members of another group.")
    return Peers(roster.digest, turn, group, keys, hashlib.sha256(model + data).digest())


def read_advertisement(author: str, reply: Reply, receipt: Receipt) -> Advertisement:
    if hashlib.sha256(reply.body).digest() != receipt.body:
        raise MessageError(f"the receipt of {author!r} is for other keys than it came with.")
    advertisement = decode(reply.body, Advertisement, max_bytes=1 << 12)
    if {len(advertisement.channel_key), len(advertisement.mask_key), len(advertisement.commitment)} != {32}:
        raise MessageError(f"the keys of {author!r} have the wrong length.")
    if of_low_order(advertisement.channel_key) or of_low_order(advertisement.mask_key):
        raise MessageError(f"a key of {author!r} is of low order: nobody can agree on a secret with it.")
    return advertisement


class MaskMember(MemberPart):
    """Hides its update under masks that cancel in the sum, and helps to lift those that do not."""

    steps: ClassVar[Names] = STEPS
    _cached: tuple[bytes, Peers] | None = None

    @classmethod
    def needed(cls, terms: Terms) -> int:
        """Return how many members the sum of a round needs: more than two thirds of those that are asked."""
        return max(terms.minimum, threshold(terms.asked))

    def answer(self, call: Call, integers: Integers | None, secrets: bytes) -> tuple[bytes, bytes]:
        turn = call.round, call.attempt
        if call.step == ADVERTISE:
            drawn = self._drawn(turn)
            return encode(drawn.advertisement), encode(drawn)
        kept = decode(secrets, RoundSecrets)
        if call.step == SHARE:
            body, after = self._share(call, kept)
        elif call.step == CONTRIBUTE:
            body, after = self._masked(call, self.contribution(integers), kept)
        elif call.step == CONSISTENCY:
            body, after = self._sign(call, kept)
        else:
            body, after = self._unmask(call, kept)
        return body, encode(after)

    def begins(self, step: str, turn: Turn, secrets: bytes) -> bool:
        """Tell whether an attempt may begin with a step: the keys may have been advertised ahead."""
        if step != SHARE or not secrets:
            return super().begins(step, turn, secrets)
        kept = decode(secrets, RoundSecrets)
        return (kept.round, kept.attempt) == turn and not kept.directory

    def missing(self, call: Call, secrets: bytes) -> int:
        if call.step != UNMASK:
            return 0
        return len(self._group((call.round, call.attempt))) - len(decode(secrets, RoundSecrets).survivors)

    def _drawn(self, turn: Turn) -> RoundSecrets:
        channel, mask, seed = (self.resources.source(SECRET_BYTES) for _ in range(3))
        return RoundSecrets(*turn, channel, mask, seed, b"", (), (), (), ())

    def _group(self, turn: Turn) -> Names:
        return next(group for group in self.terms.groups(turn[0]) if self.name in group)

    def _peers(self, call: Call, directory: bytes) -> Peers:
        turn, key = (call.round, call.attempt), hashlib.sha256(call.model + directory).digest()
        if self._cached is None or self._cached[0] != key or self._cached[1].turn != turn:
            peers = read_directory(self.roster, directory, turn, call.model, self._group(turn))
            self._cached = key, peers
        return self._cached[1]

    def _share(self, call: Call, kept: RoundSecrets) -> tuple[bytes, RoundSecrets]:
        peers, source = self._peers(call, call.body), self.resources.source
        if peers.keys.get(self.name) != kept.advertisement:
            raise MessageError(f"the directory has other keys for {self.name!r} than its own.")
        self._check_enough(peers.keys, peers.group)
        halves = [split(s, threshold=peers.threshold, shares=len(peers.keys), source=source)
                  for s in (kept.mask, kept.seed)]  # fmt: skip
        shares = dict(zip(peers.keys, zip(*halves, strict=True), strict=True))
        sealed = []
        for name in peers.keys:
            if name != self.name:
                secret = agree(kept.channel, peers.keys[name].channel_key)
                purpose = _purpose(peers, self.name, name)
                sealed.append(seal(secret, b"".join(shares[name]), purpose=purpose, source=source))
        mask_key, seed = shares[self.name]
        after = replace(
            kept, directory=call.body, owners=(self.name,), mask_key_shares=(mask_key,), seed_shares=(seed,)
        )
        return encode(SealedShares(tuple(sealed))), after

    def _masked(self, call: Call, integers: Integers, kept: RoundSecrets) -> tuple[bytes, RoundSecrets]:
        """Return y_u = x_u + PRG(b_u) + the masks shared with larger names - those shared with smaller ones."""
        delivery, peers = decode(call.body, Delivery), self._peers(call, kept.directory)
        sealed = dict(zip(delivery.senders, delivery.sealed, strict=False))
        if not len(sealed) == len(delivery.senders) == len(delivery.sealed):
            raise MessageError("the delivery does not have one sealed share for each of its senders.")
        if not set(sealed) <= set(peers.keys) - {self.name}:
            raise MessageError("the delivery names senders that are not in the directory.")
        self._check_enough([*sealed, self.name], peers.group)
        held = {self.name: (kept.mask_key_shares[0], kept.seed_shares[0])}
        held |= {sender: self._unsealed(box, sender, kept, peers) for sender, box in sealed.items()}
        masks = [(kept.seed, mask_context(b"self", self.roster, peers.turn, (self.name,)), True)]
        for name in sealed:
            secret, pair = agree(kept.mask, peers.keys[name].mask_key), (self.name, name)
            masks.append((secret, mask_context(b"pair", self.roster, peers.turn, pair), self.name < name))
        masked = self.terms.residues(integers)
        add_masks(masked, masks)
        owners = tuple(sorted(held))
        after = replace(
            kept,
            owners=owners,
            mask_key_shares=tuple(held[owner][0] for owner in owners),
            seed_shares=tuple(held[owner][1] for owner in owners),
        )
        return masked.tobytes(), after

    def _unsealed(self, box: bytes, sender: str, kept: RoundSecrets, peers: Peers) -> Shares:
        secret = agree(kept.channel, peers.keys[sender].channel_key)
        content = unseal(secret, box, purpose=_purpose(peers, sender, self.name))
        shares = content[:SHARE_BYTES], content[SHARE_BYTES:]
        for share in shares:
            read_share(share)
        return shares

    def _sign(self, call: Call, kept: RoundSecrets) -> tuple[bytes, RoundSecrets]:
        told, peers = decode(call.body, Survivors).survivors, self._peers(call, kept.directory)
        named = set(told)
        if len(named) != len(told) or not named <= set(kept.owners):
            raise MessageError("the survivors are named twice, or have not shared their secrets.")
        if self.name not in named:
            raise MessageError(f"{self.name!r} has uploaded, but the server counts it as dropped out.")
        self._check_enough(named, peers.group)
        return peers.agreed(named), replace(kept, survivors=tuple(sorted(named)))

    def _unmask(self, call: Call, kept: RoundSecrets) -> tuple[bytes, RoundSecrets]:
        """Reveal a share per member, of its seed if it uploaded, else of its mask key; then forget this attempt."""
        peers, signers = self._peers(call, kept.directory), set[str]()
        agreed = hashlib.sha256(peers.agreed(kept.survivors)).digest()
        for envelope in decode(call.body, UnmaskRequest).receipts:
            signer, receipt = self.roster.receipt(envelope, turn=peers.turn, step=CONSISTENCY, model=call.model)
            if signer not in kept.survivors:
                raise MessageError(f"{signer!r} is not among the survivors.")
            if receipt.body != agreed:
                raise PrivacyError(f"{signer!r} was told of other survivors than {self.name!r}: the server lies.")
            signers.add(signer)
        if len(signers) < peers.threshold:
            raise PrivacyError(f"{len(signers)} members have signed the sum; {self.name!r} needs {peers.threshold}.")
        pairs = zip(kept.owners, kept.mask_key_shares, kept.seed_shares, strict=True)
        shares = [seed if owner in kept.survivors else mask_key for owner, mask_key, seed in pairs]
        turn = call.round + 1, 0
        drawn = self._drawn(turn)
        ahead = self.vouch(ADVERTISE, turn, b"", encode(drawn.advertisement))
        return encode(Reveal(tuple(shares), ahead)), drawn

    def _check_enough(self, there: Collection[str], group: Names) -> None:
        needed = enough(self.terms, group)
        if len(there) < needed:
            raise PrivacyError(
                f"the round is down to {len(there)} members; {self.name!r} goes on with {needed} or more."
            )


@dataclass(eq=False, repr=False)
class _Group:
    """What the server holds of one group."""

    names: Names
    sum: Residues
    peers: Peers | None = None
    directory: bytes = b""
    members: Names = ()  # U2
    survivors: Names = ()  # U3
    sealed: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by sender, by receiver
    receipts: dict[str, bytes] = field(default_factory=dict)  # of "consistency"
    reveals: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by holder, by owner


class MaskAdder(Adder):
    """Passes on what members sealed for each other, adds up what it cannot read, unmasks the sum.

    A member that does not answer a step has dropped out; a group that falls below its threshold is left out of the sum.
    Uploads are added as they come: memory is for one vector per group.
    """

    steps: ClassVar[Names] = STEPS

    def __init__(self, roster: Roster, setup: Setup, turn: Turn, resources: Resources) -> None:
        super().__init__(roster, setup, turn, resources)
        zeros = np.zeros(self.terms.dimension, self.terms.residue_type)
        self._groups = [_Group(names, zeros.copy()) for names in self.terms.groups(turn[0])]
        self._of = {name: group for group in self._groups for name in group.names}
        self._advertised: dict[str, bytes] = {}
        self._opened: Opened | None = None
        self._ahead: dict[str, bytes] = {}  # what members have sent for the next round

    def carried(self, turn: Turn) -> Mapping[str, bytes]:
        return self._ahead if (self.turn[0] + 1, 0) == turn else {}

    def follow(self, ahead: Mapping[str, bytes]) -> None:
        self._advertised = {name: reply for name, reply in ahead.items() if name in self._of}

    def already(self, step: str) -> Names:
        return tuple(self._advertised) if step == ADVERTISE else ()

    def bodies(self, step: str, members: Names) -> Mapping[str, bytes]:
        if step == ADVERTISE:
            return {name: b"" for name in members if name not in self._advertised}
        told: dict[str, bytes] = {}
        for group in self._groups:
            there = [name for name in group.names if name in members]
            if step == SHARE:
                told |= dict.fromkeys(there, group.directory)
            elif step == CONTRIBUTE:
                told |= {name: self._delivery(group, name) for name in there}
            elif step == CONSISTENCY:
                told |= dict.fromkeys(there, encode(Survivors(group.survivors)))
            else:
                told |= dict.fromkeys(there, encode(UnmaskRequest(tuple(group.receipts.values()))))
        return told

    def check(self, step: str, member: str, reply: Reply) -> Any:
        group = self._of[member]
        if step == ADVERTISE:
            _, receipt = self.roster.receipt(reply.receipt, turn=self.turn, step=step, model=b"")
            read_advertisement(member, reply, receipt)
            return encode(reply)
        if step == SHARE:
            others = [name for name in self._peers(group).keys if name != member]
            return _paired(member, decode(reply.body, SealedShares).sealed, others)
        if step == CONTRIBUTE:
            return self.terms.read_residues(reply.body)
        if step == CONSISTENCY:
            if reply.body != self._peers(group).agreed(group.survivors):
                raise MessageError(f"{member!r} signs another set of survivors than it was told.")
            return reply.receipt
        reveal = decode(reply.body, Reveal)
        shares = _paired(member, reveal.shares, group.members)
        for share in shares.values():
            read_share(share)
        return shares, reveal.ahead

    def add(self, step: str, member: str, checked: Any) -> None:
        group = self._of[member]
        if step == ADVERTISE:
            self._advertised[member] = checked
        elif step == SHARE:
            group.sealed[member] = checked
        elif step == CONTRIBUTE:
            group.sum += checked
        elif step == CONSISTENCY:
            group.receipts[member] = checked
        else:
            group.reveals[member], ahead = checked
            if self._fits_ahead(member, ahead):
                self._ahead[member] = ahead

    def close(self, step: str, heard: Names) -> Names:
        there = self._there(step, heard)
        if not self._suffice(step, there):
            raise PrivacyError(
                f"round {self.turn[0]} is down to {len(heard)} members; it needs "
                f"{sum(self._needed(step, group) for group in self._groups)}. Try again, with new masks."
            )
        for group, names in zip(self._groups, there, strict=True):
            if names:
                self._close(group, step, names)
            else:
                group.survivors = group.members = ()
        members = tuple(sorted(name for names in there for name in names))
        if step == CONTRIBUTE:
            self.members = members
        return members

    def suffices(self, step: str, heard: Names) -> bool:
        """Tell whether enough groups have enough members; while they unmask, every group that can must."""
        there = self._there(step, heard)
        return self._suffice(step, there) and (
            step != UNMASK or all(names for names, group in zip(there, self._groups, strict=True) if group.survivors)
        )

    def _there(self, step: str, heard: Names) -> list[Names]:
        found = []
        for group in self._groups:
            names = tuple(name for name in group.names if name in heard)
            found.append(names if len(names) >= self._needed(step, group) else ())
        return found

    def _needed(self, step: str, group: _Group) -> int:
        return enough(self.terms, group.names) if step in STEPS[:3] else threshold(len(group.names))

    def _suffice(self, step: str, there: list[Names]) -> bool:
        return sum(map(len, there)) >= (self.terms.minimum if step in STEPS[:3] else 1)

    def _close(self, group: _Group, step: str, there: Names) -> None:
        if step == ADVERTISE:
            group.directory = encode(Directory(tuple(self._advertised[name] for name in there)))
            group.peers = read_directory(self.roster, group.directory, self.turn, self.model, group.names)
        elif step == SHARE:
            group.members = there
        elif step == CONTRIBUTE:
            group.survivors, group.sealed = there, {}

    def opened(self) -> Opened:
        if self._opened is None:
            self._opened = self._unmasked()
        return self._opened

    def _unmasked(self) -> Opened:
        remaining = [self._remaining(group) if group.survivors else [] for group in self._groups]
        total = np.zeros(self.terms.dimension, self.terms.residue_type)
        members: list[str] = []
        for group, masks in zip(self._groups, remaining, strict=True):
            if not group.survivors:
                continue
            add_masks(group.sum, masks)
            total += group.sum
            members += group.survivors
        try:
            sums = self.terms.read_sums(total.tobytes(), len(members))
        except MessageError:
            raise MessageError("the masks did not cancel: somebody did not follow the protocol.") from None
        return Opened(tuple(sorted(members)), sums)

    def _remaining(self, group: _Group) -> list[tuple[bytes, bytes, bool]]:
        """Return the masks that are left in a sum of uploads, to be taken away.

        The masks of two members who both uploaded cancel. Left are each survivor's own mask, whose seed b_u the shares
        give back, and the masks it shares with members that dropped out after the others had used their keys: the
        shares of such a member's mask key s_u^SK give those. For no member are both secrets put together.
        """
        peers = self._peers(group)
        masks: list[tuple[bytes, bytes, bool]] = []
        for owner, secret in self._secrets(group, peers).items():
            if owner in group.survivors:
                masks.append((secret, mask_context(b"self", self.roster, self.turn, (owner,)), False))
                continue
            for survivor in group.survivors:  # the other way round than the survivor did when it masked its update
                shared, pair = agree(secret, peers.keys[survivor].mask_key), (owner, survivor)
                masks.append((shared, mask_context(b"pair", self.roster, self.turn, pair), survivor > owner))
        return masks

    def _secrets(self, group: _Group, peers: Peers) -> dict[str, bytes]:
        """Return the seed of each survivor and the mask key of each other member, from the shares of t holders.

        Members committed to their secrets beforehand. Where the shares of t holders do not fit, one of them lies, and
        others are tried: if more than t have revealed, one liar is left out, and of few holders any.
        """
        wrong: MessageError | None = None
        holders = sorted(group.reveals)
        turned = ((holders[start:] + holders[:start])[: peers.threshold] for start in range(len(holders)))
        for chosen in islice(chain(turned, combinations(holders, peers.threshold)), _CHOICES):
            if len(chosen) < peers.threshold:
                break
            reconstruction, secrets = Reconstruction([peers.number(holder) for holder in chosen]), dict[str, bytes]()
            try:
                for owner in group.members:
                    shares = {peers.number(holder): group.reveals[holder][owner] for holder in chosen}
                    secrets[owner] = reconstruction.secret(shares)
                    _check(owner, secrets[owner], peers.keys[owner], uploaded=owner in group.survivors)
                return secrets
            except MessageError as error:
                wrong = wrong or error
        raise wrong or MessageError(f"{len(holders)} members have revealed shares; {peers.threshold} are needed.")

    def _delivery(self, group: _Group, receiver: str) -> bytes:
        senders = tuple(name for name in group.members if name != receiver)
        return encode(Delivery(senders, tuple(group.sealed[sender][receiver] for sender in senders)))

    def _fits_ahead(self, member: str, ahead: bytes) -> bool:
        """Tell whether keys for the next round are in order; a member whose are not is asked for others then."""
        try:
            reply = decode(ahead, Reply, max_bytes=1 << 14)
            turn = self.turn[0] + 1, 0
            author, receipt = self.roster.receipt(reply.receipt, turn=turn, step=ADVERTISE, model=b"")
            read_advertisement(author, reply, receipt)
        except MessageError:
            return False
        return author == member

    def _peers(self, group: _Group) -> Peers:
        if group.peers is None:
            raise MessageError("nobody of this group has advertised keys.")
        return group.peers


def add_masks(vector: Residues, masks: Iterable[tuple[bytes, bytes, bool]]) -> None:
    """Add to a vector, in place, the mask of each (secret, context), or subtract it where the third is false.

    HKDF-SHA256 (RFC 5869) turns a secret and its context into an AES-256 key, whose counter stream is the mask:
    uniform modulo 2^b, so that the masked number is uniform, whatever it hides.
    """
    add_streams(vector, [(derive(secret, context), plus) for secret, context, plus in masks])


def add_streams(vector: Residues, keys: Iterable[tuple[bytes, bool]]) -> None:
    """Add to a vector, in place, the counter stream of each AES-256 key, or subtract it where the second is false."""
    streams = [(Cipher(AES256(key), CTR(bytes(16))).encryptor(), plus) for key, plus in keys]
    buffer, size = bytearray(_CHUNK + 16), _CHUNK // vector.itemsize
    for start in range(0, vector.size, size):
        part = vector[start : start + size]
        mask = np.frombuffer(buffer, dtype=vector.dtype, count=part.size)
        zeros = memoryview(_ZEROS)[: part.nbytes]
        for stream, plus in streams:
            stream.update_into(zeros, buffer)
            if plus:
                part += mask
            else:
                part -= mask


def derive(secret: bytes, context: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=_LABEL, info=context).derive(secret)


def public_half(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes) -> bytes:
    """Return the secret that the owners of two key pairs have in common (X25519, RFC 7748)."""
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise MessageError("a public key is not one that a secret can be agreed with.") from None


def mask_context(purpose: bytes, roster: Roster, turn: Turn, names: Names) -> bytes:
    """Return what a mask is derived for: the "self" mask of a member or that of a "pair", in one attempt.

    The names of a pair are part of it: a member that copies the key of another has other masks than it.
    """
    return b"%s of attempt %d at round %d of " % (purpose, turn[1], turn[0]) + roster.digest + _framed(sorted(names))


def _purpose(peers: Peers, sender: str, receiver: str) -> bytes:
    return b"shares of " + peers.run + peers.digest + _framed((sender, receiver))


def _framed(names: Iterable[str]) -> bytes:
    return b"".join(len(name.encode()).to_bytes(2, "big") + name.encode() for name in names)


def _paired(author: str, items: tuple[bytes, ...], names: Collection[str]) -> dict[str, bytes]:
    if len(items) != len(names):
        raise MessageError(f"{author!r} sends shares for other members than there are.")
    return dict(zip(names, items, strict=True))


def _check(owner: str, secret: bytes, advertised: Advertisement, *, uploaded: bool) -> None:
    fits = (
        hashlib.sha256(secret).digest() == advertised.commitment
        if uploaded
        else public_half(secret) == advertised.mask_key
    )
    if not fits:
        raise MessageError(f"the shares of a secret of {owner!r} do not give what it advertised: one was altered.")


def _statement(terms: Terms, source: ByteSource) -> PrivacyStatement:
    groups = terms.groups(0)
    size = len(groups[0])
    needed, lying = threshold(size), colluders(size)
    seen = "the sum" if len(groups) == 1 else f"the sum of each of {len(groups)} groups"
    where = "" if len(groups) == 1 else f" in each of {len(groups)} groups"
    return PrivacyStatement(
        guarantee="cryptographic",
        summary=f"only sums of updates are opened (masks; {lying} of {size} members may collude with the aggregator)",
        mechanism="pairwise masks (X25519, AES-256 in counter mode) and self-masks with Shamir shares, all fresh in "
        f"every attempt at a round; t = {needed} of {size} members{where} sign whose uploads are in the sum before any "
        f"of them helps to lift its masks, so that {size - needed} may drop out and c = {lying} collude with a lying "
        "aggregator; with fewer than t an attempt is given up before anything is unmasked, and repeated with new masks",
        unit="person",
        epsilon=None,
        delta=None,
        randomness=randomness_of(source),
        who_sees={
            "aggregator": f"uploads that look uniformly random, {seen}, who contributed and who dropped out",
            "members": "their own update, the sum, and who contributed",
            "someone who intercepts an upload": "uniformly random bytes; one who intercepts every message of a "
            "round computes the sum, as the aggregator does",
        },
        not_protected=lines("exact-sum", "differences", "took-part-zeros", "spoilt-run"),
        assumptions=(
            line("masks-aggregator", lying=lying, size=size, others=needed - lying),
            line("masks-threshold", needed=needed),
            *lines("masks-members", "masks-hardness"),
        ),
    )


MASKS = register(Scheme(name="masks", member=MaskMember, adder=MaskAdder, statement=_statement, threshold=True))
