"""The frozen sift: what it computes, what it refuses, that files give back the same one, and quantisers."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from blindsight.errors import CorruptFileError, InputError
from blindsight.files import read_arrays, write_arrays
from blindsight.sift.sift import LinearSift, Quantiser, load_sift, save_sift, without_negligible


def parts(d=6, k=3, seed=0):
    rng = np.random.default_rng(seed)
    mean, scale, matrix = rng.normal(size=d), rng.uniform(0.5, 2, d), rng.normal(size=(d, k))
    return [part.astype(np.float32) for part in (mean, scale, matrix)]


def test_a_linear_sift_is_its_formula_dense_or_sparse_many_or_few():
    mean, scale, matrix = parts()
    X = np.random.default_rng(1).normal(size=(50, 6))
    sift = LinearSift(mean, scale, matrix)
    released = sift.apply(X)
    assert released.dtype == np.float32
    assert np.allclose(released, ((X - mean) / scale) @ matrix, atol=1e-4)
    assert np.allclose(sift.apply(sparse.csr_array(X)), released, atol=1e-4)
    assert (sift.dimension, sift.width, sift.levels, sift.alphabet) == (6, 3, None, None)
    wide = LinearSift(*parts(d=600, k=2))
    X = np.random.default_rng(1).normal(size=(4000, 600)).astype(np.float32)
    assert np.allclose(wide.apply(X)[-3:], wide.apply(X[-3:]), atol=1e-3)


def test_a_quantised_sift_releases_levels_and_symbols():
    mean, scale, matrix = parts()
    sift = LinearSift(mean, scale, matrix, Quantiser.uniform([-1, -2, -3], [1, 2, 3], bits=2))
    X = np.random.default_rng(1).normal(size=(500, 6)).astype(np.float32)
    levels, z = sift.apply(X), sift.project(X)
    assert levels.dtype == np.int64
    assert np.array_equal(levels, np.clip(np.floor(z / [0.5, 1, 1.5]) + 2, 0, 3))
    assert (sift.levels, sift.alphabet) == ((4, 4, 4), 64)
    assert np.array_equal(sift.symbols(X), levels @ [16, 4, 1])
    with pytest.raises(InputError, match="no small alphabet"):
        LinearSift(mean, scale, matrix).symbols(X)


@settings(deadline=None)
@given(
    z=hnp.arrays(np.float32, (20, 1), elements=st.floats(-10, 10, width=32)),
    edges=st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=9, unique=True),
)
def test_levels_count_the_edges_at_or_below(z, edges):
    levels = Quantiser(np.array([sorted(edges)])).apply(z)
    assert levels.ravel().tolist() == [sum(edge <= value for edge in edges) for value in z.ravel()]


@pytest.mark.parametrize(
    "edges", [[[2.0, 1.0]], [[1.0, 1.0]], [[math.nan]], [[math.inf]], [1.0, 2.0], np.zeros((0, 1)), np.zeros((1, 0))]
)
def test_edges_that_do_not_rise_are_refused(edges):
    with pytest.raises(InputError):
        Quantiser(np.array(edges))


def test_wrong_features_and_those_of_another_pipeline_are_refused():
    sift = LinearSift(*parts(), pipeline="pixels v1")
    for features, named in [
        (np.zeros((3, 5)), "got 5"),
        *((np.full((1, 6), bad), "NaN or infinite") for bad in (math.nan, math.inf, 1e300)),
        (np.zeros(6), "shape"),
        (np.array([["a"] * 6]), "numbers"),
    ]:
        with pytest.raises(InputError, match=named):
            sift.apply(features)
    sift.check_pipeline("pixels v1")
    with pytest.raises(InputError, match=r"'pixels v1'.*'embedding v2'"):
        sift.check_pipeline("embedding v2")
    LinearSift(*parts()).check_pipeline("anything")


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        *((0, value, "mean") for value in (math.nan, 1e13)),
        *((1, value, "scale") for value in (0.0, -1.0, 1e-20)),
        *((2, value, "matrix") for value in (math.inf, 1e300)),
        (2, 1e8, "median"),
        *((2, value, "vanishing") for value in (1e-40, 1e-20)),
    ],
)
def test_numbers_that_hide_things_are_refused(where, value, named):
    numbers = parts()
    numbers[where] = numbers[where].astype(np.float64)
    numbers[where].flat[0] = value
    with pytest.raises(InputError, match=named):
        LinearSift(*numbers)
    mean, scale, matrix = parts()
    for wrong, why in (((mean, scale, matrix * [1, 0, 1]), "column 1"), ((mean[:-1], scale, matrix), "mean")):
        with pytest.raises(InputError, match=why):
            LinearSift(*wrong)
    with pytest.raises(InputError, match="takes 2"):
        LinearSift(mean, scale, matrix, Quantiser.uniform([0, 0], [1, 1]))


def test_rounding_is_told_from_signal():
    matrix = np.random.default_rng(0).normal(size=(2000, 2))
    matrix[:1500, 0] *= 1e-15  # as an eigensolver leaves them
    mean, scale = np.zeros(2000, np.float32), np.ones(2000, np.float32)
    with pytest.raises(InputError, match="vanishing"):
        LinearSift(mean, scale, matrix.astype(np.float32))
    cleaned = without_negligible(matrix)
    LinearSift(mean, scale, cleaned.astype(np.float32))
    assert np.array_equal(cleaned[1500:], matrix[1500:])


def test_a_sift_cannot_be_changed():
    mean, scale, matrix = parts()
    sift = LinearSift(mean, scale, matrix)
    digest = sift.digest
    matrix[0, 0] += 1
    with pytest.raises(FrozenInstanceError):
        sift.matrix = matrix
    with pytest.raises(ValueError, match="read-only"):
        sift.matrix[0, 0] = 1
    assert sift.digest == digest


def test_the_digest_names_what_is_released_and_nothing_else():
    mean, scale, matrix = parts()
    original = LinearSift(mean, scale, matrix, pipeline="p")
    assert LinearSift(mean, scale, matrix, pipeline="p", name="another name").digest == original.digest
    others = [
        LinearSift(mean + 1, scale, matrix, pipeline="p"),
        LinearSift(mean, scale * 2, matrix, pipeline="p"),
        LinearSift(mean, scale, matrix[:, ::-1], pipeline="p"),
        LinearSift(mean, scale, matrix, pipeline="q"),
        LinearSift(mean, scale, matrix, Quantiser.uniform([-1] * 3, [1] * 3), pipeline="p"),
    ]
    assert len({sift.digest for sift in [original, *others]}) == 6


@settings(deadline=None, max_examples=10)
@given(
    matrix=hnp.arrays(np.float32, (4, 2), elements=st.floats(0.0625, 8, width=32)),
    bits=st.sampled_from([None, 1, 8]),
    name=st.text(max_size=8),
    pipeline=st.text(max_size=8),
)
def test_files_give_back_the_same_sift(tmp_path_factory, matrix, bits, name, pipeline):
    path = tmp_path_factory.mktemp("sift") / "sift.npz"
    quantiser = None if bits is None else Quantiser.uniform([-1, 0], [1, 2], bits)
    sift = LinearSift(np.zeros(4), np.ones(4), matrix, quantiser, pipeline, name)
    save_sift(sift, path)
    again = load_sift(path)
    X = np.random.default_rng(0).normal(size=(9, 4))
    assert again.digest == sift.digest
    assert (again.name, again.pipeline) == (name, pipeline)
    assert np.array_equal(again.apply(X), sift.apply(X))


def test_a_sift_is_named_by_its_numbers():
    """Grants name sifts by their digests: the same numbers have the same name in every version."""
    sift = LinearSift(np.arange(3), np.ones(3), np.eye(3)[:, :2], Quantiser(np.zeros((2, 1))), "pixels of 0.1", "old")
    assert sift.digest == "4566031b6030e0389fa61e58bcfeb5b9f15016c24c92eef09ae059ae71c80028"
    assert sift.apply([[-1, 2, 0]]).tolist() == [[0, 1]]


def test_files_that_hide_things_are_refused_like_sifts_that_do(tmp_path):
    path = tmp_path / "sift.npz"
    save_sift(LinearSift(*parts()), path)
    document, arrays = read_arrays(path, "blindsight/sift.1")
    crafted = [
        (document, arrays | {"matrix": arrays["matrix"] * np.float32(1e-30)}, "vanishing"),
        (document, arrays | {"matrix": arrays["matrix"] + np.float32(np.nan)}, "finite"),
        (document, {"mean": arrays["mean"]}, "scale|matrix"),
        (document | {"kind": "python"}, arrays, "unknown kind of sift"),
        ({"kind": "linear"}, arrays, "settings"),
    ]
    for content, numbers, says in crafted:
        write_arrays(path, "blindsight/sift.1", content, numbers)
        with pytest.raises(CorruptFileError, match=says):
            load_sift(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorruptFileError, match="truncated"):
        load_sift(path)
