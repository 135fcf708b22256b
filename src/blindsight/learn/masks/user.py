"""A user of the masks: hides its update under masks that cancel in the sum, and helps to lift those that do not.

It trusts the server with nothing but to add: keys come signed from their owners, shares are sealed for their receivers,
and it opens one lock of each upload, once, and only for a sum of enough users. Each step of a round is done once: asked
again in the same words it answers the same, asked in others it refuses (two requests could open both locks; two updates
under one mask would tell their difference).
"""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.secret import Secret
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.dphe.views import Record, forget
from blindsight.learn.masks.keys import Peers, RoundKeys, Shares, read_directory
from blindsight.learn.masks.messages import Delivery, Result, Reveal, SealedShares, UnmaskRequest, Upload
from blindsight.learn.residues import read_residues, to_integers
from blindsight.learn.roster import Roster, RoundMessage, RoundMessageT
from blindsight.rng import ByteSource, system_bytes

_STEPS = ("advertise", "share", "mask", "unmask")


@dataclass(eq=False, repr=False)
class _Round:
    """What a user remembers of the round it is in."""

    number: int
    keys: RoundKeys
    done: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # step: digest of what was asked, answer
    held: dict[str, Shares] = field(default_factory=dict)  # by whose they are
    survivors: tuple[str, ...] = ()
    peers: Peers | None = None


class MaskUser(Secret):
    """One user."""

    def __init__(
        self,
        name: str,
        roster: Roster,
        key: SigningKey,
        *,
        source: ByteSource = system_bytes,
        record: Record = forget,
    ) -> None:
        """Make the user of a run that the roster knows by this signing key."""
        roster.check_identity(name, key)
        self.name, self.roster = name, roster
        self._key, self._source, self._record = key, source, record
        self._round: _Round | None = None

    def advertise(self, round: int) -> bytes:
        """Begin a round with new keys (step 0); an unfinished round is given up."""
        last = -1 if self._round is None else self._round.number
        if round < max(last, 0):
            raise InputError(f"rounds count up from 0: after round {last} there is no round {round}.")
        if self._round is None or round > last:
            self._round = _Round(round, RoundKeys(self.name, self.roster, round, self._source))
        return self._once("advertise", b"", self._round.keys.advertisement)

    def share(self, directory: bytes) -> bytes:
        """Seal a share of this round's secrets for everyone in the directory (step 1)."""
        self._record(directory)
        current = self._started()

        def answer() -> RoundMessage:
            peers = read_directory(self.roster, directory, round=current.number)
            if peers.keys.get(self.name) != current.keys.advertisement():
                raise MessageError(f"the directory has other keys for {self.name!r} than its own.")
            self._check_enough(peers.keys, self.roster.terms.minimum)
            shares = current.keys.shares(peers, self._source)
            others = [name for name in peers.keys if name != self.name]
            sealed = [current.keys.seal(shares[name], name, peers, self._source) for name in others]
            current.peers, current.held = peers, {self.name: shares[self.name]}
            return SealedShares(self.roster.digest, current.number, tuple(others), tuple(sealed))

        return self._once("share", directory, answer)

    def mask(self, update: ArrayLike, delivery: bytes) -> bytes:
        """Mask this round's update, encoded in fixed point (step 2)."""
        return self.mask_integers(self.roster.terms.integers(update), delivery)

    def mask_integers(self, integers: NDArray[np.int64], delivery: bytes) -> bytes:
        """Mask an update that is encoded already (`SumTerms.integers`)."""
        self._record(delivery)
        integers = self.roster.terms.checked(integers)
        current = self._started()

        def answer() -> RoundMessage:
            message, peers = self._from_server(delivery, Delivery), self._peers()
            sealed = dict(zip(message.senders, message.sealed, strict=False))
            if not len(sealed) == len(message.senders) == len(message.sealed):
                raise MessageError("the delivery does not have one sealed share for each of its senders.")
            if not set(sealed) <= set(peers.keys) - {self.name}:
                raise MessageError("the delivery names senders that are not in the directory.")
            members = tuple(sorted([*sealed, self.name]))
            self._check_enough(members, max(self.roster.terms.minimum, peers.threshold))
            held = {sender: current.keys.unseal(share, sender, peers) for sender, share in sealed.items()}
            current.held = {self.name: current.held[self.name], **held}
            masked = current.keys.masked(integers, members, peers)
            return Upload(self.roster.digest, current.number, members, masked.tobytes())

        return self._once("mask", hashlib.sha256(delivery).digest() + integers.tobytes(), answer)

    def unmask(self, request: bytes) -> bytes:
        """Reveal a share of one secret of each user (step 4): of its seed if it uploaded, of its mask key if not."""
        self._record(request)
        current = self._started()

        def answer() -> RoundMessage:
            message, peers = self._from_server(request, UnmaskRequest), self._peers()
            survivors = set(message.survivors)
            if len(survivors) != len(message.survivors) or not survivors <= set(current.held):
                raise MessageError("the request names users twice, or such as have not shared their secrets.")
            if self.name not in survivors:
                raise MessageError(f"{self.name!r} has uploaded, but the request counts it as dropped out.")
            self._check_enough(survivors, max(self.roster.terms.minimum, peers.threshold))
            owners = tuple(sorted(current.held))
            shares = [current.held[owner][1 if owner in survivors else 0] for owner in owners]
            current.survivors = tuple(sorted(survivors))
            return Reveal(self.roster.digest, current.number, owners, tuple(shares))

        return self._once("unmask", request, answer)

    def read(self, result: bytes) -> Total:
        """Read the sum of the round."""
        self._record(result)
        current, terms = self._started(), self.roster.terms
        message = self._from_server(result, Result)
        if current.survivors and message.users != current.survivors:
            raise MessageError("the result names other users than were asked to unmask it.")
        sums = to_integers(read_residues(message.sums, terms))
        return Total(current.number, message.users, sums, terms.values(sums))

    def _once(self, step: str, asked: bytes, answer: Callable[[], RoundMessage]) -> bytes:
        """Return the signed answer to what was asked at a step; a step that raises has not been done."""
        current, digest = self._started(), hashlib.sha256(asked).digest()
        if step in current.done:
            known, sent = current.done[step]
            if known != digest:
                raise PrivacyError(f"{self.name!r} has done this step of round {current.number} already: {step}.")
            return sent
        if len(current.done) != _STEPS.index(step):
            raise InputError(f"the step before comes first: {_STEPS[_STEPS.index(step) - 1]}.")
        sent = self._key.sign(encode(answer()), author=self.name)
        current.done[step] = digest, sent
        return sent

    def _from_server(self, envelope: bytes, kind: type[RoundMessageT]) -> RoundMessageT:
        return self.roster.open(envelope, kind, round=self._started().number, authors=[AGGREGATOR])[1]

    def _check_enough(self, users: Collection[str], needed: int) -> None:
        if len(users) < needed:
            raise PrivacyError(f"the round is down to {len(users)} users; {self.name!r} goes on with {needed} or more.")

    def _started(self) -> _Round:
        if self._round is None:
            raise InputError("no round has begun. Advertise first.")
        return self._round

    def _peers(self) -> Peers:
        peers = self._started().peers
        if peers is None:
            raise InputError("the directory comes first.")
        return peers
