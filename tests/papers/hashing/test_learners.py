"""What every hash learner must do, and what hash functions accept: a file gives back the same one or is refused."""

import hashlib
import struct
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from blindsight.errors import CorruptFileError, InputError, StorageError, UnknownNameError
from blindsight.files import write_arrays
from blindsight.metrics import query_average_precision
from blindsight.papers.hashing.deep import ADSH, DPSH, DSH, HashNet
from blindsight.papers.hashing.learners import KSH, LSH, SDH, SH, KernelHash, LayeredHash, SpectralHash
from blindsight.search import function as function_module
from blindsight.search.codes import hamming, pack
from blindsight.search.function import LinearHash, function_from, load_function, save_function
from blindsight.search.itq import ITQ

KIND = "blindsight/hash-function.1"
NETWORK = {"hidden": (64,), "epochs": 30, "batch": 50, "learning_rate": 5e-3}
LINEAR = {LSH: {}, ITQ: {"iterations": 5}, SH: {}}
SUPERVISED = {KSH: {"anchors": 60, "pairs_rows": 200}, SDH: {"anchors": 60}}
DEEP = {DPSH: NETWORK, DSH: NETWORK, HashNet: NETWORK, ADSH: NETWORK | {"epochs": 8}} if find_spec("torch") else {}
LEARNERS = LINEAR | SUPERVISED | DEEP


def corners(rows, seed=0):
    """Four classes in eight dimensions that no plane separates: each is two opposite corners of a square, in noise."""
    rng = np.random.default_rng(seed)
    classes, sign = rng.integers(0, 4, rows), rng.choice([-1, 1], rows)
    X = rng.normal(0, 0.5, size=(rows, 8))
    X[np.arange(rows), classes] += 2 * sign
    return X.astype(np.float32), classes


def small(learner, bits=6, **more):
    """A learner that has little to do."""
    return learner(bits, **LEARNERS[learner] | ({"hidden": (8,), "epochs": 2} if learner in DEEP else {}) | more)


every_learner = pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.__name__)
every_supervised = pytest.mark.parametrize("learner", SUPERVISED | DEEP, ids=lambda learner: learner.__name__)


@every_learner
def test_the_same_seed_gives_the_same_function_and_a_file_gives_it_back(learner, tmp_path):
    X, y = corners(60)
    states = [np.random.get_state()[1]]  # noqa: NPY002 - it must not move
    if learner in DEEP:
        import torch

        torch.manual_seed(11)
        states.append(torch.get_rng_state().numpy())
    fitted = small(learner).fit(X, y)
    function = fitted.function_
    assert clone(fitted).get_params() == fitted.get_params()
    assert clone(fitted).fit(X, y).function_.digest == function.digest
    if learner is not SH:  # which draws nothing
        assert small(learner, random_state=1).fit(X, y).function_.digest != function.digest
    np.testing.assert_array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
    assert learner not in DEEP or (torch.get_rng_state().numpy() == states[1]).all()
    save_function(function, tmp_path / "function")
    again = load_function(tmp_path / "function")
    assert (type(again), again.digest) == (type(function), function.digest)
    np.testing.assert_array_equal(again(X), fitted.transform(X))


@every_supervised
def test_codes_tell_classes_apart_that_random_planes_do_not(learner):
    X, y = corners(300)
    queries, wanted = corners(60, seed=1)

    def precision(function):
        return query_average_precision(hamming(function(queries), function(X)), wanted[:, None] == y).mean()

    planes = LinearHash(X.mean(axis=0), np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32))
    assert precision(planes) < 0.45
    assert precision(learner(12, **LEARNERS[learner]).fit(X, y).function_) > 0.75


@pytest.mark.parametrize("learner", [LSH, SH, *SUPERVISED, *DEEP], ids=lambda learner: learner.__name__)
def test_more_bits_than_features_and_repeated_or_constant_ones_do_no_harm(learner):
    X, y = corners(20)
    X, y = np.repeat(np.c_[X, np.ones(20)], 3, axis=0), np.repeat(y, 3)
    codes = small(learner, 40).fit_transform(X, y)
    assert codes.shape == (60, 5)
    assert (codes[::3] == codes[2::3]).all()
    assert len(np.unique(codes, axis=0)) > 1


