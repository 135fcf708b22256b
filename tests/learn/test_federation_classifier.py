"""The estimator's contract: scikit-learn's own checks, every kind of label, and a model that survives on disk."""

import zipfile
from inspect import signature

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from blindsight.data.features import Standardiser
from blindsight.errors import CorruptFileError, InputError
from blindsight.files import write_arrays
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.clustering import ClusterModel
from blindsight.learn.kmeans import FederatedKMeans
from blindsight.learn.model import Attributes, Classes, LinearModel
from blindsight.metrics import average_precision, balanced_accuracy
from blindsight.rounds import EarlyStopping, Privacy, Sums
from blindsight.sums import DpheOptions

D = 10
HALF = Sums(scheme="plain", share=0.5)


@parametrize_with_checks([FederatedClassifier(), FederatedKMeans(n_clusters=3)])
def test_scikit_learns_contract(estimator, check):
    check(estimator)


PRIVACY = Privacy(epsilon=4.0, delta=1e-5, unit="record")


def test_parameters_of_frozen_parameters_are_set_by_replacing_them():
    classifier = FederatedClassifier(Sums(scheme="bfv", share=0.5), privacy=PRIVACY)
    assert classifier.get_params()["privacy__epsilon"] == 4.0
    assert classifier.get_params()["sums__share"] == 0.5
    assert "privacy__epsilon" not in classifier.get_params(deep=False)
    classifier.set_params(privacy__epsilon=2.0, sums__quorum=4, rounds=3)
    assert (PRIVACY.epsilon, classifier.privacy.epsilon, classifier.privacy.delta) == (4.0, 2.0, 1e-5)
    assert classifier.sums == Sums(scheme="bfv", share=0.5, quorum=4)
    assert classifier.rounds == 3
    assert FederatedClassifier().set_params(sums__share=0.3).sums == Sums(share=0.3)
    copy = clone(classifier)
    assert (copy.sums, copy.privacy) == (classifier.sums, classifier.privacy)
    for wrong in ({"privacy__epsilom": 1.0}, {"early_stopping__patience": 1}, {"nothing": 1}, {"rounds__x": 1}):
        with pytest.raises(ValueError, match=r"nothing|epsilom|patience|'x'"):
            classifier.set_params(**wrong)
    with pytest.raises(InputError, match="epsilon"):
        classifier.set_params(privacy__epsilon=-1.0)


class AmongThree(FederatedClassifier):
    """Deals rows out to three members; the first rows are public."""

    def fit(self, X, y):
        return super().fit([(X[k + 30 :: 3], y[k + 30 :: 3]) for k in range(3)], public=(X[:30], y[:30]))


def test_a_grid_search_goes_through_values_of_epsilon():
    X = features(400, 3)
    y = (X[:, 0] > 0).astype(int)
    search = GridSearchCV(AmongThree("plain", privacy=PRIVACY, rounds=2), {"privacy__epsilon": [0.01, 20.0]}, cv=2)
    search.fit(X, y)
    assert [round(params["privacy__epsilon"], 2) for params in search.cv_results_["params"]] == [0.01, 20.0]
    assert search.best_params_ == {"privacy__epsilon": 20.0}  # at 0.01 it guesses: 50 +- 4 per cent, twice
    assert search.best_estimator_.noise_.epsilon(1e-5) == pytest.approx(20.0, rel=1e-3)


