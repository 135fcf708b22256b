"""Learning across machines ends with the same model, bit for bit, as in one process; lessons and updates."""

import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.wire import encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError
from blindsight.federated.courses import CourseSettings, classifier_course, cluster_course
from blindsight.federated.lessons import Lesson, _LessonMessage
from blindsight.federated.sums.opening import open_run
from blindsight.federated.sums.server import SumServer
from blindsight.federated.teaching import learn, teach
from blindsight.federated.updates import Briefing, mean_change, propose_update
from blindsight.files import pack_arrays
from blindsight.learn import FederatedClassifier, FederatedKMeans
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.rounds import Memory
from blindsight.rng import science
from tests.federated.village import PATIENCE, USERS, Village

SCHEMES = ("block-dphe", "bfv", "masks", "plain")
ROUNDS, SEED = 3, int(science(0).integers(2**63))
COMMON = {"sparsity": 0.5, "key_bits": 1024, "insecure": True}


class School(Village):
    """A village whose users learn from data of their own."""

    def __init__(self, folder, data):
        super().__init__(folder)
        self.data = dict(data)

    def user_handler(self, name):
        def handle(kind, parts):
            desk = self.user_desk(name)
            return [learn(desk, parts, lambda: self.data[name])] if kind == "contribute" else desk.handle(kind, parts)

        return handle

    def found(self, course):
        run, _ = open_run(
            self.homes[AGGREGATOR],
            self.courier,
            self.identities,
            lambda name, users: course.terms(name, users, minimum=3),
            PATIENCE,
        )
        return self.server(run, course)

    def server(self, run, course):
        return SumServer(run, self.courier, PATIENCE, seed=SEED, briefing=course.lesson.to_bytes())


def pictures(seed, *, samples=30, attributes=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, samples)
    X = rng.normal(size=(samples, 6)).astype(np.float32) + np.eye(3, 6, dtype=np.float32)[y] * 2
    return (X, rng.integers(-1, 2, (samples, attributes))) if attributes else (X, y)


def owners(**kind):
    return {name: pictures(number, **kind) for number, name in enumerate(USERS, start=1)}


def chosen(scheme):
    """How owners across machines choose what they send."""
    return "blocks" if scheme == "block-dphe" else "topk"


def classifier(scheme, public, validation, data, **others):
    settings = COMMON | {"minimum_per_position": 1, "selection": chosen(scheme)} | others
    estimator = FederatedClassifier(scheme, rounds=ROUNDS, ridge=0.1, random_state=0, **settings)
    return estimator.fit(data, public=public, validation=validation)


def course_for(scheme, public, validation, **others):
    return classifier_course(
        public, validation, len(USERS), CourseSettings(scheme=scheme, ridge=0.1, **COMMON, **others)
    )


@pytest.mark.parametrize(("scheme", "attributes"), [(scheme, 0) for scheme in SCHEMES] + [("bfv", 4)])
def test_a_classifier_is_the_one_of_a_single_process(tmp_path, scheme, attributes):
    kind = {"attributes": attributes}
    public, validation, data = pictures(10, **kind), pictures(11, **kind), owners(**kind)
    data["dan"] = data["dan"][0], np.ones_like(data["dan"][1])  # who knows one answer alone gets public contrast
    expected = classifier(scheme, public, validation, data, multilabel=bool(attributes))
    course = course_for(scheme, public, validation)
    taught = teach(course, School(tmp_path, data).found(course), rounds=ROUNDS, seed=SEED)
    assert np.array_equal(taught.shared, expected.model_.weights)
    assert taught.first_score == expected.public_score_
    assert [lap.score for lap in taught.laps] == [report.score for report in expected.history_]
    assert all(lap.contributors == USERS and not lap.refused for lap in taught.laps)


def test_withheld_weights_are_kept_as_in_a_single_process(tmp_path):
    public, data = pictures(10), owners()
    expected = classifier("dphe", public, None, data, minimum_per_position=3)
    course = course_for("dphe", public, None, minimum_per_position=3)
    taught = teach(course, School(tmp_path, data).found(course), rounds=ROUNDS, seed=SEED)
    assert sum(report.withheld for report in expected.history_) > 0
    assert np.array_equal(taught.shared, expected.model_.weights)


