"""A server that reads uploads, and one that chooses the weights: works without noise, fails with noise that is proven.

Noise is deterministic by the name of the test (tests/conftest.py); a sound run is blamed with probability 1e-3.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from blindsight.audit.artefacts import audit_artefact
from blindsight.audit.selective_audit import (
    HOW_TO_RECORD,
    VIEW,
    SelectiveRun,
    Server,
    chosen_weights,
    class_finding,
    member_findings,
    photo_finding,
    play,
)
from blindsight.cli import run
from blindsight.data import load
from blindsight.data.features import Standardiser
from blindsight.errors import CorruptFileError, InputError
from blindsight.selective.accounting import compose_sharing, sharing_statement
from blindsight.selective.protection import Sharing, calibrate_participant, calibrate_record
from blindsight.selective.timeline import Photos
from blindsight.selective.trainers import SoftmaxTrainer

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
        assert classes.measured.value < 0.95
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


def test_encrypted_sums_are_counted_all_the_same(photos, server):
    """The sum of eight batches: fewer told apart, yet counted exactly."""
    weights = chosen_weights(server, initial(server))
    seen = play(server, photos[0], Sharing(1.0), weights, batch=BATCH, encrypted=True)
    assert {len(one.participants) for one in seen} == {8}
    assert read(class_finding, server, seen, Sharing(1.0)).details["batches counted exactly"] == 1


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


def test_thresholds_in_a_first_layer_draw_photos_of_a_batch_and_of_a_sum():
    """Robbing the Fed: one photo between two thresholds is the difference of two rows."""
    torch = pytest.importorskip("torch")
    from blindsight.selective.trainers import NetworkTrainer

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))
    rng = np.random.default_rng(2)

    def drawn(count):
        return Photos(rng.gamma(2.0, size=(count, WIDTH)).astype(np.float32), rng.integers(0, CLASSES, count))

    server = Server(partial(NetworkTrainer, module, batch=BATCH, learning_rate=0.1), drawn(400), CLASSES)
    few = {f"p{number}": drawn(2 * BATCH) for number in range(3)}
    start = server.make_trainer(record_noise=None).initial()
    shares = {}
    for name, weights, sharing, encrypted in (
        ("given", start, Sharing(1.0), False),
        ("chosen", chosen_weights(server, start), Sharing(1.0), False),
        ("in a sum", chosen_weights(server, start), Sharing(1.0), True),
        ("with noise", chosen_weights(server, start), replace(NOISY["record"], share=1.0), False),
    ):
        seen = play(server, few, sharing, weights, batch=BATCH, encrypted=encrypted)
        shares[name] = read(photo_finding, server, seen, sharing)
    assert shares["chosen"].verdict == shares["in a sum"].verdict == "leaks"
    assert shares["chosen"].measured.value > 0.5
    assert shares["with noise"].measured.value == 0
    assert shares["given"].measured.value < shares["chosen"].measured.value  # some units see one photo by luck


def test_a_recorded_run_is_audited_and_one_without_a_view_is_told_how(tmp_path):
    out = tmp_path / "run"
    asked = ["learn", "selective", "--skew", "0.3", "--days", "2", "--participants", "6", "--out", str(out)]
    assert run([*asked, "--record"]) == 0
    assert (out / VIEW).stat().st_mode & 0o077 == 0
    audit = audit_artefact(out, minutes=0.2, random_state=0)
    rows = {row.claim.partition(":")[0] for row in audit.findings}
    assert rows == {"the weights as learned", "weights that the server chose"}
    assert audit.count("leaks") >= 3
    assert run(asked) == 0  # which takes away what an earlier run recorded
    audit = audit_artefact(out, minutes=0.2, random_state=0)
    untried = [row for row in audit.findings if row.verdict == "not run"]
    assert len(untried) == 3
    assert all(HOW_TO_RECORD.format("selective") in row.measure for row in untried)
    assert {row.claim.partition(":")[0] for row in audit.findings if row not in untried} == {
        "weights that the server chose"
    }
    about = json.loads((out / "selective.json").read_text())
    for damaged in ({"plan": None}, {"plan": about["plan"] | {"participants": None}}, {"sharing": [1]}):
        (out / "selective.json").write_text(json.dumps(about | damaged))
        with pytest.raises(CorruptFileError, match=r"selective\.json"):
            audit_artefact(out, minutes=0.2, random_state=0)
    (out / "selective.json").write_text(json.dumps(about | {"version": 9}))
    with pytest.raises(CorruptFileError, match="version 9"):
        audit_artefact(out, minutes=0.2, random_state=0)


NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.Linear(3 * 8 * 8, classes))
"""


@pytest.fixture
def learn_network(tmp_path):
    """`learn network --record` with a linear layer of one's own; it returns the folder that was written."""
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(NET)

    def learn(*options):
        out = str(tmp_path / "run")
        asked = ["learn", "network", "--model", f"{tmp_path}/net.py:Net", "--record", "--out", out]
        assert run([*asked, *map(str, options)]) == 0
        return Path(out)

    return learn


