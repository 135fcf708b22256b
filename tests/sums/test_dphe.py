"""DPHE: shards and what each role sees, the claims of the paper's security evaluation, both ways.

A claim is tested where it holds, and the attack is carried out where it fails: with permutations reused over rounds,
with a single permutation, with one ciphertext of zero for all places. Statistical tests state their false-alarm rate;
their randomness is seeded, so that they give the same verdict every time.
"""

import hashlib
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight.crypto.permutation import SecretPermutation
from blindsight.crypto.sealedbox import unseal
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.rng import seeded_bytes
from blindsight.sums import KeyGenerator, RefusedError, Session, Terms, statement
from blindsight.sums.dphe import Permutations, Shards, SparseSum, decompose
from blindsight.sums.messages import Answer, Receipt, Reply, Request, Setup
from blindsight.sums.roles import body_purpose
from blindsight.sums.scheme import Resources
from blindsight.sums.statements import single_contributor_share
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.keys import paillier_key
from tests.sums.runs import Run

FALSE_ALARM = 1e-6
FOUR = ("anna", "bert", "cleo", "dora")


def terms_of(**changes):
    """Terms of a small run of single weights, or of blocks of so many."""
    settings = {"run": "test", "members": FOUR, "dimension": 24, "capacity": 6, "fraction_bits": 8}
    settings |= {"key_bits": 1024, "insecure": True, "scheme": "block-dphe" if changes.get("block", 1) > 1 else "dphe"}
    return Terms(**settings | changes)


