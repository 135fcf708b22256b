"""How much is shared and what sharing costs: scores, both loops learn the same, targets and references."""

import numpy as np
import pytest

from benchmarks.methods import selective
from benchmarks.results import Result
from benchmarks.suites import selective as suite
from benchmarks.table import shown
from blindsight.errors import InputError
from tests.benchmarks.conftest import posed, tables


def test_the_small_network_has_the_size_of_the_reference_and_is_drawn_by_the_seed():
    pytest.importorskip("torch")
    first, same, other = (suite.small_network(seed).state_dict() for seed in (0, 0, 1))
    assert sum(tensor.numel() for tensor in first.values()) == 13_706
    assert all((first[name] == same[name]).all() for name in first)
    assert (first["0.weight"] != other["0.weight"]).any()


def test_everyone_alone_answers_with_a_model_each_and_all_together_with_one():
    problem = posed(suite.share_tasks, "photos")
    given = problem.given
    rows = np.concatenate([photos.inputs for photos in given.participants.values()] + [given.test])
    assert len(given.participants) == 10
    assert len(np.unique(rows, axis=0)) == len(rows)  # every participant has photos of its own
    alone = selective.unshared(given, seed=0, line="alone")
    together = selective.selective(given, seed=0, share=0.1, select="largest", residual=True)
    assert (len(alone), len(together)) == (10, 1)
    assert min(problem.score(answer)["accuracy"] for answer in (alone, together)) > 0.5  # chance is 0.25
    with pytest.raises(InputError, match="model"):
        problem.score(together[0])


def test_figures_stand_by_share_and_relations_are_judged():
    def result(accuracy, seed=0, **arguments):
        method = "unshared" if "line" in arguments else "selective"
        return Result("ppdl-share", "digits", method, arguments, seed, score={"accuracy": accuracy})

    results = [
        result(0.98, line="centralised"),
        result(0.97, share=1.0, select="largest", residual=False),
        result(0.90, share=0.01, select="largest", residual=False),
        result(0.975, share=0.01, select="largest", residual=True),
    ]
    grid, _ = shown(suite.SHARE, results)
    assert list(grid.columns)[3:] == ["share 1.0", "share 0.01"]
    assert [list(row) for row in grid.rows] == [
        ["", "", "centralised", (0.98,), (0.98,)],  # whatever the share
        ["largest", "False", "", (0.97,), (0.90,)],
        ["largest", "True", "", (), (0.975,)],
    ]
    _, relations = tables(suite.SHARE, results).values()
    verdicts = {said: row[-1] for said, row in relations.items()}
    assert verdicts["digits: residuals rescue 0.01: within 1 point of centralised"] == "confirmed"
    assert verdicts["photos: largest above random, 0.1"] == "not measured"
    assert len(suite.SHARE.methods) == 2 + 1 + 4 * 4 + 3 * 2


def steps():
    pytest.importorskip("torch")
    return posed(suite.cost_tasks, "small-cnn")


def test_with_everything_shared_both_loops_learn_the_same_bit_for_bit():
    problem = steps()
    answer = selective.both(problem.given, seed=0, share=1.0)
    assert np.array_equal(answer["plain"], answer["shared"])
    assert answer["seconds"].shape == (2, 2)
    figures = problem.score(answer)
    assert figures["difference"] == 0
    assert 1 < figures["of dense"] < 1.01
    received = problem.score(selective.receive(problem.given, seed=0, share=0.1))
    assert received["difference"] == 0  # a server that only receives comes to the same parameters
    assert received["receive wall"] > 0
    with pytest.raises(InputError, match="both"):
        suite.score_cost(1, {"plain": np.zeros(3), "shared": np.zeros(2)})


def test_bytes_shrink_with_the_share_and_with_half():
    problem = steps()
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