@every_learner
def test_what_cannot_be_learned_from_is_refused(learner):
    X, y = corners(40)
    for bits in (0, -3, 2.5, "8"):
        with pytest.raises(InputError, match="bits"):
            small(learner, bits).fit(X, y)
    for rows, named in ((X[:1], "2 rows"), (np.full_like(X, np.nan), "NaN"), (X[0], "shape")):
        with pytest.raises(InputError, match=named):
            small(learner, 2).fit(rows, y[: len(rows)])
    with pytest.raises(NotFittedError):
        small(learner).transform(X)
    with pytest.raises(InputError, match=r"8 .* got 2"):
        small(learner).fit(X, y).transform(X[:, :2])
    if learner in LINEAR:
        return
    for labels, named in ((None, learner.__name__), (np.full(40, 7), "40 labels are 7"), (y[:19], r"\(19,\)")):
        with pytest.raises(InputError, match=named):
            small(learner).fit(X, labels)


@pytest.mark.parametrize(
    ("learner", "parameters", "named"),
    [
        (ITQ, {"iterations": -1}, "-1"),
        (KSH, {"anchors": 0}, "anchor"),
        (KSH, {"pairs_rows": 1}, "pairs_rows"),
        (KSH, {"bandwidth": 0.0}, "bandwidth"),
        *((SDH, wrong, "iterations") for wrong in ({"iterations": 0}, {"nu": -1.0}, {"lam": 0.0}, {"nu": np.nan})),
        *((DPSH, wrong, "1") for wrong in ({"epochs": 0}, {"batch": 0}, {"hidden": (4, 0)}, {"learning_rate": 0.0})),
        *((learner, {"drawn": 0}, "drawn") for learner in DEEP if learner is ADSH),
    ],
)
def test_wrong_parameters_are_refused(learner, parameters, named):
    with pytest.raises(InputError, match=named):
        learner(4, **parameters).fit(*corners(20))


# --- functions and their files ---


@st.composite
def functions(draw):
    """A function of any kind with any finite numbers in it."""
    dimension, bits = draw(st.integers(1, 6)), draw(st.integers(1, 20))

    def part(*shape):
        return draw(nps.arrays(np.float32, shape, elements=st.floats(-1e6, 1e6, width=32)))

    if draw(st.booleans()):
        return LinearHash(part(dimension), part(dimension, bits))
    return SpectralHash(part(dimension), part(dimension, bits), part(bits))


@pytest.fixture(scope="module")
def features():
    return np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)


@settings(deadline=None, max_examples=25)
@given(functions())
def test_a_file_gives_back_the_same_function(tmp_path_factory, function):
    path = tmp_path_factory.mktemp("functions") / "function.npz"
    save_function(function, path)
    found = load_function(path)
    X = np.random.default_rng(1).normal(size=(9, function.dimension))
    assert (type(found), found.digest) == (type(function), function.digest)
    assert (found.bits, found.dimension) == (function.bits, function.dimension)
    np.testing.assert_array_equal(found(X), function(X))


def test_the_digest_is_that_of_the_name_and_of_each_array_in_alphabetical_order():
    mean, matrix = np.array([5, 6], "f4"), np.array([[1, 2, 3], [4, 5, 6]], "f4")
    content = b"linear" + b"matrix <f4 (2, 3)\n" + struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    content += b"mean <f4 (2,)\n" + struct.pack("<2f", 5, 6)
    assert LinearHash(mean, matrix).digest == hashlib.sha256(content).hexdigest()
    moved = matrix.copy()
    moved[1, 2] = np.nextafter(np.float32(6), np.float32(7))
    made = [LinearHash(mean, matrix), LinearHash(mean, moved), SpectralHash(mean, matrix, np.zeros(3, "f4"))]
    assert len({function.digest for function in made}) == 3


