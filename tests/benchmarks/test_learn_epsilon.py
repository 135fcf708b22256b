"""Accuracy against epsilon: the quick version runs, who learns from what, and how the table is made."""

import numpy as np
import pytest

from benchmarks.harness import Settings
from benchmarks.methods import learning
from benchmarks.results import Result
from benchmarks.suites.learning import EPSILONS, LEARN_EPSILON, epsilon_tasks
from blindsight.errors import InputError
from tests.benchmarks.conftest import tables

QUICK = Settings(quick=True)


@pytest.fixture(scope="module")
def problem():
    (task,) = epsilon_tasks(QUICK)
    return task.pose(0)


def test_nobody_has_a_test_row_and_no_row_has_two_owners(problem):
    given = problem.given
    parts = [given.public[0], *(X for X, _ in given.owners), given.test]
    rows = np.concatenate(parts)
    assert len(np.unique(rows, axis=0)) == len(rows) == 3000
    assert len(given.owners) == 5


def test_noise_in_the_sum_is_as_good_as_that_of_a_curator(problem):
    """At epsilon 8 a figure moves by a deviation of 0.2 points from run to run; those compared are a point apart."""

    def accuracy(method, **arguments):
        return problem.score(getattr(learning, method)(problem.given, seed=0, **arguments))["accuracy"]

    budget = {"rounds": 20, "epsilon": 8.0, "delta": 1e-5}
    curator, public = accuracy("curator", **budget), accuracy("public")
    assert abs(accuracy("summed", **budget, against="nobody") - curator) < 1.5
    assert curator > public + 1


def test_the_table_sets_the_sum_beside_the_curator():
    results = [
        Result("learn-epsilon", "x", method, {"epsilon": epsilon}, 0, score={"accuracy": value})
        for epsilon in EPSILONS
        for method, value in (("summed", 80.5), ("curator", 80.0))
    ]
    results.append(Result("learn-epsilon", "x", "public", {}, 0, score={"accuracy": 60.0}))
    (rows,) = tables(LEARN_EPSILON, results).values()
    assert rows["the public data alone"] == ((60.0,),) * 5
    assert rows["the sum's points above the curator"] == ("+0.50",) * 5
    assert {method.name for method in LEARN_EPSILON.methods} >= {"summed", "curator", "local", "prr10", "ra12", "none"}


def test_without_data_one_is_told_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="--data-dir"):
        epsilon_tasks(Settings())
