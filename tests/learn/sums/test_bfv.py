"""What only sums under BFV can get wrong: vectors, their checksums and the size of the key."""

import tracemalloc

import numpy as np
import pytest

from blindsight.crypto.bfv import add_all
from blindsight.crypto.signing import verify
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError, StorageError
from blindsight.learn.lattice.aggregator import LatticeAggregator
from blindsight.learn.lattice.messages import Receipt, Request, Setup, Vouched, checksum
from blindsight.learn.lattice.user import LatticeUser
from blindsight.learn.roster import Roster
from blindsight.learn.sumterms import SumTerms
from tests.keys import bfv_key
from tests.learn.sums.schemes import AGGREGATOR, BFV, GENERATOR, SIZE, USERS


@pytest.fixture
def run():
    run = BFV()
    run.begin(0)
    return run


def encrypted(values):
    return bfv_key().public.encrypt(values, terms=len(USERS))


def signed(run, vector, key=None):
    """A contribution that ann signs, whatever it is."""
    receipt = Receipt(run.roster.digest, 0, key or bytes.fromhex(bfv_key().public.fingerprint), checksum(vector))
    return encode(Vouched(run.identities["ann"].sign(encode(receipt), author="ann"), vector))


def test_several_ciphertexts_add_up_exactly():
    size = 5000  # two ciphertexts
    run = BFV(dimension=size)
    run.updates = {name: np.arange(size) * (-1) ** i + 1000 * i for i, name in enumerate(USERS)}
    np.testing.assert_array_equal(run.play(0), run.sum())


def test_a_vector_that_is_not_the_one_signed_or_not_one_of_this_run_is_refused(run):
    (ann,), (bob,) = run.ask("contribute", "ann"), run.ask("contribute", "bob")
    vector = decode(ann, Vouched).vector
    wrong = {
        "another vector": encode(Vouched(decode(ann, Vouched).envelope, decode(bob, Vouched).vector)),
        "another key": signed(run, vector, key=bytes(32)),
        "a sum already": signed(run, add_all([encrypted(run.updates["ann"]) for _ in range(2)]).to_bytes()),
        "wrong length": signed(run, encrypted(run.updates["ann"][:-1]).to_bytes()),
        "damaged": signed(run, vector[:-40] + bytes(8) + vector[-32:]),
    }
    for words, message in wrong.items():
        with pytest.raises(MessageError, match=words):
            run.deliver(message)
    assert run.role(AGGREGATOR).refused == len(wrong)
    run.deliver(ann, bob)
    run.send("contribute", USERS[2:])
    run.end("contribute")
    np.testing.assert_array_equal(run.read("ann").integers, run.sum())


def test_a_request_is_signed_by_the_aggregator_for_its_vector_with_as_many_terms_as_receipts(run):
    run.send("contribute", USERS[:3])
    request = decode(run.role(AGGREGATOR).close(), Vouched)
    receipts = decode(verify(request.envelope, run.roster.keys)[1], Request).receipts
    one = encrypted(run.updates["ann"]).to_bytes()
    generator = run.role(GENERATOR)
    for logged, wrong in (
        (0, run.request(receipts, 0, author="ann")),
        (0, encode(Vouched(request.envelope, one))),
        (1, run.request(receipts, 0, vector=one)),  # this one is the aggregator's: it uses up the round
    ):
        with pytest.raises(MessageError):
            generator.answer(wrong)
        assert len(generator.log) == logged


def test_a_key_too_small_for_the_sums_or_signed_by_another_is_refused(run):
    terms = SumTerms(run="test", users=USERS, dimension=SIZE, fraction_bits=8, slot_bits=40)
    roster = Roster(terms, run.roster.keys)
    setup = encode(Setup(roster.digest, -1, bfv_key().public.to_bytes()))
    user = LatticeUser("ann", roster, run.identities["ann"])
    with pytest.raises(MessageError, match="too small"):
        user.accept(run.identities[GENERATOR].sign(setup, author=GENERATOR))
    with pytest.raises(MessageError, match="not signed"):
        user.accept(run.identities[AGGREGATOR].sign(setup, author=GENERATOR))


def test_a_round_may_begin_before_the_set_up_comes(tmp_path):
    run = BFV(tmp_path / "roles")
    path = tmp_path / "early"
    LatticeAggregator(run.roster, run.identities[AGGREGATOR], path=path).open(3)
    LatticeAggregator.load(path).accept(run.setup(AGGREGATOR))
    run.round = 3
    for name in USERS:
        LatticeAggregator.load(path).receive(*run.ask("contribute", name))
    answer = run.role(GENERATOR).answer(LatticeAggregator.load(path).close())
    np.testing.assert_array_equal(LatticeAggregator.load(path).read(answer).integers, run.sum())


def test_without_a_path_a_user_keeps_the_round_and_not_the_message(run):
    run.ask("contribute", "ann")
    with pytest.raises(PrivacyError, match="round 0"):
        run.ask("contribute", "ann")
    with pytest.raises(InputError, match="does not keep"):
        run.role("ann").sent(0)


def test_a_state_too_long_to_be_read_again_is_not_written(tmp_path, monkeypatch):
    run = BFV(tmp_path / "roles")
    run.begin(0)
    ann, before = run.role("ann"), run.path("ann").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("blindsight.learn.dphe.storage.MAX_BYTES", len(before) + 1000)
        with pytest.raises(StorageError, match="too long"):
            run.ask("contribute", "ann", user=ann)
    assert run.path("ann").read_bytes() == before
    assert run.ask("contribute", "ann", user=ann) == run.role("ann").sent(0)


def test_loading_takes_memory_for_few_contributions_however_many_there_are(tmp_path):
    run = BFV(tmp_path / "roles", dimension=3 * 4096)
    run.begin(0)
    aggregator, journal, peaks = run.role(AGGREGATOR), run.path(AGGREGATOR), {}
    for count, name in enumerate(USERS, start=1):
        (message,) = run.ask("contribute", name, update=np.arange(3 * 4096))
        aggregator.receive(message)
        tracemalloc.start()
        try:
            assert len(LatticeAggregator.load(journal).users) == count
            peaks[count] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert journal.stat().st_size > 5 * len(message)
    assert peaks[5] < peaks[2] + len(message) / 2
