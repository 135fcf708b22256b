"""What is wrong with a command is said before a picture is read; --check says it, or that nothing is, and ends."""

import pytest
from PIL import Image

from blindsight.cli import app

PROVEN = ["--epsilon", 4, "--delta", 1e-5, "--unit", "record"]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder of pictures that must not be opened."""

    def fail(*_, **__):
        raise AssertionError("a picture was read")

    monkeypatch.setattr("blindsight.data.readers.read_images", fail)
    for site in ("public", "north", "east", "west"):
        for kind in ("a", "b"):
            (tmp_path / "photos" / site / kind).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / "photos" / site / kind / "1.png")
    monkeypatch.chdir(tmp_path / "photos")
    return tmp_path / "photos"


LEARN = ["learn", "classifier", "--owner", "n=north", "--owner", "e=east", "--owner", "w=west", "--public", "public"]
BUILD = ["search", "build", "north", "--epsilon", 4, "--public", "public"]
SIFT = ["sift", "fit", "--path", "north", "--public", "smiling", "--private", "male"]
DATA = ["federation", "data", "public", "--public", "--agreed", "agreed.npz", "--out", "public.npz"]
CLUSTER = ["learn", "cluster", "--path", "north"]


@pytest.mark.parametrize("words", [LEARN, LEARN + PROVEN, BUILD, SIFT, DATA, CLUSTER], ids=lambda w: " ".join(w[:2]))
def test_check_reads_no_picture_and_writes_nothing(words, photos, blindsight):
    before = sorted(photos.rglob("*"))
    assert blindsight(*words, "--check", "--json").document == {"checked": True}
    assert sorted(photos.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([*LEARN, "--epsilon", "inf", "--delta", 1e-5, "--unit", "record"], "--epsilon"),
        ([*LEARN, "--epsilon", -1, "--delta", 1e-5, "--unit", "record"], "--epsilon"),
        ([*LEARN, "--epsilon", 1e9, "--delta", 1e-5, "--unit", "record"], "epsilon"),
        ([*LEARN, "--epsilon", 1, "--delta", 1, "--unit", "record"], "--delta"),
        ([*LEARN, *PROVEN, "--drop-outs", 2], "drop out"),
        ([*LEARN, *PROVEN, "--resume"], "--resume"),
        ([*LEARN, *PROVEN, "--record"], "--record"),
        ([*LEARN, "--scheme", "mask"], "masks"),
        ([*LEARN, "--features", "embeding"], "embedding"),
        ([*LEARN, "--features", "no.onnx"], "no.onnx"),
        ([*LEARN, "--out", "/proc/nothing"], "/proc/nothing"),
        ([*LEARN, *PROVEN, "--ledger", "north"], "--ledger"),
        ([*LEARN[:-1], "nowhere"], "nowhere"),
        ([*CLUSTER[:-1], "nowhere"], "nowhere"),
        (["learn", "classifier", "--data", "digit"], "digits"),
        ([*BUILD, "--budget", "inf"], "--budget"),
        ([*BUILD[:3], "--mode", "central", "--epsilon", 1, "--delta", 2], "--delta"),
        ([*BUILD, "--ledger", "/proc/nothing/ledger"], "/proc/nothing"),
        ([*SIFT, "--threshold", 0.7], "threshold"),
        ([*SIFT, "--features", "/proc/no.onnx"], "no.onnx"),
        (["learn", "network", "--model", "net.py:Net", "--path", "north", "--clip", 0], "--clip"),
    ],
)
@pytest.mark.parametrize("only", [["--check"], []], ids=["check", "work"])
def test_what_is_wrong_is_said_before_a_picture_is_read(words, named, only, photos, blindsight):
    said = blindsight(*words, *only, code=(1, 2)).err
    assert named in said
    assert "unexpected" not in said


@pytest.mark.parametrize(
    ("words", "library", "extra"),
    [
        ([*LEARN, "--features", "embedding"], "efficientnet_lite_pytorch", "deep"),
        ([*LEARN, "--scheme", "bfv"], "tenseal", "he"),
        ([*LEARN, "--features", "some.onnx"], "onnxruntime", "onnx"),
        ([*BUILD, "--features", "embedding"], "torch", "deep"),
        ([*SIFT, "--features", "embedding"], "torch", "deep"),
        ([*DATA, "--features", "embedding"], "torch", "deep"),
        (["federation", "run", "--home", "h", "--public", "p.npz", "--out", "o", "--scheme", "bfv"], "tenseal", "he"),
    ],
)
def test_a_missing_extra_is_named_before_a_picture_is_read(words, library, extra, photos, blindsight, monkeypatch):
    monkeypatch.setattr("blindsight.extras.find_spec", lambda module: None if module == library else module)
    said = blindsight(*words, code=1).err
    assert library in said
    assert f"pip install '.[{extra}]'" in said


def test_commands_that_read_pictures_and_work_long_can_check():
    names = {"learn": ["classifier", "network", "cluster"], "search": ["build"], "sift": ["fit", "verify"]}
    for verb, commands in (names | {"federation": ["data"]}).items():
        for name in commands:
            assert "check" in [part.name for part in app.commands[verb].commands[name].params]
