"""Learning across machines ends with the same model, bit for bit, as in one process, at every share and scheme."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError
from blindsight.federated.node import lesson
from blindsight.federated.server import RemoteSums, set_up
from blindsight.learn.classifier import classifier_task
from blindsight.learn.clustering import ClusterTraining
from blindsight.learn.kmeans import cluster_task
from blindsight.learn.linear import LinearTraining
from blindsight.learn.model import Attributes, Classes
from blindsight.learn.private import private_task
from blindsight.rng import science
from blindsight.rounds import Privacy, Run, Sums, run_here
from blindsight.sums import OWN_SCHEMES, SPARSE_SCHEMES, DpheOptions
from blindsight.sums.terms import AGGREGATOR
from tests.federated.parties import IMPATIENT, MEMBERS, PATIENCE, Parties

ROUNDS, SEED = 3, int(science(0).integers(2**63))


class School(Parties):
    """Parties whose members learn a task from data of their own."""

    def __init__(self, folder, data):
        super().__init__(folder)
        self.data = dict(data)

    def member_handler(self, name):
        def handle(kind, parts):
            node = self.member(name)
            return [node.learn(parts, lambda: self.data[name])] if kind == "contribute" else node.handle(kind, parts)

        return handle

    def found(self, task, sums, patience=PATIENCE):
        """Return the sums of a run that has been set up, over these parties."""
        run, _ = set_up(
            self.stores[AGGREGATOR],
            self.network,
            self.identities,
            lambda run, members: task.terms(sums, run=run, members=members),
            patience,
        )
        return RemoteSums(run, self.network, patience, task)

    def again(self, server, patience=PATIENCE):
        """Return the same as a new process finds it."""
        return RemoteSums(self.reloaded(server), self.network, patience, server.task)


def run_of(server, rounds=ROUNDS, **others):
    path, identity = server.run.folder / "state.npz", server.terms.digest.hex()
    return Run(server.task, server, rounds=rounds, path=path, identity=identity, **others)


def pictures(seed, *, samples=30, attributes=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, samples)
    X = rng.normal(size=(samples, 20)).astype(np.float32) + np.eye(3, 20, dtype=np.float32)[y] * 2
    return (X, rng.integers(-1, 2, (samples, attributes))) if attributes else (X, y)


def owned(**kind):
    return {name: pictures(number, **kind) for number, name in enumerate(MEMBERS, start=1)}


def sums_of(scheme, share=None, **options):
    """Return sums that are about a share, or else all; sparse under a scheme for that."""
    if scheme not in SPARSE_SCHEMES:
        return Sums(scheme=scheme, share=1.0 if share is None else share)
    short = {"sparsity": 0.5, "key_bits": 1024, "insecure": True, "minimum_per_position": 1} | options
    return Sums(scheme=scheme, share=share, options=DpheOptions(**short))


def classifier(sums, public=None, attributes=0):
    X, y = public or pictures(10, attributes=attributes)
    labels = Attributes(attributes) if attributes else Classes(np.unique(y))
    training = LinearTraining(**sums.selection, ridge=0.1, error_feedback=0.7 if sums.scheduled else 1.0)
    return replace(classifier_task((X, y), labels, training), seed=SEED)


def clusters(sums):
    return replace(cluster_task(pictures(10)[0], 3, ClusterTraining(**sums.selection), most_samples=1000), seed=SEED)


def here(task, sums, data, validation=None):
    """Return the run of the same members in one process."""
    loads = {name: (lambda own=own: own) for name, own in data.items()}
    return run_here(task, sums, loads, rounds=ROUNDS, random_state=0, validation=validation)


@pytest.mark.parametrize("share", [None, 1.0, 0.5])
@pytest.mark.parametrize("scheme", OWN_SCHEMES)
def test_a_classifier_is_the_one_of_a_single_process(tmp_path, scheme, share):
    sums, validation, data = sums_of(scheme, share), pictures(11), owned()
    data["dan"] = data["dan"][0], np.ones_like(data["dan"][1])  # who knows one answer alone gets public contrast
    task = classifier(sums)
    expected = here(task, sums, data, validation)
    found = run_of(School(tmp_path, data).found(task, sums), validation=validation)
    found.play()
    assert found.backend.terms.whole == (63 if share == 0.5 else 0)
    assert np.array_equal(found.state.shared, expected.state.shared)
    assert found.state.first_score == expected.state.first_score
    assert [report.score for report in found.state.history] == [report.score for report in expected.state.history]
    assert all(report.contributors == MEMBERS and not report.missing for report in found.state.history)
    assert not np.array_equal(found.state.shared, task.learner().first(SEED))


@pytest.mark.parametrize("share", [None, 0.5])
@pytest.mark.parametrize("scheme", OWN_SCHEMES)
def test_clusters_are_those_of_a_single_process(tmp_path, scheme, share):
    sums, data = sums_of(scheme, share), {name: X for name, (X, _) in owned().items()}
    task = clusters(sums)
    expected = here(task, sums, data)
    found = run_of(School(tmp_path, data).found(task, sums)).play()
    assert np.array_equal(found.shared, expected.state.shared)


def test_attributes_are_learned_as_in_a_single_process(tmp_path):
    sums, data = sums_of("bfv"), owned(attributes=4)
    task = classifier(sums, attributes=4)
    found = run_of(School(tmp_path, data).found(task, sums)).play()
    assert np.array_equal(found.shared, here(task, sums, data).state.shared)


def test_all_schemes_take_the_same_positions_in_the_same_round():
    """A run by a schedule has one model under every scheme that sends whole vectors."""
    tasks = {scheme: classifier(sums_of(scheme, 0.5)) for scheme in OWN_SCHEMES}
    assert len({task.digest for task in tasks.values()}) == 1
    for round in (1, 2, 7):
        supports = [
            task.terms(sums_of(scheme, 0.5), run=scheme, members=MEMBERS).support(round).positions.tolist()
            for scheme, task in tasks.items()
        ]
        assert all(support == supports[0] for support in supports)


def test_withheld_weights_are_kept_as_in_a_single_process(tmp_path):
    sums, data = sums_of("dphe", minimum_per_position=3), owned()
    task = classifier(sums)
    expected = here(task, sums, data)
    found = run_of(School(tmp_path, data).found(task, sums)).play()
    assert sum(report.withheld for report in expected.state.history) > 0
    assert np.array_equal(found.shared, expected.state.shared)


class Interrupted(Exception):
    pass


def interrupt(*arguments):
    raise Interrupted


@pytest.mark.parametrize("share", [None, 0.5])
@pytest.mark.parametrize("scheme", ["block-dphe", "bfv", "masks", "plain"])
def test_a_run_interrupted_and_resumed_ends_with_the_same_model(tmp_path, monkeypatch, scheme, share):
    sums, data = sums_of(scheme, share), owned()
    task = classifier(sums)
    expected, school = here(task, sums, data), School(tmp_path, data)
    server = school.found(task, sums)
    with pytest.raises(Interrupted):
        run_of(server, on_round=interrupt).play()
    run = run_of(school.again(server))
    with monkeypatch.context() as patched:  # killed between a sum and the model that is made of it
        patched.setattr(type(run.learner), "combine", interrupt)
        with pytest.raises(Interrupted):
            run.play()
    state = run_of(school.again(server)).play()
    assert np.array_equal(state.shared, expected.state.shared)
    assert [report.contributors for report in state.history] == [MEMBERS] * ROUNDS
    again = run_of(school.again(server)).play()
    assert np.array_equal(again.shared, state.shared)
    assert again.history == state.history


@pytest.mark.parametrize("share", [None, 0.5])
@pytest.mark.parametrize("scheme", ["block-dphe", "bfv", "masks", "plain"])
def test_a_member_that_misses_a_round_is_missed_as_in_a_single_process(tmp_path, scheme, share):
    sums, data, calls = sums_of(scheme, share), owned(), []
    task = classifier(sums)

    def away_in_the_second_round():
        calls.append(1)
        if len(calls) == 2:
            raise OSError("the disk is away")
        return data["bob"]

    loads = {name: (lambda own=own: own) for name, own in data.items()} | {"bob": away_in_the_second_round}
    expected = run_here(task, sums, loads, rounds=ROUNDS, random_state=0)
    assert [len(report.contributors) for report in expected.state.history] == [4, 3, 4]
    school = School(tmp_path, data)
    server, bob = school.found(task, sums), school.handlers["bob"]

    def come_and_go(report):
        if report.round == 1:
            del school.handlers["bob"]
        else:
            school.handlers["bob"] = bob

    state = run_of(server, on_round=come_and_go).play()
    assert [report.contributors for report in state.history] == [MEMBERS, ("ann", "cem", "dan"), MEMBERS]
    assert [list(report.missing) for report in state.history] == [[], ["bob"], []]
    assert np.array_equal(state.shared, expected.state.shared)


def test_a_member_with_other_features_is_left_out_with_its_reason(tmp_path):
    data, sums = owned(), sums_of("bfv")
    data["bob"] = data["bob"][0][:, :4], data["bob"][1]
    state = run_of(School(tmp_path, data).found(classifier(sums), sums), rounds=1).play()
    assert state.history[0].contributors == ("ann", "cem", "dan")
    assert "20 columns; got 4" in state.history[0].missing["bob"]


def test_a_member_that_reads_a_model_of_another_shape_or_kind_refuses_it(tmp_path):
    sums, school = sums_of("plain"), School(tmp_path, owned())
    server = school.found(classifier(sums), sums)
    node, right = school.member("ann"), np.zeros((3, 21))
    digest, blob = lesson(right)
    for wrong in ((digest, blob[8:]), (digest, blob + b"\0"), lesson(right + np.nan), (bytes(32), blob), (digest, b"")):
        with pytest.raises(MessageError):
            node.learn(server.begin(1, wrong)["ann"], lambda: school.data["ann"])
    with pytest.raises(InputError, match=r"\(3, 20\)"):
        node.learn(server.begin(1, lesson(right[:, 1:]))["ann"], lambda: school.data["ann"])
    with pytest.raises(MessageError, match="four parts"):
        node.learn(server.begin(1)["ann"], lambda: school.data["ann"])
    node.learn(server.begin(1, (digest, blob))["ann"], lambda: school.data["ann"])


@pytest.mark.parametrize("scheme", ["masks", "bfv"])
def test_the_same_weights_in_other_bytes_are_the_same_model(tmp_path, scheme):
    """Otherwise a second sum of the same model, without bob, would tell bob's update."""
    sums, school = sums_of(scheme), School(tmp_path, owned())
    server = school.found(classifier(sums), sums, IMPATIENT)
    shared = server.task.learner().first(SEED)
    shared[0] = 0.0
    assert server.round(1, shared).contributors == MEMBERS
    others = shared.copy()
    others[0] = -0.0
    del school.handlers["bob"]
    with pytest.raises(PrivacyError, match="answered this model"):
        server.round(2, others)


