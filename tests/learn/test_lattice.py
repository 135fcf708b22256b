"""Sums under BFV: exact, one a round for named users, and nothing but what was signed counts."""

import numpy as np
import pytest

from blindsight.crypto.bfv import add_all, generate_keys
from blindsight.crypto.signing import SigningKey, verify
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.learn.lattice.aggregator import LatticeAggregator
from blindsight.learn.lattice.keygenerator import LatticeKeyGenerator
from blindsight.learn.lattice.messages import Receipt, Request, Setup, Vouched, checksum
from blindsight.learn.lattice.user import LatticeUser
from blindsight.learn.roster import Roster
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import seeded_bytes

USERS = ("ann", "bob", "cem", "dia")
SIZE = 5000  # two ciphertexts


@pytest.fixture(scope="module")
def secret():
    return generate_keys(max_sum=2**31 - 1)


class Run:
    """All parties, set up and in round 0."""

    def __init__(self, secret, *, seed=0):
        source = seeded_bytes(seed)
        terms = SumTerms(run="test", users=USERS, dimension=SIZE, fraction_bits=8)
        self.identities = {name: SigningKey.generate(source) for name in (*USERS, "aggregator", "key generator")}
        self.roster = Roster(terms, {name: key.public for name, key in self.identities.items()})
        self.generator = LatticeKeyGenerator(self.roster, self.identities["key generator"], secret=secret)
        self.aggregator = LatticeAggregator(self.roster, self.identities["aggregator"])
        self.users = {name: LatticeUser(name, self.roster, self.identities[name]) for name in USERS}
        for party in (self.aggregator, *self.users.values()):
            party.accept(self.generator.setup())
        self.updates = {name: np.arange(SIZE) * (-1) ** i + 1000 * i for i, name in enumerate(USERS)}
        self.sent = {}
        self.aggregator.open(0)

    def contribution(self, name):
        """Return what a user sends in round 0, whenever it is asked for."""
        if name not in self.sent:
            (self.sent[name],) = self.users[name].contribute_integers(self.updates[name], 0)
        return self.sent[name]

    def collect(self, names=USERS):
        for name in names:
            self.aggregator.receive(self.contribution(name))
        return self.aggregator.close()

    def sum(self, names):
        return np.sum([self.updates[name] for name in names], axis=0)

    def request(self, receipts, vector, author="aggregator", round=0):
        message = Request(self.roster.digest, round, checksum(vector), tuple(receipts))
        return encode(Vouched(self.identities[author].sign(encode(message), author="aggregator"), vector))


@pytest.fixture
def run(secret):
    return Run(secret)


def test_the_sum_is_exact_and_everyone_reads_it(run):
    limit = run.roster.terms.max_integer
    run.updates["ann"] = np.full(SIZE, limit)
    run.updates["bob"] = np.full(SIZE, -limit)
    answer = run.generator.answer(run.collect())
    for total in (run.aggregator.read(answer), *(run.users[name].read(answer, 0) for name in USERS)):
        assert np.array_equal(total.integers, run.sum(USERS))
        assert total.users == USERS
    assert run.generator.log == ("round 0: the sum of ann, bob, cem, dia was released",)


def test_a_drop_out_leaves_the_sum_of_the_others(run):
    answer = run.generator.answer(run.collect(USERS[1:]))
    assert np.array_equal(run.aggregator.read(answer).integers, run.sum(USERS[1:]))


def test_with_too_few_the_round_stays_open(run):
    with pytest.raises(PrivacyError, match="contributions of 2 users; a sum needs 3"):
        run.collect(USERS[:2])
    assert np.array_equal(run.aggregator.read(run.generator.answer(run.collect(USERS[2:]))).integers, run.sum(USERS))


def test_a_user_contributes_once_a_round(run):
    run.users["ann"].contribute_integers(run.updates["ann"], 0)
    with pytest.raises(PrivacyError, match="contributed to round 0 already"):
        run.users["ann"].contribute_integers(run.updates["ann"] + 1, 0)


def test_the_aggregator_refuses_what_is_wrong_and_loses_nothing(run, secret):
    ann, bob = run.contribution("ann"), run.contribution("bob")
    of_ann, of_bob = decode(ann, Vouched), decode(bob, Vouched)
    elsewhere = Run(secret, seed=1)
    two = add_all([secret.public.encrypt(run.updates["ann"], terms=4) for _ in range(2)]).to_bytes()
    short = secret.public.encrypt(run.updates["ann"][:-1], terms=4).to_bytes()
    wrong = {
        "cut short": b"",
        "checksum": ann[:-1] + bytes([ann[-1] ^ 1]),
        "for another vector": encode(Vouched(of_ann.envelope, of_bob.vector)),
        "not signed by 'ann'": encode(Vouched(elsewhere.identities["ann"].sign(b"", author="ann"), of_ann.vector)),
        "does not take part": encode(Vouched(run.identities["ann"].sign(b"", author="zoe"), of_ann.vector)),
        "another run": elsewhere_signed(run, elsewhere, of_ann.vector),
        "round 1; this is round 0": signed(run, of_ann.vector, round=1),
        "another key": signed(run, of_ann.vector, key=bytes(32)),
        "is a sum already": signed(run, two),
        "the wrong length": signed(run, short),
        "damaged": signed(run, of_ann.vector[:-40] + bytes(8) + of_ann.vector[-32:]),
    }
    for sentence, message in wrong.items():
        with pytest.raises(MessageError, match=sentence):
            run.aggregator.receive(message)
    assert run.aggregator.refused == len(wrong)
    run.aggregator.receive(ann)
    run.aggregator.receive(ann)
    with pytest.raises(MessageError, match="something else"):
        run.aggregator.receive(signed(run, of_bob.vector))
    request = run.collect(("bob", "cem"))
    with pytest.raises(MessageError, match="'dia' comes too late"):
        run.aggregator.receive(run.contribution("dia"))
    assert np.array_equal(run.aggregator.read(run.generator.answer(request)).integers, run.sum(USERS[:3]))


