"""Masks: dense updates under masks that cancel in the sum (`learn.masks`); nobody holds a key that opens an upload."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.signing import SigningKey
from blindsight.learn.costs import Step
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.masks.keys import colluders, enough, threshold
from blindsight.learn.masks.server import MaskServer
from blindsight.learn.masks.user import MaskUser
from blindsight.learn.roster import Roster
from blindsight.learn.session import Encoded, Post, Recorder, Session, Sum, Transit, recorder_of
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import PrivacyStatement, randomness_of


class MaskSession(Session):
    """A run of pairwise-masked sums.

    A user without an update that took part in the round before drops out at the worst moment: after the others have
    used its keys, before its upload. From the next round on it is not waited for until it comes back.
    """

    scheme = "masks"

    def __init__(
        self,
        terms: SumTerms,
        *,
        source: ByteSource = system_bytes,
        record: Recorder | None = None,
        transit: Transit | None = None,
    ) -> None:
        """Make all parties, with identities known to each other."""
        super().__init__(terms, transit=transit)
        self._source = source
        identities = {party: SigningKey.generate(source) for party in (*terms.users, AGGREGATOR)}
        self.roster = roster = Roster(terms, {party: identity.public for party, identity in identities.items()})
        self._server = MaskServer(roster, identities[AGGREGATOR], record=recorder_of(record, AGGREGATOR))
        self._users = {
            user: MaskUser(user, roster, identities[user], source=source, record=recorder_of(record, user))
            for user in terms.users
        }
        self._present = set(terms.users)

    @property
    def needed(self) -> int:
        return enough(self.roster)

    def _add(self, updates: Encoded, number: int, post: Post) -> Sum:
        beginning = [name for name in self.terms.users if name in self._present or name in updates]
        self._present = set(updates)
        self._share(beginning, number, post)
        with post.working(AGGREGATOR, "share"):
            deliveries = self._server.deliveries()
        for name in updates:
            if name in deliveries:
                mask = partial(self._mask, name, updates[name])
                self._ask(name, deliveries[name], mask, ("share", "encrypt", "aggregate"), post)
        with post.working(AGGREGATOR, "aggregate"):
            survivors = self._server.survivors()
        for name in self._server.awaited:
            self._ask(name, survivors, self._users[name].sign, ("aggregate", "aggregate", "aggregate"), post)
        with post.working(AGGREGATOR, "aggregate"):
            request = self._server.request()
        for name in self._server.awaited:
            self._ask(name, request, self._users[name].unmask, ("aggregate", "decrypt", "decrypt"), post)
        with post.working(AGGREGATOR, "decrypt"):
            result = self._server.result()
        readers = {name: self._users[name].read for name in updates}
        total = next(iter(post.spread(result, AGGREGATOR, ("decrypt", "read"), readers).values()))
        return Sum(total.users, total.integers, np.empty(0, dtype=np.int64))

    def _share(self, users: list[str], number: int, post: Post) -> None:
        """Let users make new keys and share out their secrets."""
        self._server.open(number)
        for name in users:
            with post.working(name, "share"):
                advertisement = self._users[name].advertise(number)
            post.carry(advertisement, (name, AGGREGATOR), ("share", "share"), self._server.receive)
        with post.working(AGGREGATOR, "share"):
            directory = self._server.directory()
        for name in self._server.awaited:
            self._ask(name, directory, self._users[name].share, ("share", "share", "share"), post)

    def _mask(self, name: str, integers: Callable[[], NDArray[np.int64]], delivery: bytes) -> bytes:
        return self._users[name].mask_integers(integers(), delivery)

    def _ask(
        self,
        name: str,
        message: bytes,
        answer: Callable[[bytes], bytes],
        steps: tuple[Step, Step, Step],
        post: Post,
    ) -> None:
        """Carry a message of the server to a user and its answer back; steps: asking, answering, taking in."""
        asking, answering, taking_in = steps
        for reply in post.carry(message, (AGGREGATOR, name), (asking, answering), answer):
            post.carry(reply, (name, AGGREGATOR), (answering, taking_in), self._server.receive)

    def statement(self) -> PrivacyStatement:
        """Return what the masks protect."""
        return statement(len(self.terms.users), source=self._source)


def consistency(everyone: int) -> str:
    """Return what so many users insist on, in words."""
    needed = threshold(everyone)
    return (
        f"t = {needed} of {everyone} users sign whose uploads are in the sum before any of them helps to lift its "
        f"masks, so that {everyone - needed} may drop out and c = {colluders(everyone)} collude with a lying aggregator"
    )


def statement(everyone: int, *, source: ByteSource = system_bytes) -> PrivacyStatement:
    """Return what the masks of so many users protect."""
    needed, lying = threshold(everyone), colluders(everyone)
    return PrivacyStatement(
        guarantee="cryptographic",
        mechanism="pairwise masks (X25519, AES-256 in counter mode) and self-masks with Shamir shares, all fresh "
        f"in every round; {consistency(everyone)}; with fewer than t the round is given up and repeated with new masks",
        unit="person",
        epsilon=None,
        delta=None,
        randomness=randomness_of(source),
        who_sees={
            "aggregator": "uploads that look uniformly random, the sum, who contributed and who dropped out",
            "users": "their own update, the sum, and who contributed",
            "someone who intercepts an upload": "uniformly random bytes; one who intercepts every message of a "
            "round computes the sum, as the aggregator does",
        },
        not_protected=(
            "what the sum itself tells: it is exact and has no noise, so it is not differentially private; where "
            "one user alone changed a weight, the sum is that user's weight",
            "that a user took part, or dropped out",
            "the round itself: a user that sends wrong shares or a wrong upload spoils it, and an aggregator may give "
            "out any numbers as the sum",
            "updates that are sent again because the aggregator says that a round failed: sums with other contributors "
            "can be subtracted from one another",
        ),
        assumptions=(
            "fewer users than the threshold collude with an aggregator that follows the protocol, and no more than "
            f"c = {lying} with one that lies, also about who dropped out (2t > n + c, t - c >= 2): that "
            f"one opens sums of {needed - lying} other users at least; all users but one read the last one's update",
            "the other users follow the protocol (semi-honest) and mask honest updates",
            "Diffie-Hellman on Curve25519, HKDF-SHA256, AES-256; Ed25519 signatures, whose keys everyone knows "
            "beforehand",
        ),
    )
