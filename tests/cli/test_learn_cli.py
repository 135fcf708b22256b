"""`blindsight learn` as a stranger meets it: a live table, a model that can be read again, statements and sentences."""

import json
from pathlib import Path

import pytest

from blindsight.cli import run
from blindsight.cli.options import LiveTable
from blindsight.learn.model import LinearModel
from blindsight.service.shelf import Shelf
from blindsight.statement import PrivacyStatement

Capture = pytest.CaptureFixture[str]
QUICK = ["-n", "400", "--components", "20", "--owners", "3", "--rounds", "2", "--key-bits", "2048"]


def test_encrypted_learning_writes_model_statement_and_report(tmp_path: Path, capsys: Capture) -> None:
    assert run(["learn", "encrypted", *QUICK, "--sparsity", "0.5", "--out", str(tmp_path / "run"), "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert "key generator s" in captured.err  # the live table leaves standard output to the document
    assert found["score"] > found["public_score"] > 0.3
    assert [report["round"] for report in found["history"]] == [1, 2]
    assert LinearModel.load(tmp_path / "run" / "model.npz").weights.shape == (10, 21)
    statement = PrivacyStatement.from_json((tmp_path / "run" / "statement.json").read_text())
    assert statement.guarantee == "cryptographic"
    page = (tmp_path / "run" / "report.html").read_text()
    for part in ("Learning together, unseen", "Who sees what", "block-dphe", "masks"):
        assert part in page


def test_rounds_are_there_for_a_service_to_show(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, seen = Shelf(tmp_path), []
    monkeypatch.setattr(LiveTable, "row", lambda *_: seen.append(shelf.run("digits")))
    out = tmp_path / "runs" / "digits"
    assert run(["learn", "encrypted", *QUICK, "--scheme", "plain", "--out", str(out), "--json"]) == 0
    history = json.loads(capsys.readouterr().out)["history"]
    assert [one.statement for one in seen] == [None, None]  # it is not finished yet
    assert [[report["round"] for report in one.history] for one in seen] == [[1], [1, 2]]
    assert shelf.run("digits").history == history
    assert shelf.run("digits").statement is not None


def test_live_table_is_for_people(tmp_path: Path, capsys: Capture) -> None:
    assert run(["learn", "encrypted", *QUICK, "--scheme", "masks", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("round"))
    assert lines[heading + 1].split()[0] == "1"
    assert lines[heading + 2].split()[0] == "2"


def test_interrupted_run_goes_on(tmp_path: Path, capsys: Capture) -> None:
    asked = ["learn", "encrypted", *QUICK[:-4], "--scheme", "plain", "--out", str(tmp_path), "--resume", "--json"]
    assert run([*asked, "--rounds", "3"]) == 0
    first = json.loads(capsys.readouterr().out)
    page = (tmp_path / "report.html").read_bytes()
    assert run([*asked, "--rounds", "3"]) == 0  # nothing is left to do, and nothing is done twice
    again = json.loads(capsys.readouterr().out)
    assert again["history"] == first["history"] == json.loads((tmp_path / "history.json").read_text())
    assert (tmp_path / "report.html").read_bytes() == page  # with the picture of who saw what


def test_clustering(tmp_path: Path, capsys: Capture) -> None:
    asked = ["learn", "cluster", *QUICK, "--sparsity", "0.2", "--out", str(tmp_path), "--json"]
    assert run(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["score"] > 0.1
    assert (tmp_path / "model.npz").exists()


def test_compare_shows_every_method(capsys: Capture) -> None:
    assert run(["learn", "compare", *QUICK, "--epsilon", "0.2", "--delta", "0.05", "--json"]) == 0
    methods = {row["method"]: row for row in json.loads(capsys.readouterr().out)["methods"]}
    assert {"plain", "dphe", "block-dphe", "bfv", "masks", "pooled", "local", "prr10", "ra12"} == set(methods)
    assert methods["prr10"]["statement"]["claim"]["why_it_fails"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--owners", "2"], "at least 3 owners; got 2"),
        (["--key-bits", "1024"], "1024"),
        (["--scheme", "block-dph"], "Did you mean 'block-dphe'"),
        (["--sparsity", "1.5"], "sparsity must be in"),
        (["--data", "faces", "--attributes", "hatt"], "Did you mean 'hat'"),
    ],
)
def test_bad_wishes_get_a_sentence(arguments: list[str], sentence: str, tmp_path: Path, capsys: Capture) -> None:
    asked = ["learn", "encrypted", "-n", "120", "--components", "5", "--out", str(tmp_path), *arguments]
    assert run(asked) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "model.npz").exists()


def test_open_learning_is_not_called_unseen(tmp_path: Path) -> None:
    assert run(["learn", "encrypted", *QUICK, "--scheme", "plain", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "Nothing is hidden: the aggregator reads every update." in page
    assert "unseen" not in page


def test_report_with_an_owners_update_is_private(tmp_path: Path) -> None:
    assert run(["learn", "encrypted", *QUICK, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").stat().st_mode & 0o077 == 0


def test_unwritable_folder_is_found_before_any_work(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    assert run(["learn", "encrypted", *QUICK, "--out", str(tmp_path / "file" / "run")]) == 1
    captured = capsys.readouterr()
    assert "a part of the path is a file" in captured.err
    assert "fitting" not in captured.err
