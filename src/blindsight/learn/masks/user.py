"""A user of the masks: hides its update under masks that cancel in the sum, and helps to lift those that do not.

It trusts the server with nothing but to add: keys come signed from their owners, shares are sealed for their receivers,
and it opens one lock of each upload, once, and only for a sum of enough users, of which enough have signed that it is
the sum they were told of. Each step of a round is done once: asked again in the same words it answers the same, asked
in others it refuses (two requests could open both locks; two updates under one mask would tell their difference). With
a `path` that holds whenever it is killed and loaded again.
"""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import Secret, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.files import AnyPath
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.storage import read_state, refuse_to_overwrite, state_errors, write_state
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.dphe.views import Record, forget
from blindsight.learn.masks.keys import Peers, RoundKeys, enough, read_directory
from blindsight.learn.masks.messages import (
    Consistency,
    Delivery,
    Result,
    Reveal,
    SealedShares,
    Survivors,
    UnmaskRequest,
    Upload,
)
from blindsight.learn.masks.userstate import STEPS, Round, UserState, round_of, state_of
from blindsight.learn.residues import read_residues, to_integers
from blindsight.learn.roster import Roster, RoundMessage, RoundMessageT
from blindsight.rng import ByteSource, system_bytes

_Answer = tuple[RoundMessage, Round]
"""What a user sends at a step, and the round as it is after that step."""


