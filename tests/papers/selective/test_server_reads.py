"""A server that reads uploads, and one that chooses the weights: works without noise, fails with noise that is proven.

Noise is deterministic by the name of the test (tests/conftest.py); a sound run is blamed with probability 1e-3.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from blindsight.audit.network_audit import Server, chosen_weights, class_finding, member_findings, photo_finding
from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.learn.protection import calibrate_record
from blindsight.papers.selective.cost import compose_sharing, sharing_statement
from blindsight.papers.selective.days import Photos
from blindsight.papers.selective.noise import Sharing, calibrate_participant
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.papers.selective.uploads import play

CLASSES, WIDTH, BATCH = 4, 24, 16


@pytest.fixture(scope="module")
def photos():
    """Eight participants, each with one class for the most part."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, WIDTH))

    def drawn(labels):
        return Photos((centres[labels] + rng.normal(size=(len(labels), WIDTH))).astype(np.float32), labels)

    own = {
        f"p{number}": drawn(
            rng.choice(CLASSES, 6 * BATCH, p=np.where(np.arange(CLASSES) == number % CLASSES, 0.7, 0.1))
        )
        for number in range(8)
    }
    return own, drawn(np.arange(40) % CLASSES)


@pytest.fixture(scope="module")
def server(photos):
    unit = Standardiser(np.zeros(WIDTH, dtype=np.float32), np.ones(WIDTH, dtype=np.float32))
    make = partial(SoftmaxTrainer, standardiser=unit, classes=CLASSES, learning_rate=0.1)
    return Server(make, photos[1], CLASSES)


PLAIN = Sharing(0.25)
NOISY = {
    "record": Sharing(0.25, noise=calibrate_record(epsilon=1.0, delta=1e-5, steps=1, clip=1.0)),
    "participant": Sharing(
        0.25, select="random", noise=calibrate_participant(epsilon=1.0, delta=1e-5, uploads=6, clip=1.0)
    ),
}


def stated(sharing, server, uploads=6):
    return sharing_statement(compose_sharing(sharing, dimension=server.layout.dimension, uploads=uploads, delta=1e-5))


def initial(server):
    return 0.1 * np.random.default_rng(1).normal(size=server.layout.dimension).astype(np.float32)


def read(attack, server, seen, sharing):
    return attack(server, seen, weights="these weights", statement=stated(sharing, server))


def test_classes_and_members_are_read_in_uploads_without_noise(photos, server):
    seen = play(server, photos[0], PLAIN, initial(server), batch=BATCH)
    classes, members = read(class_finding, server, seen, PLAIN), read(member_findings, server, seen, PLAIN)
    assert classes.verdict == "leaks"
    assert classes.measured.value > 0.9
    assert members[-1].verdict == "leaks"
    assert members[-1].measured.value > 0.6
    assert read(photo_finding, server, seen, PLAIN).verdict == "not refuted"  # sixteen at once


@pytest.mark.parametrize("noise", NOISY)
def test_noise_hides_what_it_is_made_for_also_from_a_server_that_chooses_weights(photos, server, noise):
    """Noise per record hides who was in a batch; what all of a participant's have in common it may show, as stated."""
    sharing = NOISY[noise]
    for weights in (initial(server), chosen_weights(server, initial(server))):
        seen = play(server, photos[0], sharing, weights, batch=BATCH)
        classes, members = read(class_finding, server, seen, sharing), read(member_findings, server, seen, sharing)
        assert {row.verdict for row in members} <= {"at chance", "not refuted"}
        assert classes.verdict in {"at chance", "as stated" if noise == "record" else "at chance"}
        assert noise == "record" or classes.measured.value < 0.95  # per record it is 0.86, with a deviation of 0.05
        assert classes.source == "the run's statement"


def test_a_server_that_chooses_weights_counts_every_batch_exactly(photos, server):
    sharing = Sharing(1.0)
    found = {}
    for name, weights in {"given": initial(server), "chosen": chosen_weights(server, initial(server))}.items():
        seen = play(server, photos[0], sharing, weights, batch=BATCH, uploads=24)
        found[name] = read(class_finding, server, seen, sharing)
    assert found["chosen"].measured.value > 1 - 1e-6
    assert found["chosen"].details["batches counted exactly"] == 1
    assert found["given"].details["batches counted exactly"] < 1


def test_a_photo_alone_in_its_batch_is_drawn_and_noise_hides_it(photos, server):
    few = {name: Photos(own.inputs[:6], own.labels[:6]) for name, own in photos[0].items()}
    seen = play(server, few, Sharing(1.0), initial(server), batch=1)
    found = read(photo_finding, server, seen, Sharing(1.0))
    assert found.verdict == "leaks"
    assert found.measured.value == 1
    noisy = replace(NOISY["record"], share=1.0)
    found = read(photo_finding, server, play(server, few, noisy, initial(server), batch=1), noisy)
    assert found.verdict == "not refuted"
    assert found.measured.value == 0


def test_thresholds_in_a_first_layer_draw_photos_of_a_batch():
    """Robbing the Fed: one photo between two thresholds is the difference of two rows."""
    torch = pytest.importorskip("torch")
    from blindsight.learn.training import NetworkTrainer

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))
    rng = np.random.default_rng(2)

    def drawn(count):
        return Photos(rng.gamma(2.0, size=(count, WIDTH)).astype(np.float32), rng.integers(0, CLASSES, count))

    server = Server(partial(NetworkTrainer, module, batch=BATCH, learning_rate=0.1), drawn(400), CLASSES)
    few = {f"p{number}": drawn(2 * BATCH) for number in range(3)}
    start = server.make_trainer(record_noise=None).initial()
    shares = {}
    for name, weights, sharing in (
        ("given", start, Sharing(1.0)),
        ("chosen", chosen_weights(server, start), Sharing(1.0)),
        ("with noise", chosen_weights(server, start), replace(NOISY["record"], share=1.0)),
    ):
        seen = play(server, few, sharing, weights, batch=BATCH)
        shares[name] = read(photo_finding, server, seen, sharing)
    assert shares["chosen"].verdict == "leaks"
    assert shares["chosen"].measured.value > 0.5
    assert shares["with noise"].measured.value == 0
    assert shares["given"].measured.value < shares["chosen"].measured.value  # some units see one photo by luck


def test_what_cannot_be_attacked_gets_a_sentence(photos, server):
    once = {name: Photos(own.inputs[:BATCH], own.labels[:BATCH]) for name, own in photos[0].items()}
    seen = play(server, once, PLAIN, initial(server), batch=BATCH)
    for attack in (member_findings, photo_finding):
        with pytest.raises(InputError, match="to compare"):
            read(attack, server, seen, PLAIN)
    assert read(class_finding, server, seen[:3], PLAIN).verdict == "undecided"
