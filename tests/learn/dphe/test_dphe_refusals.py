"""Whoever drops out, repeats, comes late, sends garbage or asks for too much never corrupts a sum."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.sealedbox import seal
from blindsight.crypto.signing import Signed, SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.learn.dphe import Aggregator
from blindsight.learn.dphe.answers import sign_answer
from blindsight.learn.dphe.messages import REQUEST_FOR_DECRYPTION, AggregatorSetup, Answer, Contribution, Request, Shard
from blindsight.learn.dphe.receipts import vouch
from blindsight.learn.dphe.terms import AGGREGATOR


@pytest.fixture
def parties(new_run):
    """A run whose aggregator has opened round 3."""
    parties = new_run()
    parties.aggregator.open(3)
    return parties


@pytest.fixture
def updates(parties, sparse_update):
    terms = parties.generator.terms
    return {name: sparse_update(terms, seed, blocks=5) for seed, name in enumerate(terms.users)}


def contribute(parties, updates, *names, round=3):
    """Let users send what fits one shard."""
    sent = {}
    for name in names:
        (sent[name],) = parties.users[name].contribute_integers(updates[name], round)
        parties.aggregator.receive(sent[name])
    return sent


def finish(parties):
    answer = parties.generator.answer(parties.aggregator.close())
    return parties.aggregator.read(answer).integers


def signed(user, places, ciphertexts, *, round=3):
    """A contribution of any content, signed by the user it comes from."""
    body = encode(Shard(bytes(32), places, ciphertexts))
    (message,) = vouch(user._key, user.name, [body], run=user._agreement.digest, round=round)
    return message


def zeros(parties, count):
    return parties.users["anna"]._agreement.key.encrypt_zeros(count)


def forged_ciphertext(parties, key, kind):
    """Six zeros of which the fourth is no ciphertext."""
    rows = zeros(parties, 6).to_matrix().copy()
    width, n = key.public.width, key.public.n
    number = {"zero": 0, "not below n^2": n**2 + 1, "not coprime": int(key._p) * 12345}[kind]
    rows[3] = np.frombuffer(number.to_bytes(width, "big"), dtype=np.uint8)
    return rows


def bad_contributions(parties, updates, key):
    """Everything a confused or hostile sender may try in anna's name or another; the key says what is expected."""
    anna, places, fine = parties.users["anna"], np.arange(6), zeros(parties, 6).to_matrix()
    good = signed(anna, places, fine)
    stranger = SigningKey.generate()
    run, body = anna._agreement.digest, encode(Shard(bytes(32), places, fine))
    contents = decode(good, Contribution)
    other_body = encode(Shard(bytes(32), places + 1, fine))
    return {
        "cut short": b"",
        "does not begin like one": b"garbage" * 100,
        "bytes and": good[:-1],
        "checksum": good[:200] + bytes([good[200] ^ 1]) + good[201:],
        "expected a message dphe/contribution": anna.enrolment(),
        "at most": encode(Contribution(contents.receipt, contents.shard * 10)),
        "does not take part": vouch(stranger, "mallory", [body], run=run, round=3)[0],
        "was not signed by 'anna'": vouch(stranger, "anna", [body], run=run, round=3)[0],
        "to another run": vouch(anna._key, "anna", [body], run=bytes(32), round=3)[0],
        "to round 2; this is round 3": signed(anna, places, fine, round=2),
        "shard 5 of 5": vouch(anna._key, "anna", [body] * 5, run=run, round=3)[4],
        "another shard than it came with": encode(Contribution(contents.receipt, other_body)),
        "6 places and ciphertexts": signed(anna, np.arange(5), fine[:5]),
        "of 'anna' has not": signed(anna, np.arange(6), fine[:5]),
        "out of range": signed(anna, places + 19, fine),
        "out of order or twice": signed(anna, np.array([0, 1, 2, 2, 3, 4]), fine),
        "names places out": signed(anna, places - 1, fine),
        "rows of 256 bytes": signed(anna, places, fine[:, :-1].copy()),
        "ciphertext 3 lies outside": signed(anna, places, forged_ciphertext(parties, key, "zero")),
        "lies outside its range": signed(anna, places, forged_ciphertext(parties, key, "not below n^2")),
        "shares a factor": signed(anna, places, forged_ciphertext(parties, key, "not coprime")),
    }


