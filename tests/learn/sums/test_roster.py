"""A roster goes from one party to another as bytes and stays the same, or is refused."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError
from blindsight.learn.roster import Roster, _RosterMessage
from blindsight.learn.sumterms import SumTerms

NAMES = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), min_size=3, max_size=6, unique=True)


def roster_of(users, *, dimension=4, generator=True):
    parties = [*users, "aggregator", *["key generator"] * generator]
    terms = SumTerms(run="test", users=users, dimension=dimension, fraction_bits=8)
    return Roster(terms, {party: bytes([i]) * 32 for i, party in enumerate(parties)})


@given(NAMES, st.integers(1, 1 << 24), st.booleans())
@settings(max_examples=20)
def test_what_is_written_is_read_again(users, dimension, generator):
    roster = roster_of(tuple(users), dimension=dimension, generator=generator)
    again = Roster.from_bytes(roster.to_bytes())
    assert again.terms == roster.terms
    assert again.keys == roster.keys
    assert again.digest == roster.digest


def test_anything_else_is_refused():
    written = decode(roster_of(("ann", "bob", "cem")).to_bytes(), _RosterMessage)
    parties, keys = written.parties, written.keys
    assert parties == ("aggregator", "ann", "bob", "cem", "key generator")
    for wrong in (
        {"users": ("ann", "bob")},
        {"dimension": 0},
        {"parties": (*parties[:3], "dia", parties[4])},
        {"keys": (b"short", *keys[1:])},
        {"keys": ()},
        {"keys": (*keys, keys[0])},
        {"parties": parties[::-1], "keys": keys[::-1]},
        {"parties": (*parties, "ann"), "keys": (*keys, keys[1])},
    ):
        with pytest.raises(MessageError):
            Roster.from_bytes(encode(replace(written, **wrong)))
    with pytest.raises(MessageError):
        Roster.from_bytes(b"")
