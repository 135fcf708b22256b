"""Lying members, a lying aggregator: attacks that once succeeded, each under its name, and mutants of all messages."""

from contextlib import suppress
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from blindsight.crypto.bfv import add_all
from blindsight.crypto.sealedbox import unseal
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import Message, decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.learn.dphe import messages as dphe
from blindsight.learn.dphe import statement
from blindsight.learn.dphe.decomposition import IndexedValues
from blindsight.learn.dphe.messages import Contribution, Receipt, Shard
from blindsight.learn.dphe.receipts import vouch
from blindsight.learn.lattice import messages as lattice
from blindsight.learn.masks import messages as masks
from blindsight.learn.residues import to_residues
from blindsight.learn.schemes.plain import PlainAggregator, Update
from blindsight.learn.sumterms import SumTerms
from tests.keys import bfv_key, paillier_key
from tests.learn.mutants import LARGEST, LEAST, altered, checked, mutant, wrapping
from tests.learn.sums.schemes import AGGREGATOR, BFV, DPHE, GENERATOR, KEYED, SCHEMES, SIZE, USERS


def signed_shard(run, name, **changes):
    """A user's own shard with other content, well signed by it."""
    contribution = decode(run.ask("contribute", name)[0], Contribution)
    receipt = decode(decode(contribution.receipt, Signed).body, Receipt)
    body = encode(replace(decode(contribution.shard, Shard), **changes))
    return vouch(run.key(name), name, [body], run=receipt.run, round=receipt.round)[0]


NOT_SHARDS = (
    *[{"ciphertexts": np.zeros(shape, dtype=np.uint8)} for shape in ((), (0,), (6,), (6, 0), (6, 256, 1))],
    *[{"places": places} for places in (np.array(0), np.arange(0), np.arange(6)[:, None], wrapping(6))],
    *[{"places": np.array([first, 1, 2, 3, 4, last])} for first, last in ((0, LARGEST), (LEAST, 5), (0, 4), (5, 0))],
)


def test_one_member_ends_the_run():
    run = DPHE()
    run.begin(0)
    for changes in NOT_SHARDS:
        with pytest.raises(MessageError):
            run.deliver(signed_shard(run, "ann", **changes))
    run.send("contribute", USERS[1:])
    run.end("contribute")
    np.testing.assert_array_equal(run.read("bob").integers, run.sum(USERS[1:]))


