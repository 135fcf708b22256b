"""`blindsight sift` as a stranger meets it: a sift on disk, a verdict with its evidence, what an app receives."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from blindsight.cli import run
from blindsight.sift.fitted import FittedSift
from blindsight.sift.siftfile import load_sift
from blindsight.statement import PrivacyStatement

Capture = pytest.CaptureFixture[str]
FEW = ["-n", "500", "--dimensions", "20"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `sift fit` wrote; tests copy what they change."""
    folder = tmp_path_factory.mktemp("sift") / "fitted"
    asked = ["sift", "fit", *FEW, "--public", "smiling", "--private", "male", "--privacy", "inf", "--components", "2"]
    assert run([*asked, "--out", str(folder)]) == 0
    return folder


def test_fit_writes_everything_that_is_needed_again(fitted: Path) -> None:
    sift = load_sift(fitted / "sift.npz")
    assert (sift.dimension, sift.width, sift.name) == (20, 2, "smiling without male")
    assert yaml.safe_load((fitted / "policy.yaml").read_text()) == {
        "name": "",
        "public": ["smiling"],
        "private": ["male"],
    }
    statement = PrivacyStatement.from_json((fitted / "statement.json").read_text())
    assert statement.guarantee == "measured"
    page = (fitted / "report.html").read_text()
    for part in ("Showing one thing and hiding another", "numbers let out, K", "where the sift looks", "You hide male"):
        assert part in page
    for name in ("pipeline.npz", "origin.npz", "report.html"):  # they show, or tell of, people
        assert (fitted / name).stat().st_mode & 0o077 == 0


