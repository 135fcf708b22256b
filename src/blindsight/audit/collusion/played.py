"""A round of real messages between parties made for the audit, and what any coalition of them holds.

A party holds what it received, set-up included, and what it drew itself: its update, and the secrets that never leave
it. A `Coalition` hands out what its members hold and nothing else. What the key generator *sent* it knows as well: with
it come all set-up messages. Runs of real parties cannot be audited so, because nobody records their secrets; play
their updates again (`learn.recording` keeps them).
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto import bfv
from blindsight.crypto.bfv import SecretKey
from blindsight.crypto.paillier import PrivateKey, generate_keys
from blindsight.crypto.shamir import SECRET_BYTES
from blindsight.crypto.wire import Message, decode
from blindsight.errors import InputError, MessageError, UnknownNameError
from blindsight.learn.aggregation import SCHEMES, SPARSE_SCHEMES
from blindsight.learn.dphe.messages import AggregatorSetup, UserSetup
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR, Terms
from blindsight.learn.masks.expansion import public_half
from blindsight.learn.masks.keys import RoundKeys
from blindsight.learn.masks.messages import Advertisement
from blindsight.learn.roster import Roster, RoundMessageT
from blindsight.learn.schemes.bfv import LatticeSession
from blindsight.learn.schemes.masks import MaskSession
from blindsight.learn.schemes.paillier import PaillierSession, sparse_terms
from blindsight.learn.schemes.plain import PlainSession
from blindsight.learn.session import RoundResult, Session
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import system_bytes

Integers = NDArray[np.int64]
Views = Mapping[str, tuple[bytes, ...]]
MessageT = TypeVar("MessageT", bound=Message)

ROUND = 0


@dataclass(frozen=True, eq=False, repr=False)
class Coalition:
    """What its members hold together; `session` stands for what everybody knows: terms, public keys, the statement."""

    members: tuple[str, ...]
    session: Session
    result: RoundResult
    updates: Mapping[str, Integers]
    key: PrivateKey | SecretKey | None
    round_keys: Mapping[str, RoundKeys]
    _views: Views
    _issued: tuple[bytes, ...]

    @property
    def rest(self) -> tuple[str, ...]:
        """Who is in the sum and not in the coalition."""
        return tuple(user for user in self.result.contributors if user not in self.members)

    def received(self, party: str, kind: type[MessageT]) -> list[MessageT]:
        """Return the unsigned messages of one kind that a member received."""
        found = []
        for message in self.messages(party):
            try:
                found.append(decode(message, kind))
            except MessageError:
                continue  # of another kind
        return found

    def messages(self, party: str) -> tuple[bytes, ...]:
        """Return everything that a member received."""
        if party not in self.members:
            raise InputError(f"{party!r} is not in the coalition of {', '.join(self.members)}.")
        return self._views.get(party, ())

    @cached_property
    def shared_secret(self) -> bytes:
        """The secret behind DPHE's phi, which users and key generator know."""
        for message in (*self._issued, *(item for user in self.updates for item in self.messages(user))):
            try:
                return decode(message, UserSetup).shared_secret
            except MessageError:
                continue
        raise InputError(f"nobody in the coalition of {', '.join(self.members)} knows the users' permutation.")

    @property
    def aggregator_setup(self) -> AggregatorSetup:
        """The secrets behind DPHE's phi^(n), which the aggregator knows."""
        return self.received(AGGREGATOR, AggregatorSetup)[0]


@dataclass(frozen=True, eq=False, repr=False)
class PlayedRound:
    """One round: the truth about every user (`updates`, encoded), and what everybody received and drew."""

    session: Session
    result: RoundResult
    updates: Mapping[str, Integers]
    views: Views
    key: PrivateKey | SecretKey | None
    coins: tuple[bytes, ...]

    def pool(self, members: Iterable[str]) -> Coalition:
        """Return what these parties hold together."""
        chosen = tuple(dict.fromkeys(members))
        for party in chosen:
            if party not in (*self.session.terms.users, AGGREGATOR, KEY_GENERATOR):
                raise UnknownNameError("party", party, (*self.session.terms.users, AGGREGATOR, KEY_GENERATOR))
        users = [party for party in chosen if party in self.updates]
        with_generator = KEY_GENERATOR in chosen
        return Coalition(
            members=chosen,
            session=self.session,
            result=self.result,
            updates={user: self.updates[user] for user in users},
            key=self.key if with_generator else None,
            round_keys=self._drawn_by(users),
            _views={party: self.views.get(party, ()) for party in chosen},
            _issued=tuple(view[0] for view in self.views.values() if view) if with_generator else (),
        )

    def _drawn_by(self, users: list[str]) -> dict[str, RoundKeys]:
        """Return these users' secrets of a masked round, recognised by what they advertised of them."""
        if not isinstance(self.session, MaskSession):
            return {}
        roster, drawn = self.session.roster, {}
        halves = {public_half(coin): coin for coin in self.coins}
        commitments = {hashlib.sha256(coin).digest(): coin for coin in self.coins}
        for user, public in signed(roster, self.views[AGGREGATOR], Advertisement).items():
            if user in users:
                secrets = iter([halves[public.channel_key], halves[public.mask_key], commitments[public.commitment]])
                drawn[user] = RoundKeys(user, roster, ROUND, partial(_again, secrets))
        return drawn


