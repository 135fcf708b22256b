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
def test_releases_have_the_stated_probabilities(design):
    n = 40_000
    for symbol in range(design.mechanism.k):
        drawn = design.release(np.full(n, symbol), source=seeded_bytes(symbol))
        seen = np.bincount(drawn, minlength=design.outputs) / n
        stated = design.probabilities()[symbol == CELLS][0]
        # 5.6 standard deviations: a false alarm in fewer than 1e-6 runs over all outputs and symbols
        assert (np.abs(seen - stated) <= 5.6 * np.sqrt(stated / n) + 1e-9).all()


@pytest.mark.parametrize("design", DESIGNS)
def test_posterior_is_bayes_rule(design):
    prior = np.arange(1, 8) / 28
    table, posterior = design.probabilities(), design.posterior(prior)
    for output in range(design.outputs):
        evidence = sum(prior[cell] * table[cell, output] for cell in range(7))
        for cell in range(7):
            assert posterior[output, cell] == pytest.approx(prior[cell] * table[cell, output] / evidence)


def test_sets_are_all_subsets_in_order():
    design = DESIGNS[1]
    assert [tuple(np.flatnonzero(row)) for row in design.sets] == list(combinations(range(5), 2))


def test_expected_precision_is_the_limit_of_average_precision():
    generator = science(0)
    prior, relevance = np.array([0.5, 0.3, 0.2]), np.eye(3)
    table = KaryResponse(3, 1.0).probabilities()
    n, wanted = 200_000, []
    cells = generator.choice(3, size=n, p=prior)
    released = (generator.random((n, 1)) > np.cumsum(table, axis=1)[cells]).sum(axis=1)
    scores = (relevance * prior) @ table / (prior @ table)
    for query in range(3):
        wanted.append(query_average_precision(-scores[[query]][:, released], (cells == query)[None])[0])
    assert expected_precision(table, prior, relevance) == pytest.approx(prior @ wanted, abs=0.005)


def test_expected_precision_without_noise_and_without_information():
    prior = np.array([0.7, 0.2, 0.1])
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
    prior = np.full(16, 1 / 16)
    groups = np.arange(16) // 4
    relevance = np.where(np.eye(16) > 0, 1.0, np.where(groups[:, None] == groups, 0.4, 0.02))
    chosen = [best_design(prior, relevance, eps, mechanism="kary").mechanism.k for eps in (0.5, 1, 2, 3, 4, 6, 8)]
    assert chosen == sorted(chosen)
    assert chosen[0] <= 4
    assert chosen[-1] == 16


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
    with pytest.raises(InputError, match="9 symbols cannot be had"):
        best_design(prior, relevance, 1.0, symbols=9)
    with pytest.raises(InputError, match="needs 4 symbols"):
        best_design(prior, relevance, 1.0, mechanism="subset")
    with pytest.raises(InputError, match="every one of the 3 symbols"):
        Design(np.array([0, 0, 1]), KaryResponse(3, 1.0))
    with pytest.raises(InputError, match="limited to 256 sets"):
        Design(np.arange(40), SubsetSelection(40, 1.0, 3))
