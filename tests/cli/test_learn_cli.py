"""`blindsight learn` as a stranger meets it: a live table, a model that can be read again, statements and sentences."""

import json

import pytest

from blindsight.cli.options import LiveTable
from blindsight.dp.ledger import Ledger
from blindsight.learn.model import LinearModel
from blindsight.service.routes import Library
from blindsight.statement import PrivacyStatement
from blindsight.sums.noise import NoisePlan

QUICK = ["-n", 300, "--components", 15, "--owners", 3, "--rounds", 2, "--key-bits", 2048]


def test_encrypted_learning_writes_model_statement_and_report(tmp_path, blindsight):
    asked = [
        "learn",
        "classifier",
        *QUICK,
        "--scheme",
        "block-dphe",
        "--sparsity",
        0.5,
        "--record",
        "--json",
    ]
    said = blindsight(*asked, "--out", tmp_path / "run")
    found = said.document
    assert "key generator s" in said.err  # the live table leaves standard output to the document
    assert found["score"] > found["public_score"] > 0.2
    assert [report["round"] for report in found["history"]] == [1, 2]
    assert LinearModel.load(tmp_path / "run" / "model.npz").weights.shape == (10, 16)
    statement = PrivacyStatement.from_json((tmp_path / "run" / "statement.json").read_text())
    assert statement.guarantee == "cryptographic"
    report = tmp_path / "run" / "report.html"
    for part in ("Learning together, unseen", "Who sees what", "block-dphe"):
        assert part in report.read_text()
    assert report.stat().st_mode & 0o077 == 0  # it shows an owner's update


def test_noise_inside_the_sums_is_proven_kept_and_charged(tmp_path, blindsight):
    asked = ["learn", "classifier", *QUICK, "--epsilon", 2, "--delta", 1e-5, "--unit", "record"]
    found = blindsight(*asked, "--ledger", tmp_path / "ledger", "--out", tmp_path / "run", "--json").document
    statement = PrivacyStatement.from_dict(found["statement"])
    assert (statement.guarantee, statement.unit) == ("differential privacy", "record")
    assert 1.99 < statement.epsilon <= 2
    plan = NoisePlan.from_dict(json.loads((tmp_path / "run" / "noise.json").read_text()))
    assert plan.epsilon(1e-5) == statement.epsilon
    (spend,) = Ledger(tmp_path / "ledger", readonly=True).spends("digits", "record")
    assert spend.loss.epsilon == statement.epsilon
    assert "Proven: epsilon = 2.00" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--epsilon", 2], "delta"),
        (["--epsilon", 2, "--delta", 1e-5], "unit"),
        (["--delta", 1e-5], "epsilon"),
        (["--epsilon", 2, "--delta", 1e-5, "--unit", "record", "--record"], "record"),
        (["--epsilon", 2, "--delta", 1e-5, "--unit", "record", "--resume"], "checkpoint"),
    ],
)
def test_noise_needs_its_parameters_by_name(tmp_path, blindsight, options, named):
    said = blindsight("learn", "classifier", *QUICK, *options, "--out", tmp_path / "run", code=2)
    assert named in said.err


def test_a_run_says_why_its_scheme(tmp_path, blindsight):
    said = blindsight("learn", "classifier", *QUICK, "--out", tmp_path).out.splitlines()
    (scheme,) = [line for line in said if line.startswith("Scheme ")]
    assert scheme.startswith("Scheme masks: ")
    page = (tmp_path / "report.html").read_text()
    assert "schedule" in page
    assert "block-dphe" not in page


def test_a_run_can_be_watched_and_asked_for_again(tmp_path, blindsight, monkeypatch):
    library, seen, rows = Library(tmp_path), [], []

    def row(table, cells):
        seen.append(library.run("digits"))
        rows.append(cells)

    monkeypatch.setattr(LiveTable, "row", row)
    out = tmp_path / "runs" / "digits"
    asked = ["learn", "classifier", *QUICK, "--scheme", "plain", "--out", out, "--resume"]
    first = blindsight(*asked, "--json").document
    assert [cells[0] for cells in rows] == ["1", "2"]
    assert [one.statement for one in seen] == [None, None]  # it is not finished yet
    assert [[report["round"] for report in one.history] for one in seen] == [[1], [1, 2]]
    assert library.run("digits").history == first["history"]
    assert library.run("digits").statement is not None
    page = (out / "report.html").read_text()
    assert "Nothing is hidden: the aggregator reads every update." in page
    assert "unseen" not in page
    again = blindsight(*asked, "--json").document  # nothing is left to do, and nothing is done twice
    assert again["history"] == first["history"] == json.loads((out / "history.json").read_text())
    assert (out / "report.html").read_text() == page


def test_clustering(tmp_path, blindsight):
    asked = ["learn", "cluster", *QUICK, "--features", "thumbnail", "--scheme", "masks", "--out", tmp_path]
    said = blindsight(*asked).out.splitlines()
    heading = next(i for i, line in enumerate(said) if line.startswith("round"))
    assert [line.split()[0] for line in said[heading + 1 : heading + 3]] == ["1", "2"]
    assert float(next(line for line in said if line.startswith("Adjusted")).split()[-1].rstrip(".")) > 0.1
    assert (tmp_path / "model.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--owners", "2"], "at least 3 members; got 2"),
        (["--key-bits", "1024"], "1024"),
        (["--scheme", "block-dph"], "Did you mean 'block-dphe'"),
        (["--sparsity", "1.5"], "sparsity"),
        (["--data", "faces", "--attributes", "hatt"], "Did you mean 'hat'"),
    ],
)
def test_bad_options_get_a_sentence(arguments, sentence, tmp_path, blindsight):
    asked = ["learn", "classifier", "-n", 120, "--components", 5, "--out", tmp_path]
    assert sentence in blindsight(*asked, *arguments, code=2).err
    assert not (tmp_path / "model.npz").exists()


@pytest.mark.parametrize("command", [["classifier"], ["network", "--model", "net.py:Net"]])
def test_settings_are_checked_before_pictures_are_read(command, blindsight, monkeypatch):
    monkeypatch.setattr("blindsight.data.load", None)
    said = blindsight("learn", *command, "--epsilon", 1, "--delta", 2, code=2).err
    assert "unexpected" not in said