class MaskUser(Secret):
    """One user. With a `path`, its state is on disk before anything that depends on it is returned."""

    def __init__(
        self,
        name: str,
        roster: Roster,
        key: SigningKey,
        *,
        path: AnyPath | None = None,
        source: ByteSource = system_bytes,
        record: Record = forget,
    ) -> None:
        roster.check_identity(name, key)
        refuse_to_overwrite(path)
        self.name, self.roster = name, roster
        self._key, self._path, self._source, self._record = key, path, source, record
        self._round: Round | None = None
        self._keep(None)

    @classmethod
    def load(cls, path: AnyPath, *, source: ByteSource = system_bytes, record: Record = forget) -> "MaskUser":
        """Go on where the user that kept its state at `path` stopped, in the middle of a round or not."""
        state = read_state(path, UserState)
        with state_errors(path):
            roster = Roster.from_bytes(state.roster)
            user = cls(state.user, roster, SigningKey(state.seed), source=source, record=record)
            user._round = round_of(state, roster)
        user._path = path
        return user

    def advertise(self, round: int) -> bytes:
        """Begin a round with new keys (step 0); an unfinished round is given up."""
        last = -1 if self._round is None else self._round.number
        if round < max(last, 0):
            raise InputError(f"rounds count up from 0: after round {last} there is no round {round}.")
        current = self._round
        if current is None or round > last:
            current = Round(round, RoundKeys(self.name, self.roster, round, self._source))
        return self._once(current, "advertise", b"", lambda: (current.keys.advertisement(), current))

    def share(self, directory: bytes) -> bytes:
        """Seal a share of this round's secrets for everyone in the directory (step 1)."""
        self._record(directory)
        current = self._started()

        def answer() -> _Answer:
            peers = read_directory(self.roster, directory, round=current.number)
            if peers.keys.get(self.name) != current.keys.advertisement():
                raise MessageError(f"the directory has other keys for {self.name!r} than its own.")
            self._check_enough(peers.keys, enough(self.roster))
            shares = current.keys.shares(peers, self._source)
            others = [name for name in peers.keys if name != self.name]
            sealed = [current.keys.seal(shares[name], name, peers, self._source) for name in others]
            after = replace(current, directory=directory, peers=peers, held={self.name: shares[self.name]})
            return SealedShares(self.roster.digest, current.number, tuple(others), tuple(sealed)), after

        return self._once(current, "share", directory, answer)

    def mask(self, update: ArrayLike, delivery: bytes) -> bytes:
        """Mask this round's update, encoded in fixed point (step 2)."""
        return self.mask_integers(self.roster.terms.integers(update), delivery)

    def mask_integers(self, integers: NDArray[np.int64], delivery: bytes) -> bytes:
        """Mask an update that is encoded already (`SumTerms.integers`)."""
        self._record(delivery)
        integers = self.roster.terms.checked(integers)
        current = self._started()

        def answer() -> _Answer:
            message, peers = self._from_server(delivery, Delivery), self._peers()
            sealed = dict(zip(message.senders, message.sealed, strict=False))
            if not len(sealed) == len(message.senders) == len(message.sealed):
                raise MessageError("the delivery does not have one sealed share for each of its senders.")
            if not set(sealed) <= set(peers.keys) - {self.name}:
                raise MessageError("the delivery names senders that are not in the directory.")
            members = tuple(sorted([*sealed, self.name]))
            self._check_enough(members, enough(self.roster))
            held = {sender: current.keys.unseal(share, sender, peers) for sender, share in sealed.items()}
            after = replace(current, held={self.name: current.held[self.name], **held})
            masked = current.keys.masked(integers, members, peers)
            return Upload(self.roster.digest, current.number, members, masked.tobytes()), after

        return self._once(current, "mask", hashlib.sha256(delivery).digest() + integers.tobytes(), answer)

    def sign(self, survivors: bytes) -> bytes:
        """Sign whose uploads are in the sum, as the server says (step 3)."""
        self._record(survivors)
        current = self._started()

        def answer() -> _Answer:
            message, peers = self._from_server(survivors, Survivors), self._peers()
            named = set(message.survivors)
            if len(named) != len(message.survivors) or not named <= set(current.held):
                raise MessageError("the survivors are named twice, or have not shared their secrets.")
            if self.name not in named:
                raise MessageError(f"{self.name!r} has uploaded, but the server counts it as dropped out.")
            self._check_enough(named, enough(self.roster))
            after = replace(current, survivors=tuple(sorted(named)))
            return Consistency(self.roster.digest, current.number, peers.agreed(named)), after

        return self._once(current, "consistency", survivors, answer)

    def unmask(self, request: bytes) -> bytes:
        """Reveal a share of one secret of each user (step 4): of its seed if it uploaded, of its mask key if not."""
        self._record(request)
        current = self._started()

        def answer() -> _Answer:
            self._check_signatures(self._from_server(request, UnmaskRequest).signed, current)
            owners = tuple(sorted(current.held))
            shares = [current.held[owner][1 if owner in current.survivors else 0] for owner in owners]
            return Reveal(self.roster.digest, current.number, owners, tuple(shares)), current

        return self._once(current, "unmask", request, answer)

    def _check_signatures(self, signed: Collection[bytes], current: Round) -> None:
        """Refuse to unmask a sum unless enough of its users have signed the same set of them as this one."""
        peers, signers = self._peers(), set[str]()
        agreed = peers.agreed(current.survivors)
        for envelope in signed:
            signer, said = self.roster.open(
                envelope, Consistency, round=current.number, authors=current.survivors, max_bytes=4096
            )
            if said.agreed != agreed:
                raise PrivacyError(f"{signer!r} was told of other survivors than {self.name!r}: the server lies.")
            signers.add(signer)
        self._check_enough(signers, peers.threshold)

    def read(self, result: bytes) -> Total:
        """Read the sum of the round."""
        self._record(result)
        current, terms = self._started(), self.roster.terms
        message = self._from_server(result, Result)
        if current.survivors and message.users != current.survivors:
            raise MessageError("the result names other users than were asked to unmask it.")
        sums = to_integers(read_residues(message.sums, terms))
        return Total(current.number, message.users, sums, terms.values(sums))

    def _once(self, current: Round, step: str, asked: bytes, answer: Callable[[], _Answer]) -> bytes:
        """Return the signed answer to what was asked at a step; a step that raises has not been done."""
        digest = hashlib.sha256(asked).digest()
        if step in current.done:
            known, sent = current.done[step]
            if known != digest:
                raise PrivacyError(f"{self.name!r} has done this step of round {current.number} already: {step}.")
            return sent
        if len(current.done) != STEPS.index(step):
            raise InputError(f"the step before comes first: {STEPS[STEPS.index(step) - 1]}.")
        message, after = answer()
        sent = self._key.sign(encode(message), author=self.name)
        self._keep(replace(after, done={**after.done, step: (digest, sent)}))
        return sent

    def _keep(self, current: Round | None) -> None:
        """Adopt what is to be remembered once it is on disk."""
        if self._path is not None:
            write_state(self._path, state_of(self.name, self.roster, self._key, current))
        self._round = current

    def _from_server(self, envelope: bytes, kind: type[RoundMessageT]) -> RoundMessageT:
        return self.roster.open(envelope, kind, round=self._started().number, authors=[AGGREGATOR])[1]

    def _check_enough(self, users: Collection[str], needed: int) -> None:
        if len(users) < needed:
            raise PrivacyError(f"the round is down to {len(users)} users; {self.name!r} goes on with {needed} or more.")

    def _started(self) -> Round:
        if self._round is None:
            raise InputError("no round has begun. Advertise first.")
        return self._round

    def _peers(self) -> Peers:
        peers = self._started().peers
        if peers is None:
            raise InputError("the directory comes first.")
        return peers
