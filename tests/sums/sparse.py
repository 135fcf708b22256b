"""Runs of sparse schemes, those of the papers included, and what each of their parties can see."""

import numpy as np
from hypothesis import strategies as st
from scipy import stats

from blindsight.crypto.sealedbox import unseal
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode
from blindsight.rng import seeded_bytes
from blindsight.sums import Session, make_terms
from blindsight.sums.dphe import Shards, SparseSum, layout_of
from blindsight.sums.messages import Reply, Request, Setup
from blindsight.sums.roles import body_purpose
from blindsight.sums.scheme import Resources
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.keys import paillier_key

FALSE_ALARM = 1e-6
FOUR = ("anna", "bert", "cleo", "dora")


def terms_of(scheme="", **changes):
    """Terms of a small run of single weights, or of blocks of so many."""
    scheme = scheme or ("block-dphe" if changes.get("block", 1) > 1 else "dphe")
    settings = {"run": "test", "members": FOUR, "dimension": 24, "capacity": 6, "fraction_bits": 8, "absences": -1}
    settings |= {"key_bits": 1024, "insecure": True, "minimum_per_position": 1}
    return make_terms(scheme, **settings | changes)


def sparse_update(terms, seed, *, blocks):
    """An update that changes every weight of so many blocks."""
    rng, layout = np.random.default_rng(seed), layout_of(terms)
    rows = np.zeros((layout.blocks, layout.slots), dtype=np.int64)
    changed = rng.choice(layout.blocks, blocks, replace=False)
    rows[changed] = rng.integers(1, terms.max_integer, (blocks, layout.slots)) * rng.choice([-1, 1], (blocks, 1))
    return rows.ravel()[: terms.dimension]


@st.composite
def runs(draw, schemes=("dphe", "block-dphe"), *, published=False):
    """Draw terms, and updates of three or more of the members."""
    members = (*FOUR, "emil")[: draw(st.integers(3, 5))]
    dimension = draw(st.integers(1, 40))
    options = {"capacity": draw(st.integers(1, dimension))}
    if published:
        options |= {"single": draw(st.booleans())}
    else:
        options |= {"block": draw(st.sampled_from([1, 2, 5, 30])), "minimum_per_position": draw(st.integers(1, 3))}
    terms = terms_of(draw(st.sampled_from(schemes)), members=members, dimension=dimension, **options)
    weights = st.one_of(st.just(0), st.just(0), st.integers(-terms.max_integer, terms.max_integer))
    update = st.lists(weights, min_size=dimension, max_size=dimension).map(np.array)
    present = members[: draw(st.integers(3, len(members)))]
    return terms, {name: draw(update) for name in present}


def check_sum(terms, updates):
    """Play a round and compare its sum, and what of it was withheld, with those by brute force."""
    session, layout = Session(terms, key=paillier_key()), layout_of(terms)
    result = session.round({name: terms.values(update) for name, update in updates.items()}, 0)
    total, enough = np.zeros(terms.dimension, dtype=np.int64), np.ones(terms.dimension, dtype=bool)
    for start in range(0, terms.dimension, layout.slots):
        part = slice(start, start + layout.slots)
        changed = sum(bool(update[part].any()) for update in updates.values())
        enough[part] = layout.minimum_per_position == 1 or changed >= layout.minimum_per_position
        total[part] = sum(update[part] for update in updates.values())
    assert result.contributors == tuple(sorted(updates))
    np.testing.assert_array_equal(result.total, np.where(enough, total, 0))
    np.testing.assert_array_equal(result.withheld, np.flatnonzero(~enough))


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
        self.permutations = layout_of(terms).permutations(self.session.aggregator.roster)

    def listen(self, sender, receiver, kind, parts):
        self.wire += parts
        return [parts]

    def places(self, name):
        """phi K, with the secret that the aggregator was given (Eq. 8)."""
        secret = dict(zip(self.terms.members, self.setup[AGGREGATOR].own, strict=True))[name]
        return set(self.permutations.own(secret, name, 0).backward(self.shards[name].places.ravel()).tolist())


class Listener:
    """Everything on the wire between one member and the aggregator, for rounds that need not be finished."""

    def __init__(self, terms, seed):
        self.terms, resources = terms, Resources(source=seeded_bytes(seed))
        self.session = Session(terms, key=paillier_key(), resources=resources)
        self.setup = {party: decode(setup, Setup) for party, setup in self.session.generator.setup().items()}
        self.permutations, self.round = layout_of(terms).permutations(self.session.aggregator.roster), -1

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
        if self.terms.traits.sealed:
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
