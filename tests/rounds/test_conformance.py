"""What every run does, in one process and across machines, for every kind of task, bit for bit the same."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.errors import DataError, PrivacyError
from blindsight.rng import seeded_bytes
from blindsight.rounds import EarlyStopping, LocalSums, Run, run_here
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums import SPARSE_SCHEMES
from blindsight.sums.noise import NoisePlan
from tests.federated.parties import PATIENCE, School
from tests.rounds.learners import NAMES, TEST, attributes_of, loaders, sums, task_of

KINDS = ("classifier", "attributes", "private classifier", "k-means", "published classifier")
RESUMED = [kind for kind in KINDS if kind != "private classifier"]
SCHEDULED = ("classifier", "attributes", "k-means")


def in_one_process(folder, task, chosen, loads):
    terms = task.terms(chosen, run="a", members=NAMES)
    return lambda: LocalSums(task, terms, loads)


def across_machines(folder, task, chosen, loads):
    school = School(folder, loads)
    server = school.found(task, chosen)
    return lambda: school.restarted(server, patience=replace(PATIENCE, attempts=2))


BACKENDS = {"local": in_one_process, "remote": across_machines}
"""What sets a run up, and returns what opens its sums, as often as a process is started."""


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
    return sums(scheme, 0.5 if kind in SCHEDULED else 1.0)


@pytest.fixture
def begin(tmp_path, same_noise):
    """Return what sets a run up and returns what opens it, as often as is wanted."""
    count = []

    def begin(kind, scheme="plain", backend="local", *, chosen=None, loads=None):
        count.append(None)
        same_noise[0] = 0
        chosen = chosen or usual(kind, scheme)
        task, data = task_of(kind, chosen)
        test = (TEST[0], attributes_of(TEST[1])) if kind == "attributes" else TEST
        sums_of = BACKENDS[backend](tmp_path / str(len(count)), task, chosen, loaders(data) | (loads or {}))
        return lambda rounds=3, **others: Run(task, sums_of(), rounds=rounds, validation=test, **others)

    return begin


def assert_the_same(found, expected):
    assert np.array_equal(found.shared, expected.shared)
    assert found.first_score == expected.first_score
    facts = [[(r.score, r.contributors, list(r.missing)) for r in state.history] for state in (found, expected)]
    assert facts[0] == facts[1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_scheme_gives_the_same_model_bit_for_bit(begin, kind, scheme, backend):
    expected = begin(kind)().play()
    assert_the_same(begin(kind, scheme, backend)().play(), expected)
    assert all(report.contributors == NAMES for report in expected.history)
    assert expected.history[-1].step > 0


@pytest.mark.parametrize("minimum", [1, 3])
@pytest.mark.parametrize("scheme", SPARSE_SCHEMES)
@pytest.mark.parametrize("kind", ["classifier", "k-means"])
def test_what_members_choose_or_is_withheld_is_the_same_across_machines(begin, kind, scheme, minimum):
    chosen = sums(scheme, sparsity=0.5, minimum_per_position=minimum)
    expected = begin(kind, chosen=chosen)().play()
    assert (sum(report.withheld for report in expected.history) > 0) or minimum == 1
    assert_the_same(begin(kind, backend="remote", chosen=chosen)().play(), expected)


class Interrupted(Exception):
    pass


def interrupt(*arguments):
    raise Interrupted


PLAYED = [(kind, "plain") for kind in RESUMED] + [("classifier", scheme) for scheme in ("masks", "bfv", "block-dphe")]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("kind", "scheme"), PLAYED)
def test_a_run_that_is_interrupted_ends_as_one_that_was_not(tmp_path, monkeypatch, begin, kind, scheme, backend):
    options = {"path": tmp_path / "state.npz", "identity": "a"}
    start = begin(kind, scheme, backend)
    with pytest.raises(Interrupted):
        start(**options, on_round=interrupt).play()
    run = start(**options)
    with monkeypatch.context() as patched:  # killed between a sum and the model that is made of it
        patched.setattr(type(run.learner), "combine", interrupt)
        with pytest.raises(Interrupted):
            run.play()
    resumed = start(**options).play()
    assert_the_same(resumed, begin(kind)().play())
    again = start(**options).play()  # nothing is left to do
    assert again.history == resumed.history
    longer = start(**options, rounds=4).play()
    assert_the_same(longer, begin(kind)(rounds=4).play())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("kind", "scheme"), PLAYED)
def test_a_member_that_fails_is_missing_and_comes_back(begin, kind, scheme, backend):
    away = []

    def load():
        if away:
            raise DataError("the disk is gone")
        return task_of(kind, usual(kind, scheme))[1]["bob"]

    def come_and_go(report):
        away[:] = [True] * (report.round == 1)

    state = begin(kind, scheme, backend, loads={"bob": load})(on_round=come_and_go).play()
    assert [report.contributors for report in state.history] == [NAMES, ("ann", "cem", "dan"), NAMES]
    assert "disk is gone" in state.history[1].missing["bob"]
    assert_the_same(state, begin(kind, loads={"bob": load})(on_round=come_and_go).play())


@pytest.mark.parametrize("backend", BACKENDS)
def test_with_noise_more_missing_than_planned_end_the_run(begin, backend):
    def fail():
        raise DataError("the disk is gone")

    run = begin("private classifier", backend=backend, loads=dict.fromkeys(NAMES[:2], fail))()
    with pytest.raises(PrivacyError) as caught:
        run.play()
    assert "ann" in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_stops_early(begin, kind, backend):
    start = begin(kind, backend=backend)
    score, step = (
        EarlyStopping(criterion="score", patience=1, tolerance=2.0),
        EarlyStopping(criterion="step", tolerance=0.0),
    )
    assert len(start(4, stopping=score).play().history) == 2
    assert len(begin(kind, backend=backend)(4, stopping=step).play().history) == 4


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_statement_tells_of_rounds_schedule_and_noise(begin, kind, backend):
    run = begin(kind, "masks", backend)()
    run.play()
    said = run.statement
    assert any("3 rounds" in line for line in said.not_protected)
    assert ("everybody" in said.who_sees) == (kind in SCHEDULED)
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
