"""The audit of a network of several members: what is recorded is what the server saw, and noise hides what it shows.

Noise is deterministic by the name of the test (tests/conftest.py); a sound run is blamed with probability 1e-3.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from blindsight.audit.artefacts import audit_artefact, recognise
from blindsight.audit.network_audit import ABOUT_NETWORK, HOW_TO_RECORD, VIEW, NetworkRun, ServerView
from blindsight.cli import run
from blindsight.data import load
from blindsight.errors import CorruptFileError, InputError
from blindsight.learn.network import NetworkModel

NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.Linear(3 * 8 * 8, classes))


class Wide(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.Linear(3 * 8 * 8, 512), nn.ReLU(), nn.Linear(512, classes))
"""


@pytest.fixture
def learn_network(tmp_path):
    """`learn network --record` with a linear layer of one's own; it returns the folder that was written."""
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(NET)

    def learn(*options, net="Net"):
        out = str(tmp_path / "run")
        asked = ["learn", "network", "--model", f"{tmp_path}/net.py:{net}", "--record", "--out", out]
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
def test_a_run_is_rebuilt_from_its_pictures_and_what_was_recorded_is_what_the_server_saw(
    at_sites, learn_network, sites
):
    asked = sites if at_sites else ["--data", "digits", "-n", 300, "--owners", 3]
    folder = learn_network(*asked, "--rounds", 3, "--scheme", "plain")
    assert recognise(folder).kind == "network"
    assert (folder / VIEW).stat().st_mode & 0o077 == 0
    made, view = NetworkRun.load(folder), ServerView.load(folder / VIEW)
    task, members, public, held_out = made._rebuilt
    assert view.models.shape == view.means.shape == (3, task.arrays["first"].size)
    np.testing.assert_array_equal(view.models[0], task.arrays["first"])
    assert [len(marks) for marks in view.marks.values()] == [len(batch.labels) for batch in members.values()]
    learned = NetworkModel.load(folder / "network.npz")
    velocity, weights = 0.0, view.models[0]
    for mean in view.means:
        velocity = 0.9 * velocity + mean
        weights = np.where(mean != 0, weights + velocity, weights)
    state = np.concatenate([value.numpy().ravel() for value in learned.module.state_dict().values()])
    np.testing.assert_allclose(state, weights, atol=1e-6)
    assert len(public.labels)
    assert len(held_out.labels)


PROOF = ["--epsilon", 1, "--delta", 1e-6]


@pytest.mark.parametrize(
    ("noise", "leaks"),
    [
        (["--scheme", "plain"], True),
        (["--scheme", "masks"], True),
        ([*PROOF, "--unit", "record"], False),
        ([*PROOF, "--unit", "member", "--clip", 1], False),
    ],
    ids=["plain", "masks", "record", "member"],
)
@pytest.mark.filterwarnings("ignore::blindsight.learn.accounting.SwampedWarning")
def test_sums_show_photos_and_members_to_a_server_that_chooses_weights_unless_there_is_noise(
    noise, leaks, learn_network, tmp_path
):
    folder = learn_network("--data", "digits", "-n", 300, "--owners", 3, "--rounds", 2, *noise, net="Wide")
    assert run(["audit", str(folder), "--minutes", "0.2", "--out", str(tmp_path / "audit")]) == 0
    rows = json.loads((tmp_path / "audit" / "audit.json").read_text())["findings"]
    found = {row["claim"]: row["verdict"] for row in rows}
    assert ("leaks" in found.values()) is leaks
    assert {"refuted", "not run"}.isdisjoint(found.values())
    chosen = [verdict for claim, verdict in found.items() if claim.startswith("weights that the server chose")]
    assert ("leaks" in chosen) is leaks


def test_a_run_without_a_view_is_told_how_to_record_one(learn_network):
    folder = learn_network("--data", "digits", "-n", 300, "--owners", 3, "--rounds", 1)
    (folder / VIEW).unlink()
    audit = audit_artefact(folder, minutes=0.2, random_state=0)
    untried = [row for row in audit.findings if row.verdict == "not run"]
    assert len(untried) == 2
    assert all(HOW_TO_RECORD in row.measure for row in untried)
    about = json.loads((folder / ABOUT_NETWORK).read_text())
    for damaged in ({"network": None}, {"network": about["network"] | {"sums": None}}, {"owners": "three"}):
        (folder / ABOUT_NETWORK).write_text(json.dumps(about | damaged))
        with pytest.raises(CorruptFileError, match=r"network\.json"):
            audit_artefact(folder, minutes=0.2, random_state=0)
    (folder / ABOUT_NETWORK).write_text(json.dumps(about | {"version": 9}))
    with pytest.raises(CorruptFileError, match="version 9"):
        audit_artefact(folder, minutes=0.2, random_state=0)


def test_of_a_network_run_what_changed_or_is_missing_is_named(learn_network, sites, tmp_path):
    folder = learn_network(*sites, "--rounds", 1)

    def reasons():
        audit = audit_artefact(folder, minutes=0.2, random_state=0)
        return {row.measure.partition(" tried: ")[2] for row in audit.findings if row.verdict == "not run"}

    assert reasons() == set()
    with pytest.raises(InputError, match="data"):
        audit_artefact(folder, minutes=0.2, random_state=0, data=load("digits"))
    module = tmp_path / "net.py"
    module.rename(tmp_path / "away.py")
    assert any("net.py" in reason for reason in reasons())
    module.write_text(NET.replace("3 * 8 * 8, classes", "3 * 8 * 8, 7), nn.Linear(7, classes"))
    assert any("parameters" in reason for reason in reasons())
    (tmp_path / "away.py").rename(module)
    picture = next((tmp_path / "east").rglob("*.png"))
    kept = picture.read_bytes()
    Image.new("RGB", (8, 8), "white").save(picture)
    assert any("east" in reason for reason in reasons())
    picture.write_bytes(kept)
    for public in (tmp_path / "public").rglob("*.png"):
        Image.fromarray(255 - np.asarray(Image.open(public))).save(public)
    assert any("own pictures" in reason for reason in reasons())
    (folder / VIEW).write_bytes((folder / VIEW).read_bytes()[:-9])
    with pytest.raises(CorruptFileError, match=VIEW):
        reasons()
