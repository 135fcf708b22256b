"""A crowd of owners: the sum is exact, one owner's update is in memory at a time, everyone pays for what is its own."""

import gc
import weakref

import numpy as np
import pytest

from blindsight.crypto import paillier
from blindsight.federated.crowd import READERS, lattice_round, sparse_round
from blindsight.learn.schemes.paillier import sparse_terms
from blindsight.learn.sumterms import SumTerms
from tests.keys import bfv_key, paillier_key

OWNERS = tuple(f"owner-{number}" for number in range(13))
SIZE = 200
TERMS = SumTerms(run="test", users=OWNERS, dimension=SIZE, fraction_bits=4)
PAILLIER, LATTICE = paillier_key(), bfv_key()


def draw(owner):
    values = np.zeros(SIZE)
    values[:20] = np.random.default_rng(OWNERS.index(owner)).integers(-99, 99, 20) / 16
    return np.roll(values, 20 * OWNERS.index(owner))


def play(scheme, update):
    if scheme == "bfv":
        return lattice_round(TERMS, update, key=LATTICE)
    sparse = sparse_terms(TERMS, blocks=True, capacity=90, key_bits=1024, minimum_per_position=1, insecure=True)
    return sparse_round(sparse, update, key=PAILLIER)


@pytest.mark.parametrize("scheme", ["block-dphe", "bfv"])
def test_the_sum_is_exact_while_one_update_at_a_time_is_in_memory(scheme):
    drawn = []
    most = 0

    def alive():
        return sum(reference() is not None for reference in drawn)

    def update(owner):
        nonlocal most
        if alive() > 1:
            gc.collect()
        most = max(most, alive())
        values = draw(owner)
        drawn.append(weakref.ref(values))
        return values

    crowd = play(scheme, update)
    assert np.array_equal(crowd.integers, 16 * np.sum([draw(owner) for owner in OWNERS], axis=0))
    assert len(drawn) == len(OWNERS)
    assert most <= 1  # the last owner's, until the next one takes its place


@pytest.mark.parametrize(("scheme", "sent", "opened"), [("block-dphe", 3, 7), ("bfv", 1, 1)])
def test_every_party_is_charged(scheme, sent, opened):
    crowd = play(scheme, draw)
    cost = crowd.cost
    assert (crowd.ciphertexts, crowd.opened) == (sent, opened)
    assert crowd.readers == OWNERS[::2]
    assert len(crowd.readers) <= READERS
    assert all(cost.seconds("encrypt", party=owner) > 0 for owner in OWNERS)
    assert all(cost.seconds("read", party=owner) > 0 for owner in crowd.readers)
    assert 0 < crowd.closing < cost.seconds("aggregate", party="aggregator")
    assert cost.seconds("decrypt", party="key generator") > 0
    assert cost.received("aggregator") > sum(map(cost.sent, OWNERS)) > sent * len(OWNERS) * 256
    assert all(crowd.setup.received(owner) > 500 for owner in (*OWNERS, "aggregator"))


def test_every_owner_makes_its_own_window_table(monkeypatch):
    made = []

    class Counted(paillier.Randomiser):
        def __init__(self, n):
            made.append(n)
            super().__init__(n)

    monkeypatch.setattr(paillier, "Randomiser", Counted)
    play("block-dphe", draw)
    assert made == [PAILLIER.public.n] * len(OWNERS)
    paillier.randomiser.cache_clear()
