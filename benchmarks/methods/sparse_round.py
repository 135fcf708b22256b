"""Blindsight's two sparse schemes, role by role: `dphe` (one weight per ciphertext) and `block-dphe` (a block)."""

import numpy as np
from gmpy2 import mpz

from benchmarks.methods.rounds import Clock, Measured, Round, RoundAnswer
from blindsight.crypto.paillier import Keys, PublicKey, generate_keys, randomiser
from blindsight.sums import Session, Terms
from blindsight.sums.scheme import Resources


def run(given: Round, *, seed: int, blocks: bool, keys: Keys = "subgroup") -> RoundAnswer:
    """Play a round; the seed has no say in keys, permutations and masks.

    A member is charged for the window table that its own ciphertexts call for (those of the whole round, where this is
    a part of one), although in this process all members share it.
    """
    terms = Terms(
        scheme="block-dphe" if blocks else "dphe",
        run="benchmark",
        members=given.users,
        dimension=given.weights,
        fraction_bits=given.fraction_bits,
        slot_bits=given.slot_bits,
        keys=keys,
        capacity=given.capacity,
        key_bits=given.key_bits,
        insecure=given.insecure,
    )
    key = generate_keys(given.key_bits, keys=keys, insecure=given.insecure)
    session, clock, sent = Session(terms, resources=Resources(threads=1), key=key), Clock(), 0
    with clock("table"):
        _make_table(key.public, _ciphertexts(given, terms))
    aggregator = session.aggregator
    aggregator.open(0)
    for name, call in aggregator.calls().items():
        update = given.update(name)
        with clock("encrypt"):
            reply = session.members[name].answer(call, terms.integers(update))
        sent += len(reply)
        with clock("aggregate"):
            aggregator.receive(reply)
    with clock("aggregate"):
        aggregator.advance()
        request = aggregator.request()
    with clock("decrypt"):
        answer = session.generator.answer(request)
    users = len(given.users)
    clock.seconds["encrypt"] /= users
    return RoundAnswer(
        total=aggregator.conclude(answer)[1].values,
        places=np.arange(given.weights),
        seconds={step: Measured(seconds) for step, seconds in clock.seconds.items()},
        sent=Measured(sent / users),
        peak_bytes=0,
    )


def _ciphertexts(given: Round, terms: Terms) -> int:
    """Return how many ciphertexts a user makes in the whole round."""
    changed = -(-min(given.kept * given.block, given.weights) // terms.slots)
    return max(1, -(-changed // terms.room)) * terms.room * given.whole // given.weights


def _make_table(key: PublicKey, ciphertexts: int) -> None:
    masks = randomiser(key.n, key.h)
    masks.mask([mpz(0)], masks.draw(1), window=masks.plan(ciphertexts))
