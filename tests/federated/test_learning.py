"""What members and server refuse of learning across machines; the rest is in tests/rounds/test_conformance.py."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError
from blindsight.federated.node import lesson
from blindsight.federated.server import RemoteSums
from blindsight.learn.private import private_task
from blindsight.rounds import Privacy
from tests.federated.parties import IMPATIENT, MEMBERS, PATIENCE, School, run_of
from tests.rounds.learners import DATA, FOUR, PUBLIC, TEST, loaders, sums, task_of


def began(folder, scheme="plain", patience=PATIENCE):
    """Return parties that learn a classifier, and the sums of their run."""
    task, data = task_of("classifier", sums(scheme))
    school = School(folder, loaders(data))
    return school, school.found(task, sums(scheme), patience)


def test_a_member_with_other_features_is_left_out_with_its_reason(tmp_path):
    chosen = sums("bfv")
    task, data = task_of("classifier", chosen)
    X, y = data["bob"]
    school = School(tmp_path, loaders(data | {"bob": (X[:, :4], y)}))
    state = run_of(school.found(task, chosen), rounds=1).play()
    assert state.history[0].contributors == ("ann", "cem", "dan")
    assert "12 columns; got 4" in state.history[0].missing["bob"]


def test_a_member_that_reads_a_model_of_another_shape_or_kind_refuses_it(tmp_path):
    school, server = began(tmp_path)
    node, right = school.member("ann"), np.zeros((4, 13))
    digest, blob = lesson(right)
    for wrong in ((digest, blob[8:]), (digest, blob + b"\0"), lesson(right + np.nan), (bytes(32), blob), (digest, b"")):
        with pytest.raises(MessageError):
            node.learn(server.begin(1, wrong)["ann"], school.loads["ann"])
    with pytest.raises(InputError, match=r"\(4, 12\)"):
        node.learn(server.begin(1, lesson(right[:, 1:]))["ann"], school.loads["ann"])
    with pytest.raises(MessageError, match="four parts"):
        node.learn(server.begin(1)["ann"], school.loads["ann"])
    node.learn(server.begin(1, (digest, blob))["ann"], school.loads["ann"])


@pytest.mark.parametrize("scheme", ["masks", "bfv"])
def test_the_same_weights_in_other_bytes_are_the_same_model(tmp_path, scheme):
    """Otherwise a second sum of the same model, without bob, would tell bob's update."""
    school, server = began(tmp_path, scheme, IMPATIENT)
    shared = server.task.learner().first(0)
    shared[0] = 0.0
    assert server.round(1, shared).contributors == MEMBERS
    others = shared.copy()
    others[0] = -0.0
    del school.handlers["bob"]
    with pytest.raises(PrivacyError, match="answered this model"):
        server.round(2, others)


def test_a_run_that_was_begun_with_another_task_is_not_continued(tmp_path):
    school, server = began(tmp_path)
    run_of(server, rounds=1).play()
    with pytest.raises(InputError, match="another task"):
        RemoteSums(server.run, school.network, PATIENCE, task_of("k-means", sums())[0])
    path = server.run.folder / "state.npz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorruptFileError):
        run_of(server, rounds=1)


# ---- a proven epsilon


PRIVACY = Privacy(epsilon=8.0, delta=1e-3, unit="record", drop_outs=1)


def private(privacy=PRIVACY, rounds=2, scheme="masks"):
    return private_task(PUBLIC, FOUR, privacy, sizes=[40] * len(MEMBERS), rounds=rounds, scheme=scheme)


@pytest.mark.parametrize("scheme", ["masks", "bfv"])
def test_a_run_across_machines_proves_an_epsilon(tmp_path, scheme):
    task = private(scheme=scheme)
    run = run_of(School(tmp_path, loaders(DATA)).found(task, sums(scheme), IMPATIENT), rounds=2, validation=TEST)
    state = run.play()
    assert all(report.contributors == MEMBERS for report in state.history)
    assert run.statement.epsilon == pytest.approx(8.0, rel=1e-3)
    with pytest.raises(PrivacyError, match="2 rounds; got round 3"):  # the server refuses, and so do members
        run_of(run.backend, rounds=3).play()
    with pytest.raises(PrivacyError):
        run.backend.round(3, state.shared)
    assert all("2 rounds; got round 3" in reason for reason in run.backend.refused.values())


@pytest.mark.parametrize("changes", [{"minimum": 3}, {"slot_bits": 40}, {"sample": 4}])
def test_members_do_not_contribute_where_the_terms_carry_less_noise_than_was_planned(tmp_path, changes):
    task = private(replace(PRIVACY, drop_outs=0))
    school = School(tmp_path, loaders(DATA))
    server = school.found(task, sums("masks"), IMPATIENT, **changes)
    with pytest.raises(PrivacyError):
        server.round(1, task.learner().first(0))
    assert set(server.refused) == set(MEMBERS)
    assert all("made for other terms" in reason for reason in server.refused.values())


def test_members_refuse_noise_that_counts_on_those_who_may_collude(tmp_path):
    """Planned with no colluders, where masks withstand one."""
    task = replace(private(), noise=replace(private().noise, colluders=0, drop_outs=0))
    server = School(tmp_path, loaders(DATA)).found(task, sums("masks"), IMPATIENT)
    with pytest.raises(PrivacyError):
        server.round(1, task.learner().first(0))
    assert {name for name, reason in server.refused.items() if "1 members may collude, planned 0" in reason} == {
        *MEMBERS
    }


def test_a_member_can_insist_on_an_epsilon(tmp_path):
    school = School(tmp_path, loaders(DATA))

    def strict(kind, parts):
        node = school.member("ann", max_epsilon=1.0)
        return [node.learn(parts, school.loads["ann"])] if kind == "contribute" else node.handle(kind, parts)

    school.handlers["ann"] = strict
    for task, words in ((private(), "prove 8"), (task_of("classifier", sums("bfv"))[0], "got none")):
        server = school.found(task, sums("bfv"))
        total = server.round(1, task.learner().first(0))
        assert total.contributors == ("bob", "cem", "dan")
        assert words in total.missing["ann"]
    mild = private(replace(PRIVACY, epsilon=0.9), scheme="bfv")
    server = school.found(mild, sums("bfv"))
    assert server.round(1, mild.learner().first(0)).contributors == MEMBERS
