"""The private baselines: the published noise, what it proves, and what they compute without it."""

import math

import dp_accounting
import numpy as np
import pytest

from blindsight.errors import InputError
from blindsight.learn.linear import LinearTraining, train
from blindsight.learn.model import attribute_signs, class_signs, predict
from blindsight.papers.dphe import baselines
from blindsight.papers.dphe.baselines import local_only, pooled, prr10, ra12
from blindsight.rng import seeded_bytes

CLASSES, DIMENSIONS = 3, 5


def owners(sizes=(60, 40, 80), seed=0):
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(CLASSES, DIMENSIONS))
    data = []
    for n in sizes:
        labels = generator.integers(CLASSES, size=n)
        X = centres[labels] + 0.5 * generator.normal(size=(n, DIMENSIONS))
        data.append((X, class_signs(labels, CLASSES)))
    return data


def unit_rows(X, clip):
    scaled = X / clip * np.minimum(1, clip / np.linalg.norm(X, axis=1, keepdims=True))
    return np.column_stack([scaled, np.ones(len(X))]) / math.sqrt(2)


def logistic_minimum(Z, signs, regularisation):
    return np.array([newton(Z * column[:, None], regularisation) for column in signs.T])


def newton(rows, regularisation, left_over=1e-9):
    """Minimise mean(log(1 + exp(-rows @ w))) + regularisation / 2 |w|^2, up to left_over / regularisation in w."""

    def objective(w):
        return np.logaddexp(0, -rows @ w).mean() + regularisation / 2 * w @ w

    w = np.zeros(rows.shape[1])
    for _ in range(100):
        p = 1 / (1 + np.exp(rows @ w))
        gradient = regularisation * w - rows.T @ p / len(rows)
        if np.linalg.norm(gradient) <= left_over:
            return w
        hessian = (rows.T * (p * (1 - p))) @ rows / len(rows) + regularisation * np.eye(len(w))
        step = np.linalg.solve(hessian, gradient)
        while np.linalg.norm(step) > left_over and objective(w - step) > objective(w):
            step /= 2
        w = w - step
    raise AssertionError("Newton's method did not converge")


def mean_of_minima(data, clip, regularisation):
    mean = np.mean([logistic_minimum(unit_rows(X, clip), signs, regularisation) for X, signs in data], axis=0)
    return np.column_stack([mean[:, :-1] / clip, mean[:, -1]]) / math.sqrt(2)


def test_prr10_without_noise_is_the_mean_of_local_logistic_regressions():
    data = owners()
    found = prr10(data, epsilon=1e4, delta=0, clip=2.0, regularisation=0.05, source=seeded_bytes(0))
    np.testing.assert_allclose(found.weights, mean_of_minima(data, 2.0, 0.05), atol=2e-3)


def test_prr10_noise_is_laplace_of_the_published_scale():
    generator = np.random.default_rng(1)
    labels = generator.integers(2, size=(40, 400))  # many attributes: many independent noises
    data = [(generator.normal(size=(40, 4)), attribute_signs(labels)) for _ in range(2)]
    settings = {"delta": 0, "clip": 1.0, "regularisation": 0.5}
    noisy = prr10(data, epsilon=0.2, source=seeded_bytes(1), **settings)
    assert noisy.noise == 2 / (40 * 0.2 * 0.5)
    noise = (noisy.weights - prr10(data, epsilon=1e4, source=seeded_bytes(2), **settings).weights) * math.sqrt(2)
    # |Laplace| is exponential: mean and deviation are the scale. 2000 draws, 6 deviations: false alarms below 1e-6.
    assert np.abs(noise).mean() == pytest.approx(noisy.noise, rel=6 / math.sqrt(noise.size))


def test_prr10_proves_its_epsilon_times_classes_and_root_of_weights_over_owners():
    found = prr10(owners(), epsilon=0.2, delta=0, clip=2.0, regularisation=0.5)
    assert found.statement.epsilon == pytest.approx(0.2 * CLASSES * math.sqrt(DIMENSIONS + 1) / 3, rel=1e-3)
    assert found.statement.status == "proven"
    assert found.statement.claim.claimed == "epsilon = 0.2"
    assert found.statement.claim.why_it_fails is not None


def test_one_record_moves_a_minimum_no_farther_than_the_bound():
    n, regularisation, generator = 12, 0.5, np.random.default_rng(3)
    signs = np.where(np.arange(n) % 2, 1, -1)[:, None]
    distances = []
    for _ in range(50):
        Z = generator.normal(size=(n, 2))
        Z /= np.linalg.norm(Z, axis=1, keepdims=True)
        other = np.vstack([-Z[:1], Z[1:]])
        moved = logistic_minimum(Z, signs, regularisation) - logistic_minimum(other, signs, regularisation)
        distances.append(np.linalg.norm(moved))
    bound = 2 / (n * regularisation)
    assert 0.3 * bound < max(distances) <= bound


