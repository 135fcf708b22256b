"""Regions and a root: the sum of sums is the sum, nobody counts twice, no region below the minimum is opened."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.sealedbox import seal, unseal
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.hierarchy import LatticeRoot, Region, SparseRoot, most_fraction_bits, regional_setup, slices
from blindsight.learn.dphe import Aggregator, KeyGenerator, Terms, User
from blindsight.learn.dphe.messages import REQUEST_FOR_DECRYPTION, AggregatorSetup, Request
from blindsight.learn.lattice.aggregator import LatticeAggregator
from blindsight.learn.lattice.keygenerator import LatticeKeyGenerator
from blindsight.learn.lattice.messages import Vouched
from blindsight.learn.lattice.user import LatticeUser
from blindsight.learn.roster import Roster
from blindsight.learn.sumterms import SumTerms
from tests.keys import bfv_key, paillier_key

REGIONS = {"north": ("ann", "bob", "cem", "dia"), "south": ("eve", "fay", "gus"), "west": ("hal", "ida")}
OWNERS = tuple(owner for members in REGIONS.values() for owner in members)
SIZE = 200


class Sparse:
    """A run of block DPHE with regional aggregators."""

    key = paillier_key()

    def __init__(self, size=SIZE, *, slots=31, min_per_block=1):
        self.terms = Terms(
            run="test",
            users=OWNERS,
            dimension=size,
            capacity=3,
            fraction_bits=0,
            slots=slots,
            min_per_block=min_per_block,
            key_bits=1024,
            insecure=True,
        )
        self.generator = KeyGenerator(self.terms, key=self.key)
        self.users = {name: User(name, self.terms) for name in OWNERS}
        for user in self.users.values():
            self.generator.enrol(user.enrolment())
        messages = self.generator.setup()
        self.setup = messages["aggregator"]
        for name, user in self.users.items():
            user.accept(messages[name])

    def region(self, name):
        aggregator = Aggregator(self.terms)
        aggregator.accept(regional_setup(self.setup, self.terms, REGIONS[name]))
        aggregator.open(0)
        return Region(name, REGIONS[name], aggregator)

    def root(self):
        return SparseRoot(REGIONS, 0, terms=self.terms, setup=self.setup)


class Lattice:
    """A run of BFV with regional aggregators."""

    key = bfv_key()

    def __init__(self, size=SIZE):
        terms = SumTerms(run="test", users=OWNERS, dimension=size, fraction_bits=0)
        self.identities = {name: SigningKey.generate() for name in (*OWNERS, "aggregator", "key generator")}
        self.roster = Roster(terms, {name: key.public for name, key in self.identities.items()})
        self.generator = LatticeKeyGenerator(self.roster, self.identities["key generator"], secret=self.key)
        self.setup = self.generator.setup()
        self.users = {name: LatticeUser(name, self.roster, self.identities[name]) for name in OWNERS}
        for user in self.users.values():
            user.accept(self.setup)

    def region(self, name):
        aggregator = LatticeAggregator(self.roster, self.identities["aggregator"])
        aggregator.accept(self.setup)
        aggregator.open(0)
        return Region(name, REGIONS[name], aggregator)

    def root(self):
        key = self.identities["aggregator"]
        return LatticeRoot(REGIONS, 0, roster=self.roster, key=key, setup=self.setup)


Run = Sparse | Lattice


@pytest.fixture(params=[Sparse, Lattice])
def run(request):
    return request.param()


def update(owner, size=SIZE):
    """Return whole numbers at 40 places in a row, others for every owner."""
    values, number = np.zeros(size), OWNERS.index(owner)
    values[:40] = 1 + np.arange(40) * (-1) ** number
    return np.roll(values, 17 * number)


def collect(run, name, owners):
    region = run.region(name)
    for owner in owners:
        for message in run.users[owner].contribute(update(owner), 0):
            region.receive(message)
    return region


def plain(owners):
    return np.sum([update(owner) for owner in owners], axis=0)


def test_the_sum_of_sums_is_the_sum_and_everyone_reads_it(run):
    root, sums = run.root(), {name: collect(run, name, REGIONS[name]).close() for name in ("south", "north")}
    for name, request in sums.items():
        root.receive(name, request)
    answer = run.generator.answer(root.close())
    with pytest.raises(PrivacyError, match="round 0"):  # after all regions none is opened alone
        run.generator.answer(sums["north"])
    there = (*REGIONS["north"], *REGIONS["south"])
    for owner in OWNERS:
        total = run.users[owner].read(answer, 0)
        assert np.array_equal(total.values, plain(there))
        assert total.users == there


def test_a_region_below_the_minimum_is_neither_added_nor_opened(run):
    west = collect(run, "west", REGIONS["west"])
    with pytest.raises(PrivacyError, match=r"2 users.* 3"):
        west.close()
    forged = [close_anyway(run, west, REGIONS["west"]), close_anyway(run, west, REGIONS["west"][:1])]
    for request in forged:
        with pytest.raises(PrivacyError, match="a sum needs 3"):
            run.root().receive("west", request)
        with pytest.raises((MessageError, PrivacyError), match="over"):
            run.generator.answer(request)
    assert ["a sum needs 3" in line for line in run.generator.log] == [True]


def close_anyway(run, region, owners):
    """Return what a region would send that had its way with too few owners: its real sum, and so many receipts."""
    aggregator = region.aggregator
    if isinstance(aggregator, Aggregator):
        assert aggregator._collection is not None
        places, sums = aggregator._collection._sum.touched()
        receipts = aggregator._collection.receipts()[: len(owners)]
        senders = aggregator._collection.senders(places)
        request = Request(aggregator._agreement.digest, 0, receipts, places, sums.to_matrix(), senders)
        return seal(aggregator._channel_secret, encode(request), purpose=REQUEST_FOR_DECRYPTION)
    assert isinstance(run, Lattice)
    assert aggregator._round is not None
    root = LatticeRoot(REGIONS, 0, roster=run.roster, key=run.identities["aggregator"], setup=run.setup)
    root._sum = aggregator._round.sum
    return root._request(tuple(aggregator._round.receipts[owner] for owner in owners))


def test_a_root_takes_each_region_once_and_only_its_own_owners(run):
    (message, *_) = run.users["hal"].contribute(update("hal"), 0)
    with pytest.raises(MessageError, match=r"'hal'.*'north'"):
        run.region("north").receive(message)
    north, south = (collect(run, name, REGIONS[name]).close() for name in ("north", "south"))
    root = run.root()
    with pytest.raises(PrivacyError, match="no region"):
        root.close()
    with pytest.raises(MessageError, match="eve, fay, gus"):
        root.receive("north", south)
    with pytest.raises(UnknownNameError, match="'west'"):
        root.receive("est", south)
    with pytest.raises(MessageError):
        root.receive("north", north[:-1] + bytes([north[-1] ^ 1]))
    root.receive("north", north)
    with pytest.raises(MessageError, match=r"'north'.*already"):
        root.receive("north", north)
    root.receive("south", south)
    total = run.users["ann"].read(run.generator.answer(root.close()), 0)
    assert np.array_equal(total.values, plain((*REGIONS["north"], *REGIONS["south"])))


def test_a_region_cannot_read_where_the_owners_of_others_put_their_blocks():
    run = Sparse()
    whole = decode(run.setup, AggregatorSetup)
    regional = decode(regional_setup(run.setup, run.terms, REGIONS["south"]), AggregatorSetup)
    kept = dict(zip(OWNERS, regional.own_secrets, strict=True))
    assert {owner for owner, secret in kept.items() if secret} == set(REGIONS["south"])
    assert all(secret in whole.own_secrets for secret in kept.values() if secret)
    assert run.terms.to_bytes() in regional.agreement


def test_a_region_that_claims_another_sum_than_it_signed_for_is_refused():
    run = Lattice()
    north, south = (decode(collect(run, name, REGIONS[name]).close(), Vouched) for name in ("north", "south"))
    with pytest.raises(MessageError, match="receipts"):
        run.root().receive("north", encode(Vouched(north.envelope, south.vector)))


def test_places_outside_the_model_are_refused_and_change_nothing():
    run = Sparse()
    sealed = collect(run, "north", REGIONS["north"]).close()
    secret = decode(run.setup, AggregatorSetup).channel_secret
    request = decode(unseal(secret, sealed, purpose=REQUEST_FOR_DECRYPTION), Request)
    places = request.places + run.terms.blocks
    forged = encode(replace(request, places=places))
    root = run.root()
    with pytest.raises(MessageError, match="places"):
        root.receive("north", seal(secret, forged, purpose=REQUEST_FOR_DECRYPTION))
    root.receive("north", sealed)
    total = run.users["ann"].read(run.generator.answer(root.close()), 0)
    assert np.array_equal(total.values, plain(REGIONS["north"]))


def test_a_block_is_withheld_by_the_count_over_all_regions():
    run = Sparse(slots=30, min_per_block=3)
    block = np.arange(SIZE) // 30
    changed = dict.fromkeys(("ann", "bob", "eve"), block == 0) | dict.fromkeys(("cem", "fay"), block == 2)
    root = run.root()
    for name in ("north", "south"):
        region = run.region(name)
        for owner in REGIONS[name]:
            for message in run.users[owner].contribute(changed.get(owner, block < 0), 0):
                region.receive(message)
        root.receive(name, region.close())
    total = run.users["ann"].read(run.generator.answer(root.close()), 0)
    assert np.array_equal(total.values, 3 * (block == 0))  # by three in two regions; block 2 by two


def test_shards_of_a_key_service_open_their_part_of_the_model_each():
    parts = []
    for part in slices(SIZE, 3):
        run = Sparse(part.stop - part.start)
        root = run.root()
        for name in ("north", "south"):
            region = run.region(name)
            for owner in REGIONS[name]:
                for message in run.users[owner].contribute(update(owner)[part], 0):
                    region.receive(message)
            root.receive(name, region.close())
        parts.append(run.users["ann"].read(run.generator.answer(root.close()), 0).values)
    assert np.array_equal(np.concatenate(parts), plain((*REGIONS["north"], *REGIONS["south"])))


def test_an_owner_of_two_regions_single_weights_and_nonsense_are_refused():
    run = Sparse()
    with pytest.raises(InputError, match="got 0"):
        most_fraction_bits(0, 1.0)
    with pytest.raises(InputError, match="got 5 and -1"):
        most_fraction_bits(5, -1.0)
    with pytest.raises(InputError, match="belongs to one region"):
        SparseRoot({"a": ("ann",), "b": ("ann",)}, 0, terms=run.terms, setup=run.setup)
    single = Terms(run="a", users=OWNERS, dimension=9, capacity=3, fraction_bits=0, key_bits=1024, insecure=True)
    with pytest.raises(InputError, match="use block-dphe"):
        SparseRoot(REGIONS, 0, terms=single, setup=run.setup)


@given(weights=st.integers(1, 500), shards=st.integers(1, 60))
@settings(deadline=None)
def test_slices_cover_the_model_evenly(weights, shards):
    if shards > weights:
        with pytest.raises(InputError, match=f"{weights} shards; got {shards}"):
            slices(weights, shards)
        return
    parts = slices(weights, shards)
    covered = np.concatenate([np.arange(weights)[part] for part in parts])
    assert np.array_equal(covered, np.arange(weights))
    sizes = {part.stop - part.start for part in parts}
    assert len(parts) == shards
    assert max(sizes) - min(sizes) <= 1


@given(owners=st.integers(1, 10**6), largest=st.floats(2**-10, 2**10), slot_bits=st.sampled_from([24, 32, 40, 64]))
@settings(deadline=None)
def test_fraction_bits_are_as_many_as_fit_a_slot(owners, largest, slot_bits):
    bits = most_fraction_bits(owners, largest, slot_bits=slot_bits)

    def fits(fraction_bits):
        return owners * Fraction(largest) * 2**fraction_bits < 2 ** (slot_bits - 1)

    assert bits < 0 or fits(bits)
    # A bound on whole numbers rounds down: what fits a slot with one step to spare must be found.
    assert (
        bits == 62 or not fits(bits + 1) or owners * (Fraction(largest) * 2 ** (bits + 1) + 1) >= 2 ** (slot_bits - 1)
    )
