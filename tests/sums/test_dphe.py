"""DPHE: shards and what each role sees, and the claims of the paper's security evaluation where they hold.

`tests/papers/dphe` has the attacks on the protocol as it was published. Statistical tests state their false-alarm rate;
their randomness is seeded, so that they give the same verdict every time.
"""

import hashlib
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from blindsight.crypto.permutation import SecretPermutation
from blindsight.crypto.sealedbox import unseal
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.rng import seeded_bytes
from blindsight.statement import line_id
from blindsight.sums import KeyGenerator, RefusedError, Session, make_terms, statement
from blindsight.sums.dphe import Shards, decompose, layout_of, single_contributor_share
from blindsight.sums.messages import Answer, Receipt
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.keys import paillier_key
from tests.sums.runs import Run
from tests.sums.sparse import (
    FALSE_ALARM,
    FOUR,
    Listener,
    Recorded,
    check_sum,
    runs,
    sparse_update,
    terms_of,
)

# Sums and shards


@settings(max_examples=15)
@given(drawn=runs())
def test_the_answer_is_the_plain_sum(drawn):
    check_sum(*drawn)


@settings(max_examples=30)
@given(drawn=runs())
def test_shards_are_full_distinct_and_add_up_to_the_update(drawn):
    (terms, updates), layout = drawn, layout_of(drawn[0])
    for update in updates.values():
        shards = decompose(update, layout)
        rows = np.zeros((layout.blocks, layout.packing.slots), dtype=np.int64)
        for shard in shards:
            assert shard.blocks.size == len(shard.plaintexts) == layout.room == np.unique(shard.blocks).size
            rows[shard.blocks] += layout.packing.unpack(shard.plaintexts, rows[shard.blocks].size).reshape(
                layout.room, -1
            )
        changed = sum(bool(update[i : i + layout.slots].any()) for i in range(0, terms.dimension, layout.slots))
        assert len(shards) == max(1, -(-changed // layout.room))
        np.testing.assert_array_equal(rows[:, : layout.slots].ravel()[: terms.dimension], update)  # Eq. 3
        if layout.counting:
            assert rows[:, -1].sum() == changed
        places = np.concatenate([shard.blocks for shard in shards])
        assert np.unique(places).size == min(places.size, layout.blocks)


def test_little_is_left_to_decrypt():
    """Single weights are packed by the aggregator: 24 of them take one decryption, blocks of 16 take one each."""
    for changes, ciphertexts in (({"capacity": 24}, 1), ({"block": 16, "capacity": 17}, 2)):
        terms = terms_of(**changes)
        result = Session(terms, key=paillier_key()).round(dict.fromkeys(FOUR, np.ones(24)), 0)
        assert result.cost.ciphertexts(AGGREGATOR) == ciphertexts + 1  # and the tag
        assert layout_of(terms).blocks_per_request == 31 // layout_of(terms).slots


def test_both_kinds_of_keys_give_the_same_sum_and_a_key_of_another_kind_is_refused():
    updates = {name: np.full(24, i / 2) for i, name in enumerate(FOUR)}
    for keys in ("subgroup", "conservative"):
        terms = terms_of(keys=keys)
        session = Session(terms, key=paillier_key(keys=keys))
        assert session.round(updates, 0).values.tolist() == [3.0] * 24
        assert ("dphe-hardness-subgroup" in map(line_id, statement(terms).assumptions)) == (keys == "subgroup")
    with pytest.raises(InputError, match="conservative"):
        KeyGenerator(terms, key=paillier_key())
    with pytest.raises(InputError, match="2048 bits; got 1024"):
        KeyGenerator(terms_of(key_bits=2048), key=paillier_key())


def test_a_mask_outside_the_subgroup_uses_up_the_round():
    run = Run("dphe")
    run.begin(0)
    receipt, body = run.opened(run.ask("ann"), "ann")
    shards, n = decode(body, Shards), paillier_key().public.n
    rows = shards.ciphertexts.copy()
    rows[0, 3] = np.frombuffer(pow(7, n, n * n).to_bytes(rows.shape[2], "big"), dtype=np.uint8)
    run.deliver(run.reply("ann", receipt, encode(replace(shards, ciphertexts=rows))))
    with pytest.raises(RefusedError, match="nothing"):
        run.finish()
    assert "cannot be decrypted" in run.generator.log[0]


@pytest.mark.parametrize("bad", [0, "n^2 + 1", "p"])
def test_numbers_that_are_no_ciphertexts_are_refused(bad):
    run, key = Run("dphe"), paillier_key()
    number = {0: 0, "n^2 + 1": key.public.n**2 + 1, "p": int(key._p) * 12345}[bad]
    run.begin(0)
    receipt, body = run.opened(run.ask("ann"), "ann")
    for field in ("ciphertexts", "tag"):
        rows = getattr(decode(body, Shards), field).copy()
        rows.reshape(-1, rows.shape[-1])[0] = np.frombuffer(number.to_bytes(rows.shape[-1], "big"), dtype=np.uint8)
        with pytest.raises(MessageError):
            run.deliver(run.reply("ann", receipt, encode(replace(decode(body, Shards), **{field: rows}))))
    np.testing.assert_array_equal(run.finish(), run.sum())


# What each role sees


@pytest.fixture(scope="module", params=[1, 15, 31])
def recorded(request):
    """Runs with 240 blocks of so many weights (31 fill a plaintext), played to the end."""
    terms = terms_of(dimension=240 * request.param, block=request.param, capacity=8 * request.param)
    return Recorded(terms, {name: sparse_update(terms, seed, blocks=8) for seed, name in enumerate(terms.members)})


def plain_traces(update, terms):
    """What would be found in a message that shows the update: its values, its packed blocks, its list of indices."""
    rows = update.reshape(-1, layout_of(terms).slots)
    packed = layout_of(terms).packing.pack(update, terms=1)
    traces = [value.astype(kind).tobytes() for value in update[update != 0] for kind in ("<i8", ">i8")]
    traces += [number.to_bytes(200, "little", signed=True)[:8] for number in packed if number]
    traces += [number.to_bytes(200, "big", signed=True)[-8:] for number in packed if number]
    return [*traces, np.flatnonzero(rows.any(axis=1)).tobytes(), np.flatnonzero(update).tobytes()]


def test_the_aggregator_receives_no_plaintext_and_no_plain_index(recorded):
    """Theorem 8, for what comes from the members. The answer holds the sum, which is meant to be seen."""
    *view, answer = recorded.views[AGGREGATOR]
    assert len(view) == 1 + len(recorded.updates)
    seen = b"".join(view)
    for update in recorded.updates.values():
        assert not any(trace in seen for trace in plain_traces(update, recorded.terms))
    # The search does find what is there: the sum's values in the answer.
    total = sum(recorded.updates.values())
    assert all(value.astype("<i4").tobytes() in answer for value in total[total != 0])


def test_the_key_generator_receives_no_contribution(recorded):
    """Section 2.5: it 'does not access v and K'. It gets enrolments and the sum, and knows who contributed."""
    *enrolments, request = recorded.views[KEY_GENERATOR]
    assert len(enrolments) == len(recorded.updates) + 1
    assert {decode(envelope, Signed).author for envelope in recorded.request.receipts} == set(recorded.updates)
    assert not any(reply.body in request for reply in recorded.replies.values())
    # All it can decrypt is the sum, and the sum of the tags.
    assert len(recorded.sum.ciphertexts) == -(-recorded.sum.places.size // layout_of(recorded.terms).blocks_per_request)
    assert len(recorded.sum.tag) == 1


def test_a_listener_cannot_recognise_contributions_in_the_sum(recorded):
    """Where one member alone contributed to a full block, the sum is its ciphertext; the wire must not show it."""
    ciphertexts = [
        row.tobytes() for shards in recorded.shards.values() for row in (*shards.ciphertexts[0], *shards.tag)
    ]
    assert not any(ciphertext in blob for ciphertext in ciphertexts for blob in recorded.wire)
    if layout_of(recorded.terms).slots == 31:
        assert any(ciphertext in recorded.views[KEY_GENERATOR][-1] for ciphertext in ciphertexts)


def test_secrets_go_to_those_who_may_know_them(recorded):
    """Section 4: phi to the members only, phi^(n) to member n and the aggregator, the private key to none of them."""
    views = {name: b"".join(view) for name, view in recorded.views.items()}
    anna, aggregator, key = recorded.setup["anna"], recorded.setup[AGGREGATOR], paillier_key()
    assert anna.shared not in views[AGGREGATOR]
    for name in recorded.updates:
        setup = recorded.setup[name]
        assert {role for role, view in views.items() if setup.own[0] in view} == {name, AGGREGATOR}
        assert {role for role, view in views.items() if setup.offset in view} == {name}
        assert setup.shared in views[name]
        assert aggregator.channel not in views[name]
    for prime in (key._p, key._q):
        assert not any(int(prime).to_bytes(64, order) in view for view in views.values() for order in ("big", "little"))


def test_receipts_do_not_tell_whose_a_ciphertext_is():
    """The key generator rebuilds shards of one block from the sum; without salt and tag the digests match nobody's."""
    terms = terms_of(dimension=240 * 31, block=31, capacity=1)
    recorded = Recorded(terms, {name: sparse_update(terms, seed, blocks=1) for seed, name in enumerate(FOUR)})
    found = {True: set(), False: set()}
    for envelope, (place, row) in itertools.product(
        recorded.request.receipts, zip(recorded.sum.places, recorded.sum.ciphertexts, strict=True)
    ):
        signed = decode(envelope, Signed)
        shards = recorded.shards[signed.author]
        own = recorded.permutations.own(recorded.setup[signed.author].own[0], signed.author, 0)
        sent = own.forward(np.array([place]))[None]
        for salted in (True, False):
            shard = encode(Shards(shards.salt if salted else bytes(32), sent, row[None, None], shards.tag))
            if hashlib.sha256(shard).digest() == decode(signed.body, Receipt).body:
                found[salted].add(signed.author)
    assert found == {True: set(FOUR), False: set()}


def test_the_aggregator_sees_how_many_blocks_two_members_share():
    """What Theorem 8 does not mention, and the statement does."""
    terms = terms_of(dimension=240 * 15, block=15, capacity=8 * 15)
    updates = {name: sparse_update(terms, seed, blocks=8) for seed, name in enumerate(FOUR)}
    updates["bert"] = -updates["anna"]
    recorded = Recorded(terms, updates)
    blocks = {name: set((np.flatnonzero(update) // 15).tolist()) for name, update in updates.items()}
    for one, two in itertools.combinations(updates, 2):
        assert len(recorded.places(one) & recorded.places(two)) == len(blocks[one] & blocks[two])
    assert recorded.places("anna") == recorded.places("bert")
    assert "how many any two members share" in statement(terms).who_sees[AGGREGATOR]


def test_the_aggregator_cannot_read_which_blocks_were_withheld():
    terms = terms_of(minimum_per_position=2)
    recorded = Recorded(terms, {name: sparse_update(terms, seed, blocks=6) for seed, name in enumerate(FOUR)})
    setup = recorded.setup[AGGREGATOR]
    sealed = decode(decode(recorded.views[AGGREGATOR][-1], Signed).body, Answer).released
    purpose = b"released blocks of round 0"
    for secret in (setup.channel, *setup.own):
        with pytest.raises(MessageError):
            unseal(secret, sealed, purpose=purpose)
    assert len(unseal(recorded.setup["anna"].shared, sealed, purpose=purpose)) == 24 // 8


# Lemma 7


@pytest.mark.parametrize("known", ["phi", "phi^(n)"])
def test_lemma_7_one_permutation_is_not_enough(known):
    """D = 4, M = 2, exhaustively: all 12 index matrices remain, each for two of the 24 unknown permutations."""
    permutations = [SecretPermutation(np.array(image)) for image in itertools.permutations(range(4))]
    matrices = list(itertools.permutations(range(4), 2))
    for sent, one in itertools.product(matrices, permutations):
        images = np.array(sent)
        if known == "phi":
            candidates = [one.backward(other.backward(images)) for other in permutations]
        else:
            candidates = [other.backward(one.backward(images)) for other in permutations]
        assert Counter(tuple(candidate.tolist()) for candidate in candidates) == dict.fromkeys(matrices, 2)


def test_lemma_7_both_permutations_determine_the_indices():
    permutations = [SecretPermutation(np.array(image)) for image in itertools.permutations(range(4))]
    for indices, phi, own in itertools.product(itertools.permutations(range(4), 2), permutations, permutations):
        sent = own.forward(phi.forward(np.array(indices)))  # Eq. 7
        assert tuple(phi.backward(own.backward(sent)).tolist()) == indices  # Eq. 8, then phi


# What the aggregator and listeners can make of the places


def test_permutations_differ_by_secret_role_member_round_and_run():
    """Of 24 blocks; any two of these are the same with probability 1 in 10^23."""
    orders = set()
    for run, round, secret in itertools.product(("one", "two"), (0, 1), (b"a" * 32, b"b" * 32)):
        permutations = Listener(terms_of(run=run), seed=11).permutations
        several = permutations.shared(secret, round), *(permutations.own(secret, one, round) for one in FOUR)
        orders |= {tuple(one.forward(np.arange(24)).tolist()) for one in several}
    assert len(orders) == 2 * 2 * 2 * 5


def test_the_same_index_is_anywhere_in_every_round():
    listener = Listener(terms_of(dimension=16, capacity=1), seed=11)
    seen = Counter(place for _ in range(320) for place in listener.as_aggregator(np.array([5])))
    statistic = stats.chisquare([seen[place] for place in range(16)]).statistic
    assert statistic < stats.chi2.isf(FALSE_ALARM, df=15)


def test_padding_and_shards_are_random():
    """The claim of `decompose`: nothing but the number of shards depends on the update."""
    source = seeded_bytes(15)
    update = np.zeros(16, dtype=np.int64)
    update[3] = 1
    terms = terms_of(dimension=16, capacity=2)
    padding = Counter(
        int(block) for _ in range(1000) for block in decompose(update, layout_of(terms), source=source)[0].blocks
    )
    assert padding.pop(3) == 1000
    others = [padding[block] for block in range(16) if block != 3]
    assert stats.chisquare(others).statistic < stats.chi2.isf(FALSE_ALARM, df=14)
    # Three shards of six for thirteen changed blocks, so two of the sixteen stand in two: any two, anywhere.
    terms, update = terms_of(dimension=16, capacity=6), np.array([1] * 13 + [0] * 3)
    first, twice = Counter[int](), Counter[int]()
    for _ in range(800):
        shards = [shard.blocks.tolist() for shard in decompose(update, layout_of(terms), source=source)]
        first.update(shards[0])
        twice.update(set(shards[2]) & {*shards[0], *shards[1]})
    for counts in (first, twice):
        # Draws without replacement vary less than independent ones, so the rate is below the stated one.
        assert stats.chisquare([counts[block] for block in range(16)]).statistic < stats.chi2.isf(FALSE_ALARM, df=15)


def test_the_number_of_changed_blocks_does_not_show():
    """Lemma 3's remark. The number of shards does: one for up to M blocks, two for more."""
    listener = Listener(terms_of(), seed=14)
    sizes = {len(listener.contribution(np.arange(changed), unsealed=False)) for changed in range(7)}
    assert len(sizes) == 1
    assert len(listener.contribution(np.arange(7), unsealed=False)) > sizes.pop() + 6 * 256


# Statements


def long_terms(**changes):
    return terms_of(key_bits=3072, insecure=False, **changes)


def test_an_honest_run_is_proven_under_its_assumptions():
    said = statement(long_terms(block=12, capacity=12))
    assert said.status == "proven"
    assert said.guarantee == "cryptographic"
    assert "blocks of 12 weights under a 3072-bit key" in said.mechanism
    assert "fresh in every round" in said.mechanism
    assert set(said.who_sees) == {KEY_GENERATOR, AGGREGATOR, "members", "someone who intercepts a contribution"}
    assert "exact-blocks" in map(line_id, said.not_protected)
    assert statement(long_terms(), source=seeded_bytes(0)).status == "void"


def test_short_keys_prove_nothing():
    short = statement(terms_of())
    assert short.status == "unproven"
    assert line_id(short.not_protected[-1]) == "short-key"


@pytest.mark.parametrize(
    ("least", "open_ids"),
    [
        (1, {"single-blocks"}),
        (2, {"pair-blocks", "withheld-blocks", "forged-count", "forged-senders"}),
        (3, {"withheld-blocks", "forged-count", "forged-senders"}),
    ],
)
def test_what_is_left_open_depends_on_what_is_withheld(least, open_ids):
    said = statement(long_terms(minimum_per_position=least))
    of_blocks = {"single-blocks", "pair-blocks", "withheld-blocks", "forged-count", "forged-senders"}
    assert set(map(line_id, said.not_protected)) & of_blocks == open_ids
    assert ("how many members changed each block" in said.who_sees[KEY_GENERATOR]) == (least > 1)


def test_the_share_of_single_contributors_agrees_with_counting():
    rng = np.random.default_rng(0)
    counts = (rng.random((200_000, 5)) < 0.1).sum(axis=1)
    # Five standard errors of a share over some 80,000 changed blocks: false alarm below 1e-6.
    assert single_contributor_share(5, 0.1) == pytest.approx((counts == 1).sum() / (counts > 0).sum(), abs=0.008)


# Terms

BAD = {
    "members": [{"members": FOUR[:2]}, {"members": FOUR[:2], "minimum": 2}],
    "minimum": [{"minimum": 5}, {"minimum": 2}, {"sample": 3, "minimum": 4}, {"minimum_per_position": 5}],
    "sample": [{"sample": 2}, {"sample": 5}],
    "name": [{"members": (*FOUR, "anna")}, {"members": (*FOUR, AGGREGATOR)}, {"members": (*FOUR, "")}, {"run": ""}],
    "insecure": [{"insecure": False}],
    "3072": [{"key_bits": 512}],
    "dimension": [{"dimension": 0}, {"dimension": 2**24 + 1}],
    "slots": [{"block": 32}, {"block": 31, "minimum_per_position": 2}],
    "block must": [{"block": -1}],
    "capacity": [{"capacity": 25}, {"capacity": -1}],
    "too long": [{"dimension": 2**24, "capacity": 1}],
    "fraction_bits": [{"fraction_bits": 63}],
    "56 bits": [{"slot_bits": 64}],
    "8 bits": [{"slot_bits": 8, "members": tuple(map(str, range(200)))}],
    "sparsity": [{"sparsity": 1.0}, {"sparsity": -0.5}],
    "conservative": [{"keys": "short"}],
    "SHA-256": [{"config": b"short"}],
    "dphe": [{"scheme": "masks", "minimum_per_position": 2}, {"scheme": "dphee"}],
}


@pytest.mark.parametrize(("words", "changes"), [(words, change) for words in BAD for change in BAD[words]])
def test_terms_that_protect_nobody_or_cannot_work_are_refused(words, changes):
    with pytest.raises(InputError, match=words):
        terms_of(**changes)


def test_the_default_key_is_long():
    layout = layout_of(make_terms("dphe", run="r", members=FOUR, dimension=10, fraction_bits=20))
    assert (layout.options.key_bits, layout.capacity, layout.minimum_per_position) == (3072, 1, 2)
    # 95 slots of 32 bits fit a 3072-bit plaintext: 47 pairs of a weight and its count.
    assert layout.blocks_per_request == 47


def test_a_tenth_or_what_the_sparsity_leaves_fits_a_shard():
    for sparsity, capacity in ((0.9, 100), (0.7, 300), (0.29, 710), (0.9999, 1), (0.0, 1000)):
        assert layout_of(terms_of(dimension=1000, capacity=0, sparsity=sparsity)).capacity == capacity
