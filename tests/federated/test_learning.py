"""Learning across machines ends with the same model, bit for bit, as in one process; tasks and updates."""

import json
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from blindsight.federated.task import (
    Task,
    TaskOptions,
    Training,
    UpdateConfig,
    _TaskMessage,
    classifier_task,
    cluster_task,
    learn,
    lesson,
    mean_update,
    propose_update,
    run_task,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.wire import encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError
from blindsight.federated.server import RemoteSums, set_up
from blindsight.files import pack_arrays
from blindsight.learn import FederatedClassifier, FederatedKMeans
from blindsight.learn.rounds import Memory
from blindsight.rng import science
from blindsight.sums import Terms
from blindsight.sums.terms import AGGREGATOR
from tests.federated.parties import IMPATIENT, MEMBERS, PATIENCE, Parties

SCHEMES = ("block-dphe", "bfv", "masks", "plain")
ROUNDS, SEED = 3, int(science(0).integers(2**63))
COMMON = {"sparsity": 0.5, "key_bits": 1024, "insecure": True}
TASK = COMMON | {"seed": SEED}


class School(Parties):
    """Parties whose members learn from data of their own."""

    def __init__(self, folder, data):
        super().__init__(folder)
        self.data = dict(data)

    def member_handler(self, name):
        def handle(kind, parts):
            member = self.member(name)
            if kind == "contribute":
                return [learn(member, parts, lambda: self.data[name])]
            return member.handle(kind, parts)

        return handle

    def found(self, served):
        run, _ = set_up(
            self.stores[AGGREGATOR],
            self.network,
            self.identities,
            served.terms,
            PATIENCE,
        )
        return self.server(run, served)

    def server(self, run, served):
        return RemoteSums(run, self.network, PATIENCE, config=served.task.to_bytes())


def pictures(seed, *, samples=30, attributes=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, samples)
    X = rng.normal(size=(samples, 6)).astype(np.float32) + np.eye(3, 6, dtype=np.float32)[y] * 2
    return (X, rng.integers(-1, 2, (samples, attributes))) if attributes else (X, y)


def owners(**kind):
    return {name: pictures(number, **kind) for number, name in enumerate(MEMBERS, start=1)}


def chosen(scheme):
    """How owners across machines choose what they send."""
    return "blocks" if scheme == "block-dphe" else "topk"


def classifier(scheme, public, validation, data, **others):
    settings = COMMON | {"minimum_per_position": 1, "selection": chosen(scheme)} | others
    estimator = FederatedClassifier(scheme, rounds=ROUNDS, ridge=0.1, random_state=0, **settings)
    return estimator.fit(data, public=public, validation=validation)


def task_for(scheme, public, validation, **others):
    return classifier_task(public, validation, len(MEMBERS), TaskOptions(scheme=scheme, ridge=0.1, **TASK, **others))


@pytest.mark.parametrize(("scheme", "attributes"), [(scheme, 0) for scheme in SCHEMES] + [("bfv", 4)])
def test_a_classifier_is_the_one_of_a_single_process(tmp_path, scheme, attributes):
    kind = {"attributes": attributes}
    public, validation, data = pictures(10, **kind), pictures(11, **kind), owners(**kind)
    data["dan"] = data["dan"][0], np.ones_like(data["dan"][1])  # who knows one answer alone gets public contrast
    expected = classifier(scheme, public, validation, data, multilabel=bool(attributes))
    served = task_for(scheme, public, validation)
    state = run_task(served, School(tmp_path, data).found(served), rounds=ROUNDS)
    assert np.array_equal(state.shared, expected.model_.weights)
    assert state.first_score == expected.public_score_
    assert [report.score for report in state.rounds] == [report.score for report in expected.history_]
    assert all(report.contributors == MEMBERS and not report.refused for report in state.rounds)


def test_withheld_weights_are_kept_as_in_a_single_process(tmp_path):
    public, data = pictures(10), owners()
    expected = classifier("dphe", public, None, data, minimum_per_position=3)
    served = task_for("dphe", public, None, minimum_per_position=3)
    state = run_task(served, School(tmp_path, data).found(served), rounds=ROUNDS)
    assert sum(report.withheld for report in expected.history_) > 0
    assert np.array_equal(state.shared, expected.model_.weights)


@pytest.mark.parametrize("scheme", ["block-dphe", "masks"])
def test_clusters_are_those_of_a_single_process(tmp_path, scheme):
    public, validation = pictures(10)[0], pictures(11)
    data = {name: X for name, (X, _) in owners().items()}
    settings = COMMON | {"minimum_per_position": 1, "selection": chosen(scheme)}
    estimator = FederatedKMeans(3, scheme=scheme, rounds=ROUNDS, random_state=0, **settings)
    expected = estimator.fit(data, public=public, validation=validation)
    samples = len(public) + sum(map(len, data.values()))
    served = cluster_task(public, validation, TaskOptions(scheme=scheme, clusters=3, most_samples=samples, **TASK))
    state = run_task(served, School(tmp_path, data).found(served), rounds=ROUNDS)
    assert np.array_equal(state.shared, expected.model_.centroids)
    assert [report.score for report in state.rounds] == [report.score for report in expected.history_]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_interrupted_and_resumed_ends_with_the_same_model(tmp_path, scheme):
    public, data = pictures(10), owners()
    expected = classifier(scheme, public, None, data)
    served = task_for(scheme, public, None)
    school = School(tmp_path, data)
    server = school.found(served)

    class Interrupted(Exception):
        pass

    def interrupt(report):
        raise Interrupted

    with pytest.raises(Interrupted):
        run_task(served, server, rounds=ROUNDS, on_report=interrupt)
    server = school.server(school.reloaded(server), served)
    combine = served.learner.combine
    try:  # killed between a sum and the model that is made of it
        object.__setattr__(served.learner, "combine", lambda *_: interrupt(None))
        with pytest.raises(Interrupted):
            run_task(served, server, rounds=ROUNDS)
    finally:
        object.__setattr__(served.learner, "combine", combine)
    server = school.server(school.reloaded(server), served)
    state = run_task(served, server, rounds=ROUNDS)
    assert np.array_equal(state.shared, expected.model_.weights)
    assert len(state.rounds) == ROUNDS
    again = run_task(served, server, rounds=ROUNDS)
    assert np.array_equal(again.shared, state.shared)
    assert again.rounds == state.rounds


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_owner_that_misses_a_round_is_missed_as_in_a_single_process(tmp_path, scheme):
    public, data = pictures(10), owners()
    calls = []

    def away_in_the_second_round():
        calls.append(1)
        if len(calls) == 3:  # the first call is the survey before the run
            raise OSError("the disk is away")
        return data["bob"]

    expected = classifier(scheme, public, None, {**data, "bob": away_in_the_second_round})
    assert [len(report.contributors) for report in expected.history_] == [4, 3, 4]
    served, school = task_for(scheme, public, None), School(tmp_path, data)
    server, bob = school.found(served), school.handlers["bob"]

    def come_and_go(report):
        if report.round == 1:
            del school.handlers["bob"]
        else:
            school.handlers["bob"] = bob

    state = run_task(served, server, rounds=ROUNDS, on_report=come_and_go)
    assert [report.contributors for report in state.rounds] == [MEMBERS, ("ann", "cem", "dan"), MEMBERS]
    assert [list(report.refused) for report in state.rounds] == [[], ["bob"], []]
    assert np.array_equal(state.shared, expected.model_.weights)


def test_an_owner_with_other_features_is_left_out_with_its_sentence(tmp_path):
    data = owners()
    data["bob"] = data["bob"][0][:, :4], data["bob"][1]
    served = task_for("bfv", pictures(10), None)
    state = run_task(served, School(tmp_path, data).found(served), rounds=1)
    assert state.rounds[0].contributors == ("ann", "cem", "dan")
    assert "6 columns; got 4" in state.rounds[0].refused["bob"]


def test_an_owner_that_reads_a_model_of_another_shape_or_kind_refuses_it(tmp_path):
    served, school = task_for("plain", pictures(10), None), School(tmp_path, owners())
    server = school.found(served)
    member, right = school.member("ann"), np.zeros(served.task.shape)
    digest, blob = lesson(right)
    for wrong in ((digest, blob[8:]), (digest, blob + b"\0"), lesson(right + np.nan), (bytes(32), blob)):
        with pytest.raises(MessageError, match="shared model"):
            learn(member, server.begin(1, wrong)["ann"], lambda: school.data["ann"])
    with pytest.raises(MessageError, match="four parts"):
        learn(member, server.begin(1)["ann"], lambda: school.data["ann"])
    learn(member, server.begin(1, (digest, blob))["ann"], lambda: school.data["ann"])


@pytest.mark.parametrize("scheme", ["masks", "bfv"])
def test_the_same_weights_in_other_bytes_are_the_same_model(tmp_path, scheme):
    """Otherwise a second sum of the same model, without bob, would tell bob's update."""
    served, school = task_for(scheme, pictures(10), None), School(tmp_path, owners())
    server = school.found(served)
    server.patience = IMPATIENT
    shared = served.learner.first(SEED)
    shared[0] = 0.0
    assert server.play(1, lesson(shared)).contributors == MEMBERS
    others = shared.copy()
    others[0] = -0.0
    del school.handlers["bob"]
    with pytest.raises(PrivacyError, match="answered this model"):
        server.play(2, lesson(others))


def test_a_run_that_was_begun_with_other_data_is_not_continued(tmp_path):
    served, school = task_for("plain", pictures(10), None), School(tmp_path, owners())
    server = school.found(served)
    run_task(served, server, rounds=1)
    other = cluster_task(pictures(10)[0], None, TaskOptions(scheme="plain", clusters=2, **COMMON))
    with pytest.raises(InputError, match="other settings"):
        run_task(other, server, rounds=2)
    path = server.run.folder / "task.npz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorruptFileError):
        run_task(served, server, rounds=2)


def test_complaints_about_the_servers_data_say_which():
    X, y = pictures(10)
    for clusters in (0, 31):  # as many as public samples at most
        with pytest.raises(InputError, match=r"clusters.* 30"):
            cluster_task(X, None, TaskOptions(clusters=clusters, **COMMON))
    with pytest.raises(InputError, match="the public data"):
        task_for("plain", (X, y[1:]), None)
    with pytest.raises(InputError, match="the validation data"):
        task_for("plain", (X, y), (X[:, 1:], y))


SETTINGS = TaskOptions(key_bits=1024, insecure=True, clusters=3)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 4)).astype(np.float32), np.tile([0, 1, 2], 4)


