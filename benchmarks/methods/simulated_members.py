"""A round of very many simulated members in one process, one at a time: what each role computes, sends and needs.

Keys, permutations, ciphertexts and receipts are real, and so are the roles (`sums.roles`). A member draws its update
when it is asked, contributes and is dropped, so that memory is for one contribution, the aggregator's sum and what the
set-up hands to everyone.

A member is charged for what it would prepare on a machine of its own: its window table (`crypto.paillier`), or the
lattice key that it reads. A few members, spread over all, stay to read the answer, and stand for all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.paillier import randomiser
from blindsight.sums import Aggregator, KeyGenerator, Member, Terms
from blindsight.sums.costs import Cost, Meter
from blindsight.sums.scheme import Resources
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

Update = Callable[[str], NDArray[np.float64]]
"""Draws the update of a member, when it is its turn."""

READERS = 10


@dataclass(frozen=True, eq=False)
class SimulatedRound:
    """The sum of a round, what the set-up and the round cost, and whose reading of the answer was measured.

    `ciphertexts` is how many a member sends, `opened` how many the key generator decrypted. `closing` are those of the
    aggregator's seconds that it needs once, to make the request, and not for each contribution.
    """

    integers: NDArray[np.int64]
    setup: Cost
    cost: Cost
    readers: tuple[str, ...]
    ciphertexts: int
    opened: int
    closing: float


def simulated_round(terms: Terms, update: Update, *, key: Any = None) -> SimulatedRound:
    """Play a round of a scheme with a key generator; an existing key pair saves the time to make one."""
    setup, meter, resources = Meter(terms.members), Meter(terms.members), Resources(threads=1)
    with setup.working(KEY_GENERATOR, "set up"):
        generator = KeyGenerator(terms, key=key, resources=resources)
    aggregator = Aggregator(terms, resources=resources)
    members = {name: Member(name, terms, resources=resources) for name in terms.members}
    for party in (*members.values(), aggregator):
        enrolment = party.enrolment()
        setup.carried(party.name, KEY_GENERATOR, "set up", len(enrolment))
        with setup.working(KEY_GENERATOR, "set up"):
            generator.enrol(enrolment)
    with setup.working(KEY_GENERATOR, "set up"):
        setups = generator.setup()
    for name, message in setups.items():
        setup.carried(KEY_GENERATOR, name, "set up", len(message))
        with setup.working(name, "set up"):
            (aggregator if name == AGGREGATOR else members[name]).accept(message)
    readers = {name: members[name] for name in _spread(terms.members)}
    with meter.working(AGGREGATOR, "aggregate"):
        aggregator.open(0)
        calls = aggregator.calls()
    for name, call in calls.items():
        integers = terms.integers(update(name))
        randomiser.cache_clear()  # on a machine of its own, a member has no other's table
        member = members.pop(name)
        with meter.working(name, "encrypt"):
            reply = member.answer(call, integers)
        meter.carried(name, AGGREGATOR, "encrypt", len(reply))
        with meter.working(AGGREGATOR, "aggregate"):
            aggregator.receive(reply)
    before = meter.cost().seconds("aggregate", party=AGGREGATOR)
    with meter.working(AGGREGATOR, "aggregate"):
        aggregator.advance()
        request = aggregator.request()
    closing = meter.cost().seconds("aggregate", party=AGGREGATOR) - before
    meter.carried(AGGREGATOR, KEY_GENERATOR, "aggregate", len(request))
    with meter.working(KEY_GENERATOR, "decrypt"):
        sealed = generator.answer(request)
    meter.carried(KEY_GENERATOR, AGGREGATOR, "decrypt", len(sealed))
    with meter.working(AGGREGATOR, "read"):
        answer, total = aggregator.conclude(sealed)
    for name, reader in readers.items():
        meter.carried(AGGREGATOR, name, "read", len(answer))
        with meter.working(name, "read"):
            reader.read(answer, 0)
    sent, opened = aggregator.ciphertexts[terms.members[0]], aggregator.ciphertexts[AGGREGATOR]
    return SimulatedRound(total.integers, setup.cost(), meter.cost(), tuple(readers), sent, opened, closing)


def _spread(members: tuple[str, ...]) -> tuple[str, ...]:
    """Return up to `READERS` members at equal distances."""
    return members[:: -(-len(members) // READERS)]
