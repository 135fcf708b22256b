"""The contest scores every method on the same data, and says of each what is known of its privacy."""

import numpy as np
import pytest

from blindsight.learn.comparison import compare
from blindsight.learn.contest import contest, round_costs
from blindsight.learn.study import Study


@pytest.fixture(scope="module")
def study():
    rng = np.random.default_rng(0)
    centres = 2.5 * rng.normal(size=(3, 6))

    def part(n):
        y = np.arange(n) % 3
        return (centres[y] + rng.normal(size=(n, 6))).astype(np.float32), y

    return Study(part(30), {f"owner {i}": part(60) for i in (1, 2, 3)}, part(90), ("a", "b", "c"), multilabel=False)


def test_encryption_costs_no_accuracy_and_noise_does(study):
    rows = {row.method: row for row in contest(study, epsilon=0.2, delta=0.05, rounds=3, sparsity=0.0, key_bits=2048)}
    assert set(rows) == {"plain", "dphe", "block-dphe", "bfv", "masks", "pooled", "local", "prr10", "ra12"}
    encrypted = {rows[name].score for name in ("plain", "dphe", "block-dphe", "bfv", "masks")}
    assert len(encrypted) == 1
    assert encrypted.pop() > rows["pooled"].score - 0.05
    assert rows["prr10"].score < rows["pooled"].score - 0.05
    assert rows["block-dphe"].megabytes > 0
    assert rows["pooled"].megabytes is None  # all data would move; how is not said
    assert rows["local"].megabytes == 0


def test_every_claim_of_privacy_carries_its_statement(study):
    methods = ("masks", "pooled", "local", "prr10", "ra12")
    rows = {row.method: row for row in contest(study, methods=methods, epsilon=0.2, delta=0.05, rounds=2)}
    assert rows["pooled"].statement is None
    assert rows["masks"].statement is not None
    assert rows["masks"].statement.guarantee == "cryptographic"
    for name in ("prr10", "ra12"):
        statement = rows[name].statement
        assert statement is not None
        assert statement.epsilon is not None
        assert statement.guarantee == "differential privacy"
        assert statement.claim is not None
        assert statement.claim.why_it_fails


def test_costs_of_one_round_by_scheme():
    costs = round_costs(130, 3, sparsity=0.5, key_bits=2048)
    rows = {row.scheme: row for row in compare(costs)}
    assert set(rows) == {"plain", "dphe", "block-dphe", "bfv", "masks"}
    assert rows["block-dphe"].megabytes_sent < rows["dphe"].megabytes_sent / 10
    assert rows["block-dphe"].total_seconds < rows["dphe"].total_seconds


def test_a_scheme_that_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr("blindsight.learn.contest.find_spec", lambda name: None)
    assert set(round_costs(100, 3, sparsity=0.5, key_bits=2048)) == {"plain", "dphe", "block-dphe", "masks"}


def test_unpacked_encryption_of_a_large_model_is_left_out():
    assert "dphe" not in round_costs(7_000, 3, sparsity=0.0, key_bits=2048)
