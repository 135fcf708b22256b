"""The server of the masks: passes on what users sealed for each other, adds up what it cannot read, unmasks the sum.

A round goes through five phases; each takes one message of each user that finished the phase before, and whoever sends
none in time has dropped out. A message that is damaged, forged, late, different from an earlier one, for another round
or from a stranger is refused with a sentence and changes nothing. Uploads are added up as they come: memory is for one
vector, however many users there are. All of it is worthless after the round, so a killed server begins a new one.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from blindsight.crypto.shamir import read_share
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import Secret, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.dphe.views import Record, forget
from blindsight.learn.masks.keys import Peers, check_advertisement, enough, read_directory
from blindsight.learn.masks.messages import (
    Advertisement,
    Consistency,
    Delivery,
    Directory,
    Result,
    Reveal,
    SealedShares,
    Survivors,
    UnmaskRequest,
    Upload,
)
from blindsight.learn.masks.unmasking import remaining_masks
from blindsight.learn.residues import Residues, beyond, read_residues, residue_type, to_integers
from blindsight.learn.roster import Roster, RoundMessage

_PHASES = (Advertisement, SealedShares, Upload, Consistency, Reveal)
_NOUNS = ("keys", "shares", "an upload", "a signed set of survivors", "a reveal")


@dataclass(eq=False, repr=False)
class _Round:
    """What the server holds of a round."""

    number: int
    sum: Residues
    phase: int = 0
    expected: tuple[str, ...] = ()  # who may send in this phase
    seen: dict[str, bytes] = field(default_factory=dict)  # by whom what was received in this phase: a digest
    advertisements: dict[str, bytes] = field(default_factory=dict)
    sealed: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by sender, by receiver
    members: tuple[str, ...] = ()  # U2
    survivors: tuple[str, ...] = ()  # U3
    signed: dict[str, bytes] = field(default_factory=dict)
    reveals: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by holder, by owner
    peers: Peers | None = None


class MaskServer(Secret):
    """The aggregator."""

    def __init__(self, roster: Roster, key: SigningKey, *, record: Record = forget) -> None:
        roster.check_identity(AGGREGATOR, key)
        self.roster = roster
        self.refused = 0
        self._key, self._record = key, record
        self._round: _Round | None = None

    @property
    def awaited(self) -> tuple[str, ...]:
        """The users that may send something in the current phase, and so those the last phase's messages are for."""
        return () if self._round is None else self._round.expected

    @property
    def heard(self) -> tuple[str, ...]:
        """The users whose message of the current phase has come."""
        return () if self._round is None else tuple(sorted(self._round.seen))

    def open(self, round: int) -> None:
        last, terms = -1 if self._round is None else self._round.number, self.roster.terms
        if round <= last:
            raise InputError(f"rounds count up from 0: after round {last} there is no round {round}.")
        self._round = _Round(round, np.zeros(terms.dimension, residue_type(terms)), expected=terms.users)

    def receive(self, envelope: bytes) -> None:
        """Take in a user's message; what is wrong with one raises `MessageError`, is counted and changes nothing."""
        self._record(envelope)
        try:
            self._take_in(envelope)
        except MessageError:
            self.refused += 1
            raise

    def directory(self) -> bytes:
        """End phase 0: return the keys of everyone who sent some, for everyone who did."""
        current = self._finish(0, enough(self.roster))
        listed = tuple(current.advertisements[user] for user in current.expected)
        directory = self._signed(Directory(self.roster.digest, current.number, listed))
        current.peers = read_directory(self.roster, directory, round=current.number)
        return directory

    def deliveries(self) -> dict[str, bytes]:
        """End phase 1: return, for each user that shared its secrets, what the others sealed for it."""
        current = self._finish(1, enough(self.roster))
        current.members = current.expected
        messages = {}
        for receiver in current.members:
            senders = tuple(sender for sender in current.members if sender != receiver)
            sealed = tuple(current.sealed[sender][receiver] for sender in senders)
            messages[receiver] = self._signed(Delivery(self.roster.digest, current.number, senders, sealed))
        current.sealed = {}
        return messages

    def survivors(self) -> bytes:
        """End phase 2: tell those who uploaded whose uploads are in the sum."""
        current = self._finish(2, enough(self.roster))
        current.survivors = current.expected
        return self._signed(Survivors(self.roster.digest, current.number, current.survivors))

    def request(self) -> bytes:
        """End phase 3: show those who signed that set that enough others did."""
        current = self._finish(3, self._peers().threshold)
        return self._signed(UnmaskRequest(self.roster.digest, current.number, tuple(current.signed.values())))

    def result(self) -> bytes:
        """End phase 4: lift the masks that are left in the sum and return it."""
        current = self._finish(4, self._peers().threshold)
        masks = remaining_masks(self.roster, self._peers(), current.members, current.survivors, current.reveals)
        sums = current.sum - masks
        if beyond(to_integers(sums), len(current.survivors) * self.roster.terms.max_integer):
            raise MessageError("the masks did not cancel: somebody did not follow the protocol.")
        return self._signed(Result(self.roster.digest, current.number, current.survivors, sums.tobytes()))

    def _take_in(self, envelope: bytes) -> None:
        current = self._started()
        author, message = self.roster.open(envelope, *_PHASES, round=current.number, authors=self.roster.terms.users)
        phase = _PHASES.index(type(message))
        if phase != current.phase:
            when = "late" if phase < current.phase else "early"
            raise MessageError(f"{author!r} sends {_NOUNS[phase]} too {when} in round {current.number}.")
        if author not in current.expected:
            raise MessageError(f"{author!r} had dropped out of round {current.number} before.")
        digest = hashlib.sha256(envelope).digest()
        if current.seen.get(author, digest) != digest:
            raise MessageError(f"{author!r} has sent something else in round {current.number} already.")
        if author not in current.seen:
            self._add(current, author, envelope, message)
            current.seen[author] = digest

    def _add(self, current: _Round, author: str, envelope: bytes, message: RoundMessage) -> None:
        """Check what a message says and keep it."""
        match message:
            case Advertisement():
                check_advertisement(author, message)
                current.advertisements[author] = envelope
            case SealedShares():
                others = [name for name in current.expected if name != author]
                current.sealed[author] = _paired(author, message.receivers, message.sealed, others)
            case Upload():
                if message.peers != current.members:
                    raise MessageError(f"the upload of {author!r} has masks for other users than there are.")
                current.sum += read_residues(message.masked, self.roster.terms)
            case Consistency():
                if message.agreed != self._peers().agreed(current.survivors):
                    raise MessageError(f"{author!r} signs another set of survivors than it was told.")
                current.signed[author] = envelope
            case Reveal():
                shares = _paired(author, message.owners, message.shares, current.members)
                for share in shares.values():
                    read_share(share)
                current.reveals[author] = shares

    def _finish(self, phase: int, needed: int) -> _Round:
        """End a phase, if enough users got through it."""
        current = self._started()
        if current.phase != phase:
            raise InputError(f"round {current.number} is in phase {current.phase} of 0 ... 4; got a step of {phase}.")
        if len(current.seen) < needed:
            raise PrivacyError(
                f"round {current.number} is down to {len(current.seen)} users; it needs {needed}. Begin a new round, "
                "with new masks."
            )
        current.phase, current.expected, current.seen = phase + 1, tuple(sorted(current.seen)), {}
        return current

    def _signed(self, message: RoundMessage) -> bytes:
        return self._key.sign(encode(message), author=AGGREGATOR)

    def _started(self) -> _Round:
        if self._round is None:
            raise MessageError("no round has begun.")
        return self._round

    def _peers(self) -> Peers:
        peers = self._started().peers
        if peers is None:
            raise InputError("nobody has advertised keys yet.")
        return peers


def _paired(
    author: str, names: tuple[str, ...], items: tuple[bytes, ...], expected: list[str] | tuple[str, ...]
) -> dict[str, bytes]:
    """Return the items by name; there must be one for each expected name, in order."""
    if names != tuple(expected) or len(items) != len(names):
        raise MessageError(f"{author!r} sends shares for other users than there are.")
    return dict(zip(names, items, strict=True))
