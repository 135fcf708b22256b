"""The sparse-vector technique: the papers' scales, the papers' loop, a worked example, and what each choice costs."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from blindsight.dp.mechanisms import LaplaceMechanism
from blindsight.dp.sampling import discrete_laplace
from blindsight.papers.selective import noise as noise_module
from blindsight.papers.selective import noise as sparsevector
from blindsight.papers.selective.noise import Laplace, PublishedLaplace, Split, select_above, sparse_vector
from blindsight.rng import seeded_bytes

FALSE_ALARM = 1e-6


@pytest.mark.parametrize("count", [1, 512])
def test_scales_are_those_of_figure_12(count):
    epsilon, bound = 0.7, 0.1
    whole, move = count * epsilon, 2 * bound  # the paper's eps is for all c values, Df = 2 gamma
    eps1, eps2 = 8 / 9 * whole, 2 / 9 * whole

    def sigma(x):
        return 2 * count * move / x

    split = Split(epsilon, bound)
    assert split.threshold_scale == pytest.approx(sigma(eps1))
    assert split.value_scale == pytest.approx(sigma(eps2))
    assert split.choosing + split.telling == pytest.approx(epsilon)  # eps1 + eps2 / 2 = eps


def test_budget_split_of_the_papers_setting():
    split = Split(epsilon=1.0, bound=0.1)
    assert (split.threshold_scale, split.value_scale) == (pytest.approx(0.45), pytest.approx(1.8))


def chance_of_first(sizes, place, threshold, split):
    """The probability that `place` is the first to reach the noisy threshold, for noise of real numbers."""
    scale = split.threshold_scale
    t = threshold + scale * np.linspace(-40, 40, 80_001)
    noisy = stats.laplace(scale=2 * scale)
    density = stats.laplace.pdf(t, threshold, scale) * noisy.sf(t - sizes[place])
    for earlier in sizes[:place]:
        density *= noisy.cdf(t - earlier)
    return float(np.trapezoid(density, t))


def test_finding_a_place_costs_no_more_than_its_part_by_enumerating_neighbours():
    split, threshold = Split(epsilon=2.0, bound=0.5), 0.3
    inputs = list(product((0.0, 0.5), repeat=3))  # sizes at the ends of [0, gamma]: the worst neighbours
    for place in range(3):
        chances = [chance_of_first(sizes, place, threshold, split) for sizes in inputs]
        worst = math.log(max(chances) / min(chances))
        assert 0 < worst <= split.choosing / 2 + 1e-6  # magnitudes move by gamma, the papers allow for 2 gamma


def test_places_are_found_as_often_as_the_noise_says():
    split, change = Split(epsilon=8.0, bound=0.5), np.array([0.2, -0.5, 0.35])
    source, found = seeded_bytes(5), np.zeros(4)
    runs = 1000
    for _ in range(runs):
        places, _ = sparse_vector(
            change, noise=Laplace(8.0), bound=0.5, threshold=0.4, count=1, rng=_InOrder(), source=source
        )
        found[places[0] if places.size else 3] += 1
    chances = [chance_of_first((0.2, 0.5, 0.35), place, 0.4, split) for place in range(3)]
    expected = runs * np.array([*chances, 1 - sum(chances)])
    assert stats.chisquare(found, expected).pvalue > FALSE_ALARM


class _InOrder(np.random.Generator):
    """Visits parameters in their own order."""

    def __init__(self):
        super().__init__(np.random.PCG64(1))

    def permutation(self, x):
        return np.arange(x)


def published_loop(change, epsilon, bound, threshold, count, source):
    """Figure 12 step by step, with the same draws: noise of comparisons, of thresholds, then of values."""
    split = Split(epsilon, bound)
    grid = LaplaceMechanism(sensitivity=2 * bound, epsilon=split.choosing / 2).grid(1)
    compared = discrete_laplace(2 * grid.noise, change.size, source) * grid.step
    thresholds = discrete_laplace(grid.noise, count, source) * grid.step
    places = []
    for place, weight in enumerate(change):
        if abs(max(-bound, min(weight, bound))) + compared[place] >= threshold + thresholds[len(places)]:
            places.append(place)
            if len(places) == count:
                break
    fine = LaplaceMechanism(sensitivity=2 * bound, epsilon=split.telling).grid(1)
    told = discrete_laplace(fine.noise, len(places), source) * fine.step
    values = [max(-bound, min(weight, bound)) + noise for weight, noise in zip(change[places], told, strict=True)]
    return places, [max(-bound, min(value, bound)) for value in values]


@pytest.mark.parametrize(("count", "threshold"), [(1, 0.0), (40, 0.05), (40, 0.3), (300, 0.0)])
def test_equals_the_published_loop_with_the_same_bytes(count, threshold):
    change = np.random.default_rng(2).normal(scale=0.2, size=400)
    expected = published_loop(change, 30.0, 0.4, threshold, count, seeded_bytes(9))
    places, values = sparse_vector(
        change, noise=Laplace(30.0), bound=0.4, threshold=threshold, count=count, rng=_InOrder(), source=seeded_bytes(9)
    )
    assert places.tolist() == expected[0]
    assert values == pytest.approx(expected[1], abs=1e-8)  # the loop rounds no value to the grid
    assert 0 < places.size <= count


def test_worked_example(monkeypatch):
    # gamma = 1, tau = 0.5. Comparisons get +0.2, 0, -0.6, 0, +0.1; thresholds 0, +0.3, -0.5.
    # 0.2 + 0.2 = 0.4 < 0.5; |-2| -> 1 >= 0.5, upload; next threshold 0.8: 0.9 - 0.6 = 0.3 < 0.8; 0.7 < 0.8;
    # 0.75 + 0.1 = 0.85 >= 0.8, upload. Values get +0.25 and +0.5: -1 + 0.25 = -0.75, and 0.75 + 0.5 is cut to 1.
    grid = LaplaceMechanism(sensitivity=2.0, epsilon=Split(1.0, 1.0).choosing / 2).grid(1)
    fine = LaplaceMechanism(sensitivity=2.0, epsilon=Split(1.0, 1.0).telling).grid(1)
    draws = [([0.2, 0.0, -0.6, 0.0, 0.1], grid.step), ([0.0, 0.3, -0.5], grid.step), ([0.25, 0.5], fine.step)]
    scales = []

    def drawn(scale, size, source):
        values, step = draws[len(scales)]
        scales.append(scale)
        assert len(values) == size
        return np.rint(np.array(values) / step).astype(np.int64)

    monkeypatch.setattr(sparsevector, "discrete_laplace", drawn)
    monkeypatch.setattr(noise_module, "discrete_laplace", drawn)
    change = np.array([0.2, -2.0, 0.9, 0.7, 0.75])
    places, values = sparse_vector(change, noise=Laplace(1.0), bound=1.0, threshold=0.5, count=3, rng=_InOrder())
    assert places.tolist() == [1, 4]
    assert values == pytest.approx([-0.75, 1.0], abs=1e-8)
    assert scales[0] == 2 * scales[1]
    assert scales[1] * grid.step == pytest.approx(4.5)  # 2 Df / (8/9), Df = 2
    assert scales[2] * fine.step == pytest.approx(18.0)  # 2 Df / (2/9)


def test_published_values_are_not_bounded_before_the_noise():
    change = np.full(50, 1e6)
    arguments = {"bound": 0.1, "threshold": 0.0, "count": 50, "rng": np.random.default_rng(1)}
    _, published = sparse_vector(change, noise=PublishedLaplace(1.0), source=seeded_bytes(1), **arguments)
    _, proven = sparse_vector(change, noise=Laplace(1.0), source=seeded_bytes(1), **arguments)
    assert set(published.tolist()) == {0.1}  # the noise hides nothing
    assert set(proven.tolist()) > {-0.1}


def test_without_noise_random_ones_of_those_above_are_taken():
    change = np.array([0.1, -0.6, 0.5, 0.2, 0.9])
    assert select_above(change, 0.5, 5, np.random.default_rng(1)).tolist() == [1, 2, 4]
    seen = {tuple(select_above(change, 0.5, 2, np.random.default_rng(seed)).tolist()) for seed in range(40)}
    assert seen == {(1, 2), (1, 4), (2, 4)}
    assert select_above(change, 2.0, 5, np.random.default_rng(1)).size == 0