@pytest.mark.parametrize(("kind", "most"), [(FederatedClassifier, 15), (FederatedKMeans, 9)])
def test_constructors_have_few_parameters(kind, most):
    assert len(signature(kind).parameters) <= most


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Sums(scheme="plane"), "'plain'"),
        (lambda: Sums(share=0.0), "share"),
        (lambda: Sums(quorum=2), "quorum"),
        (lambda: Sums(sample=4, quorum=5), "sample"),
        (lambda: Sums(max_absences=-2), "max_absences"),
        (lambda: Sums(options=DpheOptions()), "masks"),
        (lambda: Sums.sending("masks", sparsity=1.0), "sparsity"),
        (lambda: Sums.sending("masks", minimum_per_position=2), "minimum_per_position"),
        (lambda: EarlyStopping(criterion="soon"), "'soon'"),
        (lambda: EarlyStopping(patience=0), "patience"),
        (lambda: EarlyStopping(tolerance=-1.0), "tolerance"),
        (lambda: Privacy(epsilon=1.0, delta=1e-5, unit="member"), "clip"),
        (lambda: FederatedClassifier(privacy=4.0).check(), "privacy"),
        (lambda: FederatedClassifier(early_stopping="score").check(), "early_stopping"),
        (lambda: FederatedClassifier(7).check(), "sums"),
        (lambda: FederatedClassifier(class_weight="balances").check(), "class_weight"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_made(make, named):
    with pytest.raises(InputError, match=named):
        make()


def features(n, seed):
    return np.random.default_rng(seed).normal(size=(n, D))


def three_owners(label, n=80):
    return [(X, label(X, seed)) for seed, X in ((seed, features(n, seed)) for seed in (1, 2, 3))]


def test_one_owner_alone_shares_nothing_and_the_statement_says_so():
    X = features(60, 0)
    classifier = FederatedClassifier().fit(X, X[:, 0] > 0)
    assert "shared nothing" in classifier.statement_.mechanism
    assert classifier.history_ == []
    assert classifier.score(X, X[:, 0] > 0) > 0.9


def test_two_classes_are_one_question_whose_scores_rank():
    def rare(X, seed):
        return np.where(X[:, 0] + X[:, 1] > 2, "sensitive", "other")

    public, X_test = features(60, 9), features(500, 10)
    classifier = FederatedClassifier(HALF, rounds=5, loss="logistic")
    classifier.fit(three_owners(rare), public=(public, rare(public, 0)))
    scores = classifier.decision_function(X_test)
    truth = rare(X_test, 0) == "sensitive"
    assert classifier.coef_.shape == (1, D)
    assert scores.shape == (500,)
    assert classifier.classes_.tolist() == ["other", "sensitive"]
    assert ((scores > 0) == (classifier.predict(X_test) == "sensitive")).all()
    assert average_precision(truth, scores) > 0.8 > truth.mean() + 0.5


def test_balancing_finds_more_of_a_rare_class():
    def rare(X, seed):
        return (X[:, 0] + np.random.default_rng(seed).normal(size=len(X)) > 2).astype(int)

    public, X_test = features(100, 9), features(2000, 10)
    found = {}
    for balanced in (None, "balanced"):
        classifier = FederatedClassifier(Sums(scheme="plain", share=1.0), rounds=5, class_weight=balanced)
        classifier.fit(three_owners(rare, 300), public=(public, rare(public, 0)))
        found[balanced] = balanced_accuracy(rare(X_test, 4), classifier.predict(X_test))
    assert found["balanced"] > found[None] + 0.1


def attributes(X, seed):
    """Three attributes, one in five of them unknown."""
    known = (X[:, :3] > 0).astype(int)
    return np.where(np.random.default_rng(seed).random(known.shape) < 0.2, -1, known)


def test_attributes_are_learned_from_what_is_known():
    public, X_test = features(40, 9), features(400, 10)
    classifier = FederatedClassifier(HALF, multilabel=True, rounds=5)
    validation = X_test, attributes(X_test, 5)
    classifier.fit(three_owners(attributes), public=(public, attributes(public, 0)), validation=validation)
    assert classifier.predict(X_test).shape == (400, 3)
    truth = (X_test[:, :3] > 0).astype(int)
    right = (classifier.predict(X_test) == truth)[validation[1] >= 0]
    assert classifier.score(*validation) == pytest.approx(right.mean(), abs=0.01)  # columns have nearly equal counts
    assert classifier.history_[-1].score == classifier.score(*validation)
    assert classifier.score(X_test, truth) > 0.85
    assert not hasattr(classifier, "classes_")
    with pytest.raises(InputError, match="sample weights"):
        classifier.score(*validation, sample_weight=np.ones(400))


def test_attributes_that_do_not_fit_are_refused_by_the_owners_name():
    public = features(40, 9)
    people = three_owners(attributes)
    people[1] = people[1][0], people[1][1][:, :2]
    with pytest.raises(InputError, match=r"member 2: .*\(80, 2\)"):
        FederatedClassifier("plain", multilabel=True).fit(people, public=(public, attributes(public, 0)))
    with pytest.raises(InputError, match="public data: "):
        FederatedClassifier("plain", multilabel=True).fit(people, public=(public, np.zeros(40, dtype=int)))


def test_unknown_attributes_do_not_count_in_the_score():
    scores, y = np.array([[1.0, -1.0], [1.0, 1.0]]), [[1, -1], [0, -1]]
    assert Attributes(2).quality(scores, y) == 0.5
    with pytest.raises(InputError, match="scored"):
        Attributes(2).quality(scores, np.full((2, 2), -1))


def a_model(names=("cat", "dog", "owl")):
    generator = np.random.default_rng(0)
    standardiser = Standardiser.fit(generator.normal(size=(20, D)).astype(np.float32))
    rows = 1 if len(names) == 2 else len(names)
    return LinearModel(generator.normal(size=(rows, D + 1)), standardiser, Classes(np.array(names)))


@pytest.mark.parametrize("names", [("cat", "dog", "owl"), (0, 1), (-1.0, 2.0, 7.0), (False, True)])
def test_a_saved_model_answers_as_before(tmp_path, names):
    model = a_model(names)
    model.save(tmp_path / "model.npz")
    read = LinearModel.load(tmp_path / "model.npz")
    X = features(30, 1)
    assert (read.decision_function(X) == model.decision_function(X)).all()
    assert (read.predict(X) == model.predict(X)).all()
    assert read.predict(X).dtype == model.predict(X).dtype
    assert read.digest == model.digest
    with np.load(tmp_path / "model.npz", allow_pickle=False) as members:  # any tool that reads npz can use it
        assert (members["weights"] == model.weights).all()


def test_attribute_models_and_fitted_ones_are_saved_too(tmp_path):
    X = features(60, 0)
    fitted = FederatedClassifier(multilabel=True).fit(X, attributes(X, 1))
    fitted.model_.save(tmp_path / "a.npz")
    assert (LinearModel.load(tmp_path / "a.npz").predict(X) == fitted.predict(X)).all()
    words = FederatedClassifier().fit(X, np.where(X[:, 0] > 0, "yes", "no").astype(object))
    words.model_.save(tmp_path / "b.npz")
    assert (LinearModel.load(tmp_path / "b.npz").predict(X) == words.predict(X)).all()
    assert LinearModel.load(tmp_path / "b.npz").digest == words.model_.digest != fitted.model_.digest


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.npz"
    a_model().save(path)
    return path.read_bytes()


@settings(max_examples=80)
@given(data=st.data())
def test_no_damaged_model_is_ever_used(tmp_path_factory, whole, data):
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        blob = whole[:place]
    else:
        blob = bytearray(whole)
        blob[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(blob)
    try:
        read = LinearModel.load(path)
    except CorruptFileError:
        return
    assert read.digest == a_model().digest  # the flip was in bytes that mean nothing, such as a date in the archive


def test_pickles_bombs_and_strangers_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, document=np.array([{"kind": "x"}], dtype=object))
    with pytest.raises(CorruptFileError):
        LinearModel.load(path)
    a_model().save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(CorruptFileError):
        LinearModel.load(path)
    ClusterModel(np.zeros((2, D)), a_model().standardiser).save(path)
    with pytest.raises(CorruptFileError, match="linear-model"):
        LinearModel.load(path)
    with pytest.raises(OSError, match="it does not exist"):
        LinearModel.load(tmp_path / "none.npz")


def test_a_well_formed_file_with_the_wrong_arrays_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    write_arrays(path, "blindsight/linear-model.1", {"attributes": True}, {"weights": np.ones((2, 3))})
    with pytest.raises(CorruptFileError, match="model"):
        LinearModel.load(path)


def test_labels_of_other_kinds_are_refused():
    classes = Classes(np.array(["a", "b", "c"]))
    with pytest.raises(InputError, match="3 classes"):
        classes.signs(["a", "z"])
    with pytest.raises(InputError, match="3 classes"):
        classes.signs([1, 2])
    assert Classes(np.array([-1, 1])).signs([1, -1]).tolist() == [[1], [-1]]
    assert classes.quality(np.eye(3), ["a", "a", "a"]) == pytest.approx(1 / 3)  # one class: plain accuracy
