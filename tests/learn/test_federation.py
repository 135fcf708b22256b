"""Rounds of learning together: the same model whatever the scheme, and nothing an owner learned is ever lost."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from blindsight.data.features import Standardiser
from blindsight.errors import DataError, InputError, PrivacyError
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.kmeans import FederatedKMeans
from blindsight.learn.linear import LinearTraining, local_update, train
from blindsight.learn.model import class_signs
from blindsight.papers.dphe import PublishedClassifier
from blindsight.rounds import EarlyStopping, RoundReport, Sums
from blindsight.rounds.task import fraction_bits
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums import DpheOptions

CLASSES, DIMENSIONS = 5, 24
DENSE = Sums(scheme="plain", share=1.0)
NAMES = ("ann", "bob", "cem", "dee")


def sums(scheme, share=None):
    options = DpheOptions(sparsity=0.6, key_bits=1024, insecure=True, minimum_per_position=1)
    return Sums(scheme=scheme, share=share, options=options if "dphe" in scheme else None)


def pictures(n=40, seed=0):
    generator = np.random.default_rng(seed)
    centres = 1.2 * np.random.default_rng(99).normal(size=(CLASSES, DIMENSIONS))
    labels = np.concatenate([np.arange(CLASSES), generator.integers(CLASSES, size=n - CLASSES)])
    return centres[labels] + 2 * generator.normal(size=(n, DIMENSIONS)), labels


def owners(count=4, n=40):
    return [pictures(n, seed) for seed in range(1, count + 1)]


PUBLIC, TEST = pictures(15, 50), pictures(600, 51)


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_every_scheme_gives_the_same_model_bit_for_bit(share):
    found = {}
    for scheme in SCHEMES:
        classifier = FederatedClassifier(sums(scheme, share), rounds=2)
        found[scheme] = classifier.fit(owners(), public=PUBLIC, validation=TEST)
        assert all(report.contributors == tuple(f"member {i}" for i in (1, 2, 3, 4)) for report in classifier.history_)
    for classifier in found.values():
        assert (classifier.coef_ == found["plain"].coef_).all()
        assert (classifier.intercept_ == found["plain"].intercept_).all()
        assert [r.score for r in classifier.history_] == [r.score for r in found["plain"].history_]
    assert found["plain"].statement_.status == "unproven"
    assert found["masks"].statement_.status == found["bfv"].statement_.status == "proven"
    assert any("2 rounds" in line for line in found["masks"].statement_.not_protected)


def test_one_dense_round_is_the_mean_of_what_owners_learn_by_themselves():
    classifier = FederatedClassifier(DENSE, rounds=1, batch_size=1000, ridge=0.1, passes=4)
    classifier.fit(owners(3), public=PUBLIC)
    standardiser, training = Standardiser.fit(PUBLIC[0]), LinearTraining(ridge=0.1, sparsify="none", passes=4)
    training = replace(training, batch_size=1000)  # one batch: nothing depends on a seed
    start = np.zeros((CLASSES, DIMENSIONS + 1))
    start[:, -1] = -1
    first = train(standardiser.apply(PUBLIC[0]), class_signs(PUBLIC[1], CLASSES), training, start=start)
    learned = [local_update(first, standardiser.apply(X), class_signs(y, CLASSES), training) for X, y in owners(3)]
    wanted = np.mean([done.weights for done in learned], axis=0)
    np.testing.assert_allclose(np.column_stack([classifier.coef_, classifier.intercept_]), wanted, atol=2**-21)


@pytest.mark.parametrize("selection", ["schedule", "blocks", "topk", "strength"])
def test_learning_together_comes_near_all_data_in_one_place(selection):
    classifier = FederatedClassifier(Sums(scheme="plain", share=0.3), rounds=15, ridge=0.1)
    if selection != "schedule":
        how = {"target": "update", "selection": selection, "sparsity": 0.7, "block_size": 63}
        classifier = PublishedClassifier("plain", rounds=15, ridge=0.1, **how)
    classifier.fit(owners(5), public=PUBLIC, validation=TEST)
    X, y = (np.concatenate(parts) for parts in zip(PUBLIC, *owners(5), strict=True))
    standardiser = Standardiser.fit(PUBLIC[0])
    pooled = LinearSVC(C=1 / (0.1 * len(X))).fit(standardiser.apply(X), y)
    together, alone = classifier.score(*TEST), FederatedClassifier().fit(*owners()[0]).score(*TEST)
    assert together >= pooled.score(standardiser.apply(TEST[0]), TEST[1]) - 0.03
    assert together > alone + 0.02
    assert classifier.history_[-1].score > classifier.public_score_ + 0.05


def test_by_default_a_fifth_of_the_weights_is_sent_under_masks_by_a_public_schedule():
    classifier = FederatedClassifier(rounds=5).fit(owners(), public=PUBLIC, record=True)
    size, changed = classifier.model_.weights.size, []
    for report in classifier.history_:
        assert report.sparsity >= 0.8 - 16 / size
        assert report.withheld == 0
    recorded = classifier.recorded_
    supports = [np.flatnonzero(update) for update in recorded.sent.values()]
    assert all(np.array_equal(supports[0], support) for support in supports)
    assert 0 < len(supports[0]) <= size / 5 + 16
    seen = classifier.statement_.who_sees["everybody"]
    assert "schedule" in seen
    assert "all contributors" in seen
    assert "5 rounds" in classifier.statement_.mechanism
    for rounds in range(1, 6):
        model = FederatedClassifier("plain", rounds=rounds).fit(owners(), public=PUBLIC).model_.weights.ravel()
        changed.append(model)
    assert (changed[-1] == classifier.model_.weights.ravel()).all()
    steps = [np.flatnonzero(after != before) for before, after in pairwise(changed)]
    assert not set(steps[0]) & set(steps[1])  # every block has its turn once in five rounds


def test_what_a_schedule_left_is_carried_on_in_part_as_the_defaults_by_name_do():
    def weights(share=None, **options):
        classifier = FederatedClassifier(Sums(scheme="plain", share=share), rounds=3, **options)
        return classifier.fit(owners(), public=PUBLIC).model_.weights

    assert (weights() == weights(0.2, error_feedback=0.7)).all()
    assert not (weights() == weights(error_feedback=1.0)).all()
    assert (weights(1.0) == weights(1.0, error_feedback=1.0)).all()
    assert (weights(1.0, loss="logistic") != weights(1.0)).any()


def test_the_history_tells_what_each_round_took():
    seen, told = [], []
    classifier = FederatedClassifier(sums("block-dphe"), rounds=2)
    classifier.fit(
        owners(),
        public=PUBLIC,
        validation=TEST,
        on_round=lambda report: seen.append(report.round),
        progress=lambda what, done, total: told.append((what, done, total)),
    )
    assert seen == [1, 2]
    assert ("rounds", 2, 2) in told
    assert ("round 1: training", 0, 4) in told
    for report in classifier.history_:
        assert report.sparsity >= 0.5  # two of five blocks were sent, and the last is shorter
        assert set(report.seconds) == {"training", "members", "aggregator", "key generator"}
        assert min(report.seconds.values()) > 0
        assert min(report.sent.values()) > 0
        assert (report.withheld, report.clipped, report.missing) == (0, 0, {})
        assert RoundReport.from_dict(report.to_dict()) == report


def failing_from(call, data):
    calls = []

    def load():
        calls.append(None)
        if len(calls) >= call:
            raise RuntimeError("the disk is gone")
        return data

    return load


def test_an_owner_that_fails_is_left_out_and_the_others_go_on():
    people = owners()
    people[1] = failing_from(3, people[1])  # loaded once to be checked, once in round 1
    classifier = FederatedClassifier("plain", rounds=3).fit(people, public=PUBLIC)
    assert [len(report.contributors) for report in classifier.history_] == [4, 3, 3]
    assert "disk is gone" in classifier.history_[1].missing["member 2"]


def test_with_fewer_than_three_left_a_run_ends():
    people = owners(3)
    people[0] = failing_from(2, people[0])
    with pytest.raises(PrivacyError, match="2 members") as caught:
        FederatedClassifier("plain").fit(people, public=PUBLIC)
    assert any("member 1" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(("number", "kind"), [(1e300, float), (1e200, float), (1e30, np.float32)])
def test_extreme_features_are_refused_before_a_run_and_the_owner_named(number, kind):
    people = owners()
    people[2] = (np.where(np.arange(DIMENSIONS) == 3, number, people[2][0]).astype(kind), people[2][1])
    with pytest.raises(InputError, match="member 3: features"):
        FederatedClassifier("plain", rounds=1).fit(people, public=PUBLIC)
    with pytest.raises(InputError, match="member 3: features"):
        FederatedKMeans(2, sums="plain", rounds=1).fit([X for X, _ in people], public=PUBLIC[0])


def test_an_owner_with_extreme_features_is_left_out_rather_than_spoiling_the_sum():
    people = owners()
    X, y = people[2]
    found = iter([X])
    people[2] = lambda: (next(found, np.where(np.arange(DIMENSIONS) == 3, 1e200, X)), y)  # after the run has begun
    classifier = FederatedClassifier("plain", rounds=1).fit(people, public=PUBLIC)
    assert set(classifier.history_[0].missing) == {"member 3"}
    assert np.isfinite(classifier.coef_).all()


def test_a_run_stops_when_the_model_no_longer_moves():
    stopping = EarlyStopping(criterion="step", tolerance=0.01)
    classifier = FederatedClassifier(DENSE, rounds=200, early_stopping=stopping)
    classifier.fit(owners(), public=PUBLIC)
    assert 3 <= len(classifier.history_) < 100
    assert all(report.step < 0.01 for report in classifier.history_[-3:])


def test_the_owner_of_a_single_class_gets_the_public_data_as_contrast():
    X, y = pictures(200, 7)
    people = [*owners(3), (X[y == 2], y[y == 2])]
    with_it = FederatedClassifier(DENSE, rounds=1).fit(people, public=PUBLIC)
    without = FederatedClassifier(DENSE, rounds=1).fit(people[:3], public=PUBLIC)
    assert with_it.history_[0].contributors == tuple(f"member {i}" for i in (1, 2, 3, 4))
    moved = 4 * with_it.coef_ - 3 * without.coef_
    start = FederatedClassifier("plain", rounds=1).fit(people, public=PUBLIC).coef_
    assert np.linalg.norm(moved[2] - start[2]) > 0.01


def test_a_class_without_public_examples_is_learned_from_owners():
    seen = PUBLIC[1] != 3
    public = PUBLIC[0][seen], PUBLIC[1][seen]
    classifier = FederatedClassifier(Sums(scheme="plain", share=0.5), classes=range(CLASSES), rounds=10)
    classifier.fit(owners(), public=public)
    guess = classifier.predict(TEST[0])
    assert (guess[TEST[1] == 3] == 3).mean() > 0.6
    assert classifier.classes_.tolist() == [0, 1, 2, 3, 4]


def broken(change):
    people = dict(zip(NAMES, owners(), strict=True))
    people["cem"] = change(*people["cem"])
    return people


NAN = np.where(np.arange(DIMENSIONS) == 5, np.nan, 0.0)


@pytest.mark.parametrize(
    ("people", "words"),
    [
        (owners(2), "got 2"),
        ([], "got 0"),
        (7, "list or a mapping"),
        (broken(lambda X, y: (X[:0], y[:0])), "cem: "),
        (broken(lambda X, y: (X + NAN, y)), "cem: .*finite"),
        (broken(lambda X, y: (X[:, :7], y)), "cem: .*got 7"),
        (broken(lambda X, y: (X, y + 1)), "cem: .*5 classes"),
        (broken(lambda X, y: (X, [str(label) for label in y])), "cem: 40 labels"),
        (broken(lambda X, y: (X, y[:3])), "cem: .*label per sample"),
        (broken(lambda X, y: (X, y * np.nan)), "cem: labels .*finite"),
        (broken(lambda X, y: (X, np.column_stack([y, y]))), "cem: labels"),
        (broken(lambda X, y: X), "cem: .*pair"),
        ({**broken(lambda X, y: (X, y)), "aggregator": owners()[0]}, "'aggregator'"),
    ],
)
def test_bad_data_is_refused_with_the_name_of_its_owner(people, words):
    with pytest.raises(InputError, match=words):
        FederatedClassifier("plain").fit(people, public=PUBLIC)


def test_an_owner_whose_data_cannot_be_loaded_at_all_is_named():
    people = owners()
    people[0] = failing_from(1, None)
    with pytest.raises(DataError, match=r"member 1: .*the disk is gone"):
        FederatedClassifier("plain").fit(people, public=PUBLIC)


BAD = {
    "rounds": {"rounds": 0},
    "passes": {"passes": 0},
    "'zero-one'": {"loss": "zero-one"},
    "validation": {"early_stopping": EarlyStopping(criterion="score")},
    "error_feedback": {"error_feedback": 1.5},
    "seed": {"random_state": -1},
}


@pytest.mark.parametrize(("words", "options"), BAD.items(), ids=BAD)
def test_bad_settings_are_refused_before_anything_is_sent(words, options):
    with pytest.raises(InputError, match=words):
        FederatedClassifier("plain", **options).fit(owners(), public=PUBLIC)


def test_labels_or_public_data_in_the_wrong_place_are_refused():
    with pytest.raises(InputError, match="labels"):
        FederatedClassifier("plain").fit(owners(), PUBLIC[1], public=PUBLIC)
    with pytest.raises(InputError, match="public"):
        FederatedClassifier("plain").fit(owners())
    with pytest.raises(InputError, match=r"public data: .*one class"):
        FederatedClassifier("plain").fit(owners(), public=(PUBLIC[0], np.zeros(15, dtype=int)))
    with pytest.raises(InputError, match=r"validation data: .*24 columns"):
        FederatedClassifier("plain").fit(owners(), public=PUBLIC, validation=(TEST[0][:, :3], TEST[1]))


def test_a_recorded_round_shows_what_each_role_really_held():
    views = {}
    for scheme in ("plain", "block-dphe"):
        how = {"target": "update", "selection": "blocks", "sparsity": 0.6, "block_size": sums("block-dphe").block_size}
        classifier = PublishedClassifier(sums(scheme), rounds=2, **how).fit(owners(), public=PUBLIC, record=True)
        views[scheme] = {view.role: view for view in classifier.views_}
    assert list(views["plain"]) == ["member 1", "aggregator", "everybody"]
    assert list(views["block-dphe"]) == ["member 1", "aggregator", "key generator", "everybody"]
    update = views["plain"]["member 1"].picture
    assert update.shape == (CLASSES, DIMENSIONS + 1)
    assert (update == views["block-dphe"]["member 1"].picture).all()
    bits = fraction_bits(4, 64.0)
    largest = np.rint(np.ldexp(update[np.abs(update) == np.abs(update).max()][0], bits)).astype("<i4").tobytes()
    assert largest in views["plain"]["aggregator"].picture.tobytes()
    for role in ("aggregator", "key generator"):
        assert largest not in views["block-dphe"][role].picture.tobytes()
        assert views["block-dphe"][role].picture.dtype == np.uint8
    assert FederatedClassifier("plain", rounds=1).fit(owners(), public=PUBLIC).views_ == ()
