"""Designs against enumeration: their loss, Bayes' rule, the closed form of average precision, and the choice of k."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from blindsight.errors import InputError
from blindsight.metrics import query_average_precision
from blindsight.rng import science, seeded_bytes
from blindsight.search.channels import Design, best_design, expected_precision, merging_path
from blindsight.search.symbols import KaryResponse, SubsetSelection

CELLS = np.array([0, 1, 1, 2, 3, 0, 4])
DESIGNS = [Design(CELLS, KaryResponse(5, 1.5)), Design(CELLS, SubsetSelection(5, 1.5, 2))]


@pytest.mark.parametrize("design", DESIGNS)
def test_loss_over_all_outputs_and_cells_is_epsilon(design):
    table = design.probabilities()
    assert table.shape == (7, design.outputs)
    np.testing.assert_allclose(table.sum(axis=1), 1)
    assert np.log(table.max(axis=0) / table.min(axis=0)).max() == pytest.approx(design.mechanism.loss)


@pytest.mark.parametrize("design", DESIGNS)
def test_releases_have_the_stated_probabilities_and_posteriors_are_bayes_rule(design):
    n, prior = 20_000, np.arange(1, 8) / 28
    table = design.probabilities()
    for symbol in range(design.mechanism.k):
        drawn = design.release(np.full(n, symbol), source=seeded_bytes(symbol))
        seen, stated = np.bincount(drawn, minlength=design.outputs) / n, table[symbol == CELLS][0]
        # 5.6 standard deviations: a false alarm in fewer than 1e-6 runs over all outputs and symbols
        assert (np.abs(seen - stated) <= 5.6 * np.sqrt(stated / n) + 1e-9).all()
    joint = prior[:, None] * table
    assert design.posterior(prior) == pytest.approx((joint / joint.sum(axis=0)).T)


def test_sets_are_all_subsets_in_order():
    design = DESIGNS[1]
    assert [tuple(np.flatnonzero(row)) for row in design.sets] == list(combinations(range(5), 2))


def test_expected_precision_is_the_limit_of_average_precision():
    generator = science(0)
    prior, relevance = np.array([0.5, 0.3, 0.2]), np.eye(3)
    table, n = KaryResponse(3, 1.0).probabilities(), 100_000
    cells = generator.choice(3, size=n, p=prior)
    released = (generator.random((n, 1)) > np.cumsum(table, axis=1)[cells]).sum(axis=1)
    scores = (relevance * prior) @ table / (prior @ table)
    wanted = [query_average_precision(-scores[[q]][:, released], (cells == q)[None])[0] for q in range(3)]
    assert expected_precision(table, prior, relevance) == pytest.approx(prior @ wanted, abs=0.007)
    prior = np.array([0.7, 0.2, 0.1])  # without noise, and without information
    assert expected_precision(np.eye(3), prior, np.eye(3)) == pytest.approx(1)
    assert expected_precision(np.full((3, 4), 0.25), prior, np.eye(3)) == pytest.approx(prior @ prior)


def test_merging_takes_the_best_pair_every_time():
    generator = science(2)
    prior = generator.dirichlet(np.ones(6))
    relevance = np.maximum(np.corrcoef(generator.standard_normal((6, 4))), 1e-6)
    path = list(merging_path(prior, relevance, 2.0))
    assert [int(stage.max()) + 1 for stage in path] == [6, 5, 4, 3, 2]
    for before, after in pairwise(path):
        k = int(after.max()) + 1
        table = KaryResponse(k, 2.0).probabilities()
        worths = []
        for a, b in combinations(range(k + 1), 2):
            names = np.unique(np.where(before == b, a, before), return_inverse=True)[1]
            worths.append(expected_precision(table[names], prior, relevance))
        assert expected_precision(table[after], prior, relevance) == pytest.approx(max(worths))


def test_more_epsilon_never_means_fewer_symbols():
    prior, groups = np.full(10, 1 / 10), np.arange(10) // 3
    relevance = np.where(np.eye(10) > 0, 1.0, np.where(groups[:, None] == groups, 0.4, 0.02))
    chosen = [best_design(prior, relevance, eps, mechanism="kary").mechanism.k for eps in (0.5, 1, 2, 3, 4, 6, 8)]
    assert chosen == sorted(chosen)
    assert chosen[0] <= 4
    assert chosen[-1] == 10


def test_subsets_win_where_epsilon_is_small_and_kinds_are_many():
    prior, relevance = np.full(12, 1 / 12), np.maximum(np.eye(12), 1e-6)
    design = best_design(prior, relevance, 0.5, symbols=12)
    assert isinstance(design.mechanism, SubsetSelection)
    kary = best_design(prior, relevance, 0.5, symbols=12, mechanism="kary")
    assert expected_precision(design.probabilities(), prior, relevance) > expected_precision(
        kary.probabilities(), prior, relevance
    )
    assert isinstance(best_design(prior, relevance, 6.0).mechanism, KaryResponse)


def test_impossible_designs_are_refused():
    prior, relevance = np.full(3, 1 / 3), np.eye(3)
    for refuse, named in [
        (lambda: best_design(prior, relevance, 1.0, symbols=9), "9 symbols"),
        (lambda: best_design(prior, relevance, 1.0, mechanism="subset"), "4 symbols"),
        (lambda: Design(np.array([0, 0, 1]), KaryResponse(3, 1.0)), "3 symbols"),
        (lambda: Design(np.arange(40), SubsetSelection(40, 1.0, 3)), "256 sets"),
    ]:
        with pytest.raises(InputError, match=named):
            refuse()
