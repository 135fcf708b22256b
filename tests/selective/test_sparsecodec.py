"""The sparse codec: every update comes back, every blob has one form, and forged ones cost next to nothing."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError, MessageError
from blindsight.selective.codec import SparseUpdate, as_half, decode_sparse, encode_sparse, most_bytes


@st.composite
def updates(draw, *, half=False):
    dimension = draw(st.one_of(st.integers(1, 300), st.integers(1, 2**31)))
    places = sorted(draw(st.sets(st.integers(0, dimension - 1), max_size=min(dimension, 60))))
    if dimension <= 300 and draw(st.booleans()):
        places = [place for place in range(dimension) if place not in places]
    width = 16 if half else 32
    finite = st.floats(width=width, allow_nan=False, allow_infinity=False)
    values = draw(st.lists(finite, min_size=len(places), max_size=len(places)))
    return SparseUpdate(dimension, np.array(places, dtype=np.int64), np.array(values, dtype=np.float32))


@settings(max_examples=40)
@given(st.data(), st.booleans())
def test_no_update_is_longer_than_the_most_bytes(data, half):
    update = data.draw(updates(half=half))
    size = len(encode_sparse(update, half=half))
    count = update.indices.size
    assert size <= most_bytes(count, update.dimension, half=half)
    if count <= update.dimension // 2:
        more = data.draw(st.integers(count, update.dimension // 2))
        assert size <= most_bytes(more, update.dimension, half=half)


def test_the_most_bytes_are_near_those_of_random_places():
    update = random_update(50_000, 0.1)
    assert most_bytes(update.indices.size, 50_000) < 1.02 * len(encode_sparse(update))


def random_update(dimension, share, seed=1):
    rng = np.random.default_rng(seed)
    places = np.flatnonzero(rng.random(dimension) < share)
    return SparseUpdate(dimension, places, rng.standard_normal(places.size).astype(np.float32))


def read_as_sent(blob, dimension, max_values):
    """Whatever is accepted is what would be written for it; all else is a MessageError and nothing else."""
    try:
        update = decode_sparse(blob, dimension, max_values=max_values)
    except MessageError:
        return
    assert encode_sparse(update, half=blob[0] == 1) == blob
    assert update.indices.size <= max_values


@settings(max_examples=60)
@given(st.data(), st.booleans())
def test_what_is_written_comes_back_bit_for_bit(data, half):
    update = data.draw(updates(half=half))
    blob = encode_sparse(update, half=half)
    again = decode_sparse(blob, update.dimension, max_values=update.indices.size)
    assert again.indices.tolist() == update.indices.tolist()
    assert again.values.tobytes() == update.values.tobytes()
    assert encode_sparse(again, half=half) == blob


@settings(max_examples=200)
@given(st.data(), st.binary(min_size=1, max_size=60), st.integers(1, 2**31), st.integers(0, 100))
def test_any_bytes_are_canonical_or_refused(data, noise, dimension, limit):
    small = data.draw(st.sampled_from([dimension, 1, 2, 9, 40]))
    read_as_sent(noise, small, limit)
    read_as_sent(bytes([noise[0] % 2, len(noise) % 8]) + noise, small, limit)


@settings(max_examples=60)
@given(updates(), st.data())
def test_truncated_extended_and_altered_blobs_are_canonical_or_refused(update, data):
    blob, size = encode_sparse(update), update.indices.size
    for wrong in (blob[: data.draw(st.integers(0, len(blob) - 1))], blob + b"\0", blob + b"\x80"):
        with pytest.raises(MessageError):
            decode_sparse(wrong, update.dimension, max_values=size)
    bit = data.draw(st.integers(0, 8 * len(blob) - 1))
    altered = bytearray(blob)
    altered[bit // 8] ^= 1 << bit % 8
    read_as_sent(bytes(altered), update.dimension, size + 5)
    read_as_sent(blob, data.draw(st.integers(1, 2**31)), size)  # for a model of another size


@pytest.mark.parametrize("share", [0.01, 0.1, 0.35, 0.5, 0.95])
def test_places_take_little_more_than_their_entropy(share):
    dimension = 50_000
    update = random_update(dimension, share)
    p = update.indices.size / dimension
    entropy = -dimension * (p * math.log2(p) + (1 - p) * math.log2(1 - p)) / 8
    places = len(encode_sparse(update)) - 4 * update.indices.size
    assert entropy < places < 1.06 * entropy + 16


def test_a_tenth_of_the_parameters_takes_little_more_than_a_tenth_of_the_bytes():
    update = random_update(5124, 0.1)
    dense = 4 * 5124
    assert len(encode_sparse(update)) <= 0.118 * dense
    rounded = SparseUpdate(5124, update.indices, as_half(update.values))
    assert len(encode_sparse(rounded, half=True)) <= 0.067 * dense


def test_dense_and_empty_updates_write_no_places():
    everything = SparseUpdate(1000, np.arange(1000), np.ones(1000, dtype=np.float32))
    assert len(encode_sparse(everything)) == 1 + 2 + 4000
    nothing = SparseUpdate(1000, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
    assert encode_sparse(nothing) == b"\0\0"
    assert decode_sparse(b"\0\0", 1000, max_values=0).indices.size == 0


def test_worked_example():
    # Places 2 and 7 of 16: gaps 2 and 4. k = 1 takes 2 + (1 + 2) + 2 = 7 bits, k = 0 takes 8 and k = 2 takes 7.
    # Low bits 0, 0; then 0 1 and 0 0 1.
    update = SparseUpdate(16, np.array([2, 7]), np.array([1.0, -2.0], dtype=np.float32))
    floats = bytes.fromhex("0000803f000000c0")
    assert encode_sparse(update) == bytes([0, 2, 1, 0b00000000, 0b01001000]) + floats
    halves = bytes.fromhex("003c00c0")
    assert encode_sparse(update, half=True) == bytes([1, 2, 1, 0b00000000, 0b01001000]) + halves
    other_k = bytes([0, 2, 2, 0b01000000, 0b10100000]) + floats  # as long, the same places, but not the one form
    with pytest.raises(MessageError, match="one form"):
        decode_sparse(other_k, 16, max_values=2)
    padded = bytes([0, 2, 1, 0b00000001, 0b01001000]) + floats
    with pytest.raises(MessageError, match="one form"):
        decode_sparse(padded, 16, max_values=2)


def test_limits_are_kept_before_memory_is_taken():
    claims = [
        b"\0\xff\xff\xff\xff\x0f",  # 2^32 - 1 values
        b"\0\xff\xff\xff\xff\x03" + bytes(200),  # 2^30 - 1 values
        b"\0\xff\xff\xff\xff\xff\xff",
        b"\0\x01\x3e" + bytes(200),  # one value after a gap of up to 2^62
        b"\0\x01\x00" + bytes(200),
    ]
    tracemalloc.start()
    try:
        for claim in claims:
            with pytest.raises(MessageError):
                decode_sparse(claim, 2**31, max_values=2**31)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    blob = encode_sparse(random_update(500, 0.2))
    with pytest.raises(MessageError, match="10 values"):
        decode_sparse(blob, 500, max_values=10)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("half", [False, True])
def test_values_that_are_not_finite_are_neither_written_nor_read(value, half):
    update = SparseUpdate(3, np.array([1]), np.array([value], dtype=np.float32))
    with pytest.raises(InputError, match="finite"):
        encode_sparse(update, half=half)
    good = encode_sparse(SparseUpdate(3, np.array([1]), np.ones(1, dtype=np.float32)), half=half)
    forged = np.array([value], dtype=np.float16 if half else np.float32).tobytes()
    with pytest.raises(MessageError, match="not finite"):
        decode_sparse(good[: -len(forged)] + forged, 3, max_values=1)


def test_half_takes_only_what_was_rounded_and_signals_no_overflow():
    update = SparseUpdate(3, np.array([0, 1, 2]), np.array([0.1, 1e38, -7e4], dtype=np.float32))
    with pytest.raises(InputError, match="as_half"):
        encode_sparse(update, half=True)
    assert as_half(update.values).tolist() == [float(np.float16(0.1)), 65504.0, -65504.0]


@pytest.mark.parametrize("dimension", [0, 2**31 + 1])
def test_dimensions_out_of_range_are_refused(dimension):
    with pytest.raises(InputError, match=r"2\^31"):
        decode_sparse(b"\0\0", dimension, max_values=1)
