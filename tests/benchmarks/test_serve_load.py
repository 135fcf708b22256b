"""The load on the service: it runs to the end; its scorer counts from when a request was due and forgives nothing."""

from contextlib import closing

import numpy as np
import pytest

from benchmarks.harness import Settings
from benchmarks.methods import release_load
from benchmarks.results import Result
from benchmarks.suites import serve_load
from blindsight.errors import InputError

pytest.importorskip("fastapi")

from benchmarks.methods import release_service
from blindsight.service.settings import ServiceSettings


def answer(count: int = 100, **changed: np.ndarray) -> dict[str, np.ndarray]:
    due = np.arange(count) / 200
    given = {"due": due, "answered": due + 0.004, "status": np.full(count, 200), "rows": np.ones((count, 5))}
    return given | {"cpu": np.array([0.3])} | changed


@pytest.mark.slow
def test_a_service_answers_every_release():
    (task,) = serve_load.tasks(Settings(quick=True))
    problem = task.pose(0)
    found = release_load.run(problem.given, seed=0, rate=100, seconds=0.3, connections=4)
    figures = problem.score(found)
    assert figures["releases"] == 30
    assert (found["answered"] > found["due"]).all()
    assert len(np.unique(found["rows"], axis=0)) == 30  # of another person each


def test_everything_that_is_asked_for_may_be_released(tmp_path):
    settings = ServiceSettings(tmp_path, port=0, requests_per_minute=10**9)
    gateway, asks = release_service.open_gateway(settings, dimension=12, width=5, people=3)
    app, _ = gateway.principals.create(release_service.APP, "app")
    with closing(gateway):
        rows = [np.asarray(gateway.release(app, ask["person"], frames=ask["frames"]).rows) for ask in asks]
    assert [row.shape for row in rows] == [(1, 5)] * 3
    assert len({row.tobytes() for row in rows}) == 3


def test_latency_counts_from_when_a_request_was_due_and_what_is_not_a_release_is_no_result():
    late = answer()["answered"]
    late[50:] += 0.2
    figures = serve_load.score(answer(answered=late))
    assert figures["p99"] == pytest.approx(204)
    assert figures["cpu"] == pytest.approx(3.0)
    for changed, named in [
        ({"status": np.array([200] * 99 + [429])}, "1 of 100"),
        ({"rows": np.full((100, 5), np.nan)}, "finite"),
        ({"rows": np.ones((100, 4))}, "finite"),
        ({"status": np.array([], dtype=int)}, "0 of 0"),
    ]:
        with pytest.raises(InputError, match=named):
            serve_load.score(answer(**changed))


def test_the_target_is_judged_at_its_rate():
    def judged(p99: float) -> str:
        figures = {"rate": 200.0, "p50": 4.0, "p99": p99, "most": 200.0, "cpu": 3.0}
        result = Result("serve-load", "sqlite", "releases", {"rate": serve_load.RATE}, 0, score=figures)
        return str(serve_load.sections([result])[0].rows[0][-1])

    assert (judged(99.0), judged(101.0)) == ("reached", "missed")
    assert serve_load.sections([])[0].rows[0][-1] == "not measured"
