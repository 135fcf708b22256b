"""Samples from steps of linear classifiers: scikit-learn makes the step, the attack undoes it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier

from blindsight.audit.recovery import Penalty, cosine, gradient_step, logistic_factors, loss_gradient, recover_sample
from blindsight.errors import InputError, UnknownNameError
from blindsight.papers.dphe.settings import attack_unknown_settings, library_settings, recover_with_guesses
from blindsight.rng import science

LOSSES = {"hinge": "hinge", "logistic": "log_loss"}


def sklearn_step(weights, sample, label, *, loss, bias=False, **options):
    """One `partial_fit` on one sample from given weights (the last is the bias); returns weights, learning rate."""
    options = {"learning_rate": "constant", "eta0": 0.1, "alpha": 1e-3} | options
    model = SGDClassifier(loss=LOSSES[loss], fit_intercept=bias, **options)
    model.partial_fit(sample[None], [label], classes=[-1, 1])  # only makes the model's arrays
    model.coef_[:] = weights[: sample.size]
    if bias:
        model.intercept_[:] = weights[-1]
    model.t_ = 1.0
    model.partial_fit(sample[None], [label])
    after = np.append(model.coef_[0], model.intercept_) if bias else model.coef_[0].copy()
    return after, options["eta0"] if options["learning_rate"] == "constant" else options["alpha"] ** -0.25


def start(size, seed):
    return science(seed).normal(size=size) * 0.3


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("options", [{}, {"learning_rate": "optimal"}, {"penalty": "elasticnet", "l1_ratio": 0.5}])
def test_our_step_is_that_of_scikit_learn(digits, loss, bias, options):
    for row, label in ((0, 1), (1, -1)):
        weights, sample = start(64 + bias, row), digits.private[row]
        after, rate = sklearn_step(weights, sample, label, loss=loss, bias=bias, **options)
        penalty = Penalty(1e-3, options.get("l1_ratio", 0.0))
        ours = gradient_step(weights, sample, [label], loss=loss, learning_rate=rate, penalty=penalty, bias=bias)
        assert np.allclose(ours, after, rtol=0, atol=1e-12)


@pytest.mark.parametrize("label", [-1, 1])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_sample_of_a_step_of_scikit_learn_is_recovered(digits, loss, label):
    weights, sample = start(64, 3), digits.private[7]
    after, rate = sklearn_step(weights, sample, label, loss=loss, learning_rate="optimal", alpha=1e-4)
    found = recover_sample(weights, after, rate, 1e-4, loss=loss)
    assert found.closest(sample) > 1 - 1e-12
    exact = [each for each in found.candidates if np.allclose(each.sample, sample, atol=1e-9)]
    assert [each.label for each in exact] == [label]
    assert {each.label for each in found.candidates} == {-1, 1}


@pytest.mark.parametrize("label", [-1, 1])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_bias_tells_sample_label_and_learning_rate(digits, loss, label):
    weights, sample = start(65, 4), digits.private[8]
    after, rate = sklearn_step(weights, sample, label, loss=loss, bias=True, learning_rate="optimal")
    (candidate,) = recover_sample(weights, after, penalty=1e-3, loss=loss, bias=True).candidates
    assert candidate.label == label
    assert candidate.learning_rate == pytest.approx(rate, rel=1e-9)
    assert np.allclose(candidate.sample, sample, atol=1e-9)


def test_a_lasso_hides_only_the_weights_it_sets_to_zero(digits):
    sample = digits.private[5]
    weights = np.where(np.arange(64) % 4 == 0, 1e-3, start(64, 5))  # these few fall to zero where the picture is black
    after, rate = sklearn_step(weights, sample, -1, loss="hinge", alpha=0.2, penalty="elasticnet", l1_ratio=0.5)
    found = recover_sample(weights, after, rate, Penalty(0.2, 0.5)).candidates[0]
    kept = after != 0
    assert 0 < np.count_nonzero(~kept) < 20
    assert np.allclose(found.sample[kept], sample[kept], atol=1e-12)
    assert np.abs(found.sample[~kept] - sample[~kept]).max() <= 0.1 + 1e-12  # lambda rho


def test_a_wrong_penalty_is_not_recovered_exactly(digits):
    weights, sample = 10 * start(64, 6), digits.private[9]
    after, rate = sklearn_step(weights, sample, -1, loss="hinge", alpha=0.1)
    assert recover_sample(weights, after, rate, 0.1).closest(sample) > 1 - 1e-12
    assert recover_sample(weights, after, rate, 0.0).closest(sample) < 0.99


def test_a_well_classified_sample_stays_unknown():
    weights, sample = np.array([2.0, 0.0, 0.5]), np.array([1.0, 0.0])
    for bias, before in ((False, weights[:2]), (True, weights)):
        after = gradient_step(before, sample, [1], loss="hinge", learning_rate=0.1, penalty=0.1, bias=bias)
        found = recover_sample(before, after, 0.1, 0.1, bias=bias)
        assert found.candidates == ()
        assert found.closest(sample) == 0
        with pytest.raises(InputError, match="nothing was recovered"):
            _ = found.best
    assert recover_sample(weights, after, None, 0.1, bias=True).candidates == ()
    assert recover_sample(weights, weights, None, loss="logistic", bias=True).candidates == ()


# The scalar equation of the logistic loss


@given(st.floats(-0.278, 50))
def test_factors_solve_the_equation_and_none_is_missed(a):
    """c - 1 - exp(-a c) is concave: it changes its sign at each root, once on either side of where it is largest."""
    found = logistic_factors(a)
    for c in found:
        assert c == pytest.approx(1 + np.exp(-a * c), rel=1e-9)
    grid = np.concatenate([np.linspace(0, 4, 20_001), np.geomspace(4, 1e12, 20_001)])
    with np.errstate(over="ignore"):
        signs = np.sign(grid - 1 - np.exp(-a * grid))
    assert len(found) == np.count_nonzero(np.diff(signs[signs != 0]))


def test_some_gradients_come_from_no_sample_and_some_from_two(digits):
    assert logistic_factors(-0.2786) == logistic_factors(-1e6) == ()
    assert logistic_factors(1e6) == (1.0,)
    weights, sample = 4 * digits.private[0], digits.private[0]  # a margin of 4, well on the right side
    after = gradient_step(weights, sample, [1], loss="logistic", learning_rate=0.1)
    found = recover_sample(weights, after, 0.1, loss="logistic")
    assert len(found.candidates) == 4
    lengths = sorted(np.linalg.norm(each.sample) for each in found.candidates if each.label == 1)
    assert lengths[1] == pytest.approx(1)  # the sample, and a shorter one nearer to the boundary
    assert lengths[0] < 0.1
    wrong = recover_sample(weights, after, 0.001, loss="logistic")
    assert wrong.candidates == ()
    assert "settings are wrong" in wrong.reason


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from(["hinge", "logistic"]), st.floats(1e-3, 10))
def test_forwards_then_backwards_is_the_gradient(seed, bias, loss, rate):
    generator = science(seed)
    weights, samples = generator.normal(size=5 + bias), generator.normal(size=(3, 5))
    labels = generator.choice([-1, 1], size=3)
    options = {"learning_rate": rate, "penalty": 0.01, "bias": bias}
    theta = loss_gradient(weights, gradient_step(weights, samples, labels, loss=loss, **options), **options)
    rows = np.hstack([samples, np.ones((3, 1))]) if bias else samples
    margins = labels * (rows @ weights)
    slopes = (margins <= 1) * 1.0 if loss == "hinge" else 1 / (1 + np.exp(margins))
    assert np.allclose(theta, -np.mean((slopes * labels)[:, None] * rows, axis=0), atol=1e-9)


# Averages over one class (Eqs. 5 and 6)


def averaged(digits, loss, bias):
    """A step of an owner of 30 negative samples, of which some are classified well."""
    samples = digits.private[:30]
    lean = digits.public.mean(axis=0)
    weights = -(1.9 if bias else 1.0) * lean / (lean @ lean)
    weights = np.append(weights, 0.9) if bias else weights
    after = gradient_step(weights, samples, [-1] * 30, loss=loss, learning_rate=0.1, penalty=1e-3, bias=bias)
    return weights, samples, recover_sample(weights, after, 0.1, 1e-3, loss=loss, label=-1, bias=bias)


@pytest.mark.parametrize("bias", [False, True])
def test_the_mean_of_wrongly_classified_samples_is_recovered(digits, bias):
    weights, samples, found = averaged(digits, "hinge", bias)
    scores = samples @ weights[:64] + (weights[-1] if bias else 0)
    errors = scores >= -1
    assert 3 < errors.sum() < 27
    (candidate,) = found.candidates
    assert cosine(candidate.sample, samples[errors].mean(axis=0)) > 1 - 1e-12
    assert cosine(candidate.sample, samples.mean(axis=0)) < 1 - 1e-4
    if bias:
        assert np.allclose(candidate.sample, samples[errors].mean(axis=0))


def test_the_logistic_average_weighs_samples_by_how_wrong_they_are(digits):
    weights, samples, found = averaged(digits, "logistic", bias=True)
    wrong = 1 / (1 + np.exp(-(samples @ weights[:64] + weights[-1])))
    assert np.allclose(found.best.sample, wrong @ samples / wrong.sum())


def test_without_a_label_both_signs_are_possible(digits):
    after = gradient_step(np.zeros(64), digits.private[:4], [1] * 4, loss="hinge", learning_rate=0.1)
    found = recover_sample(np.zeros(64), after, 0.1)
    assert [each.label for each in found.candidates] == [-1, 1]
    assert cosine(found.candidates[1].sample, digits.private[:4].mean(axis=0)) > 1 - 1e-12


def guessed(digits, **given):
    given = {"before": np.zeros(64), "after": np.zeros(64), "public": digits.public, "loss": "hinge"} | given
    return recover_with_guesses(given.pop("before"), given.pop("after"), given.pop("public"), **given)


def test_bad_input_gets_a_sentence(digits):
    for call, words in [
        (lambda: recover_sample([0.0], [1.0]), "learning rate"),
        (lambda: recover_sample([0.0], [1.0], loss="logistic"), "learning rate"),
        (lambda: recover_sample([0.0], [1.0], -1.0), "above 0"),
        (lambda: recover_sample([0.0], [1.0, 2.0], 1.0), "one vector"),
        (lambda: recover_sample([np.nan], [1.0], 1.0), "finite"),
        (lambda: recover_sample([0.0], [1.0], 1.0, -1.0), "penalty"),
        (lambda: gradient_step([0.0], [[1.0]], [2], loss="hinge", learning_rate=1.0), "-1 or 1"),
        (lambda: cosine([1.0], [1.0, 2.0]), "one length"),
        (lambda: guessed(digits, public=digits.public[:9]), "10 public"),
        (lambda: guessed(digits, bias=True), r"64.*63"),
        (lambda: library_settings(0), "from 1"),
        (lambda: attack_unknown_settings(digits.private, digits.public, loss="hinge", victims=0), "victim"),
    ]:
        with pytest.raises(InputError, match=words):
            call()
    with pytest.raises(UnknownNameError, match="hinge"):
        gradient_step([0.0], [[1.0]], [1], loss="hing", learning_rate=1.0)
    with pytest.raises(UnknownNameError, match="logistic"):
        guessed(digits, loss="logistc")


def test_samples_do_not_show_in_reprs(digits):
    after = gradient_step(np.zeros(64), digits.private[0], [1], loss="hinge", learning_rate=0.1)
    found = recover_sample(np.zeros(64), after, 0.1)
    assert repr(found) == "Recovery(reason='')"
    assert repr(found.best) == "<Candidate: 64 features, label -1, given>"
