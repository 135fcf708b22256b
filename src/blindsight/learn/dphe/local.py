"""All three roles in one process: for simulations, benchmarks and tests. The roles still exchange nothing but bytes."""

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.paillier import PrivateKey
from blindsight.learn.dphe.aggregator import Aggregator
from blindsight.learn.dphe.keygenerator import KeyGenerator
from blindsight.learn.dphe.terms import AGGREGATOR, Terms
from blindsight.learn.dphe.user import User
from blindsight.rng import ByteSource, system_bytes


@dataclass(frozen=True, eq=False)
class Parties:
    """The roles of one run after set-up."""

    generator: KeyGenerator
    users: dict[str, User]
    aggregator: Aggregator

    def sum(self, updates: Mapping[str, NDArray[np.int64]], round: int, *, pool: Executor | None = None) -> bytes:
        """Play one round with the users that have an (encoded) update and return the key generator's answer."""
        self.aggregator.open(round)
        for name, integers in updates.items():
            for message in self.users[name].contribute_integers(integers, round, pool=pool):
                self.aggregator.receive(message)
        return ask(self.aggregator, self.generator)


def set_up(terms: Terms, *, key: PrivateKey | None = None, source: ByteSource = system_bytes) -> Parties:
    """Make all parties of a run and let them enrol and be set up (Algorithm 1, steps 1 and 2)."""
    generator = KeyGenerator(terms, key=key, source=source)
    users = {name: User(name, terms, source=source) for name in terms.users}
    aggregator = Aggregator(terms, source=source)
    introduce(generator, users, aggregator)
    return Parties(generator, users, aggregator)


def introduce(generator: KeyGenerator, users: Mapping[str, User], aggregator: Aggregator) -> None:
    """Let users enrol, and hand each party its set-up."""
    for user in users.values():
        generator.enrol(user.enrolment())
    messages = generator.setup()
    aggregator.accept(messages[AGGREGATOR])
    for name, user in users.items():
        user.accept(messages[name])


def ask(aggregator: Aggregator, generator: KeyGenerator) -> bytes:
    """Close the round, pass the request on and return the answer (Algorithm 1, step 6)."""
    return generator.answer(aggregator.close())
