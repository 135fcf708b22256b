"""Symbols: the rule is the best there is, the frozen sift is what was learned, and the cap holds on new people."""

import warnings
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from blindsight.errors import CorruptFileError, InputError
from blindsight.metrics import balanced_accuracy
from blindsight.sift.certificate import certify, certify_joint
from blindsight.sift.sift import Layers, LinearSift, Quantiser, SymbolSift, load_sift, save_sift
from blindsight.sift.symbols import Posteriors, SymbolLearner, fit_posteriors, leak_of, symbol_rule


def population(n, *, correlation=0.6, seed=0, attributes=2):
    """Return features, and attributes that go together; every attribute has three features of its own."""
    generator = np.random.default_rng(seed)
    shared = generator.normal(size=(n, 1))
    scores = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * generator.normal(size=(n, attributes))
    labels = (scores > 0).astype(np.int8)
    features = np.repeat(2.0 * labels - 1, 3, axis=1) + generator.normal(scale=1.5, size=(n, 3 * attributes))
    return features.astype(np.float32), labels


@pytest.fixture(scope="module")
def learned():
    X, labels = population(2000, attributes=3)
    return X, labels, fit_posteriors(X, labels, networks=False)


@pytest.fixture(scope="module")
def few():
    X, labels = population(800)
    return X, labels, fit_posteriors(X, labels, networks=False)


def gains(eta):
    pi = eta.mean(axis=0)
    return eta / pi - (1 - eta) / (1 - pi)


# The rule


def best_by_linear_program(public, private, leak):
    """Return the best E[u g+] of any channel from x to one bit: u in [0, 1] per row, no multipliers, no symbols."""
    told, hidden = gains(public)[:, 0], gains(private)
    bounds = np.full(2 * hidden.shape[1], 2 * leak)
    found = linprog(-told / len(told), np.vstack([hidden.T, -hidden.T]) / len(told), bounds, bounds=(0, 1))
    return -found.fun


@pytest.mark.parametrize(("leak", "private"), [(0.0, 1), (0.03, 2), (0.1, 1), (0.5, 2)])
def test_no_channel_beats_the_rule(leak, private):
    generator = np.random.default_rng(private)
    common = generator.normal(size=(1000, 1))
    eta = expit(common + generator.normal(size=(1000, 1 + private)))
    public, hidden = eta[:, :1], eta[:, 1:]
    u = symbol_rule(public, hidden, leak).symbols(eta)
    row = 2 * np.abs(gains(eta)).max() / len(eta)  # what a row on the boundary can change
    assert np.abs(gains(hidden).T @ u / len(eta)).max() <= 2 * leak + private * row
    best = best_by_linear_program(public, hidden, leak)
    assert gains(public)[:, 0] @ u / len(eta) == pytest.approx(best, abs=3 * row)


def test_the_rule_is_the_best_threshold_rule_of_a_small_discrete_problem():
    """Five by five kinds of pictures, every multiplier and every threshold tried one by one."""
    levels = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    kinds = np.array(list(product(levels, levels)))
    rows = np.repeat(kinds, np.random.default_rng(5).integers(1, 40, size=25), axis=0)
    public, private = rows[:, :1], rows[:, 1:]
    told, hidden = gains(public)[:, 0], gains(private)[:, 0]
    leak, best = 0.08, 0.0
    for mu in np.linspace(-3, 3, 121):
        score = told - mu * hidden
        for threshold in np.unique(score):
            u = score >= threshold
            if abs(hidden @ u) / len(rows) <= 2 * leak:
                best = max(best, told @ u / len(rows))
    u = symbol_rule(public, private, leak).symbols(rows)
    largest = max(np.sum((rows == kind).all(axis=1)) for kind in kinds) / len(rows)  # kinds cannot be split
    assert abs(hidden @ u) / len(rows) <= 2 * leak + largest * np.abs(hidden).max()
    assert told @ u / len(rows) >= best - largest * np.abs(told).max()
    assert told @ u / len(rows) > 0.9 * best


