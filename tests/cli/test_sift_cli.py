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
from blindsight.data import load
from blindsight.sift.fitted import FittedSift
from blindsight.sift.sift import load_sift
from blindsight.statement import PrivacyStatement

FEW = ["-n", "500", "--dimensions", "20"]
POLICY = ["--public", "smiling", "--private", "male"]
QUICK = ["-n", "500", "--attackers", "quick"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder that `sift fit` wrote; tests copy what they change."""
    folder = tmp_path_factory.mktemp("sift") / "fitted"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BLINDSIGHT_CACHE", str(folder.parent / "cache"))
        assert run(["sift", "fit", *FEW, *POLICY, "--privacy", "inf", "--components", "1", "--out", str(folder)]) == 0
    return folder


def test_fit_writes_everything_that_is_needed_again(fitted):
    sift = load_sift(fitted / "sift.npz")
    assert (sift.dimension, sift.width, sift.name) == (20, 1, "smiling without male")
    policy = yaml.safe_load((fitted / "policy.yaml").read_text())
    assert policy == {"name": "", "public": ["smiling"], "private": ["male"]}
    statement = PrivacyStatement.from_json((fitted / "statement.json").read_text())
    assert statement.guarantee == "measured"
    page = (fitted / "report.html").read_text()
    for part in ("Showing one thing and hiding another", "You hide male"):
        assert part in page
    for name in ("pipeline.npz", "origin.npz", "report.html"):  # they show, or tell of, people
        assert (fitted / name).stat().st_mode & 0o077 == 0


def test_verify_decides_by_its_exit_code_and_its_version_is_applied(fitted, tmp_path, blindsight):
    folder = shutil.copytree(fitted, tmp_path / "sift")
    asked = ["sift", "verify", folder, *QUICK, "--json"]
    found = blindsight(*asked, "--threshold", 0.45).document
    assert (found["verdict"], found["setting"]["rows"]) == ("accept", 240)  # 200 made the sift, 60 its version
    assert found["accepted"] == str(folder / "verified.npz")
    verified = load_sift(folder / "verified.npz")
    assert verified.levels == (256,)  # the platform's version, rounded
    evidence = json.loads((folder / "verification.json").read_text())
    assert evidence["setting"]["sift"] != load_sift(folder / "sift.npz").digest
    applied = blindsight("sift", "apply", folder, "-n", 30, "--out", tmp_path / "z.npz", "--json").document
    assert (applied["verified"], applied["levels"], applied["sift"]) == (True, [256], verified.digest)

    promised = blindsight(*asked, "--threshold", 0.45, "--personal", 1).document
    drawn = load_sift(folder / "verified.npz")
    assert (drawn.kind, drawn.epsilon, drawn.certain.digest) == ("personal", 1.0, verified.digest)
    assert "epsilon 1" in promised["personal"]
    assert promised["bound"] < found["bound"]  # everybody's lead shrinks, the app's too
    app = [document["public"]["smiling"]["balanced_accuracy"] - 0.5 for document in (found, promised)]
    assert app[1] == pytest.approx(drawn.kept * app[0])

    found = blindsight(*asked, "--threshold", 0.01, code=1).document
    assert found["verdict"] in ("reject", "inconclusive")
    assert found["accepted"] is None
    assert not (folder / "verified.npz").exists()  # nor does the acceptance under laxer terms count any longer
    blindsight(*asked, "--threshold", 0.45, "--private", "outdoors")
    assert not (folder / "verified.npz").exists()  # the policy hides something else


def test_a_sift_of_ones_own_table_is_judged_and_applied_by_that_table(tmp_path, blindsight, monkeypatch):
    faces = load("faces", count=500, pictures_per_person=1)
    table, new = tmp_path / "table.csv", tmp_path / "new"
    new.mkdir()
    with table.open("w") as stream:
        stream.write("file,glasses,man\n")
        for row, picture in enumerate(faces.images):
            Image.fromarray(picture).save(tmp_path / f"{row}.png")
            stream.write(f"{row}.png,{faces.attribute('eyeglasses')[row]},{faces.attribute('male')[row]}\n")
    Image.fromarray(faces.images[0]).save(new / "seen.png")
    folder = tmp_path / "sift"
    made = ["--path", table, "--public", "glasses", "--private", "man", "--components", 1]
    blindsight("sift", "fit", *made, "--dimensions", 20, "--privacy", "inf", "--out", folder)
    said = blindsight("sift", "verify", folder, "--attackers", "quick", "--threshold", 0.45)
    assert "table" in said.out
    monkeypatch.chdir(tmp_path)
    for words in said.hints:
        blindsight(*words)
    assert len((tmp_path / "released.csv").read_text().splitlines()) == 501
    judged = json.loads((folder / "verification.json").read_text())["collection"]
    assert judged == {
        "name": "table",
        "pictures": 500,
        "sha256": FittedSift.load(folder).collection.load().content_hash(),
    }
    again = blindsight("sift", "apply", folder, "--out", tmp_path / "z.csv", "--json").document
    fresh = blindsight("sift", "apply", folder, "--path", new, "--out", tmp_path / "y.csv", "--json").document
    assert (again["pictures"], fresh["pictures"]) == (500, 1)


def test_verdict_comes_with_its_evidence(fitted, blindsight):
    said = blindsight("sift", "verify", fitted, *QUICK, "--as-is", "--threshold", 0.05, code=1).out
    for part in ("gradient boosting, tuned", "interval", "PrivLoss", "Eq. 5", "The app reads smiling", "would decide"):
        assert part in said
    assert not (fitted / "verified.npz").exists()


def test_pictures_a_sift_was_made_from_never_verify_it(fitted):
    given = FittedSift.load(fitted)
    more = load("faces", count=700, random_state=0, pictures_per_person=1)  # the same 500, and 200 others
    assert len(given.unseen(more)) == 500
    together = load("faces", count=500, random_state=0, pictures_per_person=1)
    object.__setattr__(together, "persons", np.arange(500) // 2)  # now two pictures each: both go if one was seen
    seen = set(range(500)) - set(given.unseen(together).tolist())
    assert len(seen) > 200
    assert all(row ^ 1 in seen for row in seen)


def test_apply_writes_what_an_app_receives(fitted, tmp_path, blindsight):
    table, archive = tmp_path / "z.csv", tmp_path / "z.npz"
    for out in (table, archive):
        said = blindsight("sift", "apply", fitted, "-n", 30, "--out", out, "--json")
        assert said.document["verified"] is False
    lines = list(csv.reader(table.read_text().splitlines()))
    assert lines[0] == ["picture", "z1"]
    with np.load(archive) as released:
        np.testing.assert_allclose(np.array(lines[1:])[:, 1:].astype(float), released["released"], rtol=1e-6)
        assert released["names"][0] == lines[1][0] == "face-000000"
        assert str(released["sift"]) == load_sift(fitted / "sift.npz").digest


def test_features_of_another_pipeline_are_refused(fitted, tmp_path, blindsight):
    folder, other = shutil.copytree(fitted, tmp_path / "sift"), tmp_path / "other"
    blindsight("sift", "fit", "-n", 360, "--dimensions", 20, *POLICY, "--method", "leace", "--out", other)
    shutil.copy(other / "pipeline.npz", folder / "pipeline.npz")
    for command in (["apply", folder, "--out", tmp_path / "z.npz"], ["verify", folder]):
        assert "belongs to feature pipeline" in blindsight("sift", *command, "-n", 500, code=2).err
    assert not (tmp_path / "z.npz").exists()


def test_symbols_come_with_a_certificate(tmp_path, blindsight, monkeypatch):
    monkeypatch.setattr("blindsight.sift.symbols._STEPS", 40)  # enough to find that a line does as well
    asked = ["-n", 900, "--dimensions", 20, "--public", "smiling", "--private", "outdoors", "--method", "symbol"]
    found = blindsight("sift", "fit", *asked, "--out", tmp_path, "--json").document
    assert found["certificates"][0]["symbols"] == 2
    assert found["statement"]["guarantee"] == "certified"
    assert "anybody, certified" in (tmp_path / "report.html").read_text()
    said = blindsight("sift", "verify", tmp_path, "-n", 900, code=(0, 1)).out  # either, for so few pictures
    assert "every attacker, present or future" in said


def test_matrix_shows_all_four(tmp_path, blindsight):
    asked = [
        "papers",
        "sensorsift",
        "matrix",
        *FEW,
        "--attributes",
        "smiling,male,outdoors",
        "--components",
        1,
        "--out",
        tmp_path,
    ]
    found = blindsight(*asked, "--json").document
    assert found["names"] == ["smiling", "male", "outdoors"]
    assert len(found["cells"]) == 6
    page = (tmp_path / "report.html").read_text()
    for part in ("correlation of labels", "overlap of features", "PubLoss", "PrivLoss"):
        assert part in page


def test_compare_names_the_best(blindsight):
    asked = [
        "papers",
        "sensorsift",
        "compare",
        *FEW,
        *POLICY,
        "--threshold",
        0.3,
        "--methods",
        "PLS 5; PPLS 1, lambda inf",
    ]
    said = blindsight(*asked).out
    for part in ("raw features", "PPLS 1, lambda inf", "costs the app least"):
        assert part in said


def test_a_policy_is_studied_by_figures_3_and_5(tmp_path, blindsight):
    asked = ["papers", "sensorsift", "policy", *FEW, *POLICY, "--components", 1, "--out", tmp_path]
    found = blindsight(*asked, "--json").document
    assert {point["privacy"] for point in found["trade_off"]["points"]} == {"0.0", "1.0", "inf"}
    assert found["policy"] == {"public": ["smiling"], "private": ["male"]}
    page = (tmp_path / "report.html").read_text()
    for part in ("Figure 3", "Figure 5", "where the sift looks"):
        assert part in page


def test_hopeless_policy_is_named_before_any_training(tmp_path, blindsight):
    rng = np.random.default_rng(0)
    rows = ["path,beard,moustache"]
    for i in range(60):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
        rows.append(f"{i}.png,{i % 2},{i % 2}")
    (tmp_path / "faces.csv").write_text("\n".join(rows))
    asked = ["--data", "csv", "--path", tmp_path / "faces.csv", "--public", "beard", "--private", "moustache"]
    said = blindsight("sift", "fit", *asked, "--out", tmp_path / "sift", code=2).err
    assert "hopeless: with moustache" in said
    assert "fitting" not in said
    assert not (tmp_path / "sift" / "sift.npz").exists()


def test_a_table_may_name_pictures_anywhere_below_a_root(tmp_path, blindsight):
    rng, table, rows = np.random.default_rng(0), tmp_path / "tables" / "faces.csv", ["path,beard,glasses"]
    (tmp_path / "pictures").mkdir()
    table.parent.mkdir()
    for i in range(500):
        file, (beard, glasses) = tmp_path / "pictures" / f"{i}.png", rng.integers(0, 2, 2)
        Image.fromarray(rng.integers(100 * beard, 150 + 100 * beard, (8, 8, 3), dtype=np.uint8)).save(file)
        rows.append(f"{file},{beard},{glasses}")
    table.write_text("\n".join(rows))
    asked = ["--data", "csv", "--path", table]
    fit = ["sift", "fit", *asked, "--public", "beard", "--private", "glasses", "--components", 1, "--dimensions", 5]
    refused = blindsight(*fit, "--out", tmp_path / "sift", code=1).err
    assert "--root" in refused
    assert "line 2" in refused
    blindsight(*fit, "--out", tmp_path / "sift", "--root", tmp_path)
    said = blindsight(
        "sift", "verify", tmp_path / "sift", *asked, "--root", tmp_path, "--attackers", "quick", code=(0, 1)
    ).err
    assert "240 rows, about 1 min; 800 or more" in said  # before the work begins
    other = ["--data", "digits", "--root", tmp_path, "--out", tmp_path / "z.npz"]
    assert "--data csv" in blindsight("sift", "apply", tmp_path / "sift", *other, code=2).err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--public", "smiling", "--private", "mal"], "Did you mean 'male'"),
        (["--public", "smilin", "--private", "male"], "Did you mean 'smiling'"),
        (["--public", "male", "--private", "male"], "both public and private"),
        (["--public", "smiling"], "--private"),
        ([*POLICY, "--threshold", "0.6"], "threshold must be in (0, 0.5)"),
        ([*POLICY, "--method", "leace", "--privacy", "2"], "leace has no such weight"),
        ([*POLICY, "--features", "pixel"], "Did you mean 'pixels'"),
        (["--data", "digits", *POLICY], "digits has no attributes"),
        (["--policy", "policy.yaml"], "unknown private attribute 'nose'"),
        (["--policy", "policy.yaml", "--public", "smiling"], "not both"),
    ],
)
def test_bad_options_get_a_sentence(arguments, sentence, tmp_path, blindsight, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text("name: cam\npublic: [smiling]\nprivate: [male, nose]\n")
    said = blindsight("sift", "fit", "-n", 60, "--out", "sift", *arguments, code=2).err
    assert sentence in said
    assert "fitting" not in said
    assert not Path("sift/sift.npz").exists()


def test_missing_sift_gets_a_sentence(tmp_path, blindsight):
    assert "nowhere: it does not exist" in blindsight("sift", "verify", tmp_path / "nowhere", code=1).err


def test_a_table_with_wrong_cells_says_so(tmp_path, blindsight):
    faces = load("faces", count=60)
    lines = [f"{row}.png,{faces.attribute('eyeglasses')[row]},{faces.attribute('male')[row]}" for row in range(60)]
    for row, picture in enumerate(faces.images):
        Image.fromarray(picture).save(tmp_path / f"{row}.png")

    def fit(table, code):
        (tmp_path / "table.csv").write_text("\n".join(["path,glasses,man", *table]))
        made = ["--path", tmp_path / "table.csv", "--public", "glasses", "--private", "man", "--method", "symbol"]
        return blindsight("sift", "fit", *made, "--out", tmp_path / "sift", code=code).err

    said = fit([*lines[:3], "3.png,perhaps,0", *lines[4:]], 1)
    assert "line 5, column 'glasses'" in said
    assert "gone.png: " in fit([*lines, "gone.png,1,0"], (0, 2))
