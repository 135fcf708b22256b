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
@settings(max_examples=50)
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
    wrong = {
        "a run has 3 to 1024 users; got 2": replace(written, users=("ann", "bob")),
        "dimension must be in": replace(written, dimension=0),
        "a key for each party; wrong: cem, dia": replace(written, parties=(*parties[:3], "dia", parties[4])),
        "has 32 bytes": replace(written, keys=(b"short", *keys[1:])),
        "a key for each party; wrong: aggregator, ann": replace(written, keys=()),
        "not one key for each": replace(written, keys=(*keys, keys[0])),
        "in the order of names": replace(written, parties=parties[::-1], keys=keys[::-1]),
        "one key for each party, in": replace(written, parties=(*parties, "ann"), keys=(*keys, keys[1])),
    }
    for sentence, message in wrong.items():
        with pytest.raises(MessageError, match=sentence):
            Roster.from_bytes(encode(message))
    with pytest.raises(MessageError, match="cut short"):
        Roster.from_bytes(b"")
