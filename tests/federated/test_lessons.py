import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from blindsight.crypto.wire import encode
from blindsight.errors import InputError, MessageError
from blindsight.federated.courses import CourseSettings, classifier_course, cluster_course
from blindsight.federated.lessons import Lesson, _LessonMessage
from blindsight.files import pack_arrays, unpack_arrays

SETTINGS = CourseSettings(key_bits=1024, insecure=True, clusters=3)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 4)).astype(np.float32), np.tile([0, 1, 2], 4)


def lessons():
    words = np.array(["cat", "dog", "emu"])[Y]
    return {
        "classes": classifier_course((X, Y), None, 3, SETTINGS).lesson,
        "words": classifier_course((X, words), None, 3, SETTINGS).lesson,
        "two classes": classifier_course((X, Y > 0), None, 3, SETTINGS).lesson,
        "attributes": classifier_course((X, RNG.integers(-1, 2, (12, 5))), None, 3, SETTINGS).lesson,
        "clusters": cluster_course(X, None, SETTINGS).lesson,
    }


@pytest.mark.parametrize("kind", lessons())
def test_a_lesson_arrives_as_it_was_sent(kind):
    lesson = lessons()[kind]
    arrived = Lesson.from_bytes(lesson.to_bytes())
    assert arrived.training == lesson.training
    assert arrived.shape == lesson.shape
    assert arrived.kind == lesson.kind
    assert arrived.public.dtype == np.float32
    assert np.array_equal(arrived.public, lesson.public)
    assert np.array_equal(arrived.standardiser.mean, lesson.standardiser.mean)
    assert type(arrived.labels) is type(lesson.labels)
    assert arrived.to_bytes() == lesson.to_bytes()


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(lessons())), st.data())
def test_a_lesson_that_was_altered_is_refused(kind, data):
    blob = bytearray(lessons()[kind].to_bytes())
    place = data.draw(st.integers(0, len(blob) - 1))
    blob[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MessageError):
        Lesson.from_bytes(bytes(blob))


def forged(document=None, **changes):
    """Return a lesson of three classes whose document or arrays somebody else wrote."""
    lesson = lessons()["classes"]
    whole = {"kind": "classifier", "training": {}, "clusters": 0} if document is None else document
    content = {
        "mean": lesson.standardiser.mean,
        "scale": lesson.standardiser.scale,
        "public": lesson.public,
        "classes": np.arange(3),
        "signs": lesson.signs,
    } | changes
    text = whole if isinstance(whole, bytes) else json.dumps(whole).encode()
    return encode(
        _LessonMessage(text, pack_arrays({name: array for name, array in content.items() if array is not None}))
    )


def test_the_forgery_of_these_tests_would_pass():
    assert Lesson.from_bytes(forged()).shape == (3, 5)


@pytest.mark.parametrize(
    "document",
    [
        b"\xff",
        b"[" * 20_000,
        b"[]",
        {},
        {"kind": "k-means", "training": {}, "clusters": 0},
        {"kind": "k-means", "training": {}, "clusters": 2.5},
        {"kind": "k-means", "training": {}, "clusters": True},
        {"kind": "classifier", "training": {"passes": "many"}},
        {"kind": "classifier", "training": {"passes": 0}},
        {"kind": "classifier", "training": {"loss": "gain"}},
        {"kind": "classifier", "training": {"code": "import os"}},
        {"kind": "classifier", "training": {}, "attributes": "3"},
        {"kind": "classifier", "training": {}, "attributes": 4},
    ],
)
def test_a_document_that_makes_no_sense_is_refused(document):
    with pytest.raises(MessageError):
        Lesson.from_bytes(forged(document))


@pytest.mark.parametrize(
    "change",
    [
        {"mean": None},
        {"mean": np.zeros(3)},
        {"scale": np.zeros(4)},
        {"scale": np.full(4, np.nan)},
        {"public": np.full((12, 4), np.inf)},
        {"public": np.array([["a"] * 4] * 12)},
        {"public": np.zeros((11, 4))},
        {"classes": np.arange(2)},
        {"classes": np.arange(1)},
        {"signs": np.full((12, 3), 2)},
        {"signs": np.zeros((12, 2), dtype=np.int8)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(change):
    with pytest.raises(MessageError, match="cannot be understood"):
        Lesson.from_bytes(forged(**change))


@settings(deadline=None, max_examples=60)
@given(arrays(st.sampled_from(["<f4", "<f8", "<i8", "|i1", "|b1", "<U3"]), array_shapes(min_dims=0, min_side=0)))
def test_arrays_arrive_as_they_were_sent(array):
    for sent in (array, np.asfortranarray(array)):
        arrived = unpack_arrays(pack_arrays({"it": sent}))["it"]
        assert arrived.dtype == sent.dtype
        assert arrived.shape == sent.shape
        assert arrived.tobytes() == sent.tobytes()
        assert arrived.flags.aligned
        assert arrived.flags.writeable
        assert sent.ndim < 2 or arrived.flags.f_contiguous == sent.flags.f_contiguous


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_altered_arrays_are_refused_or_read_but_never_anything_else(data):
    blob = bytearray(pack_arrays({"a": np.arange(6.0).reshape(2, 3), "b": np.array(["x", "yy"])}))
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = unpack_arrays(bytes(blob))
    except MessageError:
        return
    assert all(array.nbytes <= len(blob) for array in found.values())


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_noise_holds_no_arrays(noise):
    with pytest.raises(MessageError):
        unpack_arrays(noise)


def archive(member, *, compression=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as packed:
        packed.writestr("shared.npy", member)
    return stream.getvalue()


def header(shape, descr="<f8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"shape": shape, "fortran_order": False, "descr": descr})
    return stream.getvalue()


def test_what_would_unpack_to_more_than_was_sent_is_refused():
    with pytest.raises(MessageError, match="not compressed"):
        unpack_arrays(archive(header((1000,)) + bytes(8000), compression=zipfile.ZIP_DEFLATED))
    for shape in ((10**14,), (2**40, 2**40), (3,), (0,)):  # none of them is allocated
        with pytest.raises(MessageError, match="as it announces"):
            unpack_arrays(archive(header(shape) + bytes(16)))


def test_pickled_arrays_are_refused_and_not_executed(tmp_path):
    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    stream = io.BytesIO()
    np.save(stream, np.array([Payload()], dtype=object), allow_pickle=True)
    with pytest.raises(MessageError):
        unpack_arrays(archive(stream.getvalue()))
    assert not (tmp_path / "executed").exists()


def test_a_lesson_of_classification_needs_labels():
    lesson = lessons()["classes"]
    bare = Lesson(lesson.training, lesson.standardiser, lesson.public)
    with pytest.raises(InputError, match="needs labels"):
        bare.learner("ann", lambda: None)
