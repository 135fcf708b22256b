"""The numpy softmax head: its gradients are right, records are clipped one by one, and noise has the stated scale."""

import numpy as np
import pytest
from scipy.stats import chi2

from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.rng import seeded_bytes

CLASSES, FEATURES = 3, 4


def photos(count, seed=0, features=FEATURES):
    generator = np.random.default_rng(seed)
    return generator.normal(2, 3, size=(count, features)).astype(np.float32), generator.integers(CLASSES, size=count)


def trainer(rows, **options):
    settings = {"standardiser": Standardiser.fit(rows), "classes": CLASSES, "learning_rate": 0.5, "batch": 1000}
    return SoftmaxTrainer(**settings | options)


def parameters(head, seed=1):
    return np.random.default_rng(seed).normal(size=head.layout.dimension).astype(np.float32)


def gradient(head, before, rows, labels):
    """Return the gradient behind one step."""
    return (before - head.train(before, rows, labels, seed=0)) / head.learning_rate


def mean_loss(head, vector, rows, labels):
    """Return the mean cross-entropy, in double precision and without the code under test."""
    weights, bias = vector[: CLASSES * FEATURES].reshape(CLASSES, FEATURES), vector[CLASSES * FEATURES :]
    scaled = (rows.astype(np.float64) - head.standardiser.mean) / head.standardiser.scale
    odds = np.exp(scaled @ weights.T + bias)
    return -np.log(odds[np.arange(len(rows)), labels] / odds.sum(axis=1)).mean()


def test_a_step_follows_the_gradient_of_the_mean_cross_entropy():
    rows, labels = photos(20)
    head = trainer(rows)
    before = parameters(head)
    found = gradient(head, before, rows, labels)
    for place in range(before.size):
        step = np.zeros(before.size)
        step[place] = 1e-5
        slope = (mean_loss(head, before + step, rows, labels) - mean_loss(head, before - step, rows, labels)) / 2e-5
        assert found[place] == pytest.approx(slope, abs=1e-5)


def test_scores_are_those_whose_loss_is_minimised():
    rows, labels = photos(20)
    head = trainer(rows)
    before = parameters(head)
    scores = head.scores(before, rows).astype(np.float64)
    chosen = scores[np.arange(20), labels] - np.log(np.exp(scores).sum(axis=1))
    assert -chosen.mean() == pytest.approx(mean_loss(head, before, rows, labels), rel=1e-5)


def test_passes_are_cut_into_batches_in_an_order_that_the_seed_gives():
    rows, labels = photos(20)
    head = trainer(rows, batch=8, epochs=2)
    before = parameters(head)
    after = head.train(before, rows, labels, seed=7)
    generator, single = np.random.default_rng(7), trainer(rows)
    expected = before
    for _ in range(2):
        order = generator.permutation(20)
        for part in (order[:8], order[8:16], order[16:]):
            expected = single.train(expected, rows[part], labels[part], seed=0)
    np.testing.assert_allclose(after, expected, atol=1e-5)
    assert not np.array_equal(after, head.train(before, rows, labels, seed=8))


def test_each_record_is_clipped_on_its_own():
    rows, labels = photos(20)
    plain = trainer(rows)
    before = parameters(plain)
    clip = 1.0
    alone = [gradient(plain, before, rows[i : i + 1], labels[i : i + 1]) for i in range(20)]
    lengths = np.linalg.norm(alone, axis=1)
    assert (lengths < clip).any()
    assert (lengths > clip).any()
    expected = np.mean([g * min(1, clip / length) for g, length in zip(alone, lengths, strict=True)], axis=0)
    quiet = RecordGaussian(clip, noise_multiplier=1e-4)
    found = gradient(trainer(rows, record_noise=quiet, source=seeded_bytes(0)), before, rows, labels)
    np.testing.assert_allclose(found, expected, atol=8 * 1e-4 * clip / 20)  # eight deviations: once in 10^14


def test_noise_on_the_sum_of_a_batch_has_the_stated_scale():
    rows, labels = photos(25, features=1000)
    noise = RecordGaussian(clip=0.5, noise_multiplier=3.0)
    plain = trainer(rows, record_noise=RecordGaussian(clip=0.5, noise_multiplier=1e-4))
    noisy = trainer(rows, record_noise=noise, source=seeded_bytes(1))
    before = parameters(plain)
    difference = gradient(noisy, before, rows, labels) - gradient(plain, before, rows, labels)
    statistic = float(((difference * 25 / (0.5 * 3.0)) ** 2).sum())
    low, high = chi2.ppf([5e-7, 1 - 5e-7], difference.size)  # false alarms: 1e-6
    assert low < statistic < high


def test_a_head_of_one_class_is_refused():
    with pytest.raises(InputError, match="classes"):
        trainer(photos(5)[0], classes=1)


@pytest.mark.parametrize(("noise", "rate"), [(None, 1e38), (RecordGaussian(clip=1.0, noise_multiplier=1.0), 1e39)])
def test_training_that_diverges_says_so(noise, rate):
    rows, labels = photos(8)
    scales = Standardiser(np.zeros(FEATURES), np.full(FEATURES, 1e-3))
    head = trainer(rows, standardiser=scales, learning_rate=rate, epochs=3, record_noise=noise)
    with pytest.raises(InputError, match="diverged"):
        head.train(head.initial(), rows, labels, seed=0)  # and no warning, which would be an error here
