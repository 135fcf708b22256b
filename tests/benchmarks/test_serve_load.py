"""The load on the service: it runs to the end, and its scorer forgives nothing."""

import shutil
from contextlib import closing

import numpy as np
import pytest

from benchmarks.harness import Settings
from benchmarks.results import Result
from benchmarks.suites import serve_load
from benchmarks.table import shown
from blindsight.errors import InputError

pytest.importorskip("fastapi")

from benchmarks.methods import release_load, release_service
from blindsight.service.settings import ServiceSettings

FIGURES = {"rate": 1200.0, "p50": 20.0, "p99": 50.0, "most": 60.0, "cpu": 0.5, "generator": 0.05, "memory": 300.0}
ANSWER = {load: {**FIGURES, "releases": 100.0, "failed": 0.0} for load in ("single", "batch")}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_service_answers_every_release():
    (task,) = serve_load.tasks(Settings(quick=True))
    problem = task.pose(0)
    figures = problem.score(release_load.run(problem.given, seed=0, database="sqlite"))
    assert min(figures[f"{load} releases"] for load in release_load.LOADS) >= 100
    problem.score(release_load.run_soak(problem.given, seed=0))


def test_everything_that_is_asked_for_may_be_released(tmp_path):
    gateway = release_service.open_gateway(ServiceSettings(tmp_path, port=0), 12)
    with closing(gateway), closing(gateway.principals.database):
        asks = release_service.fill(gateway, 5, people=3)["asks"]
        (app,) = (one for one in gateway.principals.list() if one.role == "app")
        rows = [np.asarray(gateway.release(app, ask["person"], frames=ask["frames"]).rows) for ask in asks]
    assert [row.shape for row in rows] == [(1, 5)] * 3
    assert len({row.tobytes() for row in rows}) == 3


def test_what_failed_is_no_result_and_targets_are_judged():
    assert serve_load.score(ANSWER)["batch rate"] == 1200
    for wrong in ({"failed": 1.0}, {"releases": 0.0}):
        with pytest.raises(InputError, match="batch"):
            serve_load.score(ANSWER | {"batch": ANSWER["batch"] | wrong})
    result = Result("serve-load", "load", "sqlite", {"database": "sqlite"}, 0, score=serve_load.score(ANSWER))
    soak = Result("serve-load", "load", "soak", {}, 0, score={"soak at 0": 300.0, "soak at 110000": 301.0})
    target, load, memory = shown(serve_load.BENCHMARK, [result, soak])
    assert [row[-1] for row in target.rows] == ["reached", "missed"]
    assert len(load.rows) == 2
    assert [row[0] for row in memory.rows] == ["0", "110,000"]
