"""Private search by record-level epsilon: who is public, what is released, how figures stand beside the reference."""

import numpy as np
import pytest

from benchmarks.methods import hashing
from benchmarks.results import Result
from benchmarks.suites import hash_private
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


def test_mechanisms_stand_in_their_rows_and_targets_are_judged():
    results = [
        result(
            "local", {"local/4": 0.39, "P@10 local/4": 0.5, "cells local/1": 20, "symbols local/4": 7}, labelled=False
        ),
        result("bits", {"ball/4": 0.26, "response/4": 0.2}, bits=8),
        result("bits", {"ball/4": 0.28, "response/4": 0.2}, bits=8, seed=1),
        result("codebook", {"codebook/4": 0.25}, dataset="fashion-mnist-half"),
        result("central", {"central/1": 0.46}, epsilon=1, bits=64),
        result("central", {"central/4": 0.5}, epsilon=4, bits=64),
        result("published", {"phashing/1": 0.3}, bits=48),
        result("nothing-hidden", {"none": 0.5}, learner="LSH", bits=48),
    ]
    found = tables(hash_private.BENCHMARK, results)
    targets = list(next(iter(found.values())).values())
    assert targets[0][1:3] == ("0.194: not measured", "0.364: reached")
    assert targets[1][2] == "0.4: missed"
    assert targets[3][0] == "0.47: missed"
    protected = found["fashion-mnist: mAP by record-level epsilon"]
    assert protected["Hamming ball"] == ("8", (), (), (0.26, 0.28), ())
    assert protected["our central mode: codes stay at home (delta 1e-6)"] == ("64", (0.46,), (), (0.5,), ())
    assert "nothing hidden" not in protected
    assert found["fashion-mnist-half: mAP by record-level epsilon"].keys() == {hash_private.NAMES["codebook"]}
    assert found["fashion-mnist: P@10 by record-level epsilon"] == {"our local mode": ("", (), (), (0.5,), ())}
    unprotected = found["fashion-mnist: mAP of what does not protect a record"]
    assert unprotected["PHashing (ITQ), as published"] == ("", "48", (0.3,), (), (), (), ())
    assert unprotected["nothing hidden"] == ("LSH", "48", (), (), (), (), (0.5,))
    assert found["What local mode chose"] == {"fashion-mnist": ("our local mode", (20,), (), (), (7,), ())}
    assert found["Fashion-MNIST by an earlier measurement: mAP"]["central mode"] == ("0.471", "0.500", "0.511", "0.527")
