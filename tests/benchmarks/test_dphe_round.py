"""The round of encrypted averaging: every method adds up right, wrong sums are refused, extrapolation and targets."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.methods import rounds
from benchmarks.methods.rounds import Measured, RoundAnswer
from benchmarks.results import Result
from benchmarks.suites.rounds import CROWD, CROWD_SETTING, DPHE_ROUND, WEIGHTS, Case, Setting, cases, score
from benchmarks.table import shown
from blindsight.errors import InputError
from tests.benchmarks.conftest import rows

TINY = Setting(310, 90.0, 1024, users=3)


@pytest.mark.parametrize("method", DPHE_ROUND.methods, ids=str)
def test_every_method_adds_up_a_round(method):
    case = Case(TINY, (method.name,), 310, block=31 if method.name.startswith("block") else 1)
    given = case.round(4)
    arguments = {name: 3 if name in ("rounds", "values") else value for name, value in method.arguments.items()}
    answer = method.load()(given, seed=4, **arguments)
    figures = score(case, sum(map(given.update, given.users)), answer)
    assert (figures["error"] == 0) == (method.name != "TenSEAL-CKKS")
    assert figures["encrypt"] > 0
    assert figures["aggregate"] > 0
    assert (figures["decrypt"] > 0) == (method.name != "plain")
    assert figures["megabytes"] >= 31 * 4 / 1e6
    assert (figures["peak megabytes"] > 10) == (method.name == CROWD)
    assert (figures["share"] == 1) == (method.name != "python-paillier")


def test_updates_are_repeatable_and_change_so_many_blocks():
    given = Case(TINY, (), 310, block=31).round(0)
    first, second = (given.update(user) for user in given.users[:2])
    assert np.array_equal(first, given.update(given.users[0]))
    assert [np.flatnonzero(update.reshape(10, 31).all(axis=1)).size for update in (first, second)] == [1, 1]
    assert np.count_nonzero(first) == 31
    assert np.array_equal(first * 2**20, np.rint(first * 2**20))
    assert not np.array_equal(first, replace(given, seed=1).update(given.users[0]))
    wide = Case(Setting(10_000, 90.0), (), 10_000).round(0)
    own, shared = ([draw.update(user) != 0 for user in draw.users] for draw in (wide, replace(wide, shared=True)))
    assert np.array_equal(shared[0], shared[1])
    # Two supports of 1,000 in 10,000 share 100 on average; 30 deviations of 9 away in less than one draw in 10^100.
    assert 0 < np.count_nonzero(own[0] & own[1]) < 400
    assert not np.array_equal(wide.update(wide.users[0]), wide.update(wide.users[1]))


@pytest.mark.parametrize(("sparsity", "shards"), [(0.0, 10), (79.1, 3), (90.0, 1), (95.6, 1)])
def test_python_paillier_sends_as_many_shards_as_in_the_paper(sparsity, shards):
    given = Case(Setting(2000, sparsity), (), 2000).round(0)
    sent, touched = rounds._traffic(given, np.random.default_rng(0))
    assert sent == shards * 200
    union = np.any([given.update(user) != 0 for user in given.users], axis=0)
    assert np.isin(np.flatnonzero(union), touched).all()
    assert sent <= touched.size <= min(5 * sent, 2000)
    shared, places = rounds._traffic(replace(given, shared=True), np.random.default_rng(0))
    assert shared == sent
    if sparsity == 90:  # nothing is padded
        assert places.size == 200


def answer(total, **changes):
    steps = {"encrypt": Measured(2.0, 0.5), "aggregate": Measured(3.0), "decrypt": Measured(5.0, 0.25)}
    known = RoundAnswer(
        total=total, places=np.arange(len(total)), seconds=steps, sent=Measured(1e6, 0.5), peak_bytes=7_000_000
    )
    return known | changes


def test_parts_are_extrapolated_in_proportion_and_tables_are_not_and_wrong_sums_are_refused():
    truth, case = np.array([0.5, -0.25]), Case(Setting(8), (), 2)
    figures = {"table": 0, "encrypt": 16, "aggregate": 12, "decrypt": 80, "megabytes": 8, "share": 0.0625, "error": 0}
    assert score(case, truth, answer(truth)) == figures | {"peak megabytes": 7}
    steps = answer(truth)["seconds"] | {"table": Measured(1.0)}
    with_table = score(case, truth, answer(truth, seconds=steps))
    assert (with_table["table"], with_table["encrypt"]) == (1, 17)
    assert score(case, truth, answer(truth[1:], places=np.array([1])))["error"] == 0
    for total, places in [
        (np.array([0.5, -0.25001]), np.arange(2)),
        (np.array([0.5, np.nan]), np.arange(2)),
        (truth[::-1], np.arange(2)),
        (truth[:1], np.arange(2)),
        (np.empty(0), np.arange(0)),
    ]:
        with pytest.raises(InputError, match="sum"):
            score(Case(Setting(2), (), 2), truth, answer(total, places=places))


def result(setting, method, seed=0, session="monday", **figures):
    (case,) = [case for case in (*cases(False), *cases(True)) if case.setting == setting and method in case.methods]
    names = "table", "encrypt", "aggregate", "decrypt", "decrypt all", "megabytes", "peak megabytes"
    base = dict.fromkeys(names, 0.0)
    return Result("dphe-round", case.dataset, method, {}, seed, score=base | {"share": 1.0} | figures, session=session)


def test_targets_are_judged_run_by_run():
    setting = Setting(WEIGHTS, 90.0)
    name = "2048 bits, 90% zero, own supports: python-paillier, touched places / block-dphe"
    results = [
        result(setting, "python-paillier", encrypt=450.0, decrypt=150.0, **{"decrypt all": 1350.0}),
        result(setting, "block-dphe", encrypt=1.0, decrypt=1.0, megabytes=0.21),
        result(setting, "python-paillier", seed=1, encrypt=450.0),
        result(setting, "block-dphe", seed=1, encrypt=2.0, megabytes=0.19),
        result(setting, "block-dphe-16", seed=1, encrypt=1.0),
        result(setting, "python-paillier", seed=2, encrypt=450.0),
        result(setting, "block-dphe", seed=2, session="tuesday", encrypt=1.0, megabytes=0.19),
    ]
    found = rows(DPHE_ROUND, results, "Targets")
    assert found[name] == ((300, 225), "at least 300", "undecided")
    assert found[name.replace("touched", "all")] == ((900, 225), "at least 300", "undecided")
    assert found["2048 bits, 90% zero, own supports: block-dphe, megabytes a user"][2] == "undecided"
    assert found[name.replace("2048", "3072")] == ((), "at least 600", "not measured")
    assert found["2048 bits, 90% zero, own supports: block-dphe / block-dphe-16"] == ((2,), "at least 1.3", "reached")
    assert [rows(DPHE_ROUND, part, "Targets")[name][-1] for part in (results[:2], results[2:4])] == [
        "reached",
        "missed",
    ]
    others = [result(Setting(size, 90.0), "block-dphe", decrypt=size / 1e5) for size in (100_000, 1_000_000)]
    others += [result(Setting(WEIGHTS), name, encrypt=took) for name, took in (("bfv", 1.4), ("TenSEAL-BFV", 1.0))]
    found = rows(DPHE_ROUND, [*others, result(CROWD_SETTING, CROWD, **{"peak megabytes": 150.0})], "Targets")
    assert found["bfv / TenSEAL's BFV"] == ((pytest.approx(1.4),), "at most 1.3", "missed")
    assert found["block-dphe, 1,000,000 / 100,000 weights"] == ((10,), "at most 11", "reached")
    assert found["block-dphe, 1,000,000 weights of 100 users, peak megabytes"] == ((150,), "at most 2000", "reached")


def test_costs_name_what_was_extrapolated_and_the_paper_stands_beside():
    setting = Setting(WEIGHTS, 90.0, 3072)
    scores = {"encrypt": 4.0, "aggregate": 2.0, "decrypt": 1.0, "decrypt all": 3.0, "table": 0.5, "megabytes": 9.0}
    found = shown(DPHE_ROUND, [result(setting, "python-paillier", share=0.00155, **scores)])
    (grid,) = (grid for grid in found if grid.title == "A round (CPU seconds), 3072-bit keys")
    touched, everywhere = (row[1:] for row in grid.rows)
    each = (pytest.approx(1e6 / (0.1 * WEIGHTS)),)  # microseconds a second, for each weight that a user changed
    assert touched[:7] == ["python-paillier", (4,), (0.5,), (2,), (1,), (7,), (9,)]
    assert everywhere[:7] == ["python-paillier-all-places", (4,), (0.5,), (2,), (3,), (9,), (9,)]
    assert [(row[7][0] / row[5][0],) for row in (touched, everywhere)] == [each, each]
    assert touched[8:] == everywhere[8:] == ["0.15%", "-"]
    found = rows(DPHE_ROUND, [result(Setting(WEIGHTS, 79.1, 1024), "python-paillier", encrypt=90.0)], "Table 2")
    assert found["79.1% zero: python-paillier"] == ("186.0", (90,), "-96.0")
    assert found["79.1% zero: dphe"] == ("186.0", (), "-")
    small = cases(True)[1].setting  # the paper's figures are for the full size only
    assert rows(DPHE_ROUND, [result(small, "python-paillier", encrypt=90.0)], "Table 2")["79.1% zero: dphe"][1] == ()
