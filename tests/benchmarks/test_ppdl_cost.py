"""The cost of sharing: both loops learn the same, bytes are counted, targets are judged."""

import numpy as np
import pytest

from benchmarks.harness import Settings
from benchmarks.methods import selective
from benchmarks.results import Result
from benchmarks.suites import selective as suite
from blindsight.errors import InputError
from tests.benchmarks.conftest import tables

pytest.importorskip("torch")


def posed():
    (task,) = suite.cost_tasks(Settings(quick=True))
    return task.pose(0)


def test_with_everything_shared_both_loops_learn_the_same_bit_for_bit():
    problem = posed()
    answer = selective.both(problem.given, seed=0, share=1.0, journal=True)
    assert np.array_equal(answer["plain"], answer["shared"])
    assert answer["seconds"].shape == (2, 2)
    figures = problem.score(answer)
    assert figures["difference"] == 0
    assert 1 < figures["of dense"] < 1.01
    received = problem.score(selective.receive(problem.given, seed=0, share=0.1, journal=True))
    assert received["difference"] == 0  # a server that only receives comes to the same parameters
    assert received["receive wall"] > 0
    with pytest.raises(InputError, match="both"):
        suite.score_cost(1, {"plain": np.zeros(3), "shared": np.zeros(2)})


def test_bytes_shrink_with_the_share_and_with_half():
    problem = posed()
    sizes = [
        problem.score(selective.both(problem.given, seed=0, share=share, half=half))["of dense"]
        for share, half in ((0.1, False), (0.1, True), (0.01, False))
    ]
    assert suite.MOST_BYTES > sizes[0] > sizes[1] > sizes[2]


def test_targets_are_judged_by_the_mean_of_medians():
    seconds = np.array([[1.0, 1.1], [1.0, 1.2], [2.0, 2.2]])
    answer = {"plain": np.zeros(100), "shared": np.zeros(100), "seconds": seconds, "served": np.array([0.05, 0.1, 0.1])}
    figures = suite.score_cost(1, {**answer, "uploads": np.array([60, 68]), "downloads": np.array([400])})
    assert figures["whole ratio"] == pytest.approx(1.1)
    assert figures["ratio"] == pytest.approx(1.05)
    assert figures["of dense"] == 0.16
    result = Result("ppdl-cost", "small-cnn", "steps", {"share": 0.1}, 0, score=figures)
    targets = tables(suite.COST, [result])["Targets"]
    assert [row[-1] for row in targets.values()] == ["reached", "reached", "not measured"]
