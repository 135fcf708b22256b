"""What each role sees: the claims of the paper's security evaluation, both ways.

A claim is tested where it holds, and the attack is carried out where it fails: with permutations reused over rounds,
with a single permutation, with one ciphertext of zero for all places. Statistical tests state their false-alarm rate;
their randomness is seeded, so that they give the same verdict every time.
"""

import hashlib
import itertools
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from blindsight.crypto.permutation import SecretPermutation
from blindsight.crypto.sealedbox import unseal
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError
from blindsight.learn.dphe import Aggregator, KeyGenerator, Parties, User, set_up
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.decomposition import decompose
from blindsight.learn.dphe.local import introduce
from blindsight.learn.dphe.messages import AggregatorSetup, Answer, Contribution, Receipt, Request, Shard, UserSetup
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.rng import seeded_bytes

FALSE_ALARM = 1e-6


class Recorded:
    """A run whose roles record what they receive."""

    def __init__(self, terms, key):
        self.terms = terms
        self.views = {name: [] for name in ("generator", "aggregator", *terms.users)}
        generator = KeyGenerator(terms, key=key, record=self.views["generator"].append)
        users = {name: User(name, terms, record=self.views[name].append) for name in terms.users}
        aggregator = Aggregator(terms, record=self.views["aggregator"].append)
        introduce(generator, users, aggregator)
        self.parties = Parties(generator, users, aggregator)

    def play(self, updates):
        """Play round 0 to its end and return what went over the wire from the aggregator to the key generator."""
        answer = self.parties.sum(updates, 0)
        self.parties.aggregator.read(answer)
        for user in self.parties.users.values():
            user.read(answer, 0)
        return self.parties.aggregator.close()


@pytest.fixture(scope="module", params=[1, 15, 31])
def recorded(request, make_terms, key, sparse_update):
    """Runs with 240 blocks of so many weights (31 fill a plaintext), played to the end."""
    recorded = Recorded(make_terms(dimension=240 * request.param, slots=request.param, capacity=8), key)
    users = recorded.terms.users
    recorded.updates = {name: sparse_update(recorded.terms, seed, blocks=8) for seed, name in enumerate(users)}
    recorded.wire = recorded.play(recorded.updates)
    return recorded


@pytest.fixture
def updates(recorded):
    return recorded.updates


def plain_traces(update, terms):
    """What would be found in a message that shows the update: its values, its packed blocks, its list of indices."""
    rows = update.reshape(-1, terms.slots)
    packed = terms.packing.pack(update, terms=1)
    traces = [value.tobytes() for value in update[update != 0]]
    traces += [number.to_bytes(200, "little", signed=True)[:8] for number in packed if number]
    traces += [number.to_bytes(200, "big", signed=True)[-8:] for number in packed if number]
    return [*traces, np.flatnonzero(rows.any(axis=1)).tobytes(), np.flatnonzero(update).tobytes()]


def test_the_aggregator_receives_no_plaintext_and_no_plain_index(recorded, updates):
    """Theorem 8, for what comes from the users. The answer holds the sum, which is meant to be seen."""
    *view, answer = recorded.views["aggregator"]
    assert len(view) == 1 + len(updates)
    seen = b"".join(view)
    for update in updates.values():
        for trace in plain_traces(update, recorded.terms):
            assert trace not in seen
    # The search does find what is there: the sum's values in the answer.
    total = sum(updates.values())
    assert all(value.tobytes() in answer for value in total[total != 0])