def test_no_joint_channel_beats_four_symbols():
    """Two public bits: the gap between what the rule reaches and its own prices is zero, so it is optimal."""
    generator = np.random.default_rng(3)
    told = generator.normal(scale=2, size=(3000, 2))
    eta = expit(np.column_stack([told, told.sum(axis=1)]))  # either bit tells something else of the private attribute
    rule, leak = symbol_rule(eta[:, :2], eta[:, 2:], 0.05), 0.05
    released, hidden = rule.symbols(eta), gains(eta[:, 2:])[:, 0]
    assert rule.levels == (2, 2)
    gaps = np.array([hidden @ (released == s) for s in range(4)]) / len(eta)
    assert np.abs(gaps).sum() / 4 == pytest.approx(leak, abs=0.002)
    bits = np.stack([released // 2, released % 2], axis=1)
    reached = np.sum(gains(eta[:, :2]) * bits) / len(eta)
    # Any prices bound the optimum from above: E[max of priced rewards] + 4 leak max|price|.
    prices = -rule.matrix[2] * eta[:, 2].mean() * (1 - eta[:, 2].mean())
    prices = prices - (prices.max() + prices.min()) / 2
    rewards = gains(eta[:, :2]) @ np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
    ceiling = np.mean(np.max(rewards - np.outer(hidden, prices), axis=1)) + 4 * leak * np.abs(prices).max()
    assert reached == pytest.approx(ceiling, abs=0.01)
    assert reached <= ceiling + 4 * 0.002 * np.abs(prices).max()  # as far as the leak may differ from its cap


def test_degrees_of_certainty_keep_yes_and_no_apart_and_leaks_are_those_of_the_best_table():
    X, labels = population(1000)
    eta = expit(X[:, [0, 3]].astype(np.float64))
    two, four = (symbol_rule(eta[:, :1], eta[:, 1:], 0.5, count).symbols(eta) for count in (2, 4))
    assert (four >= 2).astype(int).tolist() == two.tolist()
    assert np.bincount(four).min() > 150
    best = max(balanced_accuracy(labels[:, 1], np.array(said)[four]) for said in product((0, 1), repeat=4))
    assert leak_of(four, labels[:, 1]) == pytest.approx(best - 0.5)


# The network


def test_layers_say_what_scikit_learn_says():
    X, labels = population(400)
    mean, scale = np.float32(np.full(6, 0.5)), np.float32(np.full(6, 2.0))
    scaled = (X - mean) / scale
    linear = LogisticRegression().fit(scaled, labels[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # thirty steps are enough here
        deep = MLPClassifier((8, 5), max_iter=30, random_state=0).fit(scaled, labels[:, 1])
    first = Layers(mean, scale, (linear.coef_.T,), (linear.intercept_,))
    second = Layers(mean, scale, tuple(deep.coefs_), tuple(deep.intercepts_))
    together = expit(Layers.side_by_side([first, second]).apply(X))
    expected = np.stack([model.predict_proba(scaled)[:, 1] for model in (linear, deep)], axis=1)
    np.testing.assert_allclose(together, expected, atol=1e-5)


def test_layers_that_hide_things_or_do_not_fit_are_refused():
    one, zero = np.ones((2, 1)), np.zeros(1)
    for weights, biases, scale in [
        *(((np.array([[1.0], [spoil]]),), (zero,), 1.0) for spoil in (np.nan, np.inf, 1e30)),
        ((), (), 1.0),
        ((np.ones((3, 1)),), (zero,), 1.0),
        ((one,), (zero,), 0.0),
    ]:
        with pytest.raises(InputError):
            Layers(np.zeros(2), np.full(2, scale), weights, biases)


def test_numbers_that_overflow_give_what_zeros_give_and_no_error():
    huge = Layers(np.zeros(1), np.ones(1), (np.array([[1e10, 1.0]]),), (np.array([5.0, 5.0]),))
    assert huge.apply(np.array([[1e35], [1.0]], dtype=np.float32))[0].tolist() == [0, 0]
    sift = LinearSift(np.zeros(2), np.ones(2), np.array([[1.0, 1e3], [1e6, 1.0]]), Quantiser([[-1.0], [-1.0]]))
    rows = np.array([[0, 3e38], [0, 0], [0, -3e38], [-9, 0]], dtype=np.float32)
    assert sift.apply(rows).tolist() == [[1, 1], [1, 1], [1, 1], [0, 0]]


# Posteriors


def test_probabilities_are_calibrated_and_held_out(learned):
    _, labels, posteriors = learned
    fresh, truth = population(6000, attributes=3, seed=1)
    probabilities = posteriors.predict(fresh)
    for column in range(3):
        order = np.argsort(probabilities[:, column]).reshape(6, -1)
        gap = np.abs(probabilities[order, column].mean(axis=1) - truth[order, column].mean(axis=1))
        assert gap.max() < 0.1  # sd .016 at most: beyond five deviations, and three or more for the model
    optimism = np.abs(posteriors.held_out - labels).mean() - np.abs(probabilities - truth).mean()
    assert abs(optimism) < 0.02


def test_a_network_is_chosen_where_a_line_is_not_enough(monkeypatch):
    monkeypatch.setattr("blindsight.sift.symbols._STEPS", 300)
    monkeypatch.setattr("blindsight.sift.symbols._RATE", 3e-3)
    X = np.random.default_rng(0).normal(size=(1400, 2)).astype(np.float32)
    labels = X[:, 0] * X[:, 1] > 0
    line, network = (fit_posteriors(X, labels, networks=networks).held_out[:, 0] for networks in (False, True))
    assert balanced_accuracy(labels, line > 0.5) < 0.65
    assert balanced_accuracy(labels, network > 0.5) > 0.8


def test_persons_stay_together_in_a_fold():
    """Features are nothing but who it is: a model that has not met a person knows nothing of them."""
    generator = np.random.default_rng(0)
    who = np.repeat(np.arange(60), 10)
    faces, answers = generator.normal(size=(60, 80)), generator.integers(2, size=60)
    X, labels = faces[who].astype(np.float32), answers[who]
    for persons, met in ((who, False), (None, True)):
        held_out = fit_posteriors(X, labels, persons=persons, networks=False).held_out[:, 0]
        assert (balanced_accuracy(labels, held_out > 0.5) > 0.9) == met


# The learner


def test_a_label_leaks_half_its_demographic_parity_difference(learned):
    _, labels, posteriors = learned
    learner = SymbolLearner(leak=0.5).fit_posteriors(posteriors.select([0, 1]), labels[:, 0], labels[:, 1])
    says_yes = posteriors.held_out[:, 0] > posteriors.held_out[:, 0].mean()
    difference = says_yes[labels[:, 1] == 1].mean() - says_yes[labels[:, 1] == 0].mean()
    assert learner.leak_ == pytest.approx(abs(difference) / 2)
    assert learner.leak_ > 0.1  # there is something to cap


def test_the_cap_is_certified_on_new_people(learned):
    """The margin is one of 95% twice over: a bound above .12 is beyond 5 deviations."""
    _, labels, posteriors = learned
    fresh, truth = population(4500, attributes=3, seed=2)
    picked = posteriors.select([0, 1])
    learners = [SymbolLearner(leak=leak).fit_posteriors(picked, labels[:, 0], labels[:, 1]) for leak in (0.5, 0.1, 0.0)]
    label, capped, parity = (
        certify(learner.sift_.symbols(fresh), truth[:, 1], confidence=0.95) for learner in learners
    )
    assert label.bound > 0.14
    assert capped.bound < 0.12
    assert parity.estimate < 0.05
    told = [balanced_accuracy(truth[:, 0], learner.transform(fresh)[:, 0]) for learner in learners]
    assert told[0] > told[1] > told[2] > 0.6
    assert learners[1].accuracies_[0] == pytest.approx(told[1], abs=0.04)
    assert learners[1].leak_ <= learners[1].target_ < 0.1


def test_every_private_attribute_is_capped_and_two_public_ones_are_two_bits(learned):
    X, labels, posteriors = learned
    learner = SymbolLearner().fit_posteriors(posteriors, labels[:, 0], labels[:, 1:])
    released = learner.sift_.symbols(X)
    assert max(leak_of(released, labels[:, j]) for j in (1, 2)) < 0.1
    only_one = SymbolLearner().fit_posteriors(posteriors.select([0, 1]), labels[:, 0], labels[:, 1])
    assert leak_of(only_one.sift_.symbols(X), labels[:, 2]) > 0.1
    sift = SymbolLearner(leak=0.2).fit_posteriors(posteriors, labels[:, :2], labels[:, 2]).sift_
    released = sift.apply(X)
    assert (released.shape, sift.levels, sift.alphabet) == ((2000, 2), (2, 2), 4)
    assert sift.symbols(X).tolist() == (2 * released[:, 0] + released[:, 1]).tolist()
    assert min(balanced_accuracy(labels[:, b], released[:, b]) for b in (0, 1)) > 0.65
    with pytest.raises(InputError, match="9"):
        sift.apply(X[:, :5])  # another number of features
    held_out = posteriors.held_out[:, [0, 0, 0, 0, 0, 0, 1]]
    many = Posteriors((posteriors.networks[0],) * 6 + (posteriors.networks[1],), held_out)
    for public, named in ((labels[:, [0] * 6], "64 symbols"), (labels[:, 0], "posteriors")):
        with pytest.raises(InputError, match=named):
            SymbolLearner().fit_posteriors(many, public, labels[:, 1])


def test_several_pictures_of_a_person_need_a_wider_margin(few):
    _, labels, posteriors = few
    one, five, told = (
        SymbolLearner(rows=rows).fit_posteriors(
            posteriors, labels[:, 0], labels[:, 1], persons=np.arange(800) // pictures
        )
        for rows, pictures in ((None, 1), (None, 5), (100_000, 1))
    )
    assert five.target_ < one.target_ < told.target_ < 0.1


def test_the_frozen_sift_is_the_rule_on_the_models(few):
    _, labels, posteriors = few
    fresh, _ = population(500, seed=4)
    learner = SymbolLearner().fit_posteriors(posteriors, labels[:, 0], labels[:, 1])
    agreed = learner._best_rule(posteriors.held_out, 1, labels[:, 1:]).symbols(posteriors.predict(fresh))
    assert np.mean(agreed == learner.sift_.symbols(fresh)) > 0.99  # float32 against float64, at the boundary
    label = SymbolLearner(leak=0.5).fit_posteriors(posteriors, labels[:, 0], labels[:, 1]).sift_
    assert label.layers.width == len(posteriors.networks[0])  # what decides nothing is not stored


def test_fit_learns_the_same_twice_and_is_saved_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("blindsight.sift.symbols._STEPS", 40)
    X, labels = population(300)
    labels[:30, 1] = -1  # unknown
    first, second = (SymbolLearner(pipeline="pixels").fit(X, labels[:, 0], labels[:, 1]).sift_ for _ in range(2))
    assert first.digest == second.digest
    save_sift(first, tmp_path / "sift.npz")
    loaded = load_sift(tmp_path / "sift.npz")
    assert isinstance(loaded, SymbolSift)
    assert (loaded.digest, loaded.pipeline, loaded.levels) == (first.digest, "pixels", (2,))
    assert loaded.apply(X).tolist() == first.apply(X).tolist()
    assert loaded.apply(X).dtype == np.int64
    object.__setattr__(first, "reading", (1 << 20,))  # more symbols than can be certified
    save_sift(first, tmp_path / "sift.npz")
    with pytest.raises(CorruptFileError, match="symbols"):
        load_sift(tmp_path / "sift.npz")


# Bad input


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"leak": 0.7}, "leak"), ({"confidence": 95}, "confidence"), ({"rows": 0}, "rows")]
    + [({"symbols": symbols}, "2, 4, 8, 16 or 32") for symbols in (0, 3, 64)],
)
def test_settings_out_of_range_are_named(few, settings, named):
    _, labels, posteriors = few
    with pytest.raises(InputError, match=named):
        SymbolLearner(**settings).fit_posteriors(posteriors, labels[:, 0], labels[:, 1])