def test_a_run_that_was_begun_with_another_task_is_not_continued(tmp_path):
    sums, school = sums_of("plain"), School(tmp_path, owned())
    server = school.found(classifier(sums), sums)
    run_of(server, rounds=1).play()
    with pytest.raises(InputError, match="another task"):
        RemoteSums(server.run, school.network, PATIENCE, clusters(sums))
    path = server.run.folder / "state.npz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorruptFileError):
        run_of(server)


# ---- a proven epsilon


PRIVACY = Privacy(epsilon=8.0, delta=1e-3, unit="record", drop_outs=1)


def private(privacy=PRIVACY, rounds=2, scheme="masks"):
    labels, sizes = Classes(np.arange(3)), [30] * len(MEMBERS)
    return private_task(pictures(10), labels, privacy, sizes=sizes, rounds=rounds, scheme=scheme)


@pytest.mark.parametrize("scheme", ["masks", "bfv"])
def test_a_run_across_machines_proves_an_epsilon(tmp_path, scheme):
    sums = sums_of(scheme)
    task = private(scheme=scheme)
    run = run_of(School(tmp_path, owned()).found(task, sums), rounds=2, validation=pictures(11))
    state = run.play()
    assert all(report.contributors == MEMBERS for report in state.history)
    assert np.isfinite(state.shared).all()
    statement = run.statement
    assert statement.guarantee == "differential privacy"
    assert statement.unit == "record"
    assert statement.epsilon == pytest.approx(8.0, rel=1e-3)
    with pytest.raises(PrivacyError, match="2 rounds; got round 3"):  # the server refuses, and so do members
        run_of(run.backend, rounds=3).play()
    with pytest.raises(PrivacyError):
        run.backend.round(3, state.shared)
    assert all("2 rounds; got round 3" in reason for reason in run.backend.refused.values())