@cache
def tasks():
    words = np.array(["cat", "dog", "emu"])[Y]
    return {
        "classes": classifier_task((X, Y), None, 3, SETTINGS).task,
        "words": classifier_task((X, words), None, 3, SETTINGS).task,
        "two classes": classifier_task((X, Y > 0), None, 3, SETTINGS).task,
        "attributes": classifier_task((X, RNG.integers(-1, 2, (12, 5))), None, 3, SETTINGS).task,
        "clusters": cluster_task(X, None, SETTINGS).task,
    }


@pytest.mark.parametrize("kind", tasks())
def test_a_task_arrives_as_it_was_sent(kind):
    task = tasks()[kind]
    arrived = Task.from_bytes(task.to_bytes())
    assert arrived.training == task.training
    assert arrived.shape == task.shape
    assert arrived.kind == task.kind
    assert arrived.public.dtype == np.float32
    assert np.array_equal(arrived.public, task.public)
    assert np.array_equal(arrived.standardiser.mean, task.standardiser.mean)
    assert type(arrived.labels) is type(task.labels)
    assert arrived.to_bytes() == task.to_bytes()


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(tasks())), st.data())
def test_a_task_that_was_altered_is_refused(kind, data):
    blob = bytearray(tasks()[kind].to_bytes())
    place = data.draw(st.integers(0, len(blob) - 1))
    blob[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MessageError):
        Task.from_bytes(bytes(blob))