@pytest.mark.parametrize("scheme", ["block-dphe", "masks"])
def test_clusters_are_those_of_a_single_process(tmp_path, scheme):
    public, validation = pictures(10)[0], pictures(11)
    data = {name: X for name, (X, _) in owners().items()}
    settings = COMMON | {"minimum_per_position": 1, "selection": chosen(scheme)}
    estimator = FederatedKMeans(3, scheme=scheme, rounds=ROUNDS, random_state=0, **settings)
    expected = estimator.fit(data, public=public, validation=validation)
    samples = len(public) + sum(map(len, data.values()))
    course = cluster_course(
        public, validation, CourseSettings(scheme=scheme, clusters=3, most_samples=samples, **COMMON)
    )
    taught = teach(course, School(tmp_path, data).found(course), rounds=ROUNDS, seed=SEED)
    assert np.array_equal(taught.shared, expected.model_.centroids)
    assert [lap.score for lap in taught.laps] == [report.score for report in expected.history_]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_interrupted_and_resumed_ends_with_the_same_model(tmp_path, scheme):
    public, data = pictures(10), owners()
    expected = classifier(scheme, public, None, data)
    course = course_for(scheme, public, None)
    school = School(tmp_path, data)
    server = school.found(course)

    class Interrupted(Exception):
        pass

    def interrupt(lap):
        raise Interrupted

    with pytest.raises(Interrupted):
        teach(course, server, rounds=ROUNDS, seed=SEED, on_lap=interrupt)
    server = school.server(school.reloaded(server), course)
    combine = course.learner.combine
    try:  # killed between a sum and the model that is made of it
        object.__setattr__(course.learner, "combine", lambda *_: interrupt(None))
        with pytest.raises(Interrupted):
            teach(course, server, rounds=ROUNDS, seed=SEED)
    finally:
        object.__setattr__(course.learner, "combine", combine)
    server = school.server(school.reloaded(server), course)
    taught = teach(course, server, rounds=ROUNDS, seed=SEED)
    assert np.array_equal(taught.shared, expected.model_.weights)
    assert len(taught.laps) == ROUNDS
    again = teach(course, server, rounds=ROUNDS, seed=SEED)
    assert np.array_equal(again.shared, taught.shared)
    assert again.laps == taught.laps


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
    course, school = course_for(scheme, public, None), School(tmp_path, data)
    server, bob = school.found(course), school.handlers["bob"]

    def come_and_go(lap):
        if lap.round == 1:
            del school.handlers["bob"]
        else:
            school.handlers["bob"] = bob

    taught = teach(course, server, rounds=ROUNDS, seed=SEED, on_lap=come_and_go)
    assert [lap.contributors for lap in taught.laps] == [USERS, ("ann", "cem", "dan"), USERS]
    assert [list(lap.refused) for lap in taught.laps] == [[], ["bob"], []]
    assert np.array_equal(taught.shared, expected.model_.weights)


def test_an_owner_with_other_features_is_left_out_with_its_sentence(tmp_path):
    data = owners()
    data["bob"] = data["bob"][0][:, :4], data["bob"][1]
    course = course_for("bfv", pictures(10), None)
    taught = teach(course, School(tmp_path, data).found(course), rounds=1, seed=SEED)
    assert taught.laps[0].contributors == ("ann", "cem", "dan")
    assert "6 columns; got 4" in taught.laps[0].refused["bob"]