@pytest.mark.parametrize(
    ("kind", "document", "arrays"),
    [
        ("blindsight/else.1", {"function": "linear"}, {}),
        (KIND, {"function": "quadratic"}, {}),
        (KIND, {"function": "linear"}, {"mean": np.zeros(3, "f4")}),
        (KIND, {"function": "linear"}, {"mean": np.zeros(3, "f4"), "matrix": np.eye(4, dtype="f4")}),
        (KIND, {"function": "linear"}, {"mean": np.array(["a"]), "matrix": np.eye(1, dtype="f4")}),
        (KIND, {}, {}),
        (None, None, None),
    ],
)
def test_a_file_that_is_not_a_whole_function_is_refused(kind, document, arrays, features, tmp_path):
    path = tmp_path / "function"
    if kind is not None:
        write_arrays(path, kind, document, arrays)
        with pytest.raises(CorruptFileError, match="function"):
            load_function(path)
        return
    save_function(ITQ(4).fit(features).function_, path)
    content = path.read_bytes()
    middle = len(content) // 2
    last = content.index(b"PK\1\2") - 1  # the last byte of the last array
    altered = content[:last] + bytes([content[last] ^ 1]) + content[last + 1 :]
    for damaged in (content[:middle], altered, b""):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match="function"):
            load_function(path)
    path.unlink()
    with pytest.raises(StorageError, match="not exist"):
        load_function(path)


def test_an_unknown_kind_gets_the_nearest_name():
    with pytest.raises(UnknownNameError, match="'linear'"):
        function_from("lineal", {})


def test_codes_are_the_signs_of_the_scores_a_score_of_zero_being_1(features, monkeypatch):
    function = LinearHash(np.zeros(1, "f4"), np.array([[1, -1, 2]], "f4"))
    np.testing.assert_array_equal(function([[0], [3]]), pack([[1, 1, 1], [1, 0, 1]]))
    function = LSH(24).fit(features).function_
    clear = features[np.abs(function.scores(features)).min(axis=1) > 1e-4]  # whatever the order of sums
    assert len(clear) > 40
    whole = function(clear)
    monkeypatch.setattr(function_module, "_ROWS", 7)
    np.testing.assert_array_equal(function(clear), whole)


@pytest.mark.parametrize(
    ("X", "named"),
    [
        (np.zeros(6), "shape"),
        (np.array([["a"] * 6]), "numbers"),
        (np.array([[0, 0, np.nan, 0, 0, 0]]), "NaN"),
        (np.full((1, 6), 1e300), "infinite"),
        (np.zeros((0, 6)), "no features"),
    ],
)
def test_features_that_cannot_be_hashed_are_refused(X, named, features):
    with pytest.raises(InputError, match=named):
        LSH(8).fit(features).function_(X)


ONE, WIDE, TALL = np.ones(3, "f4"), np.ones((3, 4), "f4"), np.ones((5, 3), "f4")
LAYERS = (np.ones((3, 2), "f4"), np.ones((2, 1), "f4")), (np.ones(2, "f4"), np.ones(1, "f4"))


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (LinearHash, (np.zeros(3), WIDE)),
        (LinearHash, (ONE, np.inf * WIDE)),
        (LinearHash, (ONE[:2], WIDE)),
        (LinearHash, (ONE, WIDE[:, :0])),
        (SpectralHash, (np.zeros(3), WIDE, WIDE[0])),
        (SpectralHash, (ONE, np.nan * WIDE, WIDE[0])),
        (SpectralHash, (ONE, WIDE, ONE)),
        (SpectralHash, (ONE[:0], WIDE[:0], WIDE[0])),
        (KernelHash, (TALL[:4], 1.0, np.ones(5, "f4"), TALL)),
        (KernelHash, (TALL, 1.0, np.ones((5, 1), "f4"), TALL)),
        (KernelHash, (TALL, 0.0, np.ones(5, "f4"), TALL)),
        (KernelHash, (TALL, 1.0, np.ones(5, "f4"), np.inf * TALL)),
        (LayeredHash, (ONE, ONE[:1], *LAYERS)),
        (LayeredHash, (ONE, -ONE, *LAYERS)),
        (LayeredHash, (ONE, ONE, LAYERS[0][::-1], LAYERS[1][::-1])),
        (LayeredHash, (ONE, ONE, LAYERS[0], LAYERS[1][:1])),
        (LayeredHash, (ONE, ONE, (), ())),
        (LayeredHash, (ONE, ONE, LAYERS[0], (LAYERS[1][0], np.float32([np.nan])))),
    ],
)
def test_parts_that_are_no_function_are_refused(make, parts):
    with pytest.raises(InputError):
        make(*parts)
