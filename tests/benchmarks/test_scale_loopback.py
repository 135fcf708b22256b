"""Rounds over loopback: what is measured adds up, wrong models are refused, predictions stand beside measurements."""

import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.methods import loopback
from benchmarks.methods.processes import Processes
from benchmarks.methods.scale import Setting
from benchmarks.results import Result
from benchmarks.suites.scale import LOOPBACK, Deployed, dense, deployments, in_one_process, score_deployed
from blindsight.errors import InputError, ServiceError
from tests.benchmarks.conftest import rows

pytest.importorskip("flwr")

SMALL = Deployed("bfv", loopback.Deployment(3, 4, 5, sparsity=0.0, key_bits=3072, rounds=2))
CONTRIBUTE = {"messages": 3, "sent": 3_000, "received": 6_000, "seconds": 5.0}
ANSWER = {"messages": 1, "sent": 1_900, "received": 500, "seconds": 3.0}


def report(*seconds):
    traffic = {"contribute": CONTRIBUTE, "open": ANSWER}
    return {
        "rounds": [{"round": number, "seconds": wall} for number, wall in enumerate(seconds, 1)],
        "traffic": {str(number): traffic for number in range(1, len(seconds) + 1)},
    }


def test_rounds_that_count_come_after_the_first():
    sizes = [(case.given.owners, case.given.weights) for case in deployments(quick=False)]  # those in the title
    per_ciphertext = Setting("bfv").per_ciphertext
    assert sizes[0] == (5, 206_848)
    assert sizes[1:] == [
        (owners, 15 * megabytes * per_ciphertext) for megabytes in (1, 10, 100) for owners in (3, 5, 8)
    ]
    ends = [loopback.Sample(*values, bytes=0) for values in ((10, 100), (16, 150), (17, 152))]
    figures = loopback.round_figures(report(30.0, 9.0, 8.0), ends)
    assert [figures[name].tolist() for name in ("wall", "cpu", "others")] == [[9, 8], [6, 1], [44, 1]]
    assert [figures[name][0] for name in ("contributing", "opening")] == [5, 3]
    assert [figures[name][0] for name in ("call", "contribution", "request", "answer")] == [1_000, 2_000, 1_900, 500]
    with pytest.raises(ServiceError, match="3"):
        loopback.round_figures(report(1, 2, 3), ends[:2])


def test_a_model_that_others_would_not_have_learned_is_refused():
    truth = in_one_process(SMALL, 0)
    assert truth.shape == (4, 6)
    assert not np.array_equal(truth, in_one_process(SMALL, 1))
    rounds, complete = {"wall": np.array([2.0, 4.0])}, np.array([True, True])
    answer = {"weights": truth, "complete": complete, "rounds": rounds, "run": {"idle": 0.5}, "predicted": {"x": 1.0}}
    assert score_deployed(truth, answer) == {"round/wall": 3, "slowest/wall": 4, "run/idle": 0.5, "predicted/x": 1}
    for wrong in ({"weights": truth + 1e-12}, {"complete": ~complete}):
        with pytest.raises(InputError):
            score_deployed(truth, answer | wrong)


def test_processes_below_this_one_are_counted_while_they_run_and_after():
    before = loopback.sample()
    burn = "import time; x = bytearray(50_000_000)\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during, seen = loopback.sample(), Processes.now()
        child.communicate("\n")
    after = loopback.sample()
    assert during.bytes - before.bytes > 40_000_000
    # Two clock ticks of rounding, of the child and of its parent's sum.
    assert min(during.ours, after.ours) - before.ours >= 0.3 - 2 / os.sysconf("SC_CLK_TCK")
    assert during.all - before.all >= 0.2
    assert seen.cpu(child.pid) >= 0.3 - 1 / os.sysconf("SC_CLK_TCK")
    assert seen.cpu(os.getpid()) >= seen.cpu(child.pid)
    assert seen.memory(child.pid) > 40_000_000
    assert seen.cpu(-1) == 0


def test_a_watch_marks_every_lap(monkeypatch):
    monkeypatch.setattr(loopback, "_PERIOD", 0.0)
    states, seen = iter([0, 0, 1, 1, 2]), threading.Event()

    def lap():
        state = next(states, None)
        if state is None:
            seen.set()
        return 2 if state is None else state

    with loopback.Watch(lap) as watch:
        assert seen.wait(60)
    assert len(watch.laps) == 2


def result(case, **changes):
    carried = {"contribution": 2e6, "call": 1e6, "request": 2e6, "answer": 5e5}
    figures = {"wall": 10.0, "contributing": 6.0, "opening": 4.0, "cpu": 8.0, "others": 5.0}
    run = {"idle": 0.25, "peak bytes": 3e9, "starting": 15.0, "set-up": 30.0, "first round": 20.0}
    predicted = {"encrypt": 0.1, "read": 0.0, "add": 0.0, "close": 0.0, "decrypt": 0.1} | carried
    groups = {"round": figures | carried, "run": run, "predicted": predicted}
    scores = {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}
    machine = {"cores": "2"}
    return Result("scale-loopback", case.dataset, case.scheme, {}, 0, score=scores | changes, machine=machine)


def test_tables_show_bytes_seconds_and_what_others_used():
    found = rows(LOOPBACK, [result(dense(3, 1))], "Wall")["bfv, 3 owners, 61,440 weights"]
    assert found == ((2,), (11.5,), (10,), (6,), (4,), (15,), (30,), (20,))
    found = rows(LOOPBACK, [result(dense(3, 1))], "What all")["bfv, 3 owners, 61,440 weights"]
    assert found == ((8,), (5.5,), (0.25,), (0.5,), (3000,))


def test_predictions_are_fitted_to_the_fewest_owners_and_need_two_sizes():
    few, more, many = dense(3, 1), dense(3, 10), dense(8, 1)
    assert not rows(LOOPBACK, [result(few), result(many)], "Predicted")
    large = {"round/cpu": 28.0, "round/wall": 20.0, "predicted/contribution": 2e7}
    found = rows(LOOPBACK, [result(few), result(more, **large), result(many)], "Predicted")
    assert [found[str(case)][2][0] for case in (few, more)] == pytest.approx([1, 1])
    # More owners, more messages and bytes: as much as the model says, not as little as was "measured" here.
    assert found[str(many)][2][0] > 1.5
    assert found[str(few)][5][0] == pytest.approx((3.75 + 5.5 / (2 - 0.25 - 0.5)) / 10)
    assert found[str(few)][6][0] == pytest.approx(3.75 + 5.5 / 1.75)


@pytest.mark.slow
def test_the_smallest_deployment_learns_what_one_process_learns():
    case = replace(dense(3, 1), given=replace(dense(3, 1).given, rounds=2))
    figures = score_deployed(in_one_process(case, 0), loopback.deployed(case.given, seed=0, scheme="bfv"))
    assert figures["round/contribution"] == pytest.approx(figures["predicted/contribution"], rel=0.01)
    assert figures["round/wall"] >= figures["round/contributing"] + figures["round/opening"]
    assert figures["round/cpu"] > 1