def forged(document=None, **changes):
    """Return a task of three classes whose document or arrays somebody else wrote."""
    task = tasks()["classes"]
    whole = {"kind": "classifier", "training": {}, "clusters": 0} if document is None else document
    if isinstance(whole, dict):
        whole = {"seed": 0} | whole
    content = {
        "mean": task.standardiser.mean,
        "scale": task.standardiser.scale,
        "public": task.public,
        "classes": np.arange(3),
        "signs": task.signs,
    } | changes
    text = whole if isinstance(whole, bytes) else json.dumps(whole).encode()
    return encode(
        _TaskMessage(text, pack_arrays({name: array for name, array in content.items() if array is not None}))
    )


DOCUMENTS = [
    b"\xff",
    b"[" * 20_000,
    b"[]",
    {},
    {"kind": "k-means", "training": {}, "clusters": 0},
    {"kind": "k-means", "training": {}, "clusters": 2.5},
    {"kind": "k-means", "training": {}, "clusters": True},
    {"kind": "classifier", "training": {"passes": "many"}},
    {"kind": "classifier", "training": {"passes": 0}},
    {"kind": "classifier", "training": {"loss": "gain"}},
    {"kind": "classifier", "training": {"code": "import os"}},
    {"kind": "classifier", "training": {}, "attributes": "3"},
    {"kind": "classifier", "training": {}, "attributes": 4},
    {"kind": "classifier", "training": {}, "seed": -1},
]
ARRAYS = [
    {"mean": None},
    {"mean": np.zeros(3)},
    {"scale": np.zeros(4)},
    {"scale": np.full(4, np.nan)},
    {"public": np.full((12, 4), np.inf)},
    {"public": np.array([["a"] * 4] * 12)},
    {"public": np.zeros((11, 4))},
    {"classes": np.arange(2)},
    {"classes": np.arange(1)},
    {"signs": np.full((12, 3), 2)},
    {"signs": np.zeros((12, 2), dtype=np.int8)},
]


