"""Uploads of one photo show it, and honest noise hides it."""

import numpy as np
import pytest

from blindsight.audit.recovery import RECOVERED, cosine
from blindsight.data.features import Standardiser
from blindsight.learn.protection import RecordGaussian, calibrate_record
from blindsight.papers.selective.gradients import recover_layer_input
from blindsight.papers.selective.noise import ParticipantGaussian, Sharing, calibrate_participant
from blindsight.papers.selective.protocol import ParameterServer, Participant
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.rng import seeded_bytes

AS_IS = Standardiser(np.zeros(64), np.ones(64))  # the photo itself is the first layer's input


def softmax(noise, source):
    return SoftmaxTrainer(
        standardiser=AS_IS, classes=10, learning_rate=0.05, batch=1, record_noise=noise, source=source
    )


def network(noise, source):
    torch = pytest.importorskip("torch")
    if noise is not None:
        pytest.importorskip("opacus")
    from blindsight.learn.training import NetworkTrainer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Sigmoid(), torch.nn.Linear(16, 10))
    return NetworkTrainer(module, learning_rate=0.05, batch=1, record_noise=noise, source=source)


def uploaded(make_trainer, digits, number, sharing, seed=0):
    """Let a participant train on one photo and return the update that the server receives."""
    source = seeded_bytes(seed)
    trainer = make_trainer(sharing.noise if isinstance(sharing.noise, RecordGaussian) else None, source)
    received = []
    server = ParameterServer(trainer.initial(), record=received.append)
    ann = Participant("ann", trainer, sharing, batch=1, random_state=0, source=source)
    ann.gather(digits.pictures[number].reshape(1, -1).astype(np.float32), digits.labels[number : number + 1])
    ann.take(server.answer(), server.version)
    server.receive(ann.train())
    return received[-1].update, trainer.layout


@pytest.mark.parametrize("make_trainer", [softmax, network])
@pytest.mark.parametrize("number", range(3))
def test_a_dense_upload_of_one_photo_is_the_photo(digits, make_trainer, number):
    """Exactly, up to single precision: values are float32, whose changes of a parameter are rounded to 2^-24 of it."""
    update, layout = uploaded(make_trainer, digits, number, Sharing(1.0))
    found = recover_layer_input(update, layout)
    truth = digits.pictures[number].ravel()
    assert found.known.all()
    assert found.scaled
    assert found.explained == pytest.approx(1)
    np.testing.assert_allclose(found.sample, truth, atol=1e-3)
    assert cosine(found.sample, truth) > 1 - 1e-7


NOISY = {
    "participant, epsilon 8": lambda: calibrate_participant(epsilon=8.0, delta=1e-5, uploads=1, clip=0.5),
    "participant, epsilon 1": lambda: calibrate_participant(epsilon=1.0, delta=1e-5, uploads=74, clip=0.5),
    "record, epsilon 1": lambda: calibrate_record(epsilon=1.0, delta=1e-5, steps=1, clip=1.0),
}


@pytest.mark.parametrize("make_trainer", [softmax, network])
@pytest.mark.parametrize("name", NOISY)
def test_with_honest_noise_the_photo_is_not_recovered(digits, make_trainer, name):
    """All noise is seeded: the test gives the same every time. No photo is recovered, and on average nothing is seen.

    A vector of 64 numbers that knows nothing has a |cosine| of 0.1 with the truth on average, and above 0.6 with
    probability below 1e-6.
    """
    cosines = []
    for number in range(5):
        update, layout = uploaded(make_trainer, digits, number, Sharing(1.0, noise=NOISY[name]()), seed=number)
        found = recover_layer_input(update, layout)
        cosines.append(abs(cosine(found.sample, digits.pictures[number].ravel())))
    assert max(cosines) < 0.6 < RECOVERED


def test_it_is_the_noise_that_protects_and_not_the_clipping(digits):
    """With hardly any of it the photo is there again, only shortened."""
    sharing = Sharing(1.0, noise=ParticipantGaussian(clip=0.5, noise_multiplier=1e-4))
    update, layout = uploaded(softmax, digits, 0, sharing)
    assert cosine(recover_layer_input(update, layout).sample, digits.pictures[0].ravel()) > RECOVERED
