"""Neighbourhood graphs and their slow coordinates against dense and brute-force computations."""

import numpy as np
import pytest
from scipy.linalg import block_diag, eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from blindsight.rng import science
from blindsight.search.codebook import (
    BRIDGE,
    meaning_of_neighbourhoods,
    mutual_graph,
    nearest,
    slow_coordinates,
    unit_rows,
)


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