@pytest.fixture
def sites(tmp_path):
    """Digits of three owners and the public, a folder for each class: the options that name them."""
    digits = load("digits", count=200, random_state=0)
    names, places = ("north", "east", "west", "public"), np.array_split(np.arange(200), 4)
    for name, rows in zip(names, places, strict=True):
        for row in rows:
            picture = tmp_path / name / str(digits.labels[row]) / f"{row}.png"
            picture.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(digits.images[row]).save(picture)
    owners = [word for name in names[:3] for word in ("--owner", f"{name}={tmp_path / name}")]
    return [*owners, "--public", tmp_path / "public", "--side", 8]


@pytest.mark.parametrize("at_sites", [False, True])
def test_of_a_network_every_upload_is_rebuilt_from_the_photos_behind_it(at_sites, learn_network, sites):
    """Local steps, batches that reach from a pass into the next, owners' own folders: the same update comes out."""
    asked = sites if at_sites else ["--data", "digits", "-n", 300, "--owners", 3]
    plain = ["--share", 1, "--decay", 0, "--local-steps", 3, "--passes", 2, "--batch-size", 12]
    run = SelectiveRun.load(learn_network(*asked, *plain))
    seen = run.seen(2.0)
    assert len(seen) == sum(2 * len(own.labels) // 12 for own in run.ready.photos.values())
    for upload in seen:
        assert len(upload.batch.labels) == 12
        np.testing.assert_allclose(
            run.server.step(upload.base, upload.batch), upload.update.dense(), rtol=1e-3, atol=1e-6
        )
    for name, own in run.ready.photos.items():
        compared = [upload.later is not None for upload in seen if upload.participants == (name,)]
        assert sum(compared) == len(own.labels) // 12 - 1  # those of the first pass, but for its last
        assert compared == sorted(compared, reverse=True)


@pytest.mark.parametrize(
    ("noise", "found"),
    [
        ([], {"leaks"}),
        (["--scheme", "masks"], {"leaks"}),
        (["--epsilon", 1, "--delta", 1e-5, "--unit", "record"], {"at chance", "not refuted"}),
        (["--epsilon", 1, "--delta", 1e-5, "--unit", "participant"], {"at chance", "not refuted"}),
        (["--epsilon", 1, "--delta", 1e-5, "--unit", "participant", "--scheme", "masks"], {"at chance", "not refuted"}),
    ],
)
@pytest.mark.filterwarnings("ignore::blindsight.selective.estimator.SwampedWarning")
def test_uploads_of_a_network_show_photos_members_and_classes_unless_there_is_noise(
    noise, found, learn_network, tmp_path
):
    few = ["--data", "digits", "-n", 120, "--owners", 3, "--batch-size", 1, "--share", 1]
    folder = learn_network(*few, *noise)
    assert (folder / VIEW).stat().st_mode & 0o077 == 0
    assert run(["audit", str(folder), "--minutes", "0.2", "--out", str(tmp_path / "audit")]) == 0
    rows = json.loads((tmp_path / "audit" / "audit.json").read_text())["findings"]
    assert {row["verdict"] for row in rows} == found
    assert len(rows) == 6


def test_of_a_network_run_what_changed_or_is_missing_gets_a_sentence(learn_network, sites, tmp_path):
    folder = learn_network(*sites, "--batch-size", 8)

    def reasons():
        audit = audit_artefact(folder, minutes=0.2, random_state=0)
        return {row.measure.partition(" tried: ")[2] for row in audit.findings if row.verdict == "not run"}

    assert reasons() == set()
    with pytest.raises(InputError, match="no --data"):
        audit_artefact(folder, minutes=0.2, random_state=0, data=load("digits"))
    module = tmp_path / "net.py"
    module.rename(tmp_path / "away.py")
    (sentence,) = reasons()
    assert "net.py" in sentence
    module.write_text(NET.replace("3 * 8 * 8, classes", "3 * 8 * 8, 7), nn.Linear(7, classes"))
    (sentence,) = reasons()
    assert "parameters" in sentence
    (tmp_path / "away.py").rename(module)
    picture = next((tmp_path / "east").rglob("*.png"))
    kept = picture.read_bytes()
    Image.new("RGB", (8, 8), "white").save(picture)
    (sentence,) = reasons()  # of the uploads that were recorded; of chosen weights there is no need of it
    assert "east" in sentence
    picture.write_bytes(kept)
    for public in (tmp_path / "public").rglob("*.png"):
        Image.fromarray(255 - np.asarray(Image.open(public))).save(public)
    (sentence,) = reasons()
    assert "own pictures" in sentence
    (folder / VIEW).write_bytes((folder / VIEW).read_bytes()[:-9])
    with pytest.raises(CorruptFileError, match=VIEW):
        reasons()
    (folder / VIEW).unlink()
    assert HOW_TO_RECORD.format("network") in reasons()


def test_what_cannot_be_attacked_gets_a_sentence(photos, server):
    once = {name: Photos(own.inputs[:BATCH], own.labels[:BATCH]) for name, own in photos[0].items()}
    seen = play(server, once, PLAIN, initial(server), batch=BATCH)
    for attack in (member_findings, photo_finding):
        with pytest.raises(InputError, match="two uploads"):
            read(attack, server, seen, PLAIN)
    assert read(class_finding, server, seen[:3], PLAIN).verdict == "undecided"
