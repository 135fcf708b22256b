"""Blindsight's two sparse schemes, role by role: `dphe` (one weight per ciphertext) and `block-dphe` (a block)."""

import numpy as np
from gmpy2 import mpz

from benchmarks.methods.rounds import FRACTION_BITS, Clock, Measured, Round, RoundAnswer
from blindsight.crypto.paillier import PublicKey, generate_keys, randomiser
from blindsight.learn.dphe import Terms, set_up
from blindsight.learn.schemes.paillier import sparse_terms
from blindsight.learn.sumterms import SumTerms


def run(given: Round, *, seed: int, blocks: bool) -> RoundAnswer:
    """Play a round; the seed has no say in keys, permutations and masks.

    A user is charged for the window table that its own ciphertexts call for (those of the whole round, where this is a
    part of one), although in this process all users share it.
    """
    terms = sparse_terms(
        SumTerms(run="benchmark", users=given.users, dimension=given.weights, fraction_bits=FRACTION_BITS),
        blocks=blocks,
        capacity=given.capacity,
        key_bits=given.key_bits,
        minimum_per_position=1,
        insecure=given.insecure,
    )
    key = generate_keys(given.key_bits, insecure=given.insecure)
    parties, clock, sent = set_up(terms, key=key), Clock(), 0
    with clock("table"):
        _make_table(key.public, _ciphertexts(given, terms))
    parties.aggregator.open(0)
    for name, user in parties.users.items():
        update = given.update(name)
        with clock("encrypt"):
            messages = user.contribute(update, 0)
        for message in messages:
            sent += len(message)
            with clock("aggregate"):
                parties.aggregator.receive(message)
    with clock("aggregate"):
        request = parties.aggregator.close(threads=1)
    with clock("decrypt"):
        answer = parties.generator.answer(request, threads=1)
    users = len(given.users)
    clock.seconds["encrypt"] /= users
    return RoundAnswer(
        total=parties.users[given.users[0]].read(answer, 0).values,
        places=np.arange(given.weights),
        seconds={step: Measured(seconds) for step, seconds in clock.seconds.items()},
        sent=Measured(sent / users),
        peak_bytes=0,
    )


def _ciphertexts(given: Round, terms: Terms) -> int:
    """Return how many ciphertexts a user makes in the whole round."""
    changed = -(-min(given.kept * given.block, given.weights) // terms.slots)
    return max(1, -(-changed // terms.capacity)) * terms.capacity * given.whole // given.weights


def _make_table(key: PublicKey, ciphertexts: int) -> None:
    masks = randomiser(key.n, key.h)
    masks.mask([mpz(0)], masks.draw(1), window=masks.plan(ciphertexts))
