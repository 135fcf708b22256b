"""What goes wrong in the middle: a broken file, the wrong folder, Ctrl-C, a full disk, a disk that is only read."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from blindsight.data import load

RUN = [sys.executable, "-c", "import sys; from blindsight.cli import main; main(sys.argv[1:])"]
QUICK = ["-n", 300, "--components", 15, "--owners", 3, "--scheme", "plain"]


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Folders of a public site and three owners, two classes each."""
    root, digits = tmp_path_factory.mktemp("sites"), load("digits")
    rows = [row for row in range(len(digits)) if digits.labels[row] < 2]
    for place, name in enumerate(("public", "north", "east", "west")):
        for row in rows[30 * place : 30 * place + 30]:
            folder = root / name / str(digits.labels[row])
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(digits.images[row]).save(folder / f"{row}.png")
    (root / "north" / "1" / "broken.png").write_bytes(b"\x89PNG")
    return root


def learn(sites, **others):
    paths = {name: sites / name for name in ("north", "east", "west")} | others
    owners = [word for name, path in paths.items() for word in ("--owner", f"{name}={path}")]
    return ["learn", "classifier", *owners, "--public", sites / "public", "--rounds", 2]


def test_an_owners_broken_file_is_said_to_be_the_owners(sites, tmp_path, blindsight):
    said = blindsight(*learn(sites), "--out", tmp_path / "run").err
    (line,) = [line for line in said.splitlines() if "broken.png" in line]
    assert "north: 1/broken.png" in line
    assert "files of public" not in line


@pytest.fixture
def index(sites, tmp_path, blindsight):
    public = ["--public", sites / "public"]
    blindsight("search", "build", sites / "east", *public, "--epsilon", 4, "--out", tmp_path / "index")
    return tmp_path / "index"


def test_what_a_wrong_folder_holds_is_said(sites, index, tmp_path, blindsight):
    run = tmp_path / "run"
    blindsight(*learn(sites), "--out", run)
    said = blindsight("learn", "predict", index, sites / "east", code=2).err
    assert "an index" in said
    assert "empty" not in said
    assert "no sift; it holds a classifier" in blindsight("sift", "apply", run, code=2).err
    assert "no sift; it holds an index" in blindsight("sift", "verify", index, code=2).err
    assert "it holds a classifier" in blindsight("search", "show", run, code=2).err
    for words in (["learn", "predict", "nowhere", sites], ["sift", "apply", "nowhere"], ["search", "show", "nowhere"]):
        assert "nowhere" in blindsight(*words, code=1).err


def interrupted(words, line):
    """Start a command, send it Ctrl-C after a line of its output that begins so, and return what it said."""
    started = subprocess.Popen(
        [*RUN, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert any(found.split()[:1] == [line] for found in started.stdout)
    started.send_signal(signal.SIGINT)
    return started.communicate(timeout=60)[1], started.returncode


def test_ctrl_c_ends_a_run_that_can_be_resumed(tmp_path, blindsight):
    asked = ["learn", "classifier", *QUICK, "--out", tmp_path / "run", "--resume"]
    said, code = interrupted([*asked, "--rounds", 100_000], "2")
    assert code == 130
    assert said.splitlines()[-1].startswith("error: interrupted")
    assert "Traceback" not in said
    assert not [*tmp_path.rglob("*.part"), *tmp_path.rglob(".new-*")]
    assert "not finished" in blindsight("learn", "predict", tmp_path / "run", tmp_path, code=2).err
    assert len(blindsight(*asked, "--rounds", 3, "--json").document["history"]) >= 3


def test_a_full_disk_loses_no_training(tmp_path, blindsight, monkeypatch):
    out, rescue = tmp_path / "run", tmp_path / "rescue"
    rescue.mkdir()

    def full(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_relative_to(out) and path.is_file() and "run.json" not in path.name:
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setenv("TMPDIR", str(rescue))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("blindsight.files.os.fsync", full)
    said = blindsight("learn", "classifier", *QUICK, "--rounds", 2, "--out", out, code=1).err
    assert said.count("warning: cannot write") == 2  # the history after each round: learning goes on
    (kept,) = rescue.iterdir()
    assert str(kept) in said.splitlines()[-1]
    assert {"model.npz", "pictures.npz", "statement.json"} <= {file.name for file in kept.iterdir()}
    assert [file.name for file in out.iterdir()] == ["run.json"]
    monkeypatch.undo()
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "new").mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "new" / "one.png")
    blindsight("learn", "predict", kept, tmp_path / "new")


def test_more_classes_than_memory_holds_are_refused_before_learning(tmp_path, blindsight, monkeypatch):
    monkeypatch.setattr("blindsight.cli.learn.free_memory", lambda: 10_000)
    said = blindsight("learn", "classifier", *QUICK, "--out", tmp_path / "run", code=2).err
    assert "10 classes" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", [["learn", "classifier"], ["learn", "cluster"], ["search", "build", "digits"]])
def test_an_output_that_cannot_be_written_is_refused_before_work(verb, blindsight, monkeypatch):
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda: pytest.fail("pictures were read"))
    assert "/proc/1/out" in blindsight(*verb, "--out", Path("/proc/1/out"), code=1).err
