"""A data-dependent failure: a server that chooses its weights learns nothing from whether or how training fails."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blindsight.data.features import Standardiser
from blindsight.errors import BlindsightError, InputError
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.noise import Laplace, ParticipantGaussian, Sharing, SparseUpdate
from blindsight.papers.selective.protocol import LARGEST_PARAMETER, Participant
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.rng import seeded_bytes

FEATURES, BATCH = 4, 6
NOISES = {
    "record": RecordGaussian(clip=1.0, noise_multiplier=1.0),
    "participant": ParticipantGaussian(clip=1.0, noise_multiplier=1.0),
    "value": Laplace(epsilon=1.0),
    "none": None,
}
PHOTOS = np.random.default_rng(0).uniform(-1, 1, (BATCH, FEATURES)).astype(np.float32), np.arange(BATCH) % 2
NUMBERS = [0.0, 1e-45, -1e-38, 1.0, LARGEST_PARAMETER, -LARGEST_PARAMETER, 1.1 * LARGEST_PARAMETER, 3e38, -3e38]


def softmax(noise, scale=1.0):
    standardiser = Standardiser(np.zeros(FEATURES), np.full(FEATURES, scale))
    return SoftmaxTrainer(
        standardiser=standardiser, classes=2, learning_rate=0.1, batch=4, record_noise=noise, source=seeded_bytes(2)
    )


def network(noise):
    pytest.importorskip("torch")
    from blindsight.learn.modules import head
    from blindsight.learn.training import NetworkTrainer

    return NetworkTrainer(head(FEATURES, 2), batch=4, record_noise=noise, source=seeded_bytes(2))


TRAINERS = {"softmax": softmax, "network": network}


def seen(make, unit, weights, photos):
    """Return all that a server sees of a participant to which it hands out weights, twice: errors or places."""
    noise = NOISES[unit]
    sharing = Sharing(0.5, select="random", noise=noise, residual=True, bound=1.0 if unit == "value" else None)
    trainer = make(noise if unit == "record" else None)
    ann = Participant("ann", trainer, sharing, batch=BATCH, random_state=1, source=seeded_bytes(3))
    ann.gather(*photos)
    ann.gather(*PHOTOS)
    handed_out, views = SparseUpdate(weights.size, np.arange(weights.size), weights), []
    for version in range(2):
        try:
            ann.take(handed_out, version)
            views.append(ann.train().update.indices.tolist())
            ann.settle(added=False)
        except BlindsightError as error:
            views.append((type(error), str(error)))
    return views


def with_photo(number):
    rows = PHOTOS[0].copy()
    rows[3] = number
    return rows, PHOTOS[1]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("make", TRAINERS.values(), ids=TRAINERS)
@pytest.mark.parametrize("unit", ["record", "participant", "value"])
@settings(max_examples=25, deadline=None)
@given(
    weights=arrays(np.float32, 2 * FEATURES + 2, elements=st.sampled_from(NUMBERS).map(np.float32)),
    number=st.sampled_from([0.0, 1.2, 1e-45, 1e30, 3e38, -3e38]),
)
def test_success_and_size_of_a_message_never_depend_on_one_photo(make, unit, weights, number):
    assert seen(make, unit, weights, PHOTOS) == seen(make, unit, weights, with_photo(number))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("make", TRAINERS.values(), ids=TRAINERS)
@pytest.mark.parametrize("unit", NOISES)
def test_a_data_dependent_failure(make, unit):
    weights = np.zeros(2 * FEATURES + 2, dtype=np.float32)
    weights[2] = LARGEST_PARAMETER
    without, photo = (seen(make, unit, weights, photos) for photos in (PHOTOS, with_photo(1e36)))
    assert (without == photo) is (unit != "none")  # where nothing is promised, the attack works
    weights[2] = 3e38
    without, photo = (seen(make, unit, weights, photos) for photos in (PHOTOS, with_photo(1.2)))
    assert without == photo
    assert "1,048,576" in str(without)


@pytest.mark.parametrize("scale", [1.0, 0.0, 1e-300, 5e-324])
@pytest.mark.parametrize("weight", [3e38, 0.0])
def test_a_photo_that_is_not_finite_counts_as_zero_among_the_same_number(scale, weight):
    """The server chooses how photos are scaled too."""
    trained = []
    for number in (3e38, -3e38):
        head = softmax(NOISES["record"], scale)
        weights = np.full(head.layout.dimension, weight, dtype=np.float32)
        weights[0] = -weight
        trained.append(head.train(weights, np.full_like(PHOTOS[0], number), PHOTOS[1], 0))
    assert np.isfinite(trained).all()
    if weight or scale != 1:
        np.testing.assert_array_equal(*trained)  # nothing but the noise


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("make", TRAINERS.values(), ids=TRAINERS)
def test_a_class_that_the_model_does_not_have_counts_as_zero_under_noise(make):
    rows, labels = PHOTOS[0][:4].copy(), PHOTOS[1][:4]
    start, trained = make(None).initial(), []
    for label, photo in ((9, 0.5), (2, -7.0)):
        rows[3] = photo
        trained.append(make(NOISES["record"]).train(start, rows, np.where(np.arange(4) == 3, label, labels), 0))
    np.testing.assert_array_equal(*trained)
    with pytest.raises(InputError, match="2 classes"):
        make(None).train(start, rows, labels + 1, 0)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("make", TRAINERS.values(), ids=TRAINERS)
@pytest.mark.parametrize("unit", NOISES)
def test_a_class_that_the_model_does_not_have_is_refused_as_it_is_gathered(make, unit):
    with pytest.raises(InputError, match="2 classes"):
        seen(make, unit, np.zeros(2 * FEATURES + 2, dtype=np.float32), (PHOTOS[0], PHOTOS[1] + 1))


def test_a_sum_beyond_what_noise_can_be_added_to_is_cut():
    noise = RecordGaussian(clip=1.0, noise_multiplier=1e-4)
    released = noise.release(np.array([1e300, -1e300, 0.5]), seeded_bytes(4))
    assert np.isfinite(released).all()
    assert released[0] == pytest.approx(-released[1], rel=1e-3)
    assert released[2] == pytest.approx(0.5, abs=1e-3)