def signed(run, vector, *, round=0, key=None):
    """A contribution that ann signs, whatever it is."""
    fingerprint = bytes.fromhex(run.generator._secret.public.fingerprint)
    receipt = Receipt(run.roster.digest, round, key or fingerprint, checksum(vector))
    return encode(Vouched(run.identities["ann"].sign(encode(receipt), author="ann"), vector))


def elsewhere_signed(run, elsewhere, vector):
    receipt = Receipt(elsewhere.roster.digest, 0, bytes(32), checksum(vector))
    return encode(Vouched(run.identities["ann"].sign(encode(receipt), author="ann"), vector))


def test_the_key_generator_answers_one_honest_request_a_round(run):
    request = run.collect(USERS[:3])
    whole = decode(request, Vouched)
    _, content = verify(whole.envelope, run.roster.keys)
    receipts = decode(content, Request).receipts
    one = decode(run.contribution("ann"), Vouched).vector
    with pytest.raises(PrivacyError, match="contributions of 2 users"):
        run.generator.answer(run.request(receipts[:2], whole.vector))
    with pytest.raises(MessageError, match="named twice"):
        run.generator.answer(run.request((*receipts[:2], receipts[0]), whole.vector))
    with pytest.raises(MessageError, match="not signed by 'aggregator'"):
        run.generator.answer(run.request(receipts, whole.vector, author="ann"))
    with pytest.raises(MessageError, match="for another vector"):
        run.generator.answer(encode(Vouched(whole.envelope, one)))
    with pytest.raises(MessageError, match="another number of terms"):
        run.generator.answer(run.request(receipts, one))
    with pytest.raises(MessageError, match="speaks of round 0; this is round 1"):
        run.generator.answer(run.request(receipts, whole.vector, round=1))
    answer = run.generator.answer(request)
    assert run.generator.answer(request) == answer
    fourth = decode(run.contribution("dia"), Vouched).envelope
    with pytest.raises(PrivacyError, match="round 0 is over"):
        run.generator.answer(run.request((*receipts, fourth), whole.vector))
    assert len(run.generator.log) == 1


def test_a_sum_that_nobody_can_have_is_not_released(run, secret):
    huge = np.full(SIZE, run.roster.terms.max_integer + 1)
    vector = add_all([secret.public.encrypt(huge, terms=3) for _ in range(3)]).to_bytes()
    receipts = [decode(run.contribution(name), Vouched).envelope for name in USERS[:3]]
    with pytest.raises(MessageError, match="not one that these contributors can have"):
        run.generator.answer(run.request(receipts, vector))
    with pytest.raises(PrivacyError, match="round 0 is over"):
        run.generator.answer(run.request(receipts, vector))
    assert run.generator.log == ("round 0: nothing was released",)


def test_set_up_is_signed_final_and_large_enough(run):
    small_terms = SumTerms(run="test", users=USERS, dimension=SIZE, fraction_bits=8, slot_bits=40)
    roster = Roster(small_terms, run.roster.keys)
    setup = Setup(roster.digest, -1, run.generator._secret.public.to_bytes())
    user = LatticeUser("ann", roster, run.identities["ann"])
    with pytest.raises(MessageError, match="too small"):
        user.accept(run.identities["key generator"].sign(encode(setup), author="key generator"))
    with pytest.raises(MessageError, match="not signed by 'key generator'"):
        user.accept(run.identities["aggregator"].sign(encode(setup), author="key generator"))
    with pytest.raises(InputError, match="not set up yet"):
        user.contribute(np.zeros(SIZE), 0)
    other = Setup(run.roster.digest, -1, generate_keys(max_sum=2**31 - 1).public.to_bytes())
    with pytest.raises(MessageError, match="another encryption key already"):
        run.users["ann"].accept(run.identities["key generator"].sign(encode(other), author="key generator"))


def test_forged_answers_are_refused(run):
    answer = run.generator.answer(run.collect())
    with pytest.raises(MessageError, match="checksum"):
        run.users["ann"].read(answer[:-1] + b"\0", 0)
    with pytest.raises(MessageError, match="round 0; this is round 1"):
        run.users["ann"].read(answer, 1)
    run.aggregator.open(1)
    with pytest.raises(MessageError, match="speaks of round 0"):
        run.aggregator.read(answer)
    with pytest.raises(InputError, match="after round 1 there is no round 1"):
        run.aggregator.open(1)
