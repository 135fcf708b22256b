"""Hash functions on disk: read back bit for bit, known by their kind, or refused."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from blindsight.errors import CorruptFileError, UnknownNameError
from blindsight.files import write_arrays
from blindsight.search.function import HashFunction, LinearHash, function_from, load_function, save_function

KIND = "blindsight/hash-function.1"
LINEAR = LinearHash(np.float32([1, 2, 3]), np.float32([[1, -1], [0, 2], [-3, 1]]))


def test_a_file_gives_back_the_same_function(tmp_path):
    save_function(LINEAR, tmp_path / "function.npz")
    again = load_function(tmp_path / "function.npz")
    assert (type(again), again.digest) == (LinearHash, LINEAR.digest)
    X = np.random.default_rng(0).normal(size=(20, 3))
    np.testing.assert_array_equal(again(X), LINEAR(X))


def test_a_subclass_with_a_name_is_read_once_it_is_defined(tmp_path, monkeypatch):
    monkeypatch.setattr(HashFunction, "kinds", dict(HashFunction.kinds))

    @dataclass(frozen=True, eq=False)
    class Turned(LinearHash):
        name: ClassVar[str] = "turned"

    assert HashFunction.kinds["turned"] is Turned
    save_function(Turned(LINEAR.mean, -LINEAR.matrix), tmp_path / "function.npz")
    assert isinstance(load_function(tmp_path / "function.npz"), Turned)
    del HashFunction.kinds["turned"]
    with pytest.raises(CorruptFileError, match="'turned'"):
        load_function(tmp_path / "function.npz")


def test_unknown_kinds_and_parts_that_are_no_function_are_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="'linear'"):
        function_from("linearr", LINEAR.arrays())
    for document, arrays in (
        ({"function": "linear"}, {"mean": LINEAR.mean}),
        ({"function": "linear"}, {"mean": LINEAR.mean[:2], "matrix": LINEAR.matrix}),
        ({}, LINEAR.arrays()),
    ):
        write_arrays(tmp_path / "function.npz", KIND, document, arrays)
        with pytest.raises(CorruptFileError, match="no usable hash function"):
            load_function(tmp_path / "function.npz")