def not_sums(run, receipts, round):
    """Requests by the aggregator, each for another reason not for a sum of these receipts."""
    yield run.request(receipts[:2], 0, round=round)
    yield run.request(receipts, 3 * run.max_integer + 3, round=round)
    if isinstance(run, DPHE):
        wrapped = np.array([0, LARGEST, LEAST])
        yield run.request(receipts, 7, round=round, places=wrapped)
        yield run.request(receipts, 2 * paillier_key().public.max_plaintext // 3, round=round, places=wrapped)
        for changes in NOT_SHARDS:
            yield run.request(receipts, 7, round=round, **changes)
    else:
        vector = bfv_key().public.encrypt(np.zeros(SIZE, dtype=np.int64), terms=3)
        yield run.request(receipts, 7, round=round, vector=vector.to_bytes())  # one term for three receipts
        yield run.request(receipts, 7, round=round, vector=checked(bytes(500)))
        yield run.request(receipts, 7, round=round, vector=checked(vector.to_bytes()[:-40] + bytes(40)))


@pytest.mark.parametrize("scheme", KEYED)
def test_an_unlimited_range_oracle_at_the_key_generator(scheme):
    """Each failure uses up its round and is on record, and the answer does not tell one from another."""
    run = KEYED[scheme]()
    generator, answers = run.role(GENERATOR), set()
    run.begin(0)
    count = len(list(not_sums(run, run.receipts(*USERS[:3]), 0)))
    for round in range(1, count + 1):
        run.begin(round)
        receipts = run.receipts(*USERS[:3])
        request = list(not_sums(run, receipts, round))[round - 1]
        with pytest.raises(MessageError, match="Begin a new round") as caught:
            generator.answer(request)
        answers.add(str(caught.value).replace(f"round {round} ", "this round "))
        with pytest.raises(PrivacyError, match="over"):  # nor is there a second try
            generator.answer(run.request(receipts, 0, round=round))
        assert len(generator.log) == round
    assert len(answers) == 1
    np.testing.assert_array_equal(run.play(count + 1), run.sum())


def test_a_vector_changed_on_its_way_costs_nothing():
    """What the aggregator signed has another checksum: a stranger cannot use up a round."""
    run = BFV()
    run.begin(0)
    run.send("contribute", USERS)
    request = decode(run.role(AGGREGATOR).close(), lattice.Vouched)
    for place in (50, -50):
        vector = bytearray(request.vector)
        vector[place] ^= 1
        with pytest.raises(MessageError):
            run.role(GENERATOR).answer(encode(replace(request, vector=bytes(vector))))
    assert run.role(GENERATOR).log == ()
    assert run.role(GENERATOR).answer(encode(request))


def test_a_weight_whose_absolute_value_is_itself_is_out_of_range():
    terms = SumTerms(run="a", users=USERS, dimension=2, fraction_bits=4, slot_bits=64)
    update = Update(0, "ann", to_residues(np.array([LEAST, 0]), terms).tobytes())
    with pytest.raises(MessageError, match="range"):
        PlainAggregator(terms, 0, lambda message: None).receive(encode(update))


# Forged contributor counts: ann, bob and cem change five blocks each and pad none; mal sends every block and lies.

COUNTED = {"users": ("ann", "bob", "cem", "mal"), "dimension": 80, "slots": 4, "capacity": 5, "min_per_block": 3}


def play_with_mal(parties, supports, lies, monkeypatch, round=0, shards=None):
    """Play a round in which mal sends these plaintexts by block; return the released sum by block, and the true one."""
    terms, rng = parties.generator.terms, np.random.default_rng(round)
    rows = {name: np.zeros((terms.blocks, terms.slots), dtype=np.int64) for name in terms.users}
    for name, blocks in supports.items():
        rows[name][blocks] = rng.integers(1, 1000, (len(blocks), terms.slots))

    def forge(integers, terms, *, source):
        parts = shards or np.array_split(np.arange(terms.blocks), terms.blocks // terms.capacity)
        return [IndexedValues(blocks, [lies[block] for block in blocks]) for blocks in parts]

    parties.aggregator.open(round)
    for name in terms.users:
        with monkeypatch.context() as patch:
            if name == "mal":
                patch.setattr("blindsight.learn.dphe.user.decompose", forge)
            for message in parties.users[name].contribute_integers(rows[name].ravel(), round):
                parties.aggregator.receive(message)
    answer = parties.generator.answer(parties.aggregator.close())
    return parties.aggregator.read(answer).integers.reshape(terms.blocks, -1), sum(rows.values())


def counts(terms, numbers):
    """Plaintexts with these numbers in the slots that count."""
    return [int(number) << terms.slot_bits * terms.slots for number in numbers]


DISJOINT = {"ann": np.arange(0, 5), "bob": np.arange(5, 10), "cem": np.arange(10, 15)}


def test_forged_contributor_counts(new_run, monkeypatch):
    parties = new_run(**COUNTED)
    terms = parties.generator.terms
    for round, count in enumerate((2, 3, 1000, -1, 2**30)):
        opened, _ = play_with_mal(parties, DISJOINT, counts(terms, [count] * 20), monkeypatch, round)
        assert not opened.any()
        assert "forged" in parties.generator.log[round]
    opened, _ = play_with_mal(parties, DISJOINT, counts(terms, [1] * 20), monkeypatch, 5)
    assert not opened.any()  # two senders are not enough, as always
    assert "forged" not in parties.generator.log[5]
    often = [DISJOINT["ann"]] * 4  # four shards of one member are one sender
    opened, _ = play_with_mal(parties, DISJOINT, counts(terms, [1] * 20), monkeypatch, 6, often)
    assert not opened.any()
    assert "forged" in parties.generator.log[6]
    same = dict.fromkeys(DISJOINT, np.arange(5))
    opened, total = play_with_mal(parties, same, counts(terms, [0] * 20), monkeypatch, 7)
    np.testing.assert_array_equal(opened, total)


def test_counts_forged_in_other_blocks_of_the_same_plaintext(new_run, monkeypatch):
    """Six sums share a plaintext: what mal writes beyond its own block lands in the counts of its neighbours."""
    parties = new_run(**COUNTED)
    terms = parties.generator.terms
    assert terms.blocks_per_request == 6
    mal, beyond = parties.users["mal"], counts(terms, [2])[0] << terms.slot_bits * terms.packing.slots
    phi = mal._agreement.shared_permutation(mal._setup.shared_secret, 0)
    inside = phi.forward(np.arange(20)) % 6 < 5  # the last of a plaintext has no neighbour
    opened, _ = play_with_mal(parties, DISJOINT, [beyond * bool(fits) for fits in inside], monkeypatch)
    assert not opened.any()
    assert "forged" in parties.generator.log[0]
    assert "was released" in parties.generator.log[0]


def test_no_lie_opens_a_block_that_too_few_sent(new_run, monkeypatch):
    parties, rng = new_run(**COUNTED), np.random.default_rng(0)
    terms = parties.generator.terms
    for round in range(20):
        supports = {name: rng.choice(20, 5, replace=False) for name in DISJOINT}
        senders = 1 + np.bincount(np.concatenate(list(supports.values())), minlength=20)
        lies = counts(terms, rng.integers(-2, 4, 20))
        opened, total = play_with_mal(parties, supports, lies, monkeypatch, round)
        released = opened.any(axis=1)
        assert (senders[released] >= 3).all()
        np.testing.assert_array_equal(opened[released], total[released])


def test_padding_counts_as_sending_as_the_statement_says(new_run, monkeypatch):
    """What remains: where everybody sends every block, one lie opens what one user alone changed."""
    parties = new_run(**COUNTED | {"capacity": 20})
    terms = parties.generator.terms
    opened, total = play_with_mal(parties, DISJOINT, counts(terms, [2] * 20), monkeypatch)
    np.testing.assert_array_equal(opened, total)
    said = statement(terms)
    assert any("at least 3 users sent (padding included)" in line for line in said.not_protected)
    assert "how many sent it (padding included)" in said.who_sees["key generator"]


# Mutants


class CountingDPHE(DPHE):
    """DPHE whose requests say how many users sent each place."""

    min_per_block = 2


def hostile_contribution(message, key, name, rng):
    """A mutant of a contribution under DPHE or BFV, or of a member's message of masks, well signed by its author."""
    if rng.random() < 0.2:
        return mutant(decode(message, Contribution, lattice.Vouched, Signed), rng)
    match decode(message, Contribution, lattice.Vouched, Signed):
        case Contribution(receipt=signed, shard=body):
            receipt, shard = decode(decode(signed, Signed).body, Receipt), decode(body, Shard)
            if rng.random() < 0.3:
                return encode(Contribution(key.sign(mutant(receipt, rng), author=name), body))
            return vouch(key, name, [mutant(shard, rng)], run=receipt.run, round=receipt.round)[0]
        case lattice.Vouched(envelope=envelope, vector=vector):
            receipt = decode(decode(envelope, Signed).body, lattice.Receipt)
            if rng.random() < 0.3:
                return encode(lattice.Vouched(key.sign(mutant(receipt, rng), author=name), vector))
            other = checked(altered(vector, rng).ljust(32))
            receipt = replace(receipt, checksum=lattice.checksum(other))
            return encode(lattice.Vouched(key.sign(encode(receipt), author=name), other))
        case Signed(body=body):
            kinds = [kind for kind in vars(masks).values() if isinstance(kind, type) and issubclass(kind, Message)]
            return key.sign(mutant(decode(body, *kinds), rng), author=name)


def members_mutants(new, count):
    """See that mutants of each message of a member are refused or count as that member's, and cost nobody else."""
    run, rng = new(), np.random.default_rng(0)
    for phase in run.phases:
        refused = 0
        for _ in range(-(-count // len(run.phases))):
            if not refused:  # the first, or the last one was accepted: it may be a well-formed lie
                run.begin(run.round + 1)
                for earlier in run.phases[: run.phases.index(phase)]:
                    run.send(earlier, USERS)
                    run.end(earlier)
                (message, *_) = run.ask(phase, "ann")
            refused = run.role(AGGREGATOR).refused
            try:
                run.deliver(hostile_contribution(message, run.key("ann"), "ann", rng))
            except MessageError:
                assert run.role(AGGREGATOR).refused == refused + 1
                refused += 1
            else:
                refused = 0
    np.testing.assert_array_equal(run.play(run.round + 1), run.sum())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_mutants_of_a_members_messages_cost_only_that_member(scheme):
    members_mutants(SCHEMES[scheme], 300)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_many_mutants_of_a_members_messages_cost_only_that_member(scheme):
    members_mutants(SCHEMES[scheme], 20_000)


def test_mutants_of_plain_updates_are_refused():
    terms = SumTerms(run="a", users=USERS, dimension=SIZE, fraction_bits=4)
    update, rng = Update(0, "ann", bytes(4 * SIZE)), np.random.default_rng(0)
    for _ in range(300):
        aggregator = PlainAggregator(terms, 0, lambda message: None)
        try:
            aggregator.receive(mutant(update, rng))
        except MessageError:
            with pytest.raises(PrivacyError):
                aggregator.total()


def aggregators_mutants(new, count):
    """See that mutants of the aggregator's requests cost a round at most, and never state or the run."""
    run, rng = new(), np.random.default_rng(0)
    run.begin(0)
    generator, used, logged = run.role(GENERATOR), 0, 0
    for _ in range(count):
        try:
            generator.answer(hostile_request(run, used + 1, rng))
        except (MessageError, PrivacyError):
            assert not generator.log[logged:] or "nothing was released" in generator.log[-1]
        assert len(generator.log) <= logged + 1
        if len(generator.log) > logged:  # that round is over, whatever it was
            used, logged = int(generator.log[-1].split(":")[0].removeprefix("round ")), len(generator.log)
    assert logged > count / 3
    np.testing.assert_array_equal(run.play(used + 1), run.sum())


@cache
def encrypted_sum(count):
    ones = bfv_key().public.encrypt(np.ones(SIZE, dtype=np.int64), terms=count)
    return add_all([ones] * count).to_bytes()


def hostile_request(run, round, rng):
    """A mutant of a request, as only the aggregator can send it."""
    names = USERS[: rng.integers(2, 5)]
    if isinstance(run, DPHE):
        agreement = run.role("ann")._agreement
        vouched = [vouch(run.key(name), name, [b""], run=agreement.digest, round=round)[0] for name in names]
        receipts = tuple(run.receipt(message) for message in vouched)
        sealed = run.request(receipts, int(rng.integers(5)), round=round)
        secret = decode(run.setup(AGGREGATOR), dphe.AggregatorSetup).channel_secret
        request = decode(unseal(secret, sealed, purpose=dphe.REQUEST_FOR_DECRYPTION), dphe.Request)
        return run.sealed(mutant(request, rng))
    key = bytes.fromhex(bfv_key().public.fingerprint)
    receipt = encode(lattice.Receipt(run.roster.digest, round, key, bytes(32)))
    signed = tuple(run.key(name).sign(receipt, author=name) for name in names)
    vouched = decode(run.request(signed, 7, round=round, vector=encrypted_sum(len(names))), lattice.Vouched)
    vector = vouched.vector if rng.random() < 0.5 else checked(altered(vouched.vector, rng).ljust(32))
    request = replace(decode(decode(vouched.envelope, Signed).body, lattice.Request), checksum=lattice.checksum(vector))
    body = mutant(request, rng) if rng.random() < 0.5 else encode(request)
    return encode(lattice.Vouched(run.key(AGGREGATOR).sign(body, author=AGGREGATOR), vector))


@pytest.mark.parametrize("new", [DPHE, CountingDPHE, BFV])
def test_mutants_of_a_request_cost_a_round_at_most(new):
    aggregators_mutants(new, 300)


@pytest.mark.slow
@pytest.mark.parametrize("new", [DPHE, CountingDPHE, BFV])
def test_many_mutants_of_a_request_cost_a_round_at_most(new):
    aggregators_mutants(new, 20_000)


@pytest.mark.parametrize("scheme", KEYED)
def test_mutants_of_an_answer_are_refused_or_read(scheme):
    run, rng = KEYED[scheme](), np.random.default_rng(0)
    expected = run.play(0)
    body = decode(decode(run.result, Signed).body, dphe.Answer, lattice.Answer)
    key, good = run.role(GENERATOR)._signing_key if scheme == "dphe" else run.key(GENERATOR), run.result
    for _ in range(300):
        run.result = key.sign(mutant(body, rng), author=GENERATOR)
        with suppress(MessageError):
            assert run.read("ann").integers.shape == (SIZE,)
    run.result = good
    np.testing.assert_array_equal(run.read("ann").integers, expected)