def test_verify_decides_by_its_exit_code(fitted: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = shutil.copytree(fitted, tmp_path / "sift")
    asked = ["sift", "verify", str(folder), "-n", "500", "--attackers", "quick", "--json"]
    assert run([*asked, "--threshold", "0.45"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["setting"]["rows"]) == ("accept", 300)  # the developer had the other 200
    assert found["accepted"] == str(folder / "verified.npz")
    assert load_sift(folder / "verified.npz").levels == (256, 256)  # the platform's version, rounded
    assert (
        json.loads((folder / "verification.json").read_text())["setting"]["sift"]
        != load_sift(folder / "sift.npz").digest
    )
    assert run([*asked, "--threshold", "0.01"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] in ("reject", "inconclusive")
    assert found["accepted"] is None
    assert not (folder / "verified.npz").exists()  # nor does the acceptance under laxer terms count any longer
    assert run([*asked, "--threshold", "0.45", "--private", "outdoors"]) == 0
    assert not (folder / "verified.npz").exists()  # the policy hides something else


def test_verdict_comes_with_its_evidence(fitted: Path, capsys: Capture) -> None:
    assert (
        run(["sift", "verify", str(fitted), "-n", "500", "--attackers", "quick", "--as-is", "--threshold", "0.05"]) == 1
    )
    shown = capsys.readouterr().out
    for part in ("gradient boosting, tuned", "interval", "PrivLoss", "Eq. 5", "The app reads smiling", "would decide"):
        assert part in shown
    assert not (fitted / "verified.npz").exists()


def test_pictures_a_sift_was_made_from_never_verify_it(fitted: Path) -> None:
    from blindsight.data import load

    given = FittedSift.load(fitted)
    more = load("faces", count=700, random_state=0, pictures_per_person=1)  # the same 500, and 200 others
    assert len(given.unseen(more)) == 500
    together = load("faces", count=500, random_state=0, pictures_per_person=1)
    object.__setattr__(together, "persons", np.arange(500) // 2)  # now two pictures each: both go if one was seen
    seen = set(range(500)) - set(given.unseen(together).tolist())
    assert len(seen) > 200
    assert all(row ^ 1 in seen for row in seen)


def test_apply_writes_what_an_app_receives(fitted: Path, tmp_path: Path, capsys: Capture) -> None:
    table, archive = tmp_path / "z.csv", tmp_path / "z.npz"
    for out in (table, archive):
        assert run(["sift", "apply", str(fitted), "-n", "30", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.split("}\n", 1)[1])["verified"] is False
    lines = list(csv.reader(table.read_text().splitlines()))
    assert lines[0] == ["picture", "z1", "z2"]
    with np.load(archive) as released:
        np.testing.assert_allclose(np.array(lines[1:])[:, 1:].astype(float), released["released"], rtol=1e-6)
        assert released["names"][0] == lines[1][0] == "face-000000"
        assert str(released["sift"]) == load_sift(fitted / "sift.npz").digest


def test_verified_version_is_what_is_applied(fitted: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = shutil.copytree(fitted, tmp_path / "sift")
    asked = ["-n", "500", "--attackers", "quick", "--threshold", "0.45"]
    assert run(["sift", "verify", str(folder), *asked]) == 0
    capsys.readouterr()
    assert run(["sift", "apply", str(folder), "-n", "30", "--out", str(tmp_path / "z.npz"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verified"], found["levels"]) == (True, [256, 256])
    assert found["sift"] == load_sift(folder / "verified.npz").digest


def test_features_of_another_pipeline_are_refused(fitted: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = shutil.copytree(fitted, tmp_path / "sift")
    other = ["-n", "400", "--dimensions", "20", "--public", "smiling", "--private", "male", "--method", "leace"]
    assert run(["sift", "fit", *other, "--out", str(tmp_path / "other")]) == 0
    shutil.copy(tmp_path / "other" / "pipeline.npz", folder / "pipeline.npz")
    for command in (["apply", str(folder), "--out", str(tmp_path / "z.npz")], ["verify", str(folder)]):
        assert run(["sift", *command, "-n", "500"]) == 2
        assert "belongs to feature pipeline" in capsys.readouterr().err
    assert not (tmp_path / "z.npz").exists()


def test_symbols_come_with_a_certificate(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blindsight.sift.posterior._STEPS", 40)  # enough to find that a line does as well
    asked = ["-n", "900", "--dimensions", "20", "--public", "smiling", "--private", "outdoors"]
    assert run(["sift", "fit", *asked, "--method", "symbol", "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["certificates"][0]["symbols"] == 2
    assert found["statement"]["guarantee"] == "certified"
    assert "anybody, certified" in (tmp_path / "report.html").read_text()
    assert run(["sift", "verify", str(tmp_path), "-n", "900"]) in (0, 1)
    assert "every attacker, present or future" in capsys.readouterr().out


def test_matrix_shows_all_four(tmp_path: Path, capsys: Capture) -> None:
    asked = ["sift", "matrix", *FEW, "--attributes", "smiling,male,outdoors", "--components", "1"]
    assert run([*asked, "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["names"] == ["smiling", "male", "outdoors"]
    assert len(found["cells"]) == 6
    page = (tmp_path / "report.html").read_text()
    for part in ("correlation of labels", "overlap of features", "PubLoss", "PrivLoss"):
        assert part in page


def test_compare_names_the_best(capsys: Capture) -> None:
    asked = ["sift", "compare", *FEW, "--public", "smiling", "--private", "male", "--threshold", "0.3"]
    assert run([*asked, "--methods", "PLS 5; PPLS 1, lambda inf"]) == 0
    shown = capsys.readouterr().out
    assert "raw features" in shown
    assert "PPLS 1, lambda inf" in shown
    assert "costs the app least" in shown


def test_hopeless_policy_is_named_before_any_training(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    rows = ["path,beard,moustache"]
    for i in range(60):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
        rows.append(f"{i}.png,{i % 2},{i % 2}")
    (tmp_path / "faces.csv").write_text("\n".join(rows))
    asked = ["--data", "csv", "--path", str(tmp_path / "faces.csv"), "--public", "beard", "--private", "moustache"]
    assert run(["sift", "fit", *asked, "--out", str(tmp_path / "sift")]) == 2
    captured = capsys.readouterr()
    assert "hopeless: with moustache kept within 0.1 of guessing" in captured.err
    assert "fitting" not in captured.err
    assert not (tmp_path / "sift" / "sift.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--public", "smiling", "--private", "mal"], "Did you mean 'male'"),
        (["--public", "smilin", "--private", "male"], "Did you mean 'smiling'"),
        (["--public", "male", "--private", "male"], "both public and private"),
        (["--public", "smiling"], "what it must not (--private)"),
        (["--public", "smiling", "--private", "male", "--threshold", "0.6"], "threshold must be in (0, 0.5)"),
        (
            ["--public", "smiling", "--private", "male", "--method", "leace", "--privacy", "2"],
            "leace has no such weight",
        ),
        (["--public", "smiling", "--private", "male", "--features", "pixel"], "Did you mean 'pixels'"),
        (["--data", "digits", "--public", "smiling", "--private", "male"], "digits has no attributes"),
    ],
)
def test_bad_wishes_get_a_sentence(arguments: list[str], sentence: str, tmp_path: Path, capsys: Capture) -> None:
    assert run(["sift", "fit", "-n", "60", "--out", str(tmp_path), *arguments]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert "fitting" not in captured.err
    assert not (tmp_path / "sift.npz").exists()


def test_policy_file(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "policy.yaml").write_text("name: cam\npublic: [smiling]\nprivate: [male, nose]\n")
    asked = ["sift", "fit", "-n", "60", "--policy", str(tmp_path / "policy.yaml"), "--out", str(tmp_path / "sift")]
    assert run(asked) == 2
    assert "unknown private attribute 'nose'" in capsys.readouterr().err
    assert run([*asked, "--public", "smiling"]) == 2
    assert "not both" in capsys.readouterr().err


def test_missing_sift_gets_a_sentence(tmp_path: Path, capsys: Capture) -> None:
    assert run(["sift", "verify", str(tmp_path / "nowhere")]) == 1
    assert "nowhere: it does not exist" in capsys.readouterr().err