def test_what_is_wrong_is_refused_counted_and_changes_nothing(parties, updates, key):
    contribute(parties, updates, "bert", "cleo")
    bad = bad_contributions(parties, updates, key)
    for sentence, message in bad.items():
        with pytest.raises(MessageError, match=sentence):
            parties.aggregator.receive(message)
    assert parties.aggregator.refused == len(bad)
    assert parties.aggregator.users == ("bert", "cleo")
    contribute(parties, updates, "anna", "dora")
    np.testing.assert_array_equal(finish(parties), sum(updates.values()))


def test_damaged_messages_are_refused(parties, updates):
    contribute(parties, updates, "bert", "cleo", "dora")
    (good,) = parties.users["anna"].contribute_integers(updates["anna"], 3)
    inner = decode(good, Contribution)
    rng = np.random.default_rng(0)

    def damaged(blob):
        changed = bytearray(blob)
        for place in rng.integers(0, len(changed), rng.integers(1, 4)):
            changed[place] ^= rng.integers(1, 256)
        return bytes(changed[: rng.integers(1, len(changed))] if rng.random() < 0.2 else changed)

    for _ in range(500):
        for message in (
            damaged(good),
            # Whole and with a valid checksum, but altered inside.
            encode(Contribution(damaged(inner.receipt), inner.shard)),
            encode(Contribution(inner.receipt, damaged(inner.shard))),
        ):
            with pytest.raises(MessageError):
                parties.aggregator.receive(message)
    assert parties.aggregator.refused == 1500
    parties.aggregator.receive(good)
    np.testing.assert_array_equal(finish(parties), sum(updates.values()))


def test_the_same_message_again_counts_once_and_another_one_is_refused(parties, updates):
    sent = contribute(parties, updates, "anna", "bert", "cleo")
    parties.aggregator.receive(sent["anna"])
    assert parties.aggregator.refused == 0
    with pytest.raises(MessageError, match="'anna' has sent something else in round 3 already"):
        parties.aggregator.receive(signed(parties.users["anna"], np.arange(6), zeros(parties, 6).to_matrix()))
    np.testing.assert_array_equal(finish(parties), sum(updates[name] for name in sent))


def test_a_round_goes_on_without_those_who_drop_out_or_come_late(parties, updates):
    sent = contribute(parties, updates, "anna", "bert", "cleo")
    parties.aggregator.close()
    (late,) = parties.users["dora"].contribute_integers(updates["dora"], 3)
    with pytest.raises(MessageError, match="round 3 is closed; 'dora' comes too late"):
        parties.aggregator.receive(late)
    parties.aggregator.receive(sent["anna"])  # an echo of what was counted is harmless
    answer = parties.generator.answer(parties.aggregator.close())
    np.testing.assert_array_equal(parties.aggregator.read(answer).integers, sum(updates[name] for name in sent))
    assert not parties.users["dora"].read(answer, 3).entered.any()
    assert parties.users["anna"].read(answer, 3).entered.all()


def test_too_few_users_give_no_sum_and_the_round_can_be_repeated(parties, updates):
    contribute(parties, updates, "anna", "bert")
    with pytest.raises(PrivacyError, match="contributions of 2 users; a sum needs 3"):
        parties.aggregator.close()
    with pytest.raises(InputError, match="not closed"):
        parties.aggregator.read(b"")
    with pytest.raises(InputError, match="at least 4; got 3"):
        parties.aggregator.open(3)
    parties.aggregator.open(4)
    old = parties.users["anna"].sent(3)
    with pytest.raises(MessageError, match="to round 3; this is round 4"):
        parties.aggregator.receive(*old)
    contribute(parties, updates, "anna", "bert", "dora", round=4)
    np.testing.assert_array_equal(finish(parties), updates["anna"] + updates["bert"] + updates["dora"])


def test_a_user_counts_with_all_its_shards_or_not_at_all(new_run, sparse_update):
    parties = new_run()
    terms = parties.generator.terms
    updates = {name: sparse_update(terms, seed, blocks=14) for seed, name in enumerate(terms.users)}
    parties.aggregator.open(0)
    shards = {name: parties.users[name].contribute_integers(update, 0) for name, update in updates.items()}
    assert {len(messages) for messages in shards.values()} == {3}
    for name, messages in shards.items():
        for message in reversed(messages[: 2 if name == "anna" else 3]):
            parties.aggregator.receive(message)
    assert parties.aggregator.users == ("bert", "cleo", "dora")
    anna, body = parties.users["anna"], encode(Shard(bytes(32), np.arange(6), zeros(parties, 6).to_matrix()))
    with pytest.raises(MessageError, match="'anna' has sent something else"):
        parties.aggregator.receive(vouch(anna._key, "anna", [body] * 4, run=anna._agreement.digest, round=0)[3])
    np.testing.assert_array_equal(finish(parties), sum(updates[name] for name in ("bert", "cleo", "dora")))


