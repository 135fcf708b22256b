"""What every run does, over every backend and for every kind of task."""

import numpy as np
import pytest

from blindsight.errors import DataError, PrivacyError
from blindsight.rng import seeded_bytes
from blindsight.rounds import EarlyStopping, LocalSums, Run, run_here
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums.noise import NoisePlan
from tests.rounds.learners import NAMES, TEST, loaders, sums, task_of

BACKENDS = {"local": lambda task, terms, loads: LocalSums(task, terms, loads)}
KINDS = ("classifier", "private classifier", "k-means", "published classifier")


@pytest.fixture(autouse=True)
def same_noise(monkeypatch):
    """Draw the noise of a contribution from a stream of its own, the same in every run."""
    drawn, contribution = [0], NoisePlan.contribution

    def contribute(plan, parts, source=None):
        drawn[0] += 1
        return contribution(plan, parts, seeded_bytes(drawn[0]))

    monkeypatch.setattr(NoisePlan, "contribution", contribute)
    return drawn


def usual(kind, scheme):
    """Return sums in which all schemes send the same: a schedule, or everything where there is noise or a penalty."""
    return sums(scheme, 0.5 if kind in ("classifier", "k-means") else 1.0)


def play(kind, scheme="plain", backend="local", rounds=3, loads=None, **options):
    chosen = usual(kind, scheme)
    task, data = task_of(kind, chosen)
    terms = task.terms(chosen, run="a", members=NAMES)
    run = Run(task, BACKENDS[backend](task, terms, loads or loaders(data)), rounds=rounds, validation=TEST, **options)
    run.play()
    return run


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_scheme_gives_the_same_model_bit_for_bit(kind, backend, same_noise):
    found = {}
    for scheme in SCHEMES:
        same_noise[0] = 0
        found[scheme] = play(kind, scheme, backend).state
    for state in found.values():
        assert (state.shared == found["plain"].shared).all()
        assert [report.score for report in state.history] == [report.score for report in found["plain"].history]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "private classifier"])
def test_a_run_that_is_resumed_ends_as_one_that_was_not(tmp_path, kind, backend):
    options = {"path": tmp_path / "state.npz", "identity": "a"}
    play(kind, backend=backend, rounds=2, **options)
    resumed, whole = play(kind, backend=backend, rounds=4, **options), play(kind, backend=backend, rounds=4)
    assert (resumed.state.shared == whole.state.shared).all()
    assert [r.score for r in resumed.state.history] == [r.score for r in whole.state.history]
    assert resumed.state.first_score == whole.state.first_score


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "private classifier"])
def test_a_member_that_fails_is_missing_and_the_others_go_on(kind, backend):
    calls = []

    def load():
        calls.append(None)
        if len(calls) > 1:
            raise DataError("the disk is gone")
        return data["bob"]

    _, data = task_of(kind, usual(kind, "plain"))
    run = play(kind, backend=backend, loads=loaders(data) | {"bob": load})
    assert [len(report.contributors) for report in run.state.history] == [4, 3, 3]
    assert "disk is gone" in run.state.history[1].missing["bob"]
    assert "bob" not in run.state.history[1].contributors


def test_with_noise_more_missing_than_planned_end_the_run():
    def fail():
        raise DataError("the disk is gone")

    _, data = task_of("private classifier", sums())
    loads = loaders(data) | dict.fromkeys(NAMES[:2], fail)
    with pytest.raises(PrivacyError) as caught:
        play("private classifier", loads=loads)
    assert any("ann" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_stops_early(kind):
    run = play(kind, rounds=4, stopping=EarlyStopping(criterion="score", patience=1, tolerance=2.0))
    assert len(run.state.history) == 2
    assert len(play(kind, rounds=4, stopping=EarlyStopping(criterion="step", tolerance=0.0)).state.history) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_the_statement_tells_of_rounds_schedule_and_noise(kind):
    run = play(kind, "masks", rounds=3)
    said = run.statement
    assert any("3 rounds" in line for line in said.not_protected)
    assert ("everybody" in said.who_sees) == (kind in ("classifier", "k-means"))
    if kind == "private classifier":
        assert said.guarantee == "differential privacy"
        assert said.epsilon == pytest.approx(8.0, rel=1e-3)
        assert said.delta == 1e-5


def test_local_runs_of_the_same_task_have_the_same_model_whatever_the_run_is_called():
    chosen = usual("classifier", "plain")
    task, data = task_of("classifier", chosen)
    found = [run_here(task, chosen, loaders(data), rounds=3, random_state=5).state.shared for _ in range(2)]
    assert (found[0] == found[1]).all()
    assert not np.array_equal(found[0], run_here(task, chosen, loaders(data), rounds=3, random_state=6).state.shared)
