"""`blindsight learn selective` as a stranger meets it: a live table, one document, a report, and sentences."""

import json
from pathlib import Path

import pytest

from blindsight.cli import run
from blindsight.learn.timeline.timeline import Timeline
from blindsight.statement import PrivacyStatement

Capture = pytest.CaptureFixture[str]
QUICK = ["-n", "500", "--components", "15", "--participants", "3", "--days", "3"]
PROVEN = ["--delta", "1e-5", "--upload-clip", "0.5"]


def asked(out: Path, *wishes: str) -> list[str]:
    return ["learn", "selective", *QUICK, "--out", str(out), *wishes]


def test_study_writes_document_statement_and_report(tmp_path: Path, capsys: Capture) -> None:
    wishes = ["--noise", "participant", "--epsilon", "8", *PROVEN, "--epsilons", "2, 8", "--clip", "1"]
    assert run([*asked(tmp_path / "a" / "run", *wishes), "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert "never updated" in captured.err  # the live table leaves standard output to the document
    timeline = Timeline.from_dict(document)
    assert len(timeline.photos) == 3
    assert len(timeline.lines) == 7 + 2 * 4
    ours = timeline.line("selective sharing")
    assert ours.epsilon is not None
    assert 7.9 < ours.epsilon <= 8
    assert document["composition"][0]["what"] == "one upload"
    whole = document["composition"][1]
    assert whole["what"].startswith("a participant, over")
    assert whole["composed"] == ours.epsilon
    assert (whole["delta"], whole["accountant"]) == (1e-5, "pld")
    assert "per participant" in document["sentence"]
    written = PrivacyStatement.from_json((tmp_path / "a" / "run" / "statement.json").read_text())
    assert written == ours.statement
    page = Path(document["report"]).read_text()
    assert page.count('role="img"') == 3  # by day, by bytes, by epsilon
    for part in ("Sharing a little of what was learned", "what is counted", "epsilon at delta = 1e-05", "DP-FedAvg"):
        assert part in page


def test_what_is_not_proven_is_null_in_the_document(tmp_path: Path, capsys: Capture) -> None:
    assert run([*asked(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {(row["basic"], row["composed"], row["accountant"]) for row in document["composition"]} == {
        (None, None, "none")
    }


def test_live_table_is_for_people(tmp_path: Path, capsys: Capture) -> None:
    assert run(asked(tmp_path, "--noise", "published", "--epsilon", "1", "--bound", "0.1")) == 0
    lines = capsys.readouterr().out.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("day  "))
    assert [line.split()[0] for line in lines[heading + 1 : heading + 4]] == ["1", "2", "3"]
    whole = " ".join(" ".join(lines).split())
    assert "one parameter in one upload, as the papers count 1.00" in whole
    assert "at delta = 1e-05" in whole
    assert "against whom" in whole
    assert "0 0.000 0.00 everybody" in whole  # of lines in which nothing leaves
    assert "and not even that is proven." in whole


def test_the_same_seed_learns_the_same(tmp_path: Path, capsys: Capture) -> None:
    found = []
    for seed in ("1", "1", "2"):
        assert run([*asked(tmp_path, "--seed", seed, "--residual"), "--json"]) == 0
        found.append([line["accuracy"] for line in json.loads(capsys.readouterr().out)["lines"]])
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("wishes", "parameters"),
    [
        (["--classes", "3, 5,8", "--components", "6"], 3 * 7),
        (["--data", "faces", "--attribute", "smiling"], 2 * 16),
        (["--scheme", "masks", "--share", "0.5", "--half"], 10 * 16),
        (["--order", "asynchronous", "--select", "threshold", "--threshold", "0.001", "--download", "0.5"], 10 * 16),
    ],
)
def test_questions_and_ways_to_share(wishes: list[str], parameters: int, tmp_path: Path, capsys: Capture) -> None:
    assert run(asked(tmp_path, *wishes)) == 0
    captured = capsys.readouterr()
    assert f"{parameters} parameters" in captured.out
    assert (tmp_path / "report.html").exists()


def test_a_head_learns_above_ones_own_vgg16(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from blindsight.learn import vgg

    monkeypatch.setattr(vgg, "_WIDTHS", ((2,),))  # narrow, and for small photos
    monkeypatch.setattr(vgg, "_HIDDEN", 5)
    monkeypatch.setattr(vgg, "_SIZE", 16)
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path / "cache"))
    with torch.random.fork_rng(devices=[]):
        torch.save(vgg.vgg16(3).state_dict(), tmp_path / "weights.pt")
    wishes = ["--features", f"vgg16:{tmp_path / 'weights.pt'}", "--classes", "0,1,2"]
    assert run(asked(tmp_path / "out", *wishes)) == 0
    assert f"{3 * (5 + 1)} parameters" in capsys.readouterr().out


def test_a_network_from_scratch_learns_too(tmp_path: Path, capsys: Capture) -> None:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        wishes = ["--model", "cnn", "--optimiser", "adam", "-n", "600", "--classes", "0,1"]
        assert run([*asked(tmp_path, *wishes), "--json"]) == 0
    finally:
        torch.set_num_threads(threads)
    assert len(Timeline.from_dict(json.loads(capsys.readouterr().out)).lines) == 7


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        (["--share", "0"], "must be in (0, 1]; got 0.0"),
        (["--download", "2"], "download must be in (0, 1]; got 2.0"),
        (["--bound", "-1"], "bound must be positive"),
        (["--noise", "laplace", "--epsilon", "1"], "Name the bound."),
        (["--noise", "participant", *PROVEN], "noise goes with an epsilon"),
        (["--noise", "participant", "--epsilon", "0", *PROVEN], "epsilon must be finite and at least 1e-6; got 0.0"),
        (["--noise", "participant", "--epsilon", "1"], "needs delta and upload_clip"),
        (["--noise", "gauss", "--epsilon", "1"], "'gauss' is not one of"),
        (["--epsilons", "1,two"], "numbers separated by commas; got '1,two'"),
        (["--scheme", "block-dph"], "Did you mean 'block-dphe'"),
        (["--learning-rate", "0"], "the learning rate must be positive"),
        (["--features", "pixel"], "Did you mean 'pixels'"),
        (["--participants", "0"], "0 is not in the range"),
        (["--scheme", "plain"], "under 'plain' the server reads every upload"),
        (["--participants", "2", "--scheme", "masks"], "an encrypted sum needs 3 participants at least; got 2."),
        (["--features", "vgg16:nowhere.pt"], "vgg16 takes a file with its weights"),
    ],
)
def test_wrong_wishes_get_a_sentence_before_a_photo_is_read(
    wishes: list[str], sentence: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blindsight.data.load", lambda *_, **__: pytest.fail("photos were read"))
    assert run(asked(tmp_path, *wishes)) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wishes", "code", "sentence"),
    [
        (["--classes", "4,5", "--skew", "0.01"], 2, "it could learn nothing but to say so"),
        (["--classes", "4"], 2, "a model tells two classes apart at least"),
        (["--classes", "4,four"], 2, "unknown class 'four'"),
        (["--classes", "4,5", "--attribute", "hat"], 2, "Name one of them"),
        (["--attribute", "hat"], 2, "unknown attribute 'hat'"),
        (["--data", "digit"], 2, "Did you mean 'digits'"),
        (["--data", "faces"], 1, "faces has no classes. Name an attribute to learn."),
        (["--initial", "1"], 2, "must be in (0, 1)"),
        (["--days", "400"], 2, "Plan fewer days."),
        (["--participants", "20"], 2, "nobody gathers the 32 photos that start a training"),
    ],
)
def test_what_photos_do_not_allow_gets_a_sentence(
    wishes: list[str], code: int, sentence: str, tmp_path: Path, capsys: Capture
) -> None:
    assert run(asked(tmp_path, *wishes)) == code
    said = capsys.readouterr().err
    assert sentence in said
    assert "unexpected" not in said
    assert not (tmp_path / "report.html").exists()


def test_errors_are_one_document_too(tmp_path: Path, capsys: Capture) -> None:
    assert run([*asked(tmp_path, "--share", "0"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


def test_unwritable_folder_is_found_before_any_work(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    assert run(asked(tmp_path / "file" / "run")) == 1
    captured = capsys.readouterr()
    assert "a part of the path is a file" in captured.err
    assert "training" not in captured.err
