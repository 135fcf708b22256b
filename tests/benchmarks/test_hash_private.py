"""Private search by record-level epsilon: who is public, what is released, how figures stand beside the reference."""

import numpy as np
import pytest

from benchmarks.methods import hashing
from benchmarks.results import Result
from benchmarks.suites import hash_private
from benchmarks.suites.hash_private import REFERENCE, best
from benchmarks.table import Found
from blindsight.search.evaluation import SymbolSearcher
from blindsight.search.localmode import LocalHasher
from tests.benchmarks.conftest import posed, tables


@pytest.mark.parametrize("half", [False, True])
def test_no_row_is_in_two_parts_and_half_of_the_classes_may_be_kept_from_the_public(half):
    labels = np.random.default_rng(0).integers(0, 10, 2000)
    parts = hash_private.divided(labels, (600, 700, 50), 3, half=half)
    assert [len(part) for part in parts] == [600, 700, 50]
    assert len(np.unique(np.concatenate(parts))) == 1350
    public, private, queries = (np.unique(labels[part]) for part in parts)
    assert len(public) == (5 if half else 10)
    assert len(private) == len(queries) == 10
    given = posed(hash_private.tasks, "fashion-mnist").given
    for rows in (given.public, given.private, given.queries):
        assert np.allclose(np.linalg.norm(rows, axis=1), 1)


def test_noise_grows_with_the_number_of_bits_and_shrinks_with_epsilon():
    given = posed(hash_private.tasks, "fashion-mnist").given
    found = hashing.noisy_bits(given, seed=0, bits=8)
    truth = hashing.ITQ(8, random_state=0).fit(given.public).transform(given.private)

    def kept(name):
        return np.mean(found[name]["items"] == truth)

    # A Hamming ball of radius 1 keeps the code with probability 0.75 at epsilon 8, response on 8 bits with 0.08, and
    # both with about 1/256 at epsilon 1: of 300 codes the orders below are wrong with probability under 1e-6.
    assert kept("ball/8") > kept("response/8") > 0
    assert kept("ball/8") > kept("ball/1") + 0.3


def test_local_mode_answers_as_the_librarys_own_search(monkeypatch):
    monkeypatch.setattr(hashing, "RECORD_EPSILONS", (8,))
    problem = posed(hash_private.tasks, "fashion-mnist")
    given, (wanted, offered) = problem.given, problem.score.args
    answer = hashing.local(given, seed=0, labelled=True)["local-labels/8"]
    hasher = LocalHasher(8.0, random_state=0).fit(given.public, given.labels)
    assert np.allclose(answer["scores"], hasher.symbol_scores(given.queries))
    search = SymbolSearcher(hasher, answer["symbols"])
    found = search.evaluate(given.queries, wanted, offered).mean_average_precision
    scores = problem.score({"x": answer})
    assert scores["x"] == pytest.approx(found, abs=1e-9)
    assert (scores["cells x"], scores["symbols x"]) == (hasher.codebook_.cells, hasher.k_)
    assert found > 0.3  # chance is 0.1


def result(method, value, *, seed=0, dataset="fashion-mnist", **arguments):
    return Result("hash-private", dataset, method, arguments, seed, score=value)


def test_the_best_length_is_that_of_the_best_mean():
    results = [
        result("bits", {"ball/4": 0.30}, bits=4),
        result("bits", {"ball/4": 0.20}, bits=4, seed=1),
        result("bits", {"ball/4": 0.26}, bits=8),
        result("bits", {"ball/4": 0.26}, bits=8, seed=1),
        result("bits", {"ball/4": 0.90}, bits=16, dataset="cifar10"),
    ]
    found = Found(results)("fashion-mnist")
    assert best(found, "ball", 4) == ((0.26, 0.26), 8)
    assert best(found, "response", 4) == ((), 0)


def test_figures_stand_beside_the_reference_and_targets_are_judged():
    results = [
        result("local", {"local/4": 0.39}, labelled=False),
        result("codebook", {"codebook/4": 0.36}),
        result("codebook", {"codebook/4": 0.25}, dataset="fashion-mnist-half"),
        result("central", {"central/1": 0.46}, epsilon=1),
    ]
    targets, fashion, half, *_ = (list(rows.items()) for rows in tables(hash_private.BENCHMARK, results).values())
    assert targets[0][1][1:3] == ("0.194: not measured", "0.364: reached")
    assert targets[1][1][2] == "0.4: missed"
    assert targets[3][1][0] == "0.47: missed"
    row = next(row for said, row in fashion if "plain k-means" in said)
    assert row[4:6] == ("0.364", (0.36,))
    assert half[0][1][4:6] == ((0.36,), (0.25,))
    assert REFERENCE["central"] == ("0.471", "0.500", "0.511", "0.527")
