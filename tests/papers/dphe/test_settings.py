"""Samples from steps whose learning rate and penalty are guessed from the defaults of libraries."""

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from blindsight.audit.recovery import Penalty, gradient_step
from blindsight.papers.dphe.settings import (
    PublicLook,
    Setting,
    attack_unknown_settings,
    library_settings,
    recover_with_guesses,
)
from blindsight.rng import science


@pytest.mark.parametrize("schedule", ["optimal", "constant", "invscaling"])
@pytest.mark.parametrize("step", [1, 2, 50])
def test_schedules_are_those_of_scikit_learn(schedule, step):
    """The change of the bias of a hinge step is its learning rate."""
    model = SGDClassifier(learning_rate=schedule)
    model.partial_fit([[0.0, 0.0]], [1], classes=[-1, 1])
    model.t_, model.intercept_[:] = float(step), 0.0
    model.partial_fit([[0.1, 0.2]], [1])
    name = f"scikit-learn, {schedule}"
    rates = [setting.learning_rate for setting in library_settings(step) if setting.source == name]
    expected = model.intercept_[0]
    if rates:
        assert rates == [pytest.approx(expected, rel=1e-12)]
    else:  # the same numbers under another name
        assert schedule == "invscaling"
        assert any(setting.learning_rate == pytest.approx(expected) for setting in library_settings(step))


def test_every_setting_is_there_once():
    pairs = [(setting.learning_rate, setting.penalty) for setting in library_settings()]
    assert len(pairs) == len(set(pairs)) > 20


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("alpha", [1e-4, 1e-3])
def test_scikit_learns_default_step_gives_its_sample_away(digits, loss, bias, alpha):
    generator = science(1)
    for row in range(5):
        sample, label = digits.private[row], [-1, 1][row % 2]
        model = SGDClassifier(loss={"hinge": "hinge", "logistic": "log_loss"}[loss], fit_intercept=bias, alpha=alpha)
        model.partial_fit(sample[None], [label], classes=[-1, 1])
        weights = generator.normal(size=64 + bias) * 0.2
        model.coef_[:], model.t_ = weights[:64], 1.0
        if bias:
            model.intercept_[:] = weights[-1]
        model.partial_fit(sample[None], [label])
        after = np.append(model.coef_[0], model.intercept_) if bias else model.coef_[0]
        found = recover_with_guesses(weights, after, digits.public, loss=loss, bias=bias)
        assert found.best.source == f"scikit-learn, optimal{', alpha 0.001' * (alpha == 1e-3)}"
        assert found.best.label == label
        assert np.allclose(found.best.sample, sample, atol=1e-9)
        scores = [candidate.plausibility for candidate in found.candidates]
        assert all(0 < score <= 1 for score in scores)


def test_a_learning_rate_that_no_library_has_is_read_off_the_bias(digits):
    weights, sample = science(2).normal(size=65) * 0.1, digits.private[3]
    after = gradient_step(weights, sample, [-1], loss="logistic", learning_rate=0.0371, bias=True)
    found = recover_with_guesses(weights, after, digits.public, loss="logistic", bias=True)
    assert found.best.source == "read off the bias"
    assert found.best.learning_rate == pytest.approx(0.0371, rel=1e-9)
    assert np.allclose(found.best.sample, sample, atol=1e-9)


def test_settings_that_explain_nothing_give_no_candidate(digits):
    """At a tiny learning rate the sample would be so long that, on the right side, it had no loss."""
    weights, settings = 0.3 * digits.public.mean(axis=0), [Setting("tiny", 1e-9, Penalty())]
    for label, left in ((-1, 2), (1, 0)):
        after = gradient_step(weights, digits.private[0], [label], loss="hinge", learning_rate=0.1)
        found = recover_with_guesses(weights, after, digits.public, loss="hinge", settings=settings)
        assert len(found.candidates) == left
    assert found.reason == "no setting explains the step."


def test_public_samples_look_plausible_and_others_do_not(digits):
    look = PublicLook.of(digits.public)
    private = np.array([look.plausibility(sample) for sample in digits.private])
    assert np.median(private) > 0.5
    for spoil in (lambda x: -x, lambda x: 2 * x, lambda x: x / 2, lambda x: science(0).permutation(x)):
        spoilt = np.array([look.plausibility(spoil(sample)) for sample in digits.private])
        assert np.mean(spoilt < private) > 0.97


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_most_victims_of_unknown_settings_are_read(digits, loss, bias):
    finding, again = (
        attack_unknown_settings(digits.private, digits.public, loss=loss, bias=bias, victims=25, random_state=3)
        for _ in range(2)
    )
    assert finding.measured.counts[0] >= 24
    assert finding.verdict == "as stated"
    assert finding.measured.low > 0.75
    assert again == finding
