"""Signs, scores and features; one owner's update: what is trained, what is sent, what is left alone."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.learn.linear import LinearTraining, local_update, train
from blindsight.learn.model import attribute_signs, class_signs, decision_function, predict, predict_attributes


def test_standardiser_agrees_with_sklearn_and_keeps_constant_features():
    X = np.random.default_rng(0).normal(3, [1, 5, 0.1], size=(50, 3)).astype(np.float32)
    X = np.column_stack([X, np.full(50, 7, dtype=np.float32)])
    ours = Standardiser.fit(X).apply(X)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, StandardScaler().fit_transform(X), atol=1e-4)
    assert (ours[:, 3] == 0).all()


def test_standardiser_of_one_picture_only_shifts():
    assert Standardiser.fit([[2.0, 5.0]]).apply([[3.0, 5.0]]).tolist() == [[1.0, 0.0]]


def test_halves_are_widened():
    X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float16)
    assert Standardiser.fit(X).apply(X).dtype == np.float32


def test_standardiser_refuses_other_features():
    fitted = Standardiser.fit(np.eye(3))
    with pytest.raises(InputError, match="3 columns; got 2"):
        fitted.apply(np.eye(2))
    with pytest.raises(InputError, match="finite"):
        fitted.apply([[np.inf, 0, 0]])
    with pytest.raises(InputError, match="numbers"):
        fitted.apply([["a", "b", "c"]])


def test_scores_are_products_plus_bias():
    weights = np.array([[1.0, 2.0, 10.0], [0.0, -1.0, 0.0]])
    assert decision_function(weights, [[1.0, 1.0]]).tolist() == [[13.0, -1.0]]
    assert predict(weights, [[1.0, 1.0], [0.0, -20.0]]).tolist() == [0, 1]
    assert predict_attributes(weights, [[1.0, 1.0], [0.0, -20.0]]).tolist() == [[1, 0], [0, 1]]
    assert predict(weights[:1], [[1.0, 1.0], [0.0, -20.0]]).tolist() == [1, 0]


def test_scores_refuse_weights_of_other_features():
    with pytest.raises(InputError, match=r"\(2, 3\)"):
        decision_function(np.zeros((2, 3)), np.zeros((1, 3)))
    with pytest.raises(InputError, match=r"got \(\)"):
        decision_function(3.0, np.zeros((1, 3)))


def test_labels_outside_the_classes_are_refused():
    with pytest.raises(InputError, match="labels"):
        class_signs([0, 3], 3)
    with pytest.raises(InputError, match="float64"):
        class_signs([0.5], 3)
    with pytest.raises(InputError, match="attributes"):
        attribute_signs([[2]])


def test_unsigned_attributes_are_understood():
    assert attribute_signs(np.array([1, 0], dtype=np.uint8)).tolist() == [[1], [-1]]


CLASSES, DIMENSIONS = 4, 20
EXACT = LinearTraining(loss="squared hinge", ridge=0.05, sparsify="none")


def pictures(n=200, seed=0, classes=CLASSES, spread=1.5):
    generator = np.random.default_rng(seed)
    centres = spread * np.random.default_rng(99).normal(size=(classes, DIMENSIONS))
    labels = generator.integers(classes, size=n)
    return centres[labels] + 2 * generator.normal(size=(n, DIMENSIONS)), labels


def update(training, X, labels, shared=None, **options):
    shared = np.zeros((CLASSES, DIMENSIONS + 1)) if shared is None else shared
    return local_update(shared, X, class_signs(labels, CLASSES), training, random_state=0, **options)


def test_train_agrees_with_one_vs_rest_liblinear():
    X, labels = pictures()
    X = X - X.mean(axis=0)
    ours = train(X, class_signs(labels, CLASSES), EXACT, random_state=0, passes=5000, tolerance=1e-7)
    # A constant feature of 1000 makes liblinear's penalty on the bias negligible, as ours has none.
    oracle = LinearSVC(C=1 / (2 * 0.05 * len(X)), intercept_scaling=1000, tol=1e-6, max_iter=10**6, random_state=0)
    oracle.fit(X, labels)
    np.testing.assert_allclose(ours[:, :-1], oracle.coef_, atol=2e-3)
    assert (predict(ours, X) == oracle.predict(X)).mean() > 0.99


@pytest.mark.parametrize("sparsify", ["topk", "blocks"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_not_sent_is_held_for_later(sparsify, dtype):
    X, labels = pictures()
    training = LinearTraining(sparsify=sparsify, block_size=4)
    first = update(training, X.astype(dtype), labels)
    assert first.sparsity >= 0.9
    assert (first.sent + first.held == first.weights).all()  # the shared weights were zero
    assert (first.sent * first.held == 0).all()
    second = update(training, X.astype(dtype), labels, first.sent, held=first.held)
    np.testing.assert_allclose(second.weights, first.sent + second.sent + second.held, atol=1e-9)


def test_of_what_was_held_as_much_is_carried_on_as_the_training_says():
    X, labels = pictures()
    held = np.random.default_rng(5).normal(size=(CLASSES, DIMENSIONS + 1))
    for sparsify in ("schedule", "topk"):
        part = LinearTraining(ridge=0.05, sparsify=sparsify, error_feedback=0.5)
        whole = LinearTraining(ridge=0.05, sparsify=sparsify)
        first, second = (update(training, X, labels, held=owed) for training, owed in ((part, held), (whole, held / 2)))
        assert (first.sent == second.sent).all()
        assert (first.held == second.held).all()
    assert (update(LinearTraining(sparsify="schedule"), X, labels).held == 0).all()  # all of it is offered


def test_an_owner_alone_ends_at_its_own_minimum_however_little_it_sends():
    X, labels = pictures(80)
    goal = train(X, class_signs(labels, CLASSES), EXACT, random_state=0, passes=5000, tolerance=1e-7)
    training = LinearTraining(loss="squared hinge", ridge=0.05, sparsify="blocks", block_size=5, passes=100)
    shared, held = np.zeros_like(goal), None
    for _ in range(30):
        done = update(training, X, labels, shared, held=held)
        shared, held = shared + done.sent, done.held
    np.testing.assert_allclose(shared, goal, atol=0.001)


@pytest.mark.parametrize("sparsify", ["topk", "blocks", "none"])
def test_a_class_the_owner_never_saw_is_left_alone(sparsify):
    X, labels = pictures()
    seen = labels != 2
    shared = np.random.default_rng(1).normal(size=(CLASSES, DIMENSIONS + 1))
    done = update(LinearTraining(sparsify=sparsify), X[seen], labels[seen], shared)
    assert done.trained.tolist() == [True, True, False, True]
    assert (done.sent[2] == 0).all()
    assert (done.weights[2] == shared[2]).all()
    assert (done.sent[[0, 1, 3]] != 0).any()


@pytest.mark.parametrize("sparsify", ["topk", "blocks"])
def test_an_owner_with_one_class_sends_nothing_and_does_not_fail(sparsify):
    X, _ = pictures(5)
    done = update(LinearTraining(sparsify=sparsify), X, np.full(5, 1), np.ones((CLASSES, DIMENSIONS + 1)))
    assert not done.trained.any()
    assert (done.sent == 0).all()


def test_an_owner_with_one_class_and_the_public_data_does_learn():
    X, labels = pictures(60)
    X_public, y_public = pictures(12, seed=7)
    one = labels == 1
    done = update(LinearTraining(), np.vstack([X[one], X_public]), np.concatenate([labels[one], y_public]))
    assert done.trained.all()
    assert (done.sent != 0).any()


def test_a_single_picture_is_enough_not_to_fail():
    X, labels = pictures(1)
    assert (update(LinearTraining(), X, labels).sent == 0).all()


def test_unknown_attributes_change_nothing():
    X, labels = pictures(150)
    attributes = np.column_stack([labels > 1, X[:, 0] > 0]).astype(int)
    known = np.arange(150) < 100
    hidden = attributes.copy()
    hidden[~known, 1] = -1
    weights = train(X, attribute_signs(hidden), EXACT, random_state=0, passes=5000, tolerance=1e-7)
    apart = train(X[known], attribute_signs(attributes[known]), EXACT, random_state=0, passes=5000, tolerance=1e-7)
    np.testing.assert_allclose(weights[1], apart[1], atol=2e-3)
    assert (predict_attributes(weights, X)[:, 0] == attributes[:, 0]).mean() > 0.9


def test_balanced_classes_count_alike():
    generator = np.random.default_rng(0)
    X = np.vstack([generator.normal(0, 1, (190, 3)), generator.normal(1.2, 1, (10, 3))])
    signs = attribute_signs(np.repeat([0, 1], [190, 10]))

    def found(class_weight):
        training = LinearTraining(loss="logistic", ridge=0.01, class_weight=class_weight)
        return predict(train(X, signs, training, random_state=0), X)[190:].mean()

    assert found("equal") < 0.5 < 0.7 < found("balanced")
    # balanced weights are the same as repeating the rare class until it is as common
    repeated = np.vstack([X[:190], np.repeat(X[190:], 19, axis=0)])
    training = LinearTraining(loss="logistic", ridge=0.01, class_weight="equal")
    even = train(
        repeated, attribute_signs(np.repeat([0, 1], 190)), training, random_state=0, passes=5000, tolerance=1e-7
    )
    balanced = LinearTraining(loss="logistic", ridge=0.01, class_weight="balanced")
    np.testing.assert_allclose(train(X, signs, balanced, random_state=0, passes=5000, tolerance=1e-7), even, atol=0.01)


def test_weights_by_class_are_those_of_repeated_samples():
    X, labels = pictures(120)
    again = np.concatenate([np.arange(120), np.flatnonzero(labels == 2), np.flatnonzero(labels == 2)])
    wanted = train(X[again], class_signs(labels[again], CLASSES), EXACT, random_state=0, passes=5000, tolerance=1e-7)
    training = replace(EXACT, class_weight=(1.0, 1.0, 3.0, 1.0))
    found = train(X, class_signs(labels, CLASSES), training, random_state=0, passes=5000, tolerance=1e-7)
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_the_default_ridge_is_dimensions_over_samples():
    X, labels = pictures(100)
    told = LinearTraining(ridge=DIMENSIONS / 100)
    assert (update(LinearTraining(), X, labels).sent == update(told, X, labels).sent).all()


def test_bad_data_is_refused():
    X, labels = pictures(10)
    holey = X.copy()
    holey[3, 4] = np.nan
    with pytest.raises(InputError, match="finite"):
        update(LinearTraining(), holey, labels)
    with pytest.raises(InputError, match=r"\(0, 20\)"):
        update(LinearTraining(), X[:0], labels[:0])
    with pytest.raises(InputError, match="10 rows for 9"):
        update(LinearTraining(), X[:9], labels)
    with pytest.raises(InputError, match=r"\(4, 20\)"):
        update(LinearTraining(), X, labels, np.zeros((4, 20)))
    with pytest.raises(InputError, match="weights"):
        update(LinearTraining(), X, labels, np.full((4, 21), np.inf))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"sparsity": 1.0}, "sparsity"),
        ({"ridge": -1.0}, "ridge"),
        ({"passes": 0}, "passes"),
        ({"class_weight": "even"}, "'even'"),
        ({"class_weight": (1.0, -1.0)}, "class weights"),
        ({"loss": "huber"}, "'huber'"),
        ({"sparsify": "top"}, "'topk'"),
    ],
)
def test_a_training_that_cannot_be_is_refused_at_once(wrong, words):
    with pytest.raises(InputError, match=words):
        LinearTraining(**wrong)
