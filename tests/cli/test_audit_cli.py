"""`blindsight audit papers` as a stranger meets it: a table, a document, a private report, and sentences."""

import json
from functools import partial
from pathlib import Path

import pytest

from blindsight.audit import checks, papers, portraits
from blindsight.audit.checks import Check, Evidence
from blindsight.audit.mechanisms import SelfTest
from blindsight.audit.publishedhashing import flipped_bit
from blindsight.audit.subject import audit_subjects
from blindsight.cli import run
from blindsight.errors import MissingExtraError
from blindsight.rng import seeded_bytes

Capture = pytest.CaptureFixture[str]


def missing(effort: float) -> Evidence:
    raise MissingExtraError("this needs torch.")


@pytest.fixture
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The auditor, two claims of a paper, the pictures, and a check that cannot be made; all but keys is seeded."""
    monkeypatch.setattr(checks, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(papers, "RUNS", 20_000)
    monkeypatch.setattr(papers, "_FACES", 300)
    monkeypatch.setattr(papers, "audit_subjects", partial(audit_subjects, source=seeded_bytes(1)))
    monkeypatch.setattr(papers, "self_test", partial(papers.self_test, source=seeded_bytes(2)))
    monkeypatch.setattr(papers, "portraits", partial(papers.portraits, scheme="masks"))
    monkeypatch.setattr(papers, "published_hashing", lambda: (flipped_bit(0.3), flipped_bit(1.0)))
    monkeypatch.setattr(portraits, "_PROBES", 12)
    monkeypatch.setattr(portraits, "_COMPONENTS", 40)
    whole = papers.glance
    monkeypatch.setattr(papers, "glance", lambda *arguments: whole(*arguments)[:3])
    monkeypatch.setattr(papers, "thorough", lambda *_: (Check("networks", 1, missing),))


def test_audit_writes_a_document_and_a_private_report(few_checks: None, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "new" / "audit"
    assert run(["audit", "papers", "--minutes", "0.3", "--seed", "4", "--out", str(out), "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert json.loads((out / "audit.json").read_text()) == document
    assert (document["schema"], document["subject"], document["seed"]) == ("blindsight/audit", "papers", 4)
    told = {row["claim"]: row for row in document["findings"]}
    wrong = told["Random Flipping, Theorem 4: epsilon = 0.3 per bit"]
    assert wrong["verdict"] == "refuted"
    assert wrong["measured"]["low"] > 0.9
    assert wrong["check"] == "private hashing as published"
    assert told["Random Flipping, Theorem 4: epsilon = 1 per bit"]["verdict"] == "not refuted"
    assert len(document["pictures"]) == 3
    unknown, untried = document["notes"]
    assert "does not recognise the originals either" in unknown  # of 12 persons on drawn faces
    assert untried == "networks could not be tried: this needs torch."
    assert "drawing faces" in captured.err
    page = (out / "report.html").read_text()
    for part in (
        "Attacked by ourselves",
        "who says so",
        "data:image/",
        "Random Flipping",
        "this needs torch",
    ):
        assert part in page
    for name in ("report.html", "audit.json"):
        assert (out / name).stat().st_mode & 0o077 == 0


def test_people_read_a_table_per_check(few_checks: None, tmp_path: Path, capsys: Capture) -> None:
    assert run(["audit", "papers", "--minutes", "0.3", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for part in ("The auditor itself", "Private hashing as published", "who says so", "networks could not be tried"):
        assert part in said
    assert "1 refuted" in said  # epsilon = 0.3; the planted violation is nobody's claim
    assert "undecided" in said.splitlines()[-1] + said.splitlines()[-2]
    words = " ".join(said.split())
    assert "99.9%" in words
    assert "refuted: measured beyond the claim, at the stated confidence." in words
    assert "neighbouring" in said  # no column is so narrow that words break
    assert "cryptographically" in said
    assert str(tmp_path / "report.html") in " ".join(said.split())


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--minutes", "0"], 2, "the time budget must be positive; got 0.0 minutes."),
        (["--minutes", "nan"], 2, "the time budget must be positive"),
        (["--minutes", "soon"], 2, "'soon' is not a valid float"),
        (["--seed", "-1"], 2, "-1 is not in the range"),
        (["--data", "faces"], 2, "Leave it out."),
        (["--path", "here"], 2, "--path says where the collection of --data lies; got no --data."),
        (["--out", "{file}/audit"], 1, "a part of the path is a file"),
    ],
)
def test_wrong_wishes_get_a_sentence_before_a_face_is_drawn(
    arguments: list[str],
    code: int,
    sentence: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(papers, "load", lambda *_, **__: pytest.fail("faces were drawn"))
    (tmp_path / "file").write_text("")
    wishes = [each.format(file=tmp_path / "file") for each in arguments]
    assert run(["audit", "papers", "--out", str(tmp_path / "audit"), *wishes]) == code
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "audit" / "audit.json").exists()


def test_an_auditor_that_fails_its_own_test_writes_nothing(
    few_checks: None, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = papers.self_test(runs=5000).sound
    monkeypatch.setattr(papers, "self_test", lambda runs: SelfTest(sound, sound))
    assert run(["audit", "papers", "--out", str(tmp_path)]) == 1
    assert "the auditor failed its own test" in capsys.readouterr().err
    assert list(tmp_path.glob("*.json")) + list(tmp_path.glob("*.html")) == []
