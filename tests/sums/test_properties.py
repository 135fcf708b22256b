"""Properties of terms, rosters and of the code that checks sums, against Python's integers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.wire import decode, encode
from blindsight.errors import BlindsightError, InputError, MessageError
from blindsight.sums import OWN_SCHEMES, mac, make_terms
from blindsight.sums.messages import Roster, RosterMessage, model_digest
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, Terms
from tests.sums.runs import terms_of

NAMES = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), min_size=3, max_size=9, unique=True)
INT64 = st.integers(-(2**62), 2**62)
SMALL = st.integers(-(2**31), 2**31 - 1)


@st.composite
def drawn_terms(draw):
    """Any terms that can be."""
    scheme, members = draw(st.sampled_from(OWN_SCHEMES)), tuple(draw(NAMES))
    dimension = draw(st.integers(1, 2000))
    settings = {
        "run": draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)),
        "members": members,
        "dimension": dimension,
        "fraction_bits": draw(st.integers(0, 30)),
        "slot_bits": draw(st.sampled_from([16, 24, 32, 40])),
        "sample": draw(st.sampled_from([0, 3, len(members)])),
        "absences": draw(st.integers(-1, 50)),
        "config": draw(st.sampled_from([b"", bytes(32)])),
    }
    if scheme in ("dphe", "block-dphe"):
        settings |= {
            "capacity": draw(st.integers(1, dimension)),
            "minimum_per_position": draw(st.integers(1, 3)),
            "key_bits": draw(st.sampled_from([2048, 3072])),
            "keys": draw(st.sampled_from(["subgroup", "conservative"])),
            "block": draw(st.integers(0, 20)),
        }
    return make_terms(scheme, **settings)


@given(drawn_terms(), st.data())
@settings(max_examples=40)
def test_terms_go_from_one_party_to_another_as_bytes_and_stay_the_same(terms, data):
    again = Terms.from_bytes(terms.to_bytes())
    assert again == terms
    assert again.digest == terms.digest
    assert all(getattr(again, field.name) == getattr(terms, field.name) for field in Terms._schema)
    round = data.draw(st.integers(0, 1 << 40))
    asked = terms.sampled(round)
    assert asked == again.sampled(round)
    assert list(asked) == sorted(set(asked))
    assert set(asked) <= set(terms.members)
    assert len(asked) == terms.asked >= terms.needed >= terms.minimum
    place = data.draw(st.integers(0, len(terms.to_bytes()) - 1))
    changed = bytearray(terms.to_bytes())
    changed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MessageError):
        Terms.from_bytes(bytes(changed))


@given(drawn_terms(), st.data())
@settings(max_examples=40)
def test_residues_tell_all_sums_apart(terms, data):
    most = terms.max_integer
    rows = data.draw(st.lists(st.integers(-most, most), min_size=len(terms.members), max_size=len(terms.members)))
    whole = sum(terms.residues(np.full(terms.dimension, row)) for row in rows)
    assert terms.read_sums(whole.tobytes(), len(rows)).tolist() == [sum(rows)] * terms.dimension
    with pytest.raises(InputError, match="beyond"):
        terms.checked(np.full(terms.dimension, most + 1))
    with pytest.raises(MessageError):
        terms.read_sums(whole.tobytes() + b"\0", len(rows))


def test_groups_of_masks_are_of_at_least_fifty_and_change():
    for count in (99, 100, 149, 150, 500):
        terms = terms_of("masks", members=tuple(f"m{i:03d}" for i in range(count)))
        for round in range(3):
            groups = terms.groups(round)
            assert sorted(name for group in groups for name in group) == sorted(terms.members)
            assert len(groups) == (1 if count < 100 else count // 50)
            assert max(map(len, groups)) - min(map(len, groups)) <= 1
        assert (terms.groups(0) != terms.groups(1)) == (count >= 100)


# Rosters


@given(NAMES, st.booleans(), st.integers(0, 5))
@settings(max_examples=20)
def test_what_a_roster_says_is_read_again(members, keyed, generation):
    terms = terms_of("bfv" if keyed else "masks", members=tuple(members))
    parties = [*members, AGGREGATOR, *[KEY_GENERATOR] * keyed]
    roster = Roster(terms, {party: bytes([i]) * 32 for i, party in enumerate(parties)}, b"k" * 32, generation)
    again = Roster.from_bytes(roster.to_bytes(), expected=terms)
    assert (again.keys, again.digest, again.generation) == (roster.keys, roster.digest, generation)
    written = decode(roster.to_bytes(), RosterMessage)
    for wrong in (
        {"terms": replace(terms, dimension=3).to_bytes()},
        {"keys": (b"short", *written.keys[1:])},
        {"keys": ()},
        {"keys": (*written.keys, written.keys[0])},
        {"keys": (b"", *written.keys[1:])},
    ):
        with pytest.raises(BlindsightError):
            Roster.from_bytes(encode(replace(written, **wrong)), expected=terms)


@given(st.lists(st.binary(max_size=20), max_size=4), st.lists(st.binary(max_size=20), max_size=4))
def test_models_that_differ_have_different_digests(one, two):
    assert (model_digest(one) == model_digest(two)) == (one == two)
    assert len(model_digest(one)) == (32 if one else 0)


# The code that checks sums: the oracle counts in Python's integers


def oracle(values, shared, offset, context):
    factors = mac._stream(shared, b"factors of " + context, len(values)).tolist()
    own = int(mac._stream(offset, b"offset of " + context, 1)[0])
    return (sum((r & mac.PRIME) * v for r, v in zip(factors, values, strict=True)) + (own & mac.PRIME)) % mac.PRIME


vectors = st.one_of(
    st.lists(SMALL, max_size=40),
    st.lists(INT64, max_size=40),
    st.sampled_from([[2**62] * 100, [-(2**62)] * 100, [2**31] * 33, [-(2**31)] * 33, [2**31 - 1, -(2**31) - 1]]),
)


@given(vectors, st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32), st.integers(0, 9))
@settings(max_examples=150)
def test_a_tag_is_what_integers_give(values, shared, offset, round):
    context = mac.context_of(b"run", round)
    found = mac.tag(np.array(values, dtype=np.int64), shared=shared, offset=offset, context=context)
    assert found == oracle(values, shared, offset, context)
    assert 0 <= found < mac.PRIME


def test_a_tag_of_many_values_is_what_integers_give():
    rng = np.random.default_rng(0)
    for size in (1 << 14, (1 << 14) + 1, 50_000):
        for bound in (2**31, 2**56):
            values = rng.integers(-bound, bound, size)
            given = {"shared": b"s" * 32, "offset": b"o" * 32, "context": b"c"}
            assert mac.tag(values, **given) == oracle(values.tolist(), *given.values())


@given(st.data())
@settings(max_examples=40)
def test_the_sum_of_tags_fits_the_sum_and_nothing_else(data):
    members, size = data.draw(st.integers(3, 6)), data.draw(st.integers(1, 12))
    rows = np.array(
        data.draw(st.lists(st.lists(SMALL, min_size=size, max_size=size), min_size=members, max_size=members))
    )
    shared, context = b"s" * 32, mac.context_of(b"run", data.draw(st.integers(0, 99)))
    offsets = [bytes([i]) * 32 for i in range(members)]
    tags = [
        mac.tag(row, shared=shared, offset=offset, context=context) for row, offset in zip(rows, offsets, strict=True)
    ]

    def matches(values, total, **changes):
        return mac.matches(values, total, **{"shared": shared, "offsets": offsets, "context": context} | changes)

    whole = rows.sum(axis=0)
    assert matches(whole, sum(tags))
    assert matches(whole, sum(tags) % mac.PRIME)
    assert not matches(whole, sum(tags) + 1)
    assert not matches(whole, sum(tags), offsets=offsets[1:])  # a member that is not named
    assert not matches(whole, sum(tags), offsets=[*offsets, offsets[0]])  # one that is named twice
    assert not matches(whole, sum(tags), context=mac.context_of(b"run", 100))
    assert matches(whole, sum(tags), shared=b"x" * 32) != whole.any()
    place, amount = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, 2**40))
    other = whole.copy()
    other[place] += amount
    assert not matches(other, sum(tags))
    assert not matches(rows[0], tags[0])  # one contribution for the sum
    if (2 * whole != whole).any():
        assert not matches(2 * whole, 2 * sum(tags))