def sparse_update(terms, seed, *, blocks):
    """An update that changes every weight of so many blocks."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((terms.blocks, terms.slots), dtype=np.int64)
    changed = rng.choice(terms.blocks, blocks, replace=False)
    rows[changed] = rng.integers(1, terms.max_integer, (blocks, terms.slots)) * rng.choice([-1, 1], (blocks, 1))
    return rows.ravel()[: terms.dimension]


# Sums and shards


@st.composite
def runs(draw):
    """Draw terms, and updates of three or more of the members."""
    members = (*FOUR, "emil")[: draw(st.integers(3, 5))]
    published = draw(st.booleans())
    slots, counted = (1, 1) if published else (draw(st.sampled_from([1, 2, 5, 30])), draw(st.integers(1, 3)))
    dimension = draw(st.integers(1, 40))
    terms = terms_of(
        members=members,
        dimension=dimension,
        block=slots,
        capacity=draw(st.integers(1, dimension)),
        minimum_per_position=counted,
        permutations=draw(st.sampled_from(["single", "double"])),
        decrypt="all" if published else draw(st.sampled_from(["touched", "all"])),
        as_published=published,
    )
    weights = st.one_of(st.just(0), st.just(0), st.integers(-terms.max_integer, terms.max_integer))
    update = st.lists(weights, min_size=dimension, max_size=dimension).map(np.array)
    present = members[: draw(st.integers(3, len(members)))]
    return terms, {name: draw(update) for name in present}


def expected_sum(terms, updates):
    """The same by brute force: the sum, and where enough members changed the block (one is always enough)."""
    total, enough = np.zeros(terms.dimension, dtype=np.int64), np.ones(terms.dimension, dtype=bool)
    for start in range(0, terms.dimension, terms.slots):
        part = slice(start, start + terms.slots)
        changed = sum(bool(update[part].any()) for update in updates.values())
        enough[part] = terms.minimum_per_position == 1 or changed >= terms.minimum_per_position
        total[part] = sum(update[part] for update in updates.values())
    return np.where(enough, total, 0), enough


@settings(max_examples=15)
@given(drawn=runs())
def test_the_answer_is_the_plain_sum(drawn):
    terms, updates = drawn
    session = Session(terms, key=paillier_key())
    result = session.round({name: terms.values(update) for name, update in updates.items()}, 0)
    total, enough = expected_sum(terms, updates)
    assert result.contributors == tuple(sorted(updates))
    np.testing.assert_array_equal(result.total, total)
    np.testing.assert_array_equal(result.withheld, np.flatnonzero(~enough))


@settings(max_examples=30)
@given(drawn=runs())
def test_shards_are_full_distinct_and_add_up_to_the_update(drawn):
    terms, updates = drawn
    for update in updates.values():
        shards = decompose(update, terms)
        rows = np.zeros((terms.blocks, terms.packing.slots), dtype=np.int64)
        for shard in shards:
            assert shard.blocks.size == len(shard.plaintexts) == terms.room == np.unique(shard.blocks).size
            rows[shard.blocks] += terms.packing.unpack(shard.plaintexts, rows[shard.blocks].size).reshape(
                terms.room, -1
            )
        changed = sum(bool(update[i : i + terms.slots].any()) for i in range(0, terms.dimension, terms.slots))
        assert len(shards) == max(1, -(-changed // terms.room))
        np.testing.assert_array_equal(rows[:, : terms.slots].ravel()[: terms.dimension], update)  # Eq. 3
        if terms.counting:
            assert rows[:, -1].sum() == changed
        places = np.concatenate([shard.blocks for shard in shards])
        assert np.unique(places).size == min(places.size, terms.blocks)


def test_little_is_left_to_decrypt():
    """Single weights are packed by the aggregator: 24 of them take one decryption, blocks of 16 take one each."""
    for changes, ciphertexts in (({"capacity": 24}, 1), ({"block": 16, "capacity": 17}, 2)):
        terms = terms_of(**changes)
        result = Session(terms, key=paillier_key()).round(dict.fromkeys(FOUR, np.ones(24)), 0)
        assert result.cost.ciphertexts(AGGREGATOR) == ciphertexts + 1  # and the tag
        assert terms.blocks_per_request == 31 // terms.slots


def test_both_kinds_of_keys_give_the_same_sum_and_a_key_of_another_kind_is_refused():
    updates = {name: np.full(24, i / 2) for i, name in enumerate(FOUR)}
    for keys in ("subgroup", "conservative"):
        terms = terms_of(keys=keys)
        session = Session(terms, key=paillier_key(keys=keys))
        assert session.round(updates, 0).values.tolist() == [3.0] * 24
        assert any("subgroup" in line for line in statement(terms).assumptions) == (keys == "subgroup")
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


class Recorded:
    """A session whose parties record what they receive, played for one round."""

    def __init__(self, terms, updates):
        self.terms, self.updates = terms, updates
        self.views = {name: [] for name in (KEY_GENERATOR, AGGREGATOR, *terms.members)}
        self.wire = []
        self.session = Session(
            terms, key=paillier_key(), record=lambda party, message: self.views[party].append(message),
            transit=self.listen,
        )  # fmt: skip
        self.setup = {party: decode(view[0], Setup) for party, view in self.views.items() if party != KEY_GENERATOR}
        self.result = self.session.round({name: terms.values(update) for name, update in updates.items()}, 0)
        self.replies = {}
        for message in self.views[AGGREGATOR][1:-1]:
            reply = decode(message, Reply)
            self.replies[decode(reply.receipt, Signed).author] = reply
        self.shards = {name: decode(reply.body, Shards) for name, reply in self.replies.items()}
        self.request = decode(self.views[KEY_GENERATOR][-1], Request)
        self.sum = decode(self.request.body, SparseSum)
        self.permutations = Permutations(self.session.aggregator.roster)

    def listen(self, sender, receiver, kind, parts):
        self.wire += parts
        return [parts]

    def places(self, name):
        """phi K, with the secret that the aggregator was given (Eq. 8)."""
        secret = dict(zip(self.terms.members, self.setup[AGGREGATOR].own, strict=True))[name]
        return set(self.permutations.own(secret, name, 0).backward(self.shards[name].places.ravel()).tolist())


@pytest.fixture(scope="module", params=[1, 15, 31])
def recorded(request):
    """Runs with 240 blocks of so many weights (31 fill a plaintext), played to the end."""
    terms = terms_of(dimension=240 * request.param, block=request.param, capacity=8 * request.param)
    return Recorded(terms, {name: sparse_update(terms, seed, blocks=8) for seed, name in enumerate(terms.members)})


def plain_traces(update, terms):
    """What would be found in a message that shows the update: its values, its packed blocks, its list of indices."""
    rows = update.reshape(-1, terms.slots)
    packed = terms.packing.pack(update, terms=1)
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
    assert len(recorded.sum.ciphertexts) == -(-recorded.sum.places.size // recorded.terms.blocks_per_request)
    assert len(recorded.sum.tag) == 1


def test_a_listener_cannot_recognise_contributions_in_the_sum(recorded):
    """Where one member alone contributed to a full block, the sum is its ciphertext; the wire must not show it."""
    ciphertexts = [
        row.tobytes() for shards in recorded.shards.values() for row in (*shards.ciphertexts[0], *shards.tag)
    ]
    assert not any(ciphertext in blob for ciphertext in ciphertexts for blob in recorded.wire)
    if recorded.terms.slots == 31:
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


@pytest.mark.parametrize("published", [True, False])
def test_one_ciphertext_of_zero_shows_the_union_of_supports_and_fresh_ones_do_not(published):
    changes = {"as_published": True} if published else {"block": 31, "dimension": 24 * 31, "capacity": 6 * 31}
    terms = terms_of(decrypt="all", **changes)
    recorded = Recorded(terms, {name: sparse_update(terms, seed, blocks=6) for seed, name in enumerate(FOUR)})
    union = set[int]().union(*map(recorded.places, FOUR))
    rows = [row.tobytes() for row in recorded.sum.ciphertexts]
    assert len(rows) == 24 > len(union)
    (most_frequent, times), *_ = Counter(rows).most_common(1)
    if published:
        assert {place for place, row in enumerate(rows) if row != most_frequent} == union
    else:
        assert times == 1


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


class Listener:
    """Everything on the wire between one member and the aggregator, for rounds that need not be finished."""

    def __init__(self, terms, seed):
        self.terms, resources = terms, Resources(source=seeded_bytes(seed))
        self.session = Session(terms, key=paillier_key(), resources=resources)
        self.setup = {party: decode(setup, Setup) for party, setup in self.session.generator.setup().items()}
        self.permutations, self.round = Permutations(self.session.aggregator.roster), -1

    def contribution(self, blocks, *, unsealed=True):
        """Let the member change exactly these blocks in the next round."""
        update = np.zeros(self.terms.dimension, dtype=np.int64)
        update[blocks] = 1
        self.round += 1
        self.session.aggregator.open(self.round)
        call = self.session.aggregator.calls(only=["anna"])["anna"]
        reply = self.session.members["anna"].answer(call, update)
        if not unsealed:
            return reply
        body = decode(reply, Reply).body
        if not self.terms.as_published:
            body = unseal(self.setup["anna"].own[0], body, purpose=body_purpose("anna", (self.round, 0)))
        return decode(body, Shards).places[0]

    def as_aggregator(self, blocks):
        """phi K: what the aggregator knows."""
        sent = self.contribution(blocks)
        return set(self.permutations.own(self.setup[AGGREGATOR].own[0], "anna", self.round).backward(sent).tolist())

    def as_another_member(self, blocks):
        """What a member finds who gets at the places and undoes phi, which all members know."""
        sent = self.contribution(blocks)
        return set(self.permutations.shared(self.setup["bert"].shared, self.round).backward(sent).tolist())


def overlap_is_chance(overlaps, size, blocks):
    """Whether overlaps of independent random sets would be like these in all but FALSE_ALARM of the cases."""
    single = stats.hypergeom(blocks, size, size)
    deviation = (sum(overlaps) - len(overlaps) * single.mean()) / np.sqrt(len(overlaps) * single.var())
    return bool(abs(deviation) < stats.norm.isf(FALSE_ALARM / 2))


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
    padding = Counter(int(block) for _ in range(1000) for block in decompose(update, terms, source=source)[0].blocks)
    assert padding.pop(3) == 1000
    others = [padding[block] for block in range(16) if block != 3]
    assert stats.chisquare(others).statistic < stats.chi2.isf(FALSE_ALARM, df=14)
    # Three shards of six for thirteen changed blocks, so two of the sixteen stand in two: any two, anywhere.
    terms, update = terms_of(dimension=16, capacity=6), np.array([1] * 13 + [0] * 3)
    first, twice = Counter[int](), Counter[int]()
    for _ in range(800):
        shards = [shard.blocks.tolist() for shard in decompose(update, terms, source=source)]
        first.update(shards[0])
        twice.update(set(shards[2]) & {*shards[0], *shards[1]})
    for counts in (first, twice):
        # Draws without replacement vary less than independent ones, so the rate is below the stated one.
        assert stats.chisquare([counts[block] for block in range(16)]).statistic < stats.chi2.isf(FALSE_ALARM, df=15)


@pytest.mark.parametrize("reused", [True, False])
def test_reused_permutations_link_a_support_over_rounds_and_fresh_ones_do_not(reused):
    """The aggregator guesses, from what it knows, whether a member's support changed from one round to the next."""
    changes = {"as_published": True, "decrypt": "all"} if reused else {}
    listener = Listener(terms_of(dimension=64, capacity=4, **changes), seed=12)
    rng = np.random.default_rng(0)
    overlaps, right, games = [], 0, 60
    for _ in range(games):
        first, other = rng.choice(64, 4, replace=False), rng.choice(64, 4, replace=False)
        same = rng.random() < 0.5
        before, after = listener.as_aggregator(first), listener.as_aggregator(first if same else other)
        overlaps += [len(before & after)] * same
        right += (len(before & after) > 2) == same
    if reused:
        assert right == games
        assert set(overlaps) == {4}
    else:
        assert right <= stats.binom.isf(FALSE_ALARM, games, 0.5)
        assert overlap_is_chance(overlaps, 4, 64)


