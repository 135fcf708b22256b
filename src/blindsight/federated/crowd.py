"""A round of very many owners in one process, one owner at a time: what each role computes, sends and needs.

Keys, permutations, ciphertexts and receipts are real, and so are the roles (`learn.dphe`, `learn.lattice`) and the
round they play (`schemes.keyed`). An owner draws its update when it is asked, contributes and is dropped, so that
memory is for one contribution, the aggregator's sum and what the set-up hands to everyone.

An owner is charged for what it would prepare on a machine of its own: its window table (`crypto.paillier`), or the
lattice key that it reads. A few owners, spread over the crowd, stay to read the answer, and stand for all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.bfv import SecretKey
from blindsight.crypto.paillier import PrivateKey, randomiser
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import decode
from blindsight.learn.costs import Cost, Step, cpu_seconds
from blindsight.learn.dphe import Aggregator, KeyGenerator, Terms, User
from blindsight.learn.dphe.messages import Request
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.lattice.aggregator import LatticeAggregator
from blindsight.learn.lattice.keygenerator import LatticeKeyGenerator
from blindsight.learn.lattice.user import LatticeUser
from blindsight.learn.roster import Roster
from blindsight.learn.schemes.keyed import play_round
from blindsight.learn.session import Post
from blindsight.learn.sumterms import SumTerms

Update = Callable[[str], NDArray[np.float64]]
"""Draws the update of an owner, when it is its turn."""

READERS = 10
_SETTING_UP: tuple[Step, Step] = ("set up", "set up")


@dataclass(frozen=True, eq=False)
class CrowdRound:
    """The sum of a round, what the set-up and the round cost, and whose reading of the answer was measured.

    `ciphertexts` is how many an owner sends, `opened` how many the key generator decrypted. `closing` are those of the
    aggregator's seconds that it needs once, to make the request, and not for each contribution.
    """

    integers: NDArray[np.int64]
    setup: Cost
    cost: Cost
    readers: tuple[str, ...]
    ciphertexts: int
    opened: int
    closing: float


class _OneByOne(Mapping[str, Callable[[], list[bytes]]]):
    """Contributions by owner; each owner is made when its entry is looked up, outside the time that is measured."""

    def __init__(self, owners: tuple[str, ...], make: Callable[[str], Callable[[], list[bytes]]]) -> None:
        self._owners, self._make = owners, make

    def __getitem__(self, owner: str) -> Callable[[], list[bytes]]:
        return self._make(owner)

    def __iter__(self) -> Iterator[str]:
        return iter(self._owners)

    def __len__(self) -> int:
        return len(self._owners)


def sparse_round(terms: Terms, update: Update, *, key: PrivateKey | None = None) -> CrowdRound:
    """Play a round of `dphe` or `block-dphe`; an existing key pair saves the time to make one."""
    setup, post, seen, clock = Post(terms.users), Post(terms.users), list[bytes](), _Stopwatch()
    with setup.working(KEY_GENERATOR, "set up"):
        generator = KeyGenerator(terms, key=key, record=seen.append)
    aggregator, waiting = Aggregator(terms), {name: User(name, terms) for name in terms.users}
    _introduce(generator, aggregator, waiting, setup)
    readers = {name: waiting[name] for name in _spread(terms.users)}

    def make(name: str) -> Callable[[], list[bytes]]:
        randomiser.cache_clear()  # on a machine of its own, an owner has no other's table
        return partial(waiting.pop(name).contribute, update(name), 0)

    seen.clear()
    outcomes = play_round(
        0,
        post,
        contribute=_OneByOne(terms.users, make),
        aggregator=aggregator,
        close=partial(clock, partial(aggregator.close, threads=1)),
        answer=partial(generator.answer, threads=1),
        read={name: partial(user.read, round=0) for name, user in readers.items()},
        ciphertexts=terms.capacity,
        requested=lambda: len(decode(seen[-1], Request).ciphertexts),
    )
    return _finished(next(iter(outcomes.values())).integers, (setup, post), tuple(readers), clock.seconds)


def lattice_round(terms: SumTerms, update: Update, *, key: SecretKey | None = None) -> CrowdRound:
    """Play a round of `bfv`; an existing key pair saves the time to make one."""
    setup, post, clock = Post(terms.users), Post(terms.users), _Stopwatch()
    identities = {party: SigningKey.generate() for party in (*terms.users, AGGREGATOR, KEY_GENERATOR)}
    roster = Roster(terms, {party: identity.public for party, identity in identities.items()})
    with setup.working(KEY_GENERATOR, "set up"):
        generator = LatticeKeyGenerator(roster, identities[KEY_GENERATOR], secret=key)
        message = generator.setup()
    aggregator = LatticeAggregator(roster, identities[AGGREGATOR])
    setup.carry(message, (KEY_GENERATOR, AGGREGATOR), _SETTING_UP, aggregator.accept)
    for name in terms.users:
        setup.meter.carried(KEY_GENERATOR, name, "set up", len(message))

    def contribute(name: str, values: NDArray[np.float64]) -> list[bytes]:
        user = LatticeUser(name, roster, identities[name])
        user.accept(message)
        return user.contribute(values, 0)

    readers = {name: LatticeUser(name, roster, identities[name]) for name in _spread(terms.users)}
    ciphertexts = -(-terms.dimension // generator.degree)
    totals = play_round(
        0,
        post,
        contribute=_OneByOne(terms.users, lambda name: partial(contribute, name, update(name))),
        aggregator=aggregator,
        close=partial(clock, aggregator.close),
        answer=generator.answer,
        read={name: partial(user.read, round=0) for name, user in readers.items()},
        ciphertexts=ciphertexts,
        requested=lambda: ciphertexts,
    )
    return _finished(next(iter(totals.values())).integers, (setup, post), tuple(readers), clock.seconds)


def _introduce(generator: KeyGenerator, aggregator: Aggregator, users: Mapping[str, User], setup: Post) -> None:
    """Let everyone enrol and be set up."""
    for name, user in users.items():
        setup.carry(user.enrolment(), (name, KEY_GENERATOR), _SETTING_UP, generator.enrol)
    with setup.working(KEY_GENERATOR, "set up"):
        messages = generator.setup()
    for name, message in messages.items():
        accept = aggregator.accept if name == AGGREGATOR else users[name].accept
        setup.carry(message, (KEY_GENERATOR, name), _SETTING_UP, accept)


def _spread(owners: tuple[str, ...]) -> tuple[str, ...]:
    """Return up to `READERS` owners at equal distances."""
    return owners[:: -(-len(owners) // READERS)]


class _Stopwatch:
    """Counts the CPU seconds of a call."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, function: Callable[[], bytes]) -> bytes:
        begun = cpu_seconds()
        result = function()
        self.seconds = cpu_seconds() - begun
        return result


def _finished(
    integers: NDArray[np.int64], posts: tuple[Post, Post], readers: tuple[str, ...], closing: float
) -> CrowdRound:
    setup, cost = (post.meter.cost() for post in posts)
    sent, opened = cost.ciphertexts(cost.members[0]), cost.ciphertexts(AGGREGATOR)
    return CrowdRound(integers, setup, cost, readers, sent, opened, closing)
