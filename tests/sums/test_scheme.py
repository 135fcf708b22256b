"""Schemes are found by name, plug in, and bring options of their own; what is unknown is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.wire import Message, decode, encode
from blindsight.errors import InputError, MessageError, UnknownNameError
from blindsight.sums import (
    HIDING_SCHEMES,
    OWN_SCHEMES,
    SCHEMES,
    SPARSE_SCHEMES,
    DpheOptions,
    SchemeOptions,
    Session,
    Terms,
    make_terms,
    open_session,
    register,
)
from blindsight.sums.dphe import DPHE, layout_of
from blindsight.sums.messages import Setup
from blindsight.sums.scheme import PLAIN, PlainMember
from tests.sums.runs import NAMES, Run, terms_of


class DoublingOptions(SchemeOptions, name="tests/doubling.1"):
    """How often members send their update."""

    times: int = 2


class DoublingMember(PlainMember):
    """Sends its update several times over."""

    def answer(self, call, integers, secrets):
        return super().answer(call, self.contribution(integers) * self.terms.options.times, secrets)


@pytest.fixture
def doubling(monkeypatch):
    """A scheme that another module brings."""
    monkeypatch.delitem(SCHEMES, "doubling", raising=False)
    yield register(replace(PLAIN, name="doubling", member=DoublingMember, options=DoublingOptions))
    SCHEMES.pop("doubling", None)


def test_the_librarys_schemes():
    assert OWN_SCHEMES == ("plain", "dphe", "block-dphe", "bfv", "masks")
    assert OWN_SCHEMES[1:] == HIDING_SCHEMES
    assert SPARSE_SCHEMES == ("dphe", "block-dphe")
    traits = {
        name: (scheme.keyed, scheme.sealed, scheme.sparse, scheme.packed, scheme.threshold)
        for name, scheme in SCHEMES.items()
        if name in OWN_SCHEMES
    }
    assert traits == {
        "plain": (False, False, False, False, False),
        "masks": (False, False, False, False, True),
        "bfv": (True, True, False, False, False),
        "dphe": (True, True, True, False, False),
        "block-dphe": (True, True, True, True, False),
    }
    assert all(SCHEMES[name].name == name for name in SCHEMES)


def test_a_scheme_plugs_in_and_members_agree_on_its_options(doubling):
    updates = {name: np.ones(4) for name in NAMES}
    for options, factor in ((None, 2), (DoublingOptions(3), 3)):
        session = open_session("doubling", members=NAMES, dimension=4, options=options)
        assert session.round(updates, 0).values.tolist() == [5.0 * factor] * 4
    assert open_session("doubling", members=NAMES, dimension=4, times=5).terms.options == DoublingOptions(5)
    terms = terms_of("doubling")
    assert Terms.from_bytes(terms.to_bytes()).options == DoublingOptions(2)


def test_a_party_that_does_not_know_a_scheme_refuses_its_terms(doubling):
    blob = terms_of("doubling").to_bytes()
    SCHEMES.pop("doubling")
    with pytest.raises(MessageError, match="unknown aggregation scheme 'doubling'"):
        Terms.from_bytes(blob)
    with pytest.raises(UnknownNameError):
        make_terms("doubling", members=NAMES, dimension=3)


def test_a_name_stands_for_one_scheme():
    assert register(DPHE) is DPHE
    with pytest.raises(InputError, match="'dphe'"):
        register(replace(DPHE, sealed=False))


def test_options_are_those_of_the_scheme():
    sparse = terms_of("dphe")
    for extra in (
        b"",
        terms_of("dphe").to_bytes(),
        DoublingOptions().to_bytes(),
        sparse.extra[:-1],
        sparse.extra + b"0",
    ):
        with pytest.raises((InputError, MessageError)):
            replace(sparse, extra=extra)
    for scheme in ("plain", "masks", "bfv"):
        assert terms_of(scheme).options is None
        with pytest.raises(InputError, match="no options"):
            replace(terms_of(scheme), extra=sparse.extra)
    with pytest.raises(InputError, match="no blocks"):
        layout_of(terms_of("masks"))
    with pytest.raises(InputError, match="key"):
        DpheOptions(key_bits=1024)


def test_options_are_given_whole_or_by_name():
    members = {"members": NAMES, "dimension": 100, "run": "r", "fraction_bits": 8}
    whole = make_terms("dphe", options=DpheOptions(capacity=7, key_bits=2048), **members)
    named = make_terms("dphe", capacity=7, key_bits=2048, **members)
    mixed = make_terms("dphe", options=DpheOptions(capacity=7), key_bits=2048, **members)
    assert whole == named == mixed
    assert make_terms("bfv", capacity=7, key_bits=2048, **members).options is None


@st.composite
def forged(draw):
    """Terms of a sparse run whose options were put together by somebody else."""
    integers = st.one_of(st.integers(-(2**70), 2**70), st.integers(-3, 40))
    fields = {
        "sparsity": draw(st.floats(allow_nan=False, allow_infinity=False)),
        "capacity": draw(integers),
        "minimum_per_position": draw(integers),
        "block": draw(integers),
        "key_bits": draw(st.one_of(integers, st.sampled_from([1024, 2048, 3072]))),
        "keys": draw(st.sampled_from(["subgroup", "conservative", "", "x" * 256])),
        "insecure": draw(st.booleans()),
    }
    options = decode(DpheOptions().to_bytes(), DpheOptions)
    for name, value in fields.items():
        object.__setattr__(options, name, value)
    return draw(st.sampled_from(["dphe", "block-dphe"])), encode(options)


@given(forged())
@settings(max_examples=150)
def test_hostile_options_are_refused_or_make_terms_that_work(drawn):
    scheme, extra = drawn
    changed = decode(terms_of("dphe").to_bytes(), Terms)
    object.__setattr__(changed, "scheme", scheme)
    object.__setattr__(changed, "extra", extra)
    try:
        terms = Terms.from_bytes(encode(changed))
    except MessageError:
        return
    layout = layout_of(terms)
    assert 1 <= layout.room <= layout.blocks <= terms.dimension
    assert 1 <= layout.minimum_per_position <= len(terms.members)
    assert 0 < terms.most_bytes <= 1 << 28


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(1, 255))
@settings(max_examples=100)
def test_damaged_options_are_refused(junk, place, change):
    blob = bytearray(terms_of("dphe").extra)
    blob[place % len(blob)] ^= change
    for extra in (junk, bytes(blob)):
        changed = decode(terms_of("dphe").to_bytes(), Terms)
        object.__setattr__(changed, "extra", extra)
        with pytest.raises(MessageError):
            Terms.from_bytes(encode(changed))


class TermsOfBefore(Message, name="sums/terms.1"):
    """Terms of an earlier version."""

    scheme: str
    run: str


def test_terms_of_another_version_are_refused_by_name():
    with pytest.raises(MessageError, match=r"sums/terms\.1 .*sums/terms\.2"):
        Terms.from_bytes(encode(TermsOfBefore("masks", "a")))


def test_a_set_up_on_other_options_is_refused():
    run, other = Run("dphe"), Run("dphe", keys="conservative")
    with pytest.raises(MessageError):
        run.role("ann").accept(other.generator.setup()["ann"])
    assert decode(run.generator.setup()["ann"], Setup).roster


def test_sessions_know_how_many_weights_are_sent_together():
    assert Session(terms_of("masks")).block == Session(terms_of("dphe")).block == 1
    assert Session(terms_of("block-dphe")).block == 4