@pytest.mark.parametrize("permutations", ["single", "double"])
def test_a_member_who_intercepts_reads_single_permutations_and_not_double_ones(permutations):
    """Section 2.4, with the seal undone."""
    listener = Listener(terms_of(dimension=64, capacity=4, permutations=permutations), seed=13)
    rng = np.random.default_rng(0)
    supports = [rng.choice(64, 4, replace=False) for _ in range(60)]
    overlaps = [len(listener.as_another_member(blocks) & set(blocks.tolist())) for blocks in supports]
    if permutations == "single":
        assert set(overlaps) == {4}
    else:
        assert overlap_is_chance(overlaps, 4, 64)


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
    assert any("not differentially private" in line for line in said.not_protected)
    assert statement(long_terms(), source=seeded_bytes(0)).status == "void"


def test_the_published_scheme_and_short_keys_prove_nothing():
    published = statement(long_terms(as_published=True, decrypt="all"))
    assert published.status == "unproven"
    assert published.claim is not None
    assert "one permutation serves all rounds" in str(published.claim.why_it_fails)
    assert "the same in every round" in published.mechanism
    short = statement(terms_of())
    assert short.status == "unproven"
    assert "factor 1024 bits" in short.not_protected[-1]


@pytest.mark.parametrize(
    ("least", "sentence"),
    [(1, "where one member alone changed a weight"), (2, "where two members changed"), (3, "key generator still")],
)
def test_why_the_theorem_fails_depends_on_what_is_withheld(least, sentence):
    said = statement(long_terms(minimum_per_position=least))
    assert said.claim is not None
    assert sentence in str(said.claim.why_it_fails)
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
    "slots": [{"block": 32}, {"block": 31, "minimum_per_position": 2}, {"block": -1}],
    "capacity": [{"capacity": 25}, {"capacity": 0}],
    "too long": [{"dimension": 2**20, "as_published": True, "decrypt": "all"}],
    "fraction_bits": [{"fraction_bits": 63}],
    "56 bits": [{"slot_bits": 64}],
    "8 bits": [{"slot_bits": 8, "members": tuple(map(str, range(200)))}],
    "single": [{"permutations": "triple"}],
    "touched": [{"decrypt": "none"}],
    "conservative": [{"keys": "short"}],
    "published": [{"as_published": True}, {"as_published": True, "decrypt": "all", "block": 2}],
    "SHA-256": [{"config": b"short"}],
    "dphe": [{"scheme": "masks", "minimum_per_position": 2}, {"scheme": "dphee"}],
}


@pytest.mark.parametrize(("words", "changes"), [(words, change) for words in BAD for change in BAD[words]])
def test_terms_that_protect_nobody_or_cannot_work_are_refused(words, changes):
    with pytest.raises(InputError, match=words):
        terms_of(**changes)


def test_the_default_key_is_long():
    terms = Terms(scheme="dphe", run="r", members=FOUR, dimension=10, capacity=2, fraction_bits=20)
    assert terms.key_bits == 3072
    # 95 slots of 32 bits fit a 3072-bit plaintext: 47 pairs of a weight and its count.
    assert replace(terms, minimum_per_position=2).blocks_per_request == 47