def test_documents_and_arrays_that_make_no_sense_are_refused():
    assert Task.from_bytes(forged()).shape == (3, 5)  # the forgery itself would pass
    for blob in [*map(forged, DOCUMENTS), *(forged(**change) for change in ARRAYS)]:
        with pytest.raises(MessageError):
            Task.from_bytes(blob)


def test_a_task_of_classification_needs_labels():
    task = tasks()["classes"]
    bare = Task(task.training, task.standardiser, task.public)
    with pytest.raises(InputError, match="needs labels"):
        bare.learner("ann", lambda: None)


NOTHING = Memory(None, None)


def terms_of(size, config, members=5):
    names = tuple(f"member {number}" for number in range(members))
    return Terms(scheme="plain", run="a", members=names, dimension=size + config.extra, fraction_bits=24)


def proposed(change, examples, config, memory=NOTHING, metrics=()):
    return propose_update(
        Training(np.asarray(change), examples, metrics), memory, config, terms_of(len(change), config), 1
    )


def summed(vectors, config, terms):
    total = np.sum([terms.integers(vector) for vector in vectors], axis=0)
    return mean_update(
        SimpleNamespace(contributors=terms.members[: len(vectors)], total=total, values=terms.values(total)),
        config,
        terms,
    )


@given(st.floats(0, 0.99), st.integers(1, 500), st.integers(0, 10**9), st.text(max_size=64))
def test_a_config_survives_the_wire(sparsity, block, most_examples, weighted_by):
    config = UpdateConfig(sparsity, block, most_examples, weighted_by, (weighted_by + "a", weighted_by + "b"))
    assert UpdateConfig.from_bytes(encode(config)) == config


