"""Messages come back as they were sent; anything else, however it was bent, gives a sentence and costs nothing."""

import hashlib
import random
import struct
import tracemalloc
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from blindsight.crypto.wire import (
    HEADER_BYTES,
    Floats,
    Integers,
    Limit,
    Message,
    Octets,
    announced_bytes,
    decode,
    encode,
)
from blindsight.errors import InputError, MessageError


class Everything(Message, name="test/everything.1"):
    flag: bool
    number: int
    ratio: float
    text: Annotated[str, Limit(40)]
    blob: bytes
    names: tuple[str, ...]
    blobs: tuple[bytes, ...]
    weights: Floats
    places: Integers
    rows: Octets


class Small(Message, name="test/small.1"):
    number: int
    text: str


class Twin(Message, name="test/twin.1"):
    number: int
    text: str


SAMPLE = Everything(
    flag=True,
    number=-(2**70),
    ratio=0.1,
    text="Grüße",
    blob=b"\0\1\2",
    names=("anna", "", "böhm"),
    blobs=(b"x" * 30, b""),
    weights=np.array([[1.5, -0.0], [2.0**-1074, 1e308]]),
    places=np.array([3, -(2**63), 2**63 - 1]),
    rows=np.arange(24, dtype=np.uint8).reshape(2, 12),
)
BLOB = encode(SAMPLE)


def _reseal(body):
    """Give bytes a right length and checksum, so that mutations reach the parser."""
    name_length = body[5] if len(body) > 5 else 0
    payload = max(len(body) - HEADER_BYTES - name_length, 0)
    body = body[:6] + struct.pack(">Q", payload) + body[HEADER_BYTES:]
    return body + hashlib.sha256(body).digest()


shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
messages = st.builds(
    Everything,
    flag=st.booleans(),
    number=st.integers(-(2**2000), 2**2000),
    ratio=st.floats(allow_nan=False, allow_infinity=False),
    text=st.text(max_size=10),
    blob=st.binary(max_size=50),
    names=st.lists(st.text(max_size=9), max_size=4).map(tuple),
    blobs=st.lists(st.binary(max_size=9), max_size=4).map(tuple),
    weights=hnp.arrays(np.float64, shapes, elements=st.floats(allow_nan=False, allow_infinity=False)),
    places=hnp.arrays(np.int64, shapes),
    rows=hnp.arrays(np.uint8, shapes),
)


@settings(max_examples=60)
@given(messages)
def test_round_trip_is_exact_and_canonical(message):
    blob = encode(message)
    again = decode(blob, Everything)
    assert encode(again) == blob
    assert again == message
    assert hash(again) == hash(message)
    assert (again.flag, again.number, again.text) == (message.flag, message.number, message.text)
    assert (again.blob, again.names, again.blobs) == (message.blob, message.names, message.blobs)
    assert np.array_equal(again.weights, message.weights)
    assert again.rows.shape == message.rows.shape
    assert announced_bytes(blob[:HEADER_BYTES]) == len(blob)


def test_layout_is_the_documented_one():
    body = b"BLSM\x01\x0c" + struct.pack(">Q", 9 + 1 + 9 + 2) + b"test/small.1"
    body += b"\x02" + struct.pack(">Q", 1) + b"\x07" + b"\x04" + struct.pack(">Q", 2) + b"hi"
    blob = body + hashlib.sha256(body).digest()
    assert encode(Small(7, "hi")) == blob
    assert decode(blob, Small) == Small(7, "hi")
    assert repr(Small(7, "secret")) == "<message test/small.1>"


def test_smaller_kinds_of_arrays_widen_and_arrive_read_only():
    message = Everything(**{**vars(SAMPLE), "weights": np.float32([1.5]), "places": np.int8([-3])})
    again = decode(encode(message), Everything)
    assert again.weights.dtype == np.float64
    assert again.places.tolist() == [-3]
    with pytest.raises(ValueError, match="read-only"):
        again.places[0] = 1


