"""What only DPHE can get wrong: shards, places, ciphertexts, packed sums, terms and set-ups of its own."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.sealedbox import seal
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.learn.dphe import Aggregator, KeyGenerator, Terms, User, set_up, statement
from blindsight.learn.dphe.answers import sign_answer
from blindsight.learn.dphe.messages import REQUEST_FOR_DECRYPTION, AggregatorSetup, Answer, Contribution, Request, Shard
from blindsight.learn.dphe.receipts import vouch
from blindsight.learn.dphe.terms import AGGREGATOR
from tests.keys import paillier_key

THREE = ("anna", "bert", "cleo")


@pytest.fixture
def parties(new_run):
    """A run whose aggregator has opened round 3."""
    parties = new_run()
    parties.aggregator.open(3)
    return parties


@pytest.fixture
def updates(parties, sparse_update):
    """Updates of one shard each."""
    terms = parties.generator.terms
    return {name: sparse_update(terms, seed, blocks=5) for seed, name in enumerate(terms.users)}


def contribute(parties, updates, *names):
    for name in names:
        for message in parties.users[name].contribute_integers(updates[name], parties.aggregator.round):
            parties.aggregator.receive(message)


def finish(parties):
    return parties.aggregator.read(parties.generator.answer(parties.aggregator.close())).integers


# Contributions


def signed(user, places, ciphertexts):
    """A contribution of any content, signed by the user it comes from."""
    body = encode(Shard(bytes(32), places, ciphertexts))
    return vouch(user._key, user.name, [body], run=user._agreement.digest, round=3)[0]


def zeros(parties, count=6):
    return parties.users["anna"]._agreement.key.encrypt_zeros(count).to_matrix()


def with_forged(rows, number):
    """The same ciphertexts but for the fourth, which is none."""
    rows = rows.copy()
    rows[3] = np.frombuffer(number.to_bytes(rows.shape[1], "big"), dtype=np.uint8)
    return rows


def test_shards_that_are_none_are_refused_and_change_nothing(parties, updates):
    contribute(parties, updates, "bert", "cleo")
    anna, places, fine, key = parties.users["anna"], np.arange(6), zeros(parties), paillier_key()
    contents = decode(signed(anna, places, fine), Contribution)
    body, run = encode(Shard(bytes(32), places, fine)), anna._agreement.digest
    wrong = [
        encode(replace(contents, shard=contents.shard * 10)),
        encode(replace(contents, shard=encode(Shard(bytes(32), places + 1, fine)))),
        vouch(anna._key, "anna", [body] * 5, run=run, round=3)[4],  # of four at most
        anna.enrolment(),
        signed(anna, np.arange(5), fine[:5]),
        signed(anna, places, fine[:5]),
        signed(anna, places + 19, fine),
        signed(anna, places - 1, fine),
        signed(anna, np.array([0, 1, 2, 2, 3, 4]), fine),
        signed(anna, places, fine[:, :-1].copy()),
        *[signed(anna, places, with_forged(fine, bad)) for bad in (0, key.public.n**2 + 1, int(key._p) * 12345)],
    ]
    for message in wrong:
        with pytest.raises(MessageError):
            parties.aggregator.receive(message)
    assert parties.aggregator.refused == len(wrong)
    assert parties.aggregator.users == ("bert", "cleo")
    contribute(parties, updates, "anna", "dora")
    np.testing.assert_array_equal(finish(parties), sum(updates.values()))


def test_what_is_whole_and_altered_inside_is_refused(parties, updates):
    (good,) = parties.users["anna"].contribute_integers(updates["anna"], 3)
    inner, rng = decode(good, Contribution), np.random.default_rng(0)

    def damaged(blob):
        changed = bytearray(blob)
        for place in rng.integers(0, len(changed), rng.integers(1, 4)):
            changed[place] ^= rng.integers(1, 256)
        return bytes(changed[: rng.integers(1, len(changed))] if rng.random() < 0.2 else changed)

    for _ in range(100):
        for message in (replace(inner, receipt=damaged(inner.receipt)), replace(inner, shard=damaged(inner.shard))):
            with pytest.raises(MessageError):
                parties.aggregator.receive(encode(message))
    contribute(parties, updates, *updates)
    np.testing.assert_array_equal(finish(parties), sum(updates.values()))


def test_a_user_counts_with_all_its_shards_or_not_at_all(new_run, sparse_update):
    parties = new_run()
    terms = parties.generator.terms
    updates = {name: sparse_update(terms, seed, blocks=14) for seed, name in enumerate(terms.users)}
    parties.aggregator.open(0)
    for name, update in updates.items():
        shards = parties.users[name].contribute_integers(update, 0)
        assert len(shards) == 3
        for message in reversed(shards[: 2 if name == "anna" else 3]):
            parties.aggregator.receive(message)
    assert parties.aggregator.users == ("bert", "cleo", "dora")
    anna, body = parties.users["anna"], encode(Shard(bytes(32), np.arange(6), zeros(parties)))
    with pytest.raises(MessageError, match="something else"):
        parties.aggregator.receive(vouch(anna._key, "anna", [body] * 4, run=anna._agreement.digest, round=0)[3])
    np.testing.assert_array_equal(finish(parties), sum(updates[name] for name in ("bert", "cleo", "dora")))


def test_a_user_keeps_its_last_contribution(parties, updates):
    anna = parties.users["anna"]
    assert anna.contribute_integers(updates["anna"], 3) == anna.sent(3)
    with pytest.raises(InputError, match="round 3; got 2"):
        anna.sent(2)


# Requests and answers


def asked(parties, receipts, plaintexts, round):
    """A request as a dishonest aggregator may make it: any receipts, any ciphertexts at the first places."""
    setup = decode(parties.generator.setup()[AGGREGATOR], AggregatorSetup)
    agreement = parties.users["anna"]._agreement
    places = np.arange(len(plaintexts) * agreement.terms.blocks_per_request)[: agreement.terms.blocks]
    ciphertexts = agreement.key.encrypt(plaintexts).to_matrix()
    senders = np.full(places.size * agreement.terms.counting, len(receipts))
    request = Request(agreement.digest, round, tuple(receipts), places, ciphertexts, senders)
    return seal(setup.channel_secret, encode(request), purpose=REQUEST_FOR_DECRYPTION)


def receipts_of(parties, updates, *names, round=3):
    messages = [part for name in names for part in parties.users[name].contribute_integers(updates[name], round)]
    return [decode(message, Contribution).receipt for message in messages]


def test_shards_of_one_user_are_one_user(new_run, sparse_update):
    parties = new_run()
    terms = parties.generator.terms
    updates = {name: sparse_update(terms, 0, blocks=14) for name in terms.users}
    two = receipts_of(parties, updates, "anna", "bert")
    assert len(two) == 6
    with pytest.raises(MessageError):
        parties.generator.answer(asked(parties, two, [0], 3))
    parts = receipts_of(parties, updates, *THREE, round=4)[:-1]
    with pytest.raises(MessageError):
        parties.generator.answer(asked(parties, parts, [0], 4))
    few, missing = parties.generator.log
    assert "2 users" in few
    assert "3 shards, of which 2" in missing


def test_a_mask_outside_the_subgroup_uses_up_the_round(parties, updates):
    contribute(parties, updates, "anna", "bert")
    n = paillier_key().public.n
    parties.aggregator.receive(
        signed(parties.users["cleo"], np.arange(6), with_forged(zeros(parties), pow(7, n, n * n)))
    )
    request = parties.aggregator.close()
    for words in ("nothing", "over"):
        with pytest.raises((MessageError, PrivacyError), match=words):
            parties.generator.answer(request)
    assert "base" in parties.generator.log[0]


def test_a_plaintext_beyond_all_slots_is_no_sum(parties, updates):
    receipts = receipts_of(parties, updates, *THREE)
    with pytest.raises(MessageError):
        parties.generator.answer(asked(parties, receipts, [paillier_key().public.max_plaintext], 3))
    assert "bound" in parties.generator.log[0]


def test_weights_behind_the_last_are_noticed(new_run, sparse_update):
    parties = new_run(slots=5, capacity=2)  # 24 weights leave one slot of five blocks unused
    terms = parties.generator.terms
    receipts = receipts_of(parties, {name: sparse_update(terms, 0, blocks=2) for name in THREE}, *THREE)
    with pytest.raises(MessageError):
        parties.generator.answer(asked(parties, receipts, SlotPacking(32, 30).pack(np.ones(25, dtype=int), terms=1), 3))
    assert "forged" in parties.generator.log[0]


def test_answers_for_another_run_or_of_another_length_are_refused(parties, updates):
    contribute(parties, updates, *THREE)
    answer = parties.generator.answer(parties.aggregator.close())
    content, anna = decode(decode(answer, Signed).body, Answer), parties.users["anna"]
    for changed in ({"run": bytes(32)}, {"sums": content.sums[1:]}):
        with pytest.raises(MessageError):
            anna.read(sign_answer(parties.generator._signing_key, replace(content, **changed)), 3)
    assert anna.read(answer, 3).entered.all()
    assert not parties.users["dora"].read(answer, 3).entered.any()


# Terms and set-up


BAD = {
    "users": [{"users": ("anna", "bert")}, {"users": ("anna", "bert"), "min_users": 2}],
    "min_users": [{"users": THREE, "min_users": 4}],
    "name": [{"users": (*THREE, "anna")}, {"users": (*THREE, "aggregator")}, {"users": (*THREE, "")}, {"run": ""}],
    "insecure": [{"insecure": False}],
    "3072": [{"key_bits": 512}],
    "dimension": [{"dimension": 0}],
    "slots": [{"slots": 32}, {"slots": 31, "min_per_block": 2}, {"slots": 0}],
    "capacity": [{"capacity": 25}, {"capacity": 0}, {"dimension": 2**20, "capacity": 2**20}],
    "too long": [{"dimension": 2**20, "as_published": True, "decrypt": "all"}],
    "fraction_bits": [{"fraction_bits": 63}],
    "slot_bits": [{"slot_bits": 12}],
    "8 bits": [{"slot_bits": 8, "users": tuple(map(str, range(200)))}],
    "min_per_block": [{"min_per_block": 5}],
    "single": [{"permutations": "triple"}],
    "touched": [{"decrypt": "none"}],
    "published": [{"as_published": True}, {"as_published": True, "decrypt": "all", "slots": 2}],
}


@pytest.mark.parametrize(("words", "changes"), [(words, change) for words in BAD for change in BAD[words]])
def test_terms_that_protect_nobody_or_cannot_work_are_refused(make_terms, words, changes):
    with pytest.raises(InputError, match=words):
        make_terms(**changes)


def test_terms_survive_the_wire_and_default_to_a_long_key():
    terms = Terms(run="r", users=THREE, dimension=10, capacity=2, fraction_bits=20, min_per_block=2)
    assert Terms.from_bytes(terms.to_bytes()) == terms
    assert terms.key_bits == 3072
    # 95 slots of 32 bits fit a 3072-bit plaintext: 47 pairs of a weight and its count.
    assert terms.blocks_per_request == 47


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (np.zeros(23), "24"),
        (np.zeros((24, 1)), "24"),
        (np.full(24, np.nan), "finite"),
        (np.full(24, -np.inf), "finite"),
        (np.full(24, 2.0**22), r"2.09715e\+06"),
        (np.full(24, 1e300), "overflows"),
    ],
)
def test_an_unfit_update_is_refused_and_the_round_is_still_free(new_run, update, words):
    user = new_run().users["anna"]
    with pytest.raises(InputError, match=words):
        user.contribute(update, 0)
    assert user.contribute(np.zeros(24), 0)


def test_a_set_up_is_for_one_party_one_run_and_its_terms(new_run, make_terms):
    parties, again, other = new_run(), new_run(), make_terms(min_users=4)
    messages = parties.generator.setup()
    for role, message in (
        (User("anna", other), messages["anna"]),
        (Aggregator(other), messages[AGGREGATOR]),
        (parties.users["bert"], messages["anna"]),
        (parties.users["anna"], again.generator.setup()["anna"]),
        (parties.users["anna"], messages[AGGREGATOR]),
    ):
        with pytest.raises(MessageError):
            role.accept(message)
    parties.users["anna"].accept(messages["anna"])
    with pytest.raises(InputError, match="not set up"):
        Aggregator(other).open(0)


def test_only_users_enrol_and_only_once(make_terms, tmp_path):
    terms = make_terms()
    KeyGenerator(terms, key=paillier_key(), path=tmp_path / "it").enrol(User("anna", terms).enrolment())
    generator = KeyGenerator.load(tmp_path / "it")
    with pytest.raises(MessageError, match="anna"):
        generator.enrol(User("anna", terms).enrolment())
    with pytest.raises(MessageError, match="does not take part"):
        generator.enrol(User("mallory", make_terms(users=("mallory", *THREE))).enrolment())
    with pytest.raises(InputError, match="bert, cleo, dora"):
        generator.setup()
    with pytest.raises(InputError, match="mallory"):
        User("mallory", terms)
    with pytest.raises(InputError, match="2048 bits; got 1024"):
        KeyGenerator(make_terms(key_bits=2048), key=paillier_key())
    with pytest.raises(InputError, match="conservative"):
        KeyGenerator(make_terms(keys="conservative"), key=paillier_key())


def test_both_kinds_of_keys_give_the_same_sum_and_say_what_they_assume(make_terms, updates):
    for keys in ("subgroup", "conservative"):
        parties = set_up(make_terms(keys=keys), key=paillier_key(keys=keys))
        parties.aggregator.open(0)
        contribute(parties, updates, *THREE)
        assert finish(parties).tolist() == sum(updates[name] for name in THREE).tolist()
        assert any("subgroup" in line for line in statement(parties.generator.terms).assumptions) == (
            keys == "subgroup"
        )
