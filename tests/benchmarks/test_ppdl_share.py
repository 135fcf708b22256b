"""How much is shared: who has which photos, how answers are scored, and how figures stand beside the reference."""

import numpy as np
import pytest

from benchmarks.harness import Settings
from benchmarks.methods import selective
from benchmarks.results import Result
from benchmarks.suites import selective as suite
from blindsight.errors import InputError
from tests.benchmarks.conftest import tables

QUICK = Settings(quick=True)


def posed(name):
    return next(task for task in suite.share_tasks(QUICK) if task.dataset == name).pose(0)


def test_the_small_network_has_the_size_of_the_reference_and_is_drawn_by_the_seed():
    pytest.importorskip("torch")
    first, same, other = (suite.small_network(seed).state_dict() for seed in (0, 0, 1))
    assert sum(tensor.numel() for tensor in first.values()) == 13_706
    assert all((first[name] == same[name]).all() for name in first)
    assert (first["0.weight"] != other["0.weight"]).any()


def test_everyone_alone_answers_with_a_model_each_and_all_together_with_one():
    problem = posed("photos")
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


def test_figures_stand_beside_the_reference_and_relations_are_judged():
    def result(accuracy, seed=0, **arguments):
        method = "unshared" if "line" in arguments else "selective"
        return Result("ppdl-share", "digits", method, arguments, seed, score={"accuracy": accuracy})

    results = [
        result(0.98, line="centralised"),
        result(0.97, share=1.0, select="largest", residual=False),
        result(0.90, share=0.01, select="largest", residual=False),
        result(0.975, share=0.01, select="largest", residual=True),
    ]
    rows, relations = tables(suite.SHARE, results).values()
    assert rows["largest"] == ((0.97,), (), (), (), (0.90,))
    assert rows["random"][0] == (0.97,)  # where everything is shared there is nothing to select
    assert rows["largest, reference"][-2:] == (".971", ".929")
    verdicts = {said: row[-1] for said, row in relations.items()}
    assert verdicts["digits: residuals rescue 0.01: within 1 point of centralised"] == "confirmed"
    assert verdicts["photos: largest above random, 0.1"] == "not measured"
    assert len(suite.SHARE.methods) == 2 + 1 + 4 * 4 + 3 * 2