def test_decode_chooses_among_the_expected_types_only():
    blob = encode(Twin(1, "a"))
    assert type(decode(blob, Small, Twin)) is Twin
    with pytest.raises(MessageError, match="twin"):
        decode(blob, Small)


# --- what encode refuses --------------------------------------------------------------------------------------------


WRONG = {
    "flag": [1],
    "number": [1.0, True],
    "ratio": [float("nan"), "x"],
    "text": [b"x", "\ud800"],
    "blob": ["x"],
    "names": [["a"], (b"a",), ("",) * (2**16 + 1)],
    "blobs": [("a",)],
    "weights": [np.array([np.inf]), [1.0], np.array(["x"])],
    "places": [np.array([1.5])],
    "rows": [np.array([300]), np.zeros((1, 1, 1, 1), dtype=np.uint8)],
}


@pytest.mark.parametrize("field", WRONG)
def test_fields_of_the_wrong_kind_are_named(field):
    for value in WRONG[field]:
        with pytest.raises(InputError, match=f"'{field}'"):
            encode(Everything(**{**vars(SAMPLE), field: value}))


def test_fields_beyond_their_limit_are_refused_on_both_sides():
    with pytest.raises(InputError, match="41"):
        encode(Everything(**{**vars(SAMPLE), "text": "x" * 41}))

    class Loose(Message, name="test/loose.1"):
        text: str

    class Tight(Message, name="test/loose.1"):
        text: Annotated[str, Limit(3)]

    with pytest.raises(MessageError, match="3 are allowed"):
        decode(encode(Loose("abcd")), Tight)

    class Number(Message, name="test/number.1"):
        number: int

    largest = 2 ** (8 * 512)
    assert str(decode(encode(Number(largest)), Number).number) == str(largest)  # every number fits into a sentence
    with pytest.raises(InputError, match="513"):
        encode(Number(largest << 8))


def test_message_classes_are_checked_when_they_are_made():
    for name, field in (("test/wrong.1", dict[str, int]), ("No spaces", int)):
        with pytest.raises(TypeError):
            type("Wrong", (Message,), {"__annotations__": {"thing": field}}, name=name)


# --- what decode refuses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blob", "sentence"),
    [
        (b"", "cut short"),
        (BLOB[:13], "cut short"),
        (BLOB[:-1], "arrived"),
        (BLOB + b"\0", "arrived"),
        (b"PK\3\4" + BLOB[4:], "begin"),
        (BLOB[:4] + b"\2" + BLOB[5:], "version 2"),
        (BLOB[:-1] + bytes([BLOB[-1] ^ 1]), "checksum"),
        (BLOB[:60] + bytes([BLOB[60] ^ 1]) + BLOB[61:], "checksum"),
        (_reseal(BLOB[:-32] + b"\0"), "after its last field"),
        (_reseal(BLOB[:-40]), "announces"),
        (_reseal(BLOB[: HEADER_BYTES + 17]), "missing"),
        (_reseal(b"BLSM\1\3" + bytes(8) + b"\xff\n\0"), "no valid name"),
    ],
)
def test_broken_messages_are_told_apart(blob, sentence):
    with pytest.raises(MessageError, match=sentence):
        decode(blob, Everything)


def _field(kind, body):
    return struct.pack(">BQ", kind, len(body)) + body


def _one(annotation, kind, body):
    """Decode a message of one field with this annotation from a hand-made body."""
    message_type = type("One", (Message,), {"__annotations__": {"value": annotation}}, name="test/one.1")
    head = b"BLSM\1\x0a" + bytes(8) + b"test/one.1"
    decode(_reseal(head + _field(kind, body)), message_type)


def _u64(*numbers):
    return struct.pack(f">{len(numbers)}Q", *numbers)