def test_nothing_is_received_before_a_round(new_run):
    parties = new_run()
    with pytest.raises(MessageError, match="no round has begun"):
        parties.aggregator.receive(b"")
    with pytest.raises(InputError, match="no round has begun"):
        parties.aggregator.close()
    assert (parties.aggregator.refused, parties.aggregator.round, parties.aggregator.users) == (1, -1, ())


def test_a_user_contributes_once_a_round(parties, updates):
    anna = parties.users["anna"]
    sent = anna.contribute_integers(updates["anna"], 3)
    assert anna.contribute_integers(updates["anna"], 3) == sent == anna.sent(3)
    for round, update in ((3, updates["bert"]), (2, updates["anna"])):
        with pytest.raises(PrivacyError, match="'anna' has contributed to round 3 already"):
            anna.contribute_integers(update, round)
    with pytest.raises(InputError, match="its last contribution, to round 3; got 2"):
        anna.sent(2)
    with pytest.raises(InputError, match="numbered from 0; got -1"):
        anna.contribute_integers(updates["anna"], -1)


def asked(parties, receipts, plaintexts, *, round=3, run=None):
    """A request as a dishonest aggregator may make it: any receipts, any ciphertexts at the first places."""
    setup = decode(parties.generator.setup()[AGGREGATOR], AggregatorSetup)
    agreement = parties.users["anna"]._agreement
    ciphertexts = agreement.key.encrypt(plaintexts).to_matrix()
    places = np.arange(len(plaintexts) * agreement.terms.blocks_per_request)[: agreement.terms.blocks]
    request = Request(run or agreement.digest, round, tuple(receipts), places, ciphertexts)
    return seal(setup.channel_secret, encode(request), purpose=REQUEST_FOR_DECRYPTION)


def receipts_of(parties, updates, *names, round=3):
    messages = [part for name in names for part in parties.users[name].contribute_integers(updates[name], round)]
    return [decode(message, Contribution).receipt for message in messages]


def test_the_key_generator_decrypts_for_three_named_users_only(parties, updates):
    anna, bert, cleo = receipts_of(parties, updates, "anna", "bert", "cleo")
    generator = parties.generator
    with pytest.raises(PrivacyError, match="contributions of 2 users; a sum needs 3"):
        generator.answer(asked(parties, [anna, bert], [0]))
    with pytest.raises(PrivacyError, match="contributions of 0 users"):
        generator.answer(asked(parties, [], [0]))
    with pytest.raises(MessageError, match="receipts of 'bert' contradict"):
        generator.answer(asked(parties, [anna, bert, bert], [0]))
    with pytest.raises(MessageError, match="round 3; this is round 4"):
        generator.answer(asked(parties, [anna, bert, cleo], [0], round=4))
    with pytest.raises(MessageError, match="not one of this run"):
        generator.answer(asked(parties, [anna, bert, cleo], [0], run=bytes(32)))
    forged = SigningKey.generate().sign(b"", author="dora")
    with pytest.raises(MessageError, match="not signed by 'dora'"):
        generator.answer(asked(parties, [anna, bert, forged], [0]))
    assert generator.log == ()
    assert generator.answer(asked(parties, [anna, bert, cleo], [0]))
    assert generator.log == ("round 3: the sum of anna, bert, cleo was released.",)


def test_shards_of_one_user_are_one_user(new_run, sparse_update):
    parties = new_run()
    terms = parties.generator.terms
    updates = {name: sparse_update(terms, 0, blocks=14) for name in terms.users}
    two = receipts_of(parties, updates, "anna", "bert")
    assert len(two) == 6
    with pytest.raises(PrivacyError, match="contributions of 2 users"):
        parties.generator.answer(asked(parties, two, [0]))
    with pytest.raises(MessageError, match="'cleo' sent 3 shards, of which 2 are named"):
        parties.generator.answer(asked(parties, two + receipts_of(parties, updates, "cleo")[:2], [0]))


