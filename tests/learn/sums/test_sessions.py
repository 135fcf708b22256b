"""One signature, five schemes: the same sum bit for bit, the same refusals, honest statements and costs."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.learn.aggregation import SCHEMES, SPARSE_SCHEMES, open_session
from blindsight.rng import science, seeded_bytes

USERS = ("ann", "bob", "cem", "dia", "eve")
SIZE, BITS = 40, 20
LIMIT = ((2**31 - 1) // 5) / 2**BITS  # the largest weight that five users may add


def opened(scheme, **options):
    options = {"users": USERS, "dimension": SIZE, "fraction_bits": BITS, "key_bits": 1024, "insecure": True} | options
    return open_session(scheme, **options)


class Endless:
    """A session, and the number of its next round."""

    def __init__(self, session):
        self.session, self.number = session, 0

    def round(self, updates):
        self.number += 1
        return self.session.round(updates, self.number)


@pytest.fixture(scope="module")
def sessions():
    return {scheme: Endless(opened(scheme)) for scheme in SCHEMES}


@pytest.fixture(scope="module")
def updates():
    generator = science(0)
    return {user: np.where(generator.random(SIZE) < 0.2, generator.normal(size=SIZE), 0) for user in USERS}


def exact_sum(updates):
    """The oracle: fractions, rounded half to even by Python."""
    columns = zip(*(update.tolist() for update in updates), strict=True)
    return [sum(round(Fraction(weight) * 2**BITS) for weight in column) for column in columns]


weights = st.one_of(
    st.just(0.0),
    st.sampled_from([LIMIT, -LIMIT, 2.0**-BITS, -(2.0**-BITS), 2.0 ** -(BITS + 1), 1.5 * 2.0**-BITS]),
    st.floats(-LIMIT, LIMIT),
)


@given(st.data())
@settings(max_examples=6)
def test_all_schemes_give_the_same_sum_bit_for_bit(sessions, data):
    present = data.draw(st.permutations(USERS))[: data.draw(st.integers(3, 5))]
    drawn = {}
    for user in present:
        places = data.draw(st.dictionaries(st.integers(0, SIZE - 1), weights, max_size=8))
        drawn[user] = np.zeros(SIZE)
        drawn[user][list(places)] = list(places.values())
    truth = exact_sum(drawn.values())
    for scheme, session in sessions.items():
        if len(present) < session.session.needed:
            assert scheme == "masks"
            continue
        result = session.round(drawn)
        assert result.total.tolist() == truth, scheme
        assert result.total.dtype == np.int64
        assert result.contributors == tuple(sorted(present))
        assert np.array_equal(result.values, np.array(truth) / 2**BITS)
        assert np.array_equal(result.average, np.array(truth) / 2**BITS / len(present))
        assert result.withheld.size == 0
        assert result.refused == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_dense_updates_and_users_with_nothing_to_say(sessions, scheme):
    generator = science(1)
    dense = {user: generator.normal(size=SIZE) for user in USERS}
    dense["bob"] = np.zeros(SIZE)
    assert sessions[scheme].round(dense).total.tolist() == exact_sum(dense.values())


# Bad input


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_is_sent_if_one_update_cannot_be_added(sessions, updates, scheme, monkeypatch):
    sent = []
    monkeypatch.setattr(sessions[scheme].session, "_transit", lambda *message: sent.append(message) or [message[2]])
    for bad in (np.nan, np.inf, 1e300, LIMIT * 1.001):
        spoilt = updates | {"cem": updates["cem"].copy()}
        spoilt["cem"][7] = bad
        with pytest.raises(InputError, match=r"'cem'.* 7 "):
            sessions[scheme].round(spoilt)
    assert sent == []
    sessions[scheme].round(updates)
    assert sent


@pytest.mark.parametrize("scheme", SCHEMES)
def test_wrong_rounds_are_refused(sessions, updates, scheme):
    session = sessions[scheme]
    with pytest.raises(PrivacyError, match="2 users"):
        session.round({user: updates[user] for user in USERS[:2]})
    for wrong in (np.zeros(SIZE + 1), ["many"] * SIZE):
        with pytest.raises(InputError, match="'dia'"):
            session.round(updates | {"dia": wrong})
    with pytest.raises(UnknownNameError, match=r"'anna'.*'ann'"):
        session.round(updates | {"anna": np.zeros(SIZE)})
    session.round(updates)
    with pytest.raises(InputError, match=f"round {session.number}"):
        session.session.round(updates, session.number)


BAD = {
    "'dphe'": [{"scheme": "dphee"}],
    "users": [{"users": USERS[:2]}, {"slot_bits": 8, "users": tuple(map(str, range(200)))}],
    "name": [{"users": ("ann", "ann", "bob")}, {"users": ("ann", "bob", "aggregator")}],
    "bits": [{"insecure": False}, {"key_bits": 512}, {"fraction_bits": 63}, {"slot_bits": 31}],
    "minimum": [{"minimum": 2}, {"scheme": "masks", "minimum_per_position": 2}],
    "dimension": [{"dimension": 0}],
    "capacity": [{"capacity": SIZE + 1}, {"capacity": 0}],
    "BFV": [{"scheme": "bfv", "slot_bits": 64}],
}


@pytest.mark.parametrize(("words", "options"), [(words, options) for words in BAD for options in BAD[words]])
def test_sessions_that_cannot_be_are_refused(words, options):
    with pytest.raises(InputError, match=words):
        opened(**{"scheme": "block-dphe"} | options)


def test_the_default_is_block_dphe_with_a_key_of_3072_bits():
    session = open_session(users=USERS, dimension=1000, source=seeded_bytes(3))
    assert session.scheme == "block-dphe"
    assert session.block == 95
    assert "3072-bit key" in session.statement().mechanism


# Drop-outs and spoilt messages


@pytest.mark.parametrize("scheme", SCHEMES)
def test_users_that_drop_out_are_left_out_and_come_back(sessions, updates, scheme):
    least = sessions[scheme].session.needed
    assert least == (4 if scheme == "masks" else 3)
    for present in (USERS, USERS[:least], USERS[-least:], USERS[1 : least + 1], USERS):
        result = sessions[scheme].round({user: updates[user] for user in present})
        assert result.contributors == present
        assert result.total.tolist() == exact_sum(updates[user] for user in present)


def test_masks_lose_a_round_in_which_more_than_a_third_drop_out_and_go_on_with_the_rest():
    users, lost = tuple("abcdefg"), set("efg")
    session = opened("masks", users=users, transit=lambda sender, _, blob: [] if sender in lost else [blob])
    updates = {user: np.full(SIZE, float(i)) for i, user in enumerate(users)}
    with pytest.raises(PrivacyError, match="4 users; it needs 5"):
        session.round(updates, 0)
    with pytest.raises(PrivacyError, match="4 users; a sum needs 5"):
        session.round({user: updates[user] for user in users[:4]}, 1)
    lost.remove("e")
    five = {user: updates[user] for user in users[:5]}
    assert session.round(five, 2).total.tolist() == exact_sum(five.values())


def flipped(message):
    middle = len(message) // 2
    return [message[:middle] + bytes([message[middle] ^ 1]) + message[middle + 1 :]]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spoilt_contributions_are_refused_and_the_rest_is_added(updates, scheme):
    ways = {"changed": flipped, "cut": lambda message: [message[:50]], "lost": lambda message: []}
    way = []

    def transit(sender, receiver, message):
        return ways[way[-1]](message) if (sender, receiver) == ("bob", "aggregator") else [message]

    session, others = opened(scheme, transit=transit), [user for user in USERS if user != "bob"]
    for number, name in enumerate(ways):
        way.append(name)
        result = session.round(updates, number)
        assert result.contributors == tuple(others)
        assert result.total.tolist() == exact_sum(updates[user] for user in others)
        assert ("bob" in result.refused) == (name != "lost")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_messages_that_come_twice_or_again_count_once(updates, scheme):
    earlier = []

    def echo(sender, receiver, message):
        before = earlier[-12:] if receiver == "aggregator" else []
        earlier.append(message)
        return [message, message, *before]

    session = opened(scheme, transit=echo)
    for number in range(2):
        assert session.round(updates, number).total.tolist() == exact_sum(updates.values())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_round_without_enough_intact_messages_fails_and_says_why(updates, scheme):
    broken = {"bob", "cem", "dia"}

    def transit(sender, receiver, message):
        return flipped(message) if sender in broken and receiver == "aggregator" else [message]

    session = opened(scheme, transit=transit)
    with pytest.raises(PrivacyError, match="2 users") as caught:
        session.round(updates, 0)
    assert {note.split(":")[0] for note in caught.value.__notes__} == {f"Refused from {user}" for user in broken}
    broken.clear()
    assert session.round(updates, 1).total.tolist() == exact_sum(updates.values())


@pytest.mark.parametrize("scheme", ["dphe", "block-dphe", "bfv"])
@pytest.mark.parametrize("sender", ["aggregator", "key generator"])
def test_a_spoilt_request_or_answer_fails_the_round_and_not_the_run(updates, scheme, sender):
    broken = {sender}

    def transit(author, receiver, message):
        return flipped(message) if author in broken else [message]

    session = opened(scheme, transit=transit)
    with pytest.raises(MessageError, match="lost or refused"):
        session.round(updates, 0)
    broken.clear()
    assert session.round(updates, 1).total.tolist() == exact_sum(updates.values())


def test_masks_recover_from_users_lost_at_every_step():
    updates = {user: np.full(SIZE, float(i)) for i, user in enumerate(USERS)}
    for lost in range(4):  # dia sends so many messages and is gone
        sent = []

        def transit(author, receiver, message, lost=lost, sent=sent):
            if author != "dia":
                return [message]
            sent.append(message)
            return [message] if len(sent) <= lost else []

        result = opened("masks", transit=transit).round(updates, 0)
        expected = [user for user in USERS if user != "dia" or lost == 3]
        assert result.contributors == tuple(expected)
        assert result.total.tolist() == exact_sum(updates[user] for user in expected)


# Sparse schemes


@pytest.mark.parametrize(("scheme", "capacity", "shards"), [("dphe", 4, 3), ("dphe", 40, 1), ("block-dphe", 1, 2)])
def test_an_update_beyond_the_capacity_takes_several_shards(scheme, capacity, shards):
    updates = {user: np.zeros(SIZE) for user in USERS}
    updates["ann"][:6], updates["ann"][-6:] = 1.0, -1.0  # 12 weights, in the first and the last of two blocks
    session = opened(scheme, capacity=capacity)
    result = session.round(updates, 0)
    assert result.total.tolist() == exact_sum(updates.values())
    assert result.cost.ciphertexts("ann") == shards * capacity
    assert result.cost.ciphertexts("bob") == capacity  # padding hides that bob has nothing


@pytest.mark.parametrize("scheme", SPARSE_SCHEMES)
def test_positions_that_too_few_changed_are_withheld(scheme):
    size = 90
    session = opened(scheme, dimension=size, minimum_per_position=2)
    assert session.block == (1 if scheme == "dphe" else 30)  # one of 31 slots counts
    updates = {user: np.zeros(size) for user in USERS}
    updates["ann"][[0, 40]] = 1.5
    updates["bob"][0] = -0.5
    result = session.round(updates, 0)
    revealed = np.flatnonzero(np.arange(size) // session.block == 0)
    assert np.array_equal(result.withheld, np.setdiff1d(np.arange(size), revealed))
    assert np.flatnonzero(result.total).tolist() == [0]
    assert result.values[0] == 1.0


# Statements, views and costs


@pytest.mark.parametrize("scheme", SCHEMES)
def test_statements_say_what_is_true(scheme):
    secure = open_session(scheme, users=USERS, dimension=SIZE, key_bits=2048).statement()
    assert secure.guarantee == ("none" if scheme == "plain" else "cryptographic")
    assert secure.status == ("unproven" if scheme == "plain" else "proven")
    assert secure.epsilon is None
    assert "aggregator" in secure.who_sees
    assert ("key generator" in secure.who_sees) == (scheme not in ("plain", "masks"))
    if scheme != "plain":
        assert any("not differentially private" in line for line in secure.not_protected)
        assert any("semi-honest" in line for line in secure.assumptions)
        assert opened(scheme, source=seeded_bytes(1)).statement().void


@pytest.mark.parametrize("scheme", SPARSE_SCHEMES)
def test_a_short_key_guarantees_nothing(scheme):
    assert opened(scheme).statement().guarantee == "none"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_aggregator_sees_no_update_unless_it_is_plain(scheme):
    views = {}
    session = opened(scheme, record=lambda party, message: views.setdefault(party, []).append(message))
    updates = {user: np.full(SIZE, 1.0 + i) + np.arange(SIZE) / 64 for i, user in enumerate(USERS)}
    session.round(updates, 0)
    seen = b"".join(views["aggregator"])
    pairs = [
        np.round(update[i : i + 2] * 2**BITS).astype(kind).tobytes()
        for update in updates.values()
        for i in range(SIZE - 1)
        for kind in ("<i4", "<i8", ">i4")
    ]
    assert any(pair in seen for pair in pairs) == (scheme == "plain")
    assert set(views) >= {*USERS, "aggregator"}
    assert ("key generator" in views) == (scheme not in ("plain", "masks"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_costs_are_those_of_the_messages_that_were_sent(updates, scheme):
    sent = []

    def transit(sender, receiver, message):
        sent.append((sender, receiver, message))
        return [message]

    session = opened(scheme, transit=transit)
    cost = session.round(updates, 0).cost
    for party in (*USERS, "aggregator", "key generator"):
        assert cost.sent(party) == sum(len(message) for sender, _, message in sent if sender == party)
        assert cost.received(party) == sum(len(message) for _, receiver, message in sent if receiver == party)
    for user in USERS:
        assert cost.seconds("encrypt", party=user) > 0
        assert cost.seconds("read", party=user) > 0
    assert cost.seconds("aggregate", party="aggregator") > 0
    assert (cost.ciphertexts("ann") > 0) == (scheme in ("dphe", "block-dphe", "bfv"))
    keyed = scheme not in ("plain", "masks")
    assert (cost.seconds("decrypt", party="key generator") > 0) == keyed
    assert (cost.ciphertexts("aggregator") > 0) == keyed
    assert (session.setup_cost.seconds(party="key generator") > 0) == keyed