HOSTILE = [
    (bool, 1, [b"\2"]),
    (int, 2, [b"", b"\0\1"]),
    (float, 3, [struct.pack(">d", float("nan")), struct.pack(">d", float("inf")), b"\0" * 7]),
    (str, 4, [b"\xff", b"\xc0\x80"]),
    (tuple[str, ...], 6, [b"\0", _u64(1) + b"\xff"]),
    (tuple[bytes, ...], 7, [_u64(2**64 - 1), _u64(5) + b"abcd", _u64(0) * ((1 << 16) + 1)]),
    (Floats, 8, [b"", b"\4" + _u64(1, 1, 1, 1) + bytes(8), b"\1" + _u64(2**64 - 1), b"\2" + _u64(1), b"\1\0\0"]),
    (Floats, 8, [b"\1" + _u64(1) + struct.pack("<d", float("nan"))]),
    (Integers, 9, [b"\2" + _u64(2**32, 2**32) + bytes(8), b"\2" + _u64(0, 2**64 - 1), b"\1" + _u64(1) + bytes(7)]),
    (Octets, 10, [b"\1" + _u64(2**63) + bytes(9)]),
    (Octets, 8, [b"\1" + _u64(1) + b"\1"]),  # the kind of another type
]


@pytest.mark.parametrize(("annotation", "kind", "bodies"), HOSTILE)
def test_no_field_is_believed(annotation, kind, bodies):
    for body in bodies:
        with pytest.raises(MessageError, match="'value'"):
            _one(annotation, kind, body)


# --- fuzzing --------------------------------------------------------------------------------------------------------

LIES = [0, 1, 2**31, 2**32, 2**48, 2**63 - 1, 2**63, 2**64 - 1]


def _mutations(rng):
    """Bend the sample: flips, cuts, insertions, repeats, lying lengths, other kinds; most get a right checksum."""
    bent = bytearray(BLOB[:-32])
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(bent))
        match rng.randrange(7):
            case 0:
                bent[place] ^= 1 << rng.randrange(8)
            case 1:
                del bent[place:]
            case 2:
                bent[place:place] = rng.randbytes(rng.randint(1, 40))
            case 3:
                bent[place : place + 8] = struct.pack(">Q", rng.choice(LIES))
            case 4:
                bent[place] = rng.randrange(256)
            case 5:
                del bent[place : place + rng.randint(1, 40)]
            case 6:
                bent += bent[place:]
        if not bent:
            break
    return _reseal(bytes(bent)) if rng.random() < 0.7 else bytes(bent) + BLOB[-32:]


def test_thousands_of_mutations_give_a_sentence_or_a_canonical_message():
    rng = random.Random(20)
    blobs = [_mutations(rng) for _ in range(2000)]
    sentences = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for blob in blobs:
            try:
                message = decode(blob, Everything, Small)
            except MessageError as error:
                sentences.append(str(error))
            else:
                assert encode(message) == blob
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert len(sentences) > 1300  # the rest are other valid messages: a flipped bit inside a number is a number
    assert all(sentence.endswith(".") and len(sentence) < 250 for sentence in sentences)
    assert peak < 2_000_000


def test_every_single_flipped_bit_is_found():
    for bit in range(8 * len(BLOB)):
        bent = bytearray(BLOB)
        bent[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(MessageError):
            decode(bytes(bent), Everything)


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_random_bytes_never_crash(noise):
    for blob in (noise, BLOB[:HEADER_BYTES] + noise, _reseal(BLOB[: HEADER_BYTES + 17] + noise)):
        with pytest.raises(MessageError):
            decode(blob, Everything)


@pytest.mark.parametrize("length", LIES[2:])
def test_lying_lengths_allocate_nothing(length):
    header = BLOB[:6] + struct.pack(">Q", length)
    tracemalloc.start()
    try:
        for attempt in (
            lambda: announced_bytes(header),
            lambda: decode(header + BLOB[HEADER_BYTES:], Everything),
            lambda: decode(BLOB, Everything, max_bytes=100),
        ):
            with pytest.raises(MessageError, match="at most"):
                attempt()
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