def test_bad_data_are_named():
    X, labels = population(200)
    yes, no = labels.T
    for rows, public, private, named in [
        (X, yes, np.arange(200) < 3, "private attribute 0 has 3"),
        (X, np.zeros(200), no, "public attribute 0 has 0"),
        (X, yes[:-1], no, "row"),
        (np.where(np.arange(200)[:, None] == 7, np.nan, X), yes, no, "NaN"),
        (np.ones_like(X), yes, no, "varies"),
    ]:
        with pytest.raises(InputError, match=named):
            SymbolLearner().fit(rows, public, private)


def test_two_private_attributes_are_capped_together():
    """The public attribute tells whether two private ones differ, and neither by itself."""
    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 2, (2, 6000)).astype(np.int8)
    public = np.where(rng.random(6000) < 0.9, a ^ b, 1 - (a ^ b)).astype(np.int8)
    X = rng.standard_normal((6000, 4)).astype(np.float32)
    X[:, :3] += 3 * np.stack([public, a, b], axis=1)
    hidden = np.stack([a, b], axis=1)
    rows, rest = slice(0, 3000), slice(3000, None)
    told = np.stack([public, a, b, a ^ b], axis=1)
    posteriors, estimates = fit_posteriors(X[rows], told[rows], networks=False), []
    for known in ([0, 1, 2, 3], [0, 1, 2]):  # with and without the chance that they differ
        learner = SymbolLearner(leak=0.15).fit_posteriors(posteriors.select(known), public[rows], hidden[rows])
        symbols, labels = learner.sift_.symbols(X[rest]), {"a": a[rest], "b": b[rest]}
        estimates.append(certify_joint(symbols, labels, confidence=0.95).estimate)
    together, apart = estimates
    assert together < 0.15
    assert apart > 0.3
