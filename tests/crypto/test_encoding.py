"""Fixed point rounds like exact arithmetic; packed sums come back whole up to the bound and not one past it."""

from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.encoding import FixedPoint, SlotPacking
from blindsight.errors import InputError, MessageError

# --- fixed point ----------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.floats(-1e6, 1e6), st.integers(0, 40))
def test_encoding_is_the_exactly_rounded_product(value, bits):
    exact = (Decimal(value) * 2**bits).to_integral_value(ROUND_HALF_EVEN)
    assert FixedPoint(bits).encode([value]).tolist() == [int(exact)]


@settings(max_examples=50)
@given(st.lists(st.integers(-(2**52), 2**52)), st.integers(0, 62))
def test_decoding_undoes_encoding(integers, bits):
    encoding = FixedPoint(bits)
    numbers = encoding.decode(np.array(integers, dtype=np.int64))
    assert encoding.encode(numbers).tolist() == integers


def test_unencodable_value_is_named_by_its_place():
    for value in (np.nan, np.inf, -np.inf, 1e308, 2.0**43):
        with pytest.raises(InputError, match="value 2"):
            FixedPoint(20).encode([0.0, 1.0, value])
    assert FixedPoint(20).encode([np.nextafter(2.0**43, 0)]).tolist() == [2**63 - 2**10]
    for bits in (-1, 63):
        with pytest.raises(InputError, match="fraction_bits"):
            FixedPoint(bits)


# --- slot packing ---------------------------------------------------------------------------------------------------

packings = st.builds(SlotPacking, st.sampled_from([8, 16, 24, 32, 40, 48, 56, 64]), st.integers(1, 9))


@st.composite
def summands(draw):
    packing = draw(packings)
    terms = draw(st.integers(1, min(6, packing.max_value(1))))
    limit = packing.max_value(terms)
    value = st.one_of(st.sampled_from([limit, -limit, 0, 1, -1]), st.integers(-limit, limit))
    count = draw(st.integers(0, 20))
    return packing, [draw(st.lists(value, min_size=count, max_size=count)) for _ in range(terms)]


@settings(max_examples=60)
@given(summands())
def test_sum_of_packed_vectors_unpacks_to_the_sum(case):
    packing, vectors = case
    packed = [packing.pack(np.array(vector, dtype=np.int64), terms=len(vectors)) for vector in vectors]
    total = [sum(column) for column in zip(*packed, strict=True)]
    assert packing.unpack(total, len(vectors[0])).tolist() == [sum(column) for column in zip(*vectors, strict=True)]
    assert all(abs(number) <= packing.max_packed() for number in total)


def test_packed_number_is_the_weighted_sum():
    values = [3, -1, 0, -(2**30), 2**30]
    packed = SlotPacking(32, 5).pack(np.array(values), terms=1)
    assert packed == [sum(value << (32 * slot) for slot, value in enumerate(values))]


@pytest.mark.parametrize("slot_bits", [8, 32, 64])
@pytest.mark.parametrize("terms", [1, 5])
@pytest.mark.parametrize("sign", [1, -1])
def test_exactly_at_the_bound_works_and_one_above_is_refused(slot_bits, terms, sign):
    packing = SlotPacking(slot_bits, 4)
    limit = packing.max_value(terms)
    assert terms * limit < 2 ** (slot_bits - 1) <= terms * (limit + 1)
    vector = np.full(4, sign * limit, dtype=np.int64)
    total = [terms * number for number in packing.pack(vector, terms=terms)]
    assert packing.unpack(total, 4).tolist() == [terms * sign * limit] * 4
    above = vector.astype(object) + sign
    if abs(int(above[0])) < 2**63:
        above[:3] = 0
        with pytest.raises(InputError, match=f"value 3 is beyond .*{terms} terms"):
            packing.pack(above.astype(np.int64), terms=terms)


@pytest.mark.parametrize(("bits", "slots"), [(1024, 31), (2048, 63), (3072, 95), (4096, 127)])
def test_full_slots_fit_every_modulus_of_that_length(bits, slots):
    packing = SlotPacking.for_key(bits)
    assert packing.slots == slots
    smallest_modulus = 2 ** (bits - 1) + 1
    assert packing.max_packed() <= (smallest_modulus - 1) // 2
    assert 2 ** (32 * (slots + 1) - 1) > (2**bits - 1) // 2  # and one slot more fits none


def test_sums_out_of_their_slots_are_found():
    packing = SlotPacking(32, 2)
    for forged in (2**63, -(2**63) - 2**31 - 1, 2**200):
        with pytest.raises(MessageError, match="beyond its slots"):
            packing.unpack([forged], 2)


def test_wrong_numbers_of_blocks_and_kinds_are_refused():
    packing = SlotPacking(32, 4)
    assert packing.unpack(packing.pack(np.array([1, 2, 3], dtype=np.uint64), terms=1), 3).tolist() == [1, 2, 3]
    with pytest.raises(InputError, match="take 2 packed numbers; got 1"):
        packing.unpack([0], 5)
    for values in (np.array([1.0]), np.zeros((2, 2), dtype=np.int64), np.array([-(2**63)])):
        with pytest.raises(InputError):
            packing.pack(values, terms=1)
    with pytest.raises(InputError, match="term"):
        packing.max_value(0)
    for slot_bits, slots in ((12, 4), (32, 0)):
        with pytest.raises(InputError, match="slot"):
            SlotPacking(slot_bits, slots)
