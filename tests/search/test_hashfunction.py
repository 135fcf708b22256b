"""Hash functions: what they accept, and that a file gives back the same one or is refused."""

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from sklearn.exceptions import NotFittedError

from blindsight.errors import CorruptFileError, InputError, StorageError, UnknownNameError
from blindsight.files import write_arrays
from blindsight.search import function as function_module
from blindsight.search.codes import pack
from blindsight.search.function import LinearHash
from blindsight.search.functionfile import function_from, load_function, save_function
from blindsight.search.itq import ITQ
from blindsight.search.lsh import LSH
from blindsight.search.spectral import SH, SpectralHash

KIND = "blindsight/hash-function.1"


@st.composite
def functions(draw):
    """A function of any kind with any finite numbers in it."""
    dimension, bits = draw(st.integers(1, 6)), draw(st.integers(1, 20))

    def part(*shape):
        return draw(nps.arrays(np.float32, shape, elements=st.floats(-1e6, 1e6, width=32)))

    if draw(st.booleans()):
        return LinearHash(part(dimension), part(dimension, bits))
    return SpectralHash(part(dimension), part(dimension, bits), part(bits))


@pytest.fixture
def features():
    return np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)


@settings(deadline=None, max_examples=50)
@given(functions())
def test_a_file_gives_back_the_same_function(tmp_path_factory, function):
    path = tmp_path_factory.mktemp("functions") / "function.npz"
    save_function(function, path)
    found = load_function(path)
    X = np.random.default_rng(1).normal(size=(9, function.dimension))
    assert type(found) is type(function)
    assert found.digest == function.digest
    assert (found.bits, found.dimension) == (function.bits, function.dimension)
    np.testing.assert_array_equal(found(X), function(X))


@pytest.mark.parametrize("learner", [LSH(20), ITQ(5), SH(20)])
def test_what_every_learner_leaves_can_be_saved(learner, features, tmp_path):
    codes = learner.fit_transform(features)
    save_function(learner.function_, tmp_path / "function")
    np.testing.assert_array_equal(load_function(tmp_path / "function")(features), codes)


def test_the_digest_depends_on_every_number_and_on_the_kind():
    mean, matrix, phase = np.zeros(2, "f4"), np.ones((2, 3), "f4"), np.zeros(3, "f4")
    moved = matrix.copy()
    moved[1, 2] = np.nextafter(np.float32(1), np.float32(2))
    made = [LinearHash(mean, matrix), LinearHash(mean, moved), SpectralHash(mean, matrix, phase)]
    assert len({function.digest for function in made}) == 3


def test_the_digest_is_that_of_the_name_and_of_each_array_in_alphabetical_order():
    function = LinearHash(np.array([5, 6], "f4"), np.array([[1, 2, 3], [4, 5, 6]], "f4"))
    content = b"linear" + b"matrix <f4 (2, 3)\n" + struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    content += b"mean <f4 (2,)\n" + struct.pack("<2f", 5, 6)
    assert function.digest == hashlib.sha256(content).hexdigest()


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    match how:
        case "truncated":
            path.write_bytes(content[:middle])
        case "altered":
            last = content.index(b"PK\1\2") - 1  # the last byte of the last array
            path.write_bytes(content[:last] + bytes([content[last] ^ 1]) + content[last + 1 :])
        case "empty":
            path.write_bytes(b"")
        case "other kind of file":
            write_arrays(path, "blindsight/else.1", {"function": "linear"}, {})
        case "unknown function":
            write_arrays(path, KIND, {"function": "quadratic"}, {})
        case "missing array":
            write_arrays(path, KIND, {"function": "linear"}, {"mean": np.zeros(3, "f4")})
        case "arrays that do not fit":
            write_arrays(
                path, KIND, {"function": "linear"}, {"mean": np.zeros(3, "f4"), "matrix": np.eye(4, dtype="f4")}
            )
        case "text for numbers":
            write_arrays(path, KIND, {"function": "linear"}, {"mean": np.array(["a"]), "matrix": np.eye(1, dtype="f4")})
        case "no name":
            write_arrays(path, KIND, {}, {})


@pytest.mark.parametrize(
    "how",
    [
        "truncated",
        "altered",
        "empty",
        "other kind of file",
        "unknown function",
        "missing array",
        "arrays that do not fit",
        "text for numbers",
        "no name",
    ],
)
def test_a_file_that_is_not_a_whole_function_is_refused(how, features, tmp_path):
    path = tmp_path / "function"
    save_function(ITQ(4).fit(features).function_, path)
    damage(path, how)
    with pytest.raises(CorruptFileError, match="function"):
        load_function(path)


def test_a_file_that_is_not_there_is_no_corrupt_file(tmp_path):
    with pytest.raises(StorageError, match="it does not exist"):
        load_function(tmp_path / "function")


def test_an_unknown_kind_gets_the_nearest_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'linear'"):
        function_from("lineal", {})


def test_codes_are_the_signs_of_the_scores_a_score_of_zero_being_1():
    function = LinearHash(np.zeros(1, "f4"), np.array([[1, -1, 2]], "f4"))
    np.testing.assert_array_equal(function([[0], [3]]), pack([[1, 1, 1], [1, 0, 1]]))


def test_hashing_in_blocks_gives_what_hashing_at_once_gives(features, monkeypatch):
    function = LSH(24).fit(features).function_
    whole = function(features)
    monkeypatch.setattr(function_module, "_ROWS", 7)
    np.testing.assert_array_equal(function(features), whole)


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (np.zeros((3, 5)), "6 columns; got 5"),
        (np.zeros(6), r"shape \(n, d\)"),
        (np.array([["a"] * 6]), "must be numbers"),
        (np.array([[0, 0, np.nan, 0, 0, 0]]), "NaN or infinite"),
        (np.full((1, 6), 1e300), "NaN or infinite"),
        (np.zeros((0, 6)), "no features to hash"),
    ],
)
def test_features_that_cannot_be_hashed_get_a_sentence(X, sentence, features):
    function = LSH(8).fit(features).function_
    with pytest.raises(InputError, match=sentence):
        function(X)


@pytest.mark.parametrize(
    ("mean", "matrix", "sentence"),
    [
        (np.zeros(3), np.zeros((3, 4), "f4"), "finite float32"),
        (np.zeros(3, "f4"), np.full((3, 4), np.inf, "f4"), "finite float32"),
        (np.zeros(2, "f4"), np.zeros((3, 4), "f4"), "do not fit"),
        (np.zeros(3, "f4"), np.zeros((3, 0), "f4"), "do not fit"),
    ],
)
def test_parts_that_are_no_linear_function_are_refused(mean, matrix, sentence):
    with pytest.raises(InputError, match=sentence):
        LinearHash(mean, matrix)


def test_learners_refuse_what_they_cannot_learn_from(features):
    for bits in (0, -3, 2.5, "8"):
        with pytest.raises(InputError, match="whole number of bits"):
            LSH(bits).fit(features)
    with pytest.raises(InputError, match="at least 2 rows; got 1"):
        LSH(4).fit(features[:1])
    with pytest.raises(NotFittedError):
        LSH(4).transform(features)