def test_the_key_generator_receives_no_contribution(recorded, updates):
    """Section 2.5: it 'does not access v and K'. It gets enrolments and the sum, and knows who contributed."""
    *enrolments, request = recorded.views["generator"]
    assert len(enrolments) == len(updates)
    message = decode(request, Request)
    assert {decode(envelope, Signed).author for envelope in message.receipts} == set(updates)
    for contribution in recorded.views["aggregator"][1:-1]:
        assert decode(contribution, Contribution).shard not in request
    # All it can decrypt is the sum.
    assert len(message.ciphertexts) == -(-message.places.size // recorded.terms.blocks_per_request)


def test_a_listener_cannot_recognise_contributions_in_the_sum(recorded, updates):
    """Where one user alone contributed to a full block, the sum is its ciphertext; the wire must not show it."""
    wire = recorded.wire
    ciphertexts = [
        row.tobytes()
        for contribution in recorded.views["aggregator"][1:-1]
        for row in decode(decode(contribution, Contribution).shard, Shard).ciphertexts
    ]
    assert not any(ciphertext in wire for ciphertext in ciphertexts)
    if recorded.terms.slots == 31:
        assert any(ciphertext in recorded.views["generator"][-1] for ciphertext in ciphertexts)


def test_secrets_go_to_those_who_may_know_them(recorded, updates):
    """Section 4: phi to the users only, phi^(n) to user n and the aggregator, the private key to none of them."""
    messages, key = recorded.parties.generator.setup(), recorded.parties.generator._key
    setups = {name: decode(messages[name], UserSetup) for name in updates}
    channel = decode(messages[AGGREGATOR], AggregatorSetup).channel_secret
    views = {name: b"".join(view) for name, view in recorded.views.items()}
    assert setups["anna"].shared_secret not in views["aggregator"]
    assert channel in views["aggregator"]
    for name, setup in setups.items():
        holders = {role for role, view in views.items() if setup.own_secret in view}
        assert holders == {name, "aggregator"}
        assert setup.shared_secret in views[name]
        assert channel not in views[name]
    for prime in (key._p, key._q):
        assert not any(int(prime).to_bytes(64, order) in view for view in views.values() for order in ("big", "little"))


def test_receipts_do_not_tell_whose_a_ciphertext_is(make_terms, key, sparse_update):
    """The key generator rebuilds shards of one block from the sum; without their salt the digests match nobody's."""
    recorded = Recorded(make_terms(dimension=240 * 31, slots=31, capacity=1), key)
    terms, setups = recorded.terms, recorded.parties.generator.setup()
    recorded.play({name: sparse_update(terms, seed, blocks=1) for seed, name in enumerate(terms.users)})
    request = decode(recorded.views["generator"][-1], Request)
    salts = {
        decode(message.receipt, Signed).author: decode(message.shard, Shard).salt
        for message in (decode(blob, Contribution) for blob in recorded.views["aggregator"][1:-1])
    }
    found = {True: set(), False: set()}
    for envelope, (place, row) in itertools.product(
        request.receipts, zip(request.places, request.ciphertexts, strict=True)
    ):
        signed = decode(envelope, Signed)
        setup = decode(setups[signed.author], UserSetup)
        agreement = Agreement.from_bytes(setup.agreement, expected=terms)
        sent = agreement.own_permutation(setup.own_secret, signed.author, 0).forward(np.array([place]))
        for salted in (True, False):
            shard = encode(Shard(salts[signed.author] if salted else bytes(32), sent, row[None]))
            if hashlib.sha256(shard).digest() == decode(signed.body, Receipt).body:
                found[salted].add(signed.author)
    assert found == {True: set(terms.users), False: set()}


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
    """Everything on the wire between one user and the aggregator, for rounds that need not be finished."""

    def __init__(self, terms, key, seed):
        self.terms = terms
        parties = set_up(terms, key=key, source=seeded_bytes(seed))
        self.user, self.setups = parties.users["anna"], parties.generator.setup()

    def contribution(self, blocks, round):
        """Let the user change exactly these blocks."""
        update = np.zeros(self.terms.dimension, dtype=np.int64)
        update[blocks] = 1
        (message,) = self.user.contribute_integers(update, round)
        return message

    def as_aggregator(self, blocks, round):
        """phi K: what the aggregator knows."""
        message = self.contribution(blocks, round)
        return set(aggregator_places(self.setups[AGGREGATOR], self.terms, message, "anna", round).tolist())

    def as_another_user(self, blocks, round):
        """What a user finds who intercepts the message and undoes phi, which all users know."""
        setup = decode(self.setups["bert"], UserSetup)
        agreement = Agreement.from_bytes(setup.agreement, expected=self.terms)
        sent = decode(decode(self.contribution(blocks, round), Contribution).shard, Shard).places
        return set(agreement.shared_permutation(setup.shared_secret, round).backward(sent).tolist())


def aggregator_places(setup, terms, contribution, user, round):
    """Undo phi^(n) with the secret that the aggregator was given (Eq. 8)."""
    message = decode(setup, AggregatorSetup)
    agreement = Agreement.from_bytes(message.agreement, expected=terms)
    secret = dict(zip(terms.users, message.own_secrets, strict=True))[user]
    sent = decode(decode(contribution, Contribution).shard, Shard).places
    return agreement.own_permutation(secret, user, round).backward(sent)


def overlap_is_chance(overlaps, size, blocks):
    """Whether overlaps of independent random sets would be like these in all but FALSE_ALARM of the cases."""
    single = stats.hypergeom(blocks, size, size)
    deviation = (sum(overlaps) - len(overlaps) * single.mean()) / np.sqrt(len(overlaps) * single.var())
    return bool(abs(deviation) < stats.norm.isf(FALSE_ALARM / 2))


def test_the_same_index_is_anywhere_in_every_round(make_terms, key):
    listener = Listener(make_terms(dimension=16, capacity=1), key, seed=11)
    seen = Counter(place for round in range(320) for place in listener.as_aggregator(np.array([5]), round))
    statistic = stats.chisquare([seen[place] for place in range(16)]).statistic
    assert statistic < stats.chi2.isf(FALSE_ALARM, df=15)


def test_padding_and_shards_are_random(make_terms):
    """The claim in `decomposition`: nothing but the number of shards depends on the update."""
    source = seeded_bytes(15)
    update = np.zeros(16, dtype=np.int64)
    update[3] = 1
    terms = make_terms(dimension=16, capacity=2)
    padding = Counter(int(block) for _ in range(1000) for block in decompose(update, terms, source=source)[0].blocks)
    assert padding.pop(3) == 1000
    others = [padding[block] for block in range(16) if block != 3]
    assert stats.chisquare(others).statistic < stats.chi2.isf(FALSE_ALARM, df=14)
    # Three shards of six for thirteen changed blocks, so two of the sixteen stand in two: any two, anywhere.
    terms, update = make_terms(dimension=16, capacity=6), np.array([1] * 13 + [0] * 3)
    first, twice = Counter[int](), Counter[int]()
    for _ in range(800):
        shards = [shard.blocks.tolist() for shard in decompose(update, terms, source=source)]
        first.update(shards[0])
        twice.update(set(shards[2]) & {*shards[0], *shards[1]})
    for counts in (first, twice):
        # Draws without replacement vary less than independent ones, so the rate is below the stated one.
        assert stats.chisquare([counts[block] for block in range(16)]).statistic < stats.chi2.isf(FALSE_ALARM, df=15)


@pytest.mark.parametrize("reused", [True, False])
def test_reused_permutations_link_a_support_over_rounds_and_fresh_ones_do_not(make_terms, key, reused):
    """The aggregator guesses, from what it knows, whether a user's support changed from one round to the next."""
    changes = {"as_published": True, "decrypt": "all"} if reused else {}
    listener = Listener(make_terms(dimension=64, capacity=4, **changes), key, seed=12)
    rng = np.random.default_rng(0)
    overlaps, right, games = [], 0, 60
    for game in range(games):
        first, other = rng.choice(64, 4, replace=False), rng.choice(64, 4, replace=False)
        same = rng.random() < 0.5
        before = listener.as_aggregator(first, 2 * game)
        after = listener.as_aggregator(first if same else other, 2 * game + 1)
        overlaps += [len(before & after)] * same
        right += (len(before & after) > 2) == same
    if reused:
        assert right == games
        assert set(overlaps) == {4}
    else:
        assert right <= stats.binom.isf(FALSE_ALARM, games, 0.5)
        assert overlap_is_chance(overlaps, 4, 64)


@pytest.mark.parametrize("permutations", ["single", "double"])
def test_a_user_who_intercepts_reads_single_permutations_and_not_double_ones(make_terms, key, permutations):
    """Section 2.4."""
    listener = Listener(make_terms(dimension=64, capacity=4, permutations=permutations), key, seed=13)
    rng = np.random.default_rng(0)
    supports = [rng.choice(64, 4, replace=False) for _ in range(60)]
    overlaps = [
        len(listener.as_another_user(blocks, round) & set(blocks.tolist())) for round, blocks in enumerate(supports)
    ]
    if permutations == "single":
        assert set(overlaps) == {4}
    else:
        assert overlap_is_chance(overlaps, 4, 64)


def test_the_number_of_changed_blocks_does_not_show(make_terms, key):
    """Lemma 3's remark. The number of shards does: one for up to M blocks, two for more."""
    listener = Listener(make_terms(), key, seed=14)
    sizes = {len(listener.contribution(np.arange(changed), changed)) for changed in range(7)}
    assert len(sizes) == 1
    update = np.zeros(24, dtype=np.int64)
    update[:7] = 1
    assert [len(message) for message in listener.user.contribute_integers(update, 7)] == [*sizes] * 2


def test_the_aggregator_sees_how_many_blocks_two_users_share(make_terms, key, sparse_update):
    """What Theorem 8 does not mention, and the statement does."""
    recorded = Recorded(make_terms(dimension=240 * 15, slots=15, capacity=8), key)
    updates = {name: sparse_update(recorded.terms, seed, blocks=8) for seed, name in enumerate(recorded.terms.users)}
    updates["bert"] = -updates["anna"]
    recorded.play(updates)
    setup, *contributions, _ = recorded.views["aggregator"]
    places = {
        name: set(aggregator_places(setup, recorded.terms, message, name, 0).tolist())
        for name, message in zip(updates, contributions, strict=True)
    }
    blocks = {name: set((np.flatnonzero(update) // recorded.terms.slots).tolist()) for name, update in updates.items()}
    for one, two in itertools.combinations(updates, 2):
        assert len(places[one] & places[two]) == len(blocks[one] & blocks[two])
    assert places["anna"] == places["bert"]


@pytest.mark.parametrize("published", [True, False])
def test_one_ciphertext_of_zero_shows_the_union_of_supports_and_fresh_ones_do_not(
    make_terms, key, sparse_update, published
):
    changes = {"as_published": True} if published else {"slots": 31, "dimension": 24 * 31}
    recorded = Recorded(make_terms(decrypt="all", **changes), key)
    terms = recorded.terms
    recorded.play({name: sparse_update(terms, seed, blocks=6) for seed, name in enumerate(terms.users)})
    setup, *contributions, _ = recorded.views["aggregator"]
    union = set[int]().union(
        *[
            aggregator_places(setup, terms, message, name, 0).tolist()
            for name, message in zip(terms.users, contributions, strict=True)
        ]
    )
    rows = [row.tobytes() for row in decode(recorded.views["generator"][-1], Request).ciphertexts]
    assert len(rows) == 24 > len(union)
    (most_frequent, times), *_ = Counter(rows).most_common(1)
    if published:
        assert {place for place, row in enumerate(rows) if row != most_frequent} == union
    else:
        assert times == 1


def test_the_aggregator_cannot_read_which_blocks_were_withheld(make_terms, key, sparse_update):
    recorded = Recorded(make_terms(min_per_block=2), key)
    terms = recorded.terms
    recorded.play({name: sparse_update(terms, seed, blocks=6) for seed, name in enumerate(terms.users)})
    setup = decode(recorded.views["aggregator"][0], AggregatorSetup)
    sealed = decode(decode(recorded.views["aggregator"][-1], Signed).body, Answer).released
    purpose = b"released blocks of round 0"
    for secret in (setup.channel_secret, *setup.own_secrets):
        with pytest.raises(MessageError):
            unseal(secret, sealed, purpose=purpose)
    shared = decode(recorded.views["anna"][0], UserSetup).shared_secret
    assert len(unseal(shared, sealed, purpose=purpose)) == 24 // 8