class _Notes:
    """Keeps what every party receives, and every secret of the length of a key that is drawn."""

    def __init__(self) -> None:
        self.coins: list[bytes] = []
        self._views: defaultdict[str, list[bytes]] = defaultdict(list)

    def record(self, party: str, message: bytes) -> None:
        self._views[party].append(message)

    def source(self, count: int) -> bytes:
        drawn = system_bytes(count)
        if count == SECRET_BYTES:
            self.coins.append(drawn)
        return drawn

    @property
    def views(self) -> Views:
        return {party: tuple(messages) for party, messages in self._views.items()}


def play(
    scheme: str,
    updates: Mapping[str, ArrayLike],
    *,
    fraction_bits: int = 20,
    slot_bits: int = 32,
    minimum_per_position: int = 1,
    capacity: int | None = None,
    key_bits: int = 3072,
    insecure: bool = False,
) -> PlayedRound:
    """Play one round of a scheme with these users' updates and keep all of it; see `aggregation.open_session`.

    All secrets are drawn for this round and protect nobody: the updates are the caller's own.
    """
    if scheme not in SCHEMES:
        raise UnknownNameError("aggregation scheme", scheme, SCHEMES)
    vectors = {user: np.asarray(update, dtype=np.float64) for user, update in updates.items()}
    terms = SumTerms(
        run="audit",
        users=tuple(vectors),
        dimension=max((vector.size for vector in vectors.values()), default=0),
        fraction_bits=fraction_bits,
        slot_bits=slot_bits,
    )
    notes = _Notes()
    key: PrivateKey | SecretKey | None
    if scheme in SPARSE_SCHEMES:
        sparse = sparse_terms(
            terms,
            blocks=scheme == "block-dphe",
            capacity=-(-terms.dimension // 10) if capacity is None else capacity,
            key_bits=key_bits,
            minimum_per_position=minimum_per_position,
            insecure=insecure,
        )
        session, key = _permuting(terms, sparse, notes)
    elif minimum_per_position != 1:
        raise InputError(f"{scheme} does not count who changed a position: minimum_per_position must be 1.")
    else:
        session, key = _dense(scheme, terms, notes)
    result = session.round(vectors, ROUND)
    truth = {user: terms.integers(vector) for user, vector in vectors.items()}
    return PlayedRound(session, result, truth, notes.views, key, tuple(notes.coins))


def _permuting(terms: SumTerms, sparse: Terms, notes: _Notes) -> tuple[Session, PrivateKey]:
    key = generate_keys(sparse.key_bits, insecure=sparse.insecure)
    return PaillierSession(terms, sparse, key=key, record=notes.record), key


def _dense(scheme: str, terms: SumTerms, notes: _Notes) -> tuple[Session, SecretKey | None]:
    if scheme == "bfv":
        key = bfv.generate_keys(max_sum=terms.max_integer * len(terms.users))
        return LatticeSession(terms, key=key, record=notes.record), key
    if scheme == "masks":
        return MaskSession(terms, source=notes.source, record=notes.record), None
    return PlainSession(terms, record=notes.record), None


def _again(secrets: Iterator[bytes], count: int) -> bytes:
    """Draw what was drawn before."""
    return next(secrets)


def signed(roster: Roster, messages: Iterable[bytes], kind: type[RoundMessageT]) -> dict[str, RoundMessageT]:
    """Return the messages of one kind among signed ones, by author."""
    found = {}
    for envelope in messages:
        try:
            author, message = roster.open(envelope, kind, round=ROUND, authors=roster.keys)
        except MessageError:
            continue  # of another kind
        found[author] = message
    return found