def test_an_owner_that_reads_a_model_of_another_shape_or_kind_refuses_it(tmp_path):
    course, school = course_for("plain", pictures(10), None), School(tmp_path, owners())
    server = school.found(course)
    desk, right = school.user_desk("ann"), np.zeros(course.lesson.shape)
    wrong = [
        {"shared": right[:, 1:]},
        {"shared": right.astype(np.float32)},
        {"shared": right.astype("U4")},
        {"shared": right + np.nan},
        {"other": right},
    ]
    for content in wrong:
        shared = pack_arrays(content)
        with pytest.raises(MessageError, match="not one of this lesson"):
            learn(desk, (server.begin(1, (shared,))["ann"], shared), lambda: school.data["ann"])
    with pytest.raises(MessageError, match="two parts"):
        learn(desk, (server.begin(1)["ann"],), lambda: school.data["ann"])
    shared = pack_arrays({"shared": right})
    learn(desk, (server.begin(1, (shared,))["ann"], shared), lambda: school.data["ann"])


def test_a_run_that_was_begun_with_other_data_is_not_continued(tmp_path):
    course, school = course_for("plain", pictures(10), None), School(tmp_path, owners())
    server = school.found(course)
    teach(course, server, rounds=1, seed=SEED)
    other = cluster_course(pictures(10)[0], None, CourseSettings(scheme="plain", clusters=2, **COMMON))
    with pytest.raises(InputError, match="other settings"):
        teach(other, server, rounds=2, seed=SEED)
    path = server.run.folder / "taught.npz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorruptFileError):
        teach(course, server, rounds=2, seed=SEED)


def test_complaints_about_the_servers_data_say_which():
    X, y = pictures(10)
    for clusters in (0, 31):  # as many as public samples at most
        with pytest.raises(InputError, match=r"clusters.* 30"):
            cluster_course(X, None, CourseSettings(clusters=clusters, **COMMON))
    with pytest.raises(InputError, match="the public data"):
        course_for("plain", (X, y[1:]), None)
    with pytest.raises(InputError, match="the validation data"):
        course_for("plain", (X, y), (X[:, 1:], y))


SETTINGS = CourseSettings(key_bits=1024, insecure=True, clusters=3)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 4)).astype(np.float32), np.tile([0, 1, 2], 4)


@cache
def lessons():
    words = np.array(["cat", "dog", "emu"])[Y]
    return {
        "classes": classifier_course((X, Y), None, 3, SETTINGS).lesson,
        "words": classifier_course((X, words), None, 3, SETTINGS).lesson,
        "two classes": classifier_course((X, Y > 0), None, 3, SETTINGS).lesson,
        "attributes": classifier_course((X, RNG.integers(-1, 2, (12, 5))), None, 3, SETTINGS).lesson,
        "clusters": cluster_course(X, None, SETTINGS).lesson,
    }


@pytest.mark.parametrize("kind", lessons())
def test_a_lesson_arrives_as_it_was_sent(kind):
    lesson = lessons()[kind]
    arrived = Lesson.from_bytes(lesson.to_bytes())
    assert arrived.training == lesson.training
    assert arrived.shape == lesson.shape
    assert arrived.kind == lesson.kind
    assert arrived.public.dtype == np.float32
    assert np.array_equal(arrived.public, lesson.public)
    assert np.array_equal(arrived.standardiser.mean, lesson.standardiser.mean)
    assert type(arrived.labels) is type(lesson.labels)
    assert arrived.to_bytes() == lesson.to_bytes()


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(lessons())), st.data())
def test_a_lesson_that_was_altered_is_refused(kind, data):
    blob = bytearray(lessons()[kind].to_bytes())
    place = data.draw(st.integers(0, len(blob) - 1))
    blob[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MessageError):
        Lesson.from_bytes(bytes(blob))