def test_ra12_without_noise_descends_to_the_pooled_svm():
    data = owners()
    found = ra12(data, epsilon=1e4, delta=0.05, clip=3.0, regularisation=0.5, rounds=500, source=seeded_bytes(0))
    Z = np.vstack([unit_rows(X, 3.0) for X, _ in data])
    signs = np.vstack([s for _, s in data])
    weights = np.column_stack([found.weights[:, :-1] * 3.0, found.weights[:, -1]]) * math.sqrt(2)

    def objective(w):
        short = np.maximum(1 - signs * (Z @ w.T), 0)
        losses = np.where(short < 0.5, short**2, short - 0.25).mean(axis=0)
        return losses + 0.5 / 2 * (w**2).sum(axis=1)

    nudges = 0.01 * np.random.default_rng(0).normal(size=(50, *weights.shape))
    assert all((objective(weights) <= objective(weights + nudge) + 1e-5).all() for nudge in nudges)
    X = np.vstack([X for X, _ in data])
    assert (predict(found.weights, X) == signs.argmax(axis=1)).mean() > 0.85


def test_ra12_noise_and_its_composition_over_rounds_and_classes():
    data = owners((50, 20))
    found = ra12(data, epsilon=0.2, delta=0.05, clip=1.0, rounds=7)
    textbook = math.sqrt(2 * math.log(1.25 / 0.05)) / 0.2
    assert found.noise == pytest.approx(2 / 20 * textbook)
    one_release_of_all = dp_accounting.GaussianDpEvent(textbook)
    oracle = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    oracle.compose(one_release_of_all, 7 * CLASSES)
    assert found.statement.epsilon == pytest.approx(oracle.get_epsilon(0.05), rel=1e-3)
    assert found.statement.delta == 0.05
    assert found.statement.claim.claimed == "epsilon = 0.2, delta = 0.05"


@pytest.mark.parametrize("method", [prr10, ra12])
def test_without_clipping_nothing_is_proven(method):
    found = method(owners(), epsilon=0.2, delta=0.05, clip=None)
    assert found.statement.epsilon == math.inf
    assert found.statement.status == "unproven"
    assert "clipped" in found.statement.claim.why_it_fails


@pytest.mark.parametrize("method", [prr10, ra12])
def test_seeded_noise_repeats_and_is_void_and_real_noise_does_not(method):
    settings = {"epsilon": 0.2, "delta": 0.05, "clip": 1.0}
    first, second = (method(owners(), source=seeded_bytes(4), **settings) for _ in range(2))
    assert (first.weights == second.weights).all()
    assert first.statement.void
    third, fourth = (method(owners(), **settings) for _ in range(2))
    assert (third.weights != fourth.weights).all()
    assert not third.statement.void


def test_rows_are_no_longer_than_one_and_short_ones_keep_their_proportion():
    X = np.array([[3.0, 4.0], [300.0, 400.0], [0.0, 1e-9]])
    found = baselines._problem(X, attribute_signs([1, 0, 1]), 10.0, "hinge", 0.0).samples
    np.testing.assert_allclose(found, unit_rows(X, 10.0), atol=1e-9)
    np.testing.assert_allclose(found[:2, :2] * math.sqrt(2), [[0.3, 0.4], [0.6, 0.8]], atol=1e-9)
    assert np.linalg.norm(found, axis=1).max() <= 1


def test_a_class_an_owner_never_saw_is_trained_all_the_same():
    data = owners()
    X, signs = data[0]
    data[0] = (X[signs[:, 2] < 0], signs[signs[:, 2] < 0])
    settings = {"delta": 0, "clip": 2.0, "regularisation": 0.1, "source": seeded_bytes(0)}
    alone = prr10([data[0]], epsilon=1e4, **settings)
    assert np.linalg.norm(alone.weights[2]) > 0.05


def test_pooled_and_local_only_are_plain_trainings():
    data, training = owners(), LinearTraining(ridge=0.1)
    X, signs = np.vstack([X for X, _ in data]), np.vstack([signs for _, signs in data])
    assert (pooled(data, training, random_state=0) == train(X, signs, training, random_state=0)).all()
    alone = local_only(data, training, random_state=0)
    assert len(alone) == 3
    assert (alone[1] == train(*data[1], training, random_state=0)).all()


@pytest.mark.parametrize("method", [prr10, ra12])
def test_bad_parameters_are_refused(method):
    data = owners()
    for wrong in (0.0, -0.2, math.inf, math.nan):
        with pytest.raises(InputError, match="epsilon"):
            method(data, epsilon=wrong, delta=0.05, clip=1.0)
        with pytest.raises(InputError, match="clip"):
            method(data, epsilon=0.2, delta=0.05, clip=wrong)
        with pytest.raises(InputError, match="regularisation"):
            method(data, epsilon=0.2, delta=0.05, clip=1.0, regularisation=wrong)
    with pytest.raises(InputError, match="delta"):
        method(data, epsilon=0.2, delta=1.0, clip=1.0)
    with pytest.raises(InputError, match="owner"):
        method([], epsilon=0.2, delta=0.05, clip=1.0)
    with pytest.raises(InputError, match="same features"):
        method([*data, (np.eye(4), class_signs(np.arange(4) % 3, 3))], epsilon=0.2, delta=0.05, clip=1.0)
    with pytest.raises(InputError, match="finite"):
        method([(np.full((2, 5), np.nan), class_signs([0, 1], 3))], epsilon=0.2, delta=0.05, clip=1.0)


def test_ra12_needs_rounds_and_a_delta():
    with pytest.raises(InputError, match="delta"):
        ra12(owners(), epsilon=0.2, delta=0, clip=1.0)
    with pytest.raises(InputError, match="rounds"):
        ra12(owners(), epsilon=0.2, delta=0.05, clip=1.0, rounds=0)
