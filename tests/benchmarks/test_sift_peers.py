"""Peers of sifts: INLP leaves nothing to linear readers, who is told is told, and targets are judged by the worst."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from benchmarks.harness import Settings
from benchmarks.methods import sift_correlation_remover, sift_inlp
from benchmarks.results import Result, argument_text
from benchmarks.suites.sift_matrix.cases import developer_data
from benchmarks.suites.sift_matrix.pictures import drawn_numbers
from benchmarks.suites.sift_peers import BENCHMARK, cases
from benchmarks.suites.sift_peers.tables import PEERS, sections
from blindsight.errors import InputError

KINDS = {"kinds": "label capped parity"}


def test_every_method_has_a_row():
    rows = {(peer.method, peer.arguments) for peer in PEERS}
    assert rows == {(method.name, argument_text(method.arguments)) for method in BENCHMARK.methods}
    asked = {name for task in cases.tasks(Settings(quick=True)) for name in task.methods}
    assert asked == {method.name for method in BENCHMARK.methods} - {"adversarial"}  # which needs torch
    with pytest.raises(InputError, match="utkface64"):  # photographs are needed otherwise
        cases.tasks(Settings())


def test_what_inlp_leaves_is_not_linearly_read():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 2000).astype(np.int8)
    rows = (np.outer(labels, [2.0, 1.0, 0, 0, 0]) + rng.standard_normal((2000, 5))).astype(np.float32)

    def linearly_read(seen):
        return LogisticRegression().fit(seen[:1000], labels[:1000]).score(seen[1000:], labels[1000:])

    basis = sift_inlp.directions(rows[:1000], labels[:1000], rounds=2)
    assert basis.T @ basis == pytest.approx(np.eye(2), abs=1e-5)
    assert linearly_read(rows) > 0.8
    assert linearly_read(rows - (rows @ basis) @ basis.T) < 0.6  # a deviation of blind guesses is .016


def test_correlation_remover_needs_the_private_label_of_the_judged():
    people = drawn_numbers(0)
    policy = (("male", "smiling"),)
    with pytest.raises(KeyError):
        sift_correlation_remover.run(developer_data(people, policy), seed=0, components=2)
    (released,) = sift_correlation_remover.run(developer_data(people, policy, told=True), seed=0, components=2).values()
    private = people.labels["smiling"][people.developers :]
    assert abs(np.corrcoef(released[:, 0], private)[0, 1]) < 0.25  # 540 rows: blind is within .043


def result(method, arguments, figures, kind=""):
    score = {f"female/white{kind}/{figure}": value for figure, value in figures.items()}
    return Result("sift-peers", "utkface", method, arguments, 0, score=score)


@pytest.mark.parametrize(
    ("strict", "certified", "expected"),
    [(0.02, 0.09, "reached"), (0.04, 0.09, "reached, but for the strict PubLoss"), (0.02, 0.11, "missed")],
)
def test_targets_need_both_the_loss_and_the_certificate(strict, certified, expected):
    figures = {"pub_loss": 0.01, "strict_pub_loss": strict, "priv_loss": 0.05, "bound": certified}
    results = [
        result("symbols", KINDS, {**figures, "certified": certified}, ":capped"),
        result("ppls", {"components": 5, "privacy": 1}, {**figures, "paper/priv_loss": 0.01}),
    ]
    targets, means, one = sections(results)
    assert targets.rows == (("female/white", "capped symbol, 1 bit", (0.01,), (strict,), (certified,), expected),)
    rows = {row[0]: row for row in means.rows}
    assert rows["PPLS, K = 5, lambda 1"][6:8] == ((0.01,), (0.05,))
    assert rows["capped symbol, 1 bit"][6:9] == ((0.05,), (0.05,), (certified,))  # a table stands for the paper's five
    assert rows["parity symbol, 1 bit"][-1] == "0 of 0"
    assert rows["adversarial encoder, K = 1"][-1] == "-"
    assert [row[0] for row in one.rows] == ["PPLS, K = 5, lambda 1", "capped symbol, 1 bit"]
