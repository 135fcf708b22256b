"""One signature, five schemes: the same sum bit for bit, the same refusals, honest statements and costs."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError, PrivacyError, StorageError, UnknownNameError
from blindsight.rng import science, seeded_bytes
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums import SPARSE_SCHEMES, Aggregator, UnansweredError, open_session
from blindsight.sums.dphe import layout_of
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.sums.runs import KEYED, NAMES, Run

SIZE, BITS = 40, 20
LIMIT = ((2**31 - 1) // 5) / 2**BITS  # the largest weight that five members may add


def opened(scheme, **options):
    options = {"members": NAMES, "dimension": SIZE, "fraction_bits": BITS, "key_bits": 1024, "insecure": True} | options
    if scheme in SPARSE_SCHEMES:
        options = {"minimum_per_position": 1} | options
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
    return {name: np.where(generator.random(SIZE) < 0.2, generator.normal(size=SIZE), 0) for name in NAMES}


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
    present = data.draw(st.permutations(NAMES))[: data.draw(st.integers(3, 5))]
    drawn = {}
    for name in present:
        places = data.draw(st.dictionaries(st.integers(0, SIZE - 1), weights, max_size=8))
        drawn[name] = np.zeros(SIZE)
        drawn[name][list(places)] = list(places.values())
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
def test_dense_updates_and_members_with_nothing_to_say(sessions, scheme):
    generator = science(1)
    dense = {name: generator.normal(size=SIZE) for name in NAMES}
    dense["bob"] = np.zeros(SIZE)
    assert sessions[scheme].round(dense).total.tolist() == exact_sum(dense.values())


# Bad input


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_is_sent_if_one_update_cannot_be_added(sessions, updates, scheme, monkeypatch):
    sent = []
    monkeypatch.setattr(sessions[scheme].session, "_transit", lambda *message: sent.append(message) or [message[3]])
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
    with pytest.raises(PrivacyError, match="2 members"):
        session.round({name: updates[name] for name in NAMES[:2]})
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
    "members": [{"members": NAMES[:2]}, {"slot_bits": 8, "members": tuple(map(str, range(200)))}],
    "name": [{"members": ("ann", "ann", "bob")}, {"members": ("ann", "bob", AGGREGATOR)}],
    "bits": [{"insecure": False}, {"key_bits": 512}, {"fraction_bits": 63}, {"slot_bits": 31}],
    "minimum": [{"minimum": 2}, {"scheme": "masks", "minimum_per_position": 2}],
    "dimension": [{"dimension": 0}],
    "capacity": [{"capacity": SIZE + 1}, {"capacity": -1}],
    "56 bits": [{"scheme": "bfv", "slot_bits": 64}],
}


@pytest.mark.parametrize(("words", "options"), [(words, options) for words in BAD for options in BAD[words]])
def test_sessions_that_cannot_be_are_refused(words, options):
    with pytest.raises(InputError, match=words):
        opened(**{"scheme": "block-dphe"} | options)


def test_the_defaults():
    session = open_session(members=NAMES, dimension=1000)
    assert session.scheme == "masks"
    sparse = open_session("block-dphe", members=NAMES, dimension=1000, source=seeded_bytes(3))
    layout = layout_of(sparse.terms)
    assert (layout.options.key_bits, layout.minimum_per_position, layout.capacity) == (3072, 3, 100)
    assert sparse.block == 94
    four = open_session("dphe", members=NAMES[:4], dimension=9, key_bits=1024, insecure=True)
    assert layout_of(four.terms).minimum_per_position == 2


# Drop-outs and spoilt messages


@pytest.mark.parametrize("scheme", SCHEMES)
def test_members_that_drop_out_are_left_out_and_come_back(sessions, updates, scheme):
    least = sessions[scheme].session.needed
    assert least == (4 if scheme == "masks" else 3)
    for present in (NAMES, NAMES[:least], NAMES[-least:], NAMES[1 : least + 1], NAMES):
        result = sessions[scheme].round({name: updates[name] for name in present})
        assert result.contributors == present
        assert result.total.tolist() == exact_sum(updates[name] for name in present)


def flipped(message):
    middle = len(message) // 2
    return message[:middle] + bytes([message[middle] ^ 1]) + message[middle + 1 :]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spoilt_contributions_are_refused_and_the_rest_is_added(updates, scheme):
    ways = {"changed": lambda blob: [(flipped(blob),)], "cut": lambda blob: [(blob[:50],)], "lost": lambda blob: []}
    way = []

    def transit(sender, receiver, kind, parts):
        return ways[way[-1]](parts[0]) if (sender, kind) == ("bob", CONTRIBUTE) else [parts]

    session, others = opened(scheme, transit=transit), [name for name in NAMES if name != "bob"]
    for number, name in enumerate(ways):
        way.append(name)
        result = session.round(updates, number)
        assert result.contributors == tuple(others)
        assert result.total.tolist() == exact_sum(updates[name] for name in others)
        assert ("bob" in result.refused) == (name != "lost")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_messages_that_come_twice_or_again_count_once(updates, scheme):
    earlier = []

    def echo(sender, receiver, kind, parts):
        before = earlier[-12:] if receiver == AGGREGATOR else []
        earlier.append(parts)
        return [parts, parts, *before]

    session = opened(scheme, transit=echo)
    for number in range(2):
        assert session.round(updates, number).total.tolist() == exact_sum(updates.values())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_round_without_enough_intact_messages_fails_and_says_why(updates, scheme):
    broken = {"bob", "cem", "dia"}

    def transit(sender, receiver, kind, parts):
        return [(flipped(parts[0]),)] if sender in broken else [parts]

    session = opened(scheme, transit=transit)
    with pytest.raises(PrivacyError, match="2 members") as caught:
        session.round(updates, 0)
    assert {note.split(":")[0] for note in caught.value.__notes__} == {f"Refused from {name}" for name in broken}
    broken.clear()
    assert session.round(updates, 1).total.tolist() == exact_sum(updates.values())


@pytest.mark.parametrize("scheme", KEYED)
@pytest.mark.parametrize("sender", [AGGREGATOR, KEY_GENERATOR])
def test_a_spoilt_request_or_answer_fails_the_round_and_not_the_run(updates, scheme, sender):
    broken = {sender}

    def transit(author, receiver, kind, parts):
        return [(flipped(parts[0]),)] if author in broken and kind == "open" else [parts]

    session = opened(scheme, transit=transit)
    with pytest.raises(UnansweredError, match="not opened"):
        session.round(updates, 0)
    broken.clear()
    assert session.round(updates, 1).total.tolist() == exact_sum(updates.values())


def test_masks_recover_from_members_lost_at_every_step():
    updates = {name: np.full(SIZE, float(i)) for i, name in enumerate(NAMES)}
    for lost in range(5):  # dia sends so many messages and is gone
        sent = []

        def transit(sender, receiver, kind, parts, lost=lost, sent=sent):
            if sender != "dia":
                return [parts]
            sent.append(parts)
            return [parts] if len(sent) <= lost else []

        result = opened("masks", transit=transit).round(updates, 0)
        expected = [name for name in NAMES if name != "dia" or lost >= 3]
        assert result.contributors == tuple(expected)
        assert result.total.tolist() == exact_sum(updates[name] for name in expected)


# Sparse schemes


@pytest.mark.parametrize(("scheme", "capacity", "shards"), [("dphe", 4, 3), ("dphe", 40, 1), ("block-dphe", 1, 2)])
def test_an_update_beyond_the_capacity_takes_several_shards(scheme, capacity, shards):
    updates = {name: np.zeros(SIZE) for name in NAMES}
    updates["ann"][:6], updates["ann"][-6:] = 1.0, -1.0  # 12 weights, in the first and the last of two blocks
    result = opened(scheme, capacity=capacity).round(updates, 0)
    assert result.total.tolist() == exact_sum(updates.values())
    assert result.cost.ciphertexts("ann") == shards * capacity + 1  # and the tag
    assert result.cost.ciphertexts("bob") == capacity + 1  # padding hides that bob has nothing


@pytest.mark.parametrize("scheme", SPARSE_SCHEMES)
def test_positions_that_too_few_changed_are_withheld(scheme):
    size = 90
    session = opened(scheme, dimension=size, minimum_per_position=2)
    assert session.block == (1 if scheme == "dphe" else 30)  # one of 31 slots counts
    updates = {name: np.zeros(size) for name in NAMES}
    updates["ann"][[0, 40]] = 1.5
    updates["bob"][0] = -0.5
    result = session.round(updates, 0)
    revealed = np.flatnonzero(np.arange(size) // session.block == 0)
    assert np.array_equal(result.withheld, np.setdiff1d(np.arange(size), revealed))
    assert np.flatnonzero(result.total).tolist() == [0]
    assert result.values[0] == 1.0


# BFV


def test_several_ciphertexts_add_up_exactly():
    run = Run("bfv", dimension=5000)
    np.testing.assert_array_equal(run.play(0), run.sum())
    assert run.aggregator.ciphertexts["ann"] == 2


@pytest.mark.parametrize("slot_bits", [8, 16, 24, 40])
def test_every_width_holds_extreme_sums_and_their_tags(slot_bits):
    for scheme in ("bfv", "dphe", "masks"):
        run = Run(scheme, dimension=3, capacity=3, slot_bits=slot_bits) if scheme == "dphe" else Run(
            scheme, dimension=3, slot_bits=slot_bits
        )  # fmt: skip
        limit = run.terms.max_integer
        run.updates = {name: np.array([limit, -limit, 0]) for name in NAMES}
        assert run.play(0).tolist() == [5 * limit, -5 * limit, 0]


def test_a_state_too_long_to_be_read_again_is_not_written(tmp_path, monkeypatch):
    run = Run("bfv", tmp_path / "roles")
    run.begin(0)
    ann, before = run.role("ann"), run.path("ann").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("blindsight.sums.messages.MAX_BYTES", len(before) + 1000)
        with pytest.raises(StorageError, match="too long"):
            run.ask("ann", role=ann)
    assert run.path("ann").read_bytes() == before
    assert run.ask("ann", role=ann) == run.ask("ann")


def test_loading_takes_memory_for_few_contributions_however_many_there_are(tmp_path):
    run = Run("bfv", tmp_path / "roles", dimension=12000)
    run.begin(0)
    aggregator, journal, peaks = run.role(AGGREGATOR), run.path(AGGREGATOR), {}
    for count, name in enumerate(NAMES, start=1):
        reply = run.ask(name)
        aggregator.receive(reply)
        if count in (2, 5):
            tracemalloc.start()
            try:
                assert len(Aggregator.load(journal).contributors) == count
                peaks[count] = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
    assert journal.stat().st_size > 5 * len(reply)
    assert peaks[5] < peaks[2] + len(reply) / 2


def test_without_a_path_a_member_keeps_the_round_and_not_a_long_reply():
    run = Run("plain", dimension=1 << 16)
    run.begin(0)
    run.ask("ann")
    with pytest.raises(PrivacyError, match="round 0"):
        run.ask("ann")


# Statements, views and costs


@pytest.mark.parametrize("scheme", SCHEMES)
def test_statements_say_what_is_true(scheme):
    secure = open_session(scheme, members=NAMES, dimension=SIZE, key_bits=2048).statement()
    assert secure.guarantee == ("none" if scheme == "plain" else "cryptographic")
    assert secure.status == ("unproven" if scheme == "plain" else "proven")
    assert secure.epsilon is None
    assert AGGREGATOR in secure.who_sees
    assert (KEY_GENERATOR in secure.who_sees) == (scheme in KEYED)
    if scheme != "plain":
        assert any("not differentially private" in line for line in secure.not_protected)
        assert any("difference of two rounds" in line for line in secure.not_protected)
        assert any("may lie, forge, lose and repeat" in line for line in secure.assumptions)
        assert opened(scheme, source=seeded_bytes(1)).statement().void
    if scheme in SPARSE_SCHEMES:
        assert opened(scheme).statement().guarantee == "none"  # short keys


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_aggregator_sees_no_update_unless_it_is_plain(scheme):
    views = {}
    session = opened(scheme, record=lambda party, message: views.setdefault(party, []).append(message))
    updates = {name: np.full(SIZE, 1.0 + i) + np.arange(SIZE) / 64 for i, name in enumerate(NAMES)}
    session.round(updates, 0)
    seen = b"".join(views[AGGREGATOR])
    pairs = [
        np.round(update[i : i + 2] * 2**BITS).astype(kind).tobytes()
        for update in updates.values()
        for i in range(SIZE - 1)
        for kind in ("<i4", "<i8", ">i4")
    ]
    assert any(pair in seen for pair in pairs) == (scheme == "plain")
    assert set(views) >= {*NAMES, AGGREGATOR}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_costs_are_those_of_the_messages_that_were_sent(updates, scheme):
    sent = []

    def transit(sender, receiver, kind, parts):
        sent.append((sender, receiver, sum(map(len, parts))))
        return [parts]

    session = opened(scheme, transit=transit)
    cost = session.round(updates, 0).cost
    for party in (*NAMES, KEY_GENERATOR):
        assert cost.sent(party) == sum(size for sender, _, size in sent if sender == party)
    assert cost.received(AGGREGATOR) == sum(size for _, receiver, size in sent if receiver == AGGREGATOR)
    for name in NAMES:
        assert cost.received(name) > sum(size for _, receiver, size in sent if receiver == name)  # and the answer
        assert cost.seconds("encrypt", party=name) > 0
        assert cost.seconds("read", party=name) > 0
    assert cost.seconds("aggregate", party=AGGREGATOR) > 0
    keyed = scheme in KEYED
    assert (cost.ciphertexts("ann") > 0) == keyed
    assert (cost.seconds("decrypt", party=KEY_GENERATOR) > 0) == keyed
    assert (cost.ciphertexts(AGGREGATOR) > 0) == keyed


def test_a_brief_answer_settles_without_the_sums():
    session = open_session("masks", members=NAMES, dimension=3)
    for number, zero in enumerate((False, True)):
        session.aggregator.open(number)
        update = np.zeros(3, dtype=np.int64) if zero else np.array([1, -2, 3])
        while session.aggregator.step:
            for name, call in session.aggregator.calls().items():
                given = update if session.aggregator.step == "contribute" else None
                session.aggregator.receive(session.members[name].answer(call, given))
            session.aggregator.advance()
        answer, total = session.aggregator.conclude()
        brief = session.aggregator.brief(answer)
        assert (brief == answer) == zero
        outcome = session.members[NAMES[0]].settle(brief, number)
        assert outcome.members == total.members
        assert outcome.entered.all()
        assert outcome.integers.size == (3 if zero else 0)