class Weak(School):
    """A server that sets a run up on terms under which the sums do not carry the noise of the task."""

    def found(self, task, sums, patience=PATIENCE, **changes):
        run, self.left_out = set_up(
            self.stores[AGGREGATOR],
            self.network,
            self.identities,
            lambda run, members: replace(task.terms(sums, run=run, members=members), **changes),
            patience,
        )
        return RemoteSums(run, self.network, patience, task)


@pytest.mark.parametrize("changes", [{"minimum": 3}, {"slot_bits": 40}, {"sample": 4}])
def test_members_do_not_contribute_where_the_terms_carry_less_noise_than_was_planned(tmp_path, changes):
    task = private(replace(PRIVACY, drop_outs=0))
    school = Weak(tmp_path, owned())
    server = school.found(task, sums_of("masks"), IMPATIENT, **changes)
    with pytest.raises(PrivacyError):
        server.round(1, task.learner().first(0))
    assert set(server.refused) == set(MEMBERS)
    assert all("made for other terms" in reason for reason in server.refused.values())


def test_members_refuse_noise_that_counts_on_those_who_may_collude(tmp_path):
    """Planned with no colluders, where masks withstand one."""
    task = replace(private(), noise=replace(private().noise, colluders=0, drop_outs=0))
    server = School(tmp_path, owned()).found(task, sums_of("masks"), IMPATIENT)
    with pytest.raises(PrivacyError):
        server.round(1, task.learner().first(0))
    assert {name for name, reason in server.refused.items() if "1 members may collude, planned 0" in reason} == {
        *MEMBERS
    }


def test_a_member_can_insist_on_an_epsilon(tmp_path):
    data = owned()
    school = School(tmp_path, data)

    def strict(kind, parts):
        node = school.member("ann", max_epsilon=1.0)
        return [node.learn(parts, lambda: data["ann"])] if kind == "contribute" else node.handle(kind, parts)

    school.handlers["ann"] = strict
    for task, words in ((private(), "prove 8"), (classifier(sums_of("bfv")), "got none")):
        server = school.found(task, sums_of("bfv"))
        total = server.round(1, task.learner().first(0))
        assert total.contributors == ("bob", "cem", "dan")
        assert words in total.missing["ann"]
    mild = private(replace(PRIVACY, epsilon=0.9), scheme="bfv")
    server = school.found(mild, sums_of("bfv"))
    assert server.round(1, mild.learner().first(0)).contributors == MEMBERS
