"""Messages and models in Flower's records."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError, MessageError
from blindsight.federated.flower import transport
from blindsight.federated.flower.transport import (
    HEAD,
    MOST_PARTS,
    PARTS,
    aligned,
    flatten,
    is_ours,
    pack,
    printable,
    response_in,
    unflatten,
    unpack,
)
from blindsight.sums.engine import Response
from tests.federated.flower.federation import model, numpy_of


def moved(content):
    contents = {key: part.deflate() for key, part in get_all_nested_objects(content).items()}
    return inflate_object_from_contents(content.object_id, contents)


@settings(deadline=None)
@given(
    st.text(max_size=20),
    st.lists(st.binary(max_size=200), max_size=MOST_PARTS),
    st.text(max_size=50),
    st.sampled_from([0, transport._INLINE]),
)
def test_parts_survive_the_wire_in_one_record_or_as_arrays(kind, parts, error, inline):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "_INLINE", inline)
        packed = pack(kind, parts, error=error)
    assert unpack(moved(packed)) == (printable(kind), tuple(parts), printable(error))
    assert (PARTS in packed) == (sum(map(len, parts)) > inline)


def test_a_large_part_survives_in_pieces():
    part = np.random.default_rng(0).bytes(25 << 20)  # Flower's pieces have 20 MB
    assert unpack(moved(pack("contribute", [part])))[1] == (part,)


def test_our_messages_are_known_by_their_head():
    assert is_ours(pack("hello", []))
    assert not is_ours(RecordDict({"arrays": ArrayRecord()}))


def damaged():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "_INLINE", 0)
        good = {name: pack("contribute", [b"ab", b"cd"]) for name in range(9)}
    good[0][HEAD]["parts"] = 3
    good[1][HEAD]["parts"] = MOST_PARTS + 1
    good[2][HEAD]["parts"] = "2"
    del good[3][HEAD]["kind"]
    del good[4][PARTS]["01"]
    good[5][PARTS] = ArrayRecord({"00": Array(np.zeros(2)), "01": Array(np.zeros(2))})
    good[6][PARTS] = ArrayRecord({"00": Array(np.zeros(2, np.uint8)), "0x": Array(np.zeros(2, np.uint8))})
    good[7][PARTS]["01"] = Array("uint8", (3,), "blindsight.bytes", b"cd")
    good[8][PARTS] = ConfigRecord()
    named = dict(
        zip(("more parts", "too many", "no number", "no kind", "missing", "floats"), good.values(), strict=False)
    )
    named |= {"npy": good[6], "other length": good[7], "no arrays": good[8], "nothing": RecordDict()}
    named |= {"texts": pack("contribute", [b"ab"]), "crowd": pack("contribute", [b"a"] * (MOST_PARTS + 1))}
    named["texts"][HEAD]["parts"] = ["ab"]
    return named


@pytest.mark.parametrize("name", list(damaged()))
def test_what_is_damaged_is_refused_with_a_sentence(name):
    content = moved(damaged()[name])
    with pytest.raises(MessageError, match=r"\.$"):
        unpack(content)
    assert response_in(content).error


def test_a_reply_is_parts_or_a_sentence():
    assert response_in(pack("hello", [b"a"])) == Response((b"a",))
    assert response_in(pack("hello", [b"a"], error="no.")) == Response(error="no.")


@given(st.text(max_size=2000))
def test_text_from_elsewhere_is_one_short_line(text):
    kept = printable(text)
    assert kept.isprintable()
    assert len(kept) == min(len(text), 500)
    assert not text.isprintable() or text.startswith(kept)


def test_a_reply_cannot_write_lines_of_its_own_into_a_log():
    forged = "no.\nINFO: all users are there\x1b[2K"
    assert response_in(moved(pack("hello", [], error=forged))).error == "no. INFO: all users are there [2K"
    assert len(response_in(moved(pack("hello", [], error="x" * 10**6))).error) == 500
    assert response_in(moved(pack("hello", [b"a"], error="\x00"))) == Response(error=" ")  # still an error
    assert unpack(moved(pack("hel\nlo", [])))[0] == "hel lo"


def example():
    return model(
        a=np.arange(6, dtype=np.float32).reshape(2, 3), count=np.array(7), b=np.array(0.5), c=np.zeros(2, np.float16)
    )


def test_numbers_become_one_vector_and_come_back_with_their_types():
    arrays = example()
    vector = flatten(arrays)
    assert vector.tolist() == [0, 1, 2, 3, 4, 5, 7, 0.5, 0, 0]
    back = numpy_of(unflatten(vector + 1, arrays))
    for name, value in numpy_of(arrays).items():
        assert back[name].dtype == (np.float64 if name == "count" else value.dtype)  # as Flower averages integers
        assert np.array_equal(back[name], value + 1)


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(InputError, match="hold 10 numbers; got 11"):
        unflatten(np.zeros(11), example())


def test_arrays_are_put_in_the_order_of_the_model_at_any_precision():
    like = model(a=np.zeros(2, np.float32), b=np.ones(1, np.float32))
    assert flatten(aligned(model(b=np.ones(1), a=np.zeros(2)), like)).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"a": np.zeros((2, 4))}, r"'a' is of shape \(2, 3\).*shape \(2, 4\) here"),
        ({}, "'a' is of shape .* not there here"),
        ({"a": np.zeros((2, 3)), "z": np.zeros(1)}, "'z' is not there in the model of the run"),
    ],
)
def test_arrays_of_another_model_are_refused(arrays, sentence):
    with pytest.raises(MessageError, match=sentence):
        aligned(model(**arrays), model(a=np.zeros((2, 3))))
