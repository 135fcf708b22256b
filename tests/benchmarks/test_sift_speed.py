"""The speed benchmark of verification and fitting: scorers, verdicts, tables, and a quick run from end to end."""

import copy

import numpy as np
import pytest

from benchmarks.harness import Settings
from benchmarks.methods import sifts
from benchmarks.results import Result
from benchmarks.suites import sift_speed
from blindsight.errors import InputError
from tests.benchmarks.conftest import tables


def result(method, attacker, cpu, low, limit, seed=0, session="monday"):
    score = {"balanced_accuracy": (low + limit) / 2, "low": low, "limit": limit}
    return Result(
        "sift-speed", "leaking-9", method, {"attacker": attacker}, seed, score=score, cpu_seconds=cpu, session=session
    )


def test_guesses_are_judged_as_the_verifier_does_and_the_verdict_follows_from_all_attackers():
    truth = np.repeat([0, 1], 500).astype(np.int8)
    scores = sift_speed.score(truth, np.zeros(1000, dtype=np.int8))
    assert scores["low"] < scores["balanced_accuracy"] == 0.5 < scores["limit"]
    with pytest.raises(InputError, match="shape"):
        sift_speed.score(truth, truth[:3])
    for low, limit, expected in ((0.45, 0.55, "accept"), (0.58, 0.63, "inconclusive"), (0.61, 0.7, "reject")):
        found = [result("ours", "kernel SVM", 1, 0.45, 0.55), result("ours", "linear SVM", 1, low, limit)]
        assert sift_speed.verdict(found) == expected


def test_costs_are_compared_within_a_run():
    results = [result("plain", a, 4.0, 0.45, 0.55) for a in sift_speed.ATTACKERS]
    results += [result("ours", a, 1.0, 0.45, 0.55) for a in sift_speed.ATTACKERS]
    results += [result("ours", "linear SVM", 1.0, 0.45, 0.55, seed=1, session="tuesday")]  # nothing to compare with
    (rows,) = tables(sift_speed.BENCHMARK, results).values()
    assert list(rows) == [*sift_speed.ATTACKERS, "all five"]
    assert rows["linear SVM"][:3] == ((4.0,), (1.0,), (4.0,))
    assert rows["all five"] == ((20.0,), (5.0,), (4.0,), "accept", "accept")


def test_the_library_and_the_dense_eigensolver_reach_the_same_objective():
    fit, _, dense = sift_speed.tasks(Settings(quick=True))[2:]
    problems = [task.pose(3) for task in (fit, dense)]
    assert copy.deepcopy(problems[0].given) is problems[0].given  # too large to copy, so it cannot be written to
    with pytest.raises(ValueError, match="read-only"):
        problems[0].given.features[0, 0] = 1
    found = sifts.library(problems[0].given, seed=0, components=5), sifts.dense(problems[1].given, seed=0)
    gains = [problem.score(answer)["objective"] for problem, answer in zip(problems, found, strict=True)]
    assert gains[0] == pytest.approx(gains[1], abs=1e-6)
    assert problems[0].score(found[0][:, 1:])["objective"] < gains[0]


def test_fits_are_judged_by_ratio_or_by_time_and_memory():
    def fitted(dataset, method, cpu):
        score, memory = {"objective": 0.9}, 2 * 10**9
        return Result("s", dataset, method, {}, 0, score=score, cpu_seconds=cpu, peak_memory_bytes=memory)

    results = [fitted("fit-4000", "fit", 0.1), fitted("dense-4000", "dense", 3.0), fitted("fit-10000", "fit", 2.5)]
    small, large = tables(sift_speed.BENCHMARK, results)["Fitting PPLS"].values()
    assert small[2] == pytest.approx((150,))
    assert small[-1] == "100 times: reached"
    assert large[-1] == "2 s, 3 GB: missed"
