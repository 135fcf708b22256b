"""What every trainer does, the softmax head of numpy and a network of torch alike."""

import numpy as np
import pytest

from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.learn.protection import RecordGaussian
from blindsight.learn.training import NetworkTrainer
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.rng import seeded_bytes

CLASSES, FEATURES = 3, 5
RNG = np.random.default_rng(0)
ROWS, LABELS = RNG.normal(2, 3, size=(20, FEATURES)).astype(np.float32), RNG.integers(CLASSES, size=20)
SCALES = Standardiser.fit(ROWS)
NOISE = RecordGaussian(clip=1.0, noise_multiplier=1.0)


def softmax(**options):
    return SoftmaxTrainer(**{"standardiser": SCALES, "classes": CLASSES, "learning_rate": 0.05} | options)


def network(**options):
    pytest.importorskip("torch")
    from blindsight.learn.modules import head

    return NetworkTrainer(head(FEATURES, CLASSES, standardiser=SCALES), **options)


pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.parametrize("make", [softmax, network])]


def trained(trainer, seed=0, **changes):
    right = {"parameters": trainer.initial(), "inputs": ROWS, "labels": LABELS, "seed": seed}
    return trainer.train(**right | changes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs"),
        ({"batch": 0}, "batch"),
        ({"batch": 2.5}, r"2\.5"),
        ({"decay": -1.0}, "decay"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate"),
    ],
)
def test_training_that_cannot_be_is_refused(make, options, words):
    with pytest.raises(InputError, match=words):
        make(**options)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": LABELS[:19]}, "20 photos"),
        ({"labels": LABELS / 2}, "float64"),
        ({"labels": LABELS + 1}, "3 classes"),
        ({"labels": LABELS - 1}, "negative"),
        ({"parameters": np.zeros(7, np.float32)}, r"18 .*\(7,\)"),
        ({"inputs": ROWS[:, :4]}, "4"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_data_is_refused_and_loses_nothing(make, change, words):
    one, two = make(decay=0.5), make(decay=0.5)
    assert np.array_equal(trained(one), trained(two))
    with pytest.raises(InputError, match=words):
        trained(one, **change)
    assert np.array_equal(trained(one), trained(two))


def test_the_seed_gives_the_order_of_photos_and_the_source_the_noise(make):
    def bits(seed, source=None):
        options = {} if source is None else {"record_noise": NOISE, "source": source}
        return trained(make(batch=8, **options), seed).tobytes()

    assert bits(0) == bits(0) != bits(1)
    assert bits(0, seeded_bytes(1)) == bits(0, seeded_bytes(1)) != bits(0, seeded_bytes(2))
    private = make(record_noise=NOISE, source=seeded_bytes(1))
    assert (trained(private) != trained(private)).all()  # fresh in every training


def test_with_hardly_any_noise_and_a_generous_clip_it_is_plain_training(make):
    noise = RecordGaussian(clip=20.0, noise_multiplier=1e-4)  # 1e-4 on every number of the mean gradient
    plain, private = make(epochs=4), make(epochs=4, record_noise=noise)
    assert np.abs(trained(plain) - plain.initial()).max() > 0.02
    np.testing.assert_allclose(trained(private), trained(make(epochs=4)), atol=2e-4)  # 20 deviations


def test_the_rate_decays_with_each_training(make):
    constant, decaying = make(), make(decay=1.0)
    first = trained(decaying)
    np.testing.assert_array_equal(first, trained(constant))
    start = constant.initial()
    np.testing.assert_allclose(trained(decaying) - start, (first - start) / 2, atol=1e-6)