def test_sums_give_means_weighted_by_examples_and_count_what_was_cut_and_clipped():
    rng = np.random.default_rng(0)
    changes, examples = rng.normal(size=(5, 7)), np.array([1, 20, 50, 100, 700])
    changes[3, :2] = 1000.0
    losses = rng.uniform(size=5)
    config = UpdateConfig(sparsity=0.0, most_examples=100, metrics=("loss",))
    terms = terms_of(7, config)
    sent, limit = [], terms.max_integer / 2**24
    for change, number, loss in zip(changes, examples, losses, strict=True):
        proposal, clipped = proposed(change, number, config, metrics=(loss,))
        assert clipped == 2 * (number == 100)
        sent.append(np.clip(proposal.sent, -limit, limit))
    mean, weights = summed(sent, config, terms), np.minimum(examples, 100)
    assert mean.change[2:] == pytest.approx(np.average(changes, axis=0, weights=weights)[2:], abs=1e-6)
    assert mean.metrics["loss"] == pytest.approx(np.average(losses, weights=weights), abs=1e-6)
    assert (mean.cut, mean.clipped) == (1, 2)
    assert mean.examples == pytest.approx(weights.sum(), abs=1e-3)


def test_without_a_most_all_weigh_the_same():
    sent = proposed(np.ones(3), 10**6, UpdateConfig(0.0, 1, 0))[0].sent
    assert sent.tolist() == [1.0] * 4 + [2.0**-24] * 2


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.floats(0.3, 0.95), st.integers(1, 6))
def test_all_that_was_sent_and_what_is_held_is_all_that_was_learned(seed, block, sparsity, rounds):
    rng = np.random.default_rng(seed)
    config, memory, sent = UpdateConfig(sparsity, block, 100), NOTHING, np.zeros(33)
    changes, examples = rng.normal(size=(rounds, 30)), rng.integers(1, 100, size=rounds)
    for change, number in zip(changes, examples, strict=True):
        proposal, _ = proposed(change, number, config, memory)
        assert proposal.sent[30] == pytest.approx(number / 100)
        assert np.count_nonzero(proposal.sent) <= np.count_nonzero(config.chosen(np.ones(33)))
        sent, memory = sent + proposal.sent, proposal.memory
    assert sent[:30] + memory.held[:30] == pytest.approx((examples / 100) @ changes)


def test_configs_changes_and_weights_that_cannot_be_are_refused():
    config = UpdateConfig(0.0)
    assert proposed(np.ones(3), 1, config)[0].memory.held is None  # without sparsity
    for change in ({"sparsity": 1.0}, {"sparsity": -0.1}, {"block": 0}, {"most_examples": -1}, {"metrics": ("a", "a")}):
        with pytest.raises(InputError):
            UpdateConfig(**change)
    impossible = UpdateConfig()
    object.__setattr__(impossible, "sparsity", 2.0)
    for blob in (b"no config", encode(impossible)):
        with pytest.raises(MessageError):
            UpdateConfig.from_bytes(blob)
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(MessageError, match="finite"):
            proposed(np.array([0.0, bad]), 1, config)
    for total in (0.0, -0.5, 3.0001, 5.0):
        with pytest.raises(PrivacyError, match="no mean"):
            summed([np.array([0.0, total, 0.0, 0.0]), *np.zeros((2, 4))], config, terms_of(1, config))


@pytest.mark.parametrize("kind", ["classifier", "clusters"])
def test_a_task_by_a_public_schedule_learns_from_a_part_of_the_weights_a_round(tmp_path, kind):
    public, validation, data = pictures(10), pictures(11), owners()
    options = TaskOptions(scheme="masks", share=0.5, clusters=3, most_samples=1000, seed=SEED)
    if kind == "classifier":
        served = classifier_task(public, validation, len(MEMBERS), options)
    else:
        data = {name: X for name, (X, _) in data.items()}
        served = cluster_task(public[0], validation, options)
    server = School(tmp_path, data).found(served)
    assert server.terms.whole == served.dimension > server.terms.dimension
    state = run_task(served, server, rounds=4)
    before = served.learner.first(SEED)
    assert np.isfinite(state.shared).all()
    assert np.count_nonzero(state.shared != before) > served.dimension / 2  # every weight had its turn
    assert state.rounds[-1].score >= state.first_score - 0.05
    with pytest.raises(InputError, match="share"):
        TaskOptions(scheme="dphe", share=0.5)
