"""Learning across machines ends with the same model, bit for bit, as learning in one process."""

import numpy as np
import pytest

from blindsight.errors import CorruptFileError, InputError, MessageError
from blindsight.federated.courses import CourseSettings, classifier_course, cluster_course
from blindsight.federated.sums.opening import open_run
from blindsight.federated.sums.server import SumServer
from blindsight.federated.teaching import learn, teach
from blindsight.files import pack_arrays
from blindsight.learn import FederatedClassifier, FederatedKMeans
from blindsight.learn.dphe.terms import AGGREGATOR
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


def classifier(scheme, public, validation, data, **others):
    estimator = FederatedClassifier(scheme, rounds=ROUNDS, ridge=0.1, random_state=0, **COMMON, **others)
    return estimator.fit(data, public=public, validation=validation)


def course_for(scheme, public, validation, **others):
    return classifier_course(
        public, validation, len(USERS), CourseSettings(scheme=scheme, ridge=0.1, **COMMON, **others)
    )


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("attributes", [0, 4])
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


@pytest.mark.parametrize("scheme", SCHEMES)
def test_clusters_are_those_of_a_single_process(tmp_path, scheme):
    public, validation = pictures(10)[0], pictures(11)
    data = {name: X for name, (X, _) in owners().items()}
    estimator = FederatedKMeans(3, scheme=scheme, rounds=ROUNDS, random_state=0, **COMMON)
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
    assert [lap.refused for lap in taught.laps] == [{}, {"bob": "no contribution of it came in time."}, {}]
    assert np.array_equal(taught.shared, expected.model_.weights)


def test_an_owner_with_other_features_is_left_out_with_its_sentence(tmp_path):
    data = owners()
    data["bob"] = data["bob"][0][:, :4], data["bob"][1]
    course = course_for("bfv", pictures(10), None)
    taught = teach(course, School(tmp_path, data).found(course), rounds=1, seed=SEED)
    assert taught.laps[0].contributors == ("ann", "cem", "dan")
    assert taught.laps[0].refused == {"bob": "features must have 6 columns; got 4."}


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
    for arrays in wrong:
        shared = pack_arrays(arrays)
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


@pytest.mark.parametrize("clusters", [0, 31])
def test_clusters_are_as_many_as_public_samples_at_most(clusters):
    with pytest.raises(InputError, match=r"clusters.* 30"):
        cluster_course(pictures(10)[0], None, CourseSettings(clusters=clusters, **COMMON))


def test_complaints_about_the_servers_data_say_which():
    X, y = pictures(10)
    with pytest.raises(InputError, match="the public data"):
        course_for("plain", (X, y[1:]), None)
    with pytest.raises(InputError, match="the validation data"):
        course_for("plain", (X, y), (X[:, 1:], y))
