"""Rounds of many owners: every scheme adds up, wrong sums are refused, targets, predictions and plans add up."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.methods import scale
from benchmarks.methods.scale import FIGURES
from benchmarks.results import Result
from benchmarks.suites.scale import _PLAN, OWNERS, PLANNED, Case, cases, question, score, score_model
from benchmarks.table import _columns, shown
from blindsight.errors import InputError
from tests.benchmarks.conftest import rows


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("scheme", ["block-dphe", "bfv"])
def test_every_scheme_adds_up_a_round(scheme):
    given = Case(scheme, 4, 310, 1024).round(3)
    truth = sum(map(given.update, given.users))
    answer = scale.played(given, seed=3, scheme=scheme)
    figures = score(truth, answer)
    assert figures["measured/contribution"] > 256
    assert figures["peak megabytes"] > 10
    assert figures["seconds"] > figures["measured/encrypt"] > 0
    assert {f"measured/{name}" for name in FIGURES} < set(figures)
    with pytest.raises(InputError, match="sum"):
        score(truth + np.eye(1, 310)[0] / 2**20, answer)


def test_the_rounds_are_those_of_the_title_and_the_model_is_asked_about_them():
    posed = cases(quick=False)
    assert [(case.scheme, case.owners) for case in posed][:3] == [("block-dphe", n) for n in (10, 100, 1000)]
    sparse, dense = posed[0].round(0), posed[-1].round(0)
    assert sparse.weights == dense.weights == 206_848
    assert (sparse.block, sparse.kept, sparse.blocks, sparse.key_bits) == (95, 217, 2178, 3072)
    assert np.count_nonzero(dense.update("owner-7")) == 206_848
    assert not np.array_equal(sparse.update("owner-7") != 0, sparse.update("owner-8") != 0)
    asked = question(posed)
    assert (asked.rounds, asked.planned) == ((10, 100, 1_000), PLANNED)
    assert (asked.weights, asked.key_bits, asked.density) == (206_848, 3072, 0.1)


PLANS = ["regions", *(column["figure"] for column in _columns(_PLAN))]
ASKED = scale.Question(310, 1024, 0.1, (3, 20), (3, 5_000), insecure=True, repeats=1)


def test_the_model_answers_for_all_the_owners_that_it_was_asked_about():
    answer = scale.model(ASKED, seed=0, scheme="block-dphe", slot_bits=40)
    figures = score_model(ASKED, answer)
    assert figures["plan/3/regions"] == 1
    assert figures["plan/5000/regions"] == 5
    assert 0 < figures["plan/5000/wall"] < figures["plan/5000/wall, one aggregator"]
    assert figures["round/20/contribution"] == figures["round/3/contribution"] > 256
    with pytest.raises(InputError, match="and answers otherwise"):
        score_model(replace(ASKED, rounds=(4,)), answer)


def result(case, **changes):
    figures = {f"measured/{name}": 1.0 for name in FIGURES}
    others = {"peak megabytes": 500.0, "seconds": 50.0, "set-up owner": 0.1, "set-up generator": 0.2}
    return Result("scale-owners", case.dataset, case.scheme, {}, 0, score=figures | others | changes)


def model(scheme, bits=32, **changes):
    figures = {f"round/10/{name}": 1.0 for name in FIGURES}
    figures |= {f"plan/{owners}/{name}": 1.0 for owners in PLANNED for name in PLANS}
    arguments = {"scheme": scheme, "slot_bits": bits}
    return Result("scale-owners", "model-206848-weights", "model", arguments, 0, score=figures | changes)


def test_targets_compare_the_most_owners_with_the_fewest():
    few, _, many = cases(quick=False)[:3]
    growth = {"measured/encrypt": 2.0, "measured/contribution": 1.1, "peak megabytes": 4001.0}
    found = rows(OWNERS, [result(few), result(many, **growth)], "Targets")
    name = "block-dphe, 1,000 owners"
    assert found[f"{name}: peak megabytes"] == ((4001,), "at most 4000", "missed")
    assert found[f"{name}: CPU seconds an owner, to those with 10"] == (
        (pytest.approx(4 / 3),),
        "at most 1.2",
        "missed",
    )
    assert found[f"{name}: bytes sent an owner, to those with 10"] == ((pytest.approx(1.1),), "at most 1.2", "reached")
    assert not rows(OWNERS, [result(many)], "Targets")


def test_predictions_stand_beside_measurements_and_the_largest_error_is_named():
    case = cases(quick=False)[0]
    off = {"round/10/decrypt": 0.7, "round/10/answer": 1.2, "round/10/add": 1.1, "round/10/close": 0.0}
    others = [model("bfv", **{"round/10/decrypt": 9.0}), model("block-dphe", 40, **{"round/10/decrypt": 9.0})]
    results = [result(case), model("block-dphe", **off), *others]
    found = rows(OWNERS, results, "Predicted beside measured")
    name = "block-dphe, 10 owners"
    assert found[f"{name}: decrypt"] == ((1,), (0.7,), (0.7,))
    assert found[f"{name}: answer"] == ((0.001,), (0.0012,), (pytest.approx(1.2),))
    assert found[f"{name}: aggregate"] == ((11,), (11,), (1,))
    (table,) = [table for table in shown(OWNERS, results) if table.title.startswith("Predicted")]
    assert table.note.endswith("The largest error is 30% (block-dphe, 10 owners: decrypt).")
    assert not rows(OWNERS, [result(case)], "Predicted")


def test_costs_are_shown_by_owner_and_plans_by_scheme_slots_and_owners():
    found = rows(OWNERS, [result(cases(quick=False)[0])], "CPU seconds of a round")
    assert found["block-dphe, 10 owners"] == (*[(1.0,)] * 5, (0.1,), (0.2,), (500.0,), (5.0,))
    found = rows(OWNERS, [model("bfv", 40, **{"plan/100000/root bytes": 7e6}), model("bfv", 32)], "Plan")
    assert list(found) == [f"bfv, {bits} bits, {owners:,} owners" for bits in (32, 40) for owners in PLANNED]
    assert (7,) in found["bfv, 40 bits, 100,000 owners"]
    assert (7,) not in found["bfv, 32 bits, 100,000 owners"]
