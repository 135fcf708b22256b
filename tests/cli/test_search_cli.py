"""`blindsight search` as a stranger meets it: build, ask, measure, compare; and what a folder gives away."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from blindsight.cli import run
from blindsight.data import load

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of digits, a subfolder per class, under names of their own."""
    digits = load("digits", count=240, random_state=2)
    assert digits.images is not None
    assert digits.labels is not None
    for row, (image, label) in enumerate(zip(digits.images, digits.labels, strict=True)):
        folder = tmp_path / "pictures" / f"digit {label}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.repeat(4, axis=0).repeat(4, axis=1)).save(folder / f"picture {row}.png")
    return tmp_path / "pictures"


def build(out: Path, *options: str) -> list[str]:
    return ["search", "build", "digits", "-n", "600", "--hold-out", "50", "--out", str(out), "--json", *options]


@pytest.mark.parametrize(
    ("options", "proven", "least"),
    [
        (("--mode", "local", "--epsilon", "8", "--public-share", "0.5"), 8.0, 0.25),
        (("--mode", "central", "--epsilon", "8", "--bits", "32"), 8.0, 0.15),
        (("--mode", "open", "--bits", "32"), "infinity", 0.3),
    ],
)
def test_build_ask_and_measure(
    tmp_path: Path, capsys: Capture, options: tuple[str, ...], proven: float | str, least: float
) -> None:
    index = tmp_path / "index"
    assert run(build(index, *options)) == 0
    built = json.loads(capsys.readouterr().out)
    assert built["statement"]["epsilon"] == proven
    digits = load("digits", count=600)
    assert digits.images is not None
    Image.fromarray(digits.images[0]).save(tmp_path / "query.png")
    asked = ["search", "query", str(index), str(tmp_path / "query.png"), "-k", "5"]
    assert run([*asked, "--sheet", str(tmp_path / "sheet.png"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [answer["rank"] for answer in found["answers"]] == [1, 2, 3, 4, 5]
    assert len({answer["number"] for answer in found["answers"]}) == 5
    assert np.asarray(Image.open(tmp_path / "sheet.png")).std() > 10
    assert run(["search", "evaluate", str(index), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["queries"] == 50
    assert measured["mean_average_precision"] > least


def test_folder_of_pictures_is_known_by_name(tmp_path: Path, pictures: Path, capsys: Capture) -> None:
    asked = ["search", "build", str(pictures), "--mode", "open", "--bits", "16", "--out", str(tmp_path / "index")]
    assert run(asked) == 0
    query = next(pictures.rglob("*.png"))
    assert run(["search", "query", str(tmp_path / "index"), str(query), "--sheet", str(tmp_path / "a.png")]) == 0
    out = capsys.readouterr().out
    assert query.name in out  # the picture itself is among the nearest
    assert "Nothing is proven" in out
    assert run(["search", "evaluate", str(tmp_path / "index"), str(pictures), "-n", "40"]) == 0
    assert "mAP" in capsys.readouterr().out


def test_answers_without_pictures(tmp_path: Path, pictures: Path, capsys: Capture) -> None:
    asked = ["search", "build", str(pictures), "--mode", "open", "--bits", "16", "--out", str(tmp_path / "index")]
    assert run(asked) == 0
    query = tmp_path / "query.png"
    Image.new("RGB", (40, 40), "white").save(query)
    pictures.rename(tmp_path / "elsewhere")
    assert run(["search", "query", str(tmp_path / "index"), str(query), "--sheet", str(tmp_path / "a.png")]) == 0
    assert "nothing is drawn" in capsys.readouterr().out
    assert not (tmp_path / "a.png").exists()


def test_compare_names_claim_and_proof(tmp_path: Path, capsys: Capture) -> None:
    asked = ["search", "compare", "-n", "500", "--queries", "40", "--epsilons", "1,4", "--bits", "16"]
    assert run([*asked, "--out", str(tmp_path), "--methods", "ITQ; PHashing (ITQ); codebook"]) == 0
    out = capsys.readouterr().out
    assert "epsilon = 4" in out  # claimed
    assert "nothing" in out  # proven of it
    page = (tmp_path / "report.html").read_text()
    assert "Searching without showing" in page
    assert "which does not hold" in page


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--mode", "local"], "needs --epsilon"),
        (["--mode", "local", "--epsilon", "4"], "--public"),
        (["--mode", "local", "--epsilon", "0", "--public-share", "0.5"], "epsilon must be positive"),
        (["--mode", "open", "--epsilon", "4"], "no epsilon"),
        (["--mode", "open", "--features", "pixels"], "learned from pictures"),
        (["--mode", "central", "--epsilon", "1", "--public-share", "0.5"], "does not use public"),
        (["--mode", "local", "--epsilon", "1", "--public-share", "2"], "public share"),
        (["--mode", "central", "--epsilon", "1", "--hold-out", "1000"], "leave none to index"),
    ],
)
def test_wishes_that_cannot_be_met(tmp_path: Path, capsys: Capture, options: list[str], sentence: str) -> None:
    assert run(["search", "build", "digits", "-n", "200", "--out", str(tmp_path / "index"), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "index" / "gallery.json").exists()


def test_what_is_no_index(tmp_path: Path, capsys: Capture) -> None:
    assert run(["search", "evaluate", str(tmp_path)]) == 2
    assert "holds no gallery" in capsys.readouterr().err
    assert run(build(tmp_path / "index", "--mode", "open", "--bits", "8")) == 0
    damaged = tmp_path / "index" / "index.bin"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    capsys.readouterr()
    assert run(["search", "evaluate", str(tmp_path / "index")]) == 1
    assert "is damaged or of another gallery" in capsys.readouterr().err