def forged(document=None, **changes):
    """Return a lesson of three classes whose document or arrays somebody else wrote."""
    lesson = lessons()["classes"]
    whole = {"kind": "classifier", "training": {}, "clusters": 0} if document is None else document
    content = {
        "mean": lesson.standardiser.mean,
        "scale": lesson.standardiser.scale,
        "public": lesson.public,
        "classes": np.arange(3),
        "signs": lesson.signs,
    } | changes
    text = whole if isinstance(whole, bytes) else json.dumps(whole).encode()
    return encode(
        _LessonMessage(text, pack_arrays({name: array for name, array in content.items() if array is not None}))
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
    assert Lesson.from_bytes(forged()).shape == (3, 5)  # the forgery itself would pass
    for blob in [*map(forged, DOCUMENTS), *(forged(**change) for change in ARRAYS)]:
        with pytest.raises(MessageError):
            Lesson.from_bytes(blob)


def test_a_lesson_of_classification_needs_labels():
    lesson = lessons()["classes"]
    bare = Lesson(lesson.training, lesson.standardiser, lesson.public)
    with pytest.raises(InputError, match="needs labels"):
        bare.learner("ann", lambda: None)


NOTHING = Memory(None, None)


@given(st.floats(0, 0.99), st.integers(1, 500), st.integers(0, 10**9), st.text(max_size=64))
def test_a_briefing_survives_the_wire(sparsity, block, most_examples, weighted_by):
    briefing = Briefing(sparsity, block, most_examples, weighted_by)
    assert Briefing.from_bytes(briefing.to_bytes()) == briefing


def test_sums_give_the_mean_weighted_by_examples():
    rng = np.random.default_rng(0)
    changes, examples = rng.normal(size=(5, 7)), np.array([1, 20, 50, 100, 7])
    briefing = Briefing(sparsity=0.0, most_examples=100)
    sent = [propose_update(*pair, NOTHING, briefing).sent for pair in zip(changes, examples, strict=True)]
    assert mean_change(np.sum(sent, axis=0), 5) == pytest.approx(np.average(changes, axis=0, weights=examples))


def test_examples_beyond_the_most_do_not_count_and_without_a_most_all_weigh_the_same():
    change = np.ones(3)
    assert propose_update(change, 10**6, NOTHING, Briefing(0.0, 1, 100)).sent.tolist() == [1.0] * 4
    assert propose_update(change, 10**6, NOTHING, Briefing(0.0, 1, 0)).sent.tolist() == [1.0] * 4


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.floats(0.3, 0.95), st.integers(1, 6))
def test_all_that_was_sent_and_what_is_held_is_all_that_was_learned(seed, block, sparsity, rounds):
    rng = np.random.default_rng(seed)
    briefing, memory, sent = Briefing(sparsity, block, 100), NOTHING, np.zeros(31)
    changes, examples = rng.normal(size=(rounds, 30)), rng.integers(1, 100, size=rounds)
    for change, number in zip(changes, examples, strict=True):
        proposal = propose_update(change, number, memory, briefing)
        assert proposal.sent[0] == pytest.approx(number / 100)
        blocks = np.add.reduceat(proposal.sent != 0, np.arange(0, 31, block)) > 0
        assert 2 <= blocks.sum() <= 1 + max(1, (1 - sparsity) * len(blocks))  # the weight's, and others
        assert np.count_nonzero(proposal.sent) <= briefing.room(31)
        sent, memory = sent + proposal.sent, proposal.memory
    assert sent[1:] + memory.held[1:] == pytest.approx((examples / 100) @ changes)


def test_briefings_changes_and_weights_that_cannot_be_are_refused():
    assert propose_update(np.ones(3), 1, NOTHING, Briefing(0.0)).memory.held is None  # without sparsity
    assert mean_change(np.array([3.0, 1.5]), 3) == pytest.approx([0.5])
    for change in ({"sparsity": 1.0}, {"sparsity": -0.1}, {"block": 0}, {"most_examples": -1}):
        with pytest.raises(InputError):
            Briefing(**change)
    impossible = Briefing()
    object.__setattr__(impossible, "sparsity", 2.0)
    for blob in (b"no briefing", impossible.to_bytes()):
        with pytest.raises(MessageError):
            Briefing.from_bytes(blob)
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(MessageError, match="finite"):
            propose_update(np.array([0.0, bad]), 1, NOTHING, Briefing(0.0))
    for total in (0.0, -0.5, 3.0001, 1e6, np.nan):
        with pytest.raises(PrivacyError, match="no mean"):
            mean_change(np.array([total, 1.0, 2.0]), 3)