def test_a_round_is_answered_once(parties, updates):
    earlier, generator = receipts_of(parties, updates, *updates, round=2), parties.generator
    receipts = receipts_of(parties, updates, *updates)
    first = generator.answer(asked(parties, receipts, [7]))
    assert parties.users["anna"].read(first, 3).integers.sum() == 7
    # The same users again get what is on record, whatever ciphertexts come with it: no second decryption.
    assert generator.answer(asked(parties, receipts[::-1], [1000])) == first
    with pytest.raises(PrivacyError, match="round 3 is over"):
        generator.answer(asked(parties, receipts[:3], [7]))
    with pytest.raises(PrivacyError, match="round 2 is over"):
        generator.answer(asked(parties, earlier, [7], round=2))
    assert len(generator.log) == 1


def test_an_impossible_sum_uses_up_the_round(parties, updates):
    terms, generator = parties.generator.terms, parties.generator
    receipts = receipts_of(parties, updates, "anna", "bert", "cleo")
    with pytest.raises(MessageError, match="overflowed or was forged"):
        generator.answer(asked(parties, receipts, [3 * terms.max_integer + 1]))
    with pytest.raises(PrivacyError, match="round 3 is over"):
        generator.answer(asked(parties, receipts, [0]))
    assert "nothing was released" in generator.log[0]
    again = receipts_of(parties, updates, "anna", "bert", "cleo", round=4)
    with pytest.raises(MessageError, match="beyond its bound"):
        generator.answer(asked(parties, again, [parties.users["anna"]._agreement.key.max_plaintext], round=4))


def test_a_forged_count_of_contributors_is_noticed(new_run, sparse_update):
    parties = new_run(min_per_block=2)
    terms = parties.generator.terms
    updates = {name: sparse_update(terms, 0, blocks=3) for name in terms.users}
    receipts = receipts_of(parties, updates, "anna", "bert", "cleo")
    four = terms.packing.pack(np.array([9, 4]), terms=1)
    with pytest.raises(MessageError, match="counts contributors that are not there"):
        parties.generator.answer(asked(parties, receipts, four))


def test_a_forged_weight_behind_the_last_one_is_noticed(new_run, sparse_update):
    parties = new_run(slots=5, capacity=2)  # 24 weights leave one slot of five blocks unused
    terms = parties.generator.terms
    updates = {name: sparse_update(terms, 0, blocks=2) for name in terms.users}
    receipts = receipts_of(parties, updates, "anna", "bert", "cleo")
    everywhere = SlotPacking(32, 30).pack(np.ones(25, dtype=np.int64), terms=1)
    with pytest.raises(MessageError, match="overflowed or was forged"):
        parties.generator.answer(asked(parties, receipts, everywhere))


def test_requests_and_answers_cannot_be_tampered_with(parties, updates):
    contribute(parties, updates, "anna", "bert", "cleo")
    request = parties.aggregator.close()
    for bad in (b"", request[:-1], request[:20] + b"x" + request[21:], b"x" + request):
        with pytest.raises(MessageError, match="was not made with this run's secret"):
            parties.generator.answer(bad)
    answer = parties.generator.answer(request)
    for reader in (parties.aggregator.read, lambda blob: parties.users["dora"].read(blob, 3)):
        with pytest.raises(MessageError):
            reader(answer[:-1])
        with pytest.raises(MessageError):
            reader(SigningKey.generate().sign(b"", author="key generator"))
    with pytest.raises(MessageError, match="not for round 4"):
        parties.users["anna"].read(answer, 4)
    content = decode(decode(answer, Signed).body, Answer)
    for changed, sentence in (({"run": bytes(32)}, "not for round 3"), ({"sums": content.sums[1:]}, "wrong number")):
        with pytest.raises(MessageError, match=sentence):
            parties.users["anna"].read(sign_answer(parties.generator._signing_key, replace(content, **changed)), 3)


def test_an_aggregator_does_not_take_the_answer_to_another_request(parties, updates):
    other = Aggregator(parties.generator.terms)
    other.accept(parties.generator.setup()[AGGREGATOR])
    other.open(3)
    sent = contribute(parties, updates, *updates)
    for name in ("anna", "bert", "cleo"):
        other.receive(sent[name])
    parties.aggregator.close()
    with pytest.raises(MessageError, match="names other users than the request did"):
        parties.aggregator.read(parties.generator.answer(other.close()))
