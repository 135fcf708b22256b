"""Costs are made of nothing but what was measured; every method is scored on the same data."""

import numpy as np
import pytest

from blindsight.data.sites import Study
from blindsight.errors import UnknownNameError
from blindsight.papers.dphe.compare import compare_methods, cost_row, round_costs
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums.engine import Cost, Transfer, Work


def test_a_worked_example():
    cost = Cost(
        members=("ann", "bob", "cem"),  # cem dropped out
        work=(
            Work("ann", "share", 0.25),
            Work("ann", "encrypt", 1.0),
            Work("bob", "encrypt", 2.0),
            Work("ann", "decrypt", 0.125),
            Work("aggregator", "share", 0.5),
            Work("aggregator", "aggregate", 4.0),
            Work("key generator", "decrypt", 8.0),
            Work("ann", "read", 64.0),
        ),
        transfers=(
            Transfer("ann", "aggregator", "encrypt", 3_000_000, 10),
            Transfer("bob", "aggregator", "encrypt", 1_000_000, 20),
            Transfer("key generator", "ann", "decrypt", 500_000, 0),
        ),
    )
    row = cost_row("bfv", cost)
    assert (row.encrypt_seconds, row.aggregate_seconds, row.decrypt_seconds) == (3.25 / 2, 4.5, 8.125)
    assert (row.megabytes_sent, row.megabytes_received, row.ciphertexts_sent) == (2.0, 0.25, 15)
    assert row.total_seconds == 3.25 / 2 + 4.5 + 8.125
    assert cost.to_dict()["transfers"][0]["bytes"] == 3_000_000


def test_every_scheme_has_a_row_and_no_other():
    nothing = Cost((), (), ())
    rows = [cost_row(scheme, nothing) for scheme in SCHEMES]
    assert [row.scheme for row in rows] == list(SCHEMES)
    assert all(row.who_learns and row.drop_out for row in rows)
    with pytest.raises(UnknownNameError, match="'masks'"):
        cost_row("mask", nothing)


@pytest.fixture(scope="module")
def study():
    rng = np.random.default_rng(0)
    centres = 2.5 * rng.normal(size=(3, 6))

    def part(n):
        y = np.arange(n) % 3
        return (centres[y] + rng.normal(size=(n, 6))).astype(np.float32), y

    return Study(part(30), {f"owner {i}": part(60) for i in (1, 2, 3)}, part(90), ("a", "b", "c"), multilabel=False)


def test_encryption_costs_no_accuracy_and_noise_does(study):
    rows = {
        row.method: row
        for row in compare_methods(study, epsilon=0.2, delta=0.05, rounds=3, sparsity=0.0, key_bits=2048)
    }
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
    rows = {row.method: row for row in compare_methods(study, methods=methods, epsilon=0.2, delta=0.05, rounds=2)}
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
    rows = {scheme: cost_row(scheme, cost) for scheme, cost in costs.items()}
    assert set(rows) == {"plain", "dphe", "block-dphe", "bfv", "masks"}
    assert rows["block-dphe"].megabytes_sent < rows["dphe"].megabytes_sent / 10
    assert rows["block-dphe"].ciphertexts_sent < rows["dphe"].ciphertexts_sent / 10


def test_a_scheme_that_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr("blindsight.sums.scheme.find_spec", lambda name: None)
    assert set(round_costs(100, 3, sparsity=0.5, key_bits=2048)) == {"plain", "dphe", "block-dphe", "masks"}


def test_unpacked_encryption_of_a_large_model_is_left_out():
    assert "dphe" not in round_costs(7_000, 3, sparsity=0.0, key_bits=2048)
